"""The input line for a filter (`tui.queue.filter_text`), applied while typing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widgets import Input

from engine.index.filter_language import complete_filter
from engine.override import override
from tui.queue.filter_text import FilterText
from tui.text.lines import BLANK_LINE, Line, width_of
from tui.widgets.line_widgets import Lines
from tui.widgets.text_input import Words


class RightAligned(Lines):
    """Lines at the right edge, padded when painted: a change of width moves them."""

    def render_line(self, y: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else BLANK_LINE
        return self.strip_of(((" " * max(0, self.size.width - width_of(line)), ""), *line))


class FilterSuggester(Suggester):
    """Shows behind the cursor how the word can go on; Right takes it."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    @override
    async def get_suggestion(self, value: str) -> str | None:
        return complete_filter(value) or None


class FilterLine(Horizontal):
    """Hidden without a filter; shows the number of matches or the error."""

    class Changed(Message):
        """The filter, or what is wrong with it, has changed."""

        def __init__(self, *, is_filter: bool) -> None:
            """`is_filter`: another filter is in effect, not only another error."""
            super().__init__()
            self.is_filter = is_filter

    class Kept(Message):
        """The operator pressed Enter."""

    def __init__(self, text: FilterText, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = text

    def compose(self) -> ComposeResult:
        yield Lines(id="filter-label")
        suggester = FilterSuggester()
        yield Words(id="words", compact=True, select_on_focus=False, suggester=suggester)
        yield RightAligned(id="filter-count")

    def on_mount(self) -> None:
        """Turn off the blinking cursor, which would send bytes all the time."""
        self.query_one(Input).cursor_blink = False
        self.query_one("#filter-label", Lines).show([((" / ", "key"), ("filter ", "muted"))])

    def take_keys(self) -> None:
        """Let what is typed go into the line."""
        self.screen.set_focus(self.query_one(Input))

    def show(self, count: Line) -> None:
        """Show the text, if the line is open, and the count or the error behind it."""
        words = self.query_one(Input)
        if self._text.is_replaced:
            self._text.is_replaced = False
            with self.prevent(Input.Changed):
                words.value = self._text.words
        self.set_class(self._text.is_open, "-on")
        # Set now, without waiting for the next style update: text typed right after `/` on a slow
        # line must not be taken for keys of the list.
        self.display = self._text.is_open
        self.set_class(count[0][1] == "warn", "-talks")
        self.query_one("#filter-count", Lines).show([count])

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        before = self._text.filter
        if self._text.take(event.value):
            self.post_message(
                self.Changed(is_filter=not self._text.error or self._text.filter != before)
            )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Kept())
