"""Screen of the locks of all places, with details of the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from tui.locks.list_parts import ROWS, LocksParts
from tui.screens.console_context import ConsoleContext
from tui.screens.keyed_screen import row_bindings
from tui.screens.list_panes import ListPanes
from tui.screens.rows_screen import RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.widgets.line_widgets import Lines


class LocksScreen(RowsScreen):
    """As other lists, with the graph of the place under the cursor below the rows."""

    KIND = keys.LOCKS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: LocksParts

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        """`session` is the place that the cursor starts on."""
        super().__init__()
        self._graph = Lines(id="graph", classes="pane")
        self.panes = ListPanes(beside_percent=50, page_keys_scroll=True, below_rows=(self._graph,))
        self.parts = LocksParts(session, context, self, sessions)

    def on_picker_cursor_moved(self) -> None:
        """The details of another lock are shown from their first line."""
        self.panes.details.move("first")

    def paint_panes(self) -> None:
        """Paint the graph again once its height is known."""
        super().paint_panes()
        self.call_after_refresh(self.paint_frames)

    def paint_frames(self) -> None:
        """Write the frames; the graph gets the lines that the rows leave."""
        session, parts = self.parts.selected, self.parts
        self._graph.display = self.is_large and session is not None
        super().paint_frames()
        if self._graph.display and self.is_paintable and session is not None:
            width = self.panes.rows_width(self.size)
            parts.graph.show(self._graph, session, parts.context.clock(), width)

    # The rows, from a lock that one of them has opened

    def neighbor(self, by: int) -> Target | None:
        while self.panes.rows.move("down" if by > 0 else "up"):
            if (session := self.parts.selected) is not None and not self.parts.unlock_refusal():
                return Target(keys.LOCK, place=session.number)
        return None

    def row_words(self, target: Target) -> str:
        rows = [row.key for row in self.panes.rows.rows]
        key = f"{target.place}"
        return f"row {rows.index(key) + 1} of {len(rows)}" if key == self.cursor.key else ""
