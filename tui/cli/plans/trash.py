"""`trash`: list purged tasks, restore them, and delete old ones permanently."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from engine.formats.base.format import Setup
from engine.model import State, Task
from engine.operations import notes, trash
from engine.operations.plans import task_bytes
from engine.store import Unavailable
from engine.system.command_errors import EX_NOPERM, fail, print_error
from engine.text.figure import UNKNOWN
from engine.text.figures import format_bytes, format_share
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.plans.plan_command import DONE, NOT_ALL_DONE
from tui.cli.setup.output import Answer, show_progress
from tui.text import task_row


def list_trash(setup: Setup) -> Answer:
    """Print the tasks in the trash: since when, size, former state."""
    with closing(setup.open_store()) as store:
        lying = list(show_progress(trash.trashed_tasks(store), "tasks read"))
        origins = trash.find_origins(setup.journal(), lying)
        measured = show_progress(lying, "tasks measured")
        sizes = {task.id: task_bytes(store, task) for task in measured}
        words = store.states

    def values(task: Task) -> dict[str, object]:
        origin = origins[task.id]
        return {
            **task_row.task_row(task, "trash"),
            **task_row.time_fields("trash_since", trash.trashed_at(task)),
            "bytes": sizes[task.id],
            "from": words.get(origin.state, origin.state),
            "how": origin.evidence,
            "op": origin.op or None,
        }

    def lines() -> Iterator[str]:
        for task in lying:
            since, origin = trash.trashed_at(task), origins[task.id]
            where = f"{words[origin.state]}: {origin.evidence}"
            where += f" ({origin.op})" if origin.op else ""
            when = format_time(since) if since else UNKNOWN
            cells = (task.id, when, format_bytes(sizes[task.id]), where)
            yield " | ".join(map(safe_line, cells))
        retention_hours, quota = setup.config.trash.hours, setup.config.trash.quota
        full = format_share(sum(sizes.values()), quota)
        tasks = "1 task" if len(lying) == 1 else f"{len(lying):,} tasks"
        yield f"{tasks}, {full}; each is kept for {retention_hours:g} hours"

    return Answer(lambda: map(values, lying), lines)


def sweep(setup: Setup, *, dry_run: bool) -> Answer:
    """Delete the tasks that were in the trash longer than the retention time."""
    hours = setup.config.trash.hours
    if not dry_run:
        setup.require_writable()
    with closing(setup.open_store()) as store:
        if dry_run:
            clock_reading = setup.run_clock().read(time.time())
            expired = [task.id for task in trash.expired_tasks(store, clock_reading.age, hours)]
            ended = f"{len(expired):,} purged more than {hours:g} hours ago; nothing was changed"
            return Answer(
                lambda: {"dry_run": True, "expunged": len(expired), "left": 0, "notes": 0},
                lambda: [*(f"would delete permanently {safe_line(id)}" for id in expired), ended],
            )
        expunge = store.edges.get((State.TRASH, None))
        if expunge is not None and expunge.refusal:
            fail(EX_NOPERM, expunge.refusal)
        watch = partial(show_progress, what="tasks deleted")
        keeper = setup.housekeeping()
        swept = keeper.sweep_trash(store, time.time(), always=True, watch=watch)
        forgotten = 0
        with suppress(Unavailable):
            forgotten = notes.sweep_notes(setup.notes(), store)
    more = f", {swept.files:,} journal files" if swept.files else ""
    more += f", notes on {forgotten:,} tasks" if forgotten else ""
    if swept.left:
        print_error(f"{swept.left:,} could not be deleted, or were changed by another process")
    counts = {"expunged": swept.tasks, "left": swept.left, "notes": forgotten}
    return Answer(
        lambda: {"dry_run": False, **counts},
        lambda: [f"{swept.tasks:,} tasks deleted permanently{more}"],
        NOT_ALL_DONE if swept.left else DONE,
    )
