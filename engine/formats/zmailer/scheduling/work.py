"""Agents at work: which thread each is on, the jobs that it was fed, what its answers mean.

Limits hold at every moment: an agent counts from its start to its end, also while it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer
from engine.formats.zmailer.scheduling.jobs import Job, RingKey, Thread
from engine.formats.zmailer.scheduling.ready import AgentSlots
from engine.formats.zmailer.scheduling.table import ThreadTable
from engine.values import NamedTuple

MAX_RESYNCS = 30
"""After an agent has found nothing to do in a file so often, it is fed only at its wake-ups."""


class Start(NamedTuple):
    """A thread that gets an agent."""

    thread: Thread
    agent: int
    """An idle agent; 0: start one."""


@dataclass(slots=True, eq=False)
class AgentWork:
    """What an agent does."""

    number: int
    """Its PID, or any other number that no living agent has."""
    ring: RingKey
    idle_seconds: float
    """How long it may be idle."""
    thread: Thread | None = None
    """None: it is idle."""
    outstanding: list[Job] = field(default_factory=list)
    """Jobs that it was fed since it was last ready."""
    host: str = ""
    """Of its last thread."""
    idle_since: float = 0.0
    is_old: bool = False
    """True if its command is no longer that of its clause: it gets no more jobs, and once it has
    answered those that it has, the rest of its thread gets another agent."""


class WorkTable:
    """All agents and their work."""

    def __init__(self, table: ThreadTable, slots: AgentSlots, random: Random) -> None:
        self.table, self.slots, self._random = table, slots, random
        self.agents: dict[int, AgentWork] = {}
        self.idle: dict[RingKey, dict[int, AgentWork]] = {}
        """The agents without a thread, by their numbers."""

    def next_start(self) -> Start | None:
        """The next thread to get an agent, an idle one if its ring has one.

        The caller starts an agent and calls `add`, or `refuse` if it cannot; for an idle agent,
        `assign`."""
        for ring, idle in self.idle.items():
            while thread := self.table.ready.next_of_ring(ring):
                if _wants_agent(thread):
                    host = thread.key.host
                    same = (one for one in idle.values() if one.host == host)
                    return Start(thread, next(same, next(iter(idle.values()))).number)
        while thread := self.table.ready.next_thread():
            if _wants_agent(thread):
                return Start(thread, 0)
        return None

    def add(self, number: int, thread: Thread) -> AgentWork:
        """An agent was started for a thread."""
        self.slots.take(thread.ring)
        agent = self.agents[number] = AgentWork(number, thread.ring, thread.settings.idle_seconds)
        self.assign(agent, thread)
        return agent

    def refuse(self, thread: Thread, reason: str, until: float) -> None:
        """No agent could be started for a thread: it tries again at a time."""
        thread.pending, thread.wake = reason, until
        self.table.timers.set_wake(thread, until)

    def assign(self, agent: AgentWork, thread: Thread) -> None:
        """Let an agent work on a thread; the first one begins its round."""
        self.retire(agent)
        if not thread.agents:
            thread.retry_at = 0.0
            if thread.unfed is None:
                thread.fill(self._random)
        thread.agents += 1
        agent.thread, agent.host = thread, thread.key.host
        if thread.settings.maxthr > 1:
            self.table.start(thread)

    def retire(self, agent: AgentWork) -> None:
        """An agent has a thread, or was asked to end: it is idle no more."""
        if idle := self.idle.get(agent.ring):
            idle.pop(agent.number, None)
            if not idle:
                del self.idle[agent.ring]

    def end(self, agent: AgentWork, now: float) -> None:
        """An agent has ended; the jobs that it had wait for their thread."""
        self.retire(agent)
        self.release(agent, now)
        self._leave(agent, now)
        del self.agents[agent.number]
        self.table.ready.free(agent.ring)

    def find_idle(self, scope: str) -> AgentWork | None:
        """The agent that is idle for longest: in all (""), or of a channel (/CHANNEL)."""
        rings = (those for ring, those in self.idle.items() if scope in ("", f"/{ring.channel}"))
        idle = (one for those in rings for one in those.values())
        return min(idle, key=lambda one: one.idle_since, default=None)

    def next_job(self, agent: AgentWork, now: float) -> Job | None:
        """The next job for an agent; None: there is none for it in its thread."""
        thread = agent.thread
        while thread and thread.unfed and not agent.is_old:
            job = thread.unfed.popleft()
            if job.count and not job.agent:
                job.agent = agent.number
                agent.outstanding.append(job)
                thread.fed_at = now
                return job
        return None

    def put_back(self, agent: AgentWork, job: Job) -> None:
        """An agent did not take the last job: it is fed first the next time."""
        agent.outstanding.remove(job)
        job.agent = 0
        if agent.thread and agent.thread.unfed is not None:
            agent.thread.unfed.appendleft(job)

    def release(self, agent: AgentWork, now: float) -> None:
        """An agent is done with all jobs that it has."""
        for job in agent.outstanding:
            job.agent = 0
            if thread := self.table.threads.get(job.thread):
                self.table.timers.check_tried(thread, job, now)
        agent.outstanding.clear()

    def answer(self, job: Job, answer: AgentAnswer, now: float) -> bool:
        """Apply an answer for a job that an agent has. A finished recipient stays in the job until
        the caller has recorded that and calls `ThreadTable.finish`. False if the job has no such
        recipient to do: the answer changes nothing."""
        thread = self.table.threads.get(job.thread)
        if thread is None or not job.is_todo(answer.offset):
            return False
        job.attempts += 1
        thread.attempts += 1
        if answer.rule.is_final:
            return True
        job.text = answer.text
        if answer.rule.spreads:
            for later in thread.unfed or ():
                later.text = answer.text
        if answer.rule.ends_feeding and thread.unfed is not None:
            thread.unfed.clear()
        if (at := answer.retry_time(now)) is not None:
            thread.retry_at = max(at, thread.retry_at)
        return True

    def resync(self, job: Job) -> bool:
        """An agent has found nothing to do in the file of a job that it has. True: the caller reads
        it again, and what is left is fed again. False: that was too often; it waits for the next
        time of its thread."""
        job.message.resyncs += 1
        if job.message.resyncs > MAX_RESYNCS:
            return False
        thread = self.table.threads.get(job.thread)
        if thread and thread.unfed is not None:
            thread.unfed.append(job)
        return True

    def leave(self, agent: AgentWork, now: float) -> Thread | None:
        """An agent has answered all its jobs: it goes on with its thread if that has new ones, else
        with another one of its ring, else it is idle (None); an old one gets none."""
        thread = agent.thread
        if thread and not agent.is_old and thread.unfed and any(j.count for j in thread.unfed):
            return thread
        self._leave(agent, now)
        if agent.is_old:
            return None
        while thread := self.table.ready.next_of_ring(agent.ring):
            if _wants_agent(thread):
                self.assign(agent, thread)
                return thread
        agent.idle_since = now
        self.idle.setdefault(agent.ring, {})[agent.number] = agent
        return None

    def _leave(self, agent: AgentWork, now: float) -> None:
        thread, agent.thread = agent.thread, None
        if thread:
            thread.agents -= 1
            unfed = thread.unfed if agent.is_old else None
            if not thread.agents:
                self.table.end_round(thread, now)
            if unfed and any(job.count for job in unfed):
                thread.unfed = unfed
                self.table.start(thread, is_etrn=True)


def _wants_agent(thread: Thread) -> bool:
    """True if a thread has a use for one more agent, and its rules allow that."""
    if not thread.count or thread.agents >= max(1, thread.settings.maxthr):
        return False
    return not thread.agents or thread.agents < len(thread.unfed or ())
