"""A pane of painted lines: it is shown lines, and paints only those that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size, Spacing
from textual.strip import Strip
from textual.widget import Widget

from tui.format.glyphs import UTF8, Glyphs
from tui.format.line_diff import changes
from tui.format.present import BLANK, Line
from tui.widgets.render_cache import Keeps


class Painted(Keeps, Widget):
    """A widget that turns lines of `present` into strips, each look by the theme."""

    @property
    def gutter(self) -> Spacing:
        """What is around the lines: scroll bars, which the library asks its styles for, never."""
        return self.styles.gutter

    def strip_of(self, line: Line) -> Strip:
        """The line as it goes to the terminal, as wide as the widget."""
        # Component classes are the library's own way to a style. With fifteen of them on each pane
        # they took a third of the time to the first frame, so the app holds the styles.
        looks: Mapping[str, Style] = getattr(self.app, "looks", {})
        glyphs: Glyphs = getattr(self.app, "glyphs", UTF8)
        segments = [Segment(text.translate(glyphs), looks.get(look)) for text, look in line if text]
        return Strip(segments).adjust_cell_length(self.size.width, looks.get(""))

    def repaint_line(self, y: int, old: Line | None = None, new: Line = BLANK) -> None:
        """Paint one line again, and no other; of one that was on screen, what differs."""
        width = self.size.width
        spans = [(0, width)] if old is None else changes(old, new, width)
        if spans:
            self.refresh(*(Region(x, y, cells, 1) for x, cells in spans))


class Lines(Painted):
    """Lines as they were last given; as high as its style says, or as there are lines."""

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """What it shows."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines; those that did not change are not painted again."""
        before, self._lines = self._lines, tuple(lines)
        if len(before) != len(self._lines) and self.styles.is_auto_height:
            self.refresh(layout=True)
            return
        for y in range(max(len(before), len(self._lines))):
            old, new = _line(before, y), _line(self._lines, y)
            if old != new:
                self.repaint_line(y, old, new)

    def render_line(self, y: int) -> Strip:
        """One line of what was shown last."""
        return self.strip_of(self._lines[y] if y < len(self._lines) else BLANK)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are."""
        return len(self._lines)


class LongText(Lines, can_focus=True):
    """A long text that is moved through by whole lines; nothing in it can be acted on."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    @property
    def top(self) -> int:
        """Which line stands first."""
        return self._top

    @property
    def below(self) -> int:
        """How many lines are further down than what is on screen."""
        return max(0, len(self.lines) - self._top - self.size.height)

    def show(self, lines: Sequence[Line]) -> None:
        """Show another text, as far down as the one before."""
        before, top, self._lines = self._lines, self._top, tuple(lines)
        self.move_to(top)
        if self._top == top:
            for y in range(self.size.height):
                old, new = _line(before, top + y), _line(self._lines, top + y)
                if old != new:
                    self.repaint_line(y, old, new)

    def render_line(self, y: int) -> Strip:
        """A line of the text, counted from the first on screen."""
        return super().render_line(self._top + y)

    def move_to(self, line: int) -> None:
        """Put that line first, as far as there are lines to fill the screen."""
        top = max(0, min(line, len(self.lines) - self.size.height))
        if top != self._top:
            self._top = top
            self.refresh()

    def move(self, action: str) -> None:
        """Move as the key table names it: down, up, half_down, page_down, first and so on."""
        page = max(1, self.size.height - 1)
        half = max(1, page // 2)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        steps |= {"half_down": half, "half_up": -half}
        whole = {"first": 0, "last": len(self.lines)}
        self.move_to(whole[action] if action in whole else self._top + steps[action])

    def on_resize(self) -> None:
        """A higher screen has room for lines from above."""
        self.move_to(self._top)


def _line(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else BLANK
