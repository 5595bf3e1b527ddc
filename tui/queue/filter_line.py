"""The line in which the operator types a filter (`engine.index.filter_language`).

What is typed is applied while it is typed. Half a clause is no filter yet: then the line says where
and what was expected, and what stands before it counts; what is wrong in the midst changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from engine.index.filter_language import NOTHING, BadFilter, Filter
from tui.format.present import Line
from tui.widgets.lines import Lines
from tui.widgets.text_input import Words


class FilterLine(Horizontal):
    """Hidden while nothing is filtered; says how many tasks are left, or what is wrong."""

    class Changed(Message):
        """Another filter is there."""

        def __init__(self, filter: Filter) -> None:
            super().__init__()
            self.filter = filter

    class Wrong(Message):
        """What is typed is no filter; `error` says why."""

    class Kept(Message):
        """The operator is done typing."""

    def __init__(self, parsed: Callable[[str], Filter], id: str | None = None) -> None:
        """`parsed` reads a filter with the words of the store; it raises BadFilter."""
        super().__init__(id=id)
        self._parsed = parsed
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
        """What is filtered for: what is typed, as far as that is whole."""
        return self._filter

    @property
    def error(self) -> str:
        """What is wrong with what is typed; then more may be shown than was meant. "" if nothing.

        It may quote what was typed.
        """
        return self._bad.message if self._bad is not None else ""

    @property
    def is_on(self) -> bool:
        """Whether it is on screen."""
        return self.has_class("-on")

    def open(self) -> None:
        """Show the line and type into it."""
        self.add_class("-on")
        # Now, and not when the styles are next looked at: what is typed behind `/` in one burst
        # over a slow line must not be taken for keys of the list.
        self.display = True
        self.screen.set_focus(self.query_one(Input))

    def put(self, words: str) -> None:
        """Filter for these, as if they had been typed; nothing hides the line."""
        with self.prevent(Input.Changed):
            self.query_one(Input).value = words
        self._read(words)
        self.set_class(bool(words), "-on")
        self.display = bool(words)

    def close(self) -> None:
        """Forget the words and hide the line."""
        self.query_one(Input).value = ""
        self.remove_class("-on")
        self.display = False

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
            self._filter, self._bad = self._parsed(words.rstrip()), None
        except BadFilter as error:
            self._bad = error
            self._leave_out(words, error.at)
        return (self._filter, self._bad) != before

    def _leave_out(self, words: str, at: int) -> None:
        """What is being typed at the end counts only when it is whole: `tries>` is no word."""
        rest = words[at:]
        if rest.startswith('"') or not rest.strip() or len(rest.split()) == 1:
            with suppress(BadFilter):
                self._filter = self._parsed(words[: words.rfind(" ", 0, at) + 1].rstrip())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        before = self._filter
        if not self._read(event.value):
            return
        if self._bad is None or self._filter != before:
            self.post_message(self.Changed(self._filter))
        if self._bad is not None:
            self.show_count(0, 0)
            self.post_message(self.Wrong())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the words."""
        event.stop()
        self.post_message(self.Kept())
