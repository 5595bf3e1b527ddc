"""The scheduler's side of the conversation with one agent, without its socket.

Bytes of the agent go in, events come out; lines for the agent collect in `output`. An answer counts
only for a job that the agent was given: it may be wrong, or lie. Each job, and each `#idle`, costs
a credit that a `#hungry` gives back; so does the start. An agent gets work only when all credits
are back.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Generic, TypeVar

from engine.formats.zmailer.scheduling.agent_lines import (
    DIAGNOSTIC,
    END,
    IDLE,
    AgentAnswer,
    AgentText,
    Hungry,
    JobLine,
    LineBuffer,
    Resync,
    format_job,
    parse_agent_line,
)
from engine.values import NamedTuple

MAX_OUTPUT_BYTES = 64 << 10
"""The agent gets no more jobs while so many bytes wait to be written."""

LINES_PER_ROUND = 1000
"""Lines of one agent that are handled before the others get their turn."""

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

    def after_hungry(self, now: float) -> AgentFeed:
        """One credit is back; one that was never given counts as none."""
        _, state, count, fed_at, ended_at = self  # quicker than _replace, and once for each job
        return AgentFeed(now, state, count - 1 if count else 0, fed_at, ended_at)

    def room_for(self, overfeed: int) -> int:
        """The jobs that it may get now: one after its start, otherwise overfeed + 1."""
        if self.outstanding:
            return 0
        return {AgentState.LARVA: 1, AgentState.STUFFING: overfeed + 1}.get(self.state, 0)

    def after_job(self, now: float) -> AgentFeed:
        """It was sent a job."""
        hungry_at, _, outstanding, _, ended_at = self
        return AgentFeed(hungry_at, AgentState.STUFFING, outstanding + 1, now, ended_at)

    def after_last_job(self) -> AgentFeed:
        """Its thread has no more jobs for it now."""
        is_fed = self.state in (AgentState.LARVA, AgentState.STUFFING)
        return self._replace(state=AgentState.FINISHING) if is_fed else self

    def after_idle(self) -> AgentFeed:
        """It was sent `#idle`."""
        return self._replace(state=AgentState.IDLE, outstanding=self.outstanding + 1)

    def after_attach(self) -> AgentFeed:
        """It has another thread; the jobs follow once all credits are back."""
        return self._replace(state=AgentState.STUFFING)

    def after_end(self, now: float) -> AgentFeed:
        """Its input was ended: it finishes the jobs that it has."""
        at = now if self.ended_at is None else self.ended_at
        outstanding = self.outstanding if self.has_jobs else 0
        return self._replace(state=AgentState.ERROR, outstanding=outstanding, ended_at=at)

    def is_stuck(self, now: float) -> bool:
        """True if it never got ready, or is in a thread without a job for `STUCK_SECONDS`."""
        waits = self.state is AgentState.LARVA or (
            not self.outstanding and self.state in (AgentState.STUFFING, AgentState.FINISHING)
        )
        return waits and now - self.hungry_at >= STUCK_SECONDS

    def is_idle_since(self, now: float, idlemax: float) -> bool:
        """True if it is idle for `idlemax` seconds."""
        return self.state is AgentState.IDLE and now - self.hungry_at >= idlemax

    def due_signal(self, now: float) -> signal.Signals | None:
        """The signal for an agent that has no job and does not end; None: wait."""
        if self.ended_at is None or self.has_jobs or now - self.ended_at < TERMINATE_SECONDS:
            return None
        is_late = now - self.ended_at >= 2 * TERMINATE_SECONDS
        return signal.SIGKILL if is_late else signal.SIGTERM


J = TypeVar("J")
"""What the scheduler calls a job."""


class Answered(NamedTuple, Generic[J]):
    """An answer for a job that the agent has. The caller checks the offset."""

    job: J
    answer: AgentAnswer


class NothingToDo(NamedTuple, Generic[J]):
    """The agent found nothing to do in the control file of a job: read it again."""

    job: J


class Ready(NamedTuple):
    """All credits are back: the agent takes jobs, or waits for a decision."""


class AgentTalk(Generic[J]):
    """One conversation."""

    def __init__(self, now: float) -> None:
        self.feed = AgentFeed(now)
        self.output = bytearray()
        """Bytes to write; the caller removes those that are written."""
        self._buffer = LineBuffer()
        self._lines: deque[bytes] = deque()
        self._given: dict[int, J] = {}
        """The jobs since all credits were back, by the number of their control file."""

    @property
    def jobs(self) -> list[J]:
        """The jobs that it was given since all credits were back, or that it has now."""
        return list(self._given.values())

    @property
    def has_lines(self) -> bool:
        """True if lines wait for the next round: call `events` again before reading more."""
        return bool(self._lines)

    def receive(self, data: bytes) -> None:
        """Take bytes of the agent; a partial last line waits for its rest."""
        self._lines.extend(self._buffer.feed(data))

    def events(self, now: float) -> Iterator[Answered[J] | NothingToDo[J] | Ready | AgentText]:
        """Yield what at most `LINES_PER_ROUND` lines mean."""
        for _ in range(min(LINES_PER_ROUND, len(self._lines))):
            line = self._lines.popleft()
            parsed = parse_agent_line(line)
            if isinstance(parsed, Hungry):
                had = self.feed.outstanding
                self.feed = self.feed.after_hungry(now)
                if had == 1:
                    yield Ready()
            elif isinstance(parsed, AgentText):
                yield parsed
            elif parsed.ident not in self._given:
                yield AgentText(DIAGNOSTIC, line)
            elif isinstance(parsed, Resync):
                yield NothingToDo(self._given[parsed.ident])
            else:
                yield Answered(self._given[parsed.ident], parsed)

    def room(self, overfeed: int) -> int:
        """How many jobs it may get now."""
        room = self.feed.room_for(overfeed)
        if room:
            self._given.clear()  # the jobs of the last time are over
        return room

    def give(self, line: JobLine, job: J, now: float) -> bool:
        """Send a job, within the `room`; False if it must wait until the next time. Raises
        ValueError: the agent would read it as something else."""
        if line.ident in self._given or len(self.output) >= MAX_OUTPUT_BYTES:
            return False
        self.output += format_job(line)
        self._given[line.ident] = job
        self.feed = self.feed.after_job(now)
        return True

    def finish(self) -> None:
        """Its thread has no more jobs."""
        self.feed = self.feed.after_last_job()

    def attach(self) -> None:
        """Give it to another thread."""
        self.feed = self.feed.after_attach()

    def idle(self) -> None:
        """Send `#idle`: it has no thread."""
        self._given.clear()
        self.output += IDLE
        self.feed = self.feed.after_idle()

    def end(self, now: float, *, is_slow_stop: bool = False) -> None:
        """Send the end; the caller shuts its side of the socket down once it is written."""
        if self.feed.ended_at is None:
            self.output += END * (1 + is_slow_stop)
            self.feed = self.feed.after_end(now)
