"""Text of the transports screen: the table, the transport in use, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable

from engine.config.mail_config import NOWHERE
from engine.logs.task_events import NO_TRANSPORT
from engine.monitor.transport_health import (
    TEN_MINUTES,
    CountWindow,
    Health,
    MailHealth,
    MailRoutes,
    Source,
    TransportHealth,
    TransportSuspension,
    TransportUse,
)
from engine.text.figures import fit_count, format_rate
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.graphs import braille_line, resample
from tui.text.lines import UNKNOWN_RUN, Line, Run, cells_of
from tui.text.table import REST, Column, Table, alarm_sign
from tui.text.times import format_seconds, format_time_with_age

STATE_RUNS: dict[Health, Run] = {
    Health.OK: (" OK", "ok"),
    Health.FAILING: (" FAILING ", "chip-error"),
    Health.IDLE: (" idle", "muted"),
    Health.OVER: (" over", "muted"),
    Health.FEW: (" few tries", ""),
    Health.UNKNOWN: (" ?", "unknown"),
    Health.SUSPENDED: (" SUSPENDED ", "chip-warn"),
}
"""The states as words; those that need an operator are chips."""

LOOKS = {health: style.removeprefix("chip-") for health, (_, style) in STATE_RUNS.items()}

USES: dict[TransportUse, Run] = {
    TransportUse.NOW: ("used now", "ok"),
    TransportUse.READY: ("ready", "muted"),
    TransportUse.SUSPENDED: ("-", "muted"),
    TransportUse.ABSENT: ("absent", "muted"),
    TransportUse.BARRED: ("disabled", "muted"),
    TransportUse.HANDLER: ("by handler", "muted"),
    TransportUse.FOREIGN: ("-", "muted"),
    TransportUse.UNKNOWN: UNKNOWN_RUN,
}

HOUR_WINDOW = TEN_MINUTES + 1


class ShownTransport(NamedTuple):
    """A transport as a row of the table, with what its cells are judged by."""

    health: TransportHealth
    limit: float
    """Share of failures from which it fails."""
    now: float
    routes: MailRoutes | None
    has_use: bool
    """True if there is a column for its use."""

    @property
    def recent(self) -> CountWindow:
        """The last ten minutes."""
        return self.health.windows[TEN_MINUTES]

    @property
    def hour(self) -> CountWindow:
        """The last hour."""
        return self.health.windows[HOUR_WINDOW]

    @property
    def is_failing(self) -> bool:
        """True if it fails now."""
        return self.health.health(self.limit) is Health.FAILING

    @property
    def use(self) -> TransportUse:
        """Whether mail uses it."""
        return TransportUse.FOREIGN if self.routes is None else self.routes.use(self.health.name)


def state_run(transport: TransportHealth, limit: float) -> Run:
    """The state as a word or a chip."""
    return STATE_RUNS[transport.health(limit)]


def count_run(window: CountWindow, of: str, width: int) -> Run:
    """A count of a window; a zero is muted. The metrics count bad addresses as failed."""
    tally, is_counted = window.tally, window.source is not Source.METRICS or of != "refused"
    if tally is None or (tally.failures and not is_counted):
        return UNKNOWN_RUN
    number = int(getattr(tally, of))
    return fit_count(number, width), "" if number else "muted"


def failure_share(window: CountWindow, limit: float = 1.0) -> Run:
    """Share of failed attempts: `8%`, `-` if none ended, `?` if unknown."""
    if window.tally is None:
        return UNKNOWN_RUN
    if window.share is None:
        return "-", "muted"
    return f"{window.share:.0%}", "error" if window.share >= limit else ""


def _format_send_time(seconds: float) -> str:
    """A send time: `0.4s`, `12s`; `<1s` where the log has whole seconds."""
    return "<1s" if not seconds else f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"


def send_time(window: CountWindow, at: int) -> Run:
    """The median (`at` 0) or the 95th percentile (1) of the send times; `-` if the log has none."""
    times = window.send_times
    return ("-", "muted") if times is None else (_format_send_time(times[at]), "")


def _both_send_times(row: ShownTransport) -> Run:
    times = row.recent.send_times or row.hour.send_times
    if times is None:
        return "-", "muted"
    low, high = map(_format_send_time, times)
    return (low if low == high else f"{low.removesuffix('s')}/{high}"), ""


def attempts_per_minute(window: CountWindow) -> Run:
    """Attempts per minute."""
    if window.rate is None:
        return UNKNOWN_RUN
    text = format_rate(window.rate, "/min", is_titled=True)
    return text, "" if window.rate else "muted"


def last_sent(transport: TransportHealth, now: float) -> Run:
    """Time since the last success; `never` if there was none, `?` if unknown."""
    if transport.last_success is not None:
        return format_seconds(now - transport.last_success), ""
    never = transport.totals is not None and not transport.totals.success
    return ("never", "warn") if never else UNKNOWN_RUN


def _spark(row: ShownTransport) -> Run:
    minutes = row.health.minutes[-10:]
    tried = [None if counts is None else counts.attempts for counts in minutes]
    known = [value for value in tried if value is not None]
    dots = resample(tried, 20) if known else []
    (line,) = braille_line(dots, min(known, default=0), max(known, default=0), 1)
    return line, "muted" if row.health.suspended else LOOKS[row.health.health(row.limit)]


def _last_error(row: ShownTransport) -> Run:
    latest = max(row.health.faults, key=lambda fault: fault.last, default=None)
    return "" if latest is None else safe_line(latest.example), ""


def _state_cell(row: ShownTransport) -> list[Run]:
    is_used = row.use is TransportUse.NOW and not row.has_use
    return [state_run(row.health, row.limit), (" now" if is_used else "", "ok")]


USE_MIN_WIDTH = 100
"""Minimum width of the table for a column that says whether a transport is used; on narrower ones
the state says it."""

TRANSPORT_COLUMNS: tuple[Column[ShownTransport], ...] = (
    Column("TRANSPORT", 9, lambda row: (safe_line(row.health.name), "strong"), most=20),
    Column("STATE", 13, _state_cell),
    Column("USE", 10, lambda row: USES[row.use], least=USE_MIN_WIDTH),
    Column("TRIED", 5, lambda row: count_run(row.recent, "attempts", 5), right=True, least=34),
    Column("SENT", 5, lambda row: count_run(row.recent, "success", 5), right=True, least=70),
    Column("BAD", 4, lambda row: count_run(row.recent, "refused", 4), right=True, least=70),
    Column("FAILED", 6, lambda row: count_run(row.recent, "failed", 6), right=True, least=90),
    Column("FAIL%", 5, lambda row: failure_share(row.recent, row.limit), right=True, least=44),
    Column("p50/p95", 8, _both_send_times, right=True, least=79),
    Column("/min", 5, lambda row: attempts_per_minute(row.recent), right=True, least=60),
    Column("LAST", 5, lambda row: last_sent(row.health, row.now), right=True, least=60),
    Column("LAST 10m", 10, _spark, least=79),
    Column(
        "1h TRIED", 8, lambda row: count_run(row.hour, "attempts", 8), right=True, rank=2, least=130
    ),
    Column(
        "1h FAIL%",
        8,
        lambda row: failure_share(row.hour, row.limit),
        right=True,
        rank=1,
        least=110,
    ),
    Column("LAST ERROR", 16, _last_error, grows=REST, rank=3),
)
"""Without a span in the title they cover the last ten minutes. BAD: bad addresses, not FAILED."""

MIN_BOTH_WIDTH = 90
"""Minimum width of the table for the send times beside BAD."""


def _transport_line(row: ShownTransport, table: Table[ShownTransport], width: int) -> Line:
    """The line of a transport; a short line without counts for mail that had no transport."""
    health, columns = row.health, table.columns
    if health.name == NO_TRANSPORT:
        note = _no_transport_cell(health, row.is_failing)
        columns = [columns[0], Column("", cells_of(note[0]), lambda row: note)]
        table = table._replace(gaps=(1,))
    elif unknown_reason([health]) and health.last_success is None:
        # The state has the one question mark, the frame the reason.
        columns = [column for column in columns if column.title in ("TRANSPORT", "STATE", "USE")]
    return table._replace(columns=columns).line(row, width)


def _no_transport_cell(transport: TransportHealth, failing: bool) -> Run:
    windows = (transport.windows[at] for at in (TEN_MINUTES, HOUR_WINDOW))
    counted = [f"{count_run(one, 'failures', 6)[0].strip()} in {one.name}" for one in windows]
    return f"attempts without a transport: {', '.join(counted)}", "error" if failing else "muted"


def transport_rows(
    sending: MailHealth, limit: float, now: float, width: int, routes: MailRoutes | None = None
) -> tuple[Line, list[tuple[str, Line]]]:
    """The table head, and name and line of each transport."""
    uses = {routes.use(one.name) for one in sending.transports} if routes else set()
    has_use = width >= USE_MIN_WIDTH and len(uses) > 1  # one that all have is in the details
    tallies = (one.windows[TEN_MINUTES].tally for one in sending.transports)
    hidden = {"BAD"}
    if any(tally is not None and tally.refused for tally in tallies):
        hidden = {"p50/p95"} if width < MIN_BOTH_WIDTH else set()
    rows = [
        ShownTransport(health, limit, now, routes, has_use)
        for health in sort_transports(sending, limit, routes)
    ]
    hidden |= set() if has_use else {"USE"}
    columns = [one for one in TRANSPORT_COLUMNS if one.title not in hidden]
    gaps = (2 if width >= USE_MIN_WIDTH else 1,)
    table = Table(columns, gaps, lambda row: alarm_sign(row.is_failing)).fitted(rows, width)
    lines = [(row.health.name, _transport_line(row, table, width)) for row in rows]
    return table.titles(width), lines


_RANK = {
    **{Health.FAILING: 0, Health.SUSPENDED: 0, Health.OK: 1},
    **{Health.UNKNOWN: 2, Health.OVER: 3, Health.FEW: 0, Health.IDLE: 4},
}


def sort_transports(
    sending: MailHealth, limit: float, routes: MailRoutes | None = None
) -> list[TransportHealth]:
    """Sort transports: failing and suspended first, idle last, those in use before others.
    Otherwise stable."""

    def rank(transport: TransportHealth) -> tuple[int, bool]:
        use = TransportUse.FOREIGN if routes is None else routes.use(transport.name)
        return _RANK[transport.health(limit)], use is not TransportUse.NOW

    return sorted(sending.transports, key=rank)


def no_transports_line(sending: MailHealth, *, has_mail: bool) -> Line:
    """Why no transport is shown; `has_mail` if the place can send by transports."""
    if sending.is_reading:
        return (("   reading mail.log ...", "muted"),)
    if not sending.sources and not has_mail:
        return (("   no transports: what this place sends goes out without them", "muted"),)
    if not sending.sources:
        return (("   no mail figures: mail.prom and mail.log are missing", "muted"),)
    return (("   no transport in mail.prom, none in the last hour of mail.log", "muted"),)


USE_LOOKS = {
    TransportUse.NOW: "ok",
    TransportUse.READY: "",
    TransportUse.SUSPENDED: "warn",
    TransportUse.UNKNOWN: "unknown",
}


def describe_foreign(name: str) -> str:
    """Explain a row that is not a configured transport."""
    if name == NO_TRANSPORT:
        return "mail without a transport, spooled"
    return "not configured; found in log or metrics"


def suspension_of(
    transport: TransportHealth, routes: MailRoutes | None
) -> TransportSuspension | None:
    """Who suspended a transport, and why; None if it is not suspended."""
    if routes is None or not transport.suspended:
        return None
    return routes.stopped.get(transport.name)


def describe_suspension(stop: TransportSuspension, now: float) -> str:
    """Who suspended it, when and why."""
    why = f": {safe_line(stop.why)}" if stop.why else ", no reason given"
    return f"suspended by {safe_line(stop.who)} since {format_time_with_age(stop.since, now)}{why}"


def describe_use(name: str, routes: MailRoutes, now: float) -> Run:
    """Whether mail uses a transport now, or why not."""
    use = routes.use(name)
    stop, why = routes.stopped.get(name), safe_line(routes.why_not.get(name, ""))
    is_off = routes.forced == NOWHERE
    forced = " (mail.method none)" if is_off else f": {safe_line(routes.forced)} is forced"
    words = {
        TransportUse.NOW: "in use",
        TransportUse.READY: f"not used: {safe_line(routes.selected)} comes first",
        TransportUse.SUSPENDED: "" if stop is None else describe_suspension(stop, now),
        TransportUse.ABSENT: f"not used: {why}",
        TransportUse.BARRED: f"disabled{forced}",
        TransportUse.HANDLER: "a handler of the configuration sends mail tasks",
        TransportUse.FOREIGN: describe_foreign(name),
        TransportUse.UNKNOWN: f"use unknown: {safe_line(routes.unknown)}",
    }
    return words[use], USE_LOOKS.get(use, "muted")


def describe_route(routes: MailRoutes) -> Run:
    """The transport in use, in a few words."""
    if routes.unknown:
        return f"transport unknown: {safe_line(routes.unknown)}", "unknown"
    if routes.by_handler:
        return "mail tasks are sent by a handler", "ok"
    if routes.selected:
        return f"transport: {safe_line(routes.selected)}", "ok"
    if routes.is_waiting:
        return "mail waits: no usable transport", "error"
    if routes.forced == NOWHERE:
        return "mail disabled (mail.method none)", "muted"
    if routes.forced:
        return f"no mail sent: {safe_line(routes.forced)} is forced but unusable", "error"
    return "no transport is available", "muted"


def unknown_reason(transports: Iterable[TransportHealth]) -> str:
    """The one reason why nothing is counted; "" if something is, or there are several."""
    windows = [window for transport in transports for window in transport.windows]
    reasons = {"" if window.tally is not None else window.reason for window in windows}
    return reasons.pop() if len(reasons) == 1 else ""


def summary_line(sending: MailHealth, limit: float, routes: MailRoutes | None = None) -> Line:
    """The transport in use, and those that fail, in a few words."""
    lead: Line = ()
    if routes is not None:
        text, style = describe_route(routes)
        lead = ((f"{text}; ", style),)
    health = {one.name: one.health(limit) for one in sending.transports}
    failing = [safe_line(name) for name, state in health.items() if state is Health.FAILING]
    if {*health.values()} == {Health.UNKNOWN}:
        why = unknown_reason(sending.transports).partition(":")[0]
        return (*lead, (safe_line(why) or "not known", "unknown"))
    if failing:
        return (*lead, (f"failing: {', '.join(failing)}", "error"))
    return (*lead, ("none failing" if health else "", "muted"))


def next_step(transport: TransportHealth, limit: float) -> tuple[str, str]:
    """The key of the next step for a transport, and what it does."""
    if transport.suspended:
        return "S", f"resumes {transport.name}; M sends a test mail first"
    if transport.health(limit) is Health.FAILING and transport.failures:
        return "Enter", f"shows its errors; S suspends {transport.name}"
    return "M", f"sends a test mail; S suspends {transport.name}"
