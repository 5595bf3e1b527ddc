"""What the kernel tells of some folders: which names in them changed, and whether it told all.

Only what changes a task is asked for, so that nobody's looking and reading, ours least of all, is
heard. Source: inotify(7).
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_HEAD = struct.Struct("iIII")
"""Of each event: watch, mask, cookie, bytes of the name that follows."""
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _EXCL_UNLINK = 0x1000000, 0x4000000
_WANTED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_BUFFER = 1 << 16


class FolderEvents(NamedTuple):
    """What happened since the last time."""

    names: Mapping[str, set[str]] = {}
    """By folder: what was made, written, renamed or removed there."""
    ended: frozenset[str] = frozenset()
    """Folders of which nothing more will be heard: removed, or unmounted."""
    lost: bool = False
    """Whether more happened than the kernel keeps, or than it names: any name may have changed."""


class InotifyWatch:
    """A hearing of some folders, from the moment it is made until it is closed."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Those of `folders` that are not there are left out.

        Raises:
            OSError: the kernel gives us no hearing, or none of a folder that is there.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _error("inotify")
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._folders: dict[int, str] = {}
        try:
            for folder in folders:
                watch = libc.inotify_add_watch(
                    self._fd, os.fsencode(folder), _WANTED | _ONLYDIR | _EXCL_UNLINK
                )
                if watch >= 0:
                    self._folders[watch] = folder
                else:
                    _unless_gone(folder)
        except OSError:
            self.close()
            raise

    @property
    def folders(self) -> frozenset[str]:
        """Those that are heard."""
        return frozenset(self._folders.values())

    def wait(self, seconds: float) -> bool:
        """Whether there is something to hear; waits so long for it."""
        return bool(self._poll.poll(seconds * 1000))

    def hear(self) -> FolderEvents:
        """All that has happened so far; does not wait."""
        names: dict[str, set[str]] = {}
        ended: set[str] = set()
        lost = False
        while data := self._read():
            at = 0
            while at < len(data):
                watch, mask, _, size = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                name = data[at : at + size].rstrip(b"\0")
                at += size
                folder = self._folders.get(watch)
                if mask & _OVERFLOW:
                    lost = True
                elif folder is None:
                    continue  # of a watch that has ended
                elif mask & (_IGNORED | _UNMOUNT):
                    ended.add(folder)
                elif name:
                    names.setdefault(folder, set()).add(os.fsdecode(name))
                else:
                    lost = True  # the folder itself: who may see it has changed, or where it is
        return FolderEvents(names, frozenset(ended), lost)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Hear no more."""
        os.close(self._fd)


def _unless_gone(folder: str) -> None:
    error = _error(folder)
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _error(where: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), where)
