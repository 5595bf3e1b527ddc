"""Input line for a filter (`engine.index.filter_language`), applied while typing.

If the last clause is incomplete, the clauses before it apply and the line shows what was expected.
An error further left leaves the previous filter in place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from engine.index.filter_language import NO_FILTER, BadFilter, Filter
from engine.text.safe import safe_line
from tui.text.lines import BLANK_LINE, Line, width_of
from tui.widgets.line_widgets import Lines
from tui.widgets.text_input import Words


class RightAligned(Lines):
    """Lines at the right edge, padded when painted: a change of width moves them."""

    def render_line(self, y: int) -> Strip:
        """One of the shown lines, behind blanks."""
        line = self.lines[y] if y < len(self.lines) else BLANK_LINE
        return self.strip_of(((" " * max(0, self.size.width - width_of(line)), ""), *line))


class FilterLine(Horizontal):
    """Hidden without a filter; shows the number of matches or the error."""

    class Changed(Message):
        """The filter changed."""

        def __init__(self, filter: Filter) -> None:
            super().__init__()
            self.filter = filter

    class Wrong(Message):
        """The text is not a valid filter; `error` has the reason."""

    class Kept(Message):
        """The operator pressed Enter."""

    def __init__(self, parsed: Callable[[str], Filter], id: str | None = None) -> None:
        """`parsed` parses a filter with the words of the store; it raises BadFilter."""
        super().__init__(id=id)
        self._parsed = parsed
        self._filter = NO_FILTER
        self._filter_error: BadFilter | None = None

    def compose(self) -> ComposeResult:
        """Label, input, and number of matches."""
        yield Lines(id="filter-label")
        yield Words(id="words", compact=True, select_on_focus=False)
        yield RightAligned(id="filter-count")

    def on_mount(self) -> None:
        """Turn off the blinking cursor, which would send bytes all the time."""
        self.query_one(Input).cursor_blink = False
        self.query_one("#filter-label", Lines).show([((" / ", "key"), ("filter ", "muted"))])

    @property
    def words(self) -> str:
        """The typed text."""
        return self.query_one(Input).value

    @property
    def filter(self) -> Filter:
        """The filter in effect: the complete clauses of the text."""
        return self._filter

    @property
    def error(self) -> str:
        """The error in the text; "" if it is valid. It may quote the text.

        With an error, more tasks may be listed than intended.
        """
        return self._filter_error.message if self._filter_error is not None else ""

    @property
    def is_visible(self) -> bool:
        """True if the line is visible."""
        return self.has_class("-on")

    def open(self) -> None:
        """Show the line and focus the input."""
        self.add_class("-on")
        # Set now, without waiting for the next style update: text typed right after `/` on a slow
        # line must not be taken for keys of the list.
        self.display = True
        self.screen.set_focus(self.query_one(Input))

    def set_text(self, words: str) -> None:
        """Set the filter text, as if typed, and show the line if it is not empty.

        Control characters, for example of a kind, are escaped: they must not be painted.
        """
        words = safe_line(words)
        with self.prevent(Input.Changed):
            self.query_one(Input).value = words
        self._parse_text(words)
        self.set_class(bool(words), "-on")
        self.display = bool(words)

    def close(self) -> None:
        """Clear the text and hide the line."""
        self.query_one(Input).value = ""
        self.remove_class("-on")
        self.display = False

    def show_count(
        self, matching: str, of: int, why: str = "", marked: int = 0, fresh: int = 0
    ) -> None:
        """Show the number of matches, marks and new rows, or why there is no match; a parse error
        has priority.
        """
        line: Line = ((matching, "strong"), (f" of {of:,}", "muted"))
        line += ((f"  marked {marked:,}", "mark"),) if marked else ()
        line += ((f"  {fresh:,} new", "ok"),) if fresh else ()
        if why:
            line = ((f"{matching} of {of:,} ({safe_line(why)})", "warn"),)
        if self._filter_error is not None:
            line = ((safe_line(self._filter_error.message), "warn"),)
        line = (*line, (" ", ""))
        self.set_class(line[0][1] == "warn", "-talks")
        self.query_one("#filter-count", Lines).show([line])

    def _parse_text(self, words: str) -> bool:
        """Parse the text; True if filter or error changed."""
        before = self._filter, self._filter_error
        try:
            self._filter, self._filter_error = self._parsed(words.rstrip()), None
        except BadFilter as error:
            self._filter_error = error
            self._apply_complete_clauses(words, error.at)
        return (self._filter, self._filter_error) != before

    def _apply_complete_clauses(self, words: str, at: int) -> None:
        """Apply the clauses before an incomplete last one, such as `tries>`."""
        clause_text = words[at:]
        if clause_text.startswith('"') or not clause_text.strip() or len(clause_text.split()) == 1:
            with suppress(BadFilter):
                self._filter = self._parsed(words[: words.rfind(" ", 0, at) + 1].rstrip())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        before = self._filter
        if not self._parse_text(event.value):
            return
        if self._filter_error is None or self._filter != before:
            self.post_message(self.Changed(self._filter))
        if self._filter_error is not None:
            self.show_count("?", 0)
            self.post_message(self.Wrong())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the filter."""
        event.stop()
        self.post_message(self.Kept())
