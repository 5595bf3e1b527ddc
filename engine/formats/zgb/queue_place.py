"""A ZGB mail queue for the console and the commands: its store, log, tokens, and facts about it."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from statistics import median

from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.formats.zgb import log, queue_config
from engine.formats.zgb.control import Backlog, QueueFigures
from engine.formats.zgb.log import Log, LogEvent, LogLocation, find_log
from engine.formats.zgb.mail import current_route, mail_settings, why_unready
from engine.formats.zgb.place import RateLimit, ZgbSettings
from engine.formats.zgb.queue_config import (
    REDIRECT_KEY,
    UNDECIDABLE_ERROR,
    QueueConfig,
    RedirectDecision,
)
from engine.formats.zgb.store import ZgbStore
from engine.locks.token_buckets import ALL_KINDS, BucketState, next_token_at
from engine.logs.log_line import SharedLog
from engine.places.place import Place, WholeQueueFigures
from engine.policy import UNITS_PER_TOKEN
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_deadline, format_rough_duration, format_time
from engine.values import NamedTuple
from engine.version import program_command
from engine.work import worker_files

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
    redirection: RedirectDecision
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
        bucket, reset = queue_config.read_bucket(
            self.settings.tokens, self.settings.refilled, self.now
        )
        # The stored time is in whole seconds.
        was_rate_change = any(
            moment - _RATE_CHANGE_SECONDS <= bucket.stamp <= moment for moment in self.changed
        )
        return None if reset or was_rate_change else float(bucket.stamp)

    @property
    def last_active(self) -> float | None:
        """When a run was last active, from the log; without log lines, from the bucket's refill
        time, which a change of the rate sets as well; 0 in a database that no run has used."""
        run_times = [moment for moment in (self.last_start, self.last_end) if moment is not None]
        return (max(run_times) if run_times else self.refilled) or None

    @property
    def is_silent(self) -> bool:
        """True if cron seems to start no runs."""
        return self.last_active is None or self.now - self.last_active > SILENT_SECONDS

    @property
    def is_cron_silent(self) -> bool:
        """True if cron is silent, and that is certain: a paused queue without a log shows no
        runs."""
        return self.is_silent and (self.settings.is_enabled or self.last_end is not None)

    @property
    def may_run(self) -> bool:
        """True if the last run has no end in the log: it is long, or was killed."""
        return self.last_start is not None and (self.last_end or 0.0) < self.last_start


def read_state(
    store: ZgbStore, log_path: str, now: float, other_warnings: tuple[str, ...] = ()
) -> QueueState:
    """Read the queue, and the last runs from its log; `log_path` is "" if there is no log. Raises
    Unavailable: the database cannot be read now."""
    settings = store.settings()
    lines: Sequence[LogEvent] = ()
    try:
        read = log.read_recent(log_path, now - _LOG_WINDOW_SECONDS)
    except OSError as error:
        other_warnings = (
            *other_warnings,
            f"the log {log_path} cannot be read: {error_text(error)}",
        )
    else:
        lines = [*_events_of(store.place.path, read.lines, now)]
        if read.broken:
            broken = f"{read.broken:,} lines" if read.broken > 1 else "1 line"
            other_warnings = (*other_warnings, f"{broken} of the log {log_path} cannot be read")
        if read.unread:
            size = f"{log.RECENT_LIMIT_BYTES >> 20} MiB or {log.RECENT_LIMIT_LINES:,} lines"
            other_warnings = (
                *other_warnings,
                f"only the last {size} of the log {log_path} were read",
            )
    run_ends = [line for line in lines if line.event in END_EVENTS]
    return QueueState(
        now,
        settings,
        store.place.rate_limit,
        figures=store.figures(now),
        backlog=store.backlog(now),
        redirection=store.redirect_now(now),
        last_start=max((line.at for line in lines if line.event in START_EVENTS), default=None),
        last_end=run_ends[-1].at if run_ends else None,
        last_result=_describe_run(run_ends[-1]) if run_ends else "",
        failure=run_error(run_ends[-1]) if run_ends else "",
        usual_gap=usual_gap(lines),
        changed=tuple(line.at for line in lines if line.event == CHANGE_EVENT),
        test_mode_from=store.test_mode_resumes(now),
        other_warnings=other_warnings,
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
    counted = [
        f"{n:,} {name}" for n, name in counts if isinstance(n, int) and (n or name == "sent")
    ]
    return ", ".join(counted)


def describe_state(state: QueueState) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Format the facts for the operator: pairs of name and value, and warnings."""
    return tuple(_rows(state)), (*_warnings(state), *state.other_warnings)


def _rows(state: QueueState) -> list[tuple[str, str]]:
    figures, now = state.figures, state.now
    burst = min(figures.per_hour, state.pace.burst)
    paused = "" if state.settings.is_enabled else ", paused"
    rows = [("tokens", f"{figures.tokens} of {burst}{paused}")]
    if not figures.tokens and state.settings.is_enabled:
        rows.append(("next token", format_deadline(figures.next_token, now)))
    rows.append(("rate", f"{figures.per_hour} mails/hour, burst {burst}"))
    rows.append(("backlog", _backlog(state)))
    if figures.registrations is not None:
        rows.append(("registrations", f"{figures.registrations:,}"))
    rows.append(("last run", _last_run(state)))
    rows.append(("redirect", describe_redirect(state)))
    return rows


def _backlog(state: QueueState) -> str:
    waiting, due = state.backlog.waiting, state.backlog.due
    if not waiting:
        return "none waiting"
    words = f"{waiting:,} waiting, {due:,} due"
    if state.figures.drained is None:
        return f"{words}; paused"
    if not state.figures.drained_terms:
        return f"{words}; tokens for all of them"
    seconds = format_rough_duration(state.figures.drained - state.now)
    return f"{words}; at least {seconds}: {state.figures.drained_terms}"


def _last_run(state: QueueState) -> str:
    sign = state.last_active
    if sign is None:
        return "none known"
    words = f"{format_time(sign)}, {format_rough_duration(state.now - sign)} ago"
    return (
        f"{words}: {state.last_result}" if state.last_result and state.last_end == sign else words
    )


def describe_redirect(state: QueueState) -> str:
    """Describe where users' mails go now and after the registration period."""
    if not state.settings.is_redirected:
        return "off"
    if state.test_mode_from is not None:
        return (
            "on, without effect in the registration period: users' mails go to the test address "
            f"again from {format_time(state.test_mode_from)} on, unless {REDIRECT_KEY} is 0"
        )
    return {
        RedirectDecision.REDIRECTED: "ON: users' mails go to the test address",
        RedirectDecision.UNDECIDABLE: (f"on, but {UNDECIDABLE_ERROR}: users' mails wait"),
        RedirectDecision.UNCHANGED: "on, without effect in the registration period",
    }[state.redirection]


def _warnings(state: QueueState) -> list[str]:
    settings, backlog = state.settings, state.backlog
    warnings = []
    sign = state.last_active
    if state.is_cron_silent:
        since = (
            "no run known"
            if sign is None
            else f"no run for {format_rough_duration(state.now - sign)}"
        )
        warnings.append(f"cron silent: {since}, expected one each minute")
    if state.failure:
        warnings.append(f"the last run failed: {state.failure}")
    if not settings.is_enabled and backlog.waiting:
        jobs = "1 job" if backlog.waiting == 1 else f"{backlog.waiting:,} jobs"
        warnings.append(f"paused, {jobs} waiting: nothing is sent until mailQueueEnabled is 1")
    if settings.is_redirected and state.redirection is not RedirectDecision.UNCHANGED:
        warnings.append(f"redirect {describe_redirect(state)}")
    if problem := queue_config.rate_problem(settings.rate, state.pace):
        warnings.append(problem)
    rate = state.figures.per_hour
    most = min(rate, state.pace.burst) * UNITS_PER_TOKEN / rate
    if state.usual_gap > most:
        warnings.append(
            f"runs are {format_rough_duration(state.usual_gap)} apart: at {rate} mails/hour tokens "
            "are lost if runs "
            f"are more than {format_rough_duration(most)} apart"
        )
    return warnings


FORMAT = "zgb"
"""Name of this format."""


class ZgbPlace(NamedTuple):
    """One ZGB mail queue with its settings."""

    setup: Setup
    path: str
    """Absolute."""
    zgb_settings: ZgbSettings
    rolls_back: bool = False
    """As in `Place`: True if the command may write, and so roll back a hot journal."""

    def log_location(self) -> LogLocation:
        """The path of its log, and how it was chosen."""
        return find_log(self.zgb_settings.log, self.path, os.environ, os.getcwd())

    def open(self, log: Log | None = None) -> ZgbStore:
        """Open its store, which reports to a log. Raises Unavailable: it cannot be reached."""
        place = self.zgb_settings.place(self.path)._replace(rolls_back=self.rolls_back)
        return ZgbStore(place) if log is None else ZgbStore(place, write_event=log.write)

    def log(self, otherwise: Callable[[str], None] = print_error) -> Log:
        """The log of one run or of one command; `otherwise` gets lines that cannot be written."""
        where = self.log_location().path
        return Log(where, secrets.token_hex(4), self.path, time.time, otherwise)


def zgb_place(setup: Setup) -> ZgbPlace:
    """The mail queue that a command is for. Raises Unavailable: not found."""
    if setup.format_name != FORMAT:
        setup.require_readable()  # an unreadable file may be one
        raise Unavailable(
            f"{safe_line(setup.place)}: no mail queue, expected a SQLite database "
            "(spooldeck zgb init DB makes one)"
        )
    return ZgbPlace(setup, setup.place, setup.settings)


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of a ZGB mail queue, with the facts about it, its tokens and its logs."""
    tokens = partial(queue_tokens, setup)
    mail_log = f"{setup.queue.log_dir}/mail.log"
    return place._replace(
        claim_order="due",
        mail_metrics=setup.queue.mail_metrics,
        logs=(setup.log_path, mail_log, *queue_logs(setup), *setup.config.logs),
        claim_obstacle=partial(queue_shut, setup),
        tokens=tokens,
        token_at=lambda kind: next_token_at(tokens(), kind),
        queue_figures=partial(queue_facts, setup),
    )


def queue_facts(setup: Setup) -> WholeQueueFigures:
    """Facts about the whole queue. Raises Unavailable: the database cannot be read now."""
    place = zgb_place(setup)
    where = place.log_location()
    with closing(place.open()) as store:
        state = read_state(store, where.path, time.time(), where.warnings)
        columns = store.columns()
    rows, warnings = describe_state(state)
    sends, worker_warnings = _our_worker(place, state, columns)
    workers, unknown = worker_files.find_workers(setup.queue)
    if not place.zgb_settings.work_refusal:
        sends = f"{worker_files.describe_workers(workers, unknown)}; {sends}"
    return WholeQueueFigures(
        (*rows, ("worker", sends)),
        (*warnings, *worker_warnings),
        workers=workers,
        workers_unknown=unknown,
        has_worker=None if unknown or state.may_run else bool(workers) or not state.is_cron_silent,
    )


def _our_worker(
    place: ZgbPlace, state: QueueState, columns: tuple[str, ...]
) -> tuple[str, Iterable[str]]:
    """Describe by which transport our worker would send, and the problems of that."""
    if why := place.zgb_settings.work_refusal:
        # A worker that runs there without our settings does not need them.
        worrying = [f"spooldeck's worker sends nothing: {why}"] if state.is_silent else []
        return f"sends nothing: {why}", worrying
    route = current_route(place.setup, place.zgb_settings)
    sends = f"sends by {route.name}" if route.name else f"sends nothing: {route.why}"
    worrying = [f"spooldeck's worker {sends}"] if route.why else [*route.stopped]
    refused = [*worrying] if not route.resume else [f"{w} ({route.resume})" for w in worrying]
    return sends, [*refused, *_refused_kinds(place, columns)]


def _refused_kinds(place: ZgbPlace, columns: tuple[str, ...]) -> Iterator[str]:
    try:
        settings = mail_settings(place.setup, place.zgb_settings)
    except ConfigError:
        return  # reported by `current_route`
    for kind in place.zgb_settings.enqueued_kinds:
        if why := why_unready(
            place.zgb_settings.types[kind], place.zgb_settings, settings, columns
        ):
            yield f"{kind} mails wait: {why}"


def queue_shut(setup: Setup, kind: str) -> str:
    """Why no worker would claim a mail of a kind now, as far as known; "" if one would. Raises
    Unavailable: the database cannot be read now."""
    place = zgb_place(setup)
    if why := place.zgb_settings.work_refusal:
        with closing(place.open()) as store:
            silent = read_state(store, place.log_location().path, time.time()).is_silent
        return why if silent else ""  # the worker of ZGB sends
    route = current_route(setup, place.zgb_settings)
    if route.why:
        return f"{route.why} ({route.fix})"
    if kind not in place.zgb_settings.types:
        return f"unknown kind of mail: {safe_line(kind)}"
    with closing(place.open()) as store:
        columns = store.columns()
    return why_unready(
        place.zgb_settings.types[kind],
        place.zgb_settings,
        mail_settings(setup, place.zgb_settings),
        columns,
    )


def queue_tokens(setup: Setup) -> tuple[BucketState, ...]:
    """The state of its token bucket now. Raises Unavailable: the database cannot be read now."""
    with closing(zgb_place(setup).open()) as store:
        figures = store.figures(time.time())
        burst = min(figures.per_hour, store.place.rate_limit.burst)
        paused = not store.settings().is_enabled
    coming = None if figures.tokens or paused else figures.next_token
    return (
        BucketState(
            ALL_KINDS,
            min(figures.tokens, burst),
            burst,
            next=coming,
            per_hour=figures.per_hour,
            paused=paused,
        ),
    )


def queue_logs(setup: Setup) -> tuple[str, ...]:
    """The queue's own log, without lines about other databases; nothing if it cannot be written."""
    place = zgb_place(setup)
    path = place.log_location().path
    return (SharedLog(path, files.real_path(place.path)),) if path else ()


CRON_SCHEDULE = "* * * * *"
"""Each minute, in crontab syntax."""


def cron_line(path: str, settings: str) -> str:
    """The command for crontab(5) for the queue at a path, in which an unescaped % ends the line;
    `settings` is the path of the configuration, or ""."""
    words = [*program_command(), *(("--config", os.path.abspath(settings)) if settings else ())]
    line = shlex.join([*words, "zgb", "work", "--quiet", os.path.abspath(path)])
    return line.replace("%", "\\%")


def open_logged(setup: Setup) -> ZgbStore:
    """Open a store that logs its changes to the queue's log, like the ZGB worker. Raises
    Unavailable: it cannot be reached."""
    place = ZgbPlace(setup, setup.place, setup.settings)
    # A line that cannot be written is in the journal too, and a screen has no room for it.
    return place.open(place.log(lambda text: None))
