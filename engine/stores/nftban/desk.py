"""How a task file is changed and moved so that it stands under exactly one name at every instant.

The desk is the folder `.spooldeck` beside the state folders, on their file system. A change is made
there in three steps: the file is *withdrawn* from its folder under a name that says where it goes,
*rewritten* by a rename over that name (the commit), and *placed* in its new folder. Who owns a file
on the desk is said by the flock on its inode, never by a PID; the token in its name is for people.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from engine import files
from engine.files import Refused
from engine.model import Problem, State
from engine.store import Gone, Unavailable
from engine.stores.nftban import form
from engine.stores.nftban.folder import Folder

NAME = ".spooldeck"
LITTER_AGE = 60.0
"""Seconds after which a draft whose writer is gone is litter; its task was never acknowledged."""
LEAVING = "gone"
"""Stands for "to nowhere" in a withdrawn file's name."""


class Change(NamedTuple):
    """One task file that shall say something else, or stand somewhere else, or nowhere."""

    id: str
    start: State
    end: State | None
    rev: str
    """The revision in which it was seen."""
    rewrite: Callable[[form.Record], form.Record]


class _Draft:
    """A change under way: the file that was seen, its new text, and what is on the desk of it."""

    __slots__ = ("change", "crc", "data", "drafted", "error", "rev", "seen", "seen_fd", "withdrawn")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.seen_fd = -1
        self.seen: os.stat_result | None = None
        self.data = b""
        self.crc = 0
        self.drafted: tuple[str, int] | None = None
        self.withdrawn = ""
        self.rev = ""
        self.error: Exception | None = None


class Desk:
    """The desk of one spool."""

    def __init__(
        self,
        path: str,
        folders: Mapping[State, Folder],
        *,
        durable: bool,
        due_in_mtime: bool,
    ) -> None:
        self._folder = Folder(path, NAME, make=True)
        self._twice = Folder(f"{path}/twice", f"{NAME}/twice", make=True)
        self._folders = folders
        self._by_word = {folder.word: state for state, folder in folders.items()}
        self._durable = durable
        self._due_in_mtime = due_in_mtime
        self._token = f"{os.getpid()}-{time.time_ns():x}"
        self._count = 0
        self._lock_fd = -1

    def close(self) -> None:
        """Let go of its descriptors."""
        self._folder.close()
        self._twice.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # ---- adding

    def add(self, records: list[form.Record]) -> list[str | Exception]:
        """Put new task files into pending/; for each its revision, or why it is not there.

        Durable together: an answer counts only once the method has returned.
        """
        pending = self._folders[State.PENDING]
        drafts: list[tuple[str, int] | Exception] = [
            self._try_draft(record.id, form.render(record), record.due, pending)
            for record in records
        ]
        self._sync_drafts(drafts)
        failed = [draft for draft in drafts if isinstance(draft, Exception)]
        if len(failed) == len(drafts):
            return list(failed)  # perhaps there is not even a desk
        answers: list[str | Exception] = []
        with self._placing():
            for record, draft in zip(records, drafts, strict=True):
                answers.append(self._place_new(record.id, draft, pending))
        if self._durable:
            pending.sync()
        return answers

    def add_one(self, record: form.Record) -> str:
        """As `add`, for one file.

        Raises:
            Gone: a task of its id stands there.
            Unavailable: the disk refused.
        """
        pending = self._folders[State.PENDING]
        try:
            draft = self._draft(record.id, form.render(record), record.due, pending)
            if self._durable:
                try:
                    files.fsync(draft[1])
                except OSError:
                    self._drop(draft)
                    raise
            with self._placing():
                answer = self._place_new(record.id, draft, pending)
            if self._durable:
                pending.sync()
        except OSError as error:
            raise Unavailable(f"{record.id}: cannot be written: {error.strerror}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _try_draft(
        self, ident: str, data: bytes, due: int, like: Folder
    ) -> tuple[str, int] | Exception:
        try:
            return self._draft(ident, data, due, like)
        except OSError as error:
            return Unavailable(f"{ident}: cannot be written: {error.strerror}")

    def _draft(self, ident: str, data: bytes, due: int, like: Folder) -> tuple[str, int]:
        """A whole file on the desk, in our hand; not durable yet."""
        self._count += 1
        name = f"T.{ident}.{self._token}-{self._count}"
        fd = files.create(name, self._folder.fd, like.owner)
        try:
            files.claim_flock(fd)
            files.write_all(fd, data)
            if self._due_in_mtime and due:
                files.utime(fd, (due, due))
        except OSError:
            os.close(fd)
            files.forget(name, self._folder.fd)
            raise
        return name, fd

    def _sync_drafts(self, drafts: list[tuple[str, int] | Exception]) -> None:
        """Make drafts durable; one that fails becomes its error, and is taken off the desk."""
        if not self._durable:
            return
        open_drafts = [draft for draft in drafts if not isinstance(draft, Exception)]
        if len(open_drafts) > 1:
            # Starts writing all of them back, so that each fsync finds its data under way.
            for _, fd in open_drafts:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for at, draft in enumerate(drafts):
            if isinstance(draft, Exception):
                continue
            try:
                files.fsync(draft[1])
            except OSError as error:
                drafts[at] = Unavailable(f"cannot be made durable: {error.strerror}")
                self._drop(draft)

    def _place_new(
        self, ident: str, draft: tuple[str, int] | Exception, pending: Folder
    ) -> str | Exception:
        if isinstance(draft, Exception):
            return draft
        try:
            if self._stands(ident):
                raise FileExistsError
            files.rename(
                draft[0], ident + form.SUFFIX, src_dir_fd=self._folder.fd, dst_dir_fd=pending.fd
            )
        except FileExistsError:
            self._drop(draft)
            return Gone(f"{ident} is there already")
        except OSError as error:
            self._drop(draft)
            return Unavailable(f"{pending.path}: {error.strerror}")
        rev = files.revision(os.fstat(draft[1]))
        os.close(draft[1])
        return rev

    def _drop(self, draft: tuple[str, int]) -> None:
        os.close(draft[1])
        files.forget(draft[0], self._folder.fd)

    # ---- changing

    def change(self, changes: list[Change], now: float) -> list[str | Exception]:
        """Carry changes out; for each its new revision ("" once it has left), or why not.

        Durable together: an answer counts only once the method has returned.
        """
        drafts = [_Draft(change) for change in changes]
        try:
            for draft in drafts:
                self._attempt(self._see, draft)
            self._sync_changes(drafts)
            for draft in drafts:
                self._attempt(self._withdraw, draft)
            self._commit(drafts)
            self._place_all(drafts)
        finally:
            for draft in drafts:
                self._let_go(draft)
        return [draft.error or draft.rev for draft in drafts]

    def _attempt(self, step: Callable[[_Draft], None], draft: _Draft) -> None:
        """One step of one change; if it fails, everything is as it was."""
        if draft.error is not None:
            return
        try:
            step(draft)
        except (Gone, Unavailable) as error:
            draft.error = error
        except Refused as refusal:
            draft.error = Unavailable(f"{draft.change.id}: {refusal}")
        except OSError as error:
            draft.error = Unavailable(f"{draft.change.id}: {error.strerror}")
        if draft.error is not None:
            self._undo(draft)

    def _see(self, draft: _Draft) -> None:
        """Open and lock the file, make sure that it is what was seen, and draft its new text."""
        change = draft.change
        folder = self._folders[change.start]
        name = change.id + form.SUFFIX
        try:
            draft.seen_fd = files.open_guarded(name, folder.fd)
        except FileNotFoundError:
            raise Gone(change.id) from None
        if not files.claim_flock(draft.seen_fd):
            raise Gone(f"{change.id}: somebody else is moving it")
        draft.data, draft.seen = files.read_guarded(draft.seen_fd)
        if files.revision(draft.seen) != change.rev:
            raise Gone(change.id)
        if change.end is None:
            return
        record = form.parse(draft.data, change.id)
        after = change.rewrite(record)
        # A file that says the same is not written again: what came back is byte for byte itself.
        data = draft.data if after == record else form.render(after)
        draft.crc = zlib.crc32(data)
        if data != draft.data:
            target = self._folders[change.end]
            draft.drafted = self._draft(change.id, data, after.due, target)

    def _sync_changes(self, drafts: list[_Draft]) -> None:
        written = [d for d in drafts if d.drafted is not None and d.error is None]
        results: list[tuple[str, int] | Exception] = [d.drafted for d in written if d.drafted]
        self._sync_drafts(results)
        for draft, result in zip(written, results, strict=True):
            if isinstance(result, Exception):
                draft.drafted, draft.error = None, result

    def _withdraw(self, draft: _Draft) -> None:
        """Rename the file onto the desk, its outcome in the name; from then on it is ours alone."""
        change, seen = draft.change, draft.seen
        assert seen is not None
        start = self._folders[change.start]
        end = LEAVING if change.end is None else self._folders[change.end].word
        self._count += 1
        ours = f"D.{change.id}.{start.word}.{end}.{draft.crc:08x}.{self._token}-{self._count}"
        try:
            files.rename(
                change.id + form.SUFFIX,
                ours,
                src_dir_fd=start.fd,
                dst_dir_fd=self._folder.fd,
            )
        except FileNotFoundError:
            raise Gone(change.id) from None
        draft.withdrawn = ours
        # A rename changes ctime, so inode, size and mtime decide whether this is what was read.
        there = os.stat(ours, dir_fd=self._folder.fd, follow_symlinks=False)
        if not files.same_file(seen, there):
            raise Gone(change.id)

    def _commit(self, drafts: list[_Draft]) -> None:
        """Rename each new text over its withdrawn file, then make the leaving durable."""
        left = set()
        for draft in drafts:
            if draft.error is not None:
                continue
            self._attempt(self._rewrite, draft)
            if draft.error is None:
                left.add(draft.change.start)
        if self._durable:
            for state in left:
                self._folders[state].sync()

    def _rewrite(self, draft: _Draft) -> None:
        if draft.change.end is None:
            files.unlink(draft.withdrawn, dir_fd=self._folder.fd)
            return
        if draft.drafted is None:
            return
        name, fd = draft.drafted
        desk = self._folder.fd
        files.rename(name, draft.withdrawn, src_dir_fd=desk, dst_dir_fd=desk)
        os.close(draft.seen_fd)
        draft.seen_fd, draft.drafted = fd, None

    def _place_all(self, drafts: list[_Draft]) -> None:
        staying = [d for d in drafts if d.error is None and d.change.end is not None]
        if not staying:
            return
        arrived = set()
        with self._placing():
            for draft in staying:
                end = draft.change.end
                assert end is not None
                try:
                    if not self._place_or_set_aside(draft.withdrawn, draft.change.id, end):
                        draft.error = Gone(f"{draft.change.id}: stood twice, one set aside")
                        continue
                except (OSError, Unavailable) as error:
                    # Committed but not in place: left to recovery, which knows where it goes.
                    draft.error = Unavailable(f"{draft.change.id}: interrupted: {error}")
                    continue
                arrived.add(end)
                draft.rev = files.revision(os.fstat(draft.seen_fd))
        if self._durable:
            for state in arrived:
                self._folders[state].sync()

    def _undo(self, draft: _Draft) -> None:
        """Before the commit: the file back where it stood, the draft off the desk."""
        if draft.withdrawn:
            with self._placing():
                self._place_or_set_aside(draft.withdrawn, draft.change.id, draft.change.start)
            draft.withdrawn = ""
        if draft.drafted is not None:
            self._drop(draft.drafted)
            draft.drafted = None

    def _let_go(self, draft: _Draft) -> None:
        if draft.seen_fd >= 0:
            os.close(draft.seen_fd)
            draft.seen_fd = -1

    # ---- placing

    def _placing(self) -> files.Flock:
        """Held while files are put in place, so that none is put over another."""
        if self._lock_fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock_fd = os.open(".lock", flags, files.FILE_MODE, dir_fd=self._folder.fd)
            owner = self._folder.owner
            if owner is not None:
                files.fchown(self._lock_fd, *owner)
        return files.Flock(self._lock_fd)

    def _place(self, name: str, ident: str, folder: Folder) -> None:
        """Rename a file of the desk into a state folder where nothing of its name stands.

        Raises:
            FileExistsError: something stands there.
        """
        target, there = ident + form.SUFFIX, folder.fd
        if _there(target, there):
            raise FileExistsError(errno.EEXIST, "exists already", target)
        files.rename(name, target, src_dir_fd=self._folder.fd, dst_dir_fd=there)

    def _place_or_set_aside(self, name: str, ident: str, state: State) -> bool:
        """Whether the file is in its place now; else it is kept apart."""
        try:
            self._place(name, ident, self._folders[state])
        except FileExistsError:
            self._set_aside(name, ident)
            return False
        return True

    def _set_aside(self, name: str, ident: str) -> None:
        """Two files claim one id: the one in hand is kept apart, under a name of its own."""
        self._count += 1
        files.rename(
            name,
            f"{ident}{form.SUFFIX}.{self._token}-{self._count}",
            src_dir_fd=self._folder.fd,
            dst_dir_fd=self._twice.fd,
        )
        if self._durable:
            self._twice.sync()

    def give_back(self, ident: str) -> None:
        """A file that was claimed but should not have been goes back to pending/."""
        name, work = ident + form.SUFFIX, self._folders[State.ACTIVE]
        with self._placing():
            if not _there(name, self._folders[State.PENDING].fd):
                files.rename(
                    name,
                    name,
                    src_dir_fd=work.fd,
                    dst_dir_fd=self._folders[State.PENDING].fd,
                )

    # ---- what an interrupted process left

    def recover(self, now: float) -> list[str]:
        """Finish or take back what dead processes left on the desk; says what was done."""
        if not self._folder.exists():
            return []
        said = []
        for name in sorted(os.listdir(self._folder.fd)):
            if name.startswith("D."):
                said += self._recover_withdrawn(name)
            elif name.startswith("T."):
                self._sweep_draft(name, now)
        return said

    def _recover_withdrawn(self, name: str) -> list[str]:
        moving = Moving.read(name)
        if moving is None or moving.start not in self._by_word:
            return []
        try:
            fd = files.open_guarded(name, self._folder.fd)
        except (FileNotFoundError, Refused):
            return []
        try:
            if not files.claim_flock(fd) or not self._is_still(name, fd):
                return []  # its owner lives, or somebody else has just recovered it
            state = self._where_to(fd, moving)
            self._folder.sync()
            with self._placing():
                if self._stands(moving.id):
                    self._set_aside(name, moving.id)
                    return [f"{moving.id}: stood twice, one set aside in {self._twice.path}"]
                self._place(name, moving.id, self._folders[state])
            self._folders[state].sync()
            return [f"{moving.id}: interrupted, back in {self._folders[state].word}"]
        finally:
            os.close(fd)

    def _where_to(self, fd: int, moving: Moving) -> State:
        data = os.read(fd, files.TASK_LIMIT)
        if moving.end in self._by_word and zlib.crc32(data) == moving.crc:
            return self._by_word[moving.end]
        start = self._by_word[moving.start]
        if start is State.DEAD and b"\nTASK_DLQ_EPOCH=" not in data:
            # Another program was taking it out of the dead-letter queue.
            return State.PENDING
        return start

    def _is_still(self, name: str, fd: int) -> bool:
        try:
            there = os.stat(name, dir_fd=self._folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return there.st_ino == os.fstat(fd).st_ino

    def _stands(self, ident: str) -> bool:
        name = ident + form.SUFFIX
        return any(folder.holds(name) for folder in self._folders.values())

    def _sweep_draft(self, name: str, now: float) -> None:
        try:
            fd = files.open_guarded(name, self._folder.fd)
        except (FileNotFoundError, Refused):
            return
        try:
            old = now - os.fstat(fd).st_ctime > LITTER_AGE
            if old and files.claim_flock(fd) and self._is_still(name, fd):
                files.forget(name, self._folder.fd)
        finally:
            os.close(fd)

    def moving(self) -> Iterator[Moving]:
        """What is withdrawn at this moment, by living processes or dead ones."""
        if self._folder.exists():
            for name in sorted(os.listdir(self._folder.fd)):
                moving = Moving.read(name)
                if moving is not None:
                    yield moving

    def problems(self) -> Iterator[Problem]:
        """What lies on the desk with nobody at work on it, and what was set aside."""
        for moving in self.moving():
            try:
                fd = files.open_guarded(moving.name, self._folder.fd)
            except (FileNotFoundError, Refused):
                continue
            try:
                if files.is_unclaimed(fd):
                    yield Problem(
                        f"{NAME}/{moving.name}",
                        f"a move from {moving.start} to {moving.end} was interrupted; "
                        "the next worker finishes it",
                    )
            finally:
                os.close(fd)
        if self._twice.exists():
            for name in sorted(os.listdir(self._twice.fd)):
                yield Problem(f"{NAME}/twice/{name}", "a second file of one task, set aside")


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
        if len(parts) != 6 or parts[0] != "D":
            return None
        try:
            return cls(name, parts[1], parts[2], parts[3], int(parts[4], 16))
        except ValueError:
            return None


def _there(name: str, dir_fd: int) -> bool:
    # Not os.access: told not to follow links, it is five system calls in some C libraries.
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
