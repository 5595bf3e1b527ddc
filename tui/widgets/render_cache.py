"""What a widget was painted as, kept until it changes.

The library asks each widget on the way from the first changed line of the screen to the last for
all of its lines, and looks up the widget's colours and sizes anew even where no line has changed.
With a dozen panes that took a third of a key's time.
"""

from __future__ import annotations

from typing import Any

from textual._styles_cache import StylesCache
from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class CachedLines(StylesCache):
    """The lines of a widget with its styles, as they were made last."""

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[Region, list[Strip]] | None = None

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        """The lines of that region; made anew only after something has changed."""
        if self._made is None or self._made[0] != crop:
            self._made = crop, super().render_widget(widget, crop)
        return self._made[1]

    def set_dirty(self, *regions: Region) -> None:
        """Something has changed there."""
        self._made = None
        super().set_dirty(*regions)

    def clear(self) -> None:
        """Everything has changed."""
        self._made = None
        super().clear()


class Keeps:
    """What a widget has to be besides, so that only what has changed is made anew."""

    _styles_cache: StylesCache

    def __init__(self, *children: Any, **options: Any) -> None:
        super().__init__(*children, **options)
        self._styles_cache = CachedLines()


class Across(Keeps, Horizontal):
    """Panes side by side."""


class Down(Keeps, Vertical):
    """Panes below each other."""
