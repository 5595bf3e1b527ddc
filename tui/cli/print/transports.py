"""`transports`: by which way mail goes, why not by the others, and how each does; once, plainly."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Sequence

from engine.monitor.transport_health import CountWindow, Routes, Sending, Stopped, TransportHealth
from engine.text.safe import shown
from tui.cli.setup.one_look import glance, holds, named, print_lines
from tui.cli.setup.setup import Setup
from tui.session.place_session import PlaceSession
from tui.transports import lines as view


def transports(setup: Setup, arguments: Namespace) -> int:
    """Print how mail is sent from a place; 0 well, 1 when a transport fails, or when no mail is
    sent because the file of suspended transports is not valid.
    """
    place, *_ = named(setup, [arguments.place] if arguments.place else [])

    async def ask(lives: Sequence[PlaceSession]) -> tuple[Sending, Routes | None, float]:
        (live,) = lives
        while live.signs.sending.reading:
            await live.next_look()  # the last hour of a long log takes more than one
        return live.signs.sending, live.signs.routes, live.clock()

    sending, routes, now = glance([place], ask)
    limit = place.alerts.transport_failures
    ways = sending.transports
    if arguments.filter:
        ways = tuple(w for w in ways if holds(_words(w, limit, routes), arguments.filter))
    sending = sending._replace(transports=ways)
    if arguments.json:
        import json

        print(json.dumps(as_json(place.name, sending, limit, routes)))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        print_lines(view.page(sending, limit, now, width, routes))
    blocked = routes is not None and routes.blocked
    return int(blocked or any(way.health(limit) == "failing" for way in sending.transports))


def _words(way: TransportHealth, limit: float, routes: Routes | None) -> str:
    use = "" if routes is None else routes.use(way.name)
    return f"{way.name} {way.health(limit)} {use}"


def as_json(
    place: str, sending: Sending, limit: float, routes: Routes | None = None
) -> dict[str, object]:
    """The same for programs; times are epoch seconds UTC, and what is not known is null."""
    known = routes if routes is not None and not routes.unknown else None
    return {
        "place": place,
        "selected": None if known is None else known.selected,
        "selected_unknown": shown(routes.unknown) if routes is not None else "",
        "transports": [_way(way, limit, known) for way in sending.transports],
        "others": sending.others,
        "sources": [
            {
                "name": told.source.value,
                "when": told.when,
                "known_since": _moment(told.since),
                "problem": shown(told.problem),
            }
            for told in sending.told
        ],
    }


def _way(way: TransportHealth, limit: float, routes: Routes | None) -> dict[str, object]:
    stop = None if routes is None else routes.stopped.get(way.name)
    return {
        "transport": way.name,
        "state": way.health(limit).value,
        "used": None if routes is None else routes.use(way.name).value,
        "why_not": None if routes is None else routes.why_not.get(way.name, ""),
        "suspended": None if stop is None else _stop(stop),
        "totals": None if way.totals is None else way.totals._asdict(),
        "windows": {window.name: _window(window) for window in way.windows},
        "last_success": way.last_success,
        "last_failure": way.last_failure,
        "errors": [fault._asdict() for fault in way.faults],
        "failures": [failure._asdict() for failure in way.failures],
    }


def _stop(stop: Stopped) -> dict[str, object]:
    return {"since": stop.since, "who": stop.who, "why": stop.why}


def _window(window: CountWindow) -> dict[str, object]:
    if window.tally is None:
        return {"unknown": shown(window.reason)}
    return {
        **window.tally._asdict(),
        "per_second": window.rate,
        "failed_share": window.share,
        "source": window.source.value,
    }


def _moment(when: float | None) -> float | None:
    """A time that JSON can hold; None for "from the beginning" and "nothing of it"."""
    return when if when is not None and abs(when) != float("inf") else None
