"""When the picture on the terminal may change: not while it is frozen, and seldom if it rests.

Widgets are painted in memory all the time; here frames are kept from the terminal. The next one
that is sent has all that has changed since (`tui.terminal.screen_cells`)."""

from __future__ import annotations

import math

LIVE_SEEN_SECONDS = 0.3
"""Seconds for which the present picture must be on screen after a frozen one, until a key acts."""
WAKE_SECONDS = 2.0
"""Seconds for which a resting picture follows what has woken it."""


class Picture:
    """Times are monotonic seconds; the caller reads the clock."""

    def __init__(self, rest: float = 0.0) -> None:
        """`rest`: seconds between two changes of the picture without a key; 0: each change is
        shown."""
        self.rest = rest
        self.is_missed = False
        """The terminal lacks changes that were painted."""
        self.is_frozen = False
        """An operator has frozen the picture."""
        self._is_closed = False
        self._shown_at = -math.inf
        """When the first frame after a frozen picture was sent; `inf` until then."""
        self._passes_next = False
        self._due = -math.inf
        self._awake_until = -math.inf

    def freeze(self) -> None:
        """Freeze the picture from `close` on: first the sign that it is frozen is painted."""
        self.is_frozen = True

    def close(self) -> None:
        """Let no frame pass any more, unless the picture was released meanwhile."""
        self._is_closed = self.is_frozen

    def release(self) -> None:
        """Show the present picture. After a frozen one no key acts before it can have been seen."""
        if self.is_frozen:
            self._shown_at = math.inf
        self.is_frozen = self._is_closed = False
        self.let_pass()

    def let_pass(self) -> None:
        """Let the next frame pass, which has all that was missed."""
        self.is_missed, self._passes_next = True, not self._is_closed

    def is_unseen(self, arrived: float) -> bool:
        """True if a key that arrived at that time was pressed at the sight of a frozen picture."""
        return arrived - self._shown_at < LIVE_SEEN_SECONDS

    def wake(self, now: float) -> None:
        """Show changes for `WAKE_SECONDS`: a key was pressed, or what is new must not wait."""
        self._awake_until = now + WAKE_SECONDS

    def passes(self, now: float) -> bool:
        """True if a frame may be sent now; one that may not is missed."""
        if self._passes_next:
            return True
        is_open = not self._is_closed and (not self.rest or now < self._awake_until)
        self.is_missed |= not is_open
        return is_open

    def is_due(self, now: float) -> bool:
        """True once in `rest` seconds without a key: then what was missed is to be shown."""
        if self._is_closed:
            return False
        if now < self._awake_until:
            self._due = self._awake_until + self.rest
            return self.is_missed
        if not self.is_missed or now < self._due:
            return False
        self._due = now + self.rest
        return True

    def sent(self, now: float) -> None:
        """A frame with all that was missed was sent."""
        self.is_missed, self._passes_next, self._shown_at = False, False, min(self._shown_at, now)
