"""Write and read the worker's log: one JSON object per line, per event.

A `sent` line is fsynced before its job is deleted. If the worker dies in between, the next worker
finds that line and does not send the mail a second time.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Protocol

from engine.formats.zgb import control
from engine.formats.zgb.claims import ClaimReport
from engine.formats.zgb.place import ERROR_LIMIT_CHARS
from engine.formats.zgb.row import parse_id
from engine.logs.log_file import LogFile
from engine.logs.recent_lines import start_offsets
from engine.logs.rotated_log import RotatedLog
from engine.model import Outcome, State, Task
from engine.store import Gone
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text import decode
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

LOG_VARIABLE = "MAIL_QUEUE_LOG"
LOG_NAME = "mail-queue.log"

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
"""All events and their level; a "run_end" with an error has level error. The events "already_sent",
"in_doubt" and `postponed` are ours: ZGB's document has none for a mail that is not sent again, one
that may have been sent before, and one that was not tried."""

ATTEMPT_EVENTS = frozenset({"claimed", "sent"})
"""Events that show that a mail was tried, or may be being tried: the first comes before the
attempt."""

NO_ATTEMPT_EVENTS = frozenset(
    {"already_sent", "postponed", "orphan_deleted", "lease_lost", "redirect_blocked"}
)
"""Events that end a claim without a delivery attempt."""

WEB_ROOTS = frozenset({"public", "public_html", "htdocs", "www", "html", "webroot"})
"""Usual names of folders that a web server serves."""

RECENT_LIMIT_BYTES = 16 << 20
RECENT_LIMIT_LINES = 100_000
"""Limits for reading recent events from the end of the log: bytes and lines."""

_BLOCK_BYTES = 1 << 20
_LINE_LIMIT_BYTES = 1 << 16
"""Bytes of the longest line that can be ours; a longer line is skipped."""


class LogLocation(NamedTuple):
    """Where the log is written, and warnings about that."""

    path: str
    """Absolute; "" if no log can be written: then lines go to standard error."""
    rule: str
    """Which rule chose this path."""
    warnings: tuple[str, ...] = ()


def find_log(configured: str, database: str, environ: Mapping[str, str], cwd: str) -> LogLocation:
    """Choose where the log of a database is written: the configured path; else MAIL_QUEUE_LOG; else
    the existing folder ~/logs; else next to the database."""
    if configured:
        return _check_writable(LogLocation(os.path.abspath(configured), "as configured"))
    log_variable = environ.get(LOG_VARIABLE, "")
    if log_variable:
        return _check_writable(
            LogLocation(os.path.normpath(os.path.join(cwd, log_variable)), f"set by {LOG_VARIABLE}")
        )
    home = environ.get("HOME", "")
    folder = os.path.join(home, "logs")
    if home.startswith("/") and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return _check_writable(LogLocation(os.path.join(folder, LOG_NAME), "in ~/logs"))
    # One log per database, also if it is opened through links.
    database_folder = os.path.dirname(files.real_path(database))
    return _check_writable(
        LogLocation(os.path.join(database_folder, LOG_NAME), "next to the database")
    )


def is_public(folder: str) -> bool:
    """True if a folder is below one with a usual name of a web root."""
    names = {*os.path.abspath(folder).split("/"), *os.path.realpath(folder).split("/")}
    return not WEB_ROOTS.isdisjoint(names)


def _check_writable(at: LogLocation) -> LogLocation:
    folder = os.path.dirname(at.path)
    if is_public(folder):
        why = (
            f"the log is below a web root, in {folder}: only .htaccess protects it, and only with "
            f"Apache; create ~/logs for the user that cron runs as, or set "
            f"{LOG_VARIABLE}"
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


def mask_address(address: str) -> str:
    """Mask an address for the log; enough remains to tell two mails apart."""
    local, sign, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}" if sign else "***"


class EventWriter(Protocol):
    """Writes an event to the log."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """Write an event with its fields; fields with None are omitted."""


def discard_event(event: str, /, **fields: object) -> None:
    """Log nothing."""


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
        """`run` identifies the lines of this run. `otherwise` receives each line that cannot be
        written (with path "" every line), because a log error must not stop a mail."""
        self.path, self.run = path, run
        self._database = files.real_path(database)
        self._clock, self._fallback = clock, otherwise
        self.counts: Counter[str] = Counter()
        """Number of written events by name."""

    def write(self, event: str, /, **fields: object) -> None:
        """Write an event."""
        self._write_event(event, fields, durable=False)

    def write_sent(self, message_id: str, /, **fields: object) -> None:
        """Write that a mail was accepted; the line is fsynced before this returns, unless the disk
        fails."""
        self._write_event("sent", {"message_id": message_id, **fields}, durable=True)

    def _write_event(self, event: str, fields: Mapping[str, object], *, durable: bool) -> None:
        self.counts[event] += 1
        moment = datetime.fromtimestamp(self._clock(), UTC)
        fields_by_name = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "error" if event == "run_end" and fields.get("error") else EVENTS[event],
            "event": event,
            "run": self.run,
            "pid": os.getpid(),
            "db": self._database,
            **{name: _safe_value(value) for name, value in fields.items() if value is not None},
        }
        line = json.dumps(fields_by_name, ensure_ascii=False, separators=(",", ":"))
        try:
            if not self.path:
                raise FileNotFoundError("no log can be written")
            _append(self.path, line.encode("utf-8", "replace") + b"\n", durable=durable)
        except OSError as error:
            why = f"{self.path}: {error_text(error)}: " if self.path else ""
            self._fallback(f"{why}{line}")

    def was_sent(self, message_id: str, job: int, attempt: int) -> bool:
        """True if an earlier attempt of this job has sent the mail.

        After a retry with attempts reset, the operator wants the mail sent again, and a later job
        may have been created in the same second. So only an earlier attempt number of the same
        count proves that a worker died after sending. Raises OSError: the log exists and cannot be
        read."""
        sent_attempt = 0
        matches = find_lines(self.path, message_id.encode())
        for line in (line for raw in matches for line in parse_lines([raw]).lines):
            its = line.fields.get("attempt")
            if line.fields.get("message_id") != message_id or not isinstance(its, int):
                continue
            if line.fields.get("job") != job or line.fields.get("db") != self._database:
                continue
            if line.event == "sent":
                sent_attempt = its
            elif line.event == "claimed" and its <= sent_attempt:
                sent_attempt = 0  # another job of this number, or this job with attempts reset
        return 0 < sent_attempt < attempt

    def attempt_times(self, since: float) -> list[float]:
        """Return the known times of delivery attempts since then; epoch seconds UTC, in order.

        A mail that may be being sent counts as an attempt. Raises OSError: the log exists and
        cannot be read, or has too many lines in that time."""
        moments: dict[tuple[object, ...], float] = {}
        read = read_recent(self.path, since)
        if read.unread:
            raise OSError(errno.EFBIG, "has too many lines in the last hour", self.path)
        for line in read.lines:
            if line.fields.get("db") != self._database:
                continue
            key = tuple(line.fields.get(name) for name in ("run", "reg", "type", "attempt"))
            if line.event in ATTEMPT_EVENTS:
                moments.setdefault(key, line.at)
            elif line.event in NO_ATTEMPT_EVENTS:
                moments.pop(key, None)
        return sorted(moments.values())


def _safe_value(value: object) -> object:
    return safe_line(value[:ERROR_LIMIT_CHARS]) if isinstance(value, str) else value


def _append(path: str, line: bytes, *, durable: bool) -> None:
    """Append one line with one write(2), at the beginning of a line."""
    folder, name = os.path.split(path)
    with (
        closing_fd(files.open_dir(folder, folder)) as dir_fd,  # the folder may be a link
        closing_fd(files.open_shared(name, dir_fd, os.O_RDWR | os.O_APPEND)) as fd,
    ):
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # an unfinished line of a dead process must not spoil ours
        files.write_all(fd, line)
        if durable:
            os.fsync(fd)
            if not size:
                os.fsync(dir_fd)


# ---- reading


class LogEvent(NamedTuple):
    """One event from the log."""

    at: float
    """Epoch seconds UTC."""
    event: str
    fields: Mapping[str, object]


class LogScan(NamedTuple):
    """The events read from a log."""

    lines: tuple[LogEvent, ...]
    broken: int
    """Lines that are not JSON or have another form; an unfinished last line does not count."""
    unread: bool = False
    """True if older lines were not read because there are too many."""


def parse_line(line: bytes) -> LogEvent | None:
    """Parse a line; None for a JSON line of another program. Raises ValueError: it is broken."""
    fields = decode.check_object(decode.load_json(line, _LINE_LIMIT_BYTES))
    stamp, event = fields.get("ts"), fields.get("event")
    if not isinstance(stamp, str) or not isinstance(event, str):
        return None
    moment = datetime.fromisoformat(stamp)
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return LogEvent(moment.timestamp(), event, fields)


def parse_lines(lines: Iterable[bytes]) -> LogScan:
    """Parse lines without their newline."""
    good: list[LogEvent] = []
    broken = 0
    for line in lines:
        if not line.lstrip(b" \t").startswith(b"{"):  # a cheap test that sorts out most other text
            broken += 1
            continue
        try:
            its = parse_line(line)
        except (ValueError, OverflowError):
            broken += 1
        else:
            good += [] if its is None else [its]
    return LogScan(tuple(good), broken)


def read_recent(path: str, since: float) -> LogScan:
    """Read the events since a time (epoch seconds UTC) in the order of writing, also from rotated
    files.

    At most the last `RECENT_LIMIT_BYTES` or `RECENT_LIMIT_LINES` are read; if there are more,
    `unread` is true. Raises OSError: a log exists and cannot be read."""
    with _opened(path) as log:
        offsets, known_since = start_offsets(log, since, RECENT_LIMIT_BYTES)
        _raise_damage(log)
        found = (_raw_lines(f, offsets[f.number]) for f in log.files if f.number in offsets)
        lines = deque(chain.from_iterable(found), RECENT_LIMIT_LINES + 1)
    read = parse_lines(lines)
    unread = known_since > since or len(lines) > RECENT_LIMIT_LINES
    return LogScan(tuple(line for line in read.lines if line.at >= since), read.broken, unread)


def find_lines(path: str, sign: bytes = b"") -> Iterator[bytes]:
    """Yield every line that contains `sign`, from the last rotated file first, without the newline.
    Raises OSError: a log exists and cannot be read."""
    with _opened(path) as log:
        while len(log.files) < 2 and log.open_earlier():
            pass
        _raise_damage(log)
        for file in log.files:
            yield from _raw_lines(file, 0, sign)


def _raw_lines(file: LogFile, at: int, sign: bytes = b"") -> Iterator[bytes]:
    """Yield the complete lines from an offset on that contain `sign`.

    Reads blocks of 1 MiB; of a line longer than `_LINE_LIMIT_BYTES` only the end is kept, which
    never parses as an event."""
    partial_line = b""
    while data := file.read(at, _BLOCK_BYTES):
        at += len(data)
        lines, newline, partial_line = (partial_line + data).rpartition(b"\n")
        partial_line = partial_line[-_LINE_LIMIT_BYTES - 1 :]
        if newline and sign in lines:
            yield from (line for line in lines.split(b"\n") if sign in line)


def _raise_damage(log: RotatedLog) -> None:
    for path, why in log.damages.items():
        raise OSError(errno.EIO, why, path)


@contextmanager
def _opened(path: str) -> Iterator[RotatedLog]:
    """The files of a log; none for the path ""."""
    with closing(RotatedLog(path)) as log:
        log.refresh()
        if log.error is not None and not log.is_missing:
            raise log.error
        yield log


def log_claim(write_event: EventWriter, report: ClaimReport) -> None:
    """Log what a take did before its first claim."""
    for ident in report.recovered:
        write_event("recovered", **_id_fields(ident))
    for ident in report.orphans:
        write_event("orphan_deleted", **_id_fields(ident))
    if report.reset:
        write_event("bucket_reset", tokens=report.tokens)
    if report.clock_went_back:
        write_event("clock_backwards", tokens=report.tokens)
    if report.undecidable:
        write_event("redirect_blocked", type="user", error="redirect guard undecidable")


def log_move(write_event: EventWriter, outcome: Outcome) -> None:
    """Log the outcome of a move."""
    old, new = outcome.move.old, outcome.move.new
    if outcome.error is not None:
        if old is not None and old.state is State.ACTIVE and isinstance(outcome.error, Gone):
            write_event("lease_lost", **_id_fields(old.id), attempt=(old.attempts or 0) + 1)
        return
    if old is None:
        assert new is not None
        write_event("enqueue", **_id_fields(new.id))
    elif new is not None:
        _log_change(write_event, old, new)


def _log_change(write_event: EventWriter, old: Task, new: Task) -> None:
    its = _id_fields(old.id)
    if old.state is State.ACTIVE:
        its["attempt"] = (old.attempts or 0) + 1
        tried = (new.attempts or 0) > (old.attempts or 0)
        event = "failed" if tried else "postponed"
        if new.state is State.DEAD:
            event = "parked"
        due = None if new.state is State.DEAD else int(new.due or 0)
        write_event(event, **its, error=new.error, next_attempt_at=due)
    elif new.state is State.DEAD and old.state is State.PENDING:
        write_event("parked", **its)
    elif new.state is State.PENDING and old.state is State.DEAD:
        write_event("retry_requested", **its)


def log_control(write_event: EventWriter, name: str, value: str, answer: str) -> None:
    """Log the use of a control."""
    write_event(_CONTROL_EVENTS.get(name, "config_changed"), key=name, value=value, said=answer)


_CONTROL_EVENTS: Mapping[str, str] = {
    control.RETRY_FAILED: "retry_requested",
    control.DELETE_ORPHANS: "orphan_deleted",
}


def _id_fields(ident: str) -> dict[str, object]:
    its = parse_id(ident)
    return {"id": ident} if its is None else {"reg": its[0], "type": its[1]}
