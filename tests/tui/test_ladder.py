"""The steps of the plan that frees a lock: how far each is, by what the child says."""

from __future__ import annotations

import pytest

from engine.model import State, Verdict
from tests.tui.spools import a_stuck_lock, recover_command
from tui.views import ladder
from tui.views.ladder import FREED, TAKEN, Progress, Said, progress, progress_lines, returns, steps

WORDS = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}
PLAN = steps(a_stuck_lock(), returns(WORDS, 1))
TERM, KILL, ENDED = "SIGTERM to PID 4711", "SIGKILL to PID 4711", "PID 4711 has ended"


def said(*lines: str) -> list[Said]:
    """What a child says, a line a second."""
    return [Said(text, float(second)) for second, text in enumerate(lines)]


def how(*lines: str, running: bool = True) -> str:
    """How far each step is after these lines, by first letters."""
    return " ".join(at.progress for at in progress(PLAN, said(*lines), running))


@pytest.mark.parametrize(
    ("lines", "running", "words"),
    [
        ((), True, "to do to do to do to do to do to do"),
        (("the lock is stuck", TERM), True, "doing to do to do to do to do to do"),
        ((TERM, ENDED), True, "done to do to do to do to do to do"),
        ((TERM, KILL), True, "ignored doing to do to do to do to do"),
        ((TERM, KILL, ENDED, "SIGTERM to PID 4712"), True, "ignored done doing to do to do to do"),
        ((TERM, ENDED, TAKEN), True, "done skipped skipped done to do doing"),
        ((TERM, ENDED, TAKEN, "Held: x", FREED), False, "done skipped skipped done done done"),
        ((TERM, KILL, "nothing was taken"), False, "ignored broken off skipped skipped skipped "
         "skipped"),
        (("SIGTERM to PID 47110",), True, "skipped skipped doing to do to do to do"),
    ],
)  # fmt: skip
def test_how_far_each_step_is(lines: tuple[str, ...], running: bool, words: str) -> None:
    """To do, doing, done, skipped or broken off: by the child's lines, and by nothing else."""
    assert how(*lines, running=running) == words


def test_when_each_step_came_there() -> None:
    """Each step shows after how many seconds it was begun, and a SIGTERM that it was ignored."""
    at = progress(PLAN, said("the lock is stuck", TERM, KILL, ENDED, TAKEN), running=True)

    assert [each.after for each in at] == [1.0, 2.0, None, 4.0, None, 4.0]
    text = ["".join(text for text, _ in line) for line in progress_lines(at, 80)]
    assert text[0].startswith("  1  ignored    +1.0s   send SIGTERM to PID 4711")
    assert text[1].startswith("  2  done       +2.0s   send SIGKILL")
    assert max(map(len, text)) <= 80


def test_a_lock_that_nobody_holds_has_two_steps() -> None:
    """Where there is nobody to signal the lock is taken over, and the tasks are given back."""
    stale = a_stuck_lock()._replace(verdict=Verdict.STALE, reason="PID 4711 is gone")
    plan = steps(stale, returns(WORDS, 0))

    assert [step.words for step in plan] == [
        "take over the lock file in place: PID 4711 is gone",
        "tasks in work fail once: to pending, after their last attempt to dlq",
    ]
    assert [at.progress for at in progress(plan, said(TAKEN, FREED), False)] == [Progress.DONE] * 2


def test_in_doubt_there_are_no_steps() -> None:
    """Where nobody may be signalled there is no plan, whatever would become of the tasks."""
    assert steps(a_stuck_lock()._replace(doubt="it is PID 1"), returns(WORDS, 1)) == ()


def test_the_twin_asks_for_the_pid_itself() -> None:
    """The command that is shown does the same and holds the same tasks, without the words that
    answer for the operator.
    """
    command = recover_command("/q")

    assert ladder.twin(command) == "spooldeck --root /q queue recover"
    assert ladder.twin(command, ["a"]) == "spooldeck --root /q queue recover --hold a"
    assert "--yes" not in ladder.twin(("recover", "--yes", "--seen"))
