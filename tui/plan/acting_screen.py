"""Base class of the screens whose capital-letter keys open plans."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from textual import work

from engine.model import Edge, State, Task
from engine.operations.execute import Report
from engine.operations.plans import bar_reason, verb_refusal
from engine.store import DATA_PART
from engine.verbs import VERBS
from tui.plan import planning
from tui.plan.planning import VerbRequest
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys

TASK_JUST_CHANGED = "task changed just now: check it, press the key again"
"""Refusal if the task changed just before the key was pressed."""

MAX_OTHER_VERBS = 3
"""Number of verbs that a refusal names as the next step."""

READ_ONLY = "read only: this console was started with --read-only"

NO_PAUSE = "this queue cannot be paused"


def pause_control(session: PlaceSession) -> str:
    """Name of the control that pauses and resumes the queue; "" if none."""
    return next((name for name, each in session.inspector.controls.items() if each.is_pause), "")


def control_refusal(
    session: PlaceSession, context: ConsoleContext, name: str, target: str = ""
) -> str:
    """Why a control cannot be planned; "" if it can. An empty name means the pause control."""
    if context.arming.read_only:
        return READ_ONLY
    if session.inspector.latest.unavailable:
        return "place unavailable"
    control = session.inspector.controls.get(name)
    if control is None:
        return "no such control" if name else NO_PAUSE
    refusal = control.for_target(target).refusal
    return f"{name}: {refusal}" if refusal else ""


class PlanningScreen(BaseScreen):
    """A capital letter freezes the set of tasks that it would act on and opens the plan for
    them.
    """

    session: PlaceSession
    context: ConsoleContext

    def without(self) -> set[str]:
        """Hide the verbs that the store has for no state, and if the console was started with
        --read-only all keys that write."""
        if not self.context.arming.read_only:
            return planning.absent_verbs(self.session.inspector.edges)
        return {key.action for key in keys.verb_keys()} | {"arm", "note"}

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """Scope of a verb at the time of the key press, or a refusal text."""
        raise NotImplementedError

    def selected_task(self) -> Task | None:
        """The selected task; None if there are several."""
        return None

    def action_plan(self, verb: str) -> None:
        """Build a plan and show it."""
        asked = self.requested_verb(verb)
        if isinstance(asked, str):
            self.say(asked)
        elif verb == "edit":
            self._edit(asked)
        else:
            self._show_plan(asked)

    def _edit(self, asked: VerbRequest) -> None:
        state, task = asked.query.state, self.selected_task()
        edge = self.session.inspector.edges.get((state, state), Edge())
        if task is not None and "data" in edge.fields:
            self._edit_data(asked, edge, task)
        else:
            self._show_form(asked, edge, task)

    @work(group="plan", exclusive=True)
    async def _edit_data(self, asked: VerbRequest, edge: Edge, task: Task) -> None:
        reading = self.session.inspector.actions.read(task, DATA_PART)
        data = await planning.prepare(self, "the form", reading)
        if data is None:
            return
        try:
            text = data.decode()
            why = edge.value_problem("data", text, self.context.clock())
        except UnicodeDecodeError:
            text, why = "", "data: no UTF-8"
        edited = task if why else task._replace(data=text)
        self._show_form(asked._replace(rev=task.rev), edge, edited, why)

    def _show_form(
        self, asked: VerbRequest, edge: Edge, task: Task | None, no_data: str = ""
    ) -> None:
        from tui.plan.edit_form import EditScreen

        def take(values: Mapping[str, object] | None) -> None:
            if values:
                self._show_plan(asked._replace(values=values))

        self.app.push_screen(EditScreen(task, edge, self.context.clock, no_data), take)

    @work(group="plan", exclusive=True)
    async def _show_plan(self, asked: VerbRequest) -> None:
        from tui.plan.screen import show_plan

        await show_plan(self, self.session, self.context, asked, self.plan_applied)

    def plan_applied(self, report: Report) -> None:
        """Report the result of an applied plan in the message line."""
        verb = VERBS[report.plan.verb]
        step = "; next: u undo" if report.is_undoable else ""
        self.say(
            f"{len(report.done):,} {verb.past}, {len(report.gone):,} skipped,"
            f" {len(report.failed):,} failed{step}"
        )

    def action_note(self) -> None:
        """Prompt for a note on the selected task."""
        from tui.plan import note_prompt

        note_prompt.prompt_for_note(self, self.session, self.context, self.selected_task())

    def verb_refusal(self, verb: str, state: State | None, task: Task | None = None) -> str:
        """Why a verb is not available for tasks in a state, or for one `task`; "" if it is."""
        if self.context.arming.read_only:
            return READ_ONLY
        latest = self.session.inspector.latest
        if state is None or latest.unavailable:
            return "place unavailable"
        inspector = self.session.inspector
        verb = planning.verb_in_state(verb, state, inspector.edges)
        reason = verb_refusal(inspector.edges, verb, state, inspector.states.get(state, ""))
        if reason is None and state is not None:
            reason = planning.why_not_now(self.session, {state}) or None
        if reason is None and task is not None:
            now = self.context.clock()
            reason = bar_reason(inspector.edges, verb, task, now=now) or None
        return "" if reason is None else f"{verb}: {reason}"

    def refusals(self) -> Mapping[str, str]:
        """The verbs that the store has for the state of the selected tasks, but refuses now."""
        task, edges = self.selected_task(), self.session.inspector.edges
        state = self.selected_state
        elsewhere = planning.verbs_elsewhere(edges, state) | self.without()
        offered = [key for key in keys.keys_on(self.KIND, elsewhere) if key.verb]
        refusals = {key.shown: self.verb_refusal(key.verb, state, task) for key in offered}
        return {key_text: why for key_text, why in refusals.items() if why}

    @property
    def selected_state(self) -> State | None:
        """The state of the selected tasks."""
        task = self.selected_task()
        return None if task is None else task.state

    def other_verbs(self, state: State | None, task: Task | None = None) -> str:
        """The next step after a verb was refused: the first ones that are not; "" without any."""
        edges = self.session.inspector.edges
        offered = (
            f"{key.shown} {planning.verb_in_state(key.verb, state, edges)}"
            for key in keys.keys_on(self.KIND)
            if key.verb and not self.verb_refusal(key.verb, state, task)
        )
        words = ", ".join(islice(offered, MAX_OTHER_VERBS))
        return f"; next: {words}" if words else ""
