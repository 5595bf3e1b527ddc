"""Widget of log lines with a cursor, for a window of a merged log of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.strip import Strip

from engine.logs.log_file import FileEntry
from tui.log.layout import LogLayout
from tui.log.log_lines import LogStyle
from tui.terminal.scroll import scroll_up
from tui.text.glyphs import CURSOR
from tui.text.lines import BLANK_LINE, Line
from tui.text.styles import cursor_line
from tui.widgets.line_widgets import Painted

SCROLL_DIVISOR = 3
"""At an edge the view scrolls by 1/JUMP of a page: scrolling repaints all lines, so do it
rarely.
"""


MAX_OTHER_LINES = 2
"""Lines that may change while the others scroll: those that the cursor leaves and goes to."""


class LogLines(Painted, can_focus=True):
    """Some lines of a merged log; only changed screen lines are repainted."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane")
        self._layout_of = LogLayout()
        self._cursor, self._top = 0, 0
        self._style = LogStyle()
        self._notice: Sequence[Line] = ()
        self._painted: dict[int, Line] = {}

    # Queries

    @property
    def entries(self) -> Sequence[FileEntry]:
        """All entries in the window, on screen or not."""
        return self._layout_of.entries

    @property
    def cursor(self) -> int:
        """Index of the entry under the cursor."""
        return self._cursor

    @property
    def selected_entry(self) -> FileEntry | None:
        """The entry under the cursor; None without entries."""
        return self.entries[self._cursor] if self.entries else None

    @property
    def page(self) -> int:
        """Height in lines."""
        return max(1, self.size.height)

    @property
    def line_of_cursor(self) -> int:
        """Screen line of the cursor."""
        return self._layout_of.first_row(self._cursor) - self._top

    # Commands

    def show(
        self,
        entries: Sequence[FileEntry],
        cursor: int,
        style: LogStyle,
        line: int | None = None,
        notice: Sequence[Line] = (),
    ) -> None:
        """Show entries with the cursor on one of them.

        `line` is the screen line of the cursor; None keeps as many lines as possible in place.
        """
        old, rows = self._layout_of, self._layout_of
        first = old.entry_at(self._top)
        before = old.entries[first].key[1:] if old.entries else None
        within = self._top - old.first_row(first)
        self._style, self._notice = style, notice
        rows.set_entries(entries, style, self.size.width)
        self._cursor = max(0, min(cursor, len(entries) - 1))
        at = next((n for n, e in enumerate(entries) if e.key[1:] == before), None)
        if line is not None:
            self._top = rows.last_row(self._cursor) - min(line, self.page - 1)
        elif at is not None:
            self._top = rows.first_row(at) + within
        self._scroll_to_cursor()
        self.paint()

    def move(self, how: str) -> None:
        """Move as in the key table: down, up, page_down, page_up, half_down, half_up."""
        page, half, rows = self.page, max(1, self.page // 2), self._layout_of
        step = 1 if how.endswith("down") else -1
        if how in ("down", "up"):
            by, cursor = 0, self._cursor + step
        else:
            by = step * (page if how.startswith("page") else half)
            cursor = rows.entry_at(rows.first_row(self._cursor) + by)
            cursor += step * (cursor == self._cursor)
        self._cursor = max(0, min(cursor, len(self.entries) - 1))
        self._top += by
        self._scroll_to_cursor()
        self.paint()

    def _scroll_to_cursor(self) -> None:
        """Scroll the cursor into view, by 1/JUMP of a page beyond an edge, but fill the page."""
        rows, jump = self._layout_of, max(1, self.page // SCROLL_DIVISOR)
        first, last = rows.first_row(self._cursor), rows.last_row(self._cursor)
        if last >= self._top + self.page:
            self._top = min(first, last - self.page + jump)
        if first < self._top:
            self._top = first if last - first >= self.page else max(0, first - jump + 1)
        self._top = max(0, min(self._top, len(rows.rows) - self.page))

    def on_resize(self) -> None:
        """Lay out again: wrapping depends on the width."""
        self._painted.clear()
        line = min(max(0, self.line_of_cursor), self.page - 1)
        self.show(self.entries, self._cursor, self._style, line, self._notice)

    # Painting

    def paint(self) -> None:
        """Repaint the cells that changed, after the terminal has scrolled lines that only moved."""
        lines = [self._line(y) for y in range(self.size.height)]
        rows = scrolled_rows(self._painted, lines)
        if rows:
            scroll_up(self, rows)
        changed = {y: line for y, line in enumerate(lines) if line != self._painted.get(y)}
        self._painted |= changed
        self.repaint_lines(changed)

    def render_line(self, y: int) -> Strip:
        """The painted line at `y`."""
        if y not in self._painted:
            self._painted[y] = self._line(y)
        return self.strip_of(self._painted[y])

    def _line(self, y: int) -> Line:
        if not self.entries:
            return self._notice[y] if y < len(self._notice) else BLANK_LINE
        rows, row = self._layout_of, self._top + y
        if row >= len(rows.rows):
            return BLANK_LINE
        line, first = rows.rows[row], rows.first_row(self._cursor)
        if not first <= row <= rows.last_row(self._cursor):
            return line
        (text, style), *other_runs = line
        sign = CURSOR if row == first else " "
        return cursor_line(((sign, "accent"), (text[1:], style), *other_runs), self.size.width)


def scrolled_rows(before: Mapping[int, Line], now: Sequence[Line]) -> int:
    """By how many rows nearly all lines have moved up; 0 for any other change."""
    height = len(now)
    if not height or len(before) < height or before[0] == now[0]:
        return 0
    for rows in range(1, height // 2):
        moved = sum(before[y + rows] != now[y] for y in range(height - rows))
        if moved <= MAX_OTHER_LINES:
            return rows
    return 0
