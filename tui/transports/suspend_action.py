"""Suspend or resume a transport: the routes before and after, and what waits; block, unblock or
probe a destination.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from functools import partial

from engine.destinations.destination import Destination
from engine.destinations.watch import ACTIONS, SeenDestination
from engine.index import filter_language
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import MailRoutes, TransportSuspension
from engine.places.place import PlaceDestinations, PlaceMail
from engine.places.place_watcher import read_destinations
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Fact, Reason
from tui.session.place_session import PlaceSession, seen_destinations
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run
from tui.transports import destination_lines
from tui.transports import suspend_lines as view
from tui.transports.board import figure_lines


def switch_lines(reason: Reason, command: tuple[str, ...], width: int) -> tuple[list[Line], ...]:
    """The reason, and the command line that does the same."""
    style = "" if reason.text else "muted"
    return (
        view.labelled_lines("reason", reason.words, style, width),
        view.labelled_lines("cli", safe_line(shlex.join(command)), "muted", width),
    )


class SuspendAction(Action):
    """The effect of suspending one transport, or of resuming it, on the routes as they were."""

    kind = keys.SUSPEND
    reason_title = "reason (visible to all)"

    def __init__(self, name: str, session: PlaceSession, mail: PlaceMail) -> None:
        assert session.readings.routes is not None
        self._name, self._session, self._mail = name, session, mail
        self._before: MailRoutes = session.readings.routes
        self._after: MailRoutes | None = None
        self._waiting: int | None = None
        """Pending mail tasks; None until counted."""
        self._unknown = ""
        self._suspends = name not in self._before.stopped
        self.hint = "suspend" if self._suspends else "resume"
        self.acts_on = safe_line(name)
        self.title = ((self.hint, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return f"{self.hint} {self.acts_on}"

    @property
    def takes_reason(self) -> bool:
        return self._suspends

    def facts(self) -> tuple[Fact, ...]:
        routes = self._session.readings.routes
        if routes is None or routes.unknown:
            return (Fact(None, f"transports unknown: {routes.unknown if routes else 'no data'}"),)
        usable = (routes.selected, routes.stopped, set(routes.why_not))
        return (Fact(usable, "the transports changed"),)

    def refusal(self) -> str:
        (transports,) = self.facts()
        if transports.value is None:
            return transports.change
        if self._unknown:
            return f"effect unknown: {self._unknown}"
        return "still checking the routes" if self._after is None else ""

    async def load(self) -> AsyncIterator[None]:
        """Find the routes after it, on a thread; then count the mail that waits."""
        stop = TransportSuspension(self._name, self._session.clock(), self._session.place.who.name)
        then = view.stopped_after(self._before, self._name, stop if self.takes_reason else None)
        try:
            self._after = await asyncio.to_thread(self._mail.routes, then)
        except Unavailable as error:
            self._unknown = str(error)
        yield
        if self._mail.uses_transports:
            query = Query(State.PENDING, filter_language.parse_filter("kind=mail_send"))
            try:
                self._waiting = await self._session.inspector.queries.count(query)
            except Unavailable:
                return  # the number of waiting tasks is optional
            yield

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        effect_lines = view.plan_lines(
            self._name,
            self._before,
            self._after,
            delivers=self._mail.uses_transports,
            waiting=self._waiting,
            now=now,
            width=width,
        )
        words = (reason.text,) if reason.text and self.takes_reason else ()
        command = (*self._session.place.command, "mail", self.hint, self._name, *words)
        reason_lines, command_lines = switch_lines(reason, command, width)
        return [
            *effect_lines,
            *(reason_lines if self.takes_reason else []),
            BLANK_LINE,
            *view.other_transport_lines(self._name, self._before, width),
            BLANK_LINE,
            *command_lines,
            *figure_lines(self._session, self._name, now, width),
        ]

    async def apply(self, reason: str) -> Run:
        name, mail = self._name, self._mail
        act = partial(mail.suspend, name, reason) if self._suspends else partial(mail.resume, name)
        trouble = await self._session.change_routes(act)
        done = view.describe_result(name, self._session.readings.routes, mail.uses_transports)
        return done + (f"; {trouble}" if trouble else ""), "ok"


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
        text = destination_lines.plan_lines(self._action, self._planned, width)
        text += [*reason_lines, BLANK_LINE, *command_lines]
        if (current := self._now()) is not None:
            unknown = self._place_destinations.tasks_unknown
            text += [BLANK_LINE, *destination_lines.detail_lines(current, unknown, now, width)]
        return text

    async def apply(self, reason: str) -> Run:
        session, change = self._session, self._place_destinations.change
        trouble = await asyncio.to_thread(partial(change, self.hint, self._planned, reason))
        registry = await asyncio.to_thread(read_destinations, session.place)
        session.note_destinations(registry)
        session.readings = session.readings._replace(destinations=registry)
        session.evaluate_alerts()
        done = destination_lines.describe_result(self._action, self._name)
        return done + (f"; {trouble}" if trouble else ""), "ok"
