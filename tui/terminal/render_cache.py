"""Cache the rendered lines of a widget until it changes, and the style sheet until the theme does.

From the first to the last changed line of the screen, Textual asks each widget for all its lines,
and looks up colours and sizes even if no line has changed. That took a third of a key's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.color import Color
from textual.containers import Container, Horizontal, Vertical
from textual.css.styles import StylesBase
from textual.css.stylesheet import Stylesheet
from textual.geometry import Region, Size, Spacing
from textual.strip import Strip
from textual.widget import Widget

FRAME_LOOKS = (("-warn", "warn"), ("-focused", "accent"), ("pane", "line"))
"""The styles of a frame, by the class of its widget."""

FRAME_SIGNS = "─│╭╮╰╯+-|"

# As a method, Textual's cache of 1,024 colour pairs has the widget's lines in its keys, and keeps
# those of closed screens: 30 MiB. Its parameter is named `cls`.
_pair: Any = StylesCache.get_inner_outer
StylesCache.get_inner_outer = classmethod(_pair)  # type: ignore[assignment, method-assign]


class CachedLines(StylesCache):
    """Cache of a widget's styled lines, with frames that are faint or bold as the theme has them. A
    border of Textual has only a colour. What is left and right of the content, frame and padding,
    is looked up once for all of them: for each line, that took longer than its content."""

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[Region, list[Strip]] | None = None
        self._frame = Style.null()
        self._blank: Style | None = None
        self._sides: tuple[list[Segment], list[Segment]] | None = None

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        """The lines of that region; rendered again only after a change."""
        if self._made is None or self._made[0] != crop:
            style_name = next(
                (style_name for name, style_name in FRAME_LOOKS if widget.has_class(name)), "accent"
            )
            styles = getattr(widget.app, "looks", {})
            style, self._blank = styles.get(style_name, Style.null()), styles.get("")
            self._frame = Style(bold=style.bold or None, dim=style.dim or None)
            self._made = crop, super().render_widget(widget, crop)
        return self._made[1]

    def render_line(
        self,
        styles: StylesBase,
        y: int,
        size: Size,
        content: Size,
        padding: Spacing,
        base: Color,
        ground: Color,
        line_of: Callable[[int], Strip],
        *labels_and_colors: Any,
    ) -> Strip:
        line_inputs = styles, y, size, content, padding, base, ground
        at = y - styles.gutter.top
        if not (0 <= at < content.height and content.width):
            strip = super().render_line(*line_inputs, line_of, *labels_and_colors)
            return self._with_frame(strip, styles, is_edge=y in (0, size.height - 1))
        if self._sides is None:
            middle = Segment(" " * content.width)
            blank_line = super().render_line(
                *line_inputs, lambda _: Strip([middle]), *labels_and_colors
            )
            parts = [*self._with_frame(blank_line, styles)]
            place = next(n for n, part in enumerate(parts) if part is middle)
            self._sides = parts[:place], parts[place + 1 :]
        left_side, right_side = self._sides
        line = line_of(at).adjust_cell_length(content.width, self._blank)
        return (
            Strip([*left_side, *line, *right_side], size.width) if left_side or right_side else line
        )

    def _with_frame(self, strip: Strip, styles: StylesBase, *, is_edge: bool = False) -> Strip:
        """The line with the signs of its frame faint or bold."""
        if not (self._frame and styles.border_top[0] and (is_edge or styles.border_left[0])):
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
        self._made = self._sides = None
        super().clear()


class CachedRender:
    """Mixin for a widget: use `CachedLines` as its styles cache."""

    _styles_cache: StylesCache

    def __init__(self, *children: Any, **options: Any) -> None:
        super().__init__(*children, **options)
        self._styles_cache = CachedLines()

    def on_unmount(self) -> None:
        """Release the lines: the widget, part of cycles, stays until the garbage collector runs."""
        self._styles_cache.clear()

    def repaint_regions(self, regions: Iterable[Region]) -> None:
        """Paint regions with the next frame; `refresh` would pass three messages through queues."""
        assert isinstance(self, Widget)
        dirty = [*regions]
        if dirty and self._is_mounted and self.display:
            self._set_dirty(*dirty)
            self.screen._dirty_widgets.add(self)
            self.screen.check_idle()
        elif dirty:
            self.refresh(*dirty)

    def refresh_height(self) -> None:
        """Lay out the screen again for another number of lines. A layout between an earlier
        `refresh(layout=True)` and its handling would leave its height in Textual's cache, which
        `refresh` does not clear then."""
        assert isinstance(self, Widget)
        self._box_model_cache.clear()
        self.refresh(layout=True)


class Box(CachedRender, Container):
    """Panes in the layout that its style names."""

    def refresh_places(self) -> None:
        """Lay out its panes again. Textual forgets where panes were only in the widgets around the
        one that is laid out."""
        self._clear_arrangement_cache()
        self.refresh(layout=True)


class Across(CachedRender, Horizontal):
    """Panes side by side."""


class Down(CachedRender, Vertical):
    """Panes below each other."""


class CachedStylesheet(Stylesheet):
    """Textual's style sheet, but unchanged variables cause no new parse. Textual parses for the
    first screen, drops the result, and parses everything again for the first widget: together 1/6
    of the time from Python's start to the first rows."""

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set the variables."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse the sources with the current variables; on an error keep the old rules."""
        self.parse()
