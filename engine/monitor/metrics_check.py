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

MAX_APART_SECONDS = 2.5
"""Maximum seconds between our count and the writing of the file for the two to be compared."""

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
) -> Sequence[CountSample]:
    """Our counts at the time the metrics file was written: those counted then, and the last ones
    from then on; none with a change of a folder of the tasks between the file and the count."""
    if not isinstance(metrics, Samples):
        return ()
    written = metrics.modified
    changed = 0.0 if quiet_span is None else quiet_span.since
    counts = [
        each
        for each in samples
        if abs(each[0] - written) <= MAX_APART_SECONDS and not written < changed <= each[0]
    ]
    if quiet_span is not None and changed < written:
        start = written + MAX_APART_SECONDS  # a count may lag behind the folders
        later = [each for each in samples if start < each[0] <= quiet_span.until]
        if later:
            counts.append((written, max(later, key=itemgetter(0))[1]))
    return counts


class OwnCounts(NamedTuple):
    """Our own counts."""

    states: Mapping[State, str]
    counts: Mapping[State, int]
    complete: bool
    before: Sequence[CountSample] = ()
    """Earlier counts, each with its time in epoch seconds UTC."""

    def counts_at(self, moment: float) -> list[Mapping[State, int]]:
        """Return our counts around a moment; empty if there are none."""
        return [counts for when, counts in self.before if abs(when - moment) <= MAX_APART_SECONDS]

    def counts_near(self, moment: float) -> list[Mapping[State, int]]:
        """Return our counts around a moment, or the present ones if there are none."""
        return self.counts_at(moment) or [self.counts]


def find_differences(samples: Samples, own_counts: OwnCounts) -> list[str]:
    """Describe where the metrics file differs from our own counts at the time it was written. A
    working queue is always some tasks ahead of its last metrics; that is no difference."""
    return _compared(samples, own_counts, own_counts.counts_near(samples.modified))


def find_contradictions(samples: Samples, own_counts: OwnCounts) -> list[str]:
    """Like `find_differences`, but only if we counted at the time the file was written. Present
    counts may differ because tasks came and left since."""
    then = own_counts.counts_at(samples.modified)
    return _compared(samples, own_counts, then) if then else []


def _compared(
    samples: Samples, own_counts: OwnCounts, then: Sequence[Mapping[State, int]]
) -> list[str]:
    if not own_counts.complete:
        return []
    rows = []
    for state, gauge in GAUGES.items():
        value = samples.get(gauge)
        counted = [counts.get(state, 0) for counts in then]
        # We count once a second; between two counts tasks may move as far again.
        moved = max(counted) - min(counted)
        agree = value is None or min(counted) - moved <= value <= max(counted) + moved
        if state in own_counts.states and value is not None and not agree:
            rows.append(
                f"{safe_line(own_counts.states[state])} {value:,.0f}, counted {counted[-1]:,}"
            )
    return rows
