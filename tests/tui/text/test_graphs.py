"""The graph of a queue's course: scales and printed figures."""

from __future__ import annotations

import re
from unittest.mock import patch

from engine.monitor.throughput import FlowSeries, Rates
from tests.console_operator import an_operator, words
from tests.console_places import a_memory, a_place, a_stuck_lock, a_task
from tests.tables import each
from tui.locks.screen import LockScreen
from tui.operations.replay_lines import GRAPH_ROWS, flow_lines
from tui.text.graphs import KEY, LatestFlow, flow_graph


@each(
    ("backlog", "now", "text", "axis"),
    [((60.0, 46.0), 50, "max 60", "60"), ((40.0, 46.0), 61, "max 61", "61")],
)
def test_the_maximum_includes_the_present_backlog(
    backlog: tuple[float, ...], now: int, text: str, axis: str
) -> None:
    """The printed maximum and the axis are at least the present value printed beside them."""
    blank = (None,) * 2
    lines = flow_graph(FlowSeries(blank, blank, blank, backlog), 60, 5, LatestFlow(backlog=now))
    head, top, *_ = words(lines).splitlines()
    assert f"backlog {now}" in head
    assert head.endswith(text)
    assert top.split()[0] == axis


def test_the_printed_maximum_is_that_of_the_tasks() -> None:
    """The largest number is printed, not the largest mean of a step, which depends on the width."""
    blank = (None,) * 2
    series = FlowSeries(blank, blank, blank, (40.0, 175.2), most=198)
    assert words(flow_graph(series, 60, 5)).splitlines()[0].endswith("max 198")


def test_the_printed_rates_are_over_one_time() -> None:
    """The legend prints `in`, `out` and `died` over the time of the table, not of the last step,
    and the axis reaches the largest of them."""
    series = FlowSeries((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (None, None))
    latest = LatestFlow(Rates(2.1, 2.5), 0.4, 46)
    head, top, *_ = words(flow_graph(series, 60, 10, latest)).splitlines()
    assert [*head.replace(KEY, "").split()] == ["in", "2.1", "out", "2.5", "died", "0.4", "/s"]
    assert float(top.split()[0]) >= 2.5
    # A slow one is in the unit of the plot, too.
    latest = LatestFlow(Rates(2.1, 0.0), 5 / 60, 46)
    head, *_ = words(flow_graph(series, 60, 10, latest)).splitlines()
    assert [*head.replace(KEY, "").split()] == ["in", "2.1", "out", "0.0", "died", "0.08", "/s"]
    # As recorded, only the growth of the dead is known.
    head, *_ = words(flow_graph(series, 60, 10)).splitlines()
    assert "died (net) 0.0" in head
    # A frozen screen has the rates of its table; a recording has no sample in each narrow step.
    sparse = (*[None] * 100, 3.0, *[None] * 4)
    recorded = FlowSeries(sparse, sparse, sparse, sparse, most=3)
    head = words(flow_graph(recorded, 80, 10, LatestFlow(Rates(2.1, 2.5))))
    assert "in 2.1" in head and "died (net) 3.0" in head and "backlog 3 " in head


def test_a_narrow_graph_keeps_the_unit_of_its_rates() -> None:
    """The legend is shortened before `/s` is dropped."""
    series = FlowSeries((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (None, None))
    for width in (35, 38, 60):
        lines = words(flow_graph(series, width, 10, LatestFlow(Rates(0.03, 0.02), 0.08, 46)))
        assert lines.splitlines()[0].endswith("/s"), width


@each("rows", [2, GRAPH_ROWS])
def test_a_replay_prints_the_rates_of_the_tables(rows: int) -> None:
    """Beside the lines of a replay are the figures of the tables, not those of the last step."""
    series = FlowSeries((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (40.0, 44.0))
    before = FlowSeries((1.0, None), (1.0, None), (1.0, None), (43.0, None))
    shown = words(
        flow_lines(series, before, 100, rows, latest=LatestFlow(Rates(2.1, 2.5), 0.4, 46))
    )
    assert re.findall(r"(?:in|out|backlog) +([\d.]+)", shown) == ["2.1", "2.5", "46"]
    small = words(flow_lines(series, before, 80, 2, latest=LatestFlow(Rates(2.1, 2.5), 0.4, 46)))
    assert small.count("was 1.0/s") == 2  # whole, also beside another one
    assert "was 43" in small  # at the start, not the mean of a step of the line before it


async def test_the_graph_of_the_lock_screen_prints_the_rates_of_the_tables() -> None:
    """The legend beside the lock is that of the overview."""
    place = a_place(a_memory([a_task(1)]), lock=a_stuck_lock, recovery_command=("true",))
    async with an_operator(place, size=(120, 40)) as operator:
        (live,) = operator.console.sessions
        with patch.object(live.flow, "rates", lambda now: Rates(2.1, 2.5)):
            await operator.opens(LockScreen, "U")
            await operator.sees("in 2.1", "out 2.5")
