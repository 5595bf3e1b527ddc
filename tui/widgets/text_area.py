"""A text input of several lines."""

from __future__ import annotations

from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult

from engine.text.safe import safe_line


class LongWords(TextArea):
    """An input of several lines that removes control characters, also from pasted text."""

    def __init__(self, text: str, id: str) -> None:
        super().__init__(text, id=id, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False

    def edit(self, edit: Edit) -> EditResult:
        """Insert text, escaped."""
        edit.text = "\n".join(safe_line(line) for line in edit.text.splitlines() or [""])
        return super().edit(edit)
