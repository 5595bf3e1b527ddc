"""Rows and details in two framed panes: below each other, or side by side on a wide screen."""

from __future__ import annotations

from tui.screens.base import BaseScreen
from tui.screens.list_panes import FIXED_LINES, WIDE_COLUMNS, WIDE_LINES
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.widgets.board import Board
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker


class TwoPanes(BaseScreen):
    """The parts `#rows` and `#text` of `#body`, their frames, widths and heights."""

    DETAIL_PERCENT = 0
    """Width of the details beside the rows, from `WIDE_COLUMNS` x `WIDE_LINES` on; 0: always below.
    """

    PAGE_KEYS_SCROLL = False
    """Page keys scroll the details while the rows have the focus."""

    BOARD: type[Board] | None = None
    """Panes that show the details on a large screen, instead of one text; they do not scroll."""

    in_details = False
    """The details have the focus: all keys that move scroll them."""

    def action_pane(self, by: int) -> None:
        """Move the focus to the details, or back to the rows; the cursor stays on its row."""
        if self.board is not None and not self.in_details:
            return
        self.in_details = not self.in_details
        self.query_one(LongText if self.in_details else Picker).focus()
        self.show_frames()

    def scrolls_details(self, how: str) -> bool:
        """True if a motion of the key table scrolls the details."""
        is_page = "page" in how or "half" in how
        return self.board is None and (self.in_details or (self.PAGE_KEYS_SCROLL and is_page))

    @property
    def is_large(self) -> bool:
        """True if the screen has room for more than rows and one text below them."""
        width, height = self.size
        return width >= WIDE_COLUMNS and height >= WIDE_LINES

    @property
    def is_wide(self) -> bool:
        """True if the details are beside the rows."""
        return bool(self.DETAIL_PERCENT) and self.is_large

    @property
    def board(self) -> Board | None:
        """The panes of the details; None if they are one text."""
        return self.query_one(self.BOARD) if self.BOARD is not None and self.is_large else None

    @property
    def _frame_cells(self) -> int:
        boxed = frame_border(*self.size) == BOX
        return BOX_FRAME_CELLS if boxed and self.rows_frame() is not None else 0

    @property
    def text_width(self) -> int:
        """Cells for the details inside their frame."""
        width = self.size.width
        outer = width * self.DETAIL_PERCENT // 100 if self.is_wide else width
        return outer - self._frame_cells

    @property
    def rows_width(self) -> int:
        """Cells for a row inside the frame."""
        width = self.size.width
        outer = width - width * self.DETAIL_PERCENT // 100 if self.is_wide else width
        return outer - self._frame_cells

    @property
    def rows_height(self) -> int:
        """Lines of the rows above the details, with their frame: at most half of the screen."""
        rows = 1 + max(1, len(self.query_one(Picker).rows))  # one for the titles of the columns
        return min(frame_border(*self.size) + rows, (self.size.height - FIXED_LINES) // 2)

    def rows_frame(self) -> Frame | None:
        """The frame of the rows; None if the screen has no frames."""
        return None

    def text_frame(self) -> Frame:
        """The frame of the details."""
        return Frame("")

    def show_frames(self) -> None:
        """Write the frames, and give each part its place and its height."""
        if not self.is_paintable or (frame := self.rows_frame()) is None:
            return
        picker, text, wide = self.query_one(Picker), self.query_one(LongText), self.is_wide
        for part in (picker, text):
            part.add_class("pane")
        self.query_one("#body").styles.layout = "horizontal" if wide else "vertical"
        picker.styles.height = "1fr" if wide else self.rows_height
        text.styles.width = self.text_width + self._frame_cells if wide else "1fr"
        picker.show_frame(frame, focused=not self.in_details)
        text.show_frame(self.text_frame(), focused=self.in_details)
