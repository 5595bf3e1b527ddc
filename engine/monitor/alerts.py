"""What deserves a look, and where to look: decided from what is known of one place at one moment.

Nothing here reads anything. Where something is not known, nothing is said about it, except that it
is not known where that itself is the matter.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from engine.config.queue_config import Thresholds
from engine.logs.task_events import NOBODY
from engine.model import LockEvidence, State, Verdict
from engine.monitor.metrics_check import LAST_RUN, Ours, Reading, contradictions
from engine.monitor.prometheus import Samples
from engine.monitor.throughput import Runs, roughly
from engine.monitor.transport_health import Health, Routes, TransportHealth
from engine.policy import at
from engine.text.safe import shown

AHEAD = 60.0
"""Seconds by which the clock of a log or a metrics file may be ahead of ours."""

GRACE_SECONDS = 5.0
"""For so long a lock is free, and no task is started, before a worker is missed."""

MISSED_RUNS = 2.0
"""After so many times the usual time between runs, the next run is missed."""

ROOM = 60
"""Characters of what an alert says: it stands beside a place's name in 80 columns."""


class Level(StrEnum):
    """How urgent it is."""

    CRIT = "CRIT"
    """Nothing goes on until somebody acts."""
    WARN = "WARN"


class AlertKind(StrEnum):
    """What an alert is about, the more urgent first."""

    UNREADABLE = "unreadable"
    STUCK = "stuck lock"
    FULL = "a full disk"
    IDLE = "nothing runs"
    STALE = "stale lock"
    UNKNOWN_LOCK = "unknown lock"
    ABANDONED = "in work without a worker"
    INTERRUPTED = "an interrupted operation"
    GROWING = "more dead tasks"
    DEAD = "dead tasks"
    OLDEST = "an old task"
    BLOCKED = "tasks that no worker can run"
    TRANSPORT = "a failing transport"
    SUSPENDED = "a suspended transport"
    LOST = "mail without a task"
    WARNED = "a warning of the queue"
    PROBLEMS = "problems"
    CONTRADICTION = "metrics that contradict"
    OLD_METRICS = "old metrics"
    BAD_METRICS = "unreadable metrics"


class Where(StrEnum):
    """What shows more of it."""

    QUEUE = "queue"
    STATE = "state"
    PROBLEMS = "problems"
    LOCK = "lock"
    TRANSPORTS = "transports"
    OPERATIONS = "operations"
    CONTROLS = "controls"


class Goal(NamedTuple):
    """Where an alert leads to."""

    place: str
    """The name of the place."""
    where: Where
    state: State | None = None
    """Which state, where it leads to one."""
    name: str = ""
    """Which transport, operation or warning, where it leads to one; as it was found."""


class Alert(NamedTuple):
    """Something that deserves a look."""

    level: Level
    what: AlertKind
    words: str
    """At most `ROOM` characters, free of control characters."""
    since: float | None
    """Epoch seconds UTC; None when that is not known."""
    leads_to: Goal


class Unfinished(NamedTuple):
    """An operation that whoever carried it out left before it was over."""

    op: str
    name: str
    """What it was: `replay`, `purge`."""
    when: float
    """When it began, epoch seconds UTC."""
    who: str
    open: int
    """Rows that were not moved."""
    planned: int


class Blocked(NamedTuple):
    """Due tasks of one kind that no worker here would claim."""

    kind: str
    due: int
    since: float
    """When the oldest of them was created, epoch seconds UTC."""
    why: str
    """In a few words: `no handler`."""


SCARCE = 100
"""Tasks for which there must be room on the disk: as many as are changed together."""


class AlertInputs(NamedTuple):
    """What is known of one place; each field's default is to know nothing."""

    name: str
    states: Mapping[State, str] = {}
    """The states it has, by its own words."""
    counts: Mapping[State, int] = {}
    complete: bool = False
    """Whether everything was looked at once."""
    unavailable: str = ""
    """Why it cannot be read now; "" when it can."""
    problems: int = 0
    lock: LockEvidence | None = None
    in_work: int | None = None
    """Tasks that were in work all the time for some seconds; None: as counted. A run that just
    began or ended has its task in work while its lock is free."""
    oldest: float | None = None
    """When the oldest pending task was created, epoch seconds UTC."""
    due: int = 0
    """Pending tasks whose time has come."""
    oldest_due: float | None = None
    """When the oldest of those was created."""
    dead_growth: int | None = None
    """By how much the dead tasks have grown in ten minutes."""
    queue: Reading = None
    """What the queue's metrics file says."""
    before: Sequence[tuple[float, Mapping[State, int]]] = ()
    """Earlier counts with their times: metrics are compared with those of their own time."""
    transports: Sequence[TransportHealth] = ()
    ran: float | None = None
    """When a log last spoke of a run, epoch seconds UTC."""
    runs: Runs | None = None
    """The runs that log and metrics show; None where these are not read to their end."""
    free_since: float | None = None
    """Since when the lock has been free, epoch seconds UTC; None where that is not watched."""
    unfinished: Sequence[Unfinished] = ()
    routes: Routes | None = None
    """By which way its mail goes; None where nothing is known of that."""
    lost: int = 0
    """Spooled mails that no task sends, as far as is known."""
    warnings: tuple[str, ...] = ()
    """What the queue says of itself that somebody should see to."""
    blocked: Sequence[Blocked] = ()
    room: int | None = None
    """How many more tasks fit on the disk; None where that is not known."""


def alerts(sight: AlertInputs, now: float, limits: Thresholds) -> tuple[Alert, ...]:
    """What deserves a look in one place, the most urgent first."""
    found = [
        Alert(level, what, _short(words), since, Goal(sight.name, *goal))
        for rule in _RULES
        for level, what, words, since, goal in rule(sight, now, limits)
    ]
    return tuple(sorted(found, key=lambda alert: (alert.level, _ORDER[alert.what])))


_ORDER = {what: number for number, what in enumerate(AlertKind)}

_Goal: TypeAlias = tuple[Where] | tuple[Where, State] | tuple[Where, None, str]
_Found: TypeAlias = Iterator[tuple[Level, AlertKind, str, float | None, _Goal]]
_Rule: TypeAlias = Callable[[AlertInputs, float, Thresholds], _Found]


def _unreadable(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.unavailable:
        words = f"cannot be read: {_without_path(sight.unavailable)}"
        yield Level.CRIT, AlertKind.UNREADABLE, words, None, (Where.QUEUE,)


def _lock(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    lock = sight.lock
    if lock is None or (sight.unavailable and lock.verdict is Verdict.UNKNOWN):
        return  # that it cannot be read is said already
    who = "its holder" if lock.pid is None else f"PID {lock.pid}"
    if lock.verdict is Verdict.STUCK:
        words = f"stuck lock: no sign of life from {who} for {roughly(lock.age)}"
        yield Level.CRIT, AlertKind.STUCK, words, lock.since, (Where.LOCK,)
    elif lock.verdict is Verdict.STALE:
        yield Level.WARN, AlertKind.STALE, f"stale lock: {who} is gone", lock.since, (Where.LOCK,)
    elif lock.verdict is Verdict.UNKNOWN:
        words = f"nobody knows who has the lock: {_without_path(lock.reason)}"
        yield Level.WARN, AlertKind.UNKNOWN_LOCK, words, None, (Where.LOCK,)


def _abandoned(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    active = sight.counts.get(State.ACTIVE, 0) if sight.in_work is None else sight.in_work
    nobody = sight.lock is not None and sight.lock.verdict in (Verdict.FREE, Verdict.STALE)
    if active and nobody and not sight.unavailable:
        word = shown(sight.states.get(State.ACTIVE, "work"))
        words = f"{_many(active)} in {word}, but no worker is there"
        yield Level.WARN, AlertKind.ABANDONED, words, None, (Where.STATE, State.ACTIVE)


def _interrupted(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for left in sight.unfinished:
        who = shown(left.who)
        who = who if len(who) <= 10 else f"{who[:9]}~"
        hour = at(left.when)[11:16]
        rows = f"{left.open:,} of {left.planned:,} not moved"
        words = f"{left.name} of {hour} by {who} interrupted: {rows}"
        goal = Where.OPERATIONS, None, left.op
        yield Level.WARN, AlertKind.INTERRUPTED, words, left.when, goal


def _dead(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.unavailable:
        return
    goal = Where.STATE, State.DEAD
    dead, grown = sight.counts.get(State.DEAD, 0), sight.dead_growth
    if dead > limits.dlq:
        words = f"{_many(dead)} in the dead-letter queue (over {limits.dlq:,})"
        yield Level.WARN, AlertKind.DEAD, words, None, goal
    if grown is not None and grown >= limits.dlq_growth:
        word = shown(sight.states.get(State.DEAD, "dead"))
        yield Level.WARN, AlertKind.GROWING, f"{word} +{grown:,} in 10m", now - 600, goal


def _problems(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.problems and not sight.unavailable:
        words = "1 problem" if sight.problems == 1 else f"{sight.problems:,} problems"
        yield Level.WARN, AlertKind.PROBLEMS, words, None, (Where.PROBLEMS,)


def _oldest(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.oldest is None or sight.unavailable or now - sight.oldest <= limits.oldest:
        return
    word = shown(sight.states.get(State.PENDING, "pending"))
    words = f"oldest in {word} for {roughly(now - sight.oldest)} (over {roughly(limits.oldest)})"
    yield Level.WARN, AlertKind.OLDEST, words, sight.oldest, (Where.STATE, State.PENDING)


def _idle(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    since, goal = _idle_since(sight, now), (Where.STATE, State.PENDING)
    due = "1 task is due" if sight.due == 1 else f"{sight.due:,} tasks are due"
    if since is not None and now - since > 60 * limits.idle:
        words = f"nothing has run for {roughly(now - since)}, {due}"
        yield Level.CRIT, AlertKind.IDLE, words, since, goal
    elif sight.due and lacks_worker(sight, now, limits):
        words = f"no worker running, {due}"
        yield Level.CRIT, AlertKind.IDLE, words, sight.free_since, goal


def lacks_worker(
    sight: AlertInputs, now: float, limits: Thresholds, grace: float = GRACE_SECONDS
) -> bool:
    """Whether no process has held the lock for `grace` seconds, and no run of a timer is near."""
    free, runs, lock = sight.free_since, sight.runs, sight.lock
    is_free = lock is not None and lock.verdict is Verdict.FREE
    if not is_free or sight.unavailable or free is None or runs is None or now - free < grace:
        return False
    if runs.last is None:
        return True
    idle = 60 * limits.idle
    limit = idle if runs.apart is None else min(idle, MISSED_RUNS * runs.apart)
    return now - runs.last > max(GRACE_SECONDS, limit)


def is_stalled(alerts: Sequence[Alert]) -> bool:
    """Whether one of these says that due tasks wait and none is worked."""
    return any(alert.what in (AlertKind.IDLE, AlertKind.STUCK) for alert in alerts)


def _blocked(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for kind, due, since, why in sight.blocked:
        if now - since > 60 * limits.idle and not sight.unavailable:
            what = f"{due:,} {_brief(shown(kind))} due for {roughly(now - since)}"
            words = f"{what}: {why}: see `doctor`"
            yield Level.WARN, AlertKind.BLOCKED, words, since, (Where.STATE, State.PENDING)


def _full(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.room is not None and sight.room < SCARCE:
        room = _many(sight.room) if sight.room else "no task"
        yield (
            Level.CRIT,
            AlertKind.FULL,
            f"disk full: room for {room}: see `doctor`",
            None,
            (Where.QUEUE,),
        )


def _idle_since(sight: AlertInputs, now: float) -> float | None:
    """Since when nothing has run though something was due; None when there is no saying that."""
    lock, queue = sight.lock, sight.queue
    held = lock is not None and lock.verdict is Verdict.HELD
    stuck = lock is not None and lock.verdict is Verdict.STUCK  # which says it all
    if not sight.due or sight.oldest_due is None or sight.unavailable or stuck:
        return None
    if held and lock is not None and lock.since is None:
        return None  # somebody is at work, and it is not known how long he was silent
    signs = [
        sight.oldest_due,
        sight.ran,
        lock.since if held and lock is not None else None,
        queue.get(LAST_RUN) if isinstance(queue, Samples) else None,
    ]
    # What is dated in the future says nothing of the past: a wrong clock must not silence this.
    return max((s for s in signs if s is not None and s <= now + AHEAD), default=sight.oldest_due)


def _transports(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for way in sight.transports:
        window = way.judged
        if window is None or window.tally is None or window.share is None:
            continue
        if way.health(limits.transport_failures) is Health.FAILING:
            ended = window.tally.success + window.tally.failures
            mails = "1 mail" if ended == 1 else f"{ended:,} mails"
            name = _brief(shown(way.name))
            words = f"{name} failed {window.share:.0%} of {mails} in {window.name}"
            if way.name == NOBODY:
                words = f"no transport was there for {mails} in {window.name}"
            goal = Where.TRANSPORTS, None, way.name
            yield Level.WARN, AlertKind.TRANSPORT, words, way.last_success, goal


def _suspended(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    routes = sight.routes
    if routes is None or routes.unknown:
        if routes is not None and routes.blocked:
            words = "no mail is sent: suspensions unreadable: see `doctor`"
            yield Level.WARN, AlertKind.SUSPENDED, words, None, (Where.TRANSPORTS,)
        return
    for stopped in routes.stopped.values():
        name, who = (_brief(shown(text)) for text in (stopped.name, stopped.who))
        # A clock that is set back, or another host's, must not make it begin in the future.
        lasts = roughly(max(0.0, now - stopped.since))
        words = f"{name} suspended by {who} for {lasts}"
        words += ", mail waits" if routes.waits else ""
        words += f": {shown(stopped.why)}" if stopped.why else ""
        goal = Where.TRANSPORTS, None, stopped.name
        yield Level.WARN, AlertKind.SUSPENDED, words, stopped.since, goal


def _lost(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if sight.lost:
        mails = "1 spooled mail has" if sight.lost == 1 else f"{sight.lost:,} spooled mails have"
        words = f"{mails} no task: see `mail spool list`"
        yield Level.WARN, AlertKind.LOST, words, None, (Where.TRANSPORTS,)


def _warned(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for words in dict.fromkeys(sight.warnings):
        yield Level.WARN, AlertKind.WARNED, words, None, (Where.CONTROLS, None, words)


def _metrics(sight: AlertInputs, now: float, limits: Thresholds) -> _Found:
    queue, goal = sight.queue, (Where.QUEUE,)
    if isinstance(queue, Samples):
        age = now - queue.modified
        stuck = sight.lock is not None and sight.lock.verdict is Verdict.STUCK
        to_do = sight.counts.get(State.PENDING, 0) + sight.counts.get(State.ACTIVE, 0)
        # Where nothing runs, that is the news; where nothing is to be done, nothing need run.
        known = stuck or any(_idle(sight, now, limits))
        if age > 60 * limits.idle and to_do and not known:
            words = f"queue.prom was not written for {roughly(age)}"
            yield Level.WARN, AlertKind.OLD_METRICS, words, queue.modified, goal
        ours = Ours(sight.states, sight.counts, _is_whole(sight), sight.before)
        for said in contradictions(queue, ours)[:1]:
            words = f"queue.prom says {said}"
            yield Level.WARN, AlertKind.CONTRADICTION, words, queue.modified, goal
    elif queue is not None and queue != _NOT_THERE:
        yield Level.WARN, AlertKind.BAD_METRICS, f"queue.prom: {queue}", None, goal


_NOT_THERE = os.strerror(errno.ENOENT)
"""How it is said that there is no file: before the first run there is none."""


def _is_whole(sight: AlertInputs) -> bool:
    return sight.complete and not sight.unavailable


_RULES: tuple[_Rule, ...] = (
    *(_unreadable, _lock, _abandoned, _interrupted, _dead, _problems, _oldest, _idle),
    *(_blocked, _full),
    *(_transports, _suspended, _lost, _warned, _metrics),
)


def _brief(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:13]}..."


def _without_path(reason: str) -> str:
    """A reason without the path that it begins with: the place is named beside it."""
    path, told, why = reason.partition(": ")
    return why if told and path.startswith("/") and " " not in path else reason


def _many(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks:,} tasks"


def _short(words: str) -> str:
    safe = shown(words)
    return safe if len(safe) <= ROOM else f"{safe[: ROOM - 3]}..."
