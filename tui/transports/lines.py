"""Text of the transports screen: table, counts, errors, routes and sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from engine.config.mail_config import NOWHERE
from engine.logs.task_events import NO_TRANSPORT
from engine.monitor.transport_health import (
    MAX_TRANSPORTS,
    TEN_MINUTES,
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
    TransportUse,
)
from engine.text.safe import safe_line
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK_LINE, Line, Run
from tui.format.table import sparkline
from tui.transports.suspend_lines import describe_suspension

LOOKS = {
    Health.OK: "ok",
    Health.FAILING: "error",
    Health.IDLE: "muted",
    Health.OVER: "muted",
    Health.UNKNOWN: "unknown",
    Health.SUSPENDED: "warn",
}

UNKNOWN: Run = ("?", "unknown")
MARGIN = 3
"""Width of cursor and sign before the first column, in cells."""

BAR_CELLS = 18
"""Width of a bar that stands for all errors, in cells."""

MAX_ERROR_GROUPS = 12
"""Maximum number of error groups listed."""

MAX_LATEST_ERRORS = 4
"""Number of latest errors shown on the overview of a transport."""

USE_LOOKS = {
    TransportUse.NOW: "ok",
    TransportUse.READY: "",
    TransportUse.SUSPENDED: "warn",
    TransportUse.ABSENT: "muted",
    TransportUse.BARRED: "muted",
    TransportUse.FOREIGN: "muted",
    TransportUse.UNKNOWN: "unknown",
}

Cell: TypeAlias = Callable[[TransportHealth, float, float], Run]
"""(transport, failure threshold, now) -> text and style"""


class TransportColumn(NamedTuple):
    """A column of the table of transports."""

    title: str
    width: int
    cell: Cell
    min_width: int = 0
    """Minimum screen width in cells."""
    left: bool = False


def _state(way: TransportHealth, limit: float, now: float) -> Run:
    health = way.health(limit)
    return health.value, LOOKS[health]


def _count_cell(at: int, of: str, width: int) -> Cell:
    def cell(way: TransportHealth, limit: float, now: float) -> Run:
        tally = way.windows[at].tally
        if tally is None:
            return UNKNOWN
        number = int(getattr(tally, of))
        return format_count(number, width), "error" if of == "failures" and number else ""

    return cell


def failure_share(window: CountWindow) -> Run:
    """Share of failed mails: `8%`, `-` if none was finished, `?` if unknown."""
    if window.tally is None:
        return UNKNOWN
    if window.share is None:
        return "-", ""
    return f"{window.share:.0%}", "error" if window.share else ""


def attempts_per_minute(window: CountWindow) -> Run:
    """Attempts per minute."""
    if window.rate is None:
        return UNKNOWN
    return present.format_rate(60 * window.rate), ""


def _last_sent(way: TransportHealth, limit: float, now: float) -> Run:
    if way.last_success is not None:
        return present.format_duration(now - way.last_success), ""
    never = way.totals is not None and not way.totals.success
    return ("never", "warn") if never else UNKNOWN


def _source(way: TransportHealth, limit: float, now: float) -> Run:
    source = way.windows[TEN_MINUTES].source
    return (source.value, "muted") if source else UNKNOWN


HOUR_WINDOW = TEN_MINUTES + 1

COLUMNS = (
    TransportColumn("STATE", 9, _state, left=True),
    TransportColumn("TRIED", 6, _count_cell(TEN_MINUTES, "attempts", 6), 34),
    TransportColumn("SENT", 6, _count_cell(TEN_MINUTES, "success", 6), 70),
    TransportColumn("FAILED", 6, _count_cell(TEN_MINUTES, "failures", 6), 44),
    TransportColumn(
        "FAIL%", 5, lambda way, limit, now: failure_share(way.windows[TEN_MINUTES]), 50
    ),
    TransportColumn(
        "/min", 5, lambda way, limit, now: attempts_per_minute(way.windows[TEN_MINUTES]), 60
    ),
    TransportColumn("LAST", 7, _last_sent, 60),
    TransportColumn("1h TRIED", 8, _count_cell(HOUR_WINDOW, "attempts", 8), 110),
    TransportColumn(
        "1h FAIL%", 8, lambda way, limit, now: failure_share(way.windows[HOUR_WINDOW]), 100
    ),
    TransportColumn("FROM", 9, _source, 140, left=True),
    TransportColumn(
        "LAST 10m", 10, lambda way, limit, now: (sparkline(way.spark), ""), 80, left=True
    ),
)
"""Columns after the name, in order; without a span in the title they cover the last ten minutes."""

LAST_ERROR_MIN_WIDTH = 120
"""Minimum screen width in cells for a column with the last error."""


_DROPPED_COLUMN, _DROPPED_BELOW_WIDTH = "/min", 90
"""Column dropped below this width on screens that have the USED column."""


def _used(routes: MailRoutes) -> TransportColumn:
    def cell(way: TransportHealth, limit: float, now: float) -> Run:
        use = routes.use(way.name)
        return ("-" if use is TransportUse.SUSPENDED else use.value), USE_LOOKS[use]

    return TransportColumn("USED", 6, cell, left=True)


class TransportLayout(NamedTuple):
    """Visible columns, and the widths of name and last error."""

    name: int
    columns: tuple[TransportColumn, ...]
    error: int


def table_layout(width: int, routes: MailRoutes | None = None) -> TransportLayout:
    """The columns that fit the width."""
    columns = tuple(column for column in COLUMNS if width >= column.min_width)
    if routes is not None:
        kept = (c for c in columns if c.title != _DROPPED_COLUMN or width >= _DROPPED_BELOW_WIDTH)
        columns = (_used(routes), *kept)
    rest = width - MARGIN - sum(column.width + 1 for column in columns)
    name = max(4, min(14, rest))
    return TransportLayout(name, columns, rest - name - 1 if width >= LAST_ERROR_MIN_WIDTH else 0)


def _in(text: str, column: TransportColumn) -> str:
    return present.fit_text(text, column.width, right=not column.left)


def head_line(width: int, routes: MailRoutes | None = None) -> Line:
    """Column titles."""
    form = table_layout(width, routes)
    titles = [_in(column.title, column) for column in form.columns]
    last = ["LAST ERROR"] if form.error > 10 else []
    text = " " * MARGIN + " ".join([present.fit_text("TRANSPORT", form.name), *titles, *last])
    return ((present.fit_text(text, width), "title"),)


def transport_line(
    way: TransportHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> Line:
    """The line of a transport; a short line without counts for mail that had no transport."""
    form = table_layout(width, routes)
    failing = way.health(limit) is Health.FAILING
    lead: Line = (
        (" ", ""),
        ("! " if failing else "  ", "error"),
        (present.fit_text(safe_line(way.name), form.name), "strong"),
    )
    if way.name == NO_TRANSPORT:
        return present.cut_line(
            present.merge_runs([*lead, _no_transport_cell(way, failing)]), width
        )
    runs: list[Run] = []
    for column in form.columns:
        text, look = column.cell(way, limit, now)
        runs += [(" ", ""), (_in(text, column), look)]
    latest = max(way.faults, key=lambda fault: fault.last, default=None)
    if form.error > 10 and latest is not None:
        runs += [(" ", ""), (safe_line(latest.example), "error")]
    return present.cut_line(present.merge_runs([*lead, *runs]), width)


def _no_transport_cell(way: TransportHealth, failing: bool) -> Run:
    tallies = [(way.windows[at].name, way.windows[at].tally) for at in (TEN_MINUTES, HOUR_WINDOW)]
    counted = [
        f"{'?' if tally is None else format_count(tally.failures, 6).strip()} in {name}"
        for name, tally in tallies
    ]
    return f" mail without a transport: {', '.join(counted)}", "error" if failing else "muted"


def transport_rows(
    sending: MailHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> tuple[Line, list[tuple[str, Line]]]:
    """The table head, and name and line of each transport."""
    ways = sort_transports(sending, limit, routes)
    return head_line(width, routes), [
        (w.name, transport_line(w, limit, now, width, routes)) for w in ways
    ]


_RANK = {
    **{Health.FAILING: 0, Health.SUSPENDED: 0, Health.OK: 1},
    **{Health.UNKNOWN: 2, Health.OVER: 3, Health.IDLE: 4},
}


def sort_transports(
    sending: MailHealth, limit: float, routes: MailRoutes | None = None
) -> list[TransportHealth]:
    """Sort transports: failing and suspended first, idle last, those in use before others.

    Otherwise stable.
    """

    def rank(way: TransportHealth) -> tuple[int, bool]:
        use = TransportUse.FOREIGN if routes is None else routes.use(way.name)
        return _RANK[way.health(limit)], use is not TransportUse.NOW

    return sorted(sending.transports, key=rank)


def no_transports_line(sending: MailHealth) -> Line:
    """Why no transport is shown."""
    if sending.is_reading:
        return ((" reading mail.log ...", "muted"),)
    if not sending.sources:
        return ((" no mail figures: mail.prom and mail.log are missing", "muted"),)
    return ((" no transport in mail.prom, none in the last hour of mail.log", "muted"),)


# Details of one transport


_WIDTHS = (7, 7, 7, 6, 6)
"""Widths of tried, sent, failed, share and rate in cells."""


def _figures(name: str, cells: Sequence[Run], after: str, look: str = "muted") -> Line:
    fitted = [
        (present.fit_text(text, width, right=True) + " ", look)
        for (text, look), width in zip(cells, _WIDTHS, strict=True)
    ]
    return ((f" {name:<6}", ""), *fitted, (f" {after}", look))


def window_lines(way: TransportHealth, width: int) -> list[Line]:
    """Counts per time window with their source, or why they are unknown."""
    titles = [(title, "muted") for title in ("tried", "sent", "failed", "fail%", "/min")]
    lines: list[Line] = [_figures("over", titles, "from")]
    for window in way.windows:
        if window.tally is None:
            first, *rest = present.fold_text(safe_line(window.reason), max(20, width - 12))
            lines.append(((f" {window.name:<6}", ""), ("?  ", "unknown"), (first, "muted")))
            lines += [((f"          {more}", "muted"),) for more in rest]
        else:
            counts = _counts(*window.tally)
            lines.append(
                _figures(
                    window.name,
                    [*counts, failure_share(window), attempts_per_minute(window)],
                    window.source,
                )
            )
    if way.totals is not None:
        cells = [*_counts(*way.totals), ("", ""), ("", "")]
        lines.append(_figures("all", cells, f"{Source.METRICS}, since the counters started"))
    return lines


def _counts(tried: int, sent: int, failed: int) -> list[Run]:
    bad = "error" if failed else ""
    return [
        (format_count(tried, 7), ""),
        (format_count(sent, 7), ""),
        (format_count(failed, 7), bad),
    ]


def last_result_lines(way: TransportHealth, now: float) -> list[Line]:
    """Times of the last success and the last failure."""
    never = way.totals is not None and not way.totals.success
    lines: list[Line] = []
    for name, when, otherwise in (
        ("last sent", way.last_success, "never" if never else "?"),
        ("last failed", way.last_failure, "?"),
    ):
        if when is None:
            unknown: Run = (otherwise, "unknown" if otherwise == "?" else "warn")
            seen = "  not in log or metrics" if otherwise == "?" else ""
            lines.append(((f" {name:<12} ", "muted"), unknown, (seen, "muted")))
        else:
            lines.append(((f" {name:<12} ", "muted"), (present.format_time(when, now), "")))
    return lines


def error_group_lines(way: TransportHealth, now: float, width: int) -> list[Line]:
    """Errors of the last hour, grouped, each with its share."""
    lines = [present.heading_line("errors, last hour, grouped", width)]
    if not way.faults:
        silent = way.windows[HOUR_WINDOW].source is not Source.LOG
        why = "not in the log" if silent else "none"
        return [*lines, ((f" {why}", "muted"),)]
    everything = sum(fault.times for fault in way.faults)
    lines += [_fault(fault, everything, now, width) for fault in way.faults[:MAX_ERROR_GROUPS]]
    more = len(way.faults) - MAX_ERROR_GROUPS
    return [*lines, ((f"   +{more} more", "muted"),)] if more > 0 else lines


def _fault(fault: ErrorCluster, everything: int, now: float, width: int) -> Line:
    part = fault.times / everything
    bar = (
        present.fit_text("#" * max(1, round(BAR_CELLS * part)), BAR_CELLS)
        if width >= present.NARROW_COLUMNS + 10
        else ""
    )
    lead = f" {format_count(fault.times, 6):>6} {part:>4.0%}  {bar}{' ' if bar else ''}"
    last = f" {present.format_duration(now - fault.last)} ago"
    room = max(8, width - len(lead) - len(last))
    return (
        (lead, ""),
        (present.fit_text(safe_line(fault.pattern), room), "error"),
        (last, "muted"),
    )


def latest_error_lines(way: TransportHealth, now: float, width: int) -> list[Line]:
    """The latest errors, with the server's reply if it is known."""
    if not way.failures:
        return []
    lines = [present.heading_line("latest errors", width)]
    for failure in way.failures[:MAX_LATEST_ERRORS]:
        _, *row = failure_row(failure._replace(text=""), now, width)
        lines.append(present.cut_line(((" ", ""), *row), width))
        if failure.text:
            pieces = present.fold_text(safe_line(failure.text), max(8, width - 12))
            lines += [((f"{'':<11}{piece}", ""),) for piece in pieces[:3]]
    more = len(way.failures) - MAX_LATEST_ERRORS
    said = f"   +{more} more: Enter" if more > 0 else ""
    return [*lines, ((said, "muted"),)] if said else lines


ERROR_CELLS = 28
"""Width of the error if its text is shown beside it, in cells."""


def failure_head(width: int) -> Line:
    """Titles of the list of errors."""
    return ((present.fit_text(f"  {'WHEN':<10} {'ERROR':<{ERROR_CELLS}} REPLY", width), "title"),)


def failure_row(failure: Failure, now: float, width: int) -> Line:
    """The line of an error."""
    when = (
        "?" if failure.when is None else present.format_time(failure.when, now).partition(" (")[0]
    )
    word = safe_line(failure.word)
    lead: Line = (("  ", ""), (f"{present.fit_text(when, 10)} ", "" if failure.when else "unknown"))
    if failure.text and width >= ERROR_CELLS + 30:
        word = present.fit_text(word, ERROR_CELLS)
        return present.cut_line(
            (*lead, (f"{word} ", "error"), (safe_line(failure.text), "")), width
        )
    return present.cut_line((*lead, (word, "error")), width)


def failure_lines(failure: Failure, now: float, width: int) -> list[Line]:
    """One error in full."""
    when = "time unknown" if failure.when is None else present.format_time(failure.when, now)
    lines = [present.heading_line(when, width)]
    no_words = "no server reply recorded"
    said: tuple[Run, ...] = (
        (safe_line(failure.word), "error"),
        (safe_line(failure.text) or no_words, "" if failure.text else "muted"),
    )
    for text, look in said:
        lines += [((f" {piece}", look),) for piece in present.fold_text(text, max(8, width - 2))]
    return lines


_DISABLED_TEXTS = {NOWHERE: "disabled (mail.method none)"}


def describe_foreign(name: str) -> str:
    """Explain a row that is not a configured transport."""
    if name == NO_TRANSPORT:
        return "mail without a transport, spooled"
    return "not configured; found in log or metrics"


def describe_use(name: str, routes: MailRoutes, now: float) -> Run:
    """Whether mail uses a transport now, or why not."""
    use = routes.use(name)
    stop, why = routes.stopped.get(name), safe_line(routes.why_not.get(name, ""))
    words = {
        TransportUse.NOW: "in use",
        TransportUse.READY: f"not used: {safe_line(routes.selected)} comes first",
        TransportUse.SUSPENDED: "" if stop is None else describe_suspension(stop, now),
        TransportUse.ABSENT: f"not used: {why}",
        TransportUse.BARRED: _DISABLED_TEXTS.get(
            routes.forced, f"disabled: {safe_line(routes.forced)} is forced"
        ),
        TransportUse.FOREIGN: describe_foreign(name),
        TransportUse.UNKNOWN: f"use unknown: {safe_line(routes.unknown)}",
    }
    return words[use], USE_LOOKS[use]


def _used_lines(name: str, routes: MailRoutes | None, now: float, width: int) -> list[Line]:
    if routes is None:
        return []
    text, look = describe_use(name, routes, now)
    return [((f" {piece}", look),) for piece in present.fold_text(text, max(8, width - 2))]


def source_lines(sending: MailHealth, now: float, width: int) -> list[Line]:
    """Sources of the numbers, and their age."""
    lines = [present.heading_line("sources", width)]
    lines += [present.cut_line(_source_line(told, now), width) for told in sending.sources]
    lines += [present.cut_line(spool_line(sending), width)] if sending.backlog is not None else []
    if sending.others:
        more = f" {sending.others:,} more in mail.prom; {MAX_TRANSPORTS} shown"
        lines.append(((more, "warn"),))
    return lines


def spool_line(sending: MailHealth) -> Line:
    """Number and age of mails in the spool."""
    found, name = sending.backlog, (" mail spool ", "muted")
    if not isinstance(found, MailBacklog):
        return name, ("? ", "unknown"), (safe_line(found or ""), "")
    if not found.mails:
        return name, ("empty", "")
    mails = present.format_count(found.mails, "mail")
    return name, (f"{mails}, oldest {present.format_duration(found.oldest)}", "")


def _source_line(told: SourceReport, now: float) -> Line:
    name: Run = (f" {told.source:<10} ", "muted")
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


def detail_lines(
    way: TransportHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> list[Line]:
    """Details of one transport."""
    title = f"{safe_line(way.name)}: {way.health(limit).value}"
    judged = way.judged
    if judged is not None and judged.share is not None:
        title += f", {judged.share:.0%} failed in {judged.name} (threshold {limit:.0%})"
    lines: Sequence[Line] = (
        present.heading_line(title, width),
        *_used_lines(way.name, routes, now, width),
        *window_lines(way, width),
        *last_result_lines(way, now),
        *error_group_lines(way, now, width),
        *latest_error_lines(way, now, width),
    )
    return [present.cut_line(line, width) for line in lines]


def page_lines(
    sending: MailHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> list[Line]:
    """Everything on one page, for printing."""
    lines: list[Line] = []
    if routes is not None and routes.unknown:
        why, look = describe_route(routes)
        lines += [((f" {piece}", look),) for piece in present.fold_text(why, max(8, width - 1))]
        lines.append(BLANK_LINE)
    if not sending.transports:
        return [*lines, no_transports_line(sending), BLANK_LINE, *source_lines(sending, now, width)]
    titles, listed = transport_rows(sending, limit, now, width, routes)
    lines += [titles, *(line for _, line in listed), BLANK_LINE]
    if routes is not None and not routes.unknown:
        lines += [*route_lines(sending, routes, now, width), BLANK_LINE]
    for way in sort_transports(sending, limit, routes):
        tried = way.health(limit) is not Health.IDLE or way.faults
        if tried and (routes is None or way.is_mentioned):
            lines += [*detail_lines(way, limit, now, width, routes), BLANK_LINE]
    return [*lines, *source_lines(sending, now, width)]


def route_lines(sending: MailHealth, routes: MailRoutes, now: float, width: int) -> list[Line]:
    """The transport in use, and why each other one is not."""
    lines = [present.heading_line(describe_route(routes)[0], width)]
    if routes.unknown:
        return lines
    for name in routes.order:
        text, look = describe_use(name, routes, now)
        first, *rest = present.fold_text(text, max(8, width - 13)) or [""]
        lines.append(((f" {present.fit_text(safe_line(name), 10)} ", "strong"), (first, look)))
        lines += [((f"{'':<12}{piece}", look),) for piece in rest]
    return lines


def describe_route(routes: MailRoutes) -> Run:
    """The transport in use, in a few words."""
    if routes.unknown:
        return f"transport unknown: {safe_line(routes.unknown)}", "unknown"
    if routes.selected:
        return f"transport: {safe_line(routes.selected)}", "ok"
    if routes.is_waiting:
        return "mail waits: no usable transport", "error"
    if routes.forced == NOWHERE:
        return "mail disabled (mail.method none)", "muted"
    if routes.forced:
        return f"no mail sent: {safe_line(routes.forced)} is forced but unusable", "error"
    return "no mail sent: no transport is available", "muted"


def summary_line(sending: MailHealth, limit: float, routes: MailRoutes | None = None) -> Line:
    """Summary of all transports in one line."""
    if routes is not None:
        text, look = describe_route(routes)
        return ((f" {text};", look), *summary_line(sending, limit))
    failing = [way.name for way in sending.transports if way.health(limit) is Health.FAILING]
    many = present.format_count(
        sum(w.name != NO_TRANSPORT for w in sending.transports), "transport"
    )
    if failing:
        names = ", ".join(safe_line(name) for name in failing)
        return ((f" {many}, {len(failing)} failing: {names}", "error"),)
    return ((f" {many}, none failing", "muted"),)
