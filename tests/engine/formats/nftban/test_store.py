"""The spool on the disk: names, limits, hints, locks, recovery, payloads and rights."""

import fcntl
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.nftban import task_format
from engine.formats.nftban.claims import REVALIDATE_SECONDS
from engine.formats.nftban.full_scan import first_names
from engine.formats.nftban.store import EXCLUSIVE_MARKER, NftbanStore, SpoolFolders, make_spool
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Full, Gone, Unavailable, Unsupported
from tests.nftban_spool import (
    FILE,
    IDENT,
    NAME,
    NOW,
    a_task,
    just_before,
    names,
    new_spool,
    opened,
    put,
    taken,
    text_of,
    there,
    under_way,
)
from tests.open_store import open_store
from tests.store_contents import problems_in
from tests.tables import each
from tests.unprivileged_user import as_other_user, other_users_folder

DAY = 86_400.0
OTHER = 65534
"""A user and a group that are not ours."""


def test_ids_are_stamped_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is the second in UTC in any local time zone, the kind, and 8 hex digits."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    task = verbs.enqueue("feeds_sync", 1_795_167_675.9, "da0619a0")
    monkeypatch.undo()
    time.tzset()
    assert task.created == 1_795_167_675.0
    assert task.id == "20261120T094115Z900000-feeds_sync-da0619a0"
    assert task_format.id_in_name(task.id + task_format.SUFFIX) == task.id


def test_tasks_come_in_the_order_of_their_adds(store: NftbanStore) -> None:
    """By the microseconds of the stamp; in older ids by the token, then the kind."""
    old = ("15Z-b-00000000", "15Z-b_c-00000000", "15Z-a-00000001", "15Z-b-0000000a")
    stamps = (*old, "15Z000001-z-0000000f", "15Z000002-a-00000000", "15Z900000-a-00000000")
    order = [*(f"20261120T0941{end}" for end in (*stamps, "16Z-a-00000000")), "Z", "a_b"]
    for ident in reversed(order):
        store.swap(None, a_task()._replace(id=ident))
    assert taken(store, limit=20) == order


def test_a_full_queue_takes_no_more(spool: SpoolFolders) -> None:
    """At its limit a new task is refused until one has left; one that returns is not new."""
    dead = put(opened(spool, max_pending=1), State.DEAD)
    store = opened(spool, max_pending=3)
    for number in range(3):
        store.swap(None, a_task(number + 10))
    with pytest.raises(Full, match=r"^Queue full$"):
        store.swap(None, a_task(3))
    taken(store, limit=1)
    store.swap(None, a_task(3))
    with pytest.raises(Full):
        store.swap(None, a_task(4))
    assert store.count_tasks()[State.PENDING] == 3
    store.swap(dead, verbs.retry(dead, NOW))
    assert store.count_tasks()[State.PENDING] == 4


def test_a_lot_fills_the_queue_exactly(spool: SpoolFolders) -> None:
    """Of a lot of new tasks as many are taken as there is room for, and the others are refused."""
    for more, room in enumerate((0, 1, 3, 7), 1):
        store = opened(spool, max_pending=room)
        lot = [Move(None, a_task(100 * more + number)) for number in range(20)]
        errors = [type(outcome.error) for outcome in store.swap_all(lot)]
        assert (errors.count(Full), len(taken(store))) == (20 - room, room)


def test_another_process_fills_the_queue_too(spool: SpoolFolders) -> None:
    """Room that another instance used up is gone, after any earlier count."""
    first, theirs = opened(spool, max_pending=8), opened(spool, max_pending=8)
    first.swap(None, a_task(0))
    for number in range(1, 8):
        theirs.swap(None, a_task(number))
    for number in range(8, 11):  # as much as it expects to have, of the half that it saw
        first.swap(None, a_task(number))
    for number, store in enumerate((first, theirs), 20):
        with pytest.raises(Full):
            store.swap(None, a_task(number))


def test_no_task_waits_for_more_than_a_week(spool: SpoolFolders) -> None:
    """A due time further away is of a clock that jumped: due a week after it was written."""
    now = float(int(time.time())) + 60
    path, clock = Path(spool.pending, NAME), [now]
    for ahead, clamped in ((60.0, False), (7 * DAY, False), (7 * DAY + 1, True), (4e9, True)):
        path.write_bytes(text := text_of(a_task(due=now + ahead)))
        task = there(opened(spool, lambda: now))
        assert task.due == (path.stat().st_ctime + 7 * DAY if clamped else now + ahead), ahead
        assert path.read_bytes() == text
    store = opened(spool, lambda: clock[0])
    assert taken(store, clock[0]) == []
    clock[0] += 7 * DAY
    assert taken(store, clock[0]) == [IDENT]


def test_after_a_take_the_next_due_time_is_known(spool: SpoolFolders, store: NftbanStore) -> None:
    """It is the earliest of those that wait; a rewritten file is read again in time."""
    for number, ahead in enumerate([0, 90, 30, 60]):
        store.swap(None, a_task(number, due=NOW + ahead))
    assert (len(taken(store)), store.changes.next_due) == (1, NOW + 30)
    assert (len(taken(store, NOW + 95)), store.changes.next_due) == (3, None)
    store.swap(None, a_task(9, due=NOW + 900))
    assert taken(store) == []
    Path(spool.pending, f"{a_task(9).id}.task").write_bytes(text_of(a_task(9, due=0.0)))
    assert taken(store, NOW + 95 + REVALIDATE_SECONDS) == [a_task(9).id]


@pytest.fixture
def own_spool(tmp_path: Path) -> SpoolFolders:
    """A spool that no other program uses."""
    spool = new_spool(tmp_path / "own")
    make_spool(spool, exclusive=True)
    return spool


def test_a_spool_is_exclusive_only_on_request(own_spool: SpoolFolders, tmp_path: Path) -> None:
    """Neither a new spool nor an existing one is marked as exclusive by itself."""
    queue = tmp_path / "new"
    new = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
    assert make_spool(own_spool) == []
    assert make_spool(new) == [new.pending, new.work, new.dlq]
    assert list(Path(new.staging_dir).iterdir()) == []
    assert make_spool(new, exclusive=True) == [f"{new.staging_dir}/{EXCLUSIVE_MARKER}"]


def test_only_our_file_times_are_due_times(own_spool: SpoolFolders, spool: SpoolFolders) -> None:
    """In an exclusive spool the file's time is the due time, and a waiting file is not read; in a
    shared one only the text counts and no time is set: the real program reports ages by them."""
    now = float(int(time.time()))
    for place, claimed in ((own_spool, []), (spool, [IDENT])):
        path = Path(place.pending, NAME)
        path.write_bytes(text_of(a_task(due=0.0)))
        os.utime(path, (now + 900, now + 900))
        store = opened(place, lambda: now)
        assert taken(store, now) == claimed
        store.swap(None, a_task(2, due=now + 900))
        path = Path(place.pending, f"{a_task(2).id}.task")
        changed = path.stat().st_mtime
        assert changed == now + 900 if place is own_spool else changed < now + 800
        path.unlink()
    store = opened(own_spool, lambda: now)
    assert taken(store, now + 899) == []
    (task,) = store.take(now + 900, "me", 1)
    store.swap(task, verbs.nack(task, now + 960.5, "failed"))
    assert Path(own_spool.pending, NAME).stat().st_mtime == now + 961


def test_hints_delay_no_due_task(own_spool: SpoolFolders) -> None:
    """Neither a clock set back nor a take of no tasks lets others overlook what is due."""
    now = time.time() + 1
    first, second = (opened(own_spool, time.time) for _ in "12")
    first.swap(None, a_task())
    assert taken(first, now - 3600, 1) == [IDENT]
    first.swap(None, a_task(3, due=now + 100))
    assert taken(first, now, 1) == []
    second.swap(None, a_task(2))
    assert (taken(first, now, 0), taken(second, now, 1)) == ([], [a_task(2).id])


def test_held_and_trashed_files_are_in_our_folder(spool: SpoolFolders) -> None:
    """They are where the real program does not look; modes are those of the contract."""
    old, store = os.umask(0), opened(spool)
    try:
        put(store, State.HELD)
        for number in (2, 3):
            store.swap(None, a_task(number))
    finally:
        os.umask(old)
    trashed = there(store, a_task(2).id)
    store.swap(trashed, verbs.purge(trashed, NOW))
    queue, staging = Path(spool.pending).parent, Path(spool.staging_dir)
    assert staging == queue / ".spooldeck"
    assert (names(staging / "held"), names(staging / "trash")) == ([NAME], [f"{trashed.id}.task"])
    assert names(queue) == [".spooldeck", "dlq", "pending", "work"]
    counts = store.count_tasks()
    assert (counts[State.HELD], counts[State.TRASH], counts[State.PENDING]) == (1, 1, 1)
    files = [path for path in queue.rglob("*.task") if path.parent.name != "trash"]
    modes = [path.stat().st_mode & 0o7777 for path in (*files, staging, staging / "held")]
    assert modes == [0o640, 0o640, 0o750, 0o750]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_everything_belongs_to_the_folders_owner(spool: SpoolFolders) -> None:
    """What root makes in another user's spool is theirs: files, folders and the lock."""
    queue = Path(spool.pending).parent
    for folder in (queue, spool.pending, spool.work, spool.dlq):
        os.chown(folder, OTHER, OTHER)
    store = opened(spool)
    put(store, State.HELD)
    store.swap(None, a_task(2))
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.give_up_task(task, "no", 1))
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in queue.rglob("*")}
    assert owners == {(OTHER, OTHER)}


def test_no_draft_is_ever_called_a_task(spool: SpoolFolders) -> None:
    """While a file is being written or moved, no name of it ends in .task but its own."""
    audited_names, store = set[str](), opened(spool)

    def watch(event: str, args: tuple[object, ...]) -> None:
        # 3: O_WRONLY or O_RDWR
        if event == "open" and isinstance(args[2], int) and args[2] & 3:
            audited_names.add(str(args[0]))

    watching = [watch]
    sys.addaudithook(lambda event, args: [w(event, args) for w in watching] and None)
    put(store, State.DEAD)
    watching.clear()
    assert any(name.startswith(f"T.{IDENT}.") for name in audited_names)
    assert not [name for name in audited_names if name.endswith(".task")]


def test_folders_that_cannot_be_a_spool_are_refused(spool: SpoolFolders) -> None:
    """A state folder around our own, or on another file system, is refused."""
    queue = str(Path(spool.pending).parent)
    replaced = spool._replace
    for faulty in (
        replaced(dlq=spool.staging_dir),
        replaced(work=queue),
        replaced(dlq=f"{queue}/"),
    ):
        with pytest.raises(Unavailable, match="needs a folder of its own"):
            opened(faulty)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == Path(spool.pending).stat().st_dev:
            pytest.skip("no second file system here")
        for faulty in (replaced(work=elsewhere), replaced(pending=elsewhere)):
            with pytest.raises(Unavailable, match="another file system"):
                opened(faulty)


def test_one_id_in_two_places_is_a_problem(spool: SpoolFolders, store: NftbanStore) -> None:
    """A task with files in two folders is a problem, and is not claimed over its other file."""
    for folder in (spool.pending, spool.work):
        Path(folder, NAME).write_bytes(FILE)
    assert problems_in(store) == {f"work/{NAME}": "is in pending and work at the same time"}
    assert [type(item) for item in store.scan({IDENT})] == [Task, Task, Problem]
    assert taken(store) == []
    assert names(spool.work) == [NAME]


@each("turned", [False, True])
def test_the_first_names_are_found_in_any_listing(turned: bool) -> None:
    """Among more names than are compared at once, in either order, and of names too few."""
    names = [f"{number * 7919 % 12_007:05}" for number in range(12_007)]
    names.sort(reverse=turned)
    assert first_names(names, 3) == ["00000", "00001", "00002"]
    assert first_names(names[::2] + names[1::2], 2) == ["00000", "00001"]
    assert first_names(names[:2], 5) == sorted(names[:2])
    assert first_names(names, 0) == []


@pytest.mark.parametrize("word", ["pending", "work", "held", "dlq", "trash"])
def test_a_full_scan_reads_a_file_as_a_scan_by_name_does(word: str, spool: SpoolFolders) -> None:
    """Of plain and unusual files both scans return equal tasks and problems."""
    folder = Path(spool.staging_dir if word in ("held", "trash") else Path(spool.pending).parent)
    folder = folder / word
    folder.mkdir(parents=True, exist_ok=True)
    dead = FILE + b'TASK_DLQ_EPOCH="1795167690"\nTASK_DLQ_REASON="max_retries_exceeded"\n'
    due = b'TASK_NEXT_ATTEMPT_EPOCH="0"'
    kinds = {
        "plain": FILE,
        "dead": dead,
        "extra": dead + b'TASK_COLOUR="green"\n',
        "far": FILE.replace(due, b'TASK_NEXT_ATTEMPT_EPOCH="99999999999"'),
        "soon": FILE.replace(due, b'TASK_NEXT_ATTEMPT_EPOCH="1795167999"'),
        "zero": FILE.replace(due, b'TASK_NEXT_ATTEMPT_EPOCH="007"'),
        "lines": FILE.replace(b"\nTASK_RETRIES", b"\n\nTASK_RETRIES"),
        "empty": b"",
        "torn": FILE[:100],
        "long": FILE + b"#" * 65536,
        "writable": FILE,
        "linked": FILE,
    }
    assert len(set(kinds.values())) == len(kinds) - 2
    for kind, data in kinds.items():
        path = folder / f"{IDENT}{kind}.task"
        path.write_bytes(data.replace(IDENT.encode(), f"{IDENT}{kind}".encode()))
        path.chmod(0o662 if kind == "writable" else 0o640)
    os.link(folder / f"{IDENT}linked.task", folder / f"{IDENT}second.task")
    (folder / f"{IDENT}wrong.task").write_bytes(FILE)
    (folder / f"{IDENT}.orig").write_bytes(FILE)  # a suffix as long as ours
    (folder / f"{IDENT}symlink.task").symlink_to(f"{IDENT}plain.task")
    (folder / f"{IDENT}folder.task").mkdir()
    os.mkfifo(folder / f"{IDENT}fifo.task")
    store = opened(spool)
    wide, near = list(store.scan()), list(store.scan(names(str(folder))))
    assert sum(isinstance(item, Task) for item in near) == 7
    assert sorted(set(wide), key=str) == sorted(near, key=str)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    ("owner", "mode", "has_link", "problem"),
    [
        ((OTHER, OTHER), 0o640, False, "belongs to user"),
        ((0, OTHER), 0o660, False, "is writable by group"),
        ((0, 0), 0o640, True, "has a second hard link"),
    ],
    ids=["owner", "group", "link"],
)
def test_a_full_scan_shows_no_task_that_another_user_could_write(
    spool: SpoolFolders, owner: tuple[int, int], mode: int, has_link: bool, problem: str
) -> None:
    """A file in the contract's form that belongs to a user who does not own the spool, that a
    foreign group may write, or that is hard-linked into a folder of all users is a problem, in a
    full scan as in a scan by name."""
    path = Path(spool.pending, NAME)
    path.write_bytes(FILE)
    path.chmod(mode)
    os.chown(path, *owner)
    if has_link:
        os.link(path, path.parent.parent / "other name")
        path.parent.chmod(0o1777)
    store = opened(spool)
    for items in (set(store.scan()), set(store.scan({IDENT}))):
        (item,) = items
        assert isinstance(item, Problem) and item.what.startswith(problem)


@pytest.mark.parametrize(("state", "end"), [(State.ACTIVE, None), (State.PENDING, State.HELD)])
def test_a_file_rewritten_in_place_is_gone(
    spool: SpoolFolders, store: NftbanStore, state: State, end: State | None
) -> None:
    """A file that the other program wrote since we saw it stays as it wrote it."""
    task = put(store, state)
    path = Path(spool.work if state is State.ACTIVE else spool.pending, NAME)
    path.write_bytes(written := text_of(a_task(description="theirs")))
    with pytest.raises(Gone):
        store.swap(task, None if end is None else task._replace(state=end))
    assert (path.read_bytes(), under_way(spool)) == (written, [])


def test_a_file_replaced_as_we_move_it_is_put_back(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is locked is not moved; one rewritten before our move goes back as it is now."""
    task = put(store, State.PENDING)
    path, written = Path(spool.pending, NAME), text_of(a_task(description="theirs, just now"))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Gone, match="another process is moving it"):
            store.swap(task, verbs.hold(task, NOW))
    assert there(store) == task
    just_before(monkeypatch, lambda: path.write_bytes(written))
    with pytest.raises(Gone):
        store.swap(task, verbs.hold(task, NOW))
    assert (path.read_bytes(), under_way(spool)) == (written, [])
    assert there(store).state is State.PENDING


def test_a_file_replaced_as_we_claim_it_is_given_back(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was rewritten before our claim may not be due: it goes back as it is now."""
    store.swap(None, a_task())
    path, written = Path(spool.pending, NAME), text_of(a_task(due=NOW + 60))
    just_before(monkeypatch, lambda: path.write_bytes(written))
    assert taken(store, limit=1) == []
    assert (path.read_bytes(), names(spool.work)) == (written, [])


def test_a_failed_move_leaves_no_draft(spool: SpoolFolders, store: NftbanStore) -> None:
    """What was prepared for a move that did not happen is removed again."""
    dead = put(store, State.DEAD)
    Path(spool.dlq, NAME).rename(Path(spool.pending, NAME))
    for old, new in ((dead, verbs.retry(dead, NOW)), (None, a_task())):
        with pytest.raises(Gone):
            store.swap(old, new)
    assert under_way(spool) == []


def test_of_two_files_with_one_name_the_other_is_quarantined(spool: SpoolFolders) -> None:
    """A task moved to where its double is replaces nothing: it is kept apart and reported."""
    store = opened(spool)
    task = put(store, State.PENDING)
    double = text_of(a_task(description="the double"), int(NOW))
    Path(spool.dlq, NAME).write_bytes(double)
    with pytest.raises(Gone, match="duplicate id"):
        store.swap(task, task._replace(state=State.DEAD))
    assert Path(spool.dlq, NAME).read_bytes() == double
    (aside,) = names(f"{spool.staging_dir}/twice")
    assert b'TASK_DESCRIPTION="a job"' in Path(spool.staging_dir, "twice", aside).read_bytes()
    second = {f".spooldeck/twice/{aside}": "duplicate task file, not used"}
    assert problems_in(store) == second


def before_placing(
    store: NftbanStore, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Have something happen right before the store puts files where they go."""
    place = store._staging._place_all

    def placed(drafts: list[Any]) -> None:
        happens()
        place(drafts)

    monkeypatch.setattr(store._staging, "_place_all", placed)


P, H, D, T = State.PENDING, State.HELD, State.DEAD, State.TRASH
COMEBACKS = [(H, P, "pending"), (H, P, "work"), (T, P, "dlq"), (T, D, "pending"), (T, H, "work")]
"""From where to where a task goes, and where another file has its id."""
DOUBLE = text_of(a_task(description="the double"))


@pytest.mark.parametrize("late", [False, True])
@each(("start", "end", "word"), COMEBACKS, spool=new_spool)
def test_nothing_comes_back_beside_another_of_its_id(
    late: bool, start: State, end: State, word: str, spool: SpoolFolders
) -> None:
    """A held or trashed task stays if another file has its id, before or during the move."""
    store = opened(spool)
    task = put(store, start)
    folder = Path(spool.staging_dir, {State.HELD: "held", State.TRASH: "trash"}[start])
    other = Path(spool.pending).parent / word / NAME
    with pytest.MonkeyPatch.context() as patch:
        if late:
            before_placing(store, patch, partial(other.write_bytes, DOUBLE))
        else:
            other.write_bytes(DOUBLE)
        with pytest.raises(Gone, match=f"a task with this id is in {word} already"):
            store.swap(task, task._replace(state=end))
    assert ((folder / NAME).read_bytes(), other.read_bytes()) == (FILE, DOUBLE)
    assert under_way(spool) == []


def test_a_new_text_beside_another_of_its_id_is_kept_apart(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held task that goes back with a new text, while another file of its id comes, is kept."""
    held = put(store, State.HELD)
    before_placing(store, monkeypatch, lambda: Path(spool.work, NAME).write_bytes(DOUBLE))
    with pytest.raises(Gone, match="duplicate id"):
        store.swap(held, held._replace(state=State.PENDING, due=NOW + 60))
    (aside,) = Path(spool.staging_dir, "twice").iterdir()
    assert aside.read_bytes() == text_of(a_task(due=NOW + 60))
    assert (names(spool.pending), names(spool.work)) == ([], [NAME])


def test_an_outcome_waits_for_the_lock_of_its_file(spool: SpoolFolders) -> None:
    """A locked file is not gone: its outcome is stored as soon as the lock is free."""
    opened(spool).swap(None, a_task())
    store = NftbanStore(spool, lambda: NOW, patience=0.0)
    (claimed,) = store.take(NOW, "a worker", 1)
    late = verbs.nack(claimed, NOW, "421 later")
    with Path(spool.work, NAME).open("rb") as rival:
        fcntl.flock(rival, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="by another process, which may be stopped"):
            store.swap(claimed, late)
        assert names(spool.work) == [NAME]
    store.swap(claimed, late)
    assert (there(store).state, there(store).attempts) == (State.PENDING, 1)
    store = opened(spool)
    (claimed,) = store.take(NOW, "a worker", 1)
    with Path(spool.work, NAME).open("rb") as rival:
        fcntl.flock(rival, fcntl.LOCK_EX)
        storing = threading.Thread(target=store.swap, args=(claimed, verbs.hold(claimed, NOW)))
        storing.start()
    storing.join()
    assert there(store).state is State.HELD


def leave(
    spool: SpoolFolders, end: str, *, start: str = "pending", fits: bool = True, data: bytes = FILE
) -> Path:
    """A file of an unfinished move, as a process that died left it."""
    staging = Path(spool.staging_dir)
    staging.mkdir(exist_ok=True)
    crc = zlib.crc32(data) if fits else zlib.crc32(data) ^ 1
    path = staging / f"D.{IDENT}.{start}.{end}.{crc:08x}.{os.getpid()}-1-{len(names(str(staging)))}"
    path.write_bytes(data)
    return path


LEFT = [
    ("work", "pending", True, "pending", FILE),
    ("work", "pending", False, "work", FILE),
    ("pending", "held", True, ".spooldeck/held", FILE),
    ("pending", "trash", False, "pending", FILE),
    ("held", "pending", False, ".spooldeck/held", FILE),
    ("work", "dlq", True, "dlq", FILE),
    ("pending", "gone", True, "pending", FILE),
    ("dlq", "pending", False, "pending", FILE),
    ("dlq", "pending", False, "dlq", text_of(a_task(), dead_since=7)),
]
"""From where to where, whether the file has its new text already, where recovery puts it."""


@each(("start", "end", "fits", "lands", "data"), LEFT, spool=new_spool)
def test_a_committed_move_is_finished_any_other_undone(
    spool: SpoolFolders, start: str, end: str, fits: bool, lands: str, data: bytes
) -> None:
    """It is finished if the file has its new text, else it goes back, never into dlq/ alive."""
    left, store = leave(spool, end, start=start, fits=fits, data=data), opened(spool)
    what = f"interrupted move from {start} to {end}: the next worker finishes it"
    if end != "gone":
        assert problems_in(store) == {f".spooldeck/{left.name}": what}
    assert list(store.scan({IDENT})) == [] and left.exists()
    lines = store.recover()
    assert lines == [f"{IDENT}: interrupted move, now in {lands.rpartition('/')[2]}"]
    assert Path(spool.pending).parent.joinpath(lands, NAME).read_bytes() == data
    assert (left.exists(), store.recover()) == (False, [])


def test_what_a_living_process_moves_is_left_alone(spool: SpoolFolders, store: NftbanStore) -> None:
    """A file of a move whose flock is held is in use: not recovered, no problem, not missing."""
    left = leave(spool, "held")
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert store.recover() == []
        assert problems_in(store) == {}
        assert list(store.scan({IDENT})) == []
    assert left.exists()


def test_files_of_one_id_are_all_kept(spool: SpoolFolders, store: NftbanStore) -> None:
    """However many files have one id, recovery puts none over another, and all are shown."""
    Path(spool.pending, NAME).write_bytes(text_of(a_task(description="in place")))
    moves = {"one": ("pending", "held"), "two": ("pending", "trash"), "three": ("work", "pending")}
    texts = {text: text_of(a_task(description=text)) for text in moves}
    for text, (start, end) in moves.items():
        leave(spool, end, start=start, data=texts[text])
    assert [line.partition(",")[0] for line in store.recover()] == [f"{IDENT}: duplicate id"] * 3
    contents = {path.read_bytes() for path in Path(spool.staging_dir, "twice").iterdir()}
    assert contents == set(texts.values())
    assert (there(store).description, len(problems_in(store))) == ("in place", 3)
    assert store.recover() == []


@pytest.mark.parametrize(
    ("later", "locked", "kept"), [(0, False, True), (61, False, False), (61, True, True)]
)
def test_only_old_drafts_of_the_dead_are_litter(
    spool: SpoolFolders, later: float, locked: bool, kept: bool
) -> None:
    """A draft is removed when its writer is gone and it is older than a minute, and only then."""
    Path(spool.staging_dir).mkdir()
    draft = Path(spool.staging_dir, f"T.{IDENT}.1-0-1")
    draft.write_bytes(b"TASK_ID=")
    with draft.open("rb") as file:
        if locked:
            fcntl.flock(file, fcntl.LOCK_EX)
        assert opened(spool, lambda: time.time() + later).recover() == []
    assert draft.exists() is kept


def test_foreign_files_in_our_folder_stay(spool: SpoolFolders, tmp_path: Path) -> None:
    """What recovery does not know it leaves where it is; a link like a move is not followed."""
    target = tmp_path / "precious"
    target.write_bytes(FILE)
    left = leave(spool, "held")
    left.unlink()
    left.symlink_to(target)
    moves = (f"D.{IDENT}.pending.held.zz.1-0-1", f"D.{IDENT}.mars.held.00000000.1-0-1")
    strange = ("D", "D.x", *moves, "notes", "T", ".hidden", "held.bak")
    for name in strange:
        Path(spool.staging_dir, name).write_bytes(b"?")
    assert opened(spool).recover() == []
    assert all(Path(spool.staging_dir, name).read_bytes() == b"?" for name in strange)
    assert left.is_symlink() and target.exists()


def test_several_recover_at_the_same_time(spool: SpoolFolders) -> None:
    """However many recover together, each leftover is finished once, and in its one place."""
    ids = [a_task(number).id for number in range(60)]
    Path(spool.staging_dir).mkdir()
    for number, ident in enumerate(ids):
        data = text_of(a_task(number))
        name = f"D.{ident}.pending.held.{zlib.crc32(data):08x}.1-0-{number}"
        Path(spool.staging_dir, name).write_bytes(data)
    start = threading.Barrier(4)

    def recover(store: NftbanStore) -> list[str]:
        start.wait(30)
        return store.recover()

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(recover, [opened(spool) for _ in range(4)])]
    # Where one found another at work on a file, it left it to the other.
    lines = sorted(line for found_lines in found for line in found_lines)
    assert lines == [f"{ident}: interrupted move, now in held" for ident in ids]
    assert names(f"{spool.staging_dir}/held") == [f"{ident}.task" for ident in ids]
    assert problems_in(opened(spool)) == {}


def test_a_worker_without_claim_removes_no_payload(spool: SpoolFolders, store: NftbanStore) -> None:
    """A payload goes when its task leaves for good, and by no worker without its claim."""
    (payload := Path(spool.mail_spool, "meta.sh")).write_text("precious")
    task = put(store, State.ACTIVE, str(payload))
    store.swap(task, verbs.unclaim(task))
    with pytest.raises(Gone):
        store.swap(task, None)
    assert payload.exists()


def test_a_vanished_folder_is_unavailable(spool: SpoolFolders, store: NftbanStore) -> None:
    """When a folder is missing, scanning and taking report it; when it is back, they go on."""
    for word in ("pending", "work", "dlq"):
        folder = Path(spool.pending).parent / word
        folder.rename(f"{folder}.away")
        acts: list[Callable[[], object]] = [lambda: list(store.scan()), lambda: opened(spool)]
        acts += [lambda: taken(store)] if word != "dlq" else []
        for act in acts:
            with pytest.raises(Unavailable, match=word):
                act()
        Path(f"{folder}.away").rename(folder)
        assert list(store.scan()) == []


def test_a_spool_that_may_not_be_written_is_shown() -> None:
    """Every edge is refused with the folder and the command to use; scans work."""

    def look(place: Path, folder: str) -> None:
        with closing(open_store(str(place))) as store:
            assert {task.id for task in store.scan() if isinstance(task, Task)} == {IDENT}
            (refused,) = {edge.refusal for edge in store.edges.values()}
            assert refused.startswith(f"{folder} is not writable for us: use sudo -u ")
            with pytest.raises(Unsupported, match=f"^{folder} is not writable"):
                store.swap(None, a_task(2))
            (outcome,) = store.swap_all([Move(None, a_task(2))])
            assert str(outcome.error).startswith(f"{folder} is not writable")

    def open_it(place: Path) -> None:
        with pytest.raises(Unavailable, match=f"^{place}: Permission denied$"):
            open_store(str(place))

    with other_users_folder() as folder:
        place = folder / "queue"
        for word in ("pending", "work", "dlq"):
            (place / word).mkdir(parents=True)
            (place / word).chmod(0o777)
        (place / "pending" / NAME).write_bytes(FILE)
        (place / "pending" / NAME).chmod(0o644)
        for locked in (place / "pending", place / "work", place / "dlq", place):
            mode = locked.stat().st_mode
            locked.chmod(0o555)
            as_other_user(partial(look, place, str(locked)))
            locked.chmod(mode)
        place.chmod(0)
        as_other_user(partial(open_it, place))
        place.chmod(0o755)


def test_a_scan_by_file_name_finds_the_task(store: NftbanStore) -> None:
    """The change source gives file names; the store takes them as it takes ids."""
    task = put(store, State.PENDING)
    assert list(store.scan({NAME})) == [task]
    nowhere = "20261120T094115Z-job-0000000f"
    assert list(store.scan({f"{nowhere}.task"})) == [Missing(nowhere)]


def test_counts_and_age(spool: SpoolFolders, store: NftbanStore) -> None:
    """Task files are counted by folder; the first pending one gives the age of the queue."""
    counts, age = store.count_with_age(NOW)
    assert (set(counts.values()), age) == ({0}, 0.0)
    for number in range(3):
        store.swap(None, a_task(number, created=NOW - 90 + number))
    Path(spool.pending, "0.task").write_bytes(b"broken\n")
    Path(spool.pending, "README").write_bytes(b"")
    taken(store, limit=1)
    counts = store.count_tasks()
    assert (counts[State.PENDING], counts[State.ACTIVE], counts[State.DEAD]) == (3, 1, 0)
    ages = [store.count_with_age(now) for now in (NOW, NOW - 500)]
    assert ages == [(counts, 89.0), (counts, 0.0)]


@each(
    ("age", "days", "expired"),
    [(7 * DAY, 7, False), (7 * DAY + 1, 7, True), (DAY, 0.5, True), (None, 0, False)],
    spool=new_spool,
)
def test_which_dead_have_expired(
    spool: SpoolFolders, age: float | None, days: float, expired: bool
) -> None:
    """It died strictly more than so many days ago; without a time of death it never has."""
    died = None if age is None else int(NOW - age)
    Path(spool.dlq, NAME).write_bytes(text_of(a_task(), died))
    found = opened(spool).find_expired(lambda at: NOW - at, days)
    assert [task.id for task in found] == [IDENT] * expired
