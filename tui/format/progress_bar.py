"""How far something is that takes long, in words and with a bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.live.inspector import IndexChanged
from engine.model import State
from tui.format import present
from tui.format.present import Line


class ProgressBar(NamedTuple):
    """How far something is; counts in whatever unit its words say."""

    done: int
    total: int
    """0 when that is not known."""


STOPS: Line = (("  Esc", "key"), (" stops", ""))
"""What can be done about it."""


def bar(progress: ProgressBar, seconds: float, unit: str, width: int) -> Line:
    """A bar with counts and the time left, after so many seconds: `[####....] 12,000 of 40,000`."""
    done, total = progress
    if not total:
        return ((f" {done:,} {unit} so far", ""),)
    done = min(done, total)
    left = ""
    if 0 < done < total and seconds >= 1:
        left = f"  {present.countdown(seconds * (total - done) / done)} left"
    words = f" {done:,} of {total:,} {unit}  {100 * done // total}%{left}"
    room = max(4, min(40, width - len(words) - 4))
    filled = room * done // total
    return ((f" [{'#' * filled}{'.' * (room - filled)}]", "strong"), (words, ""))


def first_look(
    change: IndexChanged, states: Mapping[State, str], seconds: float, width: int
) -> Line:
    """How far the first look at everything is, after so many seconds; () once it has ended."""
    if change.complete or change.unavailable or not states:
        return ()
    seen = sum(change.counts.values())
    if change.halted:
        return ((f" stopped at {present.count(seen, 'task')}; r goes on", "warning"),)
    room = width - present.width_of(STOPS)
    return (*bar(ProgressBar(seen, change.expected), seconds, "tasks", room), *STOPS)
