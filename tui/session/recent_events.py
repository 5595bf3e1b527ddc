"""What the logs of a place say happened within the last hour, task by task."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.logs import task_events
from engine.logs.recent_lines import Recent
from engine.logs.task_events import Event, EventKind

MOST = 50_000
"""Events that are kept: some 20 MiB, and an hour of 14 tasks a second."""

STARTS = 1_000
"""Started tasks whose times are kept."""

AT_ONCE = 2
"""Polls of a log in one look; each reads about a megabyte, and the rest waits for the next look."""


class Doings:
    """Follows the logs of one place from an hour ago on; blocks, one thread at a time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._logs = [Recent(path) for path in paths]
        self._events: deque[Event] = deque(maxlen=MOST)
        self._transports: dict[str, str] = {}
        self.starts: deque[float] = deque(maxlen=STARTS)
        """When the last tasks were started, epoch seconds UTC."""

    def look(self, now: float) -> None:
        """Take in what was logged since; `now` in epoch seconds UTC."""
        for log in self._logs:
            for _ in range(AT_ONCE):
                new = list(task_events.read(log.poll(now), self._transports))
                self._events.extend(new)
                self.starts.extend(
                    e.when for e in new if e.what is EventKind.STARTED and e.when is not None
                )
                if not log.behind:
                    break

    @property
    def is_read(self) -> bool:
        """Whether each log is read to its end."""
        return not any(log.behind for log in self._logs)

    @property
    def events(self) -> tuple[Event, ...]:
        """What is known, each log in its own order."""
        return tuple(self._events)

    def close(self) -> None:
        """Let go of the logs."""
        for log in self._logs:
            log.close()
