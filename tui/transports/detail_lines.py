"""Details of one transport: state and use, counts over time, errors, sources of the figures."""

from __future__ import annotations

from collections.abc import Sequence

from engine.monitor.prometheus import NOT_THERE
from engine.monitor.transport_health import (
    MAX_TRANSPORTS,
    CountWindow,
    DeliveryCounts,
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
from engine.text.figure import UNKNOWN
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_error, safe_line
from tui.text.graphs import bar
from tui.text.lines import (
    BLANK_LINE,
    MARGIN_CELLS,
    UNKNOWN_RUN,
    Line,
    Run,
    cut_line,
    fit_text,
    folded_lines,
    heading_line,
    join_ends,
    parts_that_fit,
    width_of,
)
from tui.text.task_list import short_id
from tui.text.times import format_age, format_minutes, format_time_with_age
from tui.transports import transport_lines as table

BAR_CELLS = 18
MAX_ERROR_GROUPS, MAX_LATEST_ERRORS = 12, 4

MARGIN, LABEL_CELLS = " " * MARGIN_CELLS, 11
"""The blanks before each line, and the width of the labels in cells."""


def titled_lines(title: str, lines: Sequence[Line]) -> list[Line]:
    """Lines with a title above."""
    return [((f"{MARGIN}{title}", "title"),), *lines]


def labelled_lines(
    label: str, text: str, style: str, width: int, cells: int = LABEL_CELLS
) -> list[Line]:
    """A label of so many cells, and a text folded behind it."""
    return folded_lines(text, width, style, ((f"{MARGIN}{label:<{cells}} ", "muted"),))


DIALOG_LABEL_CELLS = 9
"""Width of the labels in cells: values begin where those of other plans do."""


def dialog_lines(label: str, text: str, style: str, width: int) -> list[Line]:
    """A label and a text in a plan, folded."""
    return labelled_lines(label, text, style, width, DIALOG_LABEL_CELLS)


NO_SUCCESS, NO_START = "? no success known", "? not known from the log of the last hour"
"""Why it is not known since when a transport fails, if all its attempts failed, or some."""


def about_lines(
    transport: TransportHealth, limit: float, now: float, width: int, routes: MailRoutes | None
) -> list[Line]:
    """State, since when it fails, use, and the times of the last success and the last failure."""
    rows: list[tuple[str, Run]] = []
    stop = table.suspension_of(transport, routes)
    judged, was = transport.judged, transport._replace(suspended=False).health(limit)
    share = ""
    if judged is not None and judged.tally is not None and judged.share is not None:
        ended = format_count(judged.tally.ended, "attempt")
        share = f", {judged.share:.0%} of {ended} failed in {judged.name} (threshold {limit:.0%})"
    if stop is not None and routes is not None:
        by = f"uses {routes.selected}" if routes.selected else "waits"
        rows += [
            ("since", (f"{format_time_with_age(stop.since, now)} by {stop.who}", "warn")),
            ("reason", (stop.why or "none given", "" if stop.why else "muted")),
            ("effect", (f"stays off until resumed; mail that spooldeck sends {by}", "")),
            ("figures", (f"{was.value}{share}", table.LOOKS[was])),
        ]
    else:
        style = table.LOOKS[was]
        rows.append(("state", (f"{transport.health(limit).value}{share}", style)))
        if was is Health.FAILING:
            start = transport.failing_since(now, limit)
            no_success = judged is not None and judged.share == 1.0
            why = (NO_SUCCESS if no_success else NO_START, "unknown")
            rows.append(("since", why if start is None else (format_time_with_age(start, now), "")))
        if routes is not None:
            rows.append(("use", table.describe_use(transport.name, routes, now)))
    if judged is not None and judged.tally is not None and judged.tally.refused:
        many = "es" if judged.tally.refused > 1 else ""
        at = transport.last_refused
        last = "" if at is None else f", last {format_time_with_age(at, now).partition(' (')[0]}"
        words = f"{judged.tally.refused:,} bad address{many} in {judged.name}{last}"
        rows.append(("BAD", (f"{words}, not counted in FAILED", "")))
    never = transport.totals is not None and not transport.totals.success
    unknown: Run = ("? not in log or metrics", "unknown")
    for name, when, otherwise in (
        ("last sent", transport.last_success, ("never", "warn") if never else unknown),
        ("last failed", transport.last_failure, unknown),
    ):
        rows.append((name, otherwise if when is None else (format_time_with_age(when, now), "")))
    return [line for label, run in rows for line in labelled_lines(label, run[0], run[1], width)]


_WIDTHS = (6, 6, 4, 6, 5, 4, 4, 5)
"""Widths of tried, sent, bad, failed, share, p50, p95 and rate in cells."""


def _figures(name: str, cells: Sequence[Run], after: str, width: int) -> Line:
    fitted = [
        (fit_text(text, width, right=True) + " ", style)
        for (text, style), width in zip(cells, _WIDTHS, strict=True)
    ]
    lead, end = (f"{MARGIN}{name:<5}", "muted"), (f" {after:<9}", "muted")
    return parts_that_fit([(run,) for run in (lead, *fitted, end)], width)


def window_lines(transport: TransportHealth, width: int, limit: float = 1.0) -> list[Line]:
    """Counts per time window with their source, or why they are unknown."""
    if why := table.unknown_reason([transport]):
        return labelled_lines("counts     ?", why, "unknown", width)
    titles = ("TRIED", "SENT", "BAD", "FAILED", "FAIL%", "p50", "p95", "/min")
    lines: list[Line] = [_figures("OVER", [(title, "muted") for title in titles], "FROM", width)]
    for window in transport.windows:
        if window.tally is None:
            lines += _unknown_lines(window.name, safe_line(window.reason), width)
        else:
            cells = [
                *_counts(window),
                table.failure_share(window, limit),
                *(table.send_time(window, at) for at in (0, 1)),
                table.attempts_per_minute(window),
            ]
            lines.append(_figures(window.name, cells, window.source, width))
    return lines if transport.totals is None else lines + _total_lines(transport, width)


def _unknown_lines(name: str, why: str, width: int) -> list[Line]:
    lead: Line = ((f"{MARGIN}{name:<6}", "muted"), ("?  ", "unknown"))
    return folded_lines(why, max(29, width), "muted", lead)


def _total_lines(transport: TransportHealth, width: int) -> list[Line]:
    totals, lines = transport.totals or DeliveryCounts(), []
    for window in transport.windows:
        logged = window.tally if window.source is Source.LOG else None
        if logged is not None and any(a < b for a, b in zip(totals[:3], logged, strict=False)):
            why = f"mail.prom has fewer than mail.log in {window.name}"
            return _unknown_lines("all", why, width)
    whole = CountWindow("all", 1.0, totals)
    cells = [*_counts(whole), table.failure_share(whole), *([("-", "muted")] * 3)]
    if totals.failures:  # the counters have bad addresses among the failures
        cells[2:5] = [UNKNOWN_RUN] * 3
        why = f"{MARGIN}all: BAD + FAILED {totals.failures:,}, one count in mail.prom"
        lines = [cut_line(((why, "muted"),), width)]
    return [_figures("all", cells, Source.METRICS, width), *lines]


def _counts(window: CountWindow) -> list[Run]:
    kinds = ("attempts", "success", "refused", "failed")
    return [table.count_run(window, of, cells) for of, cells in zip(kinds, _WIDTHS, strict=False)]


def error_group_lines(transport: TransportHealth, now: float, width: int) -> list[Line]:
    """Errors of the last hour, grouped, each with its share."""
    if not transport.faults:
        silent = transport.windows[table.HOUR_WINDOW].source is not Source.LOG
        return [((MARGIN + ("not in the log" if silent else "none"), "muted"),)]
    everything = sum(fault.times for fault in transport.faults)
    most = max(fault.times for fault in transport.faults)
    largest = transport.faults[:MAX_ERROR_GROUPS]
    lines = [_fault(fault, everything, most, now, width) for fault in largest]
    more = len(transport.faults) - MAX_ERROR_GROUPS
    return [*lines, ((f"{MARGIN}+{more} more", "muted"),)] if more > 0 else lines


def _fault(fault: ErrorCluster, everything: int, most: int, now: float, width: int) -> Line:
    cells = BAR_CELLS if width >= 70 else 8 if width >= 50 else 0
    lead: Line = ((MARGIN + f"{fit_count(fault.times, 6):>5}  ", "strong"),)
    if cells:
        lead += ((bar(fault.times / most, cells), "muted"),)
    lead += ((f" {fault.times / everything:>4.0%}  ", ""),)
    last = f" {format_minutes(now - fault.last)} ago"
    room = max(8, width - width_of(lead) - len(last) - 1)
    return (*lead, (fit_text(safe_error(fault.pattern), room), ""), (last, "muted"))


def latest_error_lines(transport: TransportHealth, now: float, width: int, most: int) -> list[Line]:
    """The latest errors, at most so many, with the server's reply if it is known."""
    lines: list[Line] = [] if transport.failures else [((f"{MARGIN}none known", "muted"),)]
    for failure in transport.failures[:most]:
        task: Line = ((short_id(failure.task), "accent"),) if failure.task else ()
        room = width - width_of(task) - bool(task)
        row = failure_row(failure._replace(text=""), now, room)
        lines.append(join_ends(row, task, width) if task else row)
        if failure.text:
            lines += folded_lines(failure.text, width, "muted", ((MARGIN + " " * 11, ""),))[:3]
    more = len(transport.failures) - most
    return [*lines, ((f"{MARGIN}+{more} more: Enter", "muted"),)] if more > 0 else lines


ERROR_CELLS = 28
"""Width of the error if its text is shown beside it, in cells."""


def failure_head(width: int) -> Line:
    """Titles of the list of errors."""
    return ((fit_text(f"{MARGIN}{'WHEN':<9}  {'ERROR':<{ERROR_CELLS}} REPLY", width), "muted"),)


def failure_row(failure: Failure, now: float, width: int) -> Line:
    """The line of an error."""
    when = (
        UNKNOWN
        if failure.when is None
        else format_time_with_age(failure.when, now).partition(" (")[0]
    )
    word = safe_line(failure.word)
    style = "muted" if failure.when else "unknown"
    lead: Line = ((MARGIN, ""), (f"{fit_text(when, 9)}  ", style))
    if failure.text and width >= ERROR_CELLS + 30:
        word = fit_text(word, ERROR_CELLS)
        return cut_line((*lead, (f"{word} ", ""), (safe_line(failure.text), "muted")), width)
    return cut_line((*lead, (word, "")), width)


def failure_lines(failure: Failure, width: int) -> list[Line]:
    """One error in full, with the server's reply."""
    reply = (failure.text, "") if failure.text else ("no server reply recorded", "muted")
    rows = [("error", failure.word, ""), ("reply", *reply), ("log line", failure.line, "muted")]
    return [line for row in rows if row[1] for line in labelled_lines(*row, width)]


# Sources


def source_lines(sending: MailHealth, now: float, width: int) -> list[Line]:
    """Sources of the numbers, and their age."""
    lines = [cut_line(_source_line(report, now), width) for report in sending.sources]
    lines += [cut_line(_spool_line(sending), width)] if sending.backlog is not None else []
    if sending.others:
        more = f"{MARGIN}{sending.others:,} more in mail.prom; {MAX_TRANSPORTS} shown"
        lines.append(((more, "warn"),))
    return lines


def _spool_line(sending: MailHealth) -> Line:
    backlog, name = sending.backlog, (f"{MARGIN}{'mail spool':<{LABEL_CELLS}} ", "muted")
    if not isinstance(backlog, MailBacklog):
        return name, ("? ", "unknown"), (safe_line(backlog or ""), "")
    if not backlog.mails:
        return name, ("empty", "")
    mails = format_count(backlog.mails, "mail")
    return name, (f"{mails}, oldest {format_minutes(backlog.oldest)}", "")


def _source_line(report: SourceReport, now: float) -> Line:
    name: Run = (f"{MARGIN}{report.source:<{LABEL_CELLS}} ", "muted")
    if report.problem == NOT_THERE:
        return name, ("none yet", "muted")
    if report.problem:
        return name, ("? ", "unknown"), (safe_line(report.problem), "")
    log = report.source is Source.LOG
    text = "no dated line yet" if log else "not written yet"
    if report.when is not None:
        text = f"{'last line' if log else 'written'} {format_age(now - report.when)}"
    return name, (f"{text}; {_coverage_text(report, now)}", "")


def _coverage_text(report: SourceReport, now: float) -> str:
    if report.since is None:
        return "reading ..."
    if report.since == float("inf"):
        return "no dated lines"
    if report.since == float("-inf"):
        return "complete"
    verb = "known" if report.source is Source.LOG else "watched"
    return f"{verb} for {format_minutes(now - report.since)}"


# All of it


def detail_lines(
    transport: TransportHealth,
    sending: MailHealth,
    limit: float,
    now: float,
    width: int,
    routes: MailRoutes | None = None,
) -> list[Line]:
    """Details of one transport, below each other."""
    latest = latest_error_lines(transport, now, width, MAX_LATEST_ERRORS)
    known = source_lines(sending, now, width)
    parts = [
        *about_lines(transport, limit, now, width, routes),
        *titled_lines("Errors, last hour, grouped", error_group_lines(transport, now, width)),
        *window_lines(transport, width, limit),
        *(titled_lines("Latest errors", latest) if transport.failures else []),
        *(titled_lines("Source", known) if known else []),
    ]
    return [cut_line(line, width) for line in parts]


def page_lines(
    sending: MailHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> list[Line]:
    """Everything on one page, for printing."""
    lines: list[Line] = []
    if routes is not None and routes.unknown:
        why, style = table.describe_route(routes)
        lines += [*folded_lines(why, width, style, ((MARGIN, ""),)), BLANK_LINE]
    known = source_lines(sending, now, width)
    sources = titled_lines("Source", known) if known else []
    if not sending.transports:
        none = table.no_transports_line(sending, has_mail=routes is not None)
        return [*lines, none, *([BLANK_LINE, *sources] if sources else [])]
    titles, listed = table.transport_rows(sending, limit, now, width, routes)
    lines += [titles, *(line for _, line in listed), BLANK_LINE]
    if routes is not None and not routes.unknown:
        lines += [*_route_lines(routes, now, width), BLANK_LINE]
    unsourced = sending._replace(sources=(), others=0, backlog=None)
    for transport in table.sort_transports(sending, limit, routes):
        tried = transport.health(limit) is not Health.IDLE or transport.faults
        if tried and (routes is None or transport.is_mentioned):
            lines.append(heading_line(safe_line(transport.name), width))
            lines += detail_lines(transport, unsourced, limit, now, width, routes=routes)
            lines.append(BLANK_LINE)
    return [*lines, *sources]


def _route_lines(routes: MailRoutes, now: float, width: int) -> list[Line]:
    lines = [heading_line(table.describe_route(routes)[0], width)]
    for name in routes.order:
        text, style = table.describe_use(name, routes, now)
        lines += labelled_lines(fit_text(safe_line(name), LABEL_CELLS), text, style, width)
    return lines
