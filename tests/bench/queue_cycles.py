"""One queue's whole cycle, enqueue then take and ack: the bare system calls, ours, and each peer.

A cycle is opened in a new folder. Its batch is 0: not durable; 1: each task durable before the
next; more: that many made durable together. Peers have no batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.model import Move

TEXT = (
    'TASK_ID="{id}"\nTASK_TYPE="{kind}"\nTASK_DESCRIPTION="Feed enabled: spamhaus"\n'
    'TASK_CREATED_EPOCH="1795239223"\nTASK_RETRIES="0"\nTASK_NEXT_ATTEMPT_EPOCH="0"\n'
    'TASK_LAST_ERROR=""\nTASK_PAYLOAD_FILE=""\n'
)
DATA = TEXT.format(id="20261121T053343Z-feeds_sync-00000000", kind="feeds_sync")


class Cost(NamedTuple):
    """Microseconds a task, by the clock and of the processor."""

    enqueue: float
    whole: float
    whole_cpu: float


class Queue(NamedTuple):
    """An open queue: add so many tasks; take and finish all, and return how many; close."""

    add: Callable[[int], object]
    drain: Callable[[], int]
    close: Callable[[], object] = lambda: None


Opener: TypeAlias = Callable[[str, int], Queue]


def run_cycle(opener: Opener, folder: str, number: int, batch: int) -> Cost:
    """Add, take and finish so many tasks; all of them must come back."""
    queue = opener(folder, batch)
    cpu, began = time.process_time(), time.perf_counter()
    queue.add(number)
    added = time.perf_counter()
    done = queue.drain()
    spent = added - began, time.perf_counter() - began, time.process_time() - cpu
    queue.close()
    assert done == number, f"{done} of {number} tasks came back"
    return Cost(*(seconds / number * 1e6 for seconds in spent))


def floor(folder: str, batch: int) -> Queue:
    """open, write, close, rename | rename, open, read, close, unlink: nine system calls a task.

    Durable: fsync of each file before the rename, and of the folder once per batch; in a batch
    posix_fadvise(DONTNEED) starts the writes first."""
    fds = []
    for name in ("tmp", "pending", "work"):
        os.mkdir(f"{folder}/{name}")
        fds.append(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_DIRECTORY))
    tmp, pending, work = fds
    data, flags = DATA.encode(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

    def add(number: int) -> None:
        names = [f"20261121T053343Z-feeds_sync-{n:08x}.task" for n in range(number)]
        for start in range(0, number, batch or 1):
            group, opened = names[start : start + (batch or 1)], []
            for name in group:
                fd = os.open(name, flags, 0o640, dir_fd=tmp)
                os.write(fd, data)
                opened.append(fd)
            for fd in opened if batch > 1 else ():
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for name, fd in zip(group, opened, strict=True):
                if batch:
                    os.fsync(fd)
                os.close(fd)
                os.rename(name, name, src_dir_fd=tmp, dst_dir_fd=pending)
            if batch:
                os.fsync(pending)

    def drain() -> int:
        done = 0
        for name in sorted(os.listdir(pending)):
            os.rename(name, name, src_dir_fd=pending, dst_dir_fd=work)
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=work)
            done += bool(os.read(fd, 65537))
            os.close(fd)
            os.unlink(name, dir_fd=work)
        return done

    return Queue(add, drain)


def open_queue(folder: str, *, durable: bool) -> NftbanStore:
    """A new queue of ours, declared exclusive."""
    queue = f"{folder}/queue"
    spool = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", max_pending=10**9)
    make_spool(spool._replace(durable=durable), exclusive=True)
    return NftbanStore(spool._replace(durable=durable))


def ours(folder: str, batch: int) -> Queue:
    """swap or swap_all | take and swap."""
    store = open_queue(folder, durable=bool(batch))

    def add(number: int) -> None:
        now, words = time.time(), "Feed enabled: spamhaus"
        tasks = (verbs.enqueue("feeds_sync", now, f"{n:08x}", words) for n in range(number))
        if batch > 1:
            for outcome in store.swap_all(Move(None, task) for task in tasks):
                assert outcome.error is None, outcome.error
        else:
            for task in tasks:
                store.swap(None, task)

    def drain() -> int:
        done = 0
        for task in store.take(time.time(), "bench", 10**9):
            store.swap(task, None)
            done += 1
        return done

    return Queue(add, drain, store.close)


def in_groups(folder: str, batch: int) -> Queue:
    """swap_all of so many additions, and of so many tasks that were taken; not durable."""
    store = open_queue(folder, durable=False)

    def add(number: int) -> None:
        now, words = time.time(), "Feed enabled: spamhaus"
        tasks = (verbs.enqueue("feeds_sync", now, f"{n:08x}", words) for n in range(number))
        for outcome in store.swap_all(Move(None, task) for task in tasks):
            assert outcome.error is None, outcome.error

    def drain() -> int:
        done, taken = 0, store.take(time.time(), "bench", 10**9)
        while group := list(islice(taken, batch)):
            done += sum(one.error is None for one in store.swap_all(Move(t, None) for t in group))
        return done

    return Queue(add, drain, store.close)


# ---- the peers


def _peer(put: Callable[[Any], object], drain: Callable[[], int], data: Any = DATA) -> Queue:
    def add(number: int) -> None:
        for _ in range(number):
            put(data)

    return Queue(add, drain)


def _module(name: str) -> Any:
    return import_module(name)


def _dirq(folder: str, batch: int) -> Queue:
    queue = _module("dirq.QueueSimple").QueueSimple(f"{folder}/q")

    def drain() -> int:
        done, name = 0, queue.first()
        while name:
            if queue.lock(name):
                done += bool(queue.get(name))
                queue.remove(name)
            name = queue.next()
        return done

    return _peer(queue.add, drain, DATA.encode())


def _persist_queue(folder: str, batch: int) -> Queue:
    module, empty = _module("persistqueue"), _module("persistqueue.exceptions").Empty
    if batch:
        queue = module.SQLiteAckQueue(f"{folder}/q", auto_commit=True)
    else:
        queue = module.Queue(f"{folder}/q", tempdir=folder, autosave=True)

    def drain() -> int:
        done = 0
        while True:
            try:
                item = queue.get(block=False)
            except empty:
                return done
            queue.ack(item) if batch else queue.task_done()
            done += 1

    return _peer(queue.put, drain)


def _diskcache(folder: str, batch: int) -> Queue:
    queue = _module("diskcache").Deque(directory=f"{folder}/q")
    return _peer(queue.append, lambda: sum(bool(queue.popleft()) for _ in range(len(queue))))


def _litequeue(folder: str, batch: int) -> Queue:
    queue = _module("litequeue").LiteQueue(f"{folder}/q.db")
    return _peer(
        queue.put,
        lambda: sum(bool(queue.done(item.message_id)) or 1 for item in iter(queue.pop, None)),
    )


def _huey(folder: str, batch: int) -> Queue:
    return huey_queue(folder, lambda _: None, is_durable=bool(batch))


def huey_queue(folder: str, run: Callable[[Any], object], *, is_durable: bool = True) -> Queue:
    """huey on SQLite with fsync, or on files; it calls a function for each task."""
    module = _module("huey")
    if is_durable:
        queue = module.SqliteHuey("q", filename=f"{folder}/q.db", results=False, fsync=True)
    else:
        queue = module.FileHuey("q", path=f"{folder}/q", results=False)
    done: list[object] = []

    def work(data: object) -> None:
        run(data)
        done.append(data)

    def drain() -> int:
        for message in iter(queue.dequeue, None):
            queue.execute(message)
        return len(done)

    return _peer(queue.task()(work), drain)


class Peer(NamedTuple):
    """A queue of another project."""

    package: str
    note: str
    opener: Opener
    is_durable: bool = False
    most: int = 10**9
    """Tasks above which it is too slow to be compared."""

    @property
    def version(self) -> str:
        """The version of its package; "" if it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""

    @property
    def name(self) -> str:
        """Its name, with its version."""
        return f"{self.package} {self.version} {self.note}".rstrip()


PEERS = (
    Peer("dirq", "", _dirq),
    Peer("diskcache", "Deque", _diskcache),
    Peer("persist-queue", "file", _persist_queue),
    Peer("litequeue", "", _litequeue, most=1000),
    Peer("huey", "file", _huey, most=1000),
    Peer("persist-queue", "SQLiteAck", _persist_queue, is_durable=True),
    Peer("huey", "SQLite", _huey, is_durable=True),
)
