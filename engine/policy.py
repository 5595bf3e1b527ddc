"""Decisions from values and `now`: when to try again, when to give up, what keeps a task waiting.

Nothing here reads a clock, a file or a setting. Times are epoch seconds UTC, durations seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from engine.model import LockEvidence, State, Task, Verdict

Backoff: TypeAlias = Callable[[int], float | None]
"""Seconds to wait after a failure that followed so many retries; None to give up."""

DAY = 86400.0
FURTHEST = 7 * DAY
"""No task waits longer than this: a next attempt further away is a clock that jumped."""

DLQ_LIMIT = 10
"""Dead tasks above which somebody should look (contract, "Module Integration Guide")."""


class RetryPolicy(NamedTuple):
    """How failures are counted and when they end."""

    backoff: Backoff
    last_counts: int
    """By how much the failure that buries a task raises its attempts: 0 or 1."""
    runs: int
    """How often a task is run at most, for people."""


def exponential(base: float, ceiling: float, limit: int) -> Backoff:
    """60, 120, 240, ... seconds, never more than `ceiling`, for `limit` retries."""
    return lambda retries: None if retries >= limit else _doubled(base, retries, ceiling)


def _doubled(base: float, times: int, ceiling: float) -> float:
    # 2**64 is beyond any ceiling, and 2**5000 beyond what a float holds.
    return min(ceiling, base * 2.0 ** min(times, 64))


def contract(base: float = 60, ceiling: float = 900, limit: int = 3) -> RetryPolicy:
    """The queue contract's table: waits of 60, 120, 240 s; the fourth failure buries.

    Source: NFTBan Queue and Mail Contract, "Retry Policy".
    """
    return RetryPolicy(exponential(base, ceiling, limit), last_counts=0, runs=limit + 1)


def shipped(base: float = 30, ceiling: float = 900, limit: int = 3) -> RetryPolicy:
    """What the program behind the contract does: it counts first, then waits or buries.

    Waits of 60 and 120 s, the third failure buries, with three counted attempts.
    Source: nftban_task_queue.sh, failure handling.
    """

    def backoff(retries: int) -> float | None:
        return None if retries + 1 >= limit else _doubled(base, retries + 1, ceiling)

    return RetryPolicy(backoff, last_counts=1, runs=max(1, limit))


def trusted_due(due: float, written: float, now: float) -> float:
    """When to attempt a task that was stored at `written` with this due time.

    A due time further than `FURTHEST` from now comes from a clock that jumped, and must not park
    a task for years: it waits that long since it was written, or not at all when that, too, is
    said to lie in the future.
    """
    if due <= now + FURTHEST:
        return due
    return written + FURTHEST if written <= now else now


def is_due(task: Task, now: float) -> bool:
    """Whether a pending task may be attempted."""
    return (task.due or 0.0) <= now


def stuck(age: float, threshold: float) -> bool:
    """Whether a live holder has been silent for too long; both in seconds."""
    return age > threshold


def older_than(dead_since: float, now: float, days: float) -> bool:
    """Whether a dead task has been dead for more than so many days (strictly, as the contract)."""
    return dead_since < now - days * DAY


HOUR = 3600
"""A token is this many units, so that a bucket refills by whole numbers: `per_hour` a second."""


class Rate(NamedTuple):
    """How much may be done: so many an hour, and so many at once after a rest."""

    per_hour: int
    burst: int

    @classmethod
    def of(cls, per_hour: int, burst: int | None = None) -> Rate:
        """A rate whose burst is, unless given, the hour's worth but at most 5."""
        return cls(per_hour, min(per_hour, 5) if burst is None else burst)


class Bucket(NamedTuple):
    """A token bucket at an instant, in whole numbers, so that nothing is lost to rounding."""

    units: int
    """1/3600 tokens."""
    stamp: int
    """Whole epoch seconds of the last refill."""

    @property
    def tokens(self) -> int:
        """Whole tokens to be spent."""
        return self.units // HOUR


def full(rate: Rate, now: float) -> Bucket:
    """A bucket that has rested."""
    return Bucket(rate.burst * HOUR, int(now))


def refill(bucket: Bucket, rate: Rate, now: float) -> Bucket:
    """The bucket at `now`: fuller by the time passed, never above its burst.

    A clock that jumped back neither fills nor starves it: it goes on from the new time. One that
    jumped ahead fills it to its burst, once.
    """
    passed = max(0, int(now) - bucket.stamp)
    units = min(rate.burst * HOUR, max(0, bucket.units) + passed * rate.per_hour)
    return Bucket(units, int(now))


def spend(bucket: Bucket, tokens: int = 1) -> Bucket | None:
    """The bucket with so many tokens less; None when it has not that many."""
    units = bucket.units - tokens * HOUR
    return None if units < 0 else Bucket(units, bucket.stamp)


def next_token(bucket: Bucket, rate: Rate) -> float:
    """When the bucket holds a whole token, if nobody spends: its stamp, when it does already."""
    lacking = HOUR - bucket.units
    if lacking <= 0:
        return float(bucket.stamp)
    if rate.per_hour <= 0 or rate.burst <= 0:
        return float("inf")
    return float(bucket.stamp + -(-lacking // rate.per_hour))


class Circumstances(NamedTuple):
    """What a task's waiting can come from, besides itself."""

    lock: LockEvidence | None = None
    """The queue's lock; None where the store has none, or it was not looked at."""
    handled: Callable[[str], bool] | None = None
    """Whether a task of this kind would be claimed; None: the configuration is not known."""
    token_at: float = 0.0
    """When the bucket that this kind draws on holds a token."""
    paused: str = ""
    """Why the queue as a whole stands still; "" when it does not."""
    ahead: int = 0
    """How many due tasks come before it."""


def why_waiting(task: Task, now: float, about: Circumstances) -> str:
    """One sentence: what keeps a pending or held task from running; "" for any other state."""
    if task.state is State.HELD:
        return "held by an operator until released"
    if task.state is not State.PENDING:
        return ""
    if about.paused:
        return f"the queue is paused: {about.paused}"
    if about.handled is not None and not about.handled(task.kind):
        return f"no handler configured for {task.kind}"
    if not is_due(task, now):
        return f"backoff until {at(task.due or 0.0)}"
    if about.token_at > now:
        return f"no token until {at(about.token_at)}"
    lock = about.lock
    if lock is not None and lock.verdict in (Verdict.STUCK, Verdict.STALE):
        return f"the lock is {lock.verdict}: {lock.reason}"
    if about.ahead:
        older = "1 older task" if about.ahead == 1 else f"{about.ahead:,} older tasks"
        return f"{older} first"
    if lock is not None and lock.verdict is Verdict.HELD:
        since = f" since {at(lock.since)}" if lock.since is not None else ""
        return f"next in line; the lock is held by PID {lock.pid}{since}"
    return "due, but not seen by any worker"


def at(moment: float) -> str:
    """A time for a sentence, in UTC: `2026-01-07 12:01:02Z`; "never" for infinity."""
    if moment == float("inf"):
        return "never"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))
    except (OverflowError, OSError, ValueError):  # from a file, and beyond any calendar
        return f"epoch second {moment:g}"
