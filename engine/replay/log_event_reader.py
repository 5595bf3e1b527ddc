"""Read new log events and the processed-counter for a running replay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.logs import task_events
from engine.logs.recent_lines import RecentLines
from engine.logs.task_events import TaskEvent
from engine.monitor import prometheus

PROCESSED_METRIC = "nftban_queue_tasks_processed_total"
"""Metric of tasks that were run successfully."""

MAX_POLLS = 8
"""Polls of one log in one call; each reads about 1 MB, the rest waits for the next call."""


class LogEventReader:
    """Callable that returns the events added to some logs since the previous call.

    Blocks; use it from one thread at a time. A log that does not exist yet is read from its
    beginning once it exists.
    """

    def __init__(self, paths: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        """`paths` are the logs of one place."""
        self._logs = [RecentLines(path, reach=0.0) for path in paths]
        self._clock = clock
        self._transports: dict[str, str] = {}
        self._begun = False

    def __call__(self) -> list[TaskEvent]:
        """Return the events since the last call; none at the first call."""
        events: list[TaskEvent] = []
        for log in self._logs:
            polls = 0
            while polls == 0 or (log.is_behind and (polls < MAX_POLLS or not self._begun)):
                events += task_events.read_events(log.poll(self._clock()), self._transports)
                polls += 1
        events, self._begun = (events if self._begun else []), True
        return events

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs:
            log.close()


def no_events() -> Sequence[TaskEvent]:
    """Return no events: for a place without logs."""
    return ()


def no_count() -> int | None:
    """Return None: for a place without counters."""
    return None


def make_processed_reader(path: str) -> Callable[[], int | None]:
    """Return a function that reads the number of processed tasks from a `queue.prom`; it returns
    None if the file does not have it."""

    def finished() -> int | None:
        try:
            value = prometheus.read_metrics(path).get(PROCESSED_METRIC)
        except (OSError, prometheus.BadMetrics):
            return None
        return None if value is None else int(value)

    return finished if path else no_count
