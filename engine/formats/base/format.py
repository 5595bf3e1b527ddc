"""What a format is, and the setup of one place: its settings and working parts, for its format.

Both are one module, because each is made for the other. Only `Setup` connects parts; everything
else gets its parts as parameters.
"""

from __future__ import annotations

import os
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, cast

from engine.config import queue_config
from engine.config.place_address import Address
from engine.config.queue_config import Config, HandlerConfig, Queue
from engine.config.validators import ConfigError
from engine.model import ChangeSource, LockEvidence, State, Task
from engine.policy import RetryPolicy, retries_of
from engine.schedules import NO_RETRY
from engine.store import Store, StoreError, Unavailable
from engine.system import files, users
from engine.system.command_errors import EX_NOPERM, EX_UNAVAILABLE, NotReadable, fail, print_error
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.text.safe import safe_line, shell_text
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.config.validators import ConfigLocation
    from engine.destinations.destination import Destination, Registry
    from engine.doctor.finding import Finding
    from engine.locks.token_buckets import TokenBuckets
    from engine.logs.log_line import LogLine
    from engine.monitor import prometheus
    from engine.monitor.recorder import RecorderLocation
    from engine.operations.journal import Journal, Who
    from engine.operations.notes import Notes
    from engine.places.mail_setup import MailSetup
    from engine.places.place import Place
    from engine.places.schedules import PlaceSchedules
    from engine.programs.mail_log import MailLog
    from engine.system.run_clock import RunClock
    from engine.work.housekeeping import Housekeeping

CONTRACT = 1
"""Version of this class. A change that breaks formats of other packages raises it; those for
another version are refused with one line."""


class InstalledPlace(NamedTuple):
    """A place that was found on this host."""

    place: str
    """Its path, or its URL without password."""
    name: str = ""
    """The name that its program has for it; "" without one."""
    is_enabled: bool = True
    """False if it is opened only by its name: not started with the others, or without a queue."""
    problem: str = ""
    """Why it cannot be read, or is not enabled; "" if it can be opened."""
    identity: str = ""
    """The same for two addresses of one place; "": its path, links resolved, or its URL."""


class Lookup(NamedTuple):
    """One of the ways in which a format finds places of this host."""

    where: str
    """What is asked, as the operator knows it: a path, a URL, or a command."""
    find: Callable[[], Iterable[InstalledPlace]]
    """Blocks, perhaps for ever; changes nothing, and sends no password. Raises Unavailable or
    OSError: there is something, and it does not answer."""


class Format(ABC):
    """One format. Each package of a format has one object of its subclass, `FORMAT`.

    It is made when the program starts, for each command: its attributes are plain values, and its
    methods import what they need when they are called. Only `detects` and `open` must be written.
    """

    contract = CONTRACT
    source = ""
    """The package that it comes from, with its version; "" for ours."""
    name: str
    """Key of `stores` in the configuration."""
    title: str
    """The format's name on screen, with its article."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of the names of its places, if they are files; read of our formats only."""
    init_command = ""
    """The command that makes a place, for error texts; read of our formats only."""
    commands = ""
    """The word of its own commands, for error texts; "" if there are none."""
    task_folders: tuple[str, ...] = ()
    """The folders of a place that have its tasks, if `arrange` does not name them."""
    work_command: tuple[str, ...] = ()
    """The command that runs a worker, after the words that name the place."""
    has_lock = False
    """True if one worker at a time holds the lock of the queue; else each claim is a lease."""
    queue_settings: Collection[str] = Queue._fields
    """Names of the settings of the section `queue` that its places use, for `info`."""
    claims = "row leases"
    """How a task is claimed, for the screen."""
    mail_parts: tuple[str, ...] = ()
    """What its places have of our own mail sending: "transports", "mail spool"."""
    is_mail_server = False
    """True if its places are those of a mail server, for `mta instances`."""
    is_delivering = False
    """True if its places have deliveries without a handler in our configuration."""
    no_destinations = "tasks of this format do not name their destination"
    """Why tasks do not name the destination of their delivery; "" if they do."""
    demo_places: Mapping[str, str] = {}
    """The option of the demo with which it has a place there, "" for none -> its
    `engine.demo.keeper.DemoPlace` as "MODULE:CLASS"; read of our formats only."""

    @abstractmethod
    def detects(self, at: Address) -> bool:
        """True if a place has this format: by its name, folders or first bytes; no server is asked.

        Ours are called for each place of each command; those of other packages only for a place
        that none of ours knows.
        """

    @abstractmethod
    def open(self, setup: Setup) -> Store:
        """Open the store of a place.

        Raises:
            Unavailable: it cannot be reached; the text says what was expected.
        """

    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        """How its places of this host are found: by its own programs, in the usual folders, at the
        usual addresses. Made for our formats only, and only if no place is named."""
        return ()

    def identify(self, at: Address) -> str:
        """What a place of this host is to the lookups, as `InstalledPlace.identity`; "": its path
        or URL. May ask its server, but sends no password."""
        return ""

    def has_queue(self, path: str) -> bool:
        """True if a folder has a queue, for a format that takes every path the others leave."""
        return False

    # Settings

    def parse_settings(self, section: Any, at: ConfigLocation) -> Any:
        """The settings of `stores.NAME` in the configuration; `section` is None without them.

        Raises:
            ConfigError: they are invalid.
        """
        if section is not None:
            raise at.error("this format has no settings here")
        return None

    def check_config(self, config: Config) -> None:
        """Check the sections of the configuration that only this format reads.

        Raises:
            ConfigError: one is invalid.
        """
        return

    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """How many attempts a task has, and the delay before each. None of ours, if a task or its
        own program has them."""
        return retries_of(NO_RETRY, is_exact=True)

    def state_folder(self, at: Address, queue: Queue) -> str:
        """Our own folder for a place, with journal, notes and logs; "" for one below `places/` of
        our state."""
        return ""

    def arrange(self, queue: Queue, at: Address, state_folder: str) -> Queue:
        """The folders of a place, with all our own files in our folder for it."""
        return folders_apart(queue, at, state_folder)

    # Work

    def why_unworkable(self, settings: Any) -> str:
        """Why no worker of this project can run there; "" if one can."""
        return "spooldeck has no worker for it"

    def make_queue(self, setup: Setup) -> None:
        """Make missing folders of a queue that is complete without them, for an empty count."""
        return

    def examine_lock(self, setup: Setup) -> LockEvidence | None:
        """Examine the lock of the queue; None if it `has_lock` none."""
        return None

    def probe_now(self, setup: Setup, destination: Destination) -> None:
        """Make the job of the next probe of a destination due now, if probes are jobs there.

        Raises:
            StoreError: the queue cannot be used.
        """
        return

    def complete_registry(
        self, setup: Setup, registry: Registry, patience: float | None
    ) -> Registry:
        """The registry with what the application itself knows of destinations; `patience` in
        seconds as that of `SqlRegistry`."""
        return registry

    # Shown and checked

    def complete(self, setup: Setup, place: Place) -> Place:
        """The place with what only this format knows of it: its facts, groups, logs and limits."""
        return place

    def route(self, setup: Setup) -> Iterator[tuple[str, str]]:
        """Names and values of how the server of an address is found, for `info`; may hang.

        Raises:
            Unavailable: none is found.
        """
        return iter(())

    def schedules(self, setup: Setup) -> PlaceSchedules | None:
        """The schedules by which the server of a place adds tasks; None if the format has none."""
        return None

    def mail_log(self, setup: Setup) -> MailLog | None:
        """The log of a mail server that writes about the tasks of a place; None if none does."""
        return None

    def task_rows(
        self, setup: Setup, task: Task, lines: Sequence[LogLine]
    ) -> Sequence[tuple[str, str]]:
        """Names and values of what only a server knows of a task, given the log lines that mention
        it; blocks.

        Raises:
            Unavailable: it cannot be asked.
        """
        log = self.mail_log(setup)
        if log is None:
            return ()
        from engine.programs.logged_mail import mail_rows, sum_up_mail
        from engine.programs.mail_log import local_paths

        made = ((log.parse(line.text), line.when) for line in lines)
        events = [one._replace(when=when) for one, when in made if one and one.id == task.id]
        tries = self.describe_next_tries(setup, [task], time.time())
        since = events[0].when if events else None
        logged = sum_up_mail(events) if local_paths(log) else None
        return [*mail_rows(task, logged, tries.get(task.id, ""), since)]

    def describe_next_tries(
        self, setup: Setup, tasks: Sequence[Task], now: float
    ) -> Mapping[str, str]:
        """When each of these waiting tasks is tried next, and how exact that is, by id; blocks."""
        from engine.text.times import format_deadline

        return {one.id: format_deadline(one.due, now) for one in tasks if one.due is not None}

    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        """Check a place for `doctor`: yield the name of each check and what it found. Changes
        nothing."""
        from engine.doctor import store_checks
        from engine.doctor.finding import bad

        base = setup.command_words
        command = shlex.join(base)
        workable = not setup.no_worker
        work = shlex.join([*base, *self.work_command]) if workable else ""
        try:
            store = setup.open_store()
        except Unavailable as error:
            yield "store", bad(f"{setup.place}: {error}")
            return
        try:
            yield from store_checks.check_store(store, time.time(), command, work)
            folder, root = setup.state_folder, setup.queue.root
            clock = store_checks.check_run_times(folder, root, time.time())
            yield from (("clock", finding) for finding in clock)
        finally:
            store.close()

    # Demo

    def check_demo(self, option: str, folder: str) -> None:
        """Check that the demo's place can be made.

        Raises:
            Unavailable: something must be installed.
            OSError: the folder is not suitable.
        """
        return


@contextmanager
def foreign_errors(form: Format) -> Iterator[None]:
    """Turn every error of code of another package into one line.

    Raises:
        Unavailable: with the format, its package and the error.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if not form.source or isinstance(error, StoreError | ConfigError):
            raise
        raise Unavailable(f"format {form.name}: {describe_foreign(form.source, error)}") from error


def open_guarded(form: Format, setup: Setup) -> Store:
    """Open the store of a format of another package; all its errors are those of a store.

    Raises:
        Unavailable: it cannot be opened, or is no store.
    """
    with foreign_errors(form):
        store = form.open(setup)
        if not isinstance(store.states, Mapping) or not callable(store.scan):
            raise TypeError("open returned no store with `states` and `scan`")
    return cast("Store", GuardedStore(form, store))


class GuardedStore:
    """A store of another package: what its methods raise is a `StoreError` with the package."""

    def __init__(self, form: Format, store: Store) -> None:
        self._form, self._store = form, store

    def __getattr__(self, name: str) -> Any:
        with foreign_errors(self._form):
            value = getattr(self._store, name)
            if isinstance(value, ChangeSource) and value.wait is not None:
                return value._replace(wait=self._guard(value.wait))
        return self._guard(value) if callable(value) else value

    def _guard(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with foreign_errors(self._form):
                answer = method(*arguments, **named)
            return self._each(answer) if isinstance(answer, Iterator) else answer

        return call

    def _each(self, answers: Iterator[Any]) -> Iterator[Any]:
        with foreign_errors(self._form):
            yield from answers


def describe_foreign(source: str, error: BaseException) -> str:
    """One line about an error in code of another package: the package, and what was raised."""
    return safe_line(f"{source}: {type(error).__name__}: {error}".removesuffix(": "))


def folders_apart(queue: Queue, address: Address, state_folder: str) -> Queue:
    """The folders of a place with all our own files in the folder `state_folder`, and nothing in
    the place's; for a path with the place itself as root, below which no link is followed."""
    return queue._replace(
        root=state_folder if address.is_url else address.text,
        pending=state_folder,
        work=state_folder,
        dlq=state_folder,
        run_dir=f"{state_folder}/run",
        log_dir=f"{state_folder}/log",
        queue_metrics=f"{state_folder}/metrics/queue.prom",
        mail_metrics=f"{state_folder}/metrics/mail.prom",
        counters=f"{state_folder}/metrics/counters",
        mail_spool=f"{state_folder}/mailspool",
        retention_days=inf,  # no task there is deleted because of its age
    )


class Setup(NamedTuple):
    """One place with its settings; makes each working part when a command needs it."""

    config: Config
    queue: Queue
    format: Format
    address: Address
    state_folder: str
    """Our own folder for the place: journal, notes, recorder, staging directory."""
    settings: Any = None
    """As returned by the format's `parse_settings`."""
    words: tuple[str, ...] = ()
    """The command line as typed, without the name of the program."""
    fault: str = ""
    """Why the configuration is invalid: this setup has only what is valid of it, to keep a mail."""
    describe_unusable: Callable[[], str] = str
    """Says why formats of other packages cannot be used, if they were asked and none knew this
    place; else ""."""
    describe_missing: Callable[[str], str] = "{}: no such file or folder".format
    """A path where nothing is -> that, and which name was perhaps meant."""

    @property
    def format_name(self) -> str:
        """Name of its format: key of `stores` in the configuration."""
        return self.format.name

    @property
    def command_words(self) -> list[str]:
        """The first words of a command on this place, for texts: quote them with `shlex.join`."""
        named = ["--config", os.path.abspath(self.config.path)] if self.config.path else []
        return ["spooldeck", "--root", self.place, *named]

    @property
    def place(self) -> str:
        """The place as text: its path, or its URL without password."""
        return self.address.text

    def open_store(self) -> Store:
        """Open the store of the place.

        Raises:
            Unavailable: it cannot be reached.
        """
        if self.format.source:
            return open_guarded(self.format, self)
        try:
            return self.format.open(self)
        except Unavailable as error:
            if not (unusable := self.describe_unusable()):
                raise
            raise type(error)(f"{unusable}; {error}") from error

    @property
    def no_worker(self) -> str:
        """Why no worker of this project can run there; "" if one can."""
        why = self.format.why_unworkable(self.settings)
        return why or ("" if self.format.work_command else "spooldeck has no worker for it")

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """The findings of `doctor` for its format.

        Raises:
            Unavailable: code of another package failed.
        """
        with foreign_errors(self.format):
            yield from self.format.findings(self)

    def require_format(self, name: str, title: str, instead: str = "") -> None:
        """Refuse a command that is for another format; `title` says which, with its article.

        `instead` is the command for all formats, `DEAD` in it the word of the place for dead tasks.

        Raises:
            Unavailable: the place has another format than `name`.
        """
        if self.format_name == name:
            return
        more = f" (see spooldeck {self.format.commands} --help)" if self.format.commands else ""
        if instead:
            with closing(self.open_store()) as store:
                dead = store.states.get(State.DEAD, "")
            if "DEAD" not in instead or dead:
                words = f"spooldeck {instead.replace('DEAD', dead)} {shlex.quote(self.place)}"
                more = f": use `{safe_line(words)}`"
        what = f"{safe_line(self.place)} is {self.format.title}"
        raise Unavailable(f"{what}: this command is for {title}{more}")

    def require_mail(self, part: str) -> None:
        """Refuse a mail command at a place whose workers do not send by our transports.

        Raises:
            Unavailable: the format has no such part: "transports" or "mail spool".
        """
        if part not in self.format.mail_parts:
            raise Unavailable(f"{safe_line(self.place)} is {self.format.title}: no {part}")

    def examine_lock(self) -> LockEvidence | None:
        """Examine the lock of the queue; None if its format has none."""
        return self.format.examine_lock(self)

    def retry_policy(self) -> RetryPolicy:
        """How many attempts a task has, and the delay before each; for some kinds their own."""
        handlers = self.config.handlers.items()
        retries_by_kind = {kind: one.retry for kind, one in handlers if one.retry is not None}
        policy = self.format.retry_policy(self)
        if not retries_by_kind:
            return policy
        from random import random

        return policy._replace(by_kind=retries_by_kind, random=random)

    @property
    def mail(self) -> MailSetup:
        """The mail side of the place."""
        from engine.places.mail_setup import MailSetup

        return MailSetup(
            self.config, self.queue, self.state_folder, lambda: self.sudo_command("root")
        )

    def housekeeping(self) -> Housekeeping:
        """What is deleted and repaired from time to time."""
        from engine.work.housekeeping import Housekeeping

        return Housekeeping(
            self.state_folder,
            self.queue.root,
            self.config.trash.hours,
            log=self.log,
            report=print_error,
            make_folder=self.make_folder,
            run_clock=self.run_clock(),
        )

    def run_clock(self) -> RunClock:
        """The record of the time that runs have seen pass at this place."""
        from engine.system.run_clock import RunClock

        return RunClock(self.state_folder, self.queue.root, self.log, self.make_folder)

    @property
    def written_folders(self) -> tuple[str, ...]:
        """The folders that workers and our commands write to, that of the tasks first."""
        state_folder, queue = self.state_folder, self.queue
        tasks = tuple(f"{self.place}/{name}" for name in self.format.task_folders)
        return (*tasks, queue.pending, queue.mail_spool, state_folder, queue.log_dir, queue.run_dir)

    @property
    def lock_path(self) -> str:
        """Contract: `${NFTBAN_RUN_DIR}/queue.lock`."""
        return f"{self.queue.run_dir}/queue.lock"

    @property
    def log_path(self) -> str:
        """The queue's own log."""
        return f"{self.queue.log_dir}/queue.log"

    def require_readable(self) -> None:
        """Check that we have the permission to read the queue: an unreadable queue is not a missing
        one.

        Raises:
            NotReadable: we have not.
        """
        tasks = (f"{self.place}/{name}" for name in self.format.task_folders)
        for path in (self.queue.pending, self.queue.work, self.queue.dlq, *tasks):
            barrier = _unreadable_folder(path)
            if barrier:
                fix = self._sudo_hint(barrier) or f"chmod u+rx {shlex.quote(barrier)}"
                raise NotReadable(f"permission denied: cannot read {safe_line(barrier)}: {fix}")
        root = self.queue.root
        if os.path.isfile(root) and not os.access(root, os.R_OK):
            fix = self._sudo_hint(root) or f"chmod u+r {shlex.quote(root)}"
            raise NotReadable(f"permission denied: cannot read {safe_line(root)}: {fix}")

    def require_writable(self) -> None:
        """Check that we have the permission to change tasks, before anything is changed.

        Raises:
            CommandError: permission denied; the text names the command with sudo.
        """
        queue, state_folder = self.queue, self.state_folder
        ours = (state_folder, f"{state_folder}/held", f"{state_folder}/trash")
        for path in (queue.pending, queue.work, queue.dlq, *ours):
            self.refuse_unwritable(path, made=path.startswith(state_folder))

    def refuse_unwritable(self, path: str, *, made: bool) -> None:
        """Refuse a folder that we cannot write to; one that is `made` may be missing.

        Raises:
            CommandError: the text names the command with sudo.
        """
        path = _unwritable_folder(path, made=made)
        if not path:
            return
        if not os.path.isdir(path):
            fail(EX_UNAVAILABLE, f"{safe_line(path)} is a file, expected a folder: move it away")
        if self.address.is_url:
            problem = f"no folder for spooldeck's own files: {safe_line(path)} is not writable"
            fail(EX_NOPERM, f"{problem}: set XDG_STATE_HOME (in a unit: StateDirectory=)")
        own = f"a read-only file system, or chmod u+rwx {shlex.quote(path)}"
        fix = self._sudo_hint(path) or own
        fail(EX_NOPERM, f"permission denied: cannot write to {safe_line(path)}: {fix}")

    def _sudo_hint(self, path: str) -> str:
        """ "use sudo -u OWNER ..." for the owner of a folder; "" if we are the owner or root."""
        owner, us = os.stat(path).st_uid, os.geteuid()
        if self.address.is_url:
            return ""  # our own folder: another user has another one
        return "" if us in (0, owner) else f"use {self.sudo_command(users.sudo_user(owner))}"

    def sudo_command(self, user: str) -> str:
        """The typed command line with sudo for another user, with the same meaning there."""
        from engine.config.nftban_variables import PASSWORD_VARIABLE

        # sudo keeps neither our environment nor our home folder, which may hold the configuration.
        # The secret is not printed: the other user must provide it or work without it.
        variables = sorted((k, v) for k, v in os.environ.items() if k.startswith("NFTBAN_"))
        environment = [f"{k}={v}" for k, v in variables if k != PASSWORD_VARIABLE]
        if os.environ.get(queue_config.PLACES_VARIABLE) and self.place not in self.words:
            places = shlex.join(place.text for place in self.config.places)
            environment.append(f"{queue_config.PLACES_VARIABLE}={places}")
        named = any(word.split("=")[0] == "--config" for word in self.words)
        is_default = self.config.path == queue_config.SEARCH_PATHS[-1]
        path = "" if named or is_default else self.config.path
        config = ["--config", os.path.abspath(path)] if path else []
        before = ["env", *environment] if environment else []
        words = ["sudo", "-u", user, *before, "spooldeck", *config, *self.words]
        return safe_line(shlex.join(words))

    def recorder_slot(self) -> RecorderLocation:
        """Where the recorder of this queue writes."""
        from engine.monitor.recorder import RecorderLocation

        return RecorderLocation(f"{self.state_folder}/recorder", self.queue.pending)

    @property
    def programs(self) -> Mapping[str, HandlerConfig]:
        """The handlers that run a program, by kind of task."""
        return {kind: h for kind, h in self.config.handlers.items() if h.command}

    @property
    def delivered(self) -> Mapping[str, HandlerConfig]:
        """The handlers that send HTTP requests, by kind of task."""
        return {kind: h for kind, h in self.config.handlers.items() if h.deliver is not None}

    def counters(self) -> prometheus.CounterFiles:
        """The counter files of this queue."""
        from engine.monitor import prometheus

        return prometheus.CounterFiles(self.queue.counters, self.queue.root, print_error)

    def token_buckets(self) -> TokenBuckets | None:
        """The token buckets of the rate limits; None if there is no limit."""
        rates = {k: h.rate for k, h in self.config.handlers.items() if h.rate is not None}
        if self.queue.rate is not None:
            rates[""] = self.queue.rate
        if not rates:
            return None
        from engine.locks.token_buckets import TokenBuckets

        path = f"{self.queue.run_dir}/queue.buckets"
        return TokenBuckets(path, rates, time.time, self.queue.root)

    def journal(self) -> Journal:
        """The journal of operations at this place."""
        from engine.operations.journal import Journal

        return Journal(f"{self.state_folder}/journal", self.queue.root)

    def notes(self) -> Notes:
        """The notes of operators on tasks."""
        from engine.operations.notes import Notes

        return Notes(f"{self.state_folder}/journal", self.queue.root)

    def current_user(self) -> Who:
        """Our user, host and process, for the journal."""
        from engine.operations import journal

        user = users.sudo_user(os.geteuid())
        return journal.identify_operator(os.environ, user, os.uname().nodename, os.getpid())

    def handler_account(self, kind: str, spool: os.stat_result | None = None) -> Account | None:
        """The user that runs a kind's program: `run_as`, or the owner of the spool of the task.

        None: our own user. Pass `spool`, the stat of an opened spool, to be exact: the path may
        lead to another folder by the time it is opened.

        Raises:
            CommandError: we cannot run it as that user.
        """
        run_as = self.config.handlers[kind].run_as
        where = f"handlers.{kind}.run_as" if run_as else "queue.run_as"
        try:
            return users.task_account(
                run_as or self.queue.run_as, spool or os.stat(self.queue.pending)
            )
        except users.NotRoot as error:
            fail(EX_NOPERM, f"{where} is {error}: only root can, use {self.sudo_command('root')}")

    def make_folders(self) -> None:
        """Make the folders outside the spool that a worker writes to.

        A folder for logs or metrics that cannot be made is only reported.

        Raises:
            OSError: the folder of the lock could not be made.
        """
        self.make_folder(self.queue.run_dir)
        for path in self.output_folders():
            try:
                self.make_folder(path)
            except OSError as error:
                print_error(f"{safe_line(path)}: {error_text(error)}")

    def make_folder(self, path: str) -> None:
        """Make a folder and its missing parents, for the owner of the queue.

        Below the data folder no symbolic link is followed: its owner could redirect us to another
        place.

        Raises:
            OSError: it could not be made.
        """
        like = None if self.address.is_url else os.stat(self.queue.pending)
        owner = None if like is None else files.new_file_owner(like)
        os.close(files.open_dir_path(path, self.queue.root, make=True, owner=owner))

    def output_folders(self) -> tuple[str, ...]:
        """The folders of logs and metrics."""
        queue = self.queue
        return queue.log_dir, queue.counters, os.path.dirname(queue.queue_metrics)

    def log(self, level: str, text: str) -> None:
        """Append a line to the queue's log; an error is only reported."""
        self.log_lines([(level, text, time.time())])

    def log_lines(
        self, lines: Sequence[tuple[str, str, float]], *, if_allowed: bool = False
    ) -> None:
        """Append lines of level, text and time (epoch seconds UTC) with one write.

        An error is only reported; a lack of permission is not, with `if_allowed`.
        """
        from engine.logs.log_line import format_log_line

        try:
            if if_allowed:
                self.make_folder(self.queue.log_dir)
            for level, text, now in lines:
                if level in ("ERROR", "ALERT"):
                    self._send_syslog(level, text, now)
            data = b"".join(format_log_line(*line) for line in lines)
            files.append(self.log_path, data, root=self.queue.root)
        except OSError as error:
            if not (if_allowed and isinstance(error, PermissionError)):
                texts = "; ".join(safe_line(text) for _, text, _ in lines)
                print_error(f"{safe_line(self.log_path)}: {error_text(error)}; not logged: {texts}")

    def log_if_allowed(self, level: str, text: str) -> None:
        """Append a line to the queue's log if we may: an operator may lack the permission for the
        log."""
        self.log_lines([(level, text, time.time())], if_allowed=True)

    def log_queued(self, *tasks: Task) -> None:
        """Log new tasks in the words of the contract, with their stored descriptions; then when a
        delayed one is due, from which its waiting time counts."""
        now = time.time()
        texts = (
            f"{t.id} ({t.kind}: {shell_text(t.description)})"
            + (f", due in {t.due - now:.0f}s" if t.due and t.due > now else "")
            for t in tasks
        )
        lines = [("INFO", f"Task queued: {text}", now) for text in texts]
        self.log_lines(lines, if_allowed=True)

    def alert(self, text: str) -> None:
        """Send an alert to syslog only."""
        self._send_syslog("ALERT", text, time.time())

    def _send_syslog(self, level: str, text: str, now: float) -> None:
        if self.queue.syslog:
            from engine.system import syslog_handler  # loaded only for errors

            syslog_handler.send_message(self.queue.syslog, level, text, now)


def _unwritable_folder(path: str, *, made: bool) -> str:
    """The folder that we cannot write to on the way to `path`; "" if none.

    For a path that is `made` when missing, this is the folder that would contain it.
    """
    try:
        os.stat(path)
    except PermissionError:
        return _unwritable_folder(os.path.dirname(path) or ".", made=made)
    except FileNotFoundError:
        return _unwritable_folder(os.path.dirname(path) or ".", made=made) if made else ""
    except NotADirectoryError:
        return ""  # the code that opens it reports what was expected
    return "" if os.access(path, os.W_OK | os.X_OK) else path


def _unreadable_folder(path: str) -> str:
    """The folder that we cannot read on the way to `path`; "" if none."""
    try:
        os.stat(path)
    except PermissionError:
        return _unreadable_folder(os.path.dirname(path) or ".")
    except OSError:
        return ""  # the code that opens it reports what was expected
    return "" if os.access(path, os.R_OK | os.X_OK) else path
