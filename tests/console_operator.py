"""An operator at a console: opens screens, presses keys, reads what is shown, waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, TypeVar

import pytest
from textual.css.query import NoMatches
from textual.events import Key
from textual.keys import Keys
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.screen import Screen
from textual.timer import Timer

from engine.places.place import Place
from tests.console_places import BOARDS, Clock, a_console, is_known, loaded, queue_of, until
from tui.app import Console
from tui.key_tables import KEYS
from tui.queue.screen import QueueScreen
from tui.task.screen import TaskScreen
from tui.terminal import bandwidth
from tui.terminal.clipboard import screen_text
from tui.terminal.key_queue import BURST_KEYS, PasteDetector
from tui.text import keys
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker

S = TypeVar("S", bound=Screen[Any])


def words(lines: list[Line] | tuple[Line, ...]) -> str:
    """Lines as one text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def key_of(action: str) -> str:
    """The first key of an action in the key table."""
    return next(key.keys[0] for key in KEYS if key.action == action)


KEY_NAMES = {"space", *(key.value for key in Keys)}


def keys_in(pressed: str) -> list[str]:
    """The keys of a text: each word is one key, or is typed letter by letter."""
    return [key for word in pressed.split() for key in ([word] if word in KEY_NAMES else word)]


class ConsoleOperator:
    """A console, and the operator who uses it."""

    def __init__(self, console: Console, pilot: Pilot[None]) -> None:
        self.console, self.pilot = console, pilot

    # What is shown

    @property
    def text(self) -> str:
        """The screen on top, line by line, as it is painted."""
        return screen_text(self.console.screen)

    @property
    def page(self) -> str:
        """All lines of the screen on top, also those below its end, in one line."""
        panes = [words(pane.lines) for pane in self.console.screen.query(Lines)]
        return " ".join(" ".join(panes).split())

    @property
    def picker(self) -> Picker:
        """The rows of the screen on top."""
        return self.console.screen.query_one(Picker)

    @property
    def queue(self) -> QueueScreen:
        """The screen with the task list, on top or below."""
        return queue_of(self.console)

    @property
    def rows(self) -> str:
        """Those rows, as text."""
        return words([row.line for row in self.picker.rows])

    def line(self, id: str) -> str:
        """The text of a pane of the screen on top."""
        return words(self.console.screen.query_one(f"#{id}", Lines).lines)

    @property
    def part_name(self) -> str:
        """The current part of a task, with its count."""
        (line,) = self.console.screen.query_one("#parts", Lines).lines
        return next(text.strip() for text, style in line if style == "tab")

    async def on_part(self, name: str, *texts: str) -> None:
        """Wait until that part of a task is the current one, is painted, and shows these."""
        screen = self.console.screen
        assert isinstance(screen, TaskScreen)
        await self.until(lambda: screen.shown_tab == screen.parts.tab)
        await self.until(lambda: self.part_name.startswith(name))
        await self.sees(*texts)

    def cells(self, name: str) -> list[str]:
        """The words behind a name on its line, after the cursor and the signs before it."""
        lines = [line[3:].split() for line in self.text.splitlines()]
        return next((cells[1:] for cells in lines if cells[:1] == [name]), [])

    def assert_inert(self) -> None:
        """Assert that nothing on screen could make a terminal act."""
        # The library has no public way to what it painted.
        for strip in self.console.screen._compositor.render_strips():
            assert strip.text.isprintable()

    # What the operator does

    async def press(self, *pressed: str) -> None:
        """Press keys, one after the other."""
        for key in pressed:
            await self.pilot.press(key)

    async def step(self, pressed: str, *expected: type[Screen[Any]] | str) -> None:
        """Press keys, as in `tab mx7 enter`, and wait for a screen, if one is named, and texts."""
        await self.press(*keys_in(pressed))
        for kind in expected:
            if isinstance(kind, type):
                await self.opens(kind)
        await self.sees(*(text for text in expected if isinstance(text, str)))

    async def types(self, text: str) -> None:
        """Type a text, key by key."""
        await self.press(*("space" if letter == " " else letter for letter in text))

    async def paste(self, *pressed: str) -> None:
        """Let keys arrive as a terminal without bracketed paste sends pasted text."""
        pasted = [Key(key, key) for key in pressed]
        PasteDetector().record_keys([*pasted, *(Key("x", "x") for _ in range(BURST_KEYS))], 0.0)
        for key in pasted:
            self.console.post_message(key)
        await self.pilot.pause()

    async def until(self, true: Callable[[], object], describe: Callable[[], str] = str) -> None:
        """Wait until `true()` is, and paint the boards meanwhile; else fail with `describe()`."""

        def painted() -> object:
            if isinstance(self.console.screen, BOARDS):
                self.console.screen.paint()
            try:
                return true()
            except NoMatches:  # the screen that has this pane is not on top yet
                return False

        await until(self.pilot, painted, lambda: f"{describe()}\n{self.text}\n{self.page}")

    async def sees(self, *texts: str) -> None:
        """Wait until all of this is on the screen on top, or below its end, however folded."""

        def shown() -> object:
            painted = " ".join(self.text.split())
            return painted and all(text in f"{self.page} {painted}" for text in texts)

        await self.until(shown, describe=lambda: f"{texts} are not all in")

    async def opens(self, kind: type[S], *pressed: str) -> S:
        """Press keys, and wait until a screen of this kind is on top."""
        await self.press(*pressed)
        await until(self.pilot, lambda: isinstance(self.console.screen, kind), lambda: self.text)
        await self.pilot.pause()
        screen = self.console.screen
        assert isinstance(screen, kind)
        return screen


PERIODS = {
    "tui.app": ("SAMPLE_SECONDS",),
    "tui.widgets.theme": ("CHECK_SECONDS",),
    "tui.widgets.task_rows": ("GHOST_SECONDS",),
    "tui.session.place_session": ("JOURNAL_INTERVAL_SECONDS",),
    "tui.terminal.bandwidth": ("ANSWER_SECONDS", "SAMPLE_SECONDS", "MAX_SAMPLE_SECONDS"),
    "tui.locks.screen": ("EXAMINE_SECONDS", "OUTPUT_READ_SECONDS"),
    "tui.locks.list_screen": ("CHANGED_COUNT_SECONDS",),
    "tui.overview.reads": ("CHANGED_READ_SECONDS",),
    "tui.operations.screen": ("JOURNAL_READ_SECONDS",),
    "tui.queue.search_screen": ("MIN_PAUSE_SECONDS",),
    "tui.plan.plan_facts": ("DRIFT_CHECK_SECONDS",),
    "tui.operations.running_parts": ("REPAINT_SECONDS",),
}
"""Seconds between two looks at what changes by itself."""
FASTER = 5


@contextmanager
def hurried() -> Iterator[None]:
    """Let the console look and paint more often than once a second: nothing here waits for that."""
    set_interval = MessagePump.set_interval

    def set_shorter(pump: MessagePump, interval: float, *rest: Any, **names: Any) -> Timer:
        return set_interval(pump, interval / FASTER, *rest, **names)

    with pytest.MonkeyPatch.context() as patch:
        for module, constants in PERIODS.items():
            for name in constants:
                patch.setattr(f"{module}.{name}", getattr(import_module(module), name) / FASTER)
        patch.setattr(
            "tui.terminal.bandwidth.PERIODS_SECONDS",
            tuple(pace / FASTER for pace in bandwidth.PERIODS_SECONDS),
        )
        patch.setattr(MessagePump, "set_interval", set_shorter)
        patch.setattr("tui.overview.parts.SEEN_SECONDS", 0.0)  # each key comes after a look
        yield


@asynccontextmanager
async def an_operator(
    *places: Place, size: tuple[int, int] = (80, 24), early: bool = False, **fields: Any
) -> AsyncIterator[ConsoleOperator]:
    """A console on some places, armed unless told otherwise, once they were looked at.

    With `early` it is at once: some messages are on screen for a moment only."""
    fields = {"start_armed": not fields.get("read_only"), **fields}
    with hurried():
        console = a_console(*places, **fields)
        async with console.run_test(size=size) as pilot:
            if not early and fields.get("first", keys.LIST) == keys.LIST:
                await loaded(pilot)
            elif not early:
                await until(pilot, lambda: all(map(is_known, console.sessions)))
            yield ConsoleOperator(console, pilot)


def clock_of(operator: ConsoleOperator) -> Clock:
    """The clock of its console, which a test sets."""
    clock = operator.console.context.clock
    assert isinstance(clock, Clock)
    return clock
