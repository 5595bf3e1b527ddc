"""Why a task in any state is not running, as phrases that are safe to show; no clock, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from engine import verbs
from engine.model import STALLED_KEY, WAITS_KEY, Lease, LockEvidence, State, Task, Verdict
from engine.policy import is_due
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_deadline, format_rough_duration
from engine.values import NamedTuple

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
    kind_ahead: str = ""
    """The kind of all of them; "" if they are of several."""
    last_run: float | None = None
    """Epoch seconds when a worker last ran; None: unknown."""
    closed_reason: str = ""
    """Why no task of this kind is claimed now, even by a worker with a handler; "" if one is."""
    is_age_order: bool = True
    """True if due tasks are claimed by creation, so that the tasks ahead are older."""
    server: str = ""
    """The server that delivers by itself and whether it runs; "" if workers do."""
    is_stopped: bool = False
    """True if that server does not run."""
    is_idle: bool = False
    """True if tasks are due but none has run for so long that there is an alert."""


def why_waiting(task: Task, now: float, circumstances: Circumstances) -> tuple[str, ...]:
    """Explain why a task in any state is not running, as phrases that are safe to show.

    The first is the present reason; the others apply after it, or add facts. For a task that is
    running, or that is not going to run, the phrases describe that instead."""
    return tuple(_WHY[task.state](task, now, circumstances))


def join_reasons(reasons: Sequence[str]) -> str:
    """Join the phrases of `why_waiting` into one line."""
    return "; ".join(reasons)


_WORKED = (Verdict.HELD, Verdict.STUCK)


def _why_pending(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    hindered = [*_blocking_reasons(task, now, circumstances)]
    yield from hindered
    due, lock = is_due(task, now), circumstances.lock
    refused = any(_handler_problem(task, circumstances))
    ahead = 0 if refused else circumstances.tasks_ahead
    if ahead:
        which = "older" if circumstances.is_age_order else "other"
        kind = f"{safe_line(circumstances.kind_ahead)} " if circumstances.kind_ahead else ""
        what = format_count(ahead, f"{which} {kind}task")
        yield f"{'' if due else 'then '}{what} first"
    verdict = Verdict.FREE if lock is None else lock.verdict
    if lock is not None and verdict is Verdict.HELD and not hindered:
        yield f"{'' if ahead else 'next in line; '}lock held by {_describe_holder(lock)}"
    last = circumstances.last_run
    is_quiet = circumstances.is_idle or (last is not None and now - last > NO_WORKER_SECONDS)
    alone = is_quiet or not (hindered or ahead)
    if task.due is None and not (hindered or circumstances.is_idle):
        yield "due time unknown"
    elif alone and not circumstances.is_stopped and verdict not in _WORKED:
        yield _no_worker(task, now, circumstances, due and not hindered)


def _blocking_reasons(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    """What would block a pending task even if it were the next one and a worker were running."""
    if circumstances.pause_reason:
        yield f"the queue is paused: {safe_line(circumstances.pause_reason)}"
    if circumstances.is_stopped and not circumstances.closed_reason:
        yield circumstances.server
    yield from _backoff(task, now)
    if reason := task.extra.get(WAITS_KEY):
        yield safe_line(reason)
    yield from _handler_problem(task, circumstances)
    if circumstances.lock is not None and circumstances.lock.verdict in _BLOCKING_VERDICTS:
        yield _BLOCKING_VERDICTS[circumstances.lock.verdict](circumstances.lock)
    if circumstances.token_at > max(now, task.due or 0.0):
        yield f"no token until {format_deadline(circumstances.token_at, now)}"


def _backoff(task: Task, now: float) -> Iterator[str]:
    if not is_due(task, now):
        # The first attempt has no backoff; its error field may contain the reason for the wait.
        why = "delayed" if task.attempts == 0 and not task.error else "backoff"
        why = safe_line(task.error) if task.error.startswith(verbs.WAITING_PREFIX) else why
        yield f"{why} until {format_deadline(task.due or 0.0, now)}"


def _handler_problem(task: Task, circumstances: Circumstances) -> Iterator[str]:
    if circumstances.is_handled is not None and not circumstances.is_handled(task.kind):
        yield f"no handler configured for {safe_line(task.kind)}"
    elif circumstances.closed_reason:
        yield safe_line(circumstances.closed_reason)


def _no_worker(task: Task, now: float, circumstances: Circumstances, due: bool) -> str:
    # With due 0 the start of the wait is unknown: the task may have been retried just now.
    for_long = f" for {format_rough_duration(now - task.due)}" if due and task.due else ""
    if circumstances.server:
        return f"due{for_long}: {circumstances.server}" if due else circumstances.server
    last = circumstances.last_run
    ran = "" if last is None else f", last run {format_rough_duration(now - last)} ago"
    if not due:
        return f"no worker running{ran}"
    free = circumstances.lock is not None and circumstances.lock.verdict is Verdict.FREE
    return f"due{for_long}, no worker running{': lock is free' if free else ''}{ran}"


def _describe_holder(lock: LockEvidence) -> str:
    """The holder of a lock and the age of its heartbeat, as far as known."""
    who = f"PID {lock.pid}" if lock.pid is not None else "an unknown PID"
    ago = format_rough_duration(lock.age)
    return who if lock.since is None else f"{who}, last heartbeat {ago} ago"


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
    yield safe_line(task.extra.get(WAITS_KEY, "")) or "held by an operator until released"
    yield from _backoff(task, now)
    yield from _handler_problem(task, circumstances)


def _why_active(task: Task, now: float, circumstances: Circumstances) -> Iterator[str]:
    lock, lease = circumstances.lock, task.lease
    since = lease.since if lease is not None else 0.0
    taken = f", claimed {format_rough_duration(now - since)} ago" if since > 0 else ""
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
        at_it = f" for {format_rough_duration(now - since)}" if since > 0 else ""
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
    try:
        since: float | None = float(task.extra.get("dead_since", ""))
    except ValueError:
        since = None
    ago = "" if since is None else f" {format_rough_duration(now - since)} ago"
    reason = safe_line(task.extra.get("dead_reason", ""))
    yield f"given up{ago}{f' ({reason})' if reason else ''}"
    yield "stays here until retried (attempts reset)"
    yield from _handler_problem(task, circumstances)


_WHY: Mapping[State, Callable[[Task, float, Circumstances], Iterable[str]]] = {
    State.PENDING: _why_pending,
    State.HELD: _why_held,
    State.ACTIVE: _why_active,
    State.DEAD: _why_dead,
    State.DONE: lambda *_: ("done; its store deletes it later",),
    State.TRASH: lambda *_: ("purged by an operator: not taken until restored",),
}
