"""Where a key, an alert or a command leads: a screen, a place, a tab, a row."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model import State
from engine.values import NamedTuple
from tui.text import keys

CURRENT_PLACE = 0
"""`Target.place` for the place that is open now."""


class Target(NamedTuple):
    """A screen to open, and what to show or select there."""

    pane: str
    """Name of the screen in the key table."""
    place: int = CURRENT_PLACE
    """Number of the place, from 1."""
    state: State | None = None
    """Tab of the queue screen; None: the tab that was open last."""
    filter: str | None = None
    """Filter of the queue screen, in the filter language; None: keep the last one."""
    id: str = ""
    """Id of the task or operation to select, or to search for in the log."""
    at: float | None = None
    """First time that the log screen shows, epoch seconds UTC; None: the end of the log."""
    line: str = ""
    """Text of the log line to select, searched from `at` on."""
    action: str = ""
    """Textual action that the queue screen runs once its rows are read, or the verb of a plan."""
    problems: bool = False
    """Open the list of problems instead of a state's tab."""


SCREEN_TARGETS: Mapping[str, Target] = {
    "1": Target(keys.OVERVIEW),
    "2": Target(keys.LIST, state=State.PENDING),
    "3": Target(keys.WORKERS),
    "4": Target(keys.LIST, state=State.DEAD),
    "5": Target(keys.LOCKS),
    "6": Target(keys.TRANSPORTS),
    "7": Target(keys.LOG),
    "8": Target(keys.OPERATIONS),
    "9": Target(keys.CONTROLS),
}
"""Target of each digit; it is the same on all screens where digits are not typed."""
