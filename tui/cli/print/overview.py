"""`overview`: print one line per place, the alerts, and the ages of the tasks; with --at the places
as recorded at a time of the last day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from engine.formats.base.format import Setup
from engine.index.age_table import BOUNDS_MINUTES, Ages, summarize_ages
from engine.locks.token_buckets import BucketState
from engine.logs.log_filter import parse_typed_time
from engine.model import State
from engine.monitor import forecast
from engine.monitor.alerts import Alert, needs_attention
from engine.monitor.recorded_history import MissingSpan, RecordedHistory
from engine.monitor.recorder import DAY_SECONDS, UnreadableRecording, read_samples
from engine.monitor.recorder import EncodedSample as Recorded
from engine.monitor.throughput import MIN_RATE_SECONDS
from engine.places.place import Place
from engine.store import Unavailable
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.cli.print.transports import as_json
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import parse_place_filter, scan_once
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.operations import worker_lines
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import snapshot
from tui.overview.snapshot import PlaceSnapshot
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import kind_figures, worker_rows
from tui.text import table
from tui.text.lines import BLANK_LINE, Line, cut_line, heading_line
from tui.text.styles import bracket_chips
from tui.text.task_row import time_fields, with_times
from tui.transports import transport_lines as ways

MAX_AGE_ROWS, MAX_WARNING_LINES = 12, 6
"""Maximum lines for an age table, and for warnings with their heading."""


class OverviewReport(NamedTuple):
    """What was read about one place."""

    session: PlaceSession
    table: tuple[State, Ages] | None
    """None if the place cannot be read."""


def overview(setup: Setup, places: list[str], *, filter: str, over: float, at: str) -> Answer:
    """Print every place; exit 0 OK, 1 needs attention, 2 one cannot be read."""
    opened = open_places(setup, places)
    if at:
        return _past_overview(opened, at, {"filter": filter, "over": over})

    async def ask(sessions: Sequence[PlaceSession]) -> list[OverviewReport]:
        await asyncio.sleep(over)  # the places are followed during this time
        if over > MIN_RATE_SECONDS:
            await asyncio.gather(*map(_wait_for_rates, sessions))
        return [await _read_place(session, filter) for session in sessions]

    reports = scan_once(opened, ask)
    now = time.time()
    is_calm = not any(needs_attention(report.session.alerts) for report in reports)
    return Answer(
        lambda: {"places": [_as_row(report, now) for report in reports]},
        lambda: _page(reports, now, columns()),
        UNREADABLE if any(each.table is None for each in reports) else OK if is_calm else ATTENTION,
    )


async def _wait_for_rates(session: PlaceSession) -> None:
    """Wait until the rates of a place are known: on a busy machine its first count is late."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 2 * MIN_RATE_SECONDS
    while session.flow.rates(session.clock()) is None and loop.time() < end:
        if session.inspector.latest.unavailable:
            return
        await asyncio.sleep(0.1)


async def _read_place(session: PlaceSession, filter: str) -> OverviewReport:
    while session.readings.sending.is_reading:
        await session.wait_for_readings()  # reading the last hour of a long log takes several scans
    while session.place.task_folders and session.counted_before_read is None:
        if session.inspector.latest.unavailable:
            break
        await session.wait_for_readings()  # the metrics are compared with counts from before a read
    try:
        if session.inspector.latest.unavailable:
            raise Unavailable(session.inspector.latest.unavailable)
        await session.query_backlog()
        if session.measuring is not None:
            await session.measuring
        return OverviewReport(
            session,
            await index_queries.first_useful_ages(session, parse_place_filter(filter, session)),
        )
    except Unavailable:
        session.evaluate_alerts()
        return OverviewReport(session, None)  # its line and its alert have the reason


def _page(reports: Sequence[OverviewReport], now: float, width: int) -> list[Line]:
    sessions = [report.session for report in reports]
    names = table.short_names([session.place.name for session in sessions])
    short_by_name = dict(zip([session.place.name for session in sessions], names, strict=True))
    alerts = [alert for session in sessions for alert in session.alerts]
    cells = view.table_layout((), width).spark or view.SPARKLINE_CELLS
    place_lines = [view.live_line(session, now, cells) for session in sessions]
    head, rows = view.place_table(place_lines, now, width)
    lines = _alerts(alerts, short_by_name, alert_view.no_alerts_line(True), width)
    lines += [BLANK_LINE, head]
    for at, row in enumerate(rows):
        lines += [row, *(line for _, line in view.part_lines(place_lines, at, now, width))]
    for report, name in zip(reports, names, strict=True):
        lines += _ages(report, name, width)
        forecasts = report.session.forecasts()
        lines += snapshot.forecast_lines(forecasts, width, len(forecasts))
        if report.session.place.tokens is not None:
            lines.append(view.tokens_line(report.session.readings.tokens, width))
    logs = [(name, session.readings.log) for name, session in zip(names, sessions, strict=True)]
    lines += [BLANK_LINE, heading_line("Recent warnings", width)]
    return [*lines, *view.warning_lines(logs, width, MAX_WARNING_LINES)]


def _alerts(
    alerts: Sequence[Alert], names: Mapping[str, str], none: Line, width: int
) -> list[Line]:
    in_order = alert_view.sort_alerts(alerts)
    lines = alert_view.alert_lines(in_order, names, width)
    return [*map(bracket_chips, lines)] or [none]


def _tokens(tokens: Sequence[BucketState] | str) -> list[dict[str, object]] | None:
    return (
        None if isinstance(tokens, str) else [with_times(one._asdict(), "next") for one in tokens]
    )


def _ages(report: OverviewReport, name: str, width: int) -> list[Line]:
    if report.table is None or not report.table[1].total.total:
        return []
    state, ages = report.table
    word = report.session.inspector.states.get(state, state)
    table = age_view.table_lines(ages, None, width, MAX_AGE_ROWS)
    heading = age_view.table_heading(ages, name, word, report.session.place)
    summary = ((f" backlog {safe_line(summarize_ages(ages))}", ""),)
    return [BLANK_LINE, heading_line(heading, width), *table, cut_line(summary, width)]


def _as_row(report: OverviewReport, now: float) -> dict[str, object]:
    """Task counts per age, by upper bounds in minutes; the last count has no bound."""
    line = view.live_line(report.session, now, view.SPARKLINE_CELLS)
    row = view.place_values(line, now)
    row["queues"] = [
        {
            "queue": part.name,
            "tasks": {line.words[state]: number for state, number in part.counts.items()},
            "oldest_pending_age": None if part.oldest is None else round(now - part.oldest, 1),
            "out_per_second": None if part.outward is None else round(part.outward, 3),
        }
        for part in line.parts
    ]
    row["alerts"] = [alert_view.alert_row(alert) for alert in report.session.alerts]
    workers = worker_rows(report.session, now)
    row["workers"] = [worker_lines.worker_values(worker, now) for worker in workers]
    kinds = kind_figures(report.session, now)
    row["kinds"] = [worker_lines.kind_values(report.session.place.name, one) for one in kinds]
    tokens = report.session.readings.tokens
    host = report.session.readings.host
    row["host"] = None if host is None else host._asdict()
    row["forecasts"] = forecast.as_row(report.session.forecasts())
    row["tokens"] = _tokens(tokens)
    row["ages"] = None
    if report.table is not None:
        state, ages = report.table
        row["ages"] = {
            "state": report.session.inspector.states.get(state, str(state)),
            "by": ages.by,
            "unit": ages.unit,
            "bounds": list(BOUNDS_MINUTES),
            "rows": {row.name: list(row.counts) for row in ages.rows},
            "total": list(ages.total.counts),
            "unknown": ages.total.unknown,
            "others": ages.others,
            "reading": summarize_ages(ages),
        }
    return row


def _past_overview(places: Sequence[Place], text: str, others: Mapping[str, object]) -> Answer:
    """Every place as recorded at the time of a text; exit 0 OK, 1 needed attention, 2 one has no
    record. `others`: values of options that do not go with it."""
    now = time.time()
    try:
        at = parse_typed_time(text, now)
    except ValueError as error:
        fail(EX_USAGE, f"--at {safe_line(text)}: {error}")
    for option, value in others.items():
        if value:
            fail(EX_USAGE, f"--at and --{option}: only counts are recorded, not single tasks")
    limits = [place.alerts.transport_failures for place in places]
    histories = [_recorded_history(place, at) for place in places]
    width = columns()
    cells = view.table_layout((), width).spark or view.SPARKLINE_CELLS
    snapshots = [
        snapshot.recorded_snapshot(place, number, history, at, cells)
        for number, (place, history) in enumerate(zip(places, histories, strict=True), 1)
    ]
    code = ATTENTION if any(needs_attention(each.alerts) for each in snapshots) else OK
    if any(isinstance(each.recorded, MissingSpan) or each.queue.unavailable for each in snapshots):
        code = UNREADABLE
    pairs = list(zip(snapshots, limits, strict=True))
    return Answer(
        lambda: {"places": [_past_row(each, limit, at, now) for each, limit in pairs]},
        lambda: _past_page(snapshots, limits, at, now, width),
        code,
    )


def _recorded_history(place: Place, at: float) -> RecordedHistory:
    """What was recorded around a time; an unreadable recording is reported."""
    samples: Sequence[Recorded] = ()
    if place.recording is not None:
        try:
            samples = read_samples(place.recording, at - DAY_SECONDS, at + DAY_SECONDS)
        except UnreadableRecording as error:
            print_error(f"{safe_line(place.name)}: {safe_line(str(error))}")
    return RecordedHistory(samples, place.name)


def _past_page(
    snapshots: Sequence[PlaceSnapshot], limits: Sequence[float], at: float, now: float, width: int
) -> list[Line]:
    names = table.short_names([each.queue.name for each in snapshots])
    short_by_name = dict(zip([each.queue.name for each in snapshots], names, strict=True))
    alerts = [alert for each in snapshots for alert in each.alerts]
    head, rows = view.place_table([each.queue for each in snapshots], at, width)
    known = all(each.queue.complete for each in snapshots)
    none = alert_view.no_alerts_line(True) if known else ((" not recorded", "muted"),)
    lines: list[Line] = [snapshot.shown_time_line(at, now), BLANK_LINE]
    lines += _alerts(alerts, short_by_name, none, width)
    lines += [BLANK_LINE, head, *rows]
    for each, name, limit in zip(snapshots, names, limits, strict=True):
        lines += [
            BLANK_LINE,
            heading_line(name, width),
            *_past_figures(each, limit, at, now, width),
        ]
    return lines


def _past_figures(
    each: PlaceSnapshot, limit: float, at: float, now: float, width: int
) -> list[Line]:
    if isinstance(each.recorded, MissingSpan):
        return [((f" {snapshot.describe_gap(each.recorded, now)}", "unknown"),)]
    lock = each.lock
    lines: list[Line] = []
    if lock is not None:
        lines.append(((f" lock      {lock.verdict}: {safe_line(lock.reason)}", ""),))
    lines += snapshot.forecast_lines(each.forecasts, width, len(each.forecasts))
    if each.tokens:
        lines.append(view.tokens_line(each.tokens, width))
    if each.sending is not None and each.sending.transports:
        titles, rows = ways.transport_rows(each.sending, limit, at, width)
        lines += [titles, *(line for _, line in rows)]
    return [cut_line(line, width) for line in lines]


def _past_row(each: PlaceSnapshot, limit: float, at: float, now: float) -> dict[str, object]:
    lock, sending, tokens = each.lock, each.sending, each.tokens
    return {
        **view.place_values(each.queue, at),
        **snapshot.recorded_values(each, at, now),
        "alerts": [alert_view.alert_row(alert) for alert in each.alerts],
        "lock": lock
        and {
            "verdict": str(lock.verdict),
            "pid": lock.pid,
            **time_fields("since", lock.since),
            "reason": lock.reason,
        },
        "forecasts": forecast.as_row(each.forecasts),
        "tokens": _tokens(tokens),
        "transports": None if sending is None else as_json("", sending, limit)["transports"],
    }
