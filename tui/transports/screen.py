"""The screens of the mail transports and destinations, and of the latest errors of a transport; the
keys of the former."""

from __future__ import annotations

from functools import partial

from engine.index.filter_language import equality_filter, format_term
from engine.index.schema import Query
from engine.model import State
from engine.text.safe import safe_line
from tui.plan.open_plan import plan_rows
from tui.plan.planning import VerbRequest
from tui.screens.base import PASTED
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow
from tui.screens.keyed_screen import row_bindings
from tui.screens.list_panes import FIXED_LINES, ListPanes
from tui.screens.row_maker import RowMaker
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.transports.board import HOUR_MINUTES, TransportBoard, panels
from tui.transports.failures import LOG_WORDS, FailureParts
from tui.transports.failures import ROWS as FAILURE_ROWS
from tui.transports.parts import TransportParts


def _open_row(parts: TransportParts) -> Change:
    """Open the latest errors of the transport, or the tasks of the destination."""
    if (one := parts.destination) is None:
        parts.screen.go(Target(keys.FAILURES, id=parts.screen.cursor.key))
        return Change.NOTHING
    words = format_term("dest", "=", one.destination.origin)
    failed = one.tasks is not None and one.tasks.all_failed
    state = State.DEAD if failed else State.PENDING
    parts.screen.go(Target(keys.LIST, state=state, filter=words))
    return Change.NOTHING


def _next_range(parts: TransportParts) -> Change:
    """Show the last hour in the graph, or ten minutes: the log is read one hour back."""
    parts.minutes = 10 if parts.minutes == HOUR_MINUTES else HOUR_MINUTES
    return Change.ROWS


def _open_log(parts: TransportParts) -> Change:
    parts.screen.go(Target(keys.LOG, id=parts.screen.cursor.key))
    return Change.NOTHING


def _retry(parts: TransportParts) -> Change:
    """Open the plan to retry all failed tasks of the destination under the cursor."""
    origin = parts.screen.cursor.key
    query = Query(State.DEAD, equality_filter("dest", origin))
    asked = VerbRequest("retry", None, query, lambda _: f"all failed for {safe_line(origin)}")
    parts.screen.open(lambda screen: plan_rows(screen, parts, asked))
    return Change.NOTHING


def _plan(parts: TransportParts, pane: str, action: str = "") -> Change:
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    parts.screen.go(Target(pane, id=parts.screen.cursor.key, action=action))
    return Change.NOTHING


def _is_destination(parts: TransportParts) -> bool:
    return parts.destination is not None


def _suspend_label(parts: TransportParts) -> str:
    if (one := parts.destination) is not None:
        return "unblock" if one.destination.blocked else "block"
    return "resume" if parts.is_suspended else "suspend"


make = RowMaker[TransportParts, Change](keys.TRANSPORTS, Change.NOTHING)
own, key = make.own, make.key

ROWS: tuple[KeyRow[TransportParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own(
        "open | enter | Enter | errors | View | latest errors, with the server's reply; the tasks "
        "of a destination",
        _open_row,
        refusal=TransportParts.open_refusal,
        label=lambda parts: "tasks" if _is_destination(parts) else None,
    ),
    KeyRow(
        key("pane(1)"),
        lambda parts: parts.screen.switch_pane(),
        is_absent=lambda parts: parts.board is not None,
    ),
    own(
        "graph_range | z | z | range | View +minor | graph: the last hour, or 10 minutes",
        _next_range,
        is_absent=lambda parts: parts.board is None,
    ),
    own(
        LOG_WORDS, _open_log, refusal=TransportParts.no_transport_reason, is_absent=_is_destination
    ),
    KeyRow(key("reread"), TransportParts.reread),
    *make.views(),
    own(
        "plan('retry') | R | R | retry failed | Act | plan to send again what failed for this "
        "destination",
        _retry,
        refusal=TransportParts.retry_refusal,
        is_absent=lambda parts: parts.is_fixed or not _is_destination(parts),
    ),
    make.goes(key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    own(
        "suspend | S | S | suspend | Act | plan to suspend or resume a transport, block or "
        "unblock a destination",
        partial(_plan, pane=keys.SUSPEND),
        refusal=TransportParts.suspend_refusal,
        is_absent=lambda parts: parts.is_fixed,
        label=_suspend_label,
    ),
    own(
        "probe | O | O | probe | Act | plan to probe this destination now",
        partial(_plan, pane=keys.SUSPEND, action="probe"),
        refusal=TransportParts.probe_refusal,
        is_absent=lambda parts: parts.is_fixed or not _is_destination(parts),
    ),
    own(
        "trial | M | M | test mail | Act | plan one test mail via this transport only",
        partial(_plan, pane=keys.TEST_MAIL),
        refusal=TransportParts.test_mail_refusal,
        is_absent=lambda parts: parts.is_fixed or _is_destination(parts),
    ),
    make.arm(Change.EDGES, lambda parts: parts.is_fixed),
    *make.ends(),
)


class TransportsScreen(RowsScreen):
    """The health of each; on a large screen a board shows the transport under the cursor."""

    KIND = keys.TRANSPORTS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: TransportParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, aim: str = "") -> None:
        super().__init__()
        self._board = TransportBoard()
        self.panes = ListPanes(page_keys_scroll=True, board=self._board)
        self.parts = TransportParts(session, context, self, aim)

    def paint_panes(self) -> None:
        super().paint_panes()
        shown, (width, height) = self.parts.board, self.size
        self.panes.show_board(is_shown=shown is not None)
        if shown is not None:
            room = height - FIXED_LINES - self.panes.rows_height(self.size)
            self._board.show(panels(shown, width, room))


class FailuresScreen(RowsScreen):
    """The latest errors of one transport, kept up to date."""

    KIND = keys.FAILURES
    ROWS = FAILURE_ROWS
    BINDINGS = row_bindings(FAILURE_ROWS)
    parts: FailureParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, name: str) -> None:
        """`name` is the transport's name."""
        super().__init__()
        self.panes = ListPanes()
        self.parts = FailureParts(session, context, self, name)
