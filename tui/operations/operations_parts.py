"""The parts of the screen of operations, without Textual: the journal of the last 24 hours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.operations import operation_lines as view
from tui.operations import undo_plans
from tui.operations.operation_lines import ListedOperation
from tui.screens.base import Copy
from tui.screens.rows_parts import Change, RowsParts
from tui.session.history import operation_name
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows

JOURNAL_READ_SECONDS = 1.0
"""Seconds between two reads of the journal."""


class OperationsParts(RowsParts):
    """The operations of one place; those that need a decision first, then the newest."""

    listed: Sequence[ListedOperation] = ()
    """In the order of the rows, as painted last."""

    def start(self) -> None:
        """Follow the journal."""
        self.screen.run("operations", self.follow)

    async def follow(self) -> Change:
        """Read the journal in a loop while the screen is on top.

        Raises:
            Unavailable: the place was closed.
        """
        always = True
        while True:
            if self.screen.is_current:
                await self.session.history.refresh(always=always)
                always = False
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(JOURNAL_READ_SECONDS)

    @property
    def selected(self) -> ListedOperation | None:
        """The operation under the cursor."""
        key = self.screen.cursor.key
        return next((one for one in self.listed if one.operation.op == key), None)

    # What is shown

    def trail(self) -> tuple[str, ...]:
        """The place."""
        return (self.session.name, keys.OPERATIONS)

    def rows(self, width: int) -> ShownRows:
        """One row for each operation."""
        history = self.session.history
        listed = view.list_operations(history.operations, history.half_moved)
        self.listed = sorted(listed, key=lambda one: not view.needs_decision(one.operation))
        head, lines = view.operation_table(self.listed, self.context.clock(), width)
        ops = [one.operation.op for one in self.listed]
        return ShownRows(head, [Choice(*row) for row in zip(ops, lines, strict=True)])

    def details(self, width: int) -> list[Line]:
        """The operation under the cursor, or why there is none."""
        if (selected := self.selected) is not None:
            return view.detail_lines(selected, self.context.clock(), width)
        history = self.session.history
        if self.session.place.journal is None:
            words = "this place has no journal"
        elif history.error:
            words = f"journal not readable: {safe_line(history.error)}"
        else:
            nothing = self.no_row_reason("no operations in the last 24 h")
            words = nothing if history.is_read else "loading ..."
        return [((f" {words}", "muted"),)]

    def rows_frame(self) -> Frame:
        """The operations of the last 24 hours."""
        return Frame("Operations", "8", f"{len(self.listed):,}", (("kept 24 h", "muted"),))

    def details_frame(self, below: int) -> Frame:
        """The operation under the cursor."""
        selected = self.selected
        return Frame("details" if selected is None else view.describe_operation(selected.operation))

    def next_step(self, width: int) -> Line:
        """Journal errors; otherwise the next step."""
        history, selected = self.session.history, self.selected
        if history.error and history.operations:
            return ((f" ! {safe_line(history.error)}", "error"),)
        if selected is None:
            return next_line("2", "opens the tasks; changes are listed here", "", width)
        operation = selected.operation
        if selected.switched:
            name, key = safe_line(selected.switched), "S" if selected.suspended else "u"
            return next_line(key, f"plans to {selected.way_back} {name}", name, width)
        name = f"{operation_name(operation)} {view.short_name(operation.op)}"
        if view.needs_decision(operation):
            open_tasks = format_count(operation.open_rows, "task")
            return next_line("R", f"resumes the other {open_tasks}; D abandons", name, width)
        undo_text, _ = view.undo_time_left(selected, self.context.clock())
        is_final = undo_text == "-" or undo_text.startswith("no")
        if operation.is_running or is_final or undo_plans.why_no_undo(operation):
            return next_line("Enter", "shows every task of it", name, width)
        return next_line("u", "plans the undo; Enter shows every task", name, width)

    def copies(self) -> tuple[Copy, ...]:
        """Name and details of the operation under the cursor."""
        selected = self.selected
        if selected is None:
            return ()
        lines = view.detail_lines(selected, self.context.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("o", "operation", selected.operation.op), Copy("t", "text", text)
