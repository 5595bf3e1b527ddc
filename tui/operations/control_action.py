"""One control of a queue: preview, value, reason, result."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator

from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import Order
from engine.operations.journal import Intent
from engine.store import Control, Outlook, StoreError
from engine.text.safe import safe_line
from tui.confirm.action import Action, Fact, Question, Reason
from tui.confirm.action_screen import show_action
from tui.operations import control_lines as view
from tui.plan.refusals import control_refusal
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run, fact_lines, part_line


def show_control_plan(
    screen: BaseScreen, session: PlaceSession, context: ConsoleContext, name: str, target: str = ""
) -> None:
    """Open the plan for a control, or show why it is not possible."""
    why = PASTED if screen.is_pasted else control_refusal(session, context, name, target)
    if why:
        screen.say(why)
    else:
        show_action(screen, ControlAction(name, session, target), session, context)


class ControlAction(Action):
    """A control as of opening, then its result."""

    kind = keys.CONTROL
    hint = "apply"
    stays_open = shows_failure = True

    def __init__(self, name: str, session: PlaceSession, target: str = "") -> None:
        """Without a target, the operator types one if the control has several."""
        self._name, self._session = name, session
        self._control: Control = session.inspector.controls[name]
        known = [one.name for one in self._control.targets]
        target = target or (known[0] if len(known) == 1 else "")
        self._choose_target(target)
        self._asks_target = bool(self._target_control.target) and not target
        self._outlook: Outlook | None = None
        self._unknown = self._trouble = ""
        self._problems: tuple[Problem, ...] = ()
        self._answer: tuple[str, str] | None = None
        """The queue's answer, and why the journal has no record of it."""
        self.acts_on = safe_line(name)
        self.title = (("control", "title"), (f" {self.acts_on}", "strong"))

    def _choose_target(self, target: str) -> None:
        self._target_control = self._control.for_target(target)
        value = controls.suggested_value(self._target_control)
        self._order = Order(self._name, target, value, before=self._target_control.now)
        self.basis = self.facts()

    @property
    def takes_reason(self) -> bool:
        return self._answer is None

    @property
    def prompt(self) -> str:
        return f"apply {safe_line(self._name)}"

    @property
    def _needs_value(self) -> bool:
        return bool(self._target_control.value) and not self._target_control.choices

    async def load(self) -> AsyncIterator[None]:
        inspector, order = self._session.inspector, self._order
        self._outlook, self._unknown = None, ""
        try:
            if self._asks_target:
                self._problems = await inspector.queries.problems()
            is_complete = not controls.order_problem(self._target_control, order)
            if self._target_control.has_forecast and is_complete:
                self._outlook = await inspector.actions.forecast_control(order)
        except StoreError as error:
            self._unknown = str(error)
        yield

    def facts(self) -> tuple[Fact, ...]:
        now = self._session.inspector.controls.get(self._name)
        now = None if now is None else now.for_target(self._order.target)
        if now is None or (now.targets and self._order.target):
            return (Fact(None, "the control no longer exists"),)
        words = now.refusal or now.now or now.summary
        return (Fact(now._replace(targets=()), f"the control changed: {words}"),)

    @property
    def _count(self) -> int:
        """Number of affected items, as far as the store has reported it."""
        return controls.confirmation_count(self._target_control, self._outlook or Outlook(""))

    @property
    def expected_digits(self) -> str:
        return "" if controls.is_reversible(self._target_control) else str(self._count)

    def refusal(self) -> str:
        if refusal := self._target_control.refusal:
            return refusal
        if problem := controls.order_problem(self._target_control, self._order):
            return f"{problem}: Enter"
        if self._unknown:
            return f"effect unknown: {self._unknown}"
        if self._target_control.has_forecast and self._outlook is None:
            return "still loading the effect"
        return "" if self._count else "nothing to do: no effect"

    def absent_keys(self) -> set[str]:
        """Not each control has a value to type, or values to choose from."""
        if self._answer is not None:
            return {"fill", "switch"}
        missing = set() if self._asks_target or self._needs_value else {"fill"}
        return missing | (set() if len(self._target_control.choices) > 1 else {"switch"})

    # Painting

    def result(self) -> Line:
        return () if self._answer is None else ((" done: Esc closes", "ok"),)

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        if self._answer is not None:
            answer, trouble = self._answer
            lines = [part_line("result (from the queue)")]
            lines += view.store_text_lines(answer, width)
            if trouble:
                trouble_lines = view.store_text_lines(f"not recorded: {trouble}", width, "warn")
                lines += [BLANK_LINE, *trouble_lines]
            return lines
        lines = []
        if self._trouble:
            lines += [part_line("not done (from the queue)")]
            lines += [*view.store_text_lines(self._trouble, width, "error"), BLANK_LINE]
        effect = None if self._outlook is None else self._outlook.words
        lines += view.preview_lines(self._order, self._target_control, effect, width)
        if self._asks_target:
            lines += view.target_lines(self._control, self._problems, width)
        rows = [("reason", reason.words)]
        # Incomplete input gives no valid command.
        if not controls.order_problem(self._target_control, self._order) and self._count:
            rows.append(("cli", safe_line(shlex.join(self._equivalent_command(reason.text)))))
        return [*lines, BLANK_LINE, *fact_lines(rows, width, 8)]

    def _equivalent_command(self, reason: str) -> tuple[str, ...]:
        target, value = self._order.target, self._order.value
        words = [*self._session.place.command, "control", self._name]
        words += ["--target", target] if target else []
        words += ["--value", value] if value else []
        words += ["--reason", reason] if reason else []
        return (*words, "--apply", str(self._count))

    # Fields

    def switch(self) -> bool:
        values = [value for value, _ in self._target_control.choices]
        if "switch" in self.absent_keys():
            return False
        value = self._order.value
        at = values.index(value) + 1 if value in values else 0
        self._change(self._order._replace(value=values[at % len(values)]))
        return True

    @property
    def is_incomplete(self) -> bool:
        return self._asks_target or (self._needs_value and not self._order.value)

    def question(self) -> Question | None:
        if self._answer is not None:
            return None
        return self._target_question() if self._asks_target else self._value_question()

    def _target_question(self) -> Question:
        first = self._problems[0].where if self._problems else ""
        first = self._control.targets[0].name if self._control.targets else first

        def problem(answer: str) -> str:
            if not self._control.targets:
                return ""  # only the store can check it
            return controls.target_problem(self._control, self._name, answer.strip())

        def take(answer: str) -> Question | None:
            # As it is now: the plan is made again for this target.
            self._control = self._session.inspector.controls.get(self._name, self._control)
            value, has_targets = self._order.value, bool(self._control.targets)
            self._choose_target(answer)
            self._change(self._order if has_targets else self._order._replace(value=value))
            return self._value_question()

        text = self._order.target or first
        return Question(self._target_control.target, text, problem, take)

    def _value_question(self) -> Question | None:
        if not self._needs_value:
            return None
        control = self._target_control

        def problem(answer: str) -> str:
            return controls.order_problem(control, self._order._replace(value=answer.strip()))

        def take(answer: str) -> None:
            self._change(self._order._replace(value=answer))

        return Question(control.value, self._order.value or control.now, problem, take)

    def _change(self, order: Order) -> None:
        self._order, self._trouble = order, ""

    async def apply(self, reason: str) -> Run:
        who, order = self._session.place.who, self._order._replace(amount=self._count)
        intent = Intent(controls.CONTROL_VERB, who, reason, scope="the whole queue")
        try:
            done = await self._session.inspector.actions.run_control(order, intent)
        except StoreError as error:
            self._trouble = str(error)
            raise
        self._answer = (done.answer, done.trouble)
        first = done.answer.splitlines()[0] if done.answer else "done"
        return f"{self._name}: {safe_line(first)}", "ok"
