"""Task events of the last hour, read from a place's logs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from engine.logs import task_events
from engine.logs.recent_lines import RecentLines
from engine.logs.task_events import EventKind, TaskEvent
from engine.monitor.latency import LatencyMeter
from engine.values import NamedTuple

MAX_EVENTS = 40_000
"""Maximum events kept: about 12 MiB, one hour of 4 tasks per second, each with three events."""

MAX_STARTS = 1_000

LACK_SHOWN_SECONDS = 3600.0
"""Seconds for which a lack is current: twice as long as until a worker reports it again."""

POLLS_PER_READ = 2
"""Polls of a log per call; each reads about 1 MB, and the rest waits for the next call."""


class EventMemory(NamedTuple):
    """A copy of the task events in memory, for the screens of a past time."""

    events: tuple[TaskEvent, ...] = ()
    """In the order of each log."""
    latency: LatencyMeter = LatencyMeter()
    since: float = inf
    """Epoch seconds UTC from which on every event is in memory; infinity: not known."""
    began: float = inf
    """When the first of the logs began, as far as read, epoch seconds UTC; infinity: not known."""


NO_EVENTS = EventMemory()


class RecentTaskEvents:
    """Follows a place's logs from one hour ago on; blocks; for one thread at a time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._logs = [RecentLines(path) for path in paths]
        self._events: deque[TaskEvent] = deque(maxlen=MAX_EVENTS)
        self._transports: dict[str, str] = {}
        self.starts: deque[float] = deque(maxlen=MAX_STARTS)
        """Start times of the last started tasks, epoch seconds UTC."""
        self.lacks: dict[str, TaskEvent] = {}
        """The line about what the workers lack, by kind, if no task of the kind was tried since."""
        self.latency = LatencyMeter()
        """Waits and runs of the tasks."""

    def read_new(self, now: float) -> None:
        """Read new log lines; `now` in epoch seconds UTC."""
        for log in self._logs:
            for _ in range(POLLS_PER_READ):
                new = list(task_events.read_events(log.poll(now), self._transports))
                self._events.extend(new)
                for event in new:
                    if event.what is EventKind.LACKING:
                        self.lacks[event.kind] = event
                    elif event.what in (EventKind.SUCCEEDED, EventKind.FAILED):
                        self.lacks.pop(event.kind, None)
                self.latency.add(new, log.since)
                self.starts.extend(
                    e.when for e in new if e.what is EventKind.STARTED and e.when is not None
                )
                if not log.is_behind:
                    break

    def current_lacks(self, now: float) -> tuple[TaskEvent, ...]:
        """What the workers lack; a worker repeats its line while that is so."""
        lacks = self.lacks.values()
        return tuple(e for e in lacks if e.when is None or now - e.when < LACK_SHOWN_SECONDS)

    @property
    def is_read(self) -> bool:
        """True if each log was read to its end."""
        return not any(log.is_behind for log in self._logs)

    @property
    def began(self) -> float:
        """When the first of the logs began, as in `EventMemory`."""
        return min((log.began for log in self._logs), default=inf)

    @property
    def events(self) -> tuple[TaskEvent, ...]:
        """All events read, in the order of each log."""
        return tuple(self._events)

    def copy(self) -> EventMemory:
        """A copy of what is in memory now, each part in one step: any thread may ask."""
        since = [inf if log.since is None else log.since for log in self._logs if self.is_read]
        if len(self._events) == MAX_EVENTS:
            since.append(self._events[0].when or inf)
        return EventMemory(self.events, self.latency.copy(), max(since, default=inf), self.began)

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs:
            log.close()
