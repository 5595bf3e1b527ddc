"""Everything the overview shows of one place, live or as recorded.

Recorded times are shown from these values alone, so that live data cannot mix in.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from engine.destinations.watch import SeenDestination
from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.model import LockEvidence, State, count_by_words
from engine.monitor.alerts import Alert, AlertKind, is_stalled, needs_attention
from engine.monitor.forecast import Forecast, ForecastInputs, drain_with_rate_limit, make_forecasts
from engine.monitor.latency import KindFigures
from engine.monitor.mail_monitor import parse_mail_event
from engine.monitor.recorded_history import MissingSpan, RecordedHistory
from engine.monitor.sample_codec import RecordedSample
from engine.monitor.throughput import RATE_WINDOW_SECONDS, Drain, Trend, seconds_known
from engine.monitor.transport_health import (
    DeliveryCounts,
    MailHealth,
    Source,
    TransportHealth,
    find_mail_log,
)
from engine.places.place import Place
from engine.places.recent_events import NO_EVENTS, EventMemory
from engine.text.times import format_duration
from engine.values import NamedTuple
from tui.overview import place_lines
from tui.overview.place_lines import PlaceLine, QueuePart
from tui.session.place_session import (
    QUIET_READ_SECONDS,
    PlaceSession,
    count_lease_workers,
    seen_destinations,
    sum_totals,
)
from tui.session.worker_rows import kind_figures
from tui.text.header import Totals
from tui.text.lines import (
    UNKNOWN_RUN,
    Line,
    cut_line,
    fold_long_lines,
    parts_that_fit,
)
from tui.text.task_row import time_fields, with_times
from tui.text.times import format_time_with_age

NOTHING_RECORDED = "nothing recorded"


class PlaceSnapshot(NamedTuple):
    """Values of one place; each default means "unknown"."""

    queue: PlaceLine
    alerts: tuple[Alert, ...] = ()
    lock: LockEvidence | None = None
    sending: MailHealth | None = None
    tokens: Sequence[BucketState] | str = "not recorded"
    forecasts: tuple[Forecast, ...] = ()
    recorded: RecordedSample | MissingSpan | None = None
    """The recorded sample; None if live."""
    worker: int | None = None
    """PID of the worker started here, for places without a lock file."""
    lease_workers: int = 0
    kinds: Sequence[KindFigures] = ()
    destinations: Sequence[SeenDestination] | None = None
    """The destinations of its deliveries, what needs an operator first; none are recorded."""


class LiveSnapshots:
    """The live snapshots of some places, each made again after its place has changed or was read,
    with each count while its rates change, or after `QUIET_READ_SECONDS`: to make one costs more
    than to paint it."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, float, PlaceSnapshot | None]] = {}

    def of(self, session: PlaceSession, now: float, cells: int) -> PlaceSnapshot:
        """A place as known now, with a sparkline of `cells` cells for the last ten minutes."""
        samples = session.count_samples
        has_rates = len(samples) > 0 and samples[0][1] != samples[-1][1]
        made_from = (
            cells,
            samples[-1][0] if has_rates else 0.0,
            session.inspector.latest,
            session.readings,
            session.backlog,
            session.alerts,
            session.active,
            session.waiting_kinds,
            session.recorded_flow,
            session.recorded_output,
            session.worker.pid,
            session.inspector.states,
            session.inspector.words,
            session.destination_tasks,
        )
        before, when, snapshot = self._made.get(session.number, (None, now, None))
        if snapshot is None or before != made_from or not 0 <= now - when < QUIET_READ_SECONDS:
            snapshot = _live_snapshot(session, now, cells)
            self._made[session.number] = made_from, now, snapshot
        return snapshot


def _live_snapshot(session: PlaceSession, now: float, cells: int) -> PlaceSnapshot:
    readings, forecasts = session.readings, session.forecasts()
    return PlaceSnapshot(
        place_lines.live_line(session, now, cells, forecasts),
        session.alerts,
        readings.lock,
        sending=readings.sending,
        tokens=readings.tokens,
        forecasts=forecasts,
        worker=session.worker.pid if session.place.has_leases else None,
        lease_workers=count_lease_workers(session) if session.place.has_leases else 0,
        kinds=kind_figures(session, now),
        destinations=seen_destinations(session),
    )


def recorded_snapshot(
    place: Place,
    number: int,
    history: RecordedHistory,
    at: float,
    cells: int,
    memory: EventMemory = NO_EVENTS,
    parts: Sequence[str] = (),
) -> PlaceSnapshot:
    """A place as recorded at a time (epoch seconds UTC); figures of transports that are not
    recorded are counted from the log events in memory, and one with such an alert is suspended.
    `parts`: the queues of a server, whose lines say that they are not recorded."""
    recorded = history.at(at)
    if isinstance(recorded, MissingSpan):
        return PlaceSnapshot(
            PlaceLine(number, place.name, unavailable=NOTHING_RECORDED), recorded=recorded
        )
    past = history.flow_until(at)
    growth, whole = past.growth(State.DEAD, at), past.growth(State.PENDING, at)
    stalled = is_stalled(recorded.due, recorded.alerts)
    drain = recorded.drain or (Drain(Trend.STALLED) if stalled else past.drain(at))
    basis = ForecastInputs(
        recorded.counts,
        recorded.words,
        drain,
        growth=growth,
        died=recorded.died,
        has_arrivals=history.has_arrivals(at),
        tokens=recorded.tokens,
        kinds=recorded.kinds,
        kind_growth={} if whole is None else {ALL_KINDS: whole},
        undated="death times not recorded",
    )
    stopped = {one.target.name for one in recorded.alerts if one.kind is AlertKind.SUSPENDED}
    known = recorded.complete and not recorded.unavailable
    forecasts = make_forecasts(basis, place.alerts, place.retention_days, at)
    queue = PlaceLine(
        number,
        place.name,
        recorded.words,
        counts=recorded.counts,
        complete=recorded.complete,
        unavailable=recorded.unavailable,
        due=recorded.due if known else None,
        oldest=recorded.oldest if known else None,
        rates=recorded.rates if known else None,
        drain=drain_with_rate_limit(basis.pace, forecasts) if known else Drain(Trend.UNKNOWN),
        growth=past.growth(State.PENDING, at, RATE_WINDOW_SECONDS),
        spark=past.sparkline(at, cells),
        alert_level=recorded.alerts[0].level if needs_attention(recorded.alerts) else "",
        word_counts=count_by_words(
            recorded.counts,
            {word: count for word, (_, count) in recorded.finer.items()},
            recorded.words,
            {word: state for word, (state, _) in recorded.finer.items()},
        ),
        fine_words=tuple(recorded.finer),
        gone_failures=recorded.gone_failures,
        parts=tuple(QueuePart(name, {}, None, None, "not recorded") for name in parts),
    )
    return PlaceSnapshot(
        queue,
        recorded.alerts,
        recorded.lock,
        sending=MailHealth(
            tuple(
                _with_counted_windows(
                    transport._replace(suspended=transport.name in stopped),
                    memory,
                    find_mail_log(place.logs),
                    at,
                )
                for transport in history.transports(recorded)
            )
        ),
        tokens=recorded.tokens,
        forecasts=forecasts if known else (),
        recorded=recorded,
        lease_workers=recorded.lease_workers,
    )


def _with_counted_windows(
    transport: TransportHealth, memory: EventMemory, log: str, at: float
) -> TransportHealth:
    """Count the unknown windows of a transport from its log lines, if memory has all of them. Its
    rates are over the time since the log began, as in a live one, except for growth of totals."""
    of_log = [one for one in memory.events if one.transport and one.source == log]
    is_in_log = memory.began < at and any(one.transport == transport.name for one in of_log)
    began = memory.began if is_in_log else inf
    windows = list(transport.windows)
    for number, window in enumerate(windows):
        start, known = at - window.seconds, seconds_known(at, began, window.seconds)
        if known < window.seconds and window.known_seconds is None:
            window = windows[number] = window._replace(known_seconds=known)
        if window.tally is not None or memory.since > start:
            continue
        events = [
            parse_mail_event(event.line)
            for event in of_log
            if event.when is not None and start < event.when <= at
        ]
        counts = [one.tally for one in events if one and one.transport == transport.name]
        tally = DeliveryCounts(*map(sum, zip(*counts, strict=True))) if counts else DeliveryCounts()
        windows[number] = window._replace(tally=tally, source=Source.LOG, reason="")
    return transport._replace(windows=tuple(windows))


def totals(snapshots: Sequence[PlaceSnapshot]) -> Totals | None:
    """The totals of what is shown; None where a place was not recorded."""
    queues = [moment.queue for moment in snapshots]
    if any(isinstance(moment.recorded, MissingSpan) for moment in snapshots):
        return None
    counts, locks = [queue.counts for queue in queues], [moment.lock for moment in snapshots]
    rates = [queue.rates for queue in queues]
    workers = sum(moment.lease_workers for moment in snapshots)
    totals = sum_totals(counts, locks, rates, workers, [queue.words for queue in queues])
    return totals._replace(is_partial=not all(queue.complete for queue in queues))


# As lines


def freeze_notice(
    at: float, now: float, selected: PlaceSnapshot, width: int, shown: tuple[str, str]
) -> Line:
    """Freeze notice: the time shown. `shown`: which alerts are, and the keys to the others."""
    recorded, (amount, more) = selected.recorded, shown
    when = f"{amount} at {_time(at, now)}, {format_duration(now - at)} ago{more}"
    lead: Line = (("Alerts", "title"), (when, "strong"))
    if isinstance(recorded, MissingSpan):
        return cut_line((*lead, (f": {describe_gap(recorded, now)}", "warn")), width)
    return lead


def shown_time_line(at: float, now: float) -> Line:
    """Which time a page shows."""
    return ((f" as it was at {_time(at, now)}, {format_duration(now - at)} ago", "strong"),)


def describe_gap(gap: MissingSpan, now: float) -> str:
    """The time span without recorded data."""
    if gap.after is None and gap.before is None:
        return NOTHING_RECORDED
    if gap.before is None:
        return f"{NOTHING_RECORDED} since {_time(gap.after or 0.0, now)}"
    if gap.after is None:
        return f"{NOTHING_RECORDED} before {_time(gap.before, now)}"
    return f"{NOTHING_RECORDED} {_time(gap.after, now)} to {_time(gap.before, now)}"


def _time(when: float, now: float) -> str:
    return format_time_with_age(when, now).split(" (")[0]


def forecast_lines(forecasts: Sequence[Forecast], width: int, height: int) -> list[Line]:
    """The forecast: briefly in one line, or in full sentences, folded in at most `height` lines."""
    title = (" forecast  ", "title")
    if not forecasts:
        return [(title, UNKNOWN_RUN)] if height else []
    if height < len(forecasts):
        parts = [((f"{each.brief}   ", forecast_style(each)),) for each in forecasts]
        return [cut_line(parts_that_fit([(title,), *parts], width), width)]
    leads = [title] + [(" " * len(title[0]), "")] * (len(forecasts) - 1)
    lines = [
        (lead, (each.sentence, forecast_style(each)))
        for lead, each in zip(leads, forecasts, strict=True)
    ]
    return fold_long_lines(lines, width, height)


def outlook_lines(selected: PlaceSnapshot, width: int, *, brief: bool) -> list[Line]:
    """Forecast, briefly in one line or in full, and rate limits; nothing where there is neither."""
    height = 1 if brief else 2 * len(selected.forecasts)
    forecasts = forecast_lines(selected.forecasts, width, height) if selected.forecasts else []
    limited = selected.tokens or isinstance(selected.tokens, str)
    return [*forecasts, *([place_lines.tokens_line(selected.tokens, width)] if limited else [])]


def forecast_style(each: Forecast) -> str:
    """The style of a forecast: unknown, or serious."""
    return "unknown" if each.unknown else "warn" if each.is_serious else ""


def recorded_values(selected: PlaceSnapshot, at: float, now: float) -> dict[str, object]:
    """Recorded sample for JSON output: time, recorder, gaps; None without data."""
    recorded = selected.recorded
    sample = recorded if isinstance(recorded, RecordedSample) else None
    return {
        **time_fields("at", at),
        **time_fields("recorded", None if sample is None else sample.when),
        "by": None if sample is None else sample.by,
        "gap": with_times(recorded._asdict(), "after", "before")
        if isinstance(recorded, MissingSpan)
        else None,
        "ago": round(now - at, 1),
    }
