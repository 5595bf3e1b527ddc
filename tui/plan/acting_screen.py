"""What the screens have in common whose keys open plans."""

from __future__ import annotations

from collections.abc import Mapping

from textual import work

from engine.model import Edge, State, Task
from engine.operations.execute import Report
from engine.operations.plans import offered
from engine.verbs import VERBS
from tui.format import keys
from tui.plan import note_prompt, planning
from tui.plan.planning import Asked
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession

ALTERED = "this task has changed just now; look at it, and press again"
"""Why a key is refused that may have been meant for the task as it was."""

READ_ONLY = "read only: this console was started with --read-only"


class PlanningScreen(BaseScreen):
    """A capital letter freezes what the screen says it would act on, and shows the plan."""

    live: PlaceSession
    around: ConsoleContext

    def without(self) -> set[str]:
        """A console that only reads offers no plan, and so no mode either."""
        if not self.around.arming.read_only:
            return set()
        return {key.action for key in keys.verbs()} | {"arm", "note"}

    def asked(self, verb: str) -> Asked | str:
        """What a key asks for, as the screen stands at this moment; why nothing, in words."""
        raise NotImplementedError

    def about(self) -> Task | None:
        """The one task that is asked about; None where there are several."""
        return None

    def action_plan(self, verb: str) -> None:
        """Build a plan and show it."""
        asked = self.asked(verb)
        if isinstance(asked, str):
            self.say(asked)
        elif verb == "edit":
            self._edit(asked)
        else:
            self._show_plan(asked)

    def _edit(self, asked: Asked) -> None:
        from tui.plan.edit_form import EditScreen

        def take(values: Mapping[str, object] | None) -> None:
            if values:
                self._show_plan(asked._replace(values=values))

        state = asked.query.state
        edge = self.live.inspector.edges.get((state, state), Edge())
        self.app.push_screen(EditScreen(self.about(), edge, self.around.clock), take)

    @work(group="plan", exclusive=True)
    async def _show_plan(self, asked: Asked) -> None:
        from tui.plan.screen import show_plan

        await show_plan(self, self.live, self.around, asked, self.applied)

    def applied(self, report: Report) -> None:
        """A plan of this screen was carried out."""
        past = VERBS[report.plan.verb].past
        self.say(
            f"{len(report.done):,} {past}, {len(report.gone):,} gone, {len(report.failed):,} failed"
        )

    def action_note(self) -> None:
        """Write a note on the task down."""
        note_prompt.ask(self, self.live, self.around, self.about())

    def no_verb(self, verb: str, state: State | None) -> str:
        """Why a verb is not to be had here for tasks in a state; "" when it is."""
        if self.around.arming.read_only:
            return READ_ONLY
        latest = self.live.inspector.latest
        if state is None or latest.unavailable:
            return "the place cannot be reached now"
        verb = planning.meant(verb, state)
        inspector = self.live.inspector
        reason = offered(inspector.edges, verb, state, inspector.states.get(state, ""))
        if reason is None and state is not None:
            reason = planning.why_not_now(self.live, {state}) or None
        return "" if reason is None else f"{verb}: {reason}"
