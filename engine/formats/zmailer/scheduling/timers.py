"""The timers of threads: the next try, and the next job that gets too old."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from engine.formats.zmailer.scheduling import retry
from engine.formats.zmailer.scheduling.agenda import Agenda
from engine.formats.zmailer.scheduling.jobs import Job
from engine.formats.zmailer.scheduling.threads import Thread

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
            untried = retry.expires_untried_at(thread.settings, job.expires)
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
    return retry.is_expired(thread.settings, job.expires, job.attempts, now)
