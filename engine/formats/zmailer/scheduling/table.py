"""The table of all threads: arrivals, starts, rounds, ends, and what operators do to them.

Times are passed in as epoch seconds UTC, random numbers come from the generator that is passed in.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random

from engine.formats.zmailer.scheduling import timers
from engine.formats.zmailer.scheduling.jobs import (
    ClauseSettings,
    Job,
    QueuedMessage,
    Thread,
    ThreadKey,
    ring_key,
)
from engine.formats.zmailer.scheduling.ready import AgentSlots, ReadyThreads
from engine.formats.zmailer.scheduling.timers import Timers, pop_expired
from engine.values import NamedTuple

NO_COMMAND = "ConfBUG:NoCmdDefined!"
NOT_SELECTED = "procsel-mismatch"
QUEUE_ONLY = "QueueOnly"
"""Why a thread does not start, as MAILQ shows it; the last one is ours."""

_MIN_STALE_JOBS = 64


class JobGroup(NamedTuple):
    """Recipients of a message for one channel and host."""

    settings: ClauseSettings
    channel: str
    host: str
    offsets: tuple[int, ...]
    """Ascending."""


class ThreadTable:
    """All threads and messages, and when each thread is tried."""

    def __init__(
        self,
        slots: AgentSlots,
        random: Random,
        selects: Callable[[ThreadKey], bool] = lambda key: True,
    ) -> None:
        """`selects`: which threads may run at all (option -p)."""
        self.threads: dict[int, Thread] = {}
        """By number."""
        self.messages: dict[int, QueuedMessage] = {}
        """By number."""
        self.ready = ReadyThreads(slots)
        self.timers = Timers()
        self._random, self._selects = random, selects
        self.numbers: dict[ThreadKey, int] = {}
        """The numbers of threads."""
        self._last_number = 0

    # ---- arrivals

    def add(self, message: QueuedMessage, groups: Iterable[JobGroup], now: float) -> None:
        """Add a message, and start its threads as far as their rules allow it."""
        self.messages[message.number] = message
        message.jobs += tuple([self._add_job(message, group, now) for group in groups])

    def _add_job(self, message: QueuedMessage, group: JobGroup, now: float) -> Job:
        settings, channel, host, offsets = group
        key = ThreadKey(settings.pattern, channel, host)
        number = self.numbers.get(key)
        if number is None:
            self._last_number += 1
            number = self.numbers[key] = self._last_number
            ring = ring_key(settings, channel, host)
            thread = self.threads[number] = Thread(number, settings, key, ring)
            if settings.queueonly:
                # So many seconds, not intervals, as in ZMailer 3.0.1; later waits change nothing.
                thread.wake = now + max(1, settings.retries[0])
                self.timers.set_wake(thread, thread.wake)
        thread = self.threads[number]
        job = Job(message, number, offsets)
        job.expires = timers.expires_at(thread.settings, message.modified)
        heapq.heappush(thread.heap, job)
        thread.count += 1
        message.open_jobs += 1
        if thread.heap[0] is job:
            self.timers.set_expiry(thread, now)
        self._arrive(thread, job, now)
        return job

    def _arrive(self, thread: Thread, job: Job, now: float) -> None:
        if thread.agents:
            if thread.unfed is not None:
                thread.unfed.append(job)
            if not thread.settings.wakeuprestartonly:
                self.start(thread)
        elif thread.is_waiting(now):
            if not thread.settings.wakeuprestartonly and self.start(thread):
                thread.unfed = deque([job])  # the others wait for their time
        elif thread.lane is None:
            self.start(thread)
        elif thread.unfed is not None:
            thread.unfed.append(job)

    # ---- starting

    def refusal(self, thread: Thread, *, is_etrn: bool = False) -> str:
        """Why a thread must not get another agent by its own rules; "" if it may."""
        settings = thread.settings
        rules = (
            (not settings.command, NO_COMMAND),
            (not self._selects(thread.key), NOT_SELECTED),
            (settings.queueonly and not is_etrn and not thread.agents, QUEUE_ONLY),
            (thread.agents >= max(1, settings.maxthr), ">MaxThr"),
        )
        return next((reason for is_true, reason in rules if is_true), "")

    def start(self, thread: Thread, *, is_etrn: bool = False) -> bool:
        """Put a thread in line for an agent if its rules allow it and it has a use for one."""
        if not thread.count or (thread.agents and thread.agents >= len(thread.unfed or ())):
            return False
        thread.pending = self.refusal(thread, is_etrn=is_etrn)
        if not thread.pending:
            self.ready.push(thread)
        return not thread.pending

    def step(self, now: float) -> Iterator[Job]:
        """Wake the threads whose time has come; yield the jobs that are too old. The caller reports
        them to their senders and calls `end`; a job that was not ended comes again later."""
        for number, is_expiry in self.timers.pop_due(now):
            thread = self.threads[number]
            if not is_expiry:
                self._wake(thread, now)
                continue
            if self.ready.is_frozen:
                self.timers.look_later(thread, now)  # the operator has stopped it
                continue
            yield from pop_expired(thread, now)
            if number in self.threads:
                self.timers.set_expiry(thread, now)

    def _wake(self, thread: Thread, now: float) -> None:
        if thread.agents:
            return  # the end of the round decides
        thread.unfed = None
        if not self.start(thread) and thread.pending:
            self._wait_again(thread, now)

    def _wait_again(self, thread: Thread, now: float) -> None:
        thread.wake, thread.index = timers.next_wake(
            thread.settings, thread.index, now, self._random.random
        )
        self.timers.set_wake(thread, thread.wake)

    def end_round(self, thread: Thread, now: float) -> None:
        """The last agent has left a thread: it waits if it has jobs, else it is gone."""
        thread.unfed = None
        if not thread.count:
            self._remove(thread)
        elif thread.retry_at:
            thread.wake = max(thread.retry_at, now + timers.MIN_WAIT_SECONDS)
            self.timers.set_wake(thread, thread.wake)
        elif thread.is_round or thread.wake <= now:
            self._wait_again(thread, now)
        thread.retry_at, thread.is_round = 0.0, False

    # ---- ends

    def finish(self, job: Job, offset: int) -> None:
        """A recipient is finished."""
        if job.is_todo(offset):
            job.finish(offset)
            if not job.count:
                self._ended(job)

    def end(self, job: Job) -> None:
        """All recipients of a job are finished, expired or killed."""
        if job.count:
            job.finish_all()
            self._ended(job)

    def _ended(self, job: Job) -> None:
        thread = self.threads[job.thread]
        thread.count -= 1
        job.message.open_jobs -= 1
        if len(thread.heap) > 2 * thread.count + _MIN_STALE_JOBS:
            thread.heap = [one for one in thread.heap if one.count]
            heapq.heapify(thread.heap)
        if not thread.count and not thread.agents:
            self._remove(thread)

    def _remove(self, thread: Thread) -> None:
        thread.lane = None  # its entry in the lane is skipped
        self.timers.cancel(thread)
        if self.threads.pop(thread.number, None):
            del self.numbers[thread.key]

    def forget(self, message: QueuedMessage) -> None:
        """Remove a message; its jobs are ended."""
        for job in message.jobs:
            self.end(job)
        self.messages.pop(message.number, None)

    # ---- controls

    def kick(self, thread: Thread) -> bool:
        """Try all jobs of a thread now, also if it waits or is started only by ETRN. False if its
        other rules refuse that."""
        thread.wake = 0.0
        if not thread.agents:
            thread.unfed = None
        return thread.lane is not None or self.start(thread, is_etrn=True)

    def etrn(self, host: str) -> int:
        """Kick the threads of a host; return how many could start."""
        return sum(self.kick(one) for one in list(self.threads.values()) if one.key.host == host)

    def reconfigure(self, find: Callable[[str, str], ClauseSettings | None], now: float) -> None:
        """Give all threads the settings of a new configuration; those without any keep theirs."""
        for thread in list(self.threads.values()):
            _, channel, host = thread.key
            settings = find(channel, host) or thread.settings
            if settings == thread.settings:
                continue
            was_ready = thread.lane is not None
            thread.lane = None
            del self.numbers[thread.key]
            thread.settings, thread.key = settings, ThreadKey(settings.pattern, channel, host)
            thread.ring = ring_key(settings, channel, host)
            self.numbers[thread.key] = thread.number
            for job in thread.jobs():
                job.expires = timers.expires_at(settings, job.message.modified)
            heapq.heapify(thread.heap)
            self.timers.set_expiry(thread, now)
            if was_ready or thread.pending:
                self.start(thread)
