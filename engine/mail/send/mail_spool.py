"""The mail spool: mails that wait to be sent again, each with its body in a folder of its own.

A folder is complete before it has its name, and what happened to the mail stands in it as marks:
a crash leaves a mail that is whole, and that says whether somebody was about to send it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import stat_result
from typing import TYPE_CHECKING, NamedTuple

from engine.mail.model import BadMail
from engine.mail.send import spool_entry
from engine.mail.send.spool_entry import (
    FOLDER,
    HTML,
    META,
    NEW,
    QUEUING,
    REFUSED,
    SENT,
    TEXT,
    TRYING,
    UNQUEUED,
    SpoolMark,
)
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

if TYPE_CHECKING:
    from engine.mail.message.content import Content

LITTER_AGE = 3600.0
"""Seconds after which an incomplete folder is nobody's work any more: writing one takes far less
than the longest attempt."""

SENT_KEPT = 7 * 86400.0
"""Seconds for which a mail is kept that was accepted and whose task did not take it along.

As long as dead tasks are: as long as the task may come back, this says that it is done.
"""


class Spooled(NamedTuple):
    """A mail in the spool. What it says is foreign: make it safe before showing it."""

    id: str
    folder: str
    meta: str
    """Path of its meta.sh, by which a task names it."""
    to: str = ""
    subject: str = ""
    body: str = ""
    """Path of its body, beside its meta.sh."""
    html: bool = False
    created: float = 0
    """When it was spooled, epoch seconds UTC."""
    sent: SpoolMark | None = None
    """By whom it was accepted; of one that was, nothing else may be left."""
    trying: SpoolMark | None = None
    """The attempt that began and of which no end is known."""
    refused: str = ""
    """Why no attempt would help; "" where nobody said so."""
    unqueued: bool = False
    """Whether it was spooled, and no task could be made for it."""
    queuing: bool = False
    """Whether its sender has not made its task yet, or was killed before that."""

    @property
    def made(self) -> float:
        """When it was composed, before the first attempt: as its name says, else when it was
        spooled; epoch seconds UTC."""
        named = spool_entry.stamp_of(self.id)
        return self.created if named is None else named


class Broken(NamedTuple):
    """What has a mail's name in the spool and cannot be read as one."""

    id: str
    """As it is called: make it safe before showing it."""
    why: str


class MailSpool:
    """The folder of spooled mails, and what may be done to one."""

    def __init__(self, folder: str, root: str = "", clock: Callable[[], float] = time.time) -> None:
        """`root` is the data folder below which no symbolic link is followed."""
        self.folder = folder.rstrip("/")
        self._root = root
        self._clock = clock

    @staticmethod
    def fresh_id(now: float) -> str:
        """A new mail's name: `mail-20260107T120102Z-a1b2c3d4`, in UTC."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        return f"{FOLDER}{stamp}-{os.urandom(4).hex()}"

    def meta_of(self, id: str) -> str:
        """The path that a task of the mail names."""
        return f"{self.folder}/{id}/{META}"

    # ---- keeping

    def keep(
        self,
        id: str,
        to: str,
        subject: str,
        content: Content,
        refused: str = "",
        trying: SpoolMark | None = None,
    ) -> str:
        """Store a new mail; answers with the path of its meta.sh once the disk has all of it.

        `refused` says why no attempt would help, as `refuse` does; `trying` is an attempt that was
        made already, and of which no end is known. Until `queued` is called, a mark in it says that
        it has no task.

        Raises:
            BadMail: that is no name for a mail.
            OSError: it could not be stored; nothing of it is left that looks like a mail.
        """
        if not spool_entry.is_id(id):
            raise BadMail(
                f"{spool_entry.short(id)}: no name for a mail, expected {FOLDER}STAMP-RANDOM"
            )
        body = HTML if content.html else TEXT
        said = content.text if content.text.endswith("\n") else content.text + "\n"
        parts = {
            # What cannot be said in UTF-8 cannot be sent either.
            body: said.encode("utf-8", "replace"),
            META: files.assignments(
                {
                    "MAIL_TO": to,
                    "MAIL_SUBJECT": spool_entry.as_stored(subject),
                    "MAIL_BODY_FILE": f"{self.folder}/{id}/{body}",
                    "MAIL_CREATED_EPOCH": str(int(self._clock())),
                }
            ),
        }
        parts[QUEUING] = files.assignments({"SINCE": str(int(self._clock()))})
        if refused:
            parts[REFUSED] = spool_entry.refusal(refused)
        if trying is not None:
            parts[TRYING] = spool_entry.attempt(*trying)
        spool = self._enter(make=True)
        try:
            spool_entry.place(id, parts, spool)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{self.folder}/{id}") from error
        finally:
            os.close(spool)
        return self.meta_of(id)

    # ---- reading

    def read(self, meta: str) -> Spooled:
        """The mail whose meta.sh a task names.

        Raises:
            BadMail: it is none that can be sent; the message says why.
            OSError: it cannot be read now.
        """
        id = self._id_of(meta)
        try:
            with self._letter(id) as (here, spool):
                return self._read(id, here, spool)
        except FileNotFoundError:
            raise BadMail(f"Mail payload file not found: {spool_entry.short(meta)}") from None

    def body(self, spooled: Spooled, limit: int) -> bytes:
        """What it says, at most `limit` bytes.

        Raises:
            BadMail: it is longer, or no plain file, or not there.
            OSError: it cannot be read now.
        """
        try:
            with self._letter(spooled.id) as (here, spool):
                return spool_entry.content(os.path.basename(spooled.body), here, spool, limit)[0]
        except FileNotFoundError:
            raise BadMail(f"Mail body file not found: {spool_entry.short(spooled.body)}") from None

    def glimpse(self, id: str, name: str = META, limit: int = 4096) -> bytes:
        """The first bytes of a file of a mail, however broken it is: to be shown, not to be used.

        Raises:
            BadMail: there is none, or it is no plain file, or not to be trusted.
            OSError: it cannot be read now.
        """
        if "/" in name:
            raise BadMail(f"{spool_entry.short(name)}: no file of a mail")
        try:
            with self._letter(id) as (here, spool), spool_entry.opened(name, here, spool) as fd:
                return os.read(fd, limit)
        except FileNotFoundError:
            raise BadMail(f"{spool_entry.short(id)}: no {spool_entry.short(name)} there") from None

    def letters(self) -> Iterator[Spooled | Broken]:
        """Every mail of the spool, the oldest by its name first; what has no stamp comes last.

        Raises:
            OSError: the spool cannot be listed.
        """
        for id in sorted(self._names(FOLDER), key=spool_entry.by_age):
            try:
                yield self.read(self.meta_of(id))
            except BadMail as bad:
                yield Broken(id, str(bad))
            except OSError as error:
                yield Broken(id, f"cannot be read now: {error.strerror}")

    def depth_and_oldest(self, now: float) -> tuple[int, float]:
        """How many mails wait to be sent, and the seconds since the oldest was spooled, 0 if none.

        A folder without a meta.sh waits for nothing: the other program leaves it when it has sent
        a mail. None is opened, so that a full spool costs little.

        Raises:
            OSError: the spool cannot be listed.
        """
        names = self._names(FOLDER)
        if not names:
            return 0, 0.0
        with self._listed() as spool:
            waiting = [
                name
                for name in names
                if spool_entry.is_there(f"{name}/{META}", spool)
                and not spool_entry.is_there(f"{name}/{SENT}", spool)
            ]
            oldest = spool_entry.oldest(waiting, spool)
        return len(waiting), max(0.0, now - oldest)

    def _read(self, id: str, here: int, spool: stat_result) -> Spooled:
        sent = spool_entry.mark(SENT, here, spool)
        bare = Spooled(id, f"{self.folder}/{id}", self.meta_of(id), sent=sent)
        try:
            return self._filled(bare, here, spool)
        except (BadMail, FileNotFoundError):
            if sent is None:
                raise
            return bare  # whoever removed it did not come to its end, and there is nothing to send

    def _filled(self, bare: Spooled, here: int, spool: stat_result) -> Spooled:
        data, _ = spool_entry.content(META, here, spool, files.TASK_LIMIT)
        try:
            values = files.parse_assignments(
                data, lambda key: key.startswith("MAIL_"), files.MAIL_RAW
            )
        except Refused as refusal:
            raise BadMail(spool_entry.short(f"{META}: {refusal}")) from refusal
        body = _body_of(values.get("MAIL_BODY_FILE", ""), bare, here, spool)
        epoch = values.get("MAIL_CREATED_EPOCH", "")
        told = epoch.isascii() and epoch.isdigit() and len(epoch) < 12
        why = spool_entry.mark_values(REFUSED, here, spool)
        return bare._replace(
            to=values.get("MAIL_TO", ""),
            subject=spool_entry.as_given(values.get("MAIL_SUBJECT", "")),
            body=f"{bare.folder}/{body}",
            html=body == HTML,
            created=float(epoch)
            if told
            else spool_entry.stamp_of(bare.id) or os.fstat(here).st_mtime,
            trying=spool_entry.mark(TRYING, here, spool),
            refused="" if why is None else why[0].get("WHY") or "refused before",
            unqueued=spool_entry.mark_values(UNQUEUED, here, spool) is not None,
            queuing=spool_entry.mark_values(QUEUING, here, spool) is not None,
        )

    def _id_of(self, meta: str) -> str:
        """The name of the mail whose meta.sh lies at a path.

        Raises:
            BadMail: no mail of this spool can have that.
        """
        if not meta:
            raise BadMail("Mail payload file not found: the task names none")
        id = os.path.basename(os.path.dirname(meta))
        if meta != self.meta_of(id) or not id.startswith(FOLDER):
            expected = f"{self.folder}/{FOLDER}*/{META}"
            raise BadMail(f"{spool_entry.short(meta)}: no mail of this spool, expected {expected}")
        return id

    # ---- what happens to it

    def begin(self, spooled: Spooled, transport: str, now: float) -> None:
        """Write down that a transport is going to be asked: on the disk before it is.

        Raises:
            OSError: it could not be written; asked now, the mail might arrive twice unnoticed.
        """
        with self._letter(spooled.id) as (here, _):
            files.replace(TRYING, here, spool_entry.attempt(transport, now))

    def accepted(self, spooled: Spooled, transport: str, now: float) -> None:
        """Write down that the transport has the mail, so that it is not sent again.

        Raises:
            OSError: it could not be written; sent again, the mail arrives twice.
        """
        with self._letter(spooled.id) as (here, _):
            try:
                # A rename needs no room on a full disk.
                files.rename(TRYING, SENT, src_dir_fd=here, dst_dir_fd=here)
            except FileNotFoundError:
                files.replace(SENT, here, spool_entry.attempt(transport, now))
            else:
                files.fsync(here)

    def failed(self, spooled: Spooled) -> None:
        """The attempt has ended and the transport does not have the mail; `spooled` is as it was
        before. The mark of an earlier attempt of which no end is known stands again.

        Not durable: a mark that comes back after a crash warns of a doubt that there is not.

        Raises:
            OSError: the mark could not be removed.
        """
        with self._letter(spooled.id) as (here, _):
            if spooled.trying is not None:
                files.replace(TRYING, here, spool_entry.attempt(*spooled.trying))
            else:
                files.forget(TRYING, here)

    def refuse(self, spooled: Spooled, why: str) -> None:
        """Write down that no attempt would help: whoever reads it next need not make one.

        Raises:
            OSError: it could not be written.
        """
        with self._letter(spooled.id) as (here, _):
            files.replace(REFUSED, here, spool_entry.refusal(why))

    def refused_once(self, spooled: Spooled) -> str:
        """Why no attempt would help, told once: after that an operator's retry is an attempt.

        Raises:
            OSError: the mark could not be removed.
        """
        if spooled.refused:
            with self._letter(spooled.id) as (here, _):
                files.forget(REFUSED, here)
        return spooled.refused

    def unqueued(self, id: str) -> None:
        """Write down that no task could be made for a mail: whoever wants to need not wait for one.

        Raises:
            OSError: it could not be written.
        """
        with self._letter(id) as (here, _):
            try:
                # A rename needs no room on a full disk.
                files.rename(QUEUING, UNQUEUED, src_dir_fd=here, dst_dir_fd=here)
            except FileNotFoundError:
                files.replace(UNQUEUED, here, files.assignments({"SINCE": str(int(self._clock()))}))

    def queued(self, id: str) -> None:
        """A task was made for it; a worker may have delivered and removed it since.

        Raises:
            OSError: the marks could not be removed.
        """
        try:
            with self._letter(id) as (here, _):
                files.forget(QUEUING, here)
                files.forget(UNQUEUED, here)
        except FileNotFoundError:
            return

    def unqueued_mails(self, before: float) -> Iterator[str]:
        """The ids of the mails that are marked as having no task, where their sender may still make
        it only those spooled before this time (epoch seconds UTC). No file is opened.

        Raises:
            OSError: the spool cannot be listed.
        """
        names = self._names(FOLDER)
        if not names:
            return
        with self._listed() as spool:
            for name in names:
                if spool_entry.is_there(f"{name}/{UNQUEUED}", spool):
                    yield name
                elif spool_entry.is_there(f"{name}/{QUEUING}", spool):
                    with suppress(FileNotFoundError):  # it was queued just now
                        mark = os.stat(f"{name}/{QUEUING}", dir_fd=spool, follow_symlinks=False)
                        if mark.st_mtime < before:
                            yield name

    @contextmanager
    def alone(self, id: str, patience: float = files.PATIENCE) -> Iterator[None]:
        """Hold the lock (flock on the mail's folder) under which a task is made for a mail.

        Waits for it for at most `patience` seconds.

        Raises:
            BadMail: it is not there any more.
            TimeoutError: another process holds the lock.
        """
        try:
            here = files.open_folder(f"{self.folder}/{id}")
        except FileNotFoundError as error:
            raise BadMail(f"{id}: no such mail any more") from error
        try:
            with files.Flock(here, patience):
                yield
        finally:
            os.close(here)

    def remove(self, spooled: Spooled) -> None:
        """Remove a mail with all its files; the mark that it was sent goes last.

        Raises:
            OSError: something else lies in its folder, or it cannot be removed now.
        """
        with self._listed() as spool:
            files.remove_folder(spooled.id, spool, (META, SENT))

    def sweep(self, now: float) -> list[str]:
        """Remove what nobody needs: mails that were sent long ago, and what was never completed.

        Says what was done, and what could not be.

        Raises:
            OSError: the spool cannot be listed.
        """
        said: list[str] = []
        names = sorted(self._names(FOLDER, NEW))
        if not names:
            return said
        with self._listed() as spool:
            for name in names:
                why = _needless(name, spool, now)
                if not why:
                    continue
                try:
                    files.remove_folder(name, spool, (META, SENT))
                except OSError as error:
                    said.append(f"{shown(name)}: {why}, cannot be removed: {error.strerror}")
                else:
                    said.append(f"{shown(name)}: {why}, removed")
        return said

    # ---- folders

    def _enter(self, *, make: bool = False) -> int:
        """A descriptor of the spool, which names it whole where there is none to be had.

        Raises:
            OSError: it cannot be entered.
        """
        try:
            return files.enter(self.folder, self._root, make=make)
        except NotADirectoryError as error:
            # Many have moved it to another disk, and left a link to it.
            way = f"{error.strerror}; where it lies elsewhere, name that: NFTBAN_MAIL_SPOOL_DIR"
            raise NotADirectoryError(error.errno, way, self.folder) from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.folder) from error

    @contextmanager
    def _listed(self) -> Iterator[int]:
        """A descriptor of the spool."""
        spool = self._enter()
        try:
            yield spool
        finally:
            os.close(spool)

    def _names(self, *beginnings: str) -> list[str]:
        """Everything in the spool whose name begins so; nothing while there is no spool."""
        try:
            with self._listed() as spool:
                return [name for name in os.listdir(spool) if name.startswith(beginnings)]
        except FileNotFoundError:
            return []

    @contextmanager
    def _letter(self, id: str) -> Iterator[tuple[int, stat_result]]:
        """A descriptor of a mail's folder, and the state of the spool.

        Raises:
            FileNotFoundError: there is none.
            BadMail: it is no folder, or of somebody who may put none there.
            OSError: it cannot be opened now.
        """
        where = f"{self.folder}/{spool_entry.short(id)}"
        if "/" in id or not id.startswith(FOLDER):
            raise BadMail(f"{spool_entry.short(id)}: no mail's name, expected {FOLDER}STAMP-RANDOM")
        with self._listed() as spool:
            seen = os.fstat(spool)
            try:
                here = files.open_folder(id, spool)
            except NotADirectoryError as error:
                raise BadMail(f"{where}: a symbolic link or no folder, not entered") from error
        try:
            if why := files.stranger(os.fstat(here), seen):
                raise BadMail(f"{where}: {why}")
            yield here, seen
        finally:
            os.close(here)


def _needless(name: str, spool: int, now: float) -> str:
    """Why a folder may go; "" where it may not."""
    try:
        seen = os.stat(name, dir_fd=spool, follow_symlinks=False)
        if name.startswith(NEW):
            return "was never completed" if now - seen.st_mtime > LITTER_AGE else ""
        if spool_entry.is_there(f"{name}/{SENT}", spool):
            sent = os.stat(f"{name}/{SENT}", dir_fd=spool, follow_symlinks=False)
            return "was sent long ago" if now - sent.st_mtime > SENT_KEPT else ""
        empty = not spool_entry.is_there(f"{name}/{META}", spool) and _is_empty(name, spool)
        return "is empty" if empty and now - seen.st_mtime > LITTER_AGE else ""
    except OSError:
        return ""  # no folder, or gone meanwhile, or not for us to see


def _is_empty(name: str, spool: int) -> bool:
    fd = files.open_folder(name, spool)
    try:
        return not os.listdir(fd)
    finally:
        os.close(fd)


def _body_of(told: str, bare: Spooled, here: int, spool: stat_result) -> str:
    """The name of a mail's body, which meta.sh says lies at `told`.

    Only its name counts, and the folder's: a spool may have been moved with all that is in it.

    Raises:
        BadMail: it is named as nothing of this mail, or not there, or no plain file.
    """
    if not told:
        raise BadMail("Mail payload missing MAIL_BODY_FILE")
    folder, name = os.path.split(told)
    if os.path.basename(folder) != bare.id or name not in (HTML, TEXT):
        what = f"MAIL_BODY_FILE is {told[:80]!r}, expected {HTML} or {TEXT} beside it"
        raise BadMail(spool_entry.short(f"{META}: {what}"))
    # The other program calls every body body.html, and writes that of a text into body.txt.
    for there in dict.fromkeys((name, TEXT)):
        try:
            with spool_entry.opened(there, here, spool):
                return there
        except FileNotFoundError:
            continue
    raise BadMail(f"Mail body file not found: {spool_entry.short(told)}")
