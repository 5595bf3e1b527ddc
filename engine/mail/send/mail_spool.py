"""The mail spool: one folder for each mail that waits for another attempt, with body and marks.

A folder is written completely and then renamed to its final name. Mark files in it record what
happened to the mail. So a crash leaves a complete mail, and the marks show whether an attempt was
running.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import stat_result
from typing import TYPE_CHECKING

from engine.mail.model import BadMail
from engine.mail.send import spool_entry
from engine.mail.send.spool_entry import (
    HTML,
    INCOMPLETE_PREFIX,
    MAIL_FOLDER_PREFIX,
    META,
    QUEUING,
    REFUSED,
    SENT,
    TEXT,
    TRYING,
    UNQUEUED,
    SpoolMark,
)
from engine.mail.spool_meta import parse_meta
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.mail.message.content import Content

INCOMPLETE_MAX_AGE_SECONDS = 3600.0
"""Seconds after which an incomplete folder is abandoned; writing one takes far less than the
longest attempt."""

SENT_RETENTION_SECONDS = 7 * 86400.0
"""Seconds to keep an accepted mail that its task did not remove. As long as dead tasks are kept:
while the task may be retried, this shows that the mail was sent."""


class Spooled(NamedTuple):
    """A mail in the spool. Its values come from outside: make them safe before showing them."""

    id: str
    folder: str
    meta: str
    """Path of its meta.sh; tasks refer to the mail by it."""
    to: str = ""
    subject: str = ""
    body: str = ""
    """Path of its body, in the same folder as meta.sh."""
    html: bool = False
    created: float = 0
    """When it was spooled, epoch seconds UTC."""
    sent: SpoolMark | None = None
    """The accepted attempt. If set, the other fields may be empty."""
    trying: SpoolMark | None = None
    """The attempt that began and whose result is unknown."""
    refused: str = ""
    """Why no attempt can succeed; "" if that was not recorded."""
    unqueued: bool = False
    """True if no task could be made for it."""
    queuing: bool = False
    """True if its sender has not made its task yet, or was killed before that."""

    @property
    def composed_at(self) -> float:
        """When it was composed, before the first attempt, epoch seconds UTC: from its name, else
        `created`."""
        named = spool_entry.time_in_id(self.id)
        return self.created if named is None else named


class Broken(NamedTuple):
    """A spool folder with the name of a mail that cannot be read as one."""

    id: str
    """The name of the folder: make it safe before showing it."""
    why: str


class MailSpool:
    """The folder of spooled mails, and the operations on one mail. A method raises OSError if the
    spool or the mail cannot be read or changed now, and BadMail if the mail does not exist or can
    never be sent."""

    def __init__(self, folder: str, root: str = "", clock: Callable[[], float] = time.time) -> None:
        """`root` is the data folder; below it no symbolic link is followed."""
        self.folder = folder.rstrip("/")
        self._root = root
        self._clock = clock

    def meta_path(self, id: str) -> str:
        """Return the path by which a task refers to the mail."""
        return f"{self.folder}/{id}/{META}"

    # ---- storing

    def store_mail(
        self,
        id: str,
        to: str,
        subject: str,
        content: Content,
        refused: str = "",
        trying: SpoolMark | None = None,
    ) -> str:
        """Store a new mail durably (fsync); return the path of its meta.sh. `refused` is the reason
        why no attempt can succeed: the next reader need not make one. `trying` is an earlier
        attempt whose result is unknown. Until `mark_queued` is called, a mark shows that the mail
        has no task. After an error no folder with this id is left."""
        if not spool_entry.is_id(id):
            raise _not_an_id(id)
        body = HTML if content.html else TEXT
        text = content.text if content.text.endswith("\n") else content.text + "\n"
        parts = {
            # Text that UTF-8 cannot encode cannot be sent either.
            body: text.encode("utf-8", "replace"),
            META: files.format_assignments(
                _meta_values(to, subject, f"{self.folder}/{id}/{body}", self._clock()), utf8=True
            ),
        }
        parts[QUEUING] = files.format_assignments({"SINCE": str(int(self._clock()))})
        if refused:
            parts[REFUSED] = spool_entry.render_refusal(refused)
        if trying is not None:
            parts[TRYING] = spool_entry.render_attempt(*trying)
        spool = self._enter(make=True)
        try:
            spool_entry.create_folder(id, parts, spool)
        except OSError as error:
            raise OSError(error.errno, error_text(error), f"{self.folder}/{id}") from error
        finally:
            os.close(spool)
        return self.meta_path(id)

    # ---- reading

    def read(self, meta: str) -> Spooled:
        """Read the mail to whose meta.sh a task refers."""
        id = self._id_of(meta)
        try:
            with self._open_mail(id) as (mail_fd, spool):
                return self._read(id, mail_fd, spool)
        except FileNotFoundError:
            raise BadMail(
                f"Mail payload file not found: {spool_entry.shorten_text(meta)}"
            ) from None

    def body(self, spooled: Spooled, limit: int) -> bytes:
        """Read the body of a mail, at most `limit` bytes."""
        try:
            with self._open_mail(spooled.id) as (mail_fd, spool):
                name = os.path.basename(spooled.body)
                return spool_entry.read_file(name, mail_fd, spool, limit)[0]
        except FileNotFoundError:
            raise BadMail(
                f"Mail body file not found: {spool_entry.shorten_text(spooled.body)}"
            ) from None

    def preview_file(self, id: str, name: str = META, limit: int = 4096) -> bytes:
        """Read the first bytes of one file of a mail, valid or not, as a preview."""
        if "/" in name:
            raise BadMail(f"{spool_entry.shorten_text(name)}: not a file of a mail")
        try:
            with (
                self._open_mail(id) as (mail_fd, spool),
                spool_entry.open_file(name, mail_fd, spool) as fd,
            ):
                return os.read(fd, limit)
        except FileNotFoundError:
            raise BadMail(
                f"{spool_entry.shorten_text(id)}: no {spool_entry.shorten_text(name)} there"
            ) from None

    def read_all(self) -> Iterator[Spooled | Broken]:
        """Yield every mail of the spool, oldest first by the time in its name, names without a time
        last."""
        for id in sorted(self._list_names(MAIL_FOLDER_PREFIX), key=spool_entry.age_sort_key):
            try:
                yield self.read(self.meta_path(id))
            except BadMail as bad:
                yield Broken(id, str(bad))
            except OSError as error:
                yield Broken(id, f"cannot be read now: {error_text(error)}")

    def depth_and_oldest(self, now: float) -> tuple[int, float]:
        """Return the number of unsent mails and the age of the oldest in seconds, 0 if there is
        none. A folder without a meta.sh is not counted: the other program leaves it after it has
        sent a mail. No file is opened, so a full spool costs little."""
        names = self._list_names(MAIL_FOLDER_PREFIX)
        if not names:
            return 0, 0.0
        with self._open_spool() as spool:
            waiting = [
                name
                for name in names
                if spool_entry.name_exists(f"{name}/{META}", spool)
                and not spool_entry.name_exists(f"{name}/{SENT}", spool)
            ]
            oldest = spool_entry.oldest_time(waiting, spool)
        return len(waiting), max(0.0, now - oldest)

    def _read(self, id: str, mail_fd: int, spool: stat_result) -> Spooled:
        sent = spool_entry.read_mark(SENT, mail_fd, spool)
        bare = Spooled(id, f"{self.folder}/{id}", self.meta_path(id), sent=sent)
        try:
            return self._read_values(bare, mail_fd, spool)
        except (BadMail, FileNotFoundError):
            if sent is None:
                raise
            return bare  # removal was interrupted, and there is nothing left to send

    def _read_values(self, bare: Spooled, mail_fd: int, spool: stat_result) -> Spooled:
        data, _ = spool_entry.read_file(META, mail_fd, spool, files.MAX_TASK_BYTES)
        try:
            values = parse_meta(data)
        except Refused as refusal:
            raise BadMail(spool_entry.shorten_text(f"{META}: {refusal}")) from refusal
        body = _body_name(values.get("MAIL_BODY_FILE", ""), bare, mail_fd, spool)
        epoch = values.get("MAIL_CREATED_EPOCH", "")
        is_epoch = epoch.isascii() and epoch.isdigit() and len(epoch) < 12
        why = spool_entry.read_mark_values(REFUSED, mail_fd, spool)
        return bare._replace(
            to=spool_entry.decode_text(values.get("MAIL_TO", "")),
            subject=spool_entry.decode_text(values.get("MAIL_SUBJECT", "")),
            body=f"{bare.folder}/{body}",
            html=body == HTML,
            created=float(epoch)
            if is_epoch
            else spool_entry.time_in_id(bare.id) or os.fstat(mail_fd).st_mtime,
            trying=spool_entry.read_mark(TRYING, mail_fd, spool),
            refused="" if why is None else why[0].get("WHY") or "refused before",
            unqueued=spool_entry.read_mark_values(UNQUEUED, mail_fd, spool) is not None,
            queuing=spool_entry.read_mark_values(QUEUING, mail_fd, spool) is not None,
        )

    def _id_of(self, meta: str) -> str:
        """Return the id of the mail that has this path of meta.sh."""
        if not meta:
            raise BadMail("Mail payload file not found: the task names none")
        id = os.path.basename(os.path.dirname(meta))
        if meta != self.meta_path(id) or not id.startswith(MAIL_FOLDER_PREFIX):
            expected = f"{self.folder}/{MAIL_FOLDER_PREFIX}*/{META}"
            raise BadMail(
                f"{spool_entry.shorten_text(meta)}: not a mail of this spool, expected {expected}"
            )
        return id

    # ---- marks

    def mark_trying(self, spooled: Spooled, transport: str, now: float) -> None:
        """Mark that a transport is about to be asked; durable on return (fsync). Raises OSError:
        the mark could not be written. An attempt now could send the mail twice without notice."""
        with self._open_mail(spooled.id) as (mail_fd, _):
            files.replace_durably(TRYING, mail_fd, spool_entry.render_attempt(transport, now))

    def mark_sent(self, spooled: Spooled, transport: str, now: float) -> None:
        """Mark that the transport accepted the mail, so that it is not sent again. Raises OSError:
        the mark could not be written. Another attempt would send the mail twice."""
        with self._open_mail(spooled.id) as (mail_fd, _):
            try:
                # A rename needs no free space on a full disk.
                files.rename(TRYING, SENT, src_dir_fd=mail_fd, dst_dir_fd=mail_fd)
            except FileNotFoundError:
                files.replace_durably(SENT, mail_fd, spool_entry.render_attempt(transport, now))
            else:
                files.fsync(mail_fd)

    def mark_failed(self, spooled: Spooled, refused: str = "") -> None:
        """Remove the mark of an attempt that failed, or restore the one before it; mark with
        `refused`, if set, why no attempt can succeed. `spooled` is the mail as read before the
        attempt; if it had a mark of an attempt with an unknown result, that mark is written again.
        Not durable: a mark that returns after a crash only causes a needless warning."""
        with self._open_mail(spooled.id) as (mail_fd, _):
            if spooled.trying is not None:
                files.replace_durably(TRYING, mail_fd, spool_entry.render_attempt(*spooled.trying))
            else:
                files.unlink_quietly(TRYING, mail_fd)
            if refused:
                files.replace_durably(REFUSED, mail_fd, spool_entry.render_refusal(refused))

    def take_refusal(self, spooled: Spooled) -> str:
        """Return why no attempt can succeed; remove that mark, so that a retry makes an attempt."""
        if spooled.refused:
            with self._open_mail(spooled.id) as (mail_fd, _):
                files.unlink_quietly(REFUSED, mail_fd)
        return spooled.refused

    def set_recipient(self, spooled: Spooled, to: str) -> None:
        """Replace the recipient of a mail, durably (fsync). Raises OSError: it could not be
        written; the mail is unchanged."""
        values = _meta_values(to, spooled.subject, spooled.body, spooled.created)
        with self._open_mail(spooled.id) as (mail_fd, _):
            files.replace_durably(META, mail_fd, files.format_assignments(values, utf8=True))

    def mark_unqueued(self, id: str) -> None:
        """Mark that queueing failed, so that `queue_unqueued` need not wait for the sender."""
        with self._open_mail(id) as (mail_fd, _):
            try:
                # A rename needs no free space on a full disk.
                files.rename(QUEUING, UNQUEUED, src_dir_fd=mail_fd, dst_dir_fd=mail_fd)
            except FileNotFoundError:
                files.replace_durably(
                    UNQUEUED, mail_fd, files.format_assignments({"SINCE": str(int(self._clock()))})
                )

    def mark_queued(self, id: str) -> None:
        """Remove the marks of a missing task; a worker may have delivered and removed the mail
        already."""
        try:
            with self._open_mail(id) as (mail_fd, _):
                files.unlink_quietly(QUEUING, mail_fd)
                files.unlink_quietly(UNQUEUED, mail_fd)
        except FileNotFoundError:
            return

    def find_unqueued(self, before: float) -> Iterator[str]:
        """Yield the ids of mails that are marked as having no task. While the sender may still make
        the task, only mails spooled before `before` (epoch seconds UTC) count. No file is
        opened."""
        names = self._list_names(MAIL_FOLDER_PREFIX)
        if not names:
            return
        with self._open_spool() as spool:
            for name in names:
                if spool_entry.name_exists(f"{name}/{UNQUEUED}", spool):
                    yield name
                elif spool_entry.name_exists(f"{name}/{QUEUING}", spool):
                    with suppress(FileNotFoundError):  # its task was made in this moment
                        mark = os.stat(f"{name}/{QUEUING}", dir_fd=spool, follow_symlinks=False)
                        if mark.st_mtime < before:
                            yield name

    @contextmanager
    def lock_mail(self, id: str, patience: float = files.FLOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Hold the lock (flock on the mail's folder) that is required to make a task for the mail.

        Wait at most `patience` seconds for it.

        Raises:
            BadMail: the mail does not exist any more.
            TimeoutError: another process holds the lock.
        """
        try:
            mail_fd = files.open_folder(f"{self.folder}/{id}")
        except FileNotFoundError as error:
            raise BadMail(f"{id}: the mail does not exist any more") from error
        try:
            with files.Flock(mail_fd, patience):
                yield
        finally:
            os.close(mail_fd)

    def remove(self, spooled: Spooled) -> None:
        """Remove a mail with all its files; the mark of a sent mail goes last. Raises OSError: its
        folder contains another file, or it cannot be removed now."""
        with self._open_spool() as spool:
            files.remove_folder(spooled.id, spool, (META, SENT))

    def sweep(self, age: Callable[[float], float]) -> list[str]:
        """Remove mails that were sent more than `SENT_RETENTION_SECONDS` seconds ago, and
        incomplete folders; `age` gives the seconds since a moment. Return one line for each removal
        and each failure."""
        lines: list[str] = []
        names = sorted(self._list_names(MAIL_FOLDER_PREFIX, INCOMPLETE_PREFIX))
        if not names:
            return lines
        with self._open_spool() as spool:
            for name in names:
                why = _why_removable(name, spool, age)
                if not why:
                    continue
                try:
                    files.remove_folder(name, spool, (META, SENT))
                except OSError as error:
                    lines.append(
                        f"{safe_line(name)}: {why}, cannot be removed: {error_text(error)}"
                    )
                else:
                    lines.append(f"{safe_line(name)}: {why}, removed")
        return lines

    # ---- folders

    def _enter(self, *, make: bool = False) -> int:
        """Open the spool folder; errors contain its full path."""
        try:
            return files.open_dir(self.folder, self._root, make=make)
        except NotADirectoryError as error:
            # Some administrators move the spool to another disk and leave a symbolic link.
            hint = f"{error_text(error)}; if the spool is elsewhere, set NFTBAN_MAIL_SPOOL_DIR"
            raise NotADirectoryError(error.errno, hint, self.folder) from error
        except OSError as error:
            raise OSError(error.errno, error_text(error), self.folder) from error

    @contextmanager
    def _open_spool(self) -> Iterator[int]:
        spool = self._enter()
        try:
            yield spool
        finally:
            os.close(spool)

    def _list_names(self, *beginnings: str) -> list[str]:
        """Return the names in the spool with one of these prefixes; none if there is no spool."""
        try:
            with self._open_spool() as spool:
                return [name for name in os.listdir(spool) if name.startswith(beginnings)]
        except FileNotFoundError:
            return []

    @contextmanager
    def _open_mail(self, id: str) -> Iterator[tuple[int, stat_result]]:
        """Open the folder of a mail; yield its descriptor and the stat of the spool.

        Raises:
            FileNotFoundError: there is no such folder.
            BadMail: it is not a folder, or its owner may not put mail into the spool.
            OSError: it cannot be opened now.
        """
        where = f"{self.folder}/{spool_entry.shorten_text(id)}"
        if "/" in id or not id.startswith(MAIL_FOLDER_PREFIX):
            raise _not_an_id(id)
        with self._open_spool() as spool:
            spool_stat = os.fstat(spool)
            try:
                mail_fd = files.open_folder(id, spool)
            except NotADirectoryError as error:
                raise BadMail(f"{where}: a symbolic link or not a folder, not opened") from error
        try:
            if why := files.owner_problem(os.fstat(mail_fd), spool_stat):
                raise BadMail(f"{where}: {why}")
            yield mail_fd, spool_stat
        finally:
            os.close(mail_fd)


def _not_an_id(id: str) -> BadMail:
    expected = f"expected {MAIL_FOLDER_PREFIX}STAMP-RANDOM"
    return BadMail(f"{spool_entry.shorten_text(id)}: not a mail id, {expected}")


def _why_removable(name: str, spool: int, age: Callable[[float], float]) -> str:
    """Return why a folder can be removed; "" if it must stay."""
    try:
        folder_stat = os.stat(name, dir_fd=spool, follow_symlinks=False)
        if name.startswith(INCOMPLETE_PREFIX):
            return "incomplete" if age(folder_stat.st_mtime) > INCOMPLETE_MAX_AGE_SECONDS else ""
        if spool_entry.name_exists(f"{name}/{SENT}", spool):
            sent = os.stat(f"{name}/{SENT}", dir_fd=spool, follow_symlinks=False)
            is_old = age(sent.st_mtime) > SENT_RETENTION_SECONDS
            return "sent more than 7 days ago" if is_old else ""
        empty = not spool_entry.name_exists(f"{name}/{META}", spool) and _is_empty(name, spool)
        return (
            "is empty" if empty and age(folder_stat.st_mtime) > INCOMPLETE_MAX_AGE_SECONDS else ""
        )
    except OSError:
        return ""  # not a folder, removed in between, or no permission


def _is_empty(name: str, spool: int) -> bool:
    fd = files.open_folder(name, spool)
    try:
        return not os.listdir(fd)
    finally:
        os.close(fd)


def _meta_values(to: str, subject: str, body: str, created: float) -> dict[str, str]:
    """Return the values of meta.sh, in the order of the contract."""
    return {
        "MAIL_TO": spool_entry.encode_text(to),
        "MAIL_SUBJECT": spool_entry.encode_text(subject),
        "MAIL_BODY_FILE": body,
        "MAIL_CREATED_EPOCH": str(int(created)),
    }


def _body_name(recorded: str, bare: Spooled, mail_fd: int, spool: stat_result) -> str:
    """Return the name of the body file to which MAIL_BODY_FILE of meta.sh refers.

    Only the last two parts of the path count, so a spool can be moved as a whole.

    Raises:
        BadMail: the path does not belong to this mail, or the file is missing or not a plain file.
    """
    if not recorded:
        raise BadMail("Mail payload missing MAIL_BODY_FILE")
    folder, name = os.path.split(recorded)
    if os.path.basename(folder) != bare.id or name not in (HTML, TEXT):
        what = f"MAIL_BODY_FILE is {recorded[:80]!r}, expected {HTML} or {TEXT} in the same folder"
        raise BadMail(spool_entry.shorten_text(f"{META}: {what}"))
    # The other program records body.html for every body, but writes a text body to body.txt.
    for candidate in dict.fromkeys((name, TEXT)):
        try:
            with spool_entry.open_file(candidate, mail_fd, spool):
                return candidate
        except FileNotFoundError:
            continue
    raise BadMail(f"Mail body file not found: {spool_entry.shorten_text(recorded)}")
