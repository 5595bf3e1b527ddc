"""The next due time of a whole folder, stored beside it: a timer's usual run reads no task.

The hint says: none of the files with this inode, modification time and size was due before D. It is
checked by one stat of each file, so a task that is added or rewritten in place makes it void.
"""

import os
from collections.abc import Iterable
from typing import TypeAlias

from engine.stores.nftban import task_format
from engine.system import files

RACY = 20_000_000
"""Nanoseconds: a file changed so lately may change again within one tick of the clock."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, modification time in nanoseconds, size."""


def state_of(seen: os.stat_result) -> FileState:
    """What changes when a file is replaced or rewritten."""
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


class NextDue:
    """The hint of one spool, in the file `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, pending: int, now: float) -> float | None:
        """When the next task in the folder `pending` (a descriptor) is due; None: not known.

        Only an answer after `now` is given: it means that nothing is due.
        """
        try:
            fd = files.open_file(self._path, os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            checksum, due, written = map(int, os.read(fd, 200).split())
            if not written <= now < due or checksum != _checksum(_states(pending)):
                return None
        except (ValueError, OSError):
            return None  # torn or foreign: a hint that cannot be read is no hint
        finally:
            os.close(fd)
        return float(due)

    def write(self, states: Iterable[FileState], due: float, now: float) -> None:
        """Store what a take found that read all files, each in the state given here."""
        states = list(states)
        if any(abs(now * 1e9 - changed) < RACY for _, changed, _ in states):
            return
        try:
            text = b"%d %d %d\n" % (_checksum(states), int(due), int(now))
            files.publish(self._path, text, files.FILE_MODE)
        except OSError:
            return  # only the next look takes longer


def _states(folder: int) -> list[FileState]:
    with os.scandir(folder) as entries:
        return [
            state_of(entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name.endswith(task_format.SUFFIX)
        ]


def _checksum(states: Iterable[FileState]) -> int:
    """A number that is the same for the same files in any order."""
    return sum(map(hash, states))
