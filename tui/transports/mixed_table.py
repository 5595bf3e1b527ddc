"""The table of mail transports and destinations together: one kind of row for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.destinations.watch import DestinationState, SeenDestination
from engine.monitor.transport_health import (
    Health,
    MailHealth,
    MailRoutes,
    TransportHealth,
    TransportUse,
)
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.lines import Line, Run
from tui.text.table import REST, Column, Table, alarm_sign
from tui.text.times import format_seconds
from tui.transports import destination_lines
from tui.transports import transport_lines as mail
from tui.transports.destination_lines import BY_CODE, WHY
from tui.transports.transport_lines import HOUR_WINDOW

MAX_ROWS = 200
"""Maximum destinations on the screen: those that need an operator are first."""


class SendingRow(NamedTuple):
    """A mail transport or a destination of deliveries, as a row."""

    key: str
    """Name of the transport, or origin of the destination."""
    name: str
    state: Run
    is_wrong: bool
    rank: int
    """Order in the table: 0 needs an operator."""
    cells: Mapping[str, Run]
    """By the title of the column; one that does not apply is missing."""


_NOT_APPLICABLE: Run = ("-", "muted")


def _destination_row(one: SeenDestination, now: float) -> SendingRow:
    origin = one.destination.origin
    is_wrong = one.state is DestinationState.UNHEALTHY
    needs = is_wrong or one.can_recover or one.state is DestinationState.BLOCKED
    rank = 0 if needs else 1 if one.state is DestinationState.OK else 2
    name, state = destination_lines.short_origin(origin), destination_lines.state_run(one)
    cells = destination_lines.cells(one, now)
    return SendingRow(origin, name, state, is_wrong=is_wrong, rank=rank, cells=cells)


def _transport_row(
    transport: TransportHealth, limit: float, now: float, routes: MailRoutes | None
) -> SendingRow:
    health = transport.health(limit)
    stop = mail.suspension_of(transport, routes)
    latest = max(transport.faults, key=lambda fault: fault.last, default=None)
    use = TransportUse.FOREIGN if routes is None else routes.use(transport.name)
    why: Run = mail.USES[use] if use is not TransportUse.FOREIGN else ("", "")
    if stop is not None:
        since = format_seconds(now - stop.since)
        why = f"{since}: {safe_line(stop.why or stop.who)}", ""
    elif health is Health.FAILING and latest is not None:
        why = safe_line(latest.example), ""
    cells = {
        "FAILED": mail.count_run(transport.windows[HOUR_WINDOW], "failed", 6),
        "LAST": mail.last_sent(transport, now),
        WHY: why,
        BY_CODE: (safe_line(latest.example) if latest is not None else "", ""),
    }
    name, state = transport.name, mail.state_run(transport, limit)
    is_wrong = health is Health.FAILING
    rank = 0 if is_wrong or stop else 1 if health is Health.OK else 2
    return SendingRow(name, safe_line(name), state, is_wrong=is_wrong, rank=rank, cells=cells)


def sending_rows(
    sending: MailHealth,
    destinations: Sequence[SeenDestination],
    limit: float,
    now: float,
    routes: MailRoutes | None,
    most: int | None = MAX_ROWS,
) -> list[SendingRow]:
    """The rows, what needs an operator first; otherwise in the order of both. At most `most`
    destinations, None: all."""
    transports = mail.sort_transports(sending, limit, routes)
    rows = [_destination_row(one, now) for one in destinations[:most]]
    rows += [_transport_row(transport, limit, now, routes) for transport in transports]
    return sorted(rows, key=lambda row: row.rank)


def _cell(title: str) -> Callable[[SendingRow], Run]:
    return lambda row: row.cells.get(title, _NOT_APPLICABLE)


COLUMNS: tuple[Column[SendingRow], ...] = (
    Column("SENT TO OR BY", 13, lambda row: (row.name, "strong"), most=34, keeps_both=True),
    Column("STATE", 11, lambda row: row.state),
    Column("WAIT", 5, _cell("WAIT"), right=True, least=50),
    Column("FAILED", 6, _cell("FAILED"), right=True, least=40),
    Column("OLDEST", 6, _cell("OLDEST"), right=True, least=120),
    Column("LAST", 5, _cell("LAST"), right=True, least=84),
    Column(WHY, 12, _cell(WHY), grows=REST, rank=-1),
    Column(BY_CODE, 24, _cell(BY_CODE), least=110),
)
"""LAST is the time since the last success."""


def table(rows: Sequence[SendingRow], width: int) -> tuple[Line, list[tuple[str, Line]]]:
    """The titles, and key and line of each row."""
    gaps = (2 if width >= mail.USE_MIN_WIDTH else 1,)
    sending = Table(COLUMNS, gaps, lambda row: alarm_sign(row.is_wrong))
    head, lines = sending.lines(rows, width)
    return head, [(row.key, line) for row, line in zip(rows, lines, strict=True)]


def summary_line(rows: Sequence[SendingRow], lead: Line) -> Line:
    """How many need an operator, after the words about mail."""
    wrong = sum(row.rank == 0 for row in rows)
    needs = "needs" if wrong == 1 else "need"
    words: Run = (f"{wrong:,} {needs} attention", "warn") if wrong else ("all fine", "ok")
    return (*lead, *(((("; ", "muted"),)) if lead else ()), words)
