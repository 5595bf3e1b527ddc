"""Without colour: states, verdicts, levels, answers and alerts differ by their words or signs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.alerts import Alert, Goal, Level, What, Where
from engine.clusters import Cluster
from engine.model import Lease, LockEvidence, State, Verdict
from engine.samenow import Answer, Now
from tests.tui.spools import NOW, a_task
from tui import present
from tui.glyphs import ASCII
from tui.present import Line
from tui.views import alerts as alert_view
from tui.views import clusters as cluster_view
from tui.views.clusters import Judged

WIDTH = 100


def bare(line: Line) -> str:
    """What is left of a line on a terminal without colours and without UTF-8."""
    return "".join(text for text, _ in line).translate(ASCII).rstrip()


def rows() -> list[Line]:
    """The same row as it is, under the cursor, marked, both, and gone."""
    shape = present.columns(State.PENDING, WIDTH)
    places = [(False,) * 3, (True, False, False), (False, True, False), (True, True, False)]
    places += [(False, False, True), (True, False, True)]
    return [present.row(a_task(1), shape, NOW, present.Place(*p), WIDTH) for p in places]


def tabs() -> list[Line]:
    """Each tab as the one that is shown."""
    names = [str(state) for state in State]
    return [present.tabs(names, [1] * len(names), n, True, WIDTH) for n in range(len(names))]


def states() -> list[Line]:
    """What a task in each state says of itself."""
    words = {state: str(state) for state in State}
    lease = {State.ACTIVE: Lease("1", NOW)}
    tasks = [a_task(2, state, lease=lease.get(state)) for state in State]
    return [((dict(present.fields(task, words, NOW))["state"], ""),) for task in tasks]


def verdicts() -> list[Line]:
    """The lock line for each verdict, with the same evidence."""
    return [present.lock(LockEvidence(v, 42, NOW - 60, 60, "why"), NOW, WIDTH) for v in Verdict]


def levels() -> list[Line]:
    """The same words in a log, as grave as can be and less."""
    names = ("", "DEBUG", "INFO", "SUCCESS", "WARN", "ERROR", "FATAL")
    return [present.log_line(NOW, level, "words", WIDTH) for level in names]


def answers() -> list[Line]:
    """The same errors with each answer to "same now?"."""
    cluster = Cluster("F-3A91", "421 later", 3, NOW, NOW, ("mail_send",), "id")
    said = {Answer.YES: "yes", Answer.NO: "no (1m)", Answer.UNKNOWN: "?"}
    return [cluster_view.row(Judged(cluster, Now(a, said[a], ())), NOW, WIDTH) for a in Answer]


def urgent() -> list[Line]:
    """The same alert, as urgent as can be and less."""
    told = [
        Alert(level, What.DEAD, "the same words", NOW, Goal("place", Where.QUEUE))
        for level in Level
    ]
    return alert_view.lines(told, {"place": "place"}, WIDTH, len(told))


@pytest.mark.parametrize(
    "lines",
    [rows(), tabs(), states(), verdicts(), levels(), answers(), urgent()],
    ids=["rows", "tabs", "states", "verdicts", "levels", "answers", "alerts"],
)
def test_no_two_look_alike_without_colour(lines: Sequence[Line]) -> None:
    """Whatever differs in its meaning differs in its characters, in plain ASCII."""
    said = [bare(line) for line in lines]
    assert len(said) > 1
    assert len(set(said)) == len(said), said
    assert all(text.isascii() and text.strip() for text in said)
