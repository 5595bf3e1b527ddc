"""A folder of task files, with the checks of all who read them."""

from __future__ import annotations

import os
import stat
from os import stat_result

from engine.formats.base.folder import SpoolFolder
from engine.system import files


class TaskFolder(SpoolFolder):
    """The folder of one state."""

    @property
    def queue_path(self) -> str:
        """The folder of pending/, with our staging directory."""
        return os.path.dirname(self.spool.path.rstrip("/")) or "."

    @property
    def trusted_stat(self) -> stat_result:
        """The stat of the folder whose owner a file here must match."""
        return self.spool.last_stat

    def trusts_our_files(self) -> bool:
        """True if all readers will trust files that we create here."""
        folder_stat = self.last_stat
        if os.geteuid() in (0, folder_stat.st_uid):
            return True
        # A new file gets the group of its folder, or that of our process.
        has_group = folder_stat.st_mode & stat.S_ISGID or folder_stat.st_gid == os.getegid()
        return bool(has_group and folder_stat.st_mode & stat.S_IWGRP)

    def stat_by_path(self, name: str) -> stat_result:
        """Return the stat of a file here, looked up by the path and not by the descriptor.

        Raises:
            FileNotFoundError: the name does not exist, or another folder has replaced this one.
        """
        return os.stat(f"{self.path}/{name}", follow_symlinks=False)

    def read(self, name: str) -> tuple[bytes, stat_result]:
        """Read a plain file here whose owner may write to the spool.

        Raises:
            FileNotFoundError: the name does not exist.
            Refused: it is not such a file; with the reason.
            OSError: it cannot be read now.
        """
        fd = files.open_guarded(name, self.fd)
        try:
            return files.read_guarded(fd, files.MAX_TASK_BYTES, self.trusted_stat)
        finally:
            os.close(fd)
