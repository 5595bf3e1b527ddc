"""What the log in memory and the journal show of a time before the freeze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from engine.logs.log_line import LogLine
from engine.monitor.latency import NO_RUNS
from engine.monitor.throughput import HISTORY_SECONDS
from engine.places.recent_events import NO_EVENTS, EventMemory
from engine.text.safe import safe_line
from tui.overview.freeze import FrozenTime
from tui.overview.side_panes import (
    LOG_TOO_SHORT,
    LiveValues,
    PaneRows,
    latest_operations,
    unknown_then_line,
)
from tui.session.place_session import PlaceSession
from tui.text.lines import Line, cut_line

NOTHING_LOGGED: Line = (("   none until then", "muted"),)
NOTHING_RUN: Line = ((f"   {NO_RUNS}", "muted"),)


class PastValues(NamedTuple):
    """Lines, kinds and operations of all places at a past time, in the order of the places."""

    live_values: LiveValues
    """The values of the freeze, with the known ones of then."""
    late_logs: Mapping[str, float]
    """Seconds from then until the first known line, by name of a place without a known one."""
    late_kinds: Mapping[str, float]
    """Seconds from then until the first known figures, in the same way."""


def past_values(
    sessions: Sequence[PlaceSession], frozen: FrozenTime, frozen_values: LiveValues
) -> PastValues:
    """The values at `frozen.at`; `frozen_values` are those of the freeze."""
    memories = [frozen.memories.get(session.number, NO_EVENTS) for session in sessions]
    logs, kinds, late_logs, late_kinds = [], [], {}, {}
    for session, log, memory in zip(sessions, frozen_values.logs, memories, strict=True):
        lines, since = _lines_until(log, memory, frozen.at)
        logs.append(lines)
        if since > frozen.at:
            late_logs[session.name] = min(since, frozen.since) - frozen.at
        since = memory.since + HISTORY_SECONDS
        is_known = since <= frozen.at
        kinds.append(memory.latency.figures(frozen.at, frozen.at) if is_known else ())
        if not is_known:
            late_kinds[session.name] = min(since, frozen.since) - frozen.at
    ran = latest_operations(sessions, frozen.at)
    known = frozen_values._replace(logs=tuple(logs), kinds=tuple(kinds), operations=ran)
    return PastValues(known, late_logs, late_kinds)


def _lines_until(
    log: Sequence[LogLine], memory: EventMemory, at: float
) -> tuple[Sequence[LogLine], float]:
    """The lines up to a time, and the time from which on lines are known: those of the log, or if
    they do not reach back so far, those of the task events.
    """
    first = next((line.when for line in log if line.when is not None), inf)
    if first <= at:
        return _until([(line.when, line) for line in log], at), first
    if memory.since <= at:
        return _until([(event.when, event.line) for event in memory.events], at), memory.since
    return (), min(first, memory.since)


def _until(lines: Sequence[tuple[float | None, LogLine]], at: float) -> Sequence[LogLine]:
    """The lines up to a time; one without a time belongs to the line before it."""
    past_lines, when = [], -inf
    for time, line in lines:
        when = when if time is None else time
        if when <= at:
            past_lines.append(line)
    return past_lines


def with_unknown_places(
    pane_rows: PaneRows, late: Mapping[str, float], nothing: Line, width: int
) -> PaneRows:
    """Add a line for each place of which nothing is known; without rows and without any, show
    `nothing`.
    """
    several = len(late) > 1 or bool(pane_rows.rows)
    unknown = [
        cut_line(unknown_then_line(LOG_TOO_SHORT, seconds, f"{safe_line(name)}: " * several), width)
        for name, seconds in late.items()
    ]
    if pane_rows.rows:
        return pane_rows._replace(foot=[*pane_rows.foot, *unknown])
    return pane_rows._replace(head=unknown or [nothing])
