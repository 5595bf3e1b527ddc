"""A question that a line of text answers, on the last lines of the screen below it."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.format import keys, present
from tui.widgets.lines import Lines
from tui.widgets.text_input import Words


class AskScreen(ModalScreen[str]):
    """Answers with what was typed, or with "" when it was closed."""

    BINDINGS = keys.bindings(keys.MENU)

    def __init__(self, title: str, value: str, wrong: Callable[[str], str]) -> None:
        """`wrong` says what is wrong with an answer, "" when nothing is."""
        super().__init__()
        self._title, self._value, self._wrong = title, value, wrong

    def compose(self) -> ComposeResult:
        """The question, the line, and what is wrong with it."""
        with Vertical(id="ask"):
            yield Lines(id="ask-title")
            with Horizontal(id="ask-line"):
                yield Words(self._value, compact=True, select_on_focus=False)
            yield Lines(id="ask-word")

    def on_mount(self) -> None:
        """Nothing blinks."""
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """Question and hints for this width."""
        width = self.size.width
        self.query_one("#ask-title", Lines).show([present.heading(self._title, width)])
        self._say(self._wrong(self.query_one(Input).value))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what is wrong while it is typed."""
        event.stop()
        self._say(self._wrong(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter answers, when nothing is wrong."""
        event.stop()
        if not self._wrong(event.value):
            self.dismiss(event.value)

    def _say(self, wrong: str) -> None:
        text = (f" {wrong}", "warning") if wrong else (" Enter answers  Esc closes", "dim")
        self.query_one("#ask-word", Lines).show([present.cut((text,), self.size.width)])

    def action_back(self) -> None:
        """No answer."""
        self.dismiss("")
