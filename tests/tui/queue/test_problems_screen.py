"""The list of problems and the facts about each."""

from __future__ import annotations

from engine.model import Problem, State
from tests.console_operator import words
from tests.console_places import NOW
from tests.tables import each
from tui.queue.problems_screen import problem_details, problem_rows

STATES = {State.DEAD: "dlq"}

WHAT = "no newline at its end: a write was interrupted, and the end of the file is missing"
FOLDED = [WHAT[:34], "interrupted, and the end of the file", "is missing"]


@each(("height", "lines"), [
    (0, [WHAT[:34] + "…"] * 2),
    (4, [WHAT[:34], "interrupted, and the end of the fil…", WHAT[:34] + "…"]),
    (7, [*FOLDED, *FOLDED]),
    (30, [*FOLDED, *FOLDED]),
])  # fmt: skip
def test_a_long_problem_is_folded_while_there_is_room(height: int, lines: list[str]) -> None:
    """What is wrong has the lines that it needs, also three, while the list has them; else it is
    cut with a sign."""
    problems = [Problem(f"dlq/{number}.task", WHAT, State.DEAD) for number in range(2)]
    rows, head = problem_rows(problems, STATES, NOW, 60, height)
    start, end = words([head]).index("PROBLEM"), words([head]).index("SINCE")
    assert [words([row.line])[start:end].strip() for row in rows] == lines


@each(("where", "state", "text"), [
    ("dlq/20261120T013000Z-mail_send-0badf00d.task", State.DEAD, "0badf00d.task DLQ"),
    (".spooldeck/aside/queue.0310fa07-cfdc-48dd-b879-29a8eae86ac4", None, "queue.eae86ac4 aside"),
    ("data/0310fa07-cfdc-48dd-b879-29a8eae86ac4/a@b", None, "a@b data"),
    ("orphans and 3 more", None, "orphans and 3 more"),
])  # fmt: skip
def test_a_problem_is_found_by_its_name_and_its_state(
    where: str, state: State | None, text: str
) -> None:
    """A row has the short name of the file, and the state or the folder that it is in."""
    (row,), _ = problem_rows([Problem(where, "cut", state)], STATES, NOW, 80)
    assert words([row.line]).split("  ")[0] == f" ! {text}"


def test_an_unknown_time_of_a_problem_has_its_reason() -> None:
    """The details say why it is unknown since when there is a problem."""
    assert "since      ? no time recorded" in words(problem_details(Problem("a", "b"), {}, NOW, 80))
