"""Build plans from an operation of the journal: undo it, or resume it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.operations import controls
from engine.operations.journal import Operation
from engine.operations.plans import Plan
from engine.operations.undo import REASON_RETENTION_OVER
from engine.replay.settings import ReplayPace, parse_pace
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.plan.planning import prepare
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.history import operation_name
from tui.session.place_session import PlaceSession
from tui.text.times import format_clock

UNLIMITED_DAYS = float("inf")
"""Days for which dead tasks are kept without a configured retention."""


def why_no_undo(operation: Operation) -> str:
    """Why an operation cannot be undone at all; "" if it can, as far as is known."""
    from engine.operations.plans import RowResult

    verb = VERBS.get(operation.intent.verb)
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
    screen.app.push_screen(
        PlanScreen(
            plan,
            f"the rest of {operation_scope(operation)}",
            session,
            context,
            follows=operation.op,
            warnings=[half_moved_warning(half)] * bool(half),
            pace=recorded_pace(operation),
        )
    )


async def _rest_of(session: PlaceSession, operation: Operation) -> tuple[Plan, Operation | None]:
    """The plan of the tasks that are left, and the operation as it is now."""
    plan = await session.inspector.history.plan_rest(operation)
    return plan, await session.history.operation(operation.op)


def plan_words(verb: str, operation: Operation) -> str:
    """A plan that is being prepared: `the undo plan of 38,994 tasks`."""
    return f"the {verb} plan of {format_count(operation.planned, 'task')}"


def half_moved_warning(amount: int) -> str:
    """What happens to tasks that a crash left half moved."""
    tasks = "1 task is" if amount == 1 else f"{amount:,} tasks are"
    return f"{tasks} half moved: completed or rolled back first"


def recorded_pace(operation: Operation) -> ReplayPace | None:
    """The pace of an operation; None if it had none or it cannot be parsed."""
    try:
        return parse_pace(operation.intent.pace) if operation.intent.pace else None
    except ValueError:
        return None


def operation_scope(operation: Operation) -> str:
    """Description of an operation: `replay of 09:12:08Z by ana`."""
    who = safe_line(operation.intent.who.name)
    return f"{operation_name(operation)} of {format_clock(operation.started)} by {who}"
