"""Where control and message files are: open them locked, move them to hash folders, park, remove.

Every folder is opened in the one above it (`PostofficeFolders`), so no path is followed by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import stat_result

from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.folders import QUEUE, TRANSPORT, OpenControl, PostofficeFolders
from engine.system import files
from engine.system.files import Refused

FREEZER = "freezer"
"""Folder of control files that cannot be used. Their message files stay in queue/."""

LOCK_SECONDS = 2.0
"""How long to wait for a file that another process has locked: the mail waits meanwhile."""

_FOLDER_MODE = 0o2755
_MAX_SAME_NAMES = 1000


class MessagePlaces:
    """The files of one spool, for its scheduler."""

    def __init__(self, folders: PostofficeFolders, hash_levels: int = 0) -> None:
        """`hash_levels`: 0 to 2 levels of hash folders to which new files are moved."""
        self.folders, self._hash_levels = folders, hash_levels
        self._changed: set[str] = set()
        """Folders from which files were removed since the last fsync."""

    @contextmanager
    def open(self, name: str) -> Iterator[OpenControl]:
        """Open a control file to read and write, with its write lock.

        Raises:
            FileNotFoundError: there is none in transport/.
            Refused: it is no plain file.
            TimeoutError: another process has the lock.
        """
        with self.folders.open_control(name, os.O_RDWR) as opened:
            if opened.is_kept:
                raise FileNotFoundError(name)  # finished: only our own link is left
            with marks.write_lock(opened.fd, LOCK_SECONDS):
                yield opened

    @contextmanager
    def open_now(
        self, name: str, path: str, errors: tuple[type[Exception], ...] = (TimeoutError,)
    ) -> Iterator[OpenControl]:
        """As `open`, but each of `errors` becomes an OSError that names `path`. Raises
        FileNotFoundError: there is none in transport/."""
        try:
            with self.open(name) as opened:
                yield opened
        except errors as error:
            raise OSError(f"{path}: {error}") from error

    def settle(self, opened: OpenControl) -> str:
        """Move both files to their hash folder, the message file first; return the folder.

        A process that is killed leaves at most the message file there, and the next one finds it
        and completes the move. Raises Refused: there is no message file, or another file is at the
        new place."""
        number = names.message_number(opened.name) or 0
        folder = opened.folder
        if not folder and self._hash_levels:
            folder = [*names.hash_folders(number)][self._hash_levels]
        _, path = self.folders.find_message(opened.name)
        if path != f"{QUEUE}/{folder}{opened.name}":
            # Both are found in each folder, so no order has to be durable.
            self._rename(path, f"{QUEUE}/{folder}{opened.name}", is_durable=False)
        if folder != opened.folder:
            target = f"{TRANSPORT}/{folder}{opened.name}"
            self._rename(opened.where, target, is_durable=False)
        return folder

    def park(self, opened: OpenControl, folder: str | None = None) -> str:
        """Move an open control file to the freezer, under a name that is free there; return it."""
        where = f"{TRANSPORT}/{opened.folder if folder is None else folder}{opened.name}"
        self._require_same(where, os.fstat(opened.fd))
        for count in range(_MAX_SAME_NAMES):
            target = f"{FREEZER}/{opened.name}{f'.{count}' if count else ''}"
            with suppress(FileExistsError):
                self._rename(where, target)
                return target
        raise FileExistsError(f"{FREEZER}/{opened.name}: there are {_MAX_SAME_NAMES} of this name")

    def remove(self, opened: OpenControl) -> None:
        """Remove an open control file, then its message file. `flush` makes that durable."""
        self._require_same(opened.where, os.fstat(opened.fd))
        try:
            _, message = self.folders.find_message(opened.name)
        except Refused:
            message = ""
        for path in (opened.where, message):
            above, name = os.path.split(path)
            if name:
                with self.folders.open_below(self.folders.fd, above) as fd:
                    files.unlink_quietly(name, fd)
                self._changed.add(above)

    def flush(self) -> None:
        """Fsync the folders from which files were removed, those of control files first: after a
        power cut no file is there again."""
        for path in sorted(self._changed, key=lambda one: not one.startswith(TRANSPORT)):
            with suppress(FileNotFoundError), self.folders.open_below(self.folders.fd, path) as fd:
                files.fsync(fd)
        self._changed.clear()

    def _require_same(self, path: str, file_stat: stat_result) -> None:
        """Raise FileNotFoundError if another file is at the path now."""
        above, name = os.path.split(path)
        with self.folders.open_below(self.folders.fd, above) as fd:
            current_stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not os.path.samestat(current_stat, file_stat):
            raise FileNotFoundError(f"{path}: is another file now")

    def _rename(self, source: str, target: str, *, is_durable: bool = True) -> None:
        """Rename a file below the spool, and make the folder. Raises FileExistsError: there is a
        file of this name."""
        above, name = os.path.split(target)
        try:
            with self.folders.open_below(self.folders.fd, above):
                pass
        except FileNotFoundError:
            self.folders.make_below(above, _FOLDER_MODE)
        with self.folders.open_below(self.folders.fd, above) as new:
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=new, follow_symlinks=False)
                raise FileExistsError(f"{target}: is there already")
            old_above, old_name = os.path.split(source)
            with self.folders.open_below(self.folders.fd, old_above) as old:
                files.rename(old_name, name, src_dir_fd=old, dst_dir_fd=new)
                if is_durable:
                    files.fsync(new)
                    files.fsync(old)
