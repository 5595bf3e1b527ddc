"""Checks of the registry of destinations, and of the outbox against the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.destinations.database import NoTable
from engine.destinations.destination import Registry
from engine.destinations.outbox import Outbox, find_orphans
from engine.doctor.finding import MAX_LISTED, Finding, Grade
from engine.store import ReadableStore, Unavailable


def check_registry(registry: Registry) -> Finding:
    """Whether the registry can be read, and how many destinations get no deliveries."""
    try:
        destinations = registry.all()
    except NoTable as error:
        return Finding(Grade.HIDDEN, f"{error} when it has something to record")
    except Unavailable as error:
        return Finding(Grade.BAD, str(error), "correct `destinations`, or start the server")
    unhealthy = sum(not one.healthy for one in destinations)
    blocked = sum(bool(one.blocked) for one in destinations)
    text = f"{len(destinations):,} destinations, {unhealthy:,} unhealthy, {blocked:,} blocked"
    return Finding(Grade.OK, text)


def check_outbox(outbox: Outbox, store: ReadableStore, field: str) -> Iterator[Finding]:
    """Rows without a task, and tasks without their row."""
    try:
        rows, tasks = find_orphans(outbox, store, field)
    except Unavailable as error:
        yield Finding(Grade.BAD, str(error), "correct `outbox`, or start the server")
        return
    if not rows and not tasks:
        yield Finding(Grade.OK, f"each row of {outbox.table} has its task")
    if rows:
        what = f"{_count(rows, 'row')} of {outbox.table} without a task: {_first(rows)}"
        yield Finding(Grade.WARN, what, "add the tasks again, or delete the rows")
    if tasks:
        what = f"{_count(tasks, 'task')} without a row of {outbox.table}: {_first(tasks)}"
        yield Finding(Grade.WARN, what, "another program deleted the rows: purge the tasks")


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names):,} {noun}{'s' if len(names) > 1 else ''}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
