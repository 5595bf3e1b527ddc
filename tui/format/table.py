"""What tables of places have in common: short names, numbers that fit, sparklines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from engine.text.safe import shown
from tui.format.glyphs import SPARKS
from tui.format.present import Run

UNKNOWN: Run = ("?", "unknown")
MARGIN = 3
"""Cells before the first column: the cursor, the sign of an alert, a space."""


def names(queues: Sequence[str]) -> list[str]:
    """What places are called: the last part of each path, or the whole where those are alike."""
    last = [name.rstrip("/").rpartition("/")[2] or name for name in queues]
    times = Counter(last)
    return [
        shown(short if times[short] == 1 else whole)
        for short, whole in zip(last, queues, strict=True)
    ]


def spark(values: Sequence[float | None]) -> str:
    """How something went, from nothing to its most; a blank where it was not seen."""
    most = max((value for value in values if value is not None), default=0.0)
    top = len(SPARKS) - 1

    def sign(value: float | None) -> str:
        if value is None:
            return " "
        # Anything above nothing is seen to be.
        return SPARKS[max(1, round(top * value / most)) if value > 0 else 0]

    return "".join(map(sign, values))
