"""With any sequence of states and sizes, the terminal shows the last one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from tests.console_operator import an_operator
from tests.console_places import a_memory, a_place
from tui.terminal.safe_app import SafeApp
from tui.terminal.screen_cells import _pieces
from tui.terminal.sized_screen import SizedScreen
from tui.text.frames import Frame
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker

SIZES = ((60, 15), (80, 24), (100, 30), (110, 34), (120, 40), (200, 60))


def rows_of(name: str, numbers: random.Random, most: int) -> list[Line]:
    """A random number of lines."""
    count = numbers.randrange(most)
    return [((f"{name} {n} {numbers.randrange(3)}", ""),) for n in range(count)]


class Panes(SizedScreen[None]):
    """A screen of the panes that all screens are made of."""

    def compose(self) -> ComposeResult:
        """Panes whose height follows their lines, around a list that takes the rest."""
        yield Lines(id="top-line")
        for name in ("state", "steps"):
            yield Lines(id=name, classes="pane")
        yield Picker(id="rows")
        yield Lines(id="flow", classes="pane")
        for name in ("word", "hints"):
            yield Lines(id=name)

    def show(self, numbers: random.Random) -> None:
        """A random state: other lines, other heights, panes that come and go."""
        for name in ("top-line", "word", "hints"):
            self.query_one(f"#{name}", Lines).show([((f"{name} {numbers.random()}", ""),)])
        for name in ("state", "steps", "flow"):
            pane = self.query_one(f"#{name}", Lines)
            lines = rows_of(name, numbers, 7)
            pane.display = bool(lines)
            pane.show(lines)
            pane.show_frame(Frame(name, amount=f"{numbers.randrange(3)}"))
        picker = self.query_one(Picker)
        rows = [Choice(f"{n}", line) for n, line in enumerate(rows_of("row", numbers, 40))]
        picker.show_rows(rows, [(("HEAD", ""),)] if numbers.randrange(2) else [])
        picker.show_frame(Frame("Results", amount=f"{len(rows)}"))


class Shown:
    """What a terminal shows after all frames that were sent to it."""

    def __init__(self, app: SafeApp) -> None:
        self.cells: dict[tuple[int, int], str] = {}
        self._app, self._display = app, app._display
        app._display = self.display  # type: ignore[method-assign]

    def display(self, screen: Screen[Any], renderable: Any) -> None:
        """Note a frame before it is shown."""
        if isinstance(renderable, ChopsUpdate | LayoutUpdate):
            put(self.cells, renderable)
        self._display(screen, renderable)

    def lines(self) -> list[str]:
        """The screen, line by line."""
        return lines_of(self.cells, self._app)


def lines_of(cells: Mapping[tuple[int, int], str], app: SafeApp) -> list[str]:
    """The characters of all cells, line by line."""
    width, height = app.size
    return ["".join(cells.get((y, x), " ") for x in range(width)) for y in range(height)]


def put(cells: dict[tuple[int, int], str], update: ChopsUpdate | LayoutUpdate) -> None:
    """Put the characters of a frame into cells."""
    for y, x, strip in _pieces(update):
        for at, letter in enumerate(strip.text, x):
            cells[y, at] = letter


def whole(app: SafeApp) -> list[str]:
    """A full repaint, line by line."""
    screen, cells = app.screen, dict[tuple[int, int], str]()
    for widget in screen.walk_children(Widget):
        widget._styles_cache.clear()
    update = screen._compositor.render_update(full=True)
    assert isinstance(update, LayoutUpdate)
    put(cells, update)
    return lines_of(cells, app)


DEEP = [pytest.param(seed, 60, marks=pytest.mark.deep) for seed in range(2, 12)]


@pytest.mark.parametrize(("seed", "states"), [(0, 12), (1, 12), *DEEP])
async def test_random_states_at_random_sizes_equal_a_full_repaint(seed: int, states: int) -> None:
    """After each state, what was sent in parts is what a full repaint would show."""
    numbers = random.Random(seed)
    async with an_operator(a_place(a_memory([])), size=numbers.choice(SIZES)) as operator:
        screen_cells = Shown(operator.console)
        screen = Panes()
        await operator.console.push_screen(screen)
        for _ in range(states):
            if not numbers.randrange(8):
                screen_cells.cells.clear()
                await operator.pilot.resize_terminal(*numbers.choice(SIZES))
            screen.show(numbers)
            await operator.pilot.pause()
            # A frame may come some milliseconds after the last layout; nothing else paints here.
            await operator.until(lambda: screen_cells.lines() == whole(operator.console))
