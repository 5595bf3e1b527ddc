"""`transports`: print the selected mail transport, the state of each, and the reasons."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Sequence

from engine.monitor.transport_health import (
    CountWindow,
    MailHealth,
    MailRoutes,
    TransportHealth,
    TransportSuspension,
)
from engine.text.safe import safe_line
from tui.cli.setup.one_look import chosen_places, contains_words, print_lines, scan_once
from tui.cli.setup.setup import Setup
from tui.format.task_row import time_fields, with_times
from tui.session.place_session import PlaceSession
from tui.transports import detail_lines as view


def transports(setup: Setup, arguments: Namespace) -> int:
    """Print the transports of a place; exit 0 OK, 1 if a transport fails, or if no mail is sent
    because the file of suspended transports is invalid.
    """
    place, *_ = chosen_places(setup, [arguments.place] if arguments.place else [])

    async def ask(lives: Sequence[PlaceSession]) -> tuple[MailHealth, MailRoutes | None, float]:
        (live,) = lives
        while live.readings.sending.is_reading:
            await (
                live.wait_for_readings()
            )  # reading the last hour of a long log takes several scans
        return live.readings.sending, live.readings.routes, live.clock()

    sending, routes, now = scan_once([place], ask)
    limit = place.alerts.transport_failures
    ways = sending.transports
    if arguments.filter:
        ways = tuple(w for w in ways if contains_words(_words(w, limit, routes), arguments.filter))
    sending = sending._replace(transports=ways)
    if arguments.json:
        import json

        print(json.dumps(as_json(place.name, sending, limit, routes)))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        print_lines(view.page_lines(sending, limit, now, width, routes))
    blocked = routes is not None and routes.blocked
    return int(blocked or any(way.health(limit) == "failing" for way in sending.transports))


def _words(way: TransportHealth, limit: float, routes: MailRoutes | None) -> str:
    use = "" if routes is None else routes.use(way.name)
    return f"{way.name} {way.health(limit)} {use}"


def as_json(
    place: str, sending: MailHealth, limit: float, routes: MailRoutes | None = None
) -> dict[str, object]:
    """The state of the transports as JSON; times as `time_fields`, unknown values are null."""
    known = routes if routes is not None and not routes.unknown else None
    return {
        "place": place,
        "selected": None if known is None else known.selected,
        "selected_unknown": safe_line(routes.unknown) if routes is not None else "",
        "transports": [_way(way, limit, known) for way in sending.transports],
        "others": sending.others,
        "sources": [
            {
                "name": told.source.value,
                **time_fields("when", told.when),
                **time_fields("known_since", _moment(told.since)),
                "problem": safe_line(told.problem),
            }
            for told in sending.sources
        ],
    }


def _way(way: TransportHealth, limit: float, routes: MailRoutes | None) -> dict[str, object]:
    stop = None if routes is None else routes.stopped.get(way.name)
    return {
        "transport": way.name,
        "state": way.health(limit).value,
        "used": None if routes is None else routes.use(way.name).value,
        "why_not": None if routes is None else routes.why_not.get(way.name, ""),
        "suspended": None if stop is None else _stop(stop),
        "totals": None if way.totals is None else way.totals._asdict(),
        "windows": {window.name: _window(window) for window in way.windows},
        **time_fields("last_success", way.last_success),
        **time_fields("last_failure", way.last_failure),
        "errors": [with_times(fault._asdict(), "first", "last") for fault in way.faults],
        "failures": [with_times(failure._asdict(), "when") for failure in way.failures],
    }


def _stop(stop: TransportSuspension) -> dict[str, object]:
    return {**time_fields("since", stop.since), "who": stop.who, "why": stop.why}


def _window(window: CountWindow) -> dict[str, object]:
    if window.tally is None:
        return {"unknown": safe_line(window.reason)}
    return {
        **window.tally._asdict(),
        "per_second": window.rate,
        "failed_share": window.share,
        "source": window.source.value,
    }


def _moment(when: float | None) -> float | None:
    """A time that JSON can contain; None for infinity."""
    return when if when is not None and abs(when) != float("inf") else None
