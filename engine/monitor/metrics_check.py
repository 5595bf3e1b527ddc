"""What the queue's metrics file says, and where that differs from what is counted here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from engine.model import State
from engine.monitor.prometheus import Samples
from engine.text.safe import shown

Reading: TypeAlias = Samples | str | None
"""What a metrics file held; why it could not be read, in words; None: there is none here."""

GAUGES: Mapping[State, str] = {
    State.PENDING: "nftban_queue_tasks_pending",
    State.ACTIVE: "nftban_queue_tasks_working",
    State.DEAD: "nftban_queue_tasks_dlq",
}
"""Which gauge counts the tasks of a state."""

OLDEST = "nftban_queue_oldest_pending_age_seconds"
LAST_RUN = "nftban_queue_last_run_timestamp"

SAME_MOMENT = 2.5
"""Seconds between our count and the writing of a file for the two to speak of one moment."""


class Ours(NamedTuple):
    """What is counted here."""

    states: Mapping[State, str]
    counts: Mapping[State, int]
    complete: bool
    before: Sequence[tuple[float, Mapping[State, int]]] = ()
    """Earlier counts, each with its time in epoch seconds UTC."""

    def at(self, moment: float) -> list[Mapping[State, int]]:
        """What was counted around a moment; empty when nobody counted then."""
        return [counts for when, counts in self.before if abs(when - moment) <= SAME_MOMENT]

    def around(self, moment: float) -> list[Mapping[State, int]]:
        """The same; where nothing was counted, what is counted now."""
        return self.at(moment) or [self.counts]


def differences(samples: Samples, ours: Ours) -> list[str]:
    """Where the metrics file and our own count of that time disagree, in words.

    A queue that flows is always some tasks further than its last metrics; that is no disagreement.
    """
    return _compared(samples, ours, ours.around(samples.modified))


def contradictions(samples: Samples, ours: Ours) -> list[str]:
    """The same, but only where something was counted when the file was written.

    What is counted now may differ from it because tasks came and went since.
    """
    then = ours.at(samples.modified)
    return _compared(samples, ours, then) if then else []


def _compared(samples: Samples, ours: Ours, then: Sequence[Mapping[State, int]]) -> list[str]:
    if not ours.complete:
        return []
    rows = []
    for state, gauge in GAUGES.items():
        said = samples.get(gauge)
        here = [counts.get(state, 0) for counts in then]
        # We count once a second; what moves in between may go as far again.
        moved = max(here) - min(here)
        agree = said is None or min(here) - moved <= said <= max(here) + moved
        if state in ours.states and said is not None and not agree:
            rows.append(f"{shown(ours.states[state])} {said:,.0f}, here {here[-1]:,}")
    return rows
