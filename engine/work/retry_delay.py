"""Pauses that get longer: before a refused store operation, and of a kind that cannot be run."""

from __future__ import annotations

from typing import NamedTuple

from engine.schedules import exponential


def refusal_delay_seconds(refusals: int, first: float = 60.0) -> float:
    """Return the seconds until a refused store operation is tried again: 60, 120, 240, ... up to
    15 times the first, without a limit on the number of retries.
    """
    return exponential(first, 15 * first).seconds(refusals)


class RetryDelay(NamedTuple):
    """Pause before a refused store operation is tried again."""

    refusals: int = 0
    """Consecutive refusals."""
    since: float = 0.0
    seconds: float = 0.0

    @property
    def until(self) -> float:
        """Time of the next try."""
        return self.since + self.seconds

    def is_over(self, now: float) -> bool:
        """True if it may be tried again, also if the clock was set back."""
        return not 0 <= now - self.since < self.seconds

    def longer(self, now: float, first: float) -> RetryDelay:
        """Return the next pause, after one more refusal; the first one is `first` seconds long."""
        return RetryDelay(self.refusals + 1, now, refusal_delay_seconds(self.refusals, first))
