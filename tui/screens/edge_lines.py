"""The lines around the panes of a screen: above them the top line, below them message and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tui.screens.message import Message
from tui.screens.top_line import TopLine
from tui.text.hints import hint_lines, with_message
from tui.text.keys import Hint
from tui.text.lines import Line, cut_line
from tui.widgets.line_widgets import Lines


class EdgeLines:
    """Their widgets, for a screen to compose. Widths are those of the screen: the widgets have none
    before it is laid out.
    """

    def __init__(self) -> None:
        self.top = TopLine(id="top-line")
        self.message, self.hints = Lines(id="word"), Lines(id="hints")

    def show_hints(self, hints: Iterable[Hint], width: int, lines: int = 1) -> None:
        """Show the keys in at most so many lines."""
        self.hints.show(hint_lines(tuple(hints), width, lines))

    def show_message(self, message: Message, otherwise: Callable[[], Line], width: int) -> None:
        """Show the message while it lasts, beside what a key acts on if it fits."""
        message.ends()
        line = otherwise()
        if message.line:
            line = with_message(message.line, line, width)
        self.message.show([cut_line(line, width)])
