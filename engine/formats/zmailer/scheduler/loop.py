"""The loop of the scheduler: new files, timers, agents and their answers, in one thread.

No step waits: agents and peers are read without blocking, and only so much of each. All state of
the mail is in its control files, so the process may be killed at any moment.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable

from engine.formats.zmailer.scheduler.message_flow import MessageFlow, SchedulerParts
from engine.formats.zmailer.scheduler.running_agents import (
    AgentHandlers,
    AgentLimits,
    RunningAgents,
)
from engine.formats.zmailer.scheduling.agent_process import Agent
from engine.formats.zmailer.scheduling.jobs import QueuedMessage
from engine.system.files import Refused

TIDY_SECONDS = 10.0
"""How often idle and stuck agents are looked for."""
END_SECONDS = 5.0
"""How long the end waits for agents that have jobs. Another scheduler than ours completes a failed
recipient without a diagnostic, and its sender is never told: what they answer has to be recorded.
"""
MAX_WAIT_SECONDS = 1.0
"""The longest wait: meanwhile the clock may be set, or the spool frozen."""


class SchedulerLoop:
    """A scheduler without signals and sockets: those are added by `add_reader`."""

    def __init__(
        self,
        parts: SchedulerParts,
        limits: AgentLimits,
        recover: Callable[[], None],
        *,
        is_synchronous: bool = False,
        is_frozen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`recover` completes what a dead agent has begun; `is_synchronous`: read all files before
        the first agent is started (option -S); `is_frozen`: start none, asked in each turn."""
        self.parts = parts
        self.flow = MessageFlow(parts)
        self._selector = selectors.DefaultSelector()
        handlers = AgentHandlers(
            self.flow.answered, self.flow.resync, parts.log, parts.trace, recover
        )
        self.agents = RunningAgents(parts.work, self._selector, handlers, limits)
        self._is_synchronous = is_synchronous
        self._is_frozen = is_frozen
        self._tidy_at = self._report_at = 0.0
        self._report_seconds = float("inf")
        self._end_at = float("inf")
        self._given: dict[int, QueuedMessage] = {}
        """The messages that agents had at the stop."""
        self.is_ended = False
        self.has_scanned = False
        """True once all files that were there at the start have been read."""
        self.every_turn: list[Callable[[], object]] = []
        """Called in each turn, at least once a second."""

    def add_reader(self, source: int, handle: Callable[[], object]) -> None:
        """Call a function whenever a descriptor can be read."""
        self._selector.register(source, selectors.EVENT_READ, handle)

    def step(self, seconds: float = 0.0) -> None:
        """Handle what is there, after waiting for at most so many seconds."""
        for key, _ in self._selector.select(self._wait_seconds(seconds)):
            if not isinstance(key.data, Agent):
                key.data()
            elif key.data.pid in self.agents.agents:
                self.agents.handle(key.data, self.parts.clock())
        for call in self.every_turn:
            call()
        now = self.parts.clock()
        self.agents.handle_left(now)
        self._take_arrivals()
        self.flow.step()
        if now >= self._tidy_at or now < self._tidy_at - TIDY_SECONDS:
            self._tidy_at = now + TIDY_SECONDS
            self.agents.tidy(now)
        if now >= self._report_at and self._report_seconds < float("inf"):
            self._report_at = now + self._report_seconds
            self.flow.report_failures()
            self.flow.report_delays()
        self.parts.table.ready.is_frozen = self._is_frozen()
        if not self._is_synchronous:
            self.agents.start_all(now)
            self.agents.make_room(now)
        self.parts.places.flush()

    def _wait_seconds(self, most: float) -> float:
        now = self.parts.clock()
        due = self.parts.table.timers.agenda.next_due()
        waits = [
            most,
            MAX_WAIT_SECONDS,
            self.parts.arrivals.next_due() - self.parts.monotonic(),
            self._tidy_at - now,
            *([due - now] if due is not None else []),
            *([self.agents.wait_until - now] if self.agents.wait_until > now else []),
            *([0.0] if self.agents.has_lines() else []),
        ]
        return max(0.0, min(waits))

    def check_now(self) -> None:
        """Look for new files in the next step."""
        self.parts.arrivals.scan_soon()

    def report_every(self, seconds: float) -> None:
        """Report what has failed in unfinished messages so often; also now."""
        self._report_seconds, self._report_at = seconds, 0.0

    def end(self) -> None:
        """As `stop`, but end the loop after at most `END_SECONDS`, the second time after this turn;
        agents that still have jobs then finish them by themselves."""
        if self._end_at < float("inf"):
            self.is_ended = True
            return
        self._end_at = self.parts.monotonic() + END_SECONDS
        self.stop()
        self.parts.log(f"ending: {len(self._given):,} messages in delivery")

    def stop(self) -> None:
        """Ask all agents to end, and end the loop when they have."""
        given = [job for work in self.parts.work.agents.values() for job in work.outstanding]
        self._given |= {job.message.number: job.message for job in given}
        self.agents.stop(self.parts.clock())

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until `until` is true, `is_ended` is set, or all agents have ended after `stop`."""
        while not (self.is_ended or until()):
            if self.agents.is_stopping and not self.agents.agents:
                break
            if self.parts.monotonic() >= self._end_at:
                break
            self.step(min(MAX_WAIT_SECONDS, max(0.0, self._end_at - self.parts.monotonic())))
        if self.agents.is_stopping:
            self._record_lost()

    def _record_lost(self) -> None:
        """Write the diagnostics that are missing in messages that agents had: an agent may have
        ended after the tag, and before its answer. Another scheduler would not."""
        for number, message in self._given.items():
            if number in self.parts.table.messages:  # else it is complete
                try:
                    self.parts.outcomes.record_lost(message)
                except (OSError, Refused) as error:
                    self.parts.log(f"{message.path}: {error}")

    def _take_arrivals(self) -> None:
        arrivals, monotonic = self.parts.arrivals, self.parts.monotonic()
        arrivals.scan(monotonic)
        if arrivals.problem:
            self.parts.log(arrivals.problem)
        for name in arrivals.batch():
            self.flow.take(name)
        while arrivals.changed:
            self.flow.notice(arrivals.changed.pop())
        if not (len(arrivals) or arrivals.is_cut):
            self._is_synchronous, self.has_scanned = False, True
