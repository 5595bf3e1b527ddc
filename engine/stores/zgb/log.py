"""The worker's log: one line of JSON for each event, of which a few are also read again.

A `sent` line is on the disk before its job leaves the queue. Whoever finds the job again, because
its worker ended in between, finds that line, and does not send the mail a second time.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from engine.stores.zgb.place import ERROR_LIMIT
from engine.system import files
from engine.text import decode
from engine.text.safe import shown

VARIABLE = "MAIL_QUEUE_LOG"
NAME = "mail-queue.log"

EVENTS: Mapping[str, str] = {
    "run_start": "info",
    "run_skipped": "info",
    "run_end": "info",
    "recovered": "warning",
    "claimed": "info",
    "sent": "info",
    "already_sent": "warning",
    "in_doubt": "warning",
    "failed": "error",
    "parked": "error",
    "postponed": "info",
    "orphan_deleted": "warning",
    "lease_lost": "warning",
    "retry_requested": "info",
    "enqueue": "info",
    "enqueue_duplicate": "info",
    "bucket_reset": "warning",
    "clock_backwards": "warning",
    "config_changed": "info",
    "redirect_applied": "warning",
    "redirect_blocked": "warning",
}
"""Every event, and how grave it is; the end of a run that failed is an error. `already_sent`,
`in_doubt` and `postponed` are ours: the document has no word for a mail that is not sent again, for
one that is sent again and may have been sent, nor for one that was not tried."""

TRIED = frozenset({"claimed", "sent"})
"""What says that a mail was tried, or may be being tried: the first of them, before it is."""

NOT_TRIED = frozenset(
    {"already_sent", "postponed", "orphan_deleted", "lease_lost", "redirect_blocked"}
)
"""What ends a claim without anybody having been asked to take the mail."""

WEB_ROOTS = frozenset({"public", "public_html", "htdocs", "www", "html", "webroot"})
"""What folders are called that a web server serves from."""

LOOK_BYTES = 16 << 20
LOOK_LINES = 100_000
"""Bytes and lines before the end of the log that are read to see what happened lately."""

_BLOCK = 1 << 16
_SWEEP = 1 << 20
_LONGEST = 1 << 16
"""Bytes of a line that can be one of ours; a longer one is passed over without being parsed."""


class LogLocation(NamedTuple):
    """Where the log is written, and what is to be said about that."""

    path: str
    """Absolute; "" where nothing can be written: then it goes to standard error."""
    rule: str
    """Why there, in words."""
    warnings: tuple[str, ...] = ()


def spot(said: str, database: str, environ: Mapping[str, str], cwd: str) -> LogLocation:
    """Where the log of a database is written: as configured; else as MAIL_QUEUE_LOG says; else in
    the folder `logs` of the home, which is never made; else beside the database.
    """
    if said:
        return _writable(LogLocation(os.path.abspath(said), "as configured"))
    told = environ.get(VARIABLE, "")
    if told:
        return _writable(
            LogLocation(os.path.normpath(os.path.join(cwd, told)), f"as {VARIABLE} says")
        )
    home = environ.get("HOME", "")
    folder = os.path.join(home, "logs")
    if home.startswith("/") and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return _writable(LogLocation(os.path.join(folder, NAME), "in the folder logs of the home"))
    # One log for each database, by whatever link it is reached.
    beside = os.path.dirname(files.real_path(database))
    return _writable(LogLocation(os.path.join(beside, NAME), "beside the database"))


def is_public(folder: str) -> bool:
    """Whether a folder lies where a web server may serve from, by the usual names of those."""
    names = {*os.path.abspath(folder).split("/"), *os.path.realpath(folder).split("/")}
    return not WEB_ROOTS.isdisjoint(names)


def _writable(at: LogLocation) -> LogLocation:
    folder = os.path.dirname(at.path)
    if is_public(folder):
        why = (
            f"the log lies below a web root, in {folder}: only .htaccess keeps it from everybody, "
            f"and only with Apache; make the folder logs in the home of whom cron runs as, or set "
            f"{VARIABLE}"
        )
        at = at._replace(warnings=(why,))
    if os.path.exists(at.path):
        good = os.path.isfile(at.path) and os.access(at.path, os.W_OK)
    else:
        good = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    if good:
        return at
    why = f"the log {at.path} ({at.rule}) cannot be written: its lines go to standard error"
    return at._replace(path="", warnings=(*at.warnings, why))


def masked(address: str) -> str:
    """An address as it may stand in the log: enough of it to tell two mails apart."""
    local, sign, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}" if sign else "***"


class Tell(Protocol):
    """Writes down an event."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """With what there is to know about it; None is left out."""
        ...


def silent(event: str, /, **fields: object) -> None:
    """Tell nobody."""


class Log:
    """The log of one run."""

    def __init__(
        self,
        path: str,
        run: str,
        database: str,
        clock: Callable[[], float],
        otherwise: Callable[[str], None],
    ) -> None:
        """`run` is what its lines are known by. `otherwise` is given each line that cannot be
        written, for nothing about the log may stop a mail; with "" for a path, that is each.
        """
        self.path, self.run = path, run
        self._database = files.real_path(database)
        self._clock, self._otherwise = clock, otherwise
        self.counts: Counter[str] = Counter()
        """How often each event was told of."""

    def tell(self, event: str, /, **fields: object) -> None:
        """Write down an event."""
        self._put(event, fields, durable=False)

    def sent(self, message_id: str, /, **fields: object) -> None:
        """Write down that a mail was accepted; it is on the disk when this returns, if at all."""
        self._put("sent", {"message_id": message_id, **fields}, durable=True)

    def _put(self, event: str, fields: Mapping[str, object], *, durable: bool) -> None:
        self.counts[event] += 1
        moment = datetime.fromtimestamp(self._clock(), UTC)
        said = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "error" if event == "run_end" and fields.get("error") else EVENTS[event],
            "event": event,
            "run": self.run,
            "pid": os.getpid(),
            "db": self._database,
            **{name: _safe(value) for name, value in fields.items() if value is not None},
        }
        line = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        try:
            if not self.path:
                raise FileNotFoundError("no log can be written")
            _append(self.path, line.encode("utf-8", "replace") + b"\n", durable=durable)
        except OSError as error:
            why = f"{self.path}: {error.strerror or error}: " if self.path else ""
            self._otherwise(f"{why}{line}")

    # ---- read again

    def was_sent(self, message_id: str, job: int, attempt: int) -> bool:
        """Whether this very job was sent by an earlier attempt than this one.

        Whoever had it tried anew from the first attempt on wants it sent, and so does a later job
        of the same second: only an attempt that counts on can be of a worker that never came back.

        Raises:
            OSError: the log is there, and cannot be read.
        """
        found = 0
        for line in self._lines(message_id):
            its = line.fields.get("attempt")
            if line.fields.get("message_id") != message_id or not isinstance(its, int):
                continue
            if line.fields.get("job") != job or line.fields.get("db") != self._database:
                continue
            if line.event == "sent":
                found = its
            elif line.event == "claimed" and its <= found:
                found = 0  # another one of its number, or this one begun anew
        return 0 < found < attempt

    def tried(self, since: float) -> list[float]:
        """When mails were tried since then, as far as is known; epoch seconds UTC, in order.

        A mail that somebody may just be trying counts as tried.

        Raises:
            OSError: the log is there, and cannot be read, or holds too much of that time.
        """
        moments: dict[tuple[object, ...], float] = {}
        read = recent(self.path, since)
        if read.unread:
            raise OSError(errno.EFBIG, "holds too many lines of the last hour", self.path)
        for line in read.lines:
            if line.fields.get("db") != self._database:
                continue
            key = tuple(line.fields.get(name) for name in ("run", "reg", "type", "attempt"))
            if line.event in TRIED:
                moments.setdefault(key, line.at)
            elif line.event in NOT_TRIED:
                moments.pop(key, None)
        return sorted(moments.values())

    def _lines(self, needle: str) -> Iterator[LogEvent]:
        for line in whole(self.path, needle.encode()):
            yield from understood([line]).lines


def _safe(value: object) -> object:
    return shown(value[:ERROR_LIMIT]) if isinstance(value, str) else value


def _append(path: str, line: bytes, *, durable: bool) -> None:
    """One line in one write, at the end of the file and at the beginning of a line."""
    folder, name = os.path.split(path)
    dir_fd = files.enter(folder, folder)  # it may be a link
    try:
        fd = files.open_shared(name, dir_fd, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # somebody died over theirs: ours must not be lost with it
            files.write_all(fd, line)
            if durable:
                os.fsync(fd)
                if not size:
                    os.fsync(dir_fd)
        finally:
            os.close(fd)
    finally:
        os.close(dir_fd)


# ---- reading


class LogEvent(NamedTuple):
    """One event as it was written down."""

    at: float
    """Epoch seconds UTC."""
    event: str
    fields: Mapping[str, object]


class LogScan(NamedTuple):
    """What a log holds."""

    lines: tuple[LogEvent, ...]
    broken: int
    """Lines that are no JSON, or of another shape; the last one, without its end, is no such."""
    unread: bool = False
    """Whether older lines were not read, because there are too many."""


def parse(line: bytes) -> LogEvent | None:
    """A line as the event that it is; None for one that somebody else wrote.

    Raises:
        ValueError: it is broken.
    """
    said = decode.mapping(decode.load_json(line, _LONGEST))
    stamp, event = said.get("ts"), said.get("event")
    if not isinstance(stamp, str) or not isinstance(event, str):
        return None
    moment = datetime.fromisoformat(stamp)
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return LogEvent(moment.timestamp(), event, said)


def understood(lines: Iterable[bytes]) -> LogScan:
    """What these lines say; each is without its end."""
    good: list[LogEvent] = []
    broken = 0
    for line in lines:
        if not line.lstrip(b" \t").startswith(b"{"):  # most garbage costs no more than this
            broken += 1
            continue
        try:
            its = parse(line)
        except (ValueError, OverflowError):
            broken += 1
        else:
            good += [] if its is None else [its]
    return LogScan(tuple(good), broken)


def recent(path: str, since: float) -> LogScan:
    """The events since a moment (epoch seconds UTC), in the order in which they were written; also
    of the file that was rotated away last.

    Reads from the end in blocks of 64 KiB, until a block begins before that moment. After
    `LOOK_BYTES` or `LOOK_LINES` it ends there, and `unread` is true.

    Raises:
        OSError: a log is there, and cannot be read.
    """
    found: list[tuple[LogEvent, ...]] = []
    broken = size = count = 0
    with ExitStack() as opened:
        logs = _opened(path)
        for fd in logs:
            opened.callback(os.close, fd)
        for length, lines in (block for fd in reversed(logs) for block in _blocks(fd)):
            size, count = size + length, count + len(lines)
            if size > LOOK_BYTES or count > LOOK_LINES:
                return LogScan(_in_order(found, since), broken, unread=True)
            read = understood(lines)
            broken += read.broken
            found.append(read.lines)
            if read.lines and read.lines[0].at < since:
                break
    return LogScan(_in_order(found, since), broken)


def _in_order(blocks: Sequence[tuple[LogEvent, ...]], since: float) -> tuple[LogEvent, ...]:
    """The lines of blocks that were read from the end, the earliest first."""
    return tuple(line for block in reversed(blocks) for line in block if line.at >= since)


def _blocks(fd: int) -> Iterator[tuple[int, list[bytes]]]:
    """The whole lines of a file in blocks from its end, and how many bytes were read for each.

    Of a line beyond `_LONGEST` only the end is kept, which is no line of ours.
    """
    at, rest, is_end = os.fstat(fd).st_size, b"", True
    while at > 0:
        begin = max(0, at - _BLOCK)
        data = os.pread(fd, at - begin, begin)
        lines = (data + rest).split(b"\n")
        rest = b"" if begin == 0 else lines.pop(0)[-_LONGEST - 1 :]
        if is_end and lines:
            lines.pop()  # behind the last newline: not whole
            is_end = False
        yield at - begin, lines
        at = begin


def whole(path: str, sign: bytes = b"") -> Iterator[bytes]:
    """Every line that holds `sign`, the file that was rotated away last first; without its end.

    Reads blocks of 1 MiB; of a line beyond `_LONGEST` only the end is kept.

    Raises:
        OSError: a log is there, and cannot be read.
    """
    with ExitStack() as opened:
        logs = _opened(path)
        for fd in logs:
            opened.callback(os.close, fd)
        for fd in logs:
            at, rest = 0, b""
            while data := os.pread(fd, _SWEEP, at):
                at += len(data)
                lines, newline, rest = (rest + data).rpartition(b"\n")
                rest = rest[-_LONGEST - 1 :]
                if newline and sign in lines:
                    yield from (line for line in lines.split(b"\n") if sign in line)


def _opened(path: str) -> list[int]:
    """Descriptors of the log and of the one that was rotated away last, older first."""
    if not path:
        return []
    current, older = _open(path), _open(f"{path}.1")
    if current is not None and older is not None and _same(current, older):
        os.close(current)  # it was rotated just now
        current = _open(path)
    return [fd for fd in (older, current) if fd is not None]


def _open(path: str) -> int | None:
    try:
        dir_fd = files.walk(os.path.dirname(path))
    except FileNotFoundError:
        return None
    try:
        return files.open_plain(os.path.basename(path), dir_fd)
    except FileNotFoundError:
        return None
    finally:
        os.close(dir_fd)


def _same(one: int, other: int) -> bool:
    return os.path.samestat(os.fstat(one), os.fstat(other))
