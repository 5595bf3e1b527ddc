"""What the lock screen asks: the prompt, the next step, and what a key acts on."""

from __future__ import annotations

from engine.model import State
from engine.text.safe import safe_line
from tui.locks.examination import LockExaminer, LockReport
from tui.locks.lock_plan import LockPlan
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.plan_page import PlanWords
from tui.screens.console_context import ConsoleContext
from tui.screens.two_panes import WIDE_COLUMNS, WIDE_LINES
from tui.session.place_session import PlaceSession
from tui.text.frames import BOX, BOX_FRAME_CELLS, NARROW_COLUMNS, frame_border
from tui.text.lines import Line
from tui.text.lock import ALARMING_VERDICTS
from tui.text.task_list import short_id
from tui.widgets.picker import Picker


class LockQuestion(ConfirmScreen):
    """The plan for a lock, and the lines that ask for its confirmation."""

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__(session, context)
        self._inspector = session.inspector
        self._exam, self._plan = LockExaminer(session), LockPlan(session)

    @property
    def is_wide(self) -> bool:
        """True if the evidence is beside the steps."""
        return self.size.width >= WIDE_COLUMNS and self.size.height >= WIDE_LINES

    @property
    def _border(self) -> int:
        return frame_border(*self.size)

    def _inside(self, width: int) -> int:
        return width - (BOX_FRAME_CELLS if self._border == BOX else 0)

    def describe(self) -> PlanWords:
        """The words around the plan, with the next step."""
        key, does = self._next_step()
        return super().describe()._replace(key=key, does=does)

    def _next_step(self) -> tuple[str, str]:
        if self._session.recovery.running:
            return "Esc", "leaves; the recovery continues"
        if self._plan.is_begun:
            return (
                ("W", "starts a worker: no worker running")
                if self._session.lacks_worker
                else ("Esc", "closes the result")
            )
        if self._plan.withdrawn:
            return "Esc", "closes; then U makes a new plan"
        if not self._has_plan:
            return "Esc", "goes back"
        if not self._arming.is_armed:
            return "!", "arms writes; the plan stays open"
        return "", "then W starts a worker"

    def scope_words(self, report: LockReport) -> str:
        """What a key acts on."""
        row = "" if self.verbs_refusal() else safe_line(self.query_one("#works", Picker).key)
        if not self._has_plan:
            return f"task {row}" if row else "nothing"
        pids = ", ".join(map(str, report.evidence.holders))
        who = f"PID {pids}" if self.expected_digits else "the lock"
        word = self._inspector.states.get(State.ACTIVE, State.ACTIVE)
        tasks = f"{report.active_count:,} in {safe_line(word)}"
        return f"{who}; {tasks}" + (f"   H L K: {short_id(row)}" if row else "")

    def prompt_line(self) -> Line:
        """The question, the result, or why no question is asked."""
        now = self._exam.report and self._exam.report.evidence
        if self._session.recovery.running:
            return ((" freeing the lock ...", "strong"),)
        if self._plan.is_begun:
            words, style = self._session.recovery.outcome
            return ((f" {safe_line(words)}", style),)
        if not self._has_plan:
            alarms = now is not None and now.verdict in ALARMING_VERDICTS
            style = "warn" if alarms or self._plan.withdrawn else "muted"
            return ((f" {safe_line(self.why_not_applicable())}", style),)
        room = self.size.width >= NARROW_COLUMNS
        digits = f"type the PID {self.expected_digits} to free the lock" if room else "type the PID"
        return self.confirm_prompt(digits, "free the lock (no process to signal)")

    # Defined by the screen

    @property
    def _has_plan(self) -> bool:
        return not self.why_not_applicable()

    def verbs_refusal(self) -> str:
        """Why active tasks cannot be changed, for any verb; "" if they can."""
        raise NotImplementedError

    def cursor_slipped(self) -> None:
        """The task under the cursor has left."""
        raise NotImplementedError
