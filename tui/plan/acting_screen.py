"""Base class of the screens whose capital-letter keys open plans."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model import State, Task
from engine.operations.execute import Report
from tui.plan import planning, refusals
from tui.plan.open_plan import open_plan
from tui.plan.planning import VerbRequest
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys


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
        else:
            task = self.selected_task()
            open_plan(self, self.session, self.context, asked, task=task, applied=self.plan_applied)

    def plan_applied(self, report: Report) -> None:
        """Report the result of an applied plan in the message line."""
        self.say(refusals.describe_report(report))

    def action_note(self) -> None:
        """Prompt for a note on the selected task."""
        from tui.plan import note_prompt

        note_prompt.prompt_for_note(self, self.session, self.context, self.selected_task())

    def verb_refusal(self, verb: str, state: State | None, task: Task | None = None) -> str:
        """Why a verb is not available for tasks in a state, or for one `task`; "" if it is."""
        return refusals.verb_refusal(self.session, self.context, verb, state, task)

    def refusals(self) -> Mapping[str, str]:
        """The verbs that the store has for the state of the selected tasks, but refuses now."""
        task, edges = self.selected_task(), self.session.inspector.edges
        state = self.selected_state
        elsewhere = planning.verbs_elsewhere(edges, state) | self.without()
        offered = [key for key in keys.keys_on(self.KIND, elsewhere) if key.verb]
        refused = {key.shown: self.verb_refusal(key.verb, state, task) for key in offered}
        return {key_text: why for key_text, why in refused.items() if why}

    @property
    def selected_state(self) -> State | None:
        """The state of the selected tasks."""
        task = self.selected_task()
        return None if task is None else task.state

    def other_verbs(self, state: State | None, task: Task | None = None) -> str:
        """The next step after a verb was refused: the first ones that are not; "" without any."""
        offered = keys.keys_on(self.KIND)
        return refusals.other_verbs(self.session, self.context, offered, state, task)
