"""Rows to choose from, a few hundred at most: the cursor is a key, never a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.message import Message
from textual.strip import Strip

from tui import present
from tui.glyphs import CURSOR
from tui.present import BLANK, Line
from tui.widgets.lines import Painted


class Choice(NamedTuple):
    """A row that can be chosen."""

    key: str
    """What it stands for; no other row has it."""
    line: Line
    """How it looks; its first cell is left for the cursor."""


class Picker(Painted, can_focus=True):
    """The cursor stays on its key whatever happens around it; when that goes, on a neighbour."""

    class Moved(Message):
        """Another row is under the cursor."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._head: tuple[Line, ...] = ()
        self._rows: tuple[Choice, ...] = ()
        self._at, self._top = 0, 0
        self._painted: dict[int, Line] = {}
        self._active = True

    @property
    def key(self) -> str:
        """What the cursor is on; "" when there is nothing."""
        return self._rows[self._at].key if self._rows else ""

    @property
    def rows(self) -> tuple[Choice, ...]:
        """What can be chosen from."""
        return self._rows

    def offer(self, rows: Sequence[Choice], head: Sequence[Line] = ()) -> None:
        """Offer these, below a head that does not move."""
        before = self.key
        self._head, self._rows = tuple(head), tuple(rows)
        keys = [row.key for row in self._rows]
        at = keys.index(before) if before in keys else self._at
        self._at = max(0, min(at, len(keys) - 1))
        self._reveal()
        self._paint()
        if self.key != before:
            self.post_message(self.Moved())

    def put_on(self, key: str) -> None:
        """Put the cursor on that row, if there is one."""
        keys = [row.key for row in self._rows]
        if key in keys:
            self._go(keys.index(key))

    def activate(self, active: bool) -> None:
        """Show the cursor as the one that keys move, or as one that waits."""
        if active != self._active:
            self._active = active
            self._paint()

    def move(self, how: str) -> bool:
        """Move as the key table names it; answers whether the cursor moved."""
        page = max(1, self._height)
        half = max(1, page // 2)
        steps = {
            **{"down": 1, "up": -1, "page_down": page, "page_up": -page},
            **{"half_down": half, "half_up": -half},
            **{"first": -len(self._rows), "last": len(self._rows)},
        }
        return self._go(self._at + steps[how])

    def _go(self, at: int) -> bool:
        before, self._at = self._at, max(0, min(at, len(self._rows) - 1))
        self._reveal()
        self._paint()
        if before != self._at:
            self.post_message(self.Moved())
        return before != self._at

    @property
    def _height(self) -> int:
        return max(0, self.size.height - len(self._head))

    def _reveal(self) -> None:
        lowest, most = self._at - self._height + 1, len(self._rows) - self._height
        self._top = max(0, min(max(self._top, lowest), self._at, most))

    def on_resize(self) -> None:
        """Another size shows other rows."""
        self._reveal()
        self._paint()

    def _paint(self) -> None:
        for y in range(self.size.height):
            line, before = self._line(y), self._painted.get(y)
            if line != before:
                self._painted[y] = line
                self.repaint_line(y, before, line)

    def render_line(self, y: int) -> Strip:
        """A line as it was last painted."""
        line = self._painted[y] = self._line(y)
        return self.strip_of(line)

    def _line(self, y: int) -> Line:
        if y < len(self._head):
            return self._head[y]
        at = self._top + y - len(self._head)
        if at >= len(self._rows):
            return BLANK
        line = self._rows[at].line
        if at != self._at:
            return line
        text = "".join(text for text, _ in line)
        if not self._active:
            first, *rest = line
            return ((CURSOR + first[0][1:], first[1]), *rest) if first[0] else line
        return ((present.fit(CURSOR + text[1:], self.size.width), "cursor"),)
