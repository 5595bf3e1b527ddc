"""The timers of threads: when each is tried again, and when its next job is too old.

A thread waits `retries[i] * interval` seconds after its last attempt; past the end of the list it
goes on at a random place (scheduler(8zm), `retries`). What is due when is an agenda: a heap (heapq)
of (time, key) with replace and cancel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from engine.formats.zmailer.scheduling.jobs import DAY_SECONDS, ClauseSettings, Job, Thread
from engine.schedules import stepped

MIN_WAIT_SECONDS = 1.0
"""The shortest wait: that of `retries=0`, and of a `retryat` with a time that is past."""


def next_wake(
    settings: ClauseSettings, index: int, now: float, random: Callable[[], float]
) -> tuple[float, int]:
    """The next try of a thread whose attempt ends now, epoch seconds UTC, and its place in the
    retries for the wait after that; `random` draws a number below 1. With a skew it is rounded up
    to a multiple of interval / skew seconds, so that threads wake together."""
    retries = settings.retries or (1,)
    if index >= len(retries):
        index = int(random() * len(retries))
    due = now + settings.interval * stepped(retries).seconds(index)
    if settings.skew and (unit := settings.interval / settings.skew) > 0:
        due = -(-due // unit) * unit
    return max(due, now + MIN_WAIT_SECONDS), index + 1


def expires_at(settings: ClauseSettings, modified: float) -> float:
    """When a job that was tried is too old, by the time of its message; infinite: never."""
    return float("inf") if settings.expiry is None else modified + settings.expiry


def expires_untried_at(settings: ClauseSettings, expires: float) -> float:
    """When a job is too old although no agent has tried it."""
    return expires + (settings.expiry2 or DAY_SECONDS)


def is_expired(settings: ClauseSettings, expires: float, attempts: int, now: float) -> bool:
    """True if a job is too old now."""
    limit = expires if attempts else expires_untried_at(settings, expires)
    return now >= limit


K = TypeVar("K", bound=tuple[object, ...] | int | str)

_MIN_STALE = 64
"""Below so many stale entries the heap is not built again."""


class Agenda(Generic[K]):
    """One time for each key, in seconds. A key is set, replaced or cancelled in O(log n).

    A replaced entry stays in the heap until it comes to the top, or until half the heap is stale.
    Keys of the same time come in their own order."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due: float) -> None:
        """Let a key be due at a time, instead of its earlier one."""
        if self._due.get(key) == due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + _MIN_STALE:
            self._heap = [(at, key) for key, at in self._due.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """The earliest time; None if there is none."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys whose time has come, the earliest first."""
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now:
            at, key = heapq.heappop(heap)
            if due.get(key) == at:
                del due[key]
                yield key
                heap = self._heap  # the caller may have made it be built again


RECHECK_SECONDS = 60.0
"""After so long an expired job is given out again that could not be finished, or is held."""


class Timers:
    """An agenda with two keys for each thread: 2 * its number for the next try, 1 more for the
    next expiry."""

    def __init__(self) -> None:
        self.agenda: Agenda[int] = Agenda()

    def set_wake(self, thread: Thread, due: float) -> None:
        """Try a thread at a time, epoch seconds UTC."""
        self.agenda.set(2 * thread.number, due)

    def set_expiry(self, thread: Thread, now: float) -> None:
        """Set the timer to the next job of a thread that gets too old."""
        due = thread.heap[0].expires if thread.heap else float("inf")
        for job in thread.late or ():
            untried = expires_untried_at(thread.settings, job.expires)
            is_due = _is_expired(thread, job, now)
            due = min(due, now + RECHECK_SECONDS if is_due else max(untried, now + 1))
        if due < float("inf"):
            self.agenda.set(2 * thread.number + 1, due)

    def look_later(self, thread: Thread, now: float) -> None:
        """Look for expired jobs again after a minute."""
        self.agenda.set(2 * thread.number + 1, now + RECHECK_SECONDS)

    def check_tried(self, thread: Thread, job: Job, now: float) -> None:
        """An agent is done with a job: if that is too old, its timer is due now."""
        if job.count and _is_expired(thread, job, now):
            self.agenda.set(2 * thread.number + 1, now)

    def cancel(self, thread: Thread) -> None:
        """Remove both timers."""
        self.agenda.cancel(2 * thread.number)
        self.agenda.cancel(2 * thread.number + 1)

    def pop_due(self, now: float) -> Iterator[tuple[int, bool]]:
        """Yield the numbers of threads whose time has come; True: for an expiry."""
        return ((key >> 1, bool(key & 1)) for key in self.agenda.pop_due(now))


def pop_expired(thread: Thread, now: float) -> Iterator[Job]:
    """Yield the jobs of a thread that are too old, and that no agent has. The caller ends them:
    those that it does not end come again."""
    late = thread.late or []
    while thread.heap and thread.heap[0].expires <= now:
        late.append(heapq.heappop(thread.heap))
    thread.late = late or None
    for job in late:
        if job.count and not job.agent and _is_expired(thread, job, now):
            yield job
    thread.late = [job for job in late if job.count] or None


def _is_expired(thread: Thread, job: Job, now: float) -> bool:
    return is_expired(thread.settings, job.expires, job.attempts, now)
