"""The line in which the operator types what to show, in the language of `engine.filters`.

What is typed is applied while it is typed. Half a word of it may be no filter yet: then the line
says where and what was expected, and the last one that was whole stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from engine.filters import NOTHING, BadFilter, Filter, parse
from engine.model import State
from tui.present import Line
from tui.widgets.lines import Lines
from tui.widgets.words import Words


class FilterLine(Horizontal):
    """Hidden while nothing is filtered; says how many tasks are left, or what is wrong."""

    class Changed(Message):
        """Another filter is there."""

        def __init__(self, filter: Filter) -> None:
            super().__init__()
            self.filter = filter

    class Kept(Message):
        """The operator is done typing."""

    def __init__(
        self,
        states: Callable[[], Mapping[State, str]],
        clock: Callable[[], float],
        id: str | None = None,
    ) -> None:
        """`states` are the store's words for them, as far as they are known."""
        super().__init__(id=id)
        self._states, self._clock = states, clock
        self._filter = NOTHING
        self._bad: BadFilter | None = None

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
        """What is typed."""
        return self.query_one(Input).value

    @property
    def filter(self) -> Filter:
        """What is filtered for: what is typed, or what was when that was a filter."""
        return self._filter

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
        self._read(words)
        self.set_class(bool(words), "-on")

    def close(self) -> None:
        """Forget the words and hide the line."""
        self.query_one(Input).value = ""
        self.remove_class("-on")

    def show_count(self, matching: int, of: int, why: str = "") -> None:
        """Say how many tasks the filter leaves, and why none; an error in it comes first."""
        line: Line = ((f" {matching:,} of {of:,} match", ""),)
        if why:
            line = ((f" {matching:,} of {of:,}: {why}", "warning"),)
        if self._bad is not None:
            line = ((f" {self._bad.message}", "warning"),)
        self.set_class(line[0][1] == "warning", "-talks")
        self.query_one("#filter-count", Lines).show([line])

    def _read(self, words: str) -> bool:
        """Take what is typed; whether there is something new to say."""
        before = self._filter, self._bad
        try:
            self._filter, self._bad = parse(words.rstrip(), self._states(), self._clock()), None
        except BadFilter as error:
            self._bad = error
        return (self._filter, self._bad) != before

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        if not self._read(event.value):
            return
        if self._bad is None:
            self.post_message(self.Changed(self._filter))
        else:
            self.show_count(0, 0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the words."""
        event.stop()
        self.post_message(self.Kept())
