"""How much tasks take up, with what belongs to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from engine.model import Task
from engine.operations.plans import Row
from engine.store import Gone, Store

GROUP = 100
"""Tasks that are weighed between two answers."""


def weigh(store: Store, rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    """Bytes, and how many tasks, of some rows after others; one that has changed counts 0 bytes.

    Raises:
        Unavailable: the store cannot be reached.
    """
    waiting = iter(rows)
    while batch := list(islice(waiting, GROUP)):
        wanted = {(row.id, row.state, row.rev) for row in batch}
        seen = store.look({row.id for row in batch})
        tasks = [t for t in seen if isinstance(t, Task) and (t.id, t.state, t.rev) in wanted]
        yield sum(size_of(store, task) for task in tasks), len(batch)


def size_of(store: Store, task: Task) -> int:
    """The bytes of a task and all that belongs to it, as far as they are known; 0 once it left."""
    try:
        return store.size(task)
    except Gone:
        return 0
