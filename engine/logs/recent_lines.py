"""The last hour of a log, then its new lines: the input of statistics."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import MutableMapping

from engine.logs.log_tail import LogLine, Tail, is_repeated, parse_log_line, time_before
from engine.system import files
from engine.text.error_text import error_text

REACH_SECONDS = 3600.0
"""Seconds before the first poll that are read."""

MAX_REACH_BYTES = 16 << 20
"""Maximum bytes before the log's end to read: a very busy hour is cut."""

_STEP = 256 * 1024
"""Bytes per step in the backward search for the start."""

_LINE = 16 * 1024
"""A complete line with a time is searched in so many bytes."""

_MUCH = 512 * 1024
"""If a poll returns so many bytes, there is probably more to read now."""


class RecentLines:
    """Lines of one log; each poll reads about a megabyte at most, so that it may be called often.

    Files rotated away are not read; `since` is the time from which on no line is missing.
    """

    def __init__(
        self, path: str, reach: float = REACH_SECONDS, most: int = MAX_REACH_BYTES
    ) -> None:
        self.path = path
        self.since: float | None = None
        """Epoch seconds UTC from which on every line was read; None: not known yet."""
        self.is_behind = False
        """True if there is more to read than the last poll returned."""
        self.problem = ""
        """Why the log cannot be read now; "" if it can."""
        self._reach, self._most = reach, most
        self._tail: Tail | None = None

    def poll(self, now: float) -> list[LogLine]:
        """The lines since the last poll; the first poll starts one hour back."""
        lines: list[LogLine] = []
        try:
            if self._tail is None:
                self._tail = self._open_tail(now)
            lines = self._tail.poll()
            os.stat(self.path)
        except OSError as error:
            self.problem = error_text(error)
            self.is_behind = False
            return lines
        self.problem = ""
        self.is_behind = sum(len(line.text) for line in lines) + 25 * len(lines) > _MUCH
        return lines

    def close(self) -> None:
        """Close the file."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _open_tail(self, now: float) -> Tail:
        try:
            fd = files.open_file(self.path)
        except FileNotFoundError:
            # A file created later is read from its beginning, so nothing is missing from now on.
            self.since = now
            return Tail(self.path, 0)
        try:
            file_stat = os.fstat(fd)
            if not stat.S_ISREG(file_stat.st_mode):
                raise OSError(errno.EINVAL, "expected a regular file", self.path)
            at, self.since = self._beginning(fd, file_stat.st_size, now - self._reach)
        finally:
            os.close(fd)
        return Tail(self.path, file_stat.st_size - at)

    def _beginning(self, fd: int, size: int, start: float) -> tuple[int, float]:
        """The offset to start at, and the time from which on no line is missing."""
        at, when = size, None
        known: dict[int, float] = {}
        while at > 0 and size - at < self._most:
            at = max(0, at - _STEP)
            when = _time_at(fd, at, self.path, known) or when
            if when is not None and when < start:
                return at, start
        if at > 0:
            return at, float("inf") if when is None else when
        return 0, self._rotated()

    def _rotated(self) -> float:
        """When the log was last rotated; minus infinity if it never was."""
        try:
            return os.stat(f"{self.path}.1").st_mtime
        except OSError:
            return float("-inf")


def _time_at(fd: int, at: int, path: str, known: MutableMapping[int, float]) -> float | None:
    """The time of the first dated complete line after an offset; None if missing near it."""
    pieces = os.pread(fd, _LINE, at).split(b"\n")
    for line in pieces[1 if at else 0 : -1]:
        when = parse_log_line(line, path).when
        if is_repeated(when):
            return parse_log_line(line, path, time_before(fd, at, path, known)).when
        if when is not None:
            return when
    return None
