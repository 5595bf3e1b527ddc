"""What the parts of a screen of rows do for it, and it for them; without Textual."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Flag, auto
from typing import TYPE_CHECKING, Protocol

from engine.values import NamedTuple
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.key_rows import ScreenActions
from tui.screens.message import Message
from tui.session.place_session import PlaceSession
from tui.text.frames import Frame
from tui.text.lines import Line
from tui.text.table import ShownRows

if TYPE_CHECKING:
    from tui.screens.base import Copy
    from tui.text.export import ExportTable

ROW_HAS_LEFT = "this row has left: move the cursor first"
"""Message for a key on a row whose task has left the list."""


class Change(Flag):
    """What an action changed; no more is painted again."""

    NOTHING = 0
    EDGES = auto()
    """The message and the keys."""
    ROWS = auto()
    """The rows, the details of the one under the cursor, and the frames."""


class RowCursor(NamedTuple):
    """Where the cursor is."""

    key: str = ""
    """Key of the row; "" if there is none, or if it has left."""
    has_left: bool = False

    def no_row_reason(self, otherwise: str) -> str:
        """Why there is no row to act on: the row has left, else `otherwise`."""
        return ROW_HAS_LEFT if self.has_left else otherwise


class RowsActions(ScreenActions[Change], Protocol):
    """What only the screen can do."""

    @property
    def cursor(self) -> RowCursor:
        """The row under the cursor."""

    @property
    def is_large(self) -> bool:
        """True if it has room for more than rows and one text below them."""

    def move(self, how: str) -> Change:
        """Move the cursor, or scroll the details."""

    def switch_pane(self) -> Change:
        """Move the focus to the details, or back."""


class RowsParts:
    """Base class of the parts of a screen of rows: what it shows, and what a key acts on."""

    is_of_one_place = True
    """False if the rows are of several places: each says itself that its place has no answer."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: RowsActions, aim: str = ""
    ) -> None:
        """`aim`: key of the row on which the cursor is put when it appears."""
        self.session, self.context, self.screen, self.aim = session, context, screen, aim
        self.message = Message(context.clock)
        self.graph = GraphPane()
        """The graph of the place, where the rows leave room for it."""
        self._led = ""
        """The row on which `lead` put the cursor."""
        self._has_moved = False
        """True once the operator has moved the cursor from there."""

    def start(self) -> None:
        """The screen is open: start what reads for it in the background."""

    def lead(self, key: str) -> None:
        """Put the cursor on a row, unless the operator has moved it."""
        self._note_move()  # a click that is not reported yet
        if not self._has_moved:
            self.aim = self._led = key

    def move(self, how: str) -> Change:
        """Move the cursor, or scroll the details."""
        self._has_moved = True
        return self.screen.move(how)

    def cursor_moved(self) -> Change:
        """Another row is under the cursor, maybe a clicked one."""
        self._note_move()
        return Change.ROWS

    def _note_move(self) -> None:
        self._has_moved |= bool(self._led) and self.screen.cursor.key not in ("", self._led)

    def trail(self) -> Sequence[str]:
        """Path to the screen, outermost first."""
        raise NotImplementedError

    def rows(self, width: int) -> ShownRows:
        """The rows for a width in cells. Called before what follows, which may use what it read."""
        raise NotImplementedError

    def details(self, width: int) -> Sequence[Line]:
        """The details of the row under the cursor, or why there is none."""
        raise NotImplementedError

    def rows_frame(self) -> Frame:
        """The frame of the rows: how many there are."""
        raise NotImplementedError

    def details_frame(self, below: int) -> Frame:
        """The frame of the details; `below`: lines below the visible ones."""
        raise NotImplementedError

    def next_step(self, width: int) -> Line:
        """The next step for the row under the cursor, and what a key acts on."""
        raise NotImplementedError

    def copies(self) -> tuple[Copy, ...]:
        """What can be copied now."""
        return ()

    def export_table(self) -> ExportTable | None:
        """What can be exported now."""
        return None

    def plan_applied(self) -> None:
        """A plan for what the cursor or marks selected was applied."""

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message for some seconds."""
        self.message.say(text, style)
        return Change.EDGES

    @property
    def selected_session(self) -> PlaceSession:
        """The place of the row under the cursor."""
        return self.session

    @property
    def why_old(self) -> str:
        """Why numbers of the place of the row under the cursor are not the present ones, or not
        all are there; "" if they are."""
        return self.selected_session.inspector.latest.unavailable

    def reread(self) -> Change:
        """Scan that place again in the background."""
        session = self.selected_session

        async def scan() -> Change:
            await session.inspector.scan_now()
            return self.say("scan complete") | Change.ROWS

        self.screen.run("reread", scan)
        return Change.NOTHING

    def no_row_reason(self, otherwise: str) -> str:
        """Why there is no row to act on: the row has left, else `otherwise`."""
        return self.screen.cursor.no_row_reason(otherwise)
