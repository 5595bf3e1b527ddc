"""A progress bar with counts, percentage and remaining time."""

from __future__ import annotations

from collections.abc import Mapping

from engine.live.inspector import IndexChanged
from engine.model import State
from engine.text.figures import format_count
from engine.values import NamedTuple
from tui.text.lines import Line, width_of
from tui.text.times import format_countdown


class ProgressBar(NamedTuple):
    """Progress in any unit."""

    done: int
    total: int
    """0 if unknown."""


STOP_HINT: Line = (("  Esc", "key"), (" stops", ""))


def bar_line(progress: ProgressBar, seconds: float, unit: str, width: int) -> Line:
    """A bar with counts and the time left: `[####....] 12,000 of 40,000`, `seconds` after start."""
    done, total = progress
    if not total:
        return ((f" {done:,} {unit} so far", ""),)
    done = min(done, total)
    remaining = ""
    if 0 < done < total and seconds >= 1:
        remaining = f"  {format_countdown(seconds * (total - done) / done)} left"
    words = f" {done:,} of {total:,} {unit}  {100 * done // total}%{remaining}"
    room = max(4, min(40, width - len(words) - 4))
    filled = room * done // total
    return ((f" [{'#' * filled}{'.' * (room - filled)}]", "strong"), (words, ""))


def first_scan_line(
    change: IndexChanged, states: Mapping[State, str], seconds: float, width: int
) -> Line:
    """Progress of the first scan of a store, `seconds` after its start; () once it has ended."""
    if change.is_complete or change.unavailable or not states:
        return ()
    indexed = change.indexed
    if change.is_stopped:
        return ((f" stopped at {format_count(indexed, 'task')}; r continues", "warn"),)
    room = width - width_of(STOP_HINT)
    return (
        *bar_line(ProgressBar(indexed, change.expected_tasks), seconds, "tasks", room),
        *STOP_HINT,
    )
