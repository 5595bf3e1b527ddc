"""Threads: all mail of one clause for one host by one channel; lanes of threads that are ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import NamedTuple

from engine.formats.zmailer.scheduling.jobs import (
    ClauseSettings,
    Job,
    RingKey,
    ThreadKey,
    ring_key,
    thread_key,
)

FROZEN = "Frozen"
"""Why a held thread does not start, as MAILQ shows it; also all while the engine is frozen."""


class Limit(NamedTuple):
    """A limit of a clause that is reached."""

    reason: str
    """As MAILQ shows it."""
    scope: str | RingKey
    """Which agents count: all (""), those of a channel (/CHANNEL), or of a ring."""
    most: int


class Lane:
    """The ready threads of one ring with the same settings, the first one first."""

    __slots__ = ("limit", "place", "ring", "settings", "threads")

    def __init__(self, ring: RingKey, settings: ClauseSettings) -> None:
        self.ring, self.settings = ring, settings
        self.threads: deque[Thread] = deque()
        self.limit: Limit | None = None
        """What holds it up."""
        self.place: object = None
        """The list that it is in; entries in others are old."""


class Thread:
    """The jobs of one channel and host, and when they are tried."""

    __slots__ = (
        "agents",
        "attempts",
        "count",
        "fed_at",
        "heap",
        "index",
        "is_round",
        "key",
        "lane",
        "late",
        "number",
        "pending",
        "retry_at",
        "ring",
        "settings",
        "unfed",
        "wake",
    )

    def __init__(self, number: int, settings: ClauseSettings, channel: str, host: str) -> None:
        self.number = number
        self.settings = settings
        self.key: ThreadKey = thread_key(settings, channel, host)
        self.ring: RingKey = ring_key(settings, channel, host)
        self.heap: list[Job] = []
        """Jobs by their expiry (heapq); those that have ended are skipped."""
        self.late: list[Job] | None = None
        """Jobs past their expiry that were never tried, or are being delivered."""
        self.count = 0
        """Jobs that have not ended."""
        self.unfed: deque[Job] | None = None
        """Jobs that this round still feeds, in their order; None: no round, none chosen."""
        self.agents = 0
        self.attempts = 0
        self.index = 0
        """Place in the retries for the next wait."""
        self.wake = 0.0
        """When it is tried next, epoch seconds UTC; past: now."""
        self.retry_at = 0.0
        """When an agent wants the next try (retryat); 0: it named no time."""
        self.fed_at = 0.0
        """When an agent last got a job; 0: never."""
        self.pending = ""
        """Why it did not start when it was last tried."""
        self.is_round = False
        """True if all jobs are tried: its wait begins after that. False if only new ones are."""
        self.lane: Lane | None = None
        """Where it is in line for an agent; None: it is not ready."""

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs that have not ended, in no order."""
        return (job for job in chain(self.heap, self.late or ()) if job.count)

    def is_waiting(self, now: float) -> bool:
        """True if it was tried, and waits for the next time."""
        return not self.agents and self.lane is None and self.wake > now

    def fill(self, random: Random) -> None:
        """Begin a round: all jobs, by age or shuffled."""
        jobs = [job for job in self.jobs() if not job.agent]
        if self.settings.ageorder:
            jobs.sort(key=lambda job: job.message.modified_ns)
        else:
            random.shuffle(jobs)
        self.unfed, self.is_round = deque(jobs), True
