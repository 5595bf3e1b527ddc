"""`overview`: print one line per place, the alerts, and the ages of the tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from engine.formats.base.format import Setup
from engine.index.age_table import BOUNDS_MINUTES, Ages, summarize_ages
from engine.model import State
from engine.monitor import forecast
from engine.monitor.alerts import needs_attention
from engine.monitor.throughput import MIN_RATE_SECONDS
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import parse_place_filter, scan_once
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.operations import worker_lines
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import snapshot
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import kind_figures, worker_rows
from tui.text import table
from tui.text.lines import BLANK_LINE, Line, cut_line, heading_line
from tui.text.styles import bracket_chips
from tui.text.task_row import with_times

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
        from tui.cli.print.past import past_overview

        return past_overview(opened, at, {"filter": filter, "over": over})

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
    alerts = alert_view.sort_alerts([alert for session in sessions for alert in session.alerts])
    cells = view.table_layout((), width).spark or view.SPARKLINE_CELLS
    place_lines = [view.live_line(session, now, cells) for session in sessions]
    head, rows = view.place_table(place_lines, now, width)
    alert_lines = alert_view.alert_lines(alerts, short_by_name, width, keys_shown=False)
    lines = [*map(bracket_chips, alert_lines)] or [alert_view.no_alerts_line(True)]
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


def _ages(report: OverviewReport, name: str, width: int) -> list[Line]:
    if report.table is None or not report.table[1].total.total:
        return []
    state, ages = report.table
    word = report.session.inspector.states.get(state, state)
    table = age_view.table_lines(ages, None, width, MAX_AGE_ROWS)
    heading = age_view.table_heading(ages, name, word, report.session.place.group_titles)
    summary = ((f" backlog {safe_line(summarize_ages(ages))}", ""),)
    return [
        BLANK_LINE,
        heading_line(heading, width),
        *table,
        cut_line(summary, width),
    ]


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
    row["tokens"] = (
        None if isinstance(tokens, str) else [with_times(one._asdict(), "next") for one in tokens]
    )
    row["ages"] = None
    if report.table is not None:
        state, ages = report.table
        row["ages"] = {
            "state": report.session.inspector.states.get(state, str(state)),
            "by": ages.by,
            "bounds": list(BOUNDS_MINUTES),
            "rows": {row.name: list(row.counts) for row in ages.rows},
            "total": list(ages.total.counts),
            "unknown": ages.total.unknown,
            "others": ages.others,
            "reading": summarize_ages(ages),
        }
    return row
