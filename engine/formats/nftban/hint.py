"""Cache the next due time of the pending folder in a file, so that a timer run reads no task.

The hint means: no file with these inodes, change times and sizes is due before D. Our own changes
and those of the NFTBan program add or remove a name, which changes the folder's change time. A file
that an editor rewrote in place is found by one stat of each, which costs a process 7 ms of CPU for
1,000 files: up to `ALWAYS_CHECKED` files it is made each time, for more every `CHECK_SECONDS`.

A wrong hint costs a scan, never a task: the line has a CRC-32, so one that is torn or damaged is no
hint; and none holds for longer than a task may wait.
"""

import os
import zlib
from collections.abc import Collection, Iterable
from typing import TypeAlias

from engine import policy
from engine.formats.nftban import task_format
from engine.system import files
from engine.values import NamedTuple

RACY_NANOSECONDS = 20_000_000
"""Nanoseconds. A file changed less than this before may change again within the same clock tick."""

ALWAYS_CHECKED = 1000
"""Waiting files that are checked each time for a change in place."""

CHECK_SECONDS = 5.0
"""Seconds between two checks of more files."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, change time in nanoseconds, size. No program can set a change time back."""


class PendingHint(NamedTuple):
    """What is known of a pending folder in which nothing is due."""

    due: float
    """Epoch seconds UTC when the next task is due."""
    total: int
    """Number of task files."""
    created: float
    """Epoch seconds UTC when the oldest task was created."""
    folder: FileState
    """The folder at that time."""


def file_state(file_stat: os.stat_result) -> FileState:
    """Return the values that change when a file is replaced or rewritten."""
    return file_stat.st_ino, file_stat.st_ctime_ns, file_stat.st_size


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
            checksum, due, written, total, created, inode, changed, size = map(int, line.split())
            since = float(created)
        except (ValueError, OverflowError, OSError):
            return None  # incomplete or invalid: same as no hint
        finally:
            os.close(fd)
        if text != seal(line) or not written <= now < due <= written + policy.MAX_WAIT_SECONDS:
            return None
        folder = file_state(os.fstat(pending))
        hint = PendingHint(float(due), total, since, folder)
        is_same = folder == (inode, changed, size)
        if is_same and total > ALWAYS_CHECKED and now - written < CHECK_SECONDS:
            return hint
        try:
            states = _list_states(pending)
        except OSError:
            return None
        if checksum != _checksum(states):
            return None
        if not is_same or total > ALWAYS_CHECKED:
            self.write(states, hint, now)
        return hint

    def write(self, states: Collection[FileState], hint: PendingHint, now: float) -> None:
        """Store the result of a take that read all files: the state of each, and what is known."""
        folder = hint.folder
        if any(is_racy(state, now) for state in states):
            return
        if is_racy(folder, now):
            folder = (0, 0, 0)  # a name may come within the same clock tick
        known = int(hint.due), int(now), hint.total, int(hint.created)
        try:
            text = seal(" ".join(map(str, (_checksum(states), *known, *folder))))
            files.replace_file(self._path, f"{text}\n".encode(), files.FILE_MODE)
        except OSError:
            return  # without a hint only the next take is slower


def _list_states(folder: int) -> list[FileState]:
    with os.scandir(folder) as entries:
        tasks = (entry for entry in entries if entry.name.endswith(task_format.SUFFIX))
        return [file_state(entry.stat(follow_symlinks=False)) for entry in tasks]


def _checksum(states: Iterable[FileState]) -> int:
    """A sum that is independent of the order of the files."""
    return sum(map(hash, states))
