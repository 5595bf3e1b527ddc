"""The plan to block, unblock or probe a destination."""

from __future__ import annotations

import asyncio

from engine.destinations.destination import Destination
from engine.destinations.watch import ACTIONS, SeenDestination
from tui.format.present import Line
from tui.session.place import PlaceDestinations
from tui.session.place_session import PlaceSession, seen_destinations
from tui.session.place_watcher import read_destinations
from tui.transports import destination_lines as view


class DestinationPlan:
    """A change of one destination as it was seen when the plan was made."""

    def __init__(self, name: str, verb: str, live: PlaceSession, desk: PlaceDestinations) -> None:
        """Without a verb it blocks, or unblocks what is blocked."""
        self.name, self._session, self._desk = name, live, desk
        seen = self._now()
        self._seen = Destination(name) if seen is None else seen.destination
        self._action = ACTIONS[verb or ("unblock" if self._seen.blocked else "block")]

    def _now(self) -> SeenDestination | None:
        return next(
            (o for o in seen_destinations(self._session) if o.destination.origin == self.name), None
        )

    @property
    def verb(self) -> str:
        """See `SwitchPlan`."""
        return self._action.verb

    @property
    def takes_reason(self) -> bool:
        """See `SwitchPlan`."""
        return True

    @property
    def why_loading(self) -> str:
        """See `SwitchPlan`."""
        return ""

    @property
    def unknown(self) -> str:
        """Why the registry cannot be read; "" if it can."""
        return self._session.readings.destinations.unknown

    async def load_effect(self, now: float) -> None:
        """Nothing: it is known."""

    async def count_waiting(self) -> None:
        """Nothing: the session counts."""

    def why_outdated(self) -> str:
        """See `SwitchPlan`."""
        seen = self._now()
        now = Destination(self.name) if seen is None else seen.destination
        if self._action.fact(now) != self._action.fact(self._seen):
            return f"the destination changed: {self._action.fact(now)}"
        return ""

    def equivalent_command(self, reason: str) -> tuple[str, ...]:
        """See `SwitchPlan`."""
        words = ("--reason", reason) if reason else ()
        command = self._session.place.command
        return (*command, "destinations", self.verb, self.name, *words, "--apply", "1")

    def effect_lines(self, now: float, width: int) -> list[Line]:
        """See `SwitchPlan`."""
        return view.plan_lines(self._action, self._seen, width)

    def fact_lines(self, width: int) -> list[Line]:
        """None."""
        return []

    def figure_lines(self, now: float, width: int) -> list[Line]:
        """The destination and its tasks."""
        seen = self._now()
        if seen is None:
            return []
        return [(), *view.detail_lines(seen, self._desk.tasks_unknown, now, width)]

    async def apply(self, reason: str) -> str:
        """Apply it; return the result in words.

        Raises:
            StoreError: it cannot be applied, or others have changed the destination.
        """
        live, desk, verb, seen = self._session, self._desk, self.verb, self._seen

        def act() -> str:
            return desk.change(verb, seen, reason)

        trouble = await asyncio.to_thread(act)
        found = await asyncio.to_thread(read_destinations, live.place)
        live.note_destinations(found)
        live.readings = live.readings._replace(destinations=found)
        live.evaluate_alerts()
        return view.describe_result(self._action, self.name) + (f"; {trouble}" if trouble else "")
