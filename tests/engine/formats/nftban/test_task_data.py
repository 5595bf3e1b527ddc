"""The data of tasks: where it is while its task moves, when it is removed, what is left of it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban import task_data, task_format
from engine.formats.nftban.staging import KeyWaits
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.formats.nftban.task_format import render_task
from engine.model import EMPTY, State, Task
from engine.store import Gone, Unavailable, Unsupported
from tests.nftban_spool import IDENT, NOW, a_task, names, opened, there

DATA = b"\0\xff\x1b[31m" * 100


def added(store: NftbanStore) -> Path:
    """The data of the first task, which is added."""
    task = store.write_data(a_task(), [DATA[:9], b"", DATA[9:]])
    store.swap(None, task)
    return Path(task.payload)


def moved(store: NftbanStore, change: Callable[[Task], Task | None]) -> None:
    """Swap the first task."""
    task = there(store)
    store.swap(task, change(task))


def test_data_stays_in_place_until_its_task_is_gone(spool: SpoolFolders) -> None:
    """It stays while its task moves to any state and back, and is removed with the task."""
    store = opened(spool)
    path = added(store)
    assert path == Path(spool.pending).parent / "data" / IDENT
    for change in (
        lambda task: verbs.edit(task, NOW, description="other"),
        lambda task: verbs.hold(task, NOW),
        lambda task: verbs.purge(task, NOW),
        lambda task: verbs.with_state(task, State.PENDING),
    ):
        moved(store, change)
        assert path.read_bytes() == DATA
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.give_up_task(task, "it broke", 1))
    moved(store, lambda task: verbs.retry(task, NOW))
    assert path.read_bytes() == store.read(there(store), "payload") == DATA
    assert store.size(there(store)) > len(DATA)
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, None)
    assert names(path.parent) == []
    added(store)
    moved(store, lambda task: verbs.purge(task, NOW))
    moved(store, lambda task: None)
    assert names(path.parent) == []


def test_a_spool_that_was_moved_has_its_data(spool: SpoolFolders) -> None:
    """Where the folder of a queue has another path now, its data is found and removed there."""
    added(opened(spool))
    queue = Path(spool.pending).parent
    moved_to = queue.rename(queue.with_name("moved"))
    pending, work, dlq = (f"{moved_to}/{word}" for word in ("pending", "work", "dlq"))
    store = opened(spool._replace(pending=pending, work=work, dlq=dlq))
    assert store.read(there(store), "payload") == DATA
    assert store.size(there(store)) > len(DATA)
    moved(store, lambda task: verbs.purge(task, NOW))
    assert names(moved_to / "data") == [IDENT]
    moved(store, lambda task: None)
    assert names(moved_to / "data") == []


def test_data_of_another_task_is_no_payload(spool: SpoolFolders, store: NftbanStore) -> None:
    """No new task can name it; it stays when a task of another program that names it is done."""
    path = added(store)
    with pytest.raises(Unsupported, match="is not a plain path below"):
        store.swap(None, a_task(2, payload=str(path)))
    foreign = render_task(task_format.new_record(a_task(2, payload=str(path))))
    (Path(spool.pending) / f"{a_task(2).id}.task").write_bytes(foreign)
    for task in store.take(NOW, "me", 2):
        if task.id != IDENT:
            store.swap(task, None)
    assert path.read_bytes() == DATA


def test_nothing_is_left_of_data_that_cannot_be_written(spool: SpoolFolders) -> None:
    """If its source or the disk fails, or a task cannot name its path, there is no file."""
    store = opened(spool)

    def broken() -> object:
        yield DATA
        raise OSError(28, os.strerror(28))

    with pytest.raises(Unavailable, match=f"data/{IDENT}: data not written: No space left"):
        store.write_data(a_task(), broken())  # type: ignore[arg-type]
    assert names(Path(spool.pending).parent / "data") == []
    with pytest.raises(Unsupported, match=r"d\$ta/job: expected letters"):
        task_data.write_data(f"{spool.root}/d$ta", "", "job", [DATA])


def test_orphans_are_old_data_without_any_file_of_a_task(spool: SpoolFolders) -> None:
    """A task in any folder, being moved or quarantined has its data; an add in progress too. If a
    folder of tasks is missing, as one that is not mounted, nothing is known to be an orphan."""
    queue = Path(spool.pending).parent
    where = {
        "pending": "{}.task",
        ".spooldeck": "D.{}.work.pending.0.1-0-1",
        "corrupt": "{}.task.x",
    }
    (queue / "data").mkdir()
    for number, (folder, name) in enumerate(where.items()):
        (queue / folder).mkdir(exist_ok=True)
        (queue / folder / name.format(f"id{number}")).touch()
        (queue / "data" / f"id{number}").touch()
    (queue / "data" / "lost").touch()
    written = (queue / "data" / "lost").stat().st_mtime
    states = [f"{queue}/pending"]
    staging = [f"{queue}/{folder}" for folder in (".spooldeck", "corrupt", "missing")]

    def orphans(age: float) -> list[str]:
        return list(task_data.find_orphans(f"{queue}/data", states, staging, written + age))

    assert orphans(task_data.ORPHAN_SECONDS + 1) == [f"{queue}/data/lost"]
    assert orphans(task_data.ORPHAN_SECONDS - 1) == []
    (queue / "missing").touch()
    with pytest.raises(NotADirectoryError):
        orphans(task_data.ORPHAN_SECONDS + 1)
    states.append(f"{queue}/absent")
    with pytest.raises(FileNotFoundError):
        orphans(task_data.ORPHAN_SECONDS + 1)


def test_data_that_is_being_written_is_no_orphan(spool: SpoolFolders, store: NftbanStore) -> None:
    """However long its source is silent, as a slow program in a pipe may be."""
    folder = Path(spool.pending).parent / "data"
    found: list[list[str]] = []

    def orphans() -> None:
        os.utime(folder / IDENT, (0, 0))
        found.append(list(task_data.find_orphans(str(folder), [spool.pending], [], NOW)))

    def silent() -> Iterator[bytes]:
        yield DATA
        orphans()

    store.write_data(a_task(), silent())
    orphans()
    assert found == [[], [str(folder / IDENT)]]


def keyed(number: int, key: str) -> Task:
    """A new task with a key."""
    mark = task_format.mark_of_key(key) if key else ""
    task = verbs.enqueue("job", NOW + number, f"{number:08x}", mark=mark)
    return task._replace(extra={task_format.KEY_FIELD: key} if key else EMPTY)


def test_a_key_is_added_once_while_one_waits(spool: SpoolFolders, store: NftbanStore) -> None:
    """One that is pending, delayed, held or being moved there keeps another one out."""
    store.swap(None, keyed(1, "k"))
    ident = keyed(1, "k").id
    assert there(store, ident).extra == {"TASK_KEY": "k"}
    refused = f"{ident} waits with this key"
    path = Path(spool.pending) / f"{ident}.task"
    path.write_bytes(path.read_bytes().replace(b'TASK_KEY="k"\n', b""))  # as the real program does
    for change in (lambda t: t._replace(due=NOW + 60), lambda t: verbs.hold(t, NOW)):
        with pytest.raises(KeyWaits, match=refused):
            store.swap(None, keyed(2, "k"))
        task = there(store, ident)
        store.swap(task, change(task))
    with pytest.raises(KeyWaits, match=refused):
        store.swap(None, keyed(2, "k"))
    store.swap(None, keyed(3, "other"))
    store.swap(None, keyed(4, ""))
    task = there(store, ident)
    store.swap(task, verbs.purge(task, NOW))
    group = [keyed(5, "k"), keyed(6, "k"), keyed(7, "new")]
    errors = [type(store_one(store, task)) for task in group]
    assert errors == [type(None), KeyWaits, type(None)]
    (Path(spool.pending) / f"{group[0].id}.task").rename(
        Path(spool.staging_dir) / f"D.{group[0].id}.work.pending.0.1-0-1"
    )
    assert isinstance(store_one(store, keyed(8, "k")), KeyWaits)


def test_a_name_like_a_key_is_none(store: NftbanStore) -> None:
    """Ids of other programs with a k before the first hyphen have no key."""
    for ident in ("task-1", "task-2", "20261120T094115Zk-job-1", "20261120T094116Zk-job-1"):
        store.swap(None, a_task()._replace(id=ident))
    assert task_format.mark_in_name(keyed(1, "k").id) == task_format.mark_of_key("k")


def store_one(store: NftbanStore, task: Task) -> Exception | None:
    """Why a task is not added; None if it is."""
    try:
        store.swap(None, task)
    except Gone as error:
        return error
    return None
