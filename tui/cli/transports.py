"""`transports`: how each way of sending mail does, once and plainly."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Sequence

from engine.text import shown
from engine.transports import Sending, Transport, Window
from tui.cli.glance import glance, holds, named, print_lines
from tui.cli.wiring import Setup
from tui.live import Live
from tui.views import transports as view


def transports(setup: Setup, arguments: Namespace) -> int:
    """Print how mail is sent from a place; 0 when nothing fails, 1 when a transport does."""
    place, *_ = named(setup, [arguments.place] if arguments.place else [])

    async def ask(lives: Sequence[Live]) -> tuple[Sending, float]:
        (live,) = lives
        while live.signs.sending.reading:
            await live.next_look()  # the last hour of a long log takes more than one
        return live.signs.sending, live.clock()

    sending, now = glance([place], ask)
    limit = place.alerts.transport_failures
    ways = sending.transports
    if arguments.filter:
        ways = tuple(w for w in ways if holds(f"{w.name} {w.health(limit)}", arguments.filter))
    sending = sending._replace(transports=ways)
    if arguments.json:
        import json

        print(json.dumps(as_json(place.name, sending, limit)))
    else:
        print_lines(view.page(sending, limit, now, shutil.get_terminal_size((120, 24)).columns))
    return int(any(way.health(limit) == "failing" for way in sending.transports))


def as_json(place: str, sending: Sending, limit: float) -> dict[str, object]:
    """The same for programs; times are epoch seconds UTC, and what is not known is null."""
    return {
        "place": place,
        "transports": [_way(way, limit) for way in sending.transports],
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


def _way(way: Transport, limit: float) -> dict[str, object]:
    return {
        "transport": way.name,
        "state": way.health(limit).value,
        "totals": None if way.totals is None else way.totals._asdict(),
        "windows": {window.name: _window(window) for window in way.windows},
        "last_success": way.last_success,
        "last_failure": way.last_failure,
        "errors": [fault._asdict() for fault in way.faults],
    }


def _window(window: Window) -> dict[str, object]:
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
