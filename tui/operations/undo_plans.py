"""From an operation of the journal to the plan that takes it back, goes on with it, or drops it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.operations import controls
from engine.operations.journal import Operation
from engine.operations.undo import RETIRED
from engine.replay.settings import ReplayPace, unpacked
from engine.store import StoreError
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import present
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.history import name_of
from tui.session.place_session import PlaceSession

FOREVER = float("inf")
"""Days for which dead tasks are kept where no configuration says."""


def why_no_undo(operation: Operation) -> str:
    """Why an operation cannot be taken back at all; "" where it can, as far as is known."""
    from engine.operations.execute import RowResult

    verb = VERBS.get(operation.intent.verb)
    if operation.intent.verb == controls.VERB:
        return controls.no_undo(operation.intent.values)
    if verb is None:
        return f"{shown(operation.intent.verb)} is not known to this version"
    if not verb.safe:
        return f"{verb.name} cannot be taken back"
    return (
        ""
        if operation.counts.get(RowResult.DONE, 0)
        else "nothing was done that could be taken back"
    )


async def show_undo(
    face: BaseScreen,
    live: PlaceSession,
    around: ConsoleContext,
    operation: Operation,
    warnings: Sequence[str] = (),
) -> None:
    """Show the plan to take an operation back; says why where there is none."""
    from tui.plan.screen import PlanScreen

    if why := why_no_undo(operation):
        face.say(f"no plan: {why}")
        return
    days = live.place.retention_days
    try:
        back = await live.inspector.undo(operation, FOREVER if days is None else days)
    except StoreError as error:
        face.say(f"no plan: {error}")
        return
    if face.app.screen is not face:
        face.say("no plan: another screen came before it was made")
        return
    held = f"{present.count(len(back.held), 'task')}: {RETIRED}"
    told = [*warnings, *([held] if back.held else [])]
    face.app.push_screen(PlanScreen(back.plan, scope(operation), live, around, warnings=told))


async def show_rest(
    face: BaseScreen, live: PlaceSession, around: ConsoleContext, operation: Operation
) -> None:
    """Show the plan to go on with what an interrupted operation did not come to."""
    from tui.plan.screen import PlanScreen

    try:
        plan = await live.inspector.rest(operation)
        now = await live.history.operation(operation.op)
    except StoreError as error:
        face.say(f"no plan: {error}")
        return
    if face.app.screen is not face:
        face.say("no plan: another screen came before it was made")
        return
    half = max(0, (now.open if now is not None else 0) - len(plan.rows))
    if half and not plan.rows:
        face.say(f"only what is half moved is left, {present.count(half, 'task')}: D finishes that")
        return
    face.app.push_screen(
        PlanScreen(
            plan,
            f"the rest of {scope(operation)}",
            live,
            around,
            follows=operation.op,
            warnings=[half_moved(half)] * bool(half),
            pace=pace_of(operation),
        )
    )


def half_moved(amount: int) -> str:
    """What becomes of tasks that a crash left half moved, once its operation is gone on with."""
    tasks = "1 task is" if amount == 1 else f"{amount:,} tasks are"
    return f"{tasks} half moved: finished, or put back, as soon as this begins"


def pace_of(operation: Operation) -> ReplayPace | None:
    """How it went, where it was paced and that can be understood."""
    try:
        return unpacked(operation.intent.pace) if operation.intent.pace else None
    except ValueError:
        return None


def scope(operation: Operation) -> str:
    """An operation in words: `replay of 09:12:08Z by ana`."""
    who = shown(operation.intent.who.name)
    return f"{name_of(operation)} of {present.clock(operation.when)} by {who}"
