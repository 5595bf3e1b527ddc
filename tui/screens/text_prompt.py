"""A question that is answered by one line of text, on the last lines of the screen below."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from tui.screens.base import key_bindings
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.lines import cut_line, heading_line
from tui.widgets.line_widgets import Lines
from tui.widgets.text_input import Words


class AskScreen(SizedModalScreen[str]):
    """Returns the typed text, or "" if closed."""

    BINDINGS = key_bindings(keys.MENU)

    def __init__(self, title: str, value: str, wrong: Callable[[str], str]) -> None:
        """`wrong` returns what is wrong with an answer, "" if nothing."""
        super().__init__()
        self._title, self._value, self._check = title, value, wrong

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Lines(id="ask-title")
            with Horizontal(id="ask-line"):
                yield Words(self._value, compact=True, select_on_focus=False)
            yield Lines(id="ask-word")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        width = self.size.width
        self.query_one("#ask-title", Lines).show([heading_line(self._title, width)])
        self._show_error(self._check(self.query_one(Input).value))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show_error(self._check(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._check(event.value):
            self.dismiss(event.value)

    def _show_error(self, wrong: str) -> None:
        text = (f" {wrong}", "warn") if wrong else (" Enter OK  Esc cancel", "muted")
        self.query_one("#ask-word", Lines).show([cut_line((text,), self.size.width)])

    def action_back(self) -> None:
        self.dismiss("")
