"""Whether writes are allowed now: the console starts in OBSERVE, and is armed for a while."""

from __future__ import annotations

from collections.abc import Callable

PERIOD = 900.0
"""Seconds for which writes are allowed after arming, and again after each one."""


class Arming:
    """The mode of one console, shared by its screens."""

    def __init__(
        self, clock: Callable[[], float], read_only: bool = False, armed: bool = False
    ) -> None:
        self._clock = clock
        self.read_only = read_only
        self._until = clock() + PERIOD if armed and not read_only else 0.0

    @property
    def left(self) -> float:
        """Seconds for which writes are still allowed; 0 in OBSERVE."""
        left = self._until - self._clock()
        # A clock that was set back must not leave writes allowed for longer than was meant.
        return left if 0 < left <= PERIOD else 0.0

    @property
    def armed(self) -> bool:
        """Whether writes are allowed now."""
        return self.left > 0

    def toggle(self) -> str:
        """Arm, or disarm; answers with what that means."""
        if self.read_only:
            return "read only: this console was started with --read-only"
        if self.armed:
            self._until = 0.0
            return "OBSERVE: plans can be looked at, none applied"
        self._until = self._clock() + PERIOD
        return "ARMED for 15 minutes: plans can be applied; ! again disarms"

    def used(self) -> None:
        """Something was written: the time begins anew."""
        if self.armed:
            self._until = self._clock() + PERIOD
