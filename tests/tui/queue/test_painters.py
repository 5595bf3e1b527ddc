"""The pane of states and the metrics file."""

from __future__ import annotations

import errno
import os

from textual.geometry import Size

from engine.model import State
from engine.monitor.metrics_check import GAUGES, OwnCounts
from engine.monitor.prometheus import Samples
from tests.console_operator import words
from tests.console_places import NOW
from tests.tables import each
from tui.queue import painters
from tui.queue.widgets import FIXED_LINES, MIN_DETAILS_LINES, divide_screen
from tui.text.lines import width_of

STATES = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}


@each("width", range(24, 121, 8))
def test_no_count_of_a_state_is_cut(width: int) -> None:
    """At no width is a part of a number shown for the number."""
    own_counts = OwnCounts(STATES, dict.fromkeys(STATES, 31_753), True)
    lines = painters.state_lines(None, own_counts, True, width)
    assert all(width_of(line) == width and "31,753" in words([line]) for line in lines)


@each(("pending", "text", "row"), [(7, "metrics agree, 2s", ""), (5, "metrics differ", "file 5")])
def test_states_show_where_the_metrics_file_differs(pending: int, text: str, row: str) -> None:
    """The frame says whether the metrics file agrees, and a bar gives way to its other value."""
    own_counts = OwnCounts(STATES, {State.PENDING: 7}, True, {State.PENDING: 7})
    samples = Samples({(GAUGES[State.PENDING], ()): float(pending)}, NOW - 2)
    first, *_ = painters.state_lines(samples, own_counts, True, 40)
    assert painters.metrics_run(samples, own_counts, NOW)[0] == text
    assert row in words([first])
    moving = own_counts._replace(when_written=None)
    assert painters.metrics_run(samples, moving, NOW) == ("metrics 2s old", "muted")
    assert painters.metrics_differences(samples, moving, NOW) == ("", "")


def test_a_queue_without_a_metrics_file_says_who_writes_it() -> None:
    """A file that is not there yet is one clear line; another error is named."""
    own_counts = OwnCounts(STATES, {}, True)
    missing, denied = os.strerror(errno.ENOENT), os.strerror(errno.EACCES)
    warning = painters.metrics_differences(missing, own_counts, NOW)
    assert warning == ("no queue.prom yet: the next worker run writes it", "muted")
    assert painters.metrics_run(missing, own_counts, NOW)[0] == "no metrics file"
    assert painters.metrics_differences(denied, own_counts, NOW)[0] == f"queue.prom: {denied}"


def test_the_facts_of_a_queue_take_few_lines() -> None:
    """Below the bars are the first facts of a queue, one on a line; a long one is whole before the
    graph has lines."""
    facts = [(f"fact {n}", "x" * 50) for n in range(9)]
    assert len(painters.fact_rows(facts, 30)) == painters.MAX_FACTS
    for height, has_graph in ((40, True), (34, False)):
        plain, frame = (
            divide_screen(
                Size(120, height), 6, False, 9, alarms=False, facts=4, details=6, log=9, folded=more
            )
            for more in (0, 4)
        )
        assert frame.states - plain.states == 4 and plain.graph
        assert frame.graph == (plain.graph - 4 if has_graph else 0)


@each(("states", "folded"), [(7, 4), (8, 3)])
def test_long_facts_leave_the_details_their_lines(states: int, folded: int) -> None:
    """Without a graph long facts are folded as far as the details keep their least lines."""
    plain, frame = (
        divide_screen(
            Size(120, 30), states, False, 9, alarms=False, facts=4, details=6, log=9, folded=more
        )
        for more in (0, 4)
    )
    assert not plain.graph
    assert frame.states - plain.states == folded
    assert 30 - FIXED_LINES - frame.states - frame.border >= MIN_DETAILS_LINES


def test_names_of_facts_are_whole() -> None:
    """The longest name of what a queue reports about itself sets the column of the values."""
    rows = painters.fact_rows([("tokens", "0 of 5"), ("next token", "16:02:20Z (in 9s)")], 40)
    assert words(rows).splitlines() == [" tokens     0 of 5", " next token 16:02:20Z (in 9s)"]
