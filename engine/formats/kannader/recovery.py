"""Recover a Kannader spool: finish interrupted work and repair what is safe; dry runs report it.

Source: Kannader spool, section 5, in this order: interrupted enqueues, bad links (quarantined),
duplicate links, left-over drafts, interrupted erases, abandoned mails in flight, incomplete
orphans, notes without a mail. A mail that could be sent is never deleted here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from engine.formats.kannader import damage, enqueue, mail_format, sidecar
from engine.formats.kannader.cleanup import (
    delete_notes,
    erase_link,
    erase_mail,
    erase_target,
    require_erasable,
)
from engine.formats.kannader.damage import Damage, RepairAction
from engine.formats.kannader.mail_format import SCHEDULE, LinkTarget, MailSchedule
from engine.formats.kannader.moves import FileDrafts, MailMover, SpoolLock
from engine.formats.kannader.settings import INFLIGHT_CHECK_SECONDS
from engine.formats.kannader.spool import STATES, KannaderSpool, SpoolLink, read_spool_file
from engine.model import State
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line

ABANDONED_ERROR = "found in flight without a sender: it may have been sent"

REPAIRABLE_STATES = (State.PENDING, State.ACTIVE, State.HELD)
"""The states in which a mail can get a new schedule."""

_NUMBER_BYTES = 8
"""Bytes reserved for the number after the name of a quarantined duplicate."""


class SpoolRecovery:
    """Finishes interrupted work of one spool, and does what is safe without an operator."""

    def __init__(
        self, spool: KannaderSpool, mover: MailMover, age: Callable[[float, float], float]
    ) -> None:
        """`age`: seconds that runs have seen pass between two times."""
        self._spool, self._mover, self._age = spool, mover, age
        self._planned: set[str] = set()
        """Links that a dry run would have quarantined by now."""

    def recover(self, now: float, *, dry: bool = False) -> list[str]:
        """Run all steps, or with `dry` only report them; return one line per action.

        What the disk refuses is reported and left for the next run.

        Raises:
            Unavailable: the spool cannot be read, or another process holds its lock.
        """
        try:
            if dry:
                return list(self._run_steps(now, dry=True))
            with self._mover.lock.held():
                self._settle_notes()
                return list(self._run_steps(now, dry=False))
        except OSError as error:
            raise Unavailable(f"{self._spool.root}: not recovered: {error_text(error)}") from error

    def _run_steps(self, now: float, *, dry: bool) -> Iterator[str]:
        self._planned.clear()
        steps = (
            self._finish_enqueuing,
            self._quarantine_links,
            self._quarantine_duplicates,
            self._drop_drafts,
            self._resume_erasing,
            self._requeue,
            self._erase_orphans,
            self._forget_notes,
        )
        for step in steps:
            yield from step(now, dry)

    def _finish_enqueuing(self, now: float, dry: bool) -> Iterator[str]:
        if not self._spool.enqueuing.exists():
            return
        for name, begun in damage.claim_interrupted(self._spool):
            where = f"{self._spool.enqueuing.word}/{name}"
            if dry:
                yield f"{where}: would be finished or deleted"
            elif begun is None:  # the record is written first, so no other file exists
                delete = partial(files.unlink_quietly, name, self._spool.enqueuing.fd)
                yield _try_repair(where, "was torn; deleted", delete)
            else:
                try:
                    linked = damage.linked_targets(self._spool)
                    yield f"{where}: {enqueue.finish_interrupted(self._spool, begun, linked)}"
                except (OSError, Refused) as error:
                    yield _describe_failure(where, error)

    def _settle_notes(self) -> None:
        """Rename staged notes of finished attempts to their final names; delete those not in
        effect."""
        notes = self._spool.notes
        staged = {name for name in notes.iter_names() if name.endswith(sidecar.STAGED_SUFFIX)}
        for link in self._spool.iter_links() if staged else ():
            if sidecar.note_name(link.target) + sidecar.STAGED_SUFFIX in staged:
                self._mover.settle_note(link)

    def _damaged_links(self) -> Iterator[Damage]:
        for state, folder in self._spool.states.items():
            for name in sorted(folder.iter_names()):
                try:
                    link_damage = damage.find_link_damage(self._spool, name, state)
                except FileNotFoundError:
                    continue  # moved
                except OSError as error:
                    what = f"cannot be read now: {error_text(error)}"
                    link_damage = Damage(f"{STATES[state]}/{name}", what, RepairAction.UNREADABLE)
                if link_damage is not None:
                    yield link_damage

    def _quarantine_links(self, now: float, dry: bool) -> Iterator[str]:
        for link_damage in self._damaged_links():
            if link_damage.action is RepairAction.QUARANTINE:
                yield from self._quarantine(link_damage, dry)
            elif link_damage.action is RepairAction.UNREADABLE:
                where = safe_line(link_damage.where)
                yield f"{where}: {link_damage.what}: {'would be ' if dry else ''}left"

    def _quarantine_duplicates(self, now: float, dry: bool) -> Iterator[str]:
        for link_damage in damage.duplicates_among(self._links_in(*STATES)):
            if link_damage.action is RepairAction.QUARANTINE:
                yield from self._quarantine(link_damage, dry)

    def _quarantine(self, link_damage: Damage, dry: bool) -> Iterator[str]:
        words = f"{safe_line(link_damage.where)}: {link_damage.what}"
        if dry:
            self._planned.add(link_damage.where)
            yield f"{words}: would be quarantined"
            return
        assert link_damage.state is not None
        folder, aside = self._spool.states[link_damage.state], self._spool.quarantine
        name = link_damage.where.partition("/")[2]
        kept_as = f"{STATES[link_damage.state]}.{name}"
        if len(os.fsencode(kept_as)) > mail_format.ID_LIMIT_BYTES - _NUMBER_BYTES:
            # The report line shows the full name.
            kept_as = f"{STATES[link_damage.state]}.{mail_format.new_uuid()}"
        target = kept_as
        try:
            count = 1
            while aside.contains(target):
                count += 1
                target = f"{kept_as}.{count}"
            files.rename(name, target, src_dir_fd=folder.fd, dst_dir_fd=aside.fd)
            folder.sync()
            aside.sync()
        except FileNotFoundError:
            return  # moved
        except OSError as error:
            yield _describe_failure(link_damage.where, error)
        else:
            yield f"{words}: quarantined as {aside.word}/{safe_line(target)}"

    def _drop_drafts(self, now: float, dry: bool) -> Iterator[str]:
        def drop(target: LinkTarget, name: str) -> None:
            with self._spool.open_dest(target) as fd:
                files.unlink_quietly(name, fd)

        for target, name in list(damage.find_drafts(self._spool, now)):
            where = f"data/{target.path}/{name}"
            if dry:
                yield f"{where}: left-over draft: would be deleted"
            else:
                yield _try_repair(where, "left-over draft: deleted", partial(drop, target, name))

    def _links_in(self, *states: State) -> list[SpoolLink]:
        links = (link for link in self._spool.iter_links(states) if link.where not in self._planned)
        return sorted(links, key=lambda link: link.id)

    def _resume_erasing(self, now: float, dry: bool) -> Iterator[str]:
        for link in self._links_in(State.DONE):
            if dry:
                yield f"{link.where}: erasing would be finished"
            else:
                erase = partial(erase_link, self._spool, link)
                yield _try_repair(link.where, "erasing finished", erase)

    def _requeue(self, now: float, dry: bool) -> Iterator[str]:
        # If one of two links could not be quarantined, the other must not be moved.
        active = self._links_in(State.ACTIVE)
        leading = Counter(link.target for link in (self._links_in(*STATES) if active else ()))
        for link in active:
            if leading[link.target] > 1 or now - link.file_stat.st_ctime <= INFLIGHT_CHECK_SECONDS:
                continue
            try:
                task = self._spool.build_task(self._spool.read_mail(link))
            except (FileNotFoundError, Refused):
                continue  # moved, or a problem that scan() reports
            except OSError as error:
                yield _describe_failure(link.where, error)
                continue
            if dry:
                yield f"{link.where}: {ABANDONED_ERROR}: would go back to queue"
                continue
            attempts = (task.attempts or 0) + 1
            back = task._replace(state=State.PENDING, attempts=attempts, due=0.0)
            back = back._replace(error=ABANDONED_ERROR)
            try:
                _, folders = self._mover.apply_move(task, back, now)
                for folder in folders:
                    folder.sync()
            except Gone:
                continue  # another process has it
            except (OSError, StoreError, Refused) as error:
                yield _describe_failure(link.where, error)
            else:
                yield f"{link.where}: {ABANDONED_ERROR}: back in queue, counted as an attempt"

    def _erase_orphans(self, now: float, dry: bool) -> Iterator[str]:
        for orphan in damage.find_orphans(self._spool, damage.linked_targets(self._spool), now):
            if orphan.action is not RepairAction.DELETE or orphan.target is None:
                continue
            if dry:
                yield f"{orphan.where}: {orphan.what}: would be deleted"
                continue
            written = damage.last_write_seconds(self._spool, orphan.target)
            if self._age(written, now) <= damage.ORPHAN_GRACE_SECONDS:
                continue  # by a clock that was set: it may still be received
            delete = partial(delete_orphan, self._spool, orphan.target)
            yield _try_repair(orphan.where, f"{orphan.what}: deleted", delete)

    def _forget_notes(self, now: float, dry: bool) -> Iterator[str]:
        for name in list(damage.find_idle_notes(self._spool, now)):
            where, what = f"{self._spool.notes.word}/{name}", "note of a mail that no longer exists"
            if dry:
                yield f"{where}: {what}: would be deleted"
            else:
                delete = partial(files.unlink_quietly, name, self._spool.notes.fd)
                yield _try_repair(where, f"{what}: deleted", delete)


class SpoolRepairs:
    """Repairs that an operator decides on: each on one mail or link, under the spool lock; it
    returns the result as text.

    Each raises Unsupported if there is nothing to repair there, Unavailable if another process
    holds the lock, and OSError if the disk refuses.
    """

    def __init__(self, spool: KannaderSpool, lock: SpoolLock) -> None:
        self._spool, self._lock = spool, lock

    @contextmanager
    def _locked(self, dry: bool) -> Iterator[None]:
        """Hold the spool lock; not with `dry`, because the lock file may have to be created."""
        with nullcontext() if dry else self._lock.held():
            yield

    def adopt(self, where: str, now: float, *, dry: bool = False) -> str:
        """Create a link to a complete orphaned mail, so that it is sent."""
        with self._locked(dry):
            target = self._find_orphan(where, now, RepairAction.ASK_OPERATOR)
            if dry:
                return f"{where}: would be queued and sent"
            ident, queue = mail_format.new_uuid(), self._spool.states[State.PENDING]
            files.symlink(target.text, ident, dir_fd=queue.fd)
            queue.sync()
        return f"{where}: in queue as {ident}"

    def put_back(self, where: str, now: float, *, dry: bool = False) -> str:
        """Move a quarantined link, whose data is repaired, back to its former folder."""
        with self._locked(dry):
            spool, aside = self._spool, self._spool.quarantine
            name = where.removeprefix(f"{aside.word}/")
            try:
                link = damage.read_quarantined(spool, name)
            except FileNotFoundError:
                raise _not_quarantined(where) from None
            except Refused as refusal:
                raise Unsupported(f"{where[:200]!r}: {refusal}") from refusal
            known = {each.target for each in spool.iter_links()}
            if why := damage.restore_refusal(spool, link, known):
                raise Unsupported(f"{where[:200]!r}: {why}")
            if enqueue.link_exists(spool, link.id):
                link = link._replace(id=mail_format.new_uuid())
            if dry:
                return f"{where}: would be put back as {link.where}"
            folder = spool.states[link.state]
            files.rename(name, link.id, src_dir_fd=aside.fd, dst_dir_fd=folder.fd)
            folder.sync()
            aside.sync()
        return f"{where}: put back as {link.where}"

    def discard(self, where: str, now: float, *, dry: bool = False) -> str:
        """Delete an orphaned mail, or a quarantined link with the data only it uses. Unsupported
        too if a file in it is not Kannader's."""
        link = where.removeprefix(f"{self._spool.quarantine.word}/")
        with self._locked(dry):
            try:
                target = (
                    self._find_orphan(where, now, RepairAction.ASK_OPERATOR, RepairAction.DELETE)
                    if link == where
                    else damage.sole_target(self._spool, link)
                )
                words = "" if link == where or target is None else f" with data/{target.path}"
                if target is not None:
                    require_erasable(self._spool, target)
                if dry:
                    return f"{where}: would be deleted permanently{words}"
                if target is not None:  # data first: a link without data can be discarded again
                    delete_orphan(self._spool, target)
                if link != where:
                    files.unlink_quietly(link, self._spool.quarantine.fd)
                    self._spool.quarantine.sync()
            except FileNotFoundError:
                raise _not_quarantined(where) from None
            except Refused as refusal:
                raise Unsupported(f"{where[:200]!r}: {refusal}") from refusal
        return f"{where}: deleted{words}"

    def _find_orphan(self, where: str, now: float, *fates: RepairAction) -> LinkTarget:
        for orphan in damage.find_orphans(self._spool, damage.linked_targets(self._spool), now):
            if orphan.where == where and orphan.action in fates and orphan.target is not None:
                return orphan.target
        raise Unsupported(f"{where[:200]!r} is not an orphaned mail")

    def repair(self, where: str, now: float, *, dry: bool = False) -> str:
        """Replace an unreadable schedule by one that is due now."""
        with self._locked(dry):
            word, _, name = where.partition("/")
            state = next((state for state in REPAIRABLE_STATES if STATES[state] == word), None)
            if state is None:
                words = " or ".join(STATES[state] for state in REPAIRABLE_STATES)
                raise Unsupported(f"{where[:200]!r} is not a mail in {words}")
            try:
                link = self._spool.find_link(name, state)
                with self._spool.open_dest(link.target) as fd:
                    self._reschedule(fd, now, dry=dry)
            except (FileNotFoundError, Refused) as error:
                raise Unsupported(f"{where[:200]!r}: {error}") from error
        return f"{where}: would be due now" if dry else f"{where}: due now"

    def _reschedule(self, fd: int, now: float, *, dry: bool) -> None:
        before = read_spool_file(SCHEDULE, fd)
        try:
            mail_format.parse_schedule(before.data)
        except Refused:
            if dry:
                return
            drafts = FileDrafts(fd, self._spool.data.owner, {SCHEDULE: before.data}, durable=True)
            schedule = MailSchedule(mail_format.to_nanoseconds(now))
            try:
                drafts.write(SCHEDULE, mail_format.render_schedule(schedule))
                drafts.publish()
            finally:
                drafts.discard()
            return
        raise Refused("its schedule can be read")


def _not_quarantined(where: str) -> Unsupported:
    return Unsupported(f"{where[:200]!r}: there is no such quarantined link")


def delete_orphan(spool: KannaderSpool, target: LinkTarget) -> None:
    """Delete an orphaned recipient, or a mail without recipients.

    Raises:
        Refused: a foreign file is in it.
        OSError: not everything could be deleted.
    """
    if target.dest:
        erase_target(spool, target)
        delete_notes(spool, target)
        return
    with closing_fd(files.open_folder(target.mail, spool.data.fd)) as fd:
        erase_mail(spool, target.mail, fd)


def _try_repair(where: str, done: str, act: Callable[[], object]) -> str:
    """Do one repair; return the line that reports it, or what the disk refused."""
    try:
        act()
    except (OSError, Refused) as error:
        return _describe_failure(where, error)
    return f"{where}: {done}"


def _describe_failure(where: str, error: Exception) -> str:
    return f"{safe_line(where)}: left for the next run: {error_text(error)}"
