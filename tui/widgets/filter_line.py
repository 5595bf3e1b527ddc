"""The line in which the operator types what to show: plain words, applied while they are typed."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from tui.present import Line
from tui.widgets.lines import Lines
from tui.widgets.words import Words


class FilterLine(Horizontal):
    """Hidden while nothing is filtered; says how many tasks are left."""

    class Changed(Message):
        """Other words are there."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Kept(Message):
        """The operator is done typing."""

    def compose(self) -> ComposeResult:
        """A label, the words, and what they leave."""
        yield Lines(id="filter-label")
        yield Words(id="words", compact=True, select_on_focus=False)
        yield Lines(id="filter-count")

    def on_mount(self) -> None:
        """Nothing blinks: a cursor that does costs bytes all the time."""
        self.query_one(Input).cursor_blink = False
        self.query_one("#filter-label", Lines).show([((" filter: ", "title"),)])

    @property
    def words(self) -> str:
        """What is filtered for."""
        return self.query_one(Input).value

    @property
    def is_on(self) -> bool:
        """Whether it is on screen."""
        return self.has_class("-on")

    def open(self) -> None:
        """Show the line and type into it."""
        self.add_class("-on")
        self.query_one(Input).focus()

    def put(self, words: str) -> None:
        """Filter for these, as if they had been typed; nothing hides the line."""
        with self.prevent(Input.Changed):
            self.query_one(Input).value = words
        self.set_class(bool(words), "-on")

    def close(self) -> None:
        """Forget the words and hide the line."""
        self.query_one(Input).value = ""
        self.remove_class("-on")

    def show_count(self, line: Line) -> None:
        """Say how many tasks the words leave."""
        self.query_one("#filter-count", Lines).show([line])

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the words."""
        event.stop()
        self.post_message(self.Kept())
