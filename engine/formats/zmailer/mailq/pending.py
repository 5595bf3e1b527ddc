"""Why a job is not being delivered, in words for an operator, from its thread and its own wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.formats.zmailer.mailq.queue_view import JobView, JobWait, ThreadView

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
