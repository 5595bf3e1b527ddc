"""One folder of a Kannader spool, addressed by a descriptor so that symbolic links cannot redirect
us.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import stat_result

from engine.model import Problem
from engine.store import Unavailable
from engine.system import files
from engine.text.error_text import error_text

FOLDER_MODE = 0o700
"""Mode of all folders: only the owner (Kannader spool, section 1)."""


class MailFolder:
    """A folder that is opened when it is first needed."""

    def __init__(self, path: str, word: str, spool: MailFolder | None = None) -> None:
        """With `spool`, a folder of the spool's owner, this folder is ours, made on demand."""
        self.path, self.word = path, word
        self._spool = spool
        self._fd = -1
        self._identity = (0, 0)
        """Device and inode behind the descriptor."""

    @property
    def fd(self) -> int:
        """The descriptor; creates one of our folders if it is missing.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd < 0:
            try:
                if self._spool is not None:
                    files.make_folder(self.path, mode=FOLDER_MODE, owner=self._spool.owner)
                self._fd = files.open_folder(self.path)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error_text(error)}") from error
            folder_stat = os.fstat(self._fd)
            self._identity = folder_stat.st_dev, folder_stat.st_ino
        return self._fd

    @property
    def status(self) -> stat_result:
        """The current status of the folder.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        return os.fstat(self.fd)

    @property
    def owner(self) -> tuple[int, int] | None:
        """UID and GID for files created here; None if no chown is needed."""
        return files.new_file_owner(self.status)

    def exists(self) -> bool:
        """False only for a folder of this project that has not been created yet."""
        return self._fd >= 0 or self._spool is None or files.is_folder(self.path)

    def find_problem(self) -> Problem | None:
        """Report another file in the place of one of our folders; None if missing."""
        if self.exists() or not os.path.lexists(self.path):
            return None
        return Problem(self.word, "not a folder, expected one or nothing: move it away")

    def contains(self, name: str) -> bool:
        """True if the folder has an entry of that name."""
        if not self.exists():
            return False
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def check(self) -> None:
        """Reopen the folder if its path names another one now.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd >= 0:
            try:
                current_stat = os.stat(self.path, follow_symlinks=False)
            except FileNotFoundError:
                self.close()
            except OSError as error:
                raise Unavailable(f"{self.path}: {error_text(error)}") from error
            else:
                if self._identity != (current_stat.st_dev, current_stat.st_ino):
                    self.close()
        if self._spool is None:
            _ = self.fd

    def iter_names(self) -> Iterator[str]:
        """Yield every name but those of the disk, in directory order; none without the folder.

        Raises:
            Unavailable: it cannot be read.
        """
        return (one.name for one in self._entries() if not files.is_disks_own(one.name))

    def iter_folders(self) -> Iterator[str]:
        """Yield the names of the folders in it, by the type in its own entries (d_type).

        Raises:
            Unavailable: it cannot be read.
        """
        return (one.name for one in self._entries() if one.is_dir(follow_symlinks=False))

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        if not self.exists():
            return
        try:
            with os.scandir(self.fd) as entries:
                yield from entries
        except OSError as error:
            raise Unavailable(f"{self.path}: {error_text(error)}") from error

    def count_links(self) -> int:
        """The number of symbolic links, by the type in the folder's own entries (d_type).

        Raises:
            Unavailable: it cannot be read.
        """
        if not self.exists():
            return 0
        try:
            with os.scandir(self.fd) as entries:
                return sum(entry.is_symlink() for entry in entries)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error_text(error)}") from error

    def sync(self) -> None:
        """fsync the folder, so that renames in it are durable."""
        files.fsync(self.fd)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
