"""What stores in folders share: a folder used through its file descriptor, so that a renamed path
or a symbolic link cannot redirect a change, and the outcome of a move."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter
from os import stat_result

from engine.model import Move, Outcome, Problem
from engine.store import Unavailable
from engine.system import files
from engine.text.error_text import error_text


def name_exists(name: str, dir_fd: int) -> bool:
    """True if the name exists in an open folder."""
    # Not os.access: without following links it makes five system calls in some C libraries.
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def outcome_of(move: Move, answer: str | Exception) -> Outcome:
    """The outcome of a move, from its new revision or the error."""
    return Outcome(move, answer) if isinstance(answer, str) else Outcome(move, error=answer)


class SpoolFolder:
    """A folder that is opened when it is first needed.

    Its methods raise Unavailable if it is missing, or cannot be opened or read now; `sync` also
    OSError.
    """

    def __init__(
        self,
        path: str,
        word: str,
        spool: SpoolFolder | None = None,
        *,
        make: bool = False,
        mode: int = files.FOLDER_MODE,
    ) -> None:
        """`spool` is the folder whose owner counts as the owner of the spool; None: this one.

        `make`: create the folder, with `mode`, when it is first needed.
        """
        self.path, self.word = path, word
        self.spool = spool or self
        self._make, self._mode = make, mode
        self._fd = -1
        self._stat: stat_result
        self._owner: tuple[int, int] | None = None

    @property
    def fd(self) -> int:
        """The file descriptor."""
        if self._fd < 0:
            try:
                if self._make:
                    files.make_folder(self.path, mode=self._mode, owner=self.spool.owner)
                self._fd = files.open_folder(self.path)
                self._remember(os.fstat(self._fd))
            except OSError as error:
                self.close()
                raise Unavailable(f"{self.path}: {error_text(error)}") from error
        return self._fd

    @property
    def last_stat(self) -> stat_result:
        """The folder's stat as of the last check."""
        _ = self.fd
        return self._stat

    @property
    def owner(self) -> tuple[int, int] | None:
        """The owner for new files; None if ours is right."""
        return self._owner if self.fd >= 0 else None

    def _remember(self, folder_stat: stat_result) -> None:
        self._stat, self._owner = folder_stat, files.new_file_owner(folder_stat)

    def exists(self) -> bool:
        """False only for a folder made on demand that is missing, or whose path is no folder."""
        return self._fd >= 0 or not self._make or files.is_folder(self.path)

    def problem(self) -> Problem | None:
        """A file or link in the place of a folder made on demand; None if missing."""
        if self.exists() or not os.path.lexists(self.path):
            return None
        what = "a symbolic link" if os.path.islink(self.path) else "no folder"
        return Problem(self.word, f"{what}, expected a folder or nothing: move it out of the way")

    def has_name(self, name: str) -> bool:
        """True if the name exists in it; False also if the folder does not exist."""
        # Half the time of a stat that raises, and each enqueue checks five folders.
        if self._fd < 0:
            return os.access(f"{self.path}/{name}", os.F_OK, follow_symlinks=False)
        return os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False)

    def is_current(self) -> bool:
        """True if the path still leads to the open folder."""
        try:
            current_stat = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Unavailable(f"{self.path}: {error_text(error)}") from error
        if not os.path.samestat(current_stat, self._stat):
            return False
        before, after = map(attrgetter("st_mode", "st_uid", "st_gid"), (self._stat, current_stat))
        if before != after:
            self._remember(current_stat)
        return True

    def reopen_if_replaced(self) -> bool:
        """Reopen the folder if its path leads to another one; return False in that case.

        A folder made on demand stays closed until it is needed.
        """
        same = self._fd < 0 or self.is_current()
        if not same:
            self.close()
        if not self._make:
            _ = self.fd
        return same

    def iter_entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the entries in directory order; none without the folder."""
        if not self.exists():
            return
        try:
            with os.scandir(self.fd) as entries:
                yield from entries
        except OSError as error:
            raise Unavailable(f"{self.path}: {error_text(error)}") from error

    def iter_names(self) -> Iterator[str]:
        """Yield every name but those of the disk, as `iter_entries`."""
        return (one.name for one in self.iter_entries() if not files.is_disks_own(one.name))

    def sync(self) -> None:
        """Make renames in it durable (fsync)."""
        files.fsync(self.fd)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
