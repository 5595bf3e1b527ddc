"""A folder of tasks, known by its descriptor, so that no renamed path leads anybody astray."""

import os

from engine import files
from engine.store import Unavailable


class Folder:
    """One state's folder, opened when it is first needed and then known by its descriptor."""

    def __init__(self, path: str, word: str, make: bool = False) -> None:
        self.path, self.word = path, word
        self._make = make
        self._fd = -1
        self._owner: tuple[int, int] | None = None

    @property
    def fd(self) -> int:
        """Its descriptor.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd < 0:
            if self._make:
                files.make_folder(self.path)
            try:
                self._fd = files.open_folder(self.path)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error
            self._owner = files.owner_for(os.fstat(self._fd))
        return self._fd

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom to give what is made here; None: it is ours as it is."""
        return self._owner if self.fd >= 0 else None

    def exists(self) -> bool:
        """Whether there is anything to look into: one that we make on demand may not be there.

        The others have to be; where one is missing, opening it says so.
        """
        return self._fd >= 0 or not self._make or os.path.isdir(self.path)

    def holds(self, name: str) -> bool:
        """Whether anything of that name lies in it; False as well where there is no folder."""
        # Half the time of a stat that raises, and each enqueue asks five folders.
        if self._fd < 0:
            return os.access(f"{self.path}/{name}", os.F_OK, follow_symlinks=False)
        return os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False)

    def check(self) -> None:
        """Open it again if the path leads to another folder than the one we hold."""
        if self._fd < 0:
            return
        try:
            there = os.stat(self.path, follow_symlinks=False)
            held = os.fstat(self._fd)
            if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
                return
        except FileNotFoundError:
            pass
        self.close()

    def sync(self) -> None:
        """Make the names in it durable."""
        files.fsync(self.fd)

    def close(self) -> None:
        """Let go of its descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
