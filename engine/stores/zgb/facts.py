"""What an operator wants to know of the queue as a whole, and what should worry one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from engine.policy import HOUR, at, emptied, lasting, until
from engine.stores.zgb import log, redirect, token_bucket
from engine.stores.zgb.connections_config import REDIRECT, QueueConfig
from engine.stores.zgb.log import LogEvent
from engine.stores.zgb.page import Backlog, QueueFigures
from engine.stores.zgb.place import RateLimit
from engine.stores.zgb.store import ZgbStore
from engine.system import files
from engine.text.safe import shown

SILENT = 180.0
"""Seconds without a sign of a run after which nobody seems to start them: one is due each minute.
"""

ENDS = ("run_end", "run_skipped")
STARTS = ("run_start", "run_skipped")
CHANGED = "config_changed"
_SETTLING = 10.0
"""Seconds that setting the rate may take: it waits for whoever writes to the database."""

_LOOK_BACK = 2.0 * HOUR
_FEWEST = 5
"""Gaps between runs of which it can be said how long they usually are."""


class SeenProblems(NamedTuple):
    """The queue as it stood at a moment."""

    now: float
    settings: QueueConfig
    pace: RateLimit
    figures: QueueFigures
    backlog: Backlog
    way: redirect.RedirectDecision
    """Where a user's mail would go that is enqueued and sent now."""
    began: float | None = None
    """When a run began last, epoch seconds UTC; None where no log tells."""
    ended: float | None = None
    """When a run ended last, likewise."""
    last: str = ""
    """What came of it, in words."""
    failure: str = ""
    """Why it did not do all that it should; "" where it did."""
    gap: float = 0.0
    """Seconds from one run to the next, as a rule; 0.0 where too few are known."""
    changed: tuple[float, ...] = ()
    """When a setting was changed, by the log; setting the rate refills the bucket, too."""
    test_mode_from: float | None = None
    """When the registration period ends, within which the test mode is on without effect, epoch
    seconds UTC; None where it is off, or has its effect now."""
    beside: tuple[str, ...] = ()
    """What else is to be seen to: about the log, and the settings of this machine."""

    @property
    def refilled(self) -> float | None:
        """When a worker refilled the bucket last; None where that is not known."""
        found, reset = token_bucket.read(self.settings.tokens, self.settings.refilled, self.now)
        # A stamp is a whole second.
        own = any(moment - _SETTLING <= found.stamp <= moment for moment in self.changed)
        return None if reset or own else float(found.stamp)

    @property
    def last_sign(self) -> float | None:
        """When a run was last at work: as the log says; where it says nothing, as the bucket does,
        which whoever changes the rate writes as well."""
        told = [moment for moment in (self.began, self.ended) if moment is not None]
        return max(told) if told else self.refilled

    @property
    def is_silent(self) -> bool:
        """Whether nobody seems to start any runs."""
        return self.last_sign is None or self.now - self.last_sign > SILENT


class QueueFacts(NamedTuple):
    """What is told."""

    rows: tuple[tuple[str, str], ...]
    """Each with its name."""
    warnings: tuple[str, ...]


def look(store: ZgbStore, log_path: str, now: float, beside: tuple[str, ...] = ()) -> SeenProblems:
    """The queue as it stands, and what its log says of the last runs; `log_path` is "" where there
    is none.

    Raises:
        Unavailable: the database cannot be read now.
    """
    settings = store.settings()
    lines: Sequence[LogEvent] = ()
    try:
        read = log.recent(log_path, now - _LOOK_BACK)
    except OSError as error:
        beside = (*beside, f"the log {log_path} cannot be read: {error.strerror or error}")
    else:
        lines = [*_of(store.place.path, read.lines, now)]
        if read.broken:
            broken = f"{read.broken:,} lines" if read.broken > 1 else "1 line"
            beside = (*beside, f"{broken} of the log {log_path} cannot be read")
        if read.unread:
            size = f"{log.LOOK_BYTES >> 20} MiB or {log.LOOK_LINES:,} lines"
            beside = (*beside, f"only the last {size} of the log {log_path} were read")
    ends = [line for line in lines if line.event in ENDS]
    return SeenProblems(
        now,
        settings,
        store.place.pace,
        store.figures(now),
        store.backlog(now),
        store.way_now(now),
        max((line.at for line in lines if line.event in STARTS), default=None),
        ends[-1].at if ends else None,
        _words(ends[-1]) if ends else "",
        failure_of(ends[-1]) if ends else "",
        usual_gap(lines),
        tuple(line.at for line in lines if line.event == CHANGED),
        store.test_mode_from(now),
        beside,
    )


def _of(database: str, lines: Sequence[LogEvent], now: float) -> Iterator[LogEvent]:
    """Those until now that do not name another database: several may share one log."""
    path = files.real_path(database)
    return (line for line in lines if line.at <= now and line.fields.get("db", path) == path)


def usual_gap(lines: Sequence[LogEvent]) -> float:
    """Seconds from the start of one run to that of the next, as a rule; 0.0 for too few runs."""
    starts = sorted(line.at for line in lines if line.event in STARTS)
    gaps = [after - before for before, after in pairwise(starts)]
    return median(gaps) if len(gaps) >= _FEWEST else 0.0


def failure_of(line: LogEvent) -> str:
    """What ended a run before it was through; "" where nothing did."""
    error = line.fields.get("error")
    return shown(error) if isinstance(error, str) else ""


def _words(line: LogEvent) -> str:
    if error := failure_of(line):
        return f"failed: {error}"
    if line.event == "run_skipped":
        return "paused: nothing was sent"
    counts = ((line.fields.get(name), name) for name in ("sent", "failed", "recovered", "orphans"))
    told = [f"{n:,} {name}" for n, name in counts if isinstance(n, int) and (n or name == "sent")]
    return ", ".join(told)


def told(seen: SeenProblems) -> QueueFacts:
    """The same in words."""
    return QueueFacts(tuple(_rows(seen)), (*_warnings(seen), *seen.beside))


def _rows(seen: SeenProblems) -> list[tuple[str, str]]:
    figures, now = seen.figures, seen.now
    burst = min(figures.per_hour, seen.pace.burst)
    paused = "" if seen.settings.enabled else "; paused: none is spent"
    rows = [("tokens", f"{figures.tokens} of {burst}{paused}")]
    if not figures.tokens and seen.settings.enabled:
        rows.append(("next token", until(figures.next_token, now)))
    rows.append(("rate", f"{figures.per_hour} an hour, {burst} at once at most"))
    rows.append(("backlog", _backlog(seen)))
    if figures.registrations is not None:
        rows.append(("registrations", f"{figures.registrations:,}"))
    rows.append(("last run", _last_run(seen)))
    rows.append(("redirect", redirect_words(seen)))
    return rows


def _backlog(seen: SeenProblems) -> str:
    waiting, due = seen.backlog.waiting, seen.backlog.due
    if not waiting:
        return "nothing waits"
    words = f"{waiting:,} waiting, {due:,} due"
    drained = seen.figures.drained
    return f"{words}; {'paused' if drained is None else emptied(drained - seen.now)}"


def _last_run(seen: SeenProblems) -> str:
    sign = seen.last_sign
    if sign is None:
        return "none is known of"
    words = f"{at(sign)}, {lasting(seen.now - sign)} ago"
    return f"{words}: {seen.last}" if seen.last and seen.ended == sign else words


def redirect_words(seen: SeenProblems) -> str:
    """Where users' mails go now, and where after the registration period."""
    if not seen.settings.redirected:
        return "off"
    if seen.test_mode_from is not None:
        return (
            "on, without effect in the registration period: users' mails go to the test address "
            f"again from {at(seen.test_mode_from)} on, unless {REDIRECT} is 0"
        )
    return {
        redirect.RedirectDecision.REDIRECTED: "ON: users' mails go to the test address",
        redirect.RedirectDecision.UNDECIDABLE: f"on, but {redirect.UNDECIDABLE}: users' mails wait",
        redirect.RedirectDecision.PLAIN: "on, without effect in the registration period",
    }[seen.way]


def _warnings(seen: SeenProblems) -> list[str]:
    settings, backlog = seen.settings, seen.backlog
    found = []
    sign = seen.last_sign
    if seen.is_silent:
        since = "no run is known of" if sign is None else f"no run for {lasting(seen.now - sign)}"
        # While it is paused only the log tells of runs, and there need not be one.
        if settings.enabled or seen.ended is not None:
            found.append(f"cron silent: {since}, expected one each minute")
    if seen.failure:
        found.append(f"the last run failed: {seen.failure}")
    if not settings.enabled and backlog.waiting:
        jobs = "1 job" if backlog.waiting == 1 else f"{backlog.waiting:,} jobs"
        found.append(f"paused, {jobs} waiting: nothing is sent until mailQueueEnabled is 1")
    if settings.redirected and seen.way is not redirect.RedirectDecision.PLAIN:
        found.append(f"redirect {redirect_words(seen)}")
    if odd := token_bucket.odd_rate(settings.rate, seen.pace):
        found.append(odd)
    rate = seen.figures.per_hour
    most = min(rate, seen.pace.burst) * HOUR / rate
    if seen.gap > most:
        found.append(
            f"runs are {lasting(seen.gap)} apart: at {rate} mails an hour tokens are lost unless "
            f"they are at most {lasting(most)} apart"
        )
    return found
