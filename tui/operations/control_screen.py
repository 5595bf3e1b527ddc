"""Screen of one control of a queue: preview, value, reason, confirmation."""

from __future__ import annotations

import shlex

from textual import work

from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import Order
from engine.operations.journal import Intent
from engine.store import Control, Outlook, StoreError
from engine.text.safe import safe_line
from tui.operations import control_lines as view
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.refusals import control_refusal
from tui.screens.base import PASTED, BaseScreen, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, fact_lines, part_line

CONTROL_KEYS = frozenset({"pause_queue"})
"""Actions of other screens that open a plan for a control."""


def show_control_plan(
    screen: BaseScreen, session: PlaceSession, context: ConsoleContext, name: str, target: str = ""
) -> None:
    """Open the plan for a control, or show why it is not possible."""
    why = PASTED if screen.hasty else control_refusal(session, context, name, target)
    if why:
        screen.say(why)
        return
    plan_screen = ControlScreen(name, session, context, target)

    def back(_: None) -> None:
        if plan_screen.outcome:
            screen.say(plan_screen.outcome, "ok")

    screen.app.push_screen(plan_screen, back)


def _order_for(control: Control, name: str, target: str) -> tuple[Control, Order]:
    """A control as it is for a target, and the order to suggest."""
    target_control = control.for_target(target)
    return target_control, Order(
        name, target, controls.suggested_value(target_control), before=target_control.now
    )


class ControlScreen(ConfirmScreen):
    """Plan of a control as of opening, then its result."""

    KIND = keys.CONTROL
    BINDINGS = key_bindings(keys.CONTROL)
    DIGITS_NAME = "count"

    def __init__(
        self, name: str, session: PlaceSession, context: ConsoleContext, target: str = ""
    ) -> None:
        """Without a target, the operator types one if the control has several."""
        super().__init__(session, context)
        self._control: Control = session.inspector.controls[name]
        known = [one.name for one in self._control.targets]
        target = target or (known[0] if len(known) == 1 else "")
        self._target_control, self._order = _order_for(self._control, name, target)
        self._asks_target = bool(self._target_control.target) and not target
        self._foretold: Outlook | None = None
        self._unknown = self._trouble = ""
        self._problems: tuple[Problem, ...] = ()
        self._doing = False
        self._answer: tuple[str, ...] = ()
        self.outcome = ""
        """Result in one line; "" before it ran."""

    def on_mount(self) -> None:
        """Read problems and preview; re-check every second whether the control changed."""
        self._load_preview()
        self.set_interval(1.0, self._check_outdated)
        if self._asks_target or (self._needs_value and not self._order.value):
            self.action_fill()

    @property
    def _needs_value(self) -> bool:
        """True if the operator types a value."""
        return bool(self._target_control.value) and not self._target_control.choices

    @work(exclusive=True, group="plan")
    async def _load_preview(self) -> None:
        inspector, order = self._session.inspector, self._order
        self._foretold, self._unknown = None, ""
        try:
            if self._asks_target:
                self._problems = await inspector.queries.problems()
            if self._target_control.has_forecast and not controls.order_problem(
                self._target_control, order
            ):
                self._foretold = await inspector.actions.forecast_control(order)
        except StoreError as error:
            self._unknown = str(error)
        self.plan_changed()
        self.lay_out(self.size.width)

    def _check_outdated(self) -> None:
        if self._why_outdated() and not (self._doing or self._answer):
            self.lay_out(self.size.width)

    def _why_outdated(self) -> str:
        """Why the plan is outdated; "" if it is not."""
        now = self._session.inspector.controls.get(self._order.name)
        now = None if now is None else now.for_target(self._order.target)
        if now is None or (now.targets and self._order.target):
            return "the control no longer exists"
        if now.refusal:
            return now.refusal
        planned = self._target_control._replace(targets=())
        return (
            "" if now._replace(targets=()) == planned else f"changed to: {now.now or now.summary}"
        )

    # Painting

    def lay_out(self, width: int) -> None:
        """Paint preview or result, the reason, and the equivalent command."""
        if not self.is_paintable or not width:
            return
        width = self.text_width
        text = self._result_lines(width) if self._answer else self._plan_lines(width)
        self.show((), text, self._prompt_line())
        name = safe_line(self._order.name)
        self.show_title((("control", "title"), (f" {name}", "strong")), name)
        words = {"arm": keys.arm_hint(self._arming.is_armed), "yes": "apply"}
        self.show_hints(self.disabled_actions(), self.without(), words)

    def _plan_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        if self._trouble:
            lines += [part_line("not done (from the queue)")]
            lines += [*view.store_text_lines(self._trouble, width, "error"), BLANK_LINE]
        foretold = None if self._foretold is None else self._foretold.words
        lines += view.preview_lines(self._order, self._target_control, foretold, width)
        if self._asks_target:
            lines += view.target_lines(self._control, self._problems, width)
        rows = [("reason", self.reason_text)]
        # Incomplete input gives no valid command.
        if not controls.order_problem(self._target_control, self._order) and self._count:
            rows.append(("cli", safe_line(shlex.join(self._equivalent_command()))))
        return [*lines, BLANK_LINE, *fact_lines(rows, width, 8)]

    def _result_lines(self, width: int) -> list[Line]:
        answer, trouble = self._answer
        lines: list[Line] = [part_line("result (from the queue)")]
        lines += view.store_text_lines(answer, width)
        if trouble:
            lines += [
                BLANK_LINE,
                *view.store_text_lines(f"not recorded: {trouble}", width, "warn"),
            ]
        return lines

    def _equivalent_command(self) -> tuple[str, ...]:
        target, value = self._order.target, self._order.value
        words = [*self._session.place.command, "control", self._order.name]
        words += ["--target", target] if target else []
        words += ["--value", value] if value else []
        words += ["--reason", self._reason] if self._reason else []
        return (*words, "--apply", str(self._count))

    def _prompt_line(self) -> Line:
        if self._doing:
            return ((" running ...", "strong"),)
        if self._answer:
            return ((" done: Esc closes", "ok"),)
        if settled := self.why_not_applicable():
            return ((f" {safe_line(settled)}", "warn"),)
        name = safe_line(self._order.name)
        return self.confirm_prompt(f"type {self.expected_digits} to apply {name}", f"apply {name}")

    @property
    def _count(self) -> int:
        """Number of affected items, as far as the store has reported it."""
        return controls.confirmation_count(self._target_control, self._foretold or Outlook(""))

    @property
    def expected_digits(self) -> str:
        """The count for a control that cannot be undone."""
        return "" if controls.is_reversible(self._target_control) else str(self._count)

    def why_not_applicable(self) -> str:
        """Why there is nothing to apply: done, outdated, or incomplete."""
        if self._doing:
            return "already running"
        if self._answer:
            return "already done: Esc closes"
        if withdrawn := self._why_outdated():
            return f"plan outdated: {withdrawn}; Esc, then open again"
        if wrong := controls.order_problem(self._target_control, self._order):
            return f"{wrong}: Enter"
        if self._unknown:
            return f"effect unknown: {self._unknown}"
        if self._target_control.has_forecast and self._foretold is None:
            return "still loading the effect"
        if not self._count:
            return "nothing to do: no effect"
        if self._console_context.require_reason and not self._reason.strip():
            return "reason required: Tab"
        return ""

    # Keys

    def without(self) -> set[str]:
        """Keys without a function for this control; after it ran, all that change it."""
        over = {"reason", "fill", "switch"} if self._doing or self._answer else set()
        missing = set() if self._asks_target or self._needs_value else {"fill"}
        fixed = set() if len(self._target_control.choices) > 1 else {"switch"}
        allowed = set() if self._doing or self._answer else {"arm"}
        return (super().without() - allowed) | over | missing | fixed

    def action_switch(self) -> None:
        """Choose the next value."""
        values = [value for value, _ in self._target_control.choices]
        if "switch" in self.without():
            return
        value = self._order.value
        at = values.index(value) + 1 if value in values else 0
        self._change(self._order._replace(value=values[at % len(values)]))

    def action_fill(self) -> None:
        """Prompt for the target, then for the value."""
        if self._doing or self._answer:
            return
        if self._asks_target:
            first = self._problems[0].where if self._problems else ""
            first = self._control.targets[0].name if self._control.targets else first
            order = self._order
            self._prompt_for_value(self._target_control.target, order.target or first, "target")
        elif self._needs_value:
            self._prompt_for_value(
                self._target_control.value, self._order.value or self._target_control.now, "value"
            )

    def _prompt_for_value(self, title: str, text: str, field: str) -> None:
        def wrong(answer: str) -> str:
            if field == "target":
                if not self._control.targets:
                    return ""  # only the store can check it
                return controls.target_problem(self._control, self._order.name, answer.strip())
            order = self._order._replace(value=answer.strip())
            return controls.order_problem(self._target_control, order)

        def take(answer: str | None) -> None:
            text, order = (answer or "").strip(), self._order
            if text and field == "target":
                self._target_control, suggested = _order_for(self._control, order.name, text)
                self._change(suggested if self._control.targets else order._replace(target=text))
            elif text:
                self._change(order._replace(value=text))
            if answer and field == "target" and self._needs_value:
                self._prompt_for_value(
                    self._target_control.value,
                    self._order.value or self._target_control.now,
                    "value",
                )

        self.app.push_screen(AskScreen(title, text, wrong), take)

    def _change(self, order: Order) -> None:
        self._order = order
        self._trouble = ""
        self.plan_changed()
        self._load_preview()
        self.lay_out(self.size.width)

    def action_reason(self) -> None:
        """Prompt for the reason that the journal records."""
        if not self._doing and not self._answer:
            self.ask_reason("reason (journal)")

    def apply_plan(self) -> None:
        """Run the control on another thread."""
        self._doing = True
        self._run_control()

    @work(group="control")
    async def _run_control(self) -> None:
        who, order = self._session.place.who, self._order._replace(amount=self._count)
        intent = Intent(controls.CONTROL_VERB, who, self._reason, scope="the whole queue")
        try:
            done = await self._session.inspector.actions.run_control(order, intent)
        except StoreError as error:
            self._doing, self._trouble = False, str(error)
            self.lay_out(self.size.width)
            self.say("not done: reason above")
            return
        self._doing, self._answer = False, (done.answer, done.trouble)
        first = done.answer.splitlines()[0] if done.answer else "done"
        self.outcome = f"{order.name}: {safe_line(first)}"
        self.lay_out(self.size.width)
