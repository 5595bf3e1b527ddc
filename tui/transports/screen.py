"""The screens of the mail transports and destinations, and of the latest errors of a transport;
their keys."""

from __future__ import annotations

from functools import partial

from textual.geometry import Size

from engine.index.filter_language import equality_filter, format_term
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import Failure
from engine.text.safe import safe_line
from tui.plan.open_plan import plan_rows
from tui.plan.planning import VerbRequest, usual_name
from tui.screens.base import PASTED, Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import FIXED_LINES, ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import BOX, Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows
from tui.text.times import format_time_with_age
from tui.transports import detail_lines as view
from tui.transports.board import HOUR_MINUTES, TransportBoard, panels
from tui.transports.parts import TransportParts

LOG_WORDS = "log | t | t | log | View +minor | log lines of this transport"
"""Words of the key, here and on the transports screen."""


class FailureParts(RowsParts):
    """The errors that the session has read, and the one under the cursor."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: RowsActions, transport: str
    ) -> None:
        super().__init__(session, context, screen)
        self.transport = transport

    @property
    def failures(self) -> dict[str, Failure]:
        """Errors by keys that stay the same when new errors arrive."""
        transports = self.session.readings.sending.transports
        failures = next((each.failures for each in transports if each.name == self.transport), ())
        keyed: dict[str, Failure] = {}
        for failure in reversed(failures):  # equal errors are numbered from the oldest
            same = f"{failure.when} {failure.word}"
            alike = sum(key.rpartition(" ")[0] == same for key in keyed)
            keyed[f"{same} {alike}"] = failure
        return dict(reversed(keyed.items()))

    @property
    def selected(self) -> Failure | None:
        """The error under the cursor."""
        return self.failures.get(self.screen.cursor.key)

    def open_refusal(self) -> str:
        """Why no line of the log can be opened."""
        if (selected := self.selected) is None:
            return self.no_row_reason("no error selected")
        return "time of this error unknown" if selected.when is None else ""

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, keys.TRANSPORTS, f"{safe_line(self.transport)}: errors")

    def rows(self, width: int) -> ShownRows:
        now = self.context.clock()
        rows = [
            Choice(key, view.failure_row(each, now, width)) for key, each in self.failures.items()
        ]
        return ShownRows(view.failure_head(width), rows)

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is None:
            return [((f" {self.no_row_reason('no errors known')}", "muted"),)]
        return view.failure_lines(selected, width)

    def rows_frame(self) -> Frame:
        amount = f"{len(self.failures)}"
        return Frame(f"{safe_line(self.transport)}: latest errors", "", amount)

    def details_frame(self, below: int) -> Frame:
        selected, now = self.selected, self.context.clock()
        when = None if selected is None else selected.when
        return Frame("time unknown" if when is None else format_time_with_age(when, now))

    def next_step(self, width: int) -> Line:
        key, does = "Enter", "shows its line in the log"
        if self.open_refusal():
            key, does = "", "no log line to open"
        return next_line(key, does, safe_line(self.transport), width)

    def copies(self) -> tuple[Copy, ...]:
        if (selected := self.selected) is None:
            return ()
        text = (Copy("t", "server reply", selected.text),) if selected.text else ()
        return (Copy("e", "error", selected.word), *text)


def _open_line(parts: FailureParts) -> Change:
    if (selected := parts.selected) is not None:
        parts.screen.go(Target(keys.LOG, at=selected.when, line=selected.line))
    return Change.NOTHING


def open_log(parts: FailureParts) -> Change:
    """Open the log lines of the transport."""
    parts.screen.go(Target(keys.LOG, id=parts.transport))
    return Change.NOTHING


_make = RowMaker[FailureParts, Change](keys.FAILURES, Change.NOTHING)

FAILURE_ROWS: tuple[KeyRow[FailureParts, Change], ...] = (
    *_make.moves(lambda parts, how: parts.move(how)),
    _make.own(
        "open | enter | Enter | log | View | the log at the time of this error",
        _open_line,
        refusal=FailureParts.open_refusal,
    ),
    _make.own(LOG_WORDS, open_log),
    KeyRow(_make.key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    *_make.views(),
    _make.goes(_make.key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    *_make.ends(),
)


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


def _retry_label(parts: TransportParts) -> str:
    tasks = None if parts.destination is None else parts.destination.tasks
    amount = 0 if tasks is None else tasks.all_failed
    return f"{usual_name('retry', amount, picked=False)} failed"


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
        label=_retry_label,
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
            room = Size(width, height - FIXED_LINES - self.panes.rows_height(self.size))
            self._board.show(panels(shown, width, room.height), room, BOX)


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
