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
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from engine.model import State
from engine.store import Gone, Unavailable
from engine.stores.nftban import task_format
from engine.stores.nftban.folder import TaskFolder
from engine.system import files
from engine.system.files import Refused

NAME = ".spooldeck"
LEAVING = "gone"
"""Stands for "to nowhere" in a withdrawn file's name."""

APART = (State.HELD, State.TRASH)
"""Where tasks are put apart: meanwhile anybody may have put another of the same id elsewhere."""

RECHECK = 1.0
"""Seconds for which an add believes that the folders are where they were; it notices afterwards
when its task is not where everybody looks, so this only saves a detour.
"""


class StagedChange(NamedTuple):
    """One task file that shall say something else, or stand somewhere else, or nowhere."""

    id: str
    start: State
    end: State | None
    rev: str
    """The revision in which it was seen."""
    rewrite: Callable[[task_format.Record], task_format.Record]
    image: bytes = b""
    """The new text, byte for byte, which `rewrite` answers with; empty where that is rendered."""


class _InHand(NamedTuple):
    """A task file that is open, and what it says; not locked."""

    fd: int
    data: bytes
    seen: os.stat_result
    record: task_format.Record


class _TaskDraft:
    """A change under way: the file that was seen, its new text, and what is on the desk of it."""

    __slots__ = (
        *("change", "crc", "data", "drafted", "error", "rev"),
        *("rewritten", "seen", "seen_fd", "withdrawn"),
    )

    def __init__(self, change: StagedChange) -> None:
        self.change = change
        self.seen_fd = -1
        self.seen: os.stat_result | None = None
        self.data = b""
        self.crc = 0
        self.drafted: tuple[str, int] | None = None
        self.withdrawn = ""
        self.rewritten = False
        self.rev = ""
        self.error: Exception | None = None


class StagingDir:
    """The desk of one spool.

    `patience` is for how many seconds it waits for another process to finish placing a file.
    """

    def __init__(
        self,
        path: str,
        folders: Mapping[State, TaskFolder],
        *,
        durable: bool,
        due_in_mtime: bool,
        patience: float = files.PATIENCE,
    ) -> None:
        pending = folders[State.PENDING]
        self.folder = TaskFolder(path, NAME, pending, make=True)
        self.twice = TaskFolder(f"{path}/twice", f"{NAME}/twice", pending, make=True)
        self.owes = False
        """Whether a change was left for recovery to finish."""
        self._folders = folders
        self._durable = durable
        self._due_in_mtime = due_in_mtime
        self._patience = patience
        self._token = f"{os.getpid()}-{time.time_ns():x}"
        self._count = 0
        self._lock_fd = -1
        self._checked = float("-inf")
        self._waits = True
        self._hand: dict[tuple[str, State, str], _InHand] = {}

    def close(self) -> None:
        """Let go of its descriptors."""
        self.let_go()
        self.folder.close()
        self._let_go_of_what_is_in_it()

    def _let_go_of_what_is_in_it(self) -> None:
        self.twice.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def check(self, *states: State) -> None:
        """Make sure that the desk and some folders are those that everybody sees.

        Raises:
            Unavailable: one is missing.
        """
        if not self.folder.check():
            self._let_go_of_what_is_in_it()
        for state in states:
            self._folders[state].check()

    # ---- adding

    def add(self, records: list[task_format.Record], now: float) -> list[str | Exception]:
        """Put new task files into pending/; for each its revision, or why it is not there.

        Durable together: an answer counts only once the method has returned.
        """
        pending = self._folders[State.PENDING]
        try:
            if not 0 <= now - self._checked < RECHECK:
                self.check(State.PENDING)
                self._checked = now
            drafts: list[tuple[str, int] | Exception] = [
                self._try_draft(record, pending) for record in records
            ]
            self._sync_drafts(drafts, pending)
        except Unavailable as error:
            return [error] * len(records)
        try:
            with self.placing():
                answers = [
                    self._place_new(record.id, draft, pending)
                    for record, draft in zip(records, drafts, strict=True)
                ]
        except (OSError, Unavailable) as error:
            # Nobody let us place anything: all drafts are on the desk still.
            return [
                draft if isinstance(draft, Exception) else self._drop(pending.path, draft, error)
                for draft in drafts
            ]
        if self._durable:
            self._confirm(pending, answers)
        return answers

    def _confirm(self, folder: TaskFolder, answers: list[str | Exception]) -> None:
        """Make what was placed durable; if the disk refuses, no answer says that it is."""
        try:
            folder.sync()
        except OSError as error:
            for at, answer in enumerate(answers):
                if isinstance(answer, str):
                    answers[at] = _unsure(folder, error)

    def _try_draft(
        self, record: task_format.Record, like: TaskFolder
    ) -> tuple[str, int] | Exception:
        try:
            return self._draft(record.id, task_format.render(record), record.due, like)
        except (OSError, Unavailable) as error:
            self._checked = float("-inf")
            return _failure(like.path, error)

    def _draft(
        self,
        ident: str,
        data: bytes,
        due: int,
        like: TaskFolder,
        seen: os.stat_result | None = None,
    ) -> tuple[str, int]:
        """A whole file on the desk, in our hand; not durable yet.

        One that takes the place of a file that was `seen` gets its owner and its mode.
        """
        self._count += 1
        name = f"T.{ident}.{self._token}-{self._count}"
        fd = files.create(name, self.folder.fd, like.owner)
        try:
            files.claim_flock(fd)
            if seen is not None:
                files.resemble(fd, seen)
            files.write_all(fd, data)
            if self._due_in_mtime and due:
                files.utime(fd, (due, due))
        except OSError as error:
            self._drop(ident, (name, fd), error)
            raise
        return name, fd

    def _sync_drafts(self, drafts: list[tuple[str, int] | Exception], where: TaskFolder) -> None:
        """Make drafts durable (fsync); one that fails becomes an error about `where`."""
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
                drafts[at] = self._drop(where.path, draft, error)

    def _place_new(
        self, ident: str, draft: tuple[str, int] | Exception, pending: TaskFolder
    ) -> str | Exception:
        if isinstance(draft, Exception):
            return draft
        name, fd = draft
        try:
            if self.stands(ident):
                return self._drop(ident, draft, Gone(f"{ident} is there already"))
            self._move(name, ident + task_format.SUFFIX, pending)
            rev = self._arrived(name, ident, pending, fd)
            if not rev:
                # The folder that we held was no longer the one that everybody sees.
                pending.check()
                self._move(name, ident + task_format.SUFFIX, pending)
                rev = self._arrived(name, ident, pending, fd)
        except (OSError, Unavailable) as error:
            return self._drop(pending.path, draft, error)
        if not rev:
            return self._drop(ident, draft, Unavailable(f"{pending.path}: keeps being replaced"))
        os.close(fd)
        return rev

    def _drop(self, where: str, draft: tuple[str, int], error: Exception) -> Exception:
        """Remove a draft; return the error that was the reason, with the path or id `where`."""
        os.close(draft[1])
        with suppress(OSError, Unavailable):  # if it stays, recovery sweeps it
            files.forget(draft[0], self.folder.fd)
        return _failure(where, error)

    # ---- changing

    def change(self, changes: list[StagedChange], now: float) -> list[str | Exception]:
        """Carry changes out; for each its new revision ("" once it has left), or why not.

        Durable together: an answer counts only once the method has returned.
        """
        drafts = [_TaskDraft(change) for change in changes]
        try:
            ends = {change.end for change in changes if change.end is not None}
            self.check(*{change.start for change in changes} | ends)
            self._lock()
        except (OSError, Unavailable) as error:
            return [_failure(change.id, error) for change in changes]
        self._waits = True
        try:
            for draft in drafts:
                self._attempt(partial(self._see, now=now), draft)
            self._sync_changes(drafts)
            for draft in drafts:
                self._attempt(self._withdraw, draft)
            self._commit(drafts)
            self._place_all(drafts)
        finally:
            for draft in drafts:
                self._let_go(draft)
        return [draft.error or draft.rev for draft in drafts]

    def _attempt(self, step: Callable[[_TaskDraft], None], draft: _TaskDraft) -> None:
        """One step of one change; if it fails, everything is as it was."""
        if draft.error is not None:
            return
        try:
            step(draft)
        except (Gone, Unavailable, Refused, OSError) as error:
            draft.error = _failure(draft.change.id, error)
            self._undo(draft)

    def grasp(
        self, ident: str, state: State, rev: str
    ) -> tuple[task_format.Record, os.stat_result]:
        """Take a file in hand: open it, and make sure that it is what was seen.

        Nobody is kept from moving it: that is found out when it is changed.

        Raises:
            Gone: it is not.
            Refused: it is no task file.
            OSError: it cannot be looked at now.
        """
        name = ident + task_format.SUFFIX
        if task_format.id_of(name) is None:
            raise Gone(ident)
        folder = self._folders[state]
        if not folder.exists():
            raise Gone(ident)
        try:
            fd = files.open_guarded(name, folder.fd)
        except FileNotFoundError:
            raise Gone(ident) from None
        try:
            data, seen = files.read_guarded(fd, folder=folder.judge)
            if files.revision(seen) != rev:
                raise Gone(ident)
            record = task_format.parse(data, ident)
        except BaseException:
            os.close(fd)
            raise
        self._hand[ident, state, rev] = _InHand(fd, data, seen, record)
        return record, seen

    def in_hand(self, ident: str, state: State, rev: str) -> bytes | None:
        """What a file says that is in hand."""
        its = self._hand.get((ident, state, rev))
        return None if its is None else its.data

    def let_go(self) -> None:
        """Put down what is in hand."""
        for its in self._hand.values():
            os.close(its.fd)
        self._hand.clear()

    def _see(self, draft: _TaskDraft, now: float) -> None:
        """Have the file in hand, sure that it is what was seen, and draft its new text."""
        change = draft.change
        key = change.id, change.start, change.rev
        if key not in self._hand:
            self.grasp(*key)
        draft.seen_fd, draft.data, draft.seen, record = self._hand.pop(key)
        self._claim(change, draft.seen_fd)
        if files.revision(os.fstat(draft.seen_fd)) != change.rev:
            raise Gone(change.id)
        if change.end is None:
            return
        if task_format.is_being_written(draft.data, draft.seen, now):
            raise Gone(f"{change.id}: somebody is writing it")
        after = change.rewrite(record)
        # A file that says the same is not written again: what came back is byte for byte itself.
        data = change.image or (draft.data if after == record else task_format.render(after))
        draft.crc = zlib.crc32(data)
        if data != draft.data:
            target = self._folders[change.end]
            draft.drafted = self._draft(change.id, data, after.due, target, draft.seen)

    def _claim(self, change: StagedChange, fd: int) -> None:
        """Lock a file that shall be changed.

        One that was claimed is its worker's: a rival who saw it before holds it for a moment, and
        must not make the worker forget its outcome. So it is waited for, but only once among
        changes that are made together: two who wait for each other must not do so for each file.

        Raises:
            Gone: it is in somebody else's hand.
            Unavailable: a claimed one is, for longer than it is waited for.
        """
        if change.start is not State.ACTIVE:
            if not files.claim_flock(fd):
                raise Gone(f"{change.id}: somebody else is moving it")
            return
        try:
            files.Flock(fd, self._patience if self._waits else 0.0).__enter__()
        except TimeoutError as error:
            self._waits = False
            raise Unavailable(f"{change.id}: {error.strerror}") from error

    def _sync_changes(self, drafts: list[_TaskDraft]) -> None:
        written = [d for d in drafts if d.drafted is not None and d.error is None]
        results: list[tuple[str, int] | Exception] = [d.drafted for d in written if d.drafted]
        self._sync_drafts(results, self.folder)
        for draft, result in zip(written, results, strict=True):
            if isinstance(result, Exception):
                draft.drafted, draft.error = None, result

    def _withdraw(self, draft: _TaskDraft) -> None:
        """Rename the file onto the desk, its outcome in the name; from then on it is ours alone."""
        change, seen = draft.change, draft.seen
        assert seen is not None
        start = self._folders[change.start]
        end = LEAVING if change.end is None else self._folders[change.end].word
        self._count += 1
        ours = f"D.{change.id}.{start.word}.{end}.{draft.crc:08x}.{self._token}-{self._count}"
        draft.withdrawn = ours
        try:
            files.rename(
                change.id + task_format.SUFFIX,
                ours,
                src_dir_fd=start.fd,
                dst_dir_fd=self.folder.fd,
            )
        except FileNotFoundError:
            draft.withdrawn = ""
            raise Gone(change.id) from None
        # A rename changes ctime, so inode, size and mtime decide whether this is what was read.
        there = os.stat(ours, dir_fd=self.folder.fd, follow_symlinks=False)
        if not files.same_file(seen, there):
            raise Gone(change.id)
        if why := self._double(change):
            raise Gone(why)

    def _double(self, change: StagedChange) -> str:
        """Why a task must not come back from where it was put apart: its id stands elsewhere."""
        if change.start not in APART or change.end in (None, State.TRASH, change.start):
            return ""
        name = change.id + task_format.SUFFIX
        word = next((f.word for f in self._folders.values() if f.holds(name)), "")
        return f"{change.id}: a task of this id stands in {word} already" if word else ""

    def _commit(self, drafts: list[_TaskDraft]) -> None:
        """Rename each new text over its withdrawn file, then make the leaving durable."""
        left = set()
        for draft in drafts:
            if draft.error is not None:
                continue
            self._attempt(self._rewrite, draft)
            if draft.error is None:
                left.add(draft.change.start)
        for state in left if self._durable else ():
            try:
                self._folders[state].sync()
            except OSError as error:
                # What was committed stays on the desk: recovery knows where it goes.
                for draft in drafts:
                    if draft.error is None and draft.change.start is state:
                        self._leave(draft, error)
        gone = [d for d in drafts if d.error is None and d.change.end is None]
        if gone and self._durable:
            # Otherwise recovery may find again, after a power cut, what was removed here.
            try:
                self.folder.sync()
            except OSError as error:
                for draft in gone:
                    self._leave(draft, error)

    def _rewrite(self, draft: _TaskDraft) -> None:
        if draft.change.end is None:
            files.unlink(draft.withdrawn, dir_fd=self.folder.fd)
            return
        if draft.drafted is None:
            return
        name, fd = draft.drafted
        desk = self.folder.fd
        files.rename(name, draft.withdrawn, src_dir_fd=desk, dst_dir_fd=desk)
        os.close(draft.seen_fd)
        draft.seen_fd, draft.drafted, draft.rewritten = fd, None, True

    def _place_all(self, drafts: list[_TaskDraft]) -> None:
        staying = [d for d in drafts if d.error is None and d.change.end is not None]
        if not staying:
            return
        try:
            with self.placing():
                for draft in staying:
                    self._place_committed(draft)
        except OSError as error:
            for draft in staying:
                self._leave(draft, error)
        for state in {d.change.end for d in staying if d.error is None} if self._durable else ():
            assert state is not None
            try:
                self._folders[state].sync()
            except OSError as error:
                for draft in staying:
                    if draft.error is None and draft.change.end is state:
                        draft.error = _unsure(self._folders[state], error)

    def _place_committed(self, draft: _TaskDraft) -> None:
        ident, end = draft.change.id, draft.change.end
        assert end is not None
        folder = self._folders[end]
        try:
            why = self._double(draft.change)
            if why and not draft.rewritten:
                start = self._folders[draft.change.start]
                self.place_or_keep_twice(draft.withdrawn, ident, start)
                draft.error = Gone(why)
                return
            if why:
                self.keep_twice(draft.withdrawn, ident)
            if why or not self.place_or_keep_twice(draft.withdrawn, ident, folder):
                draft.error = Gone(f"{ident}: stood twice, one set aside")
                return
            draft.rev = self._arrived(draft.withdrawn, ident, folder, draft.seen_fd)
        except (OSError, Unavailable) as error:
            self._leave(draft, error)
            return
        if not draft.rev:
            self._leave(draft, Unavailable(f"{folder.path}: another folder has taken its place"))

    def _leave(self, draft: _TaskDraft, error: Exception) -> None:
        """Committed but not known to be in place: recovery ends it; nothing is said to be done."""
        self.owes = True
        words = error.strerror if isinstance(error, OSError) else error
        draft.error = Unavailable(f"{draft.change.id}: interrupted, to be recovered: {words}")

    def _undo(self, draft: _TaskDraft) -> None:
        """Before the commit: the file back where it stood, the draft off the desk."""
        ident, start = draft.change.id, self._folders[draft.change.start]
        try:
            if draft.withdrawn and there(draft.withdrawn, self.folder.fd):
                with self.placing():
                    self.place_or_keep_twice(draft.withdrawn, ident, start)
        except (OSError, Unavailable) as error:
            self._leave(draft, error)
        if draft.drafted is not None:
            self._drop(ident, draft.drafted, Gone(ident))
            draft.drafted = None

    def _let_go(self, draft: _TaskDraft) -> None:
        if draft.seen_fd >= 0:
            os.close(draft.seen_fd)
            draft.seen_fd = -1

    # ---- placing

    def placing(self) -> files.Flock:
        """Held while files are put in place, so that none is put over another.

        Raises:
            OSError: it cannot be had; TimeoutError when another process keeps it.
        """
        return files.Flock(self._lock(), self._patience)

    def _lock(self) -> int:
        if self._lock_fd < 0:
            try:
                fd = files.open_shared(".lock", self.folder.fd, os.O_RDWR)
            except OSError as error:
                raise OSError(error.errno, f".lock: {error.strerror}") from error
            if why := files.stranger(os.fstat(fd), self.folder.seen):
                os.close(fd)
                raise OSError(errno.EPERM, f".lock: {why}")
            self._lock_fd = fd
        return self._lock_fd

    def stands(self, ident: str) -> bool:
        """Whether a task of this id stands in any state."""
        name = ident + task_format.SUFFIX
        for folder in self._folders.values():  # noqa: SIM110 (any() is slower by half)
            if folder.holds(name):
                return True
        return False

    def place_or_keep_twice(self, name: str, ident: str, folder: TaskFolder) -> bool:
        """Whether a file of the desk is in its place now; else one stood there, and it is kept
        apart under a name of its own. To be called while `placing`.

        Raises:
            OSError: it is on the desk still.
        """
        target = ident + task_format.SUFFIX
        if there(target, folder.fd):
            self.keep_twice(name, ident)
            return False
        self._move(name, target, folder)
        return True

    def keep_twice(self, name: str, ident: str) -> None:
        """Two files claim one id: the one in hand is kept apart."""
        self._count += 1
        self._move(name, f"{ident}{task_format.SUFFIX}.{self._token}-{self._count}", self.twice)
        if self._durable:
            self.twice.sync()

    def _move(self, name: str, target: str, folder: TaskFolder) -> None:
        files.rename(name, target, src_dir_fd=self.folder.fd, dst_dir_fd=folder.fd)

    def _arrived(self, name: str, ident: str, folder: TaskFolder, fd: int) -> str:
        """The revision of a file that was just placed; "" when its folder turned out not to be the
        one that everybody sees, and the file is back on the desk.
        """
        try:
            return files.revision(folder.state_of(ident + task_format.SUFFIX))
        except FileNotFoundError:
            if folder.leads_here():
                return files.revision(os.fstat(fd))  # somebody has claimed it already
        try:
            desk, target = self.folder.fd, ident + task_format.SUFFIX
            files.rename(target, name, src_dir_fd=folder.fd, dst_dir_fd=desk)
        except FileNotFoundError:
            return files.revision(os.fstat(fd))  # claimed by who holds that folder, as we did
        return ""

    def give_back(self, ident: str) -> None:
        """A file that was claimed but should not have been goes back to pending/.

        Raises:
            OSError: it is in work/ still.
        """
        name, pending = ident + task_format.SUFFIX, self._folders[State.PENDING]
        with self.placing():
            if not there(name, pending.fd):
                work = self._folders[State.ACTIVE]
                files.rename(name, name, src_dir_fd=work.fd, dst_dir_fd=pending.fd)


def there(name: str, dir_fd: int) -> bool:
    """Whether anything of that name lies in an open folder."""
    # Not os.access: told not to follow links, it is five system calls in some C libraries.
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _failure(where: str, error: Exception) -> Exception:
    """Convert an error to one of those that a store answers with; `where` is a path or an id."""
    if isinstance(error, Gone | Unavailable):
        return error
    words = error.strerror if isinstance(error, OSError) else error
    return Unavailable(f"{where}: {words}")


def _unsure(folder: TaskFolder, error: OSError) -> Unavailable:
    return Unavailable(f"{folder.path}: in place, but the disk did not confirm: {error.strerror}")
