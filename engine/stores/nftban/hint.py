"""Cache the next due time of the pending folder in a file, so that a timer run reads no task.

The hint means: no file with these inodes, change times and sizes is due before D. Our own changes
and those of the NFTBan program add or remove a name, which changes the folder's change time. While
that is as it was, the hint holds for `MAX_AGE_SECONDS` without a look at the files; then one stat
of each confirms it, and finds a file that an editor rewrote in place.

A wrong hint costs a scan, never a task: the line has a CRC-32, so one that is torn or damaged is no
hint; and none holds for longer than a task may wait.
"""

import os
import zlib
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from engine import policy
from engine.stores.nftban import task_format
from engine.system import files

RACY_NANOSECONDS = 20_000_000
"""Nanoseconds. A file changed less than this before may change again within the same clock tick."""

MAX_AGE_SECONDS = 300.0
"""Seconds for which an unchanged folder is enough: a task that an editor rewrote in place waits no
longer than this."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, change time in nanoseconds, size. No program can set a change time back."""


class PendingHint(NamedTuple):
    """What is known of a pending folder in which nothing is due."""

    due: float
    """Epoch seconds UTC when the next task is due."""
    total: int
    """Number of task files."""
    first: str
    """Name of the first task file in queue order."""
    folder: FileState
    """The folder at that time."""


def file_state(seen: os.stat_result) -> FileState:
    """Return the values that change when a file is replaced or rewritten."""
    return seen.st_ino, seen.st_ctime_ns, seen.st_size


def is_racy(state: FileState, now: float) -> bool:
    """True if a file or folder may change again without a change of its state."""
    return abs(now * 1e9 - state[1]) < RACY_NANOSECONDS


def seal(line: str) -> str:
    """Return a line with its CRC-32 in front."""
    return f"{zlib.crc32(line.encode())} {line}"


class NextDue:
    """The hint file of one spool."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, pending: int, now: float) -> PendingHint | None:
        """Return the hint if it holds; None: a task may be due. `pending` is the folder's
        descriptor."""
        try:
            fd = files.open_file(self._path, os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            text = os.read(fd, 1000).decode().removesuffix("\n")
            line = text.partition(" ")[2]
            *numbers, first = line.split()
            checksum, due, written, total, inode, changed, size = map(int, numbers)
        except (ValueError, OSError):
            return None  # incomplete or invalid: same as no hint
        finally:
            os.close(fd)
        is_damaged = text != seal(line) or "/" in first
        if is_damaged or not written <= now < due <= written + policy.MAX_WAIT_SECONDS:
            return None
        folder = file_state(os.fstat(pending))
        if folder == (inode, changed, size) and now - written < MAX_AGE_SECONDS:
            return PendingHint(float(due), total, first, folder)
        try:
            states = _list_states(pending)
        except OSError:
            return None
        if checksum != _checksum(states.values()):
            return None
        self.write(states, due, now, folder)
        return PendingHint(float(due), total, first, folder)

    def write(
        self, states: dict[str, FileState], due: float, now: float, folder: FileState
    ) -> None:
        """Store the result of a take that read all files: the state of each by its name, and of
        the folder before it was listed."""
        if any(is_racy(state, now) for state in states.values()):
            return
        if is_racy(folder, now):
            folder = (0, 0, 0)  # a name may come within the same clock tick
        numbers = _checksum(states.values()), int(due), int(now), len(states), *folder
        try:
            text = seal(f"{' '.join(map(str, numbers))} {min(states)}")
            files.replace_file(self._path, f"{text}\n".encode(), files.FILE_MODE)
        except OSError:
            return  # without a hint only the next take is slower


def _list_states(folder: int) -> dict[str, FileState]:
    with os.scandir(folder) as entries:
        return {
            entry.name: file_state(entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name.endswith(task_format.SUFFIX)
        }


def _checksum(states: Iterable[FileState]) -> int:
    """A sum that is independent of the order of the files."""
    return sum(map(hash, states))
