"""`overview --at`: print one line per place as recorded at a time of the last day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.logs.log_filter import parse_typed_time
from engine.model import LockEvidence
from engine.monitor import forecast
from engine.monitor.alerts import needs_attention
from engine.monitor.recorded_history import MissingSpan, RecordedHistory
from engine.monitor.recorder import DAY_SECONDS, UnreadableRecording, read_samples
from engine.monitor.recorder import EncodedSample as Recorded
from engine.places.place import Place
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.print.transports import as_json
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.output import Answer, columns
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import snapshot
from tui.overview.snapshot import PlaceSnapshot
from tui.text import table
from tui.text.lines import BLANK_LINE, Line, cut_line, heading_line
from tui.text.styles import bracket_chips
from tui.text.task_row import time_fields, with_times
from tui.transports import transport_lines as ways


def past_overview(places: Sequence[Place], text: str, others: Mapping[str, object]) -> Answer:
    """Every place as recorded at the time of a text; exit 0 OK, 1 needed attention, 2 one has no
    record. `others`: values of options that do not go with it.
    """
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
        lambda: {"places": [_row(each, limit, at, now) for each, limit in pairs]},
        lambda: _page(snapshots, limits, at, now, width),
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


def _page(
    snapshots: Sequence[PlaceSnapshot], limits: Sequence[float], at: float, now: float, width: int
) -> list[Line]:
    names = table.short_names([each.queue.name for each in snapshots])
    short_by_name = dict(zip([each.queue.name for each in snapshots], names, strict=True))
    alerts = alert_view.sort_alerts([alert for each in snapshots for alert in each.alerts])
    head, rows = view.place_table([each.queue for each in snapshots], at, width)
    known = all(each.queue.complete for each in snapshots)
    none = alert_view.no_alerts_line(True) if known else ((" not recorded", "muted"),)
    lines: list[Line] = [snapshot.shown_time_line(at, now), BLANK_LINE]
    alert_lines = alert_view.alert_lines(alerts, short_by_name, width, keys_shown=False)
    lines += [*map(bracket_chips, alert_lines)] or [none]
    lines += [BLANK_LINE, head, *rows]
    for each, name, limit in zip(snapshots, names, limits, strict=True):
        lines += [
            BLANK_LINE,
            heading_line(name, width),
            *_figures(each, limit, at, now, width),
        ]
    return lines


def _figures(each: PlaceSnapshot, limit: float, at: float, now: float, width: int) -> list[Line]:
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


def _row(each: PlaceSnapshot, limit: float, at: float, now: float) -> dict[str, object]:
    lock, sending, tokens = each.lock, each.sending, each.tokens
    return {
        **view.place_values(each.queue, at),
        **snapshot.recorded_values(each, at, now),
        "alerts": [alert_view.alert_row(alert) for alert in each.alerts],
        "lock": None if lock is None else _lock(lock),
        "forecasts": forecast.as_row(each.forecasts),
        "tokens": None
        if isinstance(tokens, str)
        else [with_times(one._asdict(), "next") for one in tokens],
        "transports": None if sending is None else as_json("", sending, limit)["transports"],
    }


def _lock(lock: LockEvidence) -> dict[str, object]:
    return {
        "verdict": str(lock.verdict),
        "pid": lock.pid,
        **time_fields("since", lock.since),
        "reason": lock.reason,
    }
