"""Ends what others began and mends what can be mended; says beforehand what it would do.

Kannader spool, section 5, in its order: strange links aside, doubled links, left-over drafts,
mails that are being erased, mails in flight that nobody sends, orphans, and what was noted of
nobody. A mail that could be sent is never deleted here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from engine.model import State
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.stores.kannader import damage, enqueue, mail_format, sidecar
from engine.stores.kannader.cleanup import (
    erase,
    erase_mail,
    erase_target,
    forget_notes,
    require_erasable,
)
from engine.stores.kannader.damage import Damage, RepairAction
from engine.stores.kannader.mail_format import SCHEDULE, LinkTarget, Schedule
from engine.stores.kannader.moves import Drafts, MailMove, MailMover
from engine.stores.kannader.spool import INFLIGHT_DELAY, STATES, KannaderSpool, Link, kept
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

ABANDONED = "found in flight with nobody at work on it: it may have been sent"

REPAIRED = (State.PENDING, State.ACTIVE, State.HELD)
"""Where a mail may stand that gets a new schedule: what waits, or is to wait again."""

_COUNTED = 8
"""Bytes for the number of one of several of the same name."""


class SpoolRecovery:
    """Recovers one spool."""

    def __init__(self, spool: KannaderSpool, desk: MailMover) -> None:
        self._spool, self._desk = spool, desk
        self._planned: set[str] = set()
        """Links that a pass which only says what it would do would have set aside by now."""

    def recover(self, now: float, *, dry: bool = False) -> list[str]:
        """Do what is to be done, or with `dry` only say it; a line for each thing.

        What the disk refuses is said as well, and left for the next time.

        Raises:
            Unavailable: the spool cannot be read, or another process keeps its lock.
        """
        try:
            if dry:
                return list(self._pass(now, dry=True))
            with self._desk.locked():
                self._settle_notes()
                return list(self._pass(now, dry=False))
        except OSError as error:
            raise Unavailable(f"{self._spool.root}: not recovered: {error.strerror}") from error

    def _pass(self, now: float, *, dry: bool) -> Iterator[str]:
        self._planned.clear()
        steps = (
            self._finish_enqueuing,
            self._set_aside,
            self._undouble,
            self._drop_drafts,
            self._resume_erasing,
            self._requeue,
            self._erase_orphans,
            self._forget_notes,
        )
        for step in steps:
            yield from step(now, dry)

    def _finish_enqueuing(self, now: float, dry: bool) -> Iterator[str]:
        if not self._spool.begun.exists():
            return
        for name, begun, _ in damage.begun_by_the_dead(self._spool):
            where = f"{self._spool.begun.word}/{name}"
            if dry:
                yield f"{where}: would be finished or taken away"
                continue
            try:
                if begun is None:  # written down first, so nothing of it was built
                    files.forget(name, self._spool.begun.fd)
                    said = "was torn; taken away"
                else:
                    said = enqueue.finish(self._spool, begun, damage.linked(self._spool))
            except (OSError, Refused) as error:
                yield _left(where, error)
            else:
                yield f"{where}: {said}"

    def _settle_notes(self) -> None:
        """Put what is noted of finished attempts in its place, and drop what came to nothing."""
        notes = self._spool.notes
        staged = {name for name in notes.names() if name.endswith(sidecar.STAGED)}
        for link in self._spool.links() if staged else ():
            if sidecar.name_of(link.target) + sidecar.STAGED in staged:
                self._desk.settle(link)

    def _damaged_links(self) -> Iterator[Damage]:
        for state, folder in self._spool.states.items():
            for name in sorted(folder.names()):
                try:
                    found = damage.of_link(self._spool, name, state)
                except FileNotFoundError:
                    continue  # moved on
                except OSError as error:
                    what = f"cannot be read now: {error.strerror}"
                    found = Damage(f"{STATES[state]}/{name}", what, RepairAction.UNREAD)
                if found is not None:
                    yield found

    def _set_aside(self, now: float, dry: bool) -> Iterator[str]:
        for found in self._damaged_links():
            if found.fate is RepairAction.ASIDE:
                yield from self._aside(found, dry)
            elif found.fate is RepairAction.UNREAD:
                yield f"{shown(found.where)}: {found.what}: {'would be ' if dry else ''}left"

    def _undouble(self, now: float, dry: bool) -> Iterator[str]:
        for found in damage.doubles(self._left_standing()):
            if found.fate is RepairAction.ASIDE:
                yield from self._aside(found, dry)

    def _aside(self, found: Damage, dry: bool) -> Iterator[str]:
        words = f"{shown(found.where)}: {found.what}"
        if dry:
            self._planned.add(found.where)
            yield f"{words}: would be quarantined"
            return
        assert found.state is not None
        folder, aside = self._spool.states[found.state], self._spool.aside
        name = found.where.partition("/")[2]
        kept_as = f"{STATES[found.state]}.{name}"
        if len(os.fsencode(kept_as)) > mail_format.ID_LIMIT - _COUNTED:
            kept_as = (
                f"{STATES[found.state]}.{mail_format.new_uuid()}"  # what is said of it tells which
            )
        target = kept_as
        try:
            count = 1
            while aside.holds(target):
                count += 1
                target = f"{kept_as}.{count}"
            files.rename(name, target, src_dir_fd=folder.fd, dst_dir_fd=aside.fd)
            folder.sync()
            aside.sync()
        except FileNotFoundError:
            return  # moved on
        except OSError as error:
            yield _left(found.where, error)
        else:
            yield f"{words}: quarantined as {aside.word}/{shown(target)}"

    def _drop_drafts(self, now: float, dry: bool) -> Iterator[str]:
        for target, name in list(damage.drafts(self._spool, now)):
            where = f"data/{target.path}/{name}"
            if dry:
                yield f"{where}: a draft that was left behind: would be deleted"
                continue
            try:
                with self._spool.dest(target) as fd:
                    files.forget(name, fd)
            except (OSError, Refused) as error:
                yield _left(where, error)
            else:
                yield f"{where}: a draft that was left behind: deleted"

    def _left_standing(self) -> list[Link]:
        return [link for link in self._spool.links() if link.where not in self._planned]

    def _in(self, state: State) -> list[Link]:
        found = (link for link in self._left_standing() if link.state is state)
        return sorted(found, key=lambda link: link.id)

    def _resume_erasing(self, now: float, dry: bool) -> Iterator[str]:
        for link in self._in(State.DONE):
            if dry:
                yield f"{link.where}: would be erased to its end"
                continue
            try:
                erase(self._spool, link)
            except (OSError, Refused) as error:
                yield _left(link.where, error)
            else:
                yield f"{link.where}: erased to its end"

    def _requeue(self, now: float, dry: bool) -> Iterator[str]:
        # Where one of two links could not be set aside, the other must not fall behind it.
        leading = Counter(link.target for link in self._left_standing())
        for link in self._in(State.ACTIVE):
            if leading[link.target] > 1 or now - link.seen.st_ctime <= INFLIGHT_DELAY:
                continue
            try:
                task = self._spool.task(self._spool.mail(link))
            except (FileNotFoundError, Refused):
                continue  # moved on, or a problem: look() names it
            except OSError as error:
                yield _left(link.where, error)
                continue
            if dry:
                yield f"{link.where}: {ABANDONED}: would go back to queue"
                continue
            try:
                attempts = (task.attempts or 0) + 1
                back = replace(
                    task, state=State.PENDING, attempts=attempts, due=0.0, error=ABANDONED
                )
                _, folders = self._desk.carry_out(MailMove(task, back), now)
                for folder in folders:
                    folder.sync()
            except Gone:
                continue  # somebody else has it
            except (OSError, StoreError, Refused) as error:
                yield _left(link.where, error)
            else:
                yield f"{link.where}: {ABANDONED}: back in queue, counted as an attempt"

    def _erase_orphans(self, now: float, dry: bool) -> Iterator[str]:
        for found in damage.orphans(self._spool, damage.linked(self._spool), now):
            if found.fate is not RepairAction.ERASED or found.target is None:
                continue
            if dry:
                yield f"{found.where}: {found.what}: would be deleted"
                continue
            try:
                remove(self._spool, found.target)
            except (OSError, Refused) as error:
                yield _left(found.where, error)
            else:
                yield f"{found.where}: {found.what}: deleted"

    def _forget_notes(self, now: float, dry: bool) -> Iterator[str]:
        for name in list(damage.idle_notes(self._spool, now)):
            where = f"{self._spool.notes.word}/{name}"
            if dry:
                yield f"{where}: noted of a mail that is no more: would be deleted"
                continue
            try:
                files.forget(name, self._spool.notes.fd)
            except OSError as error:
                yield _left(where, error)
                continue
            yield f"{where}: noted of a mail that is no more: deleted"

    # ---- what only an operator decides

    @contextmanager
    def _locked(self, dry: bool) -> Iterator[None]:
        """The lock of the spool; with `dry` none is taken: its file may have to be created."""
        with nullcontext() if dry else self._desk.locked():
            yield

    def adopt(self, where: str, now: float, *, dry: bool = False) -> str:
        """Give a whole mail that no link leads to its link, so that it is sent; answers in words.

        Raises:
            Unsupported: there is no such orphan.
            Unavailable: the lock is kept by another process.
            OSError: the disk refused.
        """
        with self._locked(dry):
            target = self._orphan(where, now, RepairAction.ASKED)
            if dry:
                return f"{where}: would be put in queue, and sent"
            ident, queue = mail_format.new_uuid(), self._spool.states[State.PENDING]
            files.symlink(target.text, ident, dir_fd=queue.fd)
            queue.sync()
        return f"{where}: in queue as {ident}"

    def put_back(self, where: str, now: float, *, dry: bool = False) -> str:
        """Move a quarantined link back to its former folder; answers in words.

        Raises:
            Unsupported: there is no such link, or what it leads to is not mended.
            Unavailable: the lock is kept by another process.
            OSError: the disk refused, or it cannot be determined whether it is mended.
        """
        with self._locked(dry):
            spool, aside = self._spool, self._spool.aside
            name = where.removeprefix(f"{aside.word}/")
            try:
                link = damage.held_back(spool, name)
            except FileNotFoundError:
                raise _not_quarantined(where) from None
            except Refused as refusal:
                raise Unsupported(f"{where[:200]!r}: {refusal}") from refusal
            if why := damage.why_kept(spool, link, {each.target for each in spool.links()}):
                raise Unsupported(f"{where[:200]!r}: {why}")
            if enqueue.stands(spool, link.id):
                link = link._replace(id=mail_format.new_uuid())
            if dry:
                return f"{where}: would be put back as {link.where}"
            folder = spool.states[link.state]
            files.rename(name, link.id, src_dir_fd=aside.fd, dst_dir_fd=folder.fd)
            folder.sync()
            aside.sync()
        return f"{where}: put back as {link.where}"

    def discard(self, where: str, now: float, *, dry: bool = False) -> str:
        """Delete a mail that no link leads to, or a quarantined link with what only it leads to;
        answers in words.

        Raises:
            Unsupported: there is no such orphan or link, or a file in it is not Kannader's.
            Unavailable: the lock is kept by another process.
            OSError: the disk refused.
        """
        link = where.removeprefix(f"{self._spool.aside.word}/")
        with self._locked(dry):
            try:
                target = (
                    self._orphan(where, now, RepairAction.ASKED, RepairAction.ERASED)
                    if link == where
                    else damage.only_behind(self._spool, link)
                )
                words = "" if link == where or target is None else f" with data/{target.path}"
                if target is not None:
                    require_erasable(self._spool, target)
                if dry:
                    return f"{where}: would be deleted{words}, for good"
                if target is not None:  # first: a link without data can be discarded once more
                    remove(self._spool, target)
                if link != where:
                    files.forget(link, self._spool.aside.fd)
                    self._spool.aside.sync()
            except FileNotFoundError:
                raise _not_quarantined(where) from None
            except Refused as refusal:
                raise Unsupported(f"{where[:200]!r}: {refusal}") from refusal
        return f"{where}: deleted{words}"

    def _orphan(self, where: str, now: float, *fates: RepairAction) -> LinkTarget:
        for found in damage.orphans(self._spool, damage.linked(self._spool), now):
            if found.where == where and found.fate in fates and found.target is not None:
                return found.target
        raise Unsupported(f"{where[:200]!r} is no mail that no link leads to")

    def repair(self, where: str, now: float, *, dry: bool = False) -> str:
        """Give a mail whose schedule cannot be read a new one, due now; answers in words.

        Raises:
            Unsupported: its schedule can be read, or there is no such mail.
            Unavailable: the lock is kept by another process.
            OSError: the disk refused.
        """
        with self._locked(dry):
            word, _, name = where.partition("/")
            state = next((state for state in REPAIRED if STATES[state] == word), None)
            if state is None:
                words = " or ".join(STATES[state] for state in REPAIRED)
                raise Unsupported(f"{where[:200]!r} is no mail in {words}")
            try:
                link = self._spool.link(name, state)
                with self._spool.dest(link.target) as fd:
                    self._reschedule(fd, now, dry=dry)
            except (FileNotFoundError, Refused) as error:
                raise Unsupported(f"{where[:200]!r}: {error}") from error
        return f"{where}: would be due now" if dry else f"{where}: due now"

    def _reschedule(self, fd: int, now: float, *, dry: bool) -> None:
        before = kept(SCHEDULE, fd)
        try:
            mail_format.parse_schedule(before.data)
        except Refused:
            if dry:
                return
            drafts = Drafts(fd, self._spool.data.owner, {SCHEDULE: before.data}, durable=True)
            try:
                drafts.write(
                    SCHEDULE, mail_format.schedule_bytes(Schedule(mail_format.instant(now)))
                )
                drafts.put()
            finally:
                drafts.drop()
            return
        raise Refused("its schedule can be read")


def _not_quarantined(where: str) -> Unsupported:
    return Unsupported(f"{where[:200]!r}: there is no such quarantined link")


def remove(spool: KannaderSpool, target: LinkTarget) -> None:
    """Delete a recipient that nothing leads to, or a mail without one.

    Raises:
        Refused: something lies there that is nobody's.
        OSError: not all of it could be deleted.
    """
    if target.dest:
        erase_target(spool, target)
        forget_notes(spool, target)
        return
    fd = files.open_folder(target.mail, spool.data.fd)
    try:
        erase_mail(spool, target.mail, fd)
    finally:
        os.close(fd)


def _left(where: str, error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) else error
    return f"{shown(where)}: left for the next time: {words}"
