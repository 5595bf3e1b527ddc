"""Worker files: which workers of a place are running, and what a killed one had claimed."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count as numbers

from engine.config.queue_config import Queue
from engine.model import Task
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.command_errors import print_error
from engine.text.error_text import error_text
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.work.handlers import Context, Handler

_FILE_PREFIX = "worker."
"""Start of the name of a worker's file in the run folder. The worker holds a flock on it while it
runs; the PID in the name is for people."""

_MAX_FILE_BYTES = 1 << 20
"""Maximum bytes read of a worker's file: it has one line per claimed task."""

_EMPTY_FILE_SECONDS = 60.0
"""Seconds after which an empty, unlocked file is removed: its worker was killed, or is new."""

_CLAIMS_FILE_SECONDS = 86400.0
"""Seconds after which the file of a killed worker with claims is removed: longer than any lease."""

_NOTE_BYTES = 33
"""Bytes of a claim note: the hash of a claim and a line end."""

_KEPT_NOTES = 8
"""Notes kept after their tasks were handled, because the outcome may not be stored yet."""


class ClaimNotes:
    """Records the claims of one worker in its file before each handler starts, so that other
    processes can attribute the claims of a killed worker.

    Nothing is fsynced: the writes of a killed process survive, after a power cut none is left."""

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
            slot = self._free.popleft() if len(self._free) > _KEPT_NOTES else next(self._more)
            self._write(slot, task)
            try:
                return handler(task, context)
            finally:
                self._free.append(slot)  # keep the note: the outcome is not stored yet

        return record_and_run

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
def registered_worker(queue: Queue) -> Iterator[ClaimNotes]:
    """Register as a running worker of this place while in the block. A worker that cannot register
    runs anyway and reports it."""
    with ExitStack() as ended:
        try:
            notes = ClaimNotes(_register(queue, ended))
        except OSError as error:
            notes = ClaimNotes()
            run = safe_line(queue.run_dir)
            print_error(f"{run}: {error_text(error)}; this worker is not listed as running")
        yield notes


def _register(queue: Queue, ended: ExitStack) -> int:
    folder = ended.enter_context(_open_run_dir(queue))
    _remove_old_files(folder, time.time())
    name = f"{_FILE_PREFIX}{os.getpid()}.{os.urandom(4).hex()}"
    fd = files.open_shared(name, folder, os.O_RDWR)
    ended.callback(files.unlink_quietly, name, folder)
    ended.callback(os.close, fd)
    ended.enter_context(files.Flock(fd))  # a checking process holds it briefly
    return fd


def _open_run_dir(queue: Queue) -> AbstractContextManager[int]:
    return closing_fd(files.open_dir_path(queue.run_dir, queue.root))


def _remove_old_files(folder: int, now: float) -> None:
    for name in _worker_files(folder):
        try:
            file_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # its worker has just ended
        retention_seconds = _CLAIMS_FILE_SECONDS if file_stat.st_size else _EMPTY_FILE_SECONDS
        if now - file_stat.st_mtime > retention_seconds and not _is_running(name, folder):
            files.unlink_quietly(name, folder)


def running_pids(queue: Queue) -> tuple[int, ...]:
    """PIDs of our workers at a place; raises `OSError` if its run folder cannot be read."""
    running_files: list[str] = []
    with suppress(FileNotFoundError), _open_run_dir(queue) as folder:  # else none has ever run
        running_files += (name for name in _worker_files(folder) if _is_running(name, folder))
    return tuple(sorted(int(name.split(".")[1]) for name in running_files))


def find_killed_claims(queue: Queue, tasks: Iterable[Task]) -> dict[int, list[Task]]:
    """Find which of these claims belong to a worker of this project that was killed, by its PID;
    raises `OSError` as `running_pids`."""
    pid_by_claim: dict[str, int] = {}
    with suppress(FileNotFoundError), _open_run_dir(queue) as folder:
        for name in _worker_files(folder):
            pid_by_claim.update(_read_claims(name, folder))
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
    with closing_fd(files.open_folder(".", folder)) as fd:
        names = [name for name in os.listdir(fd) if name.startswith(_FILE_PREFIX)]
    return [name for name in names if name.split(".")[1].isdecimal()]


def _is_running(name: str, folder: int) -> bool:
    try:
        fd = files.open_plain(name, folder)
    except OSError:
        return False  # ended, or not our file
    with closing_fd(fd):
        return not files.is_unclaimed(fd)


def find_workers(queue: Queue) -> tuple[tuple[int, ...], str]:
    """PIDs of our workers at a place, and why they are unknown; "" if known."""
    try:
        return running_pids(queue), ""
    except OSError as error:
        return (), f"running workers unknown: {error_text(error)}"


def describe_workers(pids: tuple[int, ...], unknown: str) -> str:
    """Describe whether workers of this project run at a place, with their PIDs."""
    if unknown:
        return f"{UNKNOWN} {unknown}"
    return f"running (PID {', '.join(map(str, pids))})" if pids else "not running"
