"""`trash`: what was purged, had back, or deleted for good once it is old."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import closing, suppress

from engine.model import State
from engine.operations import notes, trash
from engine.operations.sizes import size_of
from engine.operations.trash import Origin
from engine.policy import at
from engine.store import Unavailable
from engine.text.safe import shown
from tui.cli.plans import verbs
from tui.cli.plans.plan_command import DONE, OTHERWISE, placed
from tui.cli.setup.setup import EX_NOPERM, Setup, complain, fail
from tui.format import task_row
from tui.format.human import format_bytes, format_share


def list_trash(setup: Setup, arguments: Namespace) -> int:
    """What lies there, since when, how big, and where it came from."""
    with closing(setup.store()) as store:
        lying = list(trash.lying(store))
        came = trash.origins(setup.journal(), lying)
        sizes = {task.id: size_of(store, task) for task in lying}
        words = store.states
    for task in lying:
        origin, since = came[task.id], trash.since(task)
        if arguments.json:
            values = {
                **task_row.row(task, "trash"),
                "trash_since": since,
                "bytes": sizes[task.id],
                "from": words.get(origin.state, origin.state),
                "how": origin.words,
                "op": origin.op or None,
            }
            print(task_row.json_line(values), end="")
        else:
            cells = (task.id, at(since) if since else "?", format_bytes(sizes[task.id]))
            print(" | ".join(map(shown, (*cells, _origin(origin, words[origin.state])))))
    if not arguments.json:
        kept, quota = setup.config.trash.hours, setup.config.trash.quota
        full = format_share(sum(sizes.values()), quota)
        print(f"{len(lying):,} tasks, {full}; each is kept for {kept:g} hours")
    return DONE


def _origin(origin: Origin, word: str) -> str:
    op = f" ({origin.op})" if origin.op else ""
    return f"{word}: {origin.words}{op}"


def restore(setup: Setup, arguments: Namespace) -> int:
    """These tasks back where they came from."""
    places = [word for word in arguments.words if "/" in word]
    if places:
        setup = placed(setup, arguments, places)
    arguments.id = [word for word in arguments.words if word not in places]
    arguments.state = arguments.filter = ""
    return verbs.restore_named(setup, arguments)


def sweep(setup: Setup, arguments: Namespace) -> int:
    """Delete for good what lies there for longer than the setting says."""
    hours = setup.config.trash.hours
    if not arguments.dry_run:
        setup.require_change()
    with closing(setup.store()) as store:
        if arguments.dry_run:
            amount = 0
            for task in trash.discarded(store, time.time(), hours):
                amount += 1
                print(f"would delete for good {shown(task.id)}")
            print(f"{amount:,} purged more than {hours:g} hours ago; nothing was changed")
            return DONE
        if refused := store.edges[State.TRASH, None].refused:
            fail(EX_NOPERM, shown(refused))
        swept = setup.sweep(store, time.time(), always=True)
        forgotten = 0
        with suppress(Unavailable):
            forgotten = notes.sweep(setup.notes(), store)
    more = f", {swept.files:,} files of the journal" if swept.files else ""
    more += f", notes on {forgotten:,} tasks" if forgotten else ""
    print(f"{swept.tasks:,} tasks deleted for good{more}")
    if swept.left:
        complain(f"{swept.left:,} could not be deleted, or were taken elsewhere meanwhile")
    return OTHERWISE if swept.left else DONE
