"""The plan to free a lock as steps, and how far each has come by what the child says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Verdict
from engine.text.safe import shown
from tui.format import present
from tui.format.present import Line

TAKEN = "the lock is taken over"
"""What the child says once the lock is its own."""

FREED = "the lock is free"
"""What it says last, where nothing went wrong."""


HELD = "Held: "
"""How the line of a task begins that was held."""


class RecoveryProgress(StrEnum):
    """How far a step has come."""

    TO_DO = "to do"
    DOING = "doing"
    DONE = "done"
    IGNORED = "ignored"
    """A signal that did not end its process."""
    SKIPPED = "skipped"
    BROKEN = "broken off"


LOOKS = {
    RecoveryProgress.TO_DO: "dim",
    RecoveryProgress.DOING: "armed",
    RecoveryProgress.DONE: "good",
    RecoveryProgress.IGNORED: "warning",
    RecoveryProgress.SKIPPED: "dim",
    RecoveryProgress.BROKEN: "bad",
}


class Step(NamedTuple):
    """A step of the plan, and the lines of the child that say how far it is."""

    words: str
    begins: str = ""
    """A pattern of the line that it is begun with; "" where it begins with the end of the last."""
    ends: str = ""
    """A pattern of the line that says that it has ended."""
    ignored: str = ""
    """A pattern of the line that says that it was in vain: the next signal is sent."""


class RecoveryReport(NamedTuple):
    """A line of the child."""

    text: str
    after: float
    """Seconds after the child began; as it was noticed, so a fraction of a second late."""


def returns(states: Mapping[State, str], held: int) -> tuple[Step, ...]:
    """What becomes of the tasks in work, so many of which are held: the log says that they were
    accepted, and a repeat would be a duplicate. The others fail once.
    """
    work, waits, dead, parked = (
        states.get(state, state) for state in (State.ACTIVE, State.PENDING, State.DEAD, State.HELD)
    )
    which = f"the others in {work} fail" if held else f"tasks in {work} fail"
    back = Step(f"{which} once: to {waits}, after their last attempt to {dead}", TAKEN, FREED)
    if not held:
        return (back,)
    some = present.count(held, "task")
    why = "accepted by the log, a repeat would be a duplicate"
    return Step(f"{some} in {work} to {parked}: {why}", "", HELD), back


def steps(evidence: LockEvidence, returned: Sequence[Step] = ()) -> tuple[Step, ...]:
    """The ladder for a lock, and then what becomes of the tasks in work (`returns`)."""
    words = lock_breaker.ladder(evidence)
    if not words:
        return ()
    marks: list[tuple[str, ...]] = []
    if evidence.verdict is Verdict.STUCK:
        for pid in evidence.holders:
            ended = f"PID {pid} has ended"
            term, kill = f"SIGTERM to PID {pid}", f"SIGKILL to PID {pid}"
            marks += [(term, ended, kill), (kill, ended)]
        if evidence.pid in evidence.holders:
            known = "|".join(map(str, evidence.holders))
            other = rf"PID (?!(?:{known})\b)\d+"
            marks.append((rf"SIG\w+ to {other}", rf"{other} has ended"))
    marks.append(("", TAKEN))
    plan = [Step(said, *mark) for said, mark in zip(words, marks, strict=True)]
    return (*plan, *returned)


class StepState(NamedTuple):
    """A step, how far it is, and when it came there."""

    step: Step
    progress: RecoveryProgress
    after: float | None = None
    """Seconds after the child began at which the step was begun."""


def progress(
    plan: Sequence[Step], said: Sequence[RecoveryReport], running: bool
) -> tuple[StepState, ...]:
    """How far each step is; once the child has ended, no step is being done any more."""
    reached = [_reached(step, said) for step in plan]
    last = max((at for at, (begun, _) in enumerate(reached) if begun is not None), default=-1)
    settled = max((at for at, (_, ended) in enumerate(reached) if ended), default=-1)
    found = []
    for at, (step, (begun, ended)) in enumerate(zip(plan, reached, strict=True)):
        passed = at < (last if step.begins else settled) or (
            not running and bool(said) and said[-1].text == FREED
        )
        if ended:
            found.append(StepState(step, ended, begun))
        elif begun is not None:
            over = (
                RecoveryProgress.DONE
                if passed
                else RecoveryProgress.DOING
                if running
                else RecoveryProgress.BROKEN
            )
            found.append(StepState(step, over, begun))
        elif passed:
            found.append(StepState(step, RecoveryProgress.SKIPPED))
        else:
            found.append(
                StepState(step, RecoveryProgress.TO_DO if running else RecoveryProgress.SKIPPED)
            )
    return tuple(found)


def _reached(
    step: Step, said: Sequence[RecoveryReport]
) -> tuple[float | None, RecoveryProgress | None]:
    """When a step was begun, and how it ended; None for not yet."""
    if not step.begins:
        begun = _when(step.ends, said)
        return begun, None if begun is None else RecoveryProgress.DONE
    begun = None
    for line in said:
        if begun is None:
            begun = line.after if re.search(rf"{step.begins}\b", line.text) else None
        elif re.fullmatch(step.ends, line.text):
            return begun, RecoveryProgress.DONE
        elif step.ignored and re.fullmatch(step.ignored, line.text):
            return begun, RecoveryProgress.IGNORED
    return begun, None


def _when(words: str, said: Sequence[RecoveryReport]) -> float | None:
    return next((line.after for line in said if re.search(words, line.text)), None)


def plan_lines(plan: Sequence[Step], twin: str, width: int) -> list[Line]:
    """What would be done, step by step, and the same for the command line."""
    text = [present.heading("plan, nothing is done yet", width)]
    numbered = [*enumerate((step.words for step in plan), 1), ("or", twin)]
    for number, words in numbered:
        first, *rest = present.folded(shown(words), max(8, width - 6))
        text.append(((f"  {number:<3}", "key"), (first, "")))
        text += [((f"     {piece}", ""),) for piece in rest]
    return text


WORDS, WHEN = 11, 8
"""Cells for how far a step is ("broken off" is the longest), and for when it came there."""


def progress_lines(at: Sequence[StepState], width: int) -> list[Line]:
    """The steps with how far each is, and when it came there."""
    text: list[Line] = []
    indent = 5 + WORDS + WHEN
    for number, (step, how, after) in enumerate(at, 1):
        when = "" if after is None else f"+{after:.1f}s"
        first, *rest = present.folded(shown(step.words), max(8, width - indent - 1))
        look = "dim" if how in (RecoveryProgress.TO_DO, RecoveryProgress.SKIPPED) else ""
        text.append(
            (
                (f"  {number:<3}", "key"),
                (present.fit(how, WORDS), LOOKS[how]),
                (present.fit(when, WHEN), "dim"),
                (first, look),
            )
        )
        text += [((" " * indent + piece, look),) for piece in rest]
    return text


def twin(command: Sequence[str], hold: Sequence[str] = ()) -> str:
    """The command that does the same; there, too, it asks for the PID."""
    words = command[command.index("--root") :] if "--root" in command else command
    kept = [word for word in words if word not in ("--yes", "--seen")]
    return shlex.join(["spooldeck", *kept, *(word for id in hold for word in ("--hold", id))])
