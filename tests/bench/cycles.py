"""One queue's whole cycle, enqueue then take and ack: the bare system calls, ours, and each peer.

A cycle gets a new folder, a number of tasks and the size of a batch (0: not durable; 1: each task
durable before the next; more: that many made durable together), and returns its costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, TypeAlias

from engine import verbs
from engine.model import Move
from engine.stores.nftban import NftbanStore, SpoolFolders, make_spool

TEXT = (
    'TASK_ID="{id}"\nTASK_TYPE="feeds_sync"\nTASK_DESCRIPTION="Feed enabled: spamhaus"\n'
    'TASK_CREATED_EPOCH="1795239223"\nTASK_RETRIES="0"\nTASK_NEXT_ATTEMPT_EPOCH="0"\n'
    'TASK_LAST_ERROR=""\nTASK_PAYLOAD_FILE=""\n'
)


class Cost(NamedTuple):
    """Microseconds a task, by the clock and of the processor."""

    enqueue: float
    drain: float
    enqueue_cpu: float
    drain_cpu: float

    @property
    def wall(self) -> float:
        """Enqueue and drain, by the clock."""
        return self.enqueue + self.drain

    @property
    def cpu(self) -> float:
        """Enqueue and drain, of the processor."""
        return self.enqueue_cpu + self.drain_cpu


Cycle: TypeAlias = Callable[[str, int, int], Cost]
Steps: TypeAlias = Iterator[int]
"""Is at its first value before the first task, at its second when all are in the queue, and at its
third when all are done; the third is the number of tasks that came back."""


def timed(steps: Callable[[str, int, int], Steps]) -> Cycle:
    """A cycle out of its steps."""

    def cycle(folder: str, number: int, batch: int) -> Cost:
        marks = []
        running = steps(folder, number, batch)
        for done in running:
            marks.append((time.perf_counter(), time.process_time()))
        assert done == number, f"{done} of {number} tasks came back"
        return Cost(*(
            (marks[n + 1][part] - marks[n][part]) / number * 1e6
            for part in range(2)
            for n in range(2)
        ))  # fmt: skip

    return cycle


def _floor(folder: str, number: int, batch: int) -> Steps:
    """open, write, close, rename | rename, open, read, close, unlink: nine system calls a task.

    Durable: fsync of each file before the rename, and of the folder once per batch; in a batch
    posix_fadvise(DONTNEED) starts the writes first.
    """
    fds = []
    for name in ("tmp", "pending", "work"):
        os.mkdir(f"{folder}/{name}")
        fds.append(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_DIRECTORY))
    tmp, pending, work = fds
    names = [f"20261121T053343Z-feeds_sync-{n:08x}.task" for n in range(number)]
    data = TEXT.format(id=names[0][:-5]).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    yield 0
    for start in range(0, number, max(1, batch)):
        group = names[start : start + max(1, batch)]
        opened = []
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
    yield 0
    done = 0
    for name in sorted(os.listdir(pending)):
        os.rename(name, name, src_dir_fd=pending, dst_dir_fd=work)
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=work)
        done += bool(os.read(fd, 65537))
        os.close(fd)
        os.unlink(name, dir_fd=work)
    yield done
    for fd in fds:
        os.close(fd)


def open_queue(folder: str, *, durable: bool) -> NftbanStore:
    """A new queue with all its guards, for one more program than ours."""
    queue = f"{folder}/queue"
    spool = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", max_pending=10**9)
    make_spool(spool._replace(durable=durable), exclusive=True)
    return NftbanStore(spool._replace(durable=durable))


def _ours(folder: str, number: int, batch: int) -> Steps:
    """swap or swap_all | take and swap."""
    store = open_queue(folder, durable=bool(batch))
    words = "Feed enabled: spamhaus"
    yield 0
    now = time.time()
    tasks = (verbs.enqueue("feeds_sync", now, f"{n:08x}", words) for n in range(number))
    if batch > 1:
        for outcome in store.swap_all(Move(None, task) for task in tasks):
            assert outcome.error is None, outcome.error
    else:
        for task in tasks:
            store.swap(None, task)
    yield 0
    done = 0
    for task in store.take(time.time(), "bench", number):
        store.swap(task, None)
        done += 1
    yield done
    store.close()


# ---- the peers


def _dirq(folder: str, number: int, batch: int) -> Steps:
    queue = _module("dirq.QueueSimple").QueueSimple(f"{folder}/q")
    data = TEXT.encode()
    yield 0
    for _ in range(number):
        queue.add(data)
    yield 0
    done, name = 0, queue.first()
    while name:
        if queue.lock(name):
            done += bool(queue.get(name))
            queue.remove(name)
        name = queue.next()
    yield done


def _persist_file(folder: str, number: int, batch: int) -> Steps:
    queue = _module("persistqueue").Queue(f"{folder}/q", tempdir=folder, autosave=True)
    yield 0
    for _ in range(number):
        queue.put(TEXT)
    yield 0
    done = 0
    for _ in range(number):
        done += bool(queue.get(block=False))
        queue.task_done()
    yield done


def _persist_sqlite(folder: str, number: int, batch: int) -> Steps:
    queue = _module("persistqueue").SQLiteAckQueue(f"{folder}/q", auto_commit=True)
    yield 0
    for _ in range(number):
        queue.put(TEXT)
    yield 0
    done = 0
    for _ in range(number):
        queue.ack(queue.get(block=False))
        done += 1
    yield done
    queue.close()


def _diskcache(folder: str, number: int, batch: int) -> Steps:
    queue = _module("diskcache").Deque(directory=f"{folder}/q")
    yield 0
    for _ in range(number):
        queue.append(TEXT)
    yield 0
    yield sum(bool(queue.popleft()) for _ in range(number))
    queue.cache.close()


def _litequeue(folder: str, number: int, batch: int) -> Steps:
    queue = _module("litequeue").LiteQueue(f"{folder}/q.db")
    yield 0
    for _ in range(number):
        queue.put(TEXT)
    yield 0
    done = 0
    while (message := queue.pop()) is not None:
        queue.done(message.message_id)
        done += 1
    yield done
    queue.close()


def _huey(folder: str, number: int, batch: int) -> Steps:
    module = _module("huey")
    if batch:
        queue = module.SqliteHuey("q", filename=f"{folder}/q.db", results=False, fsync=True)
    else:
        queue = module.FileHuey("q", path=f"{folder}/q", results=False)
    done = []
    task = queue.task()(done.append)
    yield 0
    for _ in range(number):
        task(TEXT)
    yield 0
    while (message := queue.dequeue()) is not None:
        queue.execute(message)
    yield len(done)


def _module(name: str) -> Any:
    return import_module(name)


floor, ours = timed(_floor), timed(_ours)


class Peer(NamedTuple):
    """A queue of another project."""

    package: str
    note: str
    cycle: Cycle
    is_durable: bool = False
    most: int = 10**9
    """Tasks above which it gets too slow to be compared."""

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
        return f"{self.package} {self.version}{self.note and f' {self.note}'}"


PEERS = (
    Peer("dirq", "", timed(_dirq)),
    Peer("diskcache", "Deque", timed(_diskcache)),
    Peer("persist-queue", "file", timed(_persist_file)),
    Peer("litequeue", "", timed(_litequeue), most=1000),
    Peer("huey", "file", timed(_huey), most=1000),
    Peer("persist-queue", "SQLiteAck", timed(_persist_sqlite), is_durable=True),
    Peer("huey", "SQLite", timed(_huey), is_durable=True),
)
