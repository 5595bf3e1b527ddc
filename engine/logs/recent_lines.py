"""Follow a log through rotation, truncation and compression (like `tail -F`), from some bytes or
some time before its end on: the input of statistics."""

from __future__ import annotations

from math import inf

from engine.logs.log_file import CELL_BYTES, NO_TIME, FileEntry, LogFile
from engine.logs.log_line import LogLine
from engine.logs.rotated_log import RotatedLog
from engine.text.error_text import error_text

REACH_SECONDS = 3600.0
"""Seconds before the first poll that are read."""

MAX_REACH_BYTES = 16 << 20
"""Maximum bytes before the log's end to read: a very busy hour is cut."""

_STEP_BYTES = 256 * 1024
"""Bytes per step in the backward search for the start."""

_LINES_BYTES = 16 * 1024
"""A complete line with a time is searched in so many bytes."""

_POLL_BYTES = 1 << 20
_POLL_LINES = 10_000
"""A poll ends after so many bytes or lines; the next one continues."""


class RecentLines:
    """Lines of one log; each poll reads about a megabyte at most, so that it may be called often.

    A file that appears later, or replaces the first one, is read from its beginning; lines that
    were added to the former one, or are only in a rotated file by now, come before."""

    def __init__(
        self, path: str, reach: float = REACH_SECONDS, most: int = MAX_REACH_BYTES
    ) -> None:
        """Start `reach` seconds before the first poll, also in rotated files, but no more than
        `most` bytes before the end, at the beginning of a line."""
        self.path = path
        self.since: float | None = None
        """Epoch seconds UTC from which on every line was read; None: not known yet."""
        self.is_behind = False
        """True if there is more to read than the last poll returned."""
        self.problem = ""
        """Why the log cannot be read now; "" if it can."""
        self._known_from: float | None = None
        self._reach, self._most = reach, most
        self._log = RotatedLog(path)
        self._offsets: dict[int, int] = {}
        """Where to go on, by the number of the file."""

    def poll(self, now: float) -> list[LogLine]:
        """The complete lines since the last poll; none while the file does not exist."""
        log, lines = self._log, list[LogLine]()
        sizes = {file.number: file.size for file in log.files}
        try:
            log.refresh()
            if self.since is None and (log.files or log.is_missing):
                self._offsets, since = start_offsets(log, now - self._reach, self._most)
                self.since = since if self._offsets else now
            for number in self._offsets.keys() - {file.number for file in log.files}:
                if self._offsets.pop(number) < sizes.get(number, 0):
                    self.since = now  # it was emptied or removed before it was read
            budget = _POLL_BYTES
            for file in log.files:
                budget -= self._read_on(file, budget, lines)
            self.is_behind = budget <= 0 or len(lines) >= _POLL_LINES
            if not self.is_behind:
                log.close_removed()
        except OSError as error:
            self.problem, self.is_behind = error_text(error), False
        else:
            self.problem = "" if log.error is None else error_text(log.error)
        if self._known_from is None:  # nothing was logged from the first poll to the first line
            stamps = (line.when for line in lines if line.when is not None)
            self._known_from = min(now, next(stamps, now))
        return lines

    @property
    def began(self) -> float:
        """Epoch seconds UTC from which on it is known what was logged: of a log that was read from
        its beginning, that is its first line; infinite if not known."""
        since = self._known_from if self.since == NO_TIME else self.since
        return inf if since is None else since

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    def _read_on(self, file: LogFile, budget: int, lines: list[LogLine]) -> int:
        log = self._log
        is_left = file is not log.files[-1] or (log.error is not None and not log.is_missing)
        began = at = self._offsets.setdefault(file.number, 0)
        while at < file.size and at - began < budget and len(lines) < _POLL_LINES:
            entries = file.lines_between(at, min(at + CELL_BYTES, file.size))
            # Unless another file, or something else, has the name of the log now.
            if entries and entries[-1].is_torn and not is_left:
                at = entries.pop().key[2]
                budget = 0
            else:
                at = max(min(at + CELL_BYTES, file.size), entries[-1].end_offset if entries else 0)
            lines += (_shown_line(entry) for entry in entries if not entry.line.is_foreign)
            self._offsets[file.number] = at
        return at - began


def _shown_line(entry: FileEntry) -> LogLine:
    if not entry.hidden_bytes:
        return entry.line
    more = f"{entry.line.text} ... {entry.hidden_bytes:,} bytes more"
    return entry.line._replace(text=more)


def start_offsets(log: RotatedLog, start: float, most: int) -> tuple[dict[int, int], float]:
    """Where lines since a time (epoch seconds UTC) begin, by the number of the file, but no more
    than `most` bytes before the end; and the time from which on none is missing."""
    offsets: dict[int, int] = {}
    since = inf
    while most > 0:
        if log.files and log.files[0].number not in offsets:
            file = log.files[0]
            at, since = _beginning(file, start, most)
            offsets[file.number] = at
            most -= file.size - at
            if at > 0 or since <= start:
                break
        read = log.open_earlier(start)
        most -= read
        if not read:
            since = log.unread_until
            break
    return {file.number: offsets.get(file.number, file.size) for file in log.files}, since


def _beginning(file: LogFile, start: float, most: int) -> tuple[int, float]:
    """The offset to start at, and the time from which on no line of the file is missing."""
    begin = at = file.size
    when = None
    while at > 0 and file.size - at < most:
        at = max(0, at - _STEP_BYTES, file.size - most)
        entries = file.lines_between(at, min(at + _LINES_BYTES, file.size))
        begin = entries[0].key[2] if entries else at
        times = (entry.line.when for entry in entries if not entry.is_torn)
        when = next((time for time in times if time is not None), when)
        if when is not None and when < start:
            return begin, start
    return begin, inf if when is None else when
