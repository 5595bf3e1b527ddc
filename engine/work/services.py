"""What a worker gets besides its store: callbacks and settings; and its timed writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from engine.model import Task
from engine.text.safe import contract_error
from engine.values import NamedTuple

RETENTION_INTERVAL_SECONDS = 3600.0

METRICS_INTERVAL_SECONDS = 5.0
"""Seconds between two writes of the metrics while there is always work."""

COUNTS_INTERVAL_SECONDS = 1.0
"""Seconds between two writes of the counters under load: a killed worker loses no more."""

REACHED_AGAIN = "Queue is reached again"
"""The line of the log after failures to reach the queue."""


class RateLimits(Protocol):
    """Rate limits by kind, such as `engine.locks.token_buckets.TokenBuckets`."""

    def is_limited(self, kind: str) -> bool:
        """False if a kind needs no tokens."""

    def ready(self, kind: str) -> bool:
        """True if a token is available; takes none."""

    def spend(self, kind: str) -> bool:
        """Take a token; False if there is none."""

    def token_at(self, kind: str) -> float:
        """Time of the next token, epoch seconds UTC."""


class WorkerServices(NamedTuple):
    """Callbacks and settings that the worker gets besides its store."""

    log: Callable[[str, str], None] = lambda level, text: None
    """Writes one line to the queue's log: level and text."""
    alert: Callable[[str], None] = lambda text: None
    """Sends an alert to the operator when a task goes to the dead-letter queue."""
    add_count: Callable[[str], None] = lambda name: None
    """Adds 1 to one of the counters processed, failed, retries, dlq (`_total`)."""
    write_log: Callable[[], None] = lambda: None
    """Writes the lines that `log` kept back; called before a handler starts, a wait and the end."""
    write_counts: Callable[[], None] = lambda: None
    """Writes the counts kept back; called when idle, at the end, each `COUNTS_INTERVAL_SECONDS`."""
    publish: Callable[[], None] = lambda: None
    """Writes the metrics."""
    apply_retention: Callable[[], None] = lambda: None
    """Applies retention: deletes tasks that have been dead for too long."""
    quarantine: Callable[[Callable[[], bool]], bool] = lambda is_stopping: False
    """Quarantines some of the unreadable files found by the last take; called only under the lock,
    with a function that returns True once the worker has to stop. Returns True if files were moved
    and more are left."""
    limits: RateLimits | None = None
    before_giving_up: Callable[[Task], None] = lambda task: None
    """Called before a task is stored as given up, with the new value. If it raises StoreError or
    OSError, the task stays claimed and the call is repeated later."""
    after_outcome: Callable[[Task, str], None] = lambda task, row: None
    """Called when the store has the outcome of a task that named a database row, with the task as
    it was claimed and the key of the row. It must neither raise nor wait."""
    shorten_error: Callable[[str], str] = contract_error
    """Shortens an error for the task file and the log: the contract allows few characters."""
    gate: Callable[[str], tuple[str, float | None]] = lambda kind: ("", None)
    """Returns why no task of a kind may be claimed now ("" if one may), and the time from which one
    may, epoch seconds UTC (None: not known). Never raises; called once per kind and scan."""
    slots: Mapping[str, int] = {}
    """Maximum number of concurrent tasks of a kind, if not 1 or the total."""
    timeouts: Mapping[str, float] = {}
    """Seconds after which the handler of a kind ends by itself; not known for other kinds."""
    data_kinds: Collection[str] = ()
    """Kinds whose handlers get the task's data, if the store has any."""
    logs_waits: bool = False
    """Adds the wait to the log line of a start; the contract's has none: its ids have the time."""


class TimedWrites:
    """The writes of a run that are due from time to time."""

    def __init__(self, services: WorkerServices, now: float) -> None:
        self._services = services
        self._retired = self._published = self._counted = now

    def write_due(self, now: float, *, idle: bool, stays: bool) -> None:
        """Write the log, and the counts if idle or if the last ones are old. With `stays`, also
        the metrics, and apply retention if it is time."""
        if idle or now - self._counted >= COUNTS_INTERVAL_SECONDS:
            self._services.write_counts()
            self._counted = now
        if stays and (idle or now - self._published >= METRICS_INTERVAL_SECONDS):
            self._services.publish()
            self._published = now
        if stays and now - self._retired >= RETENTION_INTERVAL_SECONDS:
            self._services.apply_retention()
            self._retired = now
        self._services.write_log()
