"""Open the plan for a verb; for an edit, first the form with the values of the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.model import Edge, Task
from engine.operations.execute import Report
from engine.store import DATA_PART
from tui.plan import planning
from tui.plan.planning import VerbRequest
from tui.plan.refusals import describe_report
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.rows_parts import RowsParts
from tui.session.place_session import PlaceSession


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

        making = show_plan(screen, session, context, asked, applied)
        screen.run_worker(making, group="plan", exclusive=True)

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
        screen.run_worker(show_form_of(task), group="plan", exclusive=True)
    else:
        show_form(asked, task)


def plan_rows(screen: BaseScreen, parts: RowsParts, asked: VerbRequest) -> None:
    """Freeze a plan above a screen of rows; its result is said there."""
    open_plan(
        screen,
        parts.session,
        parts.context,
        asked,
        task=None,
        applied=lambda report: screen.say(describe_report(report)),
    )
