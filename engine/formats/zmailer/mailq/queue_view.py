"""Frozen values of all that a ZMailer scheduler shows of its queue by MAILQ.

A scheduler builds them from its threads, the parsers of `report_text` from the text of a server,
and the console shows them. Times are epoch seconds UTC; the text has most of them as seconds from
now, so rendering and parsing take `now`, and a view has it. `job_outlook` has the words for why a
job is not being delivered.

Source: the output of ZMailer 3.0.1, and scheduler(8zm).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

from engine.values import NamedTuple


class JobWait(StrEnum):
    """Why a job is not being delivered now, or that it is."""

    RETRY = "retry"
    """Its thread waits until `JobView.wakeup`."""
    SLOT = "slot"
    """Too many agents of all channels."""
    CHANNEL = "channel"
    """Too many agents of its channel."""
    THREAD = "thread"
    """Too many agents of its thread."""
    RUNNING = "running"
    """An agent has it: `JobView.pid`."""
    INACTIVE = "inactive"
    """Due, and its thread has no agent."""
    UNKNOWN = ""
    """None of the first, third and fourth: version 2 does not show the others."""


class JobView(NamedTuple):
    """One message in one thread (the original calls it a vertex)."""

    path: str
    """Its control file relative to `transport/`, as I/F/3276785."""
    channel: str
    host: str
    offsets: tuple[int, ...] = ()
    """Byte offsets of the lines of its recipients that are still to do."""
    message: str = ""
    """Text of the last diagnostic; a CR in it is a line break."""
    wait: JobWait = JobWait.UNKNOWN
    wakeup: float | None = None
    """When its thread is tried again; None: unknown."""
    pid: int = 0
    """The agent that has it; 0: none or unknown."""
    is_next_fed: bool = False
    """True if it is the next one that its agent gets."""
    expires_at: float | None = None
    """None: never, or unknown."""
    attempts: int | None = None
    """None: unknown; version 1 shows it only beside an expiry."""
    error_address: str = ""
    """Who gets a report of failure; "" also if unknown: only version 2 shows it."""
    fed_at: float = 0.0
    """When an agent last got it; 0: never, or unknown."""


def with_steady_times(job: JobView, now: float) -> JobView:
    """A job of version 1 with the same times in each dump: they have no minutes beside days, so
    above a day they are rounded up to the hour, and an expiry below a day to the minute."""

    def steady(moment: float | None, least: int) -> float | None:
        step = 3600 if moment is not None and moment - now >= 86400 else least
        return moment if moment is None or not step else ceil(moment / step) * step

    return job._replace(wakeup=steady(job.wakeup, 0), expires_at=steady(job.expires_at, 60))


class AgentView(NamedTuple):
    """A transport agent that works on a thread."""

    pid: int
    hungry_at: float | None = None
    """When it last asked for work; None: never."""
    fed_at: float | None = None
    """When it last got a job; None: never."""
    outstanding: int = 0
    """Jobs that it has got and not answered."""
    state: str = ""
    """LARVA, STUFF, FINISH, IDLE or ERROR."""


class ThreadView(NamedTuple):
    """The jobs of one clause with the same channel and host."""

    channel: str
    host: str
    jobs: int
    recipients: int
    attempts: int
    oldest_at: float
    """When its oldest message arrived."""
    withhost: int = 0
    """2 if its group has one host (a clause with `$host` in its command), else 0."""
    kids: tuple[int, int] | None = None
    """Its agents as counted by the thread and by the process table, if the two differ."""
    agents: tuple[AgentView, ...] = ()
    unfed: int = 0
    """Jobs that no agent has got in this round; only shown with agents."""
    wakeup: float | None = None
    """When it is tried next; None or past: it does not wait."""
    pending: str = ""
    """Why it cannot start, such as >MaxChannel."""
    is_channel_wait: bool = False
    is_thread_wait: bool = False


class GroupView(NamedTuple):
    """The threads of one clause and channel, which share idle agents (a ring), with its limits.

    A second number of a pair is a recount, shown if it differs from the first."""

    channel: str
    """The pattern of the clause."""
    host: str
    """The pattern of the clause."""
    threads: tuple[ThreadView, ...]
    """() if the server showed only totals."""
    thread_count: tuple[int, int]
    messages: int
    agents: tuple[int, int]
    idle: tuple[int, int]
    max_agents: int
    """`maxring` of the clause; the most agents in all if it sets none (Plim)."""
    overfeed: int
    """`overfeed` of the clause (Flim)."""
    max_thread_agents: int
    """`maxthr` of the clause (Tlim)."""
    withhost: int = 0


class TotalsView(NamedTuple):
    """The totals of a scheduler since its start."""

    agents: int
    idle: int
    messages: int
    threads: int
    recipients: int
    """Jobs in all threads; the original names it recipients."""
    uptime: int
    """Seconds."""
    messages_in: int
    messages_out: int
    messages_stored: tuple[int, int]
    """A second number is a recount, shown if it differs."""
    recipients_in: int
    recipients_out: int
    recipients_stored: tuple[int, int]


class CounterView(NamedTuple):
    """One line of `SHOW COUNTERS`: a name ending in -G is a gauge. All "" is an empty line."""

    name: str = ""
    value: str = ""
    note: str = ""
    """Such as "NOT PRESENT!" behind a PID."""


class KeyList(NamedTuple):
    """A channel or host, with the numbers of its jobs in a dump, counted from 1."""

    name: str
    keys: tuple[int, ...]


class SchedulerView(NamedTuple):
    """What a scheduler shows at one moment."""

    now: float
    """When it was true."""
    groups: tuple[GroupView, ...]
    totals: TotalsView
    jobs: tuple[JobView, ...] = ()
    """In the order of their keys in a dump; the threads of `groups` do not contain them."""
    channel_keys: tuple[KeyList, ...] = ()
    host_keys: tuple[KeyList, ...] = ()
    """The lists `Channels` and `Hosts` of a dump in the order of their server; (): the order of the
    jobs."""


ROUNDING_SECONDS = 1.5
"""A report has whole seconds from now: two times that differ by less are the same."""


def has_changed(old: ThreadView, new: ThreadView) -> bool:
    """True if a thread differs in more than its age, and the rounding of its times."""
    if _without_times(old) != _without_times(new):
        return True
    if (old.wakeup is None) is not (new.wakeup is None):
        return True
    moved = abs((old.wakeup or 0.0) - (new.wakeup or 0.0)) > ROUNDING_SECONDS
    return moved or [a[:1] + a[3:] for a in old.agents] != [a[:1] + a[3:] for a in new.agents]


def _without_times(thread: ThreadView) -> ThreadView:
    return thread._replace(oldest_at=0.0, wakeup=None, agents=())


QUEUE_ONLY = "QueueOnly"
"""Why a thread of a `queueonly` clause does not start, as our scheduler shows it."""

REASONS: Mapping[str, str] = {
    ">MaxTA": "all agents that may run (maxta) are in use",
    ">MaxChannel": "all agents of its channel (maxchannel) are in use",
    ">MaxRing": "all agents of its ring (maxring) are in use",
    ">MaxThr": "all agents of its thread (maxthr) are in use",
    "Frozen": "frozen by an operator",
    "ForkRateLimit": "agents start at a limited rate (-R)",
    QUEUE_ONLY: "queueonly: only ETRN starts it",
    "ConfBUG:NoCmdDefined!": "its clause has no command: never delivered",
    "procsel-mismatch": "the scheduler runs another thread only (-p)",
    "System:ForkFailure!": "its agent cannot be started: the scheduler's log has the reason",
}
"""The reasons of a thread, as MAILQ has them, in words."""

LIMITS = (">MaxTA", ">MaxChannel", ">MaxRing", ">MaxThr", "ForkRateLimit")
"""Those that end when other agents do."""

NEVER_BY_TIME = (QUEUE_ONLY, "ConfBUG:NoCmdDefined!", "procsel-mismatch")
"""Those of threads that no time starts, also if a scheduler shows a next one."""

_WAITS: Mapping[JobWait, str] = {
    JobWait.SLOT: REASONS[">MaxTA"],
    JobWait.CHANNEL: "no agent: a limit of its channel, or queueonly",
    JobWait.THREAD: "no agent: a limit of its thread, or queueonly",
}
"""What a scheduler shows of a job without a reason of its thread; it can be old."""


class JobOutlook(NamedTuple):
    """When a job is tried, and why not before."""

    due: float | None
    """Epoch seconds UTC, 0: now; None: only an event starts it, or it is unknown."""
    why: str = ""
    """Why it is not being delivered, as text; "" if it only waits for `due`."""
    reason: str = ""
    """That of its thread, as MAILQ has it."""


def job_outlook(job: JobView, thread: ThreadView | None, now: float) -> JobOutlook:
    """Find out when a job is tried, and why not before."""
    reason = thread.pending if thread else ""
    wakeup = job.wakeup or (thread.wakeup if thread else None)
    later = wakeup if wakeup is not None and wakeup > now else None
    since = wakeup if wakeup is not None and wakeup <= now else 0.0
    if reason:
        why = f"{reason}: {REASONS[reason]}" if reason in REASONS else reason
        due = since if reason in LIMITS else None if reason in NEVER_BY_TIME else later
        return JobOutlook(due, why, reason)
    if thread and thread.agents:
        pids = ", ".join(str(agent.pid) for agent in thread.agents)
        return JobOutlook(since, f"an agent delivers its thread (PID {pids})")
    if later is not None:
        return JobOutlook(later)
    return JobOutlook(since, _WAITS.get(job.wait, "ready: its scheduler starts the agents"))
