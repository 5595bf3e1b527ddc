"""Refuse keys that were pasted or typed ahead: bursts, and confirming keys that come too early.

A terminal without bracketed paste sends pasted text as keys, and a slow link delivers many keys in
one read. So keys in a burst write nothing, and a key that confirms a plan counts only if the plan
was on screen, unchanged, for `CONFIRM_SECONDS` when the key arrived.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from textual.events import Key
from textual.screen import Screen

BURST_KEYS = 5
"""This many keys within `BURST_SECONDS` seconds are a burst."""

BURST_DIGITS = 4
"""This many digits are already a burst: as a count they could apply a plan."""

BURST_SECONDS = 0.03

CONFIRM_SECONDS = 0.3
"""Seconds for which a plan must be on screen, unchanged, before a key confirms it."""

_bursts: WeakSet[Key] = WeakSet()


class PasteDetector:
    """Reads all keys as they arrive, and marks those that came in a burst."""

    def __init__(self) -> None:
        self._recent_keys: deque[tuple[float, Key]] = deque()

    def record_keys(self, keys: Iterable[Key], now: float) -> None:
        """Record keys that arrived together at `now` (monotonic seconds)."""
        self._recent_keys.extend((now, key) for key in keys)
        while self._recent_keys and now - self._recent_keys[0][0] > BURST_SECONDS:
            self._recent_keys.popleft()
        digits = sum(key.key.isdigit() for _, key in self._recent_keys)
        if len(self._recent_keys) >= BURST_KEYS or digits >= BURST_DIGITS:
            _bursts.update(key for _, key in self._recent_keys)


def is_burst(key: Key) -> bool:
    """True if a key came in a burst."""
    return key in _bursts


class ConfirmGuard:
    """Decide whether a confirming key arrived after its plan was on screen for long enough.

    Times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self._since = math.inf

    def plan_hidden(self) -> None:
        """The plan is not on screen: it is new, or another screen covers it."""
        self._since = math.inf

    def plan_painted(self, now: float) -> None:
        """The plan was painted; only the first time counts."""
        self._since = min(self._since, now)

    def plan_changed(self, now: float) -> None:
        """The plan on screen has changed."""
        if self._since < math.inf:
            self._since = now

    def is_early(self, arrived: float) -> bool:
        """True if a key that arrived at that time must not confirm the plan."""
        return arrived - self._since < CONFIRM_SECONDS


def guard_of(screen: Screen[Any]) -> ConfirmGuard | None:
    """The guard of a screen on which keys confirm something; None for other screens."""
    guard: ConfirmGuard | None = getattr(screen, "guard", None)
    return guard
