"""Complete or roll back moves that a dead process left in the staging directory."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from engine.formats.nftban import task_format
from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.staging import REMOVED_WORD, StagingDir
from engine.model import FOR_ALL, Problem, State
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused, Untrusted
from engine.text.error_text import error_text
from engine.values import NamedTuple

DRAFT_MAX_AGE_SECONDS = 60.0
"""Seconds after which a draft without a living writer is removed; its task was never
acknowledged."""

MIN_UNCHANGED_SECONDS = 60.0
"""Seconds without a change after which a file counts as completely written. The NFTBan program
writes in place, which takes milliseconds."""


def describe_untrusted(folder: TaskFolder, why: Untrusted) -> str:
    """Why a file is not trusted, with the command that corrects all such files of the spool."""
    is_access = isinstance(why.__cause__, PermissionError)
    if "link" in str(why) or (is_access and os.geteuid() != folder.trusted_stat.st_uid):
        return f"{why}; left where it is"
    return f"{why}; left where it is{FOR_ALL}{_trust_command(folder)}"


def _trust_command(folder: TaskFolder) -> str:
    """The command that makes all files of a spool trusted. A file with a second hard link is left
    as it is: it may be another user's."""
    import shlex

    from engine.system import users

    folder_stat = folder.trusted_stat
    owner = f"{users.user_name(folder_stat.st_uid) or folder_stat.st_uid}:{folder_stat.st_gid}"
    find = f"find {shlex.quote(folder.queue_path)} -type f -links 1"
    return f"{find} -exec chown {owner} {{}} + -exec chmod u+rw,o-w {{}} +"


def broken_file(folder: TaskFolder, state: State, name: str, why: Refused) -> Problem:
    """A problem of a state's file, and when a worker quarantines it: `TaskClaims` meets task files
    that are pending or active, `Quarantine.quarantine_files` moves those with a wrong content."""
    if isinstance(why, Untrusted):
        return Problem(f"{folder.word}/{name}", describe_untrusted(folder, why), state)
    problem = Problem(f"{folder.word}/{name}", str(why), state)
    try:
        file_stat = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except OSError:
        return problem  # it is gone, or cannot be read
    is_met = state in (State.PENDING, State.ACTIVE) and name.endswith(task_format.SUFFIX)
    moves = file_stat.st_ctime + MIN_UNCHANGED_SECONDS
    moved = moves if is_met and not stat.S_ISDIR(file_stat.st_mode) else None
    return problem._replace(since=file_stat.st_ctime, quarantined_at=moved)


class WithdrawnFile(NamedTuple):
    """A withdrawn file, described by its name."""

    name: str
    id: str
    start: str
    """The folder word of the state it comes from."""
    end: str
    """The folder word of the state it goes to; `REMOVED_WORD` for removal."""
    crc: int
    """CRC-32 of its new content."""

    @classmethod
    def parse_name(cls, name: str) -> WithdrawnFile | None:
        """Parse a file name of the staging directory; None if it is not a withdrawn file."""
        parts = name.split(".")
        if len(parts) != 6 or parts[0] != "D" or not task_format.is_id(parts[1]):
            return None
        try:
            return cls(name, parts[1], parts[2], parts[3], int(parts[4], 16))
        except ValueError:
            return None


class StagingRecovery:
    """Completes or rolls back moves that a dead process left in the staging directory."""

    def __init__(self, staging: StagingDir, folders: Mapping[State, TaskFolder]) -> None:
        self._staging, self._folders = staging, folders
        self._by_word = {folder.word: state for state, folder in folders.items()}

    def recover(self, now: float, ids: Collection[str] | None = None) -> list[str]:
        """Complete or roll back the moves of dead processes; return one line for each.

        `ids` limits this to some tasks. A disk error gives a line too, and the move is retried next
        time.

        Raises:
            Unavailable: the directory cannot be read, or another process holds its lock.
        """
        staging = self._staging
        if not staging.folder.exists():
            return []
        staging.reopen_if_replaced()
        names = _list_names(staging.folder)
        if ids is None:
            staging.has_unfinished = False
        else:
            names = [moving.name for moving in self.withdrawn_files() if moving.id in ids]
        lines = []
        for name in names:
            try:
                if name.startswith("D."):
                    lines += self._recover_withdrawn(name, now)
                elif name.startswith("T."):
                    self._sweep_draft(name, now)
            except TimeoutError as error:
                raise Unavailable(f"{staging.folder.path}: {error_text(error)}") from error
            except (OSError, Unavailable) as error:
                staging.has_unfinished = True
                lines.append(f"{name}: retried at the next recovery: {error_text(error)}")
        return lines

    def _recover_withdrawn(self, name: str, now: float) -> list[str]:
        moving, staging = WithdrawnFile.parse_name(name), self._staging
        if moving is None or moving.start not in self._by_word:
            return []
        try:
            fd = files.open_guarded(name, staging.folder.fd)
        except (FileNotFoundError, Refused):
            return []
        with suppress(Refused), closing_fd(fd):
            if not files.claim_flock(fd) or not self._has_name(name, fd, staging.folder):
                return []  # its owner is alive, or another process has recovered it
            if self._has_second_name(fd, moving.id):
                files.unlink(name, dir_fd=staging.folder.fd)
                return [f"{moving.id}: had two names, one removed"]
            state = self._target_state(fd, moving, now)
            if state is None:
                staging.has_unfinished = True
                return []
            staging.folder.sync()
            folder = self._folders[state]
            with staging.placing_lock():
                if staging.has_task(moving.id):
                    staging.keep_duplicate(name, moving.id)
                    what = f"duplicate id, one file moved to {staging.duplicates.path}"
                    return [f"{moving.id}: {what}"]
                staging.place_or_keep_duplicate(name, moving.id, folder)
            folder.sync()
            return [f"{moving.id}: interrupted move, now in {folder.word}"]
        return []  # not written by spooldeck: `problems` shows it

    def _target_state(self, fd: int, moving: WithdrawnFile, now: float) -> State | None:
        """Return the state it belongs to; None while it may still be written."""
        data, file_stat = files.read_guarded(fd, dir_fd=self._staging.folder.fd)
        start = self._by_word[moving.start]
        try:
            task_format.parse_task(data, moving.id)
        except Refused:
            if now - file_stat.st_ctime < MIN_UNCHANGED_SECONDS:
                return None
        else:
            if moving.end in self._by_word and zlib.crc32(data) == moving.crc:
                return self._by_word[moving.end]
        if start is State.DEAD and b"\nTASK_DLQ_EPOCH=" not in data:
            # The NFTBan program was moving it out of the dead-letter queue.
            return State.PENDING
        return start

    def _has_name(self, name: str, fd: int, folder: TaskFolder) -> bool:
        """True if the open file has this name in the folder."""
        try:
            file_stat = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return file_stat.st_ino == os.fstat(fd).st_ino

    def _has_second_name(self, fd: int, ident: str) -> bool:
        """True if a power cut kept the second of two renames and lost the first."""
        return os.fstat(fd).st_nlink > 1 and any(
            folder.exists() and self._has_name(ident + task_format.SUFFIX, fd, folder)
            for folder in self._folders.values()
        )

    def _sweep_draft(self, name: str, now: float) -> None:
        folder = self._staging.folder
        with (
            suppress(FileNotFoundError, Refused),
            closing_fd(files.open_guarded(name, folder.fd)) as fd,
        ):
            old = now - os.fstat(fd).st_ctime > DRAFT_MAX_AGE_SECONDS
            if old and files.claim_flock(fd) and self._has_name(name, fd, folder):
                files.unlink_quietly(name, folder.fd)

    def withdrawn_files(self) -> Iterator[WithdrawnFile]:
        """Yield the files that are withdrawn now, by living or dead processes.

        Raises:
            Unavailable: the directory cannot be read.
        """
        if self._staging.folder.exists():
            parsed = map(WithdrawnFile.parse_name, _list_names(self._staging.folder))
            yield from (moving for moving in parsed if moving is not None)

    def problems(self) -> Iterator[Problem]:
        """Yield problems: orphaned files of the staging directory, and duplicate ids.

        Takes no lock: a lock taken as a test would make a recovery skip the file.
        """
        folder, twice = self._staging.folder, self._staging.duplicates
        moving = list(self.withdrawn_files())
        flocked = files.flocked_inodes() if moving else frozenset()
        for each in moving:
            try:
                file_stat = os.stat(each.name, dir_fd=folder.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if file_stat.st_ino not in flocked:
                end = "removal" if each.end == REMOVED_WORD else each.end
                what = f"interrupted move from {each.start} to {end}: the next worker finishes it"
                yield Problem(f"{folder.word}/{each.name}", what)
        if twice.exists():
            for name in _list_names(twice):
                yield Problem(f"{twice.word}/{name}", "duplicate task file, not used")


def _list_names(folder: TaskFolder) -> list[str]:
    try:
        return sorted(os.listdir(folder.fd))
    except OSError as error:
        raise Unavailable(f"{folder.path}: {error_text(error)}") from error
