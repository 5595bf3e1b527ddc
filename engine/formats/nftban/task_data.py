"""The data of tasks: a file for each in `data/`, beside the folders of the states.

Its name is the id of its task, and the task's TASK_PAYLOAD_FILE is its path. It is durable (fsync)
before its task is added, stays where it is while the task moves, and is removed after the task; so
a process that is killed leaves at most a file without a task, which `doctor` finds.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from engine.formats.nftban import task_format
from engine.store import Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

ORPHAN_SECONDS = 3600.0
"""Seconds without a change after which data without a task is no longer being added."""


def write_data(folder: str, root: str, ident: str, chunks: Iterable[bytes]) -> str:
    """Write the data of a new task, durably; return its path. `root` is the data folder of the
    place; below it no symbolic link is followed.

    Raises:
        Unsupported: a task file cannot contain the path.
        Unavailable: it cannot be written; nothing is left of it.
    """
    path = f"{folder}/{ident}"
    if not task_format.is_plain_path(path):
        expected = "expected letters, digits, space, _ . - : / in the path of a queue with data"
        raise Unsupported(f"{path}: {expected}")
    try:
        with closing_fd(files.open_dir(folder, root, make=True)) as dir_fd:
            fd = files.create_file(ident, dir_fd, files.new_file_owner(os.fstat(dir_fd)))
            try:
                with closing_fd(fd):
                    files.claim_flock(fd)  # no orphan, however long its source takes
                    for chunk in chunks:
                        files.write_all(fd, chunk)
                    files.fsync(fd)
                files.fsync(dir_fd)
            except BaseException:
                files.unlink_quietly(ident, dir_fd)
                raise
    except OSError as error:
        raise Unavailable(f"{path}: data not written: {error_text(error)}") from error
    return path


def find_orphans(
    folder: str, queue_folders: Collection[str], staging: Collection[str], now: float
) -> Iterator[str]:
    """Yield the paths of data without a task: neither a file of a task nor one that is being moved
    or quarantined has its name. The folders of `staging` are made on demand and may be missing.

    Raises:
        OSError: a folder cannot be read, or one of `queue_folders` is missing.
    """
    try:
        dir_fd = files.open_folder(folder)
    except FileNotFoundError:
        return
    with closing_fd(dir_fd):
        old = [
            name
            for name, file_stat in files.regular_files(dir_fd)
            if now - file_stat.st_mtime > ORPHAN_SECONDS
        ]
        known: set[str] = set()
        for place in 2 * (*queue_folders, *staging) if old else ():  # twice: tasks move meanwhile
            try:
                names = files.list_names(place)
            except FileNotFoundError:
                if place not in staging:
                    raise
                continue
            for name in names:
                known.update(name.split("."))  # ID.task, D.ID.pending.work..., ID.task.TOKEN
        for name in old:
            if name not in known and not _is_in_use(name, dir_fd):
                yield f"{folder}/{name}"


def _is_in_use(name: str, dir_fd: int) -> bool:
    """True if data is being written, or was removed since it was listed."""
    try:
        fd = files.open_plain(name, dir_fd)
    except FileNotFoundError:
        return True
    with closing_fd(fd):
        return not files.claim_flock(fd)
