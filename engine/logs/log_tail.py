"""Follows a log through rotation and truncation, and knows the lines of the contract."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from engine.system import files
from engine.text import decode
from engine.text.safe import shown

BACKLOG = 64 * 1024
"""Bytes before the end of a log that are shown when it is opened."""

LONGEST = 64 * 1024
"""Bytes of a line that are kept."""

_CHUNK = 64 * 1024
_POLL_BYTES = 1 << 20
_POLL_LINES = 10_000
"""A poll ends after so much, or once so many lines came; the rest is for the next one."""

_MEMORY = 64
"""Bytes before the place reached that must still be the same, or the file was written anew."""


class SharedLog(str):
    """The path of a log that several databases write to. It goes with the name of the one it is
    read for: lines that name another one are left out wherever it is followed or searched.

    To whoever hands it on it is a path like any other, so that nobody on the way can lose the name.
    """

    __slots__ = ("db",)

    def __new__(cls, path: str, db: str) -> SharedLog:
        """`db` is how lines name the database, in their field of that name."""
        made = super().__new__(cls, path)
        made.db = db
        return made

    db: str


class LogLine(NamedTuple):
    """A line of a log. Its text is as it was found: make it safe before showing it."""

    when: float | None
    """Epoch seconds; None when it does not say."""
    level: str
    """In capitals; "" when it does not say."""
    text: str
    source: str
    """The path of the log."""
    foreign: bool = False
    """Whether it says that it is of another database than the one that its log is read for."""


def contract_line(level: str, text: str, now: float) -> bytes:
    """A line as the contract has it: `[2026-01-07 12:01:02] [INFO] text`, in local time."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"[{stamp}] [{level}] {shown(text)}\n".encode()


def parse(raw: bytes, source: str) -> LogLine:
    """What a line says: one of the contract, one of JSON, or any other text."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    line = None
    if text.startswith("["):
        line = _contract(text, source)
    elif text.startswith("{"):
        line = _json(text, source)
    return line or LogLine(None, "", text, source)


def _contract(text: str, source: str) -> LogLine | None:
    level, closed, rest = text[23:].partition("]")
    if text[20:23] != "] [" or not closed or not level.isalpha():
        return None
    when = _local_time(text[1:20])
    if when is None:
        return None
    return LogLine(when, level.upper(), rest.removeprefix(" "), source)


def _local_time(stamp: str) -> float | None:
    """`2026-01-07 12:01:02` as epoch seconds."""
    fields = stamp[0:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:19]
    if not all(field.isascii() and field.isdigit() for field in fields):
        return None
    year, month, day, hour, minute, second = map(int, fields)
    if (stamp[4], stamp[7], stamp[10], stamp[13], stamp[16]) != ("-", "-", " ", ":", ":"):
        return None
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    try:
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        return None


_TIMES = ("ts", "time", "timestamp", "@timestamp", "date", "t")
_LEVELS = ("level", "severity", "lvl", "loglevel")
_TEXTS = ("msg", "message", "event")
"""Keys under which programs write these in JSON lines, the first that is there."""

_TASK = ("reg", "type")
"""Keys whose values name a task when they stand together: `7-user`."""
_FIRST = ("job", *_TASK, "attempt", "to", "error", "next_attempt_at")
_LAST = ("run", "pid", "db")
"""Keys that are told before and behind the others: what happened to whom comes before who wrote it
down, for the end of a line is often cut."""

_NUMBERED = {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}
"""Levels of programs that number them."""


def _json(text: str, source: str) -> LogLine | None:
    import json  # only for logs that hold it

    try:
        said = json.loads(text)  # any number: whatever it says, the line is shown
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or decode.is_nested_deeper(said):
        return None
    named = said.get("db")
    foreign = isinstance(source, SharedLog) and isinstance(named, str) and named != source.db
    when = _moment(_taken(said, _TIMES))
    level = _level(_taken(said, _LEVELS))
    words = [str(word) for word in [_taken(said, _TEXTS)] if word is not None]
    if all(isinstance(said.get(key), int | str) for key in _TASK):
        words.append("-".join(str(said.pop(key)) for key in _TASK))
    last = {key: said.pop(key) for key in _LAST if key in said}
    first = {key: said.pop(key) for key in _FIRST if key in said}
    pairs = {**first, **said, **last}.items()
    words += [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in pairs]
    return LogLine(when, level, " ".join(words), source, foreign)


def _taken(said: dict[str, object], keys: tuple[str, ...]) -> object:
    """The value of the first of these keys that is there; it is taken out."""
    return next((said.pop(key) for key in keys if key in said), None)


def _level(value: object) -> str:
    if isinstance(value, int):
        return _NUMBERED.get(value, str(value))
    return value.upper() if isinstance(value, str) else ""


def _moment(value: object) -> float | None:
    """A time as epoch seconds, from ISO 8601 or from a number of s, ms, us or ns."""
    if isinstance(value, str):
        from datetime import datetime

        try:
            return datetime.fromisoformat(value.strip()).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < 1e20:  # NaN neither
        return None
    seconds = float(value)
    while seconds >= 1e11:  # the year 5138
        seconds /= 1000
    return seconds


class Tail:
    """The new lines of a log, poll by poll, whatever happens to the file under its name.

    The first poll starts `backlog` bytes before the end, at the beginning of a line. A file that
    comes later, or in place of that one, is read from its beginning. What is held of it is bounded.
    """

    def __init__(self, path: str, backlog: int = BACKLOG) -> None:
        self._path = path
        self._backlog: int | None = backlog
        """How long before its end the next file is begun; None: at its beginning."""
        self._fd = -1
        self._at = 0
        self._before = b""
        """The last bytes before `_at`."""
        self._torn = b""
        """The beginning of a line whose end has not come."""
        self._skipping = False
        """Whether to drop everything up to the next line."""
        self._seen: tuple[int, int] | None = None

    def poll(self) -> list[LogLine]:
        """The whole lines that came since the last poll; none while there is no file.

        Raises:
            OSError: it is there and cannot be read.
        """
        lines: list[LogLine] = []
        if self._fd < 0:
            self._open()
        read = 0
        while self._fd >= 0 and read < _POLL_BYTES and len(lines) < _POLL_LINES:
            self._notice_new_beginning(lines)
            data = os.pread(self._fd, _CHUNK, self._at)
            if not data and not self._moved_on(lines):
                break
            self._at += len(data)
            read += len(data)
            self._before = (self._before + data)[-_MEMORY:]
            lines.extend(self._whole(data))
        return lines

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        """Open what is there under the name now; the file that was open is let go of then."""
        try:
            fd = files.open_file(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self._backlog = None
            return
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "expected a regular file", self._path)
        self.close()
        self._fd = fd
        self._begin(0 if self._backlog is None else max(0, seen.st_size - self._backlog))
        self._backlog = None

    def _begin(self, at: int) -> None:
        # One byte earlier: if it ends a line, the next one is whole.
        self._at = max(0, at - 1)
        self._skipping = at > 0
        self._before = b""
        self._torn = b""
        self._seen = None

    def _notice_new_beginning(self, lines: list[LogLine]) -> None:
        """Start again when the file was emptied, even if it has grown beyond our place since."""
        now = os.fstat(self._fd)
        if self._seen == (now.st_size, now.st_mtime_ns):
            return
        self._seen = now.st_size, now.st_mtime_ns
        known = len(self._before)
        same = os.pread(self._fd, known, self._at - known) == self._before
        if now.st_size < self._at or not same:
            lines.extend(self._given_up())
            self._begin(0)

    def _moved_on(self, lines: list[LogLine]) -> bool:
        """At the end of the file: go on with another one that has taken its name."""
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if os.path.samestat(there, os.fstat(self._fd)):
            return False
        lines.extend(self._given_up())
        try:
            self._open()
        except OSError:
            if not lines:
                raise
            return False  # what we have comes first; the next poll says it again
        return True

    def _given_up(self) -> Iterator[LogLine]:
        """A line whose end will never come."""
        if self._torn:
            yield from self._line(self._torn)
        self._torn = b""

    def _whole(self, data: bytes) -> Iterator[LogLine]:
        """The lines that these bytes end; what begins after them is kept back."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            line, self._torn = self._torn + piece, b""
            if not self._skipping:
                yield from self._line(line)
            self._skipping = False
        if self._skipping:
            return
        self._torn += rest
        if len(self._torn) > LONGEST:
            yield from self._line(self._torn)
            self._torn, self._skipping = b"", True

    def _line(self, raw: bytes) -> Iterator[LogLine]:
        line = parse(raw[:LONGEST], self._path)
        if len(raw) > LONGEST:
            line = line._replace(text=f"{line.text} ... cut at {LONGEST:,} bytes")
        if not line.foreign:
            yield line
