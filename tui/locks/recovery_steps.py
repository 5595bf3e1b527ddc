"""Recovery of a lock as steps, and their progress by the output of the recovery process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Verdict
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.text.lines import Line, fit_text, fold_text, folded_lines

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
    """The signal did not end the process."""
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
    because a repeat would be a duplicate. The others count one failed attempt.
    """
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
        if ended:
            states.append(StepState(step, ended, begun))
        elif begun is not None:
            over = (
                RecoveryProgress.DONE
                if passed
                else RecoveryProgress.DOING
                if running
                else RecoveryProgress.BROKEN
            )
            states.append(StepState(step, over, begun))
        elif passed:
            states.append(StepState(step, RecoveryProgress.SKIPPED))
        else:
            states.append(
                StepState(step, RecoveryProgress.TO_DO if running else RecoveryProgress.SKIPPED)
            )
    return tuple(states)


def _step_result(
    step: RecoveryStep, output: Sequence[OutputLine]
) -> tuple[float | None, RecoveryProgress | None]:
    """Start time and result of a step; None if not reached."""
    if not step.begin_pattern:
        begun = _time_of_line(step.end_pattern, output)
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


def _time_of_line(words: str, output: Sequence[OutputLine]) -> float | None:
    return next((line.after for line in output if re.search(words, line.text)), None)


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
"""Widths of progress and time in cells."""


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
