"""The base class of screens that list rows, with the details of the one under the cursor.

It has parts (`tui.screens.rows_parts`), which know what is shown and what a key acts on, but no
Textual; what they return is painted into its panes (`tui.screens.list_panes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from tui.screens.base import Copy
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen
from tui.screens.list_panes import ListPanes, frame_panes, is_large
from tui.screens.rows_parts import Change, RowCursor, RowsParts
from tui.text.frames import frame_border

if TYPE_CHECKING:
    from tui.text.export import ExportTable


class RowsScreen(KeyedScreen):
    """Paints its parts each second, and after an action what that has changed."""

    parts: RowsParts
    panes: ListPanes

    def compose(self) -> ComposeResult:
        yield from self.panes.compose()

    def on_mount(self) -> None:
        self.panes.focus(details=False)
        self.parts.start()

    def on_resize(self) -> None:
        """Frame the panes for the current size; they are painted once they have theirs."""
        frame_panes(self, frame_border(*self.size))

    def on_picker_cursor_moved(self) -> None:
        self.show_change(self.parts.cursor_moved())

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
