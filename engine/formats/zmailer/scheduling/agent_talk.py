"""The scheduler's side of the conversation with one agent, without its socket.

Bytes of the agent go in, events come out; lines for the agent collect in `output`. An answer counts
only for a job that the agent was given: it may be wrong, or lie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from engine.formats.zmailer.scheduling import agent_state
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
from engine.formats.zmailer.scheduling.agent_state import AgentFeed

MAX_OUTPUT_BYTES = 64 << 10
"""The agent gets no more jobs while so many bytes wait to be written."""

LINES_PER_ROUND = 1000
"""Lines of one agent that are handled before the others get their turn."""

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
                self.feed = agent_state.after_hungry(self.feed, now)
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

    # ---- to the agent

    def room(self, overfeed: int) -> int:
        """How many jobs it may get now."""
        room = agent_state.room_for(self.feed, overfeed)
        if room:
            self._given.clear()  # the jobs of the last time are over
        return room

    def give(self, line: JobLine, job: J, now: float) -> bool:
        """Send a job, within the `room`; False if it must wait until the next time.

        Raises:
            ValueError: the agent would read it as something else.
        """
        if line.ident in self._given or len(self.output) >= MAX_OUTPUT_BYTES:
            return False
        self.output += format_job(line)
        self._given[line.ident] = job
        self.feed = agent_state.after_job(self.feed, now)
        return True

    def finish(self) -> None:
        """Its thread has no more jobs."""
        self.feed = agent_state.after_last_job(self.feed)

    def attach(self) -> None:
        """Give it to another thread."""
        self.feed = agent_state.after_attach(self.feed)

    def idle(self) -> None:
        """Send `#idle`: it has no thread."""
        self._given.clear()
        self.output += IDLE
        self.feed = agent_state.after_idle(self.feed)

    def end(self, now: float, *, is_slow_stop: bool = False) -> None:
        """Send the end; the caller shuts its side of the socket down once it is written."""
        if self.feed.ended_at is None:
            self.output += END * (1 + is_slow_stop)
            self.feed = agent_state.after_end(self.feed, now)
