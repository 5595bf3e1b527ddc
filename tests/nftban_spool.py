"""A task in a spool folder, its file, and what lies where, for the tests of that format."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import State, Task
from engine.system import files

NOW = 1_795_170_000.0
IDENT = "20261120T094115Z-job-00000001"
NAME = f"{IDENT}.task"


def new_spool(data: Path) -> SpoolFolders:
    """An empty spool with the contract's folders in a data folder, shared with another program."""
    queue = data / "queue"
    for folder in (queue / "pending", queue / "work", queue / "dlq", data / "mailspool"):
        folder.mkdir(parents=True)
    mails = f"{data}/mailspool"
    return SpoolFolders(
        f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", mail_spool=mails, durable=False
    )


def opened(
    spool: SpoolFolders, clock: Callable[[], float] = lambda: NOW, **settings: Any
) -> NftbanStore:
    """The store of a spool, with other settings if any are given; each test's end closes it."""
    return NftbanStore(spool._replace(**settings), clock)


def a_task(number: int = 1, **changes: Any) -> Task:
    """A task that is not stored yet; numbers go by the order of names."""
    ident = f"20261120T094115Z-job-{number:08x}"
    return Task(ident, "job", State.PENDING, NOW, description="a job")._replace(**changes)


def text_of(task: Task, dead_since: int | None = None) -> bytes:
    """A task's file as it is in pending/ or, with a time of death, in dlq/."""
    reason = "" if dead_since is None else task_format.DEAD_REASON
    record = task_format.new_record(task)._replace(dead_since=dead_since, dead_reason=reason)
    return task_format.render_task(record)


FILE = text_of(a_task())
"""The text of the first task."""


def there(store: NftbanStore, ident: str = IDENT) -> Task:
    """One task as it stands now."""
    (item,) = store.scan({ident})
    assert isinstance(item, Task)
    return item


def put(store: NftbanStore, state: State, payload: str = "") -> Task:
    """The first task in a state, as it is seen there."""
    store.swap(None, a_task(payload=payload))
    if state in (State.ACTIVE, State.DEAD):
        (claimed,) = store.take(NOW, "me", 1)
        if state is State.ACTIVE:
            return claimed
        store.swap(claimed, verbs.give_up_task(claimed, "it broke", 1))
    elif state is not State.PENDING:
        store.swap(there(store), there(store)._replace(state=state))
    return there(store)


def taken(store: NftbanStore, now: float = NOW, limit: int = 9) -> list[str]:
    """The ids of what a worker claims."""
    return [task.id for task in store.take(now, "me", limit)]


def names(folder: str | Path) -> list[str]:
    """What lies in a folder that may not be there."""
    return sorted(path.name for path in Path(folder).glob("*"))


def under_way(spool: SpoolFolders) -> list[str]:
    """The drafts and the moves in staging that have not come to their end."""
    return [name for name in names(spool.staging_dir) if name[0] in "TD"]


def later() -> float:
    """A time at which what was made until now has been as it is for more than a minute."""
    return time.time() + 61


def just_before(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen right before the engine's next rename, once."""
    rename = files.rename
    waiting = [happens]

    def renamed(source: str, target: str, **folders: int) -> None:
        while waiting:
            waiting.pop()()
        rename(source, target, **folders)

    monkeypatch.setattr(files, "rename", renamed)
