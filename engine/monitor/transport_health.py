"""Health of each mail transport, from `mail.prom` and `mail.log`; None means "not known".

The log has the time of each attempt, but only the end of the log is read. The metrics are totals:
they give a figure for one hour only after one hour of watching. So each figure has its source, or
the reason why it is unknown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from engine.logs.task_events import NO_TRANSPORT
from engine.monitor.prometheus import Samples
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple

WINDOWS = (("1m", 60.0), ("10m", 600.0), ("1h", 3600.0))
"""Time windows of the figures: name and seconds."""

TEN_MINUTES, ONE_HOUR = 1, 2
"""Index in `WINDOWS` of ten minutes, and of one hour."""

SHARE_MINUTES = 10
"""Minutes over which a share of failures is compared with the limit."""

MAX_TRANSPORTS = 64
"""Maximum number of transports with a history; further ones in the metrics are only counted."""

ATTEMPTS = "nftban_mail_send_attempts_total"
SUCCESS = "nftban_mail_send_success_total"
FAILURES = "nftban_mail_send_failures_total"


class Source(StrEnum):
    """Source of a figure."""

    LOG = "mail.log"
    METRICS = "mail.prom"
    NONE = ""


class Health(StrEnum):
    """State of a transport."""

    OK = "ok"
    FAILING = "failing"
    IDLE = "idle"
    FEW = "few tries"
    """Most failed, but too few ended to judge it."""
    OVER = "over"
    """It failed, but the reason is known or gone: see `settled`."""
    SUSPENDED = "suspended"
    """An operator suspended it, so its failures raise no alert."""
    UNKNOWN = "unknown"


MIN_JUDGED_ATTEMPTS = 5
"""Attempts that must have ended to call a transport failing: one bad mail in one proves nothing."""


class DeliveryCounts(NamedTuple):
    """Counted events. A mail that is tried again ends each time, so a mail may count several
    times, also one that is delivered in the end."""

    attempts: int = 0
    success: int = 0
    failures: int = 0
    """Attempts that ended without a delivery."""
    refused: int = 0
    """Of these, those with a bad address (RFC 3463: 5.1.x): the transport itself worked."""

    @property
    def failed(self) -> int:
        """Those that failed for another reason than a bad address."""
        return self.failures - self.refused

    @property
    def ended(self) -> int:
        """Attempts that ended."""
        return self.success + self.failures


class CountWindow(NamedTuple):
    """Counts of one transport in one time window."""

    name: str
    seconds: float
    tally: DeliveryCounts | None = None
    """None if not known."""
    source: Source = Source.NONE
    reason: str = ""
    """Why it is not known; "" if it is."""
    send_times: tuple[float, float] | None = None
    """Median and 95th percentile of the seconds from attempt to success, from the log; None if not
    known."""
    known_seconds: float | None = None
    """Seconds of it that are counted: fewer if the log begins in it; None: taken to be all."""

    @property
    def rate(self) -> float | None:
        """Attempts per second."""
        seconds = self.known_seconds or self.seconds
        return None if self.tally is None else self.tally.attempts / seconds

    @property
    def share(self) -> float | None:
        """Share of the ended attempts that failed, without bad addresses; None if none ended."""
        if self.tally is None or not self.tally.ended:
            return None
        return self.tally.failed / self.tally.ended


class ErrorCluster(NamedTuple):
    """A cluster of errors in the last hour."""

    mark: str
    pattern: str
    times: int
    first: float
    last: float
    example: str
    """The latest error text, as logged."""


class Failure(NamedTuple):
    """A failed attempt at a mail; its texts are as found, not made safe."""

    when: float | None
    """Epoch seconds UTC; None if not recorded."""
    word: str
    """Error word in the log: `connect_timeout`, or any text of the log's writer."""
    text: str = ""
    """The transport's own error text; "" if not recorded."""
    line: str = ""
    """Text of its log line; "" if only a delivery record reports it."""
    task: str = ""
    """Id of the task of the mail; "" for a mail without one."""


class Refusals(NamedTuple):
    """The mails that were refused for good or lost, of those in the delivery records."""

    failures: Sequence[Failure] = ()
    """The latest first; without those that an operator retried."""
    since: float = 0.0
    """Epoch seconds UTC: records before this time may have been removed; 0.0: none were."""


class TransportHealth(NamedTuple):
    """State of one mail transport."""

    name: str
    """Name as found: make it safe before showing it."""
    totals: DeliveryCounts | None
    """Totals since its counters began; None if no metrics list it."""
    windows: tuple[CountWindow, ...]
    faults: tuple[ErrorCluster, ...] = ()
    """The most frequent first; also empty if no log has any."""
    last_success: float | None = None
    last_failure: float | None = None
    """Epoch seconds UTC; None if neither log nor metrics record it. Without bad addresses, but
    the metrics alone cannot tell them apart."""
    last_refused: float | None = None
    """Time of the last bad address in the log, epoch seconds UTC; None if it has none."""
    minutes: tuple[DeliveryCounts | None, ...] = ()
    """Counts of each minute of the last hour, the latest last; None if not known."""
    first_failures: tuple[float, ...] = ()
    """Time of the first failure of each minute in the log, bad addresses omitted."""
    failures: tuple[Failure, ...] = ()
    """Single failures, the latest first, as many as are kept."""
    settled: bool = False
    """True if its failures need no alert: a transport can be used again, or it is suspended."""
    suspended: bool = False
    """True if an operator suspended it; its figures still count mail sent by it."""

    @property
    def judged(self) -> CountWindow | None:
        """The shortest window of at least ten minutes in which an attempt ended."""
        return next((w for w in self.windows[TEN_MINUTES:] if w.share is not None), None)

    def find_proof(self, limit: float) -> CountWindow | None:
        """The shortest window of at least ten minutes that proves that it is failing: enough
        attempts ended, and a share of `limit` failed; None if none does."""
        judged = self.judged
        if judged is None or judged.share is None or judged.share < limit:
            return None
        if self.name == NO_TRANSPORT:
            return judged  # one attempt that finds no transport proves it
        return next((w for w in self.windows[TEN_MINUTES:] if _is_proof(w, limit)), None)

    def failing_since(self, now: float, limit: float) -> float | None:
        """Since when it is failing, epoch seconds UTC. If all attempts failed, since the last
        success. Else go back minute by minute, as long as a share of `limit` failed in the ten
        minutes that end there: since the first failure from the earliest of these minutes on. None
        if a minute on the way is not known, or the latest ten minutes are below the limit."""
        judged, first = self.judged, None
        if judged is not None and judged.share == 1.0:
            return self.last_success
        for end in range(len(self.minutes), SHARE_MINUTES - 1, -1):
            window = [each for each in self.minutes[end - SHARE_MINUTES : end] if each is not None]
            ended, failed = sum(each.ended for each in window), sum(each.failed for each in window)
            if len(window) < SHARE_MINUTES:
                return None
            if failed < limit * ended or (first is not None and not ended):
                times = (when for when in self.first_failures if first is None or when >= first)
                return None if first is None else min(times, default=first)
            if ended:
                first = 60.0 * (now // 60 - len(self.minutes) + end)
        return None

    @property
    def is_mentioned(self) -> bool:
        """True if log, metrics or records mention it; it need not have been used."""
        counted = any(window.tally is not None and any(window.tally) for window in self.windows)
        return counted or self.totals is not None or bool(self.minutes or self.failures)

    def health(self, limit: float) -> Health:
        """Return its state; from a failure share of `limit` on, it is failing."""
        if self.suspended:
            return Health.SUSPENDED
        window = self.judged
        if window is not None and window.share is not None:
            if window.share < limit:
                return Health.OK
            if self.settled:
                return Health.OVER
            return Health.FEW if self.find_proof(limit) is None else Health.FAILING
        known = any(window.tally is not None for window in self.windows[TEN_MINUTES:])
        return Health.IDLE if known else Health.UNKNOWN


def _is_proof(window: CountWindow, limit: float) -> bool:
    tally, share = window.tally, window.share
    is_enough = tally is not None and tally.ended >= MIN_JUDGED_ATTEMPTS
    return is_enough and share is not None and share >= limit


class SourceReport(NamedTuple):
    """How current and complete a source is."""

    source: Source
    when: float | None
    """Time of its latest data, epoch seconds UTC."""
    since: float | None = None
    """Complete from this time on, epoch seconds UTC; None: not complete."""
    problem: str = ""
    """Why it has no data; "" if it has."""


class MailBacklog(NamedTuple):
    """Waiting mail in a mail spool."""

    mails: int
    """Mails that wait to be sent."""
    oldest: float
    """Age of the oldest in seconds; 0 if none."""


class MailHealth(NamedTuple):
    """State of all mail transports of one place."""

    transports: tuple[TransportHealth, ...] = ()
    others: int = 0
    """Number of further transports in the metrics."""
    sources: tuple[SourceReport, ...] = ()
    backlog: MailBacklog | str | None = None
    """Backlog of its mail spool, or the reason if that is not known; None without a mail spool."""

    @property
    def is_reading(self) -> bool:
        """True while the last hour of the log is still being read: the next call has more data."""
        return any(source.since is None and not source.problem for source in self.sources)


class TransportSuspension(NamedTuple):
    """A suspended transport; its texts are not made safe."""

    name: str
    since: float
    """Epoch seconds UTC."""
    who: str
    why: str = ""
    """Reason; "" if none was given."""


def describe_suspension(stop: TransportSuspension) -> str:
    """Describe a suspension, safe to show: `curl suspended by root since ...`."""
    why = f": {safe_line(stop.why)}" if stop.why else ", no reason given"
    return (
        f"{safe_line(stop.name)} suspended by {safe_line(stop.who)} since "
        f"{format_time(stop.since)}{why}"
    )


class TransportUse(StrEnum):
    """Whether a transport is used for mail."""

    NOW = "now"
    READY = "ready"
    """Usable, but another one comes first."""
    SUSPENDED = "suspended"
    ABSENT = "absent"
    """Not installed, or not configured."""
    BARRED = "barred"
    """The configuration allows only another one (mail.method)."""
    HANDLER = "by handler"
    """A handler of the configuration sends the mail tasks and may use it."""
    FOREIGN = "-"
    """Not one of our transports: only logs or metrics mention it."""
    UNKNOWN = "?"


class MailRoutes(NamedTuple):
    """Which transport sends the mail of a place now, and why the others do not."""

    order: tuple[str, ...] = ()
    """All possible transports, in order of preference."""
    selected: str = ""
    """The one in use; "" if none can be used."""
    why_not: Mapping[str, str] = {}
    """By name, why a transport cannot be used; those not listed only come later in the order."""
    stopped: Mapping[str, TransportSuspension] = {}
    forced: str = ""
    """The only one that the configuration allows; "" if it allows all."""
    recipient: str = ""
    """Default recipient, for mail without one; "" if none."""
    unknown: str = ""
    """Why the routing is not known; "" if it is."""
    blocked: bool = False
    """True if the reason is an invalid file, so that all mail waits until it is repaired."""
    by_handler: bool = False
    """True if a handler of the configuration sends the mail tasks, not these transports."""
    is_assumed: bool = False
    """True without a configuration file: the processes that send mail may have another one."""

    def use(self, name: str) -> TransportUse:
        """Return whether and why mail uses that transport."""
        if self.unknown:
            return TransportUse.UNKNOWN
        if name in self.stopped:
            return TransportUse.SUSPENDED
        if name not in (*self.order, self.selected):
            return TransportUse.FOREIGN
        if self.by_handler:
            return TransportUse.HANDLER
        if name == self.selected:
            return TransportUse.NOW
        if self.forced and name != self.forced:
            return TransportUse.BARRED
        return TransportUse.ABSENT if name in self.why_not else TransportUse.READY

    @property
    def is_waiting(self) -> bool:
        """True if an operator suspended a transport and no other can be used: mail waits."""
        sends = bool(self.selected) or self.by_handler
        return bool(self.stopped) and not sends and not self.unknown


OTHER_SETTINGS = "mail is sent, by settings not read here"


def believe_log(routes: MailRoutes | None, sending: MailHealth) -> MailRoutes | None:
    """The routes; unknown if they are assumed, and no transport could send, but mail is sent."""
    if routes is None or not routes.is_assumed or routes.selected or routes.unknown:
        return routes
    recent = (window for way in sending.transports for window in way.windows[: TEN_MINUTES + 1])
    is_sent = any(window.tally is not None and window.tally.success for window in recent)
    return routes._replace(unknown=OTHER_SETTINGS) if is_sent and not routes.stopped else routes


def mark_explained(sending: MailHealth, routes: MailRoutes | None) -> MailHealth:
    """Mark suspended transports, and mail that found no transport if one is available again or the
    operator's suspension explains it."""
    explained = routes is not None and (bool(routes.selected) or routes.is_waiting)
    stopped = () if routes is None or routes.unknown else routes.stopped
    transports = tuple(
        way._replace(settled=explained and way.name == NO_TRANSPORT, suspended=way.name in stopped)
        for way in sending.transports
    )
    return sending._replace(transports=transports)


def find_mail_log(paths: Iterable[str]) -> str:
    """Return the path of the mail log among these; "" if none."""
    return next((path for path in paths if os.path.basename(path) == Source.LOG), "")


def read_totals(samples: Samples) -> dict[str, DeliveryCounts]:
    """Return the counters of each transport in the metrics, in their order."""
    all_labels = (labels for metric, labels in samples.values if metric == ATTEMPTS)
    names = dict.fromkeys(x[0][1] for x in all_labels if len(x) == 1 and x[0][0] == "transport")

    def figure(metric: str, name: str) -> int:
        value = samples.get(metric, transport=name) or 0.0
        return int(value) if 0 <= value < 1e15 else 0  # neither NaN nor infinity

    return {
        name: DeliveryCounts(figure(ATTEMPTS, name), figure(SUCCESS, name), figure(FAILURES, name))
        for name in names
    }
