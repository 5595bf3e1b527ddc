"""Open the plan for a verb, for an edit first the form with the values of the task; the prompt for
a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from engine.model import Edge, Task
from engine.operations.execute import Report
from engine.operations.notes import DELETE_INPUT, note_problem, notes_of, parse_note
from engine.store import DATA_PART, Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.plan import planning
from tui.plan.planning import VerbRequest
from tui.plan.refusals import describe_report
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.rows_parts import RowsParts
from tui.session.place_session import PlaceSession
from tui.widgets.background import run_in_background


def open_plan(
    screen: BaseScreen,
    session: PlaceSession,
    context: ConsoleContext,
    asked: VerbRequest,
    task: Task | None,
    applied: Callable[[Report], None],
) -> None:
    """Freeze a plan above the screen. `task`: the one whose values are edited; None for several."""
    state = asked.query.state
    edge = session.inspector.edges.get((state, state), Edge())

    def show(asked: VerbRequest) -> None:
        from tui.plan.screen import show_plan

        making = partial(show_plan, screen, session, context, asked, applied)
        run_in_background(screen, making, group="plan", exclusive=True)

    def show_form(asked: VerbRequest, task: Task | None, no_data: str = "") -> None:
        from tui.plan.edit_form import EditScreen

        def take(values: Mapping[str, object] | None) -> None:
            if values:
                show(asked._replace(values=values))

        screen.app.push_screen(EditScreen(task, edge, context.clock, no_data), take)

    async def show_form_of(task: Task) -> None:
        reading = session.inspector.actions.read(task, DATA_PART)
        data = await planning.prepare(screen, "the form", reading)
        if data is None:
            return
        try:
            text = data.decode()
            why = edge.value_problem("data", text, context.clock())
        except UnicodeDecodeError:
            text, why = "", "data: no UTF-8"
        edited = task if why else task._replace(data=text)
        show_form(asked._replace(rev=task.rev), edited, why)

    if asked.verb != "edit":
        show(asked)
    elif task is not None and "data" in edge.fields:
        run_in_background(screen, partial(show_form_of, task), group="plan", exclusive=True)
    else:
        show_form(asked, task)


def plan_rows(screen: BaseScreen, parts: RowsParts, asked: VerbRequest) -> None:
    """Freeze a plan above a screen of rows; its result is said there."""

    def show(report: Report) -> None:
        parts.plan_applied()
        screen.say(describe_report(report))

    open_plan(screen, parts.session, parts.context, asked, task=None, applied=show)


def prompt_for_note(
    screen: BaseScreen, session: PlaceSession, context: ConsoleContext, task: Task | None
) -> None:
    """Prompt for a note on a task and write it, or show why that is not possible."""
    why = note_refusal(session, context) or (PASTED if screen.is_pasted else "")
    if task is None:
        why = why or "a note is for one task: \\ clears the marks"
    if why or task is None:
        screen.say(why)
        return
    ident, amount = task.id, len(notes_of(session.readings.notes, task, session.clock()))
    away = f"; {DELETE_INPUT} alone deletes its {format_count(amount, 'note')}" if amount else ""

    def take(text: str | None) -> None:
        if text and text.strip():
            context.arming.extend()
            writing = partial(_write_note, screen, session, task, text)
            run_in_background(screen, writing, name="note", group="note")

    from tui.screens.dialogs import AskScreen

    screen.app.push_screen(AskScreen(f"note on {safe_line(ident)}{away}", "", note_problem), take)


def note_refusal(session: PlaceSession, context: ConsoleContext) -> str:
    """Why a note cannot be written now; "" if it can."""
    if session.place.notes is None:
        return "this place has no notes"
    if context.arming.read_only:
        return READ_ONLY
    # A note changes no task, but it excludes the task from a purge. OBSERVE must leave no trace.
    if not context.arming.is_armed:
        return "OBSERVE: press ! first: a note is visible to all"
    return ""


async def _write_note(screen: BaseScreen, session: PlaceSession, task: Task, text: str) -> None:
    note = parse_note(text)
    try:
        await session.add_note(task.id, note, task.created)
    except Unavailable as error:
        screen.say(str(error))
    else:
        screen.say(f"noted: {note}" if note else "notes deleted", "ok")
