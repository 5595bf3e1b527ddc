"""Widget of log lines with a cursor, for a window of a merged log of any length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from textual.strip import Strip

from engine.logs.log_file import FileEntry, Key
from tui.format import present
from tui.format.glyphs import CURSOR
from tui.format.present import BLANK_LINE, Line
from tui.log.lines import LogStyle, entry_lines, quiet_line
from tui.widgets.lines import Painted

SCROLL_DIVISOR = 3
"""At an edge the view scrolls by 1/JUMP of a page: scrolling repaints all lines, so do it
rarely.
"""


class LogLines(Painted, can_focus=True):
    """Some lines of a merged log; only changed screen lines are repainted."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: Sequence[FileEntry] = ()
        self._rows: list[Line] = []
        self._starts: list[int] = []
        """First row of each entry."""
        self._cursor, self._top = 0, 0
        self._style = LogStyle()
        self._laid: dict[tuple[Key, bool], list[Line]] = {}
        self._laid_for: tuple[LogStyle, int] = (LogStyle(), 0)
        self._notice: Sequence[Line] = ()
        self._painted: dict[int, Line] = {}

    # Queries

    @property
    def entries(self) -> Sequence[FileEntry]:
        """All entries in the window, on screen or not."""
        return self._entries

    @property
    def cursor(self) -> int:
        """Index of the entry under the cursor."""
        return self._cursor

    @property
    def here(self) -> FileEntry | None:
        """The entry under the cursor; None without entries."""
        return self._entries[self._cursor] if self._entries else None

    @property
    def page(self) -> int:
        """Height in lines."""
        return max(1, self.size.height)

    @property
    def line_of_cursor(self) -> int:
        """Screen line of the cursor."""
        return self._row_of(self._cursor) - self._top

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
        before = self._entries[self._entry_at(self._top)].key[1:] if self._entries else None
        within = self._top - self._row_of(self._entry_at(self._top)) if self._entries else 0
        self._entries, self._style, self._notice = entries, style, notice
        self._cursor = max(0, min(cursor, len(entries) - 1))
        self._lay_out()
        at = next((n for n, e in enumerate(entries) if e.key[1:] == before), None)
        if line is not None:
            self._top = self._row_of(self._cursor) - line
        elif at is not None:
            self._top = self._row_of(at) + within
            self._scroll_to_cursor()
        else:
            self._top = self._row_of(self._cursor) - self.page + max(1, self.page // SCROLL_DIVISOR)
        self._clamp()
        self.paint()

    def move(self, how: str) -> None:
        """Move as in the key table: down, up, page_down, page_up, half_down, half_up."""
        page, half = self.page, max(1, self.page // 2)
        if how in ("down", "up"):
            self._move_cursor(self._cursor + (1 if how == "down" else -1), 0)
            return
        rows = {"page_down": page, "page_up": -page, "half_down": half, "half_up": -half}[how]
        at = self._entry_at(self._row_of(self._cursor) + rows)
        step = 1 if rows > 0 else -1
        self._move_cursor(at if at != self._cursor else at + step, rows)

    def _move_cursor(self, cursor: int, rows: int) -> None:
        self._cursor = max(0, min(cursor, len(self._entries) - 1))
        self._top += rows
        self._scroll_to_cursor()
        self._clamp()
        self.paint()

    # Layout

    def _row_of(self, entry: int) -> int:
        return self._starts[entry] if self._starts else 0

    def _entry_at(self, row: int) -> int:
        return max(0, bisect_right(self._starts, max(0, row)) - 1)

    def _last_row(self, entry: int) -> int:
        after = self._starts[entry + 1] if entry + 1 < len(self._starts) else len(self._rows)
        return after - 1

    def _scroll_to_cursor(self) -> None:
        """Scroll the cursor into view, by 1/JUMP of a page if it is beyond an edge."""
        first, last = self._row_of(self._cursor), self._last_row(self._cursor)
        jump = max(1, self.page // SCROLL_DIVISOR)
        if last >= self._top + self.page:
            self._top = min(first, last - self.page + jump)
        if first < self._top:
            self._top = first if last - first >= self.page else max(0, first - jump + 1)

    def _clamp(self) -> None:
        # Leave room for new lines below the last one.
        last = len(self._rows) - max(1, self.page - self.page // SCROLL_DIVISOR)
        self._top = max(0, min(self._top, max(last, self._row_of(self._cursor) - self.page + 1)))

    def _lay_out(self) -> None:
        width = self.size.width
        if self._laid_for != (self._style, width):
            self._laid, self._laid_for = {}, (self._style, width)
        before, self._laid = self._laid, {}
        self._rows, self._starts = [], []
        last: FileEntry | None = None
        for entry in self._entries:
            if last is not None and (gap := quiet_line(last, entry)):
                self._rows.append(gap)
            self._starts.append(len(self._rows))
            key = (entry.key, entry.is_torn)
            lines = before.get(key) if not entry.is_torn else None
            self._laid[key] = lines or entry_lines(entry, self._style, width)
            self._rows += self._laid[key]
            last = entry

    def on_resize(self) -> None:
        """Lay out again: wrapping depends on the width."""
        line = min(max(0, self.line_of_cursor), self.page - 1)
        self.show(self._entries, self._cursor, self._style, line, self._notice)

    # Painting

    def paint(self) -> None:
        """Repaint the screen lines that changed."""
        for y in range(self.size.height):
            line = self._line(y)
            if self._painted.get(y) != line:
                self._painted[y] = line
                self.repaint_line(y)

    def render_line(self, y: int) -> Strip:
        """The painted line at `y`."""
        if y not in self._painted:
            self._painted[y] = self._line(y)
        return self.strip_of(self._painted[y])

    def _line(self, y: int) -> Line:
        if not self._entries:
            return self._notice[y] if y < len(self._notice) else BLANK_LINE
        row = self._top + y
        if row >= len(self._rows):
            return BLANK_LINE
        line = self._rows[row]
        if not self._row_of(self._cursor) <= row <= self._last_of_cursor():
            return line
        text = "".join(text for text, _ in line)
        sign = CURSOR if row == self._row_of(self._cursor) else " "
        return present.cursor_line(((sign + text[1:], ""),), self.size.width)

    def _last_of_cursor(self) -> int:
        here = self.here
        lines = self._laid.get((here.key, here.is_torn), ()) if here else ()
        return self._row_of(self._cursor) + len(lines) - 1
