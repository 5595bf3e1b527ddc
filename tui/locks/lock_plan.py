"""The plan to free a lock: what it was made for, whether it still applies, and its result."""

from __future__ import annotations

from collections.abc import Mapping

from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Task, Verdict
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.confirm.confirmation import Confirmation
from tui.locks import lock_lines as view
from tui.locks import recovery_steps
from tui.locks.examination import LockReport
from tui.locks.recovery_steps import OutputLine, RecoveryStep
from tui.session.place_session import PlaceSession
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import BLANK_LINE, Line, folded_lines
from tui.text.lock import ALARMING_VERDICTS
from tui.text.task_list import short_id


class LockPlan:
    """A plan for the lock as first seen, and the recovery that it starts."""

    def __init__(self, session: PlaceSession) -> None:
        self._session, self._recovery = session, session.recovery
        self.planned: LockEvidence | None = None
        """The lock that the plan is for; None until it was examined."""
        self.withdrawn = ""
        """Why the plan no longer applies; "" if it does."""
        self.is_begun = session.recovery.running
        """True once the recovery was started, here or on an earlier screen."""
        self._steps: tuple[RecoveryStep, ...] = ()
        self._were: tuple[Task, ...] = ()
        self._now_are: dict[str, Task | None] = {}

    def check(self, evidence: LockEvidence) -> bool:
        """Withdraw the plan if the lock has changed; True if that happened just now."""
        if self.planned is None:
            self.planned = evidence
        if self.is_begun or self.withdrawn:
            return False
        self.withdrawn = view.why_outdated(self.planned, evidence)
        return bool(self.withdrawn)

    @property
    def expected_digits(self) -> str:
        """The PID to signal first; "" if none."""
        return "" if self.planned is None else _first_signalled(self.planned)

    def why_not_applicable(self) -> str:
        """Why there is no plan: running, done, withdrawn, or nothing to free."""
        if self.is_begun:
            return "already running" if self._recovery.running else "already done: Esc closes"
        if self.withdrawn:
            return f"plan withdrawn: {self.withdrawn}; Esc, then U again"
        return view.why_no_plan(self.planned)

    @property
    def is_open(self) -> bool:
        """True if it can be applied."""
        return not self.why_not_applicable()

    def begin(self, report: LockReport) -> list[str]:
        """Note the tasks in work as they are now; return the ids of those to hold."""
        self._were = tuple(work.task for work in report.active_tasks)
        hold = view.accepted_ids(report)
        self._steps = self._steps_for(report, hold)
        self.is_begun = True
        return hold

    def _steps_for(self, report: LockReport, hold: list[str]) -> tuple[RecoveryStep, ...]:
        returns = recovery_steps.task_steps(self._session.inspector.states, len(hold))
        return recovery_steps.lock_steps(report.evidence, returns)

    async def read_task_results(self) -> None:
        """Read the present states of the tasks that were in work, once the recovery has ended."""
        if self.is_begun and not self._recovery.running:
            queries = self._session.inspector.queries
            try:
                self._now_are = {task.id: await queries.task(task.id) for task in self._were}
            except Unavailable:
                return  # keep the last result

    # Text

    def next_step(self, is_armed: bool) -> tuple[str, str]:
        """The key of the next step, and what it does."""
        can_start = bool(self._session.place.worker_command)
        if self._recovery.running:
            return "Esc", "leaves; the recovery continues"
        if self.is_begun:
            start = ("W", "starts a worker: no worker running")
            return (
                start if self._session.lacks_worker and can_start else ("Esc", "closes the result")
            )
        if self.withdrawn:
            return "Esc", "closes; then U makes a new plan"
        if not self.is_open:
            return "Esc", "goes back"
        if not is_armed:
            return "!", "arms writes; the plan stays open"
        return "", "then W starts a worker" if can_start else "then a worker must be started"

    def acts_on(self, report: LockReport, row: str) -> str:
        """What a key acts on; `row` is the task under the cursor, "" if none can be changed."""
        if not self.is_open:
            return f"task {row}" if row else "nothing"
        pids = ", ".join(map(str, report.evidence.holders))
        who = f"PID {pids}" if self.expected_digits else "the lock"
        word = self._session.inspector.states.get(State.ACTIVE, State.ACTIVE)
        tasks = f"{report.active_count:,} in {safe_line(word)}"
        return f"{who}; {tasks}" + (f"   H L K: {short_id(row)}" if row else "")

    def bar_line(self, report: LockReport, confirmation: Confirmation, columns: int) -> Line:
        """The question, the result, or why no question is asked."""
        if self._recovery.running:
            return ((" freeing the lock ...", "strong"),)
        if self.is_begun:
            words, style = self._recovery.outcome
            return ((f" {safe_line(words)}", style),)
        if why := self.why_not_applicable():
            alarms = report.evidence.verdict in ALARMING_VERDICTS
            return ((f" {safe_line(why)}", "warn" if alarms or self.withdrawn else "muted"),)
        has_room = columns >= NARROW_COLUMNS
        digits = f"type the PID {self.expected_digits} to free the lock"
        yes = "free the lock (no process to signal)"
        return confirmation.prompt(digits if has_room else "type the PID", yes, columns)

    def step_lines(self, report: LockReport, width: int, with_notes: bool) -> list[Line]:
        """The steps; with progress and times once the recovery was started; or why there are
        none.
        """
        if self.is_begun:
            output = map(OutputLine, self._recovery.lines, self._recovery.line_seconds)
            at = recovery_steps.step_progress(self._steps, [*output], self._recovery.running)
            return recovery_steps.progress_lines(at, width)
        if not self._why_no_steps(report):
            hold = view.accepted_ids(report)
            equivalent = recovery_steps.equivalent_command(
                self._session.place.recovery_command, hold
            )
            return recovery_steps.plan_lines(
                self._steps_for(report, hold), equivalent, width, with_notes
            )
        if report.evidence.verdict in ALARMING_VERDICTS and not self.withdrawn:
            return folded_lines(lock_breaker.manual_advice(report.evidence), width)
        return folded_lines(self._why_no_steps(report), width, "muted")

    def _why_no_steps(self, report: LockReport) -> str:
        """Why no steps are shown: before the lock was examined, those of the first report are, but
        cannot be applied.
        """
        is_early = self.planned is None and not self.is_begun
        return view.why_no_plan(report.evidence) if is_early else self.why_not_applicable()

    def heading(self, report: LockReport) -> tuple[str, Line]:
        """The name of the steps, and a text at its right."""
        took = f"{self._recovery.elapsed_seconds:.1f}s"
        if self.is_begun:
            state = "running" if self._recovery.running else "done after"
            return "Steps", ((f"{state} {took}", "muted"),)
        if self._why_no_steps(report):
            return "No plan", ()
        digits = _first_signalled(self.planned or report.evidence)
        last: Line = (("cannot be undone", "warn"),) if digits else ()
        return "Steps, in this order", last

    def result_lines(self, states: Mapping[State, str], now: float, width: int) -> list[Line]:
        """What became of the tasks in work, and the output of the recovery."""
        became: list[Line] = []
        if self._were and not self._recovery.running:
            became = view.task_result_lines(self._were, self._now_are, states, now, width)
        text = [*became, BLANK_LINE] if became else []
        for line in self._recovery.lines:
            text += folded_lines(line, width)
        return text


def _first_signalled(evidence: LockEvidence) -> str:
    """The PID to signal first to free a lock; "" if none."""
    is_stuck = evidence.verdict is Verdict.STUCK
    return str(evidence.holders[0]) if is_stuck and evidence.holders else ""
