"""The screens of the mail transports and destinations, and of the latest errors of a transport."""

from __future__ import annotations

from tui.screens.console_context import ConsoleContext
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_screen import FIXED_LINES, ListPanes, RowsScreen
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.transports.board import TransportBoard, panels
from tui.transports.failures import ROWS as FAILURE_ROWS
from tui.transports.failures import FailureParts
from tui.transports.keys import ROWS
from tui.transports.parts import TransportParts


class TransportsScreen(RowsScreen):
    """The health of each; on a large screen a board shows the transport under the cursor."""

    KIND = keys.TRANSPORTS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: TransportParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, aim: str = "") -> None:
        """`aim`: transport or destination on which the cursor is put when it appears."""
        super().__init__()
        self._board = TransportBoard()
        self.panes = ListPanes(page_keys_scroll=True, board=self._board)
        self.parts = TransportParts(session, context, self, aim)

    def paint_panes(self) -> None:
        """Paint rows, frames, and the details as one text or in the board."""
        super().paint_panes()
        shown, (width, height) = self.parts.board, self.size
        self.panes.show_board(is_shown=shown is not None)
        if shown is not None:
            room = height - FIXED_LINES - self.panes.rows_height(self.size)
            self._board.show(panels(shown, width, room))


class FailuresScreen(RowsScreen):
    """The latest errors of one transport, kept up to date."""

    KIND = keys.FAILURES
    ROWS = FAILURE_ROWS
    BINDINGS = row_bindings(FAILURE_ROWS)
    parts: FailureParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, name: str) -> None:
        """`name` is the transport's name."""
        super().__init__()
        self.panes = ListPanes()
        self.parts = FailureParts(session, context, self, name)
