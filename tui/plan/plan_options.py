"""The choices in a plan for tasks: which tasks, the reason, the rate; and its export."""

from __future__ import annotations

import asyncio
from itertools import islice

from engine.operations.plans import Plan
from engine.replay.settings import ReplayPace, rest_problem
from engine.verbs import VERBS
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.plan_facts import PlanFacts
from tui.plan.plan_lines import PLAN_ROW_FIELDS, UNDO_TEXTS, PlanView, plan_row_values
from tui.plan.plan_page import PlanWords
from tui.plan.planning import can_be_paced, why_not_now
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.session.runners import RunningOperation
from tui.text import keys
from tui.text.export import ExportTable, RowSink
from tui.widgets.picker import Picker

EXPORT_CHUNK_ROWS = 500
"""Rows exported between two checks for cancellation."""


class PlanOptions(ConfirmScreen):
    """What an operator can change in a plan for tasks before it is applied."""

    KIND = keys.PLAN
    BINDINGS = key_bindings(keys.PLAN)
    DIGITS_NAME = "count"

    def __init__(
        self,
        facts: PlanFacts,
        scope: str,
        follows: str,
        session: PlaceSession,
        context: ConsoleContext,
    ) -> None:
        super().__init__(session, context)
        self.facts, self._scope, self._follows = facts, scope, follows
        self._run: RunningOperation | None = None
        """The applied plan."""

    @property
    def is_open(self) -> bool:
        """True until the plan is applied."""
        return self._run is None

    @property
    def expected_digits(self) -> str:
        """The count, for a plan with several tasks or one that cannot be undone."""
        amount = self.facts.amount
        safe = amount <= 1 and VERBS[self.facts.plan.verb].is_undoable
        return "" if safe else str(amount)

    def why_not_applicable(self) -> str:
        """Why the plan cannot be applied: applied already, running, or empty."""
        if self._run is not None:
            return "already applying" if self._run.ended is None else "already applied: Esc closes"
        if self.facts.counts is None:
            return "still counting"
        if not self.facts.amount:
            return "nothing to apply"
        if self._console_context.require_reason and not self._reason:
            return "reason required: Tab"
        return why_not_now(self._session, self.facts.counts.states)

    def describe(self) -> PlanWords:
        """The words around the plan; tasks that ran cannot be undone."""
        verb = self.facts.plan.verb
        whole = VERBS[verb].is_undoable and verb not in UNDO_TEXTS
        return super().describe()._replace(stage=PlanWords().stage, is_undoable=whole)

    def without(self) -> set[str]:
        """Keys that have no function now."""
        over = set() if self.is_open else {"in_or_out", "reason", "pace", "export"}
        paced = set() if can_be_paced(self.facts.plan) else {"pace"}
        undo = {"operations"} if self._run is None or self._run.ended is None else set()
        needs = {"arm"} if self.why_not_applicable().startswith("reason") else set()
        return (super().without() - needs) | over | paced | undo

    def action_in_or_out(self) -> None:
        """Exclude or include the task under the cursor."""
        picker, facts = self.query_one(Picker), self.facts
        ident = picker.key
        if not self.is_open or not ident or facts.counts is None:
            return
        row = next(row for row in facts.counts.listed if row.id == ident)
        if row.barred:
            self.say(f"cannot be included: {row.barred}")
            return
        facts.plan = _toggled(facts.plan, ident, is_default_out=bool(row.default_exclusion))
        facts.recount()
        self.plan_changed()
        self.lay_out(self.size.width)
        picker.move("down")

    def action_reason(self) -> None:
        """Prompt for the reason that the journal records."""
        if self.is_open:
            self.ask_reason("reason (journal)")
        else:
            self.say("too late: the journal already has this operation")

    def action_pace(self) -> None:
        """Edit rate, canary and stop rules."""
        from tui.plan.pace_form import PaceScreen

        facts = self.facts
        if not can_be_paced(facts.plan) or not self.is_open:
            return

        def take(pace: ReplayPace | None) -> None:
            if wrong := rest_problem(pace, facts.plan.states, self._session.inspector.edges):
                self.say(f"settings not changed: {wrong}")
            elif pace is not None:
                facts.pace = pace
            self.lay_out(self.size.width)

        form = PaceScreen(facts.pace or ReplayPace(), facts.amount, self._session)
        self.app.push_screen(form, take)

    def view(self) -> PlanView:
        """Everything that the text of the plan needs."""
        return self.facts.view(
            self._scope,
            self._reason,
            self._clock(),
            follows=self._follows,
            shown_reason=self.reason_text,
        )

    def copies(self) -> tuple[Copy, ...]:
        """The command of the plan, which the screen cuts to one line."""
        command = self.view().command if self.is_open else ""
        return (Copy("c", "whole command", command),) if command else ()

    def export_table(self) -> ExportTable | None:
        """Export: each task with its expected outcome."""
        if self.facts.counts is None:
            return None
        plan, view = self.facts.plan, self.view()

        def write(take: RowSink) -> int:
            rows, done = iter(plan.rows), 0
            while some := list(islice(rows, EXPORT_CHUNK_ROWS)):
                done += len(some)
                values = [plan_row_values(plan, row, view) for row in some]
                if not take(values, done, len(plan.rows)):
                    break
            return done

        async def hand(take: RowSink) -> int:
            return await asyncio.to_thread(write, take)

        return ExportTable(f"plan-{plan.verb}", PLAN_ROW_FIELDS, hand)


def _toggled(plan: Plan, ident: str, *, is_default_out: bool) -> Plan:
    """The plan with a task excluded if it was included, and the other way round."""
    together = plan.companions.get(ident, frozenset({ident}))
    if is_default_out:
        return plan._replace(included_ids=plan.included_ids ^ together)
    return plan._replace(excluded_ids=plan.excluded_ids ^ together)
