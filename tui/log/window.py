"""The window of a merged log that a screen holds: some pages around the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import LineFilter
from engine.logs.merged_log import BEGIN, END, LineScan, LogPosition, MergedLog

MAX_ENTRIES = 400
"""Maximum number of entries in the window."""


class LogWindow:
    """Consecutive entries of a merged log, with the positions before and behind them.

    Scans block and run on the log's own thread; the `take` methods add their results on the
    caller's thread, between two steps.
    """

    def __init__(self, book: MergedLog, through: LineFilter) -> None:
        self.book, self.through = book, through
        self.entries: list[FileEntry] = []
        self.start, self.end = BEGIN, END
        self.at_start, self.at_end = False, False
        """True if there is nothing beyond."""

    def with_filter(self, through: LineFilter) -> LogWindow:
        """A copy with the entries that also match another filter."""
        fewer = LogWindow(self.book, through)
        fewer.entries = [e for e in self.entries if through.is_match(e.rank, e.line.text)]
        fewer.start, fewer.end = self.start, self.end
        return fewer

    def set_tail(self, scan: LineScan, end: LogPosition) -> None:
        """Set the result of a scan from the end; `end` is the position of the end."""
        self.entries = scan.entries
        self.start, self.at_start = scan.reached, scan.exhausted
        self.end, self.at_end = end, True

    def set_around(self, before: LineScan, after: LineScan) -> None:
        """Set the entries on both sides of a position."""
        self.entries = [*before.entries, *after.entries]
        self.start, self.at_start = before.reached, before.exhausted
        self.end, self.at_end = after.reached, after.exhausted

    def add_more(self, scan: LineScan, forward: bool) -> None:
        """Add the entries of a scan at one end; a line that is complete now replaces its first
        part.
        """
        if forward:
            complete = [entry for entry in self.entries if not entry.is_torn]
            self.entries = [*complete, *scan.entries]
            self.end, self.at_end = scan.reached, scan.exhausted
            dropped = self.entries[: -MAX_ENTRIES or None]
            self.entries = self.entries[-MAX_ENTRIES:]
            if dropped:
                self.start = _moved_position(self.start, self.entries[0], dropped, forward)
                self.at_start = False
        else:
            self.entries = [*scan.entries, *self.entries]
            self.start, self.at_start = scan.reached, scan.exhausted
            dropped = self.entries[MAX_ENTRIES:]
            self.entries = self.entries[:MAX_ENTRIES]
            if dropped:
                self.end = _moved_position(self.end, dropped[0], dropped[::-1], forward)
                self.at_end = False


def _moved_position(
    mark: LogPosition, key: FileEntry, passed: Sequence[FileEntry], forward: bool
) -> LogPosition:
    """The position at `key`, derived from a position on the other side of the `passed` entries."""
    offsets = dict(mark.offsets)
    for entry in passed:
        offsets[entry.key[1]] = entry.end_offset if forward else entry.key[2]
    return LogPosition(key.key, offsets)
