"""Summarize the queue and its last runs for the operator: tokens, rate, backlog, last run,
warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from engine.formats.zgb import log, queue_config
from engine.formats.zgb.control import Backlog, QueueFigures
from engine.formats.zgb.log import LogEvent
from engine.formats.zgb.place import RateLimit
from engine.formats.zgb.queue_config import REDIRECT_KEY, QueueConfig
from engine.formats.zgb.store import ZgbStore
from engine.policy import (
    UNITS_PER_TOKEN,
    describe_time_to_empty,
    format_deadline,
    format_rough_duration,
    format_time,
)
from engine.system import files
from engine.text.safe import safe_line

SILENT_SECONDS = 180.0
"""Seconds without a run after which cron counts as silent: a run is expected every minute."""

END_EVENTS = ("run_end", "run_skipped")
START_EVENTS = ("run_start", "run_skipped")
CHANGE_EVENT = "config_changed"
_RATE_CHANGE_SECONDS = 10.0
"""Seconds that a change of the rate may take: it waits for the write lock."""

_LOG_WINDOW_SECONDS = 2.0 * UNITS_PER_TOKEN
_MIN_GAPS = 5
"""Gaps between runs that are needed to state the usual gap."""


class QueueState(NamedTuple):
    """The queue and its last runs at one moment."""

    now: float
    settings: QueueConfig
    pace: RateLimit
    figures: QueueFigures
    backlog: Backlog
    redirection: queue_config.RedirectDecision
    """Where the mail of a user's job goes that is enqueued and sent now."""
    last_start: float | None = None
    """When the last run began, epoch seconds UTC; None if no log shows it."""
    last_end: float | None = None
    """When the last run ended, likewise."""
    last_result: str = ""
    """The result of the last run, for the operator."""
    failure: str = ""
    """Why the last run failed; "" if it did not."""
    usual_gap: float = 0.0
    """Median seconds between the starts of runs; 0.0 if there were too few."""
    changed: tuple[float, ...] = ()
    """Times of changed settings, from the log; a change of the rate refills the bucket, too."""
    test_mode_from: float | None = None
    """End of the registration period if the test mode is on without effect until then, epoch
    seconds UTC; None if it is off, or in effect now."""
    other_warnings: tuple[str, ...] = ()
    """Further warnings, about the log and the settings of this machine."""

    @property
    def refilled(self) -> float | None:
        """When a worker last refilled the bucket; None if unknown."""
        found, reset = queue_config.read_bucket(
            self.settings.tokens, self.settings.refilled, self.now
        )
        # The stored time is in whole seconds.
        own = any(moment - _RATE_CHANGE_SECONDS <= found.stamp <= moment for moment in self.changed)
        return None if reset or own else float(found.stamp)

    @property
    def last_active(self) -> float | None:
        """When a run was last active, from the log; without log lines, from the bucket's refill
        time, which a change of the rate sets as well; 0 in a database that no run has used.
        """
        told = [moment for moment in (self.last_start, self.last_end) if moment is not None]
        return (max(told) if told else self.refilled) or None

    @property
    def is_silent(self) -> bool:
        """True if cron seems to start no runs."""
        return self.last_active is None or self.now - self.last_active > SILENT_SECONDS


class MailQueueFacts(NamedTuple):
    """The summary for the operator."""

    rows: tuple[tuple[str, str], ...]
    """Pairs of name and value."""
    warnings: tuple[str, ...]


def read_state(
    store: ZgbStore, log_path: str, now: float, beside: tuple[str, ...] = ()
) -> QueueState:
    """Read the queue, and the last runs from its log; `log_path` is "" if there is no log.

    Raises:
        Unavailable: the database cannot be read now.
    """
    settings = store.settings()
    lines: Sequence[LogEvent] = ()
    try:
        read = log.read_recent(log_path, now - _LOG_WINDOW_SECONDS)
    except OSError as error:
        beside = (*beside, f"the log {log_path} cannot be read: {error.strerror or error}")
    else:
        lines = [*_events_of(store.place.path, read.lines, now)]
        if read.broken:
            broken = f"{read.broken:,} lines" if read.broken > 1 else "1 line"
            beside = (*beside, f"{broken} of the log {log_path} cannot be read")
        if read.unread:
            size = f"{log.RECENT_LIMIT_BYTES >> 20} MiB or {log.RECENT_LIMIT_LINES:,} lines"
            beside = (*beside, f"only the last {size} of the log {log_path} were read")
    ends = [line for line in lines if line.event in END_EVENTS]
    return QueueState(
        now,
        settings,
        store.place.rate_limit,
        store.figures(now),
        store.backlog(now),
        store.redirect_now(now),
        max((line.at for line in lines if line.event in START_EVENTS), default=None),
        ends[-1].at if ends else None,
        _describe_run(ends[-1]) if ends else "",
        run_error(ends[-1]) if ends else "",
        usual_gap(lines),
        tuple(line.at for line in lines if line.event == CHANGE_EVENT),
        store.test_mode_resumes(now),
        beside,
    )


def _events_of(database: str, lines: Sequence[LogEvent], now: float) -> Iterator[LogEvent]:
    """Yield the events of this database until now: several databases may share one log."""
    path = files.real_path(database)
    return (line for line in lines if line.at <= now and line.fields.get("db", path) == path)


def usual_gap(lines: Sequence[LogEvent]) -> float:
    """Median seconds between the starts of runs; 0.0 if there are too few."""
    starts = sorted(line.at for line in lines if line.event in START_EVENTS)
    gaps = [after - before for before, after in pairwise(starts)]
    return median(gaps) if len(gaps) >= _MIN_GAPS else 0.0


def run_error(line: LogEvent) -> str:
    """Return the error that ended a run early; "" if there was none."""
    error = line.fields.get("error")
    return safe_line(error) if isinstance(error, str) else ""


def _describe_run(line: LogEvent) -> str:
    if error := run_error(line):
        return f"failed: {error}"
    if line.event == "run_skipped":
        return "paused: nothing was sent"
    counts = ((line.fields.get(name), name) for name in ("sent", "failed", "recovered", "orphans"))
    told = [f"{n:,} {name}" for n, name in counts if isinstance(n, int) and (n or name == "sent")]
    return ", ".join(told)


def describe_state(seen: QueueState) -> MailQueueFacts:
    """Format the facts for the operator."""
    return MailQueueFacts(tuple(_rows(seen)), (*_warnings(seen), *seen.other_warnings))


def _rows(seen: QueueState) -> list[tuple[str, str]]:
    figures, now = seen.figures, seen.now
    burst = min(figures.per_hour, seen.pace.burst)
    paused = "" if seen.settings.is_enabled else ", paused"
    rows = [("tokens", f"{figures.tokens} of {burst}{paused}")]
    if not figures.tokens and seen.settings.is_enabled:
        rows.append(("next token", format_deadline(figures.next_token, now)))
    rows.append(("rate", f"{figures.per_hour} mails/hour, burst {burst}"))
    rows.append(("backlog", _backlog(seen)))
    if figures.registrations is not None:
        rows.append(("registrations", f"{figures.registrations:,}"))
    rows.append(("last run", _last_run(seen)))
    rows.append(("redirect", describe_redirect(seen)))
    return rows


def _backlog(seen: QueueState) -> str:
    waiting, due = seen.backlog.waiting, seen.backlog.due
    if not waiting:
        return "none waiting"
    words = f"{waiting:,} waiting, {due:,} due"
    drained = seen.figures.drained
    return f"{words}; {'paused' if drained is None else describe_time_to_empty(drained - seen.now)}"


def _last_run(seen: QueueState) -> str:
    sign = seen.last_active
    if sign is None:
        return "none known"
    words = f"{format_time(sign)}, {format_rough_duration(seen.now - sign)} ago"
    return f"{words}: {seen.last_result}" if seen.last_result and seen.last_end == sign else words


def describe_redirect(seen: QueueState) -> str:
    """Describe where users' mails go now and after the registration period."""
    if not seen.settings.is_redirected:
        return "off"
    if seen.test_mode_from is not None:
        return (
            "on, without effect in the registration period: users' mails go to the test address "
            f"again from {format_time(seen.test_mode_from)} on, unless {REDIRECT_KEY} is 0"
        )
    return {
        queue_config.RedirectDecision.REDIRECTED: "ON: users' mails go to the test address",
        queue_config.RedirectDecision.UNDECIDABLE: (
            f"on, but {queue_config.UNDECIDABLE_ERROR}: users' mails wait"
        ),
        queue_config.RedirectDecision.UNCHANGED: "on, without effect in the registration period",
    }[seen.redirection]


def _warnings(seen: QueueState) -> list[str]:
    settings, backlog = seen.settings, seen.backlog
    found = []
    sign = seen.last_active
    if seen.is_silent:
        since = (
            "no run known"
            if sign is None
            else f"no run for {format_rough_duration(seen.now - sign)}"
        )
        # While the queue is paused only the log shows runs, and there may be no log.
        if settings.is_enabled or seen.last_end is not None:
            found.append(f"cron silent: {since}, expected one each minute")
    if seen.failure:
        found.append(f"the last run failed: {seen.failure}")
    if not settings.is_enabled and backlog.waiting:
        jobs = "1 job" if backlog.waiting == 1 else f"{backlog.waiting:,} jobs"
        found.append(f"paused, {jobs} waiting: nothing is sent until mailQueueEnabled is 1")
    if settings.is_redirected and seen.redirection is not queue_config.RedirectDecision.UNCHANGED:
        found.append(f"redirect {describe_redirect(seen)}")
    if odd := queue_config.rate_problem(settings.rate, seen.pace):
        found.append(odd)
    rate = seen.figures.per_hour
    most = min(rate, seen.pace.burst) * UNITS_PER_TOKEN / rate
    if seen.usual_gap > most:
        found.append(
            f"runs are {format_rough_duration(seen.usual_gap)} apart: at {rate} mails/hour tokens "
            "are lost if runs "
            f"are more than {format_rough_duration(most)} apart"
        )
    return found
