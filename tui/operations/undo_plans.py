"""Plans for an operation of the journal: undo it, resume it, or abandon an interrupted one."""

from __future__ import annotations

from collections.abc import Sequence

from engine.index.schema import Query
from engine.operations import controls
from engine.operations.journal import Operation
from engine.operations.plans import Plan
from engine.operations.undo import REASON_RETENTION_OVER
from engine.replay.settings import ReplayPace, parse_pace
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.confirm.action_screen import Action, Fact, Reason, show_action
from tui.operations import operation_lines as view
from tui.operations.operation_lines import ListedOperation
from tui.operations.schedule_actions import undo_action
from tui.plan.plan_lines import MAX_LISTED_TASKS
from tui.plan.planning import prepare
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.history import operation_name
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run, folded_lines
from tui.text.times import format_clock

UNLIMITED_DAYS = float("inf")
"""Days for which dead tasks are kept without a configured retention."""


def why_no_undo(operation: Operation) -> str:
    """Why an operation cannot be undone at all; "" if it can, as far as is known."""
    from engine.operations.plans import RowResult

    verb = VERBS.get(operation.intent.verb)
    if controls.is_schedule_change(operation):
        return "" if controls.count_done(operation) else "nothing was changed"
    if operation.intent.verb == controls.CONTROL_VERB:
        return controls.undo_refusal(operation.intent.values)
    if verb is None:
        return f"{safe_line(operation.intent.verb)} is unknown to this version"
    if not verb.is_undoable:
        return f"{verb.name} cannot be undone"
    return "" if operation.counts.get(RowResult.DONE, 0) else "no task was changed"


async def show_undo(
    screen: BaseScreen,
    session: PlaceSession,
    context: ConsoleContext,
    operation: Operation,
    warnings: Sequence[str] = (),
) -> None:
    """Open the plan to undo an operation, or show why there is none."""
    from tui.plan.screen import PlanScreen

    if why := why_no_undo(operation):
        screen.say(f"no plan: {why}")
        return
    if controls.is_schedule_change(operation):
        schedules = session.place.schedules
        if schedules is None:
            screen.say("no plan: this place has no schedules")
        else:
            action = undo_action(operation, session, schedules)
            show_action(screen, action, session, context)
        return
    days = session.place.retention_days
    limit = UNLIMITED_DAYS if days is None else days
    making = session.inspector.history.plan_undo(operation, limit)
    back = await prepare(screen, plan_words("undo", operation), making)
    if back is None:
        return
    retention_warning = f"{format_count(len(back.held), 'task')}: {REASON_RETENTION_OVER}"
    notices = [*warnings, *([retention_warning] if back.held else [])]
    screen.app.push_screen(
        PlanScreen(back.plan, operation_scope(operation), session, context, warnings=notices)
    )


async def show_resume(
    screen: BaseScreen, session: PlaceSession, context: ConsoleContext, operation: Operation
) -> None:
    """Open the plan to resume an interrupted operation."""
    from tui.plan.screen import PlanScreen

    making = _rest_of(session, operation)
    plan_and_operation = await prepare(screen, plan_words("resume", operation), making)
    if plan_and_operation is None:
        return
    plan, now = plan_and_operation
    half = max(0, (now.open_rows if now is not None else 0) - len(plan.rows))
    if half and not plan.rows:
        screen.say(f"only {format_count(half, 'half-moved task')} left: D completes it")
        return
    is_checked = VERBS[plan.verb].paced and len(plan.rows) <= MAX_LISTED_TASKS
    errors = Query(plan.rows[0].state) if is_checked and plan.rows else None
    screen.app.push_screen(
        PlanScreen(
            plan,
            f"the rest of {operation_scope(operation)}",
            session,
            context,
            follows=operation.op,
            warnings=[_half_moved_warning(half)] * bool(half),
            pace=_recorded_pace(operation),
            errors=errors,
        )
    )


async def _rest_of(session: PlaceSession, operation: Operation) -> tuple[Plan, Operation | None]:
    """The plan of the tasks that are left, and the operation as it is now."""
    plan = await session.inspector.history.plan_rest(operation)
    return plan, await session.history.operation(operation.op)


def plan_words(verb: str, operation: Operation) -> str:
    """A plan that is being prepared: `the undo plan of 38,994 tasks`."""
    return f"the {verb} plan of {format_count(operation.planned, 'task')}"


def _half_moved_warning(amount: int) -> str:
    tasks = "1 task is" if amount == 1 else f"{amount:,} tasks are"
    return f"{tasks} half moved: completed or rolled back first"


def _recorded_pace(operation: Operation) -> ReplayPace | None:
    """The pace of an operation; None if it had none or it cannot be parsed."""
    try:
        return parse_pace(operation.intent.pace) if operation.intent.pace else None
    except ValueError:
        return None


def operation_scope(operation: Operation) -> str:
    """Description of an operation: `replay of 09:12:08Z by ana`."""
    who = safe_line(operation.intent.who.name)
    return f"{operation_name(operation)} of {format_clock(operation.started)} by {who}"


class AbandonAction(Action):
    """Abandon an operation; it changes no task, except half-moved ones."""

    kind = keys.ABANDON

    def __init__(self, listed: ListedOperation, session: PlaceSession) -> None:
        self._listed, self._session = listed, session
        self.acts_on = operation_scope(listed.operation)
        self.title = (("abandon", "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return "abandon it"

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        half_moved = self._listed.half_moved
        rows = format_count(self._listed.operation.open_rows - half_moved, "task")
        words = (
            f"{rows} not moved: unchanged. The journal closes the operation, "
            "and no console asks again to resume it."
        )
        if half_moved:
            half = format_count(half_moved, "task")
            words = f"{half} half moved: completed or rolled back first. {words}"
        text = folded_lines(words, width)
        return [*text, BLANK_LINE, *view.detail_lines(self._listed, now, width)]

    def facts(self) -> tuple[Fact, ...]:
        op, history = self._listed.operation.op, self._session.history
        ended = [one.ended for one in history.operations if one.op == op]
        return (Fact(ended, "the operation has ended, or is not in the list any more"),)

    async def apply(self, reason: str) -> Run:
        history, who = self._session.inspector.history, self._session.place.who.name
        await history.abandon_operation(self._listed.operation, f"abandoned by {who}")
        return f"abandoned: {self.acts_on}", "ok"
