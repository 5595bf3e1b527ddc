"""The plan screen: preview, confirmation by typed count, progress and result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from textual.widget import Widget

from engine.index.schema import Query
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay.progress import Phase
from engine.replay.settings import ReplayPace, rest_problem
from engine.text.figures import format_count
from engine.text.times import format_rough_duration
from engine.verbs import VERBS
from tui.confirm.confirm_screen import FIXED_LINES, ConfirmScreen, PlanWords
from tui.plan.plan_facts import PlanFacts
from tui.plan.plan_lines import (
    PLAN_ROW_FIELDS,
    UNDO_TEXTS,
    PlanView,
    is_final,
    plan_lines,
    plan_row_values,
    result_lines,
)
from tui.plan.planning import (
    VerbRequest,
    can_be_paced,
    default_pace,
    include_single_task,
    lock_guard,
    plan_warnings,
    prepare,
    why_not_now,
)
from tui.plan.result_rows import TaskStates, read_states, report_results, result_table
from tui.plan.task_table import side_lines, still_pane_lines, task_table
from tui.screens.base import BaseScreen, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.place_foot import PlaceBox
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation, describe_result, phase_of
from tui.text import keys
from tui.text.export import ExportTable, RowSink
from tui.text.frames import Frame, frame_border
from tui.text.lines import BLANK_LINE, Line, join_columns
from tui.widgets.background import run_in_background
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker

SHOWN_TASKS = 8
"""Tasks for which the last line of the plan gives way."""

MIN_TASK_LINES = 4

MIN_STILL_HEIGHT = 30
"""Height of the screen in lines from which it has a pane on whether the errors still happen."""

RESULT_READ_SECONDS = 1.0
"""Seconds until it is read again where the tasks of a result are."""

PROGRESS_SECONDS = 0.1

SIDE_COLUMNS, SIDE_CELLS = 110, 42
"""From so many columns on the steps of a replay are beside the facts, in so many cells."""

EXPORT_CHUNK_ROWS = 500
"""Rows exported between two checks for cancellation."""


class PlanScreen(ConfirmScreen):
    """One plan for tasks, from preview to result."""

    KIND = keys.PLAN
    BINDINGS = key_bindings(keys.PLAN)
    focused_part = "#rows"

    def __init__(
        self,
        plan: Plan,
        scope: str,
        session: PlaceSession,
        context: ConsoleContext,
        done: Callable[[Report], None] = lambda report: None,
        follows: str = "",
        warnings: Sequence[str] = (),
        pace: ReplayPace | None = None,
        errors: Query | None = None,
    ) -> None:
        """`scope` describes the tasks; `follows` is the operation that this plan resumes. `pace`
        None means all now. `errors` selects the tasks that are checked for a recurring error; None:
        no check."""
        super().__init__(session, context)
        self.facts = PlanFacts(plan, session, pace, warnings)
        self._scope, self._follows = scope, follows
        self._run: RunningOperation | None = None
        self._when_done, self._errors = done, errors
        self._rows, self._still = Picker(id="rows"), LongText(id="still")
        self.body = PlaceBox(self.text, self._rows, self._still)
        self._text: list[Line] = []
        self._states = TaskStates()
        """Where the tasks of the result are now."""
        self._listed: object = None
        """What the table was made of."""

    def on_mount(self) -> None:
        if self.facts.recount():
            self.plan_changed()
        for job in self.facts.jobs(self._errors, self._facts_changed, self.plan_changed):
            run_in_background(self, job, group="facts")

    def _facts_changed(self) -> None:
        # The thread that measures a large plan may report after the screen is closed.
        if self.is_open and self.is_paintable:
            if trouble := self.facts.trouble:
                self.facts.trouble = ""
                self.say(trouble)
            self.lay_out()

    @property
    def is_open(self) -> bool:
        """True until the plan is applied."""
        return self._run is None

    @property
    def report(self) -> Report | None:
        """The result; None until the plan was applied."""
        return None if self._run is None else self._run.report

    # What is confirmed (`Subject`)

    @property
    def expected_digits(self) -> str:
        """The count, for a plan with several tasks or one that cannot be undone."""
        amount = self.facts.amount
        safe = amount <= 1 and VERBS[self.facts.plan.verb].is_undoable
        safe = safe and not (self.facts.counts is not None and is_final(self.facts.counts))
        return "" if safe else str(amount)

    def why_not_applicable(self) -> str:
        """Why the plan cannot be applied: applied already, running, or empty."""
        if self._run is not None:
            return "already applying" if self._run.ended is None else "already applied: Esc closes"
        if self.facts.counts is None:
            return "still counting"
        if not self.facts.amount:
            return "nothing to apply"
        return why_not_now(self.session, self.facts.counts.states)

    @property
    def takes_reason(self) -> bool:
        """Until the journal has it."""
        return self.is_open

    # Painting

    def describe(self) -> PlanWords:
        facts, verb = self.facts, self.facts.plan.verb
        # What ran cannot be undone.
        is_undoable = VERBS[verb].is_undoable and verb not in UNDO_TEXTS
        is_undoable = is_undoable and not (facts.counts is not None and is_final(facts.counts))
        words = super().describe()._replace(stage=PlanWords().stage, is_undoable=is_undoable)
        if self._run is not None:
            done, planned = sum(self._run.counts.values()), len(facts.plan.rows)
            stage = "result" if self.report else f"{done:,} of {planned:,} done"
            hint = self.session.worker_hint(facts.plan.verb) if self.report else ""
            if hint or not self.report or not self.report.op:
                return words._replace(stage=stage, key="", does=hint)
            undo = "; u again undoes it" if self.report.is_undoable else ""
            return words._replace(stage=stage, key="u", does=f"opens it in operations{undo}")
        if not facts.amount:
            return words._replace(key="Esc", does="discards the plan")
        still = sum(one.amount for one in facts.still_failing())
        if still:
            which = f"all {still:,}" if still == facts.amount else f"{still:,} of {facts.amount:,}"
            fail = "still fails" if still == 1 else "still fail"
            return words._replace(key="Esc", does=f"leaves: {which} {fail}, fix the cause first")
        stopped = facts.last_failure()
        if stopped is not None and words.does == "applies it":
            ago = format_rough_duration(max(0.0, self.context.clock() - stopped))
            errors = "error" if len(facts.clusters) == 1 else "errors"
            return words._replace(does=f"applies it: {errors} stopped {ago} ago")
        return words

    def lay_out(self) -> None:
        if not self.is_paintable or not self.size.width or not self.query("#hints"):
            return
        self._fill(self.text_width)
        amount, name = format_count(self.facts.amount, "task"), self.facts.words.name
        title = ((name, "title"), (f" {amount.upper()}", "title"))
        acts_on, needed = amount if self.is_open else "", self._needed()
        self.show_text(title, self._text, self._prompt(name), acts_on, needed=needed)
        self.show_hints(**({} if self.is_open else {"back": "close"}))

    def hints(self, words: Mapping[str, str]) -> Sequence[keys.Hint]:
        """What acts comes first."""
        return sorted(super().hints(words), key=lambda hint: hint.is_minor)

    def _fill(self, width: int) -> None:
        """The text of the plan or of the result, and the table of tasks."""
        facts, picker = self.facts, self._rows
        if self.report is not None:
            report, past = self.report, facts.words.past
            lines = result_lines(report, width, past, with_ids=False)
            results, words = report_results(report, past), self.session.inspector.states
            total = len(report.plan.rows)
            lines += [BLANK_LINE, *result_table(results, total, self._states, words, width)]
            self._text = lines
        elif facts.counts is None:
            count = format_count(len(facts.plan.rows), "task")
            self._text = [((f"   counting {count} ...", "muted"),)]
        elif self.is_open:
            view = self.view()
            side = side_lines(facts, SIDE_CELLS - 2) if width >= SIDE_COLUMNS else []
            room = width - SIDE_CELLS if side else width
            lines = plan_lines(facts.counts, view, room)
            self._text = join_columns(lines, side, room, width) if side else lines
            made_of = tuple(map(id, (facts.counts, facts.tasks, facts.clusters, facts.pace))), width
            if self._listed != made_of:
                self._listed = made_of
                head, choices = task_table(facts, view, width)
                picker.show_rows(choices, [head])
        self._still.show(still_pane_lines(facts, width))

    def _needed(self) -> dict[Widget, int]:
        """The lines of each pane: the plan has those that it needs, the tasks what is left. Writes
        the frames of the tasks."""
        facts, height, border = self.facts, self.size.height, frame_border(*self.size)
        planned, text = len(facts.plan.rows), border + len(self._text)
        if self.report is not None:
            return {self.text: text}
        out, listed = planned - facts.amount, len(facts.counts.listed) if facts.counts else 0
        right = f"first {listed:,} listed" if 0 < listed < planned else ""
        name = f"Tasks {facts.amount:,}" + (f", excluded {out:,}" if out else "")
        frame = Frame(name, right=((right, "muted"),) if right else ())
        for pane, its in ((self._rows, frame), (self._still, Frame("Still happening?"))):
            pane.add_class("pane")
            pane.show_frame(its, focused=pane is self._rows)
        room = height - (FIXED_LINES if border else FIXED_LINES - 1)
        tasks = border + 1 + min(SHOWN_TASKS, planned)
        most = max(room - tasks, text - 1)  # only the size gives way
        still = border + len(self._still.lines) if self._still.lines else 0
        if height < MIN_STILL_HEIGHT or text + still + planned // 2 >= room - MIN_TASK_LINES:
            still = 0
        needed: dict[Widget, int] = {
            self.text: max(1 + border, min(text, room - MIN_TASK_LINES, most))
        }
        left = room - needed[self.text] - still
        needed[self._rows] = max(1, min(left, border + self._rows.line_count))
        return needed | ({self._still: still} if still else {})

    def _prompt(self, name: str) -> Line:
        amount = self.facts.amount
        if self.report is not None:
            is_wrong = self.report.failed or self.report.trouble
            word, look = ("done in part", "warn") if is_wrong else ("done", "ok")
            word, look = (word, look) if self.report.done else ("nothing was done", "error")
            return ((f" {word}", look),)
        if self._run is not None:
            return ((" applying ... Esc leaves, it continues", "strong"),)
        if self.facts.counts is None:
            return ((" counting ...", "muted"),)
        if not amount:
            why = "all tasks are excluded or changed" if self.facts.plan.rows else "no task matches"
            why += ": I includes them" if self.facts.has_suspicious else ""
            refused = (would.refused for would in self.facts.counts.transitions)
            why = next(filter(None, refused), why)
            return ((f" nothing to do: {why}", "warn"),)
        return self.confirmation.prompt(
            f"type {amount} to {name} {amount:,}", f"{name} this task", self.size.width
        )

    # Keys

    def without(self) -> set[str]:
        over = set() if self.is_open else {"in_or_out", "include_all", "reason", "pace", "export"}
        # Only a careful verb excludes tasks that an operator may include.
        over |= set() if self.facts.has_suspicious else {"include_all"}
        paced = set() if can_be_paced(self.facts.plan) else {"pace"}
        undo = {"operations"} if self._run is None or self._run.ended is None else set()
        return super().without() | over | paced | undo

    def action_in_or_out(self) -> None:
        picker, facts = self._rows, self.facts
        ident = picker.key
        if not self.is_open or not ident or facts.counts is None:
            return
        row = next(row for row in facts.counts.listed if row.id == ident)
        if row.barred:
            self.say(f"cannot be included: {row.barred}")
            return
        is_default_out = bool(row.default_exclusion) and not facts.plan.includes_suspicious
        facts.plan = _toggled(facts.plan, ident, is_default_out=is_default_out)
        facts.recount()
        self.plan_changed()
        self.lay_out()
        picker.move("down")

    def action_include_all(self) -> None:
        """Include all suspicious tasks, or exclude them again."""
        facts = self.facts
        if not self.is_open or not facts.has_suspicious:
            return
        is_all = not facts.plan.includes_suspicious
        facts.plan = facts.plan._replace(includes_suspicious=is_all, included_ids=frozenset())
        facts.recount()
        self.plan_changed()
        self.lay_out()

    def action_reason(self) -> None:
        if self.is_open:
            super().action_reason()
        else:
            self.say("too late: the journal already has this operation")

    def action_pace(self) -> None:
        from tui.plan.pace_form import PaceScreen

        facts = self.facts
        if not can_be_paced(facts.plan) or not self.is_open:
            return

        def take(pace: ReplayPace | None) -> None:
            if wrong := rest_problem(pace, facts.plan.states, self.session.inspector.edges):
                self.say(f"settings not changed: {wrong}")
            elif pace is not None:
                facts.pace = pace
            self.lay_out()

        form = PaceScreen(facts.pace or ReplayPace(), facts.amount, self.session)
        self.app.push_screen(form, take)

    def action_move(self, how: str) -> None:
        if self.report is None:
            self._rows.move(how)
        else:
            self.text.move(how)

    def action_operations(self) -> None:
        """Open the operations screen, but only after the plan was applied: leaving would discard
        it."""
        if self.report is not None:
            super().action_operations()
        elif self._run is not None:
            self.say("applying: u when done")
        else:
            self.say("not applied yet: Esc discards the plan, then u")

    def action_back(self) -> None:
        """Close; an unapplied plan is discarded, a running one continues in the background."""
        if self._run is not None and self._run.ended is not None:
            sentence = describe_result(self._run)
            if sentence in self.session.messages:
                self.session.messages.remove(sentence)  # shown on this screen
        self.dismiss()

    def view(self) -> PlanView:
        """Everything that the text of the plan needs."""
        return self.facts.view(
            self._scope,
            self.confirmation.reason,
            self.context.clock(),
            follows=self._follows,
            shown_reason=self.reason_text,
        )

    def copies(self) -> tuple[Copy, ...]:
        command = self.view().command if self.is_open else ""
        return (Copy("c", "whole command", command),) if command else ()

    def export_table(self) -> ExportTable | None:
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

    def apply_plan(self) -> None:
        facts, session = self.facts, self.session
        facts.is_closed = True
        # Changed tasks stay in the plan: apply re-checks them and reports them as skipped.
        plan = facts.plan
        intent = Intent(
            plan.verb,
            session.place.who,
            self.confirmation.reason,
            filter=plan.filter,
            scope=self._scope,
            undoes=plan.undoes,
            follows=self._follows,
            values=plan.values,
        )
        self._run = session.start_plan(plan, intent, facts.pace, lock_guard(session, plan))
        # The app runs it, not this screen, so it continues when the screen is closed.
        run_in_background(self.app, partial(self._follow, self._run), name="apply", group="apply")
        if facts.pace is not None:
            self.go(Target(keys.RUNNING_OPERATION, id=self._run.op))

    def shows_operation(self, operation: object) -> bool:
        """True for its own: the screen of a paced one takes this one's place in a moment."""
        return operation is self._run

    async def _follow(self, run: RunningOperation) -> None:
        is_announced = False
        while run.ended is None:
            is_asking = phase_of(run) is Phase.ASKING
            top = self.app.screen
            is_shown = isinstance(top, BaseScreen) and top.shows_operation(run)
            if is_asking and not is_announced and not is_shown:
                self.session.messages.append(f"{run.words.name} asks whether to continue: u, Enter")
                is_announced = True
            is_announced = is_announced and is_asking
            self.lay_out()
            await asyncio.sleep(PROGRESS_SECONDS)
        assert run.report is not None
        self.context.arming.extend()
        self._when_done(run.report)
        self.lay_out()
        ids = {one.id for one in report_results(run.report, "")}
        while self.is_attached:
            if self.is_current:
                self._states = await read_states(self.session.inspector, ids)
                self.lay_out()
            await asyncio.sleep(RESULT_READ_SECONDS)


def _toggled(plan: Plan, ident: str, *, is_default_out: bool) -> Plan:
    """The plan with a task excluded if it was included, and the other way round."""
    together = plan.companions.get(ident, frozenset({ident}))
    if is_default_out:
        return plan._replace(included_ids=plan.included_ids ^ together)
    return plan._replace(excluded_ids=plan.excluded_ids ^ together)


async def _freeze(session: PlaceSession, asked: VerbRequest) -> Plan:
    make = session.inspector.queries.make_plan
    plan = await make(asked.verb, asked.ids, asked.query, session.noted_ids)
    if asked.verb == "restore":
        plan = await session.inspector.actions.plan_restore(plan, session.place.retention_days)
    if asked.rev:
        rows = tuple(row._replace(rev=asked.rev) for row in plan.rows)
        plan = plan._replace(rows=rows, generation=-1)
    return include_single_task(plan._replace(values=asked.values))


async def show_plan(
    screen: BaseScreen,
    session: PlaceSession,
    context: ConsoleContext,
    asked: VerbRequest,
    done: Callable[[Report], None] = lambda report: None,
) -> None:
    """Freeze a plan and show it, or show why there is none."""
    what = "all tasks" if asked.ids is None else format_count(len(asked.ids), "task")
    plan = await prepare(screen, f"the {asked.verb} plan of {what}", _freeze(session, asked))
    if plan is None:
        return
    if asked.ids and not plan.rows:
        screen.say("no plan: the tasks are gone or filtered")
        return
    words = asked.describe_scope(len(plan.rows) - plan.added)
    warned = plan_warnings(session, plan, asked)
    pace = default_pace(plan, picked=asked.ids is not None)
    errors = asked.query if VERBS[asked.verb].paced else None
    screen.app.push_screen(
        PlanScreen(plan, words, session, context, done, warnings=warned, pace=pace, errors=errors)
    )
