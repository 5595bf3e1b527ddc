"""Text inputs of one line and of several."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input, TextArea
from textual.widgets.text_area import Edit, EditResult

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


class LongWords(TextArea):
    """An input of several lines that removes control characters, also from pasted text."""

    def __init__(self, text: str, id: str) -> None:
        super().__init__(text, id=id, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False

    def edit(self, edit: Edit) -> EditResult:
        """Insert text, escaped."""
        edit.text = "\n".join(safe_line(line) for line in edit.text.splitlines() or [""])
        return super().edit(edit)
