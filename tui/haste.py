"""Keys that come faster than a hand types them: a paste into a terminal that does not say so."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from weakref import WeakSet

from textual.events import Key

MANY = 5
"""So many keys within so many seconds are a burst."""

DIGITS = 4
"""So many digits among them are one already: as a count they would apply a plan by themselves."""

WITHIN = 0.03

_bursts: WeakSet[Key] = WeakSet()


class Haste:
    """Hears all keys as they arrive, and marks those that came in a burst."""

    def __init__(self) -> None:
        self._lately: deque[tuple[float, Key]] = deque()

    def heard(self, keys: Iterable[Key], now: float) -> None:
        """These arrived together, at `now` (seconds, on a clock that only goes on)."""
        self._lately.extend((now, key) for key in keys)
        while self._lately and now - self._lately[0][0] > WITHIN:
            self._lately.popleft()
        digits = sum(key.key.isdigit() for _, key in self._lately)
        if len(self._lately) >= MANY or digits >= DIGITS:
            _bursts.update(key for _, key in self._lately)


def is_burst(key: Key) -> bool:
    """Whether a key came in a burst."""
    return key in _bursts
