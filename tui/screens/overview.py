"""Every place on one line, what is wrong on top, and where to go from there."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text import shown
from tui import keys
from tui.live import Live
from tui.screens.face import Target
from tui.screens.pages import Board
from tui.surroundings import Surroundings
from tui.widgets.picker import Choice, Picker


class OverviewScreen(Board):
    """What the console opens on."""

    KIND = keys.OVERVIEW
    BINDINGS = keys.bindings(keys.OVERVIEW)

    def __init__(self, lives: Sequence[Live], around: Surroundings) -> None:
        super().__init__(lives[0], around)
        self._lives = lives

    def lay_out(self, width: int) -> None:
        """A line for each place."""
        self.query_one(Picker).offer(
            [Choice(str(n.number), ((f"   {shown(n.place.name)}", ""),)) for n in self._lives]
        )

    def action_open(self) -> None:
        """The queue under the cursor."""
        self.go(Target(keys.LIST, place=int(self.query_one(Picker).key)))

    def action_unlock(self) -> None:
        """Who has its lock."""
        self.go(Target(keys.LOCK, place=int(self.query_one(Picker).key)))
