"""What lies on the desk of processes that ended there: shown, finished or taken back."""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from engine.model import Problem, State
from engine.store import Unavailable
from engine.stores.nftban import task_format
from engine.stores.nftban.folder import TaskFolder
from engine.stores.nftban.staging import LEAVING, NAME, StagingDir
from engine.system import files
from engine.system.files import Refused

LITTER_AGE = 60.0
"""Seconds after which a draft whose writer is gone is litter; its task was never acknowledged."""

UNCHANGED = 60.0
"""Seconds for which a file must be as it is before we believe that nobody is writing it: the real
program writes in place, and takes milliseconds.
"""


class Moving(NamedTuple):
    """A withdrawn file, as its name tells it."""

    name: str
    id: str
    start: str
    """The word of the state it comes from."""
    end: str
    """The word of the state it goes to; `LEAVING` for none."""
    crc: int
    """CRC-32 of what it will say there."""

    @classmethod
    def read(cls, name: str) -> Moving | None:
        """From a file name on the desk; None for any other."""
        parts = name.split(".")
        if len(parts) != 6 or parts[0] != "D" or not task_format.is_id(parts[1]):
            return None
        try:
            return cls(name, parts[1], parts[2], parts[3], int(parts[4], 16))
        except ValueError:
            return None


class StagingRecovery:
    """Ends what others began."""

    def __init__(self, desk: StagingDir, folders: Mapping[State, TaskFolder]) -> None:
        self._desk, self._folders = desk, folders
        self._by_word = {folder.word: state for state, folder in folders.items()}

    def recover(self, now: float, ids: Collection[str] | None = None) -> list[str]:
        """Finish or take back what dead processes left on the desk; says what was done.

        With `ids` only what is of these tasks. What the disk refuses is said as well, and left for
        the next time.

        Raises:
            Unavailable: the desk cannot be read, or another process keeps its lock.
        """
        desk = self._desk
        if not desk.folder.exists():
            return []
        desk.check()
        names = _listed(desk.folder)
        if ids is None:
            desk.owes = False
        else:
            names = [n for n in names if (its := Moving.read(n)) is not None and its.id in ids]
        said = []
        for name in names:
            try:
                if name.startswith("D."):
                    said += self._recover_withdrawn(name, now)
                elif name.startswith("T."):
                    self._sweep_draft(name, now)
            except TimeoutError as error:
                raise Unavailable(f"{desk.folder.path}: {error.strerror}") from error
            except (OSError, Unavailable) as error:
                desk.owes = True
                words = error.strerror if isinstance(error, OSError) else error
                said.append(f"{name}: left for the next time: {words}")
        return said

    def _recover_withdrawn(self, name: str, now: float) -> list[str]:
        moving, desk = Moving.read(name), self._desk
        if moving is None or moving.start not in self._by_word:
            return []
        try:
            fd = files.open_guarded(name, desk.folder.fd)
        except (FileNotFoundError, Refused):
            return []
        try:
            if not files.claim_flock(fd) or not self._is_still(name, fd, desk.folder):
                return []  # its owner lives, or somebody else has just recovered it
            if self._has_second_name(fd, moving.id):
                files.unlink(name, dir_fd=desk.folder.fd)
                return [f"{moving.id}: had two names, has one"]
            state = self._where_to(fd, moving, now)
            if state is None:
                desk.owes = True
                return []
            desk.folder.sync()
            folder = self._folders[state]
            with desk.placing():
                if desk.stands(moving.id):
                    desk.keep_twice(name, moving.id)
                    return [f"{moving.id}: stood twice, one set aside in {desk.twice.path}"]
                desk.place_or_keep_twice(name, moving.id, folder)
            folder.sync()
            return [f"{moving.id}: interrupted, back in {folder.word}"]
        except Refused:
            return []  # not what a process of ours left: problems() shows it
        finally:
            os.close(fd)

    def _where_to(self, fd: int, moving: Moving, now: float) -> State | None:
        """The state that it belongs to; None while somebody may still be writing it."""
        data, seen = files.read_guarded(fd)
        start = self._by_word[moving.start]
        try:
            task_format.parse(data, moving.id)
        except Refused:
            if now - seen.st_ctime < UNCHANGED:
                return None
        else:
            if moving.end in self._by_word and zlib.crc32(data) == moving.crc:
                return self._by_word[moving.end]
        if start is State.DEAD and b"\nTASK_DLQ_EPOCH=" not in data:
            # Another program was taking it out of the dead-letter queue.
            return State.PENDING
        return start

    def _is_still(self, name: str, fd: int, folder: TaskFolder) -> bool:
        """Whether an open file has this name in a folder."""
        try:
            seen = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return seen.st_ino == os.fstat(fd).st_ino

    def _has_second_name(self, fd: int, ident: str) -> bool:
        """Whether a power cut kept the second of two renames and lost the first."""
        return os.fstat(fd).st_nlink > 1 and any(
            folder.exists() and self._is_still(ident + task_format.SUFFIX, fd, folder)
            for folder in self._folders.values()
        )

    def _sweep_draft(self, name: str, now: float) -> None:
        folder = self._desk.folder
        try:
            fd = files.open_guarded(name, folder.fd)
        except (FileNotFoundError, Refused):
            return
        try:
            old = now - os.fstat(fd).st_ctime > LITTER_AGE
            if old and files.claim_flock(fd) and self._is_still(name, fd, folder):
                files.forget(name, folder.fd)
        finally:
            os.close(fd)

    def moving(self) -> Iterator[Moving]:
        """What is withdrawn at this moment, by living processes or dead ones.

        Raises:
            Unavailable: the desk cannot be read.
        """
        if self._desk.folder.exists():
            for name in _listed(self._desk.folder):
                moving = Moving.read(name)
                if moving is not None:
                    yield moving

    def problems(self) -> Iterator[Problem]:
        """What lies on the desk with nobody at work on it, and what stood twice.

        No lock is touched: one taken to find out would make a recovery pass the file by.
        """
        moving = list(self.moving())
        held = files.flocked() if moving else frozenset()
        for each in moving:
            try:
                seen = os.stat(each.name, dir_fd=self._desk.folder.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if seen.st_ino not in held:
                end = "nowhere" if each.end == LEAVING else each.end
                yield Problem(
                    f"{NAME}/{each.name}",
                    f"a move from {each.start} to {end} was interrupted; "
                    "the next worker finishes it",
                )
        if self._desk.twice.exists():
            for name in _listed(self._desk.twice):
                yield Problem(f"{NAME}/twice/{name}", "a second file of one task, set aside")


def _listed(folder: TaskFolder) -> list[str]:
    try:
        return sorted(os.listdir(folder.fd))
    except OSError as error:
        raise Unavailable(f"{folder.path}: {error.strerror}") from error
