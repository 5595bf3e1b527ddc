"""Screen of a queue's facts and controls, with its rate limits; the plan for one control: preview,
value, reason, result."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence

from engine.locks.token_buckets import BucketState
from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import ControlRow, Order, control_rows
from engine.operations.journal import Intent, Operation
from engine.places.place import WholeQueueFigures
from engine.store import Control, Outlook, StoreError
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Fact, Question, Reason, show_action
from tui.operations import control_lines as view
from tui.operations import operation_lines
from tui.operations.operation_lines import ListedOperation
from tui.plan.refusals import control_refusal, pause_control
from tui.screens.base import PASTED, BaseScreen, Copy
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.graph_pane import GRAPH_READ_SECONDS
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import ROW_HAS_LEFT, Change, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import (
    BLANK_LINE,
    Line,
    Run,
    fact_lines,
    fit_text,
    heading_line,
    join_ends,
    part_line,
)
from tui.text.table import Choice, ShownRows
from tui.text.times import format_start


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


MAX_CHANGES = 5
"""Changes of controls that are listed; the operations have all."""


def change_line(operation: Operation, now: float, width: int) -> Line:
    """Who changed what, when, and with what outcome."""
    state, style, _ = operation_lines.operation_state(ListedOperation(operation))
    who = fit_text(safe_line(operation.intent.who.name), 8)
    what = operation_lines.describe_operation(operation)
    left: Line = (
        (f"   {format_start(operation.started, now)}  ", "muted"),
        (f"{who}  ", ""),
        (what, ""),
    )
    return join_ends(left, ((state.upper(), style or "muted"),), width)


class ControlParts(RowsParts):
    """The controls of one place, its rate limits and the facts of its queue."""

    @property
    def facts(self) -> WholeQueueFigures:
        """The facts of the queue, as last read."""
        return self.session.readings.queue_figures

    @property
    def _limits(self) -> Sequence[BucketState]:
        tokens = self.session.readings.tokens
        return () if isinstance(tokens, str) else tokens

    @property
    def selected(self) -> ControlRow | None:
        """The control under the cursor, for its target."""
        key, rows = self.screen.cursor.key, control_rows(self.session.inspector.controls)
        return next((row for row in rows if row.label == key), None)

    @property
    def _selected_limit(self) -> BucketState | None:
        key = self.screen.cursor.key
        return next((limit for limit in self._limits if view.BUCKET + limit.name == key), None)

    def plan_refusal(self) -> str:
        """Why the control under the cursor cannot be planned; "" if it can."""
        if self.screen.cursor.has_left:
            return ROW_HAS_LEFT
        selected = self.selected
        aim = (selected.name, selected.target) if selected else ("",)
        return control_refusal(self.session, self.context, *aim)

    def pause_refusal(self) -> str:
        """Why the queue cannot be paused or resumed; "" if it can."""
        return control_refusal(self.session, self.context, pause_control(self.session))

    def has_no_controls(self) -> bool:
        """True if nothing here can be changed."""
        return is_read_only(self) or not self.session.inspector.controls

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, keys.CONTROLS)

    def rows(self, width: int) -> ShownRows:
        known = control_rows(self.session.inspector.controls)
        head, listed = view.control_table(known, width)
        limit_head, limits = view.limit_table(self._limits, self.context.clock(), width)
        if not known:
            return ShownRows(limit_head if limits else (), [Choice(*row) for row in limits])
        # The facts of a queue with controls name its limit, too, and a control sets it.
        foot = [BLANK_LINE, limit_head, *(line for _, line in limits)] if limits else []
        return ShownRows(head, [Choice(*row) for row in listed], foot)

    def details(self, width: int) -> list[Line]:
        warnings, facts = view.warning_lines(self.facts, width), view.fact_lines(self.facts, width)
        own = [*warnings, *self._control_lines(width)]  # before the facts of the place
        return [*own, *[BLANK_LINE] * bool(facts), *facts, *self._change_lines(width)]

    def _change_lines(self, width: int) -> list[Line]:
        """Who changed a control in the last 24 hours."""
        history, now = self.session.history, self.context.clock()
        if history.error:
            return [BLANK_LINE, ((f"   ? changes: {safe_line(history.error)}", "unknown"),)]
        changes = [one for one in history.operations if one.intent.verb == controls.CONTROL_VERB]
        title = [BLANK_LINE, heading_line("changed in the last 24 h", width)] if changes else []
        return [*title, *(change_line(one, now, width) for one in changes[:MAX_CHANGES])]

    def start(self) -> None:
        self.screen.run("graph", self.follow_graph)

    async def follow_graph(self) -> Change:
        """Read the recorded course while the graph shows more than is in memory."""
        while True:
            if self.screen.is_current:
                await self.graph.read(self.session, self.context.clock())
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(GRAPH_READ_SECONDS)

    def next_graph_range(self) -> Change:
        """Show the next range of the graph."""
        self.graph.next_range()
        self.start()
        return Change.ROWS

    def _control_lines(self, width: int) -> list[Line]:
        selected, limit, latest = self.selected, self._selected_limit, self.session.inspector.latest
        if selected is not None:
            return view.detail_lines(selected.label, selected.control, width, selected.target)
        if limit is not None:
            backlog = self.session.backlog
            pending = None if backlog is None else backlog.kinds.get(limit.name)
            return view.limit_lines(limit, pending, width)
        if latest.unavailable:
            return [((f" {safe_line(latest.unavailable)}", "error"),)]
        known = bool(self.session.inspector.states)
        return [((f" {view.NO_CONTROLS if known else 'opening ...'}", "muted"),)]

    def rows_frame(self) -> Frame:
        controls = self.session.inspector.controls
        amount = len(control_rows(controls)) + len(self._limits)
        return Frame("Controls", "9", f"{amount:,}", view.pause_line(controls))

    def details_frame(self, below: int) -> Frame:
        selected, limit = self.selected, self._selected_limit
        name = "Facts of the queue"
        if selected is not None:
            name = f"Control {safe_line(selected.label)}"
        elif limit is not None:
            name = f"Rate limit of {view.limit_name(limit)}"
        return Frame(name, right=more_below(below))

    def next_step(self, width: int) -> Line:
        selected = self.selected
        if self._selected_limit is not None:
            return next_line("2", "opens the tasks; rate limits are read-only", "", width)
        if selected is None:
            is_unknown = self.session.inspector.latest.unavailable
            nothing = "the controls are unknown" if is_unknown else "there is nothing to control"
            return next_line("2", f"opens the tasks; {nothing}", "", width)
        name, why = safe_line(selected.label), selected.control.refusal
        if why:
            return next_line("", f"refused: {safe_line(why)}", name, width)
        if is_read_only(self):
            return next_line("", READ_ONLY, name, width)
        return next_line("Enter", "plans the change", name, width)

    def copies(self) -> tuple[Copy, ...]:
        selected, copies = self.selected, []
        if selected is not None:
            copies.append(Copy("n", "name", selected.name))
            copies += [Copy("v", "value", selected.control.now)] if selected.control.now else []
            target = ("--target", selected.target) if selected.target else ()
            words = (*self.session.place.command, "control", selected.name, *target, "--dry-run")
            copies.append(Copy("c", "command", shlex.join(words)))
        text = "\n".join(f"{name}: {words}" for name, words in self.facts.rows)
        return (*copies, *((Copy("f", "facts", safe_line(text)),) if text else ()))


def _open_plan(parts: ControlParts) -> Change:
    selected = parts.selected
    return _show_plan(parts, selected.name, selected.target) if selected else Change.NOTHING


def _show_plan(parts: ControlParts, name: str, target: str = "") -> Change:
    session, context = parts.session, parts.context
    parts.screen.open(lambda screen: show_control_plan(screen, session, context, name, target))
    return Change.NOTHING


make = RowMaker[ControlParts, Change](keys.CONTROLS, Change.NOTHING)

ROWS: tuple[KeyRow[ControlParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    make.own(
        "open | enter | Enter | plan | View | plan this control: shows its effect, writes nothing",
        _open_plan,
        refusal=ControlParts.plan_refusal,
        is_absent=ControlParts.has_no_controls,
    ),
    KeyRow(make.key("graph_range", keys.LOCK), ControlParts.next_graph_range),
    KeyRow(make.key("reread", keys.SHARED), ControlParts.reread),
    *make.views(),
    make.goes(make.key("operations"), Target(keys.OPERATIONS)),
    make.goes(
        make.own_key(
            "schedules | s | s | schedules | View | schedules of the queues: last, next run"
        ),
        Target(keys.SCHEDULES),
        is_absent=lambda parts: parts.session.place.schedules is None,
    ),
    KeyRow(
        make.key("pause_queue", keys.SHARED, is_minor=False),
        lambda parts: _show_plan(parts, pause_control(parts.session)),
        refusal=ControlParts.pause_refusal,
        is_absent=ControlParts.has_no_controls,
    ),
    make.arm(Change.EDGES, ControlParts.has_no_controls),
    *make.ends(),
)


class ControlsScreen(RowsScreen):
    """The controls of one place; Enter opens a plan for the one under the cursor."""

    KIND = keys.CONTROLS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: ControlParts

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.panes = ListPanes(page_keys_scroll=True, graph_first=True)
        self.parts = ControlParts(session, context, self)
