"""How a mail is moved: its new schedule first, then its link, by one rename that one can win.

The link is the mail: where it stands says the state, and its rename is the moment of the change
(Kannader spool, sections 3 and 6). Ours keep out of one another's way by the flock of
`.spooldeck/.lock`; a Kannader beside us only by who wins the rename.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from engine.model import Lease, State, Task
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.stores.kannader import mail_format, parts, sidecar
from engine.stores.kannader.cleanup import erase
from engine.stores.kannader.folder import MailFolder
from engine.stores.kannader.mail_format import METADATA, SCHEDULE, Schedule
from engine.stores.kannader.spool import (
    INFLIGHT_DELAY,
    STATES,
    KannaderSpool,
    Link,
    MailEntry,
    schedule_of,
)
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

ERROR_LIMIT = 1000
"""Characters of an error that are noted: what a screen shows of one, and more."""


class MailMove(NamedTuple):
    """A task as it was seen and as it shall be; `image` as in `model.Move`."""

    old: Task
    new: Task | None
    image: bytes = b""


class _MailDraft(NamedTuple):
    """What a recipient's files shall say after a change; None where they stay as they are."""

    schedule: bytes | None = None
    metadata: bytes | None = None
    note: sidecar.AttemptNote | None = None

    @property
    def texts(self) -> Iterator[tuple[str, bytes]]:
        """What is to be written in the recipient's folder, by file name."""
        for name, data in ((METADATA, self.metadata), (SCHEDULE, self.schedule)):
            if data is not None:
                yield name, data


class MailMover:
    """Changes what lies in one spool.

    `patience` is for how many seconds it waits for another process of ours to finish.
    """

    def __init__(
        self, spool: KannaderSpool, *, durable: bool, patience: float = files.PATIENCE
    ) -> None:
        self._spool, self._durable, self._patience = spool, durable, patience
        self._lock_fd = -1

    def close(self) -> None:
        """Let go of the lock file."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held while anything is changed, so that no two of ours change at once.

        Raises:
            Unavailable: it cannot be had, or another process keeps it.
        """
        self._spool.check()
        lock = self._lock()
        held = files.Flock(lock, self._patience)
        try:
            held.__enter__()
        except OSError as error:
            raise Unavailable(f"{self._spool.desk.path}/.lock: {error.strerror}") from error
        try:
            yield
        finally:
            held.__exit__()

    def _lock(self) -> int:
        desk = self._spool.desk
        if self._lock_fd >= 0 and self._is_the_lock():
            return self._lock_fd
        self.close()
        try:
            self._lock_fd = files.open_shared(".lock", desk.fd, os.O_RDWR, 0o600)
        except OSError as error:
            raise Unavailable(f"{desk.path}/.lock: {error.strerror}") from error
        return self._lock_fd

    def _is_the_lock(self) -> bool:
        held = os.fstat(self._lock_fd)
        try:
            there = os.stat(".lock", dir_fd=self._spool.desk.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    # ---- claiming

    def claim(self, mail: MailEntry, task: Task, now: float, owner: str) -> Task | None:
        """Move a mail to those in flight (send_start); None if somebody else has it by now."""
        link = mail.link
        inflight = self._spool.states[State.ACTIVE]
        with self.locked():
            try:
                if self._spool.mail(self._spool.link(link.id, link.state)).rev != mail.rev:
                    return None
                if inflight.holds(link.id):
                    return None  # one id in two places: moving it would destroy the other
                self._move(link, inflight)
                seen = self._spool.link(link.id, State.ACTIVE).seen
            except (FileNotFoundError, Refused):
                return None
        lease = Lease(owner, now, seen.st_ctime + INFLIGHT_DELAY)
        return replace(task, state=State.ACTIVE, rev=files.revision(seen), lease=lease)

    # ---- changing

    def change(self, changes: list[MailMove], now: float) -> list[str | Exception]:
        """Carry changes out; for each its new revision ("" once it has left), or why not.

        Durable together: an answer counts only once the method has returned.
        """
        touched: dict[MailFolder, list[int]] = {}
        try:
            with self.locked():
                answers = [
                    self._attempt(at, change, now, touched) for at, change in enumerate(changes)
                ]
                if self._durable:
                    _confirm(touched, answers)
        except Unavailable as error:
            return [error] * len(changes)
        return answers

    def _attempt(
        self, at: int, change: MailMove, now: float, touched: dict[MailFolder, list[int]]
    ) -> str | Exception:
        ident = change.old.id
        try:
            rev, folders = self.carry_out(change, now)
        except StoreError as error:
            return error
        except Refused as refusal:
            return Unsupported(f"{ident}: {refusal}")
        except OSError as error:
            return Unavailable(f"{ident}: {error.strerror}")
        for folder in folders:
            touched.setdefault(folder, []).append(at)
        return rev

    def carry_out(self, change: MailMove, now: float) -> tuple[str, list[MailFolder]]:
        """One change, while `locked`: the new revision and the folders whose names it changed.

        Raises:
            Gone: the mail is not there as it was seen; nothing changed.
            Refused: a value that the format cannot hold; nothing changed.
            OSError: the disk refused; the link stands where it stood, unless it was to be erased.
        """
        mail = self._standing(change.old)
        link, end = mail.link, None if change.new is None else change.new.state
        start = self._spool.states[link.state]
        target = self._spool.states[State.DONE if end is None else end]
        if target is not start and target.holds(link.id):
            raise Gone(f"{link.id}: stands in {target.word} already")
        self.settle(link)
        if end is None:
            return self._leave(link, start, target)
        draft = self._drafted(mail, change, now)
        if target is start:
            self._rewrite(mail, draft)
        else:
            self._go(mail, draft, target)
        return self._spool.mail(self._spool.link(link.id, end)).rev, [start, target]

    def _standing(self, old: Task) -> MailEntry:
        try:
            mail = self._spool.mail(self._spool.link(old.id, old.state))
        except (FileNotFoundError, KeyError):
            raise Gone(old.id) from None
        except Refused as refusal:
            raise Gone(f"{old.id}: {refusal}") from refusal
        if mail.rev != old.rev:
            raise Gone(old.id)
        return mail

    def settle(self, link: Link) -> None:
        """Make a staged note the one that counts, or drop it, whichever it is; while `locked`."""
        notes = self._spool.notes
        name = sidecar.name_of(link.target)
        if not notes.holds(name + sidecar.STAGED):
            return
        kept, ours, _ = self._spool.noted(link)
        if ours.start and kept.staged:
            self._settled(name, ours)
        else:  # its link has not moved, or it cannot be read
            files.forget(name + sidecar.STAGED, notes.fd)

    def _settled(self, name: str, ours: sidecar.AttemptNote) -> None:
        notes = self._spool.notes.fd
        if ours.is_empty:
            files.forget(name, notes)
            files.forget(name + sidecar.STAGED, notes)
        else:
            files.rename(name + sidecar.STAGED, name, src_dir_fd=notes, dst_dir_fd=notes)

    def _drafted(self, mail: MailEntry, change: MailMove, now: float) -> _MailDraft:
        """What has to be written; nothing where nothing differs.

        Raises:
            Refused: a value that the format cannot hold.
        """
        old, new, image = change
        assert new is not None
        if image:
            was = parts.parse_image(image, old.id)
            if was.link != mail.link.target.text.encode():
                raise Refused("what was kept is of another mail")
            return _MailDraft(
                _unless(mail.schedule.data, was.schedule),
                _unless(mail.metadata.data, was.metadata),
                None if was.note == _bare(mail.note) else was.note,
            )
        metadata = None
        if new.destination != old.destination:
            metadata = mail_format.readdressed(mail.metadata.data, new.destination)
        return _MailDraft(_scheduled(mail, old, new, now), metadata, _noted(mail, old, new))

    def _rewrite(self, mail: MailEntry, draft: _MailDraft) -> None:
        """The same mail in the same place: each file is the old one or the new one."""
        with self._drafts(mail, draft) as drafts:
            try:
                drafts.put()
                if draft.note is None:
                    return
                sidecar.keep(sidecar.name_of(mail.link.target), draft.note, self._notes())
            except (OSError, StoreError):
                drafts.take_back()
                raise

    def _go(self, mail: MailEntry, draft: _MailDraft, target: MailFolder) -> None:
        """What it shall say, then its link: whoever is killed before that leaves it where it was.

        Its attempt counts once the link has moved.
        """
        link, name = mail.link, sidecar.name_of(mail.link.target)
        staged = None
        if draft.note is not None:
            start = STATES[link.state]
            staged = draft.note._replace(start=start, since=link.seen.st_ctime_ns)
        _ = target.fd  # made before anything is written
        with self._drafts(mail, draft) as drafts:
            try:
                if staged is not None:
                    sidecar.keep_bytes(name + sidecar.STAGED, sidecar.render(staged), self._notes())
                drafts.put()
                self._move(link, target)
            except (OSError, StoreError):
                drafts.take_back()
                if staged is not None:
                    files.forget(name + sidecar.STAGED, self._notes())
                raise
        if staged is not None:
            with suppress(OSError):  # it counts as it is, and the next change settles it
                self._settled(name, staged)

    def _leave(
        self, link: Link, start: MailFolder, target: MailFolder
    ) -> tuple[str, list[MailFolder]]:
        """Done, or for good: to those that are being erased, and erased."""
        if start is not target:
            self._move(link, target)
            link = self._spool.link(link.id, State.DONE)
        try:
            erase(self._spool, link)
        except (OSError, Refused) as error:
            words = error.strerror if isinstance(error, OSError) else error
            raise Unavailable(
                f"{link.id}: stands in {target.word}, not erased to its end: {words}"
            ) from error
        return "", [start, target]

    def _move(self, link: Link, target: MailFolder) -> None:
        start = self._spool.states[link.state]
        try:
            files.rename(link.id, link.id, src_dir_fd=start.fd, dst_dir_fd=target.fd)
        except FileNotFoundError:
            raise Gone(link.id) from None

    def _notes(self) -> int:
        return self._spool.notes.fd

    @contextmanager
    def _drafts(self, mail: MailEntry, draft: _MailDraft) -> Iterator[Drafts]:
        before = {SCHEDULE: mail.schedule.data, METADATA: mail.metadata.data}
        with self._spool.dest(mail.link.target) as fd:
            drafts = Drafts(fd, self._spool.data.owner, before, durable=self._durable)
            try:
                for name, data in draft.texts:
                    drafts.write(name, data)
                yield drafts
            finally:
                drafts.drop()


class Drafts:
    """New texts of files in one folder, written as Kannader writes them: `schedule.<uuid>`, whole
    beside the old one and renamed over it.
    """

    def __init__(
        self,
        fd: int,
        owner: tuple[int, int] | None,
        before: Mapping[str, bytes],
        *,
        durable: bool,
    ) -> None:
        """`before` is what the files say that are to be replaced, to be put back if need be."""
        self._fd, self._owner, self._before, self._durable = fd, owner, before, durable
        self._waiting: list[tuple[str, str]] = []
        self._put: list[str] = []

    def write(self, name: str, data: bytes) -> None:
        """Write one that shall take the place of `name`."""
        draft = f"{name}.{mail_format.new_uuid()}"
        fd = files.create(draft, self._fd, self._owner, 0o600)
        self._waiting.append((draft, name))
        try:
            files.write_all(fd, data)
            if self._durable:
                files.fsync(fd)
        finally:
            os.close(fd)

    def put(self) -> None:
        """Put all of them in their places; durable."""
        waiting = list(self._waiting)
        for draft, name in waiting:
            files.rename(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            self._waiting.remove((draft, name))
            self._put.append(name)
        if waiting and self._durable:
            files.fsync(self._fd)

    def take_back(self) -> None:
        """Put back what was there: the link did not move, so nothing shall have changed."""
        put, self._put = self._put, []
        with suppress(OSError):  # then it is due as we wrote, and has not moved
            for name in put:
                self.write(name, self._before[name])
            self.put()

    def drop(self) -> None:
        """Take away what was not put in place."""
        for draft, _ in self._waiting:
            with suppress(OSError):  # if it stays, recovery deletes it
                files.forget(draft, self._fd)


def _unless(same: bytes, data: bytes) -> bytes | None:
    return None if data == same else data


def _bare(ours: sidecar.AttemptNote) -> sidecar.AttemptNote:
    return ours._replace(start="", since=0)


def _scheduled(mail: MailEntry, old: Task, new: Task, now: float) -> bytes | None:
    """The schedule that a verb makes; None where it stays.

    An attempt that counts ended now; due at once is due now (Kannader spool, sections 4 and 5).
    """
    counts = (new.attempts or 0) > (old.attempts or 0)
    if new.state is State.DONE or (new.due == old.due and not counts):
        return None
    before = schedule_of(mail)
    at = before.at
    if new.due != old.due:
        if new.due is None:
            raise Refused("a schedule says when, expected a time")
        at = mail_format.instant(new.due or now)
    return mail_format.schedule_bytes(
        Schedule(at, mail_format.instant(now) if counts else before.last_attempt)
    )


def _noted(mail: MailEntry, old: Task, new: Task) -> sidecar.AttemptNote | None:
    """What is to be noted after a verb; None where that stays as it is."""
    ours = _bare(mail.note)
    if new.attempts != old.attempts:
        ours = ours._replace(attempts=new.attempts)
    if new.error != old.error:
        ours = ours._replace(error=shown(new.error)[:ERROR_LIMIT])
    return None if ours == _bare(mail.note) else ours


def _confirm(touched: dict[MailFolder, list[int]], answers: list[str | Exception]) -> None:
    """Make what was moved durable; if the disk refuses, no answer says that it is."""
    for folder, changes in touched.items():
        try:
            folder.sync()
        except OSError as error:
            words = f"{folder.path}: in place, but the disk did not confirm: {error.strerror}"
            for at in changes:
                answers[at] = Unavailable(words)
