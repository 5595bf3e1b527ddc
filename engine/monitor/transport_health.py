"""How each way of sending mail does, from `mail.prom` and `mail.log`; what is not known is None.

The log says of each attempt when it was, but only as far back as it is read; the metrics are
totals, and say something of an hour only once they were watched for an hour. So each figure says
where it is from, and where there is none, why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from engine.logs.task_events import NOBODY
from engine.monitor.prometheus import Samples
from engine.policy import at
from engine.text.safe import shown

WINDOWS = (("1m", 60.0), ("10m", 600.0), ("1h", 3600.0))
"""Over what each figure is given: a name, and seconds."""

LATELY, HOUR = 1, 2
"""Which of them are ten minutes, and an hour."""

FOLLOWED = 64
"""Transports of which a history is kept: a file that names more has them counted, no more."""

ATTEMPTS = "nftban_mail_send_attempts_total"
SUCCESS = "nftban_mail_send_success_total"
FAILURES = "nftban_mail_send_failures_total"


class Source(StrEnum):
    """Where a figure is from."""

    LOG = "mail.log"
    METRICS = "mail.prom"
    NONE = ""


class Health(StrEnum):
    """How a transport does."""

    OK = "ok"
    FAILING = "failing"
    IDLE = "idle"
    OVER = "over"
    """It failed, and why is known, or past: see `settled`."""
    SUSPENDED = "suspended"
    """An operator suspended it: its failures are no news."""
    UNKNOWN = "unknown"


class DeliveryCounts(NamedTuple):
    """What was counted."""

    attempts: int = 0
    success: int = 0
    """Mails that were sent."""
    failures: int = 0
    """Mails that were given up on, each perhaps after several attempts."""


class CountWindow(NamedTuple):
    """What a transport did lately."""

    name: str
    seconds: float
    tally: DeliveryCounts | None = None
    """None when it is not known."""
    source: Source = Source.NONE
    reason: str = ""
    """Why it is not known; "" when it is."""

    @property
    def rate(self) -> float | None:
        """Attempts a second."""
        return None if self.tally is None else self.tally.attempts / self.seconds

    @property
    def share(self) -> float | None:
        """Of the mails that came to an end, the share that failed; None where none did."""
        if self.tally is None or not (self.tally.success + self.tally.failures):
            return None
        return self.tally.failures / (self.tally.success + self.tally.failures)


class Fault(NamedTuple):
    """Errors that are alike, in the last hour."""

    mark: str
    pattern: str
    times: int
    first: float
    last: float
    example: str
    """The latest of them, as the log has it."""


class Failure(NamedTuple):
    """An attempt at a mail that failed; its words are as they were found, not made safe."""

    when: float | None
    """Epoch seconds UTC; None when nobody wrote that down."""
    word: str
    """What the log calls it: `connect_timeout`, or whatever its writer said."""
    text: str = ""
    """What the transport itself said; "" where nobody wrote that down."""
    line: str = ""
    """Text of its log line; "" where only a delivery record reports it."""


class TransportHealth(NamedTuple):
    """One way of sending mail."""

    name: str
    """As it was found: make it safe before showing it."""
    totals: DeliveryCounts | None
    """Since its counters began; None where no metrics name it."""
    windows: tuple[CountWindow, ...]
    faults: tuple[Fault, ...] = ()
    """The most frequent first; empty, too, where no log says anything."""
    last_success: float | None = None
    last_failure: float | None = None
    """Epoch seconds UTC; None when neither log nor metrics know."""
    spark: tuple[float | None, ...] = ()
    """Attempts in each of the last ten minutes, the latest last; None where it is not known."""
    failures: tuple[Failure, ...] = ()
    """Its errors one by one, the latest first, as far as they are kept."""
    settled: bool = False
    """Whether what failed is no news: a transport is there again, or an operator suspended it."""
    suspended: bool = False
    """Whether an operator suspended it; its figures still count what is sent by it."""

    @property
    def judged(self) -> CountWindow | None:
        """The shortest window from ten minutes on in which a mail came to an end."""
        return next((w for w in self.windows[LATELY:] if w.share is not None), None)

    @property
    def spoken_of(self) -> bool:
        """Whether log, metrics or records tell of it at all: none needs to have been used."""
        counted = any(window.tally is not None and any(window.tally) for window in self.windows)
        return counted or self.totals is not None or bool(self.spark or self.failures)

    def health(self, limit: float) -> Health:
        """How it does, where a share of failures of `limit` means that it fails."""
        if self.suspended:
            return Health.SUSPENDED
        window = self.judged
        if window is not None and window.share is not None:
            if window.share < limit:
                return Health.OK
            return Health.OVER if self.settled else Health.FAILING
        known = any(window.tally is not None for window in self.windows[LATELY:])
        return Health.IDLE if known else Health.UNKNOWN


class HealthReport(NamedTuple):
    """What a source is worth."""

    source: Source
    when: float | None
    """Epoch seconds UTC of the last that it said."""
    since: float | None = None
    """From when on it is known in full; None: not at all."""
    problem: str = ""
    """Why it says nothing; "" when it does."""


class MailBacklog(NamedTuple):
    """What lies in a mail spool."""

    mails: int
    """Those that wait to be sent."""
    oldest: float
    """Seconds since the oldest of them was put there; 0 where there is none."""


class Sending(NamedTuple):
    """How mail is sent from one place."""

    transports: tuple[TransportHealth, ...] = ()
    others: int = 0
    """Transports that the metrics name besides."""
    told: tuple[HealthReport, ...] = ()
    heap: MailBacklog | str | None = None
    """What its mail spool holds; why that is not known, in words; None where there is none."""

    @property
    def reading(self) -> bool:
        """Whether the last hour of the log is still being read: the next look knows more."""
        return any(told.since is None and not told.problem for told in self.told)


class Stopped(NamedTuple):
    """A way of sending that an operator has suspended; its words are not made safe."""

    name: str
    since: float
    """Epoch seconds UTC."""
    who: str
    why: str = ""
    """"" when no reason was given."""


def stopped_words(stop: Stopped) -> str:
    """Which one, by whom, since when and why, safe to show: `curl suspended by root since ...`."""
    why = f": {shown(stop.why)}" if stop.why else ", no reason given"
    return f"{shown(stop.name)} suspended by {shown(stop.who)} since {at(stop.since)}{why}"


class Use(StrEnum):
    """Whether mail goes by a transport."""

    NOW = "now"
    READY = "ready"
    """It can be used, and another one comes first."""
    SUSPENDED = "suspended"
    ABSENT = "absent"
    """It is not installed, or not configured."""
    BARRED = "barred"
    """The configuration names another one as the only one."""
    FOREIGN = "-"
    """It is none of ours: only logs or metrics know it."""
    UNKNOWN = "?"


class Routes(NamedTuple):
    """By which way mail leaves a place now, and why not by the others."""

    order: tuple[str, ...] = ()
    """Every transport there may be, in the order in which they are looked for."""
    selected: str = ""
    """The one that is used; "" when none can be."""
    why_not: Mapping[str, str] = {}
    """By name, why one cannot be used; the others only come later in the order."""
    stopped: Mapping[str, Stopped] = {}
    """Those that are suspended."""
    forced: str = ""
    """The only one that the configuration allows; "" when it allows all."""
    recipient: str = ""
    """Whom mail goes to that names nobody; "" for nobody."""
    unknown: str = ""
    """Why nothing of this is known; "" when it is."""
    blocked: bool = False
    """Whether that is the wrong content of a file, so that all mail waits until it is repaired."""

    def use(self, name: str) -> Use:
        """Whether mail goes by that one."""
        if self.unknown:
            return Use.UNKNOWN
        if name in self.stopped:
            return Use.SUSPENDED
        if name == self.selected:
            return Use.NOW
        if name not in self.order:
            return Use.FOREIGN
        if self.forced and name != self.forced:
            return Use.BARRED
        return Use.ABSENT if name in self.why_not else Use.READY

    @property
    def waits(self) -> bool:
        """Whether mail waits because of an operator: one is suspended, and none can be used."""
        return bool(self.stopped) and not self.selected and not self.unknown


def settled(sending: Sending, routes: Routes | None) -> Sending:
    """Mark suspended transports; raise no alarm for mail that found no transport once one is there
    again, or it is known who suspended it.
    """
    explained = routes is not None and (bool(routes.selected) or routes.waits)
    stopped = () if routes is None or routes.unknown else routes.stopped
    ways = tuple(
        way._replace(settled=explained and way.name == NOBODY, suspended=way.name in stopped)
        for way in sending.transports
    )
    return sending._replace(transports=ways)


def log_among(paths: Iterable[str]) -> str:
    """Which of these logs is the mail log; "" when none is."""
    return next((path for path in paths if os.path.basename(path) == Source.LOG), "")


def totals(samples: Samples) -> dict[str, DeliveryCounts]:
    """The counters of each transport that the metrics name, in their order."""
    names = dict.fromkeys(
        labels[0][1]
        for metric, labels in samples.values
        if metric == ATTEMPTS and len(labels) == 1 and labels[0][0] == "transport"
    )

    def figure(metric: str, name: str) -> int:
        value = samples.get(metric, transport=name) or 0.0
        return int(value) if 0 <= value < 1e15 else 0  # neither NaN nor infinity

    return {
        name: DeliveryCounts(figure(ATTEMPTS, name), figure(SUCCESS, name), figure(FAILURES, name))
        for name in names
    }
