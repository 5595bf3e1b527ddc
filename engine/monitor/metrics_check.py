"""Compare the queue's metrics file (queue.prom) with our own task counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from engine.model import State
from engine.monitor.prometheus import Samples
from engine.text.safe import safe_line
from engine.values import NamedTuple

MetricsReading: TypeAlias = Samples | str | None
"""Parsed metrics file; or the reason why it could not be read; None: the place has none."""

GAUGES: Mapping[State, str] = {
    State.PENDING: "nftban_queue_tasks_pending",
    State.ACTIVE: "nftban_queue_tasks_working",
    State.DEAD: "nftban_queue_tasks_dlq",
}

LAST_RUN = "nftban_queue_last_run_timestamp"

COUNT_LAG_SECONDS = 2.5
"""Seconds after which our count has what was in the folders when the file was written."""

WRITE_LAG_SECONDS = 1.0
"""Seconds that a worker takes at most from its counts to the file that has them."""

CountSample: TypeAlias = tuple[float, Mapping[State, int]]
"""Our own counts, with their time in epoch seconds UTC."""


class Rest(NamedTuple):
    """A time in which no task came, left or moved, in epoch seconds UTC."""

    since: float
    """Latest modification time of the folders of the tasks."""
    until: float
    """When these were read."""


def counts_when_written(
    metrics: MetricsReading, quiet_span: Rest | None, samples: Sequence[CountSample]
) -> Mapping[State, int] | None:
    """Our counts at the time the metrics file was written: later ones, if no task moved in between.
    None while tasks move: a file of a working queue is always some tasks behind, and a task is
    claimed and done between two of our counts."""
    if not isinstance(metrics, Samples) or quiet_span is None:
        return None
    start = metrics.modified + COUNT_LAG_SECONDS
    later = [each for each in samples if start < each[0] <= quiet_span.until]
    # A task may come after the worker has counted and before it has written.
    is_at_rest = quiet_span.since < metrics.modified - WRITE_LAG_SECONDS
    return max(later, key=itemgetter(0))[1] if later and is_at_rest else None


class OwnCounts(NamedTuple):
    """Our own counts."""

    states: Mapping[State, str]
    counts: Mapping[State, int]
    complete: bool
    when_written: Mapping[State, int] | None = None
    """As `counts_when_written`."""


def find_differences(samples: Samples, own_counts: OwnCounts) -> list[str]:
    """Describe where the metrics file differs from our own counts at the time it was written; none
    if these are not known."""
    counts = own_counts.when_written
    if not own_counts.complete or counts is None:
        return []
    rows = []
    for state, gauge in GAUGES.items():
        value, counted = samples.get(gauge), counts.get(state, 0)
        if state in own_counts.states and value is not None and value != counted:
            rows.append(f"{safe_line(own_counts.states[state])} {value:,.0f}, counted {counted:,}")
    return rows
