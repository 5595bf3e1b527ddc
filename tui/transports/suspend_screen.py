"""Screen to suspend or resume a transport: effect on mail, reason, confirmation."""

from __future__ import annotations

import shlex

from textual import work

from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.format import keys
from tui.format.present import BLANK_LINE, Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place import PlaceMail
from tui.session.place_session import PlaceSession
from tui.transports import suspend_lines as view
from tui.transports.board import figure_lines
from tui.transports.route_plan import RoutePlan


class SuspendScreen(ConfirmScreen):
    """The plan for one transport as of opening; closes when it is applied."""

    KIND = keys.SUSPEND
    BINDINGS = key_bindings(keys.SUSPEND)
    DIGITS_NAME = "count"

    def __init__(
        self, name: str, live: PlaceSession, desk: PlaceMail, around: ConsoleContext
    ) -> None:
        super().__init__(live, around)
        self._plan = RoutePlan(name, live, desk)
        self._way, self._desk = name, desk
        self._doing = False
        self.outcome = ""
        """Result in words; "" before it was applied."""

    def on_mount(self) -> None:
        """Load the effect; re-check every second whether something changed."""
        self._load_effect()
        self.set_interval(1.0, self._check_outdated)

    @work(exclusive=True, group="plan")
    async def _load_effect(self) -> None:
        await self._plan.load_effect(self._clock())
        self.plan_changed()
        self.lay_out(self.size.width)
        await self._plan.count_waiting()
        self.lay_out(self.size.width)

    def _check_outdated(self) -> None:
        if self._plan.why_outdated() and not self._doing:
            self.lay_out(self.size.width)

    # Painting

    def lay_out(self, width: int) -> None:
        """Paint effect, reason, other transports and the equivalent command."""
        if not self.is_paintable or not width:
            return
        now = self._clock()
        plan = self._plan
        seen = (plan.seen, plan.after, self._desk.uses_transports, plan.waiting)
        width = self.text_width
        text = view.plan_lines(self._way, *seen, now, width)
        if self._plan.is_suspending:
            look = "" if self._reason else "muted"
            text += view.labelled_lines("reason", self.reason_text, look, width)
        twin = safe_line(shlex.join(self._plan.equivalent_command(self._reason)))
        others = view.other_transport_lines(self._way, self._plan.seen, width)
        text += [BLANK_LINE, *others, BLANK_LINE]
        text += view.labelled_lines("cli", twin, "muted", width)
        text += figure_lines(self._live, self._way, now, width)
        self.show((), text, self._prompt_line())
        name = safe_line(self._way)
        self.show_title(((plan.verb, "title"), (f" {name}", "strong")), name)
        arm = {"arm": keys.arm_hint(self._arming.is_armed), "yes": self._plan.verb}
        self.show_hints(self.disabled_actions(), self.without(), arm)

    def _prompt_line(self) -> Line:
        if self._doing:
            return ((" running ...", "strong"),)
        if withdrawn := self._plan.why_outdated():
            return ((f" plan outdated: {safe_line(withdrawn)}; Esc, then S again", "warn"),)
        if settled := self.why_not_applicable():
            return ((f" {safe_line(settled)}", "warn"),)
        return self.confirm_prompt("", f"{self._plan.verb} {safe_line(self._way)}")

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
        if withdrawn := self._plan.why_outdated():
            return f"plan outdated: {withdrawn}; Esc, then S again"
        if self._plan.unknown:
            return f"effect unknown: {self._plan.unknown}"
        if self._plan.after is None:
            return "still checking the routes"
        if self._plan.is_suspending and self._around.require_reason and not self._reason.strip():
            return "reason required: Tab"
        return ""

    # Actions

    def without(self) -> set[str]:
        """Only a suspension has a reason."""
        over = {"reason"} if not self._plan.is_suspending or self._doing else set()
        needs_reason = self.why_not_applicable().startswith("reason required")
        kept = {"arm"} if needs_reason else set()
        return (super().without() - kept) | over

    def action_reason(self) -> None:
        """Prompt for the reason, which all operators see."""
        if self._plan.is_suspending and not self._doing:
            self.ask_reason("reason (visible to all)")

    def apply_plan(self) -> None:
        """Apply it on another thread, because it writes files."""
        self._doing = True
        self._apply()

    @work(group="suspend")
    async def _apply(self) -> None:
        name, reason, desk = self._way, self._reason, self._desk
        stops = self._plan.is_suspending
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
