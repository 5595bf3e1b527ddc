"""Decisions from values and `now`: when to try again, when to give up, what keeps a task waiting.

Nothing here reads a clock, a file or a setting. Times are epoch seconds UTC, durations seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from engine import verbs
from engine.model import Lease, LockEvidence, State, Task, Verdict
from engine.text.safe import shown

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
    """How often a task is run at most, for people; 0 where its age decides."""
    lifetime: float = float("inf")
    """Seconds since it was created after which a task that fails is not tried again."""

    def wait(self, task: Task, now: float) -> float | None:
        """Seconds until a task is tried again that fails now; None to give it up."""
        # When a task was created need not be known: then it is 0, and no age gives it up.
        if task.created and now - task.created >= self.lifetime:
            return None
        return self.backoff(task.attempts or 0)


def exponential(base: float, ceiling: float, limit: int) -> Backoff:
    """60, 120, 240, ... seconds, never more than `ceiling`, for `limit` retries."""
    return lambda retries: None if retries >= limit else _doubled(base, retries, ceiling)


def _doubled(base: float, times: int, ceiling: float) -> float:
    # 2**64 is beyond any ceiling, and 2**5000 beyond what a float holds.
    return min(ceiling, base * 2.0 ** min(times, 64))


def stepped(waits: Sequence[float], limit: int) -> Backoff:
    """These waits one after the other, the last again and again, for `limit` retries."""

    def backoff(retries: int) -> float | None:
        return waits[min(max(retries, 0), len(waits) - 1)] if retries < limit else None

    return backoff


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


QUIET = 900.0
"""Seconds since the last run after which nobody seems to work a queue: three rounds of the real
program's timer, which fires every 5 minutes and up to 2 minutes late."""


class Circumstances(NamedTuple):
    """What can keep a task from being run, besides itself."""

    lock: LockEvidence | None = None
    """The queue's lock; None where the store has none, or it was not looked at."""
    handled: Callable[[str], bool] | None = None
    """Whether a task of this kind would be claimed; None: the configuration is not known."""
    token_at: float = 0.0
    """When the bucket that this kind draws on holds a token."""
    paused: str = ""
    """Why the queue as a whole stands still; "" when it does not."""
    ahead: int = 0
    """How many due tasks come before it, in the order in which its store takes them."""
    last_run: float | None = None
    """When a worker last ran here; None: not known."""
    shut: str = ""
    """Why no task of this kind would be claimed now, whoever handles it; "" when one would."""
    by_id: bool = True
    """Whether due tasks are taken in the order of ids, so that those before it are older."""
    idle: bool = False
    """Whether nothing has run for so long, though tasks were due, that there is an alarm."""


def why_waiting(task: Task, now: float, about: Circumstances) -> tuple[str, ...]:
    """What keeps a task from being run, as sentences that are safe to show, for any state.

    The first is what keeps it now, and the others what will keep it after that, or what is to be
    known besides. For a task that is being worked on, or is not to be, they say just that.
    """
    return tuple(_WHY[task.state](task, now, about))


def in_a_line(reasons: Sequence[str]) -> str:
    """The sentences of `why_waiting` as one."""
    return "; ".join(reasons)


def _why_pending(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    hindered = [*_hindrances(task, now, about)]
    yield from hindered
    due, lock = is_due(task, now), about.lock
    refused = any(_unhandled(task, about))
    ahead = about.ahead if due and not refused else 0
    if ahead:
        which = "older" if about.by_id else "other"
        yield f"{ahead:,} {which} task{'s' if ahead > 1 else ''} first"
    verdict = Verdict.FREE if lock is None else lock.verdict
    if lock is not None and verdict is Verdict.HELD and not hindered:
        yield f"{'' if ahead else 'next in line; '}the lock is held by {_holder(lock)}"
    alone = _is_quiet(about, now) or not (hindered or ahead)
    if alone and verdict not in (Verdict.HELD, Verdict.STUCK):
        yield _nobody(task, now, about, due and not hindered)


def _hindrances(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    """What keeps a pending task from being run even were it the next, and a worker there."""
    if about.paused:
        yield f"the queue is paused: {shown(about.paused)}"
    if not is_due(task, now):
        # What no attempt has failed at does not back off: it says itself what it waits for.
        why = shown(task.error) if task.error.startswith(verbs.WAITS) else "backoff"
        yield f"{why} until {until(task.due or 0.0, now)}"
    yield from _unhandled(task, about)
    if about.lock is not None and about.lock.verdict in _BROKEN:
        yield _BROKEN[about.lock.verdict](about.lock)
    if about.token_at > max(now, task.due or 0.0):
        yield f"no token until {until(about.token_at, now)}"


def _unhandled(task: Task, about: Circumstances) -> Iterator[str]:
    if about.handled is not None and not about.handled(task.kind):
        yield f"no handler configured for {shown(task.kind)}"
    elif about.shut:
        yield shown(about.shut)


def _is_quiet(about: Circumstances, now: float) -> bool:
    return about.idle or (about.last_run is not None and now - about.last_run > QUIET)


def _nobody(task: Task, now: float, about: Circumstances, due: bool) -> str:
    """That no worker is there, and since when."""
    ran = "" if about.last_run is None else f", last run {lasting(now - about.last_run)} ago"
    if not due:
        return f"no worker is at work{ran}"
    # When one is due at once, it is not on record since when: it may have been retried just now.
    for_long = f" for {lasting(now - task.due)}" if task.due else ""
    free = about.lock is not None and about.lock.verdict is Verdict.FREE
    return f"due{for_long}, but not seen by any worker{': the lock is free' if free else ''}{ran}"


def _holder(lock: LockEvidence) -> str:
    """Who has a lock, as far as is known, and when that was last certain."""
    who = f"PID {lock.pid}" if lock.pid is not None else "somebody, PID unknown"
    return who if lock.since is None else f"{who}, who gave a sign of life {lasting(lock.age)} ago"


def _stuck(lock: LockEvidence) -> str:
    who = f"PID {lock.pid}" if lock.pid is not None else "its holder"
    return f"the lock is stuck: {who} gave no sign of life for {lasting(lock.age)}"


_BROKEN: Mapping[Verdict, Callable[[LockEvidence], str]] = {
    Verdict.STUCK: _stuck,
    Verdict.STALE: lambda lock: (
        f"the lock is stale: {shown(lock.reason)}; the next worker takes it over"
    ),
    Verdict.UNKNOWN: lambda lock: f"the lock cannot be judged: {shown(lock.reason)}",
}
"""What is to be said of a lock that is not as it should be."""


def _why_held(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    yield "held by an operator until released"
    if not is_due(task, now):
        # What no attempt has failed at does not back off: it says itself what it waits for.
        why = shown(task.error) if task.error.startswith(verbs.WAITS) else "backoff"
        yield f"{why} until {until(task.due or 0.0, now)}"
    yield from _unhandled(task, about)


def _why_active(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    lock, lease = about.lock, task.lease
    taken = "" if lease is None else f", taken {lasting(now - lease.since)} ago"
    if lock is not None and lock.verdict in (Verdict.FREE, Verdict.STALE):
        why = "nobody has the lock" if lock.verdict is Verdict.FREE else shown(lock.reason)
        yield f"nobody works on it any more: {why}{taken}"
        yield "the next worker counts a failed attempt and gives it back"
    elif lock is not None and lock.verdict is Verdict.STUCK:
        yield _stuck(lock) + taken
    elif lock is not None and lock.verdict is Verdict.UNKNOWN:
        yield f"whether anybody works on it is not known: {shown(lock.reason)}{taken}"
    elif lease is not None and lease.until is not None and (lock is None or lease.until <= now):
        yield from _leased(lease, lease.until, now)
    else:
        owner = shown(lease.owner) if lease is not None else ""
        who = f"PID {lock.pid}" if lock is not None and lock.pid is not None else owner
        at_it = f" for {lasting(now - lease.since)}" if lease is not None else ""
        yield f"being worked on{' by ' if who else ''}{who}{at_it}"


def _leased(lease: Lease, ends: float, now: float) -> Iterator[str]:
    """What is known of a claim that ends by itself: not whether anybody is at it."""
    # A claim without a time has ended at 0, which says nothing of when.
    ago = f" {lasting(now - lease.since)} ago" if lease.since > 0 else ""
    claimed = f"claimed{ago}{f' by {shown(lease.owner)}' if lease.owner else ''}"
    if ends > now:
        yield f"{claimed}{'' if lease.owner else ', by whom is not known'}"
        yield f"its lease lapses at {until(ends, now)}"
        return
    lapsed = f" {lasting(now - ends)} ago" if ends > 0 else ""
    yield (
        f"its lease has lapsed{lapsed}: the next worker gives it back, and it counts as an attempt"
    )
    if lease.since > 0 or lease.owner:
        yield claimed


def _why_dead(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    tries = "" if task.attempts is None else f" after {task.attempts:,} attempts"
    tries = tries.removesuffix("s") if task.attempts == 1 else tries
    since = _seconds(task.extra.get("dead_since", ""))
    ago = "" if since is None else f", {lasting(now - since)} ago"
    reason = shown(task.extra.get("dead_reason", ""))
    yield f"given up on{tries}{ago}{f' ({reason})' if reason else ''}"
    yield "it runs again only if retried, then as if new"
    yield from _unhandled(task, about)


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _why_done(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    yield "done; its store clears it away"


def _why_trash(task: Task, now: float, about: Circumstances) -> Iterator[str]:
    yield "purged by an operator: no worker sees it, and it can still be had back"


_WHY: Mapping[State, Callable[[Task, float, Circumstances], Iterator[str]]] = {
    State.PENDING: _why_pending,
    State.HELD: _why_held,
    State.ACTIVE: _why_active,
    State.DEAD: _why_dead,
    State.DONE: _why_done,
    State.TRASH: _why_trash,
}


def until(moment: float, now: float) -> str:
    """A time to come, with its date unless that is today's: `12:01:02Z (in 4 min)`."""
    said = at(moment)
    if moment == float("inf") or not said.endswith("Z"):
        return said
    today, time_of_day = at(now)[:11], said[11:]
    return f"{time_of_day if said.startswith(today) else said} (in {lasting(moment - now)})"


def at(moment: float) -> str:
    """A time for a sentence, in UTC: `2026-01-07 12:01:02Z`; "never" for infinity."""
    if moment == float("inf"):
        return "never"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))
    except (OverflowError, OSError, ValueError):  # from a file, and beyond any calendar
        return f"epoch second {moment:g}"


def spell(seconds: float) -> str:
    """A duration in at most six cells: `3s`, `1m42s`, `1h17m`, `6d02h`, `412d`."""
    whole = int(max(0.0, min(seconds, 86400.0 * 99_999)) + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    days, hours = whole // 86400, whole % 86400 // 3600
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def roughly(seconds: float) -> str:
    """`spell` without seconds from a minute on, so that a line with it seldom changes."""
    whole = seconds // 1
    return spell(whole) if whole < 60 else spell(whole // 60 * 60).removesuffix("00s")


def spending_seconds(tasks: int, tokens: int, per_hour: int) -> float:
    """Seconds until a token bucket has let so many tasks through; infinite at a rate of 0."""
    lacking = max(0, tasks - tokens)
    if not lacking:
        return 0.0
    return lacking * HOUR / per_hour if per_hour else math.inf


def emptied(seconds: float) -> str:
    """When a queue will be empty that its token bucket slows: `empty in 1h17m at best`."""
    return f"empty in {roughly(seconds)} at best"


def lasting(seconds: float) -> str:
    """A duration for a sentence: `12 s`, `47 min`, `2 h 13 min`, `6 d 2 h`; what is less is cut."""
    if not 0 <= seconds < 1e9 * DAY:  # a clock that was set back; NaN neither
        return "0 s" if seconds < 0 else "ages"
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, left, units = (minutes // 60, minutes % 60, ("h", "min"))
    if hours >= 24:
        hours, left, units = (hours // 24, hours % 24, ("d", "h"))
    return f"{hours:,} {units[0]}" + (f" {left} {units[1]}" if left else "")
