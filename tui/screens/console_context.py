"""State and settings of the console that all its screens share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tui.format.present import Line
from tui.screens.arming import Arming


class ConsoleContext(NamedTuple):
    """What a screen needs of the console around it."""

    host: str
    arming: Arming
    clock: Callable[[], float]
    """Epoch seconds UTC."""
    places: int = 1
    environment: str = ""
    """Label of the environment, such as `PROD`; "" if none is set."""
    require_reason: bool = False
    """A plan needs a reason to be applied."""
    bandwidth_text: Callable[[], str] = lambda: ""
    """Returns the current rate to the terminal: `0.7kB/s`."""
    repaint_seconds: Callable[[], float] = lambda: 1.0
    """Returns the seconds between two repaints without a key; more on a slow line."""
    totals: Callable[[], Line] = lambda: ()
    """Returns totals of all places for the header."""
    operations: Callable[[], Line] = lambda: ()
    """Returns the progress of running operations: `ops 1 51%`; () if none runs."""
    skips_repaint: Callable[[], bool] = lambda: False
    """Returns True if this second passes without such a repaint."""
