"""A private temporary folder that is gone with its owner, even when the owner crashed.

Who owns one is said by the flock on a file in it: a folder whose flock is free belongs to nobody
any more, and the next owner of any scratch folder removes it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time

from engine.store import Unavailable
from engine.system import files

PREFIX = "spooldeck-index-"
OWNER = "owner"
"""The file whose flock says that somebody lives here."""
PLACES = ("/var/tmp", "/tmp")
"""In this order: what lies in /tmp is often memory."""
ROOM = 64 << 20
"""Bytes that should be free where there is a choice; an index of 100k tasks takes half of them."""
UNCLAIMED = 60.0
"""Seconds for which a folder without an owner file may be somebody's who is just making it."""


class Scratch:
    """A folder of our own, 0700, until `remove`."""

    def __init__(self, place: str | None = None) -> None:
        """Make one, in `place` or else where there is room, and sweep what others left there.

        Raises:
            Unavailable: no folder can be made; the message says where and why.
        """
        refusals = []
        for parent in [place] if place is not None else _by_room(PLACES):
            try:
                sweep(parent)
                self.path, self._fd = _claim(parent)
            except OSError as error:
                refusals.append(f"{parent}: {error.strerror}")
            else:
                return
        raise Unavailable(f"no temporary folder for the index: {'; '.join(refusals)}")

    def remove(self) -> None:
        """Remove it with all that is in it; can be called again."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def sweep(parent: str) -> list[str]:
    """Remove the scratch folders in a folder whose owners are gone; answers with their paths."""
    paths = [os.path.join(parent, name) for name in os.listdir(parent) if name.startswith(PREFIX)]
    return [path for path in paths if _sweep_one(path)]


def _by_room(places: tuple[str, ...]) -> list[str]:
    """Those with room first, else in their order."""

    def cramped(place: str) -> bool:
        try:
            free = os.statvfs(place)
        except OSError:
            return True
        return free.f_bavail * free.f_frsize < ROOM

    return sorted(places, key=cramped)


def _claim(parent: str) -> tuple[str, int]:
    """A new folder and the descriptor that holds its flock."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        try:
            fd = os.open(os.path.join(path, OWNER), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        # A sweeper may have been between our two steps; then it has this folder.
        if files.claim_flock(fd) and os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _sweep_one(path: str) -> bool:
    """Remove a scratch folder of this user's if nobody lives in it any more."""
    try:
        there = os.lstat(path)
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid():
            return False
        fd = os.open(os.path.join(path, OWNER), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _sweep_unclaimed(path)
    except OSError:
        return False
    try:
        abandoned = files.claim_flock(fd)
        if abandoned:
            shutil.rmtree(path, ignore_errors=True)
        return abandoned
    finally:
        os.close(fd)


def _sweep_unclaimed(path: str) -> bool:
    try:
        if time.time() - os.lstat(path).st_mtime > UNCLAIMED:
            os.rmdir(path)
            return True
    except OSError:
        pass  # somebody has just moved in, or removed it
    return False
