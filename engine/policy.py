"""Pure decisions: retry backoff, due times, token buckets.

Nothing here reads a clock, a file or a setting. Times are epoch seconds UTC, durations seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import schedules
from engine.model import State, Task, attempts_allowed
from engine.schedules import Schedule
from engine.values import NamedTuple

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
        if (schedule := self.by_kind.get(kind)) is None:
            return self
        return self._replace(schedule=schedule, max_runs=runs_of(schedule))

    def max_attempts(self, task: Task) -> int | None:
        """Maximum number of attempts of a task, its own or by its kind; None if its age decides."""
        return attempts_allowed(task, self.of_kind(task.kind).max_runs or None)

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
    Source: NFTBan Queue and Mail Contract, "Retry Policy"."""
    return retries_of(schedules.exponential(base, ceiling, limit), final_attempts=0)


def shipped_retries(base: float = 30, ceiling: float = 900, limit: int = 3) -> RetryPolicy:
    """The retries of the real NFTBan program, which counts first and then waits or gives up.

    Waits of 60 and 120 s; the third failure is final, with three counted attempts.
    Source: nftban_task_queue.sh, failure handling."""
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
    delay a task for years. Use `written` plus that limit, or now if `written` is ahead too."""
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


def count_runs(task: Task, limit: int | None) -> int | None:
    """Number of runs that have ended, as the log counts them; None if unknown. `limit` is their
    maximum. A queue that counts retries does not count the last run of a task that it gives up, and
    a purge keeps its count."""
    has_died = task.state in (State.DEAD, State.TRASH)
    is_exhausted = task.extra.get("dead_reason") == "max_retries_exceeded"
    if has_died and is_exhausted and limit and task.attempts == limit - 1:
        return limit
    return task.attempts


def is_due(task: Task, now: float) -> bool:
    """True if the due time of a pending task has passed."""
    return (task.due or 0.0) <= now


def waited_seconds(task: Task, now: float) -> float | None:
    """Seconds since a claimed task was due; None if its due time was reset since a run."""
    if not task.due and (task.attempts or task.error or not task.created):
        return None
    return max(0.0, now - max(task.created, task.due or 0.0))


def is_stuck(age: float, threshold: float) -> bool:
    """True if a live holder's heartbeat is older than the threshold; both in seconds."""
    return age > threshold


def is_older_than(age: float, days: float) -> bool:
    """True if an age in seconds is more than so many days (strictly, as in the contract)."""
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
    jump ahead fills the bucket once."""
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
