"""Run a worker on a place without a lock: each claim is a lease, so several workers may run.

The change source of the store wakes it and signals end it, like a worker with a lock.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count as numbers
from typing import Protocol

from engine.model import State, Task
from engine.monitor import prometheus
from engine.monitor.prometheus import QueueGauges
from engine.policy import RetryPolicy
from engine.store import ReadableStore, Store, StoreError
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.work.handlers import Context, Handler
from engine.work.services import WorkerServices
from engine.work.worker import Worker, WorkerResult
from tui.cli.queue.run_records import print_run_json
from tui.cli.setup.errors import EX_NOPERM, EX_TIMEOUT, EX_UNAVAILABLE, fail, print_error
from tui.cli.setup.setup import Setup

DONE, OUTCOME_NOT_STORED = 0, 3
"""Exit codes: done; an outcome could not be stored and its task is still claimed."""


def run(
    setup: Setup,
    store: Store,
    handled: Mapping[str, Handler],
    retry: RetryPolicy,
    services: WorkerServices,
    *,
    concurrency: int = 1,
    until_idle: bool = False,
    owner: str = "",
    watch: Callable[[Callable[[], None]], WakeSource] | None = None,
) -> WorkerResult:
    """Run the worker until a signal, or until no task is due.

    The first signal stops it after the running tasks, the second stops those too. `owner` names
    the worker in its claims, if not by its PID. `watch` makes what wakes an idle worker; None: the
    change source of the store.

    Raises:
        CommandError: the store cannot return claimed tasks to pending.
    """
    if refused := store.edges[State.ACTIVE, State.PENDING].refusal:
        fail(EX_NOPERM, refused)
    with registered_worker(setup) as notes:
        worker = Worker(
            store,
            {kind: notes.wrap_handler(handler) for kind, handler in handled.items()},
            retry,
            owner=owner or str(os.getpid()),
            concurrency=concurrency,
            services=services,
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: worker.stop())
        if until_idle:
            return worker.process_all(until_idle=True)
        source = watch(worker.wake) if watch else _watch_changes(setup, store, worker.wake)
        try:
            return worker.process_all()
        finally:
            source.stop()


class WakeSource(Protocol):
    """Wakes a worker as soon as there may be work."""

    def stop(self) -> None:
        """Stop waking."""
        ...


def _watch_changes(setup: Setup, store: Store, wake: Callable[[], None]) -> WakeSource:
    from engine.live.folder_watch import FolderWatch

    watch = FolderWatch(store.changes, setup.open_store, lambda names: wake(), wake)
    watch.start(patience=1.0)
    return watch


def print_run(run: WorkerResult, *, as_json: bool = False) -> int:
    """Print the result of a run and return its exit code."""
    if as_json:
        print_run_json(run)
    taken_text = f", {run.gone} taken by others while they ran" if run.gone else ""
    print_error(f"{run.done} done, {run.failed} failed{taken_text}")
    if run.unreachable:
        print_error(f"cannot reach the queue: {run.unreachable}")
    if run.owed:
        print_error(f"cannot store {run.owed} outcomes; their tasks are still claimed")
        return OUTCOME_NOT_STORED
    for kind, lack in sorted(run.lacks.items()):
        print_error(safe_line(f"{kind} not tried: {lack}"))
    if run.lacks:
        return EX_TIMEOUT
    return EX_UNAVAILABLE if run.unreachable else DONE


# ---- worker files: which workers are running

_FILE_PREFIX = "worker."
"""Start of the name of a worker's file in the run folder. The worker holds a flock on it while it
runs; the PID in the name is for people.
"""

_MAX_FILE_BYTES = 1 << 20
"""Maximum bytes read of a worker's file: it has one line per claimed task."""

_EMPTY_FILE_SECONDS = 60.0
"""Seconds after which an unlocked, empty worker file is removed: its worker was killed, or has just
created it.
"""

_CLAIMS_FILE_SECONDS = 86400.0
"""Seconds after which an unlocked file with claims of a killed worker is removed: longer than any
lease.
"""

_NOTE_BYTES = 33
"""Bytes of a claim note: the hash of a claim and a line end."""

_KEPT_NOTES = 8
"""Notes kept after their tasks were handled, because the outcome may not be stored yet."""


class ClaimNotes:
    """Records the claims of one worker in its file before each handler starts, so that other
    processes can attribute the claims of a killed worker.

    Nothing is fsynced: the writes of a killed process survive, and after a power cut no worker is
    left to ask about.
    """

    def __init__(self, fd: int = -1) -> None:
        """`fd` is the worker's file; -1 if none, then nothing is recorded."""
        self._fd = fd
        self._free: deque[int] = deque()
        self._more = numbers()
        self._has_reported = False

    def wrap_handler(self, handler: Handler) -> Handler:
        """Wrap a handler so that each task is recorded before it runs."""
        if self._fd < 0:
            return handler

        def record_and_run(task: Task, context: Context) -> object:
            slot = self._slot()
            self._write(slot, task)
            try:
                return handler(task, context)
            finally:
                self._free.append(slot)  # keep the note: the outcome is not stored yet

        return record_and_run

    def _slot(self) -> int:
        return self._free.popleft() if len(self._free) > _KEPT_NOTES else next(self._more)

    def _write(self, slot: int, task: Task) -> None:
        try:
            os.pwrite(self._fd, f"{_claim_hash(task)}\n".encode(), slot * _NOTE_BYTES)
        except OSError as error:
            if not self._has_reported:
                print_error(f"cannot record claimed tasks: {error_text(error)}")
            self._has_reported = True


def _claim_hash(task: Task) -> str:
    """Hash of a claim, from the task's id and the end of its lease; it differs for each claim."""
    until = None if task.lease is None else task.lease.until
    claim = f"{task.id} {until!r}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(claim, digest_size=(_NOTE_BYTES - 1) // 2).hexdigest()


@contextmanager
def registered_worker(setup: Setup) -> Iterator[ClaimNotes]:
    """Register as a running worker of this place while in the block.

    A worker that cannot register runs anyway and reports it.
    """
    with ExitStack() as ended:
        try:
            notes = ClaimNotes(_register(setup, ended))
        except OSError as error:
            notes = ClaimNotes()
            run = safe_line(setup.queue.run_dir)
            print_error(f"{run}: {error_text(error)}; this worker is not listed as running")
        yield notes


def _register(setup: Setup, ended: ExitStack) -> int:
    folder = files.open_dir_path(setup.queue.run_dir, setup.queue.root)
    ended.callback(os.close, folder)
    _remove_old_files(folder, time.time())
    name = f"{_FILE_PREFIX}{os.getpid()}.{os.urandom(4).hex()}"
    fd = files.open_shared(name, folder, os.O_RDWR)
    ended.callback(files.unlink_quietly, name, folder)
    ended.callback(os.close, fd)
    ended.enter_context(files.Flock(fd))  # a checking process holds it briefly
    return fd


def _remove_old_files(folder: int, now: float) -> None:
    for name in _worker_files(folder):
        try:
            file_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # its worker has just ended
        retention_seconds = _CLAIMS_FILE_SECONDS if file_stat.st_size else _EMPTY_FILE_SECONDS
        if now - file_stat.st_mtime > retention_seconds and not _is_running(name, folder):
            files.unlink_quietly(name, folder)


def running_pids(setup: Setup) -> tuple[int, ...]:
    """PIDs of our workers at a place.

    Raises:
        OSError: the run folder cannot be read.
    """
    try:
        folder = files.open_dir_path(setup.queue.run_dir, setup.queue.root)
    except FileNotFoundError:
        return ()  # no worker has ever run there
    try:
        running_files = [name for name in _worker_files(folder) if _is_running(name, folder)]
    finally:
        os.close(folder)
    return tuple(sorted(int(name.split(".")[1]) for name in running_files))


def find_killed_claims(setup: Setup, tasks: Iterable[Task]) -> dict[int, list[Task]]:
    """Find which of these claims belong to a worker of this project that was killed, by its PID.

    Raises:
        OSError: the run folder cannot be read.
    """
    try:
        folder = files.open_dir_path(setup.queue.run_dir, setup.queue.root)
    except FileNotFoundError:
        return {}  # no worker has ever run there
    try:
        pid_by_claim = {
            mark: pid for name in _worker_files(folder) for mark, pid in _read_claims(name, folder)
        }
    finally:
        os.close(folder)
    killed_claims: dict[int, list[Task]] = {}
    for task in tasks if pid_by_claim else ():
        if (pid := pid_by_claim.get(_claim_hash(task))) is not None:
            killed_claims.setdefault(pid, []).append(task)
    return killed_claims


def _read_claims(name: str, folder: int) -> Iterator[tuple[str, int]]:
    """Yield the hash of each claim in the file of a dead worker, with its PID."""
    try:
        fd = files.open_plain(name, folder)
    except OSError:
        return  # ended, or not our file
    with open(fd, "rb") as sign:
        if files.is_unclaimed(fd):
            pid = int(name.split(".")[1])
            lines = sign.read(_MAX_FILE_BYTES).split(b"\n")
            yield from ((line.strip().decode("ascii", "replace"), pid) for line in lines)


def _worker_files(folder: int) -> list[str]:
    # `open_dir_path` opens the folder with O_PATH; open it again to list it.
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = [name for name in os.listdir(fd) if name.startswith(_FILE_PREFIX)]
    finally:
        os.close(fd)
    return [name for name in names if name.split(".")[1].isdecimal()]


def _is_running(name: str, folder: int) -> bool:
    try:
        fd = files.open_plain(name, folder)
    except OSError:
        return False  # ended, or not our file
    try:
        return not files.is_unclaimed(fd)
    finally:
        os.close(fd)


def find_workers(setup: Setup) -> tuple[int, ...] | str:
    """PIDs of our workers at a place, or why they are unknown."""
    try:
        return running_pids(setup)
    except OSError as error:
        return f"running workers unknown: {error_text(error)}"


def describe_workers(pids: tuple[int, ...] | str) -> str:
    """Describe whether workers of this project run at a place, with their PIDs."""
    if isinstance(pids, str):
        return pids
    return f"running (PID {', '.join(map(str, pids))})" if pids else "not running"


# ---- metrics

COUNT_COST_FACTOR = 20
"""After counting, wait at least this many times as long as counting took. Counting takes longer
with more tasks, and no mail is sent during it.
"""


def count_tasks(store: ReadableStore, now: float) -> QueueGauges:
    """Count the pending, active and dead tasks of a place by a scan.

    Raises:
        Unavailable: it cannot be scanned.
    """
    counts = dict.fromkeys((State.PENDING, State.ACTIVE, State.DEAD), 0)
    oldest = now
    for task in store.scan([store.states[state] for state in counts if state in store.states]):
        if isinstance(task, Task) and task.state in counts:
            counts[task.state] += 1
            if task.state is State.PENDING and task.created:
                oldest = min(oldest, task.created)
    pending, working, dead = counts.values()
    return QueueGauges(pending, working, dead, now - oldest)


class MetricsWriter:
    """Writes the metrics file of a place while a worker runs and when it ends."""

    def __init__(
        self,
        setup: Setup,
        gauges: Callable[[float], QueueGauges],
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gauges` counts the queue at a time; it may raise StoreError or OSError."""
        self._setup, self._gauges = setup, gauges
        self._clock, self._timer = clock, timer
        self._counters = setup.counters()
        self._due = float("-inf")
        self._reported_error = ""

    def write_if_due(self) -> None:
        """Write the file, unless the last write took long and was recent (`COUNT_COST_FACTOR`)."""
        began = self._timer()
        if began >= self._due:
            self.write()
            ended = self._timer()
            self._due = ended + COUNT_COST_FACTOR * (ended - began)

    def write(self) -> None:
        """Write the file; report an error once, and never raise it."""
        path, now = self._setup.queue.queue_metrics, self._clock()
        try:
            totals = {name: self._counters.read(name) for name in prometheus.QUEUE_COUNTERS}
            text = prometheus.render_queue(self._gauges(now), totals, now)
            text = prometheus.add_place(text, self._setup.queue.place_label)
            files.replace_file(path, text, root=self._setup.queue.root)
            trouble = ""
        except (OSError, StoreError) as error:
            trouble = f"{safe_line(path)}: {safe_line(error_text(error))}"
        if trouble and trouble != self._reported_error:
            print_error(trouble)
        self._reported_error = trouble
