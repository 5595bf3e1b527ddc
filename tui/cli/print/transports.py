"""`transports`: print the selected mail transport, the state of each, and the reasons."""

from __future__ import annotations

from engine.formats.base.format import Setup
from engine.monitor.transport_health import CountWindow, MailHealth, MailRoutes, TransportHealth
from engine.text.folding import contains_words
from engine.text.safe import safe_line
from tui.cli.setup.one_look import scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.session.place_session import PlaceSession
from tui.text.task_row import time_fields, with_times
from tui.transports import detail_lines as view


def transports(setup: Setup, place: str | None, *, filter: str) -> Answer:
    """Print the transports of a place; exit 1 if one fails, or none may send mail."""
    opened = open_places(setup, [place] if place else [])[0]

    async def ask(session: PlaceSession) -> tuple[MailHealth, MailRoutes | None, float]:
        while session.readings.sending.is_reading:
            # Reading the last hour of a long log takes several scans.
            await session.wait_for_readings()
        return session.readings.sending, session.readings.routes, session.clock()

    sending, routes, now = scan_place(opened, ask)
    limit = opened.alerts.transport_failures
    rows = tuple(w for w in sending.transports if contains_words(_words(w, limit, routes), filter))
    sending = sending._replace(transports=rows)
    blocked = routes is not None and routes.blocked
    return Answer(
        lambda: as_json(opened.name, sending, limit, routes),
        lambda: view.page_lines(sending, limit, now, columns(120), routes),
        int(blocked or any(one.health(limit) == "failing" for one in rows)),
    )


def _words(transport: TransportHealth, limit: float, routes: MailRoutes | None) -> str:
    use = "" if routes is None else routes.use(transport.name)
    return f"{transport.name} {transport.health(limit)} {use}"


def as_json(
    place: str, sending: MailHealth, limit: float, routes: MailRoutes | None = None
) -> dict[str, object]:
    """The state of the transports as JSON; times as `time_fields`, unknown values are null."""
    known = routes if routes is not None and not routes.unknown else None
    return {
        "place": place,
        "selected": None if known is None else known.selected,
        "selected_unknown": safe_line(routes.unknown) if routes is not None else "",
        "transports": [_row(transport, limit, known) for transport in sending.transports],
        "others": sending.others,
        "sources": [
            {
                "name": source_status.source.value,
                **time_fields("when", source_status.when),
                **time_fields("known_since", _moment(source_status.since)),
                "problem": safe_line(source_status.problem),
            }
            for source_status in sending.sources
        ],
    }


def _row(transport: TransportHealth, limit: float, routes: MailRoutes | None) -> dict[str, object]:
    stop = None if routes is None else routes.stopped.get(transport.name)
    return {
        "transport": transport.name,
        "state": transport.health(limit).value,
        "used": None if routes is None else routes.use(transport.name).value,
        "why_not": None if routes is None else routes.why_not.get(transport.name, ""),
        "suspended": stop
        and {**time_fields("since", stop.since), "who": stop.who, "why": stop.why},
        "totals": None if transport.totals is None else transport.totals._asdict(),
        "windows": {window.name: _window(window) for window in transport.windows},
        **time_fields("last_success", transport.last_success),
        **time_fields("last_failure", transport.last_failure),
        "errors": [with_times(fault._asdict(), "first", "last") for fault in transport.faults],
        "failures": [with_times(failure._asdict(), "when") for failure in transport.failures],
    }


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
