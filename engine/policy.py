"""Pure decisions: retry backoff, due times, token buckets, and why a task is waiting.

Nothing here reads a clock, a file or a setting. Times are epoch seconds UTC, durations seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine import schedules, verbs
from engine.model import STALLED_KEY, WAITS_KEY, Lease, LockEvidence, State, Task, Verdict
from engine.schedules import Schedule
from engine.text.safe import safe_line

DAY_SECONDS = 86400.0
MAX_WAIT_SECONDS = 7 * DAY_SECONDS
"""The longest a task waits, in seconds: a due time further away comes from a wrong clock."""

DLQ_ALERT_LIMIT = 10
"""More dead tasks than this raise an alert (contract, "Module Integration Guide")."""


class RetryPolicy(NamedTuple):
    """How failures are counted and when retries end."""

    schedule: Schedule
    """The waits; the task is given up at the end."""
    final_attempts: int
    """What the last failure adds to the attempts: 0 or 1."""
    max_runs: int
    """Maximum number of runs of a task, for display; 0 if its age decides."""
    lifetime: float = float("inf")
    """Seconds after its creation from which a task that fails is not retried."""
    is_exact: bool = False
    """True if due times keep fractions of a second; else the time of the failure loses its."""
    age: Callable[[float, float], float] = lambda moment, now: now - moment
    """Seconds since the first time up to the second, as far as they count against `lifetime`."""
    random: Callable[[], float] = lambda: 0.0
    """Draws a number from 0 to 1 for the jitter of the schedule; the default takes nothing off."""
    by_kind: Mapping[str, Schedule] = {}
    """The schedules of some kinds of task, instead of the one above."""

    def of_kind(self, kind: str) -> RetryPolicy:
        """The policy of a kind of task."""
        schedule = self.by_kind.get(kind)
        return (
            self
            if schedule is None
            else self._replace(schedule=schedule, max_runs=runs_of(schedule))
        )

    def retry_delay(self, task: Task, now: float) -> float | None:
        """Seconds until the next attempt of a task that fails now; None to give it up."""
        # An unknown creation time is 0: the age of such a task never gives it up, and no age gives
        # up a task after one attempt: a worker that was away for days must try it twice.
        may_end = task.created and task.attempts and now - task.created >= self.lifetime
        if may_end and self.age(task.created, now) >= self.lifetime:
            return None
        return self.schedule.wait(task.attempts or 0, self.random())

    def next_due(self, task: Task, now: float) -> float | None:
        """When a task that fails now is due again, epoch seconds UTC; None to give it up."""
        wait = self.retry_delay(task, now)
        if wait is None:
            return None
        return (now if self.is_exact else int(now)) + wait


def contract_retries(base: float = 60, ceiling: float = 900, limit: int = 3) -> RetryPolicy:
    """The retry table of the contract: waits of 60, 120 and 240 s; the fourth failure is final.

    Source: NFTBan Queue and Mail Contract, "Retry Policy".
    """
    return retries_of(schedules.exponential(base, ceiling, limit), final_attempts=0)


def shipped_retries(base: float = 30, ceiling: float = 900, limit: int = 3) -> RetryPolicy:
    """The retries of the real NFTBan program, which counts first and then waits or gives up.

    Waits of 60 and 120 s; the third failure is final, with three counted attempts.
    Source: nftban_task_queue.sh, failure handling.
    """
    return retries_of(schedules.exponential(2 * base, ceiling, max(0, limit - 1)))


def retries_of(
    schedule: Schedule, *, final_attempts: int = 1, is_exact: bool = False
) -> RetryPolicy:
    """The policy that retries after each wait of a schedule."""
    return RetryPolicy(schedule, final_attempts, runs_of(schedule), is_exact=is_exact)


def runs_of(schedule: Schedule) -> int:
    """The number of runs of a task that is retried after each wait; 0 if there is no limit."""
    return 0 if schedule.limit is None else schedule.limit + 1


def limit_due(due: float, written: float, now: float) -> float:
    """The due time to use for a task that was stored at `written` with the given `due`.

    A due time more than `MAX_WAIT_SECONDS` seconds ahead comes from a wrong clock and must not
    delay a task for years. Use `written` plus that limit instead, or now if `written` is in the
    future too.
    """
    if due <= now + MAX_WAIT_SECONDS:
        return due
    return written + MAX_WAIT_SECONDS if written <= now else now


_LATEST_TIME = (1 << 63) - 1
"""Epoch seconds: a later time is no time."""


def died_at(task: Task) -> float | None:
    """When a task died, epoch seconds UTC; None if it is not dead, or has no time of death."""
    try:
        died = float(task.extra.get("dead_since", ""))
    except ValueError:
        return None
    return died if 0 < died < _LATEST_TIME else None


def is_due(task: Task, now: float) -> bool:
    """True if the due time of a pending task has passed."""
    return (task.due or 0.0) <= now


def waited_seconds(task: Task, now: float) -> float | None:
    """Seconds since a claimed task was due; None if unknown: it ran before, and its due time was
    reset since.
    """
    if not task.due and (task.attempts or task.error or not task.created):
        return None
    return max(0.0, now - max(task.created, task.due or 0.0))


def is_stuck(age: float, threshold: float) -> bool:
    """True if a live holder's heartbeat is older than the threshold; both in seconds."""
    return age > threshold


def is_older_than(age: float, days: float) -> bool:
    """True if a task died more than so many days ago (strictly more, as in the contract), by its
    age in seconds."""
    return age > days * DAY_SECONDS


UNITS_PER_TOKEN = 3600
"""Units per token. Refilling adds `per_hour` units a second, so all values are whole numbers."""


class Rate(NamedTuple):
    """A rate limit: tokens per hour, and the most that can be saved up (burst)."""

    per_hour: int
    burst: int

    @classmethod
    def with_default_burst(cls, per_hour: int, burst: int | None = None) -> Rate:
        """Make a rate; the default burst is one hour's tokens, at most 5."""
        return cls(per_hour, min(per_hour, 5) if burst is None else burst)


class Bucket(NamedTuple):
    """A token bucket at a point in time, in whole numbers, so nothing is lost to rounding."""

    units: int
    """1/3600 tokens."""
    stamp: int
    """Whole epoch seconds of the last refill."""

    @property
    def tokens(self) -> int:
        """Whole tokens available."""
        return self.units // UNITS_PER_TOKEN


def refill_bucket(bucket: Bucket, rate: Rate, now: float) -> Bucket:
    """The bucket at `now`, with the tokens of the time passed, at most `burst`.

    If the clock jumped back, no tokens are added or removed, and time counts from the new value. A
    jump ahead fills the bucket once.
    """
    passed = max(0, int(now) - bucket.stamp)
    units = min(rate.burst * UNITS_PER_TOKEN, max(0, bucket.units) + passed * rate.per_hour)
    return Bucket(units, int(now))


def spend_tokens(bucket: Bucket, tokens: int = 1) -> Bucket | None:
    """Take tokens from the bucket; None if it has too few."""
    units = bucket.units - tokens * UNITS_PER_TOKEN
    return None if units < 0 else Bucket(units, bucket.stamp)


def next_token_time(bucket: Bucket, rate: Rate) -> float:
    """Epoch seconds when the bucket next holds a whole token; its stamp if it holds one already."""
    lacking = UNITS_PER_TOKEN - bucket.units
    if lacking <= 0:
        return float(bucket.stamp)
    if rate.per_hour <= 0 or rate.burst <= 0:
        return float("inf")
    return float(bucket.stamp + -(-lacking // rate.per_hour))


NO_WORKER_SECONDS = 900.0
"""Seconds without a run after which no worker seems to serve a queue: three rounds of the real
program's timer, which fires every 5 minutes and up to 2 minutes late."""


class Circumstances(NamedTuple):
    """What can keep a task from running, apart from the task itself."""

    lock: LockEvidence | None = None
    """The queue's lock; None if the store has none or it was not examined."""
    is_handled: Callable[[str], bool] | None = None
    """True if a worker has a handler for this kind; None: the configuration is unknown."""
    token_at: float = 0.0
    """Epoch seconds when the token bucket of this kind next holds a token."""
    pause_reason: str = ""
    """Why the whole queue is paused; "" if it is not."""
    tasks_ahead: int = 0
    """Number of tasks that the store claims before this one, once it is due."""
    last_run: float | None = None
    """Epoch seconds when a worker last ran; None: unknown."""
    closed_reason: str = ""
    """Why no task of this kind is claimed now, even by a worker with a handler; "" if one is."""
    is_age_order: bool = True
    """True if due tasks are claimed by creation, so that the tasks ahead are older."""
    is_idle: bool = False
    """True if tasks are due but none has run for so long that there is an alert."""


def why_waiting(task: Task, now: float, circumstances: Circumstances) -> tuple[str, ...]:
    """Explain why a task in any state is not running, as phrases that are safe to show.

    The first is the present reason; the others apply after it, or add facts. For a task that is
    running, or that is not going to run, the phrases describe that instead.
    """
    return tuple(_WHY[task.state](task, now, circumstances))


def join_reasons(reasons: Sequence[str]) -> str:
    """Join the phrases of `why_waiting` into one line."""
    return "; ".join(reasons)


def _why_pending(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    hindered = [*_blocking_reasons(task, now, circumstances)]
    yield from hindered
    due, lock = is_due(task, now), circumstances.lock
    refused = any(_handler_problem(task, circumstances))
    ahead = 0 if refused else circumstances.tasks_ahead
    if ahead:
        which = "older" if circumstances.is_age_order else "other"
        yield f"{'' if due else 'then '}{ahead:,} {which} task{'s' if ahead > 1 else ''} first"
    verdict = Verdict.FREE if lock is None else lock.verdict
    if lock is not None and verdict is Verdict.HELD and not hindered:
        yield f"{'' if ahead else 'next in line; '}lock held by {_describe_holder(lock)}"
    alone = _is_quiet(circumstances, now) or not (hindered or ahead)
    if task.due is None and not (hindered or circumstances.is_idle):
        yield "due time unknown"
    elif alone and verdict not in (Verdict.HELD, Verdict.STUCK):
        yield _no_worker(task, now, circumstances, due and not hindered)


def _blocking_reasons(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    """What would block a pending task even if it were the next one and a worker were running."""
    if circumstances.pause_reason:
        yield f"the queue is paused: {safe_line(circumstances.pause_reason)}"
    if not is_due(task, now):
        # The first attempt has no backoff; its error field contains the reason for the wait.
        why = safe_line(task.error) if task.error.startswith(verbs.WAITING_PREFIX) else "backoff"
        yield f"{why} until {format_deadline(task.due or 0.0, now)}"
    if reason := task.extra.get(WAITS_KEY):
        yield safe_line(reason)
    yield from _handler_problem(task, circumstances)
    if circumstances.lock is not None and circumstances.lock.verdict in _BLOCKING_VERDICTS:
        yield _BLOCKING_VERDICTS[circumstances.lock.verdict](circumstances.lock)
    if circumstances.token_at > max(now, task.due or 0.0):
        yield f"no token until {format_deadline(circumstances.token_at, now)}"


def _handler_problem(task: Task, circumstances: Circumstances) -> Iterator[str]:
    if circumstances.is_handled is not None and not circumstances.is_handled(task.kind):
        yield f"no handler configured for {safe_line(task.kind)}"
    elif circumstances.closed_reason:
        yield safe_line(circumstances.closed_reason)


def _is_quiet(circumstances: Circumstances, now: float) -> bool:
    return circumstances.is_idle or (
        circumstances.last_run is not None and now - circumstances.last_run > NO_WORKER_SECONDS
    )


def _no_worker(task: Task, now: float, circumstances: Circumstances, due: bool) -> str:
    """Report that no worker is running, and since when."""
    ran = (
        ""
        if circumstances.last_run is None
        else f", last run {format_rough_duration(now - circumstances.last_run)} ago"
    )
    if not due:
        return f"no worker running{ran}"
    # With due 0 the start of the wait is unknown: the task may have been retried just now.
    for_long = f" for {format_rough_duration(now - task.due)}" if task.due else ""
    free = circumstances.lock is not None and circumstances.lock.verdict is Verdict.FREE
    return f"due{for_long}, no worker running{': lock is free' if free else ''}{ran}"


def _describe_holder(lock: LockEvidence) -> str:
    """The holder of a lock and the age of its heartbeat, as far as known."""
    who = f"PID {lock.pid}" if lock.pid is not None else "an unknown PID"
    return (
        who
        if lock.since is None
        else f"{who}, last heartbeat {format_rough_duration(lock.age)} ago"
    )


def _describe_stuck(lock: LockEvidence) -> str:
    who = f"PID {lock.pid}" if lock.pid is not None else "its holder"
    return f"lock is stuck: no heartbeat from {who} for {format_rough_duration(lock.age)}"


_BLOCKING_VERDICTS: Mapping[Verdict, Callable[[LockEvidence], str]] = {
    Verdict.STUCK: _describe_stuck,
    Verdict.STALE: lambda lock: (
        f"lock is stale: {safe_line(lock.reason)}; the next worker takes it over"
    ),
    Verdict.UNKNOWN: lambda lock: f"lock state unknown: {safe_line(lock.reason)}",
}
"""Verdict of a lock that blocks or delays tasks -> its description."""


def _why_held(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    yield "held by an operator until released"
    if not is_due(task, now):
        # The first attempt has no backoff; its error field contains the reason for the wait.
        why = safe_line(task.error) if task.error.startswith(verbs.WAITING_PREFIX) else "backoff"
        yield f"{why} until {format_deadline(task.due or 0.0, now)}"
    yield from _handler_problem(task, circumstances)


def _why_active(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    lock, lease = circumstances.lock, task.lease
    taken = "" if lease is None else f", claimed {format_rough_duration(now - lease.since)} ago"
    if lock is not None and lock.verdict in (Verdict.FREE, Verdict.STALE):
        why = "lock is free" if lock.verdict is Verdict.FREE else safe_line(lock.reason)
        yield f"orphaned: {why}{taken}"
        yield "the next worker counts a failed attempt and requeues it"
    elif lock is not None and lock.verdict is Verdict.STUCK:
        yield _describe_stuck(lock) + taken
    elif lock is not None and lock.verdict is Verdict.UNKNOWN:
        yield f"lock state unknown: {safe_line(lock.reason)}{taken}"
    elif lease is not None and lease.until is not None and (lock is None or lease.until <= now):
        yield from _describe_lease(lease, lease.until, now)
    elif sign := task.extra.get(STALLED_KEY):
        yield f"stalled? {sign}: a worker returns it, or you do with release"
    else:
        owner = safe_line(lease.owner) if lease is not None else ""
        who = f"PID {lock.pid}" if lock is not None and lock.pid is not None else owner
        at_it = f" for {format_rough_duration(now - lease.since)}" if lease is not None else ""
        yield f"being processed{' by ' if who else ''}{who}{at_it}"


def _describe_lease(lease: Lease, end: float, now: float) -> Iterator[str]:
    """Describe a claim that expires; it does not show whether a worker is running."""
    # A lease without an end time has `until` 0: do not show an age for it.
    ago = f" {format_rough_duration(now - lease.since)} ago" if lease.since > 0 else ""
    claimed = f"claimed{ago}{f' by {safe_line(lease.owner)}' if lease.owner else ''}"
    if end > now:
        yield f"{claimed}{'' if lease.owner else ', owner unknown'}"
        yield f"its lease expires at {format_deadline(end, now)}"
        return
    expired = f" {format_rough_duration(now - end)} ago" if end > 0 else ""
    yield f"its lease expired{expired}: the next worker counts an attempt and requeues it"
    if lease.since > 0 or lease.owner:
        yield claimed


def _why_dead(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    since = _parse_seconds(task.extra.get("dead_since", ""))
    ago = "" if since is None else f" {format_rough_duration(now - since)} ago"
    reason = safe_line(task.extra.get("dead_reason", ""))
    yield f"given up{ago}{f' ({reason})' if reason else ''}"
    yield "stays here until retried (attempts reset)"
    yield from _handler_problem(task, circumstances)


def _parse_seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _why_done(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    yield "done; its store deletes it later"


def _why_trash(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    yield "purged by an operator: workers ignore it; it can be restored"


_WHY: Mapping[State, Callable[[Task, float, Circumstances], Iterator[str]]] = {
    State.PENDING: _why_pending,
    State.HELD: _why_held,
    State.ACTIVE: _why_active,
    State.DEAD: _why_dead,
    State.DONE: _why_done,
    State.TRASH: _why_trash,
}


def format_deadline(moment: float, now: float) -> str:
    """A future time, with its date unless it is today: `12:01:02Z (in 4m)`."""
    text = format_time(moment)
    if moment == float("inf") or not text.endswith("Z"):
        return text
    today, time_of_day = format_time(now)[:11], text[11:]
    time_text = time_of_day if text.startswith(today) else text
    return f"{time_text} (in {format_rough_duration(moment - now)})"


def format_time(moment: float) -> str:
    """A time in UTC, for a sentence: `2026-01-07 12:01:02Z`; "never" for infinity."""
    if moment == float("inf"):
        return "never"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))
    except (OverflowError, OSError, ValueError):  # read from a file; beyond year 9999
        return f"epoch second {moment:g}"


MAX_DURATION_SECONDS = 86400.0 * 99_999
"""Longest duration that is shown, in seconds."""


def format_duration(seconds: float) -> str:
    """A duration of at most 6 characters: `3s`, `1m42s`, `1h17m`, `6d02h`, `412d`."""
    whole = int(max(0.0, min(seconds, MAX_DURATION_SECONDS)) + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    days, hours = whole // 86400, whole % 86400 // 3600
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def format_rough_duration(seconds: float) -> str:
    """Like `format_duration`, but from one minute on without seconds, so it changes less often."""
    whole = min(seconds, MAX_DURATION_SECONDS) // 1
    return (
        format_duration(whole)
        if whole < 60
        else format_duration(whole // 60 * 60).removesuffix("00s")
    )


def seconds_to_spend(tasks: int, tokens: int, per_hour: int) -> float:
    """Seconds until a token bucket has released so many tokens; infinite at a rate of 0."""
    lacking = max(0, tasks - tokens)
    if not lacking:
        return 0.0
    return lacking * UNITS_PER_TOKEN / per_hour if per_hour else math.inf


def describe_time_to_empty(seconds: float) -> str:
    """Time until a rate-limited queue is empty: `empty in 1h17m at best`.

    If the rate does not delay it, the due times do, and they are not known here.
    """
    if seconds <= 0:
        return "tokens for all of them"
    return f"empty in {format_rough_duration(seconds)} at best"


def describe_limit(seconds: float) -> str:
    """A limit from the settings, never rounded below two hours: `90s`, `20m`."""
    is_exact = seconds >= 7200 or not seconds % 60
    return format_rough_duration(seconds) if is_exact else f"{seconds:g}s"
