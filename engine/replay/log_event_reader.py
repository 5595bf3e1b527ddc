"""What logs and counters say from now on: the ears of whoever waits for what becomes of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.logs import task_events
from engine.logs.recent_lines import Recent
from engine.logs.task_events import Event
from engine.monitor import prometheus

FINISHED = "nftban_queue_tasks_processed_total"
"""The metric that counts tasks which were run, and done."""

AT_ONCE = 8
"""Polls of a log in one call; each reads about a megabyte, and the rest waits for the next."""


class LogEventReader:
    """The events of some logs from when it is first called on; each call gives what is new.

    Blocks, one thread at a time. A log that is not there yet is read from its beginning once it is.
    """

    def __init__(self, paths: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        """The logs of one place."""
        self._logs = [Recent(path, reach=0.0) for path in paths]
        self._clock = clock
        self._transports: dict[str, str] = {}
        self._begun = False

    def __call__(self) -> list[Event]:
        """What was logged since the last call; nothing at the first."""
        told: list[Event] = []
        for log in self._logs:
            polls = 0
            while polls == 0 or (log.behind and (polls < AT_ONCE or not self._begun)):
                told += task_events.read(log.poll(self._clock()), self._transports)
                polls += 1
        told, self._begun = (told if self._begun else []), True
        return told

    def close(self) -> None:
        """Let go of the logs."""
        for log in self._logs:
            log.close()


def nothing() -> Sequence[Event]:
    """Where there is no log."""
    return ()


def not_counted() -> int | None:
    """Where nothing is counted."""
    return None


def finished_in(path: str) -> Callable[[], int | None]:
    """What asks a `queue.prom` how many tasks were run and done; None where it does not say."""

    def finished() -> int | None:
        try:
            value = prometheus.read(path).get(FINISHED)
        except (OSError, prometheus.BadMetrics):
            return None
        return None if value is None else int(value)

    return finished if path else not_counted
