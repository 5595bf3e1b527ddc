"""Parts of tables: short place names, numbers that fit a column, rows to choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from engine.text.safe import safe_line
from tui.format.present import Line, Run

UNKNOWN_RUN: Run = ("?", "unknown")
TABLE_MARGIN_CELLS = 3
"""Cells before the first column: the cursor, the sign of an alert, a space."""


def short_names(queues: Sequence[str]) -> list[str]:
    """Short names of places: the last part of each path; the whole path if two are equal."""
    last = [name.rstrip("/").rpartition("/")[2] or name for name in queues]
    times = Counter(last)
    return [
        safe_line(short if times[short] == 1 else whole)
        for short, whole in zip(last, queues, strict=True)
    ]


def format_amount(number: int, width: int) -> str:
    """Format a number in at most `width` cells: in full, else in thousands or millions."""
    for text in (f"{number:,}", f"{number}", f"{number // 1000}k", f"{number // 1_000_000}M"):
        if len(text) <= width:
            return text
    return ">" + "9" * (width - 1)


class Choice(NamedTuple):
    """A row of a list that has a cursor."""

    key: str
    """Unique key of the row; the cursor follows it."""
    line: Line
    """The painted row; its first cell is free for the cursor."""
