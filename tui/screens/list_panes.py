"""The widgets of a screen that lists rows above the details of the one under the cursor."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import Size

from tui.screens.edge_lines import EdgeLines
from tui.screens.two_panes import FIXED_LINES
from tui.terminal.render_cache import Box
from tui.text.frames import BOX, BOX_FRAME_CELLS, frame_border
from tui.text.table import ShownRows
from tui.widgets.line_widgets import Frame, LongText
from tui.widgets.picker import Picker


class ListPanes:
    """Rows and details in two framed panes, one of which has the keys that move."""

    def __init__(self) -> None:
        self.rows, self.details = Picker(id="rows"), LongText(id="text")
        self.edges = EdgeLines()
        self.in_details = False
        """The details have the focus: all keys that move scroll them."""

    def compose(self) -> ComposeResult:
        """Top line, rows, details, message line, hints."""
        yield self.edges.top
        with Box(id="body"):
            yield self.rows
            yield self.details
        yield self.edges.message
        yield self.edges.hints

    def focus(self, *, details: bool) -> None:
        """Give the keys that move to the details, or to the rows; the cursor stays on its row."""
        self.in_details = details
        (self.details if details else self.rows).focus()

    def move(self, how: str) -> bool:
        """Move the cursor and return True, or scroll the details; without rows there is only the
        text.
        """
        is_cursor = bool(self.rows.rows) and not self.in_details
        (self.rows if is_cursor else self.details).move(how)
        return is_cursor

    def width(self, size: Size) -> int:
        """Cells for a line inside a frame on a screen of that size."""
        return size.width - (BOX_FRAME_CELLS if frame_border(*size) == BOX else 0)

    def show_rows(self, shown: ShownRows) -> None:
        """Show the rows between their titles and the lines at the foot."""
        self.rows.show_rows(shown.rows, [shown.head], shown.foot)

    def show_frames(self, rows: Frame, details: Frame, size: Size) -> None:
        """Write the frames; the rows get at most half of the screen."""
        for pane in (self.rows, self.details):
            pane.add_class("pane")
        wanted = frame_border(*size) + 1 + max(1, len(self.rows.rows))  # one line for the titles
        self.rows.styles.height = min(wanted, (size.height - FIXED_LINES) // 2)
        self.details.styles.width = self.details.styles.height = "1fr"
        self.rows.show_frame(rows, focused=not self.in_details)
        self.details.show_frame(details, focused=self.in_details)
