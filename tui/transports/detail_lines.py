"""Details of one transport: state and use, counts over time, errors, sources of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from engine.monitor.transport_health import (
    MAX_TRANSPORTS,
    CountWindow,
    ErrorCluster,
    Failure,
    Health,
    MailBacklog,
    MailHealth,
    MailRoutes,
    Source,
    SourceReport,
    TransportHealth,
)
from engine.text.safe import safe_line
from tui.format import present
from tui.format.flow_graph import AXIS_CELLS, KEY, graph_steps, time_axis, with_axis
from tui.format.graphs import bar, braille_line, overlay, resample, rounded_top
from tui.format.human import format_count
from tui.format.present import BLANK_LINE, Line, Run
from tui.transports import lines as table

BAR_CELLS = 18
"""Width in cells of the bar of the most frequent error."""

MAX_ERROR_GROUPS = 12
"""Maximum number of error groups listed."""

GRAPH_LINES, HOUR_MINUTES = 5, 60
"""Lines that the graph has at least, and its longest range."""

GRAPH_TEXT_LINES = 4
"""Lines of a graph without its rows: title, legend, axis, and a blank one."""

MIN_MAILS_A_MINUTE = 3
"""Below it a graph of single minutes would be a row of peaks."""

MAX_LATEST_ERRORS, MAX_ERRORS_BESIDE = 4, 9
"""Number of latest errors shown below the other details, and beside them."""

LABEL_CELLS = 11
"""Width of the labels in cells."""

TWO_COLUMNS_WIDTH = 110
"""Minimum width for two columns of details."""


def section(title: str, lines: Sequence[Line]) -> list[Line]:
    """Lines with a title above."""
    return [((f" {title}", "title"),), *lines]


def fold_lines(text: str, width: int, look: str = "", label: str = "") -> list[Line]:
    """A label and a folded text; both are escaped here."""
    indent = LABEL_CELLS + 2 if label else 1
    pieces = present.fold_text(safe_line(text), max(8, width - indent - 1))
    first: Line = ((f" {label:<{LABEL_CELLS}} ", "muted"),) if label else ((" ", ""),)
    rest = [((" " * indent + piece, look),) for piece in pieces[1:]]
    return [(*first, (pieces[0], look)), *rest]


def about_lines(
    way: TransportHealth, limit: float, now: float, width: int, routes: MailRoutes | None
) -> list[Line]:
    """State, use, and the times of the last success and the last failure."""
    rows: list[tuple[str, Run]] = []
    stop = routes.stopped.get(way.name) if routes is not None and way.suspended else None
    judged, was = way.judged, way._replace(suspended=False).health(limit)
    share = ""
    if judged is not None and judged.share is not None:
        share = f", {judged.share:.0%} failed in {judged.name} (threshold {limit:.0%})"
    if stop is not None and routes is not None:
        instead = f"{routes.selected} is used" if routes.selected else "mail waits"
        rows += [
            ("since", (f"{present.format_time(stop.since, now)} by {stop.who}", "warn")),
            ("reason", (stop.why or "none given", "" if stop.why else "muted")),
            ("effect", (f"stays off until resumed; {instead}", "")),
            ("figures", (f"{was.value}{share}", table.LOOKS[was])),
        ]
    else:
        look = table.LOOKS[was]
        rows.append(("state", (f"{way.health(limit).value}{share}", look)))
        if routes is not None:
            rows.append(("use", table.describe_use(way.name, routes, now)))
    never = way.totals is not None and not way.totals.success
    unknown: Run = ("? not in log or metrics", "unknown")
    for name, when, otherwise in (
        ("last sent", way.last_success, ("never", "warn") if never else unknown),
        ("last failed", way.last_failure, unknown),
    ):
        rows.append((name, otherwise if when is None else (present.format_time(when, now), "")))
    return [line for label, run in rows for line in fold_lines(run[0], width, run[1], label)]


_WIDTHS = (7, 7, 7, 6, 6, 6, 6)
"""Widths of tried, sent, failed, share, p50, p95 and rate in cells."""

WINDOW_CELLS = 68
"""Width of the counts per time window, with their source, in cells."""


def _figures(name: str, cells: Sequence[Run], after: str) -> Line:
    fitted = [
        (present.fit_text(text, width, right=True) + " ", look)
        for (text, look), width in zip(cells, _WIDTHS, strict=True)
    ]
    return ((f" {name:<5}", "muted"), *fitted, (f" {after}", "muted"))


def window_lines(way: TransportHealth, width: int, limit: float = 1.0) -> list[Line]:
    """Counts per time window with their source, or why they are unknown."""
    titles = ("TRIED", "SENT", "FAILED", "FAIL%", "p50", "p95", "/min")
    lines: list[Line] = [_figures("OVER", [(title, "muted") for title in titles], "FROM")]
    for window in way.windows:
        if window.tally is None:
            first, *rest = present.fold_text(safe_line(window.reason), max(20, width - 12))
            lines.append(((f" {window.name:<6}", "muted"), ("?  ", "unknown"), (first, "muted")))
            lines += [((f"          {more}", "muted"),) for more in rest]
        else:
            cells = [
                *_counts(window),
                table.failure_share(window, limit),
                *(table.send_time(window, at) for at in (0, 1)),
                table.attempts_per_minute(window),
            ]
            lines.append(_figures(window.name, cells, window.source))
    if way.totals is not None:
        whole = CountWindow("all", 1.0, way.totals)
        cells = [*_counts(whole), table.failure_share(whole), *([("-", "muted")] * 3)]
        lines.append(_figures("all", cells, Source.METRICS))
    return lines


def _counts(window: CountWindow) -> list[Run]:
    return [table.count_run(window, of, 7) for of in ("attempts", "success", "failures")]


def error_group_lines(way: TransportHealth, now: float, width: int) -> list[Line]:
    """Errors of the last hour, grouped, each with its share."""
    if not way.faults:
        silent = way.windows[table.HOUR_WINDOW].source is not Source.LOG
        return [((" not in the log" if silent else " none", "muted"),)]
    everything = sum(fault.times for fault in way.faults)
    most = max(fault.times for fault in way.faults)
    shown = way.faults[:MAX_ERROR_GROUPS]
    lines = [_fault(fault, everything, most, now, width) for fault in shown]
    more = len(way.faults) - MAX_ERROR_GROUPS
    return [*lines, ((f"   +{more} more", "muted"),)] if more > 0 else lines


def _fault(fault: ErrorCluster, everything: int, most: int, now: float, width: int) -> Line:
    cells = BAR_CELLS if width >= 70 else 8 if width >= 50 else 0
    lead: Line = ((f" {format_count(fault.times, 6):>6}  ", "strong"),)
    if cells:
        lead += ((bar(fault.times / most, cells), "muted"),)
    lead += ((f" {fault.times / everything:>4.0%}  ", ""),)
    last = f" {present.format_duration(now - fault.last)} ago"
    room = max(8, width - present.width_of(lead) - len(last) - 1)
    return (*lead, (present.fit_text(safe_line(fault.pattern), room), ""), (last, "muted"))


def latest_error_lines(way: TransportHealth, now: float, width: int, most: int) -> list[Line]:
    """The latest errors, at most so many, with the server's reply if it is known."""
    lines: list[Line] = []
    for failure in way.failures[:most]:
        _, *row = failure_row(failure._replace(text=""), now, width)
        lines.append(present.cut_line(((" ", ""), *row), width))
        if failure.text:
            pieces = present.fold_text(safe_line(failure.text), max(8, width - 12))
            lines += [((f"{'':<11}{piece}", "muted"),) for piece in pieces[:3]]
    more = len(way.failures) - most
    return [*lines, ((f"   +{more} more: Enter", "muted"),)] if more > 0 else lines


ERROR_CELLS = 28
"""Width of the error if its text is shown beside it, in cells."""


def failure_head(width: int) -> Line:
    """Titles of the list of errors."""
    return ((present.fit_text(f"   {'WHEN':<9}  {'ERROR':<{ERROR_CELLS}} REPLY", width), "muted"),)


def failure_row(failure: Failure, now: float, width: int) -> Line:
    """The line of an error."""
    when = (
        "?" if failure.when is None else present.format_time(failure.when, now).partition(" (")[0]
    )
    word = safe_line(failure.word)
    look = "muted" if failure.when else "unknown"
    lead: Line = (("   ", ""), (f"{present.fit_text(when, 9)}  ", look))
    if failure.text and width >= ERROR_CELLS + 30:
        word = present.fit_text(word, ERROR_CELLS)
        return present.cut_line(
            (*lead, (f"{word} ", ""), (safe_line(failure.text), "muted")), width
        )
    return present.cut_line((*lead, (word, "")), width)


def failure_lines(failure: Failure, width: int) -> list[Line]:
    """One error in full, with the server's reply."""
    reply = (failure.text, "") if failure.text else ("no server reply recorded", "muted")
    rows = [("error", failure.word, ""), ("reply", *reply), ("log line", failure.line, "muted")]
    return [
        line for name, text, look in rows if text for line in fold_lines(text, width, look, name)
    ]


def _sums(values: Sequence[int | None], length: int) -> list[int | None]:
    """The sum of each `length` values, the last ones whole; None where none is known."""
    groups = [values[max(0, end - length) : end] for end in range(len(values), 0, -length)]
    known = [[value for value in group if value is not None] for group in reversed(groups)]
    return [sum(group) if group else None for group in known]


def graph_lines(
    way: TransportHealth,
    now: float,
    width: int,
    height: int = GRAPH_LINES,
    minutes: int = HOUR_MINUTES,
) -> list[Line]:
    """Mails sent and failed in each of the last `minutes`, at a low rate of an hour in each five
    minutes; nothing if none is known.
    """
    shown = way.minutes[-minutes:]
    known = [counts for counts in shown if counts is not None]
    if not known:
        return []
    most = max(max(counts.success, counts.failures) for counts in known)
    is_dense = most >= MIN_MAILS_A_MINUTE or minutes < HOUR_MINUTES
    length, unit_text = (1, "minute") if is_dense else (5, "5 minutes")
    sent = _sums([None if one is None else one.success for one in shown], length)
    failed = _sums([None if one is None else one.failures for one in shown], length)
    most = max(value for value in (*sent, *failed) if value is not None)
    top, dots = rounded_top(most), graph_steps(width)
    layers = [
        (braille_line(resample(values, dots), 0, top, height), look)
        for values, look in ((failed, "error"), (sent, "ok"))
    ]
    legend: Line = (
        *((f" {KEY}", "ok"), (" sent  ", "muted"), (KEY, "error"), (" failed", "muted")),
    )
    unit: Line = ((f"per {unit_text}, max {most:,}", "muted"),)
    times = time_axis(now, 60.0 * minutes, width - AXIS_CELLS).replace("─", " ")
    axis: Line = ((f"{'':{AXIS_CELLS}}{times}", "muted"),)
    rows = with_axis(overlay(layers), f"{top:,.0f}", width)
    return [present.join_ends(legend, unit, width), *rows, axis]


# Sources


def source_lines(sending: MailHealth, now: float, width: int) -> list[Line]:
    """Sources of the numbers, and their age."""
    lines = [present.cut_line(_source_line(told, now), width) for told in sending.sources]
    lines += [present.cut_line(spool_line(sending), width)] if sending.backlog is not None else []
    if sending.others:
        more = f" {sending.others:,} more in mail.prom; {MAX_TRANSPORTS} shown"
        lines.append(((more, "warn"),))
    return lines


def spool_line(sending: MailHealth) -> Line:
    """Number and age of mails in the spool."""
    found, name = sending.backlog, (f" {'mail spool':<{LABEL_CELLS}} ", "muted")
    if not isinstance(found, MailBacklog):
        return name, ("? ", "unknown"), (safe_line(found or ""), "")
    if not found.mails:
        return name, ("empty", "")
    mails = present.format_count(found.mails, "mail")
    return name, (f"{mails}, oldest {present.format_duration(found.oldest)}", "")


def _source_line(told: SourceReport, now: float) -> Line:
    name: Run = (f" {told.source:<{LABEL_CELLS}} ", "muted")
    if told.problem:
        return name, ("? ", "unknown"), (safe_line(told.problem), "")
    log = told.source is Source.LOG
    said = "no dated line yet" if log else "not written yet"
    if told.when is not None:
        said = f"{'last line' if log else 'written'} {present.format_age(now - told.when)}"
    return name, (f"{said}; {_coverage_text(told, now)}", "")


def _coverage_text(told: SourceReport, now: float) -> str:
    if told.since is None:
        return "reading ..."
    if told.since == float("inf"):
        return "no dated lines"
    if told.since == float("-inf"):
        return "complete"
    verb = "known" if told.source is Source.LOG else "watched"
    return f"{verb} for {present.format_duration(now - told.since)}"


# All of it


def detail_lines(
    way: TransportHealth,
    sending: MailHealth,
    limit: float,
    now: float,
    width: int,
    routes: MailRoutes | None = None,
    height: int = 0,
    minutes: int = HOUR_MINUTES,
) -> list[Line]:
    """Details of one transport; in two columns if the width allows. Then the graph of the last
    `minutes` gets what is left of `height` lines.
    """
    wide = width >= TWO_COLUMNS_WIDTH
    right = max(width // 2, WINDOW_CELLS) if wide else width
    left = width - right - 2 if wide else width
    errors = section("Errors, last hour, grouped", error_group_lines(way, now, left))
    latest = latest_error_lines(way, now, right, MAX_ERRORS_BESIDE if wide else MAX_LATEST_ERRORS)
    last = section("Latest errors", latest) if latest else []
    about = about_lines(way, limit, now, left, routes)
    windows = window_lines(way, right, limit)
    known = source_lines(sending, now, left)
    sources = section("Source", known) if known else []
    if not wide:
        parts = [*about, *windows, *errors, *last, *sources]
        return [present.cut_line(line, width) for line in parts]
    one = [*about, BLANK_LINE, *errors, BLANK_LINE, *sources]
    beside = len(windows) + 1 + (len(last) + 1 if last else 0)
    height = max(GRAPH_LINES, height - beside - GRAPH_TEXT_LINES)
    graph = graph_lines(way, now, right, height, minutes)
    span = "1h" if minutes == HOUR_MINUTES else f"{minutes}m"
    course = section(f"{safe_line(way.name)}, last {span}", graph) if graph else []
    other = [line for part in (windows, course, last) if part for line in (*part, BLANK_LINE)]
    return [
        (*present.cut_line(a, left), ("  ", ""), *present.cut_line(b, right))
        for a, b in zip_longest(one, other, fillvalue=BLANK_LINE)
    ]


def page_lines(
    sending: MailHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> list[Line]:
    """Everything on one page, for printing."""
    lines: list[Line] = []
    if routes is not None and routes.unknown:
        why, look = table.describe_route(routes)
        lines += [*fold_lines(why, width, look), BLANK_LINE]
    sources = section("Source", source_lines(sending, now, width))
    if not sending.transports:
        return [*lines, table.no_transports_line(sending), BLANK_LINE, *sources]
    titles, listed = table.transport_rows(sending, limit, now, width, routes)
    lines += [titles, *(line for _, line in listed), BLANK_LINE]
    if routes is not None and not routes.unknown:
        lines += [*route_lines(routes, now, width), BLANK_LINE]
    for way in table.sort_transports(sending, limit, routes):
        tried = way.health(limit) is not Health.IDLE or way.faults
        if tried and (routes is None or way.is_mentioned):
            lines.append(present.heading_line(safe_line(way.name), width))
            about = detail_lines(
                way, sending._replace(sources=(), others=0, backlog=None), limit, now, width, routes
            )
            lines += [*about, BLANK_LINE]
    return [*lines, *sources]


def route_lines(routes: MailRoutes, now: float, width: int) -> list[Line]:
    """The transport in use, and why each other one is not."""
    lines = [present.heading_line(table.describe_route(routes)[0], width)]
    for name in routes.order:
        text, look = table.describe_use(name, routes, now)
        lines += fold_lines(text, width, look, present.fit_text(safe_line(name), LABEL_CELLS))
    return lines
