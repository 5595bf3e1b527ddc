"""Read the task files of a folder for a full scan: files in the contract's exact form go straight
from their bytes to a task; all others are left to the general parser."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from engine import policy
from engine.formats.nftban import task_format
from engine.formats.nftban.folder import TaskFolder
from engine.model import EMPTY, NO_MAIL_FIELDS, Lease, State, Task
from engine.system import files

_CHECKED_MODE = stat.S_IFMT(0o177777) | stat.S_IWGRP | stat.S_IWOTH
"""The bits of a file's mode that decide whether it is a task file, and is trusted."""
_NAMES_AT_ONCE = 5000
_new = tuple.__new__  # half the time of the constructor, which parses keywords


def first_names(names: Sequence[str], number: int) -> list[str]:
    """The first of these names in order. Costs a comparison a name, also where a file system lists
    the newest first: there `heapq.nsmallest` would move each name through its heap."""
    first: list[str] = []
    for start in range(0, len(names) if number else 0, _NAMES_AT_ONCE):
        some = names[start : start + _NAMES_AT_ONCE]
        if len(first) == number:
            some = [name for name in some if name < first[-1]]
        first = sorted([*first, *some])[:number]
    return first


def read_plain_tasks(
    folder: TaskFolder, names: Sequence[str], state: State, now: float
) -> list[Task | str]:
    """Read the task of each file, or return its name if the general path must decide about it: a
    file that has left, a link, a FIFO, a second hard link, a foreign owner, any other form.

    Makes the same checks as `TaskFolder.read`, also before the first byte is read.
    """
    dir_fd, owners = folder.fd, (0, folder.trusted_stat.st_uid)
    latest, fullmatch = now + policy.MAX_WAIT_SECONDS, task_format.canonical_form()
    tasks: list[Task | str] = []
    for name in names:
        tasks.append(name)
        try:
            fd = os.open(name, files.GUARDED_FLAGS, dir_fd=dir_fd)
        except OSError:
            continue
        try:
            file_stat = os.fstat(fd)
            size = file_stat.st_size
            if (
                file_stat.st_mode & _CHECKED_MODE != stat.S_IFREG
                or file_stat.st_nlink != 1
                or file_stat.st_uid not in owners
                or size > files.MAX_TASK_BYTES
            ):
                continue
            data = os.read(fd, size + 1)
        except OSError:
            continue
        finally:
            os.close(fd)
        if len(data) != size:
            continue
        try:
            match = fullmatch(data.decode())
        except UnicodeDecodeError:
            continue
        if match is None or match[1] + task_format.SUFFIX != name:
            continue
        ident, kind, text, created, retries, due, error, payload, dead, reason = match.groups()
        if float(due) > latest:
            continue
        lease, extra = None, EMPTY
        if dead is not None:
            extra = {"dead_since": dead, "dead_reason": reason}
        if state is State.ACTIVE:
            lease = Lease("", file_stat.st_ctime)
        elif state is State.TRASH:
            extra = {**extra, task_format.TRASHED_SINCE: repr(file_stat.st_ctime)}
        values = ident, kind, state, float(created), "", "", "", float(due), int(retries), 0
        rev = files.file_revision(file_stat)
        more = text, "", payload, *NO_MAIL_FIELDS, error, lease, rev, extra, None
        tasks[-1] = _new(Task, (*values, *more))
    return tasks
