"""What is scheduled: a message with its jobs, the settings of a clause, keys of threads and rings.

A job is one message in one thread: the recipients of one channel and host. The objects have slots
and share what they can, because 100,000 of them wait in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set as AbstractSet
from typing import NamedTuple

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


def thread_key(settings: ClauseSettings, channel: str, host: str) -> ThreadKey:
    """The key of the thread of a channel and host."""
    return ThreadKey(settings.pattern, channel, host)


def ring_key(settings: ClauseSettings, channel: str, host: str) -> RingKey:
    """The key of the ring of a channel and host."""
    return RingKey(settings.pattern, channel, host if settings.is_per_host else "")


class QueuedMessage:
    """A message: one control file."""

    __slots__ = (
        "created",
        "folder",
        "jobs",
        "modified_ns",
        "number",
        "open_jobs",
        "resyncs",
        "sender",
        "suffix",
        "verbose_log",
    )

    def __init__(
        self,
        number: int,
        modified_ns: int,
        *,
        folder: str = "",
        suffix: str = "",
        created: float = 0.0,
        sender: str = "",
        verbose_log: str = "",
    ) -> None:
        self.number = number
        """That begins the file name; agents name the message by it."""
        self.folder, self.suffix = folder, suffix
        """The hash folder with its final slash, "" for none; what follows the number."""
        self.modified_ns = modified_ns
        """The time of the message file; ages count from it. In nanoseconds since the epoch."""
        self.created = created
        """When the control file was made, epoch seconds UTC."""
        self.sender = sender
        """Where errors are reported; empty for a report."""
        self.verbose_log = verbose_log
        """Path of a log for its outcomes, relative to transport/; empty: none."""
        self.resyncs = 0
        """How often an agent found nothing to do in it."""
        self.jobs: tuple[Job, ...] = ()
        """Also those that have ended."""
        self.open_jobs = 0
        """Number of jobs with recipients that are not finished."""

    @property
    def path(self) -> str:
        """The control file below transport/, such as I/F/3276785."""
        return f"{self.folder}{self.number}{self.suffix}"

    @property
    def modified(self) -> float:
        """The time of the message file, epoch seconds UTC."""
        return self.modified_ns / 1e9


_NONE_DONE: AbstractSet[int] = frozenset()


class Job:
    """The recipients of one message in one thread."""

    __slots__ = ("_done", "agent", "attempts", "expires", "message", "offsets", "text", "thread")

    def __init__(self, message: QueuedMessage, thread: int, offsets: tuple[int, ...]) -> None:
        self.message = message
        self.thread = thread
        """Number of its thread."""
        self.offsets = offsets
        """Byte offsets of its recipient lines, ascending; finished ones too, see `todo`."""
        self.attempts = 0
        """Diagnostics so far."""
        self.expires = float("inf")
        """When it expires if it was tried, epoch seconds UTC."""
        self.text = b""
        """The last diagnostic; may have CR between its lines."""
        self.agent = 0
        """The agent that has it now; 0: none."""
        self._done: AbstractSet[int] = _NONE_DONE

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
