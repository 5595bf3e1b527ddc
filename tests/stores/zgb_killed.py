"""Ends a process at every statement of one verb: run by test_zgb_crash.py, in a process of its own.

`python -m tests.stores.zgb_killed FOLDER VERB JOURNAL` makes a mail queue below FOLDER in which the
verb has something to do, and copies it for each statement that the verb has carried out by SQLite:
a child opens the copy and ends there, before that statement, with nothing tidied up. Answers with a
line `NAME HOW` for each: `killed`, or `done` for the one that came to the end.
"""

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine import verbs
from engine.model import Move, State, Task
from engine.stores.zgb import Pace, Place, ZgbStore, create

NOW = 1_795_170_000.0
NUMBERS = (1001, 1002)
IDS = ("1001-user", "1002-user")
FILE = "zgb.db"
IMAGES = "images"
"""Beside the queue: what its jobs were before they were moved to where the verb finds them."""

Act = Callable[[ZgbStore, list[Task]], object]
First = Callable[[ZgbStore, list[Task]], object]


class Verb(NamedTuple):
    """What is done to both jobs."""

    start: State | None
    """Where they stand before."""
    act: Act
    first: First | None = None
    """What happens to them before that, and leaves them elsewhere."""


def moved(state: State) -> Act:
    """Both jobs into a state, in one lot."""
    return lambda store, tasks: list(
        store.swap_all(Move(task, replace(task, state=state, lease=None)) for task in tasks)
    )


def each(change: Callable[[Task], Task | None]) -> Act:
    """Both jobs changed, one after the other."""
    return lambda store, tasks: [store.swap(task, change(task)) for task in tasks]


def undone(start: State) -> Act:
    """Both jobs to where they were, and as they were, in one lot."""

    def undo(store: ZgbStore, tasks: list[Task]) -> None:
        images = images_at(Path(store.place.path).parent)
        moves = [Move(t, store.recall(t, images[t.id], start), images[t.id]) for t in tasks]
        for outcome in store.swap_all(moves):
            if outcome.error is not None:
                raise outcome.error

    return undo


def undoing(start: State, end: State, first: First | None = None) -> Verb:
    """A move and what takes it back, of which that is done."""
    return Verb(start, undone(start), first or moved(end))


def pressed(name: str, value: str = "") -> Act:
    """Something done to the queue as a whole."""
    return lambda store, tasks: store.control(name, value=value)


def delayed(task: Task) -> Task:
    """To be tried a minute later."""
    return replace(task, due=NOW + 60)


def retried(store: ZgbStore, tasks: list[Task]) -> None:
    """Both jobs tried anew."""
    for task in tasks:
        store.swap(task, verbs.along(store.edges, task, verbs.retry(task, NOW)))


def orphaned(store: ZgbStore, tasks: list[Task]) -> None:
    """Take the registrations of both away."""
    with closing(sqlite3.connect(store.place.path)) as db, db:
        db.execute("DELETE FROM registrations")


_P, _A, _H, _D, _T = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH

VERBS: dict[str, Verb] = {
    "enqueue": Verb(None, lambda store, tasks: [store.enqueue(n, ["user"]) for n in NUMBERS]),
    "take": Verb(_P, lambda store, tasks: list(store.take(NOW, "me", 9))),
    "take orphans": Verb(_P, lambda store, tasks: list(store.take(NOW, "me", 9)), orphaned),
    "renew": Verb(_A, lambda store, tasks: [store.renew(task, NOW + 60) for task in tasks]),
    "ack": Verb(_A, each(lambda task: None)),
    "nack": Verb(_A, each(lambda task: verbs.nack(task, NOW + 60, "no"))),
    "bury": Verb(_A, each(lambda task: verbs.bury(task, "no", 1))),
    "recover": Verb(_A, lambda store, tasks: list(store.take(NOW + 301, "me", 9))),
    "hold in flight": Verb(_A, moved(_H)),
    "hold": Verb(_P, moved(_H)),
    "hold the dead": Verb(_D, moved(_H)),
    "delay": Verb(_P, each(delayed)),
    "delay the held": Verb(_H, each(delayed)),
    "release": Verb(_H, moved(_P)),
    "kill": Verb(_P, moved(_D)),
    "park": Verb(_H, moved(_D)),
    "retry": Verb(_D, retried),
    "purge": Verb(_P, moved(_T)),
    "purge the held": Verb(_H, moved(_T)),
    "purge the dead": Verb(_D, moved(_T)),
    "restore": Verb(_T, moved(_P)),
    "restore to hold": Verb(_T, moved(_H)),
    "restore to the dead": Verb(_T, moved(_D)),
    "expunge": Verb(_T, lambda s, tasks: list(s.swap_all(Move(t, None) for t in tasks))),
    "expunge the dead": Verb(_D, each(lambda task: None)),
    "undo hold": undoing(_P, _H),
    "undo hold the dead": undoing(_D, _H),
    "undo release": undoing(_H, _P),
    "undo delay": undoing(_P, _P, each(delayed)),
    "undo retry": undoing(_D, _P, retried),
    "undo kill": undoing(_P, _D),
    "undo purge": undoing(_P, _T),
    "undo purge the held": undoing(_H, _T),
    "undo purge the dead": undoing(_D, _T),
    "undo restore": undoing(_T, _P),
    "pause": Verb(_P, pressed("mailQueueEnabled", "0")),
    "set the rate": Verb(_P, pressed("mailMaxPerHour", "30")),
    "redirect": Verb(_P, pressed("mailRedirectToSchumbi", "1")),
    "retry all": Verb(_D, pressed("retryFailed")),
    "delete orphans": Verb(_P, pressed("deleteOrphans"), orphaned),
}
"""Everything that changes a queue."""

CREATE = "create"
"""What makes one."""


def place_at(path: str) -> Place:
    """A queue that may send five."""
    return Place(path, pace=Pace(), durable=False)


def there(store: ZgbStore) -> list[Task]:
    """Both jobs as they stand."""
    return [t for i in IDS for t in store.look({i}) if isinstance(t, Task)]


def images_at(folder: Path) -> dict[str, bytes]:
    """What each job was, by its id."""
    said = json.loads((folder / IMAGES).read_text())
    return {ident: image.encode() for ident, image in said.items()}


def prepare(folder: Path, verb: Verb, journal: str) -> None:
    """A queue with both jobs where the verb finds them; it has a column of somebody else's."""
    path = str(folder / FILE)
    create(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("INSERT INTO registrations VALUES (1001, 0), (1002, 0)")
        # Neither in any encoding, nor of any type.
        db.execute("ALTER TABLE mail_queue ADD COLUMN remark DEFAULT (CAST(x'ff41' AS TEXT))")
        days = "('startDate', '2020-01-01'), ('endDate', '2020-01-02')"
        db.execute(
            "INSERT INTO config VALUES ('mailQueueEnabled', '1'), ('mailMaxPerHour', '60'),"
            f" ('mailTokens', '5'), ('mailLastRefill', '{int(NOW)}'), {days}"
        )
    with closing(ZgbStore(place_at(path), lambda: NOW)) as store:
        if verb.start is not None:
            put(store, verb.start)
        tasks = there(store)
        images = {task.id: store.read(task).decode() for task in tasks}
        (folder / IMAGES).write_text(json.dumps(images))
        if verb.first is not None:
            verb.first(store, tasks)


def put(store: ZgbStore, state: State) -> None:
    """Both jobs into a state from the beginning on."""
    for number in NUMBERS:
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


def opened(act: Act, path: str) -> Callable[[], object]:
    """A verb with its queue open, to be carried out."""
    store = ZgbStore(place_at(path), lambda: NOW)
    return partial(act, store, there(store))


def run(folder: Path, template: Path, begin: Callable[[str], Callable[[], object]], at: int) -> str:
    """One copy, one child, one end; how it was."""
    shutil.copytree(template, folder)
    child = os.fork()
    if child == 0:
        plain = sqlite3.connect
        sqlite3.connect = lambda *args, **options: plain(*args, factory=Mortal, **options)  # type: ignore[assignment]
        act = begin(str(folder / FILE))
        Mortal.left = at
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return {0: "done", 9: "killed"}[os.WEXITSTATUS(status)]


def main(root: str, name: str, journal: str) -> None:
    """Every statement, until the verb is over before it comes to it."""
    template = Path(root, "template")
    template.mkdir(parents=True)
    if name == CREATE:
        begin: Callable[[str], Callable[[], object]] = partial(partial, create)
    else:
        verb = VERBS[name]
        prepare(template, verb, journal)
        begin = partial(opened, verb.act)
    step, ended = 0, ""
    while ended != "done":
        ended = run(Path(root, str(step)), template, begin, step)
        sys.stdout.write(f"{step} {ended}\n")
        step += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
