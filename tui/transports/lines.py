"""How mail is sent, as lines: a row for each transport, and all there is to say of one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from engine.config.mail_config import NOWHERE
from engine.logs.task_events import NOBODY
from engine.monitor.transport_health import (
    FOLLOWED,
    LATELY,
    CountWindow,
    Failure,
    Fault,
    Health,
    HealthReport,
    MailBacklog,
    Routes,
    Sending,
    Source,
    TransportHealth,
    Use,
)
from engine.text.safe import shown
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK, Line, Run
from tui.format.table import spark
from tui.transports.suspend_lines import stopped_words

LOOKS = {
    Health.OK: "good",
    Health.FAILING: "bad",
    Health.IDLE: "dim",
    Health.OVER: "dim",
    Health.UNKNOWN: "unknown",
    Health.SUSPENDED: "warning",
}

UNKNOWN: Run = ("?", "unknown")
MARGIN = 3
"""Cells before the first column: cursor, sign, a space."""

BAR = 18
"""Cells of a bar that stands for all errors."""

FAULTS = 12
"""Sorts of errors that are listed."""

FAILURES = 4
"""Errors that are told one by one where there is more to be told."""

USES = {
    Use.NOW: "good",
    Use.READY: "",
    Use.SUSPENDED: "warning",
    Use.ABSENT: "dim",
    Use.BARRED: "dim",
    Use.FOREIGN: "dim",
    Use.UNKNOWN: "unknown",
}

Cell: TypeAlias = Callable[[TransportHealth, float, float], Run]
"""A transport, the share from which on it fails, and now -> text and look."""


class TransportColumn(NamedTuple):
    """A column of the table of transports."""

    title: str
    width: int
    cell: Cell
    least: int = 0
    """Cells that a screen must have for it."""
    left: bool = False


def _state(way: TransportHealth, limit: float, now: float) -> Run:
    health = way.health(limit)
    return health.value, LOOKS[health]


def _figure(at: int, of: str, width: int) -> Cell:
    def cell(way: TransportHealth, limit: float, now: float) -> Run:
        tally = way.windows[at].tally
        if tally is None:
            return UNKNOWN
        number = int(getattr(tally, of))
        return format_count(number, width), "bad" if of == "failures" and number else ""

    return cell


def share(window: CountWindow) -> Run:
    """The share of mails that failed: `8%`, `-` where none came to an end, `?`."""
    if window.tally is None:
        return UNKNOWN
    if window.share is None:
        return "-", ""
    return f"{window.share:.0%}", "bad" if window.share else ""


def pace(window: CountWindow) -> Run:
    """Attempts a minute."""
    if window.rate is None:
        return UNKNOWN
    return present.rate(60 * window.rate), ""


def _last_sent(way: TransportHealth, limit: float, now: float) -> Run:
    if way.last_success is not None:
        return present.span(now - way.last_success), ""
    never = way.totals is not None and not way.totals.success
    return ("never", "warning") if never else UNKNOWN


def _source(way: TransportHealth, limit: float, now: float) -> Run:
    source = way.windows[LATELY].source
    return (source.value, "dim") if source else UNKNOWN


HOUR = LATELY + 1

COLUMNS = (
    TransportColumn("STATE", 9, _state, left=True),
    TransportColumn("TRIED", 6, _figure(LATELY, "attempts", 6), 34),
    TransportColumn("SENT", 6, _figure(LATELY, "success", 6), 70),
    TransportColumn("FAILED", 6, _figure(LATELY, "failures", 6), 44),
    TransportColumn("FAIL%", 5, lambda way, limit, now: share(way.windows[LATELY]), 50),
    TransportColumn("/min", 5, lambda way, limit, now: pace(way.windows[LATELY]), 60),
    TransportColumn("LAST", 7, _last_sent, 60),
    TransportColumn("1h TRIED", 8, _figure(HOUR, "attempts", 8), 110),
    TransportColumn("1h FAIL%", 8, lambda way, limit, now: share(way.windows[HOUR]), 100),
    TransportColumn("FROM", 9, _source, 140, left=True),
    TransportColumn("LAST 10m", 10, lambda way, limit, now: (spark(way.spark), ""), 80, left=True),
)
"""After the name, in their order; where nothing else is said, of the last ten minutes."""

LAST_ERROR = 120
"""Cells from which on the last error of each has a column as well."""


_GIVES_WAY, _GIVES_WAY_BELOW = "/min", 90
"""Which column is left out, below so many cells, where it is also told which of them are used."""


def _used(routes: Routes) -> TransportColumn:
    def cell(way: TransportHealth, limit: float, now: float) -> Run:
        use = routes.use(way.name)
        return ("-" if use is Use.SUSPENDED else use.value), USES[use]

    return TransportColumn("USED", 6, cell, left=True)


class TransportLayout(NamedTuple):
    """Which columns there are on a screen, and how wide the others are."""

    name: int
    columns: tuple[TransportColumn, ...]
    error: int


def shape(width: int, routes: Routes | None = None) -> TransportLayout:
    """The columns that fit into so many cells."""
    columns = tuple(column for column in COLUMNS if width >= column.least)
    if routes is not None:
        kept = (c for c in columns if c.title != _GIVES_WAY or width >= _GIVES_WAY_BELOW)
        columns = (_used(routes), *kept)
    rest = width - MARGIN - sum(column.width + 1 for column in columns)
    name = max(4, min(14, rest))
    return TransportLayout(name, columns, rest - name - 1 if width >= LAST_ERROR else 0)


def _in(text: str, column: TransportColumn) -> str:
    return present.fit(text, column.width, right=not column.left)


def head(width: int, routes: Routes | None = None) -> Line:
    """The titles of the columns."""
    form = shape(width, routes)
    titles = [_in(column.title, column) for column in form.columns]
    last = ["LAST ERROR"] if form.error > 10 else []
    text = " " * MARGIN + " ".join([present.fit("TRANSPORT", form.name), *titles, *last])
    return ((present.fit(text, width), "title"),)


def row(
    way: TransportHealth, limit: float, now: float, width: int, routes: Routes | None = None
) -> Line:
    """A transport on its line. Mail that found no transport has a line of its own, without figures:
    it is no transport.
    """
    form = shape(width, routes)
    failing = way.health(limit) is Health.FAILING
    lead: Line = (
        (" ", ""),
        ("! " if failing else "  ", "bad"),
        (present.fit(shown(way.name), form.name), "strong"),
    )
    if way.name == NOBODY:
        return present.cut(present.merged([*lead, _without_one(way, failing)]), width)
    runs: list[Run] = []
    for column in form.columns:
        text, look = column.cell(way, limit, now)
        runs += [(" ", ""), (_in(text, column), look)]
    latest = max(way.faults, key=lambda fault: fault.last, default=None)
    if form.error > 10 and latest is not None:
        runs += [(" ", ""), (shown(latest.example), "bad")]
    return present.cut(present.merged([*lead, *runs]), width)


def _without_one(way: TransportHealth, failing: bool) -> Run:
    tallies = [(way.windows[at].name, way.windows[at].tally) for at in (LATELY, HOUR)]
    counted = [
        f"{'?' if tally is None else format_count(tally.failures, 6).strip()} in {name}"
        for name, tally in tallies
    ]
    return f" mail that found no transport: {', '.join(counted)}", "bad" if failing else "dim"


def rows(
    sending: Sending, limit: float, now: float, width: int, routes: Routes | None = None
) -> tuple[Line, list[tuple[str, Line]]]:
    """The head of the table, and for each transport its name and its line."""
    ways = ordered(sending, limit, routes)
    return head(width, routes), [(w.name, row(w, limit, now, width, routes)) for w in ways]


_RANK = {
    **{Health.FAILING: 0, Health.SUSPENDED: 0, Health.OK: 1},
    **{Health.UNKNOWN: 2, Health.OVER: 3, Health.IDLE: 4},
}


def ordered(sending: Sending, limit: float, routes: Routes | None = None) -> list[TransportHealth]:
    """Those that fail first, and those that nobody uses last; else as they were found.

    What an operator has suspended stands with those that fail, what is used now above what is idle.
    """

    def rank(way: TransportHealth) -> tuple[int, bool]:
        use = Use.FOREIGN if routes is None else routes.use(way.name)
        return _RANK[way.health(limit)], use is not Use.NOW

    return sorted(sending.transports, key=rank)


def nothing(sending: Sending) -> Line:
    """Why there is no transport to be shown."""
    if sending.reading:
        return ((" mail.log is being read", "dim"),)
    if not sending.told:
        return ((" no mail figures are kept here: neither mail.prom nor mail.log", "dim"),)
    return ((" no transport is named in mail.prom, and none in the last hour of mail.log", "dim"),)


# One of them


_WIDTHS = (7, 7, 7, 6, 6)
"""Cells of tried, sent, failed, their share, and the pace."""


def _figures(name: str, cells: Sequence[Run], after: str, look: str = "dim") -> Line:
    fitted = [
        (present.fit(text, width, right=True) + " ", look)
        for (text, look), width in zip(cells, _WIDTHS, strict=True)
    ]
    return ((f" {name:<6}", ""), *fitted, (f" {after}", look))


def windows(way: TransportHealth, width: int) -> list[Line]:
    """What it did in each window, where that is from, and why something is not known."""
    titles = [(title, "dim") for title in ("tried", "sent", "failed", "fail%", "/min")]
    lines: list[Line] = [_figures("over", titles, "from")]
    for window in way.windows:
        if window.tally is None:
            first, *rest = present.folded(shown(window.reason), max(20, width - 12))
            lines.append(((f" {window.name:<6}", ""), ("?  ", "unknown"), (first, "dim")))
            lines += [((f"          {more}", "dim"),) for more in rest]
        else:
            counts = _counts(*window.tally)
            lines.append(
                _figures(window.name, [*counts, share(window), pace(window)], window.source)
            )
    if way.totals is not None:
        cells = [*_counts(*way.totals), ("", ""), ("", "")]
        lines.append(_figures("all", cells, f"{Source.METRICS}, since its counters began"))
    return lines


def _counts(tried: int, sent: int, failed: int) -> list[Run]:
    bad = "bad" if failed else ""
    return [
        (format_count(tried, 7), ""),
        (format_count(sent, 7), ""),
        (format_count(failed, 7), bad),
    ]


def ends(way: TransportHealth, now: float) -> list[Line]:
    """When a mail was last sent, and when one last failed."""
    never = way.totals is not None and not way.totals.success
    lines: list[Line] = []
    for name, when, otherwise in (
        ("last sent", way.last_success, "never" if never else "?"),
        ("last failed", way.last_failure, "?"),
    ):
        if when is None:
            unknown: Run = (otherwise, "unknown" if otherwise == "?" else "warning")
            seen = "  neither log nor metrics say" if otherwise == "?" else ""
            lines.append(((f" {name:<12} ", "dim"), unknown, (seen, "dim")))
        else:
            lines.append(((f" {name:<12} ", "dim"), (present.moment(when, now), "")))
    return lines


def faults(way: TransportHealth, now: float, width: int) -> list[Line]:
    """Its errors of the last hour, alike with alike, each with its share."""
    lines = [present.heading("errors of the last hour, alike with alike", width)]
    if not way.faults:
        silent = way.windows[HOUR].source is not Source.LOG
        why = "the log does not speak of it" if silent else "none"
        return [*lines, ((f" {why}", "dim"),)]
    everything = sum(fault.times for fault in way.faults)
    lines += [_fault(fault, everything, now, width) for fault in way.faults[:FAULTS]]
    more = len(way.faults) - FAULTS
    return [*lines, ((f"   and {more} more sorts", "dim"),)] if more > 0 else lines


def _fault(fault: Fault, everything: int, now: float, width: int) -> Line:
    part = fault.times / everything
    bar = present.fit("#" * max(1, round(BAR * part)), BAR) if width >= present.NARROW + 10 else ""
    lead = f" {format_count(fault.times, 6):>6} {part:>4.0%}  {bar}{' ' if bar else ''}"
    last = f" {present.span(now - fault.last)} ago"
    room = max(8, width - len(lead) - len(last))
    return ((lead, ""), (present.fit(shown(fault.pattern), room), "bad"), (last, "dim"))


def failures(way: TransportHealth, now: float, width: int) -> list[Line]:
    """Its last errors one by one, each with the transport's own words where these are known."""
    if not way.failures:
        return []
    lines = [present.heading("its last errors one by one", width)]
    for failure in way.failures[:FAILURES]:
        _, *row = failure_row(failure._replace(text=""), now, width)
        lines.append(present.cut(((" ", ""), *row), width))
        if failure.text:
            pieces = present.folded(shown(failure.text), max(8, width - 12))
            lines += [((f"{'':<11}{piece}", ""),) for piece in pieces[:3]]
    more = len(way.failures) - FAILURES
    said = f"   and {more} more: Enter" if more > 0 else ""
    return [*lines, ((said, "dim"),)] if said else lines


_WORD = 28
"""Cells of an error's word where its text stands beside it."""


def failure_head(width: int) -> Line:
    """The titles over errors that are told one by one."""
    return ((present.fit(f"  {'WHEN':<10} {'ERROR':<{_WORD}} ITS WORDS", width), "title"),)


def failure_row(failure: Failure, now: float, width: int) -> Line:
    """An error on its line."""
    when = "?" if failure.when is None else present.moment(failure.when, now).partition(" (")[0]
    word = shown(failure.word)
    lead: Line = (("  ", ""), (f"{present.fit(when, 10)} ", "" if failure.when else "unknown"))
    if failure.text and width >= _WORD + 30:
        word = present.fit(word, _WORD)
        return present.cut((*lead, (f"{word} ", "bad"), (shown(failure.text), "")), width)
    return present.cut((*lead, (word, "bad")), width)


def failure(failure: Failure, now: float, width: int) -> list[Line]:
    """All that is known of one error."""
    when = "nobody wrote down when" if failure.when is None else present.moment(failure.when, now)
    lines = [present.heading(when, width)]
    no_words = "its own words are not known: only the log speaks of it"
    said: tuple[Run, ...] = (
        (shown(failure.word), "bad"),
        (shown(failure.text) or no_words, "" if failure.text else "dim"),
    )
    for text, look in said:
        lines += [((f" {piece}", look),) for piece in present.folded(text, max(8, width - 2))]
    return lines


_BARRED = {NOWHERE: "not used: the configuration sends no mail at all (mail.method none)"}


def foreign(name: str) -> str:
    """What a row is that is no transport of ours."""
    if name == NOBODY:
        return "mail for which no transport was there, and which was spooled at once"
    return "not one of ours: only the log or the metrics know it"


def used(name: str, routes: Routes, now: float) -> Run:
    """Whether mail goes by a transport now, and why not."""
    use = routes.use(name)
    stop, why = routes.stopped.get(name), shown(routes.why_not.get(name, ""))
    words = {
        Use.NOW: "mail goes by it now",
        Use.READY: f"not used now: {shown(routes.selected)} comes first",
        Use.SUSPENDED: "" if stop is None else stopped_words(stop, now),
        Use.ABSENT: f"not used: {why}",
        Use.BARRED: _BARRED.get(routes.forced, f"not used: {shown(routes.forced)} is forced"),
        Use.FOREIGN: foreign(name),
        Use.UNKNOWN: f"whether it is used is not known: {shown(routes.unknown)}",
    }
    return words[use], USES[use]


def _used_lines(name: str, routes: Routes | None, now: float, width: int) -> list[Line]:
    if routes is None:
        return []
    text, look = used(name, routes, now)
    return [((f" {piece}", look),) for piece in present.folded(text, max(8, width - 2))]


def sources(sending: Sending, now: float, width: int) -> list[Line]:
    """Where the figures are from, and how old each of them is."""
    lines = [present.heading("where this is from", width)]
    lines += [present.cut(_told(told, now), width) for told in sending.told]
    lines += [present.cut(heap(sending), width)] if sending.heap is not None else []
    if sending.others:
        more = f" mail.prom names {sending.others:,} more; {FOLLOWED} are followed"
        lines.append(((more, "warning"),))
    return lines


def heap(sending: Sending) -> Line:
    """What lies in the mail spool."""
    found, name = sending.heap, (" mail spool ", "dim")
    if not isinstance(found, MailBacklog):
        return name, ("? ", "unknown"), (shown(found or ""), "")
    if not found.mails:
        return name, ("empty", "")
    mails = present.count(found.mails, "mail")
    return name, (f"{mails}, the oldest for {present.span(found.oldest)}", "")


def _told(told: HealthReport, now: float) -> Line:
    name: Run = (f" {told.source:<10} ", "dim")
    if told.problem:
        return name, ("? ", "unknown"), (shown(told.problem), "")
    log = told.source is Source.LOG
    said = "no line with a time yet" if log else "not written yet"
    if told.when is not None:
        said = f"{'last line' if log else 'written'} {present.ago(now - told.when)}"
    return name, (f"{said}; {_known(told, now)}", "")


def _known(told: HealthReport, now: float) -> str:
    if told.since is None:
        return "it is being read"
    if told.since == float("inf"):
        return "no line of it says a time"
    if told.since == float("-inf"):
        return "known from its beginning"
    verb = "known" if told.source is Source.LOG else "watched"
    return f"{verb} for {present.span(now - told.since)}"


def detail(
    way: TransportHealth, limit: float, now: float, width: int, routes: Routes | None = None
) -> list[Line]:
    """All there is to say of one transport."""
    title = f"{shown(way.name)}: {way.health(limit).value}"
    judged = way.judged
    if judged is not None and judged.share is not None:
        title += f", {judged.share:.0%} failed in {judged.name} (threshold {limit:.0%})"
    lines: Sequence[Line] = (
        present.heading(title, width),
        *_used_lines(way.name, routes, now, width),
        *windows(way, width),
        *ends(way, now),
        *faults(way, now, width),
        *failures(way, now, width),
    )
    return [present.cut(line, width) for line in lines]


def page(
    sending: Sending, limit: float, now: float, width: int, routes: Routes | None = None
) -> list[Line]:
    """Everything at once, for a terminal that cannot be moved about in."""
    lines: list[Line] = []
    if routes is not None and routes.unknown:
        why, look = goes_by(routes)
        lines += [((f" {piece}", look),) for piece in present.folded(why, max(8, width - 1))]
        lines.append(BLANK)
    if not sending.transports:
        return [*lines, nothing(sending), BLANK, *sources(sending, now, width)]
    titles, listed = rows(sending, limit, now, width, routes)
    lines += [titles, *(line for _, line in listed), BLANK]
    if routes is not None and not routes.unknown:
        lines += [*choice(sending, routes, now, width), BLANK]
    for way in ordered(sending, limit, routes):
        tried = way.health(limit) is not Health.IDLE or way.faults
        if tried and (routes is None or way.spoken_of):
            lines += [*detail(way, limit, now, width, routes), BLANK]
    return [*lines, *sources(sending, now, width)]


def choice(sending: Sending, routes: Routes, now: float, width: int) -> list[Line]:
    """By which way mail goes, and why not by each of the others."""
    lines = [present.heading(goes_by(routes)[0], width)]
    if routes.unknown:
        return lines
    for name in routes.order:
        text, look = used(name, routes, now)
        first, *rest = present.folded(text, max(8, width - 13)) or [""]
        lines.append(((f" {present.fit(shown(name), 10)} ", "strong"), (first, look)))
        lines += [((f"{'':<12}{piece}", look),) for piece in rest]
    return lines


def goes_by(routes: Routes) -> Run:
    """By which way mail goes now, in a few words."""
    if routes.unknown:
        return f"by what mail goes is not known: {shown(routes.unknown)}", "unknown"
    if routes.selected:
        return f"mail goes by {shown(routes.selected)}", "good"
    if routes.waits:
        return "mail waits: no transport can be used", "bad"
    if routes.forced == NOWHERE:
        return "no mail is sent: the method is none", "dim"
    if routes.forced:
        return f"no mail is sent: {shown(routes.forced)} is forced and cannot be used", "bad"
    return "no mail is sent: no transport is set up", "dim"


def said(sending: Sending, limit: float, routes: Routes | None = None) -> Line:
    """All of them in one line."""
    if routes is not None:
        text, look = goes_by(routes)
        return ((f" {text};", look), *said(sending, limit))
    failing = [way.name for way in sending.transports if way.health(limit) is Health.FAILING]
    many = present.count(sum(w.name != NOBODY for w in sending.transports), "transport")
    if failing:
        names = ", ".join(shown(name) for name in failing)
        return ((f" {many}, {len(failing)} failing: {names}", "bad"),)
    return ((f" {many}, none failing", "dim"),)
