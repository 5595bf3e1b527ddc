"""The spool on the disk: names, limits, hints, the desk and what a dead process leaves on it."""

import fcntl
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import files, verbs
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Full, Gone, Unavailable, Unsupported
from engine.stores.nftban import NftbanStore, Spool, form, make_spool
from engine.stores.nftban.claims import REVALIDATE
from engine.stores.nftban.spool import EXCLUSIVE
from tests.stores.children import ends
from tests.stores.seen import problems_in

Opener = Callable[..., NftbanStore]

NOW = 1_795_170_000.0
DAY = 86_400.0
IDENT = "20261120T094115Z-job-00000001"
NAME = f"{IDENT}.task"


def a_task(number: int = 1, **changes: object) -> Task:
    """A task that is not stored yet; numbers go by the order of names."""
    task = Task(
        f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW, description="a job"
    )
    return replace(task, **changes)  # type: ignore[arg-type]


def text_of(task: Task, dead_since: int | None = None) -> bytes:
    """A task's file as it stands in pending/ or, with a time of death, in dlq/."""
    reason = "" if dead_since is None else form.DEAD_REASON
    record = form.new_record(task)._replace(dead_since=dead_since, dead_reason=reason)
    return form.render(record)


def there(store: NftbanStore, ident: str = IDENT) -> Task:
    """One task as it stands now."""
    (item,) = store.look({ident})
    assert isinstance(item, Task)
    return item


def put(store: NftbanStore, state: State, payload: str = "") -> Task:
    """A task in a state, as it is seen there."""
    store.swap(None, a_task(payload=payload))
    if state is State.DEAD:
        (claimed,) = store.take(NOW, "me", 1)
        store.swap(claimed, verbs.bury(claimed, "it broke", 1))
    elif state is State.ACTIVE:
        list(store.take(NOW, "me", 1))
    elif state is not State.PENDING:
        store.swap(there(store), replace(there(store), state=state))
    return there(store)


def names(folder: str) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


# ---- ids and order


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_ids_are_stamped_in_utc(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """An id is the second in UTC whatever the time zone here, the kind, and 8 hex digits."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    task = verbs.enqueue("feeds_sync", 1_795_167_675.9, "da0619a0")

    monkeypatch.undo()
    time.tzset()
    assert task.id == "20261120T094115Z-feeds_sync-da0619a0"
    assert task.created == 1_795_167_675.0
    assert re.fullmatch(r"\d{8}T\d{6}Z-[a-z0-9_]+-[0-9a-f]{8}", task.id)
    assert form.id_of(task.id + form.SUFFIX) == task.id


def test_tasks_come_in_the_order_of_file_names(open_spool: Opener) -> None:
    """Within one second the kind decides, then the token, byte by byte: as the real program."""
    store = open_spool()
    order = [
        "20261120T094115Z-a-00000001",
        "20261120T094115Z-b-00000000",
        "20261120T094115Z-b-0000000a",
        "20261120T094115Z-b_c-00000000",
        "20261120T094116Z-a-00000000",
        "Z",
        "_".join(["a", "b"]),
    ]
    for ident in reversed(order):
        store.swap(None, replace(a_task(), id=ident))

    assert [task.id for task in store.take(NOW, "me", 9)] == order


# ---- how much it takes


def test_a_full_queue_takes_no_more(open_spool: Opener) -> None:
    """At the most that it may hold, a task more is refused as "Queue full", until one has left."""
    store = open_spool(max_pending=3)
    for number in range(3):
        store.swap(None, a_task(number))

    with pytest.raises(Full, match=r"^Queue full$"):
        store.swap(None, a_task(3))
    list(store.take(NOW, "me", 1))
    store.swap(None, a_task(3))

    with pytest.raises(Full):
        store.swap(None, a_task(4))
    assert store.counts()[State.PENDING] == 3


@pytest.mark.parametrize("room", [0, 1, 2, 3, 7, 20])
def test_a_lot_fills_the_queue_exactly(open_spool: Opener, room: int) -> None:
    """Of a lot of new tasks as many are taken as there is room for, and the others are refused."""
    store = open_spool(max_pending=room)

    outcomes = list(store.swap_all(Move(None, a_task(number)) for number in range(20)))

    refused = [type(outcome.error) for outcome in outcomes if outcome.error is not None]
    assert refused == [Full] * (20 - room)
    assert store.counts()[State.PENDING] == room


def test_another_process_fills_the_queue_too(open_spool: Opener) -> None:
    """Room that another instance used up is not there any more, however much was seen before."""
    ours, theirs = open_spool(max_pending=8), open_spool(max_pending=8)
    ours.swap(None, a_task(0))
    for number in range(1, 8):
        theirs.swap(None, a_task(number))
    for number in range(8, 11):  # as much as it believes to have, of the half that it saw
        ours.swap(None, a_task(number))

    with pytest.raises(Full):
        ours.swap(None, a_task(20))
    with pytest.raises(Full):
        theirs.swap(None, a_task(21))


def test_a_full_queue_takes_back_what_was_its_own(open_spool: Opener) -> None:
    """What goes back to pending is no new task: a full queue does not keep it out."""
    store = open_spool(max_pending=1)
    dead = put(store, State.DEAD)
    store.swap(None, a_task(2))

    store.swap(dead, verbs.retry(dead, NOW))

    assert store.counts()[State.PENDING] == 2


# ---- when it is due


@pytest.mark.parametrize(
    ("ahead", "clamped"), [(60.0, False), (7 * DAY, False), (7 * DAY + 1, True), (4e9, True)]
)
def test_no_task_waits_for_more_than_a_week(
    spool: Spool, open_spool: Opener, ahead: float, clamped: bool
) -> None:
    """A due time more than 7 days away came from a clock that jumped: a week since it was written
    is enough, and the file stays as it is.
    """
    now = float(int(time.time()))
    path = Path(spool.pending, NAME)
    path.write_bytes(text_of(a_task(due=now + ahead)))
    written = path.stat().st_ctime

    seen = there(open_spool(lambda: now))

    assert seen.due == (written + 7 * DAY if clamped and written <= now else now + ahead) or (
        clamped and seen.due == now
    )
    assert int(path.read_bytes().split(b"\n")[5].split(b'"')[1]) == int(now + ahead)


def test_a_week_after_the_jump_the_task_comes(spool: Spool, open_spool: Opener) -> None:
    """A task that a wrong clock put off for years is claimed once a week has passed."""
    now = time.time() + 1
    Path(spool.pending, NAME).write_bytes(text_of(a_task(due=now + 4e8)))
    clock = [now]
    store = open_spool(lambda: clock[0])

    assert list(store.take(clock[0], "me", 1)) == []
    clock[0] += 7 * DAY
    assert [task.id for task in store.take(clock[0], "me", 1)] == [IDENT]


def test_the_doorbell_knows_when_the_next_is_due(open_spool: Opener) -> None:
    """After a take the doorbell says when the first of those that wait comes due."""
    store = open_spool()
    for number, ahead in enumerate([0, 90, 30, 60]):
        store.swap(None, a_task(number, due=NOW + ahead))

    assert len(list(store.take(NOW, "me", 9))) == 1
    assert store.doorbell.due == NOW + 30
    assert len(list(store.take(NOW + 95, "me", 9))) == 3
    assert store.doorbell.due is None


def test_a_file_rewritten_by_others_is_read_again(spool: Spool, open_spool: Opener) -> None:
    """A waiting task that the other program rewrote in place is seen at the next revalidation."""
    store = open_spool()
    store.swap(None, a_task(due=NOW + 900))
    assert list(store.take(NOW, "me", 1)) == []
    path = Path(spool.pending, NAME)

    path.write_bytes(text_of(a_task(due=0.0)))

    assert [task.id for task in store.take(NOW + REVALIDATE, "me", 1)] == [IDENT]


# ---- the modification time as a hint


@pytest.fixture
def own_spool(tmp_path: Path) -> Spool:
    """A spool that no other program uses."""
    queue = tmp_path / "own" / "queue"
    spool = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", durable=False)
    make_spool(spool, exclusive=True)
    return spool


def test_a_spool_is_exclusive_only_on_request(own_spool: Spool, tmp_path: Path) -> None:
    """Neither a new spool nor one that was there is marked as exclusive by itself."""
    queue = tmp_path / "new"
    new = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")

    assert make_spool(own_spool) == []
    assert make_spool(new) == [new.pending, new.work, new.dlq]
    assert list(Path(new.desk).iterdir()) == []
    assert make_spool(new, exclusive=True) == [f"{new.desk}/{EXCLUSIVE}"]


def test_in_our_own_spool_a_waiting_file_is_not_read(own_spool: Spool, spool: Spool) -> None:
    """Where nobody else works, the file's time says when it is due; elsewhere only its text."""
    now = time.time()
    for place, claimed in ((own_spool, []), (spool, [IDENT])):
        path = Path(place.pending, NAME)
        path.write_bytes(text_of(a_task(due=0.0)))
        os.utime(path, (now + 900, now + 900))
        store = NftbanStore(place)

        assert [task.id for task in store.take(now, "me", 1)] == claimed

        store.close()


def test_in_our_own_spool_times_say_when_it_is_due(own_spool: Spool) -> None:
    """A task that waits gets its due time as its file's time, and is claimed once it has come."""
    now = float(int(time.time()))
    store = NftbanStore(own_spool, lambda: now)
    store.swap(None, a_task(due=now + 900))

    assert Path(own_spool.pending, NAME).stat().st_mtime == now + 900
    assert list(store.take(now + 899, "me", 1)) == []
    (task,) = store.take(now + 900, "me", 1)
    store.swap(task, verbs.nack(task, now + 960.5, "failed"))
    assert Path(own_spool.pending, NAME).stat().st_mtime == now + 961
    store.close()


def test_in_anothers_spool_times_are_left_alone(spool: Spool, open_spool: Opener) -> None:
    """The real program reports the oldest task by these times, so none is ever set there."""
    before = time.time()
    open_spool().swap(None, a_task(due=before + 900))

    assert Path(spool.pending, NAME).stat().st_mtime < before + 800


def test_a_clock_set_back_starves_nobody(own_spool: Spool) -> None:
    """A task that was due at once stays so when the clock is set back: its file's time, now in
    the future, was never meant as a due time.
    """
    store = NftbanStore(own_spool)
    store.swap(None, a_task())

    taken = list(store.take(time.time() - 3600, "me", 1))

    assert [task.id for task in taken] == [IDENT]
    store.close()


def test_a_look_that_finds_nothing_due_is_remembered(own_spool: Spool) -> None:
    """Where nobody else works, a fresh process knows from the last one until when nothing is due,
    and looks for itself as soon as anything was added.
    """
    now = time.time() + 1
    first, second = NftbanStore(own_spool), NftbanStore(own_spool)
    first.swap(None, a_task(1, due=now + 100))
    assert list(first.take(now, "me", 1)) == []

    assert list(second.take(now, "me", 1)) == []
    assert second.doorbell.due == float(int(now + 101))
    first.swap(None, a_task(2))
    assert [task.id for task in second.take(now, "me", 1)] == [a_task(2).id]
    first.close()
    second.close()


def test_who_takes_nothing_remembers_nothing(own_spool: Spool) -> None:
    """A take of no tasks has not looked, and must not make others believe that nothing is due."""
    now = time.time() + 1
    first, second = NftbanStore(own_spool), NftbanStore(own_spool)
    first.swap(None, a_task(1, due=now + 100))
    assert list(first.take(now, "me", 1)) == []
    second.swap(None, a_task(2))

    assert list(first.take(now, "me", 0)) == []

    assert [task.id for task in second.take(now, "me", 1)] == [a_task(2).id]
    first.close()
    second.close()


# ---- where things lie


def test_held_and_trash_lie_on_the_desk(spool: Spool, open_spool: Opener) -> None:
    """Held and trashed tasks lie where the real program does not look, and count all the same."""
    store = open_spool()
    put(store, State.HELD)
    store.swap(None, a_task(2))
    trashed = there(store, a_task(2).id)
    store.swap(trashed, verbs.purge(trashed, NOW))

    queue = str(Path(spool.pending).parent)
    assert spool.desk == f"{queue}/.spooldeck"
    assert names(f"{spool.desk}/held") == [NAME]
    assert names(f"{spool.desk}/trash") == [f"{a_task(2).id}.task"]
    assert names(queue) == [".spooldeck", "dlq", "pending", "work"]
    counts = store.counts()
    assert (counts[State.HELD], counts[State.TRASH], counts[State.PENDING]) == (1, 1, 0)


def test_nothing_is_made_before_it_is_needed(spool: Spool, open_spool: Opener) -> None:
    """Opening a spool and looking at it leaves no trace in it."""
    store = open_spool()
    list(store.look())
    list(store.take(NOW, "me", 1))

    assert names(str(Path(spool.pending).parent)) == ["dlq", "pending", "work"]
    assert all(names(folder) == [] for folder in (spool.pending, spool.work, spool.dlq))


def test_files_have_the_contracts_modes(spool: Spool, open_spool: Opener) -> None:
    """Task files are 640, folders of ours 750, as the contract asks."""
    old = os.umask(0)
    try:
        put(open_spool(), State.HELD)
        open_spool().swap(None, a_task(2))
    finally:
        os.umask(old)

    held = Path(spool.desk, "held")
    assert (held / NAME).stat().st_mode & 0o7777 == 0o640
    assert Path(spool.pending, f"{a_task(2).id}.task").stat().st_mode & 0o7777 == 0o640
    assert held.stat().st_mode & 0o7777 == 0o750
    assert Path(spool.desk).stat().st_mode & 0o7777 == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_everything_belongs_to_the_folders_owner(spool: Spool, open_spool: Opener) -> None:
    """What root makes in somebody's spool is theirs: files, folders and the desk's own lock."""
    queue = Path(spool.pending).parent
    for folder in (queue, spool.pending, spool.work, spool.dlq):
        os.chown(folder, 65534, 65534)

    store = open_spool()
    put(store, State.HELD)
    store.swap(None, a_task(2))
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.bury(task, "no", 1))

    owners = {(path.stat().st_uid, path.stat().st_gid) for path in queue.rglob("*")}
    assert owners == {(65534, 65534)}


def test_no_draft_is_ever_called_a_task(spool: Spool, open_spool: Opener) -> None:
    """While a file is being written or moved, no name of it ends in .task but its own."""
    seen: set[str] = set()
    store = open_spool()

    def watch(event: str, args: tuple[object, ...]) -> None:
        # 3: O_WRONLY or O_RDWR
        if event == "open" and isinstance(args[2], int) and args[2] & 3:
            seen.add(str(args[0]))

    watching = [watch]
    sys.addaudithook(lambda event, args: [w(event, args) for w in watching] and None)
    put(store, State.DEAD)
    watching.clear()

    assert any(name.startswith(f"T.{IDENT}.") for name in seen)
    assert not [name for name in seen if name.endswith(".task")]


@pytest.mark.parametrize("folder", ["desk", "work", "dlq"])
def test_a_folder_around_the_desk_is_refused(spool: Spool, folder: str) -> None:
    """A state folder that would contain the desk is refused: the real program searches deep."""
    queue = str(Path(spool.pending).parent)
    bad = {
        "desk": spool._replace(dlq=spool.desk),
        "work": spool._replace(work=queue),
        "dlq": spool._replace(dlq=f"{queue}/"),
    }[folder]

    with pytest.raises(Unavailable, match="needs a folder of its own"):
        NftbanStore(bad)


def test_folders_on_two_file_systems_are_refused(spool: Spool) -> None:
    """Between file systems nothing can be renamed, so such a spool is refused at once."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == Path(spool.pending).stat().st_dev:
            pytest.skip("no second file system here")

        with pytest.raises(Unavailable, match="another file system"):
            NftbanStore(spool._replace(work=elsewhere))


# ---- others on the same files


def test_one_id_in_two_places_is_a_problem(spool: Spool, open_spool: Opener) -> None:
    """A task that stands in two folders is said to, and is not claimed over its other half."""
    for folder in (spool.pending, spool.work):
        Path(folder, NAME).write_bytes(text_of(a_task()))
    store = open_spool()

    assert problems_in(store) == {f"work/{NAME}": "stands in pending and work at once"}
    assert [type(item) for item in store.look({IDENT})] == [Task, Task, Problem]
    assert list(store.take(NOW, "me", 1)) == []
    assert names(spool.work) == [NAME]


@pytest.mark.parametrize(("state", "end"), [(State.ACTIVE, None), (State.PENDING, State.HELD)])
def test_a_file_rewritten_in_place_is_gone(
    spool: Spool, open_spool: Opener, state: State, end: State | None
) -> None:
    """A file that the other program wrote since we saw it is left to whoever wrote it."""
    store = open_spool()
    seen = put(store, state)
    path = Path(spool.work if state is State.ACTIVE else spool.pending, NAME)
    written = text_of(a_task(description="theirs"))
    path.write_bytes(written)

    with pytest.raises(Gone):
        store.swap(seen, None if end is None else replace(seen, state=end))

    assert path.read_bytes() == written
    assert [name for name in names(spool.desk) if name.startswith(("T", "D"))] == []


def test_a_file_in_somebodys_hand_is_gone(spool: Spool, open_spool: Opener) -> None:
    """A file whose flock somebody holds is being moved, and not ours to move."""
    store = open_spool()
    seen = put(store, State.PENDING)
    with Path(spool.pending, NAME).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(Gone, match="somebody else is moving it"):
            store.swap(seen, verbs.hold(seen, NOW))

    assert there(store) == seen


def test_a_file_replaced_as_we_grasp_it_is_put_back(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was rewritten between our reading and our moving it goes back as it is now."""
    store = open_spool()
    seen = put(store, State.PENDING)
    path, written = Path(spool.pending, NAME), text_of(a_task(description="theirs, just now"))
    just_before(monkeypatch, lambda: path.write_bytes(written))

    with pytest.raises(Gone):
        store.swap(seen, verbs.hold(seen, NOW))

    assert path.read_bytes() == written
    assert there(store).state is State.PENDING
    assert [name for name in names(spool.desk) if name[0] in "TD"] == []


def test_a_file_replaced_as_we_claim_it_is_given_back(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was rewritten between our reading and our claiming it may not be due any more:
    it goes back to pending, and is claimed for what it says now.
    """
    store = open_spool()
    store.swap(None, a_task())
    path, written = Path(spool.pending, NAME), text_of(a_task(due=NOW + 60))
    just_before(monkeypatch, lambda: path.write_bytes(written))

    assert list(store.take(NOW, "me", 1)) == []

    assert path.read_bytes() == written
    assert names(spool.work) == []


def just_before(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen right before the engine's next rename, once."""
    rename = files.rename
    waiting = [happens]

    def renamed(source: str, target: str, **folders: int) -> None:
        while waiting:
            waiting.pop()()
        rename(source, target, **folders)

    monkeypatch.setattr(files, "rename", renamed)


def test_a_failed_move_leaves_no_draft(spool: Spool, open_spool: Opener) -> None:
    """What was prepared for a move that did not happen is off the desk again."""
    store = open_spool()
    dead = put(store, State.DEAD)
    Path(spool.dlq, NAME).rename(Path(spool.pending, NAME))

    with pytest.raises(Gone):
        store.swap(dead, verbs.retry(dead, NOW))
    with pytest.raises(Gone):
        store.swap(None, a_task())

    assert [name for name in names(spool.desk) if name[0] in "TD"] == []


def test_where_a_file_stands_already_the_other_is_set_aside(
    spool: Spool, open_spool: Opener
) -> None:
    """A task moved to where its double stands replaces nothing: kept apart, shown, and said."""
    store = open_spool()
    seen = put(store, State.PENDING)
    double = text_of(a_task(description="the double"), int(NOW))
    Path(spool.dlq, NAME).write_bytes(double)

    with pytest.raises(Gone, match="stood twice"):
        store.swap(seen, replace(seen, state=State.DEAD))

    assert Path(spool.dlq, NAME).read_bytes() == double
    (aside,) = names(f"{spool.desk}/twice")
    assert b'TASK_DESCRIPTION="a job"' in Path(spool.desk, "twice", aside).read_bytes()
    assert problems_in(store) == {
        f".spooldeck/twice/{aside}": "a second file of one task, set aside"
    }


COMING_BACK = [
    (State.HELD, State.PENDING, "pending"),
    (State.HELD, State.PENDING, "work"),
    (State.TRASH, State.PENDING, "dlq"),
    (State.TRASH, State.DEAD, "pending"),
    (State.TRASH, State.HELD, "work"),
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("start", "end", "word"), COMING_BACK)
def test_nothing_comes_back_beside_another_of_its_id(
    start: State,
    end: State,
    word: str,
    late: bool,
    spool: Spool,
    open_spool: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was held or trashed stays there when a task of its id stands anywhere else, or comes to
    stand there on the way.
    """
    store = open_spool()
    seen = put(store, start)
    folder = Path(spool.desk, {State.HELD: "held", State.TRASH: "trash"}[start])
    double = text_of(a_task(description="the double"))
    other = Path(spool.pending).parent / word / NAME
    if late:
        place = store._desk._place_all

        def placed(drafts: list[Any]) -> None:
            other.write_bytes(double)
            place(drafts)

        monkeypatch.setattr(store._desk, "_place_all", placed)
    else:
        other.write_bytes(double)

    with pytest.raises(Gone, match=f"a task of this id stands in {word} already"):
        store.swap(seen, replace(seen, state=end))

    assert (folder / NAME).read_bytes() == text_of(a_task())
    assert other.read_bytes() == double
    assert [name for name in names(spool.desk) if name[0] in "TD"] == []


def test_what_was_rewritten_on_the_way_back_is_set_aside(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another of its id that came meanwhile, a task with a new text is kept apart."""
    store = open_spool()
    held = put(store, State.HELD)
    double = text_of(a_task(description="the double"))
    place = store._desk._place_all

    def placed(drafts: list[Any]) -> None:
        Path(spool.work, NAME).write_bytes(double)
        place(drafts)

    monkeypatch.setattr(store._desk, "_place_all", placed)

    with pytest.raises(Gone, match="stood twice"):
        store.swap(held, replace(held, state=State.PENDING, due=NOW + 60))

    (aside,) = names(f"{spool.desk}/twice")
    assert Path(spool.desk, "twice", aside).read_bytes() == text_of(a_task(due=NOW + 60))
    assert (names(spool.pending), names(spool.work)) == ([], [NAME])


# ---- whose it is


def test_what_is_looked_at_again_can_be_claimed_and_stored(open_spool: Opener) -> None:
    """Whoever claims a task that a plan has just looked at stores its outcome meanwhile."""
    plan, worker = open_spool(), open_spool()
    plan.swap(None, a_task())
    seen = there(plan)
    assert list(plan.still([(seen.id, seen.state, seen.rev)])) == [seen]

    (claimed,) = worker.take(NOW, "a worker", 1)
    worker.swap(claimed, verbs.nack(claimed, NOW + 60, "421 later"))
    (outcome,) = plan.swap_all([Move(seen, verbs.hold(seen, NOW))])

    assert isinstance(outcome.error, Gone)
    assert (there(plan).state, there(plan).attempts) == (State.PENDING, 1)


def test_an_outcome_is_owed_while_somebody_has_the_file(spool: Spool) -> None:
    """A claimed task whose file a rival keeps locked is not gone: its outcome is stored later."""
    store = NftbanStore(spool, lambda: NOW, patience=0.0)
    store.swap(None, a_task())
    (claimed,) = store.take(NOW, "a worker", 1)
    late = verbs.nack(claimed, NOW + 60, "421 later")
    with Path(spool.work, NAME).open("rb") as rival:
        fcntl.flock(rival, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="its lock has been held"):
            store.swap(claimed, late)
        assert names(spool.work) == [NAME]

    store.swap(claimed, late)

    assert (there(store).state, there(store).attempts) == (State.PENDING, 1)
    store.close()


def test_an_outcome_waits_for_who_has_the_file(spool: Spool, open_spool: Opener) -> None:
    """A claimed task whose file a rival locks for a moment is changed as soon as it is free."""
    store = open_spool()
    store.swap(None, a_task())
    (claimed,) = store.take(NOW, "a worker", 1)
    with Path(spool.work, NAME).open("rb") as rival:
        fcntl.flock(rival, fcntl.LOCK_EX)
        storing = threading.Thread(target=store.swap, args=(claimed, verbs.hold(claimed, NOW)))
        storing.start()
    storing.join()

    assert there(store).state is State.HELD


# ---- what a dead process leaves

Seen = tuple[State, int, str] | None

OUTCOMES: dict[str, tuple[Seen, Seen]] = {
    "enqueue": (None, (State.PENDING, 0, "before")),
    "take": ((State.PENDING, 0, "before"), (State.ACTIVE, 0, "before")),
    "ack": ((State.ACTIVE, 0, "before"), None),
    "nack": ((State.ACTIVE, 0, "before"), (State.PENDING, 1, "before")),
    "bury": ((State.ACTIVE, 0, "before"), (State.DEAD, 1, "before")),
    "retry": ((State.DEAD, 1, "before"), (State.PENDING, 0, "before")),
    "edit": ((State.PENDING, 0, "before"), (State.PENDING, 0, "after")),
    "hold": ((State.PENDING, 0, "before"), (State.HELD, 0, "before")),
    "release": ((State.HELD, 0, "before"), (State.PENDING, 0, "before")),
    "purge": ((State.DEAD, 1, "before"), (State.TRASH, 1, "before")),
    "restore": ((State.TRASH, 1, "before"), (State.DEAD, 1, "before")),
    "expunge": ((State.DEAD, 1, "before"), None),
    "recover": ((State.HELD, 0, "before"), (State.HELD, 0, "before")),
}
"""What each verb of killed.py starts from and leads to: state, attempts, description."""


@pytest.mark.parametrize("verb", OUTCOMES)
def test_a_killed_process_loses_nothing(verb: str, tmp_path: Path) -> None:
    """Killed before, within or after any step, or refused by the disk there, a verb is done or not
    done once the next process has tidied up: the task is whole, under one name, and nothing is left
    to tidy. Where it said that it was done, it is.
    """
    before, after = OUTCOMES[verb]
    points = ends("killed", str(tmp_path), verb)

    assert {"killed", "done"} <= {how for _, how in points} <= {"killed", "done", "refused"}
    for name, how in points:
        place = tmp_path / name
        spool = Spool(f"{place}/pending", f"{place}/work", f"{place}/dlq")
        store = NftbanStore(spool, lambda: time.time() + 61)
        store.recover()
        shown = set(store.look())
        again = store.recover()
        store.close()

        assert not [item for item in shown if not isinstance(item, Task)], (name, shown)
        stands = [(t.state, t.attempts, t.description) for t in shown if isinstance(t, Task)]
        allowed = [after] if how == "done" else [before, after]
        assert stands in [[] if seen is None else [seen] for seen in allowed], name
        assert again == [], name
        desk = names(spool.desk) if Path(spool.desk).exists() else []
        assert set(desk) <= {".lock", "held", "trash"}, name


def leave(
    spool: Spool, end: str, *, start: str = "pending", fits: bool = True, data: bytes = b""
) -> Path:
    """A withdrawn file on the desk, as a process that died left it."""
    desk = Path(spool.desk)
    desk.mkdir(exist_ok=True)
    data = data or text_of(a_task())
    crc = zlib.crc32(data) if fits else zlib.crc32(data) ^ 1
    path = desk / f"D.{IDENT}.{start}.{end}.{crc:08x}.{os.getpid()}-1-{len(names(str(desk)))}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("start", "end", "fits", "lands"),
    [
        ("work", "pending", True, "pending"),
        ("work", "pending", False, "work"),
        ("pending", "held", True, ".spooldeck/held"),
        ("pending", "trash", False, "pending"),
        (".spooldeck/held".rpartition("/")[2], "pending", False, ".spooldeck/held"),
        ("work", "dlq", True, "dlq"),
        ("pending", "gone", True, "pending"),
        ("dlq", "pending", False, "pending"),
    ],
)
def test_a_committed_move_is_finished_any_other_taken_back(
    spool: Spool, open_spool: Opener, start: str, end: str, fits: bool, lands: str
) -> None:
    """What lies withdrawn goes where its name says if it says already what it shall say there;
    else back, but never into dlq/ without a time of death.
    """
    left = leave(spool, end, start=start, fits=fits)
    store = open_spool()

    said = store.recover()

    word = lands.rpartition("/")[2]
    assert said == [f"{IDENT}: interrupted, back in {word}"]
    assert Path(spool.pending).parent.joinpath(lands, NAME).read_bytes() == text_of(a_task())
    assert not left.exists()
    assert store.recover() == []


def test_a_dead_task_goes_back_to_the_dead(spool: Spool, open_spool: Opener) -> None:
    """A move out of dlq/ that was not committed ends where it began, time of death and all."""
    data = text_of(a_task(), dead_since=7)
    leave(spool, "pending", start="dlq", fits=False, data=data)

    open_spool().recover()

    assert Path(spool.dlq, NAME).read_bytes() == data


def test_what_a_living_process_moves_is_left_alone(spool: Spool, open_spool: Opener) -> None:
    """A file on the desk whose flock is held is somebody's: not recovered, no Problem, not
    missing.
    """
    left = leave(spool, "held")
    store = open_spool()
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert store.recover() == []
        assert problems_in(store) == {}
        assert list(store.look({IDENT})) == []

    assert left.exists()


def test_an_interrupted_move_is_a_problem(spool: Spool, open_spool: Opener) -> None:
    """A move that nobody is at work on is shown, with where it goes; looking does not mend it."""
    left = leave(spool, "held")
    store = open_spool()

    shown = problems_in(store)

    assert shown == {
        f".spooldeck/{left.name}": (
            "a move from pending to held was interrupted; the next worker finishes it"
        )
    }
    assert list(store.look({IDENT})) == []
    assert left.exists()


def test_what_stands_twice_is_kept_twice(spool: Spool, open_spool: Opener) -> None:
    """However many files claim one id, recovery puts none over another, and all are shown."""
    Path(spool.pending, NAME).write_bytes(text_of(a_task(description="in place")))
    leave(spool, "held", data=text_of(a_task(description="one")))
    leave(spool, "trash", data=text_of(a_task(description="two")))
    leave(spool, "pending", start="work", data=text_of(a_task(description="three")))
    store = open_spool()

    said = store.recover()

    assert [line.partition(",")[0] for line in said] == [f"{IDENT}: stood twice"] * 3
    aside = Path(spool.desk, "twice")
    assert {path.read_bytes() for path in aside.iterdir()} == {
        text_of(a_task(description=text)) for text in ("one", "two", "three")
    }
    assert there(store).description == "in place"
    assert len(problems_in(store)) == 3
    assert store.recover() == []


@pytest.mark.parametrize(
    ("later", "in_hand", "kept"), [(0, False, True), (61, False, False), (61, True, True)]
)
def test_only_old_drafts_of_the_dead_are_litter(
    spool: Spool, open_spool: Opener, later: float, in_hand: bool, kept: bool
) -> None:
    """A draft is removed when its writer is gone and it is older than a minute, and only then."""
    Path(spool.desk).mkdir()
    draft = Path(spool.desk, f"T.{IDENT}.1-0-1")
    draft.write_bytes(b"TASK_ID=")
    with draft.open("rb") as file:
        if in_hand:
            fcntl.flock(file, fcntl.LOCK_EX)

        assert open_spool(lambda: time.time() + later).recover() == []

    assert draft.exists() is kept


@pytest.mark.parametrize(
    "name",
    [
        *("D", "D.x", f"D.{IDENT}.pending.held.zz.1-0-1", f"D.{IDENT}.mars.held.00000000.1-0-1"),
        *("notes", "T", ".hidden", "held.bak"),
    ],
)
def test_strange_things_on_the_desk_stay(spool: Spool, open_spool: Opener, name: str) -> None:
    """What recovery does not understand it leaves where it is."""
    Path(spool.desk).mkdir()
    path = Path(spool.desk, name)
    path.write_bytes(b"?")

    assert open_spool().recover() == []
    assert path.read_bytes() == b"?"


def test_a_link_on_the_desk_leads_nowhere(spool: Spool, open_spool: Opener, tmp_path: Path) -> None:
    """A symbolic link that is named like a move is not followed, and not moved."""
    target = tmp_path / "precious"
    target.write_bytes(text_of(a_task()))
    left = leave(spool, "held")
    left.unlink()
    left.symlink_to(target)

    assert open_spool().recover() == []
    assert left.is_symlink()
    assert target.exists()


def test_several_recover_at_the_same_time(spool: Spool, open_spool: Opener) -> None:
    """However many tidy up at once, each leftover is finished once, and in its one place."""
    ids = [a_task(number).id for number in range(60)]
    Path(spool.desk).mkdir()
    for number, ident in enumerate(ids):
        data = text_of(a_task(number))
        name = f"D.{ident}.pending.held.{zlib.crc32(data):08x}.1-0-{number}"
        Path(spool.desk, name).write_bytes(data)
    stores, start = [open_spool() for _ in range(4)], threading.Barrier(4)
    said: list[str] = []

    def recover(store: NftbanStore) -> None:
        start.wait(30)
        said.extend(store.recover())

    threads = [threading.Thread(target=recover, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    # Where one found another at work on a file, it left it to the other.
    assert sorted(said) == [f"{ident}: interrupted, back in held" for ident in ids]
    assert names(f"{spool.desk}/held") == [f"{ident}.task" for ident in ids]
    assert problems_in(open_spool()) == {}


# ---- payloads


def payload(spool: Spool, kind: str, tmp_path: Path) -> tuple[str, Path]:
    """A payload as a task names it, and the file that it leads to."""
    mail, outside = Path(spool.mail_spool, "mail-1"), tmp_path / "outside"
    mail.mkdir()
    outside.mkdir()
    within, beyond = mail / "meta.sh", outside / "meta.sh"
    for path in (within, beyond):
        path.write_text("precious\n")
    Path(spool.mail_spool, "link").symlink_to(outside)
    (mail / "link.sh").symlink_to(beyond)
    return {
        "below": (str(within), within),
        "elsewhere": (str(beyond), beyond),
        "dots": (f"{mail}/../../../outside/meta.sh", beyond),
        "dots within": (f"{mail}/../mail-1/meta.sh", within),
        "a linked folder": (f"{spool.mail_spool}/link/meta.sh", beyond),
        "a link": (str(mail / "link.sh"), beyond),
        "the spool itself": (spool.mail_spool, within),
        "a folder": (str(mail), within),
        "a like name": (f"{spool.mail_spool}-evil/meta.sh", beyond),
        "doubled slash": (f"{spool.mail_spool}//mail-1/meta.sh", within),
        "relative": ("mail-1/meta.sh", within),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "removed"),
    [
        ("below", True),
        *((kind, False) for kind in ("elsewhere", "dots", "dots within", "a linked folder")),
        *((kind, False) for kind in ("a link", "the spool itself", "a folder", "a like name")),
        *((kind, False) for kind in ("doubled slash", "relative")),
    ],
)
def test_a_payload_goes_only_from_the_mail_spool(
    spool: Spool, open_spool: Opener, tmp_path: Path, kind: str, removed: bool
) -> None:
    """With its task goes the payload that lies plainly below the mail spool, and no other file."""
    named, leads_to = payload(spool, kind, tmp_path)
    record = form.new_record(a_task())._replace(payload=named)  # as other programs write it
    Path(spool.pending, NAME).write_bytes(form.render(record))
    store = open_spool()
    (seen,) = store.take(NOW, "me", 1)

    store.swap(seen, None)

    assert leads_to.exists() is not removed
    assert list(store.look()) == []


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (State.ACTIVE, State.PENDING, True),
        (State.ACTIVE, State.DEAD, True),
        (State.DEAD, State.TRASH, True),
        (State.DEAD, None, False),
        (State.TRASH, None, False),
    ],
)
def test_a_payload_stays_as_long_as_its_task(
    spool: Spool, open_spool: Opener, tmp_path: Path, start: State, end: State | None, kept: bool
) -> None:
    """A payload is removed when its task leaves for good, and not before."""
    named, leads_to = payload(spool, "below", tmp_path)
    store = open_spool()
    seen = put(store, start, payload=named)

    store.swap(seen, None if end is None else replace(seen, state=end, lease=None))

    assert leads_to.exists() is kept


def test_without_a_mail_spool_no_payload_is_removed(spool: Spool, tmp_path: Path) -> None:
    """A store that knows no mail spool removes nothing but its task."""
    named, leads_to = payload(spool, "below", tmp_path)
    store = NftbanStore(spool._replace(mail_spool=""), lambda: NOW)
    seen = put(store, State.ACTIVE, payload=named)

    store.swap(seen, None)

    assert leads_to.exists()
    store.close()


def test_a_payload_of_a_task_that_was_not_ours_stays(
    spool: Spool, open_spool: Opener, tmp_path: Path
) -> None:
    """When the task is gone, nothing that it names is removed."""
    named, leads_to = payload(spool, "below", tmp_path)
    store = open_spool()
    seen = put(store, State.ACTIVE, payload=named)
    store.swap(seen, verbs.unclaim(seen))

    with pytest.raises(Gone):
        store.swap(seen, None)

    assert leads_to.exists()


# ---- folders that are not there


@pytest.mark.parametrize("word", ["pending", "work", "dlq"])
def test_a_vanished_folder_is_unavailable(spool: Spool, open_spool: Opener, word: str) -> None:
    """When a folder is gone, looking and taking say so; when it is back, they go on."""
    store = open_spool()
    folder = Path(spool.pending).parent / word
    folder.rename(f"{folder}.away")

    with pytest.raises(Unavailable, match=word):
        list(store.look())
    with pytest.raises(Unavailable, match=word):
        open_spool()
    if word != "dlq":
        with pytest.raises(Unavailable, match=word):
            list(store.take(NOW, "me", 1))

    Path(f"{folder}.away").rename(folder)
    assert list(store.look()) == []


@pytest.mark.parametrize("word", ["pending", "work", "dlq"])
def test_a_folder_made_anew_is_used(spool: Spool, open_spool: Opener, word: str) -> None:
    """When a folder was replaced, an instance that is open works with the new one."""
    store = open_spool()
    folder = Path(spool.pending).parent / word
    folder.rename(f"{folder}.away")
    folder.mkdir()
    open_spool().swap(None, a_task())

    (task,) = store.take(NOW, "me", 1)

    assert Path(spool.work, NAME).exists()
    store.swap(task, None)


@pytest.mark.parametrize("word", ["pending", "work", "dlq"])
def test_a_linked_folder_is_unavailable(spool: Spool, word: str, tmp_path: Path) -> None:
    """A state folder that is a symbolic link is not followed."""
    folder = Path(spool.pending).parent / word
    folder.rename(tmp_path / "real")
    folder.symlink_to(tmp_path / "real")

    with pytest.raises(Unavailable, match=word):
        NftbanStore(spool)


# ---- who may not write


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may read, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_another(code: str, *args: str) -> str:
    """What a program prints that runs as nobody, or as we do, if we are not root."""
    done = subprocess.run(
        [sys.executable, "-c", DROP + code, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


DROP = """
import os
# Imported before: another user may not be able to read this interpreter's modules.
import pwd, engine.stores.nftban, engine.order
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
READER = """
import sys
from engine import verbs
from engine.model import Move, Task
from engine.store import StoreError
from engine.stores import open_store
store = open_store(sys.argv[1])
print(len({task for task in store.look() if isinstance(task, Task)}))
print({edge.refused for edge in store.edges.values()})
new = verbs.enqueue("job", 1795170000.0, "0000000f")
for attempt in (lambda: store.swap(None, new), lambda: list(store.swap_all([Move(None, new)]))):
    try:
        print(attempt())
    except StoreError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("locked", ["pending", "work", "dlq", "."])
def test_who_may_not_write_may_still_look(public: Path, locked: str) -> None:
    """Where we may not write, every edge is refused with the folder and the way out; looking
    goes on.
    """
    for word in ("pending", "work", "dlq"):
        (public / word).mkdir()
        (public / word).chmod(0o777)
    (public / "pending" / NAME).write_bytes(text_of(a_task()))
    (public / "pending" / NAME).chmod(0o644)
    public.chmod(0o777)
    (public / locked).chmod(0o555)

    said = as_another(READER, str(public)).splitlines()

    (public / locked).chmod(0o755)
    folder = str(public / locked).removesuffix("/.")
    assert said[0] == "1"
    assert said[1].startswith(f"{{'{folder} is not writable for us: use sudo -u ")
    assert said[2].startswith(f"Unsupported {folder} is not writable")
    assert f"Unsupported('{folder} is not writable" in said[3]


def test_who_may_not_read_is_told_so(public: Path) -> None:
    """A place that may not be read is unavailable, and the message says which."""
    queue = public / "queue"
    for word in ("pending", "work", "dlq"):
        (queue / word).mkdir(parents=True)
    queue.chmod(0o000)

    said = as_another(
        "import sys\n"
        "from engine.stores import open_store\n"
        "from engine.store import Unavailable\n"
        "try:\n"
        "    open_store(sys.argv[1])\n"
        "except Unavailable as error:\n"
        "    print(error)\n",
        str(queue),
    )

    queue.chmod(0o755)
    assert said == f"{queue}: may not be read by this user\n"


# ---- hostile entries


def hostile(kind: str, path: Path, outside: Path) -> str:
    """Put something into pending/ that is no task file; what is said of it."""
    good = text_of(a_task())
    if kind == "symlink":
        outside.write_bytes(good)
        path.symlink_to(outside)
        return "a symbolic link, not followed"
    if kind == "dangling":
        path.symlink_to(outside)
        return "a symbolic link, not followed"
    if kind == "FIFO":
        os.mkfifo(path)
        return "a FIFO, not a task file"
    if kind == "folder":
        path.mkdir()
        return "a folder, not a task file"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = os.open(path.parent, os.O_RDONLY)
            server.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of any length
            os.close(here)
        return "a socket, not a task file"
    if kind == "second link":
        outside.write_bytes(good)
        path.hardlink_to(outside)
        return "has a second hard link"
    if kind == "oversize":
        path.write_bytes(good + b"#" * 65536 + b"\n")
        return f"{len(good) + 65537:,} bytes, expected at most 65,536"
    texts = {
        "empty": (b"", "empty: a write was interrupted"),
        "torn": (good[:-20], "no newline at its end: a write was interrupted"),
        "command": (b"touch /tmp/ran\n", 'line 1: expected KEY="value"'),
    }
    data, said = texts[kind]
    path.write_bytes(data)
    return said


HOSTILE = (
    *("symlink", "dangling", "FIFO", "folder", "socket", "second link", "oversize"),
    *("empty", "torn", "command"),
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_task_file_blocks_nobody(
    spool: Spool, open_spool: Opener, tmp_path: Path, kind: str
) -> None:
    """Whatever lies in pending/: it is a Problem with its reason, stays where it is, nothing
    behind it is touched, and the next task comes.
    """
    outside = tmp_path / "outside"
    said = hostile(kind, Path(spool.pending, NAME), outside)
    store = open_spool()
    store.swap(None, a_task(2))

    shown = problems_in(store)
    by_name = list(store.look({IDENT}))
    taken = [task.id for task in store.take(NOW, "me", 9)]

    assert shown == {f"pending/{NAME}": said}
    assert by_name == [Problem(f"pending/{NAME}", said, State.PENDING)]
    assert taken == [a_task(2).id]
    assert names(spool.pending) == [NAME]
    assert outside.exists() is (kind in ("symlink", "second link"))


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_task_file_is_never_moved(
    spool: Spool, open_spool: Opener, tmp_path: Path, kind: str
) -> None:
    """A task that was replaced by something else since it was seen is left alone."""
    store = open_spool()
    seen = put(store, State.PENDING)
    path = Path(spool.pending, NAME)
    path.unlink()
    hostile(kind, path, tmp_path / "outside")

    with pytest.raises((Gone, Unavailable)):
        store.swap(seen, verbs.purge(seen, NOW))
    with pytest.raises(Gone):
        store.read(seen)

    assert names(spool.pending) == [NAME]
    assert [name for name in names(spool.desk) if name[0] in "TD"] == []


@pytest.mark.parametrize(
    "name", ["README", "a b.task", ".task", ".hidden.task", "x.task.tmp", "a.b.task", "\udcff.task"]
)
def test_a_strange_name_is_a_problem(spool: Spool, open_spool: Opener, name: str) -> None:
    """A file that is not named like a task is said to be there, in a whole look and by its name."""
    Path(spool.pending, name).write_bytes(text_of(a_task()))
    store = open_spool()
    said = "not named like a task: expected ID.task"

    whole = {item.what for item in store.look() if isinstance(item, Problem)}

    assert whole == {said}
    assert list(store.look({name})) == [Problem(f"pending/{name}", said, State.PENDING)]
    assert list(store.take(NOW, "me", 1)) == []


def test_a_look_by_file_name_finds_the_task(open_spool: Opener) -> None:
    """The names that the doorbell gives are file names; the store understands both."""
    store = open_spool()
    seen = put(store, State.PENDING)

    assert list(store.look({NAME})) == [seen]
    assert list(store.look({"20261120T094115Z-job-0000000f.task"})) == [
        Missing("20261120T094115Z-job-0000000f")
    ]


# ---- what the queue's commands need


def test_counts_and_age(spool: Spool, open_spool: Opener) -> None:
    """Task files are counted by folder, and the first pending one says how old the queue is."""
    store = open_spool()
    for number in range(3):
        store.swap(None, a_task(number, created=NOW - 90 + number))
    Path(spool.pending, "0.task").write_bytes(b"broken\n")
    Path(spool.pending, "README").write_bytes(b"")
    list(store.take(NOW, "me", 1))

    counts = store.counts()

    assert (counts[State.PENDING], counts[State.ACTIVE], counts[State.DEAD]) == (3, 1, 0)
    assert store.figures(NOW) == (counts, 89.0)
    assert store.figures(NOW - 500) == (counts, 0.0)


def test_an_empty_queue_has_no_age(open_spool: Opener) -> None:
    """Without a pending task the oldest one is 0 seconds old."""
    counts, age = open_spool().figures(NOW)

    assert set(counts.values()) == {0}
    assert age == 0.0


@pytest.mark.parametrize(
    ("age", "days", "expired"),
    [(7 * DAY, 7, False), (7 * DAY + 1, 7, True), (0, 0, False), (1, 0, True), (DAY, 0.5, True)],
)
def test_which_dead_have_expired(
    spool: Spool, open_spool: Opener, age: float, days: float, expired: bool
) -> None:
    """A dead task has expired when it died strictly more than so many days ago."""
    Path(spool.dlq, NAME).write_bytes(text_of(a_task(), dead_since=int(NOW - age)))
    store = open_spool()

    assert [task.id for task in store.expired(NOW, days)] == [IDENT] * expired


def test_who_does_not_say_when_it_died_has_not_expired(spool: Spool, open_spool: Opener) -> None:
    """A dead task without a time of death is kept, whatever its file's neighbours say."""
    Path(spool.dlq, NAME).write_bytes(text_of(a_task()))

    assert list(open_spool().expired(NOW, 0)) == []


def test_an_edge_that_is_not_there_is_refused_before_the_disk(open_spool: Opener) -> None:
    """This store knows no finished tasks: they leave."""
    store = open_spool()
    seen = put(store, State.ACTIVE)

    with pytest.raises(Unsupported, match="no way from active to done"):
        store.swap(seen, replace(seen, state=State.DONE))
