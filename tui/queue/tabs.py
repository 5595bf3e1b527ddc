"""The tabs of the queue screen: one for each state, and one for the problems."""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.model import State
from tui.text.task_list import TIME_COLUMNS
from tui.widgets.list_view import CursorPosition

USUAL_ORDER = ("id", False)


class Tabs:
    """Which tab is open; the order and the last cursor position of each."""

    def __init__(self, states: Callable[[], Collection[State]]) -> None:
        """`states`: those of the store; none before it is open."""
        self._states = states
        self.number = 0
        """Number of the open tab, from 0."""
        self._positions: dict[int, CursorPosition] = {}
        self._orders: dict[State, tuple[str, bool]] = {}

    @property
    def all(self) -> list[State | None]:
        """The states, and None for the problems after them; none before the store is open."""
        states = self._states()
        return [*states, None] if states else []

    @property
    def state(self) -> State | None:
        """The state of the open tab; None on the problems and before the store is open."""
        tabs = self.all
        return tabs[self.number] if tabs else None

    @property
    def on_problems(self) -> bool:
        """True on the tab of the problems."""
        return bool(self.all) and self.state is None

    @property
    def order(self) -> tuple[str, bool]:
        """Order of this tab: column of the index, and True for descending."""
        return self._orders.get(self.state, USUAL_ORDER) if self.state else USUAL_ORDER

    def neighbour(self, step: int) -> int:
        """The number of the tab beside the open one, around the ends."""
        return (self.number + step) % len(self.all)

    def open(self, number: int, leaving: CursorPosition) -> CursorPosition:
        """Open a tab; returns where its cursor was. `leaving`: the cursor in the one before."""
        self._positions[self.number] = leaving
        self.number = number
        return self._positions.get(number, CursorPosition())

    def sort(self, order: str, *, reverses: bool) -> None:
        """Order this tab; by the column that it has already: `reverses` the order."""
        if self.state is not None:
            now, falling = self.order
            self._orders[self.state] = (order, reverses and order == now and not falling)


def order_choices(state: State) -> dict[str, tuple[str, str]]:
    """Columns to order a tab by: letter -> name and order in the index."""
    _, _, when = TIME_COLUMNS.get(state, ("", None, ""))
    times = {"w": ({"due": "due", "since": "time in work", "died": "time of death"}, when)}
    named = {key: (names[order], order) for key, (names, order) in times.items() if order}
    return {
        "i": ("id", "id"),
        "k": ("kind", "kind"),
        "a": ("age", "created"),
        "t": ("tries", "attempts"),
        **named,
        "e": ("error", "error"),
        "d": ("description", "description"),
        "m": ("destination", "destination"),
        "f": ("sender", "sender"),
    }
