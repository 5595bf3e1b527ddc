"""A disk that refuses, a process that stops, a folder that is replaced: nothing is lost."""

import errno
import fcntl
import itertools
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, Problem, State, Task
from engine.store import Gone, StoreError, Unavailable
from engine.system import files
from tests.nftban_spool import (
    FILE,
    IDENT,
    NAME,
    NOW,
    a_task,
    just_before,
    later,
    new_spool,
    opened,
    put,
    taken,
    there,
)
from tests.tables import each


def standing(spool: SpoolFolders) -> list[str]:
    """Every whole copy of the task, wherever it lies below the queue's folder, by its folder."""
    queue = Path(spool.pending).parent
    return sorted(
        path.parent.relative_to(queue).as_posix()
        for path in queue.rglob("*")
        if path.is_file() and not path.name.startswith("T.") and IDENT in path.name
    )


@contextmanager
def stopped_with(path: Path) -> Iterator[None]:
    """Another process has the flock of a file, and was stopped."""
    path.parent.mkdir(exist_ok=True)
    program = (
        "import fcntl, os, signal, sys\n"
        "file = open(sys.argv[1], 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)]) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            process.kill()


def test_a_stopped_process_blocks_no_other(spool: SpoolFolders) -> None:
    """A wait for the staging lock ends after its time; recovery finishes what was moving."""
    store = NftbanStore(spool, lambda: NOW, patience=0.05)
    task = put(store, State.ACTIVE)
    with stopped_with(Path(spool.staging_dir, ".lock")):
        for old, new in ((None, a_task(2)), (task, verbs.nack(task, NOW + 60, "failed"))):
            with pytest.raises(Unavailable, match=r"locked for 0\.05 s"):
                store.swap(old, new)
        (outcome,) = store.swap_all([Move(None, a_task(3))])
        assert isinstance(outcome.error, Unavailable)
        with pytest.raises(Unavailable):
            store.recover()
        assert standing(spool) == [".spooldeck"]
    assert store.recover() == [f"{IDENT}: interrupted move, now in pending"]
    store.swap(None, a_task(2))
    assert (standing(spool), there(store).attempts) == (["pending"], 1)


def test_a_lock_is_waited_for_in_pauses(tmp_path: Path) -> None:
    """A lock that is released in time is taken, and no clock is read for it."""
    with (tmp_path / "x").open("w") as theirs, (tmp_path / "x").open("w") as ours:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                fcntl.flock(theirs, fcntl.LOCK_UN)

        with files.Flock(ours.fileno(), 10.0, pause):
            assert not files.claim_flock(theirs.fileno())
        assert len(pauses) == 3
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with (
            pytest.raises(TimeoutError, match="locked for 1 s"),
            files.Flock(ours.fileno(), 1.0, pauses.append),
        ):
            pass
        assert 1.0 <= sum(pauses[3:]) < 1.1


def test_looking_takes_no_lock(spool: SpoolFolders) -> None:
    """A lock taken to see whether a process works on a file would make a recovery pass it by."""
    Path(spool.staging_dir).mkdir()
    for number, word in enumerate(("held", "trash")):
        moving = f"D.{a_task(number).id}.pending.{word}.{zlib.crc32(FILE):08x}.1-0-1"
        Path(spool.staging_dir, moving).write_bytes(FILE)
    store, locks = opened(spool), list[str]()
    watching = [locks]

    def watch(event: str, _: object) -> None:
        for seen in watching:
            if event.startswith("fcntl"):
                seen.append(event)

    sys.addaudithook(watch)
    with Path(spool.staging_dir, moving).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        locks.clear()
        (where,) = (item.where for item in store.scan() if isinstance(item, Problem))
    watching.clear()
    assert locks == [] and a_task(0).id in where


def refusing(number: int = errno.EIO, after: int = 0) -> tuple[Callable[[int], None], list[int]]:
    """A call that fails with an error number, always or for one call only; the calls so far."""
    fsync, calls = files.fsync, list[int]()

    def call(fd: int, *args: object, **options: object) -> None:
        calls.append(0)
        if after in (0, len(calls)):
            raise OSError(number, os.strerror(number))
        fsync(fd)

    return call, calls


@pytest.mark.parametrize("name", ["rename", "write", "unlink", "fsync", "fchown"])
@each(
    ("state", "number"),
    [
        (state, number)
        for state in (State.PENDING, State.ACTIVE, State.DEAD)
        for number in (errno.EIO, errno.EINTR, errno.ENOSPC, errno.EROFS)
    ],
    spool=new_spool,
)
def test_no_disk_error_is_raw(spool: SpoolFolders, name: str, state: State, number: int) -> None:
    """Under any error of a call each act raises its own errors, and the task is there once."""
    if os.geteuid() == 0:
        for folder in (spool.pending, spool.work, spool.dlq):
            os.chown(folder, 65534, 65534)  # so that files are given away
    store = opened(spool, durable=True)
    task = put(store, state)
    trashed = task._replace(state=State.TRASH)
    new = verbs.give_up_task(task, "no", 1) if state is State.ACTIVE else trashed
    acts: list[Callable[[], object]] = [
        lambda: store.swap(None, a_task(2)),
        lambda: list(store.take(NOW, "me", 1)),
        lambda: store.swap(task, new),
        lambda: list(store.swap_all([Move(task, new)])),
        store.recover,
        store.quarantine_broken,
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, name, refusing(number)[0])
        for act in acts:
            try:
                act()
            except StoreError as error:
                assert isinstance(error, Unavailable | Gone), error
    assert len(standing(spool)) == 1
    store.recover()
    assert len(standing(spool)) == 1 and standing(spool) != [".spooldeck"]


def test_out_of_descriptors_nothing_is_broken(spool: SpoolFolders) -> None:
    """A process that may open no more files says so: no task is refused, moved or lost for it."""
    store, claimed, errors = opened(spool, later), list[Task](), list[str]()
    for number in range(3):
        store.swap(None, a_task(number))
    first_free = os.dup(0)
    os.close(first_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    acts: list[Callable[[], object]] = [
        lambda: claimed.extend(store.take(NOW, "me", 1)),
        lambda: store.swap(None, a_task(7)),
        store.recover,
        store.quarantine_broken,
    ]
    try:
        for more, act in itertools.product(range(6), acts):
            resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + more, hard))
            try:
                act()
            except Unavailable as error:
                errors.append(str(error))
            except Gone:
                continue
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert any("Too many open files" in words for words in errors)
    assert claimed and not Path(spool.staging_dir, "corrupt").exists()
    items = set(store.scan())
    assert len(items) == 4 and all(isinstance(item, Task) for item in items)


def test_a_bad_block_stops_no_queue(spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed by and named once; a claim that cannot be confirmed is given back."""
    store = opened(spool)
    for number in range(3):
        store.swap(None, a_task(number))
    failing_ids = {a_task(0).id, a_task(1).id}
    read, stat = files.open_guarded, os.stat

    def guarded(name: str, folder: int) -> int:
        if name.removesuffix(".task") in failing_ids:
            raise OSError(errno.EIO, "Input/output error")
        return read(name, folder)

    def fails(path: object, *args: object, **options: object) -> object:
        if str(path).startswith(f"{spool.work}/"):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "open_guarded", guarded)
    assert [task.id for task in store.take(NOW, "me", 9)] == [a_task(2).id]
    with pytest.raises(Unavailable, match="Input/output error"):
        list(store.take(NOW, "me", 9))
    passed = "skipped, cannot be claimed: Input/output error"
    assert store.quarantine_broken() == [f"pending/{a_task(n).id}.task: {passed}" for n in (0, 1)]
    assert store.quarantine_broken() == []
    failing_ids.clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fails)
        with pytest.raises(Unavailable):
            list(store.take(NOW, "me", 1))
    assert len(list(store.take(NOW, "me", 9))) == 2


def test_an_interrupted_change_is_finished_by_the_same_worker(
    spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that runs for weeks finishes its own interrupted change."""
    store = opened(spool, durable=True)
    task = put(store, State.ACTIVE)
    folder, fsync, (fails, _) = Path(spool.work).stat().st_ino, files.fsync, refusing()

    def refuse(fd: int) -> None:
        (fails if os.fstat(fd).st_ino == folder else fsync)(fd)

    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync", refuse)
        with pytest.raises(Unavailable, match="interrupted, recovery will finish it"):
            store.swap(task, verbs.nack(task, NOW + 60, "failed"))
    assert standing(spool) == [".spooldeck"]
    assert store.quarantine_broken() == [f"{IDENT}: interrupted move, now in pending"]
    assert (store.quarantine_broken(), standing(spool)) == ([], ["pending"])


CHANGES: list[tuple[str, State | None, Callable[[Task], Task]]] = [
    ("enqueue", None, lambda task: task),
    ("nack", State.ACTIVE, lambda task: verbs.nack(task, NOW + 60, "failed")),
    ("edit", State.PENDING, lambda task: task._replace(description="after")),
    ("hold", State.PENDING, lambda task: verbs.hold(task, NOW)),
]
"""The state of the task before, and what it becomes."""


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@each(("change", "state", "new"), CHANGES)
def test_a_failed_fsync_is_reported(
    together: bool, tmp_path: Path, change: str, state: State | None, new: Callable[[Task], Task]
) -> None:
    """Whichever fsync of a change the disk refuses, the answer is that it is not done."""
    for number in itertools.count(1):
        store = opened(new_spool(tmp_path / f"{change}{number}"), durable=True)
        old = None if state is None else put(store, state)
        outcome: Exception | None = None
        with pytest.MonkeyPatch.context() as patch:
            fails, calls = refusing(after=number)
            patch.setattr(files, "fsync", fails)
            try:
                if together:
                    (done,) = store.swap_all([Move(old, new(old or a_task()))])
                    outcome = done.error
                else:
                    store.swap(old, new(old or a_task()))
            except Unavailable as refusal:
                outcome = refusal
        assert isinstance(outcome, Unavailable) or outcome is None
        assert (outcome is None) == (len(calls) < number), (change, number, outcome)
        if outcome is None:
            assert number > 2, "at least the file and its folder are synced"
            break


def test_a_file_written_line_by_line_is_claimed_only_whole(spool: SpoolFolders) -> None:
    """Cut after any of its lines, a young file is neither claimed nor moved nor quarantined; nor is
    a claimed or dead one that is being rewritten; once it is whole, it is what it was."""
    rows = FILE.splitlines(keepends=True)
    halves = [b"".join(rows[:count]) for count in range(len(rows))]
    path = Path(spool.pending, NAME)
    for half in halves:
        path.write_bytes(half)
        now = time.time()  # as the file has it
        store = opened(spool, partial(float, now))
        assert (taken(store, now), store.quarantine_broken()) == ([], []), half
        for task in {item for item in store.scan() if isinstance(item, Task)}:
            with pytest.raises(Gone):
                store.swap(task, verbs.hold(task, now))
        assert path.read_bytes() == half
    path.write_bytes(FILE)
    assert taken(store, time.time()) == [IDENT]

    changes: tuple[tuple[str, State, Callable[[Task], Task]], ...] = (
        (spool.work, State.ACTIVE, lambda task: verbs.nack(task, 0, "orphan")),
        (spool.dlq, State.DEAD, lambda task: verbs.retry(task, 0)),
    )
    for folder, state, change in changes:
        path = Path(folder, NAME)
        for half in halves:
            with path.open("wb") as writer:
                writer.write(half)
                writer.flush()
                store = opened(spool, time.time)
                tasks = {item for item in store.scan() if isinstance(item, Task)}
                moves = [Move(task, change(task)) for task in tasks]
                assert all(outcome.error for outcome in store.swap_all(moves)), (folder, half)
            path.write_bytes(FILE)
            assert there(store).state is state
        path.unlink()


def test_a_torn_file_in_staging_waits_for_a_minute(spool: SpoolFolders) -> None:
    """The real program may be writing it: it goes back only when nothing has changed since."""
    Path(spool.staging_dir).mkdir()
    left = Path(spool.staging_dir, f"D.{IDENT}.pending.held.00000000.1-0-1")
    for data in (b"", FILE[:70], FILE[:-1]):
        left.write_bytes(data)
        assert opened(spool, lambda: time.time() + 59).recover() == []
        assert standing(spool) == [".spooldeck"]
        assert opened(spool, later).recover()
        assert standing(spool) == ["pending"]
        Path(spool.pending, NAME).unlink()


VERBS: dict[str, tuple[State | None, str | None, Callable[[Task], Task | None]]] = {
    "add": (None, "pending", lambda task: task),
    "take": (State.PENDING, "work", lambda task: task),
    "ack": (State.ACTIVE, None, lambda task: None),
    "nack": (State.ACTIVE, "pending", lambda task: verbs.nack(task, NOW + 60, "no")),
    "bury": (State.ACTIVE, "dlq", lambda task: verbs.give_up_task(task, "no", 1)),
    "hold": (State.PENDING, None, lambda task: verbs.hold(task, NOW)),
}
"""The state of a task before a verb, its folder afterwards, and what it becomes."""


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("verb", VERBS)
@each("word", ["pending", "work", "dlq", ".spooldeck", "all"], spool=new_spool)
def test_a_verb_works_by_the_path(spool: SpoolFolders, verb: str, within: bool, word: str) -> None:
    """A folder replaced before a verb, or within it before its first move: what is reported as done
    is seen by way of the path, else it is reported as not done; the task is there at most once."""
    (state, goal, new), store, queue = VERBS[verb], opened(spool), Path(spool.pending).parent
    task = a_task() if state is None else put(store, state)
    if state is None:
        store.swap(None, a_task(2))  # everything is open

    def replaced() -> None:
        (queue if word == "all" else queue / word).rename(queue.with_name("moved"))
        for name in ("pending", "work", "dlq") if word == "all" else (word,):
            (queue / name).mkdir(parents=True)

    answer: object = None
    with pytest.MonkeyPatch.context() as patch, suppress(Unavailable, Gone):
        if within:
            just_before(patch, replaced)
        else:
            replaced()
        if verb == "take":
            answer = taken(store, limit=1)
        else:
            answer = store.swap(None if state is None else task, new(task))
    states = [item.state for item in opened(spool).scan({IDENT}) if isinstance(item, Task)]
    if answer and goal is not None:
        assert [store.states[state] for state in states] == [goal]
    every = (*queue.with_name("moved").rglob("*"), *queue.rglob("*"))
    left = [path for path in every if path.is_file() and IDENT in path.name]
    whole = [path for path in left if not path.name.startswith("T.")]
    lost = (verb == "ack" and answer == "") or (verb == "add" and answer is None)
    assert len(whole) == (0 if lost else 1), whole
