"""Block, unblock or probe a destination."""

from __future__ import annotations

import asyncio
from functools import partial

from engine.destinations.destination import Destination
from engine.destinations.watch import ACTIONS, SeenDestination
from engine.places.place import PlaceDestinations
from engine.places.place_watcher import read_destinations
from engine.text.safe import safe_line
from tui.confirm.action import Action, Fact, Reason
from tui.session.place_session import PlaceSession, seen_destinations
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run
from tui.transports import destination_lines as view
from tui.transports.suspend_action import switch_lines


class DestinationAction(Action):
    """A change of one destination as it was seen when the screen was opened."""

    kind = keys.SUSPEND
    reason_title = "reason (visible to all)"

    def __init__(
        self, name: str, verb: str, session: PlaceSession, place_destinations: PlaceDestinations
    ) -> None:
        """Without a verb it blocks, or unblocks what is blocked."""
        self._name, self._session, self._place_destinations = name, session, place_destinations
        current = self._now()
        self._planned = Destination(name) if current is None else current.destination
        self._action = ACTIONS[verb or ("unblock" if self._planned.blocked else "block")]
        self.hint, self.acts_on = self._action.verb, safe_line(name)
        self.title = ((self.hint, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return f"{self.hint} {self.acts_on}"

    @property
    def takes_reason(self) -> bool:
        return True

    def _now(self) -> SeenDestination | None:
        seen = seen_destinations(self._session)
        return next((one for one in seen if one.destination.origin == self._name), None)

    def facts(self) -> tuple[Fact, ...]:
        current = self._now()
        known = Destination(self._name) if current is None else current.destination
        fact = self._action.fact(known)
        return (Fact(fact, f"the destination changed: {fact}"),)

    def refusal(self) -> str:
        unknown = self._session.readings.destinations.unknown
        return f"effect unknown: {unknown}" if unknown else ""

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        words = ("--reason", reason.text) if reason.text else ()
        command = self._session.place.command
        command = (*command, "destinations", self.hint, self._name, *words, "--apply", "1")
        reason_lines, command_lines = switch_lines(reason, command, width)
        text = view.plan_lines(self._action, self._planned, width)
        text += [*reason_lines, BLANK_LINE, *command_lines]
        if (current := self._now()) is not None:
            unknown = self._place_destinations.tasks_unknown
            text += [BLANK_LINE, *view.detail_lines(current, unknown, now, width)]
        return text

    async def apply(self, reason: str) -> Run:
        session, change = self._session, self._place_destinations.change
        trouble = await asyncio.to_thread(partial(change, self.hint, self._planned, reason))
        registry = await asyncio.to_thread(read_destinations, session.place)
        session.note_destinations(registry)
        session.readings = session.readings._replace(destinations=registry)
        session.evaluate_alerts()
        done = view.describe_result(self._action, self._name)
        return done + (f"; {trouble}" if trouble else ""), "ok"
