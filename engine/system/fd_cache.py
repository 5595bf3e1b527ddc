"""Keep descriptors of checked folders and files open, so that a path is not walked at each use.

A log line of a mail took a dozen system calls only to find its file again. The path is compared
with the open descriptor at each use: one stat finds a rotated log, a replaced folder, and a change
of owner or mode, and the path is then walked and checked again."""

import os
from _thread import allocate_lock
from os import stat_result

MAX_OPEN = 96
"""Descriptors kept open, about three for each place of a console; the oldest is closed first."""


class FdCache:
    """Open descriptors by a key, each with the absolute path that leads to it; none is kept for
    another path. Threads may share it."""

    def __init__(self) -> None:
        self._descriptors: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}
        self._lock = allocate_lock()  # else one thread could close what another duplicates

    def get(self, key: tuple[str, ...], path: str) -> int:
        """A duplicate of the kept descriptor; -1 if none, or the path leads elsewhere now."""
        with self._lock:
            cached = self._descriptors.get(key)
            if cached is None:
                return -1
            try:
                if cached[1] == _identity(os.stat(path, follow_symlinks=False)):
                    return os.dup(cached[0])
            except OSError:
                pass  # gone: opening it again reports why
            del self._descriptors[key]
            os.close(cached[0])
            return -1

    def keep(self, key: tuple[str, ...], path: str, fd: int) -> None:
        """Keep a duplicate of a descriptor that was opened and checked."""
        if not path.startswith("/"):
            return
        with self._lock:
            before = self._descriptors.pop(key, None)
            if before is None and len(self._descriptors) >= MAX_OPEN:
                before = self._descriptors.pop(next(iter(self._descriptors)))
            if before is not None:
                os.close(before[0])
            self._descriptors[key] = os.dup(fd), _identity(os.fstat(fd))


def _identity(file_stat: stat_result) -> tuple[int, ...]:
    """What a check of a folder or file depends on."""
    hard_links = 1 if file_stat.st_nlink == 1 else 2  # a folder gets and loses some
    return *file_stat[:3], hard_links, *file_stat[4:6]  # mode, inode, device; uid, gid
