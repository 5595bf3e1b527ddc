"""The graph of a queue's course: scales and printed figures."""

from __future__ import annotations

import pytest

from engine.monitor.throughput import FlowSeries
from tests.tui.desks import words
from tui.format.flow_graph import LatestFlow, flow_graph


@pytest.mark.parametrize(
    ("backlog", "now", "shown", "axis"),
    [((60.0, 46.0), 50, "max 60", "60"), ((40.0, 46.0), 61, "max 61", "61")],
)
def test_the_maximum_includes_the_present_backlog(
    backlog: tuple[float, ...], now: int, shown: str, axis: str
) -> None:
    """The printed maximum and the axis are at least the present value printed beside them."""
    blank = (None,) * 2
    lines = flow_graph(FlowSeries(blank, blank, blank, backlog), 60, 5, LatestFlow(None, now))
    head, top, *_ = words(lines).splitlines()
    assert f"backlog {now}" in head
    assert head.endswith(shown)
    assert top.split()[0] == axis
