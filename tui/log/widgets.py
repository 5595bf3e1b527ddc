"""The widgets of the log screen: a page of a merged log of any length, which the terminal scrolls
(DECSTBM), so that only new lines are sent; and the histogram, with errors at the foot."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import groupby

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from engine.logs.line_counts import LineRate, LineRates
from engine.logs.log_file import FileEntry
from engine.logs.merged_log import MergedLog
from tui.log.page import LogPage
from tui.log.reader import LogReader
from tui.terminal.safe_app import SafeApp
from tui.text.frames import BOX, Frame, frame_border
from tui.text.glyphs import SPARKS
from tui.text.lines import MARGIN_CELLS, Line, Run, cut_line, join_ends
from tui.widgets.line_widgets import Lines, Painted

PERIOD_SECONDS = 3600.0

MAX_PERIOD_BYTES = 64 << 20
"""Logs with more bytes in the period are not counted."""

BAR_LINES, WALL_LINES = 4, 50
"""Height of the bars, which is doubled on screens with so many lines."""


class LogHistogram(Lines):
    """The rates of the hour that ends at the last line, or that contains the cursor."""

    def __init__(self, book: MergedLog) -> None:
        super().__init__(id="histogram", classes="pane")
        self._book = book
        self._rates: LineRates | None = None
        self._begin = self._end = self._newest = 0.0
        self._title = ""

    def set_period(self, now: float, last: Sequence[FileEntry], selected: FileEntry | None) -> None:
        """Choose the period: the last hour, or the hour around the cursor if it is earlier. `last`
        may contain the last line; the period ends there if an hour without lines follows."""
        self._newest = max([self._newest, *(entry.key[0] for entry in last)])
        is_old = now - self._newest > PERIOD_SECONDS
        self._title, end = (
            ("1h", self._newest + 60) if is_old else ("last 1h", max(now, self._newest + 1))
        )
        cursor = selected.key[0] if selected is not None else end
        if 0 < cursor < end - PERIOD_SECONDS:
            is_inside = self._begin <= cursor < self._end
            self._title, end = "1h", self._end if is_inside else cursor + PERIOD_SECONDS / 2
        self._begin, self._end = end - PERIOD_SECONDS, end
        known = self._rates
        if known is None or not known.begin <= self._begin < known.begin + PERIOD_SECONDS:
            self._rates = LineRates(self._book, self._begin)

    async def count(self, reader: LogReader) -> None:
        """Count new lines, step by step; at most `MAX_PERIOD_BYTES`. Raises OSError: a log cannot
        be read; engine.store.Unavailable: the reader is closed."""
        rates = self._rates
        while rates is not None and not rates.done and rates.read < MAX_PERIOD_BYTES:
            await reader.call(rates.step)

    def paint(self, selected: FileEntry | None, screen: Size) -> None:
        """Paint the bars for a screen of that size; `selected` is the line under the cursor."""
        border = frame_border(*screen)
        is_new, is_box = not self.display, border == BOX
        # With the lines, not only once they are counted: it would push them up.
        newest = max(self._newest, 0.0 if selected is None else selected.key[0])
        self.display = border > 0 and newest > 0  # else no line has a time
        height = BAR_LINES if screen.height < WALL_LINES else 2 * BAR_LINES
        self.styles.height = height + border if is_box else 1
        width, begin, end = self.size.width, self._begin, self._end
        if is_new and self.display:
            self.call_after_refresh(self.paint, selected, screen)
        if self._rates is None or not self.display or not width:
            return
        if not is_box:
            parts = self._rates.parts(max(1, width - 32), begin, end)
            self.show([small_histogram(parts, begin, end, width)])
            return
        number = max(1, width - 2 * MARGIN_CELLS)
        parts = self._rates.parts(number, begin, end)
        self.show(histogram_lines(parts, width, height))
        legend: Line = (("errors", "warn"), (" all lines", "muted"))
        if self._rates.read >= MAX_PERIOD_BYTES:
            legend = (("? too many lines to count all", "unknown"),)
        axis = axis_line(begin, end, selected.key[0] if selected is not None else None, number)
        self.show_frame(Frame(f"Lines, {self._title}", right=legend, bottom=axis))


def histogram_lines(parts: Sequence[LineRate], width: int, height: int) -> list[Line]:
    """Bars of the parts in `height` lines, one cell wide."""
    top = max((part.lines for part in parts), default=0) or 1
    lines = []
    for row in range(height - 1, -1, -1):
        cells = [_cell(part, row, height, top) for part in parts]
        runs = [
            ("".join(sign for sign, _ in some), style)
            for style, some in groupby(cells, key=lambda cell: cell[1])
        ]
        lines.append(cut_line(((" " * MARGIN_CELLS, ""), *runs), width))
    return lines


def _cell(part: LineRate, row: int, height: int, top: int) -> Run:
    """The sign of one cell, which has one colour. A cell with errors and other lines has the colour
    of the larger part. In the lowest row any error colours the cell, so that one error is seen."""
    full = len(SPARKS)
    errors, lines = (-(-number * full * height // top) for number in (part.errors, part.lines))
    errors, lines = (min(full, max(0, level - row * full)) for level in (errors, lines))
    if not lines:
        return " ", ""
    is_error = errors > 0 if row == 0 else 2 * errors >= lines
    return SPARKS[lines - 1], "warn" if is_error else "muted"


def small_histogram(parts: Sequence[LineRate], begin: float, end: float, width: int) -> Line:
    """The bars on one line between the times; parts with errors stand out."""
    top = max((part.lines for part in parts), default=0) or 1
    cells = []
    for part in parts:
        level = -(-part.lines * len(SPARKS) // top)
        cells.append((SPARKS[level - 1] if level else " ", "warn" if part.errors else "muted"))
    runs = [
        ("".join(sign for sign, _ in some), style)
        for style, some in groupby(cells, key=lambda cell: cell[1])
    ]
    timed_bars = ((f" {_clock(begin)} ", "muted"), *runs, (f" {_clock(end)}", "muted"))
    return join_ends(timed_bars, (("lines ", "muted"), ("errors ", "warn")), width)


def axis_line(begin: float, end: float, cursor: float | None, width: int) -> str:
    """The lower border: times at both ends and in the middle, and where the cursor is."""
    cells, mark, last = ["─"] * width, -1, width - 7
    if cursor is not None and begin <= cursor < end:
        mark = min(width - 1, int((cursor - begin) / (end - begin) * width))
        last = mark - 7 if mark > last else last
    cells[:6] = f"{_clock(begin)} "  # the frame has a blank before it
    for at, when in ((width // 2 - 3, (begin + end) / 2), (last, end)):
        cells[at : at + 7] = f" {_clock(when)} "
    if mark >= 0:
        cells[mark] = "▲"
    return "".join(cells) + "─" * (MARGIN_CELLS - 1)  # as far from the corner as the bars


def _clock(when: float) -> str:
    return time.strftime("%H:%M", time.localtime(when))


def scroll_up(widget: Widget, rows: int) -> None:
    """Scroll the lines of a widget up on the terminal, in the frame that paints them again. Nothing
    happens if the widget is not as wide as the screen, or without a terminal."""
    app, region = widget.app, widget.region
    is_whole = region.width == app.size.width and widget.screen.is_active
    if is_whole and isinstance(app, SafeApp) and app.output is not None:
        top = region.y + widget.gutter.top
        app.cells.scroll_up(top, top + widget.size.height - 1, rows)


MAX_OTHER_LINES = 2
"""Lines that may change while the others scroll: those that the cursor leaves and goes to."""


class LogLines(Painted, can_focus=True):
    """The lines of a page; only changed screen lines are repainted."""

    def __init__(self, page: LogPage) -> None:
        super().__init__(id="lines", classes="pane")
        self.page = page
        self._painted: dict[int, Line] = {}

    @property
    def line_of_cursor(self) -> int:
        """Line of the log line under the cursor, from the top of the page."""
        return self.page.line_of_cursor

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
