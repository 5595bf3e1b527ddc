"""All that is known of a place at one moment, put together for what decides about alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.alerts import Sight
from engine.flow import Flow
from engine.inspector import Changed
from engine.model import State
from tui.watch import Signs


class Standing(Protocol):
    """How long pending tasks wait; times are epoch seconds UTC of their creation."""

    @property
    def oldest(self) -> float | None:
        """Of the oldest."""

    @property
    def due(self) -> int:
        """How many may run now."""

    @property
    def oldest_due(self) -> float | None:
        """Of the oldest of those."""


def sight(
    name: str,
    states: Mapping[State, str],
    latest: Changed,
    signs: Signs,
    flow: Flow,
    before: Sequence[tuple[float, Mapping[State, int]]],
    standing: Standing | None,
    now: float,
) -> Sight:
    """What is known; `before` are earlier counts with their times, `standing` may come later."""
    return Sight(
        name,
        states,
        latest.counts,
        latest.complete,
        latest.unavailable,
        latest.problems,
        signs.lock,
        flow.least(State.ACTIVE, now),
        standing.oldest if standing else None,
        standing.due if standing else 0,
        standing.oldest_due if standing else None,
        flow.grown(State.DEAD, now),
        signs.queue,
        before,
        signs.sending.transports,
        signs.ran,
    )
