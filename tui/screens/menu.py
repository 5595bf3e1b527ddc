"""A question that one letter answers, on the last lines of the screen below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from engine.text.safe import shown
from tui.format import keys, present
from tui.format.keys import Hint
from tui.widgets.lines import Lines


class Option(NamedTuple):
    """One of the answers."""

    key: str
    """The letter, as the terminal library names it."""
    words: str
    grey: bool = False
    """Whether it is not to be had now."""


class MenuScreen(ModalScreen[str]):
    """Answers with the letter that was pressed, or with "" when it was closed."""

    BINDINGS = keys.bindings(keys.MENU)

    def __init__(self, title: str, options: Sequence[Option]) -> None:
        super().__init__()
        self._title, self._options = title, tuple(options)

    def compose(self) -> ComposeResult:
        """The question and its answers."""
        yield Lines(id="menu")

    def on_resize(self) -> None:
        """As many lines as the answers take."""
        width = self.size.width
        hints = [Hint(o.key, shown(o.words), o.grey) for o in self._options]
        rows = present.hint_lines([*hints, *keys.hints(keys.MENU)], width, 9)
        used = [row for row in rows if "".join(text for text, _ in row).strip()]
        rule = present.heading(self._title, width)
        self.query_one(Lines).show([rule, *used])

    def on_key(self, event: events.Key) -> None:
        """One of the letters."""
        pressed = event.character if event.character and event.is_printable else event.key
        for option in self._options:
            if option.key == pressed and not option.grey:
                event.stop()
                self.dismiss(option.key)

    def action_back(self) -> None:
        """None of them."""
        self.dismiss("")
