"""Move a mail: write its new files, then rename(2) its link; of two rivals one wins the rename.

The folder of the link is the state, and its rename is the moment of the change (Kannader spool,
sections 3 and 6). Several spooldeck processes exclude each other by flock on `.spooldeck/.lock`;
against a running Kannader only the rename decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from engine.formats.kannader import mail_format, parts, sidecar
from engine.formats.kannader.cleanup import erase_link
from engine.formats.kannader.folder import MailFolder
from engine.formats.kannader.mail_format import METADATA, SCHEDULE, MailSchedule
from engine.formats.kannader.settings import INFLIGHT_CHECK_SECONDS
from engine.formats.kannader.spool import STATES, KannaderSpool, MailEntry, SpoolLink, read_schedule
from engine.model import Lease, Move, State, Task
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

ERROR_LIMIT_CHARS = 1000
"""Characters of an error that a note keeps: more than a screen shows."""


class _FileChanges(NamedTuple):
    """New data for a recipient's files; None for each that stays as it is."""

    schedule: bytes | None = None
    metadata: bytes | None = None
    note: sidecar.AttemptNote | None = None


class SpoolLock:
    """The flock by which only one spooldeck process changes a spool at a time.

    `patience`: seconds to wait for another process.
    """

    def __init__(self, spool: KannaderSpool, patience: float = files.FLOCK_TIMEOUT_SECONDS) -> None:
        self._spool, self._patience = spool, patience
        self._lock_fd = -1
        self._lock_identity = (0, 0)
        """Device and inode of the lock file that is open."""

    def close(self) -> None:
        """Close the lock file."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock while in the block.

        Raises:
            Unavailable: the lock file cannot be opened, or another process holds the lock.
        """
        self._spool.check()
        lock = self._open_lock()
        flock = files.Flock(lock, self._patience)
        try:
            flock.__enter__()
        except OSError as error:
            raise Unavailable(f"{self._spool.staging.path}/.lock: {error_text(error)}") from error
        try:
            yield
        finally:
            flock.__exit__()

    def _open_lock(self) -> int:
        staging = self._spool.staging
        if self._lock_fd >= 0 and self._is_lock_current():
            return self._lock_fd
        self.close()
        try:
            self._lock_fd = files.open_shared(".lock", staging.fd, os.O_RDWR, 0o600)
        except OSError as error:
            raise Unavailable(f"{staging.path}/.lock: {error_text(error)}") from error
        file_stat = os.fstat(self._lock_fd)
        self._lock_identity = file_stat.st_dev, file_stat.st_ino
        return self._lock_fd

    def _is_lock_current(self) -> bool:
        try:
            current_stat = os.stat(".lock", dir_fd=self._spool.staging.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return self._lock_identity == (current_stat.st_dev, current_stat.st_ino)


class MailMover:
    """Changes the mails of one spool."""

    def __init__(self, spool: KannaderSpool, lock: SpoolLock, *, durable: bool) -> None:
        self._spool, self.lock, self._durable = spool, lock, durable

    def claim(self, mail: MailEntry, task: Task, now: float, owner: str) -> Task | None:
        """Rename a due mail to inflight/ (send_start); None if another process was faster."""
        link = mail.link
        inflight = self._spool.states[State.ACTIVE]
        with self.lock.held():
            try:
                if not self._spool.is_current(mail):
                    return None
                if inflight.contains(link.id):
                    return None  # same id in both folders: a rename would delete the other link
                self._rename_link(link, inflight)
                link_stat = os.stat(link.id, dir_fd=inflight.fd, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError, Refused):
                return None
        lease = Lease(owner, now, link_stat.st_ctime + INFLIGHT_CHECK_SECONDS)
        return task._replace(state=State.ACTIVE, rev=files.file_revision(link_stat), lease=lease)

    # ---- changing

    def apply_moves(self, moves: list[Move], now: float) -> list[str | Exception]:
        """Move mails; return for each the new revision ("" if erased) or the error.

        They become durable together: an answer counts only when the method has returned.
        """
        touched: dict[MailFolder, list[int]] = {}
        try:
            with self.lock.held():
                answers = [self._try_move(at, move, now, touched) for at, move in enumerate(moves)]
                if self._durable:
                    _sync_folders(touched, answers)
        except Unavailable as error:
            return [error] * len(moves)
        return answers

    def _try_move(
        self, at: int, move: Move, now: float, touched: dict[MailFolder, list[int]]
    ) -> str | Exception:
        assert move.old is not None, "a mail that is there"
        try:
            rev, folders = self.apply_move(move.old, move.new, now, move.image)
        except StoreError as error:
            return error
        except Refused as refusal:
            return Unsupported(f"{move.old.id}: {refusal}")
        except OSError as error:
            return Unavailable(f"{move.old.id}: {error_text(error)}")
        for folder in folders:
            touched.setdefault(folder, []).append(at)
        return rev

    def apply_move(
        self, old: Task, new: Task | None, now: float, image: bytes = b""
    ) -> tuple[str, list[MailFolder]]:
        """Make one change, under `SpoolLock.held`; return the new revision and the changed folders.

        `image` is that of `Move`.

        Raises:
            Gone: the mail has changed or moved; nothing changed.
            Refused: a value that the format cannot hold; nothing changed.
            OSError: the disk refused; the link is in its old folder, unless it was to be erased.
        """
        mail = None if new is None else read_unchanged(self._spool, old)
        link = _find_unchanged(self._spool, old) if mail is None else mail.link
        start = self._spool.states[link.state]
        target = self._spool.states[State.DONE if new is None else new.state]
        if target is not start and target.contains(link.id):
            raise Gone(f"{link.id}: is in {target.word} already")
        self.settle_note(link)
        if mail is None or new is None:
            return self._move_and_erase(link, start, target)
        draft = _build_changes(mail, old, new, now, image)
        if target is start:
            self._rewrite_in_place(mail, draft)
        else:
            self._write_and_move(mail, draft, target)
        return self._spool.read_mail(self._spool.find_link(link.id, new.state)).rev, [start, target]

    def settle_note(self, link: SpoolLink) -> None:
        """Rename a staged note to its final name if it is in effect, else delete it; under
        `SpoolLock.held`."""
        notes = self._spool.notes
        name = sidecar.note_name(link.target)
        if not notes.contains(name + sidecar.STAGED_SUFFIX):
            return
        note_file, note, _ = self._spool.read_note(link)
        if note.start and note_file.staged:
            self._publish_note(name, note)
        else:  # its link has not moved, or it cannot be read
            files.unlink_quietly(name + sidecar.STAGED_SUFFIX, notes.fd)

    def _publish_note(self, name: str, note: sidecar.AttemptNote) -> None:
        notes = self._spool.notes.fd
        if note.is_empty:
            files.unlink_quietly(name, notes)
            files.unlink_quietly(name + sidecar.STAGED_SUFFIX, notes)
        else:
            files.rename(name + sidecar.STAGED_SUFFIX, name, src_dir_fd=notes, dst_dir_fd=notes)

    def _rewrite_in_place(self, mail: MailEntry, draft: _FileChanges) -> None:
        """Change files without moving the link: each rename replaces one file."""
        with self._open_drafts(mail, draft) as drafts:
            try:
                drafts.publish()
                if draft.note is None:
                    return
                note_name = sidecar.note_name(mail.link.target)
                sidecar.save_note(note_name, draft.note, self._spool.notes.fd)
            except (OSError, StoreError):
                drafts.revert()
                raise

    def _write_and_move(self, mail: MailEntry, draft: _FileChanges, target: MailFolder) -> None:
        """Write the new files, then rename the link: a crash before the rename leaves the mail in
        place.

        A staged note counts the attempt once the link has moved.
        """
        link, name, notes = mail.link, sidecar.note_name(mail.link.target), self._spool.notes
        staged, staged_name = None, name + sidecar.STAGED_SUFFIX
        if draft.note is not None:
            start = STATES[link.state]
            staged = draft.note._replace(start=start, since=link.file_stat.st_ctime_ns)
        _ = target.fd  # create the folder before anything is written
        with self._open_drafts(mail, draft) as drafts:
            try:
                if staged is not None:
                    sidecar.save_note_bytes(staged_name, sidecar.render_note(staged), notes.fd)
                drafts.publish()
                self._rename_link(link, target)
            except (OSError, StoreError):
                drafts.revert()
                if staged is not None:
                    files.unlink_quietly(staged_name, notes.fd)
                raise
        if staged is not None:
            with suppress(OSError):  # it is in effect; the next change renames it
                self._publish_note(name, staged)

    def _move_and_erase(
        self, link: SpoolLink, start: MailFolder, target: MailFolder
    ) -> tuple[str, list[MailFolder]]:
        """Move the link to cleanup/ and erase the mail."""
        if start is not target:
            self._rename_link(link, target)
            link = self._spool.find_link(link.id, State.DONE)
        try:
            erase_link(self._spool, link)
        except (OSError, Refused) as error:
            what = f"is in {target.word}, not fully erased: {error_text(error)}"
            raise Unavailable(f"{link.id}: {what}") from error
        return "", [start, target]

    def _rename_link(self, link: SpoolLink, target: MailFolder) -> None:
        start = self._spool.states[link.state]
        try:
            files.rename(link.id, link.id, src_dir_fd=start.fd, dst_dir_fd=target.fd)
        except FileNotFoundError:
            raise Gone(link.id) from None

    @contextmanager
    def _open_drafts(self, mail: MailEntry, draft: _FileChanges) -> Iterator[FileDrafts]:
        before = {SCHEDULE: mail.schedule.data, METADATA: mail.metadata.data}
        with self._spool.open_dest(mail.link.target) as fd:
            drafts = FileDrafts(fd, self._spool.data.owner, before, durable=self._durable)
            try:
                for name, data in ((METADATA, draft.metadata), (SCHEDULE, draft.schedule)):
                    if data is not None:
                        drafts.write(name, data)
                yield drafts
            finally:
                drafts.discard()


@contextmanager
def gone_if_changed(task: Task) -> Iterator[None]:
    """Raise Gone if a mail is no longer where it was seen, or can no longer be read as one."""
    try:
        yield
    except (FileNotFoundError, KeyError):
        raise Gone(task.id) from None
    except Refused as refusal:
        raise Gone(f"{task.id}: {refusal}") from refusal


def read_unchanged(spool: KannaderSpool, old: Task) -> MailEntry:
    """Read the mail of a task.

    Raises:
        Gone: it has changed or moved.
        OSError: it cannot be read now.
    """
    with gone_if_changed(old):
        mail = spool.read_mail(spool.find_link(old.id, old.state))
    if mail.rev != old.rev:
        raise Gone(old.id)
    return mail


def _find_unchanged(spool: KannaderSpool, old: Task) -> SpoolLink:
    """The link of a task that is to be erased. In flight the link alone is the revision: the files
    are not read again, only the folders above them are checked."""
    if old.state is not State.ACTIVE:
        return read_unchanged(spool, old).link
    with gone_if_changed(old):
        link = spool.find_link(old.id, old.state)
        with spool.open_dest(link.target):
            pass
    if files.file_revision(link.file_stat) != old.rev:
        raise Gone(old.id)
    return link


class FileDrafts:
    """New versions of files in one folder, written as Kannader does: first `schedule.<uuid>`, then
    a rename over the old file."""

    def __init__(
        self, fd: int, owner: tuple[int, int] | None, before: Mapping[str, bytes], *, durable: bool
    ) -> None:
        """`before`: the present data of the files, for `revert`."""
        self._fd, self._owner, self._before, self._durable = fd, owner, before, durable
        self._waiting: list[tuple[str, str]] = []
        self._put: list[str] = []

    def write(self, name: str, data: bytes) -> None:
        """Write a draft that is to replace the file `name`."""
        draft = f"{name}.{mail_format.new_uuid()}"
        fd = files.create_file(draft, self._fd, self._owner, 0o600)
        self._waiting.append((draft, name))
        with closing_fd(fd):
            files.write_all(fd, data)
            if self._durable:
                files.fsync(fd)

    def publish(self) -> None:
        """Rename all drafts over their files; durable."""
        waiting = list(self._waiting)
        for draft, name in waiting:
            files.rename(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            self._waiting.remove((draft, name))
            self._put.append(name)
        if waiting and self._durable:
            files.fsync(self._fd)

    def revert(self) -> None:
        """Write the old data back after the link could not be moved."""
        put, self._put = self._put, []
        with suppress(OSError):  # if that fails, the mail has the new due time but has not moved
            for name in put:
                self.write(name, self._before[name])
            self.publish()

    def discard(self) -> None:
        """Delete the drafts that were not published."""
        for draft, _ in self._waiting:
            with suppress(OSError):  # if it stays, recovery deletes it
                files.unlink_quietly(draft, self._fd)


def _build_changes(mail: MailEntry, old: Task, new: Task, now: float, image: bytes) -> _FileChanges:
    """Build the new files; None for each that is unchanged.

    Raises:
        Refused: a value that the format cannot hold.
    """
    schedule, metadata = mail.schedule.data, mail.metadata.data
    if image:
        was = parts.parse_image(image, old.id)
        if was.link != mail.link.target.text.encode():
            raise Refused("the image is of another mail")
        return _FileChanges(
            None if was.schedule == schedule else was.schedule,
            None if was.metadata == metadata else was.metadata,
            None if was.note == mail.note.unstaged else was.note,
        )
    is_same = new.destination == old.destination
    envelope = None if is_same else mail_format.replace_recipient(metadata, new.destination)
    return _FileChanges(_new_schedule(mail, old, new, now), envelope, _new_note(mail, old, new))


def _new_schedule(mail: MailEntry, old: Task, new: Task, now: float) -> bytes | None:
    """Return the schedule that a verb results in; None if it is unchanged.

    An attempt that counts ended now; "due now" is stored as the present time (Kannader spool,
    sections 4 and 5).
    """
    counts = (new.attempts or 0) > (old.attempts or 0)
    if new.state is State.DONE or (new.due == old.due and not counts):
        return None
    before = read_schedule(mail)
    at = before.at
    if new.due != old.due:
        if new.due is None:
            raise Refused("no due time, expected one")
        at = mail_format.to_nanoseconds(new.due or now)
    last = mail_format.to_nanoseconds(now) if counts else before.last_attempt
    return mail_format.render_schedule(MailSchedule(at, last))


def _new_note(mail: MailEntry, old: Task, new: Task) -> sidecar.AttemptNote | None:
    """Return the note that a verb results in; None if it is unchanged."""
    note = mail.note.unstaged
    if new.attempts != old.attempts:
        note = note._replace(attempts=new.attempts)
    if new.error != old.error:
        note = note._replace(error=safe_line(new.error)[:ERROR_LIMIT_CHARS])
    return None if note == mail.note.unstaged else note


def _sync_folders(touched: dict[MailFolder, list[int]], answers: list[str | Exception]) -> None:
    """fsync the folders of the moves; replace the answers of a folder that cannot be synced."""
    for folder, changes in touched.items():
        try:
            folder.sync()
        except OSError as error:
            words = f"{folder.path}: in place, but the disk did not confirm: {error_text(error)}"
            for at in changes:
                answers[at] = Unavailable(words)
