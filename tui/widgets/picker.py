"""A list of up to a few hundred rows whose cursor follows a row's key, not a position."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from textual.message import Message
from textual.strip import Strip

from tui.text.glyphs import CURSOR
from tui.text.keys import motion_rows
from tui.text.lines import BLANK_LINE, Line, cells_of, fit_text, fold_long_lines
from tui.text.styles import cursor_line
from tui.text.table import Choice
from tui.widgets.line_widgets import Painted

MAX_LINE_CELLS = 1000
"""Width of a line before the size of the list is known."""

GHOST_SECONDS = 10.0
"""Seconds for which a row that has left stays under the cursor."""

ROW_LEFT_SUFFIX = "  no longer here"
"""What a ghost row ends with."""
SHORT_CELLS = 20
"""The last columns of a ghost row below this width make room for that as a whole."""


class Picker(Painted, can_focus=True):
    """A list whose cursor stays on its row when rows move. If the row under the cursor leaves, it
    stays visible as a departed row until the cursor moves, or for `GHOST_SECONDS`. So no other row
    moves under the cursor at that moment, and no key acts on an unseen row."""

    class CursorMoved(Message):
        """The cursor is on another row."""

    def __init__(self, id: str | None = None, ghosts: bool = True) -> None:
        """`ghosts`: a row that leaves stays under the cursor while this list is active."""
        super().__init__(id=id)
        self._ghosts = ghosts
        self.is_gone = False
        """The row under the cursor has left: there is nothing to act on."""
        self._head: tuple[Line, ...] = ()
        self._whole_head: tuple[Line, ...] = ()
        self._foot: tuple[Line, ...] = ()
        self._rows: tuple[Choice, ...] = ()
        self._at, self.top = 0, 0
        self._left_at = 0.0
        """When the row under the cursor left, monotonic seconds."""
        self._painted: dict[int, Line] = {}
        self.is_active = True
        """False if another pane has the cursor."""
        self.rests_at_top = False
        """The first row is the one of the cursor while another pane has it."""

    @property
    def key(self) -> str:
        """Key of the row under the cursor; "" if none or it has left."""
        return self._rows[self._at].key if self._rows and not self.is_gone else ""

    @property
    def rows(self) -> tuple[Choice, ...]:
        """The rows in order, including a departed one."""
        return self._rows

    @property
    def line_count(self) -> int:
        """Lines that show all rows, with those that do not scroll."""
        return len(self._head) + len(self._rows) + len(self._foot)

    @property
    def line_of_cursor(self) -> int:
        """Line of the row under the cursor, from the top of the list."""
        return len(self._head) + self._at - self.top

    def show_rows(
        self, rows: Sequence[Choice], head: Sequence[Line] = (), foot: Sequence[Line] = ()
    ) -> None:
        """Show these rows, between lines that do not scroll; those above are folded if there is
        room."""
        before, selected_rows = self.key, self._rows[self._at : self._at + 1]
        if rests := self.rests_at_top and not self.is_active:
            self._at, selected_rows = 0, ()
        self._whole_head, self._rows, self._foot = tuple(head), tuple(rows), tuple(foot)
        keys = [row.key for row in self._rows]
        at = next((keys.index(row.key) for row in selected_rows if row.key in keys), -1)
        has_left = self._ghosts and self.is_active and bool(selected_rows) and at < 0
        if has_left and not self.is_gone:
            self._left_at = monotonic()
        self.is_gone = has_left and monotonic() - self._left_at < GHOST_SECONDS
        self._at = max(0, min(self._at if at < 0 else at, len(keys) - (not self.is_gone)))
        self._at = self._own_line(self._at)
        if self.is_gone:
            self._rows = (*self._rows[: self._at], *selected_rows, *self._rows[self._at :])
        self._fold_head()
        self._scroll_to_cursor()
        self._paint()
        if self.key != before and not rests:
            self.post_message(self.CursorMoved())

    def select_key(self, key: str) -> None:
        """Move the cursor to the row with that key, if there is one."""
        keys = [row.key for row in self._rows]
        if key in keys:
            self._go(keys.index(key))

    def select_line(self, y: int) -> bool:
        """Move the cursor to the row on a line; return True if it was there before."""
        at = self.top + y - len(self._head)
        is_row = len(self._head) <= y < self.size.height - len(self._foot)
        if not is_row or at >= len(self._rows):
            return False
        return not self._go(self._own_line(at))

    def activate(self, active: bool) -> None:
        """Show the cursor as active or inactive."""
        if active != self.is_active:
            self.is_active = active
            self._paint()

    def move(self, how: str) -> bool:
        """Move the cursor by a motion of the key table; return True if it moved."""
        rows = motion_rows(how, max(1, self._height))
        return self._go({"first": 0, "last": len(self._rows)}.get(how, self._at + rows))

    def _own_line(self, at: int) -> int:
        """The first line of the row that has the line `at`."""
        while any(row.continues for row in self._rows[at : at + 1]):
            at -= 1
        return at

    def _go(self, at: int) -> bool:
        before, at = self._at, max(0, min(at, len(self._rows) - 1))
        own, after = self._own_line(at), range(at, len(self._rows))
        is_inside = own == before < at  # a motion down to a line of the same row: to the next one
        at = next((n for n in after if not self._rows[n].continues), own) if is_inside else own
        if self.is_gone and at != before:
            self._rows = (*self._rows[:before], *self._rows[before + 1 :])
            self.is_gone, before, at = False, -1, at - (at > before)
        self._at = at
        self._scroll_to_cursor()
        self._paint()
        if before != self._at:
            self.post_message(self.CursorMoved())
        return before != self._at

    @property
    def _height(self) -> int:
        return max(0, self.size.height - len(self._head) - len(self._foot))

    def _scroll_to_cursor(self) -> None:
        lowest, most = self._at - self._height + 1, len(self._rows) - self._height
        self.top = max(0, min(max(self.top, lowest), self._at, most))

    def _fold_head(self) -> None:
        width, height = self.size
        free = height - len(self._rows) - len(self._foot)
        self._head = tuple(fold_long_lines(self._whole_head, width or MAX_LINE_CELLS, free))

    def on_resize(self) -> None:
        self._fold_head()
        self._scroll_to_cursor()
        self._paint()

    def _paint(self) -> None:
        lines = {y: self._line(y) for y in range(self.size.height)}
        changed = {y: line for y, line in lines.items() if line != self._painted.get(y)}
        self._painted |= changed
        self.repaint_lines(changed)

    def render_line(self, y: int) -> Strip:
        line = self._painted[y] = self._line(y)
        return self.strip_of(line)

    def _line(self, y: int) -> Line:
        if y < len(self._head):
            return self._head[y]
        if y >= (foot := max(len(self._head), self.size.height - len(self._foot))):
            return self._foot[y - foot]
        at = self.top + y - len(self._head)
        if at >= len(self._rows):
            return BLANK_LINE
        line = self._rows[at].line
        if at != self._at:
            return line
        text = "".join(text for text, _ in line)
        if self.is_gone:
            room, text = max(0, self.size.width - len(ROW_LEFT_SUFFIX)), " " + text[1:].rstrip()
            while cells_of(text) > room:
                rest, _, last = text.rpartition("  ")
                if not rest.strip() or len(last) >= SHORT_CELLS:
                    break  # it would not be named any more
                text = rest.rstrip()  # without a column, such as the key of an alert
            line = ((fit_text(text, room) + ROW_LEFT_SUFFIX, "ghost"),)
        if not self.is_active:
            return line  # the focused pane has the only cursor
        first, *other_runs = line or ((" ", ""),)
        marked = (first[0].replace(" ", "", 1), first[1])  # the cursor takes a blank, not a sign
        return cursor_line(((CURSOR, "accent"), marked, *other_runs), self.size.width)
