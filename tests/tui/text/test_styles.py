"""Without colour: states, verdicts, levels, answers and alerts differ by their words or signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.index.error_clusters import Cluster
from engine.model import Lease, LockEvidence, State, Verdict
from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.monitor.recurrence import Recurrence, StillHappens
from tests.console_places import NOW, a_task
from tests.tables import each
from tui.groups import cluster_lines as cluster_view
from tui.overview import alert_lines as alert_view
from tui.session.index_queries import CheckedCluster
from tui.text.glyphs import ASCII
from tui.text.header import tab_line
from tui.text.lines import Line
from tui.text.lock import lock_line
from tui.text.log_line import log_line
from tui.text.styles import bracket_chips
from tui.text.task_fields import task_fields
from tui.text.task_list import TaskContext, task_columns, task_line

WIDTH = 100


def bare(line: Line) -> str:
    """What is left of a line on a terminal without colours and without UTF-8."""
    return "".join(text for text, _ in bracket_chips(line)).translate(ASCII).rstrip()


def meanings() -> Iterator[tuple[str, list[Line]]]:
    """Lines that differ only in their meaning, by the view that makes them."""
    shape = task_columns(State.PENDING, WIDTH)
    places = [(False,) * 3, (True, False, False), (False, True, False), (True, True, False)]
    places += [(False, False, True), (True, False, True)]
    yield ("rows", [task_line(a_task(1), shape, NOW, TaskContext(*p), WIDTH) for p in places])

    names, ones = [str(state) for state in State], [1] * len(State)
    yield "tabs", [tab_line(names, ones, n, True, WIDTH) for n in range(len(names))]

    words, lease = {state: str(state) for state in State}, {State.ACTIVE: Lease("1", NOW)}
    tasks = [a_task(2, state, lease=lease.get(state)) for state in State]
    states = [dict(task_fields(task, words, NOW))["state"] for task in tasks]
    yield "states", [((state, ""),) for state in states]

    locks = [LockEvidence(verdict, 42, NOW - 60, 60, "why") for verdict in Verdict]
    yield "verdicts", [lock_line(lock, NOW, WIDTH) for lock in locks]

    levels = ("", "DEBUG", "INFO", "SUCCESS", "WARN", "ERROR", "FATAL")
    yield "levels", [log_line(NOW, level, "words", WIDTH) for level in levels]

    cluster = Cluster(
        "F-3A91", "421 later", 3, first=NOW, last=NOW, kinds=("mail_send",), example="id"
    )
    said = {StillHappens.YES: "yes", StillHappens.NO: "no (1m)", StillHappens.UNKNOWN: "?"}
    judged = [
        CheckedCluster(cluster, Recurrence(answer, said[answer], ())) for answer in StillHappens
    ]
    yield "answers", [row.line for row in cluster_view.cluster_table(judged, NOW, WIDTH)[1]]

    goal = Goal("place", Where.QUEUE)
    alerts = [Alert(level, AlertKind.DEAD, "the same words", NOW, goal) for level in Level]
    yield "alerts", alert_view.alert_lines(alerts, {"place": "place"}, WIDTH)


@each(("view", "lines"), meanings())
def test_no_two_are_equal_without_colour(view: str, lines: Sequence[Line]) -> None:
    """What differs in meaning differs in its characters, in plain ASCII."""
    said = [bare(line) for line in lines]
    assert len(set(said)) == len(said) > 1, (view, said)
    assert all(text.isascii() and text.strip() for text in said)
