"""The base class of screens that list rows, with the details of the one under the cursor.

It has parts (`tui.screens.rows_parts`), which know what is shown and what a key acts on, but no
Textual. What they return is painted into its panes: the details are below the rows, or beside them
on a large screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.widget import Widget

from engine.logs.log_line import LogLine
from tui.screens.base import Copy
from tui.screens.edge_lines import EdgeLines
from tui.screens.graph_pane import MIN_GRAPH_LINES
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen
from tui.screens.place_foot import MOST_BLANK_LINES, PlaceBox
from tui.screens.rows_parts import Change, RowCursor, RowsParts
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text.frames import BOX, BOX_FRAME_CELLS, LEAST_LINES, Frame, frame_border
from tui.text.table import ShownRows
from tui.widgets.divided import Board
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker

if TYPE_CHECKING:
    from tui.text.export import ExportTable


WIDE_COLUMNS, WIDE_LINES, TALL_LINES = 120, 30, 50
"""Smallest screen on which details are beside the rows, and the height of one that has room for
whole lines of both below each other."""

FIXED_LINES = 3
"""Header, message line and hints."""


def is_large(size: Size) -> bool:
    """True if a screen has room for more than rows and one text below them."""
    return size.width >= WIDE_COLUMNS and size.height >= WIDE_LINES


class ListPanes:
    """Rows and details in two framed panes, one of which has the keys that move. Each has the lines
    that it needs. What they leave shows what goes on at the place; if they need more, they share
    the lines."""

    def __init__(
        self,
        *,
        beside_percent: int = 0,
        page_keys_scroll: bool = False,
        below_details: Sequence[Lines] = (),
        board: Board | None = None,
        graph_first: bool = False,
    ) -> None:
        """
        Args:
            beside_percent: width of the details beside the rows on a large screen that is not tall.
            page_keys_scroll: page keys scroll the details while the rows have the focus.
            below_details: more panes below the details; one without lines is hidden.
            board: shows the details on a large screen, instead of one text; it does not scroll.
            graph_first: the graph of the place matters more than its log."""
        self.rows, self.details, self.edges = Picker(id="rows"), LongText(id="text"), EdgeLines()
        self._percent, self._page_keys_scroll = beside_percent, page_keys_scroll
        self._below_details, self.board = below_details, board
        self._kept = 0
        """Lines that the details had: the rows do not move for a few."""
        boards = () if board is None else (board,)
        panes = (self.rows, self.details, *below_details, *boards)
        self.body = PlaceBox(*panes, graph_first=graph_first)
        self.in_details = False
        """The details have the focus: all keys that move scroll them."""

    def compose(self) -> ComposeResult:
        yield self.edges.top
        yield self.body
        yield self.edges.message
        yield self.edges.hints

    def focus(self, *, details: bool) -> None:
        """Give the keys that move to the details, or to the rows; the cursor stays on its row."""
        self.in_details = details
        (self.details if details else self.rows).focus()

    def move(self, how: str) -> bool:
        """Move the cursor and return True, or scroll the details, also if there are no rows."""
        is_page = self._page_keys_scroll and ("page" in how or "half" in how)
        scrolls = not self.shows_board and (self.in_details or is_page)
        is_cursor = bool(self.rows.rows) and not scrolls
        (self.rows if is_cursor else self.details).move(how)
        return is_cursor

    def is_beside(self, size: Size) -> bool:
        """True if on a screen of that size the details are beside the rows."""
        return bool(self._percent) and is_large(size) and size.height < TALL_LINES

    def _details_cells(self, size: Size) -> int:
        return size.width * self._percent // 100 if self.is_beside(size) else size.width

    def rows_width(self, size: Size) -> int:
        """Cells for a row inside the frame on a screen of that size."""
        beside = self._details_cells(size) if self.is_beside(size) else 0
        return size.width - beside - self._frame_cells(size)

    def details_width(self, size: Size) -> int:
        """Cells for a line of the details inside the frame."""
        return self._details_cells(size) - self._frame_cells(size)

    def rows_height(self, size: Size) -> int:
        """Lines of the rows above a board, with their frame: at most half of the screen."""
        return min(self.needed_rows(size), (size.height - FIXED_LINES) // 2)

    def needed_rows(self, size: Size) -> int:
        """Lines that show all rows, with their frame."""
        border = frame_border(*size)
        least = LEAST_LINES - border if self.rows.rows else 2
        return border + max(least, self.rows.line_count)

    @staticmethod
    def _frame_cells(size: Size) -> int:
        return BOX_FRAME_CELLS if frame_border(*size) == BOX else 0

    shows_board = False
    """The details are shown in the board, which does not scroll."""

    def show_rows(self, shown: ShownRows) -> None:
        """Show the rows between their titles and the lines at the foot."""
        self.rows.show_rows(shown.rows, [shown.head] if shown.head else [], shown.foot)

    def show_board(self, *, is_shown: bool) -> None:
        """Show the details in the board, or as one text."""
        self.shows_board = is_shown
        if is_shown and self.in_details:
            self.focus(details=False)

    def show_frames(self, rows: Frame, details: Frame) -> None:
        """Write the frames of rows and details; that of the rows counts those that are hidden."""
        listed, hidden = len(self.rows.rows), self.rows.line_count - self.rows.size.height
        if 0 < hidden < listed:
            shown, is_same = f"{listed - hidden:,} of {listed:,}", rows.amount == f"{listed:,}"
            rows = rows._replace(amount=shown if is_same else f"{rows.amount}, {shown} rows")
        for pane in (self.rows, self.details):
            pane.add_class("pane")
        self.rows.show_frame(rows, focused=not self.in_details)
        self.details.show_frame(details, focused=self.in_details)

    def divide(self, size: Size, session: PlaceSession) -> None:
        """Give each pane its lines."""
        room = Region(0, 0, size.width, max(0, size.height - FIXED_LINES))
        if self.shows_board:
            upper, lower = room.split_horizontal(self.rows_height(size))
            assert self.board is not None
            self.body.place({self.rows: upper, self.board: lower})
        elif self.is_beside(size):
            self.body.place(self._beside(room, size, session.readings.log))
            self.body.call_after_refresh(self.body.paint_place, session)
        else:
            needs: dict[Widget, int] = {
                self.rows: self.needed_rows(size),
                self.details: self._needed_details(size),
            }
            border = frame_border(*size)
            needs |= {pane: border + len(pane.lines) for pane in self._below_details if pane.lines}
            self.body.stack(needs, self.details, session, fixed=FIXED_LINES)

    def _needed_details(self, size: Size) -> int:
        needed = frame_border(*size) + max(1, len(self.details.lines))
        if not needed <= self._kept <= needed + MOST_BLANK_LINES:
            self._kept = needed
        return self._kept

    def _beside(self, room: Region, size: Size, log: Sequence[LogLine]) -> dict[Widget, Region]:
        """The rows, below them the graph, and the details beside both; the log below if there is
        room."""
        border = frame_border(*size)
        rows, least = self.needed_rows(size), border + MIN_GRAPH_LINES
        body = min(room.height, max(rows + least, self._needed_details(size)))
        upper, lower = room.split_horizontal(body)
        foot = self.body.foot.regions(lower, size, log, has_graph=False)
        upper = upper if foot else room
        left, right = upper.split_vertical(room.width - self._details_cells(size))
        regions: dict[Widget, Region] = {self.rows: left, self.details: right}
        if left.height - rows >= least:
            regions[self.rows], regions[self.body.foot.graph] = left.split_horizontal(rows)
        return regions | foot


class RowsScreen(KeyedScreen):
    """Paints its parts each second, and after an action what that has changed."""

    parts: RowsParts
    panes: ListPanes

    def compose(self) -> ComposeResult:
        yield from self.panes.compose()

    def on_mount(self) -> None:
        self.panes.focus(details=False)
        self.panes.body.foot.course = self.parts.graph
        self.parts.start()

    def on_picker_cursor_moved(self) -> None:
        self.show_change(self.parts.cursor_moved())

    def go(self, target: Target) -> None:
        """Open another screen; without a place that of the row under the cursor."""
        place = target.place or self.parts.selected_session.number
        super().go(target._replace(place=place))

    # What the parts ask for (`RowsActions`)

    @property
    def cursor(self) -> RowCursor:
        return RowCursor(self.panes.rows.key, self.panes.rows.is_gone)

    @property
    def is_large(self) -> bool:
        return is_large(self.size)

    def move(self, how: str) -> Change:
        if not self.panes.move(how):  # a cursor that moved has its own event
            self.paint_frames()  # they count the lines below
        return Change.NOTHING

    def switch_pane(self) -> Change:
        self.panes.focus(details=not self.panes.in_details and not self.panes.shows_board)
        self.paint_frames()
        return Change.NOTHING

    def action_move(self, how: str) -> None:
        self.show_change(self.parts.move(how))

    def focus_pane(self, widget: object) -> None:
        """Give the keys that move to a clicked pane, whose rows stay as they were clicked."""
        self.panes.focus(details=widget is self.panes.details)
        self.paint_frames()

    def copies(self) -> tuple[Copy, ...]:
        return self.parts.copies()

    def export_table(self) -> ExportTable | None:
        return self.parts.export_table()

    def paint(self) -> None:
        self.show_change(Change.ROWS)

    def show_change(self, change: Change) -> None:
        if not change or not self.is_paintable or not self.size.width:
            return
        if Change.ROWS in change:
            self.paint_panes()
        parts, edges, width = self.parts, self.panes.edges, self.size.width
        edges.top.update_line(parts.context, tuple(parts.trail()))
        edges.show_message(parts.message, lambda: parts.next_step(width), width)
        edges.show_hints(hints_of(self.ROWS, parts), width)

    def paint_panes(self) -> None:
        """Paint rows, details and frames."""
        self.paint_rows()
        width = self.panes.details_width(self.size)
        self.panes.details.show(self.parts.details(width))
        self.paint_frames()
        self.call_after_refresh(self.paint_frames)  # once each pane has its size

    def paint_rows(self) -> None:
        """Paint the rows, and put the cursor on one."""
        parts, panes = self.parts, self.panes
        shown = parts.rows(panes.rows_width(self.size))
        panes.show_rows(shown)
        if parts.aim in [row.key for row in shown.rows]:
            panes.rows.select_key(parts.aim)
            parts.aim = ""

    def paint_frames(self) -> None:
        """Divide the lines, and write the frames and what is below the rows and details."""
        if not self.is_paintable:
            return
        parts = self.parts
        self.panes.divide(self.size, parts.selected_session)
        below = self.panes.details.below
        rows, details = parts.rows_frame(), parts.details_frame(below)
        if why := parts.why_old:
            details = details.marked(why)
            rows = rows.marked(why) if parts.is_of_one_place else rows
        self.panes.show_frames(rows, details)
