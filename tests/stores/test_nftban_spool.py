"""The spool on the disk: names, limits, hints, the desk and what a dead process leaves on it."""

import fcntl
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Full, Gone, Unavailable, Unsupported
from engine.stores import open_store
from engine.stores.nftban import NftbanStore, Spool, form, make_spool
from engine.stores.nftban.claims import REVALIDATE
from engine.stores.nftban.spool import EXCLUSIVE
from tests.stores.nobody import by_nobody, nobodys_folder
from tests.stores.seen import problems_in
from tests.stores.spooled import (
    FILE,
    IDENT,
    NAME,
    NOW,
    a_task,
    just_before,
    names,
    new_spool,
    put,
    text_of,
    there,
    under_way,
)

Opener = Callable[..., NftbanStore]

DAY = 86_400.0


def test_ids_are_stamped_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is the second in UTC whatever the time zone here, the kind, and 8 hex digits."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    task = verbs.enqueue("feeds_sync", 1_795_167_675.9, "da0619a0")
    monkeypatch.undo()
    time.tzset()
    assert task.id == "20261120T094115Z-feeds_sync-da0619a0"
    assert task.created == 1_795_167_675.0
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


def test_a_lot_fills_the_queue_exactly(open_spool: Opener) -> None:
    """Of a lot of new tasks as many are taken as there is room for, and the others are refused."""
    for more, room in enumerate((0, 1, 3, 7), 1):
        store = open_spool(max_pending=room)
        lot = [Move(None, a_task(100 * more + number)) for number in range(20)]
        errors = [type(outcome.error) for outcome in store.swap_all(lot)]
        assert errors.count(Full) == 20 - room
        assert store.counts()[State.PENDING] == room
        list(store.take(NOW, "me", room))


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


def test_no_task_waits_for_more_than_a_week(spool: Spool, open_spool: Opener) -> None:
    """A due time more than 7 days away came from a clock that jumped: a week since it was written
    is enough, and the file stays as it is."""
    now = float(int(time.time())) + 60
    path = Path(spool.pending, NAME)
    for ahead, clamped in ((60.0, False), (7 * DAY, False), (7 * DAY + 1, True), (4e9, True)):
        path.write_bytes(text := text_of(a_task(due=now + ahead)))
        seen = there(open_spool(lambda: now))
        assert seen.due == (path.stat().st_ctime + 7 * DAY if clamped else now + ahead), ahead
        assert path.read_bytes() == text


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
    the future, was never meant as a due time."""
    store = NftbanStore(own_spool)
    store.swap(None, a_task())
    taken = list(store.take(time.time() - 3600, "me", 1))
    assert [task.id for task in taken] == [IDENT]
    store.close()


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


def test_a_folder_around_the_desk_is_refused(spool: Spool) -> None:
    """A state folder that would contain the desk is refused: the real program searches deep."""
    queue = str(Path(spool.pending).parent)
    for bad in (
        spool._replace(dlq=spool.desk),
        spool._replace(work=queue),
        spool._replace(dlq=f"{queue}/"),
    ):
        with pytest.raises(Unavailable, match="needs a folder of its own"):
            NftbanStore(bad)


def test_folders_on_two_file_systems_are_refused(spool: Spool) -> None:
    """Between file systems nothing can be renamed, so such a spool is refused at once."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == Path(spool.pending).stat().st_dev:
            pytest.skip("no second file system here")
        for bad in (spool._replace(work=elsewhere), spool._replace(pending=elsewhere)):
            with pytest.raises(Unavailable, match="another file system"):
                NftbanStore(bad)


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
    assert under_way(spool) == []


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
    assert under_way(spool) == []


def test_a_file_replaced_as_we_claim_it_is_given_back(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was rewritten between our reading and our claiming it may not be due any more:
    it goes back to pending, and is claimed for what it says now."""
    store = open_spool()
    store.swap(None, a_task())
    path, written = Path(spool.pending, NAME), text_of(a_task(due=NOW + 60))
    just_before(monkeypatch, lambda: path.write_bytes(written))
    assert list(store.take(NOW, "me", 1)) == []
    assert path.read_bytes() == written
    assert names(spool.work) == []


def test_a_failed_move_leaves_no_draft(spool: Spool, open_spool: Opener) -> None:
    """What was prepared for a move that did not happen is off the desk again."""
    store = open_spool()
    dead = put(store, State.DEAD)
    Path(spool.dlq, NAME).rename(Path(spool.pending, NAME))
    with pytest.raises(Gone):
        store.swap(dead, verbs.retry(dead, NOW))
    with pytest.raises(Gone):
        store.swap(None, a_task())
    assert under_way(spool) == []


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


def before_placing(
    store: NftbanStore, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Let something happen right before the store puts files where they go."""
    place = store._desk._place_all

    def placed(drafts: list[Any]) -> None:
        happens()
        place(drafts)

    monkeypatch.setattr(store._desk, "_place_all", placed)


@pytest.mark.parametrize("late", [False, True])
def test_nothing_comes_back_beside_another_of_its_id(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held or trashed stays there when a task of its id stands anywhere else, or comes to
    stand there on the way."""
    double = text_of(a_task(description="the double"))
    for number, (start, end, word) in enumerate(COMING_BACK):
        spool = new_spool(tmp_path / str(number))
        with closing(NftbanStore(spool, lambda: NOW)) as store:
            seen = put(store, start)
            folder = Path(spool.desk, {State.HELD: "held", State.TRASH: "trash"}[start])
            other = Path(spool.pending).parent / word / NAME
            if late:
                before_placing(store, monkeypatch, partial(other.write_bytes, double))
            else:
                other.write_bytes(double)

            with pytest.raises(Gone, match=f"a task of this id stands in {word} already"):
                store.swap(seen, replace(seen, state=end))

            assert (folder / NAME).read_bytes() == FILE
            assert other.read_bytes() == double
            assert under_way(spool) == []


def test_what_was_rewritten_on_the_way_back_is_set_aside(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another of its id that came meanwhile, a task with a new text is kept apart."""
    store = open_spool()
    held = put(store, State.HELD)
    double = text_of(a_task(description="the double"))
    before_placing(store, monkeypatch, lambda: Path(spool.work, NAME).write_bytes(double))
    with pytest.raises(Gone, match="stood twice"):
        store.swap(held, replace(held, state=State.PENDING, due=NOW + 60))
    (aside,) = names(f"{spool.desk}/twice")
    assert Path(spool.desk, "twice", aside).read_bytes() == text_of(a_task(due=NOW + 60))
    assert (names(spool.pending), names(spool.work)) == ([], [NAME])


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


def test_a_committed_move_is_finished_any_other_taken_back(tmp_path: Path) -> None:
    """What lies withdrawn goes where its name says if it says already what it shall say there;
    else back, but never into dlq/ without a time of death."""
    for number, (start, end, fits, lands) in enumerate(
        (
            ("work", "pending", True, "pending"),
            ("work", "pending", False, "work"),
            ("pending", "held", True, ".spooldeck/held"),
            ("pending", "trash", False, "pending"),
            ("held", "pending", False, ".spooldeck/held"),
            ("work", "dlq", True, "dlq"),
            ("pending", "gone", True, "pending"),
            ("dlq", "pending", False, "pending"),
        )
    ):
        spool = new_spool(tmp_path / str(number))
        left = leave(spool, end, start=start, fits=fits)
        with closing(NftbanStore(spool, lambda: NOW)) as store:
            said = store.recover()

            assert said == [f"{IDENT}: interrupted, back in {lands.rpartition('/')[2]}"]
            assert Path(spool.pending).parent.joinpath(lands, NAME).read_bytes() == FILE
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
    missing."""
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


def test_strange_things_on_the_desk_stay(spool: Spool, open_spool: Opener) -> None:
    """What recovery does not understand it leaves where it is."""
    Path(spool.desk).mkdir()
    moves = (f"D.{IDENT}.pending.held.zz.1-0-1", f"D.{IDENT}.mars.held.00000000.1-0-1")
    strange = ("D", "D.x", *moves, "notes", "T", ".hidden", "held.bak")
    for name in strange:
        Path(spool.desk, name).write_bytes(b"?")
    assert open_spool().recover() == []
    assert all(Path(spool.desk, name).read_bytes() == b"?" for name in strange)


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


PAYLOADS = {
    "{mails}/mail-1/meta.sh": True,
    "{outside}/meta.sh": False,
    "{mails}/mail-1/../../../outside/meta.sh": False,
    "{mails}/mail-1/../mail-1/meta.sh": False,
    "{mails}/link/meta.sh": False,
    "{mails}/mail-1/link.sh": False,
    "{mails}": False,
    "{mails}/mail-1": False,
    "{mails}-evil/meta.sh": False,
    "{mails}//mail-1/meta.sh": False,
    "mail-1/meta.sh": False,
}
"""What a task names, and whether that goes with it."""


def test_a_payload_goes_only_from_the_mail_spool(tmp_path: Path) -> None:
    """With its task goes the payload that lies plainly below the mail spool, and no other file."""
    for number, (named, goes) in enumerate(PAYLOADS.items()):
        spool = new_spool(tmp_path / str(number) / "data")
        mail, outside = Path(spool.mail_spool, "mail-1"), tmp_path / str(number) / "outside"
        for folder in (mail, outside):
            folder.mkdir()
            (folder / "meta.sh").write_text("precious\n")
        Path(spool.mail_spool, "link").symlink_to(outside)
        (mail / "link.sh").symlink_to(outside / "meta.sh")
        record = form.new_record(a_task())._replace(
            payload=named.format(mails=spool.mail_spool, outside=outside)
        )  # as other programs write it
        Path(spool.pending, NAME).write_bytes(form.render(record))
        with closing(NftbanStore(spool, lambda: NOW)) as store:
            (seen,) = store.take(NOW, "me", 1)

            store.swap(seen, None)

            assert list(store.look()) == []
        assert (mail / "meta.sh").exists() is not goes, named
        assert (outside / "meta.sh").exists(), named


def test_a_payload_stays_as_long_as_its_task(tmp_path: Path) -> None:
    """A payload is removed when its task leaves for good, and not before."""
    for number, (start, end) in enumerate(
        (
            (State.ACTIVE, State.PENDING),
            (State.ACTIVE, State.DEAD),
            (State.DEAD, State.TRASH),
            (State.DEAD, None),
            (State.TRASH, None),
        )
    ):
        spool = new_spool(tmp_path / str(number))
        payload = Path(spool.mail_spool, "meta.sh")
        payload.write_text("precious")
        with closing(NftbanStore(spool, lambda: NOW)) as store:
            seen = put(store, start, str(payload))

            store.swap(seen, None if end is None else replace(seen, state=end, lease=None))

        assert payload.exists() is (end is not None), (start, end)


def test_without_a_mail_spool_no_payload_is_removed(spool: Spool, tmp_path: Path) -> None:
    """A store that knows no mail spool removes nothing but its task."""
    payload = tmp_path / "meta.sh"
    payload.write_text("precious")
    with closing(NftbanStore(spool._replace(mail_spool=""), lambda: NOW)) as store:
        store.swap(put(store, State.ACTIVE, str(payload)), None)
    assert payload.exists()


def test_a_payload_of_a_task_that_was_not_ours_stays(spool: Spool, open_spool: Opener) -> None:
    """When the task is gone, nothing that it names is removed."""
    payload = Path(spool.mail_spool, "meta.sh")
    payload.write_text("precious")
    store = open_spool()
    seen = put(store, State.ACTIVE, str(payload))
    store.swap(seen, verbs.unclaim(seen))
    with pytest.raises(Gone):
        store.swap(seen, None)
    assert payload.exists()


def test_a_vanished_folder_is_unavailable(spool: Spool, open_spool: Opener) -> None:
    """When a folder is gone, looking and taking say so; when it is back, they go on."""
    store = open_spool()
    for word in ("pending", "work", "dlq"):
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


def test_who_may_not_write_may_still_look() -> None:
    """Where we may not write, every edge is refused with the folder and the way out; looking
    goes on."""

    def look(place: Path, folder: str) -> None:
        with closing(open_store(str(place))) as store:
            assert {task.id for task in store.look() if isinstance(task, Task)} == {IDENT}
            (refused,) = {edge.refused for edge in store.edges.values()}
            assert refused.startswith(f"{folder} is not writable for us: use sudo -u ")
            with pytest.raises(Unsupported, match=f"^{folder} is not writable"):
                store.swap(None, a_task(2))
            (outcome,) = store.swap_all([Move(None, a_task(2))])
            assert str(outcome.error).startswith(f"{folder} is not writable")

    with nobodys_folder() as place:
        for word in ("pending", "work", "dlq"):
            (place / word).mkdir(mode=0o755)
            (place / word).chmod(0o777)
        (place / "pending" / NAME).write_bytes(FILE)
        (place / "pending" / NAME).chmod(0o644)
        for locked in ("pending", "work", "dlq", "."):
            mode = (place / locked).stat().st_mode
            (place / locked).chmod(0o555)
            folder = str(place / locked).removesuffix("/.")
            by_nobody(partial(look, place, folder))
            (place / locked).chmod(mode)


def test_who_may_not_read_is_told_so() -> None:
    """A place that may not be read is unavailable, and the message says which."""
    with nobodys_folder() as place:
        queue = place / "queue"
        for word in ("pending", "work", "dlq"):
            (queue / word).mkdir(parents=True)
        queue.chmod(0o000)

        def open_it() -> None:
            with pytest.raises(Unavailable, match=f"^{queue}: may not be read by this user$"):
                open_store(str(queue))

        by_nobody(open_it)
        queue.chmod(0o755)


def test_a_look_by_file_name_finds_the_task(open_spool: Opener) -> None:
    """The names that the doorbell gives are file names; the store understands both."""
    store = open_spool()
    seen = put(store, State.PENDING)
    assert list(store.look({NAME})) == [seen]
    assert list(store.look({"20261120T094115Z-job-0000000f.task"})) == [
        Missing("20261120T094115Z-job-0000000f")
    ]


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


def test_which_dead_have_expired(spool: Spool, open_spool: Opener) -> None:
    """A dead task has expired when it died strictly more than so many days ago; one that does not
    say when it died never has."""
    path, store = Path(spool.dlq, NAME), open_spool()
    for age, days, expired in (
        (7 * DAY, 7, False),
        (7 * DAY + 1, 7, True),
        (0, 0, False),
        (1, 0, True),
        (DAY, 0.5, True),
        (None, 0, False),
    ):
        path.write_bytes(text_of(a_task(), None if age is None else int(NOW - age)))
        assert [task.id for task in store.expired(NOW, days)] == [IDENT] * expired, (age, days)
