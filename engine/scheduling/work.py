"""Agents at work: which thread each is on, the jobs that it was fed, what its answers mean.

Limits hold at every moment: an agent counts from its start to its end, also while it is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from engine.scheduling.agent_lines import Answer
from engine.scheduling.jobs import Job, QueuedMessage, RingKey
from engine.scheduling.ready import AgentSlots
from engine.scheduling.table import ThreadTable
from engine.scheduling.threads import Thread

MAX_RESYNCS = 30
"""After an agent has found nothing to do in a file so often, it is fed only at its wake-ups."""


class Start(NamedTuple):
    """A thread that gets an agent."""

    thread: Thread
    agent: int
    """An idle agent; 0: start one."""


class AgentWork:
    """What an agent does."""

    __slots__ = ("host", "idle_since", "number", "outstanding", "ring", "thread")

    def __init__(self, number: int, ring: RingKey) -> None:
        self.number = number
        """Its PID, or any other number that no living agent has."""
        self.ring = ring
        self.thread: Thread | None = None
        """None: it is idle."""
        self.outstanding: dict[int, Job] = {}
        """Jobs that it has, by the number of the message, the first one fed first."""
        self.host = ""
        """Of its last thread."""
        self.idle_since = 0.0


class WorkTable:
    """All agents and their work."""

    def __init__(self, table: ThreadTable, slots: AgentSlots, random: Random) -> None:
        self.table, self.slots, self._random = table, slots, random
        self.agents: dict[int, AgentWork] = {}
        self._idle: dict[RingKey, dict[int, AgentWork]] = {}

    # ---- start and end of agents

    def next_start(self) -> Start | None:
        """The next thread to get an agent, an idle one if its ring has one.

        The caller starts an agent and calls `add`, or `refuse` if it cannot; for an idle agent,
        `assign`.
        """
        for ring, idle in self._idle.items():
            while thread := self.table.ready.next_of_ring(ring):
                if self._wants_agent(thread):
                    host = thread.key.host
                    same = (one for one in idle.values() if one.host == host)
                    return Start(thread, next(same, next(iter(idle.values()))).number)
        while thread := self.table.ready.next_thread():
            if self._wants_agent(thread):
                return Start(thread, 0)
        return None

    def _wants_agent(self, thread: Thread) -> bool:
        if not thread.count or thread.is_held or thread.agents >= max(1, thread.settings.maxthr):
            return False
        return not thread.agents or thread.agents < len(thread.unfed or ())

    def add(self, number: int, thread: Thread) -> AgentWork:
        """An agent was started for a thread."""
        self.slots.take(thread.ring)
        agent = self.agents[number] = AgentWork(number, thread.ring)
        self.assign(agent, thread)
        return agent

    def refuse(self, thread: Thread, reason: str, until: float) -> None:
        """No agent could be started for a thread: it tries again at a time."""
        thread.pending = reason
        self.table.agenda.set(2 * thread.number, until)

    def assign(self, agent: AgentWork, thread: Thread) -> None:
        """Let an agent work on a thread; the first one begins its round."""
        self._set_idle(agent, None)
        if not thread.agents:
            thread.retry_at = 0.0
            if thread.unfed is None:
                thread.fill(self._random)
        thread.agents += 1
        agent.thread, agent.host = thread, thread.key.host
        if thread.settings.maxthr > 1:
            self.table.start(thread)

    def end(self, agent: AgentWork, now: float) -> None:
        """An agent has ended; the jobs that it had wait for their thread."""
        self._set_idle(agent, None)
        while agent.outstanding:
            self.hungry(agent, now)
        self._leave(agent, now)
        del self.agents[agent.number]
        self.table.ready.free(agent.ring)

    # ---- feeding

    def next_job(self, agent: AgentWork, now: float) -> Job | None:
        """The next job for an agent; None: there is none for it in its thread."""
        thread = agent.thread
        while thread and not thread.is_held and thread.unfed:
            job = thread.unfed.popleft()
            if job.count and not job.agent and job.message.number not in agent.outstanding:
                job.agent = agent.number
                agent.outstanding[job.message.number] = job
                thread.fed_at = now
                return job
        return None

    def hungry(self, agent: AgentWork, now: float) -> None:
        """An agent is done with the first of the jobs that it has."""
        if agent.outstanding:
            job = agent.outstanding.pop(next(iter(agent.outstanding)))
            job.agent = 0
            if job.thread in self.table.threads:
                self.table.tried(job, now)

    def answer(self, agent: AgentWork, answer: Answer, now: float) -> Job | None:
        """Take in what an agent answers; return the job. A recipient that is finished stays in it
        until the caller has recorded that and calls `ThreadTable.finish`. None: the agent does not
        have this recipient, so the answer is only for the log.
        """
        job = agent.outstanding.get(answer.ident)
        if job is None or not job.is_todo(answer.offset):
            return None
        job.attempts += 1
        thread = self.table.threads[job.thread]
        thread.attempts += 1
        if answer.rule.is_final:
            return job
        job.text = answer.text
        if answer.rule.spreads:
            for later in thread.unfed or ():
                later.text = answer.text
        if answer.rule.ends_feeding and thread.unfed is not None:
            thread.unfed.clear()
        if (at := answer.retry_time(now)) is not None:
            thread.retry_at = max(at, thread.retry_at)
        return job

    def resync(self, agent: AgentWork, ident: int) -> QueuedMessage | None:
        """The message whose control file an agent wants to be read again; None if it does not have
        it, or has asked too often.
        """
        job = agent.outstanding.get(ident)
        if job is None or job.message.resyncs >= MAX_RESYNCS:
            return None
        job.message.resyncs += 1
        return job.message

    def leave(self, agent: AgentWork, now: float) -> Thread | None:
        """An agent has answered all its jobs: it goes on with its thread if that has new ones, else
        with another one of its ring, else it is idle (None).
        """
        thread = agent.thread
        if thread and thread.unfed and not thread.is_held and any(j.count for j in thread.unfed):
            return thread
        self._leave(agent, now)
        while thread := self.table.ready.next_of_ring(agent.ring):
            if self._wants_agent(thread):
                self.assign(agent, thread)
                return thread
        self._set_idle(agent, now)
        return None

    def _leave(self, agent: AgentWork, now: float) -> None:
        thread, agent.thread = agent.thread, None
        if thread:
            thread.agents -= 1
            if not thread.agents:
                self.table.end_round(thread, now)

    def _set_idle(self, agent: AgentWork, since: float | None) -> None:
        if since is not None:
            agent.idle_since = since
            self._idle.setdefault(agent.ring, {})[agent.number] = agent
        elif idle := self._idle.get(agent.ring):
            idle.pop(agent.number, None)
            if not idle:
                del self._idle[agent.ring]

    def idle_agents(self) -> Iterator[AgentWork]:
        """Yield the idle agents."""
        for idle in self._idle.values():
            yield from idle.values()

