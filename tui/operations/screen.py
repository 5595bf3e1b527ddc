"""Screen of the operations of the last 24 hours: details, undo, resume, abandon; and of one of them
in full: who, why, and the result of each row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from textual import work
from textual.app import ComposeResult

from engine.operations.journal import Entry, Operation
from engine.store import StoreError, Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.confirm.action_screen import show_action
from tui.operations import operation_lines as view
from tui.operations import undo_plans
from tui.operations.operation_lines import ListedOperation
from tui.operations.undo_plans import AbandonAction, show_undo
from tui.plan.planning import preparing
from tui.screens.base import PASTED, BaseScreen, Copy, key_bindings
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.edge_lines import TopLine
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.page import Page
from tui.screens.rows_parts import Change, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.history import operation_name
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line
from tui.text.table import Choice, ShownRows
from tui.widgets.line_widgets import Lines, LongText

JOURNAL_READ_SECONDS = 1.0


class OperationsParts(RowsParts):
    """The operations of one place; those that need a decision first, then the newest."""

    listed: Sequence[ListedOperation] = ()
    """In the order of the rows, as painted last."""

    def start(self) -> None:
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
        return (self.session.name, keys.OPERATIONS)

    def rows(self, width: int) -> ShownRows:
        history = self.session.history
        listed = view.list_operations(history.operations, history.half_moved)
        self.listed = sorted(listed, key=lambda one: not view.needs_decision(one.operation))
        head, lines = view.operation_table(self.listed, self.context.clock(), width)
        ops = [one.operation.op for one in self.listed]
        return ShownRows(head, [Choice(*row) for row in zip(ops, lines, strict=True)])

    def details(self, width: int) -> list[Line]:
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
        return Frame("Operations", "8", f"{len(self.listed):,}", (("kept 24 h", "muted"),))

    def details_frame(self, below: int) -> Frame:
        selected = self.selected
        return Frame("details" if selected is None else view.describe_operation(selected.operation))

    def next_step(self, width: int) -> Line:
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
        selected = self.selected
        if selected is None:
            return ()
        lines = view.detail_lines(selected, self.context.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("o", "operation", selected.operation.op), Copy("t", "text", text)


RUNS_ELSEWHERE = "another process is running it: undo is possible afterwards"

make = RowMaker[OperationsParts, Change](keys.OPERATIONS, Change.NOTHING)
own, key = make.own, make.key


def _reread(parts: OperationsParts, words: str = "journal read again") -> Change:
    async def read() -> Change:
        await parts.session.history.refresh(always=True)
        return Change.ROWS | (parts.say(words, "") if words else Change.NOTHING)

    parts.screen.run("reread", read)
    return Change.NOTHING


def _open(parts: OperationsParts) -> Change:
    """Open the details of an operation, or its progress if it runs in this console."""
    pass

    selected, session = parts.selected, parts.session
    assert selected is not None  # else it is refused
    op = selected.operation.op
    if any(work.op == op for work in session.operations):
        parts.screen.go(Target(keys.RUNNING_OPERATION, place=session.number, id=op))
    else:
        record = RecordScreen(selected, session, parts.context)
        parts.screen.open(lambda screen: screen.app.push_screen(record))
    return Change.NOTHING


# Plans


def _why_no_plan(parts: OperationsParts, other: str = "") -> str:
    """Why there is no plan for the operation under the cursor. `other`: the verb, if it is for
    interrupted ones only."""
    if is_read_only(parts):
        return READ_ONLY
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no operation here")
    if other and not selected.operation.is_interrupted:
        return f"nothing to {other}: not interrupted"
    works = (work for work in parts.session.operations if work.op == selected.operation.op)
    is_own = any(work.ended is None for work in works)
    return "running: Enter shows it, u there undoes" if is_own else ""


def _why_no_undo(parts: OperationsParts) -> str:
    selected = parts.selected
    if selected is not None and selected.switched:
        return _why_no_way_back(parts)
    if (why := _why_no_plan(parts)) or selected is None:
        return why
    if selected.operation.is_running:
        return RUNS_ELSEWHERE
    why = undo_plans.why_no_undo(selected.operation)
    return f"no plan: {why}" if why else ""


def _plan(parts: OperationsParts, verb: str) -> Change:
    """Open a plan for the operation under the cursor, as the journal has it then."""
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    assert parts.selected is not None  # else it is refused
    listed = parts.selected.operation

    def begin(screen: BaseScreen) -> None:
        async def prepare() -> Change:
            try:
                with preparing(screen, undo_plans.plan_words(verb, listed)):
                    operation = await parts.session.history.operation(listed.op)
            except Unavailable as error:
                return parts.say(f"no plan: {error}")
            if operation is None:
                return parts.say("no longer in the journal")
            if operation.is_running:
                return parts.say(RUNS_ELSEWHERE)
            if verb == "abandon":
                _show_abandon(parts, screen, operation)
            else:
                show = undo_plans.show_undo if verb == "undo" else undo_plans.show_resume
                await show(screen, parts.session, parts.context, operation)
            return Change.NOTHING

        parts.screen.run("plan", prepare)

    parts.screen.open(begin)
    return Change.NOTHING


def _show_abandon(parts: OperationsParts, screen: BaseScreen, operation: Operation) -> None:
    if screen.app.screen is screen:
        session = parts.session
        one = ListedOperation(operation, half_moved=session.history.half_moved.get(operation.op, 0))
        action = AbandonAction(one, session)

        def applied() -> None:
            _reread(parts, "")

        show_action(screen, action, session, parts.context, applied)


def _undo(parts: OperationsParts) -> Change:
    selected = parts.selected
    if selected is not None and selected.switched:
        return _set_back(parts)
    return _plan(parts, "undo")


# Transports and destinations


def _why_no_way_back(parts: OperationsParts) -> str:
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no operation here")
    place = parts.session.place
    why_not = place.why_no_destinations if "://" in selected.switched else place.why_no_mail
    return why_not(is_read_only(parts))


def _why_not_suspended(parts: OperationsParts) -> str:
    selected = parts.selected
    if selected is not None and not selected.suspended:
        return "nothing to resume: it suspends no transport now"
    return _why_no_way_back(parts)


def _set_back(parts: OperationsParts) -> Change:
    """Open the plan to set back the transport or destination that an operation switched."""
    assert parts.selected is not None  # else it is refused
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    place, name = parts.session.number, parts.selected.switched
    parts.screen.go(Target(keys.SUSPEND, place=place, id=name))
    return Change.NOTHING


def _has_none(parts: OperationsParts) -> bool:
    return is_read_only(parts) or not parts.listed


ROWS: tuple[KeyRow[OperationsParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own(
        "open | enter | Enter | open | View | operation details: who, why, every row",
        _open,
        refusal=lambda parts: "" if parts.selected else parts.no_row_reason("nothing to open"),
    ),
    KeyRow(key("plan_undo", keys.RECORDED_OPERATION), _undo, _why_no_undo, is_absent=_has_none),
    own(
        "go_on | R | R | resume | Act | plan to resume an interrupted operation with its remaining "
        "rows",
        partial(_plan, verb="resume"),
        refusal=partial(_why_no_plan, other="resume"),
        is_absent=_has_none,
    ),
    own(
        "drop | D | D | abandon | Act | plan to abandon an interrupted operation: its remaining "
        "rows stay",
        partial(_plan, verb="abandon"),
        refusal=partial(_why_no_plan, other="abandon"),
        is_absent=_has_none,
    ),
    own(
        "suspend | S | S | resume | Act | plan to resume the transport that this operation "
        "suspended",
        _set_back,
        refusal=_why_not_suspended,
        is_absent=lambda parts: _has_none(parts) or not any(one.suspended for one in parts.listed),
    ),
    make.arm(Change.EDGES, _has_none),
    *make.ends(),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(key("reread"), _reread),
    *make.views(),
)


class OperationsScreen(RowsScreen):
    """The operations of one place."""

    KIND = keys.OPERATIONS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: OperationsParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, op: str = "") -> None:
        """The cursor is put on `op` when it appears."""
        super().__init__()
        self.panes = ListPanes(beside_percent=37, page_keys_scroll=True)
        self.parts = OperationsParts(session, context, self, op)


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
        yield TopLine(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
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
        if not self.is_paintable or not width:
            return
        self.show((), self._lines(self.text_width), self._next_line())
        self._show_path()
        self.show_hints(without=self.without())

    def on_screen_resume(self) -> None:
        self.lay_out(self.size.width)

    def text_frame(self) -> Frame:
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
        return {"plan_undo"} if self._console_context.arming.read_only else set()

    @work(exclusive=True, group="plan")
    async def action_plan_undo(self) -> None:
        await show_undo(self, self._session, self._console_context, self._one.operation)

    def copies(self) -> tuple[Copy, ...]:
        entries = self._entries if isinstance(self._entries, tuple) else ()
        lines = self._lines(100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        ids = "\n".join(entry.row.id for entry in entries)
        op = Copy("o", "operation", self._one.operation.op)
        return (op, *((Copy("i", "ids", ids),) if ids else ()), Copy("t", "text", text))
