"""Sizes of tasks in bytes, with their payloads and other parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from engine.model import Task
from engine.operations.plans import Row
from engine.store import Gone, ReadableStore

BATCH_TASKS = 100
"""Tasks that are measured between two results."""
MAX_MEASURED_TASKS = 10_000
"""Tasks of a plan that are measured: each is read, and a million would take minutes."""


def measure_tasks(store: ReadableStore, rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    """Yield the bytes and the number of tasks of each batch of rows; a changed task counts 0 bytes.

    Raises:
        Unavailable: the store cannot be reached.
    """
    waiting = iter(rows)
    while batch := list(islice(waiting, BATCH_TASKS)):
        versions = {(row.id, row.state, row.rev) for row in batch}
        scanned = store.scan({row.id for row in batch})
        tasks = [t for t in scanned if isinstance(t, Task) and (t.id, t.state, t.rev) in versions]
        yield sum(task_bytes(store, task) for task in tasks), len(batch)


def task_bytes(store: ReadableStore, task: Task) -> int:
    """The known bytes of a task and all its parts; 0 if it has left."""
    try:
        return store.size(task)
    except Gone:
        return 0
