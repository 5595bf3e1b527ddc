"""A folder of a Kannader spool, known by its descriptor, so that no path leads us astray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import stat_result

from engine.model import Problem
from engine.store import Unavailable
from engine.system import files

MODE = 0o700
"""Kannader spool, section 1: all folders are the owner's alone."""


class MailFolder:
    """One folder, opened when it is first needed."""

    def __init__(self, path: str, word: str, spool: MailFolder | None = None) -> None:
        """With `spool`, the folder whose owner is the spool's, it is ours and made on demand."""
        self.path, self.word = path, word
        self._spool = spool
        self._fd = -1

    @property
    def fd(self) -> int:
        """Its descriptor; one of ours is made if it is not there.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd < 0:
            try:
                if self._spool is not None:
                    files.make_folder(self.path, mode=MODE, owner=self._spool.owner)
                self._fd = files.open_folder(self.path)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error
        return self._fd

    @property
    def seen(self) -> stat_result:
        """Its state now.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        return os.fstat(self.fd)

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom to give what is made here; None: it is ours as it is."""
        return files.owner_for(self.seen)

    def exists(self) -> bool:
        """Whether there is anything to look into: one of ours may not be there."""
        return self._fd >= 0 or self._spool is None or files.is_folder(self.path)

    def problem(self) -> Problem | None:
        """Something else in the place of one of ours; None where nothing is."""
        if self.exists() or not os.path.lexists(self.path):
            return None
        return Problem(self.word, "no folder, expected one or nothing: move it out of the way")

    def holds(self, name: str) -> bool:
        """Whether anything of that name lies in it."""
        if not self.exists():
            return False
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def check(self) -> None:
        """Open it anew if its path leads to another folder than we hold.

        Raises:
            Unavailable: it is missing or cannot be opened.
        """
        if self._fd >= 0:
            held = os.fstat(self._fd)
            try:
                there = os.stat(self.path, follow_symlinks=False)
            except FileNotFoundError:
                self.close()
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error
            else:
                if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
                    self.close()
        if self._spool is None:
            _ = self.fd

    def names(self) -> Iterator[str]:
        """Every name in it, as the folder lists them; none where there is no folder.

        Raises:
            Unavailable: it cannot be read.
        """
        if not self.exists():
            return
        try:
            with os.scandir(self.fd) as entries:
                for entry in entries:
                    yield entry.name
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Make the names in it durable."""
        files.fsync(self.fd)

    def close(self) -> None:
        """Let go of its descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
