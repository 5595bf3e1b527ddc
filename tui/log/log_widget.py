"""Widget of log lines: paints a page of a merged log of any length. The terminal scrolls the lines
(DECSTBM), so that only new ones are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.strip import Strip
from textual.widget import Widget

from tui.log.page import LogPage
from tui.terminal.safe_app import SafeApp
from tui.text.lines import Line
from tui.widgets.line_widgets import Painted


def scroll_up(widget: Widget, rows: int) -> None:
    """Scroll the lines of a widget up on the terminal, before they are painted again.

    Nothing happens if the widget is not as wide as the screen, or without a terminal.
    """
    app, region = widget.app, widget.region
    is_whole = region.width == app.size.width and widget.screen.is_active
    if is_whole and isinstance(app, SafeApp) and app.output is not None:
        top = region.y + widget.gutter.top
        app.send(app.cells.scroll_up(top, top + widget.size.height - 1, rows))


MAX_OTHER_LINES = 2
"""Lines that may change while the others scroll: those that the cursor leaves and goes to."""


class LogLines(Painted, can_focus=True):
    """The lines of a page; only changed screen lines are repainted."""

    def __init__(self, page: LogPage) -> None:
        super().__init__(id="lines", classes="pane")
        self.page = page
        self._painted: dict[int, Line] = {}

    def on_resize(self) -> None:
        self._painted.clear()
        self.page.resize(*self.size)
        self.paint()

    def paint(self) -> None:
        """Repaint the cells that changed, after the terminal has scrolled lines that only moved."""
        lines = [self.page.line(y) for y in range(self.size.height)]
        rows = scrolled_rows(self._painted, lines)
        if rows:
            scroll_up(self, rows)
        changed = {y: line for y, line in enumerate(lines) if line != self._painted.get(y)}
        self._painted |= changed
        self.repaint_lines(changed)

    def render_line(self, y: int) -> Strip:
        if y not in self._painted:
            self._painted[y] = self.page.line(y)
        return self.strip_of(self._painted[y])


def scrolled_rows(before: Mapping[int, Line], now: Sequence[Line]) -> int:
    """By how many rows nearly all lines have moved up; 0 for any other change."""
    height = len(now)
    if not height or len(before) < height or before[0] == now[0]:
        return 0
    for rows in range(1, height // 2):
        moved = sum(before[y + rows] != now[y] for y in range(height - rows))
        if moved <= MAX_OTHER_LINES:
            return rows
    return 0
