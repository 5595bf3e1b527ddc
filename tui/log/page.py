"""The lines of a log that are on screen: entries laid out as rows, and a cursor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine.logs.log_file import FileEntry, Key
from tui.log.log_lines import LogStyle, entry_lines, quiet_line
from tui.text.glyphs import CURSOR
from tui.text.keys import motion_rows
from tui.text.lines import BLANK_LINE, Line
from tui.text.styles import cursor_line

SCROLL_DIVISOR = 3
"""At an edge the page scrolls by this part of its height: rarely, as that repaints all lines."""


class LogPage:
    """The rows of some entries: wrapped lines take several, and gaps have a row. The rows of an
    entry are made once for a style and a width."""

    def __init__(self) -> None:
        self.entries: Sequence[FileEntry] = ()
        """All entries in the window, on screen or not."""
        self.cursor = 0
        """Index of the entry under the cursor."""
        self.width, self.height = 0, 1
        self._style = LogStyle()
        self._notice: Sequence[Line] = ()
        self._rows: list[Line] = []
        self._starts: list[int] = []
        self._top = 0
        self._made: dict[tuple[Key, bool], list[Line]] = {}
        self._made_for: tuple[LogStyle, int] = (LogStyle(), 0)

    @property
    def selected_entry(self) -> FileEntry | None:
        """The entry under the cursor; None without entries."""
        return self.entries[self.cursor] if self.entries else None

    @property
    def line_of_cursor(self) -> int:
        """Screen line of the cursor."""
        return self._first_row(self.cursor) - self._top

    def resize(self, width: int, height: int) -> None:
        """Lay out again for a size in cells: wrapping depends on the width."""
        self.width, self.height = width, max(1, height)
        line = min(max(0, self.line_of_cursor), self.height - 1)
        self.show(self.entries, self.cursor, self._style, line, self._notice)

    def show(
        self,
        entries: Sequence[FileEntry],
        cursor: int,
        style: LogStyle,
        line: int | None = None,
        notice: Sequence[Line] = (),
    ) -> None:
        """Show entries with the cursor on one of them; `notice` is shown if there are none. `line`
        is the screen line of the cursor; None keeps as many lines as possible in place."""
        first = self._entry_at(self._top)
        before = self.entries[first].key[1:] if self.entries else None
        within = self._top - self._first_row(first)
        self._style, self._notice = style, notice
        self._lay_out(entries)
        self.cursor = max(0, min(cursor, len(entries) - 1))
        at = next((n for n, e in enumerate(entries) if e.key[1:] == before), None)
        if line is not None:
            self._top = self._last_row(self.cursor) - min(line, self.height - 1)
        elif at is not None:
            self._top = self._first_row(at) + within
        self._scroll_to_cursor()

    def move(self, how: str) -> None:
        """Move as in the key table: down, up, page_down, page_up, half_down, half_up."""
        by, step = motion_rows(how, self.height), 1 if how.endswith("down") else -1
        if how in ("down", "up"):
            by, cursor = 0, self.cursor + step
        else:
            cursor = self._entry_at(self._first_row(self.cursor) + by)
            cursor += step * (cursor == self.cursor)
        self.cursor = max(0, min(cursor, len(self.entries) - 1))
        self._top += by
        self._scroll_to_cursor()

    def line(self, y: int) -> Line:
        """The line on screen line `y`."""
        if not self.entries:
            return self._notice[y] if y < len(self._notice) else BLANK_LINE
        row = self._top + y
        if row >= len(self._rows):
            return BLANK_LINE
        line, first = self._rows[row], self._first_row(self.cursor)
        if not first <= row <= self._last_row(self.cursor):
            return line
        (text, style), *other_runs = line
        sign = CURSOR if row == first else " "
        return cursor_line(((sign, "accent"), (text[1:], style), *other_runs), self.width)

    def _lay_out(self, entries: Sequence[FileEntry]) -> None:
        style, width = self._style, self.width
        self.entries = entries
        if self._made_for != (style, width):
            self._made, self._made_for = {}, (style, width)
        before, self._made = self._made, {}
        self._rows, self._starts = [], []
        last: FileEntry | None = None
        for entry in entries:
            if last is not None and (gap := quiet_line(last, entry, width)):
                self._rows.append(gap)
            self._starts.append(len(self._rows))
            key = (entry.key, entry.is_torn)
            lines = before.get(key) if not entry.is_torn else None
            self._made[key] = lines or entry_lines(entry, style, width)
            self._rows += self._made[key]
            last = entry

    def _first_row(self, entry: int) -> int:
        return self._starts[entry] if self._starts else 0

    def _last_row(self, entry: int) -> int:
        if not self.entries:
            return -1
        of = self.entries[entry]
        return self._starts[entry] + len(self._made[of.key, of.is_torn]) - 1

    def _entry_at(self, row: int) -> int:
        """The entry of a row, or of the rows above a gap."""
        return max(0, bisect_right(self._starts, max(0, row)) - 1)

    def _scroll_to_cursor(self) -> None:
        """Scroll the cursor into view, by a part of a page beyond an edge, but fill the page."""
        jump = max(1, self.height // SCROLL_DIVISOR)
        first, last = self._first_row(self.cursor), self._last_row(self.cursor)
        if last >= self._top + self.height:
            self._top = min(first, last - self.height + jump)
        if first < self._top:
            self._top = first if last - first >= self.height else max(0, first - jump + 1)
        self._top = max(0, min(self._top, len(self._rows) - self.height))
