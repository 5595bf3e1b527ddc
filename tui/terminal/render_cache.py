"""Cache the rendered lines of a widget until it changes.

From the first to the last changed line of the screen, Textual asks each widget for all its lines,
and looks up colours and sizes even if no line has changed. With a dozen panes that took a third of
the time that a key takes.
"""

from __future__ import annotations

from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.css.styles import StylesBase
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

FRAME_LOOKS = (("-warn", "warn"), ("-focused", "accent"), ("pane", "line"))
"""The styles of a frame, by the class of its widget."""

FRAME_SIGNS = "─│╭╮╰╯+-|"
"""The signs that a frame is made of."""


class CachedLines(StylesCache):
    """Cache of a widget's styled lines, with frames that are faint or bold as the theme has them.

    A border of Textual has only a colour.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[Region, list[Strip]] | None = None
        self._frame = Style.null()

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        """The lines of that region; rendered again only after a change."""
        if self._made is None or self._made[0] != crop:
            look = next((look for name, look in FRAME_LOOKS if widget.has_class(name)), "accent")
            style = getattr(widget.app, "looks", {}).get(look, Style.null())
            self._frame = Style(bold=style.bold or None, dim=style.dim or None)
            self._made = crop, super().render_widget(widget, crop)
        return self._made[1]

    def render_line(self, styles: StylesBase, y: int, size: Size, *args: Any, **more: Any) -> Strip:
        """A line with its frame."""
        strip = super().render_line(styles, y, size, *args, **more)
        if not self._frame or not styles.border_top[0]:
            return strip
        is_edge = y == 0 or (bool(styles.border_bottom[0]) and y == size.height - 1)
        if not is_edge and not styles.border_left[0]:
            return strip
        segments = list(strip)
        for at in range(len(segments)) if is_edge else (0, -1):
            text, style, _ = segments[at]
            if not text.strip(FRAME_SIGNS):
                segments[at] = Segment(text, (style or Style.null()) + self._frame)
        return Strip(segments, strip.cell_length)

    def set_dirty(self, *regions: Region) -> None:
        """Drop the cache: a region has changed."""
        self._made = None
        super().set_dirty(*regions)

    def clear(self) -> None:
        """Drop the cache: everything has changed."""
        self._made = None
        super().clear()


class CachedRender:
    """Mixin for a widget: use `CachedLines` as its styles cache."""

    _styles_cache: StylesCache

    def __init__(self, *children: Any, **options: Any) -> None:
        super().__init__(*children, **options)
        self._styles_cache = CachedLines()

    def refresh_height(self) -> None:
        """Lay out the screen again for another number of lines.

        A layout between an earlier `refresh(layout=True)` and its handling would leave its height
        in Textual's cache, which `refresh` does not clear then.
        """
        assert isinstance(self, Widget)
        self._box_model_cache.clear()
        self.refresh(layout=True)


class Box(CachedRender, Container):
    """Panes in the layout that its style names."""


class Across(CachedRender, Horizontal):
    """Panes side by side."""


class Down(CachedRender, Vertical):
    """Panes below each other."""


def write_border(widget: Widget, title: Content, subtitle: Content) -> None:
    """Set the words in a widget's border and repaint only the lines that changed.

    Textual would repaint the whole widget: 2 kB when the cursor of a list moves.
    """
    gutter, (width, height) = widget.gutter, widget.outer_size
    changed = []
    if _parts(title) != _parts(widget._border_title):
        widget._border_title = title
        changed.append(Region(-gutter.left, -gutter.top, width, 1))
    if _parts(subtitle) != _parts(widget._border_subtitle):
        widget._border_subtitle = subtitle
        changed.append(Region(-gutter.left, height - gutter.top - 1, width, 1))
    if changed and width:
        widget.refresh(*changed)


def _parts(text: Content | None) -> tuple[object, ...]:
    """Text and styles: two contents are equal for Textual if their texts are."""
    return () if text is None else (text.plain, *text.spans)
