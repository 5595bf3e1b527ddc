"""The plan screen: preview, confirmation by typed count, progress and result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from textual import work
from textual.app import ComposeResult

from engine.index.schema import Query
from engine.model import Edges
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay.progress import Phase
from engine.replay.settings import ReplayPace
from engine.store import StoreError, Unavailable
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format.export import ExportTable, RowSink
from tui.format.human import format_share
from tui.format.present import Line
from tui.format.table import Choice
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.lines import (
    PlanCounts,
    PlanSize,
    PlanView,
    count_plan,
    expected_outcome,
    plan_lines,
    result_lines,
)
from tui.plan.planning import (
    VerbRequest,
    can_be_paced,
    default_pace,
    equivalent_command,
    include_single_task,
    lock_guard,
    pace_facts,
    plan_warnings,
    why_not_now,
)
from tui.screens.base import BaseScreen, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import MESSAGE_SECONDS
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import check_clusters, recurrence_warnings
from tui.session.running_operations import RunningOperation, describe_result, phase_of
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Picker

MIN_TASK_LINES = 4
"""Minimum number of lines for the task list, below the text."""

DRIFT_CHECK_SECONDS = 0.5
"""Seconds between two checks whether the tasks changed since the plan was made."""

DRIFT_COST_FACTOR = 10
"""Minimum pause between these checks, as a multiple of their duration."""

PROGRESS_SECONDS = 0.1
"""Seconds between two progress updates."""

EXPORT_CHUNK_ROWS = 500
"""Rows exported between two checks for cancellation."""

MAX_INLINE_COUNT_ROWS = 2_000
"""Plans up to this many rows are counted on the event loop; larger ones on a thread."""

NOT_COUNTED = -1
"""The plan is not counted yet."""

NO_MESSAGE = ("", "", float("-inf"))
"""No message."""


class PlanScreen(ConfirmScreen):
    """One plan, from preview to result."""

    KIND = keys.PLAN
    BINDINGS = key_bindings(keys.PLAN)
    DIGITS_NAME = "count"

    def __init__(
        self,
        plan: Plan,
        scope: str,
        live: PlaceSession,
        around: ConsoleContext,
        done: Callable[[Report], None] = lambda report: None,
        follows: str = "",
        warnings: Sequence[str] = (),
        pace: ReplayPace | None = None,
        errors: Query | None = None,
    ) -> None:
        """`scope` describes the tasks; `follows` is the operation that this plan resumes.

        `pace` None means the default of the plan. `errors` selects the tasks that are checked for a
        recurring error; None: no check.
        """
        super().__init__(around.arming, around.clock)
        self._plan, self._scope = plan, scope
        self._live, self._around, self._when_done = live, around, done
        self._follows, self._warnings, self._errors = follows, tuple(warnings), errors
        self._drift: Mapping[str, str] = {}
        self._amount = NOT_COUNTED
        self._weight: PlanSize | None = None
        self._in_trash: int | None = None
        self._pace = pace
        self._facts: Sequence[tuple[str, str]] = ()
        self._tally: PlanCounts | None = None
        self._text: tuple[object, list[Line]] = (None, [])
        self._offered: object = None
        self._said = NO_MESSAGE
        self._applying = False
        self._so_far = 0
        self._report: Report | None = None
        self._result = ""
        """The report in one line, as other screens show it."""

    def compose(self) -> ComposeResult:
        """Title, preview, task list, message line, key hints."""
        yield Lines(id="title")
        yield LongText(id="text")
        yield Picker(id="rows")
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Focus the task list; start counting, measuring and drift checks."""
        self.query_one(Picker).focus()
        self._recount()
        self._watch_drift()
        self._measure_size()
        if self._errors is not None:
            self._check_recurrence(self._errors)

    # Background checks

    @work(group="drift")
    async def _watch_drift(self) -> None:
        generation, loop = -1, asyncio.get_running_loop()
        while self._report is None and not self._applying:
            latest, began = self._live.inspector.latest, loop.time()
            if latest.generation != generation:
                generation = latest.generation
                try:
                    self._show_drift(await self._live.inspector.queries.changed_rows(self._plan))
                except Unavailable:
                    return  # closed: the console is being left
            self._facts = pace_facts(self._live, self._plan, self._pace, self.amount)
            self.lay_out(self.size.width)
            await asyncio.sleep(max(DRIFT_CHECK_SECONDS, DRIFT_COST_FACTOR * (loop.time() - began)))

    def _show_drift(self, drift: Sequence[tuple[plans.Row, str]]) -> None:
        # A barred task was excluded from the start and shows its reason.
        out = {row.id for row, _ in drift if row.barred}
        words: dict[str, str] = {
            state: f"{word} now" for state, word in self._live.inspector.states.items()
        }
        known = {row.id: words.get(how, how) for row, how in drift if row.id not in out}
        if known != self._drift and not self._applying and self._report is None:
            self._drift = known
            self._recount()

    def _recount(self) -> None:
        """Count the plan: on the event loop if it is small, else on a thread."""
        about = (self._plan, self._live.inspector.edges, self._drift)
        if len(self._plan.rows) <= MAX_INLINE_COUNT_ROWS:
            self._set_counts(count_plan(*about))
        else:
            self._tally = None
            self._count(*about)

    @work(group="count", exclusive=True)
    async def _count(self, plan: Plan, edges: Edges, drift: Mapping[str, str]) -> None:
        self._set_counts(await asyncio.to_thread(count_plan, plan, edges, drift))
        self.lay_out(self.size.width)

    def _set_counts(self, about: PlanCounts) -> None:
        before, self._tally, self._amount = self._amount, about, about.amount
        if before != about.amount:
            self.plan_changed()

    @work(group="weigh")
    async def _measure_size(self) -> None:
        loop = asyncio.get_running_loop()

        told = 0.0

        def tell(size: int, amount: int) -> bool:
            nonlocal told
            if amount == len(self._plan.rows) or time.monotonic() - told > DRIFT_CHECK_SECONDS:
                told = time.monotonic()
                loop.call_soon_threadsafe(partial(self._set_size, PlanSize(size, amount)))
            return self._report is None and not self._applying

        try:
            if self._plan.verb == "purge" and self._live.place.trash is not None:
                self._in_trash = await self._live.inspector.actions.trash_bytes()
            await self._live.inspector.actions.measure_tasks(self._plan, tell)
        except StoreError as error:
            self.say(f"size unknown: {error}")

    @work(group="judge")
    async def _check_recurrence(self, query: Query) -> None:
        try:
            found = await check_clusters(self._live, query)
        except Unavailable:
            return  # closed: the console is being left
        self._warnings = (*self._warnings, *recurrence_warnings(found))
        if self._report is None:
            self.lay_out(self.size.width)

    def _set_size(self, weight: PlanSize) -> None:
        self._weight = weight
        if self.is_paintable:
            self.lay_out(self.size.width)

    # Painting

    @property
    def amount(self) -> int:
        """Number of tasks that would be acted on."""
        return max(0, self._amount)

    @property
    def expected_digits(self) -> str:
        """The count, for a plan with several tasks or one that cannot be undone."""
        safe = self.amount <= 1 and VERBS[self._plan.verb].is_undoable
        return "" if safe else str(self.amount)

    def _plan_view(self, about: PlanCounts) -> PlanView:
        inspector = self._live.inspector
        return PlanView(
            inspector.states,
            inspector.edges,
            self._clock(),
            self._scope,
            self._drift,
            self._weight,
            [*self._facts, *self._trash_facts()],
            self._warnings,
            self._reason,
            equivalent_command(about, self._live, self._reason, self._pace, self._follows),
        )

    def _trash_facts(self) -> list[tuple[str, str]]:
        """Trash usage after a purge, and its retention."""
        trash, now = self._live.place.trash, self._in_trash
        if trash is None or now is None or self._weight is None:
            return []
        more = self._weight.bytes
        words = f"{format_share(now + more, trash.quota)} after this; kept {trash.hours:g} h"
        full = "; tasks beyond the quota are not purged" if now + more > trash.quota else ""
        return [("trash", words + full)]

    @property
    def _is_mounted_whole(self) -> bool:
        """True if all child widgets are mounted; there is nothing to paint before or after."""
        ids = {part.id for part in self.children}
        return self.is_paintable and {"title", "text", "rows", "word", "hints"} <= ids

    def lay_out(self, width: int) -> None:
        """Paint the plan or its result for this width."""
        if not self._is_mounted_whole or not width:
            return
        verb = self._plan.verb
        picker, text = self.query_one(Picker), self.query_one(LongText)
        lines = self._lines(width)
        if self._report is None and self._tally is not None:
            self._list_tasks(picker, self._tally, width)
        picker.display = self._report is None
        room = max(1, self.size.height - MIN_TASK_LINES - 3)
        text.styles.height = "1fr" if self._report else min(len(lines), room)
        what = "result" if self._report else "plan, nothing written yet"
        if self._applying:
            what = f"{self._so_far:,} of {self.amount:,} done"
        self.show((), lines, self._message_line())
        amount = present.format_count(len(self._plan.rows), "task")
        self.show_title(((f" {verb} {amount}", "strong"), (f"   {what}", "muted")))
        words = {"arm": keys.arm_hint(self._arming.is_armed)}
        if self._report or self._applying:
            words["back"] = "close"
        hints = keys.hints_of(self.KIND, self.disabled_actions(), self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.is_minor))  # what acts comes first
        self.query_one("#hints", Lines).show(present.hint_lines(hints, width))

    def _lines(self, width: int) -> list[Line]:
        """The text above the task list, cached until its input changes."""
        if self._report is not None:
            if self._text[0] != (self._report.op, width):
                self._text = (self._report.op, width), result_lines(self._report, width)
            return self._text[1]
        if self._tally is None:
            amount = present.format_count(len(self._plan.rows), "task")
            return [((f"   counting {amount} ...", "muted"),)]
        if self._applying:
            return self._text[1]
        lines = plan_lines(self._tally, self._plan_view(self._tally), width)
        self._text = None, lines
        return lines

    def _list_tasks(self, picker: Picker, about: PlanCounts, width: int) -> None:
        wanted = (id(about), width)
        if self._offered == wanted:
            return
        self._offered = wanted
        more = len(self._plan.rows) - len(about.listed)
        listed = f", the first {len(about.listed):,} listed" if more else ""
        heading = f"{present.format_count(len(self._plan.rows), 'task')}{listed}"
        sight = self._plan_view(about)
        idents = [safe_line(row.id) for row in about.listed]
        cells = max(20, min(max(map(len, idents), default=0), width - 32))
        choices = []
        for row, ident in zip(about.listed, idents, strict=True):
            words, look = expected_outcome(self._plan, row, sight)
            line = ((f"   {present.fit_text_end(ident, cells)}  ", ""), (safe_line(words), look))
            choices.append(Choice(row.id, present.cut_line(line, width)))
        picker.show_rows(choices, [present.heading_line(heading, width)])

    def without(self) -> set[str]:
        """Keys that have no function now."""
        over = (
            {"in_or_out", "reason", "pace", "export"} if self._report or self._applying else set()
        )
        paced = set() if can_be_paced(self._plan) else {"pace"}
        return super().without() | over | paced | (set() if self._report else {"operations"})

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message for `MESSAGE_SECONDS`, or until the next key."""
        self._said = (text, look, asyncio.get_running_loop().time())
        if self._is_mounted_whole:
            super().say(text, look)

    def _message_line(self) -> Line:
        text, look, when = self._said
        if text and asyncio.get_running_loop().time() - when < MESSAGE_SECONDS:
            return ((f" {safe_line(text)}", look),)
        return self._prompt_line()

    def clear_message(self) -> None:
        """Clear the message."""
        self._said = NO_MESSAGE

    def _prompt_line(self) -> Line:
        verb, amount = self._plan.verb, self.amount
        if self._report is not None:
            hint = self._live.worker_hint(verb) if self._report.done else ""
            return ((f" {hint}", "strong"),)
        if self._applying:
            return ((" applying ... Esc leaves, it continues", "strong"),)
        if self._tally is None:
            return ((" counting ...", "muted"),)
        if not amount:
            return ((" nothing to do: all tasks are excluded or changed", "warn"),)
        doing = "undo" if verb == "undo" else verb
        return self.confirm_prompt(f"type {amount} to {doing} {amount:,}", f"{doing} this task")

    def why_not_applicable(self) -> str:
        """Why the plan cannot be applied: applied already, running, or empty."""
        if self._report is not None:
            return "already applied: Esc closes"
        if self._applying:
            return "already applying"
        if self._tally is None:
            return "still counting"
        if not self.amount:
            return "nothing to apply"
        if self._around.require_reason and not self._reason:
            return "reason required: Tab"
        return why_not_now(self._live, self._tally.states)

    # Keys

    def action_move(self, how: str) -> None:
        """Move through the tasks, or scroll the result."""
        if self._report is None:
            self.query_one(Picker).move(how)
        else:
            self.query_one(LongText).move(how)

    def action_in_or_out(self) -> None:
        """Exclude or include the task under the cursor."""
        ident = self.query_one(Picker).key
        if self._report is not None or self._applying or not ident or self._tally is None:
            return
        plan, one = self._plan, frozenset({ident})
        row = next(row for row in self._tally.listed if row.id == ident)
        if row.barred:
            self.say(f"cannot be included: {row.barred}")
            return
        if row.default_exclusion:
            plan = plan._replace(included_ids=plan.included_ids ^ one)
        else:
            plan = plan._replace(excluded_ids=plan.excluded_ids ^ one)
        self._plan, self._typed, self._amount = plan, "", NOT_COUNTED
        self._recount()
        self.lay_out(self.size.width)
        self.query_one(Picker).move("down")

    def action_reason(self) -> None:
        """Prompt for the reason that the journal records."""
        if self._report is not None or self._applying:
            self.say("too late: the journal already has this operation")
            return
        self.ask_reason("reason (journal)")

    def action_operations(self) -> None:
        """Open the operations screen, but only after the plan was applied: leaving would discard
        it.
        """
        if self._report is not None:
            super().action_operations()
        elif self._applying:
            self.say("applying: u when done")
        else:
            self.say("not applied yet: Esc discards the plan, then u")

    def action_pace(self) -> None:
        """Edit rate, canary and stop rules."""
        from tui.plan.pace_form import PaceScreen

        if not can_be_paced(self._plan) or self._report is not None or self._applying:
            return

        def take(pace: ReplayPace | None) -> None:
            if pace is not None:
                self._pace = pace
                self._facts = pace_facts(self._live, self._plan, pace, self.amount)
            self.lay_out(self.size.width)

        self.app.push_screen(PaceScreen(self._pace or ReplayPace(), self.amount, self._live), take)

    def action_back(self) -> None:
        """Close; an unapplied plan is discarded, a running one continues in the background."""
        if self._result in self._live.messages:
            self._live.messages.remove(self._result)  # shown on this screen
        self.dismiss()

    def export_table(self) -> ExportTable | None:
        """Export: each task with its expected outcome."""
        if self._tally is None:
            return None
        plan, sight = self._plan, self._plan_view(self._tally)

        def write(take: RowSink) -> int:
            rows, done = iter(plan.rows), 0
            while some := list(islice(rows, EXPORT_CHUNK_ROWS)):
                done += len(some)
                values = [
                    {
                        "id": row.id,
                        "state": str(row.state),
                        "revision": row.rev,
                        "outcome": expected_outcome(plan, row, sight)[0],
                    }
                    for row in some
                ]
                if not take(values, done, len(plan.rows)):
                    break
            return done

        async def hand(take: RowSink) -> int:
            return await asyncio.to_thread(write, take)

        return ExportTable(f"plan-{plan.verb}", ("id", "state", "revision", "outcome"), hand)

    def _intent(self) -> Intent:
        plan = self._plan
        return Intent(
            plan.verb,
            self._live.place.who,
            self._reason,
            plan.filter,
            self._scope,
            plan.undoes,
            self._follows,
            plan.values,
        )

    def apply_plan(self) -> None:
        """Apply the plan and follow it until the report."""
        self._applying = True
        # Changed tasks stay in the plan: apply re-checks them and reports them as skipped.
        plan = self._plan
        begun = self._live.start_plan(
            plan, self._intent(), self._pace, lock_guard(self._live, plan)
        )
        # The app runs it, not this screen, so it continues when the screen is closed.
        self.app.run_worker(self._follow_operation(begun), name="apply", group="apply")
        if self._pace is not None:
            self.go(Target(keys.RUNNING_OPERATION, id=begun.op))

    async def _follow_operation(self, begun: RunningOperation) -> None:
        said = False
        while begun.ended is None:
            said = self._announce_question(begun, said)
            self._so_far = sum(begun.counts.values())
            self.lay_out(self.size.width)
            await asyncio.sleep(PROGRESS_SECONDS)
        report = begun.report
        assert report is not None
        self._report, self._applying, self._result = report, False, describe_result(begun)
        self._arming.extend()
        self._when_done(report)
        self.lay_out(self.size.width)

    def _announce_question(self, begun: RunningOperation, said: bool) -> bool:
        """Announce once that the operation waits for the operator, unless its screen is open;
        True if done.
        """
        if phase_of(begun) is not Phase.ASKING:
            return False
        if not said and getattr(self.app.screen, "work", None) is not begun:
            self._live.messages.append(f"{begun.name} asks whether to continue: u, Enter")
            return True
        return said


async def show_plan(
    face: BaseScreen,
    live: PlaceSession,
    around: ConsoleContext,
    asked: VerbRequest,
    done: Callable[[Report], None] = lambda report: None,
) -> None:
    """Freeze a plan and show it, or show why there is none."""
    verb = asked.verb
    try:
        plan = await live.inspector.queries.make_plan(verb, asked.ids, asked.query, live.noted_ids)
        if verb == "restore":
            plan = await live.inspector.actions.plan_restore(plan, live.place.retention_days)
    except StoreError as error:
        face.say(f"no plan: {error}")
        return
    plan = include_single_task(plan._replace(values=asked.values))
    if asked.ids and not plan.rows:
        face.say("no plan: the tasks are gone or filtered")
        return
    if face.app.screen is not face:  # a screen below a menu is current, too
        face.say("no plan: another screen was opened meanwhile")
        return
    words, warned = asked.describe_scope(len(plan.rows)), plan_warnings(live, plan, asked)
    pace = default_pace(plan, picked=asked.ids is not None)
    errors = asked.query if verb == "retry" and asked.ids is None else None
    face.app.push_screen(
        PlanScreen(plan, words, live, around, done, warnings=warned, pace=pace, errors=errors)
    )
