"""Cache the next due time of the pending folder in a file, so that a timer run reads no task.

The hint means: no file with these inodes, modification times and sizes is due before D. It is
checked with one stat of each file; a new or rewritten task invalidates it.
"""

import os
from collections.abc import Iterable
from typing import TypeAlias

from engine.stores.nftban import task_format
from engine.system import files

RACY_NANOSECONDS = 20_000_000
"""Nanoseconds. A file changed less than this before may change again within the same clock tick."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, modification time in nanoseconds, size."""


def file_state(seen: os.stat_result) -> FileState:
    """Return the values that change when a file is replaced or rewritten."""
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


class NextDue:
    """The hint file of one spool."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, pending: int, now: float) -> float | None:
        """Return when the next task is due; None if unknown. `pending` is the folder's descriptor.

        Only a time after `now` is returned; it means that no task is due.
        """
        try:
            fd = files.open_file(self._path, os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            checksum, due, written = map(int, os.read(fd, 200).split())
            if not written <= now < due or checksum != _checksum(_list_states(pending)):
                return None
        except (ValueError, OSError):
            return None  # incomplete or invalid: same as no hint
        finally:
            os.close(fd)
        return float(due)

    def write(self, states: Iterable[FileState], due: float, now: float) -> None:
        """Store the result of a take that read all files, each in the state given here."""
        states = list(states)
        if any(abs(now * 1e9 - changed) < RACY_NANOSECONDS for _, changed, _ in states):
            return
        try:
            text = b"%d %d %d\n" % (_checksum(states), int(due), int(now))
            files.replace_file(self._path, text, files.FILE_MODE)
        except OSError:
            return  # without a hint only the next take is slower


def _list_states(folder: int) -> list[FileState]:
    with os.scandir(folder) as entries:
        return [
            file_state(entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name.endswith(task_format.SUFFIX)
        ]


def _checksum(states: Iterable[FileState]) -> int:
    """A sum that is independent of the order of the files."""
    return sum(map(hash, states))
