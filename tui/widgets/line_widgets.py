"""Widgets that show painted lines and repaint only the lines that changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.content import Content
from textual.geometry import Region, Size, Spacing
from textual.reactive import Reactive
from textual.strip import Strip

from tui.terminal.render_cache import CachedRender
from tui.terminal.sized_screen import SizedWidget
from tui.text.frames import Frame
from tui.text.glyphs import ASCII, UTF8, Glyphs
from tui.text.keys import motion_rows
from tui.text.lines import BLANK_LINE, Line, cells_of
from tui.text.styles import bracket_chips, mark_words

_OWN_COLOR = Style(color="default")
"""The terminal's own colour by name: without one, a part of a frame has that of the border."""


class Painted(CachedRender, SizedWidget):
    """Base widget that turns lines into Textual strips, with the styles of the theme."""

    # Textual would lay out the whole screen a second time for scroll bars, which do not exist.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    _frame: tuple[Line, Line, str, int, bool, int] = ((), (), "", 0, False, 0)

    @property
    def gutter(self) -> Spacing:
        """Space around the lines, without the scroll bars that Textual would ask for."""
        return self.styles.gutter

    def on_resize(self) -> None:
        """Write the frame again for the new width. (Textual calls this of every base class.)"""
        self.rewrite_frame()

    def rewrite_frame(self) -> None:
        """Write the frame again, for another width or another theme."""
        title, right, bottom, *_ = self._frame
        if title:
            self._frame = Painted._frame
            self.set_frame(title, right, bottom)

    @property
    def _has_brackets(self) -> bool:
        """True if chips are shown by brackets: without colours, or in plain ASCII."""
        loader = getattr(self.app, "theme_loader", None)
        return getattr(loader, "is_colorless", False) or getattr(self.app, "glyphs", UTF8) is ASCII

    def strip_of(self, line: Line) -> Strip:
        """The line as a strip, as wide as the widget."""
        # Textual's own way are component classes. With fifteen of them on each pane they took a
        # third of the time to the first frame, so the app holds the styles.
        app = self.app
        styles: Mapping[str, Style] = getattr(app, "looks", {})
        glyphs: Glyphs = getattr(app, "glyphs", UTF8)
        if self._has_brackets:
            line = bracket_chips(line)
        segments, cells = [], 0
        for text, style in mark_words(line, styles):
            if text:
                text = text.translate(glyphs) if glyphs else text
                segments.append(Segment(text, styles.get(style)))
                cells += cells_of(text)
        return Strip(segments, cells)

    def set_frame(self, title: Line, right: Line = (), bottom: str = "") -> None:
        """Set the words in the frame: a title, a text at its right end, and one at the bottom.
        Nothing is shown unless the style sheet gives the widget a border."""
        styles: Mapping[str, Style] = getattr(self.app, "looks", {})
        width = self.outer_size.width - 6
        is_box = bool(self.styles.border_left[0])
        frame = (title, right, bottom, width, is_box, id(styles))
        if frame == self._frame:
            return
        self._frame = frame
        gap = width - sum(cells_of(text) for text, _ in (*title, *right))
        line = ((" " + "─" * (gap - 2) + " ", "line"),) if right and gap > 3 else ()
        glyphs: Glyphs = getattr(self.app, "glyphs", UTF8)
        blank = () if is_box else ((" ", ""),)  # a box has blanks of its own
        parts = (*blank, *title, *line, *(right if line else ()), *blank)
        if self._has_brackets:
            parts = bracket_chips(parts)
        below = ((word, "line" if "─" in word else "muted") for word in re.split("(─+)", bottom))
        labels = [
            Text.assemble(
                *(
                    (word.translate(glyphs), _OWN_COLOR + styles.get(style, _OWN_COLOR))
                    for word, style in some
                )
            )
            for some in (parts, below)
        ]
        self._write_border(*map(Content.from_rich_text, labels))

    def _write_border(self, title: Content, subtitle: Content) -> None:
        """Set the words in it, and repaint the changed lines: Textual would repaint the widget."""
        gutter, (width, height) = self.gutter, self.outer_size
        changed = []
        if _parts(title) != _parts(self._border_title):
            self._border_title = title
            changed.append(Region(-gutter.left, -gutter.top, width, 1))
        if _parts(subtitle) != _parts(self._border_subtitle):
            self._border_subtitle = subtitle
            changed.append(Region(-gutter.left, height - gutter.top - 1, width, 1))
        if width:
            self.repaint_regions(changed)

    def show_frame(self, frame: Frame, focused: bool = False) -> None:
        """Show these words in the frame; the focused pane stands out."""
        if focused != self.has_class("-focused"):
            self.set_class(focused, "-focused")
            self.refresh()  # without colours Textual sees no other frame
        self.set_frame(frame.title(focused), frame.right, frame.bottom)

    def repaint_lines(self, lines: Iterable[int]) -> None:
        """Paint these lines again with the next frame."""
        width = self.size.width
        self.repaint_regions([Region(0, y, width, 1) for y in lines])


class Lines(Painted):
    """A block of lines; its height is set by its style, or is the number of lines."""

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: tuple[Line, ...] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines; unchanged ones are not repainted."""
        before, self.lines = self.lines, tuple(lines)
        if len(before) != len(self.lines) and self.styles.is_auto_height:
            self.refresh_height()
            return
        self.repaint_lines(changed_lines(before, self.lines))

    def render_line(self, y: int) -> Strip:
        return self.strip_of(self.lines[y] if y < len(self.lines) else BLANK_LINE)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines)


class LongText(Lines, can_focus=True):
    """A long text that scrolls by whole lines; nothing in it can be selected."""

    line_of_cursor = 0
    """It has no cursor: a screen reader begins at its first line."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    @property
    def top(self) -> int:
        """Index of the first visible line."""
        return self._top

    @property
    def below(self) -> int:
        """Number of lines below the visible ones."""
        return max(0, len(self.lines) - self._top - self.size.height)

    def show(self, lines: Sequence[Line]) -> None:
        """Show another text, with the same scroll position."""
        before, top, self.lines = self.lines, self._top, tuple(lines)
        self.move_to(top)
        if self._top == top:
            height = self.size.height
            visible = (lines[top : top + height] for lines in (before, self.lines))
            self.repaint_lines(changed_lines(*visible))

    def render_line(self, y: int) -> Strip:
        """A line of the text, counted from the first visible one."""
        return super().render_line(self._top + y)

    def move_to(self, line: int) -> None:
        """Scroll to that line, or as far as the text fills the screen."""
        top = max(0, min(line, len(self.lines) - self.size.height))
        if top != self._top:
            self._top = top
            self.refresh()

    def move(self, action: str) -> None:
        """Scroll by a motion of the key table: down, up, half_down, page_down, first and so on."""
        rows = motion_rows(action, max(1, self.size.height - 1))
        self.move_to({"first": 0, "last": len(self.lines)}.get(action, self._top + rows))

    def on_resize(self) -> None:
        """Show lines from above if the screen got higher."""
        self.move_to(self._top)


def changed_lines(before: Sequence[Line], after: Sequence[Line]) -> list[int]:
    """The indexes of the lines that differ; those beyond the end of a text are blank."""
    pairs = zip_longest(before, after, fillvalue=BLANK_LINE)
    return [y for y, (old, new) in enumerate(pairs) if old != new]


def _parts(text: Content | None) -> tuple[object, ...]:
    """Text and styles: two contents are equal for Textual if their texts are."""
    return () if text is None else (text.plain, *text.spans)
