"""The lines around the panes of a screen: above them the top line, below them message and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tui.screens.console_context import ConsoleContext
from tui.screens.message import Message
from tui.screens.top_line import TopLine
from tui.text.hints import hint_lines
from tui.text.keys import Hint
from tui.text.lines import Line, cut_line
from tui.widgets.line_widgets import Lines


class EdgeLines:
    """Their widgets, for a screen to compose."""

    def __init__(self) -> None:
        self.top = TopLine(id="top-line")
        self.message, self.hints = Lines(id="word"), Lines(id="hints")

    def show(
        self, context: ConsoleContext, trail: tuple[str, ...], hints: Iterable[Hint], lines: int = 1
    ) -> None:
        """Show the path to the screen, outermost first, and its hints in at most so many lines."""
        self.top.update_line(context, trail)
        self.hints.show(hint_lines(tuple(hints), self.hints.size.width, lines))

    def show_message(self, message: Message, otherwise: Callable[[], Line]) -> None:
        """Show the message while it lasts."""
        message.ends()
        self.message.show([cut_line(message.line or otherwise(), self.message.size.width)])
