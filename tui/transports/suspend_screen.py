"""Screen to suspend or resume a transport, or to block, unblock or probe a destination: effect,
reason, confirmation."""

from __future__ import annotations

import shlex
from typing import Protocol

from textual import work

from engine.store import StoreError
from engine.text.safe import safe_line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line
from tui.transports.suspend_lines import labelled_lines


class SwitchPlan(Protocol):
    """A plan for one transport or destination, as of opening."""

    name: str

    @property
    def unknown(self) -> str:
        """Why the effect is not known; "" if it is, or while it is loading."""
        ...

    @property
    def takes_reason(self) -> bool:
        """True if a reason can be given, which all operators see."""
        ...

    @property
    def verb(self) -> str:
        """The verb of the plan and of its command."""
        ...

    @property
    def why_loading(self) -> str:
        """What is still being read; "" if nothing that the plan needs."""
        ...

    async def load_effect(self, now: float) -> None:
        """Find the effect; `now` in epoch seconds UTC."""
        ...

    async def count_waiting(self) -> None:
        """Count what waits; that is optional."""
        ...

    def why_outdated(self) -> str:
        """Why the plan is outdated; "" if it is not."""
        ...

    def equivalent_command(self, reason: str) -> tuple[str, ...]:
        """The command line that does the same."""
        ...

    def effect_lines(self, now: float, width: int) -> list[Line]:
        """What it changes."""
        ...

    def fact_lines(self, width: int) -> list[Line]:
        """More facts, before the command."""
        ...

    def figure_lines(self, now: float, width: int) -> list[Line]:
        """The figures, at the end."""
        ...

    async def apply(self, reason: str) -> str:
        """Apply it; return the result in words, or raise StoreError."""
        ...


class SuspendScreen(ConfirmScreen):
    """The plan as of opening; closes when it is applied."""

    KIND = keys.SUSPEND
    BINDINGS = key_bindings(keys.SUSPEND)
    DIGITS_NAME = "count"

    def __init__(self, plan: SwitchPlan, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__(session, context)
        self._plan = plan
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
        """Paint effect, reason, other facts and the equivalent command."""
        if not self.is_paintable or not width:
            return
        now = self._clock()
        plan = self._plan
        width = self.text_width
        text = plan.effect_lines(now, width)
        if plan.takes_reason:
            style = "" if self._reason else "muted"
            text += labelled_lines("reason", self.reason_text, style, width)
        equivalent = safe_line(shlex.join(plan.equivalent_command(self._reason)))
        text += [BLANK_LINE, *plan.fact_lines(width)]
        text += labelled_lines("cli", equivalent, "muted", width)
        text += plan.figure_lines(now, width)
        self.show((), text, self._prompt_line())
        name = safe_line(plan.name)
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
        return self.confirm_prompt("", f"{self._plan.verb} {safe_line(self._plan.name)}")

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
        if loading := self._plan.why_loading:
            return loading
        if (
            self._plan.takes_reason
            and self._console_context.require_reason
            and not self._reason.strip()
        ):
            return "reason required: Tab"
        return ""

    # Actions

    def without(self) -> set[str]:
        """Not every plan has a reason."""
        over = {"reason"} if not self._plan.takes_reason or self._doing else set()
        needs_reason = self.why_not_applicable().startswith("reason required")
        allowed = {"arm"} if needs_reason else set()
        return (super().without() - allowed) | over

    def action_reason(self) -> None:
        """Prompt for the reason, which all operators see."""
        if self._plan.takes_reason and not self._doing:
            self.ask_reason("reason (visible to all)")

    def apply_plan(self) -> None:
        """Apply it on another thread, because it writes files."""
        self._doing = True
        self._apply()

    @work(group="suspend")
    async def _apply(self) -> None:
        try:
            self.outcome = await self._plan.apply(self._reason)
        except StoreError as error:
            self._doing = False
            self.lay_out(self.size.width)
            self.say(f"not done: {error}")
            return
        self.dismiss()
