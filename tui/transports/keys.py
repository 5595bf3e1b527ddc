"""The keys of the transports screen in the order of their hints: what each does, when it is
refused.
"""

from __future__ import annotations

from functools import partial

from engine.index.filter_language import equality_filter, format_term
from engine.index.schema import Query
from engine.model import State
from engine.text.safe import safe_line
from tui.plan.open_plan import plan_rows
from tui.plan.planning import VerbRequest
from tui.screens.base import PASTED
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.rows_parts import Change
from tui.screens.target import Target
from tui.text import keys
from tui.transports.board import HOUR_MINUTES
from tui.transports.failures import LOG_WORDS
from tui.transports.parts import TransportParts


def open_row(parts: TransportParts) -> Change:
    """Open the latest errors of the transport, or the tasks of the destination."""
    if (one := parts.destination) is None:
        parts.screen.go(Target(keys.FAILURES, id=parts.screen.cursor.key))
        return Change.NOTHING
    words = format_term("dest", "=", one.destination.origin)
    failed = one.tasks is not None and one.tasks.all_failed
    state = State.DEAD if failed else State.PENDING
    parts.screen.go(Target(keys.LIST, state=state, filter=words))
    return Change.NOTHING


def next_range(parts: TransportParts) -> Change:
    """Show the last hour in the graph, or ten minutes: the log is read one hour back."""
    parts.minutes = 10 if parts.minutes == HOUR_MINUTES else HOUR_MINUTES
    return Change.ROWS


def open_log(parts: TransportParts) -> Change:
    """Open the log lines of the transport under the cursor."""
    parts.screen.go(Target(keys.LOG, id=parts.screen.cursor.key))
    return Change.NOTHING


def retry(parts: TransportParts) -> Change:
    """Open the plan to retry all failed tasks of the destination under the cursor."""
    origin = parts.screen.cursor.key
    query = Query(State.DEAD, equality_filter("dest", origin))
    asked = VerbRequest("retry", None, query, lambda _: f"all failed for {safe_line(origin)}")
    parts.screen.open(lambda screen: plan_rows(screen, parts, asked))
    return Change.NOTHING


def plan(parts: TransportParts, pane: str, action: str = "") -> Change:
    """Open a plan for what is under the cursor."""
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    parts.screen.go(Target(pane, id=parts.screen.cursor.key, action=action))
    return Change.NOTHING


def _is_destination(parts: TransportParts) -> bool:
    return parts.destination is not None


def _open_label(parts: TransportParts) -> str | None:
    return "tasks" if _is_destination(parts) else None


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
        open_row,
        refusal=TransportParts.open_refusal,
        label=_open_label,
    ),
    KeyRow(
        key("pane(1)"),
        lambda parts: parts.screen.switch_pane(),
        is_absent=lambda parts: parts.board is not None,
    ),
    own(
        "graph_range | z | z | range | View +minor | graph: the last hour, or 10 minutes",
        next_range,
        is_absent=lambda parts: parts.board is None,
    ),
    own(
        LOG_WORDS,
        open_log,
        refusal=TransportParts.no_transport_reason,
        is_absent=_is_destination,
    ),
    KeyRow(key("reread"), TransportParts.reread),
    *make.views(),
    own(
        "plan('retry') | R | R | retry failed | Act | plan to send again what failed for this "
        "destination",
        retry,
        refusal=TransportParts.retry_refusal,
        is_absent=lambda parts: parts.is_fixed or not _is_destination(parts),
    ),
    make.goes(key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    own(
        "suspend | S | S | suspend | Act | plan to suspend or resume a transport, block or "
        "unblock a destination",
        partial(plan, pane=keys.SUSPEND),
        refusal=TransportParts.suspend_refusal,
        is_absent=lambda parts: parts.is_fixed,
        label=_suspend_label,
    ),
    own(
        "probe | O | O | probe | Act | plan to probe this destination now",
        partial(plan, pane=keys.SUSPEND, action="probe"),
        refusal=TransportParts.probe_refusal,
        is_absent=lambda parts: parts.is_fixed or not _is_destination(parts),
    ),
    own(
        "trial | M | M | test mail | Act | plan one test mail via this transport only",
        partial(plan, pane=keys.TEST_MAIL),
        refusal=TransportParts.test_mail_refusal,
        is_absent=lambda parts: parts.is_fixed or _is_destination(parts),
    ),
    make.arm(Change.EDGES, lambda parts: parts.is_fixed),
    *make.ends(),
)
"""All keys; pressing one is the Textual action `key` of the screen."""
