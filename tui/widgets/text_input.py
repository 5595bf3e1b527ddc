"""A line that the operator types into."""

from __future__ import annotations

from textual.widgets import Input

from engine.text.safe import shown


class Words(Input):
    """An input that takes only what can be shown, however it was pasted."""

    def insert(self, text: str, index: int) -> None:
        """Put text in, made inert."""
        super().insert(shown(text), index)

    def replace(self, text: str, start: int, end: int) -> None:
        """Put text in the place of other text, made inert."""
        super().replace(shown(text), start, end)
