"""Threads, lanes and agents under a test clock, without files and processes."""

from collections.abc import Sequence
from random import Random
from typing import Any, Self

from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, Job, QueuedMessage, Thread
from engine.formats.zmailer.scheduling.ready import AgentSlots
from engine.formats.zmailer.scheduling.table import JobGroup, ThreadTable
from engine.formats.zmailer.scheduling.work import AgentWork, WorkTable

MODIFIED = 1_000_000.0
"""Time of the messages, epoch seconds UTC."""
NOW = MODIFIED + 10


def clause(pattern: str = "smtp/*", **settings: Any) -> ClauseSettings:
    """The settings of a clause with a command."""
    return ClauseSettings(pattern, **{"command": "smtp -s", "overfeed": 0, **settings})


class Driven:
    """An engine whose agents are numbers."""

    def __init__(self, most: int = 200, **kept: Any) -> None:
        self.slots = AgentSlots(most)
        self.random = Random(7)
        self.table = ThreadTable(self.slots, self.random, **kept)
        self.work = WorkTable(self.table, self.slots, self.random)
        self._last = 0

    def put(
        self,
        number: int,
        *groups: tuple[ClauseSettings, str, str, Sequence[int]],
        now: float = MODIFIED,
        modified: float = MODIFIED,
    ) -> QueuedMessage:
        """A message arrives, with recipients for some threads."""
        message = QueuedMessage(number, int(modified * 1e9))
        self.table.add(message, [JobGroup(*one[:3], tuple(one[3])) for one in groups], now)
        return message

    def add(
        self,
        number: int,
        host: str = "a",
        *,
        now: float = NOW,
        modified: float = MODIFIED,
        offsets: Sequence[int] = (100,),
        **settings: Any,
    ) -> Self:
        """A message arrives, with recipients for a host whose clause has some settings."""
        self.put(number, (clause(**settings), "smtp", host, offsets), now=now, modified=modified)
        return self

    def thread(self, host: str = "a") -> Thread:
        """The only thread of a host."""
        (found,) = [one for one in self.table.threads.values() if one.key.host == host]
        return found

    def start(self) -> list[AgentWork]:
        """Start all agents that the limits allow now."""
        started = []
        while start := self.work.next_start():
            if start.agent:
                agent = self.work.agents[start.agent]
                self.work.assign(agent, start.thread)
            else:
                self._last += 1
                agent = self.work.add(self._last, start.thread)
            started.append(agent)
        return started

    def feed(self, agent: AgentWork, now: float = NOW) -> list[Job]:
        """All jobs that an agent gets now."""
        return list(iter(lambda: self.work.next_job(agent, now), None))

    def answer(self, job: Job, words: str, now: float) -> None:
        """The agent answers each recipient of a job with a status and a text."""
        status, _, text = words.partition(" ")
        for offset in job.todo:
            answer = AgentAnswer(job.message.number, offset, None, status.encode(), text.encode())
            if self.work.answer(job, answer, now) and answer.rule.is_final:
                self.table.finish(job, offset)

    def round(self, words: str, now: float = NOW) -> list[int]:
        """Start agents, answer all jobs of each, and end it; return the numbers of the messages."""
        done = []
        for agent in self.start():
            while jobs := self.feed(agent, now):
                for job in jobs:
                    done.append(job.message.number)
                    self.answer(job, words, now)
                self.work.release(agent, now)
                if self.work.leave(agent, now) is None:
                    break
            self.work.end(agent, now)
        return done

    def step(self, now: float) -> list[int]:
        """Wake and expire; return the numbers of the messages that expired."""
        expired = []
        for job in self.table.step(now):
            expired.append(job.message.number)
            self.table.end(job)
        return expired
