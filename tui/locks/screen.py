"""The lock screen: verdict, evidence, active tasks, and a plan to free the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from engine.index.schema import Query
from engine.model import State
from engine.monitor import lock_diagnosis
from engine.operations.execute import Report
from engine.operations.plans import verb_refusal
from engine.places.place_watcher import why_not_abandoned
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.confirm.confirm_screen import ConfirmScreen, PlanWords
from tui.locks.examination import READING_LOGS, LockExaminer
from tui.locks.lock_plan import LockPlan
from tui.locks.panes import LockPanes
from tui.operations.worker_action import show_worker_plan
from tui.plan import planning
from tui.screens.base import PASTED, key_bindings, opened_from
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session.place_session import PlaceSession
from tui.text import keys

EXAMINE_SECONDS = 1.0
"""Seconds between two examinations."""

OUTPUT_READ_SECONDS = 0.2
"""Seconds between two reads of the recovery's output."""

CURSOR_CHANGE_SECONDS = 0.3
"""Seconds after a change of the cursor's task during which verbs are refused."""

LOG_READ_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the logs before the lock may be freed without them."""


class LockScreen(ConfirmScreen):
    """Live evidence, a plan for the lock as first seen, and plans for the tasks that its worker
    left.
    """

    KIND = keys.LOCK
    BINDINGS = key_bindings(keys.LOCK)
    digits_name = "PID"

    def __init__(
        self,
        session: PlaceSession,
        free: Callable[[str, Sequence[str]], None],
        context: ConsoleContext,
    ) -> None:
        """`free` starts the recovery: it takes what was seen of the lock, and ids of tasks to
        hold.
        """
        super().__init__(session, context)
        self._free = free
        self._exam, self._plan = LockExaminer(session), LockPlan(session)
        self._panes = LockPanes(self, session, self._plan)
        self._opened = self._slipped = float("-inf")

    def compose(self) -> ComposeResult:
        yield from self._panes.compose()

    def on_mount(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self._exam.report = self._exam.first_report()  # the first frame has its final layout
        self.run_worker(self._watch(), name="lock")
        self.run_worker(self._follow(), name="recovery")

    async def _watch(self) -> None:
        while True:
            await self._examine()
            if await self._exam.read_logs():
                await self._examine()
            await asyncio.sleep(EXAMINE_SECONDS)

    async def _examine(self) -> None:
        is_first = self._plan.planned is None
        evidence = (await self._exam.examine()).evidence
        await self._plan.read_task_results()
        withdrawn = self._plan.check(evidence)
        if is_first:
            self.plan_changed()
        if withdrawn:
            self.confirmation.typed = ""
            self.message.clear()
        self.lay_out()

    async def _follow(self) -> None:
        recovery, painted = self.session.recovery, None
        while True:
            progress = (recovery.running, recovery.lines)
            if self._plan.is_begun and progress != painted:
                painted = progress
                await self._examine()
            await asyncio.sleep(OUTPUT_READ_SECONDS)

    # The plan

    @property
    def expected_digits(self) -> str:
        return self._plan.expected_digits

    def why_not_applicable(self) -> str:
        return self._plan.why_not_applicable()

    def why_wait(self) -> str:
        """Wait for the logs: without them, tasks that already finished would run again."""
        report = self._exam.report
        unread = report is not None and any(
            work.log_summary.unknown == READING_LOGS for work in report.active_tasks
        )
        if unread and asyncio.get_running_loop().time() - self._opened < LOG_READ_TIMEOUT_SECONDS:
            return f"still {READING_LOGS}: type it again in a moment"
        return ""

    def apply_plan(self) -> None:
        """Start the recovery process for the planned lock only."""
        report, planned = self._exam.report, self._plan.planned
        assert report is not None
        assert planned is not None
        hold = self._plan.begin(report)
        self._panes.text.move("first")
        self._free(planned.identity, hold)

    # Painting

    def describe(self) -> PlanWords:
        key, does = self._plan.next_step(self.context.arming.is_armed)
        return super().describe()._replace(key=key, does=does)

    def lay_out(self) -> None:
        if not self.is_paintable or not self.size.width:
            return  # closed during the examination
        report, refused = self._exam.report, self.verbs_refusal()
        self._panes.show(report, self.context.clock(), refused, self._note_slip)
        if report is None:
            return
        self.bar = self._plan.bar_line(report, self.confirmation, self.size.width)
        self._show_scope()
        self.show_path()
        self.show_foot()
        self.show_hints()
        self.call_after_refresh(
            self._panes.show_text_frame, report
        )  # the lines below are known then

    def show_path(self) -> None:
        report, below = self._exam.report, opened_from(self)
        step = "lock" if report is None else f"lock {report.evidence.verdict.upper()}"
        target = Target(keys.LOCK, place=self.session.number)
        if below is not None and (words := below.row_words(target)):
            step = f"{step}  {words}"
        self.step = step
        super().show_path()

    def _show_scope(self) -> None:
        """Note what a key acts on: another row may be under the cursor."""
        if (report := self._exam.report) is not None:
            row = "" if self.verbs_refusal() else safe_line(self._panes.works.key)
            self.acts_on = self._plan.acts_on(report, row)

    def _note_slip(self) -> None:
        """The task under the cursor has left: verbs are refused for a moment."""
        self._slipped = asyncio.get_running_loop().time()

    # Keys

    def action_digit(self, digit: str) -> None:
        """Type the PID; once the recovery has ended, open the screen of that digit."""
        is_ended = self._plan.is_begun and not self.session.recovery.running
        if is_ended and digit in SCREEN_TARGETS:
            self.go(SCREEN_TARGETS[digit])
        else:
            super().action_digit(digit)

    def action_move(self, how: str) -> None:
        """Move the cursor if several tasks are active; otherwise scroll."""
        self.message.clear()
        picker = self._panes.works
        if how in ("down", "up") and len(picker.rows) > 1:
            picker.move(how)
        else:
            self._panes.text.move(how)
            self._panes.show_text_frame(self._exam.report)  # it counts the lines below
        self._show_scope()
        self.show_foot()

    def without(self) -> set[str]:
        """Keys without a function; arming is available if there are tasks to act on."""
        without = super().without() | (set() if self.session.lacks_worker else {"worker"})
        without |= set() if self._panes.is_wide else {"graph_range"}
        verbs = {key.action for key in keys.keys_on(keys.LOCK) if key.verb}
        if self.verbs_refusal():
            return without | verbs
        return without - {"arm"}

    def verbs_refusal(self) -> str:
        """Why active tasks cannot be changed, for any verb; "" if they can."""
        report = self._exam.report
        if self.context.arming.read_only:
            return READ_ONLY
        if report is None or not report.is_examined:
            return "lock not examined yet"
        if self.session.recovery.running:
            return "freeing the lock: wait for the result"
        return why_not_abandoned(report.evidence) or (
            "" if report.active_tasks else "no active task"
        )

    def action_graph_range(self) -> None:
        graph, session = self._panes.graph_pane, self.session
        graph.next_range()
        reading = graph.follow(lambda: session, self.lay_out)
        self.run_worker(reading, name="graph", group="graph", exclusive=True)

    def action_worker(self) -> None:
        show_worker_plan(self, self.session, self.context)

    def action_plan(self, verb: str) -> None:
        edges, word = (
            self.session.inspector.edges,
            self.session.inspector.states.get(State.ACTIVE, ""),
        )
        reason = self.verbs_refusal() or verb_refusal(edges, verb, State.ACTIVE, word)
        if self.is_pasted:
            self.say(PASTED)
        elif reason:
            self.say(f"{verb}: {reason}")
        elif asyncio.get_running_loop().time() - self._slipped < CURSOR_CHANGE_SECONDS:
            self.say(f"{verb}: the task under the cursor just left: press again")
        else:
            plan = self._show_plan(verb, self._panes.works.key)
            self.run_worker(plan, name="plan", exclusive=True, group="plan")

    async def _show_plan(self, verb: str, id: str) -> None:
        from tui.plan.screen import show_plan

        report = self._exam.report
        work = next((w for w in report.active_tasks if w.task.id == id), None) if report else None
        if work is None:
            self.say("no plan: the task is no longer active")
            return
        advice = (
            lock_diagnosis.ADVICE_TEXT[work.log_summary.advice]
            if not work.log_summary.unknown
            else work.log_summary.unknown
        )
        scope = f"row {id}, in work, no worker. Recommended: {advice}"
        asked = planning.VerbRequest(verb, {id}, Query(State.ACTIVE), lambda _: scope)
        await show_plan(self, self.session, self.context, asked, self._applied)

    def _applied(self, report: Report) -> None:
        past = VERBS[report.plan.verb].past
        self.say(
            f"{len(report.done):,} {past}, {len(report.gone):,} skipped,"
            f" {len(report.failed):,} failed"
        )
