"""Stepping through recorded history, over all places together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.monitor.recorded_history import RecordedHistory, step_seconds, step_time

KEY_REPEAT_SECONDS = 0.4
"""Seconds between two key presses from which on the key does not count as held."""


class FrozenTime(NamedTuple):
    """The time shown while frozen."""

    since: float
    """Time of the freeze in epoch seconds UTC; nothing later is shown."""
    at: float
    """The time shown, in epoch seconds UTC."""
    histories: Mapping[int, RecordedHistory]
    """Recorded history by number of the place."""
    is_loaded: bool = False
    """True if all recordings are loaded."""
    run: int = 0
    """Consecutive steps in one direction with the key held; negative: back."""
    pressed: float = float("-inf")
    """Monotonic time of the last step."""

    def stepped(self, way: int, pressed: float) -> FrozenTime | None:
        """One step back (-1) or forward (1); None at the end. A held key makes longer steps."""
        held = pressed - self.pressed < KEY_REPEAT_SECONDS and self.run * way > 0
        run = self.run + way if held else way
        after = self._replace(run=run, pressed=pressed)
        tapes = list(self.histories.values())
        at = step_time(tapes, self.at, way * step_seconds(abs(run)))
        if at is None and abs(run) > 1:
            at = step_time(
                tapes, self.at, way * step_seconds(1)
            )  # a shorter step reaches the very end
        if at is None or at > self.since:
            return None if self.at == self.since or way < 0 else after._replace(at=self.since)
        return after._replace(at=at)
