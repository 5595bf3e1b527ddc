"""What a running scheduler shows by MAILQ, and what a MAILQ client may ask of it.

A view is built from the threads at most ten times a second, and less often if that takes long, so
a client that asks again and again does not hold up the mail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from engine.formats.zmailer.mailq.queue_view import (
    NEVER_BY_TIME,
    AgentView,
    CounterView,
    GroupView,
    JobView,
    JobWait,
    SchedulerView,
    ThreadView,
    TotalsView,
)
from engine.formats.zmailer.mailq.report_text import decode
from engine.formats.zmailer.mailq.session import MailqQueue
from engine.formats.zmailer.scheduler.loop import SchedulerLoop
from engine.formats.zmailer.scheduling import timers
from engine.formats.zmailer.scheduling.jobs import Job, QueuedMessage, RingKey, Thread
from engine.formats.zmailer.scheduling.table import ThreadTable
from engine.formats.zmailer.spool import names
from engine.override import override

VIEW_SECONDS = 0.1
"""How long a view is shown."""
BUILD_SHARE = 20
"""A view is shown at least so many times as long as it took to build."""
WITH_HOST = 2
"""The number of a group whose command has the host, as MAILQ shows it."""

_WAITS = {">MaxTA": JobWait.SLOT, ">MaxChannel": JobWait.CHANNEL, ">MaxThr": JobWait.THREAD}


class SchedulerQueue(MailqQueue):
    """The queue of a scheduler."""

    def __init__(self, loop: SchedulerLoop) -> None:
        self._loop, self._parts, self._table = loop, loop.parts, loop.parts.table
        self._started = loop.parts.clock()
        self._view: SchedulerView | None = None
        self._has_jobs = False
        self._until = 0.0
        """When the view is too old, by the monotonic clock."""

    @override
    def view(self, *, with_jobs: bool) -> SchedulerView:
        now = self._parts.monotonic()
        if self._view is None or now >= self._until or (with_jobs and not self._has_jobs):
            self._view, self._has_jobs = self._build(with_jobs=with_jobs), with_jobs
            took = self._parts.monotonic() - now
            self._until = now + took + max(VIEW_SECONDS, BUILD_SHARE * took)
        return self._view

    def forget_view(self) -> None:
        """Build the next view from the threads as they are then."""
        self._view = None

    def _build(self, *, with_jobs: bool) -> SchedulerView:
        now = self._parts.clock()
        rings: dict[RingKey, list[Thread]] = {}
        for thread in self._table.threads.values():
            rings.setdefault(thread.ring, []).append(thread)
        idle = Counter[RingKey]()
        for agent in self._parts.work.agents.values():
            rings.setdefault(agent.ring, [])
            idle[agent.ring] += agent.thread is None
        agents_by_thread = self._agents_by_thread()
        groups = tuple(
            self._group(ring, rings[ring], agents_by_thread, idle[ring]) for ring in rings
        )
        jobs: tuple[JobView, ...] = ()
        if with_jobs:
            threads = (thread for ring in rings.values() for thread in ring)
            jobs = tuple(one for thread in threads for one in self._jobs(thread))
        return SchedulerView(now, groups, self._totals(groups, now), jobs)

    def _totals(self, groups: Sequence[GroupView], now: float) -> TotalsView:
        counts = self._loop.flow.totals
        threads = self._table.threads.values()
        agents = self._parts.work.agents
        messages = len(self._table.messages)
        recipients = sum(thread.recipients for group in groups for thread in group.threads)
        stored = counts.messages_in - counts.messages_out
        recipients_stored = counts.recipients_in - counts.recipients_out
        return TotalsView(
            len(agents),
            sum(one.thread is None for one in agents.values()),
            messages,
            threads=len(threads),
            recipients=sum(thread.count for thread in threads),
            uptime=int(now - self._started),
            messages_in=counts.messages_in,
            messages_out=counts.messages_out,
            messages_stored=(stored, messages),
            recipients_in=counts.recipients_in,
            recipients_out=counts.recipients_out,
            recipients_stored=(recipients_stored, recipients),
        )

    def _agents_by_thread(self) -> dict[int, list[AgentView]]:
        agents_by_thread: dict[int, list[AgentView]] = {}
        running = self._loop.agents.agents
        for work in self._parts.work.agents.values():
            if work.thread and (agent := running.get(work.number)):
                feed = agent.talk.feed
                agent_view = AgentView(
                    agent.pid, feed.hungry_at, feed.fed_at, feed.outstanding, str(feed.state)
                )
                agents_by_thread.setdefault(work.thread.number, []).append(agent_view)
        return agents_by_thread

    def _group(
        self,
        ring: RingKey,
        threads: Sequence[Thread],
        by_thread: dict[int, list[AgentView]],
        idle: int,
    ) -> GroupView:
        channel, _, host = ring.clause.partition("/")
        settings = threads[0].settings if threads else None
        slots = self._parts.work.slots
        count = slots.counts[ring]
        return GroupView(
            channel,
            host,
            tuple(self._thread(one, by_thread.get(one.number, ())) for one in threads),
            thread_count=(len(threads), len(threads)),
            messages=sum(thread.count for thread in threads),
            agents=(count, count),
            idle=(idle, idle),
            max_agents=(settings.maxring if settings else 0) or slots.most,
            overfeed=settings.overfeed if settings else 0,
            max_thread_agents=settings.maxthr if settings else 0,
            withhost=WITH_HOST if ring.host else 0,
        )

    def _thread(self, thread: Thread, agents: Sequence[AgentView]) -> ThreadView:
        reason = self._table.ready.reason(thread)
        modified = [job.message.modified_ns for job in thread.jobs()]
        return ThreadView(
            thread.key.channel,
            thread.key.host,
            thread.count,
            recipients=sum(job.count for job in thread.jobs()),
            attempts=thread.attempts,
            oldest_at=min(modified, default=0) / 1e9,
            withhost=WITH_HOST if thread.ring.host else 0,
            kids=None if len(agents) == thread.agents else (thread.agents, len(agents)),
            agents=tuple(agents),
            unfed=len(thread.unfed or ()),
            wakeup=None if reason else thread.wake or None,  # MAILQ has room for one of both
            pending=reason,
            is_channel_wait=reason == ">MaxChannel",
            is_thread_wait=reason == ">MaxThr",
        )

    @override
    def jobs(self, channel: str, host: str) -> Sequence[JobView]:
        threads = list(self._find(channel, host))
        return [one for thread in threads for one in self._jobs(thread)]

    def _find(self, channel: str, host: str) -> Iterator[Thread]:
        for thread in self._table.threads.values():
            if thread.key.channel == channel and thread.key.host == host:
                yield thread

    def _jobs(self, thread: Thread) -> Iterator[JobView]:
        now, reason = self._parts.clock(), self._table.ready.reason(thread)
        wait = _WAITS.get(reason, JobWait.INACTIVE)
        if thread.is_waiting(now) and reason not in NEVER_BY_TIME:
            wait = JobWait.RETRY
        next_fed = thread.unfed[0] if thread.unfed else None
        for job in thread.jobs():
            yield JobView(
                job.message.path,
                thread.key.channel,
                thread.key.host,
                offsets=job.todo,
                message=decode(job.text),
                wait=JobWait.RUNNING if job.agent else wait,
                wakeup=thread.wake if wait is JobWait.RETRY else None,
                pid=job.agent,
                is_next_fed=job is next_fed,
                expires_at=_expiry(thread, job),
                attempts=job.attempts,
                error_address=job.message.sender,
                fed_at=thread.fed_at,
            )

    @override
    def counters(self) -> Iterable[CounterView]:
        counts, agents = self._loop.flow.totals, self._parts.work.agents.values()
        for name, value in counts._asdict().items():
            yield CounterView(f"SC.{''.join(map(str.title, name.split('_')))}", str(value))
        gauges = {
            "StoredMessages": len(self._table.messages),
            "StoredThreads": len(self._table.threads),
            "TransportAgents": len(agents),
            "TransportAgentsIdle": sum(one.thread is None for one in agents),
        }
        for name, number in gauges.items():
            yield CounterView(f"SC.{name}-G", str(number))

    @override
    def etrn(self, host: str) -> bool:
        self.forget_view()
        return self._table.etrn(host.lower()) > 0

    @override
    def kill_message(self, name: str) -> str:
        self.forget_view()
        message = _find_message(self._table, name)
        if message is None:
            return "no such message"
        try:
            self._loop.flow.kill(message)
        except OSError as error:
            return str(error)
        return ""

    @override
    def kill_thread(self, channel: str, host: str) -> str:
        self.forget_view()
        jobs = [job for thread in self._find(channel, host) for job in thread.jobs()]
        if not jobs:
            return "no such thread"
        try:
            for job in jobs:
                self._loop.flow.kill_job(job)
        except OSError as error:
            return str(error)
        return ""


def _expiry(thread: Thread, job: Job) -> float | None:
    if job.expires == float("inf"):
        return None
    return job.expires if job.attempts else timers.expires_untried_at(thread.settings, job.expires)


def _find_message(table: ThreadTable, name: str) -> QueuedMessage | None:
    last = name.rpartition("/")[2]
    number = names.spool_id_number(name) or names.message_number(last)
    message = table.messages.get(number) if number is not None else None
    if message is None:
        return None
    message_names = {names.spool_id(message.number, message.modified_ns), message.name}
    return message if last in message_names else None
