"""Screen of the operations of all places, of the last 24 hours or up to 30 days: details, undo,
resume, abandon; and of one of them in full: who, why, and the result of each row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from textual import work
from textual.app import ComposeResult

from engine.operations.journal import Operation
from engine.operations.retention import JOURNAL_DAYS
from engine.policy import DAY_SECONDS
from engine.store import StoreError, Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.confirm.action_screen import show_action
from tui.operations import operation_lines as view
from tui.operations import undo_plans
from tui.operations.operation_lines import ListedOperation
from tui.operations.undo_plans import AbandonAction
from tui.plan.planning import preparing
from tui.plan.result_rows import (
    TaskResult,
    TaskStates,
    journal_results,
    read_states,
    result_table,
)
from tui.screens.base import PASTED, BaseScreen, Copy, key_bindings
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.edge_lines import TopLine
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.message import Message
from tui.screens.page import Page
from tui.screens.place_foot import PlaceBox
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import FIXED_LINES, ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.history import HISTORY_SECONDS, OLD_SECONDS, operation_name
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame, frame_border, more_below
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line
from tui.text.table import Choice, ShownRows
from tui.widgets.line_widgets import Lines, LongText

JOURNAL_READ_SECONDS = 1.0

RANGES: Sequence[tuple[str, float]] = (
    ("24 h", HISTORY_SECONDS),
    ("7 days", 7 * DAY_SECONDS),
    ("30 days", JOURNAL_DAYS * DAY_SECONDS),
)
"""How far back the list goes: words, and seconds. The last one is all that a journal keeps."""


MAX_OPERATIONS = 1_000
"""Operations that are listed; the count includes all."""


class PlacedOperation(NamedTuple):
    """An operation, and the place that its journal belongs to."""

    session: PlaceSession
    listed: ListedOperation

    @property
    def operation(self) -> Operation:
        """The operation as the journal has it."""
        return self.listed.operation

    @property
    def key(self) -> str:
        """The key of its row: ids of two journals may be the same."""
        return row_key(self.session.number, self.operation.op)


def row_key(place: int, op: str) -> str:
    """The key of the row of an operation; "" for none."""
    return f"{place} {op}" if op else ""


class OperationsParts(RowsParts):
    """The operations of all places; those that need a decision first, then the newest."""

    is_of_one_place = False

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
        sessions: Sequence[PlaceSession],
        op: str = "",
    ) -> None:
        """The cursor is put on the operation `op` of `session` when it appears."""
        super().__init__(session, context, screen, row_key(session.number, op))
        journals = {
            one.place.journal.folder: one for one in reversed(sessions) if one.place.journal
        }
        self.sessions = [one for one in sessions if one in journals.values()] or [session]
        """The places with a journal; of a place that is open twice the first one."""
        self.listed: Sequence[PlacedOperation] = ()
        """In the order of the rows, as painted last."""
        self.has_suspended = False
        """True if one of them suspended a transport or destination, and none set it back."""
        self._amount = 0
        """The number of operations, also of those that are not listed."""
        self.range = 0
        """How far back the list goes: a row of `RANGES`."""
        self._older: dict[int, tuple[Operation, ...] | str] = {}
        """The operations of a longer range by place, or why they cannot be read."""
        self._made: tuple[object, ShownRows] = ((), ShownRows((), ()))
        """What the rows were made of, and the rows: a table of many takes long."""
        self._rows: tuple[Operation | None, str, OperationRows | str] = (None, "", "")
        """An operation as it was when its rows were read, its key, and the rows, or why there are
        none."""
        self._reading: list[str] = []
        """The key of the operation whose rows are being read; each read has a list of its own."""

    def start(self) -> None:
        for session in self.sessions:
            self.screen.run(f"operations {session.number}", partial(self._follow, session))

    async def _follow(self, session: PlaceSession) -> Change:
        """Read one journal in a loop while the screen is on top.

        Raises:
            Unavailable: the place was closed."""
        always = True
        while True:
            if self.screen.is_current:
                await session.history.refresh(always=always)
                await self._read_older(session)
                always = False
                self.screen.show_change(Change.ROWS)
                if self.selected is not None and self.selected.session is session:
                    self._ask_rows()
            await asyncio.sleep(JOURNAL_READ_SECONDS)

    async def _read_older(self, session: PlaceSession) -> None:
        if not self.range:
            return
        read: tuple[Operation, ...] | str
        try:
            read = await session.inspector.history.operations(self._since)
        except Unavailable as error:
            read = safe_line(str(error))
        if read != self._older.get(session.number):
            self._older[session.number] = read

    @property
    def _since(self) -> float:
        return self.context.clock() - RANGES[self.range][1]

    def cursor_moved(self) -> Change:
        self._ask_rows()
        return super().cursor_moved()

    def _ask_rows(self) -> None:
        """Read the rows of the operation under the cursor, and where their tasks are now; those of
        a large one only when it is opened. A read that has begun is not begun again: it may take
        longer than the time between two calls."""
        selected = self.selected
        if selected is None or self._reading == [selected.key]:
            return
        operation = selected.operation
        if operation.planned > MAX_LISTED_ROWS:
            self._rows = operation, selected.key, "many tasks: Enter shows them"
            return
        before, key, known = self._rows
        begun = self._reading = [selected.key]

        async def read() -> Change:
            try:
                # An outcome may have come since they were read.
                is_known = key == selected.key and before == operation and not operation.is_running
                rows = known if is_known else await read_rows(selected)
                self._rows = operation, selected.key, await look_again(selected, rows)
            finally:
                if self._reading is begun:  # else it was cancelled for a read that goes on
                    self._reading = []
            return Change.ROWS

        self.screen.run("rows", read)

    def next_range(self) -> Change:
        """List a longer time; after the longest the shortest again."""
        self.range = (self.range + 1) % len(RANGES)
        self._older.clear()
        self.start()
        return self.say(f"operations of the last {RANGES[self.range][0]}", "") | Change.ROWS

    def reread(self) -> Change:
        self.start()
        return self.say("journal read again", "")

    @property
    def selected(self) -> PlacedOperation | None:
        """The operation under the cursor."""
        key = self.screen.cursor.key
        return next((one for one in self.listed if one.key == key), None)

    @property
    def selected_session(self) -> PlaceSession:
        """Its place, or the one that was open before."""
        return self.selected.session if self.selected else self.session

    def _operations(self, session: PlaceSession) -> Sequence[Operation]:
        older = self._older.get(session.number, "") if self.range else ""
        return older if isinstance(older, tuple) else session.history.operations

    def _error(self) -> str:
        """The first journal that cannot be read, and why; "" if none."""
        for session in self.sessions:
            older = self._older.get(session.number)
            if why := older if self.range and isinstance(older, str) else session.history.error:
                return f"{safe_line(session.name)}: journal not readable: {safe_line(why)}"
        return ""

    def _unread(self) -> Sequence[str]:
        """The places whose journal was not read so far."""
        return [
            safe_line(session.name)
            for session in self.sessions
            if not session.history.is_read or (self.range and session.number not in self._older)
        ]

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return (keys.OPERATIONS,)

    def rows(self, width: int) -> ShownRows:
        """The rows, made again if an operation has changed, and each minute: the time left for an
        undo has no seconds."""
        now = self.context.clock()
        read = [
            (self._operations(one), dict(one.history.half_moved), int(one.history.age or 0))
            for one in self.sessions
        ]
        made_of = (read, self.range, width, now // 60)
        if self._made[0] != made_of:
            self._made = made_of, self._make_rows(width, now)
        return self._made[1]

    def _make_rows(self, width: int, now: float) -> ShownRows:
        is_several, placed = len(self.sessions) > 1, list[PlacedOperation]()
        for session in self.sessions:
            half, place = session.history.half_moved, session.name if is_several else ""
            listed = view.list_operations(self._operations(session), half, place)
            recent = (one for one in listed if one.operation.started >= self._since)
            placed += [PlacedOperation(session, one) for one in recent]
        placed.sort(
            key=lambda one: (not view.needs_decision(one.operation), -one.operation.started)
        )
        # Only those that are shown: of ten thousand this would take a fifth of the time.
        self._amount = len(placed)
        self.listed = [
            one._replace(listed=one.listed._replace(age=one.session.history.age))
            for one in placed[:MAX_OPERATIONS]
        ]
        self.has_suspended = any(one.listed.suspended for one in self.listed)
        ones = [one.listed for one in self.listed]
        head, lines = view.operation_table(ones, now, width, read_only=is_read_only(self))
        rows = [Choice(one.key, line) for one, line in zip(self.listed, lines, strict=True)]
        left = self._amount - len(rows)
        foot: list[Line] = [((f"   +{left:,} older", "muted"),)] if left else []
        return ShownRows(head, rows, foot)

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is not None:
            lines = view.detail_lines(selected.listed, self.context.clock(), width)
            _, key, rows = self._rows
            if why := selected.session.inspector.latest.unavailable:  # where the tasks are now
                key, rows = selected.key, f"? {safe_line(why)}"
            return lines + _rows_of(selected, rows if key == selected.key else "loading ...", width)
        if all(session.place.journal is None for session in self.sessions):
            words = "this place has no journal"
        else:
            nothing = f"no operations in the last {RANGES[self.range][0]}"
            words = self._error() or self.no_row_reason(nothing)
            if unread := self._unread():
                words = f"loading: {', '.join(unread)}"
        return [((f" {words}", "muted"),)]

    def rows_frame(self) -> Frame:
        is_old = any(session.history.age is not None for session in self.sessions)
        partial_sign = "+" if is_old or self._error() or self._unread() else ""
        since = ((f"last {RANGES[self.range][0]}", "muted"),)
        return Frame("Operations", "8", f"{self._amount:,}{partial_sign}", since)

    def details_frame(self, below: int) -> Frame:
        selected = self.selected
        name = "details" if selected is None else view.describe_operation(selected.operation)
        return Frame(name, right=more_below(below))

    def next_step(self, width: int) -> Line:
        selected = self.selected
        if self.listed and (why := self._error()):
            return ((f" ! {why}", "error"),)
        if selected is None:
            if self.range < len(RANGES) - 1:
                return next_line("z", f"looks further back, up to {RANGES[-1][0]}", "", width)
            return next_line("2", "opens the tasks; changes are listed here", "", width)
        operation, listed = selected.operation, selected.listed
        if listed.switched and not is_read_only(self):
            name, key = safe_line(listed.switched), "S" if listed.suspended else "u"
            return next_line(key, f"plans to {listed.way_back} {name}", name, width)
        name = f"{operation_name(operation)} {view.short_name(operation.op)}"
        record = "shows every task of it" if operation.planned else "shows its record"
        if is_read_only(self):
            return next_line("Enter", record, name, width)
        if view.needs_decision(operation):
            open_tasks = format_count(operation.open_rows, "task")
            return next_line("R", f"resumes the other {open_tasks}; D abandons", name, width)
        is_final = not view.can_undo(listed, self.context.clock())
        if is_final and operation.intent.verb == "retry" and (unsent := view.not_sent_text(listed)):
            return next_line("4", f"lists the dead tasks: {unsent}, R there sends", name, width)
        if operation.is_running or is_final or undo_plans.why_no_undo(operation):
            return next_line("Enter", record, name, width)
        return next_line("u", "plans the undo; Enter shows every task", name, width)

    def copies(self) -> tuple[Copy, ...]:
        selected = self.selected
        if selected is None:
            return ()
        lines = view.detail_lines(selected.listed, self.context.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("o", "operation", selected.operation.op), Copy("t", "text", text)


RUNS_ELSEWHERE = "another process is running it: undo is possible afterwards"

make = RowMaker[OperationsParts, Change](keys.OPERATIONS, Change.NOTHING)
own, key = make.own, make.key


def _open(parts: OperationsParts) -> Change:
    """Open the details of an operation, or its progress if it runs in this console."""
    assert parts.selected is not None  # else it is refused
    session, listed = parts.selected
    op = listed.operation.op
    if any(work.op == op for work in session.operations):
        parts.screen.go(Target(keys.RUNNING_OPERATION, place=session.number, id=op))
    else:
        record = RecordScreen(parts.selected, parts.context)
        parts.screen.open(lambda screen: screen.app.push_screen(record))
    return Change.NOTHING


# Plans


def _why_no_plan(parts: OperationsParts) -> str:
    """Why there is no plan for the operation under the cursor."""
    if is_read_only(parts):
        return READ_ONLY
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no operation here")
    works = (work for work in selected.session.operations if work.op == selected.operation.op)
    is_own = any(work.ended is None for work in works)
    return "running: Enter shows it, u there undoes" if is_own else ""


def _why_no_undo(parts: OperationsParts) -> str:
    selected = parts.selected
    if selected is not None and selected.listed.switched:
        return _why_no_way_back(parts)
    if (why := _why_no_plan(parts)) or selected is None:
        return why
    if selected.operation.is_running:
        return RUNS_ELSEWHERE
    why = undo_plans.why_no_undo(selected.operation)
    return f"no plan: {why}" if why else ""


def _why_no_rest(parts: OperationsParts, verb: str) -> str:
    """Why the operation under the cursor cannot be resumed or abandoned."""
    if (why := _why_no_plan(parts)) or parts.selected is None:
        return why
    is_interrupted = parts.selected.operation.is_interrupted
    return "" if is_interrupted else f"nothing to {verb}: not interrupted"


def _undo_label(parts: OperationsParts) -> str | None:
    """No hint where nothing is left to undo."""
    if (selected := parts.selected) is None or selected.listed.switched:
        return None
    return None if view.can_undo(selected.listed, parts.context.clock()) else ""


def _rest_label(parts: OperationsParts) -> str | None:
    """No hint where nothing is left to move."""
    selected = parts.selected
    return None if selected is not None and selected.operation.is_interrupted else ""


async def _show_plan(
    screen: BaseScreen,
    placed: PlacedOperation,
    context: ConsoleContext,
    verb: str,
    done: Callable[[], object] = lambda: None,
) -> None:
    """Open a plan for an operation as the journal has it now, or show why there is none; `done` is
    called once it is abandoned."""
    session, listed = placed.session, placed.operation
    try:
        with preparing(screen, undo_plans.plan_words(verb, listed)):
            operation = await session.history.operation(listed.op)
    except Unavailable as error:
        screen.say(f"no plan: {error}")
        return
    if operation is None:
        screen.say("no longer in the journal")
    elif operation.is_running:
        screen.say(RUNS_ELSEWHERE)
    elif verb == "undo":
        await undo_plans.show_undo(screen, session, context, operation)
    elif not operation.is_interrupted:
        screen.say(f"nothing to {verb}: not interrupted")
    elif verb == "resume":
        await undo_plans.show_resume(screen, session, context, operation)
    elif screen.app.screen is screen:
        half_moved = session.history.half_moved.get(operation.op, 0)
        action = AbandonAction(ListedOperation(operation, half_moved=half_moved), session)
        show_action(screen, action, session, context, done)


def _plan(parts: OperationsParts, verb: str) -> Change:
    """Open a plan for the operation under the cursor, as the journal has it then."""
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    assert parts.selected is not None  # else it is refused
    placed = parts.selected

    def begin(screen: BaseScreen) -> None:
        async def prepare() -> Change:
            await _show_plan(screen, placed, parts.context, verb, parts.start)
            return Change.NOTHING

        parts.screen.run("plan", prepare)

    parts.screen.open(begin)
    return Change.NOTHING


def _undo(parts: OperationsParts) -> Change:
    if parts.selected is not None and parts.selected.listed.switched:
        return _set_back(parts)
    return _plan(parts, "undo")


# Transports and destinations


def _why_no_way_back(parts: OperationsParts) -> str:
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no operation here")
    place, switched = selected.session.place, selected.listed.switched
    why_not = place.why_no_destinations if "://" in switched else place.why_no_mail
    return why_not(is_read_only(parts))


def _why_not_suspended(parts: OperationsParts) -> str:
    selected = parts.selected
    if selected is not None and not selected.listed.suspended:
        return "nothing to resume: it suspends no transport now"
    return _why_no_way_back(parts)


def _set_back(parts: OperationsParts) -> Change:
    """Open the plan to set back the transport or destination that an operation switched."""
    assert parts.selected is not None  # else it is refused
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    place, name = parts.selected.session.number, parts.selected.listed.switched
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
    KeyRow(
        key("plan_undo", keys.RECORDED_OPERATION),
        _undo,
        _why_no_undo,
        is_absent=_has_none,
        label=_undo_label,
    ),
    KeyRow(
        key("go_on", keys.RECORDED_OPERATION),
        partial(_plan, verb="resume"),
        partial(_why_no_rest, verb="resume"),
        is_absent=_has_none,
        label=_rest_label,
    ),
    KeyRow(
        key("drop", keys.RECORDED_OPERATION),
        partial(_plan, verb="abandon"),
        partial(_why_no_rest, verb="abandon"),
        is_absent=_has_none,
        label=_rest_label,
    ),
    own(
        "suspend | S | S | resume | Act | plan to resume the transport that this operation "
        "suspended",
        _set_back,
        refusal=_why_not_suspended,
        is_absent=lambda parts: _has_none(parts) or not parts.has_suspended,
    ),
    own(
        "range | z | z | 24h-30d | View | how far back: 24 hours, 7 days, 30 days",
        OperationsParts.next_range,
    ),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(key("reread"), OperationsParts.reread),
    *make.views(),
    make.arm(Change.EDGES, _has_none),
    *make.ends(),
)


class OperationsScreen(RowsScreen):
    """The operations of all places."""

    KIND = keys.OPERATIONS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: OperationsParts

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        sessions: Sequence[PlaceSession],
        op: str = "",
    ) -> None:
        """The cursor is put on the operation `op` of `session` when it appears."""
        super().__init__()
        self.panes = ListPanes(page_keys_scroll=True)
        self.parts = OperationsParts(session, context, self, sessions, op)


MAX_LISTED_ROWS = 2000
"""Maximum number of rows listed; the counts include all."""


class OperationRows(NamedTuple):
    """The first results of an operation, and where their tasks are now."""

    results: Sequence[TaskResult]
    now: TaskStates = TaskStates()


async def read_rows(one: PlacedOperation) -> OperationRows | str:
    """The results of the first rows of an operation; else why it has none."""
    if not one.operation.planned:
        return ""
    inspector = one.session.inspector
    try:
        entries = await inspector.history.entries(one.operation, MAX_LISTED_ROWS)
    except StoreError as error:
        return f"tasks not readable: {error}"
    intent, states = one.operation.intent, inspector.states
    return OperationRows(journal_results(entries, intent.verb, states, intent.past))


async def look_again(one: PlacedOperation, rows: OperationRows | str) -> OperationRows | str:
    """The same rows, with where their tasks are now."""
    if isinstance(rows, str):
        return rows
    ids = {result.id for result in rows.results}
    return rows._replace(now=await read_states(one.session.inspector, ids))


def _rows_of(one: PlacedOperation, rows: OperationRows | str, width: int) -> list[Line]:
    """The rows below the facts of an operation."""
    if isinstance(rows, str):
        return [BLANK_LINE, ((f" {safe_line(rows)}", "muted"),)] if rows else []
    planned, words = one.operation.planned, one.session.inspector.states
    return [BLANK_LINE, *result_table(rows.results, planned, rows.now, words, width)]


class RecordScreen(Page):
    """One operation as the list had it; one of the last 24 hours is read again each time the screen
    comes to the top."""

    KIND = keys.RECORDED_OPERATION
    BINDINGS = key_bindings(keys.RECORDED_OPERATION)

    def __init__(self, placed: PlacedOperation, context: ConsoleContext) -> None:
        super().__init__()
        self._placed, self._console_context = placed, context
        self._session, self._one = placed
        self._opened_at = context.clock()
        self._rows: OperationRows | str = "loading ..."
        self._message = Message(context.clock)
        self._text = LongText(id="text")
        self._body = PlaceBox(self._text)

    def compose(self) -> ComposeResult:
        yield TopLine(id="title")
        yield self._body
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        self._read()
        # Also while the journal does not answer: what is on screen is then marked as old.
        self.set_interval(1.0, self._show_again)

    def _show_again(self) -> None:
        if self.is_current:
            self.lay_out(self.size.width)

    @work(exclusive=True, group="rows")
    async def _read(self) -> None:
        self._rows = await read_rows(self._placed)
        shown: OperationRows | str | None = None
        while self.is_attached:
            if self.is_current:
                self._rows = await look_again(self._placed, self._rows)
                if self._rows != shown:  # else the interval lays out
                    shown = self._rows
                    self._show_again()
            await asyncio.sleep(JOURNAL_READ_SECONDS)

    def lay_out(self, width: int) -> None:
        if not self.is_paintable or not width:
            return
        lines = self._lines(self.text_width)
        self._message.ends()
        self.show((), lines, self._message.line or self._next_line())
        needed = {self._text: frame_border(*self.size) + len(lines)}
        self._body.stack(needed, self._text, self._session, fixed=FIXED_LINES)
        trail = (self._session.name, "operations", view.short_name(self._one.operation.op))
        self.query_one(TopLine).update_line(self._console_context, trail)
        arm = keys.arm_hint(self._console_context.arming.is_armed)
        self.show_hints(without=self.without(), words={"arm": arm})

    def go(self, target: Target) -> None:
        """Open another screen; without a place that of the operation."""
        super().go(target._replace(place=target.place or self._session.number))

    def on_screen_resume(self) -> None:
        self.lay_out(self.size.width)
        self._read_again()  # a plan that was opened from here may have changed it

    @work(exclusive=True, group="record")
    async def _read_again(self) -> None:
        history, op = self._session.history, self._one.operation.op
        with suppress(Unavailable):
            await history.refresh(always=True)
        listed = view.list_operations(history.operations, history.half_moved, self._one.place)
        one = next((one for one in listed if one.operation.op == op), None)
        if one is None or one == self._one._replace(age=None):
            return  # older than what is read, or the same
        self._one, self._opened_at = one, self._console_context.clock()
        self._placed = self._placed._replace(listed=one)
        self._show_again()
        self._read()  # in place of a read of the old record

    def text_frame(self) -> Frame:
        return Frame(view.describe_operation(self._one.operation))

    def _next_line(self) -> Line:
        operation, width = self._one.operation, self.size.width
        name = view.short_name(operation.op)
        without = self.without()
        if "go_on" not in without:
            does = f"resumes the other {format_count(operation.open_rows, 'task')}; D abandons"
            return next_line("R", does, name, width)
        if "plan_undo" in without:
            return next_line("Esc", "goes back to the operations", name, width)
        return next_line("u", "plans the undo", name, width)

    def _lines(self, width: int) -> list[Line]:
        now = self._console_context.clock()
        age = now - self._opened_at if now - self._opened_at >= OLD_SECONDS else None
        lines = view.detail_lines(self._one._replace(age=age), now, width)
        lines += view.note_lines(self._one.operation, width)
        return lines + _rows_of(self._placed, self._rows, width)

    def without(self) -> set[str]:
        context, operation = self._console_context, self._one.operation
        if context.arming.read_only:
            return {"plan_undo", "go_on", "drop", "arm"}
        none = set[str]() if view.needs_decision(operation) else {"go_on", "drop"}
        return none if view.can_undo(self._one, context.clock()) else none | {"plan_undo"}

    def say(self, text: str, style: str = "warn") -> None:
        self._message.say(text, style)
        self.lay_out(self.size.width)

    def action_arm(self) -> None:
        self.say(PASTED if self.is_pasted else self._console_context.arming.toggle())

    def action_plan_undo(self) -> None:
        self._plan("undo")

    def action_go_on(self) -> None:
        self._plan("resume")

    def action_drop(self) -> None:
        self._plan("abandon")

    @work(exclusive=True, group="plan")
    async def _plan(self, verb: str) -> None:
        context = self._console_context
        if self.is_pasted or context.arming.read_only:
            self.say(PASTED if self.is_pasted else READ_ONLY)
        else:
            await _show_plan(self, self._placed, context, verb)

    def copies(self) -> tuple[Copy, ...]:
        lines = self._lines(100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        ids = "" if isinstance(self._rows, str) else "\n".join(one.id for one in self._rows.results)
        op = Copy("o", "operation", self._one.operation.op)
        return (op, *((Copy("i", "ids", ids),) if ids else ()), Copy("t", "text", text))
