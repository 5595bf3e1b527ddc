"""The plan to block, unblock or probe a destination."""

from __future__ import annotations

import asyncio

from engine.destinations.destination import Destination
from engine.destinations.watch import ACTIONS, SeenDestination
from tui.session.place import PlaceDestinations
from tui.session.place_session import PlaceSession, seen_destinations
from tui.session.place_watcher import read_destinations
from tui.text.lines import Line
from tui.transports import destination_lines as view


class DestinationPlan:
    """A change of one destination as it was seen when the plan was made."""

    def __init__(
        self, name: str, verb: str, session: PlaceSession, place_destinations: PlaceDestinations
    ) -> None:
        """Without a verb it blocks, or unblocks what is blocked."""
        self.name, self._session, self._place_destinations = name, session, place_destinations
        current = self._now()
        self._planned = Destination(name) if current is None else current.destination
        self._action = ACTIONS[verb or ("unblock" if self._planned.blocked else "block")]

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
        current = self._now()
        now = Destination(self.name) if current is None else current.destination
        if self._action.fact(now) != self._action.fact(self._planned):
            return f"the destination changed: {self._action.fact(now)}"
        return ""

    def equivalent_command(self, reason: str) -> tuple[str, ...]:
        """See `SwitchPlan`."""
        words = ("--reason", reason) if reason else ()
        command = self._session.place.command
        return (*command, "destinations", self.verb, self.name, *words, "--apply", "1")

    def effect_lines(self, now: float, width: int) -> list[Line]:
        """See `SwitchPlan`."""
        return view.plan_lines(self._action, self._planned, width)

    def fact_lines(self, width: int) -> list[Line]:
        """None."""
        return []

    def figure_lines(self, now: float, width: int) -> list[Line]:
        """The destination and its tasks."""
        current = self._now()
        if current is None:
            return []
        return [(), *view.detail_lines(current, self._place_destinations.tasks_unknown, now, width)]

    async def apply(self, reason: str) -> str:
        """Apply it; return the result in words.

        Raises:
            StoreError: it cannot be applied, or others have changed the destination.
        """
        session, place_destinations, verb, planned = (
            self._session,
            self._place_destinations,
            self.verb,
            self._planned,
        )

        def act() -> str:
            return place_destinations.change(verb, planned, reason)

        trouble = await asyncio.to_thread(act)
        registry = await asyncio.to_thread(read_destinations, session.place)
        session.note_destinations(registry)
        session.readings = session.readings._replace(destinations=registry)
        session.evaluate_alerts()
        return view.describe_result(self._action, self.name) + (f"; {trouble}" if trouble else "")
