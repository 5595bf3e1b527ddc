"""From settings to working parts: the only place that puts stores, locks and handlers together."""

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
from engine.logs.log_tail import contract_line
from engine.model import LockEvidence, State, Task, Verdict, words_of
from engine.monitor import prometheus
from engine.operations import retention
from engine.store import Store, StoreError, Unavailable
from engine.stores.nftban import NftbanStore, SpoolFolders
from engine.system import files, users
from engine.system.users import Account
from engine.text.safe import plain, shown
from engine.work.handlers import Handler
from engine.work.worker import Services

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.locks.token_buckets import Buckets
    from engine.mail.send.delivery_log import Ledger
    from engine.mail.send.mail_spool import MailSpool
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspensions
    from engine.mail.transports.registry import TransportRegistry
    from engine.monitor.recorder import RecorderSlot
    from engine.operations.journal import Journal, Who
    from engine.operations.notes import Notes
    from tui.cli.setup.format import Site
    from tui.cli.setup.mail_parts import Mailing

EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_NOPERM, EX_CONFIG = 64, 69, 74, 77, 78
"""Exit codes beyond the contract's 0 to 3 (sysexits.h)."""


class Fail(Exception):
    """Ends the command with one line on standard error and an exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Hidden(Unavailable):
    """There is a queue, or may be, but we may not look; the text has the command line that may."""


def fail(code: int, text: str) -> NoReturn:
    """End the command."""
    raise Fail(code, text)


class Setup(NamedTuple):
    """One queue as the command line and the configuration mean it."""

    config: Config
    queue: Queue
    words: tuple[str, ...] = ()
    """The command line as it was typed, without the program's name."""
    site: "Site | None" = None
    """What the place is, where it is in another program's format; None: a queue of the contract."""

    @property
    def place(self) -> str:
        """The place, as a person names it: its data folder, or its path where it is no folder."""
        return self.queue.root if self.site is None else self.site.path

    @property
    def desk(self) -> str:
        """The folder for what is ours there: the journal, notes, and what is being moved."""
        return self.spool().desk if self.site is None else self.site.desk

    @property
    def has_lock(self) -> bool:
        """Whether a lock keeps its workers apart; where none does, each claim is a lease."""
        return self.site is None

    def store(self) -> Store:
        """Its store, in whatever format it is.

        Raises:
            Unavailable: it cannot be reached.
        """
        return self.open() if self.site is None else self.site.open()

    @property
    def lock_path(self) -> str:
        """Contract: `${NFTBAN_RUN_DIR}/queue.lock`."""
        return f"{self.queue.run_dir}/queue.lock"

    @property
    def log_path(self) -> str:
        """The queue's own log."""
        return f"{self.queue.log_dir}/queue.log"

    def spool(self) -> SpoolFolders:
        """Where its task files lie."""
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

    def open(self) -> NftbanStore:
        """Its store, for what only a queue of the contract has.

        Raises:
            Unavailable: it cannot be reached, or is none.
        """
        if self.site is not None:
            title, word = self.site.format.title, self.site.name
            raise Unavailable(
                f"{shown(self.place)} is {title}: this is for queues of the contract "
                f"(see spooldeck {word} --help)"
            )
        self._require_folders()
        return NftbanStore(self.spool())

    def counts(self, store: Store) -> Mapping[State, int]:
        """How many tasks stand in each state; by names alone where the format tells that much.

        Raises:
            Unavailable: it cannot be reached.
        """
        if isinstance(store, NftbanStore):
            return store.counts()
        counts = dict.fromkeys(store.states, 0)
        for found in store.look(store.states.values()):
            if isinstance(found, Task):
                counts[found.state] += 1
        return counts

    def require_sight(self) -> None:
        """Make sure that we may look at it: what we may not see is not missing.

        Raises:
            Hidden: we may not.
        """
        for path in (self.queue.pending, self.queue.work, self.queue.dlq):
            barrier = _veil(path)
            if barrier:
                mend = self._mend(barrier) or f"chmod u+rx {shown(barrier)}"
                raise Hidden(f"{shown(barrier)} is hidden from us: {mend}")
        root = self.queue.root
        if os.path.isfile(root) and not os.access(root, os.R_OK):
            mend = self._mend(root) or f"chmod u+r {shown(root)}"
            raise Hidden(f"{shown(root)} is hidden from us: {mend}")

    def _require_folders(self) -> None:
        self.require_sight()
        queue = self.queue
        if os.path.isfile(queue.root):
            what = "a file, and no SQLite database: expected one, or a folder with a queue"
            raise Unavailable(f"{queue.root}: {what}")
        if not os.path.lexists(queue.root) and is_named_database(queue.root):
            raise Unavailable(missing(queue.root))
        if not all(map(os.path.isdir, (queue.pending, queue.work, queue.dlq))):
            where = os.path.dirname(queue.pending)
            raise Unavailable(
                f"{queue.root}: no queue, expected the folders pending, work and dlq in {where} "
                f"(spooldeck init {queue.root} makes them)"
            )

    def make_queue(self) -> None:
        """Make missing queue folders below an existing data folder, durably (mkdir, fsync).

        The contract's program does so with each task that it adds. A folder that is configured
        elsewhere is not made: it may be on a disk that is not mounted. No symbolic link below the
        data folder is followed.

        Raises:
            Fail: we may not; the text has the command line that may.
            Unavailable: one could not be made.
        """
        queue = self.queue
        if self.site is not None or not os.path.isdir(queue.root):
            return
        self.require_sight()
        below = queue.root.rstrip("/") + "/"
        wanted = [path for path in (queue.pending, queue.work, queue.dlq) if path.startswith(below)]
        made = [path for path in wanted if not os.path.isdir(path)]
        for path in made:
            self._refuse_at(_barrier(path, made=True))
        for path in made:
            try:
                os.close(files.reach(path, queue.root, make=True))
            except OSError as error:
                raise Unavailable(f"{path}: cannot be made: {error.strerror}") from error
            complain(f"made {shown(path)}")

    def require_change(self) -> None:
        """Make sure that we may change its tasks, before anything is touched.

        Raises:
            Fail: we may not; the text has the command line that may.
        """
        queue, desk = self.queue, self.desk
        for path in (queue.pending, queue.work, queue.dlq, desk, f"{desk}/held", f"{desk}/trash"):
            self._refuse_at(_barrier(path, made=path.startswith(desk)))

    def require_lock(self) -> None:
        """Make sure that we may take its lock and work on it, before anything is touched.

        Raises:
            Fail: we may not; the text has the command line that may.
            Unavailable: there is no queue.
        """
        self.require_change()
        self._require_folders()
        self._refuse_at(_barrier(self.queue.run_dir, made=True))
        for path in self._beside():
            if not os.path.isdir(path):
                self._refuse_at(_barrier(path, made=True))

    def require_work(self) -> None:
        """Make sure that a worker of ours can do what it is there for, before anything is touched.

        Raises:
            Fail: it cannot; the text says why, and what can be done about it.
            Unavailable: there is no queue.
        """
        self.require_lock()
        for kind in self.programs:
            self.account(kind)

    def _refuse_at(self, path: str) -> None:
        if not path:
            return
        if not os.path.isdir(path):
            fail(EX_UNAVAILABLE, f"{shown(path)} is a file, expected a folder: move it away")
        mend = self._mend(path) or f"a read-only file system, or chmod u+rwx {shown(path)}"
        fail(EX_NOPERM, f"{shown(path)} is not writable for us: {mend}")

    def _mend(self, path: str) -> str:
        """The way in by the owner of a folder that keeps us out; "" where that is us."""
        owner, us = os.stat(path).st_uid, os.geteuid()
        return "" if us in (0, owner) else f"use {self.as_typed(users.for_sudo(owner))}"

    def as_typed(self, user: str) -> str:
        """The command line that was typed, for another user; it means the same there."""
        import shlex

        from engine.config.nftban_variables import SECRET

        # sudo keeps neither our environment nor our home, where the configuration may lie. What is
        # secret is not shown: another user has it from elsewhere, or does without.
        own = sorted((k, v) for k, v in os.environ.items() if k.startswith("NFTBAN_"))
        told = [f"{k}={v}" for k, v in own if k != SECRET]
        named = any(word.split("=")[0] == "--config" for word in self.words)
        found = (
            self.config.path if not named and self.config.path != queue_config.SEARCH[-1] else ""
        )
        words = [
            *("sudo", "-u", user),
            *(["env", *told] if told else []),
            "spooldeck",
            *(["--config", os.path.abspath(found)] if found else []),
            *self.words,
        ]
        return shown(shlex.join(words))

    def examine_lock(self) -> LockEvidence:
        """What its lock file says; a place in another format has none (`has_lock`)."""
        threshold = self.queue.stuck_threshold
        evidence = queue_lock.examine(self.lock_path, threshold)
        if evidence.verdict is not Verdict.STUCK:
            return evidence
        return queue_lock.with_claims(evidence, self.last_claim(), threshold, time.time())

    def last_claim(self) -> float | None:
        """When the newest task in work was claimed, epoch seconds UTC: the latest st_ctime, which a
        rename sets. None if there is none.

        Raises:
            OSError: the folder cannot be read.
        """
        found = []
        for name in os.listdir(self.queue.work):
            if name.endswith(".task"):
                with suppress(FileNotFoundError):  # it was moved since
                    path = f"{self.queue.work}/{name}"
                    found.append(os.stat(path, follow_symlinks=False).st_ctime)
        return max(found, default=None)

    def recording(self) -> "RecorderSlot":
        """Where its flight recorder writes."""
        from engine.monitor.recorder import RecorderSlot

        return RecorderSlot(f"{self.desk}/recorder", self.queue.pending)

    def retry_policy(self) -> policy.RetryPolicy:
        """How it counts and waits."""
        if self.site is not None:
            return self.site.format.retry(self.site.settings)
        return queue_config.retry_policy(self.queue)

    @property
    def programs(self) -> Mapping[str, Program]:
        """By kind, the handlers that run a program."""
        return {kind: h for kind, h in self.config.handlers.items() if h.command}

    @property
    def sends_mail(self) -> bool:
        """Whether `mail_send` tasks are ours to send: no program is named for them."""
        return "mail_send" not in self.programs

    def handled(self, kind: str) -> bool:
        """Whether a worker with this configuration has something to do for a task of this kind."""
        if self.site is not None:
            return not self.site.format.unworkable(self.site.settings)
        from engine.work.handlers import CONTRACT_KINDS

        return kind in (*self.programs, *queue_config.BUILT_IN) or kind not in CONTRACT_KINDS

    def mailing(self) -> "Mailing":
        """What sends the mail of tasks, and says when it cannot; nothing is looked at yet."""
        from tui.cli.setup.mail_parts import Mailing

        return Mailing(
            self.mail_settings,
            self.ways,
            self.post,
            self.queue.mail_spool,
            ours=self.sends_mail,
            complain=complain,
            root=self.queue.root,
        )

    def counters(self) -> prometheus.Counters:
        """Its counter files."""
        return prometheus.Counters(self.queue.counters, self.queue.root, complain)

    def limits(self) -> "Buckets | None":
        """Its token buckets; None where nothing is limited."""
        rates = {k: h.rate for k, h in self.config.handlers.items() if h.rate is not None}
        if self.queue.rate is not None:
            rates[""] = self.queue.rate
        if not rates:
            return None
        from engine.locks.token_buckets import Buckets

        path = f"{self.queue.run_dir}/queue.buckets"
        return Buckets(path, rates, time.time, self.queue.root)

    def mail_settings(self, planned: Mapping[str, str] = {}) -> "MailSettings":
        """How mail is sent from here; `planned` as in `engine.config.mail_config.mail_for`.

        Raises:
            ConfigError: a value from the environment or from mail.conf that cannot be meant.
        """
        from engine.config import mail_config

        queue, own = self.queue, self.config.handlers.get("mail_send")
        said, environ = self.config.mail, os.environ
        settings = mail_config.mail_for(said, queue.root, queue.log_dir, environ, planned)
        if own is None or own.command:
            return settings
        return settings._replace(max_time=min(settings.max_time, own.timeout))

    def mail_settings_to_keep(self) -> "MailSettings":
        """The same as far as they can be meant: enough to spool a mail by, and none to send by."""
        from engine.config import mail_config

        queue = self.queue
        return mail_config.as_far_as_meant(self.config.mail, queue.root, queue.log_dir, os.environ)

    def mail_spool(self) -> "MailSpool":
        """Where mail is kept that could not be sent."""
        from engine.mail.send.mail_spool import MailSpool

        return MailSpool(self.queue.mail_spool, self.queue.root, time.time)

    def suspensions(self) -> "Suspensions":
        """Which transports an operator has suspended."""
        from engine.mail.send.suspensions import Suspensions

        return Suspensions(f"{self.desk}/suspended", self.queue.root)

    def ways(self, settings: "MailSettings") -> "TransportRegistry":
        """The transports of this machine, their programs run as whom the queue is worked on.

        Raises:
            ConfigError: we cannot run them as that user, or all mail would be lost.
        """
        from engine.config.mail_config import MEMORY, METHODS
        from engine.mail.transports.installed import System
        from engine.mail.transports.registry import TransportRegistry

        if settings.method == MEMORY:
            # For tests of what stands on it: no command or worker of ours reads it again.
            why = "method memory would lose every mail with the process that sends it"
            raise queue_config.ConfigError(f"mail: {why}, expected one of {', '.join(METHODS)}")

        try:
            account = users.chosen(self.queue.run_as, os.stat(self.queue.pending))
        except users.NotRoot as error:
            said = f"queue.run_as is {error}: only root can, use {self.as_typed('root')}"
            raise queue_config.ConfigError(said) from error
        except OSError:
            account = None  # there is no queue, or none that we may see: mail goes as we are
        return TransportRegistry(settings, system=System(account=account))

    def ledger(
        self, settings: "MailSettings", tell: Callable[[str], None] | None = None
    ) -> "Ledger":
        """Where what becomes of mail is written down: log, counters, metrics, delivery records.

        `tell` is told what cannot be written; None: as `complain`.
        """
        from engine.mail.send.delivery_log import Ledger, Places

        queue = self.queue
        places = Places(
            log=f"{queue.log_dir}/mail.log",
            metrics=queue.mail_metrics,
            counters=queue.counters,
            deliveries=settings.delivery_log,
            most=settings.delivery_log_max,
            root=queue.root,
        )
        return Ledger(places, tell or complain, time.time)

    def post(
        self,
        settings: "MailSettings",
        ways: "TransportRegistry",
        pause: Callable[[float], object] = time.sleep,
        *,
        suspended: bool = True,
        unmeant: str = "",
        tell: Callable[[str], None] | None = None,
    ) -> "Sender":
        """What sends a mail by one of these ways; without `suspended`, even by one that is.
        `unmeant` is what of the settings cannot be meant, so that mail is kept and not sent.
        `tell` as for `ledger`.
        """
        from engine.locks.token_buckets import Buckets
        from engine.mail.host import this_host
        from engine.mail.send.sender import Sender

        rates = {f"transport:{name}": rate for name, rate in settings.rates.items()}
        rates |= {f"domain:{name}": rate for name, rate in settings.domains.items()}
        path = f"{self.queue.run_dir}/queue.buckets"
        return Sender(
            settings,
            this_host(),
            self.mail_spool(),
            self.ledger(settings, tell),
            ways,
            self.suspensions().read if suspended else dict,
            Buckets(path, rates, time.time, self.queue.root) if rates else None,
            time.time,
            pause,
            complain=tell or complain,
            unmeant=unmeant,
        )

    def journal(self) -> "Journal":
        """Where what operators do to it is written down."""
        from engine.operations.journal import Journal

        return Journal(f"{self.desk}/journal", self.queue.root)

    def notes(self) -> "Notes":
        """What operators wrote down about its tasks."""
        from engine.operations.notes import Notes

        return Notes(f"{self.desk}/journal", self.queue.root)

    def who(self) -> "Who":
        """Who we are, for the journal."""
        import platform

        from engine.operations import journal

        user = users.for_sudo(os.geteuid())
        return journal.who(os.environ, user, platform.node(), os.getpid())

    def handlers(
        self, store: NftbanStore, mailing: "Mailing | None" = None
    ) -> Mapping[str, Handler]:
        """What is run for each kind of task that is taken from this store."""
        built_in: dict[str, Handler] = {}
        if self.sends_mail:
            built_in["mail_send"] = mailing or self.mailing()
        if not self.programs:
            return built_in
        from engine.work.command import CommandHandler
        from engine.work.payload import guarded

        return built_in | {
            kind: guarded(
                CommandHandler(
                    handler.command,
                    handler.timeout,
                    self.account(kind, store.opened),
                    handler.environment,
                ),
                self.queue.mail_spool,
                self.queue.root,
            )
            for kind, handler in self.programs.items()
        }

    def account(self, kind: str, spool: os.stat_result | None = None) -> Account | None:
        """Whom a kind's program is run as: `run_as`, or the owner of the spool its task came from.

        None: as we are. Without `spool`, the state of an opened one, it is a guess: its path may
        lead to another by the time it is opened.

        Raises:
            Fail: we cannot run it as that user.
        """
        own = self.config.handlers[kind].run_as
        where = f"handlers.{kind}.run_as" if own else "queue.run_as"
        try:
            return users.chosen(own or self.queue.run_as, spool or os.stat(self.queue.pending))
        except users.NotRoot as error:
            fail(EX_NOPERM, f"{where} is {error}: only root can, use {self.as_typed('root')}")

    def make_folders(self) -> None:
        """Make what a worker writes into beside the spool.

        Without figures and a log it works all the same, and complains.

        Raises:
            OSError: the folder of its lock could not be made.
        """
        self.make_folder(self.queue.run_dir)
        for path in self._beside():
            try:
                self.make_folder(path)
            except OSError as error:
                complain(f"{shown(path)}: {error.strerror}")

    def make_folder(self, path: str) -> None:
        """Make a folder, and what is missing above it, for the queue's owner.

        Below the data folder through no symbolic link: who owns that shall not have us make
        folders of theirs elsewhere.

        Raises:
            OSError: it could not be made.
        """
        owner = files.owner_for(os.stat(self.queue.pending))
        os.close(files.reach(path, self.queue.root, make=True, owner=owner))

    def _beside(self) -> tuple[str, ...]:
        queue = self.queue
        return queue.log_dir, queue.counters, os.path.dirname(queue.queue_metrics)

    def log(self, level: str, text: str) -> None:
        """Add a line to the queue's log; a log that cannot be written stops nobody."""
        try:
            self._write_log(level, text)
        except OSError as error:
            complain(f"{shown(self.log_path)}: {error.strerror}; not logged: {shown(text)}")

    def log_if_allowed(self, level: str, text: str) -> None:
        """The same for commands: who may change the queue need not be one who may write its log."""
        try:
            self.make_folder(self.queue.log_dir)
            self._write_log(level, text)
        except PermissionError:
            return
        except OSError as error:
            complain(f"{shown(self.log_path)}: {error.strerror}; not logged: {shown(text)}")

    def log_queued(self, task: Task) -> None:
        """Log a new task in the contract's words, its description as it was stored."""
        said = f"{task.kind}: {plain(task.description)}"
        self.log_if_allowed("INFO", f"Task queued: {task.id} ({said})")

    def _write_log(self, level: str, text: str) -> None:
        now = time.time()
        if level in ("ERROR", "ALERT"):
            self._tell_syslog(level, text, now)
        files.append(self.log_path, contract_line(level, text, now), root=self.queue.root)

    def alert(self, text: str) -> None:
        """Tell whoever is on call, by syslog alone."""
        self._tell_syslog("ALERT", text, time.time())

    def _tell_syslog(self, level: str, text: str, now: float) -> None:
        if self.queue.syslog:
            from engine.system import syslog_handler  # only what goes wrong needs it

            syslog_handler.send(self.queue.syslog, level, text, now)

    def services(
        self,
        store: NftbanStore,
        mailing: "Mailing | None" = None,
        ran: float | None = None,
    ) -> Services:
        """What a worker on this queue is given; `ran`: the last run, where this is none."""
        counters = self.counters()
        mailing = mailing or self.mailing()

        def publish() -> None:
            try:
                text = self.metrics(store, time.time(), ran)
                files.publish(self.queue.queue_metrics, text, root=self.queue.root)
            except OSError as error:
                complain(f"{self.queue.queue_metrics}: {error.strerror}")
            if self.has_mail():
                mailing.publish()

        def tally(name: str) -> None:
            try:
                counters.add(name, 1)
            except OSError as error:
                complain(f"{self.queue.counters}/{name}: {error.strerror}; not counted")

        def tidy() -> None:
            for line in store.set_aside(lambda: tally("corrupt_total")):
                self.log("WARN", f"Left out: {line}")
            for line in self.queue_mail(store, time.time()):
                self.log("WARN", line)

        return Services(
            log=self.log,
            alert=self.alert,
            tally=tally,
            publish=publish,
            retire=lambda: self.keep_house(store),
            tidy=tidy,
            limits=self.limits(),
            slots={kind: h.concurrency for kind, h in self.config.handlers.items()},
            timeouts={kind: h.timeout for kind, h in self.config.handlers.items()},
            gate=mailing.gate,
        )

    def keep_house(self, store: NftbanStore) -> None:
        """Delete for good what nobody wants back any more."""
        self.retire(store)
        try:
            self.sweep(store, time.time())
        except (OSError, Unavailable) as error:
            complain(f"the trash could not be swept: {error}")
        try:
            self.sweep_mail(time.time())
        except OSError as error:
            complain(f"the mail spool could not be swept: {error}")
        for line in self.queue_mail(store, time.time()):
            self.log("WARN", line)

    def queue_mail(self, store: NftbanStore, now: float, *, always: bool = False) -> list[str]:
        """Make the tasks of spooled mails that have none; at most once a minute, unless `always`.

        Returns what was done, in words for the log.
        """
        desk = self.spool().desk
        due = always or retention.is_due(
            desk, now, retention.QUEUED_MARKER, retention.QUEUING_PERIOD
        )
        lines: list[str] = []
        try:
            if not due or not self._keeps_mail():
                return lines
            from engine.mail.send.queuing import queue_unqueued

            self.make_folder(desk)
            retention.mark(desk, self.queue.root, retention.QUEUED_MARKER)

            def enqueue(description: str, payload: str) -> str:
                token = os.urandom(4).hex()
                task = verbs.enqueue("mail_send", now, token, description, payload)
                store.swap(None, task)
                self.log_queued(task)
                return task.id

            # One by one: what was done before an error is said.
            lines.extend(queue_unqueued(self.mail_spool(), now, store.named, enqueue))
        except (OSError, StoreError) as error:
            complain(f"spooled mails without a task could not be queued: {shown(str(error))}")
        return lines

    def sweep_mail(self, now: float) -> None:
        """Remove from the mail spool what was sent and what was never finished; once an hour.

        Raises:
            OSError: it cannot be looked at, or changed.
        """
        desk = self.spool().desk
        if not retention.is_due(desk, now, retention.MAIL_MARKER) or not self._keeps_mail():
            return
        self.make_folder(desk)
        retention.mark(desk, self.queue.root, retention.MAIL_MARKER)
        for line in self.mail_spool().sweep(now):
            self.log("INFO", f"Mail spool: {line}")

    def has_mail(self) -> bool:
        """Whether mail lies in the spool, or figures of mail are there that must not grow old."""
        try:
            return self._keeps_mail() or os.path.exists(self.queue.mail_metrics)
        except OSError:
            return True  # whoever looks into the spool says why they cannot

    def _keeps_mail(self) -> bool:
        try:
            fd = files.enter(self.queue.mail_spool, self.queue.root)
        except FileNotFoundError:
            return False
        try:
            with os.scandir(fd) as entries:
                return any(entries)
        finally:
            os.close(fd)

    def sweep(self, store: Store, now: float, *, always: bool = False) -> "Swept":
        """Delete for good what was purged too long ago, and what the journal need not keep.

        At most once an hour, unless `always`.

        Raises:
            OSError: the journal, or the mark that it was swept, cannot be written.
            Unavailable: the trash cannot be read.
        """
        desk = self.desk
        if not always and not retention.is_due(desk, now):
            return Swept()
        if always and not os.path.isdir(desk):
            return Swept()
        retention.mark(desk, self.queue.root)
        from engine.model import Move
        from engine.operations import trash

        hours = self.config.trash.hours
        old = trash.discarded(store, now, hours)
        ended = [outcome.error for outcome in store.swap_all(Move(task, None) for task in old)]
        gone = sum(error is None for error in ended)
        if gone:
            self.log("INFO", f"Expunged {gone} tasks, purged more than {hours:g} hours ago")
        names = retention.sweep_journal(f"{desk}/journal", self.queue.root, now, hours)
        return Swept(gone, len(ended) - gone, names)

    def sweep_alone(self) -> str:
        """The same where no worker does it, and the notes on what is nowhere any more.

        Answers with what went wrong, in words; who may not write leaves it to others.
        """
        from engine.operations import notes

        now = time.time()
        try:
            if not retention.is_due(self.desk, now):
                return ""
            store = self.store()
            try:
                if not store.edges[State.TRASH, None].refused:
                    self.sweep(store, now)
                    notes.sweep(self.notes(), store)
            finally:
                store.close()
        except (OSError, StoreError) as error:
            return f"the trash could not be swept: {error}"
        return ""

    def retire(self, store: NftbanStore) -> None:
        """Delete for good what has been dead for longer than the retention (contract)."""
        from engine.model import Move

        days = self.queue.retention_days
        dead = store.expired(time.time(), days)
        outcomes = store.swap_all(Move(task, None) for task in dead)
        gone = sum(outcome.error is None for outcome in outcomes)
        if gone:
            self.log("INFO", f"Auto-purged {gone} DLQ tasks older than {days:g} days")

    def metrics(self, store: NftbanStore, now: float, ran: float | None = None) -> bytes:
        """The text of queue.prom as of now; `ran`: the last run, where that is not now."""
        counts, oldest = store.figures(now)
        gauges = prometheus.QueueGauges(
            pending=counts[State.PENDING],
            working=counts[State.ACTIVE],
            dead=counts[State.DEAD],
            oldest_age=oldest,
        )
        totals = {name: self._total(name) for name in prometheus.QUEUE_COUNTERS}
        return prometheus.render_queue(gauges, totals, now if ran is None else ran)

    def _total(self, name: str) -> int:
        try:
            return self.counters().read(name)
        except OSError as error:
            complain(f"{self.queue.counters}/{name}: {error.strerror}; counts as 0")
            return 0


class Swept(NamedTuple):
    """What was deleted for good because it was old."""

    tasks: int = 0
    left: int = 0
    """Tasks that could not be deleted, or that somebody else was faster with."""
    files: int = 0
    """Files of the journal."""


_DATABASES = (".db", ".sqlite", ".sqlite3")
"""How files are called that are SQLite databases."""


def is_named_database(path: str) -> bool:
    """Whether a path is called as databases are; for what is not there nothing else can tell."""
    return path.lower().endswith(_DATABASES)


def missing(path: str) -> str:
    """That a place is not there, and what makes one of what its name says it is to be."""
    here = shown(path)
    what, word = ("file", "zgb init") if is_named_database(path) else ("folder", "init")
    return f"{here}: no such {what} (spooldeck {word} {here} makes it)"


def program() -> list[str]:
    """What starts this same program again, whatever folder one stands in then."""
    # -P: else a folder named tui in the working directory would be run in place of ours.
    return [sys.executable, "-P", "-m", "tui.cli"]


def complain(text: str) -> None:
    """One line for the operator, on standard error."""
    try:
        print(f"spooldeck: {text}", file=sys.stderr)
    except OSError:
        drop(sys.stderr)  # there is nobody to tell; the exit code still says it


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a result that must not be repeated: a task is queued, a mail is accepted.

    If it cannot be written, the result is one line on standard error and the exit code stays:
    a caller that repeats the command would do it twice.
    """
    stream = stream or sys.stdout
    line = f"{text}\n".encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    try:
        stream.write(line)
        stream.flush()
    except OSError as error:
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            complain(f"done, but the answer could not be written: {error.strerror}: {shown(text)}")
        drop(stream)


def drop(stream: TextIO) -> None:
    """Let nothing of a stream be written any more: the interpreter tries once more as it ends, and
    its own exit code would hide ours.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _barrier(path: str, *, made: bool) -> str:
    """The folder that keeps us from writing in `path`; "" when none does.

    One that is `made` when missing is judged by the folder that it would be made in.
    """
    try:
        os.stat(path)
    except PermissionError:
        return _barrier(os.path.dirname(path), made=made)
    except FileNotFoundError:
        return _barrier(os.path.dirname(path), made=made) if made else ""
    except NotADirectoryError:
        return ""  # whoever opens it says what was expected
    return "" if os.access(path, os.W_OK | os.X_OK) else path


def _veil(path: str) -> str:
    """The folder that keeps us from seeing what is in `path`; "" when none does."""
    try:
        os.stat(path)
    except PermissionError:
        return _veil(os.path.dirname(path))
    except OSError:
        return ""  # whoever opens it says what was expected
    return "" if os.access(path, os.R_OK | os.X_OK) else path


def states_named(store: Store, state: str, among: Iterable[State] = State) -> dict[str, State]:
    """The store's own words that `--state` names, several with commas; without it all of them.

    Raises:
        Fail: one is no word for a task in these states.
    """
    known = {
        word: of
        for of in among
        if of in store.states
        for word in words_of(of, store.states, store.words)
    }
    named = state.split(",") if state else [*known]
    if unknown := [word for word in named if word not in known]:
        fail(EX_USAGE, f"--state {shown(unknown[0])}: expected one of {', '.join(known)}")
    return {word: known[word] for word in known if word in named}
