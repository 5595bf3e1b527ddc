"""The graph of a queue's course: scales and printed figures."""

from __future__ import annotations

import pytest

from engine.monitor.throughput import FlowSeries, Rates
from tests.tui.desks import words
from tui.format.flow_graph import KEY, LatestFlow, flow_graph


@pytest.mark.parametrize(
    ("backlog", "now", "shown", "axis"),
    [((60.0, 46.0), 50, "max 60", "60"), ((40.0, 46.0), 61, "max 61", "61")],
)
def test_the_maximum_includes_the_present_backlog(
    backlog: tuple[float, ...], now: int, shown: str, axis: str
) -> None:
    """The printed maximum and the axis are at least the present value printed beside them."""
    blank = (None,) * 2
    lines = flow_graph(FlowSeries(blank, blank, blank, backlog), 60, 5, LatestFlow(backlog=now))
    head, top, *_ = words(lines).splitlines()
    assert f"backlog {now}" in head
    assert head.endswith(shown)
    assert top.split()[0] == axis


def test_the_printed_rates_are_over_one_time() -> None:
    """The legend prints `in`, `out` and `died` over the time of the table, not of the last step,
    and the axis reaches the largest of them.
    """
    series = FlowSeries((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (None, None))
    latest = LatestFlow(Rates(2.1, 2.5), 0.4, 46)
    head, top, *_ = words(flow_graph(series, 60, 10, latest)).splitlines()
    assert [*head.replace(KEY, "").split()] == ["in", "2.1", "out", "2.5", "died", "0.4", "/s"]
    assert float(top.split()[0]) >= 2.5
