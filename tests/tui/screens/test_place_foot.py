"""The graph and the log of a place in the lines that the rows of a screen leave."""

from __future__ import annotations

from textual.geometry import Region, Size

from engine.logs.log_line import LogLine
from tests.tables import each
from tui.screens.place_foot import PlaceFoot

LINE = LogLine(None, "", "started", "")


@each(
    ("log", "expected"),
    [
        ([], {"graph": 14, "log": 2}),
        ([LINE] * 20, {"log": 16}),
    ],
)
def test_a_small_screen_has_the_log_or_else_the_graph(
    log: list[LogLine], expected: dict[str, int]
) -> None:
    """At 80x24 the lines that rows leave have the log, and without one the graph."""
    regions = PlaceFoot().regions(Region(0, 4, 80, 16), Size(80, 24), log)
    assert {pane.id: region.height for pane, region in regions.items()} == expected
