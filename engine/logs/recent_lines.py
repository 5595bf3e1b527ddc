"""The last hour of a log, and then whatever comes: what statistics of it are made from."""

from __future__ import annotations

import errno
import os
import stat

from engine.logs.log_tail import LogLine, Tail, parse
from engine.system import files

REACH = 3600.0
"""Seconds before the first look that are read."""

MOST = 16 << 20
"""Bytes before the log's end that are read at most: an hour in which much was said is cut."""

_STEP = 256 * 1024
"""Bytes by which the beginning is looked for, from the end backwards."""

_LINE = 16 * 1024
"""Bytes in which a line with a time must begin and end, to say where in time one is."""

_MUCH = 512 * 1024
"""Bytes in one poll from which on there is probably more to be had at once."""


class Recent:
    """Lines of one log; each poll reads about a megabyte at most, so that it may be called often.

    Where the log was rotated, the file before is not read; `since` says from when on all is known.
    """

    def __init__(self, path: str, reach: float = REACH, most: int = MOST) -> None:
        self.path = path
        self.since: float | None = None
        """Epoch seconds UTC from which on every line was seen; None: not known yet."""
        self.behind = False
        """Whether there is more to be had than the last poll brought."""
        self.problem = ""
        """Why it cannot be read now; "" when it can."""
        self._reach, self._most = reach, most
        self._tail: Tail | None = None

    def poll(self, now: float) -> list[LogLine]:
        """The lines that came since the last poll; the first one begins an hour ago."""
        try:
            if self._tail is None:
                self._tail = self._begun(now)
            lines = self._tail.poll()
            os.stat(self.path)
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.behind = False
            return []
        self.problem = ""
        self.behind = sum(len(line.text) for line in lines) + 25 * len(lines) > _MUCH
        return lines

    def close(self) -> None:
        """Let go of the file."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _begun(self, now: float) -> Tail:
        try:
            fd = files.open_file(self.path)
        except FileNotFoundError:
            # What comes later is read from its beginning, and so in full from now on.
            self.since = now
            return Tail(self.path, 0)
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "expected a regular file", self.path)
            at, self.since = self._beginning(fd, seen.st_size, now - self._reach)
        finally:
            os.close(fd)
        return Tail(self.path, seen.st_size - at)

    def _beginning(self, fd: int, size: int, wanted: float) -> tuple[int, float]:
        """Where to begin, and from when on all is known then."""
        at, when = size, None
        while at > 0 and size - at < self._most:
            at = max(0, at - _STEP)
            when = _time_at(fd, at, self.path) or when
            if when is not None and when < wanted:
                return at, wanted
        if at > 0:
            return at, float("inf") if when is None else when
        return 0, self._rotated()

    def _rotated(self) -> float:
        """When the log began; long ago where it was never rotated."""
        try:
            return os.stat(f"{self.path}.1").st_mtime
        except OSError:
            return float("-inf")


def _time_at(fd: int, at: int, path: str) -> float | None:
    """The time that the first whole line from a place on says; None when none near it does."""
    pieces = os.pread(fd, _LINE, at).split(b"\n")
    whole = pieces[1 if at else 0 : -1]
    times = (parse(line, path).when for line in whole)
    return next((when for when in times if when is not None), None)
