"""Rows to choose from, a few hundred at most: the cursor is a key, never a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.message import Message
from textual.strip import Strip

from tui.format import present
from tui.format.glyphs import CURSOR
from tui.format.present import BLANK, Line
from tui.widgets.lines import Painted


class Choice(NamedTuple):
    """A row that can be chosen."""

    key: str
    """What it stands for; no other row has it."""
    line: Line
    """How it looks; its first cell is left for the cursor."""


LEFT = "  no longer here"
"""Ends the line of a ghost row."""


class Picker(Painted, can_focus=True):
    """A list whose cursor stays on its key, wherever the row of that key moves.

    When the row under the cursor leaves, it stays as a ghost row until the cursor moves: no other
    row gets under the cursor by itself, so a key cannot act on a row that the operator did not see.
    """

    class Moved(Message):
        """Another row is under the cursor."""

    def __init__(self, id: str | None = None, ghosts: bool = True) -> None:
        """`ghosts`: whether a row that leaves stays under the cursor; else the next row gets it."""
        super().__init__(id=id)
        self._ghosts = ghosts
        self.gone = False
        """Whether the row under the cursor is a ghost: there is nothing to act on."""
        self._head: tuple[Line, ...] = ()
        self._rows: tuple[Choice, ...] = ()
        self._at, self._top = 0, 0
        self._painted: dict[int, Line] = {}
        self._active = True

    @property
    def key(self) -> str:
        """What the cursor is on; "" when there is nothing, or a ghost row."""
        return self._rows[self._at].key if self._rows and not self.gone else ""

    @property
    def rows(self) -> tuple[Choice, ...]:
        """The rows in their order, a ghost row among them."""
        return self._rows

    def offer(self, rows: Sequence[Choice], head: Sequence[Line] = ()) -> None:
        """Offer these, below a head that does not move."""
        before, here = self.key, self._rows[self._at : self._at + 1]
        self._head, self._rows = tuple(head), tuple(rows)
        keys = [row.key for row in self._rows]
        at = keys.index(here[0].key) if here and here[0].key in keys else -1
        self.gone = self._ghosts and bool(here) and at < 0
        self._at = max(0, min(self._at if at < 0 else at, len(keys) - (not self.gone)))
        if self.gone:
            self._rows = (*self._rows[: self._at], *here, *self._rows[self._at :])
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
        before, at = self._at, max(0, min(at, len(self._rows) - 1))
        if self.gone and at != before:
            self._rows = (*self._rows[:before], *self._rows[before + 1 :])
            self.gone, before, at = False, -1, at - (at > before)
        self._at = at
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
        if self.gone:
            room = max(0, self.size.width - len(LEFT))
            ghost = present.fit(CURSOR + text[1:], room) + LEFT
            return ((ghost, "cursor" if self._active else "gone"),)
        if not self._active:
            first, *rest = line
            return ((CURSOR + first[0][1:], first[1]), *rest) if first[0] else line
        return ((present.fit(CURSOR + text[1:], self.size.width), "cursor"),)
