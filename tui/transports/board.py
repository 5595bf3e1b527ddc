"""All parts of a transport at once, in panes: state, counts, errors, graph, log lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.logs.log_line import LogLine
from engine.monitor.transport_health import (
    MailHealth,
    MailRoutes,
    TransportHealth,
    TransportSuspension,
)
from engine.text.figure import Figure
from engine.text.figures import fit_count
from engine.text.safe import safe_error, safe_line
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame
from tui.text.graphs import (
    AXIS_CELLS,
    KEY,
    bar,
    braille_line,
    graph_steps,
    overlay,
    resample,
    rounded_top,
    time_axis,
    with_axis,
)
from tui.text.lines import BLANK_LINE, Line, cut_line, join_ends, width_of
from tui.text.log_line import log_line, shorten_ids
from tui.text.times import format_clock, format_time_with_age
from tui.transports import detail_lines as view
from tui.transports import transport_lines as table
from tui.widgets.divided import Board, Panel

RANGE_KEY: Line = (("z", "key"), (" range", "muted"))

HOUR_MINUTES = 60
"""Longest range of the graph: the log is read one hour back."""

MIN_MAILS_A_MINUTE = 3
"""Below it a graph of single minutes would be a row of peaks."""

MIN_MIDDLE_LINES, MIN_LOG_LINES = 12, 6
"""Lines that errors and graph have at least, and the log if there is one, with their frames."""


class Shown(NamedTuple):
    """What the panes show."""

    transport: TransportHealth
    sending: MailHealth
    routes: MailRoutes | None
    limit: float
    """Failure share from which a transport is failing."""
    now: float
    """Epoch seconds UTC."""
    log: Sequence[LogLine]
    minutes: int
    place: str = ""
    """Name of the place, whose log is shown if no line mentions the transport."""


class TransportBoard(Board):
    """State and counts, errors and graph, the log below."""

    LEFT = ("about", "faults", "latest")
    RIGHT = ("windows", "course")
    BELOW = ("mentions",)
    FILLS = frozenset({"latest", "course"})


def panels(inputs: Shown, width: int, height: int) -> Mapping[str, Panel]:
    """The content of each pane, for a board of that size: the upper two end on one line, errors and
    graph are as high as the errors, the log gets what is left."""
    transport, now, name = inputs.transport, inputs.now, safe_line(inputs.transport.name)
    half = width // 2 - BOX_FRAME_CELLS
    state_lines = view.about_lines(transport, inputs.limit, now, half, inputs.routes)
    windows = view.window_lines(transport, half, inputs.limit)
    windows += view.source_lines(inputs.sending, now, half)
    upper = max(len(state_lines), len(windows))
    for lines in (state_lines, windows):
        lines += [BLANK_LINE] * (upper - len(lines))
    lower = height - upper - BOX
    faults, errors = fault_lines(transport, now, half), _latest_lines(transport, now, half, height)
    needed = max(MIN_MIDDLE_LINES, len(faults) + len(errors) + 2 * BOX)
    has_log = lower >= MIN_MIDDLE_LINES + MIN_LOG_LINES
    middle = min(needed, lower - MIN_LOG_LINES) if has_log else lower
    faults = faults[: max(1, middle // 2 - BOX)]
    latest = _latest_lines(transport, now, half, middle - len(faults) - 2 * BOX)
    words = [line for line in inputs.log if transport.name in line.text]
    total = sum(fault.times for fault in transport.faults)
    span = "1h" if inputs.minutes == HOUR_MINUTES else f"{inputs.minutes}m"
    axis = time_axis(now, 60.0 * inputs.minutes, half - AXIS_CELLS)
    failures = f"{len(transport.failures):,}"
    return {
        "about": Panel(Frame(name, right=(table.state_run(transport, inputs.limit),)), state_lines),
        "windows": Panel(Frame(f"{name} over time"), windows),
        "faults": Panel(
            Frame("Errors, last hour, grouped", "", f"{total:,}", (("LAST", "muted"),)), faults
        ),
        "latest": Panel(Frame("Latest errors", "", failures, (("TASK", "muted"),)), latest),
        "course": Panel(
            Frame(f"{name}, last {span}", right=RANGE_KEY, bottom=axis),
            graph_lines(inputs, half, middle - BOX),
        ),
        "mentions": Panel(
            Frame(f"Log of {name}", "t", f"{len(words):,}")
            if words or not inputs.log
            else Frame(f"Log of {safe_line(inputs.place)}: no line of {name}", "7"),
            log_lines(words or inputs.log, width - BOX_FRAME_CELLS, lower - middle - BOX),
        ),
    }


def fault_lines(transport: TransportHealth, now: float, width: int) -> list[Line]:
    """Errors of the last hour, grouped: two lines each, with the name of the group and a bar."""
    lines: list[Line] = []
    total = sum(fault.times for fault in transport.faults)
    for fault in transport.faults:
        count: Line = ((f"{fit_count(fault.times, 6):>8}  ", "strong"),)
        last: Line = ((format_time_with_age(fault.last, now).partition(" (")[0], "muted"),)
        lines.append(join_ends((*count, (safe_error(fault.pattern), "")), last, width))
        lead: Line = (("          ", ""), (f"{fault.mark}  ", "accent"))
        share = f" {fault.times / total:>4.0%}"
        room = width - width_of(lead) - len(share)
        filled = bar(fault.times / transport.faults[0].times, room)
        lines.append((*lead, (filled, "muted"), (share, "muted")))
    return lines or view.error_group_lines(transport, now, width)


def figure_lines(session: PlaceSession, name: str, now: float, width: int) -> list[Line]:
    """Counts over time and grouped errors of a transport, below a plan for it."""
    known = session.readings.sending.transports
    if (transport := next((one for one in known if one.name == name), None)) is None:
        return []
    windows = view.window_lines(transport, width, session.place.alerts.transport_failures)
    errors = view.titled_lines("Errors, last hour, grouped", fault_lines(transport, now, width))
    return [BLANK_LINE, *windows, BLANK_LINE, *errors]


def _latest_lines(transport: TransportHealth, now: float, width: int, room: int) -> list[Line]:
    most = len(transport.failures)
    while len(lines := view.latest_error_lines(transport, now, width, most)) > room and most > 1:
        most -= 1
    return lines


def log_lines(words: Sequence[LogLine], width: int, room: int) -> list[Line]:
    """The last lines of the log that mention it."""
    if room <= 0:
        return []
    last = words[-room:]
    rows = [log_line(line.when, line.level, shorten_ids(line.text), width) for line in last]
    rows = rows or [((" no recent log lines of it", "muted"),)]
    return rows + [BLANK_LINE] * (room - len(rows))


def _sums(values: Sequence[int | None], length: int) -> list[int | None]:
    """The sum of each `length` values, the last ones whole; None where none is known."""
    groups = [values[max(0, end - length) : end] for end in range(len(values), 0, -length)]
    known = [[value for value in group if value is not None] for group in reversed(groups)]
    return [sum(group) if group else None for group in known]


def graph_lines(inputs: Shown, width: int, height: int) -> list[Line]:
    """Mails sent and failed in each of the last minutes, at a low rate of an hour in each five
    minutes, and when it was suspended."""
    minutes = inputs.transport.minutes[-inputs.minutes :]
    known = [counts for counts in minutes if counts is not None]
    if not known:
        return [((" ? ", "unknown"), ("counts per minute are not in the log", "muted"))]
    most = max(max(counts.success, counts.failed) for counts in known)
    is_dense = most >= MIN_MAILS_A_MINUTE or inputs.minutes < HOUR_MINUTES
    length, unit = (1, "minute") if is_dense else (5, "5 minutes")
    sent = _sums([None if one is None else one.success for one in minutes], length)
    failed = _sums([None if one is None else one.failed for one in minutes], length)
    most = max(value for value in (*sent, *failed) if value is not None)
    stop = inputs.routes.stopped.get(inputs.transport.name) if inputs.routes is not None else None
    mark = [] if stop is None else [_suspension_line(stop, inputs, width)]
    top, dots = rounded_top(most), graph_steps(width)
    rows = max(2, height - 1 - len(mark))
    layers = [
        (braille_line(resample(values, dots), 0, top, rows), style)
        for values, style in ((failed, "error"), (sent, "ok"))
    ]
    legend: list[tuple[str, str]] = [(" ", "")]
    for name, values, style in (("sent", sent, "ok"), ("failed", failed, "error")):
        last = Figure(values[-1]).text()
        legend += [(KEY, style), (f" {name} ", "muted"), (f"{last}  ", "")]
    scale: Line = ((f"per {unit}, max {most:,}", "muted"),)
    plot = with_axis(overlay(layers), f"{top:,.0f}", width)
    return [join_ends(tuple(legend), scale, width), *plot, *mark]


def _suspension_line(stop: TransportSuspension, inputs: Shown, width: int) -> Line:
    """When it was suspended, beside a mark at that time; without the mark if that was earlier."""
    cells, text = width - AXIS_CELLS, f"suspended {format_clock(stop.since)}"
    at = int(cells * (1 - (inputs.now - stop.since) / (60.0 * inputs.minutes)))
    at = min(at, cells - 1)
    before = at - len(text) - 1
    words = text if at < 0 else f"{text} │" if before >= 0 else f"{'':{at}}│ {text}"
    return cut_line(((" " * (AXIS_CELLS + max(0, before)), ""), (words, "warn")), width)
