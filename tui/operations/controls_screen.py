"""Screen of a queue's facts and controls."""

from __future__ import annotations

from tui.operations.control_parts import ROWS, ControlParts
from tui.screens.console_context import ConsoleContext
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.session.place_session import PlaceSession
from tui.text import keys


class ControlsScreen(RowsScreen):
    """The controls of one place; Enter opens a plan for the one under the cursor."""

    KIND = keys.CONTROLS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.panes = ListPanes(beside_percent=40, page_keys_scroll=True)
        self.parts = ControlParts(session, context, self)
