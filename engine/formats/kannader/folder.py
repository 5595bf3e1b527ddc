"""A folder of a Kannader spool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import stat_result

from engine.formats.base.folder import SpoolFolder, name_exists

FOLDER_MODE = 0o700
"""Mode of all folders: only the owner (Kannader spool, section 1)."""


class MailFolder(SpoolFolder):
    """A folder of links, mails or our own files."""

    def __init__(self, path: str, word: str, spool: MailFolder | None = None) -> None:
        """With `spool`, a folder of the spool's owner, this folder is ours, made on demand."""
        super().__init__(path, word, spool, make=spool is not None, mode=FOLDER_MODE)

    @property
    def status(self) -> stat_result:
        """The current status of the folder."""
        return os.fstat(self.fd)

    def contains(self, name: str) -> bool:
        """True if the folder has an entry of that name.

        Raises:
            OSError: that cannot be determined now.
        """
        return self.exists() and name_exists(name, self.fd)

    def iter_folders(self) -> Iterator[str]:
        """Yield the names of the folders in it, by the type in its own entries (d_type)."""
        return (one.name for one in self.iter_entries() if one.is_dir(follow_symlinks=False))

    def count_links(self) -> int:
        """The number of symbolic links, by the type in the folder's own entries (d_type)."""
        return sum(entry.is_symlink() for entry in self.iter_entries())
