"""Refuse keys that were pasted or typed ahead: bursts, and confirming keys that come too early.

A terminal without bracketed paste sends pasted text as keys, and a slow link delivers many keys in
one read. So keys in a burst write nothing, and a key that confirms a plan counts only if the plan
was on screen, unchanged, for `CONFIRM_SECONDS` when the key arrived.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from weakref import WeakSet

from textual.events import Key
from textual.screen import Screen, ScreenResultType

MANY = 5
"""So many keys within so many seconds are a burst."""

DIGITS = 4
"""So many digits among them are one already: as a count they would apply a plan by themselves."""

WITHIN = 0.03

CONFIRM_SECONDS = 0.3
"""For so long a plan is on screen, unchanged, before a key confirms it."""

_bursts: WeakSet[Key] = WeakSet()


class PasteDetector:
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


class ConfirmGuard:
    """Decide whether a confirming key arrived after its plan was on screen for long enough.

    Times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self._since = math.inf

    def hidden(self) -> None:
        """The plan is not painted: it is new, or was covered by another screen."""
        self._since = math.inf

    def painted(self, now: float) -> None:
        """The plan was painted; only the first time counts."""
        self._since = min(self._since, now)

    def changed(self, now: float) -> None:
        """The plan on screen is another one from now on."""
        if self._since < math.inf:
            self._since = now

    def is_early(self, arrived: float) -> bool:
        """Whether a key that arrived at that time must not confirm the plan."""
        return arrived - self._since < CONFIRM_SECONDS


class Confirming(Screen[ScreenResultType]):
    """A screen on which keys confirm something; the app reports paints and the keys' times."""

    def __init__(self, **names: str | None) -> None:
        """`names` are the library's own: name, id, classes."""
        super().__init__(**names)
        self.guard = ConfirmGuard()

    def on_screen_resume(self) -> None:
        """Shown for the first time, or again: it is to be painted first."""
        self.guard.hidden()

    def refuses(self) -> bool:
        """Whether the key that acts now was pasted or typed too early."""
        app = self.app
        early = self.guard.is_early(getattr(app, "arrived", -math.inf))
        return early or bool(getattr(app, "hasty", False))
