"""A private temporary folder that is removed after its owner has ended, even by a crash.

The owner holds the flock of a file in it. A folder whose flock is free has lost its owner; the next
process that makes a temporary folder removes it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
import time

from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

PREFIX = "spooldeck-index-"
OWNER_FILE = "owner"
"""Name of the file whose flock shows that the folder is in use."""
PARENTS = ("/var/tmp", "/tmp")
"""In this order: /tmp is often in memory."""
MIN_FREE_BYTES = 64 << 20
"""Bytes that should be free; an index of 100k tasks takes half of this."""
UNCLAIMED_SECONDS = 60.0
"""Seconds for which a folder without an owner file is left: its process may be creating it."""


class TempDir:
    """A folder of our own, mode 0700, until `remove`."""

    def __init__(self, place: str | None = None) -> None:
        """Create one in `place`, or else where there is space, and remove abandoned ones there.
        Raises `Unavailable`: no folder can be created; the message says where and why."""
        self._removing = threading.Lock()
        refusals = []
        for parent in [place] if place is not None else _by_free_space(PARENTS):
            try:
                remove_abandoned(parent)
                self.path, self._fd = _create_claimed(parent)
            except OSError as error:
                refusals.append(f"{parent}: {error_text(error)}")
            else:
                return
        raise Unavailable(f"no temporary folder for the index: {'; '.join(refusals)}")

    def remove(self) -> None:
        """Remove the folder and its content; may be called again, also by several threads."""
        with self._removing:  # a descriptor closed twice may by then be that of another file
            fd, self._fd = self._fd, -1
        if fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(fd)


def remove_abandoned(parent: str) -> list[str]:
    """Remove abandoned temporary folders in a folder; return their paths."""
    paths = [os.path.join(parent, name) for name in os.listdir(parent) if name.startswith(PREFIX)]
    return [path for path in paths if _remove_if_abandoned(path)]


def _by_free_space(places: tuple[str, ...]) -> list[str]:
    """Sort those with enough free space first."""

    def cramped(place: str) -> bool:
        try:
            free = os.statvfs(place)
        except OSError:
            return True
        return free.f_bavail * free.f_frsize < MIN_FREE_BYTES

    return sorted(places, key=cramped)


def _create_claimed(parent: str) -> tuple[str, int]:
    """Create a folder; return its path and the descriptor that holds its flock."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        try:
            fd = os.open(os.path.join(path, OWNER_FILE), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        # Another process may have removed the folder between these two steps.
        if files.claim_flock(fd) and os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _remove_if_abandoned(path: str) -> bool:
    try:
        folder_stat = os.lstat(path)
        if not stat.S_ISDIR(folder_stat.st_mode) or folder_stat.st_uid != os.geteuid():
            return False
        fd = os.open(os.path.join(path, OWNER_FILE), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _remove_if_unclaimed(path)
    except OSError:
        return False
    with closing_fd(fd):
        abandoned = files.claim_flock(fd)
        if abandoned:
            shutil.rmtree(path, ignore_errors=True)
        return abandoned


def _remove_if_unclaimed(path: str) -> bool:
    try:
        if time.time() - os.lstat(path).st_mtime > UNCLAIMED_SECONDS:
            os.rmdir(path)
            return True
    except OSError:
        pass  # another process has just started to use it, or removed it
    return False
