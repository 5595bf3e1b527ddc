"""What every screen but the list is: a title, a long text to move through, a word, and hints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from engine.text import shown
from tui import keys, present
from tui.present import Line
from tui.widgets.lines import Lines, LongText


class Page(Screen[None]):
    """A full screen of text; nothing in the text can be acted on."""

    KIND = ""
    """Which keys of the table it has."""

    class HelpWanted(Message):
        """The operator asks what can be pressed here; the console opens it."""

        def __init__(self, about: str) -> None:
            super().__init__()
            self.about = about

    def compose(self) -> ComposeResult:
        """Title, text, a line that speaks, hints."""
        yield Lines(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def on_mount(self) -> None:
        """Keys go to the text."""
        self.query_one(LongText).focus()

    def on_resize(self) -> None:
        """Lay everything out for the width there is."""
        self.lay_out(self.size.width)

    def lay_out(self, width: int) -> None:
        """Put what the page shows into its lines."""
        raise NotImplementedError

    def show(self, title: Line, text: Sequence[Line], word: Line) -> None:
        """Show these."""
        width = self.size.width
        self.query_one("#title", Lines).show([present.cut(title, width)])
        self.query_one("#text", LongText).show(text)
        self.query_one("#word", Lines).show([present.cut(word, width)])

    def show_hints(
        self,
        grey: Collection[str] = (),
        without: Collection[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Show which keys there are."""
        hints = keys.hints(self.KIND, grey, without, words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width, 1))

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator."""
        self.query_one("#word", Lines).show(
            [present.cut(((f" {shown(text)}", look),), self.size.width)]
        )

    def action_move(self, how: str) -> None:
        """Move through the text."""
        self.query_one(LongText).move(how)

    def action_back(self) -> None:
        """Close the page."""
        self.dismiss()

    def action_help(self) -> None:
        """Ask for the help on this page."""
        self.post_message(self.HelpWanted(self.KIND))
