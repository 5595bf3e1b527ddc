"""The lock screen: verdict, evidence, active tasks, and a plan to free the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from engine.index.schema import Query
from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.operations.execute import Report
from engine.operations.plans import verb_refusal
from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format.present import BLANK_LINE, Line
from tui.format.table import Choice
from tui.locks import lines as view
from tui.locks import recovery_steps
from tui.locks.examination import READING_LOGS, LockExaminer, LockReport
from tui.locks.recovery_steps import OutputLine, RecoveryStep
from tui.plan import planning
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import TOO_EARLY, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place import NO_WORKER_HINT
from tui.session.place_session import PlaceSession
from tui.session.place_watcher import why_not_abandoned
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Picker

EXAMINE_SECONDS = 1.0
"""Seconds between two examinations."""

MESSAGE_SECONDS = 6.0
"""Seconds for which a message stays."""

FRAME_LINES = 4
"""Lines of title, scope, question and hints."""

OUTPUT_READ_SECONDS = 0.2
"""Seconds between two reads of the recovery's output."""

CURSOR_CHANGE_SECONDS = 0.3
"""Seconds after a change of the cursor's task during which verbs are refused."""

LOG_READ_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the logs before the lock may be freed without them."""

MIN_TASK_LINES = 3
"""Minimum number of active tasks on screen; a sixth of the height if that is more."""


class LockScreen(ConfirmScreen):
    """Live evidence, and a plan for the lock as it was when the screen was opened."""

    KIND = keys.LOCK
    BINDINGS = key_bindings(keys.LOCK)
    DIGITS_NAME = "PID"

    def __init__(
        self, live: PlaceSession, free: Callable[[str, Sequence[str]], None], around: ConsoleContext
    ) -> None:
        """`free` starts the recovery: it takes what was seen of the lock, and ids of tasks to
        hold.
        """
        super().__init__(live, around)
        self._inspector = live.inspector
        self._recovery, self._free = live.recovery, free
        self._exam = LockExaminer(live)
        self._planned: LockEvidence | None = None
        self._plan: tuple[RecoveryStep, ...] = ()
        self._withdrawn = ""
        self._begun = live.recovery.running
        self._were: tuple[Task, ...] = ()
        self._now_are: dict[str, Task | None] = {}
        self._said: tuple[str, float] = ("", 0.0)
        self._slipped = float("-inf")
        self._opened = float("-inf")

    def compose(self) -> ComposeResult:
        """The page's parts, the active tasks, and a scope line that does not scroll."""
        yield from super().compose()
        yield Picker(id="works")
        yield Lines(id="scope")

    def on_mount(self) -> None:
        """Start examining the lock and following the recovery."""
        self.move_child(self.query_one("#works"), before=self.query_one("#word"))
        self.move_child(self.query_one("#scope"), before=self.query_one("#word"))
        self._opened = asyncio.get_running_loop().time()
        self.run_worker(self._watch(), name="lock")
        self.run_worker(self._follow(), name="recovery")

    async def _watch(self) -> None:
        while True:
            await self._examine()
            if await self._exam.read_logs():
                await self._examine()
            await asyncio.sleep(EXAMINE_SECONDS)

    async def _examine(self) -> None:
        evidence = (await self._exam.examine()).evidence
        if self._planned is None:
            self._planned = evidence
            self.plan_changed()
        await self._read_task_results()
        (said, when), now = self._said, self._clock()
        if not self._begun and not self._withdrawn:
            self._withdrawn = view.why_outdated(self._planned, evidence)
            if self._withdrawn:
                self._typed = said = ""
        self.lay_out(self.size.width)
        if said and 0 <= now - when < MESSAGE_SECONDS:
            self.say(said)
            self._said = (said, when)

    async def _read_task_results(self) -> None:
        if self._begun and not self._recovery.running:
            try:
                found = {
                    task.id: await self._inspector.queries.task(task.id) for task in self._were
                }
            except Unavailable:
                return  # keep the last result
            self._now_are = found

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message until the next key, also across repaints."""
        super().say(text, look)
        self._said = (text, self._clock())

    async def _follow(self) -> None:
        painted: object = None
        while True:
            said = (self._recovery.running, self._recovery.lines)
            if self._begun and said != painted:
                painted = said
                await self._examine()
            await asyncio.sleep(OUTPUT_READ_SECONDS)

    # Painting

    def lay_out(self, width: int) -> None:
        """Paint verdict, evidence, backlog, and plan or result for this width."""
        if not self.is_paintable:
            return  # closed during the examination
        case = self._exam.report
        self._said = ("", 0.0)
        if case is None:
            self.show((), [BLANK_LINE, (("   examining the lock ...", "muted"),)], ())
            return
        rows = self._list_active_tasks(case, width)
        text = self._text(case, width)
        if len(text) > self.size.height - FRAME_LINES - rows:
            text = [line for line in text if line]  # headings separate the parts
        self.show((), text, self._prompt_line())
        self._show_scope()
        self.show_title(((" lock  ", "title"), present.lock_verdict(case.evidence)))
        arm = {"arm": keys.arm_hint(self._arming.is_armed)}
        self.show_hints(self.disabled_actions(), self.without(), arm)

    def _list_active_tasks(self, case: LockReport, width: int) -> int:
        """Show the active tasks; returns the number of lines used."""
        picker, now = self.query_one("#works", Picker), self._clock()
        rows = [
            Choice(w.task.id, view.active_task_line(w, case, now, width)) for w in case.active_tasks
        ]
        shown_rows = min(len(rows), max(MIN_TASK_LINES, self.size.height // 6))
        lines = shown_rows + 1 if rows and self.size.height >= 15 else 0
        picker.styles.height = lines
        picker.activate(case.is_abandoned)
        before = picker.key
        picker.show_rows(rows, [view.head_line(case, self._verbs_refusal(), width)])
        if before not in ("", picker.key):
            self._slipped = asyncio.get_running_loop().time()
        return lines

    def _text(self, case: LockReport, width: int) -> list[Line]:
        now = self._clock()
        amounts = {state: self._amount(state) for state in (State.PENDING, State.ACTIVE)}
        evidence = view.evidence_lines(case, width)
        works = view.active_task_lines(case, now, width)
        if self._begun:
            return [*self._result_lines(width), BLANK_LINE, *evidence]
        text = [
            *view.verdict_lines(case, width),
            *view.backlog_lines(case, amounts, now, width),
        ]
        if self._has_plan:
            hold, states = view.accepted_ids(case), self._inspector.states
            steps = recovery_steps.lock_steps(
                case.evidence, recovery_steps.task_steps(states, len(hold))
            )
            twin = recovery_steps.equivalent_command(self._live.place.recovery_command, hold)
            text += [BLANK_LINE, *recovery_steps.plan_lines(steps, twin, width)]
        elif case.evidence.verdict in present.ALARMING_VERDICTS and not self._withdrawn:
            text += [BLANK_LINE, present.heading_line("no plan; manual recovery", width)]
            text += [
                *view.fold_lines(view.why_no_plan(case.evidence), width, "warn"),
                *view.fold_lines(lock_breaker.manual_advice(case.evidence), width),
            ]
        return [BLANK_LINE, *text, BLANK_LINE, *evidence, *([BLANK_LINE, *works] if works else [])]

    def _result_lines(self, width: int) -> list[Line]:
        """Progress of the steps, states of the tasks, and the output of the recovery."""
        recovery, states = self._recovery, self._inspector.states
        said = [
            OutputLine(*pair) for pair in zip(recovery.lines, recovery.line_seconds, strict=False)
        ]
        took = f"{recovery.elapsed_seconds:.1f} s"
        head = f"running {took}" if recovery.running else f"result, after {took}"
        at = recovery_steps.step_progress(self._plan, said, recovery.running)
        text = [present.heading_line(head, width), *recovery_steps.progress_lines(at, width)]
        became = (self._were, self._now_are, states, self._clock(), width)
        if not recovery.running:
            text += [BLANK_LINE, *view.task_result_lines(*became)] if self._were else []
        text += [BLANK_LINE, present.heading_line("output", width)]
        for line in recovery.lines:
            text += view.fold_lines(line, width)
        return text

    def _amount(self, state: State) -> str:
        change = self._inspector.latest
        amount = "?" if change.unavailable else f"{change.counts.get(state, 0):,}"
        so_far = "" if change.is_complete or change.unavailable else " so far"
        return f"{amount} in {safe_line(self._inspector.states.get(state, state))}{so_far}"

    def _show_scope(self) -> None:
        width, below = self.size.width, self.query_one(LongText).below
        words = f"{below} more below " if width >= present.NARROW_COLUMNS else f"{below} more"
        more = ((words, "muted"),) if below else ()
        self.query_one("#scope", Lines).show([present.join_ends(self._scope(width), more, width)])

    def _scope(self, width: int) -> Line:
        lead = " acts on: "
        case = self._exam.report
        if case is None:
            return (lead, ""), ("nothing", "muted")
        row = "" if self._verbs_refusal() else safe_line(self.query_one("#works", Picker).key)
        if not self._has_plan:
            return (lead, ""), (f"task {row}", "strong") if row else ("nothing", "muted")
        pids = ", ".join(map(str, case.evidence.holders))
        who = f"PID {pids}" if self.expected_digits else "the lock"
        one = (
            f"   H L K: {present.fit_text_end(row, 18)}"
            if row and width >= present.NARROW_COLUMNS
            else ""
        )
        return (lead, ""), (f"{who}; {self._amount(State.ACTIVE)}", "strong"), (one, "")

    def _prompt_line(self) -> Line:
        now = self._exam.report and self._exam.report.evidence
        if self._recovery.running:
            return ((" freeing the lock ... Esc leaves, it continues", "strong"),)
        if self._begun:
            words, look = self._recovery.outcome
            said: Line = ((f" {safe_line(words)}", look),)
            return (*said, (f". {NO_WORKER_HINT}", "strong")) if self._live.lacks_worker else said
        if self._withdrawn:
            words = f"plan withdrawn: {self._withdrawn}; nothing done. Esc, then U again"
            return ((f" {words}", "warn"),)
        if not self._has_plan:
            alarms = now is not None and now.verdict in present.ALARMING_VERDICTS
            return ((f" {safe_line(view.why_no_plan(now))}", "warn" if alarms else "muted"),)
        room = self.size.width >= present.NARROW_COLUMNS
        digits = f"type PID {self.expected_digits} to free the lock" if room else "type the PID"
        return self.confirm_prompt(digits, "free the lock (no process to signal)")

    def action_move(self, how: str) -> None:
        """Move the cursor if several tasks are active; otherwise scroll."""
        picker = self.query_one("#works", Picker)
        if how in ("down", "up") and len(picker.rows) > 1:
            picker.move(how)
        else:
            super().action_move(how)
        self._show_scope()

    # Recovery

    @property
    def _has_plan(self) -> bool:
        return not self.why_not_applicable()

    @property
    def expected_digits(self) -> str:
        """The PID to signal first; "" if there is none."""
        planned = self._planned
        if planned is None or planned.verdict is not Verdict.STUCK or not planned.holders:
            return ""
        return str(planned.holders[0])

    def why_not_applicable(self) -> str:
        """Why there is no plan: running, done, withdrawn, or nothing to free."""
        if self._begun:
            return "already running" if self._recovery.running else "already done: Esc closes"
        if self._withdrawn:
            return f"plan withdrawn: {self._withdrawn}; Esc, then U again"
        return view.why_no_plan(self._planned)

    def why_wait(self) -> str:
        """Wait for the logs: without them, tasks that already finished would run again."""
        case = self._exam.report
        unread = case is not None and any(
            work.log_summary.unknown == READING_LOGS for work in case.active_tasks
        )
        if unread and asyncio.get_running_loop().time() - self._opened < LOG_READ_TIMEOUT_SECONDS:
            return f"still {READING_LOGS}: type it again in a moment"
        return ""

    def apply_plan(self) -> None:
        """Start the recovery process for the planned lock only."""
        assert self._planned is not None
        case = self._exam.report
        assert case is not None
        self._were = tuple(work.task for work in case.active_tasks)
        hold = view.accepted_ids(case)
        returns = recovery_steps.task_steps(self._inspector.states, len(hold))
        self._plan = recovery_steps.lock_steps(case.evidence, returns)
        self._begun = True
        self.query_one(LongText).move("first")
        self._free(self._planned.identity, hold)

    # Active tasks

    def without(self) -> set[str]:
        """Keys without a function; arming is available if there are tasks to act on."""
        without = super().without()
        verbs = {key.action for key in keys.keys_on(keys.LOCK) if key.verb}
        if self._verbs_refusal():
            return without | verbs
        return without - {"arm"}

    def _verbs_refusal(self) -> str:
        """Why active tasks cannot be changed, for any verb; "" if they can."""
        case = self._exam.report
        if self._arming.read_only:
            return "read only: started with --read-only"
        if case is None:
            return "lock not examined yet"
        if self._recovery.running:
            return "freeing the lock: wait for the result"
        return why_not_abandoned(case.evidence) or ("" if case.active_tasks else "no active task")

    def action_plan(self, verb: str) -> None:
        """Open a plan for the active task under the cursor."""
        edges, word = self._inspector.edges, self._inspector.states.get(State.ACTIVE, "")
        reason = self._verbs_refusal() or verb_refusal(edges, verb, State.ACTIVE, word)
        if self.hasty:
            self.say(TOO_EARLY)
        elif reason:
            self.say(f"{verb}: {reason}")
        elif asyncio.get_running_loop().time() - self._slipped < CURSOR_CHANGE_SECONDS:
            self.say(f"{verb}: the task under the cursor just left: press again")
        else:
            plan = self._show_plan(verb, self.query_one("#works", Picker).key)
            self.run_worker(plan, name="plan", exclusive=True, group="plan")

    async def _show_plan(self, verb: str, id: str) -> None:
        from tui.plan.screen import show_plan

        case = self._exam.report
        work = next((w for w in case.active_tasks if w.task.id == id), None) if case else None
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
        await show_plan(self, self._live, self._around, asked, self._applied)

    def _applied(self, report: Report) -> None:
        past = VERBS[report.plan.verb].past
        self.say(
            f"{len(report.done):,} {past}, {len(report.gone):,} skipped,"
            f" {len(report.failed):,} failed"
        )
