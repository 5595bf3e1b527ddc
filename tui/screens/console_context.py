"""What every screen shares with the whole console."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tui.screens.write_mode import Arming


class ConsoleContext(NamedTuple):
    """The console around a screen."""

    host: str
    arming: Arming
    clock: Callable[[], float]
    """Epoch seconds UTC."""
    places: int = 1
    environment: str = ""
    """A word that says what is at stake here, `PROD`; "" when nobody gave one."""
    require_reason: bool = False
    """Whether a plan is applied only with a reason."""
    wire: Callable[[], str] = lambda: ""
    """What goes to the terminal now, in words: `0.7kB/s`."""
    alerts: Callable[[], int] = lambda: 0
    """How many alerts there are, over all places."""
    pace: Callable[[], float] = lambda: 1.0
    """Seconds from one painting that nobody asked for to the next: more where the line is slow."""
    works: Callable[[], str] = lambda: ""
    """What this console carries out just now: `op 51%`; "" when nothing."""
    still: Callable[[], bool] = lambda: False
    """Whether this second passes without such a painting."""
