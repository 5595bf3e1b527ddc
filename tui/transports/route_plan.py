"""The plan to suspend or resume a transport: the routes before and after, and what waits."""

from __future__ import annotations

import asyncio

from engine.index import filter_language
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import MailRoutes, TransportSuspension
from engine.store import Unavailable
from tui.session.place import PlaceMail
from tui.session.place_session import PlaceSession
from tui.text.lines import BLANK_LINE, Line
from tui.transports import suspend_lines as view
from tui.transports.board import figure_lines


class RoutePlan:
    """The effect of suspending one transport, or of resuming it, on the routes as they were."""

    def __init__(self, name: str, session: PlaceSession, mail: PlaceMail) -> None:
        assert session.readings.routes is not None
        self.name, self._session, self._mail = name, session, mail
        self.before: MailRoutes = session.readings.routes
        """The routes when the plan was made."""
        self.after: MailRoutes | None = None
        """The routes after it; None until they are known."""
        self.waiting: int | None = None
        """Pending mail tasks; None until counted."""
        self.unknown = ""
        """Why the effect is not known; "" if it is, or while it is loading."""

    @property
    def takes_reason(self) -> bool:
        """True to suspend, False to resume."""
        return self.name not in self.before.stopped

    @property
    def verb(self) -> str:
        """The verb of the plan and of its command."""
        return "suspend" if self.takes_reason else "resume"

    @property
    def why_loading(self) -> str:
        """What is still being read; "" if nothing that the plan needs."""
        return "still checking the routes" if self.after is None else ""

    async def load_effect(self, now: float) -> None:
        """Find the routes after the plan, on a thread."""
        stop = TransportSuspension(self.name, now, self._session.place.who.name)
        then = view.stopped_after(self.before, self.name, stop if self.takes_reason else None)
        try:
            self.after = await asyncio.to_thread(self._mail.routes, then)
        except Unavailable as error:
            self.unknown = str(error)

    async def count_waiting(self) -> None:
        """Count the pending mail tasks, if they use these transports."""
        if not self._mail.uses_transports:
            return
        query = Query(State.PENDING, filter_language.parse_filter("kind=mail_send"))
        try:
            self.waiting = await self._session.inspector.queries.count(query)
        except Unavailable:
            return  # the number of waiting tasks is optional

    def why_outdated(self) -> str:
        """Why the plan is outdated; "" if it is not."""
        planned, now = self.before, self._session.readings.routes
        if now is None or now.unknown:
            return f"transports unknown: {now.unknown if now else 'no data'}"
        before, after = ((r.selected, r.stopped, set(r.why_not)) for r in (planned, now))
        return "" if before == after else "the transports changed"

    def equivalent_command(self, reason: str) -> tuple[str, ...]:
        """The command line that does the same."""
        words = (reason,) if reason and self.takes_reason else ()
        return (*self._session.place.command, "mail", self.verb, self.name, *words)

    def effect_lines(self, now: float, width: int) -> list[Line]:
        """What it changes for mail."""
        return view.plan_lines(
            self.name,
            self.before,
            self.after,
            delivers=self._mail.uses_transports,
            waiting=self.waiting,
            now=now,
            width=width,
        )

    def fact_lines(self, width: int) -> list[Line]:
        """The other transports."""
        return [*view.other_transport_lines(self.name, self.before, width), BLANK_LINE]

    def figure_lines(self, now: float, width: int) -> list[Line]:
        """The figures of the transport."""
        return figure_lines(self._session, self.name, now, width)

    async def apply(self, reason: str) -> str:
        """Apply it; return the result in words.

        Raises:
            Unavailable: it cannot be applied.
        """
        name, mail = self.name, self._mail
        stops = self.takes_reason
        trouble = await self._session.change_routes(
            (lambda: mail.suspend(name, reason)) if stops else (lambda: mail.resume(name))
        )
        done = view.describe_result(name, self._session.readings.routes, mail.uses_transports)
        return done + (f"; {trouble}" if trouble else "")
