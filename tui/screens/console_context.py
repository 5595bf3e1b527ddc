"""What all screens of the console share: its settings, and whether it is armed.

It is in OBSERVE at the start; `!` arms writes for 15 minutes, and disarms."""

from __future__ import annotations

from collections.abc import Callable

from engine.values import NamedTuple
from tui.session.place_session import RECORDER_OFF
from tui.text.header import Totals
from tui.text.lines import Line

ARMED_SECONDS = 900.0
"""Seconds for which the console stays armed, after arming and after each write."""

READ_ONLY = "read only: started with --read-only"
"""Why a console changes nothing."""


class Arming:
    """Whether one console is armed; shared by its screens."""

    def __init__(
        self,
        clock: Callable[[], float],
        read_only: bool = False,
        armed: bool = False,
        *,
        is_chosen: bool = True,
    ) -> None:
        """`clock` only goes forward: a clock that is set must neither disarm nor arm again.
        `is_chosen`: False if no operator has named the places."""
        self._clock = clock
        self.read_only = read_only
        self._until = clock() + ARMED_SECONDS if armed and not read_only else 0.0
        self._is_chosen = is_chosen

    @property
    def seconds_left(self) -> float:
        """Remaining seconds armed; 0 in OBSERVE."""
        return max(0.0, self._until - self._clock())

    @property
    def why_not_written(self) -> str:
        """Why nothing is written into a place that no operator asks for, such as recordings; "" if
        it may be. Places that were only found are chosen once the console was armed."""
        if self.read_only:
            return RECORDER_OFF
        return "" if self._is_chosen else "recorder off until armed"

    @property
    def is_armed(self) -> bool:
        """True if plans can be applied now."""
        return self.seconds_left > 0

    def toggle(self) -> str:
        """Arm or disarm; returns a message."""
        if self.read_only:
            return "read only: this console was started with --read-only"
        if self.is_armed:
            self._until = 0.0
            return "OBSERVE: plans can be viewed, not applied"
        self._until, self._is_chosen = self._clock() + ARMED_SECONDS, True
        return "ARMED for 15 minutes: plans can be applied; ! disarms"

    def extend(self) -> None:
        """Restart the period after a write."""
        if self.is_armed:
            self._until = self._clock() + ARMED_SECONDS


class ConsoleContext(NamedTuple):
    """What a screen needs of the console around it."""

    host: str
    arming: Arming
    clock: Callable[[], float]
    """Epoch seconds UTC."""
    places: int = 1
    environment: str = ""
    """Label of the environment, such as `PROD`; "" if not set."""
    require_reason: bool = False
    """A plan needs a reason to be applied."""
    repaint_seconds: Callable[[], float] = lambda: 1.0
    """Returns the seconds between two repaints without a key; more on a slow line."""
    refresh: float = 0.0
    """Seconds between two repaints without a key as configured; 0: not configured."""
    totals: Callable[[], Totals | None] = lambda: None
    """Returns totals of all places for the header; None to show none."""
    operations: Callable[[], Line] = lambda: ()
    """Returns the progress of running operations: `ops 1 51%`; () if none runs."""
    pane_seconds: Callable[[], float] = lambda: 0.0
    """Returns the seconds between two repaints of a side pane; 0: with the others."""
    frozen: Callable[[], Line] = lambda: ()
    """Returns since when the picture is frozen; () if it is not."""
    overview_time: Callable[[], float | None] = lambda: None
    """Returns the time that the overview below this screen shows while it is frozen, in epoch
    seconds UTC; None if it is live."""
    skips_repaint: Callable[[], bool] = lambda: False
    """Returns True if this second passes without such a repaint."""
