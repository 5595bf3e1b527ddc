"""Rows of the outbox without a task, and tasks without their row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from engine.destinations.outbox import Outbox
from engine.model import State, Task
from engine.store import Gone, ReadableStore, Unsupported

DATA_PARTS = ("data", "payload")
"""Names of the part of a task that has its data, in the formats."""

MAX_READS = 3
"""Scans of a task that moves while it is read."""

UNFINISHED = frozenset({State.PENDING, State.ACTIVE, State.HELD})


class Orphans(NamedTuple):
    """Keys and ids in order."""

    rows: tuple[str, ...]
    """Keys of rows that no unfinished or dead task names."""
    tasks: tuple[str, ...]
    """Ids of unfinished tasks whose row is missing."""


def find_orphans(outbox: Outbox, store: ReadableStore, field: str) -> Orphans:
    """Compare the rows with the tasks whose JSON data has a key in `field`; reads every task.

    Both change meanwhile: what differs is read once more, and only what still differs counts.

    Raises:
        Unavailable: the outbox or the store cannot be read.
    """
    before = outbox.keys()
    named: set[str] = set()
    without: dict[str, str] = {}
    for task, key in _keyed_tasks(store, field, store.states.values()):
        if task.state is not State.DONE:
            named.add(key)
        if key not in before and task.state in UNFINISHED:
            without[task.id] = key
    rows = outbox.keys(before - named)
    added = outbox.keys(set(without.values()))
    missing = {ident for ident, key in without.items() if key not in added}
    still = {task.id for task in _tasks(store, missing) if task.state in UNFINISHED}
    return Orphans(tuple(sorted(rows)), tuple(sorted(still & missing)))


def _tasks(store: ReadableStore, names: Collection[str]) -> Iterator[Task]:
    found = store.scan(names) if names else ()
    return (one for one in found if isinstance(one, Task))


def _keyed_tasks(
    store: ReadableStore, field: str, names: Collection[str]
) -> Iterator[tuple[Task, str]]:
    """The tasks that name a row. One that moves between scan and read is scanned again."""
    seen: dict[str, str] = {}
    for _ in range(MAX_READS):
        moved = {}
        for task in _tasks(store, names):
            if seen.get(task.id) == task.rev:
                continue  # it has no data
            data = read_data(store, task)
            if data is None:
                moved[task.id] = task.rev
            elif key := row_key(data, field):
                yield task, key
        names, seen = moved.keys(), moved
    # Those that moved each time are at work: their rows are read again after this.


def read_data(store: ReadableStore, task: Task) -> bytes | None:
    """The data of a task; None if it has none, or has changed since it was scanned.

    Raises:
        Unavailable: it cannot be read now.
    """
    for part in DATA_PARTS:
        with suppress(Gone, Unsupported):
            return store.read(task, part)
    return None


def row_key(data: bytes, field: str) -> str:
    """The key of a task's row, from a field of its JSON data; "" if it has none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    key = found.get(field) if isinstance(found, dict) else None
    return str(key) if isinstance(key, str | int) else ""
