"""Enqueue a mail: write and fsync all its files first, then create all its links.

Source: Kannader spool, section 6, "enqueue". The contents are written and synced before the
recipients, as Kannader's code does; its description has the recipients first. For Kannader both are
the same: it reads a mail only through a link, and all links come last. But after a kill in between,
the described order leaves recipients that look complete beside contents that are missing or torn,
and an operator could adopt such a mail. With the contents first, a complete recipient always has
complete contents.

Before anything else, a record of the mail is written to `.spooldeck/enqueuing`. The writer holds a
flock on it: a record without a holder belongs to a dead process, which never reported that mail as
accepted. Recovery deletes the mail, or, if one of its links exists already, creates the missing
links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress

from engine.formats.kannader import mail_format, sidecar
from engine.formats.kannader.cleanup import delete_notes, erase_mail, erase_target
from engine.formats.kannader.folder import FOLDER_MODE
from engine.formats.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, Json, LinkTarget
from engine.formats.kannader.moves import MailMover
from engine.formats.kannader.spool import KannaderSpool
from engine.model import State
from engine.store import Gone, StoreError, Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.decode import Malformed
from engine.text.error_text import error_text
from engine.text.typed_json import from_json
from engine.values import NamedTuple

FILE_MODE = 0o600
"""Mode of files (Kannader spool, section 1)."""

LINKING_MARK = b"linking\n"
"""Appended to the record once links may exist."""

ALREADY_ENQUEUED = "was enqueued completely; its record is deleted"

_CHUNK_BYTES = 1 << 16


class Recipient(NamedTuple):
    """One link to create, and the files of its recipient."""

    id: str
    dest: str
    metadata: bytes
    note: sidecar.AttemptNote = sidecar.EMPTY_NOTE


class EnqueueRecord(NamedTuple):
    """The record of a mail that is being enqueued."""

    mail: str
    links: tuple[tuple[str, str], ...]
    """Pairs of a link's id and the recipient folder it will lead to."""
    linking: bool = False
    """True if all files are durable and links may exist."""

    def targets(self) -> Iterator[tuple[str, LinkTarget]]:
        """Yield each id and its link target."""
        return ((ident, LinkTarget(self.mail, dest)) for ident, dest in self.links)

    def render(self) -> bytes:
        """Return the record as stored."""
        record: Json = {"mail": self.mail, "links": [[ident, dest] for ident, dest in self.links]}
        return mail_format.render_json(record) + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> EnqueueRecord:
        """Parse a stored record.

        Raises:
            Refused: it is torn, or not such a record.
        """
        head, newline, mark = data.partition(b"\n")
        if not newline:
            raise Refused("torn: a write was interrupted")
        try:
            record = from_json(cls, mail_format.parse_json(head), "record")
        except Malformed as error:
            raise Refused(f"not the record of a mail that is being enqueued: {error}") from error
        if not all(map(mail_format.is_uuid, (record.mail, *(dest for _, dest in record.links)))):
            raise Refused("the folder of the mail or of a recipient is no UUID")
        for ident, _ in record.links:
            mail_format.require_id(ident)
        return record._replace(linking=mark == LINKING_MARK)


def wire_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Convert a mail in pieces to wire form, as `mail_format.wire` does for a whole mail."""
    partial_line = b""
    for chunk in chunks:
        head, newline, tail = (partial_line + chunk).rpartition(b"\n")
        partial_line = tail
        if newline:
            yield mail_format.encode_wire(head + newline)[:-3]
    yield mail_format.encode_wire(partial_line)


def enqueue(
    spool: KannaderSpool,
    mover: MailMover,
    recipients: list[Recipient],
    contents: Iterable[bytes],
    schedule: bytes,
    created: float | None = None,
) -> None:
    """Write one mail to several recipients into the spool; durable on return.

    `contents` is the mail in wire form (see `wire_chunks`), in pieces of any size; every byte is
    kept.
    `created` (epoch seconds UTC) sets an earlier arrival time.

    Raises:
        Gone: a link of that name exists already; nothing changed.
        Unavailable: the disk refused; nothing was queued, or the message names what was.
    """
    spool.check()
    links = tuple((each.id, each.dest) for each in recipients)
    begun = EnqueueRecord(mail_format.new_uuid(), links)
    try:
        with closing_fd(_write_record(spool, begun)) as fd:
            try:
                _write_files(spool, begun.mail, recipients, contents, schedule)
                with mover.lock.held():
                    for each in recipients:
                        if link_exists(spool, each.id):
                            raise Gone(f"{each.id} is there already")
                    files.write_all(fd, LINKING_MARK)
                    files.fsync(fd)
                    _create_links(spool, begun, created)
            except _EnqueueInterrupted:
                raise
            except (OSError, StoreError):
                with suppress(OSError, Refused):  # if something remains, recovery finds the record
                    delete_unfinished(spool, begun)
                    files.unlink_quietly(begun.mail, spool.enqueuing.fd)
                raise
            with suppress(OSError):  # all links are durable; recovery finds nothing to do
                files.unlink_quietly(begun.mail, spool.enqueuing.fd)
    except OSError as error:
        raise Unavailable(f"the mail cannot be enqueued: {error_text(error)}") from error


class _EnqueueInterrupted(Unavailable):
    """Some links exist and could not be deleted."""


def _write_record(spool: KannaderSpool, begun: EnqueueRecord) -> int:
    """Write the record durably; return its descriptor, with its flock held."""
    _ = spool.staging.fd
    folder = spool.enqueuing
    fd = files.create_file(begun.mail, folder.fd, folder.owner, FILE_MODE)
    try:
        files.claim_flock(fd)
        files.write_all(fd, begun.render())
        files.fsync(fd)
        folder.sync()
    except OSError:
        os.close(fd)
        with suppress(OSError):  # a torn record has no effect, and recovery deletes it
            files.unlink_quietly(begun.mail, folder.fd)
        raise
    return fd


def _write_files(
    spool: KannaderSpool,
    mail: str,
    recipients: list[Recipient],
    contents: Iterable[bytes],
    schedule: bytes,
) -> None:
    owner = spool.data.owner
    files.make_folder(mail, spool.data.fd, FOLDER_MODE, owner)
    with closing_fd(files.open_folder(mail, spool.data.fd)) as fd:
        _write_file(CONTENTS, fd, owner, contents)
        for each in recipients:
            files.make_folder(each.dest, fd, FOLDER_MODE, owner)
            with closing_fd(files.open_folder(each.dest, fd)) as dest:
                _write_file(SCHEDULE, dest, owner, (schedule,))
                _write_file(METADATA, dest, owner, (each.metadata,))
                files.fsync(dest)
            if not each.note.is_empty:
                name = sidecar.note_name(LinkTarget(mail, each.dest))
                sidecar.save_note(name, each.note, spool.notes.fd)
        files.fsync(fd)


def _write_file(
    name: str, folder: int, owner: tuple[int, int] | None, chunks: Iterable[bytes]
) -> None:
    with closing_fd(files.create_file(name, folder, owner, FILE_MODE)) as fd:
        for chunk in chunks:
            for at in range(0, len(chunk), _CHUNK_BYTES):
                files.write_all(fd, chunk[at : at + _CHUNK_BYTES])
        files.fsync(fd)


def _create_links(spool: KannaderSpool, begun: EnqueueRecord, created: float | None) -> None:
    queue = spool.states[State.PENDING]
    made: list[str] = []
    try:
        for ident, target in begun.targets():
            files.symlink(target.text, ident, dir_fd=queue.fd)
            made.append(ident)
            if created is not None:
                _set_created(ident, queue.fd, created)
        queue.sync()
    except OSError as error:
        if _unlink_all(made, queue.fd):
            raise
        words = f"only some recipients were queued, run recover: {error_text(error)}"
        raise _EnqueueInterrupted(words) from error


def _set_created(ident: str, queue: int, created: float) -> None:
    with suppress(FileNotFoundError):  # Kannader has claimed it already, with the current time
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing_fd(os.open(ident, flags, dir_fd=queue)) as fd:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                files.utime(f"/proc/self/fd/{fd}", (created, created))


def _unlink_all(made: list[str], queue: int) -> bool:
    """Delete the links just created; False if one could not be deleted and may have been seen."""
    try:
        for ident in made:
            files.unlink(ident, dir_fd=queue)
    except OSError:
        return False
    return True


def link_exists(spool: KannaderSpool, ident: str) -> bool:
    """True if a link of this name exists in any folder."""
    return any(folder.contains(ident) for folder in spool.states.values())


def delete_unfinished(spool: KannaderSpool, begun: EnqueueRecord) -> None:
    """Delete all files of an unfinished mail.

    Raises:
        Refused, OSError: not everything could be deleted.
    """
    for _, target in begun.targets():
        erase_target(spool, target)
        delete_notes(spool, target)
    with (
        suppress(FileNotFoundError),
        closing_fd(files.open_folder(begun.mail, spool.data.fd)) as fd,
    ):
        erase_mail(spool, begun.mail, fd)


def finish_interrupted(
    spool: KannaderSpool, begun: EnqueueRecord, linked: Container[LinkTarget]
) -> str:
    """Complete or roll back an interrupted enqueue, under the spool lock; return the repairs.

    `linked` holds every recipient that any link leads to.
    """
    lacking = [(i, t) for i, t in begun.targets() if t not in linked and _dest_exists(spool, t)]
    queue = spool.states[State.PENDING]
    if not begun.linking or len(lacking) == len(begun.links):
        delete_unfinished(spool, begun)
        outcome = "was not enqueued completely and not reported as accepted; deleted"
    else:
        # Another of its links existed, and may be sent by now: this mail was accepted.
        for ident, target in lacking:
            name = mail_format.new_uuid() if link_exists(spool, ident) else ident
            files.symlink(target.text, name, dir_fd=queue.fd)
        queue.sync()
        done = f"{len(lacking)} of its recipients got their links"
        outcome = done if lacking else ALREADY_ENQUEUED
    files.unlink_quietly(begun.mail, spool.enqueuing.fd)
    return outcome


def _dest_exists(spool: KannaderSpool, target: LinkTarget) -> bool:
    try:
        with spool.open_dest(target):
            return True
    except Refused:
        return False
