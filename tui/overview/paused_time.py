"""Which moment of the recorded past is looked at, over all places at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.monitor.recorded_history import RecordedHistory, step, stride

PAUSE = 0.4
"""Seconds between two steps from which on the key is no longer held."""


class Frozen(NamedTuple):
    """A moment that is held."""

    since: float
    """When it was frozen, epoch seconds UTC: nothing later is shown."""
    at: float
    """The moment that is shown."""
    tapes: Mapping[int, RecordedHistory]
    """What was written down, by the numbers of the places."""
    read: bool = False
    """Whether all that was written down has been read."""
    run: int = 0
    """Steps in one direction without a pause; negative: back."""
    pressed: float = float("-inf")
    """When the last step was asked for, by a clock that only goes on."""

    def stepped(self, way: int, pressed: float) -> Frozen | None:
        """A step back (-1) or on (1); None where nothing comes any more."""
        held = pressed - self.pressed < PAUSE and self.run * way > 0
        run = self.run + way if held else way
        after = self._replace(run=run, pressed=pressed)
        tapes = list(self.tapes.values())
        at = step(tapes, self.at, way * stride(abs(run)))
        if at is None and abs(run) > 1:
            at = step(tapes, self.at, way * stride(1))  # so that the very end is reached
        if at is None or at > self.since:
            return None if self.at == self.since or way < 0 else after._replace(at=self.since)
        return after._replace(at=at)
