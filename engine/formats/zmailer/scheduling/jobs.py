"""What is scheduled: messages with their jobs, threads and rings of them, the settings of a clause.

A job is one message in one thread: the recipients of one channel and host. A lane is a line of
threads that are ready. The objects share what they can: 100,000 of them wait in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from random import Random

from engine.values import NamedTuple

DAY_SECONDS = 86400.0


class ClauseSettings(NamedTuple):
    """The settings of a clause; the defaults are the typical values of scheduler(8zm)."""

    pattern: str = "*/*"
    """Of the clause that gives the command, as CHANNEL/HOST."""
    command: str = ""
    interval: float = 60.0
    """Seconds: the unit of the waits."""
    retries: tuple[int, ...] = (1, 1, 2, 3, 5, 8, 13, 21, 34)
    """Waits in intervals."""
    expiry: float | None = 3 * DAY_SECONDS
    """Age in seconds at which a recipient that was tried fails; None: never."""
    expiry2: float = 0.0
    """Seconds after `expiry` at which one that was never tried fails; 0: a day, as in ZMailer
    3.0.1."""
    idlemax: float = 0.0
    """Seconds after which an idle agent is ended; 0: three intervals."""
    maxta: int = 0
    """Agents in all; 0: as many as there can be. Also for `maxchannel` and `maxring`."""
    maxchannel: int = 0
    maxring: int = 0
    maxthr: int = 1
    overfeed: int = 150
    skew: int = 0
    """Wake-ups are rounded to interval / skew seconds; 0: exact."""
    queueonly: bool = False
    wakeuprestartonly: bool = False
    ageorder: bool = False
    user: str = "root"
    group: str = "daemon"
    nice: int = 0
    """Added to the niceness of the scheduler."""
    priority: int | None = None
    """The niceness itself."""
    reporttimes: tuple[int, ...] = ()
    expiryform: str = ""
    deliveryform: str = ""

    @property
    def is_per_host(self) -> bool:
        """True if the command has the word $host: then each host has its own ring."""
        return "$host" in self.command.split()

    @property
    def idle_seconds(self) -> float:
        """How long an agent may be idle."""
        return self.idlemax or 3 * self.interval


class ThreadKey(NamedTuple):
    """A thread: all mail of one clause for one host by one channel."""

    clause: str
    """The pattern of the clause."""
    channel: str
    host: str


class RingKey(NamedTuple):
    """A ring: the threads that can be worked on by the same agents."""

    clause: str
    channel: str
    host: str = ""
    """Empty unless the command has the host in it."""


def ring_key(settings: ClauseSettings, channel: str, host: str) -> RingKey:
    """The key of the ring of a channel and host."""
    return RingKey(settings.pattern, channel, host if settings.is_per_host else "")


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """A message: one control file."""

    number: int
    """That begins the file name; agents name the message by it."""
    modified_ns: int
    """The time of the message file; ages count from it. In nanoseconds since the epoch."""
    folder: str = ""
    """The hash folder with its final slash, "" for none."""
    suffix: str = ""
    """What follows the number."""
    created: float = 0.0
    """When the control file was made, epoch seconds UTC."""
    sender: str = ""
    """Where errors are reported; empty for a report."""
    verbose_log: str = ""
    """Path of a log for its outcomes, relative to transport/; empty: none."""
    resyncs: int = 0
    """How often an agent found nothing to do in it."""
    jobs: tuple[Job, ...] = ()
    """Also those that have ended."""
    open_jobs: int = 0
    """Number of jobs with recipients that are not finished."""

    @property
    def name(self) -> str:
        """The name of the control file, without its folder."""
        return f"{self.number}{self.suffix}"

    @property
    def path(self) -> str:
        """The control file below transport/, such as I/F/3276785."""
        return f"{self.folder}{self.number}{self.suffix}"

    @property
    def modified(self) -> float:
        """The time of the message file, epoch seconds UTC."""
        return self.modified_ns / 1e9


_NONE_DONE: AbstractSet[int] = frozenset()


@dataclass(slots=True, eq=False)
class Job:
    """The recipients of one message in one thread."""

    message: QueuedMessage
    thread: int
    """Number of its thread."""
    offsets: tuple[int, ...]
    """Byte offsets of its recipient lines, ascending; finished ones too, see `todo`."""
    attempts: int = 0
    """Diagnostics so far."""
    expires: float = float("inf")
    """When it expires if it was tried, epoch seconds UTC."""
    text: bytes = b""
    """The last diagnostic; may have CR between its lines."""
    agent: int = 0
    """The agent that has it now; 0: none."""
    _done: AbstractSet[int] = _NONE_DONE

    def __lt__(self, other: Job) -> bool:
        """Order by expiry, for heaps."""
        return self.expires < other.expires

    @property
    def count(self) -> int:
        """Recipients still to do; 0 for a job that has ended."""
        return len(self.offsets) - len(self._done)

    @property
    def todo(self) -> tuple[int, ...]:
        """Offsets of the recipients still to do."""
        if not self._done:
            return self.offsets
        return tuple(one for one in self.offsets if one not in self._done)

    def is_todo(self, offset: int) -> bool:
        """True if this recipient is one of the job, and not finished."""
        at = bisect_left(self.offsets, offset)
        is_own = at < len(self.offsets) and self.offsets[at] == offset
        return is_own and offset not in self._done

    def finish(self, offset: int) -> None:
        """Note that a recipient is finished."""
        if self.count == 1:
            self.finish_all()
        else:
            if not isinstance(self._done, set):
                self._done = set()
            self._done.add(offset)

    def finish_all(self) -> None:
        """Note that all recipients are finished."""
        self.offsets, self._done = (), _NONE_DONE


FROZEN = "Frozen"
"""Why a held thread does not start, as MAILQ shows it; also all while the engine is frozen."""


class Limit(NamedTuple):
    """A limit of a clause that is reached."""

    reason: str
    """As MAILQ shows it."""
    scope: str | RingKey
    """Which agents count: all (""), those of a channel (/CHANNEL), or of a ring."""
    most: int


@dataclass(slots=True, eq=False)
class Lane:
    """The ready threads of one ring with the same settings, the first one first."""

    ring: RingKey
    settings: ClauseSettings
    threads: deque[Thread] = field(default_factory=deque)
    limit: Limit | None = None
    """What holds it up."""
    place: object = None
    """The list that it is in; entries in others are old."""


@dataclass(slots=True, eq=False)
class Thread:
    """The jobs of one channel and host, and when they are tried."""

    number: int
    settings: ClauseSettings
    key: ThreadKey
    ring: RingKey
    heap: list[Job] = field(default_factory=list)
    """Jobs by their expiry (heapq); those that have ended are skipped."""
    late: list[Job] | None = None
    """Jobs past their expiry that were never tried, or are being delivered."""
    count: int = 0
    """Jobs that have not ended."""
    unfed: deque[Job] | None = None
    """Jobs that this round still feeds, in their order; None: no round, none chosen."""
    agents: int = 0
    attempts: int = 0
    index: int = 0
    """Place in the retries for the next wait."""
    wake: float = 0.0
    """When it is tried next, epoch seconds UTC; past: now."""
    retry_at: float = 0.0
    """When an agent wants the next try (retryat); 0: it named no time."""
    fed_at: float = 0.0
    """When an agent last got a job; 0: never."""
    pending: str = ""
    """Why it did not start when it was last tried."""
    is_round: bool = False
    """True if all jobs are tried: its wait begins after that. False if only new ones are."""
    lane: Lane | None = None
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
