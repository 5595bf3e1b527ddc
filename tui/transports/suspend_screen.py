"""Screen to suspend or resume a transport: effect on mail, reason, confirmation."""

from __future__ import annotations

import asyncio
import shlex

from textual import work

from engine.index import filter_language
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import MailRoutes, TransportSuspension
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.format import keys, present
from tui.format.present import BLANK_LINE, Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place import PlaceMail
from tui.session.place_session import PlaceSession
from tui.transports import suspend_lines as view


class SuspendScreen(ConfirmScreen):
    """The plan for one transport as of opening; closes when it is applied."""

    KIND = keys.SUSPEND
    BINDINGS = key_bindings(keys.SUSPEND)
    DIGITS_NAME = "count"

    def __init__(
        self, name: str, live: PlaceSession, desk: PlaceMail, around: ConsoleContext
    ) -> None:
        super().__init__(live, around)
        assert live.readings.routes is not None
        self._way, self._desk = name, desk
        self._seen: MailRoutes = live.readings.routes
        self._after: MailRoutes | None = None
        self._waiting: int | None = None
        self._unknown = ""
        self._doing = False
        self.outcome = ""
        """Result in words; "" before it was applied."""

    @property
    def _is_suspending(self) -> bool:
        """True to suspend, False to resume."""
        return self._way not in self._seen.stopped

    @property
    def _verb(self) -> str:
        return "suspend" if self._is_suspending else "resume"

    def on_mount(self) -> None:
        """Load the effect; re-check every second whether something changed."""
        self._load_effect()
        self.set_interval(1.0, self._check_outdated)

    @work(exclusive=True, group="plan")
    async def _load_effect(self) -> None:
        stop = TransportSuspension(self._way, self._clock(), self._live.place.who.name)
        then = view.stopped_after(self._seen, self._way, stop if self._is_suspending else None)
        try:
            self._after = await asyncio.to_thread(self._desk.routes, then)
        except Unavailable as error:
            self._unknown = str(error)
        self.plan_changed()
        self.lay_out(self.size.width)
        if not self._desk.uses_transports:
            return
        query = Query(State.PENDING, filter_language.parse_filter("kind=mail_send"))
        try:
            self._waiting = await self._live.inspector.queries.count(query)
        except Unavailable:
            return  # the number of waiting tasks is optional
        self.lay_out(self.size.width)

    def _check_outdated(self) -> None:
        if self._why_outdated() and not self._doing:
            self.lay_out(self.size.width)

    def _why_outdated(self) -> str:
        """Why the plan is outdated; "" if it is not."""
        seen, now = self._seen, self._live.readings.routes
        if now is None or now.unknown:
            return f"transports unknown: {now.unknown if now else 'no data'}"
        if (seen.selected, seen.stopped, set(seen.why_not)) != (
            *(now.selected, now.stopped, set(now.why_not)),
        ):
            return "the transports changed"
        return ""

    # Painting

    def lay_out(self, width: int) -> None:
        """Paint effect, reason, other transports and the equivalent command."""
        if not self.is_paintable or not width:
            return
        now, width = self._clock(), self.text_width
        seen = (self._seen, self._after, self._desk.uses_transports, self._waiting)
        text = view.plan_lines(self._way, *seen, now, width)
        rows = [("reason", self.reason_text)] if self._is_suspending else []
        rows.append(("cli", safe_line(shlex.join(self._equivalent_command()))))
        text += [BLANK_LINE, *present.fact_lines(rows, width), BLANK_LINE]
        text += view.other_transport_lines(self._way, self._seen, width)
        self.show((), text, self._prompt_line())
        name = safe_line(self._way)
        self.show_title(((self._verb, "title"), (f" {name}", "strong")), name)
        arm = {"arm": keys.arm_hint(self._arming.is_armed), "yes": self._verb}
        self.show_hints(self.disabled_actions(), self.without(), arm)

    def _equivalent_command(self) -> tuple[str, ...]:
        reason = (self._reason,) if self._reason and self._is_suspending else ()
        return (*self._live.place.command, "mail", self._verb, self._way, *reason)

    def _prompt_line(self) -> Line:
        if self._doing:
            return ((" running ...", "strong"),)
        if withdrawn := self._why_outdated():
            return ((f" plan outdated: {safe_line(withdrawn)}; Esc, then S again", "warn"),)
        if settled := self.why_not_applicable():
            return ((f" {safe_line(settled)}", "warn"),)
        return self.confirm_prompt("", f"{self._verb} {safe_line(self._way)}")

    @property
    def expected_digits(self) -> str:
        """It can be undone, so `y` is enough."""
        return ""

    def why_not_applicable(self) -> str:
        """Why it cannot be applied: running, outdated, still loading, or without a required
        reason.
        """
        if self._doing:
            return "already running"
        if withdrawn := self._why_outdated():
            return f"plan outdated: {withdrawn}; Esc, then S again"
        if self._unknown:
            return f"effect unknown: {self._unknown}"
        if self._after is None:
            return "still checking the routes"
        if self._is_suspending and self._around.require_reason and not self._reason.strip():
            return "reason required: Tab"
        return ""

    # Actions

    def without(self) -> set[str]:
        """Only a suspension has a reason."""
        over = {"reason"} if not self._is_suspending or self._doing else set()
        kept = {"arm"} if self._needs_reason else set()
        return (super().without() - kept) | over

    @property
    def _needs_reason(self) -> bool:
        return self.why_not_applicable().startswith("reason required")

    def action_reason(self) -> None:
        """Prompt for the reason, which all operators see."""
        if self._is_suspending and not self._doing:
            self.ask_reason("reason (visible to all)")

    def apply_plan(self) -> None:
        """Apply it on another thread, because it writes files."""
        self._doing = True
        self._apply()

    @work(group="suspend")
    async def _apply(self) -> None:
        name, reason, desk = self._way, self._reason, self._desk
        stops = self._is_suspending
        try:
            trouble = await self._live.change_routes(
                (lambda: desk.suspend(name, reason)) if stops else (lambda: desk.resume(name))
            )
        except Unavailable as error:
            self._doing = False
            self.lay_out(self.size.width)
            self.say(f"not done: {error}")
            return
        done = view.describe_result(name, self._live.readings.routes, desk.uses_transports)
        self.outcome = done + (f"; {trouble}" if trouble else "")
        self.dismiss()
