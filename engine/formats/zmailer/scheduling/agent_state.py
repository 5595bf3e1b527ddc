"""The state of an agent and its credits: how many jobs it gets next. Values and pure functions.

Each job, and each `#idle`, costs a credit that a `#hungry` gives back; so does the start. An agent
gets work only when all credits are back.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import NamedTuple

STUCK_SECONDS = 600.0
"""An agent that is not ready so long after its start, or has so long no work, is ended."""

TERMINATE_SECONDS = 600.0
"""Seconds that an agent without a job has after the end of its input, and after SIGTERM."""


class AgentState(StrEnum):
    """The states, with the words of the reports."""

    LARVA = "LARVA"
    """Started; gets one job when it is ready."""
    STUFFING = "STUFF"
    """Gets jobs of its thread."""
    FINISHING = "FINISH"
    """Its thread has no more for it."""
    IDLE = "IDLE"
    """Waits for another thread."""
    ERROR = "ERROR"
    """Ended, or about to end: it gets nothing more."""


class AgentFeed(NamedTuple):
    """State and credits of an agent. Times are epoch seconds UTC, as reports show them."""

    hungry_at: float
    """The last `#hungry`; before it, the start."""
    state: AgentState = AgentState.LARVA
    outstanding: int = 1
    """Credits not given back: at most overfeed + 1."""
    fed_at: float | None = None
    """The last job; None before it."""
    ended_at: float | None = None
    """The end of its input; None before it."""

    @property
    def has_jobs(self) -> bool:
        """True if it has jobs that it has not finished."""
        is_none = self.state in (AgentState.LARVA, AgentState.IDLE)
        return self.outstanding > 0 and not is_none

    @property
    def is_free(self) -> bool:
        """True if it waits for a decision: another thread, or `#idle`."""
        return self.state is AgentState.FINISHING and not self.outstanding


def after_hungry(feed: AgentFeed, now: float) -> AgentFeed:
    """One credit is back; one that was never given counts as none."""
    _, state, outstanding, fed_at, ended_at = feed  # quicker than _replace, and once for each job
    return AgentFeed(now, state, outstanding - 1 if outstanding else 0, fed_at, ended_at)


def room_for(feed: AgentFeed, overfeed: int) -> int:
    """The jobs that it may get now: one after its start, otherwise overfeed + 1."""
    if feed.outstanding:
        return 0
    return {AgentState.LARVA: 1, AgentState.STUFFING: overfeed + 1}.get(feed.state, 0)


def after_job(feed: AgentFeed, now: float) -> AgentFeed:
    """It was sent a job."""
    return AgentFeed(feed.hungry_at, AgentState.STUFFING, feed.outstanding + 1, now, feed.ended_at)


def after_last_job(feed: AgentFeed) -> AgentFeed:
    """Its thread has no more jobs for it now."""
    is_fed = feed.state in (AgentState.LARVA, AgentState.STUFFING)
    return feed._replace(state=AgentState.FINISHING) if is_fed else feed


def after_idle(feed: AgentFeed) -> AgentFeed:
    """It was sent `#idle`."""
    return feed._replace(state=AgentState.IDLE, outstanding=feed.outstanding + 1)


def after_attach(feed: AgentFeed) -> AgentFeed:
    """It has another thread; the jobs follow once all credits are back."""
    return feed._replace(state=AgentState.STUFFING)


def after_end(feed: AgentFeed, now: float) -> AgentFeed:
    """Its input was ended: it finishes the jobs that it has."""
    at = now if feed.ended_at is None else feed.ended_at
    outstanding = feed.outstanding if feed.has_jobs else 0
    return feed._replace(state=AgentState.ERROR, outstanding=outstanding, ended_at=at)


def is_stuck(feed: AgentFeed, now: float) -> bool:
    """True if it never got ready, or is in a thread without a job for `STUCK_SECONDS`."""
    waits = feed.state is AgentState.LARVA or (
        not feed.outstanding and feed.state in (AgentState.STUFFING, AgentState.FINISHING)
    )
    return waits and now - feed.hungry_at >= STUCK_SECONDS


def is_idle_since(feed: AgentFeed, now: float, idlemax: float) -> bool:
    """True if it is idle for `idlemax` seconds."""
    return feed.state is AgentState.IDLE and now - feed.hungry_at >= idlemax


def due_signal(feed: AgentFeed, now: float) -> signal.Signals | None:
    """The signal for an agent that has no job and does not end; None: wait."""
    if feed.ended_at is None or feed.has_jobs or now - feed.ended_at < TERMINATE_SECONDS:
        return None
    is_late = now - feed.ended_at >= 2 * TERMINATE_SECONDS
    return signal.SIGKILL if is_late else signal.SIGTERM
