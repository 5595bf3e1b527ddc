"""The part of a book that a screen holds: a few pages around where the operator looks."""

from __future__ import annotations

from collections.abc import Sequence

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import LineFilter
from engine.logs.merged_log import BEGIN, END, LogPosition, MergedLog, Scan

HELD = 400
"""Lines that are held at most."""


class Stretch:
    """Lines of a book in a row, and the places before and behind them.

    Its steps block: they are made on the book's own thread, and what they found is taken over
    between two of them, by whoever shows it.
    """

    def __init__(self, book: MergedLog, through: LineFilter) -> None:
        self.book, self.through = book, through
        self.entries: list[FileEntry] = []
        self.start, self.end = BEGIN, END
        self.at_start, self.at_end = False, False
        """Whether nothing lies beyond."""

    def only(self, through: LineFilter) -> Stretch:
        """Those of its lines that another filter lets through as well, and the same ends."""
        fewer = Stretch(self.book, through)
        fewer.entries = [e for e in self.entries if through.keeps(e.rank, e.line.text)]
        fewer.start, fewer.end = self.start, self.end
        return fewer

    def take_tail(self, scan: Scan, here: LogPosition) -> None:
        """Hold what a scan from the end found; `here` is where the end was."""
        self.entries = scan.entries
        self.start, self.at_start = scan.reached, scan.exhausted
        self.end, self.at_end = here, True

    def take_around(self, before: Scan, after: Scan) -> None:
        """Hold what lies on both sides of a place."""
        self.entries = [*before.entries, *after.entries]
        self.start, self.at_start = before.reached, before.exhausted
        self.end, self.at_end = after.reached, after.exhausted

    def take_more(self, scan: Scan, forward: bool) -> None:
        """Hold what lies beyond, too; a torn line that has come whole takes its own place."""
        if forward:
            kept = [entry for entry in self.entries if not entry.torn]
            self.entries = [*kept, *scan.entries]
            self.end, self.at_end = scan.reached, scan.exhausted
            dropped = self.entries[: -HELD or None]
            self.entries = self.entries[-HELD:]
            if dropped:
                self.start = _moved(self.start, self.entries[0], dropped, forward)
                self.at_start = False
        else:
            self.entries = [*scan.entries, *self.entries]
            self.start, self.at_start = scan.reached, scan.exhausted
            dropped = self.entries[HELD:]
            self.entries = self.entries[:HELD]
            if dropped:
                self.end = _moved(self.end, dropped[0], dropped[::-1], forward)
                self.at_end = False


def _moved(
    mark: LogPosition, key: FileEntry, passed: Sequence[FileEntry], forward: bool
) -> LogPosition:
    """The place before `key`, from one that lies behind what is passed on the way there."""
    offsets = dict(mark.offsets)
    for entry in passed:
        offsets[entry.key[1]] = entry.end if forward else entry.key[2]
    return LogPosition(key.key, offsets)
