"""Kills a process at every step of one verb: run by test_nftban_spool.py, in a process of its own.

`killed.py FOLDER VERB` makes a spool for each step below FOLDER, in each a child that carries the
verb out and is killed there: before a call that changes a file, after it, or, where it writes, with
half of the data written; or in which that call fails as on a broken disk, or is interrupted, or it
and all that follow find the disk full. Answers with a line `NAME HOW` for each: `killed`, `refused`
(the verb said that it could not), `raw` (it said so by an error of the system's), or `done`.
"""

import errno
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine import files, verbs
from engine.model import State, Task
from engine.store import StoreError
from engine.stores.nftban import NftbanStore, Spool

NOW = 1_795_170_000.0
TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW, description="before")

STEPS = (
    *("rename", "unlink", "write", "fsync", "mkdir", "fchown", "fchmod", "ftruncate", "utime"),
    *("link", "rmdir", "symlink"),
)
"""Everything by which the engine changes a file."""

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

ERRORS = {"broken": errno.EIO, "interrupted": errno.EINTR, "full": errno.ENOSPC}
"""How calls fail; when the disk is full, all that follow fail as well."""


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


def die() -> None:
    """End at once, with nothing tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(step: int, how: str) -> list[int]:
    """Make the so many-th of all steps the last one of this process; counts them."""
    count = [0]

    def wrap(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **options: object) -> object:
            count[0] += 1
            if count[0] < step or (count[0] > step and how != "full"):
                return call(*args, **options)
            if how in ERRORS:
                raise OSError(ERRORS[how], os.strerror(ERRORS[how]))
            try:
                if how == "torn" and name == "write":
                    fd, data = args
                    assert isinstance(data, bytes)
                    return call(fd, data[: len(data) // 2])
                return call(*args, **options) if how == "after" else None
            finally:
                die()

        return wrapper

    for name in STEPS:
        setattr(files, name, wrap(name, getattr(files, name)))
    return count


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
    child = os.fork()
    if child == 0:
        store = NftbanStore(spool, clock)
        count = deadly(step, how)
        try:
            act(store, task)
        except StoreError:
            os._exit(1)
        except OSError:
            os._exit(4)
        os._exit(2 if count[0] < step else 3)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return {1: "refused", 2: "over", 3: "done", 4: "raw"}[os.WEXITSTATUS(status)]


def main(root: str, verb: str) -> None:
    """Every step in every manner, until the verb is over before it comes to that step."""
    for how in ("before", "torn", "after", *ERRORS):
        step, ended = 0, ""
        while ended != "over":
            step += 1
            name = f"{verb}-{how}-{step}"
            ended = run(f"{root}/{name}", verb, step, how)
            sys.stdout.write(f"{name} {'done' if ended == 'over' else ended}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
