"""The plan to free a lock: what it was made for, whether it still applies, its result, and its
steps with their progress by the output of the recovery process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum

from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Task, Verdict
from engine.store import Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.confirm.confirmation import Confirmation
from tui.locks import lock_lines as view
from tui.locks.examination import LockReport
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import lock_step, start_step
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import BLANK_LINE, Line, fit_text, fold_text, folded_lines
from tui.text.lock import ALARMING_VERDICTS
from tui.text.task_list import short_id

LOCK_TAKEN_LINE = "the lock is taken over"
"""Output of the recovery process when it has taken the lock."""

LOCK_FREED_LINE = "the lock is free"
"""Its last output after success."""


HELD_PREFIX = "Held: "
"""Start of its output for a task that was held."""


class RecoveryProgress(StrEnum):
    """Progress of a step."""

    TO_DO = "to do"
    DOING = "doing"
    DONE = "done"
    IGNORED = "ignored"
    SKIPPED = "skipped"
    BROKEN = "aborted"


PROGRESS_LOOKS = {
    RecoveryProgress.TO_DO: "muted",
    RecoveryProgress.DOING: "chip-warn",
    RecoveryProgress.DONE: "ok",
    RecoveryProgress.IGNORED: "warn",
    RecoveryProgress.SKIPPED: "muted",
    RecoveryProgress.BROKEN: "error",
}


class RecoveryStep(NamedTuple):
    """A step, and patterns of the output lines that show its progress."""

    words: str
    begin_pattern: str = ""
    """Pattern of its first line; "" if it begins when the previous step ends."""
    end_pattern: str = ""
    """Pattern of its last line."""
    ignored: str = ""
    """Pattern of the line that reports failure; then the next signal is sent."""
    note: str = ""
    """What it means, for screens with room for it."""


class OutputLine(NamedTuple):
    """A line of the recovery process's output."""

    text: str
    after: float
    """Seconds since its start, up to a fraction of a second late."""


def task_steps(states: Mapping[State, str], held: int) -> tuple[RecoveryStep, ...]:
    """Steps for the active tasks: `held` of them, which the log says were accepted, are held,
    because a repeat would be a duplicate. The others count one failed attempt."""
    work, waits, dead, parked = (
        states.get(state, state) for state in (State.ACTIVE, State.PENDING, State.DEAD, State.HELD)
    )
    which = f"others in {work}" if held else f"tasks in {work}"
    back = RecoveryStep(
        f"{which} count one failed attempt: to {waits}",
        LOCK_TAKEN_LINE,
        LOCK_FREED_LINE,
        note=f"after the last attempt to {dead}",
    )
    if not held:
        return (back,)
    some = format_count(held, "task")
    why = "accepted (log), a repeat would be a duplicate"
    return RecoveryStep(f"{some} in {work} to {parked}: {why}", "", HELD_PREFIX), back


def lock_steps(
    evidence: LockEvidence, returned: Sequence[RecoveryStep] = ()
) -> tuple[RecoveryStep, ...]:
    """The signals for a lock, then the steps for the active tasks (`returned`)."""
    words = lock_breaker.planned_steps(evidence)
    if not words:
        return ()
    marks: list[tuple[str, ...]] = []
    notes: list[str] = []
    if evidence.verdict is Verdict.STUCK:
        for pid in evidence.holders:
            ended = f"PID {pid} has ended"
            term, kill = f"SIGTERM to PID {pid}", f"SIGKILL to PID {pid}"
            marks += [(term, ended, kill), (kill, ended)]
            notes += ["asks the process to end", "ends it without cleanup"]
        if evidence.pid in evidence.holders:
            known = "|".join(map(str, evidence.holders))
            other = rf"PID (?!(?:{known})\b)\d+"
            marks.append((rf"SIG\w+ to {other}", rf"{other} has ended"))
            notes.append("each: SIGTERM, then SIGKILL")
    marks.append(("", LOCK_TAKEN_LINE))
    notes.append("in one step: no other worker gets it before")
    plan = [
        RecoveryStep(text, *mark)._replace(note=note)
        for text, mark, note in zip(words, marks, notes, strict=True)
    ]
    return (*plan, *returned)


class StepState(NamedTuple):
    """A step and its progress."""

    step: RecoveryStep
    progress: RecoveryProgress
    after: float | None = None
    """Seconds from the start of the recovery to the start of the step."""


def step_progress(
    plan: Sequence[RecoveryStep], output: Sequence[OutputLine], running: bool
) -> tuple[StepState, ...]:
    """Progress of each step; after the process ended, no step is "doing"."""
    reached = [_step_result(step, output) for step in plan]
    last = max((at for at, (begun, _) in enumerate(reached) if begun is not None), default=-1)
    settled = max((at for at, (_, ended) in enumerate(reached) if ended), default=-1)
    states = []
    for at, (step, (begun, ended)) in enumerate(zip(plan, reached, strict=True)):
        passed = at < (last if step.begin_pattern else settled) or (
            not running and bool(output) and output[-1].text == LOCK_FREED_LINE
        )
        if ended is not None:
            progress = ended
        elif begun is None:
            is_open = running and not passed
            progress = RecoveryProgress.TO_DO if is_open else RecoveryProgress.SKIPPED
        elif passed:
            progress = RecoveryProgress.DONE
        else:
            progress = RecoveryProgress.DOING if running else RecoveryProgress.BROKEN
        states.append(StepState(step, progress, begun))
    return tuple(states)


def _step_result(
    step: RecoveryStep, output: Sequence[OutputLine]
) -> tuple[float | None, RecoveryProgress | None]:
    """Start time and result of a step; None if not reached."""
    if not step.begin_pattern:
        begun = next(
            (line.after for line in output if re.search(step.end_pattern, line.text)), None
        )
        return begun, None if begun is None else RecoveryProgress.DONE
    begun = None
    for line in output:
        if begun is None:
            begun = line.after if re.search(rf"{step.begin_pattern}\b", line.text) else None
        elif re.fullmatch(step.end_pattern, line.text):
            return begun, RecoveryProgress.DONE
        elif step.ignored and re.fullmatch(step.ignored, line.text):
            return begun, RecoveryProgress.IGNORED
    return begun, None


def plan_lines(
    plan: Sequence[RecoveryStep], equivalent: str, width: int, with_notes: bool = False
) -> list[Line]:
    """The plan step by step, and the equivalent command."""
    text: list[Line] = []
    for number, step in enumerate(plan, 1):
        text += folded_lines(step.words, width, "strong", ((f"  {number:<3}", "warn"),))
        text += [((f"     {step.note}", "muted"),)] if with_notes and step.note else []
    return [*text, *folded_lines(equivalent, width, "muted", (("  or ", "muted"),))]


PROGRESS_CELLS, TIME_CELLS = 11, 8


def progress_lines(at: Sequence[StepState], width: int) -> list[Line]:
    """The steps with progress and time."""
    text: list[Line] = []
    first_signal = min((after for _, _, after in at if after is not None), default=0.0)
    indent = 5 + PROGRESS_CELLS + TIME_CELLS
    for number, (step, how, after) in enumerate(at, 1):
        when = "" if after is None else f"+{after - first_signal:.1f}s"
        first, *other_pieces = fold_text(safe_line(step.words), max(8, width - indent - 1))
        style = "muted" if how in (RecoveryProgress.TO_DO, RecoveryProgress.SKIPPED) else ""
        text.append(
            (
                (f"  {number:<3}", "key"),
                (fit_text(how, PROGRESS_CELLS), PROGRESS_LOOKS[how]),
                (fit_text(when, TIME_CELLS), "muted"),
                (first, style),
            )
        )
        text += [((" " * indent + piece, style),) for piece in other_pieces]
    return text


def equivalent_command(command: Sequence[str], hold: Sequence[str] = ()) -> str:
    """The equivalent command; it asks for the PID, too."""
    words = command[command.index("--root") :] if "--root" in command else command
    arguments = [word for word in words if word not in ("--yes", "--seen")]
    return shlex.join(["spooldeck", *arguments, *(word for id in hold for word in ("--hold", id))])


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
        returns = task_steps(self._session.inspector.states, len(hold))
        return lock_steps(report.evidence, returns)

    async def read_task_results(self) -> None:
        """Read the present states of the tasks that were in work, once the recovery has ended."""
        if self.is_begun and not self._recovery.running:
            queries = self._session.inspector.queries
            try:
                self._now_are = {task.id: await queries.task(task.id) for task in self._were}
            except Unavailable:
                return  # keep the last result

    def next_step(self, is_armed: bool) -> tuple[str, str]:
        """The key of the next step, and what it does."""
        can_start = bool(self._session.place.worker_command)
        if self._recovery.running:
            return "Esc", "leaves; the recovery continues"
        if self.is_begun:
            if self._session.lacks_worker and can_start:
                return start_step(self._session, read_only=False)
            return "Esc", "closes the result"
        if self.withdrawn:
            return "Esc", "closes; then U makes a new plan"
        if not self.is_open:
            return "Esc", "goes back"
        key, word, does = lock_step(self._session, read_only=False)
        if word and key != "U" and not is_armed:
            return key, does
        if not is_armed:
            return "!", "arms writes; the plan stays open"
        if not can_start:
            return "", "then a worker must be started"
        key, does = start_step(self._session, read_only=False)
        return "", "then W starts a worker" if key else f"then {does}"

    def acts_on(self, report: LockReport, row: str) -> str:
        """What a key acts on; `row` is the task under the cursor, "" if none can be changed."""
        if not self.is_open:
            key, _ = self.next_step(is_armed=True)
            place = safe_line(self._session.name) if key == "W" else "nothing"
            return f"task {row}" if row else place
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
        """The steps, with progress and times once they were begun; or why there are none."""
        if self.is_begun:
            output = map(OutputLine, self._recovery.lines, self._recovery.line_seconds)
            at = step_progress(self._steps, [*output], self._recovery.running)
            return progress_lines(at, width)
        if not self._why_no_steps(report):
            hold = view.accepted_ids(report)
            equivalent = equivalent_command(self._session.place.recovery_command, hold)
            return plan_lines(self._steps_for(report, hold), equivalent, width, with_notes)
        if report.evidence.verdict in ALARMING_VERDICTS and not self.withdrawn:
            return folded_lines(lock_breaker.manual_advice(report.evidence), width)
        return folded_lines(self._why_no_steps(report), width, "muted")

    def _why_no_steps(self, report: LockReport) -> str:
        """Why no steps are shown; those of the first report are, but cannot be applied yet."""
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
