"""Find which payloads are named by a task file, in any state or while being moved."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator

from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.parts import payload_folder
from engine.formats.nftban.staging import StagingDir
from engine.system import files
from engine.system.files import Refused, Untrusted

_PAYLOAD_LINE = re.compile(rb"""^[ \t]*TASK_PAYLOAD_FILE=["']?([^"'\n]*)""", re.MULTILINE)
"""Broader than the task parser: a broken file may be repaired, and then names its payload again."""


def find_named_payloads(
    payloads: Collection[str], mail_spool: str, states: Iterable[TaskFolder], staging: StagingDir
) -> dict[str, str]:
    """Return those of the payloads that a task file names, with the path of such a file.

    Raises:
        Unavailable: a folder cannot be read.
        OSError: a file cannot be read now, or another process holds the staging lock.
    """
    payload_folders = {payload_folder(path, mail_spool) for path in payloads}
    staging_folder = staging.folder
    corrupt = TaskFolder(
        f"{staging_folder.path}/corrupt",
        f"{staging_folder.word}/corrupt",
        staging_folder,
        make=True,
    )
    # The staging directory last: a file on its way between two states is in it.
    places = [*states, staging_folder, staging.duplicates, corrupt]
    read_names: set[tuple[str, str]] = set()
    path_by_folder: dict[str, str] = {}

    def search() -> None:
        for where, path in _new_payloads(places, read_names, staging_folder):
            if (named_folder := payload_folder(path, mail_spool)) in payload_folders:
                path_by_folder.setdefault(named_folder, where)

    try:
        search()
        # A file that was being moved may have been missed, so read again under the lock that
        # placing needs. Files already read are skipped, which keeps the lock short.
        with staging.placing_lock():
            search()
    finally:
        corrupt.close()
    wheres = {path: path_by_folder.get(payload_folder(path, mail_spool)) for path in payloads}
    return {path: where for path, where in wheres.items() if where is not None}


def _new_payloads(
    places: Iterable[TaskFolder], read_names: set[tuple[str, str]], staging_folder: TaskFolder
) -> Iterator[tuple[str, str]]:
    """Yield each file that is not in `read_names` yet, with the path of its payload."""
    for folder in places:
        entries = folder.iter_entries()
        for name in [each.name for each in entries if each.is_file(follow_symlinks=False)]:
            if (folder.word, name) in read_names or (
                folder is staging_folder and name[:2] not in ("D.", "T.")
            ):
                continue
            try:
                data = _read(name, folder.fd)
            except FileNotFoundError:
                continue  # moved: its new folder is listed later
            except Untrusted as refusal:
                # It may be a task that runs once its mode or owner is corrected.
                raise PermissionError(errno.EACCES, str(refusal), name) from refusal
            except Refused:
                data = b""  # not a plain file: not a task that can run
            read_names.add((folder.word, name))
            if match := _PAYLOAD_LINE.search(data):
                yield f"{folder.word}/{name}", os.path.normpath(os.fsdecode(match[1]))


def _read(name: str, dir_fd: int) -> bytes:
    fd = files.open_guarded(name, dir_fd)
    try:
        if why := files.file_problem(os.fstat(fd), os.fstat(dir_fd)):
            raise Untrusted(why)
        return os.read(fd, files.MAX_TASK_BYTES)
    finally:
        os.close(fd)
