"""`overview --at`: every place on a line, as it was written down at a moment of the last day."""

from __future__ import annotations

import json
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence

from engine.logs.log_filter import moment
from engine.model import LockEvidence
from engine.monitor import forecast
from engine.monitor.recorded_history import MissingSpan, RecordedHistory
from engine.monitor.recorder import DAY, UnreadableRecording, recorded
from engine.monitor.recorder import RecordedMoment as Recorded
from engine.text.safe import shown
from tui.cli.print.transports import as_json
from tui.cli.queue.status import ATTENTION, UNREADABLE, WELL
from tui.cli.setup.one_look import print_lines
from tui.cli.setup.setup import EX_USAGE, complain, fail
from tui.format import present, table
from tui.format.present import BLANK, Line
from tui.overview import alert_lines as alert_view
from tui.overview import lines as view
from tui.overview import snapshot
from tui.overview.snapshot import PlaceSnapshot
from tui.session.place import Place
from tui.transports import lines as ways


def overview_then(places: Sequence[Place], arguments: Namespace) -> int:
    """Print every place as it was; exit 0 well, 1 needed attention, 2 nothing is known of one."""
    now = time.time()
    try:
        at = moment(arguments.at, now)
    except ValueError as error:
        fail(EX_USAGE, f"--at {shown(arguments.at)}: {error}")
    for option in ("filter", "over"):
        if getattr(arguments, option):
            fail(EX_USAGE, f"--at and --{option}: no task is recorded by itself, only figures are")
    limits = [place.alerts.transport_failures for place in places]
    tapes = [_tape(place, at) for place in places]
    width = shutil.get_terminal_size((100, 24)).columns
    cells = view.shape((), width).spark or view.CELLS
    there = [
        snapshot.then_of(place, number, tape, at, cells)
        for number, (place, tape) in enumerate(zip(places, tapes, strict=True), 1)
    ]
    if arguments.json:
        rows = zip(there, limits, strict=True)
        print(json.dumps({"places": [_row(each, limit, at, now) for each, limit in rows]}))
    else:
        print_lines(_page(there, limits, at, now, width))
    if any(isinstance(each.found, MissingSpan) or each.queue.unavailable for each in there):
        return UNREADABLE
    return ATTENTION if any(each.alerts for each in there) else WELL


def _tape(place: Place, at: float) -> RecordedHistory:
    """What was recorded around a moment; it is said why where nothing can be read."""
    found: Sequence[Recorded] = ()
    if place.recording is not None:
        try:
            found = recorded(place.recording, at - DAY, at + DAY)
        except UnreadableRecording as error:
            complain(f"{shown(place.name)}: {shown(str(error))}")
    return RecordedHistory(found, place.name)


def _page(
    there: Sequence[PlaceSnapshot], limits: Sequence[float], at: float, now: float, width: int
) -> list[Line]:
    names = table.names([each.queue.name for each in there])
    called = dict(zip([each.queue.name for each in there], names, strict=True))
    alerts = alert_view.ordered([alert for each in there for alert in each.alerts])
    head, rows = view.table([each.queue for each in there], at, width)
    known = all(each.queue.complete for each in there)
    none = alert_view.none(True) if known else ((" not recorded", "dim"),)
    lines: list[Line] = [snapshot.as_it_was(at, now), BLANK]
    lines += alert_view.lines(alerts, called, width, len(alerts)) or [none]
    lines += [BLANK, head, *rows]
    for each, name, limit in zip(there, names, limits, strict=True):
        lines += [BLANK, present.heading(name, width), *_figures(each, limit, at, now, width)]
    return lines


def _figures(each: PlaceSnapshot, limit: float, at: float, now: float, width: int) -> list[Line]:
    if isinstance(each.found, MissingSpan):
        return [((f" {snapshot.gap_words(each.found, now)}", "unknown"),)]
    lock = each.lock
    lines: list[Line] = []
    if lock is not None:
        lines.append(((f" lock      {lock.verdict}: {shown(lock.reason)}", ""),))
    lines += snapshot.forecast_lines(each.forecasts, width, len(each.forecasts))
    if each.tokens:
        lines.append(view.tokens_line(each.tokens, width))
    if each.sending is not None and each.sending.transports:
        titles, rows = ways.rows(each.sending, limit, at, width)
        lines += [titles, *(line for _, line in rows)]
    return [present.cut(line, width) for line in lines]


def _row(each: PlaceSnapshot, limit: float, at: float, now: float) -> dict[str, object]:
    lock, sending, tokens = each.lock, each.sending, each.tokens
    return {
        **view.as_row(each.queue, at),
        **snapshot.as_row(each, at, now),
        "alerts": [alert_view.as_row(alert) for alert in each.alerts],
        "lock": None if lock is None else _lock(lock),
        "forecasts": forecast.as_row(each.forecasts),
        "tokens": None if isinstance(tokens, str) else [left._asdict() for left in tokens],
        "transports": None if sending is None else as_json("", sending, limit)["transports"],
    }


def _lock(lock: LockEvidence) -> dict[str, object]:
    return {
        "verdict": str(lock.verdict),
        "pid": lock.pid,
        "since": lock.since,
        "reason": lock.reason,
    }
