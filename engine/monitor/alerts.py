"""Alert rules: turn the facts about one place into alerts, each with the screen that shows more.

The rules read no file, clock or setting. A fact that is not known raises no alert, unless the
missing fact is itself the problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from engine.config.alert_kinds import AlertKind as AlertKind
from engine.config.queue_config import Thresholds
from engine.destinations.watch import DestinationState, SeenDestination
from engine.largest_share import LargestShare
from engine.logs.task_events import NO_TRANSPORT
from engine.model import LockEvidence, State, Verdict
from engine.monitor.metrics_check import LAST_RUN, MetricsReading, OwnCounts, find_differences
from engine.monitor.prometheus import NOT_THERE, Samples
from engine.monitor.throughput import HISTORY_SECONDS, Growth, RunTimes
from engine.monitor.transport_health import Failure, Health, MailRoutes, Refusals, TransportHealth
from engine.system.host import DiskSpace
from engine.text.figure import Figure
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_line
from engine.text.times import format_duration, format_rough_duration, format_time
from engine.values import NamedTuple

CLOCK_SKEW_SECONDS = 60.0
"""Clock skew in seconds: how far the clock of a log or metrics file may be ahead of our clock."""

GRACE_SECONDS = 5.0
"""Seconds for which the lock must be free, with no task started, before "no worker" is reported."""

MISSED_RUN_FACTOR = 2.0
"""A timer's run counts as missed after this many times the usual interval between runs."""

MAX_TEXT_LENGTH = 300
"""Maximum characters of an alert's text; a screen cuts it to its width."""

MAX_DISK_CHARS = 60
"""Maximum characters about a full disk: they are shown next to the place's name in 80 columns."""

DAY_SECONDS = 86_400.0
"""Seconds for which a refused or lost mail is an alert."""


class Level(StrEnum):
    """Severity of an alert."""

    CRIT = "CRIT"
    """No task is processed until an operator acts."""
    WARN = "WARN"
    INFO = "info"
    """A warning that the configuration accepts (`alerts.accepted`); sorted last."""


class Where(StrEnum):
    """The screen or section that shows details."""

    QUEUE = "queue"
    STATE = "state"
    PROBLEMS = "problems"
    LOCK = "lock"
    TRANSPORTS = "transports"
    OPERATIONS = "operations"
    CONTROLS = "controls"
    WORKERS = "workers"
    GROUPS = "groups"


class Goal(NamedTuple):
    """Target of an alert: the place and the screen that explain it."""

    place: str
    where: Where
    state: State | None = None
    name: str = ""
    """Transport, operation, warning or group to show, exactly as found (not made safe). A group is
    `sender=a@x`: a key of `group_counts.GROUP_COLUMNS` and its name."""


class Alert(NamedTuple):
    """One alert."""

    level: Level
    kind: AlertKind
    text: str
    """At most `MAX_TEXT_LENGTH` characters, free of control characters."""
    since: float | None
    """Epoch seconds UTC; None if not known."""
    target: Goal


class Unfinished(NamedTuple):
    """An operation whose process ended before the operation did."""

    op: str
    name: str
    """Verb of the operation: `replay`, `purge`."""
    when: float
    """Start, epoch seconds UTC."""
    who: str
    open: int
    """Rows not moved yet."""
    planned: int


class Blocked(NamedTuple):
    """Due tasks of one kind that no worker on this host would claim."""

    kind: str
    due: int
    since: float
    """Creation of the oldest of them, epoch seconds UTC."""
    reason: str
    """Reason in a few words: `no handler`."""


MIN_FLOOD_MAILS, FLOOD_SHARE = 500, 0.5
"""One sender or account has more than this share of more than so many waiting mails: an alert."""

NEARLY_FULL_SHARE = 0.9
"""Share of a limit from which it is an alert that it will soon be reached."""


class LimitUse(NamedTuple):
    """A limit that makes programs fail once it is reached, and how much of it is used."""

    name: str
    """What is limited, in a few words: `queue`, `trash`."""
    used: float
    limit: float
    unit: str = ""
    """What is counted: `pending`, `MB`."""
    state: State | None = None


class AlertInputs(NamedTuple):
    """The facts about one place that the rules need. No field has a default, so that a fact cannot
    be forgotten: what is not known must be passed as such. Only `engine/places/alert_facts.py`
    makes these values."""

    name: str
    states: Mapping[State, str]
    """States the place has, with the store's own names for them."""
    counts: Mapping[State, int]
    complete: bool
    """True once all tasks were counted; `counts` are at least so many before."""
    is_scanned: bool
    """True once all tasks were read; `problems` are at least so many before."""
    unavailable: str
    """Why the place cannot be read now; "" if it can."""
    problems: int
    lock: LockEvidence | None
    active: int | None
    """Tasks that stayed active for some seconds; None: use `counts`. A run that just began or ended
    has an active task while its lock is free."""
    oldest: float | None
    """Creation of the oldest pending task, epoch seconds UTC."""
    due: int | None
    """Number of pending tasks that are due; None: unknown."""
    is_sample: bool
    """True if more tasks than these may be due: only some tasks were read."""
    oldest_due: float | None
    """Creation of the oldest due task, epoch seconds UTC."""
    largest_share: LargestShare | None
    """The sender or account with the most waiting mails; None if there is none, or not known."""
    dead_growth: Growth | None
    """Growth of the dead-letter queue in the last ten minutes, or as much of them as is known."""
    queue: MetricsReading
    counts_when_written: Mapping[State, int] | None
    """Our counts of the time at which the metrics file was written; None: not known."""
    transports: Sequence[TransportHealth]
    last_run: float | None
    """Last run mentioned in a log, epoch seconds UTC."""
    runs: RunTimes | None
    """Runs found in log and metrics; None if those are not read completely yet."""
    free_since: float | None
    """Since when the lock is free, or no worker runs at a place without a lock, epoch seconds UTC;
    None if one is there, or that is not known."""
    unfinished: Sequence[Unfinished]
    routes: MailRoutes | None
    """The mail routing; None if nothing is known of it."""
    orphaned_mails: int
    """Number of spooled mails without a task that would send them."""
    stopped: str | None
    """That the server which delivers by itself does not run; "" if it does; None: workers do."""
    warnings: tuple[str, ...]
    """Warnings of the queue itself that need an operator."""
    warned_states: Mapping[str, State]
    """The state of the tasks that a warning is about."""
    lacks: Sequence[tuple[str, str, float | None]]
    """Kind of task, what the workers lack for it, and when that was reported, epoch seconds UTC."""
    clock_step: str
    """When and by how much the clock was set a short time ago; "" if it was not."""
    blocked: Sequence[Blocked]
    dead_clusters: int | None
    """Number of different errors of the dead tasks; None if not counted."""
    disks: Sequence[DiskSpace]
    """The file systems that are written to; that of the tasks is the first."""
    limits: Sequence[LimitUse]
    destinations: Sequence[SeenDestination]
    refusals: Refusals | str
    """Mails that were refused for good or lost; or why they are unknown."""
    free_grace: float
    """Seconds that must have passed since `free_since`; 0.0 for a single look."""


def find_alerts(inputs: AlertInputs, now: float, limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alerts of one place, the most urgent first."""
    alerts = []
    for rule in _RULES:
        for level, what, words, since, goal in rule(inputs, now, limits):
            accepted = any(
                one.kind == what and words.startswith(one.text) for one in limits.accepted
            )
            if accepted and level is Level.WARN:
                level, words = Level.INFO, f"accepted: {words}"
            alerts.append(Alert(level, what, _short(words), since, Goal(inputs.name, *goal)))
    return tuple(sorted(alerts, key=lambda alert: (alert.level, _ORDER[alert.kind])))


def needs_attention(alerts: Iterable[Alert]) -> bool:
    """True if one of the alerts is not accepted."""
    return any(alert.level is not Level.INFO for alert in alerts)


_ORDER = {what: number for number, what in enumerate(AlertKind)}

_Goal: TypeAlias = tuple[Where] | tuple[Where, State] | tuple[Where, State | None, str]
_Found: TypeAlias = Iterator[tuple[Level, AlertKind, str, float | None, _Goal]]
_Rule: TypeAlias = Callable[[AlertInputs, float, Thresholds], _Found]


def _unreadable(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.unavailable:
        words = f"cannot be read: {_without_path(inputs.unavailable)}"
        yield Level.CRIT, AlertKind.UNREADABLE, words, None, (Where.QUEUE,)


def _lock(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    lock = inputs.lock
    if lock is None or (inputs.unavailable and lock.verdict is Verdict.UNKNOWN):
        return  # _unreadable reports it already
    who = "its holder" if lock.pid is None else f"PID {lock.pid}"
    if lock.verdict is Verdict.STUCK:
        words = f"lock STUCK {format_rough_duration(lock.age)}, {who}"
        if inputs.due:
            due = _count_due(inputs)
            words += "; 1 due task waits" if due == "1" else f"; {due} due tasks wait"
        yield Level.CRIT, AlertKind.STUCK, words, lock.since, (Where.LOCK,)
    elif lock.verdict is Verdict.STALE:
        words, lacks = f"stale lock: {who} is gone", lacks_worker(inputs, now, limits)
        words += f", {_due_words(inputs)}" if inputs.due else ""
        level = Level.CRIT if inputs.due and lacks else Level.WARN
        yield level, AlertKind.STALE, words, lock.since, (Where.LOCK,)
    elif lock.verdict is Verdict.UNKNOWN:
        words = f"lock holder unknown: {_without_path(lock.reason)}"
        yield Level.WARN, AlertKind.UNKNOWN_LOCK, words, None, (Where.LOCK,)


def _abandoned(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    active = inputs.counts.get(State.ACTIVE, 0) if inputs.active is None else inputs.active
    unlocked = inputs.lock is not None and inputs.lock.verdict in (Verdict.FREE, Verdict.STALE)
    if active and unlocked and not inputs.unavailable:
        word = safe_line(inputs.states.get(State.ACTIVE, "work"))
        words = f"{format_count(active, 'task')} in {word}, but no worker running"
        yield Level.WARN, AlertKind.ABANDONED, words, None, (Where.STATE, State.ACTIVE)


def _interrupted(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for operation in inputs.unfinished:
        who, hour = safe_line(operation.who), format_time(operation.when)[11:16]
        who = who if len(who) <= 10 else f"{who[:9]}~"
        rows = f"{operation.open:,} of {operation.planned:,} not moved"
        words = f"{operation.name} of {hour} by {who} interrupted: {rows}"
        goal = Where.OPERATIONS, None, operation.op
        yield Level.WARN, AlertKind.INTERRUPTED, words, operation.when, goal


def _dead(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.unavailable:
        return
    dead, growth, sorts = inputs.counts.get(State.DEAD, 0), inputs.dead_growth, inputs.dead_clusters
    grown = 0 if growth is None else growth.tasks
    is_growing = grown >= limits.dlq_growth
    if dead <= limits.dlq and not is_growing:
        return
    clusters = "" if not sorts else " in 1 cluster" if sorts == 1 else f" in {sorts:,} clusters"
    more = f", +{grown:,} in {_span(growth)}" if growth is not None and grown > 0 else ""
    limit = f" (limit {limits.dlq:,})" if dead > limits.dlq else ""
    words = f"{Figure(dead, inputs.complete).text()} dead{clusters}{more or limit}"
    kind = AlertKind.DEAD if dead > limits.dlq else AlertKind.GROWING
    yield Level.WARN, kind, words, None, (Where.STATE, State.DEAD)


def _span(growth: Growth) -> str:
    """The time of a growth: `10m`, or less if less is known."""
    seconds = min(growth.seconds, HISTORY_SECONDS)
    return format_duration(seconds) if seconds < 60 else format_rough_duration(seconds)


def _problems(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.problems and not inputs.unavailable:
        is_one = inputs.problems == 1 and inputs.is_scanned
        number = Figure(inputs.problems, inputs.is_scanned).text()
        words = "1 problem" if is_one else f"{number} problems"
        yield Level.WARN, AlertKind.PROBLEMS, words, None, (Where.PROBLEMS,)


def _oldest(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.oldest is None or inputs.unavailable or now - inputs.oldest <= limits.oldest:
        return
    word = safe_line(inputs.states.get(State.PENDING, "pending"))
    age, limit = format_rough_duration(now - inputs.oldest), format_rough_duration(limits.oldest)
    words = f"oldest in {word} for {age} (over {limit})"
    yield Level.WARN, AlertKind.OLDEST, words, inputs.oldest, (Where.STATE, State.PENDING)


def _flood(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    largest = inputs.largest_share
    if largest is None or inputs.unavailable or not inputs.is_scanned:
        return
    if largest.total > MIN_FLOOD_MAILS and largest.mails > FLOOD_SHARE * largest.total:
        name = safe_line(largest.name)
        name = name if len(name) <= 32 else f"{name[:29]}..."
        who = f"account {name}" if largest.by == "account" else name
        more = "+" if largest.is_partial else ""
        words = f"{who}: {largest.mails:,}{more} of {largest.total:,}"
        goal = Where.GROUPS, State.PENDING, f"{largest.by}={largest.name}"
        yield Level.WARN, AlertKind.FLOOD, words, None, goal


def _idle(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.stopped is not None:
        return  # a server decides when it tries what is due
    since, goal = _idle_since(inputs, now), (Where.STATE, State.PENDING)
    lacks = bool(inputs.due) and lacks_worker(inputs, now, limits)
    due, lock = _due_words(inputs), inputs.lock
    if since is not None and now - since > 60 * limits.idle:
        words = f"nothing has run for {format_rough_duration(now - since)}, {due}"
        yield Level.CRIT, AlertKind.IDLE, words, since, (Where.WORKERS,) if lacks else goal
    elif lacks and (lock is None or lock.verdict is not Verdict.STALE):  # has its own alert
        words = f"no worker running, {due}"
        yield Level.CRIT, AlertKind.IDLE, words, inputs.free_since, (Where.WORKERS,)


def _stopped(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.stopped and not inputs.unavailable:
        waiting = sum(inputs.counts.get(state, 0) for state in (State.PENDING, State.ACTIVE))
        number = Figure(waiting, inputs.complete).text()
        words = f"{inputs.stopped}: {number} wait" if waiting else inputs.stopped
        yield Level.CRIT, AlertKind.IDLE, words, None, (Where.WORKERS,)


def _count_due(inputs: AlertInputs) -> str:
    return Figure(inputs.due or 0, not inputs.is_sample).text()


def _due_words(inputs: AlertInputs) -> str:
    number = _count_due(inputs)
    return "1 task is due" if number == "1" else f"{number} tasks are due"


def lacks_worker(inputs: AlertInputs, now: float, limits: Thresholds) -> bool:
    """True if no worker has run for `free_grace` seconds and no timer run is expected soon; False
    of a server that delivers by itself."""
    free, runs, lock = inputs.free_since, inputs.runs, inputs.lock
    if lock is not None and lock.verdict is Verdict.STALE:
        free = lock.since
    is_held = lock is not None and lock.verdict not in (Verdict.FREE, Verdict.STALE)
    if is_held or inputs.stopped is not None or inputs.unavailable or free is None or runs is None:
        return False
    if now - free < inputs.free_grace:
        return False
    if runs.last is None:
        return True
    idle = 60 * limits.idle
    limit = idle if runs.interval is None else min(idle, MISSED_RUN_FACTOR * runs.interval)
    return now - runs.last > max(GRACE_SECONDS, limit)


def is_stalled(due: int | None, alerts: Sequence[Alert], without_output: bool = False) -> bool:
    """True if a queue is STALLED: due tasks wait, and its lock is stuck, or no worker runs, or none
    ran for longer than the limit (the `alerts`), or none left the queue while it was watched
    (`without_output`). False if `due`, the number of due tasks, is 0 or unknown."""
    stops = any(
        alert.kind in (AlertKind.IDLE, AlertKind.STUCK)
        or (alert.kind is AlertKind.STALE and alert.level is Level.CRIT)
        for alert in alerts
    )
    return bool(due) and (stops or without_output)


def _blocked(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for kind, due, since, why in inputs.blocked:
        if now - since > 60 * limits.idle and not inputs.unavailable:
            what = f"{due:,} {_brief(kind)} due for {format_rough_duration(now - since)}"
            words = f"{what}: {why}: see `doctor`"
            yield Level.WARN, AlertKind.BLOCKED, words, since, (Where.STATE, State.PENDING)
    for kind, lack, reported in inputs.lacks:
        words = f"{_brief(kind)} not tried: {safe_line(lack)}"
        yield Level.WARN, AlertKind.LACKING, words, reported, (Where.WORKERS,)


def _space(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for disk in inputs.disks:
        if disk.is_full:
            goal = _free_goal(disk, inputs.counts)
            yield Level.CRIT, AlertKind.FULL, describe_disk(disk), None, goal
    for one in inputs.limits:
        if is_nearly_full(one):
            level = Level.CRIT if one.used >= one.limit else Level.WARN
            goal = (Where.QUEUE,) if one.state is None else (Where.STATE, one.state)
            yield level, AlertKind.LIMIT, describe_limit(one), None, goal


def describe_disk(disk: DiskSpace, most: int = MAX_DISK_CHARS) -> str:
    """A full disk: mount point, size, and as many other facts as fit into `most` characters."""
    mount = safe_line(disk.mount)
    mount = mount if len(mount) <= MAX_MOUNT_CHARS else f"...{mount[3 - MAX_MOUNT_CHARS :]}"
    used, total = format_bytes(disk.used_bytes), format_bytes(disk.total_bytes)
    used = used.removesuffix(total[total.index(" ") :])  # one unit for both
    own, grown, room = disk.own_bytes, disk.grown_bytes, disk.free_tasks
    facts = [f"room for {format_count(room, 'task')}"] if room else []
    if own.value is not None and not disk.lacks_inodes:
        facts.append(f"queue {own.text(lambda size: format_bytes(int(size)))}")
    if grown > 0 and not disk.lacks_inodes:
        facts.append(f"+{format_bytes(grown)} in {format_rough_duration(disk.grown_seconds)}")
    inodes = "few inodes" if room else "no free inodes"
    words = f"disk full: {mount}, {inodes if disk.lacks_inodes else f'{used} of {total}'}"
    for fact in facts:
        words += f", {fact}" * (len(words) + 2 + len(fact) <= most)
    return words


MAX_MOUNT_CHARS = 24
"""Maximum characters of a mount point in an alert, its last ones."""


def is_filled_by_others(disk: DiskSpace) -> bool:
    """True if at most half of what is used there is of the place; False if inodes are scarce: only
    its bytes are known."""
    own, is_known = disk.own_bytes, not disk.lacks_inodes
    return is_known and own.value is not None and own.is_exact and 2 * own.value <= disk.used_bytes


def _free_goal(disk: DiskSpace, counts: Mapping[State, int]) -> _Goal:
    """Where an operator can make room: in the trash, which needs no room for the journal, or among
    the dead tasks while there is room for it; else not in the console."""
    if not is_filled_by_others(disk):
        if counts.get(State.TRASH):
            return Where.STATE, State.TRASH, disk.mount
        if counts.get(State.DEAD) and disk.free_tasks:
            return Where.STATE, State.DEAD, disk.mount
    return Where.QUEUE, None, disk.mount


def is_nearly_full(one: LimitUse) -> bool:
    """True if a limit is reached, or soon will be."""
    return one.used >= NEARLY_FULL_SHARE * one.limit


def describe_limit(one: LimitUse) -> str:
    """`queue full: 10,000 of 10,000 pending`, or how full it is."""
    share = "full" if one.used >= one.limit else f"{math.floor(100 * one.used / one.limit)}% full"
    return f"{one.name} {share}: {one.used:,.0f} of {one.limit:,.0f} {one.unit}".rstrip()


def _idle_since(inputs: AlertInputs, now: float) -> float | None:
    """Epoch seconds UTC since when no task ran although one was due; None if that cannot be
    decided."""
    lock, queue = inputs.lock, inputs.queue
    is_held = lock is not None and lock.verdict is Verdict.HELD
    stuck = lock is not None and lock.verdict is Verdict.STUCK  # has an alert of its own
    if not inputs.due or inputs.oldest_due is None or inputs.unavailable or stuck:
        return None
    if is_held and lock is not None and lock.since is None:
        return None  # a worker holds the lock, but since when is not known
    run_times = [
        inputs.oldest_due,
        inputs.last_run,
        lock.since if is_held and lock is not None else None,
        queue.get(LAST_RUN) if isinstance(queue, Samples) else None,
    ]
    # Ignore times in the future: a wrong clock must not suppress this alert.
    return max(
        (s for s in run_times if s is not None and s <= now + CLOCK_SKEW_SECONDS),
        default=inputs.oldest_due,
    )


def _transports(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for transport in inputs.transports:
        limit = limits.transport_failures
        window = transport.find_proof(limit)
        if window is None or window.tally is None or window.share is None:
            continue
        if transport.health(limit) is Health.FAILING:
            tries, name = format_count(window.tally.ended, "attempt"), _brief(transport.name)
            words = f"{name} failed {window.share:.0%} of {tries} in {window.name}"
            if transport.name == NO_TRANSPORT:
                words = f"no transport available for {tries} in {window.name}"
            goal = Where.TRANSPORTS, None, transport.name
            yield Level.WARN, AlertKind.TRANSPORT, words, transport.failing_since(now, limit), goal


def _suspended(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    routes = inputs.routes
    if routes is None or routes.unknown:
        if routes is not None and routes.blocked:
            words = "no mail is sent: suspensions unreadable: see `doctor`"
            yield Level.WARN, AlertKind.SUSPENDED, words, None, (Where.TRANSPORTS,)
        return
    for stopped in routes.stopped.values():
        name, who = _brief(stopped.name), _brief(stopped.who)
        words = f"{name} suspended by {who} for {_age(now - stopped.since)}"
        words += ", mail waits" if routes.is_waiting else ""
        words += f": {safe_line(stopped.why)}" if stopped.why else ""
        goal = Where.TRANSPORTS, None, stopped.name
        yield Level.WARN, AlertKind.SUSPENDED, words, stopped.since, goal


def _destinations(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for one in inputs.destinations[:MAX_DESTINATIONS]:
        destination, tasks = one.destination, one.tasks
        goal, name = (Where.TRANSPORTS, None, destination.origin), _host(destination.origin)
        if one.state is DestinationState.UNHEALTHY:
            lasts = "" if destination.since is None else f" {_age(now - destination.since)}"
            words = f"{name} unhealthy{lasts}: {destination.reason or 'unknown'}"
            waiting = 0 if tasks is None else tasks.waiting
            words += f", {waiting:,} wait" if waiting else ""
            yield Level.WARN, AlertKind.UNHEALTHY, words, destination.since, goal
        elif one.can_recover and tasks is not None:
            words = f"{name} is back: {tasks.repeatable:,} failed can be sent"
            yield Level.WARN, AlertKind.RECOVERED, words, destination.since, goal


MAX_DESTINATIONS = 20
"""Destinations that have alerts of their own, the most urgent ones."""


def _host(origin: str) -> str:
    name = safe_line(origin.partition("://")[2])
    return name if len(name) <= 20 else f"{name[:17]}..."


def _age(seconds: float) -> str:
    # Another host's clock, or one set back, must not give a negative duration.
    return format_rough_duration(max(0.0, seconds))


def _lost_mails(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    if inputs.orphaned_mails:
        mails = format_count(inputs.orphaned_mails, "spooled mail")
        have = "has" if inputs.orphaned_mails == 1 else "have"
        words = f"{mails} {have} no task: see `mail spool list`"
        yield Level.WARN, AlertKind.LOST, words, None, (Where.TRANSPORTS,)
    recent = recent_refusals(inputs.refusals, now)
    if recent:
        count = count_refusals(inputs.refusals, now)
        mails = "1 mail" if count.text() == "1" else f"{count.text()} mails"
        words = f"{mails} refused or lost in a day: {recent[0].text or recent[0].word}"
        yield Level.WARN, AlertKind.REFUSED, words, recent[0].when, (Where.TRANSPORTS,)


def recent_refusals(refusals: Refusals | str, now: float) -> list[Failure]:
    """Return those of the last day; none if they are unknown."""
    if isinstance(refusals, str):
        return []
    some = refusals.failures
    return [each for each in some if each.when is None or now - each.when < DAY_SECONDS]


def count_refusals(refusals: Refusals | str, now: float) -> Figure:
    """The number of those of the last day; not exact if records of that day were removed."""
    is_cut = isinstance(refusals, Refusals) and now - refusals.since < DAY_SECONDS
    return Figure(len(recent_refusals(refusals, now)), not is_cut)


def _warned(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    for words in dict.fromkeys(inputs.warnings):
        state = inputs.warned_states.get(words)
        goal: _Goal = (Where.CONTROLS, None, words) if state is None else (Where.STATE, state)
        yield Level.WARN, AlertKind.WARNED, words, None, goal
    if inputs.clock_step:
        yield Level.WARN, AlertKind.CLOCK, inputs.clock_step, None, (Where.QUEUE,)


def _metrics(inputs: AlertInputs, now: float, limits: Thresholds) -> _Found:
    queue, goal = inputs.queue, (Where.QUEUE,)
    if isinstance(queue, Samples):
        age = now - queue.modified
        stuck = inputs.lock is not None and inputs.lock.verdict is Verdict.STUCK
        to_do = inputs.counts.get(State.PENDING, 0) + inputs.counts.get(State.ACTIVE, 0)
        # Old metrics are no news if the queue is stalled anyway, or has nothing to do.
        known = stuck or any(_idle(inputs, now, limits))
        if age > 60 * limits.idle and to_do and not known:
            words = f"queue.prom not written for {format_rough_duration(age)}"
            yield Level.WARN, AlertKind.OLD_METRICS, words, queue.modified, goal
        is_whole = inputs.complete and not inputs.unavailable
        own_counts = OwnCounts(inputs.states, inputs.counts, is_whole, inputs.counts_when_written)
        for difference in find_differences(queue, own_counts)[:1]:
            words = f"queue.prom differs: {difference}"
            yield Level.WARN, AlertKind.CONTRADICTION, words, queue.modified, goal
    elif queue is not None and queue != NOT_THERE:  # before the first run there is none
        yield Level.WARN, AlertKind.BAD_METRICS, f"queue.prom: {queue}", None, goal


_RULES: tuple[_Rule, ...] = (
    _unreadable,
    _lock,
    _abandoned,
    _interrupted,
    _dead,
    _problems,
    _oldest,
    _flood,
    _stopped,
    _idle,
    _blocked,
    _space,
    _transports,
    _suspended,
    _destinations,
    _lost_mails,
    _warned,
    _metrics,
)


def _brief(text: str) -> str:
    name = safe_line(text)
    return name if len(name) <= 16 else f"{name[:13]}..."


def _without_path(reason: str) -> str:
    """Strip the leading path from a reason: the place's name is shown next to it."""
    path, separator, why = reason.partition(": ")
    return why if separator and path.startswith("/") and " " not in path else reason


def _short(words: str) -> str:
    safe = safe_line(words)
    return safe if len(safe) <= MAX_TEXT_LENGTH else f"{safe[: MAX_TEXT_LENGTH - 3]}..."
