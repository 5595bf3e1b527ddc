"""A text input of one line."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input

from engine.text.safe import safe_line


class Words(Input):
    """An input that removes control characters, also from pasted text."""

    # Its place does not depend on its text: Textual would lay out the whole screen at each letter.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    def insert(self, text: str, index: int) -> None:
        """Insert text, escaped."""
        super().insert(safe_line(text), index)

    def replace(self, text: str, start: int, end: int) -> None:
        """Replace text, escaped."""
        super().replace(safe_line(text), start, end)
