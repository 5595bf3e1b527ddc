"""Lay out log entries as screen rows: wrapped lines take several, and gaps have a row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine.logs.log_file import FileEntry, Key
from tui.log.log_lines import LogStyle, entry_lines, quiet_line
from tui.text.lines import Line


class LogLayout:
    """The rows of some entries; the lines of an entry are made once for a style and a width."""

    def __init__(self) -> None:
        self.entries: Sequence[FileEntry] = ()
        self.rows: list[Line] = []
        self._starts: list[int] = []
        """First row of each entry."""
        self._made: dict[tuple[Key, bool], list[Line]] = {}
        self._made_for: tuple[LogStyle, int] = (LogStyle(), 0)

    def set_entries(self, entries: Sequence[FileEntry], style: LogStyle, width: int) -> None:
        """Lay out these entries."""
        self.entries = entries
        if self._made_for != (style, width):
            self._made, self._made_for = {}, (style, width)
        before, self._made = self._made, {}
        self.rows, self._starts = [], []
        last: FileEntry | None = None
        for entry in entries:
            if last is not None and (gap := quiet_line(last, entry, width)):
                self.rows.append(gap)
            self._starts.append(len(self.rows))
            key = (entry.key, entry.is_torn)
            lines = before.get(key) if not entry.is_torn else None
            self._made[key] = lines or entry_lines(entry, style, width)
            self.rows += self._made[key]
            last = entry

    def first_row(self, entry: int) -> int:
        """The first row of an entry."""
        return self._starts[entry] if self._starts else 0

    def last_row(self, entry: int) -> int:
        """The last row of an entry."""
        if not self.entries:
            return -1
        of = self.entries[entry]
        return self._starts[entry] + len(self._made[of.key, of.is_torn]) - 1

    def entry_at(self, row: int) -> int:
        """The entry of a row, or of the rows above a gap."""
        return max(0, bisect_right(self._starts, max(0, row)) - 1)
