"""Screen of the operations of the last 24 hours: details, undo, resume, abandon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual import work

from engine.operations.journal import Operation
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.confirm.action_screen import show_action
from tui.operations import operation_lines as view
from tui.operations import undo_plans
from tui.operations.abandon_action import AbandonAction
from tui.operations.operation_lines import ListedOperation
from tui.plan.planning import preparing
from tui.screens.base import PASTED, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.history import operation_name
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.figures import format_count
from tui.text.frames import Frame
from tui.text.hints import hint_lines, next_line
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker

JOURNAL_READ_SECONDS = 1.0
"""Seconds between two reads of the journal."""

Show = Callable[["OperationsScreen", PlaceSession, ConsoleContext, Operation], Awaitable[None]]


class OperationsScreen(ListScreen):
    """The operations of one place, newest first."""

    KIND = keys.OPERATIONS
    BINDINGS = key_bindings(keys.OPERATIONS)
    PAGE_KEYS_SCROLL = True
    DETAIL_PERCENT = 37

    def __init__(self, session: PlaceSession, context: ConsoleContext, op: str = "") -> None:
        """The cursor is put on `op` when it appears."""
        super().__init__(session, context)
        self._op = op
        self._listed: tuple[ListedOperation, ...] = ()

    def aim(self, op: str) -> None:
        """Put the cursor on an operation when it appears."""
        self._op = op

    def begin(self) -> None:
        """Paint, and follow the journal."""
        super().begin()
        self.run_worker(self._follow(), name="operations")

    async def _follow(self) -> None:
        always = True
        while True:
            if self.is_current:
                try:
                    await self.session.history.refresh(always=always)
                except Unavailable:
                    return  # closed: the console is being left
                always = False
                self.paint()
            await asyncio.sleep(JOURNAL_READ_SECONDS)

    # Painting

    @property
    def selected(self) -> ListedOperation | None:
        """The operation under the cursor."""
        key = self.selected_key
        return next((one for one in self._listed if one.operation.op == key), None)

    def lay_out(self, width: int) -> None:
        """One row per operation, and details of the one under the cursor."""
        now = self.context.clock()
        history = self.session.history
        listed = view.list_operations(history.operations, history.half_moved)
        # Those that need a decision come first.
        self._listed = tuple(sorted(listed, key=lambda one: not view.needs_decision(one.operation)))
        head, lines = view.operation_table(self._listed, now, self.rows_width)
        picker = self.query_one(Picker)
        ops = [one.operation.op for one in self._listed]
        picker.show_rows([Choice(op, line) for op, line in zip(ops, lines, strict=True)], [head])
        if self._op in ops:
            picker.select_key(self._op)
            self._op = ""
        selected = self.selected
        self.query_one(LongText).show(
            self._empty_lines()
            if selected is None
            else view.detail_lines(selected, now, self.text_width)
        )

    def _empty_lines(self) -> list[Line]:
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
        period: Line = (("kept 24 h", "muted"),)
        return Frame("Operations", "8", f"{len(self._listed):,}", period)

    def text_frame(self) -> Frame:
        """The operation under the cursor."""
        selected = self.selected
        return Frame("details" if selected is None else view.describe_operation(selected.operation))

    def default_message(self) -> Line:
        """Journal errors; otherwise the next step."""
        history, selected, width = self.session.history, self.selected, self.size.width
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
        if operation.is_running or undo_plans.why_no_undo(operation):
            return next_line("Enter", "shows every task of it", name, width)
        undo_text, _ = view.undo_time_left(selected, self.context.clock())
        if undo_text == "-" or undo_text.startswith("no"):
            return next_line("Enter", "shows every task of it", name, width)
        return next_line("u", "plans the undo; Enter shows every task", name, width)

    def show_hints(self, grey: object = ()) -> None:
        """Grey out keys that do not apply to the operation under the cursor."""
        from tui.widgets.line_widgets import Lines

        selected = self.selected
        refused: set[str] = set()
        if selected is None or not selected.operation.is_interrupted:
            refused |= {"go_on", "drop"}
        if selected is None or (
            undo_plans.why_no_undo(selected.operation) and not selected.switched
        ):
            refused.add("plan_undo")
        if selected is None or not selected.suspended:
            refused.add("suspend")
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)}
        hints = keys.hints_of(self.KIND, refused, self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.is_minor))  # actions first
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width))

    def without(self) -> set[str]:
        """Hide the keys that write if the console is read only, or if nothing is listed."""
        is_hidden = self.context.arming.read_only or not self._listed
        hidden = {"plan_undo", "go_on", "drop", "arm", "suspend"} if is_hidden else set()
        return hidden if any(one.suspended for one in self._listed) else {*hidden, "suspend"}

    # Actions

    def action_open(self) -> None:
        """Open the details of an operation, or its progress if it runs in this console."""
        selected = self.selected
        if selected is None:
            self.say(self.no_row_reason("nothing to open"))
            return
        from tui.operations.record_screen import RecordScreen
        from tui.operations.running_screen import ReplayScreen

        op = selected.operation.op
        console_operation = next((work for work in self.session.operations if work.op == op), None)
        if console_operation is not None:
            self.app.push_screen(ReplayScreen(console_operation, self.session, self.context))
        else:
            self.app.push_screen(RecordScreen(selected, self.session, self.context))

    def action_plan_undo(self) -> None:
        """Open a plan to undo it."""
        if self.selected is not None and self.selected.switched:
            _show_way_back(self)
        else:
            self._plan(undo_plans.show_undo, "")

    def action_go_on(self) -> None:
        """Open a plan to resume an interrupted operation."""
        self._plan(undo_plans.show_resume, "resume")

    def action_drop(self) -> None:
        """Open a plan to abandon an interrupted operation."""
        self._plan(_show_abandon, "abandon")

    def action_suspend(self) -> None:
        """Open a plan to resume the transport that the operation suspended, or to unblock the
        destination that it blocked."""
        selected = self.selected
        if selected is None or selected.suspended:
            _show_way_back(self)
        else:
            self.say(self.no_row_reason("nothing to resume: it suspends no transport now"))

    def _plan(self, show: Show, open_: str) -> None:
        """Open a plan for the operation under the cursor; a non-empty `open_` needs an
        interrupted one.
        """
        selected = self.selected
        if self.context.arming.read_only:
            self.say("read only: started with --read-only")
        elif self.is_pasted:
            self.say(PASTED)
        elif selected is None:
            self.say(self.no_row_reason("no operation here"))
        elif open_ and not selected.operation.is_interrupted:
            self.say(f"nothing to {open_}: not interrupted")
        else:
            self._show(show, selected.operation, open_ or "undo")

    @work(exclusive=True, group="plan")
    async def _show(self, show: Show, listed: Operation, verb: str) -> None:
        console_operations = (one for one in self.session.operations if one.op == listed.op)
        if any(one.ended is None for one in console_operations):
            self.say("running: Enter shows it, u there undoes")
            return
        try:
            with preparing(self, undo_plans.plan_words(verb, listed)):
                operation = await self.session.history.operation(listed.op)
        except Unavailable as error:
            self.say(f"no plan: {error}")
            return
        if operation is None:
            self.say("no longer in the journal")
        elif operation.is_running:
            self.say("another process is running it: undo is possible afterwards")
        else:
            await show(self, self.session, self.context, operation)

    def plan_applied(self) -> None:
        """Read the journal again after a plan was applied."""
        self._read_again("")

    def action_reread(self) -> None:
        """Read the journal again."""
        self._read_again("journal read again")

    @work(exclusive=True, group="reread")
    async def _read_again(self, words: str) -> None:
        try:
            await self.session.history.refresh(always=True)
        except Unavailable:
            return  # closed: the console is being left
        if words:
            self.say(words, "")
        self.paint()

    def copies(self) -> tuple[Copy, ...]:
        """Name and details of the operation under the cursor."""
        selected = self.selected
        if selected is None:
            return ()
        lines = view.detail_lines(selected, self.context.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("o", "operation", selected.operation.op), Copy("t", "text", text)


def _show_way_back(screen: OperationsScreen) -> None:
    """Open the plan to set back the transport or destination that an operation switched."""
    selected, place, read_only = (
        screen.selected,
        screen.session.place,
        screen.context.arming.read_only,
    )
    if selected is None:
        screen.say(screen.no_row_reason("no operation here"))
        return
    why_not = place.why_no_destinations if "://" in selected.switched else place.why_no_mail
    if screen.is_pasted or why_not(read_only):
        screen.say(PASTED if screen.is_pasted else why_not(read_only))
    else:
        screen.go(Target(keys.SUSPEND, id=selected.switched))


async def _show_abandon(
    screen: OperationsScreen, session: PlaceSession, context: ConsoleContext, operation: Operation
) -> None:
    if screen.app.screen is screen:
        one = ListedOperation(operation, half_moved=session.history.half_moved.get(operation.op, 0))
        action = AbandonAction(one, session)
        show_action(screen, action, session, context, screen.plan_applied)
