"""Lines of logs with a cursor: a window on a book that may be of any length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from textual.strip import Strip

from engine.logs.log_file import FileEntry, Key
from tui.format import present
from tui.format.glyphs import CURSOR
from tui.format.present import BLANK, Line
from tui.log.lines import Style, entry_lines, quiet
from tui.widgets.lines import Painted

JUMP = 3
"""The view jumps by a third of a page at its edge: each jump paints all lines, a step only two."""


class LogLines(Painted, can_focus=True):
    """Some lines of a book, painted where they differ from what is on screen."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: Sequence[FileEntry] = ()
        self._rows: list[Line] = []
        self._starts: list[int] = []
        """The first row of each entry."""
        self._cursor, self._top = 0, 0
        self._style = Style()
        self._laid: dict[tuple[Key, bool], list[Line]] = {}
        self._laid_for: tuple[Style, int] = (Style(), 0)
        self._notice: Sequence[Line] = ()
        self._painted: dict[int, Line] = {}

    # What the screen may ask

    @property
    def entries(self) -> Sequence[FileEntry]:
        """What it holds, on screen or not."""
        return self._entries

    @property
    def cursor(self) -> int:
        """Which of the entries the cursor is on."""
        return self._cursor

    @property
    def here(self) -> FileEntry | None:
        """The entry under the cursor; None: there is none."""
        return self._entries[self._cursor] if self._entries else None

    @property
    def page(self) -> int:
        """Lines that it shows."""
        return max(1, self.size.height)

    @property
    def line_of_cursor(self) -> int:
        """On which line of the screen the cursor stands."""
        return self._row_of(self._cursor) - self._top

    # What the screen may tell it

    def show(
        self,
        entries: Sequence[FileEntry],
        cursor: int,
        style: Style,
        line: int | None = None,
        notice: Sequence[Line] = (),
    ) -> None:
        """Show these with the cursor on one of them: on that line of the screen, or where no line
        is named with as many as can be staying where they are.
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
            self._reveal()
        else:
            self._top = self._row_of(self._cursor) - self.page + max(1, self.page // JUMP)
        self._clamp()
        self.paint()

    def move(self, how: str) -> None:
        """Move as the key table names it: down, up, page_down, page_up, half_down, half_up."""
        page, half = self.page, max(1, self.page // 2)
        if how in ("down", "up"):
            self._go(self._cursor + (1 if how == "down" else -1), 0)
            return
        rows = {"page_down": page, "page_up": -page, "half_down": half, "half_up": -half}[how]
        at = self._entry_at(self._row_of(self._cursor) + rows)
        step = 1 if rows > 0 else -1
        self._go(at if at != self._cursor else at + step, rows)

    def _go(self, cursor: int, rows: int) -> None:
        self._cursor = max(0, min(cursor, len(self._entries) - 1))
        self._top += rows
        self._reveal()
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

    def _reveal(self) -> None:
        """Bring the cursor on screen, by a jump where it is beyond an edge."""
        first, last = self._row_of(self._cursor), self._last_row(self._cursor)
        jump = max(1, self.page // JUMP)
        if last >= self._top + self.page:
            self._top = min(first, last - self.page + jump)
        if first < self._top:
            self._top = first if last - first >= self.page else max(0, first - jump + 1)

    def _clamp(self) -> None:
        # Below the last line there may be room, for what comes.
        last = len(self._rows) - max(1, self.page - self.page // JUMP)
        self._top = max(0, min(self._top, max(last, self._row_of(self._cursor) - self.page + 1)))

    def _lay_out(self) -> None:
        width = self.size.width
        if self._laid_for != (self._style, width):
            self._laid, self._laid_for = {}, (self._style, width)
        before, self._laid = self._laid, {}
        self._rows, self._starts = [], []
        last: FileEntry | None = None
        for entry in self._entries:
            if last is not None and (gap := quiet(last, entry)):
                self._rows.append(gap)
            self._starts.append(len(self._rows))
            key = (entry.key, entry.torn)
            lines = before.get(key) if not entry.torn else None
            self._laid[key] = lines or entry_lines(entry, self._style, width)
            self._rows += self._laid[key]
            last = entry

    def on_resize(self) -> None:
        """Another width folds lines elsewhere."""
        line = min(max(0, self.line_of_cursor), self.page - 1)
        self.show(self._entries, self._cursor, self._style, line, self._notice)

    # Painting

    def paint(self) -> None:
        """Paint the lines that differ from what is on screen."""
        for y in range(self.size.height):
            line = self._line(y)
            if self._painted.get(y) != line:
                self._painted[y] = line
                self.repaint_line(y)

    def render_line(self, y: int) -> Strip:
        """A line as it was last painted."""
        if y not in self._painted:
            self._painted[y] = self._line(y)
        return self.strip_of(self._painted[y])

    def _line(self, y: int) -> Line:
        if not self._entries:
            return self._notice[y] if y < len(self._notice) else BLANK
        row = self._top + y
        if row >= len(self._rows):
            return BLANK
        line = self._rows[row]
        if not self._row_of(self._cursor) <= row <= self._last_of_cursor():
            return line
        text = "".join(text for text, _ in line)
        sign = CURSOR if row == self._row_of(self._cursor) else " "
        return ((present.fit(sign + text[1:], self.size.width), "cursor"),)

    def _last_of_cursor(self) -> int:
        here = self.here
        lines = self._laid.get((here.key, here.torn), ()) if here else ()
        return self._row_of(self._cursor) + len(lines) - 1
