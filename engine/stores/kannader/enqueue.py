"""How a mail is put into the spool: all of it first, then every link, and not one before.

Kannader spool, section 6, "enqueue". The contents are written and synced before the recipients, as
Kannader's code does it; its description has the recipients first. For Kannader both are the same:
it reads a mail only through a link, and all links come last. But killed in between, the described
order leaves recipients that look whole beside contents that are missing or torn, and an operator
could adopt such a mail. With the contents first, a whole recipient always has whole contents.

Before anything else, what is to be enqueued is written to a file in `.spooldeck/enqueuing`, whose
flock the writer keeps: a file without a holder is what a dead process had begun. No caller was told
of such a mail: unless one of its links exists already, it is removed; else the other recipients get
their links.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from engine.model import State
from engine.store import Gone, StoreError, Unavailable
from engine.stores.kannader import mail_format, sidecar
from engine.stores.kannader.cleanup import erase_mail, erase_target, forget_notes
from engine.stores.kannader.folder import MODE
from engine.stores.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, Json, LinkTarget
from engine.stores.kannader.moves import MailMover
from engine.stores.kannader.spool import KannaderSpool
from engine.system import files
from engine.system.files import Refused

FILE_MODE = 0o600
"""Kannader spool, section 1."""

LINKING = b"linking\n"
"""Stands behind what is written down of a mail once its links may be there."""

ENQUEUED = "was enqueued to its end, and is only forgotten"

_CHUNK = 1 << 16


class Recipient(NamedTuple):
    """One link to be made, and what its recipient's folder shall hold."""

    id: str
    dest: str
    metadata: bytes
    note: sidecar.AttemptNote = sidecar.NOTHING


class Begun(NamedTuple):
    """A mail that is being enqueued."""

    mail: str
    links: tuple[tuple[str, str], ...]
    """The id of each link, and the recipient's folder that it will lead to."""
    linking: bool = False
    """Whether all of it is built and durable, and links have been made."""

    def targets(self) -> Iterator[tuple[str, LinkTarget]]:
        """The ids, and where each leads."""
        return ((ident, LinkTarget(self.mail, dest)) for ident, dest in self.links)

    def render(self) -> bytes:
        """As it is written down."""
        said: Json = {"mail": self.mail, "links": [[ident, dest] for ident, dest in self.links]}
        return mail_format.json_bytes(said) + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Begun:
        """As it was written down.

        Raises:
            Refused: it is torn, or none of ours.
        """
        head, newline, rest = data.partition(b"\n")
        if not newline:
            raise Refused("torn: a write was interrupted")
        said = mail_format.parse_json(head)
        if not isinstance(said, dict) or not isinstance(said.get("links"), list):
            raise Refused("no note of a mail that is being enqueued")
        mail, links = said.get("mail"), said["links"]
        assert isinstance(links, list)
        pairs = []
        for pair in links:
            if not isinstance(pair, list) or len(pair) != 2:
                raise Refused("no pair of a link and a recipient")
            ident, dest = (str(word) for word in pair)
            if not mail_format.is_uuid(dest):
                raise Refused("a recipient's folder is no UUID")
            pairs.append((mail_format.require_id(ident), dest))
        if not isinstance(mail, str) or not mail_format.is_uuid(mail):
            raise Refused("a mail's folder is no UUID")
        return cls(mail, tuple(pairs), rest == LINKING)


def wired(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A mail in pieces, as `form.wire` has it of a whole one."""
    rest = b""
    for chunk in chunks:
        head, newline, tail = (rest + chunk).rpartition(b"\n")
        rest = tail
        if newline:
            yield mail_format.wire(head + newline)[:-3]
    yield mail_format.wire(rest)


def enqueue(
    spool: KannaderSpool,
    desk: MailMover,
    recipients: list[Recipient],
    contents: Iterable[bytes],
    schedule: bytes,
    created: float | None = None,
) -> None:
    """Put one mail to several recipients into the spool; durable when it returns.

    `contents` is the mail in wire form (`wired`), in pieces of any size; every byte of it is kept.
    `created` (epoch seconds UTC) is for one that is older than this moment.

    Raises:
        Gone: a link of that name is there already; nothing changed.
        Unavailable: the disk refused; nothing is in the queue, or what is there of it is said.
    """
    spool.check()
    begun = Begun(mail_format.new_uuid(), tuple((each.id, each.dest) for each in recipients))
    try:
        fd = _write_down(spool, begun)
        try:
            _carry_out(spool, desk, begun, recipients, contents, schedule, created, fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise Unavailable(f"the mail cannot be enqueued: {error.strerror}") from error


def _carry_out(
    spool: KannaderSpool,
    desk: MailMover,
    begun: Begun,
    recipients: list[Recipient],
    contents: Iterable[bytes],
    schedule: bytes,
    created: float | None,
    fd: int,
) -> None:
    try:
        _build(spool, begun.mail, recipients, contents, schedule)
        with desk.locked():
            taken = next((ident for ident, _ in begun.links if stands(spool, ident)), None)
            if taken is not None:
                raise Gone(f"{taken} is there already")
            files.write_all(fd, LINKING)
            files.fsync(fd)
            _publish(spool, begun, created)
    except _EnqueueInterrupted:
        raise
    except (OSError, StoreError):
        with suppress(OSError, Refused):  # if something stays, recovery knows of it
            remove(spool, begun)
            files.forget(begun.mail, spool.begun.fd)
        raise
    with suppress(OSError):  # all links are durable; recovery finds nothing to do
        files.forget(begun.mail, spool.begun.fd)


class _EnqueueInterrupted(Unavailable):
    """Some links stand, and could not be taken back."""


def _write_down(spool: KannaderSpool, begun: Begun) -> int:
    """The file that says what is being enqueued, durable, in our hand."""
    _ = spool.desk.fd
    folder = spool.begun
    fd = files.create(begun.mail, folder.fd, folder.owner, FILE_MODE)
    try:
        files.claim_flock(fd)
        files.write_all(fd, begun.render())
        files.fsync(fd)
        folder.sync()
    except OSError:
        os.close(fd)
        with suppress(OSError):  # a torn one says nothing, and recovery deletes it
            files.forget(begun.mail, folder.fd)
        raise
    return fd


def _build(
    spool: KannaderSpool,
    mail: str,
    recipients: list[Recipient],
    contents: Iterable[bytes],
    schedule: bytes,
) -> None:
    owner = spool.data.owner
    files.make_folder(mail, spool.data.fd, MODE, owner)
    fd = files.open_folder(mail, spool.data.fd)
    try:
        _write(CONTENTS, fd, owner, contents)
        for each in recipients:
            files.make_folder(each.dest, fd, MODE, owner)
            dest = files.open_folder(each.dest, fd)
            try:
                _write(SCHEDULE, dest, owner, (schedule,))
                _write(METADATA, dest, owner, (each.metadata,))
                files.fsync(dest)
            finally:
                os.close(dest)
            if not each.note.is_empty:
                sidecar.keep(
                    sidecar.name_of(LinkTarget(mail, each.dest)), each.note, spool.notes.fd
                )
        files.fsync(fd)
    finally:
        os.close(fd)


def _write(name: str, folder: int, owner: tuple[int, int] | None, chunks: Iterable[bytes]) -> None:
    fd = files.create(name, folder, owner, FILE_MODE)
    try:
        for chunk in chunks:
            for at in range(0, len(chunk), _CHUNK):
                files.write_all(fd, chunk[at : at + _CHUNK])
        files.fsync(fd)
    finally:
        os.close(fd)


def _publish(spool: KannaderSpool, begun: Begun, created: float | None) -> None:
    queue = spool.states[State.PENDING]
    made: list[str] = []
    try:
        for ident, target in begun.targets():
            files.symlink(target.text, ident, dir_fd=queue.fd)
            made.append(ident)
            if created is not None:
                _date(ident, queue.fd, created)
        queue.sync()
    except OSError as error:
        if _unpublished(made, queue.fd):
            raise
        words = f"interrupted between its recipients, to be recovered: {error.strerror}"
        raise _EnqueueInterrupted(words) from error


def _date(ident: str, queue: int, created: float) -> None:
    with suppress(FileNotFoundError):  # a Kannader has it already, as new
        files.utime(ident, (created, created), dir_fd=queue, follow_symlinks=False)


def _unpublished(made: list[str], queue: int) -> bool:
    """Whether every link that was made could be taken back, so that nobody has seen any."""
    try:
        for ident in made:
            files.unlink(ident, dir_fd=queue)
    except OSError:
        return False
    return True


def stands(spool: KannaderSpool, ident: str) -> bool:
    """Whether a link of this name stands anywhere."""
    return any(folder.holds(ident) for folder in spool.states.values())


def remove(spool: KannaderSpool, begun: Begun) -> None:
    """Remove all that was built of a mail.

    Raises:
        Refused, OSError: something of it stays.
    """
    for _, target in begun.targets():
        erase_target(spool, target)
        forget_notes(spool, target)
    try:
        fd = files.open_folder(begun.mail, spool.data.fd)
    except FileNotFoundError:
        return
    try:
        erase_mail(spool, begun.mail, fd)
    finally:
        os.close(fd)


def finish(spool: KannaderSpool, begun: Begun, linked: Container[LinkTarget]) -> str:
    """End what a dead process had begun, while `locked`; says what was done.

    `linked` is every recipient that a link leads to, anywhere.
    """
    lacking = [(i, t) for i, t in begun.targets() if t not in linked and _is_there(spool, t)]
    queue = spool.states[State.PENDING]
    if not begun.linking or len(lacking) == len(begun.links):
        remove(spool, begun)
        said = "was never enqueued to its end, and nobody was told so; taken away"
    else:
        # Another of its links stood, and may be sent by now: this mail was accepted.
        for ident, target in lacking:
            name = mail_format.new_uuid() if stands(spool, ident) else ident
            files.symlink(target.text, name, dir_fd=queue.fd)
        queue.sync()
        said = f"{len(lacking)} of its recipients got their links" if lacking else ENQUEUED
    files.forget(begun.mail, spool.begun.fd)
    return said


def _is_there(spool: KannaderSpool, target: LinkTarget) -> bool:
    try:
        with spool.dest(target):
            return True
    except Refused:
        return False
