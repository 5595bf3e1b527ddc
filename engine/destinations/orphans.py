"""Rows of the outbox without a task, and tasks without their row. Each function raises Unavailable
if the outbox or the store cannot be read."""

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

PASSES = 3
"""How often the tasks are read before a row counts as one without a task."""

UNFINISHED = frozenset({State.PENDING, State.ACTIVE, State.HELD})


class Orphans(NamedTuple):
    """Keys and ids in order."""

    rows: tuple[str, ...]
    """Keys of rows that no unfinished or dead task names."""
    tasks: tuple[str, ...]
    """Ids of unfinished tasks whose row is missing."""


def find_orphans(outbox: Outbox, store: ReadableStore, field: str) -> Orphans:
    """Compare the rows with the tasks whose JSON data has a key in `field`; reads every task.

    Both change meanwhile. A task that moves while the tasks are read may be missed, so a row is
    without a task only if each of `PASSES` passes found none, and the row is still there."""
    before = unmatched = outbox.keys()
    without: dict[str, str] = {}
    for _ in range(PASSES):
        keyed = [*_keyed_tasks(store, field)]
        unmatched = unmatched - {key for task, key in keyed if task.state is not State.DONE}
        without = without or {
            task.id: key for task, key in keyed if task.state in UNFINISHED and key not in before
        }
        if not unmatched:
            break
    rows = outbox.keys(unmatched)
    added = outbox.keys(set(without.values()))
    missing = {ident for ident, key in without.items() if key not in added}
    still = {task.id for task in _tasks(store, missing) if task.state in UNFINISHED}
    return Orphans(tuple(sorted(rows)), tuple(sorted(still & missing)))


def _tasks(store: ReadableStore, names: Collection[str]) -> Iterator[Task]:
    scanned = store.scan(names) if names else ()
    return (one for one in scanned if isinstance(one, Task))


def _keyed_tasks(store: ReadableStore, field: str) -> Iterator[tuple[Task, str]]:
    for task in _tasks(store, store.states.values()):
        data = read_data(store, task)
        if data is not None and (key := row_key(data, field)):
            yield task, key


def read_data(store: ReadableStore, task: Task) -> bytes | None:
    """The data of a task; None if it has none, or has changed since it was scanned."""
    for part in DATA_PARTS:
        with suppress(Gone, Unsupported):
            return store.read(task, part)
    return None


def row_key(data: bytes, field: str) -> str:
    """The key of a task's row, from a field of its JSON data; "" if it has none."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    key = fields.get(field) if isinstance(fields, dict) else None
    return str(key) if isinstance(key, str | int) else ""
