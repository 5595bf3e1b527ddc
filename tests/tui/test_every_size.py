"""Every screen of the console at every size of the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widget import Widget

from tests.examples import deep_but
from tests.tui.desks import Desk
from tests.tui.scene import scenes
from tests.tui.shots import QUEUE, SHOTS, Shot, taken
from tests.tui.spools import in_utc
from tui.format.present import Line, width_of
from tui.plan.confirm_screen import ConfirmScreen
from tui.widgets.lines import Lines
from tui.widgets.picker import Picker

SIZES = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 12), (20, 5), (1, 1))
"""Columns and lines; below 40 columns only nothing may be drawn over the edge."""

SCREENS = SHOTS | {"edit": Shot((*QUEUE, "E", "see no changes yet"), armed=True)}
CUT = {"help", "locks", "nothing", "problems", "task-attempts"}
"""Those with a line that is cut at the edge of a terminal with less than 80 columns."""
QUICK = {"plan", "lock", "control", "suspend", "test-mail", "locks", "transports"}
"""Those that are shown on each run; how all look at two sizes is compared on each run, too."""


@pytest.fixture(scope="module")
def days() -> Iterator[dict[str, Path]]:
    """The spool of each day; nothing here changes them."""
    with in_utc(), scenes() as made:
        yield made


def over_the_edge(desk: Desk, width: int) -> list[str]:
    """The panes of the screen on top that draw further than it is wide."""
    screen = desk.console.screen
    drawn: list[tuple[Widget, list[Line]]]
    drawn = [(pane, list(pane.lines)) for pane in screen.query(Lines)]
    drawn += [(pane, [row.line for row in pane.rows]) for pane in screen.query(Picker)]
    return [
        f"{pane.id}: {pane.region}"
        for pane, lines in drawn
        if pane.display and pane.region
        if max(map(width_of, lines), default=0) > width or pane.region.right > width
    ]


@pytest.mark.parametrize("name", deep_but(QUICK, SCREENS))
async def test_every_screen_fits_every_size(days: dict[str, Path], name: str) -> None:
    """No line is longer than the terminal is wide, and a plan's question is always on screen."""
    shot = SCREENS[name]
    async with taken(days[shot.day], shot, SIZES[0]) as (console, pilot):
        desk = Desk(console, pilot)
        for size in SIZES:
            width, height = size
            await pilot.resize_terminal(*size)
            await desk.until(lambda: len(desk.text.splitlines()) <= height)  # noqa: B023
            if width >= (80 if name in CUT else 40):
                await desk.until(lambda: not over_the_edge(desk, width))  # noqa: B023
            if (
                isinstance(console.screen, ConfirmScreen)
                and width >= 40
                and console.screen.why_not_applicable() == ""
            ):
                word = console.screen.query_one("#word", Lines)
                assert word.region.bottom <= height
                assert desk.line("word").lstrip().startswith(("y to", "type")), size
