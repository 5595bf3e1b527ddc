"""Base classes of screens with a title, text or rows, a message line and hints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from textual.app import ComposeResult

from engine.text.safe import safe_line
from tui.screens.base import BaseScreen
from tui.text import keys
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.hints import hint_lines
from tui.text.lines import Line, cut_line, join_ends
from tui.widgets.line_widgets import Lines, LongText


class Page(BaseScreen):
    """A full screen of read-only text."""

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Focus the part that takes the keys. (Textual calls `on_mount` of every base class.)"""
        self.query_one(LongText).focus()

    def on_resize(self) -> None:
        self.lay_out(self.size.width)

    @property
    def text_width(self) -> int:
        """Cells for the text inside its frame."""
        is_box = self.text_frame() and frame_border(*self.size) == BOX
        return self.size.width - (BOX_FRAME_CELLS if is_box else 0)

    def text_frame(self) -> Frame | None:
        """The frame of the text; None for none."""
        return None

    def lay_out(self, width: int) -> None:
        """Fill the page for this width."""
        raise NotImplementedError

    def show(self, title: Line, text: Sequence[Line], word: Line) -> None:
        """Show a title, the text and the message line."""
        width = self.size.width
        badge = self.badge
        line = join_ends(title, badge, width) if badge else cut_line(title, width)
        self.query_one("#title", Lines).show([line])
        part = self.query_one("#text", LongText)
        if (frame := self.text_frame()) is not None:
            part.add_class("pane")
            part.show_frame(frame, focused=True)
        part.show(text)
        self.query_one("#word", Lines).show([cut_line(word, width)])

    def show_hints(
        self,
        grey: Collection[str] = (),
        without: Collection[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Show the hints."""
        hints = keys.hints_of(self.KIND, grey, without, words)
        (step,) = self.query_one("#word", Lines).lines or ((),)
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width, step=step))

    def say(self, text: str, style: str = "warn") -> None:
        word = self.query_one_optional("#word", Lines)
        if word is not None:  # it is missing while the screen is removed
            word.show([cut_line(((f" {safe_line(text)}", style),), self.size.width)])

    def action_move(self, how: str) -> None:
        self.query_one(LongText).move(how)

    def action_back(self) -> None:
        self.dismiss()
