"""Which payloads are named by a task file, wherever in the spool it stands at this moment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator

from engine.store import Unavailable
from engine.stores.nftban.folder import TaskFolder
from engine.stores.nftban.parts import kept_in
from engine.stores.nftban.staging import StagingDir
from engine.system import files
from engine.system.files import Refused

_NAMED = re.compile(rb"""^[ \t]*TASK_PAYLOAD_FILE=["']?([^"'\n]*)""", re.MULTILINE)
"""More generous than the reader of tasks: a broken file may be mended, and names it again then."""


def named(
    payloads: Collection[str], mail_spool: str, states: Iterable[TaskFolder], desk: StagingDir
) -> dict[str, str]:
    """Of these payloads those that a task file names, and where such a file lies.

    Raises:
        Unavailable: a folder cannot be read.
        OSError: a file cannot be read now, or another process keeps the desk's lock.
    """
    wanted = {kept_in(path, mail_spool) for path in payloads}
    own = desk.folder
    corrupt = TaskFolder(f"{own.path}/corrupt", f"{own.word}/corrupt", own, make=True)
    # The desk comes behind the states: what leaves one for another lies there meanwhile.
    places = [*states, own, desk.twice, corrupt]
    seen: set[tuple[str, str]] = set()
    found: dict[str, str] = {}

    def look() -> None:
        for where, path in _unseen(places, seen, own):
            if (kept := kept_in(path, mail_spool)) in wanted:
                found.setdefault(kept, where)

    try:
        look()
        # What was being moved may have been nowhere that we looked. While we hold this lock nothing
        # gets off the desk; what was read is not read again, so that it is not held for long.
        with desk.placing():
            look()
    finally:
        corrupt.close()
    wheres = {path: found.get(kept_in(path, mail_spool)) for path in payloads}
    return {path: where for path, where in wheres.items() if where is not None}


def _unseen(
    places: Iterable[TaskFolder], seen: set[tuple[str, str]], desk: TaskFolder
) -> Iterator[tuple[str, str]]:
    """Where each file lies that was not `seen` yet, and the path of its payload."""
    for folder in places:
        for name in _listed(folder):
            if (folder.word, name) in seen or (folder is desk and name[:2] not in ("D.", "T.")):
                continue
            try:
                data = _read(name, folder.fd)
            except FileNotFoundError:
                continue  # moved on: where it went is listed later
            except Refused:
                data = b""  # no plain file, or not for us to read: not a task that we could run
            seen.add((folder.word, name))
            if match := _NAMED.search(data):
                yield f"{folder.word}/{name}", os.path.normpath(os.fsdecode(match[1]))


def _listed(folder: TaskFolder) -> list[str]:
    if not folder.exists():
        return []
    try:
        with os.scandir(folder.fd) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError as error:
        raise Unavailable(f"{folder.path}: {error.strerror}") from error


def _read(name: str, dir_fd: int) -> bytes:
    fd = files.open_guarded(name, dir_fd)
    try:
        if files.is_borrowed(os.fstat(fd), os.fstat(dir_fd)):
            raise Refused("has a second hard link")
        return os.read(fd, files.TASK_LIMIT)
    finally:
        os.close(fd)
