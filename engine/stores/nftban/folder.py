"""A folder of tasks, known by its descriptor, so that no renamed path leads anybody astray."""

from __future__ import annotations

import os
import stat
from os import stat_result

from engine.model import Problem
from engine.store import Unavailable
from engine.system import files


class TaskFolder:
    """One state's folder, opened when it is first needed and then known by its descriptor."""

    def __init__(
        self, path: str, word: str, spool: TaskFolder | None = None, make: bool = False
    ) -> None:
        """`spool` is the folder whose owner is the spool's, if it is not this one."""
        self.path, self.word = path, word
        self._spool = spool or self
        self._make = make
        self._fd = -1
        self._seen: stat_result
        self._owner: tuple[int, int] | None = None

    @property
    def fd(self) -> int:
        """Its descriptor.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd < 0:
            try:
                if self._make:
                    files.make_folder(self.path, owner=self._spool.owner)
                self._fd = files.open_folder(self.path)
                self._remember(os.fstat(self._fd))
            except OSError as error:
                self.close()
                raise Unavailable(f"{self.path}: {error.strerror}") from error
        return self._fd

    @property
    def seen(self) -> stat_result:
        """Its state when it was last checked.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        _ = self.fd
        return self._seen

    @property
    def judge(self) -> stat_result:
        """The state of the folder by whose owner a file here is judged."""
        return self._spool.seen

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom to give what is made here; None: it is ours as it is."""
        return self._owner if self.fd >= 0 else None

    def _remember(self, seen: stat_result) -> None:
        self._seen, self._owner = seen, files.owner_for(seen)

    def exists(self) -> bool:
        """Whether there is anything to look into: one that we make on demand may not be there.

        The others have to be; where one is missing, opening it says so.
        """
        return self._fd >= 0 or not self._make or files.is_folder(self.path)

    def problem(self) -> Problem | None:
        """Something else in the place of one that we make on demand; None where nothing is."""
        if self.exists() or not os.path.lexists(self.path):
            return None
        what = "a symbolic link" if os.path.islink(self.path) else "no folder"
        return Problem(self.word, f"{what}, expected a folder or nothing: move it out of the way")

    def holds(self, name: str) -> bool:
        """Whether anything of that name lies in it; False as well where there is no folder."""
        # Half the time of a stat that raises, and each enqueue asks five folders.
        if self._fd < 0:
            return os.access(f"{self.path}/{name}", os.F_OK, follow_symlinks=False)
        return os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False)

    def trusts_us(self) -> bool:
        """Whether what we make here will be trusted by whoever reads it."""
        made_by = os.geteuid()
        shared = self.seen.st_mode & stat.S_ISGID and self.seen.st_mode & stat.S_IWGRP
        return made_by in (0, self.seen.st_uid) or bool(shared)

    def leads_here(self) -> bool:
        """Whether the path, as everybody sees it, still leads to the folder that we hold.

        Raises:
            Unavailable: that cannot be found out now.
        """
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error
        held = self._seen
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            return False
        if (there.st_mode, there.st_uid, there.st_gid) != (held.st_mode, held.st_uid, held.st_gid):
            self._remember(there)
        return True

    def check(self) -> bool:
        """Open it anew if its path leads to another folder than we hold; whether it was the same.

        One that is made on demand stays closed until it is needed.

        Raises:
            Unavailable: it cannot be opened.
        """
        same = self._fd < 0 or self.leads_here()
        if not same:
            self.close()
        if not self._make:
            _ = self.fd
        return same

    def state_of(self, name: str) -> stat_result:
        """The state of what lies here under a name, as everybody sees it: by way of the path.

        Raises:
            FileNotFoundError: nothing of that name, or another folder has taken this one's place.
        """
        return os.stat(f"{self.path}/{name}", follow_symlinks=False)

    def read(self, name: str) -> tuple[bytes, stat_result]:
        """What a file here holds, if it is a plain file of somebody who may put files here.

        Raises:
            FileNotFoundError: nothing of that name.
            Refused: with the reason.
            OSError: it cannot be read now.
        """
        fd = files.open_guarded(name, self.fd)
        try:
            return files.read_guarded(fd, files.TASK_LIMIT, self._spool.seen)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Make the names in it durable."""
        files.fsync(self.fd)

    def close(self) -> None:
        """Let go of its descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
