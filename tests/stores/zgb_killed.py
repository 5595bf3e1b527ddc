"""Ends a process at every statement of one verb: run by test_zgb_crash.py, in a process of its own.

`zgb_killed.py FOLDER VERB JOURNAL` makes a mail queue below FOLDER in which the verb has something
to do, and copies it for each statement that the verb has carried out by SQLite: a child opens the
copy and ends there, before that statement, with nothing tidied up. Answers with a line `NAME HOW`
for each: `killed`, or `done` for the one that came to the end.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import verbs
from engine.model import Move, State, Task
from engine.stores.zgb import Pace, Place, ZgbStore, create

NOW = 1_795_170_000.0
IDS = ("1001-user", "1002-user")

Act = Callable[[ZgbStore, list[Task]], object]


def moved(state: State) -> Act:
    """Both jobs into a state, in one lot."""
    return lambda store, tasks: list(
        store.swap_all(Move(task, replace(task, state=state, lease=None)) for task in tasks)
    )


VERBS: dict[str, tuple[State | None, Act]] = {
    "enqueue": (None, lambda store, tasks: [store.enqueue(n, ["user"]) for n in (1001, 1002)]),
    "take": (State.PENDING, lambda store, tasks: list(store.take(NOW, "me", 9))),
    "ack": (State.ACTIVE, lambda store, tasks: [store.swap(task, None) for task in tasks]),
    "nack": (
        State.ACTIVE,
        lambda store, tasks: [store.swap(t, verbs.nack(t, NOW + 60, "no")) for t in tasks],
    ),
    "bury": (
        State.ACTIVE,
        lambda store, tasks: [store.swap(t, verbs.bury(t, "no", 1)) for t in tasks],
    ),
    "retry": (
        State.DEAD,
        lambda store, tasks: [
            store.swap(t, verbs.along(store.edges, t, verbs.retry(t, NOW))) for t in tasks
        ],
    ),
    "retry all": (State.DEAD, lambda store, tasks: store.control("retryFailed")),
    "recover": (State.ACTIVE, lambda store, tasks: list(store.take(NOW + 301, "me", 9))),
    "hold": (State.PENDING, moved(State.HELD)),
    "release": (State.HELD, moved(State.PENDING)),
    "park": (State.HELD, moved(State.DEAD)),
    "purge": (State.PENDING, moved(State.TRASH)),
    "purge the held": (State.HELD, moved(State.TRASH)),
    "restore": (State.TRASH, moved(State.PENDING)),
    "expunge": (State.TRASH, lambda s, tasks: list(s.swap_all(Move(t, None) for t in tasks))),
}
"""Where the two jobs stand before, and what is done to them."""


def place_at(path: str) -> Place:
    """A queue that may send five."""
    return Place(path, pace=Pace(), durable=False)


def there(store: ZgbStore) -> list[Task]:
    """Both jobs as they stand."""
    return [t for i in IDS for t in store.look({i}) if isinstance(t, Task)]


def prepare(path: str, state: State | None, journal: str) -> None:
    """A queue with both jobs in a state."""
    create(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("INSERT INTO registrations VALUES (1001, 0), (1002, 0)")
        db.execute(
            "INSERT INTO config VALUES ('mailQueueEnabled', '1'), ('mailMaxPerHour', '60'),"
            f" ('mailTokens', '5'), ('mailLastRefill', '{int(NOW)}')"
        )
    with closing(ZgbStore(place_at(path), lambda: NOW)) as store:
        if state is None:
            return
        for number in (1001, 1002):
            store.enqueue(number, ["user"])
        if state in (State.ACTIVE, State.DEAD):
            for task in store.take(NOW, "me", 9):
                if state is State.DEAD:
                    store.swap(task, verbs.bury(task, "no", 1))
        elif state is not State.PENDING:
            moved(state)(store, there(store))


class Mortal(sqlite3.Connection):
    """A connection in which the so many-th statement of all ends the process."""

    left = -1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.set_trace_callback(self._count)

    @staticmethod
    def _count(statement: str) -> None:
        if Mortal.left == 0:
            os._exit(9)
        Mortal.left -= 1


def run(folder: Path, template: Path, act: Act, step: int) -> str:
    """One copy, one child, one end; how it was."""
    shutil.copytree(template, folder)
    child = os.fork()
    if child == 0:
        plain = sqlite3.connect
        sqlite3.connect = lambda *args, **options: plain(*args, factory=Mortal, **options)  # type: ignore[assignment]
        store = ZgbStore(place_at(f"{folder}/zgb.db"), lambda: NOW)
        tasks = there(store)
        Mortal.left = step
        act(store, tasks)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return {0: "done", 9: "killed"}[os.WEXITSTATUS(status)]


def main(root: str, verb: str, journal: str) -> None:
    """Every statement, until the verb is over before it comes to it."""
    state, act = VERBS[verb]
    template = Path(root, "template")
    template.mkdir(parents=True)
    prepare(f"{template}/zgb.db", state, journal)
    step, ended = 0, ""
    while ended != "done":
        ended = run(Path(root, str(step)), template, act, step)
        sys.stdout.write(f"{step} {ended}\n")
        step += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
