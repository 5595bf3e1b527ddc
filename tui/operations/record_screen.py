"""Screen of one operation in the journal: who, why, and the result of each row."""

from __future__ import annotations

from textual import work
from textual.app import ComposeResult

from engine.operations.journal import Entry
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.operations import operation_lines as view
from tui.operations.operation_lines import ListedOperation
from tui.operations.undo_plans import show_undo
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import TopLine
from tui.screens.page import Page
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line
from tui.widgets.line_widgets import Lines, LongText

MAX_LISTED_ROWS = 2000
"""Maximum number of rows listed; the counts include all."""


class RecordScreen(Page):
    """The operation at the time of opening; read only."""

    KIND = keys.RECORDED_OPERATION
    BINDINGS = key_bindings(keys.RECORDED_OPERATION)

    def __init__(
        self, one: ListedOperation, session: PlaceSession, context: ConsoleContext
    ) -> None:
        super().__init__()
        self._one, self._session, self._console_context = one, session, context
        self._entries: tuple[Entry, ...] | str = "loading ..."

    def compose(self) -> ComposeResult:
        """Path, text, next step, hints."""
        yield TopLine(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        """Read its rows; update totals, mode and clock each second."""
        self._read()
        self.set_interval(1.0, self._show_path)

    def _show_path(self) -> None:
        if self.is_paintable and self.is_current:
            trail = (self._session.name, "operations", view.short_name(self._one.operation.op))
            self.query_one(TopLine).update_line(self._console_context, trail)

    @work(group="rows")
    async def _read(self) -> None:
        try:
            self._entries = await self._session.inspector.history.entries(
                self._one.operation, MAX_LISTED_ROWS
            )
        except StoreError as error:
            self._entries = f"rows not readable: {error}"
        self.lay_out(self.size.width)

    def lay_out(self, width: int) -> None:
        """Paint details, events and rows for this width."""
        if not self.is_paintable or not width:
            return
        self.show((), self._lines(self.text_width), self._next_line())
        self._show_path()
        self.show_hints(without=self.without())

    def on_screen_resume(self) -> None:
        """Show the next step again after a plan."""
        self.lay_out(self.size.width)

    def text_frame(self) -> Frame:
        """Title: the operation."""
        return Frame(view.describe_operation(self._one.operation))

    def _next_line(self) -> Line:
        operation, width = self._one.operation, self.size.width
        name = view.short_name(operation.op)
        undo_text, _ = view.undo_time_left(self._one, self._console_context.clock())
        if undo_text == "-" or undo_text.startswith("no") or "plan_undo" in self.without():
            return next_line("Esc", "goes back to the operations", name, width)
        return next_line("u", "plans the undo", name, width)

    def _lines(self, width: int) -> list[Line]:
        operation, entries = self._one.operation, self._entries
        lines = view.detail_lines(self._one, self._console_context.clock(), width)
        lines += view.note_lines(operation, width)
        if isinstance(entries, str):
            return [*lines, BLANK_LINE, ((f" {safe_line(entries)}", "muted"),)]
        states = self._session.inspector.states
        return [*lines, BLANK_LINE, *view.row_lines(entries, operation, states, width)]

    def without(self) -> set[str]:
        """Hide the undo plan if the console is read only."""
        return {"plan_undo"} if self._console_context.arming.read_only else set()

    @work(exclusive=True, group="plan")
    async def action_plan_undo(self) -> None:
        """Open a plan to undo it."""
        await show_undo(self, self._session, self._console_context, self._one.operation)

    def copies(self) -> tuple[Copy, ...]:
        """Operation name, task ids, and the whole text."""
        entries = self._entries if isinstance(self._entries, tuple) else ()
        lines = self._lines(100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        ids = "\n".join(entry.row.id for entry in entries)
        op = Copy("o", "operation", self._one.operation.op)
        return (op, *((Copy("i", "ids", ids),) if ids else ()), Copy("t", "text", text))
