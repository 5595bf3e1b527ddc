"""`overview`: every place on a line, what is wrong, and how old its tasks are; once and plainly."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import NamedTuple

from engine.index.age_table import BOUNDS, Ages, reading
from engine.model import State
from engine.monitor import forecast
from engine.store import Unavailable
from engine.text.safe import shown
from tui.cli.queue.status import ATTENTION, UNREADABLE, WELL
from tui.cli.setup.one_look import glance, named, print_lines, wanted
from tui.cli.setup.setup import Setup
from tui.format import present, table
from tui.format.present import BLANK, Line
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import lines as view
from tui.overview import snapshot
from tui.session import index_queries
from tui.session.place_session import PlaceSession

NAMES, WARNINGS = 12, 6
"""Lines for the names of an age table, and for warnings with their heading."""


class OverviewReport(NamedTuple):
    """What was seen of one place."""

    live: PlaceSession
    table: tuple[State, Ages] | None
    """None where it cannot be read."""


def overview(setup: Setup, arguments: Namespace) -> int:
    """Print every place; exit 0 well, 1 needs attention, 2 one cannot be read."""
    places = named(setup, arguments.places)
    if arguments.at:
        from tui.cli.print.past import overview_then

        return overview_then(places, arguments)

    async def ask(lives: Sequence[PlaceSession]) -> list[OverviewReport]:
        await asyncio.sleep(arguments.over)  # meanwhile they are followed
        return [await _look(live, arguments.filter) for live in lives]

    looks = glance(places, ask)
    now = time.time()
    if arguments.json:
        print(json.dumps({"places": [_as_row(look, now) for look in looks]}))
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        print_lines(_page(looks, now, width))
    if any(look.table is None for look in looks):
        return UNREADABLE
    return ATTENTION if any(look.live.alerts for look in looks) else WELL


async def _look(live: PlaceSession, filter: str) -> OverviewReport:
    while live.signs.sending.reading:
        await live.next_look()  # the last hour of a long log takes more than one
    try:
        if live.inspector.latest.unavailable:
            raise Unavailable(live.inspector.latest.unavailable)
        await live.count_what_waits()
        return OverviewReport(live, await index_queries.first_telling(live, wanted(filter, live)))
    except Unavailable:
        live.judge()
        return OverviewReport(live, None)  # its line and its alert say why


def _page(looks: Sequence[OverviewReport], now: float, width: int) -> list[Line]:
    lives = [look.live for look in looks]
    names = table.names([live.place.name for live in lives])
    called = dict(zip([live.place.name for live in lives], names, strict=True))
    alerts = alert_view.ordered([alert for live in lives for alert in live.alerts])
    cells = view.shape((), width).spark or view.CELLS
    head, rows = view.table([view.seen(live, now, cells) for live in lives], now, width)
    lines = alert_view.lines(alerts, called, width, len(alerts)) or [alert_view.none(True)]
    lines += [BLANK, head, *rows]
    for look, name in zip(looks, names, strict=True):
        lines += _ages(look, name, width)
        forecasts = look.live.forecasts()
        lines += snapshot.forecast_lines(forecasts, width, len(forecasts))
        if look.live.place.tokens is not None:
            lines.append(view.tokens_line(look.live.signs.tokens, width))
    logs = [(name, live.signs.log) for name, live in zip(names, lives, strict=True)]
    return [*lines, BLANK, *view.warning_lines(logs, width, WARNINGS)]


def _ages(look: OverviewReport, name: str, width: int) -> list[Line]:
    if look.table is None or not look.table[1].total.total:
        return []
    state, ages = look.table
    word = look.live.inspector.states.get(state, state)
    table = age_view.lines(ages, None, width, NAMES)
    says = ((f" reading: {shown(reading(ages))}", ""),)
    return [BLANK, age_view.heading(ages, name, word, width), *table, present.cut(says, width)]


def _as_row(look: OverviewReport, now: float) -> dict[str, object]:
    """Ages are counted by upper bounds in minutes, and beyond the last."""
    row = view.as_row(view.seen(look.live, now, view.CELLS), now)
    row["alerts"] = [alert_view.as_row(alert) for alert in look.live.alerts]
    tokens = look.live.signs.tokens
    row["forecasts"] = forecast.as_row(look.live.forecasts())
    row["tokens"] = None if isinstance(tokens, str) else [left._asdict() for left in tokens]
    if look.table is not None:
        state, ages = look.table
        row["ages"] = {
            "state": look.live.inspector.states.get(state, str(state)),
            "by": ages.by,
            "bounds": list(BOUNDS),
            "rows": {row.name: list(row.counts) for row in ages.rows},
            "total": list(ages.total.counts),
            "unknown": ages.total.unknown,
            "others": ages.others,
            "reading": reading(ages),
        }
    return row
