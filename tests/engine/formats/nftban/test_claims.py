"""How the next task of a spool is found: by name, by kind, and by what was learnt before."""

import os
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.nftban.hint import (
    ALWAYS_CHECKED,
    FileState,
    NextDue,
    PendingHint,
    file_state,
    seal,
)
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.model import State
from tests.tables import each

NOW = 1_795_239_223.0


@pytest.fixture(params=[False, True], ids=["shared", "exclusive"])
def spool(tmp_path: Path, request: pytest.FixtureRequest) -> SpoolFolders:
    """A spool; of the two kinds, one has due times as modification times."""
    return a_spool(tmp_path, request.param)


def a_spool(folder: Path, exclusive: bool = False) -> SpoolFolders:
    """A new spool."""
    queue = folder / "queue"
    made = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
    make_spool(made, exclusive=exclusive)
    return made


shared_only = pytest.mark.parametrize("spool", [False], ids=["shared"], indirect=True)


def opened(spool: SpoolFolders, now: float = NOW) -> NftbanStore:
    """Its store as a fresh process opens it."""
    return NftbanStore(spool, clock=lambda: now)


@pytest.fixture
def store(spool: SpoolFolders) -> NftbanStore:
    """Its store, at a time of its own."""
    return opened(spool)


def add(store: NftbanStore, kind: str = "report", token: str = "0a0a0a0a") -> None:
    """One task that is due now."""
    store.swap(None, verbs.enqueue(kind, NOW, token))


def defer(store: NftbanStore, seconds: float) -> None:
    """Let the next task wait."""
    (task,) = store.take(NOW, "test", 1)
    store.swap(task, verbs.nack(task, NOW + seconds, "no use"))


def edit_due(path: Path, was: int, becomes: int) -> None:
    """Change the due time in a file as an editor does, which the folder does not show."""
    path.write_text(path.read_text().replace(str(int(NOW) + was), str(int(NOW) + becomes)))


def taken(spool: SpoolFolders, now: float = NOW) -> list[str]:
    """The ids that a fresh process takes."""
    return [task.id for task in opened(spool, now).take(now, "test", 9)]


@pytest.fixture
def waiting(spool: SpoolFolders, store: NftbanStore) -> Path:
    """The file of a task that is due in a minute; a fresh process has found nothing due."""
    add(store)
    defer(store, 60)
    (path,) = Path(spool.pending).iterdir()
    due = path.stat().st_mtime
    os.utime(path, (due, NOW + 60 if due > NOW + 30 else NOW - 60))
    assert taken(spool) == []
    assert Path(spool.staging_dir, "next-due").exists()
    return path


def test_a_folder_where_nothing_is_due_is_remembered(
    spool: SpoolFolders, store: NftbanStore, waiting: Path
) -> None:
    """The next process knows when a task is due, and takes it then; a new file voids the hint, also
    one of the folder as it was before."""
    fresh, file = opened(spool), Path(spool.staging_dir, "next-due")
    assert (list(fresh.take(NOW + 1, "test", 1)), fresh.changes.next_due) == ([], NOW + 60)
    stale = file.read_bytes()
    add(store, token="0b0b0b0b")
    file.write_bytes(stale)
    (ident,) = taken(spool, NOW + 1)
    assert ident.endswith("0b0b0b0b")
    assert taken(spool, NOW + 60) == [waiting.stem]


def test_an_idle_take_lists_no_unchanged_folder(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders are listed again after a change, when a task is due, or after a minute."""
    add(store)
    defer(store, 30)
    listed, scandir = list[int](), os.scandir

    def list_folder(fd: int) -> Any:
        listed.append(fd)
        return scandir(fd)

    monkeypatch.setattr(os, "scandir", list_folder)

    def take(seconds: float) -> int:
        listed.clear()
        return len(list(store.take(NOW + seconds, "test", 9)))

    assert (take(1), listed == []) == (0, False)
    assert (take(2), listed) == (0, [])
    add(store, token="0b0b0b0b")
    assert (take(3), take(4), take(29), listed) == (1, 0, 0, [])
    assert (take(30), take(31), take(32), listed) == (1, 0, 0, [])
    assert (take(92), listed == []) == (0, False)


def test_few_waiting_among_many_due_stay(spool: SpoolFolders, store: NftbanStore) -> None:
    """Where no file of a sample waits, all due tasks are claimed and no other."""
    for number in range(100):
        add(store, token=f"{number:08x}")
    first, second = store.take(NOW, "test", 2)
    store.swap(first, verbs.unclaim(first))
    store.swap(second, verbs.nack(second, NOW + 60, "no use"))
    fresh = opened(spool)
    due = [task.id for task in fresh.take(NOW, "test", 100)]
    assert fresh.changes.next_due == NOW + 60
    assert (len(due), due[0], second.id in due) == (99, first.id, False)


def test_what_waits_is_counted_by_the_hint(spool: SpoolFolders, waiting: Path) -> None:
    """Where nothing is due, the number that waits comes from the hint: nothing is listed."""
    hint = Path(spool.staging_dir, "next-due")
    _, checksum, due, written, total, created, folder = hint.read_text().split(maxsplit=6)
    assert (total, created) == ("1", str(int(NOW)))
    hint.write_text(seal(f"{checksum} {due} {written} 7 {created} {folder[:-1]}"))
    fresh = opened(spool, NOW + 1)
    assert fresh.count_with_age(NOW + 1)[0][State.PENDING] == 1
    assert list(fresh.take(NOW + 1, "test", 1)) == []
    counts, age = fresh.count_with_age(NOW + 1)
    assert (counts[State.PENDING], age) == (7, 1.0)
    waiting.rename(waiting.with_suffix(".x"))
    assert fresh.count_with_age(NOW + 1)[0][State.PENDING] == 0


@pytest.mark.parametrize("same_process", [True, False], ids=["worker", "fresh"])
def test_a_task_rewritten_in_place_is_taken_by_the_next_take(
    spool: SpoolFolders, store: NftbanStore, waiting: Path, same_process: bool
) -> None:
    """An edited due time, which the folder does not show, counts for any worker."""
    assert list(store.take(NOW + 1, "test", 9)) == []
    folder = waiting.parent.stat().st_ctime_ns
    edit_due(waiting, 60, -60)
    os.utime(waiting, (NOW - 30, NOW - 30))
    assert waiting.parent.stat().st_ctime_ns == folder
    found = [t.id for t in store.take(NOW + 2, "test", 9)] if same_process else taken(spool, NOW)
    assert found == [waiting.stem]


def test_one_of_very_many_rewritten_tasks_is_taken_after_seconds(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch, waiting: Path
) -> None:
    """Above the number that is checked each time it is taken after five seconds."""
    for module in ("hint", "claims"):
        monkeypatch.setattr(f"engine.formats.nftban.{module}.ALWAYS_CHECKED", 0)
    assert list(store.take(NOW, "test", 9)) == []
    edit_due(waiting, 60, -60)
    os.utime(waiting, (NOW - 30, NOW - 30))
    assert (taken(spool, NOW + 4), list(store.take(NOW + 4, "test", 9))) == ([], [])
    fresh = opened(spool, NOW + 5)
    (task,) = fresh.take(NOW + 5, "test", 9)
    fresh.swap(task, verbs.unclaim(task))
    assert [task.id for task in store.take(NOW + 5, "test", 9)] == [waiting.stem]


@shared_only
def test_a_task_rewritten_with_old_time_is_found(spool: SpoolFolders, waiting: Path) -> None:
    """A due time edited in its file counts, also if size and modification time are as before."""
    stat = waiting.stat()
    edit_due(waiting, 60, -60)
    os.utime(waiting, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (waiting.stat().st_size, waiting.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert taken(spool, NOW + 1) == [waiting.stem]


@shared_only
def test_the_queue_is_as_old_as_its_oldest_task(spool: SpoolFolders, store: NftbanStore) -> None:
    """With any id: of local time, of a wrong clock, once failed, or known by the hint."""
    for created, token, due in ((100, "1", 0.0), (5000, "2", 0.0), (200, "3", NOW + 60)):
        task = verbs.enqueue("report", NOW, token * 8)
        store.swap(None, task._replace(created=NOW - created, due=due))
        path = Path(spool.pending, f"{task.id}.task")
        os.utime(path, (NOW - 900, NOW - 900))  # written by a retry
    assert store.count_with_age(NOW)[1] == 5000
    first, second = store.take(NOW, "test", 2)
    assert (store.count_with_age(NOW)[1], second.created) == (200, NOW - 100)
    for task in (first, second):
        store.swap(task, None)
    for _ in "12":
        fresh = opened(spool)
        assert list(fresh.take(NOW, "test", 9)) == []
        assert Path(spool.staging_dir, "next-due").exists()
        assert fresh.count_with_age(NOW) == (store.count_tasks(), 200)


@pytest.mark.parametrize("checked", [ALWAYS_CHECKED, 0], ids=["few", "very many"])
def test_a_name_that_is_also_claimed_voids_the_hint(
    spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch, waiting: Path, checked: int
) -> None:
    """A due task whose id is also in work/ is taken as soon as that one is gone."""
    monkeypatch.setattr("engine.formats.nftban.hint.ALWAYS_CHECKED", checked)
    Path(spool.staging_dir, "next-due").unlink()
    add(opened(spool), token="0b0b0b0b")
    (due,) = (path for path in waiting.parent.iterdir() if path != waiting)
    other = Path(spool.work, due.name)
    other.write_bytes(due.read_bytes())
    assert taken(spool, NOW + 1) == []
    other.unlink()
    assert taken(spool, NOW + 2) == [due.stem]


@each("hours", [9, -5])
def test_an_older_task_with_a_local_stamp_is_taken_first(tmp_path: Path, hours: int) -> None:
    """The NFTBan program's id has local time; beside it tasks are taken in order of creation."""
    store = opened(a_spool(tmp_path))
    ages = {3600: hours * 3600, 1800: 0, 900: hours * 3600, 60: 0}
    for age, offset in ages.items():
        task, named = (
            verbs.enqueue("report", NOW - age + shift, f"{age:08x}") for shift in (0, offset)
        )
        store.swap(None, task._replace(id=named.id))
        os.utime(tmp_path / "queue/pending" / f"{named.id}.task", (NOW - age, NOW - age))
    assert [int(NOW - task.created) for task in store.take(NOW, "test", 9)] == list(ages)


def test_a_hint_in_doubt_is_no_hint(tmp_path: Path) -> None:
    """A hint that is torn, damaged, from the future, past or for other files is ignored."""
    (tmp_path / "a.task").touch()
    path, later = tmp_path / "hint", int(NOW + 999)
    state = file_state((tmp_path / "a.task").stat())
    folder = os.open(tmp_path, os.O_RDONLY)
    path.touch()
    folder_state, hint = file_state(os.fstat(folder)), NextDue(str(path))

    def line(files: int, due: int, folder: FileState, created: int = 7) -> str:
        return " ".join(map(str, (files, due, int(NOW), 1, created, *folder)))

    def good(files: int = hash(state), due: int = later, folder: FileState = folder_state) -> str:
        return seal(line(files, due, folder))

    plain = line(hash(state), later, folder_state)
    garbage = ("\udcff" * 9, "9" * 2000, f"{'9' * 5000} " * 9, "1 2", "garbage", "")
    for number, (text, at) in enumerate(
        (
            (good(), NOW),
            (good(folder=(1, 1, 1)), NOW),  # the files are
            (good(), NOW - 1),
            (good(1), NOW),  # a file was rewritten, the folder is unchanged
            (good(1, folder=(1, 1, 1)), NOW),
            (good(due=int(NOW)), NOW),
            (good()[:-7], NOW),
            (good()[:-1], NOW),
            (good().replace(str(later), str(later + 1)), NOW),
            (plain, NOW),
            (good(due=int(NOW) + 7 * 86400 + 1), NOW),
            (good(due=10**400), NOW),
            (seal(line(hash(state), later, folder_state, 10**400)), NOW),
            (seal(plain + " a.task"), NOW),
            *((text, NOW) for text in garbage),
        )
    ):
        path.write_bytes(text.encode(errors="surrogateescape"))
        hinted = hint.read(folder, at)
        assert bool(hinted) is (number < 2), (text, at)
        assert not hinted or hinted == PendingHint(later, 1, 7.0, hinted.folder)
    os.close(folder)


def test_a_kind_that_is_not_wanted_keeps_its_place(spool: SpoolFolders, store: NftbanStore) -> None:
    """The older kind comes first once it is wanted; no "nothing due" is remembered for it."""
    for kind, token in (("alpha", "00000001"), ("beta", "00000002"), ("beta", "00000003")):
        add(store, kind, token)
    assert list(store.take(NOW, "test", 1, lambda kind, group: False)) == []
    assert not Path(spool.staging_dir, "next-due").exists()
    expected = {"beta"}
    taking = store.take(NOW, "test", 9, lambda kind, group: kind in expected)
    first = next(taking)
    expected.add("alpha")
    assert [first.kind, *(task.kind for task in taking)] == ["beta", "alpha", "beta"]
