"""The frames of panes, and the sizes of the screen at which frames and columns change."""

from __future__ import annotations

from engine.values import NamedTuple
from tui.text.lines import Line

RULE, BOX = 1, 2
"""Lines that the frame of a pane takes: a titled rule above it, or a titled box around it."""

BOX_FRAME_CELLS = 3
"""Cells that a box takes of a pane's width: its sides, and a blank at its right end."""


def frame_border(width: int, height: int) -> int:
    """The frames of panes on a screen of that size: `BOX`, `RULE`, or 0 for none."""
    if width >= 100 and height >= 30:
        return BOX
    return RULE if width >= NARROW_COLUMNS and height > 15 else 0


WALL_COLUMNS = 200
"""Screens with so many columns show all places at once."""

NARROW_COLUMNS = 60
"""Screens with fewer columns than this are narrow and show fewer columns of data."""


class Frame(NamedTuple):
    """The words in the frame of a pane."""

    name: str
    key: str = ""
    """The key that opens the pane's screen."""
    amount: str = ""
    """How much it has: `14`, `59 of 82`."""
    right: Line = ()
    """At the right end of the upper line."""
    bottom: str = ""
    """At the right end of the lower line, which only a box has."""

    def title(self, focused: bool) -> Line:
        """Key, name and count."""
        title: Line = ((f"{self.key} ", "key"),) if self.key else ()
        title += ((self.name, "title" if focused else "muted"),)
        return (*title, (f" {self.amount}", "strong")) if self.amount else title
