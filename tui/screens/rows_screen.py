"""The base class of screens that list rows, with the details of the one under the cursor.

It has parts (`tui.screens.rows_parts`), which know what is shown and what a key acts on, but no
Textual. What they return is painted into its panes: the details are below the rows, or beside them
on a large screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.geometry import Size
from textual.widget import Widget

from tui.screens.base import Copy
from tui.screens.edge_lines import EdgeLines
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen
from tui.screens.rows_parts import Change, RowCursor, RowsParts
from tui.screens.target import Target
from tui.terminal.render_cache import Box
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.table import ShownRows
from tui.widgets.line_widgets import Board, LongText
from tui.widgets.picker import Picker

if TYPE_CHECKING:
    from tui.text.export import ExportTable


WIDE_COLUMNS, WIDE_LINES = 120, 30
"""Smallest screen on which details are beside the rows."""

FIXED_LINES = 3
"""Header, message line and hints."""


def is_large(size: Size) -> bool:
    """True if a screen has room for more than rows and one text below them."""
    return size.width >= WIDE_COLUMNS and size.height >= WIDE_LINES


class ListPanes:
    """Rows and details in two framed panes, one of which has the keys that move."""

    def __init__(
        self,
        *,
        beside_percent: int = 0,
        page_keys_scroll: bool = False,
        below_rows: Sequence[Widget] = (),
        below_details: Sequence[Widget] = (),
        board: Board | None = None,
    ) -> None:
        """
        Args:
            beside_percent: width of the details beside the rows on a large screen; 0: always below.
            page_keys_scroll: page keys scroll the details while the rows have the focus.
            below_rows: more panes below the rows, shown while the details are beside them.
            below_details: more panes below the details.
            board: shows the details on a large screen, instead of one text; it does not scroll."""
        self.rows, self.details, self.edges = Picker(id="rows"), LongText(id="text"), EdgeLines()
        self._percent, self._page_keys_scroll = beside_percent, page_keys_scroll
        self._below_rows, self._below_details, self.board = below_rows, below_details, board
        self._left, self._body = Box(id="left"), Box(id="body")
        self.in_details = False
        """The details have the focus: all keys that move scroll them."""

    def compose(self) -> ComposeResult:
        yield self.edges.top
        with self._body:
            if self._below_rows:
                with self._left:
                    yield self.rows
                    yield from self._below_rows
            else:
                yield self.rows
            yield self.details
            yield from self._below_details
            if self.board is not None:
                yield self.board
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
        return bool(self._percent) and is_large(size)

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
        """Lines of the rows above the details, with their frame: at most half of the screen."""
        rows = 1 + max(1, len(self.rows.rows))  # one for the titles of the columns
        return min(frame_border(*size) + rows, (size.height - FIXED_LINES) // 2)

    @staticmethod
    def _frame_cells(size: Size) -> int:
        return BOX_FRAME_CELLS if frame_border(*size) == BOX else 0

    @property
    def shows_board(self) -> bool:
        """The details are shown in the board, which does not scroll."""
        return self.board is not None and self.board.display

    def show_rows(self, shown: ShownRows) -> None:
        """Show the rows between their titles and the lines at the foot."""
        self.rows.show_rows(shown.rows, [shown.head] if shown.head else [], shown.foot)

    def show_board(self, *, is_shown: bool) -> None:
        """Show the details in the board, or as one text."""
        assert self.board is not None
        self.board.display, self.details.display = is_shown, not is_shown
        if is_shown and self.in_details:
            self.focus(details=False)

    def show_frames(self, rows: Frame, details: Frame, size: Size) -> None:
        """Write the frames, and give each pane its place and its height."""
        is_beside, height = self.is_beside(size), self.rows_height(size)
        for pane in (self.rows, self.details):
            pane.add_class("pane")
        self._body.styles.layout = "horizontal" if is_beside else "vertical"
        self.rows.styles.height = "1fr" if is_beside else height
        if self._below_rows:
            has_more = any(pane.display for pane in self._below_rows)
            self._left.styles.height = "1fr" if is_beside else "auto"
            if is_beside and has_more:
                self.rows.styles.height = BOX + 1 + len(self.rows.rows)
        self.details.styles.width = self._details_cells(size) if is_beside else "1fr"
        self.details.styles.height = "1fr"
        self.rows.show_frame(rows, focused=not self.in_details)
        self.details.show_frame(details, focused=self.in_details)


class RowsScreen(KeyedScreen):
    """Paints its parts each second, and after an action what that has changed."""

    parts: RowsParts
    panes: ListPanes

    def compose(self) -> ComposeResult:
        yield from self.panes.compose()

    def on_mount(self) -> None:
        self.panes.focus(details=False)
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
        self.call_after_refresh(self._count_below, self.panes.details.below)

    def _count_below(self, painted: int) -> None:
        """Write the frames again if the layout has left another number of lines below."""
        if self.panes.details.below != painted:
            self.paint_frames()

    def paint_rows(self) -> None:
        """Paint the rows, and put the cursor on one."""
        parts, panes = self.parts, self.panes
        shown = parts.rows(panes.rows_width(self.size))
        panes.show_rows(shown)
        if parts.aim in [row.key for row in shown.rows]:
            panes.rows.select_key(parts.aim)
            parts.aim = ""

    def paint_frames(self) -> None:
        """Write the frames."""
        if self.is_paintable:
            below = self.panes.details.below
            rows, details = self.parts.rows_frame(), self.parts.details_frame(below)
            self.panes.show_frames(rows, details, self.size)
