"""Screen of the operations of the last 24 hours: details, undo, resume, abandon.

It shows its parts (`tui.operations.operations_parts`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from engine.operations.journal import Operation
from engine.store import Unavailable
from tui.confirm.action_screen import show_action
from tui.operations import undo_plans
from tui.operations.abandon_action import AbandonAction
from tui.operations.operation_lines import ListedOperation
from tui.operations.operations_parts import OperationsParts
from tui.plan.planning import preparing
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys

Show = Callable[[OperationsParts, BaseScreen, Operation], Awaitable[None]]
"""Opens a plan for an operation."""

RUNS_ELSEWHERE = "another process is running it: undo is possible afterwards"

make = RowMaker[OperationsParts, Change](keys.OPERATIONS, Change.NOTHING)
own, key = make.own, make.key


def _reread(parts: OperationsParts, words: str = "journal read again") -> Change:
    """Read the journal again."""

    async def read() -> Change:
        await parts.session.history.refresh(always=True)
        return Change.ROWS | (parts.say(words, "") if words else Change.NOTHING)

    parts.screen.run("reread", read)
    return Change.NOTHING


def _open(parts: OperationsParts) -> Change:
    """Open the details of an operation, or its progress if it runs in this console."""
    from tui.operations.record_screen import RecordScreen

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
    interrupted ones only.
    """
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


def _plan(parts: OperationsParts, show: Show, verb: str) -> Change:
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
            await show(parts, screen, operation)
            return Change.NOTHING

        parts.screen.run("plan", prepare)

    parts.screen.open(begin)
    return Change.NOTHING


async def _show_undo(parts: OperationsParts, screen: BaseScreen, operation: Operation) -> None:
    await undo_plans.show_undo(screen, parts.session, parts.context, operation)


async def _show_resume(parts: OperationsParts, screen: BaseScreen, operation: Operation) -> None:
    await undo_plans.show_resume(screen, parts.session, parts.context, operation)


async def _show_abandon(parts: OperationsParts, screen: BaseScreen, operation: Operation) -> None:
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
    return _plan(parts, _show_undo, "undo")


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
        partial(_plan, show=_show_resume, verb="resume"),
        refusal=partial(_why_no_plan, other="resume"),
        is_absent=_has_none,
    ),
    own(
        "drop | D | D | abandon | Act | plan to abandon an interrupted operation: its remaining "
        "rows stay",
        partial(_plan, show=_show_abandon, verb="abandon"),
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
"""All keys in the order of their hints; pressing one is the Textual action `key` of the screen."""


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
