"""The states of a place as bars, with the values of its metrics file where they differ."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from engine.model import State
from engine.monitor.metrics_check import GAUGES, MetricsReading, OwnCounts, find_differences
from engine.monitor.prometheus import Samples
from engine.text.figure import UNKNOWN
from engine.text.figures import fit_count
from engine.text.safe import safe_line, state_name
from tui.text.graphs import bar
from tui.text.lines import Line, Run, cut_line, fit_text
from tui.text.times import format_age, format_minutes

STALE_SECONDS = 180.0
"""Age in seconds from which a metrics file is outdated: three missed runs of a processor that
runs every minute.
"""

NAME_CELLS, COUNT_CELLS = 11, 8
"""Cells for the name of a state and its count, before its bar."""

MAX_FACTS = 4
"""Facts of the queue as a whole below the bars; the controls screen has all of them."""

BAR_LOOKS = {State.PENDING: "accent", State.ACTIVE: "ok", State.DEAD: "warn"}


def state_lines(
    queue: MetricsReading, own_counts: OwnCounts, reachable: bool, width: int
) -> list[Line]:
    """One bar for each state; counts of an unreachable place are unknown."""
    most = max(own_counts.counts.values(), default=0)
    room = max(1, width - NAME_CELLS - COUNT_CELLS - 3)
    differs = isinstance(queue, Samples) and bool(find_differences(queue, own_counts))
    lines: list[Line] = []
    for state, word in own_counts.states.items():
        amount = own_counts.counts.get(state, 0)
        count: Run = (f"{fit_count(amount, COUNT_CELLS - 1):>{COUNT_CELLS}}", "strong")
        if not reachable:
            count = (UNKNOWN.rjust(COUNT_CELLS), "unknown")
        elif not amount:
            count = ("0".rjust(COUNT_CELLS), "muted")
        length: Run = (bar(amount / most if most else 0.0, room), BAR_LOOKS.get(state, "muted"))
        metric = (
            queue.get(GAUGES[state]) if isinstance(queue, Samples) and state in GAUGES else None
        )
        if differs and metric is not None and metric != amount:
            length = (f"file {metric:,.0f}", "warn")
        name = fit_text(f" {state_name(word)}", NAME_CELLS)
        lines.append(cut_line(((name, "muted"), count, ("  ", ""), length), width))
    return lines


def fact_rows(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """What a queue reports about itself as a whole."""
    named = [(fit_text(f" {safe_line(name)} ", NAME_CELLS), text) for name, text in facts]
    rows: list[Line] = [((name, "muted"), (safe_line(text), "")) for name, text in named]
    return [cut_line(row, width) for row in rows[:MAX_FACTS]]


def _is_missing(queue: MetricsReading) -> bool:
    return queue == os.strerror(errno.ENOENT)


def metrics_run(queue: MetricsReading, own_counts: OwnCounts, now: float) -> Run:
    """Whether the metrics file agrees with our counts, in two words and its age."""
    if queue is None:
        return "", ""
    if not isinstance(queue, Samples):
        return ("no metrics file", "muted") if _is_missing(queue) else ("metrics ?", "unknown")
    age = now - queue.modified
    if find_differences(queue, own_counts):
        return "metrics differ", "warn"
    old = format_age(age).removesuffix(" ago")
    return f"metrics agree, {old}", "warn" if age > STALE_SECONDS else "muted"


def metrics_warning(queue: MetricsReading, own_counts: OwnCounts, now: float) -> Run:
    """Where the metrics file differs, is outdated or cannot be read; "" if it agrees."""
    if queue is None:
        return "", ""
    if not isinstance(queue, Samples):
        if _is_missing(queue):
            return "no queue.prom yet: the next worker run writes it", "muted"
        return f"queue.prom: {safe_line(str(queue))}", "unknown"
    words = [f"differs: {difference}" for difference in find_differences(queue, own_counts)]
    age = now - queue.modified
    if age > STALE_SECONDS:
        words.append(f"not written for {format_minutes(age)}")
    return (f"! WARN queue.prom {'; '.join(words)}", "warn") if words else ("", "")
