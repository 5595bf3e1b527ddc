"""The process of the scheduler: options and files to a running loop, its sockets and signals.

The loop reads signals as requests from a descriptor (scheduler(8zm)).
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from enum import StrEnum
from functools import partial
from random import Random

from engine.formats.zmailer.environment import (
    DEFAULT_POSTOFFICE,
    SchedulerFiles,
    ZmailerSettings,
    read_files,
)
from engine.formats.zmailer.log_file import SchedulerLog, SchedulerOutputs
from engine.formats.zmailer.mailq.acl import MailqUser, read_users
from engine.formats.zmailer.mailq.job_text import dump_lines
from engine.formats.zmailer.mailq.report_text import encode
from engine.formats.zmailer.mailq.server import MailqServer, listen_tcp, listen_unix
from engine.formats.zmailer.notify import NotifySocket
from engine.formats.zmailer.options import SchedulerOptions
from engine.formats.zmailer.reports import ReportSettings, SenderReports
from engine.formats.zmailer.scheduler import clauses, spool_controls
from engine.formats.zmailer.scheduler.clauses import (
    ClauseTable,
    find_form,
    find_mailq_socket,
    scheduler_niceness,
)
from engine.formats.zmailer.scheduler.loop import SchedulerLoop
from engine.formats.zmailer.scheduler.message_flow import SchedulerParts
from engine.formats.zmailer.scheduler.message_outcomes import MessageOutcomes
from engine.formats.zmailer.scheduler.message_places import Arrivals, MessagePlaces, ScanLimits
from engine.formats.zmailer.scheduler.message_reading import QueuedMessageReader
from engine.formats.zmailer.scheduler.running_agents import AgentLimits
from engine.formats.zmailer.scheduler.view import SchedulerQueue
from engine.formats.zmailer.scheduling.jobs import ThreadKey
from engine.formats.zmailer.scheduling.ready import AgentSlots
from engine.formats.zmailer.scheduling.table import ThreadTable
from engine.formats.zmailer.scheduling.work import WorkTable
from engine.formats.zmailer.spool.changes import LineChanges
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.lock_process import PidFile
from engine.formats.zmailer.spool.permissions import write_refusal
from engine.formats.zmailer.spool.reading import MessageReader
from engine.formats.zmailer.spool.scheduler_conf import SchedulerConf
from engine.formats.zmailer.spool_mail import SpoolMail, read_form
from engine.mail.host import this_host
from engine.store import Unavailable
from engine.system import files
from engine.text.error_text import error_text
from engine.values import NamedTuple


class SignalRequest(StrEnum):
    """What a signal asks for."""

    REOPEN_LOGS = "reopen the logs"
    EXIT = "exit"
    SLOW_STOP = "exit after all agents have ended"
    CHECK_NOW = "check the work now"
    REREAD = "read the configuration again"
    DUMP = "write the state to the rendezvous file"


REQUESTS: Mapping[int, SignalRequest] = {
    signal.SIGHUP: SignalRequest.REOPEN_LOGS,
    signal.SIGTERM: SignalRequest.EXIT,
    signal.SIGINT: SignalRequest.EXIT,
    signal.SIGQUIT: SignalRequest.SLOW_STOP,
    signal.SIGALRM: SignalRequest.CHECK_NOW,
    signal.SIGUSR1: SignalRequest.REREAD,
    signal.SIGUSR2: SignalRequest.DUMP,
}


class SignalReader:
    """Collects signals from its start to its `close`; only one may be open in a process."""

    def __init__(self) -> None:
        self._receiver, sender = socket.socketpair()
        self._sender = sender
        for one in (self._receiver, sender):
            one.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _note) for number in REQUESTS}

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._receiver.fileno()

    def read(self) -> Iterator[SignalRequest]:
        """Yield each request once, in the order of the first signals."""
        try:
            data = self._receiver.recv(4096)
        except BlockingIOError:
            return
        yield from dict.fromkeys(REQUESTS[number] for number in data if number in REQUESTS)

    def close(self) -> None:
        """Handle signals as before."""
        for number, old in self._old.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(self._old_fd)
        self._receiver.close()
        self._sender.close()


def _note(*_: object) -> None:
    """A handler that does nothing: the number is written to the descriptor."""


DEFAULT_RENDEZVOUS = "/usr/tmp/.mailq.text"
"""The file of SIGUSR2, without -q and RENDEZVOUS (scheduler(8zm))."""

SPARE_DESCRIPTORS = 64
"""Descriptors that are not for agents; each agent has two: its socket and its pidfd."""
DEFAULT_REPORT_SECONDS = 300.0
"""How often failures of unfinished messages are reported (ZMailer 3.0.1)."""

_DUMP_MODE = 0o644
"""MAILQ version 1 shows the same to all."""


class Clocks(NamedTuple):
    """The clocks of a scheduler."""

    wall: Callable[[], float]
    """Epoch seconds UTC."""
    monotonic: Callable[[], float]
    ages: Callable[[str, Callable[[str], None]], Callable[[float, float], float]]
    """Gets the spool and its log; returns the seconds that runs have seen between two times."""


class SchedulerProcess:
    """A scheduler of one spool in this process."""

    def __init__(
        self,
        options: SchedulerOptions,
        settings: ZmailerSettings,
        environ: Mapping[str, str],
        clocks: Clocks,
        random: Random,
    ) -> None:
        """Read the configuration, end an earlier scheduler of the spool, open what is needed.
        Raises Unavailable: it cannot run; the text says why."""
        spool_settings = settings._replace(environment=options.zenv or settings.environment)
        self._options, self._settings, self._environ = options, spool_settings, environ
        self._clocks = clocks
        self._files = self._read_conf()
        self._keep = ExitStack()
        try:
            self._open(random)
        except OSError as error:
            self._keep.close()
            where = error.filename or ""
            raise Unavailable(f"{where}: {error_text(error)}".lstrip(": ")) from error
        except BaseException:
            self._keep.close()
            raise

    def _read_conf(self) -> SchedulerFiles:
        scheduler_files = read_files(self._settings, self._environ, self._options.conf)
        if scheduler_files.conf is None or scheduler_files.problem:
            raise Unavailable(scheduler_files.problem or "no scheduler.conf")
        if scheduler_files.conf.errors:
            line, column, text = scheduler_files.conf.errors[0]
            more = len(scheduler_files.conf.errors) - 1
            more_text = f" (and {more} more: zmailer check)" if more else ""
            raise Unavailable(f"{scheduler_files.conf_path}:{line}:{column}: {text}{more_text}")
        return scheduler_files

    @property
    def _conf(self) -> SchedulerConf:
        conf = self._files.conf
        assert conf is not None  # checked when it was read
        return conf

    def _open(self, random: Random) -> None:
        options, environ = self._options, self._files.environ
        root = options.postoffice or environ.get("POSTOFFICE", DEFAULT_POSTOFFICE)
        log_path = options.log or (self._files.log if options.detaches else "")
        if options.detaches and not log_path:
            raise Unavailable("no log: LOGDIR is not set, and there is no option -L")
        log_path, statistics = (
            os.path.abspath(one) if one else "" for one in (log_path, options.statistics)
        )
        self._rendezvous = os.path.abspath(
            options.rendezvous or environ.get("RENDEZVOUS", DEFAULT_RENDEZVOUS)
        )
        keep = self._keep.enter_context
        self._log = keep(closing(SchedulerLog(log_path, self._clocks.wall)))
        self.log_fd = self._log.fd
        folders = keep(closing(PostofficeFolders(os.path.abspath(root))))
        if why := write_refusal(folders):
            raise Unavailable(why)
        os.fchdir(folders.transport)
        self._folders = folders
        self._report_settings = _report_settings(self._conf, options)
        pid_file = PidFile.claim(folders.fd, folders.transport_status)
        self._keep.callback(pid_file.release)
        mail = SpoolMail(folders, self._clocks.wall, self._report_settings)
        changes = LineChanges(folders, MessageReader(folders), mail)
        changes.recover(os.getpid())
        has_syslog = "c" in environ.get("SYSLOGFLG", "").lower()
        self._outputs = SchedulerOutputs(
            self._log, statistics, self._clocks.wall, has_syslog=has_syslog
        )
        self._clauses = ClauseTable(self._conf)
        self._record_conf()
        _set_niceness(self._conf, self._outputs.log)
        recover = partial(_recover, changes, self._outputs.log)
        self.loop = self._make_loop(folders, recover, random)
        self._queue = SchedulerQueue(self.loop)
        self._open_sockets(folders.root)
        self._signals = keep(closing(SignalReader()))
        self.loop.add_reader(self._signals.fileno(), self._handle_signals)

    def _make_loop(
        self, folders: PostofficeFolders, recover: Callable[[], None], random: Random
    ) -> SchedulerLoop:
        options, environ = self._options, self._files.environ
        slots = AgentSlots(_most_agents())
        table = ThreadTable(slots, random, _selector(options.only))
        hash_text = environ.get("SCHEDULERDIRHASH", "")
        levels = int(hash_text) if hash_text in ("1", "2") else options.hash_levels
        places = MessagePlaces(folders, levels)
        reader = QueuedMessageReader(places, self._clauses.find)
        reports = SenderReports(
            folders,
            self._report_settings,
            lambda name: read_form(self._files.forms, name),
            form_name=lambda row: find_form(self._clauses, row),
            log=self._outputs.syslog,
            note=self._outputs.log,
        )
        clock = self._clocks.monotonic
        limits = ScanLimits(options.scan_files, options.scan_seconds)
        parts = SchedulerParts(
            table,
            WorkTable(table, slots, random),
            places,
            reader=reader,
            outcomes=MessageOutcomes(places, reader, reports.report),
            arrivals=Arrivals(folders, table.messages, clock, limits),
            statistics=self._outputs.statistics,
            log=self._outputs.log,
            trace=self._trace,
            syslog=self._outputs.syslog,
            clock=self._clocks.wall,
            monotonic=clock,
            age=self._clocks.ages(folders.root, self._outputs.log),
        )
        agent_limits = AgentLimits(environ, options.start_rate, options.open_files)
        return SchedulerLoop(
            parts,
            agent_limits,
            recover,
            is_synchronous=options.is_synchronous,
            is_frozen=lambda: options.is_frozen or spool_controls.is_frozen(folders),
        )

    def _open_sockets(self, root: str) -> None:
        params = {name: str(one.value) for name, one in self._conf.params.items()}
        self._notify = NotifySocket(self._files.notify_socket(root))
        self._keep.callback(self._notify.close)
        self.loop.add_reader(self._notify.fileno(), self._read_notices)
        self._server: MailqServer | None = None
        users = self._read_users(params.get("authfile", ""))
        try:
            path, host, port = find_mailq_socket(self._conf, self._files.environ)
            listener = listen_unix(path) if path else listen_tcp(host, port)
        except Unavailable as error:
            self._outputs.log(f"no MAILQ server: {error}")
            return
        self._server = MailqServer(
            [listener],
            self._queue,
            users,
            with_jobs=not self._options.has_short_dump,
            is_exact=self._options.is_exact,
            clock=self._clocks.monotonic,
            wall_clock=self._clocks.wall,
        )
        self._keep.callback(self._server.close)
        self.loop.add_reader(self._server.fileno(), self._server.step)
        self.loop.every_turn.append(self._server.step)  # ends connections that are too old

    def _read_users(self, path: str) -> tuple[MailqUser, ...] | None:
        """The users of MAILQ version 2; None for version 1."""
        if not path:
            return () if self._options.mailq_version == 2 else None
        users, wrong = read_users(path)
        for text in wrong:
            self._outputs.log(f"{path}: {text}")
        return users

    def _read_notices(self) -> None:
        for path in self._notify.receive():
            self.loop.flow.notice(path)

    def _handle_signals(self) -> None:
        actions: Mapping[SignalRequest, Callable[[], object]] = {
            SignalRequest.REOPEN_LOGS: self._log.reopen,
            SignalRequest.EXIT: self.loop.end,
            SignalRequest.SLOW_STOP: self.loop.stop,
            SignalRequest.CHECK_NOW: self.loop.check_now,
            SignalRequest.REREAD: self._reread,
            SignalRequest.DUMP: self._dump,
        }
        for wish in self._signals.read():
            try:
                actions[wish]()
            except (OSError, Unavailable) as error:
                self._outputs.log(f"cannot {wish}: {error}")

    def _reread(self) -> None:
        """Read the configuration again. With an error in it the old one stays in use."""
        old, self._files = self._files, self._read_conf()
        assert old.conf is not None
        for line in clauses.conf_changes(old.conf, self._conf):
            self._outputs.log(f"{self._files.conf_path}: {line}")
        self._clauses = ClauseTable(self._conf)
        self._record_conf()
        self.loop.parts.reader.find_settings = self._clauses.find
        if self._server is not None:
            authfile = self._conf.params.get("authfile")
            self._server.users = self._read_users(str(authfile.value) if authfile else "")
        self.loop.report_every(_report_seconds(self._conf))
        self._queue.forget_view()
        now = self._clocks.wall()
        self.loop.agents.reconfigure(self._files.environ, self._clauses.find, now)
        self.loop.parts.table.reconfigure(self._clauses.find, now)

    def _trace(self, text: str) -> None:
        """Log a step with -v; with -W too, only after the first files are read."""
        options = self._options
        if options.is_verbose and (self.loop.has_scanned or not options.is_verbose_later):
            self._outputs.log(text)

    def _record_conf(self) -> None:
        """Keep what is in use, so that the console can show what a reread would change."""
        try:
            spool_controls.record_conf(self._folders, self._files.text)
        except OSError as error:
            self._outputs.log(f"{spool_controls.FOLDER}: {error_text(error)}")

    def _dump(self) -> None:
        view = self._queue.view(with_jobs=not self._options.has_short_dump)
        lines = dump_lines(view, with_jobs=not self._options.has_short_dump)
        data = b"".join(encode(f"{line}\n") for line in lines)
        files.replace_file(self._rendezvous, data, _DUMP_MODE)

    def run(self) -> None:
        """Run until a signal ends it."""
        self.loop.report_every(_report_seconds(self._conf))
        self._outputs.log(f"started, PID {os.getpid()}")
        self.loop.run()
        self._outputs.log("ended")

    def close(self) -> None:
        """Close all; agents that are running finish the job that they have."""
        self._keep.close()


def _report_seconds(conf: SchedulerConf) -> float:
    interval = conf.params.get("global-report-interval")
    return float(interval.value) if interval else DEFAULT_REPORT_SECONDS  # type: ignore[arg-type]


def _report_settings(conf: SchedulerConf, options: SchedulerOptions) -> ReportSettings:
    keeps = "store-error-on-error" in conf.params and bool(
        conf.params["store-error-on-error"].value
    )
    return ReportSettings(this_host().name, not options.returns_headers, keeps)


def _set_niceness(conf: SchedulerConf, log: Callable[[str], None]) -> None:
    current = os.getpriority(os.PRIO_PROCESS, 0)
    if (niceness := scheduler_niceness(conf, current)) != current:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
        except OSError as error:
            log(f"niceness {niceness}: {error_text(error)}")


def _recover(changes: LineChanges, log: Callable[[str], None]) -> None:
    """Complete what an agent has begun that died; what cannot be completed now waits for the next
    start."""
    try:
        changes.recover(os.getpid())
    except (OSError, Unavailable) as error:
        log(f"recovery: {error}")


def _most_agents() -> int:
    """Raise the limit of open files as far as allowed; the number of agents that fit in it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(1, (soft - SPARE_DESCRIPTORS) // 2)


def _selector(only: str) -> Callable[[ThreadKey], bool]:
    """Which threads may run, by option -p."""
    if not only:
        return lambda key: True
    channel, _, host = only.lower().partition("/")
    return lambda key: (key.channel, key.host) == (channel, host)
