"""Checks of the registry of destinations, and of the outbox against the tasks."""

from __future__ import annotations

from collections.abc import Iterator

from engine.destinations.database import NoTable
from engine.destinations.destination import Registry
from engine.destinations.outbox import Outbox, find_orphans
from engine.doctor.finding import Finding, bad, hidden, join_first, ok, warn
from engine.store import ReadableStore, Unavailable
from engine.text.figures import format_count


def check_registry(registry: Registry) -> Finding:
    """Whether the registry can be read, and how many destinations get no deliveries."""
    try:
        destinations = registry.all()
    except NoTable as error:
        return hidden(f"{error} when it has something to record")
    except Unavailable as error:
        return bad(str(error), "correct `destinations`, or start the server")
    unhealthy = sum(not one.healthy for one in destinations)
    blocked = sum(bool(one.blocked) for one in destinations)
    text = f"{len(destinations):,} destinations, {unhealthy:,} unhealthy, {blocked:,} blocked"
    return ok(text)


def check_outbox(outbox: Outbox, store: ReadableStore, field: str) -> Iterator[Finding]:
    """Rows without a task, and tasks without their row."""
    try:
        rows, tasks = find_orphans(outbox, store, field)
    except Unavailable as error:
        yield bad(str(error), "correct `outbox`, or start the server")
        return
    if not rows and not tasks:
        yield ok(f"each row of {outbox.table} has its task")
    if rows:
        what = f"{format_count(len(rows), 'row')} of {outbox.table} without a task"
        yield warn(f"{what}: {join_first(rows)}", "add the tasks again, or delete the rows")
    if tasks:
        what = f"{format_count(len(tasks), 'task')} without a row of {outbox.table}"
        fix = "another program deleted the rows: purge the tasks"
        yield warn(f"{what}: {join_first(tasks)}", fix)
