"""Change and move task files so that each has exactly one name at every instant.

The staging directory `.spooldeck` is in the parent of the state folders, on the same file system. A
change has three steps: the file is *withdrawn*: renamed into the directory under a name that
contains its target; *rewritten*: replaced by a rename over that name, which is the commit; and
*placed*: renamed into its new folder. The owner of a staged file is the process that holds the
flock on its inode, never a PID; the token in its name is only informative.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice

from engine.formats.base.folder import name_exists
from engine.formats.nftban import task_format
from engine.formats.nftban.folder import TaskFolder
from engine.model import State
from engine.store import Gone, Unavailable
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.values import NamedTuple

STAGING_NAME = ".spooldeck"
QUARANTINE_NAME = "corrupt"
REMOVED_WORD = "gone"
"""Target "removed" in a withdrawn file's name."""

SEPARATE_STATES = (State.HELD, State.TRASH)
"""States outside the contract's folders: other programs may have added a task with the same id."""

RECHECK_SECONDS = 1.0
"""Seconds for which `add` does not check the folders again: a moved one is detected after placing
anyway, so this only avoids a detour."""

LISTED_GROUP = 3
"""New tasks in one group commit from which on a folder with few names is listed to find their ids,
not asked for each."""


class KeyWaits(Gone):
    """A task with the key of a new one waits already."""


class StagedChange(NamedTuple):
    """One task file that gets a new content, a new state, or is removed."""

    id: str
    start: State
    end: State | None
    rev: str
    """The revision in which it was read."""
    rewrite: Callable[[task_format.Record], task_format.Record]
    image: bytes = b""
    """The new content, byte for byte, that `rewrite` means; empty if it is rendered."""


class _OpenTask(NamedTuple):
    """An open task file and its content; not locked."""

    fd: int
    data: bytes
    file_stat: os.stat_result
    record: task_format.Record


class _TaskDraft:
    """A running change: the open file, its new content, and its names in the staging directory."""

    def __init__(self, change: StagedChange) -> None:
        self.change = change
        self.seen_fd = -1
        self.file_stat: os.stat_result | None = None
        self.data = b""
        self.crc = 0
        self.drafted: tuple[str, int] | None = None
        self.withdrawn = ""
        self.rewritten = False
        self.rev = ""
        self.error: Exception | None = None


class StagingDir:
    """The staging directory of one spool.

    `patience` is the time in seconds to wait for another process that is placing a file.
    """

    def __init__(
        self,
        path: str,
        folders: Mapping[State, TaskFolder],
        *,
        durable: bool,
        due_in_mtime: bool,
        patience: float = files.FLOCK_TIMEOUT_SECONDS,
    ) -> None:
        pending = folders[State.PENDING]
        self.folder = TaskFolder(path, STAGING_NAME, pending, make=True)
        self.duplicates = TaskFolder(f"{path}/twice", f"{STAGING_NAME}/twice", pending, make=True)
        corrupt = f"{STAGING_NAME}/{QUARANTINE_NAME}"
        self.corrupt = TaskFolder(f"{path}/{QUARANTINE_NAME}", corrupt, pending, make=True)
        self.has_unfinished = False
        """True if a change was left for recovery."""
        self._folders = folders
        self._durable = durable
        self._due_in_mtime = due_in_mtime
        self._patience = patience
        self._token = f"{os.getpid()}-{time.time_ns():x}"
        self._count = 0
        self._lock_fd = -1
        self._checked = float("-inf")
        self._waits = True
        self._opened: dict[tuple[str, State, str], _OpenTask] = {}

    def close(self) -> None:
        """Close the descriptors."""
        self.close_opened()
        self.folder.close()
        self._close_contents()

    def _close_contents(self) -> None:
        self.duplicates.close()
        self.corrupt.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def reopen_if_replaced(self, *states: State) -> None:
        """Reopen the staging directory and some folders if their paths lead elsewhere.

        Raises:
            Unavailable: one is missing.
        """
        if not self.folder.reopen_if_replaced():
            self._close_contents()
        for state in states:
            self._folders[state].reopen_if_replaced()

    # ---- adding

    def add(self, records: list[task_format.Record], now: float) -> list[str | Exception]:
        """Put new task files into pending/; return for each its revision or the error.

        All are durable when the method returns (group commit).
        """
        pending = self._folders[State.PENDING]
        try:
            if not 0 <= now - self._checked < RECHECK_SECONDS:
                self.reopen_if_replaced(State.PENDING)
                self._checked = now
            drafts = [self._try_draft(record, pending) for record in records]
            self._sync_drafts(drafts, pending)
        except Unavailable as error:
            return [error] * len(records)
        try:
            with self.placing_lock():
                names = [record.id + task_format.SUFFIX for record in records]
                taken = _find_names(names, self._folders, self.folder.fd)
                has_key = any(map(task_format.mark_in_name, names))
                waiting = self._waiting_marks() if has_key else {}
                answers = [
                    self._place_new(record.id, draft, pending, taken, waiting)
                    for record, draft in zip(records, drafts, strict=True)
                ]
        except (OSError, Unavailable) as error:
            # The lock was not available: all drafts are still in the staging directory.
            return [
                draft
                if isinstance(draft, Exception)
                else self._remove_draft(pending.path, draft, error)
                for draft in drafts
            ]
        try:
            if self._durable:
                pending.sync()
        except OSError as error:
            lost = _unconfirmed(pending, error)
            return [lost if isinstance(answer, str) else answer for answer in answers]
        return answers

    def _try_draft(
        self, record: task_format.Record, like: TaskFolder
    ) -> tuple[str, int] | Exception:
        try:
            return self._draft(record.id, task_format.render_task(record), record.due, like)
        except (OSError, Unavailable) as error:
            self._checked = float("-inf")
            return _store_error(like.path, error)

    def _draft(
        self,
        ident: str,
        data: bytes,
        due: int,
        like: TaskFolder,
        file_stat: os.stat_result | None = None,
    ) -> tuple[str, int]:
        """Write a complete draft and lock it; it is not durable yet.

        A draft that replaces a file with `file_stat` gets its owner and mode. A new task's draft is
        locked only if it waits for the disk: else it is placed long before recovery may remove it.
        """
        self._count += 1
        name = f"T.{ident}.{self._token}-{self._count}"
        fd = files.create_file(name, self.folder.fd, like.owner)
        try:
            if self._durable or file_stat is not None:
                files.claim_flock(fd)
            if file_stat is not None:
                files.copy_mode(fd, file_stat)
            files.write_all(fd, data)
            if self._due_in_mtime and due:
                files.utime(fd, (due, due))
        except OSError as error:
            self._remove_draft(ident, (name, fd), error)
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
                drafts[at] = self._remove_draft(where.path, draft, error)

    def _place_new(
        self,
        ident: str,
        draft: tuple[str, int] | Exception,
        pending: TaskFolder,
        taken: set[str],
        waiting: dict[str, str],
    ) -> str | Exception:
        """Rename a draft into pending/, unless its name is in `taken`, or the mark of its key in
        `waiting`; it is added to both."""
        if isinstance(draft, Exception):
            return draft
        if (mark := task_format.mark_in_name(ident)) in waiting:
            waits = KeyWaits(f"{waiting[mark]} waits with this key")
            return self._remove_draft(ident, draft, waits)
        name, fd = draft
        try:
            target = ident + task_format.SUFFIX
            if target in taken:
                return self._remove_draft(ident, draft, Gone(f"{ident} is there already"))
            self._move(name, target, pending)
            taken.add(target)
            rev = self._placed_revision(name, ident, pending, fd)
            if not rev:
                # The open folder was replaced by another one.
                pending.reopen_if_replaced()
                self._move(name, target, pending)
                rev = self._placed_revision(name, ident, pending, fd)
        except (OSError, Unavailable) as error:
            return self._remove_draft(pending.path, draft, error)
        if not rev:
            why = Unavailable(f"{pending.path}: replaced again and again")
            return self._remove_draft(ident, draft, why)
        if mark:
            waiting[mark] = ident
        os.close(fd)
        return rev

    def _waiting_marks(self) -> dict[str, str]:
        """The marks of the keys of all tasks that wait or are on their way to it, with their ids.

        The caller holds `placing_lock`, so none is placed meanwhile: one that leaves a folder
        before it is listed is in the staging directory, which is listed last.
        """
        pending, held = self._folders[State.PENDING], self._folders[State.HELD]
        ids = [
            name.removesuffix(task_format.SUFFIX)
            for folder in (pending, held)
            for name in folder.iter_names()
        ]
        for name in self.folder.iter_names():
            head, *words = name.split(".")
            if head == "D" and len(words) > 2 and words[2] in (pending.word, held.word):
                ids.append(words[0])
        return {mark: ident for ident in ids if (mark := task_format.mark_in_name(ident))}

    def _remove_draft(self, where: str, draft: tuple[str, int], error: Exception) -> Exception:
        """Remove a draft; return the error that was the reason, with the path or id `where`."""
        os.close(draft[1])
        with suppress(OSError, Unavailable):  # if it stays, recovery sweeps it
            files.unlink_quietly(draft[0], self.folder.fd)
        return _store_error(where, error)

    # ---- changing

    def change(self, changes: list[StagedChange], now: float) -> list[str | Exception]:
        """Make changes; return for each its new revision ("" if removed) or the error.

        All are durable when the method returns (group commit).
        """
        drafts = [_TaskDraft(change) for change in changes]
        try:
            targets = {change.end for change in changes if change.end is not None}
            self.reopen_if_replaced(*{change.start for change in changes} | targets)
            self._lock()
        except (OSError, Unavailable) as error:
            return [_store_error(change.id, error) for change in changes]
        self._waits = True
        try:
            for draft in drafts:
                self._try_step(partial(self._open_and_draft, now=now), draft)
            self._sync_changes(drafts)
            for draft in drafts:
                self._try_step(self._withdraw, draft)
            self._commit(drafts)
            self._place_all(drafts)
        finally:
            for draft in drafts:
                if draft.seen_fd >= 0:
                    os.close(draft.seen_fd)
        return [draft.error or draft.rev for draft in drafts]

    def _try_step(self, step: Callable[[_TaskDraft], None], draft: _TaskDraft) -> None:
        """Do one step of one change; undo the change if it fails."""
        if draft.error is not None:
            return
        try:
            step(draft)
        except (Gone, Unavailable, Refused, OSError) as error:
            draft.error = _store_error(draft.change.id, error)
            self._undo(draft)

    def open_for_change(
        self, ident: str, state: State, rev: str
    ) -> tuple[task_format.Record, os.stat_result]:
        """Open a file and check that its revision is `rev`; keep it open for a change.

        It is not locked: if another process moves it, the change fails.

        Raises:
            Gone: it has another revision or does not exist.
            Refused: it is not a task file.
            OSError: it cannot be read now.
        """
        name, folder = ident + task_format.SUFFIX, self._folders[state]
        if task_format.id_in_name(name) is None or not folder.exists():
            raise Gone(ident)
        try:
            fd = files.open_guarded(name, folder.fd)
        except FileNotFoundError:
            raise Gone(ident) from None
        try:
            data, file_stat = files.read_guarded(fd, folder=folder.trusted_stat)
            if files.file_revision(file_stat) != rev:
                raise Gone(ident)
            record = task_format.parse_task(data, ident)
        except BaseException:
            os.close(fd)
            raise
        self._opened[ident, state, rev] = _OpenTask(fd, data, file_stat, record)
        return record, file_stat

    def opened_bytes(self, ident: str, state: State, rev: str) -> bytes | None:
        """Return the content of a file opened by `open_for_change`; None if it is not open."""
        its = self._opened.get((ident, state, rev))
        return None if its is None else its.data

    def close_opened(self) -> None:
        """Close the files opened by `open_for_change`."""
        for its in self._opened.values():
            os.close(its.fd)
        self._opened.clear()

    def _open_and_draft(self, draft: _TaskDraft, now: float) -> None:
        """Open and lock the file, check its revision, and draft its new content."""
        change = draft.change
        key = change.id, change.start, change.rev
        if key not in self._opened:
            self.open_for_change(*key)
        draft.seen_fd, draft.data, draft.file_stat, record = self._opened.pop(key)
        self._lock_task(change, draft.seen_fd)
        if files.file_revision(os.fstat(draft.seen_fd)) != change.rev:
            raise Gone(change.id)
        if change.end is None:
            return
        if task_format.is_being_written(draft.data, draft.file_stat, now):
            raise Gone(f"{change.id}: another program is writing it")
        after = change.rewrite(record)
        # A file with unchanged values is not rewritten, so its bytes stay the same.
        data = change.image or (draft.data if after == record else task_format.render_task(after))
        draft.crc = zlib.crc32(data)
        if data != draft.data:
            target = self._folders[change.end]
            draft.drafted = self._draft(change.id, data, after.due, target, draft.file_stat)

    def _lock_task(self, change: StagedChange, fd: int) -> None:
        """Lock a file before its change.

        A claimed task belongs to its worker. A rival that read it before may lock it for a moment,
        which must not cost the worker its result: so this waits for the lock, but only once in a
        group, as two processes that wait for each other must not do so for each file.

        Raises:
            Gone: another process has locked it.
            Unavailable: a claimed one stayed locked for `patience` seconds.
        """
        if change.start is not State.ACTIVE:
            if not files.claim_flock(fd):
                raise Gone(f"{change.id}: another process is moving it")
            return
        try:
            files.Flock(fd, self._patience if self._waits else 0.0).__enter__()
        except TimeoutError as error:
            self._waits = False
            raise Unavailable(f"{change.id}: {error_text(error)}") from error

    def _sync_changes(self, drafts: list[_TaskDraft]) -> None:
        written = [d for d in drafts if d.drafted is not None and d.error is None]
        results: list[tuple[str, int] | Exception] = [d.drafted for d in written if d.drafted]
        self._sync_drafts(results, self.folder)
        for draft, result in zip(written, results, strict=True):
            if isinstance(result, Exception):
                draft.drafted, draft.error = None, result

    def _withdraw(self, draft: _TaskDraft) -> None:
        """Rename the file into the staging directory, with its target in the name; then only we
        move it."""
        change, file_stat, staging_fd = draft.change, draft.file_stat, self.folder.fd
        assert file_stat is not None
        start = self._folders[change.start]
        end = REMOVED_WORD if change.end is None else self._folders[change.end].word
        self._count += 1
        target = f"{start.word}.{end}.{draft.crc:08x}"
        draft.withdrawn = new = f"D.{change.id}.{target}.{self._token}-{self._count}"
        try:
            name = change.id + task_format.SUFFIX
            files.rename(name, new, src_dir_fd=start.fd, dst_dir_fd=staging_fd)
        except FileNotFoundError:
            draft.withdrawn = ""
            raise Gone(change.id) from None
        # A rename changes ctime, so inode, size and mtime show whether it is the file that was
        # read.
        withdrawn_stat = os.stat(new, dir_fd=staging_fd, follow_symlinks=False)
        if not files.is_same_file(file_stat, withdrawn_stat):
            raise Gone(change.id)
        if why := self._duplicate_refusal(change):
            raise Gone(why)

    def _duplicate_refusal(self, change: StagedChange) -> str:
        """Refusal text if another file with this id exists in a state; "" otherwise. Only for
        `SEPARATE_STATES`."""
        if change.start not in SEPARATE_STATES or change.end in (None, State.TRASH, change.start):
            return ""
        name = change.id + task_format.SUFFIX
        word = next((f.word for f in self._folders.values() if f.has_name(name)), "")
        return f"{change.id}: a task with this id is in {word} already" if word else ""

    def _commit(self, drafts: list[_TaskDraft]) -> None:
        """Rename each new content over its withdrawn file, then make the departure durable."""
        start_states = set()
        for draft in drafts:
            if draft.error is not None:
                continue
            self._try_step(self._rewrite, draft)
            if draft.error is None:
                start_states.add(draft.change.start)
        for state in start_states if self._durable else ():
            try:
                self._folders[state].sync()
            except OSError as error:
                # A committed file stays in the staging directory: recovery reads its target from
                # the name.
                for draft in drafts:
                    if draft.error is None and draft.change.start is state:
                        self._leave_to_recovery(draft, error)
        removed = [d for d in drafts if d.error is None and d.change.end is None]
        if removed and self._durable:
            # Otherwise recovery may find a removed file again after a power cut.
            try:
                self.folder.sync()
            except OSError as error:
                for draft in removed:
                    self._leave_to_recovery(draft, error)

    def _rewrite(self, draft: _TaskDraft) -> None:
        if draft.change.end is None:
            files.unlink(draft.withdrawn, dir_fd=self.folder.fd)
            return
        if draft.drafted is None:
            return
        name, fd = draft.drafted
        staging_fd = self.folder.fd
        files.rename(name, draft.withdrawn, src_dir_fd=staging_fd, dst_dir_fd=staging_fd)
        os.close(draft.seen_fd)
        draft.seen_fd, draft.drafted, draft.rewritten = fd, None, True

    def _place_all(self, drafts: list[_TaskDraft]) -> None:
        staying = [d for d in drafts if d.error is None and d.change.end is not None]
        if not staying:
            return
        try:
            with self.placing_lock():
                for draft in staying:
                    self._place_committed(draft)
        except OSError as error:
            for draft in staying:
                self._leave_to_recovery(draft, error)
        for state in {d.change.end for d in staying if d.error is None} if self._durable else ():
            assert state is not None
            try:
                self._folders[state].sync()
            except OSError as error:
                for draft in staying:
                    if draft.error is None and draft.change.end is state:
                        draft.error = _unconfirmed(self._folders[state], error)

    def _place_committed(self, draft: _TaskDraft) -> None:
        ident, end = draft.change.id, draft.change.end
        assert end is not None
        folder = self._folders[end]
        try:
            why = self._duplicate_refusal(draft.change)
            if why and not draft.rewritten:
                start = self._folders[draft.change.start]
                self.place_or_keep_duplicate(draft.withdrawn, ident, start)
                draft.error = Gone(why)
                return
            if why:
                self.keep_duplicate(draft.withdrawn, ident)
            if why or not self.place_or_keep_duplicate(draft.withdrawn, ident, folder):
                what = f"duplicate id, one file moved to {self.duplicates.path}"
                draft.error = Gone(f"{ident}: {what}")
                return
            draft.rev = self._placed_revision(draft.withdrawn, ident, folder, draft.seen_fd)
            if not draft.rev:
                raise Unavailable(f"{folder.path}: replaced by another folder")
        except (OSError, Unavailable) as error:
            self._leave_to_recovery(draft, error)

    def _leave_to_recovery(self, draft: _TaskDraft, error: Exception) -> None:
        """Leave a committed change that is not confirmed in place to recovery; report an error."""
        self.has_unfinished = True
        what = f"interrupted, recovery will finish it: {error_text(error)}"
        draft.error = Unavailable(f"{draft.change.id}: {what}")

    def _undo(self, draft: _TaskDraft) -> None:
        """Before the commit: put the file back and remove the draft."""
        ident, start = draft.change.id, self._folders[draft.change.start]
        try:
            if draft.withdrawn and name_exists(draft.withdrawn, self.folder.fd):
                with self.placing_lock():
                    self.place_or_keep_duplicate(draft.withdrawn, ident, start)
        except (OSError, Unavailable) as error:
            self._leave_to_recovery(draft, error)
        if draft.drafted is not None:
            self._remove_draft(ident, draft.drafted, Gone(ident))
            draft.drafted = None

    # ---- placing

    def placing_lock(self) -> files.Flock:
        """Return the lock that is held while files are placed, so that none overwrites another.

        Raises:
            OSError: it cannot be opened; TimeoutError if another process holds it.
        """
        return files.Flock(self._lock(), self._patience)

    def _lock(self) -> int:
        if self._lock_fd < 0:
            try:
                fd = files.open_shared(".lock", self.folder.fd, os.O_RDWR)
            except OSError as error:
                raise OSError(error.errno, f".lock: {error_text(error)}") from error
            if why := files.owner_problem(os.fstat(fd), self.folder.last_stat):
                os.close(fd)
                raise OSError(errno.EPERM, f".lock: {why}")
            self._lock_fd = fd
        return self._lock_fd

    def has_task(self, ident: str) -> bool:
        """True if a task with this id exists in any state."""
        name = ident + task_format.SUFFIX
        for folder in self._folders.values():  # noqa: SIM110 (any() is slower by half)
            if folder.has_name(name):
                return True
        return False

    def place_or_keep_duplicate(self, name: str, ident: str, folder: TaskFolder) -> bool:
        """Place a staged file; if the name is in use, keep it as a duplicate and return False.

        The caller holds `placing_lock`.

        Raises:
            OSError: it is still in the staging directory.
        """
        target = ident + task_format.SUFFIX
        if name_exists(target, folder.fd):
            self.keep_duplicate(name, ident)
            return False
        self._move(name, target, folder)
        return True

    def keep_duplicate(self, name: str, ident: str) -> None:
        """Move a staged file whose id is in use to the folder of duplicates."""
        self._count += 1
        kept_as = f"{ident}{task_format.SUFFIX}.{self._token}-{self._count}"
        self._move(name, kept_as, self.duplicates)
        if self._durable:
            self.duplicates.sync()

    def _move(self, name: str, target: str, folder: TaskFolder) -> None:
        files.rename(name, target, src_dir_fd=self.folder.fd, dst_dir_fd=folder.fd)

    def _placed_revision(self, name: str, ident: str, folder: TaskFolder, fd: int) -> str:
        """Return the revision of a file that was just placed.

        "" if its folder was replaced by another one; then the file is back in the staging
        directory.
        """
        try:
            return files.file_revision(folder.stat_by_path(ident + task_format.SUFFIX))
        except FileNotFoundError:
            if folder.is_current():
                return files.file_revision(os.fstat(fd))  # another process has claimed it already
        try:
            staging_fd, target = self.folder.fd, ident + task_format.SUFFIX
            files.rename(target, name, src_dir_fd=folder.fd, dst_dir_fd=staging_fd)
        except FileNotFoundError:  # claimed by a process with the same folder open
            return files.file_revision(os.fstat(fd))
        return ""

    def return_to_pending(self, ident: str) -> None:
        """Move a file that was claimed by mistake back to pending/.

        Raises:
            OSError: it is still in work/.
        """
        name, pending = ident + task_format.SUFFIX, self._folders[State.PENDING]
        with self.placing_lock():
            if not name_exists(name, pending.fd):
                work = self._folders[State.ACTIVE]
                files.rename(name, name, src_dir_fd=work.fd, dst_dir_fd=pending.fd)


def _find_names(names: list[str], folders: Mapping[State, TaskFolder], staging_fd: int) -> set[str]:
    """Return those of the names that exist in any state; perhaps some more.

    The caller holds `placing_lock`. pending/ is asked first: a claim moves a task from there.
    """
    # Without a folder in it, a folder has two links; so held/ and trash/ do not exist.
    absent = SEPARATE_STATES if os.fstat(staging_fd).st_nlink == 2 else ()
    is_group = len(names) >= LISTED_GROUP
    existing: set[str] = set()
    for state, folder in folders.items():
        if state not in absent:
            is_listed = is_group and state is not State.PENDING
            listed = _list_few(folder, 2 * len(names)) if is_listed else None
            existing |= set(filter(folder.has_name, names)) if listed is None else listed
    return existing


def _list_few(folder: TaskFolder, limit: int) -> set[str] | None:
    """Return the names in a folder; None if there are more than `limit`."""
    if not folder.exists():
        return set()
    with os.scandir(folder.fd) as entries:
        names = {entry.name for entry in islice(entries, limit + 1)}
    return names if len(names) <= limit else None


def _store_error(where: str, error: Exception) -> Exception:
    """Convert an error to one that the store may raise; `where` is a path or an id."""
    if isinstance(error, Gone | Unavailable):
        return error
    return Unavailable(f"{where}: {error_text(error)}")


def _unconfirmed(folder: TaskFolder, error: OSError) -> Unavailable:
    return Unavailable(f"{folder.path}: moved, but not confirmed by the disk: {error_text(error)}")
