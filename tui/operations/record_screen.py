"""One operation as the journal tells of it: who, why, and what became of each of its rows."""

from __future__ import annotations

from textual import work

from engine.operations.journal import Entry
from engine.store import StoreError
from engine.text.safe import shown
from tui.format import keys
from tui.format.present import BLANK, Line
from tui.operations import lines as view
from tui.operations.lines import Listed
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.page import Page
from tui.session.place_session import PlaceSession

MOST = 2000
"""Rows that are listed; all of them are counted."""


class RecordScreen(Page):
    """As it was when this was opened; nothing here acts on anything."""

    KIND = keys.RECORD
    BINDINGS = keys.bindings(keys.RECORD)

    def __init__(self, one: Listed, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__()
        self._one, self._live, self._clock = one, live, around.clock
        self._entries: tuple[Entry, ...] | str = "reading ..."

    def on_mount(self) -> None:
        """Read its rows."""
        self._read()

    @work(group="rows")
    async def _read(self) -> None:
        try:
            self._entries = await self._live.inspector.entries(self._one.operation, MOST)
        except StoreError as error:
            self._entries = f"its rows cannot be read: {error}"
        self.lay_out(self.size.width)

    def lay_out(self, width: int) -> None:
        """All there is to say of it, for this width."""
        if not self.stands or not width:
            return
        self.show(self._title(), self._lines(width), ())
        self.show_hints()

    def _title(self) -> Line:
        return ((f" {view.what(self._one.operation)}", "strong"),)

    def _lines(self, width: int) -> list[Line]:
        operation, entries = self._one.operation, self._entries
        lines = view.about(self._one, self._clock(), width)
        lines += view.notes(operation, width)
        if isinstance(entries, str):
            return [*lines, BLANK, ((f" {shown(entries)}", "dim"),)]
        states = self._live.inspector.states
        return [*lines, BLANK, *view.rows(entries, operation, states, width)]

    def copies(self) -> tuple[Copy, ...]:
        """Its name, its tasks' ids, and all that stands here."""
        entries = self._entries if isinstance(self._entries, tuple) else ()
        lines = self._lines(100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        ids = "\n".join(entry.row.id for entry in entries)
        op = Copy("o", "operation", self._one.operation.op)
        return (op, *((Copy("i", "ids", ids),) if ids else ()), Copy("t", "text", text))
