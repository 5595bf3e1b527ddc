"""Kills a process at every step of one verb: run by test_nftban_spool.py, in a process of its own.

`python -m tests.stores.killed FOLDER VERB` makes a spool for each step below FOLDER, in each a
child that carries the verb out and is killed there: before a call that changes a file, after it,
or, where it writes, with half of the data written; or in which that call fails as on a broken disk,
or is interrupted, or it and all that follow find the disk full. Answers as children.py says.
"""

import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine import verbs
from engine.model import State, Task
from engine.stores.nftban import NftbanStore, Spool
from tests.stores.children import end_everywhere, ended

NOW = 1_795_170_000.0
TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW, description="before")

VERBS: dict[str, tuple[State | None, Callable[[NftbanStore, Task], object]]] = {
    "enqueue": (None, lambda store, task: store.swap(None, task)),
    "take": (State.PENDING, lambda store, task: list(store.take(NOW, "me", 1))),
    "ack": (State.ACTIVE, lambda store, task: store.swap(task, None)),
    "nack": (State.ACTIVE, lambda s, t: s.swap(t, verbs.nack(t, NOW + 60, "failed"))),
    "bury": (State.ACTIVE, lambda store, task: store.swap(task, verbs.bury(task, "failed", 1))),
    "retry": (State.DEAD, lambda store, task: store.swap(task, verbs.retry(task, NOW))),
    "edit": (State.PENDING, lambda s, t: s.swap(t, replace(t, description="after"))),
    "hold": (State.PENDING, lambda store, task: store.swap(task, verbs.hold(task, NOW))),
    "release": (State.HELD, lambda store, task: store.swap(task, verbs.release(task, NOW))),
    "purge": (State.DEAD, lambda store, task: store.swap(task, verbs.purge(task, NOW))),
    "restore": (State.TRASH, lambda s, t: s.swap(t, replace(t, state=State.DEAD))),
    "expunge": (State.DEAD, lambda store, task: store.swap(task, None)),
    "recover": (State.PENDING, lambda store, task: store.recover()),
    "set aside": (State.PENDING, lambda s, t: (list(s.take(NOW, "me", 1)), s.set_aside())),
    "put back": (State.PENDING, lambda store, task: store.put_back(aside(store))),
}
"""Where the task stands before, and what is done to it."""

TORN = b'TASK_ID="'
"""What the file of a task says that is set aside."""


def later() -> float:
    """A time at which whatever was made until now has been as it is for a minute."""
    return time.time() + 61


def aside(store: NftbanStore) -> str:
    """The name of the one file that was set aside."""
    (found,) = store.corrupt()
    return found.name


def a_spool(folder: str) -> Spool:
    """A fresh spool."""
    for word in ("pending", "work", "dlq"):
        Path(folder, word).mkdir(parents=True)
    return Spool(f"{folder}/pending", f"{folder}/work", f"{folder}/dlq")


def prepare(store: NftbanStore, state: State | None) -> Task:
    """The task where the verb finds it."""
    if state is None:
        return TASK
    store.swap(None, TASK)
    (task,) = store.take(NOW, "me", 1)
    store.swap(
        task,
        verbs.bury(task, "it broke", 1)
        if state in (State.DEAD, State.TRASH)
        else verbs.unclaim(task),
    )
    (task,) = (item for item in store.look({TASK.id}) if isinstance(item, Task))
    if state is State.ACTIVE:
        return next(store.take(NOW, "me", 1))
    if state is not task.state:
        store.swap(task, replace(task, state=state))
        (task,) = (item for item in store.look({TASK.id}) if isinstance(item, Task))
    return task


def interrupt(spool: Spool) -> None:
    """Leave the pending task as a process leaves it that dies while it holds it."""
    path = Path(spool.pending, f"{TASK.id}.task")
    crc = zlib.crc32(path.read_bytes())
    moving = f"D.{TASK.id}.pending.held.{crc:08x}.1-0-1"
    path.rename(Path(spool.desk, moving))


def spoil(spool: Spool) -> None:
    """Tear the pending task."""
    Path(spool.pending, f"{TASK.id}.task").write_bytes(TORN)


def mend(spool: Spool) -> None:
    """Have the pending task torn, set aside, and mended there."""
    path = Path(spool.pending, f"{TASK.id}.task")
    whole = path.read_bytes()
    path.write_bytes(TORN)
    store = NftbanStore(spool, later)
    VERBS["set aside"][1](store, TASK)
    Path(spool.desk, "corrupt", aside(store)).write_bytes(whole)
    store.close()


FIRST = {"recover": interrupt, "set aside": spoil, "put back": mend}
"""What happens to the task before the verb, where that is not by the store."""


def run(folder: str, verb: str, step: int, how: str) -> str:
    """One spool, one child, one death; how it ended."""
    state, act = VERBS[verb]
    spool = a_spool(folder)
    store = NftbanStore(spool._replace(durable=False), lambda: NOW)
    task = prepare(store, state)
    store.close()
    clock = later if verb in FIRST else lambda: NOW
    if verb in FIRST:
        FIRST[verb](spool)

    def begin() -> Callable[[], object]:
        return partial(act, NftbanStore(spool, clock), task)

    return ended(begin, step, how)


if __name__ == "__main__":
    root, verb = sys.argv[1:]
    end_everywhere(root, verb, lambda folder, step, how: run(folder, verb, step, how))
