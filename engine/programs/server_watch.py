"""Facts about one mail server for the console: read at most every few seconds, by programs that
change nothing; what its last listing has shown; its process, its disk and its log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from engine.logs.log_line import lacks_zone, parse_log_line
from engine.logs.rotated_log import NO_LOG_FILE
from engine.programs.mail_log import NO_LOG, MailLog, ask_zone
from engine.programs.prefix import Prefix
from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.values import NamedTuple

HERE_SECONDS, FAR_SECONDS, SETTINGS_SECONDS = 20.0, 60.0, 600.0
"""Seconds for which facts of this host are current, those behind a prefix, and the settings."""
TAIL_BYTES, TAIL_LINES = 1 << 20, 4000
"""What is read of the end of a log, of a file or of the journal."""

Counts = TypeVar("Counts")
Figures = TypeVar("Figures")
Host = TypeVar("Host")


class LoggedLooks:
    """What the stores of a place share about messages that the log has named."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        """Why they wait, by id, as the log says; "" if it does not."""
        self.costs: list[float] = []
        """Seconds that looks at them took, which the store that waits has not taken yet."""

    def take_costs(self) -> Iterator[float]:
        """Take the seconds of all looks since the last call."""
        while self.costs:
            yield self.costs.pop()


class LastCounts(Generic[Counts]):
    """What the last listing of a place in this process has shown; one thread sets it at a time."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` has epoch seconds UTC."""
        self._clock = clock
        self.counts: Counts | None = None
        self.at: float | None = None
        """Epoch seconds UTC of that listing, or of a later one that was the same."""
        self.logged = LoggedLooks()
        self.moved = 0
        """Messages that it had twice, or missed though they are there: they moved meanwhile."""

    def note(self, now: float, moved: int) -> None:
        """Note the time of a listing, and how many messages moved during it; of an older one than
        the last, which another store of the place has made, only how many. A time that is ahead of
        the clock is of before the clock was set back."""
        before = self.at if self.at is not None and self.at <= self._clock() else now
        self.at, self.moved = max(now, before), moved


class ReachedServer(Protocol):
    """A server whose programs are run through a prefix."""

    @property
    def prefix(self) -> Prefix:
        """The prefix of its programs; without words here."""
        ...


Server = TypeVar("Server", bound=ReachedServer)


class ServerWatch(Generic[Server, Host, Figures]):
    """Facts about one server, from any thread: its settings, its host, and the last listing."""

    def __init__(
        self,
        open_server: Callable[[], Server],
        read_host: Callable[[Server], Host],
        describe: Callable[[Server, Host], Figures],
        *,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_server` finds the server and its settings, `read_host` runs programs of its host,
        and `describe` runs none: it is called each time."""
        self._open, self._read, self._describe = open_server, read_host, describe
        self._steady = steady
        self._server: Server | None = None
        self._host: Host | None = None
        self._server_due = self._host_due = float("-inf")

    def figures(self) -> Figures:
        """The facts and warnings.

        Raises:
            Unavailable: the server cannot be found.
        """
        now, server, host = self._steady(), self._server, self._host
        if server is None or now >= self._server_due:
            server = self._server = self._open()
            self._server_due = now + SETTINGS_SECONDS
        if host is None or now >= self._host_due:
            host = self._host = self._read(server)
            self._host_due = self._steady() + (FAR_SECONDS if server.prefix.words else HERE_SECONDS)
        return self._describe(server, host)


class ServerProcess(NamedTuple):
    """The main process of a server, as its PID file and /proc show it."""

    pid: int | None = None
    since: float | None = None
    """Epoch seconds UTC of its start."""
    is_running: bool | None = None
    """None: unknown."""
    why: str = ""
    """Why it is unknown."""


def find_process(prefix: Prefix, pid_file: str, name: str) -> ServerProcess:
    """The process that a PID file names, if its program has this name (proc_pid_stat(5))."""
    try:
        lines, end = prefix.run(("cat", pid_file))
        if end.status or prefix.why_failed(end):
            if b": No such file or directory" in end.errors:
                return ServerProcess(is_running=False)
            return ServerProcess(why=prefix.why_failed(end) or end.last_error)
        text = b"".join(lines[:1]).strip().decode("ascii", "replace")
        if not text.isdecimal():
            return ServerProcess(is_running=False)
        own, path = "/proc/self/stat", f"/proc/{text}/stat"
        lines, end = prefix.run(("cat", own, path, "/proc/stat"))
    except Unavailable as error:
        return ServerProcess(why=str(error))
    if not lines or not lines[0].partition(b" ")[0].isdigit() or prefix.why_failed(end):
        return ServerProcess(why=prefix.why_failed(end) or "/proc cannot be read")
    head, _, rest = lines[1].rpartition(b")") if len(lines) > 1 else (b"", b"", b"")
    fields, since = rest.split(), None
    if head != f"{text} ({name}".encode() or fields[:1] in ([b"Z"], [b"X"]):
        return ServerProcess(is_running=False)
    boot = next((line[6:] for line in lines if line.startswith(b"btime ")), b"")
    if len(fields) > 19 and fields[19].isdigit() and boot.isdigit():
        since = int(boot) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return ServerProcess(int(text), since, is_running=True)


def count_free_bytes(prefix: Prefix, folder: str) -> int | None:
    """The free bytes of the disk that has a folder, by df(1); None if unknown."""
    try:
        lines, end = prefix.run(("df", "-Pk", folder))
    except Unavailable:
        return None
    fields = lines[-1].split() if len(lines) > 1 and not end.status else []
    return int(fields[3]) * 1024 if len(fields) >= 4 and fields[3].isdigit() else None


class LogEnd(NamedTuple):
    """The end of a log."""

    last: float | None = None
    """Epoch seconds UTC of the last line of a program; None if none is there."""
    since: float | None = None
    """Epoch seconds UTC of the first line that was read."""
    problem: str = ""
    """Why it cannot be read."""


class LogTail(NamedTuple):
    """The last lines of a log."""

    lines: Sequence[bytes] = ()
    """Complete ones."""
    path: str = ""
    """The file that has them; the last word of the program that printed them if there is none."""
    problem: str = ""
    """Why it cannot be read."""
    is_cut: bool = False
    """True if it has more lines before them."""


def read_tail(log: MailLog, most: int = TAIL_BYTES) -> LogTail:
    """The lines in the last bytes of a log; of a journal, the last `TAIL_LINES` at most."""
    journal = (*log.journal, "-n", f"{min(most, TAIL_LINES)}")
    tails = [("tail", "-c", f"{most}", path) for path in log.paths]
    problems = list[str]()
    for argv in [*tails, *([journal] * bool(log.journal))]:
        try:
            lines, end = log.prefix.run(argv)
        except Unavailable as error:
            problems.append(str(error))
            continue
        if end.status or log.prefix.why_failed(end):
            why = log.prefix.why_failed(end) or end.last_error or f"status {end.status}"
            problems.append(safe_line(why))
            continue
        if argv is journal and not lines and problems:
            break  # it prints nothing to a user who may not read it
        is_cut = sum(map(len, lines)) + len(lines) >= most and argv is not journal
        return LogTail(lines[is_cut : len(lines) - end.is_cut], argv[-1], is_cut=is_cut)
    others = (why for why in problems if not why.endswith(NO_LOG_FILE))
    return LogTail(problem=next(others, problems[-1] if problems else NO_LOG))


def read_log_end(log: MailLog, program: str, most: int = TAIL_BYTES) -> LogEnd:
    """The last line of a program (`postlog/name`) in the last bytes of a log."""
    lines, path, problem, _ = read_tail(log, most)
    if problem:
        return LogEnd(problem=problem)
    head = f" {program}[".encode()
    named = next((line for line in reversed(lines) if head in line.partition(b"]: ")[0]), None)
    is_there = bool(log.prefix.words) and lacks_zone(lines[-1] if lines else b"")
    zone = ask_zone(log.prefix, path) if is_there else None
    if is_there and zone is None:
        return LogEnd()
    times = (parse_log_line(line, "", None, None, zone=zone).when for line in lines)
    last = None if named is None else parse_log_line(named, "", None, None, zone=zone).when
    return LogEnd(last, next((when for when in times if when is not None), None))
