"""`trash`: list purged tasks, restore them, and delete old ones permanently."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import closing, suppress
from functools import partial

from engine.formats.base.format import Setup
from engine.model import State
from engine.operations import notes, trash
from engine.operations.plans import task_bytes
from engine.operations.trash import Origin
from engine.store import Unavailable
from engine.system.command_errors import EX_NOPERM, fail, print_error
from engine.text.figure import UNKNOWN
from engine.text.figures import format_bytes, format_share
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.plans import verbs
from tui.cli.plans.plan_command import DONE, NOT_ALL_DONE
from tui.cli.setup.output import print_json, show_progress
from tui.text import task_row


def list_trash(setup: Setup, arguments: Namespace) -> int:
    """Print the tasks in the trash: since when, size, former state."""
    with closing(setup.open_store()) as store:
        lying = list(show_progress(trash.trashed_tasks(store), "tasks read"))
        origins = trash.find_origins(setup.journal(), lying)
        measured = show_progress(lying, "tasks measured")
        sizes = {task.id: task_bytes(store, task) for task in measured}
        words = store.states
    for task in lying:
        origin, since = origins[task.id], trash.trashed_at(task)
        if arguments.json:
            values = {
                **task_row.task_row(task, "trash"),
                **task_row.time_fields("trash_since", since),
                "bytes": sizes[task.id],
                "from": words.get(origin.state, origin.state),
                "how": origin.evidence,
                "op": origin.op or None,
            }
            print(task_row.json_line(values), end="")
        else:
            cells = (
                task.id,
                format_time(since) if since else UNKNOWN,
                format_bytes(sizes[task.id]),
            )
            print(" | ".join(map(safe_line, (*cells, _origin(origin, words[origin.state])))))
    if not arguments.json:
        retention_hours, quota = setup.config.trash.hours, setup.config.trash.quota
        full = format_share(sum(sizes.values()), quota)
        tasks = "1 task" if len(lying) == 1 else f"{len(lying):,} tasks"
        print(f"{tasks}, {full}; each is kept for {retention_hours:g} hours")
    return DONE


def _origin(origin: Origin, word: str) -> str:
    op = f" ({origin.op})" if origin.op else ""
    return f"{word}: {origin.evidence}{op}"


def restore(setup: Setup, arguments: Namespace) -> int:
    """Restore these tasks to their former states."""
    arguments.id = arguments.ids
    arguments.state = arguments.filter = ""
    return verbs.restore_named(setup, arguments)


def sweep(setup: Setup, arguments: Namespace) -> int:
    """Delete the tasks that were in the trash longer than the retention time."""
    hours = setup.config.trash.hours
    if not arguments.dry_run:
        setup.require_writable()
    with closing(setup.open_store()) as store:
        if arguments.dry_run:
            amount = 0
            clock_reading = setup.run_clock().read(time.time())
            for task in trash.expired_tasks(store, clock_reading.age, hours):
                amount += 1
                if not arguments.json:
                    print(f"would delete permanently {safe_line(task.id)}")
            if arguments.json:
                print_json({"dry_run": True, "expunged": amount, "left": 0, "notes": 0})
                return DONE
            print(f"{amount:,} purged more than {hours:g} hours ago; nothing was changed")
            return DONE
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
    if arguments.json:
        counts = {"expunged": swept.tasks, "left": swept.left, "notes": forgotten}
        print_json({"dry_run": False, **counts})
    else:
        print(f"{swept.tasks:,} tasks deleted permanently{more}")
    if swept.left:
        print_error(f"{swept.left:,} could not be deleted, or were changed by another process")
    return NOT_ALL_DONE if swept.left else DONE
