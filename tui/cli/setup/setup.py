"""Build the working parts of one queue from its settings: store, lock, handlers, mail, logs.

Only this package connects parts. Everything else gets its parts as parameters.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TextIO

from engine import policy, verbs
from engine.config import queue_config
from engine.config.queue_config import Config, Queue
from engine.config.queue_config import HandlerConfig as Program
from engine.locks import queue_lock
from engine.logs.log_tail import format_log_line
from engine.model import LockEvidence, State, Task, Verdict, state_words
from engine.monitor import prometheus
from engine.operations import retention
from engine.store import ChangeableStore, ReadableStore, Store, StoreError, Unavailable
from engine.stores.nftban import NftbanStore, SpoolFolders
from engine.system import files, users
from engine.system.users import Account
from engine.text.safe import contract_text, safe_line
from engine.work.handlers import Handler
from engine.work.worker import WorkerServices

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.locks.token_buckets import TokenBuckets
    from engine.mail.send.delivery_log import Ledger
    from engine.mail.send.mail_spool import MailSpool
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspensions
    from engine.mail.transports.registry import TransportRegistry
    from engine.monitor.recorder import RecorderLocation
    from engine.operations.journal import Journal, Who
    from engine.operations.notes import Notes
    from tui.cli.setup.format import ForeignPlace
    from tui.cli.setup.mail_parts import MailHandler

EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_NOPERM, EX_CONFIG = 64, 69, 74, 77, 78
"""Exit codes beyond the contract's 0 to 3 (sysexits.h)."""


class CommandError(Exception):
    """Ends the command with one line on standard error and an exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NotReadable(Unavailable):
    """A queue may exist, but we may not look; the text names the command with sudo."""


def fail(code: int, text: str) -> NoReturn:
    """End the command with one line on standard error.

    Raises:
        Fail: always.
    """
    raise CommandError(code, text)


class Setup(NamedTuple):
    """One place with its settings; makes each working part when a command needs it."""

    config: Config
    queue: Queue
    words: tuple[str, ...] = ()
    """The command line as typed, without the name of the program."""
    foreign_place: "ForeignPlace | None" = None
    """The place in another program's format; None for a queue of the contract."""

    @property
    def place(self) -> str:
        """Path of the place: its data folder, or the database file."""
        return self.queue.root if self.foreign_place is None else self.foreign_place.path

    @property
    def state_folder(self) -> str:
        """Our own folder at the place: journal, notes, recorder, staging directory."""
        return (
            self.spool_folders().staging_dir
            if self.foreign_place is None
            else self.foreign_place.state_folder
        )

    @property
    def has_lock(self) -> bool:
        """True if one lock excludes other workers; False if each claim is a lease."""
        return self.foreign_place is None

    def open_store(self) -> Store:
        """Open the store of the place, in any format.

        Raises:
            Unavailable: it cannot be reached.
        """
        return self.open_nftban() if self.foreign_place is None else self.foreign_place.open_store()

    @property
    def lock_path(self) -> str:
        """Contract: `${NFTBAN_RUN_DIR}/queue.lock`."""
        return f"{self.queue.run_dir}/queue.lock"

    @property
    def log_path(self) -> str:
        """The queue's own log."""
        return f"{self.queue.log_dir}/queue.log"

    def spool_folders(self) -> SpoolFolders:
        """The folders of the task files."""
        queue = self.queue
        return SpoolFolders(
            queue.pending,
            queue.work,
            queue.dlq,
            mail_spool=queue.mail_spool,
            max_pending=queue.max_pending,
            durable=queue.durable,
            root=queue.root,
        )

    def open_nftban(self) -> NftbanStore:
        """Open the store of a queue of the contract.

        Raises:
            Unavailable: it cannot be reached, or has another format.
        """
        if self.foreign_place is not None:
            title, word = self.foreign_place.format.title, self.foreign_place.name
            raise Unavailable(
                f"{safe_line(self.place)} is {title}: this command is for queues of the contract "
                f"(see spooldeck {word} --help)"
            )
        self._require_folders()
        return NftbanStore(self.spool_folders())

    def count_states(self, store: ReadableStore) -> Mapping[State, int]:
        """Count the tasks in each state; from file names alone if the format allows it.

        Raises:
            Unavailable: the store cannot be reached.
        """
        if isinstance(store, NftbanStore):
            return store.count_tasks()
        counts = dict.fromkeys(store.states, 0)
        for found in store.scan(store.states.values()):
            if isinstance(found, Task):
                counts[found.state] += 1
        return counts

    def require_readable(self) -> None:
        """Check that we have the permission to read the queue: an unreadable queue is not a missing
        one.

        Raises:
            Hidden: we have not.
        """
        for path in (self.queue.pending, self.queue.work, self.queue.dlq):
            barrier = _unreadable_folder(path)
            if barrier:
                mend = self._sudo_hint(barrier) or f"chmod u+rx {safe_line(barrier)}"
                raise NotReadable(f"permission denied: cannot read {safe_line(barrier)}: {mend}")
        root = self.queue.root
        if os.path.isfile(root) and not os.access(root, os.R_OK):
            mend = self._sudo_hint(root) or f"chmod u+r {safe_line(root)}"
            raise NotReadable(f"permission denied: cannot read {safe_line(root)}: {mend}")

    def _require_folders(self) -> None:
        self.require_readable()
        queue = self.queue
        if os.path.isfile(queue.root):
            what = "not a SQLite database: expected one, or a folder with a queue"
            raise Unavailable(f"{queue.root}: {what}")
        if not os.path.lexists(queue.root) and has_database_name(queue.root):
            raise Unavailable(describe_missing(queue.root))
        if not all(map(os.path.isdir, (queue.pending, queue.work, queue.dlq))):
            where = os.path.dirname(queue.pending)
            raise Unavailable(
                f"{queue.root}: no queue, expected the folders pending, work and dlq in {where} "
                f"(spooldeck init {queue.root} makes them)"
            )

    def make_queue(self) -> None:
        """Make missing queue folders below an existing data folder, durably (mkdir, fsync).

        The program of the contract does this for each task that it adds. A folder configured
        outside the data folder is not made: its disk may not be mounted. No symbolic link below the
        data folder is followed.

        Raises:
            Fail: permission denied; the text names the command with sudo.
            Unavailable: a folder could not be made.
        """
        queue = self.queue
        if self.foreign_place is not None or not os.path.isdir(queue.root):
            return
        self.require_readable()
        below = queue.root.rstrip("/") + "/"
        wanted = [path for path in (queue.pending, queue.work, queue.dlq) if path.startswith(below)]
        made = [path for path in wanted if not os.path.isdir(path)]
        for path in made:
            self._refuse_unwritable(_unwritable_folder(path, made=True))
        for path in made:
            try:
                os.close(files.open_dir_path(path, queue.root, make=True))
            except OSError as error:
                raise Unavailable(f"{path}: cannot make this folder: {error.strerror}") from error
            print_error(f"made {safe_line(path)}")

    def require_writable(self) -> None:
        """Check that we have the permission to change tasks, before anything is changed.

        Raises:
            Fail: permission denied; the text names the command with sudo.
        """
        queue, desk = self.queue, self.state_folder
        for path in (queue.pending, queue.work, queue.dlq, desk, f"{desk}/held", f"{desk}/trash"):
            self._refuse_unwritable(_unwritable_folder(path, made=path.startswith(desk)))

    def require_lockable(self) -> None:
        """Check that we may take the queue lock and change tasks, before anything is changed.

        Raises:
            Fail: permission denied; the text names the command with sudo.
            Unavailable: there is no queue.
        """
        self.require_writable()
        self._require_folders()
        self._refuse_unwritable(_unwritable_folder(self.queue.run_dir, made=True))
        for path in self._output_folders():
            if not os.path.isdir(path):
                self._refuse_unwritable(_unwritable_folder(path, made=True))

    def require_workable(self) -> None:
        """Check that a worker of ours can run here, before anything is changed.

        Raises:
            Fail: it cannot; the text has the reason and the repair.
            Unavailable: there is no queue.
        """
        self.require_lockable()
        for kind in self.programs:
            self.handler_account(kind)

    def _refuse_unwritable(self, path: str) -> None:
        if not path:
            return
        if not os.path.isdir(path):
            fail(EX_UNAVAILABLE, f"{safe_line(path)} is a file, expected a folder: move it away")
        mend = self._sudo_hint(path) or f"a read-only file system, or chmod u+rwx {safe_line(path)}"
        fail(EX_NOPERM, f"permission denied: cannot write to {safe_line(path)}: {mend}")

    def _sudo_hint(self, path: str) -> str:
        """ "use sudo -u OWNER ..." for the owner of a folder; "" if we are the owner or root."""
        owner, us = os.stat(path).st_uid, os.geteuid()
        return "" if us in (0, owner) else f"use {self.sudo_command(users.sudo_user(owner))}"

    def sudo_command(self, user: str) -> str:
        """The typed command line with sudo for another user, with the same meaning there."""
        import shlex

        from engine.config.nftban_variables import PASSWORD_VARIABLE

        # sudo keeps neither our environment nor our home folder, which may hold the configuration.
        # The secret is not printed: the other user must provide it or work without it.
        own = sorted((k, v) for k, v in os.environ.items() if k.startswith("NFTBAN_"))
        environment = [f"{k}={v}" for k, v in own if k != PASSWORD_VARIABLE]
        named = any(word.split("=")[0] == "--config" for word in self.words)
        found = (
            self.config.path
            if not named and self.config.path != queue_config.SEARCH_PATHS[-1]
            else ""
        )
        words = [
            *("sudo", "-u", user),
            *(["env", *environment] if environment else []),
            "spooldeck",
            *(["--config", os.path.abspath(found)] if found else []),
            *self.words,
        ]
        return safe_line(shlex.join(words))

    def examine_lock(self) -> LockEvidence:
        """Examine the lock file of a queue of the contract; other formats have none."""
        threshold = self.queue.stuck_threshold
        evidence = queue_lock.examine_lock(self.lock_path, threshold)
        if evidence.verdict is not Verdict.STUCK:
            return evidence
        return queue_lock.check_claims(evidence, self.last_claim_time(), threshold, time.time())

    def last_claim_time(self) -> float | None:
        """When the newest task in work was claimed, epoch seconds UTC: the latest st_ctime, which a
        rename sets. None if there is none.

        Raises:
            OSError: the folder cannot be read.
        """
        found = []
        for name in os.listdir(self.queue.work):
            if name.endswith(".task"):
                with suppress(FileNotFoundError):  # another process moved it
                    path = f"{self.queue.work}/{name}"
                    found.append(os.stat(path, follow_symlinks=False).st_ctime)
        return max(found, default=None)

    def recorder_slot(self) -> "RecorderLocation":
        """Where the recorder of this queue writes."""
        from engine.monitor.recorder import RecorderLocation

        return RecorderLocation(f"{self.state_folder}/recorder", self.queue.pending)

    def retry_policy(self) -> policy.RetryPolicy:
        """How many attempts a task has, and the delay before each."""
        if self.foreign_place is not None:
            return self.foreign_place.format.retry_policy(self.foreign_place.settings)
        return queue_config.retry_policy(self.queue)

    @property
    def programs(self) -> Mapping[str, Program]:
        """The handlers that run a program, by kind of task."""
        return {kind: h for kind, h in self.config.handlers.items() if h.command}

    @property
    def sends_mail(self) -> bool:
        """True if we send `mail_send` tasks; False if a program is configured for them."""
        return "mail_send" not in self.programs

    def handles_kind(self, kind: str) -> bool:
        """True if a worker with this configuration has a handler for this kind of task."""
        if self.foreign_place is not None:
            return not self.foreign_place.format.why_unworkable(self.foreign_place.settings)
        from engine.work.handlers import CONTRACT_KINDS

        return kind in (*self.programs, *queue_config.BUILT_IN_KINDS) or kind not in CONTRACT_KINDS

    def mail_handler(self) -> "MailHandler":
        """The handler of `mail_send` tasks; it reads no file before the first use."""
        from tui.cli.setup.mail_parts import MailHandler

        return MailHandler(
            self.mail_settings,
            self.transport_registry,
            self.mail_sender,
            self.queue.mail_spool,
            ours=self.sends_mail,
            complain=print_error,
            root=self.queue.root,
        )

    def counters(self) -> prometheus.CounterFiles:
        """The counter files of this queue."""
        return prometheus.CounterFiles(self.queue.counters, self.queue.root, print_error)

    def token_buckets(self) -> "TokenBuckets | None":
        """The token buckets of the rate limits; None if there is no limit."""
        rates = {k: h.rate for k, h in self.config.handlers.items() if h.rate is not None}
        if self.queue.rate is not None:
            rates[""] = self.queue.rate
        if not rates:
            return None
        from engine.locks.token_buckets import TokenBuckets

        path = f"{self.queue.run_dir}/queue.buckets"
        return TokenBuckets(path, rates, time.time, self.queue.root)

    def mail_settings(self, planned: Mapping[str, str] = {}) -> "MailSettings":
        """The mail settings; `planned` as in `engine.config.mail_config.mail_settings_for`.

        Raises:
            ConfigError: a value in the environment or in mail.conf is invalid.
        """
        from engine.config import mail_config

        queue, own = self.queue, self.config.handlers.get("mail_send")
        environ = os.environ
        settings = mail_config.mail_settings_for(
            self.config.mail, queue.root, queue.log_dir, environ, planned
        )
        if own is None or own.command:
            return settings
        return settings._replace(max_time=min(settings.max_time, own.timeout))

    def spooling_settings(self) -> "MailSettings":
        """The mail settings without the invalid values: enough to spool a mail, not to send one."""
        from engine.config import mail_config

        queue = self.queue
        return mail_config.lenient_mail_settings(
            self.config.mail, queue.root, queue.log_dir, os.environ
        )

    def mail_spool(self) -> "MailSpool":
        """The spool of mail that could not be sent."""
        from engine.mail.send.mail_spool import MailSpool

        return MailSpool(self.queue.mail_spool, self.queue.root, time.time)

    def suspensions(self) -> "Suspensions":
        """The file of suspended transports."""
        from engine.mail.send.suspensions import Suspensions

        return Suspensions(f"{self.state_folder}/suspended", self.queue.root)

    def transport_registry(self, settings: "MailSettings") -> "TransportRegistry":
        """The mail transports of this machine; their programs run as the user of the queue.

        Raises:
            ConfigError: we cannot run them as that user, or the method would lose all mail.
        """
        from engine.config.mail_config import MEMORY, METHODS
        from engine.mail.transports.installed import System
        from engine.mail.transports.registry import TransportRegistry

        if settings.method == MEMORY:
            # The memory transport is for tests: no other process can read its mail.
            why = "method memory would lose every mail with the process that sends it"
            raise queue_config.ConfigError(f"mail: {why}, expected one of {', '.join(METHODS)}")

        try:
            account = users.task_account(self.queue.run_as, os.stat(self.queue.pending))
        except users.NotRoot as error:
            text = f"queue.run_as is {error}: only root can, use {self.sudo_command('root')}"
            raise queue_config.ConfigError(text) from error
        except OSError:
            account = None  # no queue, or not readable: mail programs run as our user
        return TransportRegistry(settings, system=System(account=account))

    def delivery_log(
        self, settings: "MailSettings", tell: Callable[[str], None] | None = None
    ) -> "Ledger":
        """Record of mail results: log, counters, metrics, delivery records.

        `tell` gets a text for each record that cannot be written; default: `complain`.
        """
        from engine.mail.send.delivery_log import DeliveryPaths, Ledger

        queue = self.queue
        places = DeliveryPaths(
            log=f"{queue.log_dir}/mail.log",
            metrics=queue.mail_metrics,
            counters=queue.counters,
            deliveries=settings.delivery_log,
            max_records=settings.delivery_log_max,
            root=queue.root,
        )
        return Ledger(places, tell or print_error, time.time)

    def mail_sender(
        self,
        settings: "MailSettings",
        ways: "TransportRegistry",
        pause: Callable[[float], object] = time.sleep,
        *,
        suspended: bool = True,
        unmeant: str = "",
        tell: Callable[[str], None] | None = None,
    ) -> "Sender":
        """The sender of mail by these transports.

        With `suspended` False, suspended transports may be used too. `unmeant` names the invalid
        settings: mail is then spooled, not sent. `tell` as for `ledger`.
        """
        from engine.locks.token_buckets import TokenBuckets
        from engine.mail.host import this_host
        from engine.mail.send.sender import Sender

        rates = {f"transport:{name}": rate for name, rate in settings.rates.items()}
        rates |= {f"domain:{name}": rate for name, rate in settings.domains.items()}
        path = f"{self.queue.run_dir}/queue.buckets"
        return Sender(
            settings,
            this_host(),
            self.mail_spool(),
            self.delivery_log(settings, tell),
            ways,
            self.suspensions().read if suspended else dict,
            TokenBuckets(path, rates, time.time, self.queue.root) if rates else None,
            time.time,
            pause,
            complain=tell or print_error,
            settings_fault=unmeant,
        )

    def journal(self) -> "Journal":
        """The journal of operations at this place."""
        from engine.operations.journal import Journal

        return Journal(f"{self.state_folder}/journal", self.queue.root)

    def notes(self) -> "Notes":
        """The notes of operators on tasks."""
        from engine.operations.notes import Notes

        return Notes(f"{self.state_folder}/journal", self.queue.root)

    def current_user(self) -> "Who":
        """Our user, host and process, for the journal."""
        import platform

        from engine.operations import journal

        user = users.sudo_user(os.geteuid())
        return journal.identify_operator(os.environ, user, platform.node(), os.getpid())

    def handlers(
        self, store: NftbanStore, mailing: "MailHandler | None" = None
    ) -> Mapping[str, Handler]:
        """The handler for each kind of task from this store."""
        built_in: dict[str, Handler] = {}
        if self.sends_mail:
            built_in["mail_send"] = mailing or self.mail_handler()
        if not self.programs:
            return built_in
        from engine.work.command import CommandHandler
        from engine.work.payload import guard_payload

        return built_in | {
            kind: guard_payload(
                CommandHandler(
                    handler.command,
                    handler.timeout,
                    self.handler_account(kind, store.opened_stat),
                    handler.environment,
                ),
                self.queue.mail_spool,
                self.queue.root,
            )
            for kind, handler in self.programs.items()
        }

    def handler_account(self, kind: str, spool: os.stat_result | None = None) -> Account | None:
        """The user that runs a kind's program: `run_as`, or the owner of the spool of the task.

        None: our own user. Pass `spool`, the stat of an opened spool, to be exact: the path may
        lead to another folder by the time it is opened.

        Raises:
            Fail: we cannot run it as that user.
        """
        own = self.config.handlers[kind].run_as
        where = f"handlers.{kind}.run_as" if own else "queue.run_as"
        try:
            return users.task_account(
                own or self.queue.run_as, spool or os.stat(self.queue.pending)
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
        for path in self._output_folders():
            try:
                self.make_folder(path)
            except OSError as error:
                print_error(f"{safe_line(path)}: {error.strerror}")

    def make_folder(self, path: str) -> None:
        """Make a folder and its missing parents, for the owner of the queue.

        Below the data folder no symbolic link is followed: its owner could redirect us to another
        place.

        Raises:
            OSError: it could not be made.
        """
        owner = files.new_file_owner(os.stat(self.queue.pending))
        os.close(files.open_dir_path(path, self.queue.root, make=True, owner=owner))

    def _output_folders(self) -> tuple[str, ...]:
        queue = self.queue
        return queue.log_dir, queue.counters, os.path.dirname(queue.queue_metrics)

    def log(self, level: str, text: str) -> None:
        """Append a line to the queue's log; an error is only reported."""
        try:
            self._write_log(level, text)
        except OSError as error:
            print_error(
                f"{safe_line(self.log_path)}: {error.strerror}; not logged: {safe_line(text)}"
            )

    def log_if_allowed(self, level: str, text: str) -> None:
        """Append a line to the queue's log if we may: an operator may lack the permission for the
        log.
        """
        try:
            self.make_folder(self.queue.log_dir)
            self._write_log(level, text)
        except PermissionError:
            return
        except OSError as error:
            print_error(
                f"{safe_line(self.log_path)}: {error.strerror}; not logged: {safe_line(text)}"
            )

    def log_queued(self, task: Task) -> None:
        """Log a new task in the words of the contract, with its stored description."""
        text = f"{task.kind}: {contract_text(task.description)}"
        self.log_if_allowed("INFO", f"Task queued: {task.id} ({text})")

    def _write_log(self, level: str, text: str) -> None:
        now = time.time()
        if level in ("ERROR", "ALERT"):
            self._send_syslog(level, text, now)
        files.append(self.log_path, format_log_line(level, text, now), root=self.queue.root)

    def alert(self, text: str) -> None:
        """Send an alert to syslog only."""
        self._send_syslog("ALERT", text, time.time())

    def _send_syslog(self, level: str, text: str, now: float) -> None:
        if self.queue.syslog:
            from engine.system import syslog_handler  # loaded only for errors

            syslog_handler.send_message(self.queue.syslog, level, text, now)

    def worker_services(
        self,
        store: NftbanStore,
        mailing: "MailHandler | None" = None,
        ran: float | None = None,
    ) -> WorkerServices:
        """The services of a worker on this queue; `ran`: time of the last run, if this is none."""
        counters = self.counters()
        mailing = mailing or self.mail_handler()

        def publish() -> None:
            try:
                text = self.render_metrics(store, time.time(), ran)
                files.replace_file(self.queue.queue_metrics, text, root=self.queue.root)
            except OSError as error:
                print_error(f"{self.queue.queue_metrics}: {error.strerror}")
            if self.has_mail():
                mailing.publish_metrics()

        def tally(name: str) -> None:
            try:
                counters.add(name, 1)
            except OSError as error:
                print_error(f"{self.queue.counters}/{name}: {error.strerror}; not counted")

        def tidy() -> None:
            for line in store.quarantine_broken(lambda: tally("corrupt_total")):
                self.log("WARN", f"Skipped: {line}")
            for line in self.queue_spooled_mail(store, time.time()):
                self.log("WARN", line)

        return WorkerServices(
            log=self.log,
            alert=self.alert,
            add_count=tally,
            publish=publish,
            apply_retention=lambda: self.apply_retention(store),
            quarantine=tidy,
            limits=self.token_buckets(),
            slots={kind: h.concurrency for kind, h in self.config.handlers.items()},
            timeouts={kind: h.timeout for kind, h in self.config.handlers.items()},
            gate=mailing.claim_gate,
        )

    def apply_retention(self, store: NftbanStore) -> None:
        """Apply the retention times: dead tasks, trash, mail spool. Queue spooled mail without a
        task.
        """
        self.purge_expired(store)
        try:
            self.sweep_trash(store, time.time())
        except (OSError, Unavailable) as error:
            print_error(f"cannot delete old tasks from the trash: {error}")
        try:
            self.sweep_mail(time.time())
        except OSError as error:
            print_error(f"cannot clean the mail spool: {error}")
        for line in self.queue_spooled_mail(store, time.time()):
            self.log("WARN", line)

    def queue_spooled_mail(
        self, store: NftbanStore, now: float, *, always: bool = False
    ) -> list[str]:
        """Make a task for each spooled mail without one; at most once a minute, unless `always`.

        Returns a log line for each.
        """
        desk = self.spool_folders().staging_dir
        due = always or retention.is_sweep_due(
            desk, now, retention.MAIL_CHECK_MARKER, retention.MAIL_CHECK_PERIOD_SECONDS
        )
        lines: list[str] = []
        try:
            if not due or not self._has_spooled_mail():
                return lines
            from engine.mail.send.queuing import queue_unqueued

            self.make_folder(desk)
            retention.touch_marker(desk, self.queue.root, retention.MAIL_CHECK_MARKER)

            def enqueue(description: str, payload: str) -> str:
                token = os.urandom(4).hex()
                task = verbs.enqueue("mail_send", now, token, description, payload)
                store.swap(None, task)
                self.log_queued(task)
                return task.id

            # One by one: the lines before an error are reported.
            lines.extend(queue_unqueued(self.mail_spool(), now, store.find_named_payloads, enqueue))
        except (OSError, StoreError) as error:
            print_error(f"cannot queue spooled mail without a task: {safe_line(str(error))}")
        return lines

    def sweep_mail(self, now: float) -> None:
        """Remove sent and incomplete mail from the mail spool; at most once an hour.

        Raises:
            OSError: it cannot be read or changed.
        """
        desk = self.spool_folders().staging_dir
        if (
            not retention.is_sweep_due(desk, now, retention.MAIL_SWEEP_MARKER)
            or not self._has_spooled_mail()
        ):
            return
        self.make_folder(desk)
        retention.touch_marker(desk, self.queue.root, retention.MAIL_SWEEP_MARKER)
        for line in self.mail_spool().sweep(now):
            self.log("INFO", f"Mail spool: {line}")

    def has_mail(self) -> bool:
        """True if the spool has mail, or if mail metrics exist, which must stay fresh."""
        try:
            return self._has_spooled_mail() or os.path.exists(self.queue.mail_metrics)
        except OSError:
            return True  # the reader of the spool reports the error

    def _has_spooled_mail(self) -> bool:
        try:
            fd = files.open_dir(self.queue.mail_spool, self.queue.root)
        except FileNotFoundError:
            return False
        try:
            with os.scandir(fd) as entries:
                return any(entries)
        finally:
            os.close(fd)

    def sweep_trash(
        self, store: ChangeableStore, now: float, *, always: bool = False
    ) -> "SweepResult":
        """Delete tasks that were in the trash too long, and old journal files.

        At most once an hour, unless `always`.

        Raises:
            OSError: the journal, or the marker of the last run, cannot be written.
            Unavailable: the trash cannot be read.
        """
        desk = self.state_folder
        if not always and not retention.is_sweep_due(desk, now):
            return SweepResult()
        if always and not os.path.isdir(desk):
            return SweepResult()
        retention.touch_marker(desk, self.queue.root)
        from engine.model import Move
        from engine.operations import trash

        hours = self.config.trash.hours
        old = trash.expired_tasks(store, now, hours)
        ended = [outcome.error for outcome in store.swap_all(Move(task, None) for task in old)]
        gone = sum(error is None for error in ended)
        if gone:
            self.log("INFO", f"Expunged {gone} tasks, purged more than {hours:g} hours ago")
        names = retention.sweep_journal(f"{desk}/journal", self.queue.root, now, hours)
        return SweepResult(gone, len(ended) - gone, names)

    def sweep_without_worker(self) -> str:
        """`sweep` for a place without a worker; also delete the notes on tasks that no longer
        exist.

        Returns the error text, or "". Does nothing if the store refuses it.
        """
        from engine.operations import notes

        now = time.time()
        try:
            if not retention.is_sweep_due(self.state_folder, now):
                return ""
            store = self.open_store()
            try:
                if not store.edges[State.TRASH, None].refusal:
                    self.sweep_trash(store, now)
                    notes.sweep_notes(self.notes(), store)
            finally:
                store.close()
        except (OSError, StoreError) as error:
            return f"cannot delete old tasks from the trash: {error}"
        return ""

    def purge_expired(self, store: NftbanStore) -> None:
        """Delete tasks that were dead longer than the retention time (contract)."""
        from engine.model import Move

        days = self.queue.retention_days
        dead = store.find_expired(time.time(), days)
        outcomes = store.swap_all(Move(task, None) for task in dead)
        gone = sum(outcome.error is None for outcome in outcomes)
        if gone:
            self.log("INFO", f"Auto-purged {gone} DLQ tasks older than {days:g} days")

    def render_metrics(self, store: NftbanStore, now: float, ran: float | None = None) -> bytes:
        """The current text of queue.prom; `ran`: time of the last run, if not now."""
        counts, oldest = store.count_with_age(now)
        gauges = prometheus.QueueGauges(
            pending=counts[State.PENDING],
            working=counts[State.ACTIVE],
            dead=counts[State.DEAD],
            oldest_age=oldest,
        )
        totals = {name: self._read_counter(name) for name in prometheus.QUEUE_COUNTERS}
        return prometheus.render_queue(gauges, totals, now if ran is None else ran)

    def _read_counter(self, name: str) -> int:
        try:
            return self.counters().read(name)
        except OSError as error:
            print_error(f"{self.queue.counters}/{name}: {error.strerror}; counts as 0")
            return 0


class SweepResult(NamedTuple):
    """Number of tasks and files that a sweep of the trash deleted."""

    tasks: int = 0
    left: int = 0
    """Tasks that could not be deleted, or that another process changed first."""
    files: int = 0
    """Journal files."""


_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
"""Suffixes of SQLite database files."""


def has_database_name(path: str) -> bool:
    """True if a path has the suffix of a database; the only hint if the file does not exist."""
    return path.lower().endswith(_DATABASE_SUFFIXES)


def describe_missing(path: str) -> str:
    """Say that a place does not exist, and name the command that makes it."""
    here = safe_line(path)
    what, word = ("file", "zgb init") if has_database_name(path) else ("folder", "init")
    return f"{here}: no such {what} (spooldeck {word} {here} makes it)"


def program_command() -> list[str]:
    """The command that starts this program again, from any working directory."""
    # -P: without it, a folder named tui in the working directory would be run instead of ours.
    return [sys.executable, "-P", "-m", "tui.cli"]


def print_error(text: str) -> None:
    """Print one line to standard error."""
    try:
        print(f"spooldeck: {text}", file=sys.stderr)
    except OSError:
        discard_stream(sys.stderr)  # no reader is left; the exit code still reports the error


def print_result(text: str, stream: TextIO | None = None) -> None:
    """Print a result of a command that must not be repeated, such as a queued task.

    If it cannot be written, report that on standard error and keep the exit code: a caller that
    repeats the command would do it twice.
    """
    stream = stream or sys.stdout
    line = f"{text}\n".encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    try:
        stream.write(line)
        stream.flush()
    except OSError as error:
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            print_error(f"done, but cannot write the output: {error.strerror}: {safe_line(text)}")
        discard_stream(stream)


def discard_stream(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: the interpreter flushes it at exit, and an error there would
    replace our exit code.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unwritable_folder(path: str, *, made: bool) -> str:
    """The folder that we cannot write to on the way to `path`; "" if there is none.

    For a path that is `made` when missing, this is the folder that would contain it.
    """
    try:
        os.stat(path)
    except PermissionError:
        return _unwritable_folder(os.path.dirname(path), made=made)
    except FileNotFoundError:
        return _unwritable_folder(os.path.dirname(path), made=made) if made else ""
    except NotADirectoryError:
        return ""  # the code that opens it reports what was expected
    return "" if os.access(path, os.W_OK | os.X_OK) else path


def _unreadable_folder(path: str) -> str:
    """The folder that we cannot read on the way to `path`; "" if there is none."""
    try:
        os.stat(path)
    except PermissionError:
        return _unreadable_folder(os.path.dirname(path))
    except OSError:
        return ""  # the code that opens it reports what was expected
    return "" if os.access(path, os.R_OK | os.X_OK) else path


def parse_states(
    store: ReadableStore, state: str, among: Iterable[State] = State
) -> dict[str, State]:
    """The words of the store's states that `--state` names, with commas; all of them by default.

    Raises:
        Fail: a word is not a state among these.
    """
    known = {
        word: of
        for of in among
        if of in store.states
        for word in state_words(of, store.states, store.words)
    }
    named = state.split(",") if state else [*known]
    if unknown := [word for word in named if word not in known]:
        fail(EX_USAGE, f"--state {safe_line(unknown[0])}: expected one of {', '.join(known)}")
    return {word: known[word] for word in known if word in named}
