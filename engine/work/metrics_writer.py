"""Write the metrics file of a place while a worker runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.config.queue_config import Queue
from engine.model import State, Task
from engine.monitor import prometheus
from engine.monitor.prometheus import CounterFiles, QueueGauges
from engine.store import ReadableStore, StoreError
from engine.system import files
from engine.system.command_errors import print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line

COUNT_COST_FACTOR = 20
"""After counting, wait at least this many times as long as counting took. Counting takes longer
with more tasks, and no mail is sent during it."""


def count_tasks(store: ReadableStore, now: float) -> QueueGauges:
    """Count the pending, active and dead tasks of a place by a scan; raises `Unavailable`."""
    counts = dict.fromkeys((State.PENDING, State.ACTIVE, State.DEAD), 0)
    oldest = now
    for task in store.scan([store.states[state] for state in counts if state in store.states]):
        if isinstance(task, Task) and task.state in counts:
            counts[task.state] += 1
            if task.state is State.PENDING and task.created:
                oldest = min(oldest, task.created)
    pending, working, dead = counts.values()
    return QueueGauges(pending, working, dead, now - oldest)


class MetricsWriter:
    """Writes the metrics file of a place while a worker runs and when it ends."""

    def __init__(
        self,
        queue: Queue,
        counters: CounterFiles,
        gauges: Callable[[float], QueueGauges],
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gauges` counts the queue at a time; it may raise StoreError or OSError."""
        self._queue, self._counters, self._gauges = queue, counters, gauges
        self._clock, self._timer = clock, timer
        self._due = float("-inf")
        self._reported_error = ""

    def write_if_due(self) -> None:
        """Write the file, unless the last write took long and was recent (`COUNT_COST_FACTOR`)."""
        began = self._timer()
        if began >= self._due:
            self.write()
            ended = self._timer()
            self._due = ended + COUNT_COST_FACTOR * (ended - began)

    def write(self) -> None:
        """Write the file; report an error once, and never raise it."""
        path, now = self._queue.queue_metrics, self._clock()
        try:
            totals = {name: self._counters.read(name) for name in prometheus.QUEUE_COUNTERS}
            text = prometheus.render_queue(self._gauges(now), totals, now)
            text = prometheus.add_place(text, self._queue.place_label)
            files.replace_file(path, text, root=self._queue.root)
            trouble = ""
        except (OSError, StoreError) as error:
            trouble = f"{safe_line(path)}: {safe_line(error_text(error))}"
        if trouble and trouble != self._reported_error:
            print_error(trouble)
        self._reported_error = trouble
