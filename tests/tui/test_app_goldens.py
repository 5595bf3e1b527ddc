"""How the console looks: each screen fits each size, and is as agreed on (golden) at one."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.widget import Widget

from tests.console_operator import ConsoleOperator
from tests.tui.blank_rows import wasted_rows
from tests.tui.drawn_screens import DEAD, DRAWN_SCREENS, QUEUE, DrawnScreen, settled, taken
from tests.tui.screenshot_places import NAME, made_days
from tests.tui.terminal.test_screen_cells_repaint import Shown, whole
from tui.app import Console
from tui.confirm.confirm_screen import ConfirmScreen
from tui.screens.base import BaseScreen
from tui.screens.help import SCREEN_TITLES, HelpScreen
from tui.text.hints import is_key_of
from tui.text.keys import Hint
from tui.text.lines import Line, width_of
from tui.widgets import theme as themes
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker

Compare = Callable[[str, str, dict[int, str]], None]
GOLDEN = Path(__file__).parent / "golden"
SIZES = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 12), (20, 5), (1, 1))
"""The widest first: a screen that becomes wider asks for what it did not show before. Below 40
columns only nothing may be drawn over the edge."""

SCREENS = DRAWN_SCREENS | {
    "edit": DrawnScreen((*QUEUE, "E", "see no changes yet"), armed=True),
    "problem": DrawnScreen((*QUEUE, "h", "see 0badf00d", "enter", "see problem 1 of")),
}
DIALOGS = {"copy", "edit", "export", "filter", "help", "order", "pace", "palette"}
"""Screens without a key for the help."""
CUT = {"help", "locks", "nothing", "problem", "problems", "task-attempts"}
"""Those with a line that is cut at the edge of a terminal with less than 80 columns."""
NEXT = ((" next  ", "ok"),)
MOVING = {"first-look", "task-files", "edit", "problem"}
"""Shots with figures that are others each time, such as how far something is; and no shot."""
LOW = {"copy", "export", "filter", "help", "lock-at-work", "nothing", "order", "palette"}
"""Those that are agreed on at 80x24: on a larger screen the rest of it is that of another."""
GOLDENS = {name: [(80, 24) if name in LOW else (120, 40)] for name in SCREENS if name not in MOVING}
for name in ("overview", "dlq", "plan"):
    GOLDENS[name].append((60, 15))
CHANCE = re.compile(r"(?<=revision  ) *[0-9a-f]+(\.[0-9a-f]+)+ *|(?<=  example  )\S+")
"""What differs from one folder to the next, and which of some alike is named. A revision has an
inode number, which may have any length."""


@pytest.fixture(scope="module")
def days() -> Iterator[dict[str, Path]]:
    """The spool of each day; nothing here changes them."""
    with made_days() as made:
        yield made


def drawn(console: Console, root: Path) -> tuple[str, dict[int, str]]:
    """The screen as text, and for each line its styled runs: `0-5 bold, 10-12 red`."""
    # The library has no public way to what it painted.
    strips, texts, styles = console.screen._compositor.render_strips(), [], {}
    for number, strip in enumerate(strips):
        for line_filter in (each for each in console._filters if each.enabled):
            strip = strip.apply_filter(line_filter, Color.parse("ansi_default"))
        text, found = CHANCE.subn("#", strip.text.rstrip())
        texts.append(text)
        runs = "" if found else ", ".join(_runs(list(strip)))
        if runs:
            styles[number] = runs
    return "\n".join(texts).replace(str(root), NAME), styles


def _runs(segments: list[Segment]) -> Iterator[str]:
    runs: list[tuple[int, int, str]] = []
    at = 0
    for segment in segments:
        style, end = _style(segment), at + segment.cell_length
        if style and end > at:
            start = runs.pop()[0] if runs and runs[-1][1:] == (at, style) else at
            runs.append((start, end, style))
        at = end
    return (f"{start}-{end} {style}" for start, end, style in runs)


def _style(segment: Segment) -> str:
    if segment.style is None:
        return ""
    words = str(segment.style.without_color)
    front, back = segment.style.color, segment.style.bgcolor
    parts = ["" if words == "none" else words]
    parts.append(front.name if front and not front.is_default else "")
    parts.append(f"on {back.name}" if back and not back.is_default else "")
    return " ".join(filter(None, parts))


@pytest.fixture
def differences(request: pytest.FixtureRequest) -> Iterator[Compare]:
    """Compares drawings with those that were agreed on; with `--draw` they are that from now on."""
    found: list[str] = []

    def compare(name: str, text: str, styles: dict[int, str]) -> None:
        path = GOLDEN / f"{name}.txt"
        lines = [*text.split("\n"), *(f"{number} {runs}" for number, runs in styles.items())]
        if request.config.getoption("--draw", default=False):
            path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        agreed = path.read_text(encoding="utf-8").splitlines()
        found.extend(difflib.unified_diff(agreed, lines, f"{name} agreed", "drawn", n=1))

    yield compare
    assert not found, "\n".join(found)


@pytest.mark.deep
@pytest.mark.parametrize("name", SCREENS)
async def test_each_screen_equals_a_full_repaint(days: dict[str, Path], name: str) -> None:
    """After keys and sizes in a random order the terminal shows what a full repaint would."""
    drawn_screen, numbers = SCREENS[name], random.Random(name)
    async with taken(days[drawn_screen.day], drawn_screen, SIZES[1]) as (console, pilot):
        screen_cells = Shown(console)
        for turn in range(12):
            if turn == 0 or numbers.randrange(2):
                screen_cells.cells.clear()
                before = console.size
                await pilot.resize_terminal(*numbers.choice([s for s in SIZES if s != before]))
            else:
                await pilot.press(numbers.choice(("j", "k", "G", "h", "l", "tab")))
            await settled(console, pilot, 3)
            assert screen_cells.lines() == whole(console), (name, turn, console.size)


def over_the_edge(operator: ConsoleOperator, width: int) -> list[str]:
    """The panes of the screen on top that draw further than it is wide."""
    screen = operator.console.screen
    panes: list[tuple[Widget, list[Line]]]
    panes = [(pane, list(pane.lines)) for pane in screen.query(Lines)]
    panes += [(pane, [row.line for row in pane.rows]) for pane in screen.query(Picker)]
    return [
        f"{pane.id}: {pane.region}"
        for pane, lines in panes
        if pane.display and pane.region
        if max(map(width_of, lines), default=0) > width or pane.region.right > width
    ]


def unnamed_key(operator: ConsoleOperator) -> str:
    """The key of the next step of the screen on top, if the key line does not have it."""
    panes = {pane.id: pane for pane in operator.console.screen.query(Lines) if pane.display}
    steps = [line for pane in panes.values() for line in pane.lines if line[:1] == NEXT]
    key = next((line[1][0].split()[0] for line in steps if line[1][0].strip()), "")
    if key in ("", "type"):  # none, or its digits are there
        return ""
    runs = (run for line in panes["hints"].lines for run in line)
    return "" if any(is_key_of(Hint(text.strip(), ""), key) for text, _ in runs) else key


@pytest.mark.parametrize("name", SCREENS)
async def test_screens_as_agreed(days: dict[str, Path], name: str, differences: Compare) -> None:
    """Each screen fits each size, with the question of a plan, looks as agreed at one, and has its
    own help. No frame has more than four blank rows while another one has rows that it does not
    show. The key of the next step is in the key line."""
    drawn_screen = SCREENS[name]
    root, agreed = days[drawn_screen.day], GOLDENS.get(name, [])
    async with taken(root, drawn_screen, (*agreed, *SIZES)[0]) as (console, pilot):
        operator, screen = ConsoleOperator(console, pilot), console.screen
        for width, height in (*agreed, *(size for size in SIZES if size not in agreed)):
            await pilot.resize_terminal(width, height)
            await operator.until(lambda: len(operator.text.splitlines()) <= height)  # noqa: B023
            if width >= (80 if name in CUT else 40):
                edge = partial(over_the_edge, operator, width)
                await operator.until(lambda: not edge(), describe=lambda: f"{width}: {edge()}")  # noqa: B023
            if width >= 80:
                wasted = partial(wasted_rows, screen)
                await operator.until(lambda: not wasted(), describe=wasted)  # noqa: B023
                await operator.until(
                    lambda: drawn_screen.slow or not unnamed_key(operator),
                    partial(unnamed_key, operator),
                )
            is_plan = isinstance(screen, ConfirmScreen) and not screen.why_not_applicable()
            if is_plan and width >= 40:
                assert screen.query_one("#word", Lines).region.bottom <= height
                assert operator.line("word").lstrip().startswith(("y to", "type")), width
            if (width, height) in agreed:
                await console.theme_loader.use_theme("terminal")
                await settled(console, pilot, 3)
                differences(f"{name}-{width}x{height}", *drawn(console, root))
        if name not in DIALOGS:
            await pilot.resize_terminal(80, 24)
            assert isinstance(screen, BaseScreen)
            await operator.step("?", HelpScreen, f"Keys of {SCREEN_TITLES[screen.KIND]} ")


THEMES = themes.theme_names({})


async def test_themes(days: dict[str, Path], differences: Compare) -> None:
    """Each theme shows the same text, and that without colours looks as agreed."""
    drawn_screen = DrawnScreen((*DEAD, "space", "j"), armed=True)
    async with taken(days["bad"], drawn_screen, (80, 24)) as (console, pilot):
        texts = set()
        for theme in THEMES:
            await console.theme_loader.use_theme(theme)
            await settled(console, pilot, 3)
            text, styles = drawn(console, days["bad"])
            texts.add(text)
            if theme == "mono":
                differences("theme-mono", text, styles)
        assert len(texts) == 1


def test_nothing_is_agreed_on_that_is_not_drawn() -> None:
    """There is a drawing for each shot and size, and no other."""
    drawn = {f"{name}-{w}x{h}" for name, sizes in GOLDENS.items() for w, h in sizes}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == drawn | {"theme-mono"}
