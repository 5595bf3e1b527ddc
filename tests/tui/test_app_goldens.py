"""How the console looks: each screen fits each size, and is as agreed on at some."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from tests.console_operator import ConsoleOperator
from tests.console_places import a_stuck_lock, in_utc
from tests.tui import drawn_cells
from tests.tui.drawn_screens import DEAD, DRAWN_SCREENS, FIRST, QUEUE, DrawnScreen, settled, taken
from tests.tui.screenshot_places import NAME, made_days, tasks_of
from tests.tui.terminal.test_screen_cells_repaint import Shown, whole
from tui.app import Console
from tui.confirm.confirm_screen import ConfirmScreen
from tui.text.lines import Line, width_of
from tui.widgets import theme as themes
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker

WIDEST = (200, 60)
SIZES = ((120, 40), (80, 24))
"""The widest first: a screen that becomes wider asks for what it did not show before."""
SMALL = ((60, 15), (40, 12), (20, 5), (1, 1))
"""Below 40 columns only nothing may be drawn over the edge."""

SCREENS = DRAWN_SCREENS | {"edit": DrawnScreen((*QUEUE, "E", "see no changes yet"), armed=True)}
CUT = {"help", "locks", "nothing", "problems", "task-attempts"}
"""Those with a line that is cut at the edge of a terminal with less than 80 columns."""
MOVING = {"first-look", "task-files"}
"""Shots with figures that are others each time: how far something is, and when a file was made."""

STEADY = [name for name in DRAWN_SCREENS if name not in MOVING]
FAMILIES = {"overview", "dlq", "task", "clusters", "plan", "lock", "transports", "log", "help"}
"""One screen of each kind: its styles are compared without colours too, at the smaller size."""
THEMES = themes.theme_names({})


@pytest.fixture(scope="module")
def days() -> Iterator[dict[str, Path]]:
    """The spool of each day; nothing here changes them."""
    with in_utc(), made_days() as made:
        yield made


@pytest.fixture
def redraws(request: pytest.FixtureRequest) -> bool:
    """Whether to draw what is agreed on, and not to compare."""
    return bool(request.config.getoption("--draw", default=False))


@pytest.mark.deep
@pytest.mark.parametrize("name", SCREENS)
async def test_each_screen_equals_a_full_repaint(days: dict[str, Path], name: str) -> None:
    """After each of some keys and sizes, in a random order, the terminal shows what a full repaint
    would."""
    drawn_screen, numbers = SCREENS[name], random.Random(name)
    async with taken(days[drawn_screen.day], drawn_screen, SIZES[0]) as (console, pilot):
        screen_cells = Shown(console)
        for turn in range(12):
            if turn == 0 or numbers.randrange(2):
                screen_cells.cells.clear()
                before = console.size
                others = [size for size in (WIDEST, *SIZES, *SMALL) if size != before]
                await pilot.resize_terminal(*numbers.choice(others))
            else:
                await pilot.press(numbers.choice(("j", "k", "G", "h", "l", "tab")))
            await settled(console, pilot, 3)
            assert screen_cells.lines() == whole(console), (name, turn, console.size)


async def _drawn(console: Console, pilot: Pilot[None], root: Path, theme: str) -> tuple[str, str]:
    """Text and styles in a theme."""
    await console.theme_loader.use_theme(theme)
    await settled(console, pilot, 3)
    text, styles = drawn_cells.drawn(console)
    return "\n".join(text).replace(str(root), NAME), "\n".join(styles)


def over_the_edge(operator: ConsoleOperator, width: int) -> list[str]:
    """The panes of the screen on top that draw further than it is wide."""
    screen = operator.console.screen
    drawn: list[tuple[Widget, list[Line]]]
    drawn = [(pane, list(pane.lines)) for pane in screen.query(Lines)]
    drawn += [(pane, [row.line for row in pane.rows]) for pane in screen.query(Picker)]
    return [
        f"{pane.id}: {pane.region}"
        for pane, lines in drawn
        if pane.display and pane.region
        if max(map(width_of, lines), default=0) > width or pane.region.right > width
    ]


async def _fits(operator: ConsoleOperator, name: str, size: tuple[int, int]) -> None:
    """No line is longer than the terminal is wide, and a plan's question is on screen."""
    width, height = size
    screen = operator.console.screen
    await operator.pilot.resize_terminal(*size)
    await operator.until(lambda: len(operator.text.splitlines()) <= height)
    if width >= (80 if name in CUT else 40):
        edge = partial(over_the_edge, operator, width)
        await operator.until(lambda: not edge(), describe=lambda: f"{name} at {size}: {edge()}")
    if isinstance(screen, ConfirmScreen) and width >= 40 and screen.why_not_applicable() == "":
        word = screen.query_one("#word", Lines)
        assert word.region.bottom <= height
        assert operator.line("word").lstrip().startswith(("y to", "type")), size


@pytest.mark.parametrize("name", SCREENS)
async def test_screens_equal_their_goldens(days: dict[str, Path], name: str, redraws: bool) -> None:
    """Each screen fits each size of the terminal, and looks as agreed at some, some screens without
    colours too.
    """
    drawn_screen = SCREENS[name]
    root = days[drawn_screen.day]
    agreed = (
        (WIDEST, *SIZES) if drawn_screen.steps[-1] in FIRST else SIZES if name in STEADY else ()
    )
    others = [size for size in (WIDEST, *SIZES, *SMALL) if size not in agreed]
    differs = []

    async with taken(root, drawn_screen, (*agreed, *others)[0]) as (console, pilot):
        for size in agreed:
            await _fits(ConsoleOperator(console, pilot), name, size)
            await pilot.pause()
            text, runs = await _drawn(console, pilot, root, "terminal")
            styles = [f"-- terminal\n{runs}"]
            if size == SIZES[-1] and name in FAMILIES:
                again, runs = await _drawn(console, pilot, root, "mono")
                assert again == text
                styles.append(f"-- mono\n{runs}")
            file = f"{name}-{size[0]}x{size[1]}"
            differs.append(
                drawn_cells.compare(file, "\n".join([text, *styles, ""]), redraws=redraws)
            )
        for size in others:
            await _fits(ConsoleOperator(console, pilot), name, size)

    assert not any(differs), "\n".join(differs)


async def test_themes(days: dict[str, Path], redraws: bool) -> None:
    """Each theme shows cursor, mark, tab, error, and an armed console apart from the rest."""
    drawn_screen = DrawnScreen((*DEAD, "space", "j"), armed=True)
    differs = []
    async with taken(days["bad"], drawn_screen, (80, 24)) as (console, pilot):
        for theme in THEMES:
            text, styles = await _drawn(console, pilot, days["bad"], theme)
            differs.append(
                drawn_cells.compare(f"theme-{theme}", f"{text}\n{styles}\n", redraws=redraws)
            )
    assert not any(differs), "\n".join(differs)


def test_nothing_is_agreed_on_that_is_not_drawn() -> None:
    """There is a drawing for each shot and size, and no other."""
    sizes = [f"{width}x{height}" for width, height in SIZES]
    drawn = {f"{name}-{size}" for name in STEADY for size in sizes}
    drawn |= {
        f"{name}-200x60"
        for name, drawn_screen in DRAWN_SCREENS.items()
        if drawn_screen.steps[-1] in FIRST
    }
    drawn |= {f"theme-{theme}" for theme in THEMES}
    assert {path.stem for path in drawn_cells.GOLDEN.glob("*.txt")} == drawn


def test_a_stuck_worker_leaves_no_trace_after_its_last_heartbeat(days: dict[str, Path]) -> None:
    """On the stuck day no log line, metric or death is later than the heartbeat of the lock."""
    heartbeat, root = a_stuck_lock().since or 0.0, days["stuck"]
    written = [path for name in ("log", "metrics") for path in (root / name).iterdir()]
    died = [float(task.extra["dead_since"]) for task in tasks_of("stuck") if task.extra]
    assert written and died
    assert max(path.stat().st_mtime for path in written if path.suffix != ".jsonl") <= heartbeat
    assert max(died) <= heartbeat
