"""The frames of panes, the sizes of the screen at which frames and columns change, and the division
of lines between panes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
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

    def marked(self, why: str) -> Frame:
        """This frame around numbers that are old, or of a part: it says why."""
        return self._replace(right=((f"{UNKNOWN} {safe_line(why)}", "unknown"),))

    def title(self, focused: bool) -> Line:
        """Key, name and count."""
        title: Line = ((f"{self.key} ", "key"),) if self.key else ()
        title += ((self.name, "title" if focused else "muted"),)
        return (*title, (f" {self.amount}", "strong")) if self.amount else title


def more_below(lines: int) -> Line:
    """How many lines a pane has below the visible ones, and the key that scrolls to them."""
    return ((f"{lines:,} more: PgDn", "muted"),) if lines else ()


Pane = TypeVar("Pane")
"""A pane, or its name."""

LEAST_LINES = 3
"""Lines of a pane with its frame before another one gets more."""


def share_lines(
    total: int, needed: Mapping[Pane, int], filler: Pane | None = None
) -> dict[Pane, int]:
    """Share lines between panes: each gets 3, if it needs as many, then one after the other a line
    more until all have what they want; the filler, else the last one, gets the rest. Without room
    the last ones get none."""
    names = [*needed][: total // LEAST_LINES]
    lines = dict.fromkeys(needed, 0) | {n: min(LEAST_LINES, needed[n]) for n in names}
    free = total - sum(lines.values())
    while free and (hungry := [name for name in names if lines[name] < needed[name]]):
        for name in hungry[:free]:
            lines[name] += 1
        free -= len(hungry[:free])
    if names:
        lines[filler if filler is not None and filler in names else names[-1]] += free
    return lines
