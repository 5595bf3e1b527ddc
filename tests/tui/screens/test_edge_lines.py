"""The top line: what it has room for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from textual.geometry import Size

from tests.console_operator import words
from tests.console_places import NOW, Clock
from tests.tables import each
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.edge_lines import TopLine
from tui.text.header import Totals
from tui.text.lines import Line, cells_of

WORKS: Line = (("ops 1 51%  ", "strong"),)
FROZEN: Line = ((" FROZEN since 09:42:08Z ", "chip-accent"),)


class WrittenLine(TopLine):
    """A top line of some width, without a screen."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._size, self.text = Size(width, 1), ""

    @property
    def size(self) -> Size:
        """Its cells."""
        return self._size

    def show(self, lines: Sequence[Line]) -> None:
        """Keep the text."""
        self.text = words(list(lines))


@each("width", [60, 80, 120])
def test_a_silent_place_is_in_each_top_line(width: int) -> None:
    """Neither a long path nor operations, a frozen picture or a slow link take the `?` of a place
    that does not answer; what is there beside it is whole."""
    clock = Clock()
    totals = Totals(
        dead=12,
        stuck=0,
        workers=0,
        places=2,
        pending=0,
        rates=None,
        unread=(("mx2", "no answer for 7s"),),
    )
    names, yes_or_no = ("/srv/" + "long" * 6, "short"), (True, False)
    for name, works, frozen, refresh, armed in product(
        names, (WORKS, ()), (FROZEN, ()), (30.0, 0.0), yes_or_no
    ):
        context = ConsoleContext(
            "mx1",
            Arming(clock, False, armed=armed),
            clock,
            totals=lambda: totals,
            operations=lambda works=works: works,  # type: ignore[misc]
            frozen=lambda frozen=frozen: frozen,  # type: ignore[misc]
            refresh=refresh,
        )
        line = WrittenLine(width)
        line.update_line(context, (name,))
        assert "?" in line.text and cells_of(line.text) <= width
        assert ("ops" in line.text) == ("ops 1 51%" in line.text)
        assert ("FROZEN" in line.text) == bool(frozen)


@pytest.mark.parametrize(
    ("width", "chip"), [(80, " LIVE, overview frozen 09:42:08Z "), (40, " LIVE  OBSERVE")]
)
def test_a_live_screen_names_the_time_of_a_frozen_overview(width: int, chip: str) -> None:
    """The time is in the top line if it fits beside the path, else only that the screen is live."""
    clock = Clock()
    line = WrittenLine(width)
    context = ConsoleContext("mx1", Arming(clock, False), clock, overview_time=lambda: NOW)
    line.update_line(context, ("flowing",))
    assert chip in line.text and cells_of(line.text) <= width
