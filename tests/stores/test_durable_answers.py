"""Nothing is said to be done that the disk would not confirm."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine import files, verbs
from engine.model import Move, State, Task
from engine.store import Unavailable
from engine.stores.nftban import NftbanStore

NOW = 1_795_170_000.0
Opener = Callable[..., NftbanStore]


def a_task(number: int = 1) -> Task:
    """One that nobody has seen yet."""
    return Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW)


def waiting(store: NftbanStore) -> Task:
    """A task in pending/."""
    store.swap(None, a_task())
    (task,) = (item for item in store.look({a_task().id}) if isinstance(item, Task))
    return task


def claimed(store: NftbanStore) -> Task:
    """A task in work/."""
    waiting(store)
    return next(store.take(NOW, "me", 1))


CHANGES: dict[str, tuple[Callable[[NftbanStore], Task | None], Callable[[Task], Task]]] = {
    "enqueue": (lambda store: None, lambda task: task),
    "nack": (claimed, lambda task: verbs.nack(task, NOW + 60, "failed")),
    "edit": (waiting, lambda task: replace(task, description="after")),
    "hold": (waiting, lambda task: verbs.hold(task, NOW)),
}
"""How the task stands before, and what it shall be."""


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_fsync_may_fail_unsaid(
    change: str, together: bool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever fsync of a change the disk refuses, the answer is that it is not done."""
    prepare, new = CHANGES[change]
    fsync, done, number = files.fsync, False, 0
    while not done:
        number += 1
        store = open_spool(durable=True)
        old = prepare(store)
        calls = 0

        def refusing(fd: int, number: int = number) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(fd)

        monkeypatch.setattr(files, "fsync", refusing)
        move = Move(old, new(old or a_task()))
        if together:
            (outcome,) = store.swap_all([move])
            error = outcome.error
        else:
            error = None
            try:
                store.swap(move.old, move.new)
            except Unavailable as refusal:
                error = refusal
        monkeypatch.setattr(files, "fsync", fsync)

        done = calls < number
        assert (error is None) == done, (number, error)
        _clear(store)

    assert number > 2, "at least the file and its folder are synced"


def _clear(store: NftbanStore) -> None:
    """Take whatever there is out of the store again."""
    store.recover()
    for task in {item.id: item for item in store.look() if isinstance(item, Task)}.values():
        if task.state in (State.PENDING, State.HELD):
            store.swap(task, verbs.purge(task, NOW))
    for task in {item.id: item for item in store.look() if isinstance(item, Task)}.values():
        store.swap(task, None)
