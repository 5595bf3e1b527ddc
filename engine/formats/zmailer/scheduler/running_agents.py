"""The running agents of a scheduler: start, feed, read, end them, all without waiting."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping

from engine.formats.zmailer.scheduler.message_reading import FindSettings
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer, AgentText, JobLine
from engine.formats.zmailer.scheduling.agent_process import (
    OPEN_FILES,
    Agent,
    ErrorOutput,
    StartRate,
    agent_account,
    agent_program,
    start_agent,
)
from engine.formats.zmailer.scheduling.agent_talk import Answered, NothingToDo
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, Job, Thread
from engine.formats.zmailer.scheduling.work import Start, WorkTable
from engine.system.supervisor import CannotRun, Program
from engine.text.safe import safe_line
from engine.values import NamedTuple

FORK_FAILURE, FORK_RATE = "System:ForkFailure!", "ForkRateLimit"
"""Why a thread has no agent, as MAILQ shows it."""

FORK_RETRY_SECONDS = 60.0
RATE_RETRY_SECONDS = 1.0

MAX_TEXTS_PER_MINUTE, MAX_TEXT_BYTES = 20, 1000
"""Lines of one agent that are logged although they are no answers, and bytes of each."""
MAX_ERRORS_PER_MINUTE = 200
"""Lines of its standard error that are logged: a stack trace has many."""


ERROR_OUTPUT = "standard error"
"""The kind of the lines that an agent writes as errors."""


class AgentHandlers(NamedTuple):
    """What is called for what agents write."""

    answered: Callable[[Job, AgentAnswer], None]
    resync: Callable[[Job], None]
    log: Callable[[str], None]
    trace: Callable[[str], None]
    """For each step, if the log is verbose."""
    died: Callable[[], None]
    """An agent has ended in the middle of a job."""


class AgentLimits(NamedTuple):
    """Options of the scheduler for its agents."""

    environ: Mapping[str, str]
    """Values of zmailer.conf."""
    start_rate: int = 30
    open_files: int = OPEN_FILES


class AgentStart(NamedTuple):
    """What an agent was started with; as long as it is the same, the agent is used again."""

    program: Program
    nice: int
    priority: int | None


def agent_start(
    settings: ClauseSettings, channel: str, host: str, environ: Mapping[str, str]
) -> AgentStart:
    """How an agent for a channel and host is started. Raises CannotRun: it cannot be started."""
    account = agent_account(settings.user, settings.group)
    program = agent_program(settings.command, channel, host, environ, account)
    return AgentStart(program, settings.nice, settings.priority)


class RunningAgents:
    """The processes of all agents, registered with a selector. `now` is epoch seconds UTC."""

    def __init__(
        self,
        work: WorkTable,
        selector: selectors.BaseSelector,
        handlers: AgentHandlers,
        limits: AgentLimits,
    ) -> None:
        self._work, self._selector, self._handlers = work, selector, handlers
        self._limits = limits
        self.agents: dict[int, Agent[Job]] = {}
        """By PID."""
        self._starts: dict[int, tuple[str, AgentStart]] = {}
        """The host for which each was started, and how; by PID."""
        self._errors: dict[int, ErrorOutput] = {}
        """By PID."""
        self._texts: dict[tuple[int, bool], tuple[float, int]] = {}
        """The minute of the last line of an agent that is no answer, and their number in it; apart
        for its standard error."""
        self._rate = StartRate(limits.start_rate)
        self.wait_until = 0.0
        """No agent is started before: the rate is reached. A time that is past: now."""
        self.is_stopping = False

    def start_all(self, now: float) -> None:
        """Give an agent to each thread that may have one now."""
        while not self.is_stopping and now >= self.wait_until:
            start = self._work.next_start()
            if start is None:
                return
            if start.agent:
                self._reuse(start, now)
            elif self._rate.allow(now):
                self._start(start.thread, now)
            else:
                self.wait_until = now + RATE_RETRY_SECONDS / self._limits.start_rate
                self._work.table.ready.push(start.thread)  # with the jobs that were chosen for it
                start.thread.pending = FORK_RATE

    def _reuse(self, start: Start, now: float) -> None:
        agent = self.agents[start.agent]
        self._work.assign(self._work.agents[start.agent], start.thread)
        agent.talk.attach()
        self._feed(agent, now)

    def _start(self, thread: Thread, now: float) -> None:
        _, channel, host = thread.key
        try:
            start = agent_start(thread.settings, channel, host, self._limits.environ)
            agent, errors = self._start_program(start, now)
        except (CannotRun, OSError) as error:
            self._handlers.log(f"{channel}/{host}: no agent: {error}")
            self._work.refuse(thread, FORK_FAILURE, now + FORK_RETRY_SECONDS)
            return
        if agent.warning:
            self._handlers.log(agent.warning)
        self._handlers.trace(f"agent {agent.pid} started for {channel}/{host}")
        self.agents[agent.pid] = agent
        self._starts[agent.pid], self._errors[agent.pid] = (host, start), errors
        self._work.add(agent.pid, thread)
        self._selector.register(agent.sock, selectors.EVENT_READ, agent)
        self._selector.register(errors.fd, selectors.EVENT_READ, agent)
        self._selector.register(agent.pidfd, selectors.EVENT_READ, agent)

    def _start_program(self, start: AgentStart, now: float) -> tuple[Agent[Job], ErrorOutput]:
        """Start an agent with a pipe for its errors. Raises CannotRun: it cannot be started;
        OSError: no descriptor is free."""
        errors, limits = ErrorOutput(), self._limits
        try:
            agent: Agent[Job] = start_agent(
                start.program,
                errors.agent_end,
                now,
                open_files=limits.open_files,
                nice=start.nice,
                priority=start.priority,
            )
        except (CannotRun, OSError):
            errors.close()
            raise
        return agent, errors

    def reconfigure(self, environ: Mapping[str, str], find: FindSettings, now: float) -> None:
        """Use a new configuration: agents that would be started otherwise now get no more jobs, and
        end, idle ones immediately."""
        self._limits = self._limits._replace(environ=environ)
        for pid, agent in list(self.agents.items()):
            work, (host, start) = self._work.agents[pid], self._starts[pid]
            settings = find(work.ring.channel, host)
            try:
                is_same = settings is not None and start == agent_start(
                    settings, work.ring.channel, host, environ
                )
            except CannotRun:
                is_same = False
            if is_same and settings is not None:
                work.idle_seconds = settings.idle_seconds
                continue
            self._work.retire(work)
            work.is_old = True
            if work.thread is None:
                agent.end(now)

    def handle(self, agent: Agent[Job], now: float) -> None:
        """Read, answer and write what is possible now."""
        agent.reap()
        for event in agent.read(now):
            if isinstance(event, Answered):
                trace = self._handlers.trace
                trace(f"agent {agent.pid}: {event.job.message.path}: {_answer_text(event.answer)}")
                self._handlers.answered(event.job, event.answer)
            elif isinstance(event, NothingToDo):
                self._handlers.resync(event.job)
            elif isinstance(event, AgentText):
                self._log_text(agent, event, now)
            else:
                self._work.release(self._work.agents[agent.pid], now)
        for line in self._errors[agent.pid].read_lines():
            self._log_text(agent, AgentText(ERROR_OUTPUT, line), now)
        if agent.is_over:
            self._close(agent, now)
            return
        if agent.is_closed:
            agent.talk.end(now)  # no answer comes any more
        self._feed(agent, now)

    def _log_text(self, agent: Agent[Job], event: AgentText, now: float) -> None:
        """Log a line of an agent that is no answer; of one that floods, few in a minute."""
        minute = now // 60
        is_error = event.kind == ERROR_OUTPUT
        limit = MAX_ERRORS_PER_MINUTE if is_error else MAX_TEXTS_PER_MINUTE
        since, count = self._texts.get((agent.pid, is_error), (minute, 0))
        count = count + 1 if since == minute else 1
        self._texts[agent.pid, is_error] = minute, count
        if count <= limit:
            text = safe_line(event.text[:MAX_TEXT_BYTES].decode("utf-8", "replace"))
            self._handlers.log(f"agent {agent.pid}: {event.kind}: {text}")
        elif count == limit + 1:
            what = "more such lines of this minute are not logged"
            self._handlers.log(f"agent {agent.pid}: {event.kind}: {what}")

    def handle_left(self, now: float) -> None:
        """Handle the lines that were read, and were too many for one turn."""
        for agent in [one for one in self.agents.values() if one.talk.has_lines]:
            self.handle(agent, now)

    def has_lines(self) -> bool:
        """True if `handle_left` has something to do."""
        return any(agent.talk.has_lines for agent in self.agents.values())

    def _feed(self, agent: Agent[Job], now: float) -> None:
        """Send jobs as far as credits and the thread allow it; else find another thread."""
        work = self._work.agents[agent.pid]
        talk = agent.talk
        while True:
            thread = work.thread
            room = talk.room(thread.settings.overfeed) if thread else 0
            while room and thread:
                job = self._work.next_job(work, now)
                if job is None:
                    talk.finish()
                    break
                if not self._give(agent, thread, job, now):
                    self._work.put_back(work, job)
                    break
                room -= 1
            if not talk.feed.is_free:
                break
            if self._work.leave(work, now):
                talk.attach()
            elif self.is_stopping or work.is_old:
                talk.end(now)
            else:
                talk.idle()
        agent.write(now)
        events = selectors.EVENT_READ * (not agent.is_closed)
        events |= selectors.EVENT_WRITE * (agent.wants_write and not agent.is_closed)
        self._watch(agent, events)

    def _give(self, agent: Agent[Job], thread: Thread, job: Job, now: float) -> bool:
        host = None if thread.settings.is_per_host else thread.key.host.encode(*_ENCODING)
        try:
            return agent.talk.give(JobLine(job.message.path, host), job, now)
        except ValueError as error:
            # Its file is not what the router writes; it expires with this text.
            self._handlers.log(f"{job.message.path}: {error}")
            job.text = str(error).encode()
            job.attempts += 1
            return True

    def _watch(self, agent: Agent[Job], events: int) -> None:
        is_there = agent.sock in self._selector.get_map()
        if not events:
            if is_there:
                self._selector.unregister(agent.sock)
        elif is_there:
            if self._selector.get_key(agent.sock).events != events:
                self._selector.modify(agent.sock, events, agent)
        else:
            self._selector.register(agent.sock, events, agent)

    def _close(self, agent: Agent[Job], now: float) -> None:
        work = self._work.agents[agent.pid]
        status = agent.status or 0
        if status or work.outstanding:
            how = f"signal {-status}" if status < 0 else f"exit {status}"
            self._handlers.log(f"agent {agent.pid}: {how}, {len(work.outstanding)} jobs open")
            self._handlers.died()
        errors = self._errors.pop(agent.pid)
        self._watch(agent, 0)
        self._selector.unregister(errors.fd)
        self._selector.unregister(agent.pidfd)
        for line in errors.close():
            self._log_text(agent, AgentText(ERROR_OUTPUT, line), now)
        agent.close()
        del self.agents[agent.pid], self._starts[agent.pid]
        for is_error in (False, True):
            self._texts.pop((agent.pid, is_error), None)
        self._work.end(work, now)

    def make_room(self, now: float) -> None:
        """End an idle agent where threads of other rings wait for its slot: one at a time, in all
        or of a channel."""
        for scope in self._work.table.ready.held_up():
            ending = (pid for pid, one in self.agents.items() if one.talk.feed.ended_at is not None)
            rings = (self._work.agents[pid].ring for pid in ending)
            if any(scope in ("", f"/{ring.channel}") for ring in rings):
                continue
            if work := self._work.find_idle(scope):
                self._work.retire(work)
                self.agents[work.number].end(now)

    def tidy(self, now: float) -> None:
        """End agents that are idle for too long or stuck; signal those that do not end."""
        for agent in self.agents.values():
            work, feed = self._work.agents[agent.pid], agent.talk.feed
            is_idle = feed.is_idle_since(now, work.idle_seconds)
            if is_idle or feed.is_stuck(now):
                self._work.retire(work)
                agent.end(now)
            if number := agent.talk.feed.due_signal(now):
                agent.signal(number)

    def stop(self, now: float) -> None:
        """Ask all agents to end; no other is started. They finish the jobs that they have."""
        self.is_stopping = True
        for agent in list(self.agents.values()):
            self._work.retire(self._work.agents[agent.pid])
            agent.stop(now)
            self._feed(agent, now)


_ENCODING = ("utf-8", "surrogateescape")


def _answer_text(answer: AgentAnswer) -> str:
    words = f"{answer.offset} {answer.status.decode()} {answer.text.decode(*_ENCODING)}"
    return words.rstrip().replace("\r", " ")
