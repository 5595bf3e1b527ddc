"""What a key is bound to where painted lines have the focus: the library's rules hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import ComposeResult
from textual.binding import Binding
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from tui.guarded import Guarded
from tui.widgets.lines import LongText


class Bound(LongText):
    """Lines with keys of their own."""

    BINDINGS = [Binding("a", "app.note('lines a')"), Binding("ctrl+c", "app.note('lines ctrl+c')")]


class Pane(Screen[None]):
    """A screen with lines, and with an input."""

    BINDINGS = [Binding("a", "app.note('screen a')"), Binding("b", "app.note('screen b')")]

    def compose(self) -> ComposeResult:
        """The lines have the focus."""
        yield Bound()
        yield Input()

    def on_mount(self) -> None:
        """Give it to them."""
        self.query_one(Bound).focus()


class Question(ModalScreen[None]):
    """A question, made of lines, above the screen."""

    BINDINGS = [Binding("a", "app.note('question a')")]

    def compose(self) -> ComposeResult:
        """Nothing but lines."""
        yield LongText()

    def on_mount(self) -> None:
        """Give the focus to them."""
        self.query_one(LongText).focus()


class Noting(Guarded):
    """An app that writes down what was done."""

    BINDINGS = [
        Binding("b", "note('app b')"),
        Binding("c", "note('app c')"),
        Binding("ctrl+c", "note('app ctrl+c')", priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def on_mount(self) -> None:
        """Begin with the screen."""
        super().on_mount()
        self.push_screen(Pane())

    def action_note(self, what: str) -> None:
        """Write it down."""
        self.done.append(what)


@asynccontextmanager
async def noting() -> AsyncIterator[tuple[Noting, Pilot[None]]]:
    """The app, with its lines on screen."""
    app = Noting()
    async with app.run_test() as pilot:
        await pilot.pause()
        yield app, pilot


async def test_the_nearest_has_it() -> None:
    """A key is for the nearest that binds it; what comes first in any case does so here, too."""
    async with noting() as (app, pilot):
        await pilot.press("a", "b", "c", "ctrl+c", "d")

        assert app.done == ["lines a", "screen b", "app c", "app ctrl+c"]


async def test_a_question_keeps_keys_from_what_is_below() -> None:
    """Above a question no key acts but its own, save for what comes first in any case."""
    async with noting() as (app, pilot):
        await app.push_screen(Question())
        await pilot.press("a", "b", "c", "ctrl+c")

        assert app.done == ["question a", "app ctrl+c"]


async def test_letters_go_into_an_input() -> None:
    """Where letters are typed they are no keys, whatever is bound to them below."""
    async with noting() as (app, pilot):
        line = app.screen.query_one(Input)
        line.focus()
        await pilot.press("a", "b")

        assert (line.value, app.done) == ("ab", [])
