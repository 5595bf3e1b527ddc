"""A question that is answered by one letter, on the last lines of the screen below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult

from engine.text.safe import safe_line
from tui.screens.base import key_bindings
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.hints import hint_lines
from tui.text.keys import Hint
from tui.text.lines import heading_line
from tui.widgets.line_widgets import Lines


class Option(NamedTuple):
    """One of the answers."""

    key: str
    """The letter, by its Textual name."""
    text: str
    is_disabled: bool = False
    """Not available now, so painted grey."""


class MenuScreen(SizedModalScreen[str]):
    """Returns the pressed letter, or "" if closed."""

    BINDINGS = key_bindings(keys.MENU)

    def __init__(self, title: str, options: Sequence[Option]) -> None:
        super().__init__()
        self._title, self._options = title, tuple(options)

    def compose(self) -> ComposeResult:
        yield Lines(id="menu")

    def on_resize(self) -> None:
        width = self.size.width
        hints = [Hint(o.key, safe_line(o.text), o.is_disabled) for o in self._options]
        rows = hint_lines([*hints, *keys.hints_of(keys.MENU)], width, 9)
        used = [row for row in rows if "".join(text for text, _ in row).strip()]
        rule = heading_line(self._title, width)
        self.query_one(Lines).show([rule, *used])

    def on_key(self, event: events.Key) -> None:
        pressed = event.character if event.character and event.is_printable else event.key
        for option in self._options:
            if option.key == pressed and not option.is_disabled:
                event.stop()
                self.dismiss(option.key)

    def action_back(self) -> None:
        self.dismiss("")
