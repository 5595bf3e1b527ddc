"""List and read the parts of a mail: the image of one recipient, and the shared contents.

The image holds everything that a change may alter: link, schedule, envelope and our note. Each
follows a line with its name and its length in bytes, so that undo can write it back byte for byte
and an operator can read it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from engine.formats.kannader import sidecar
from engine.formats.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, is_uuid
from engine.formats.kannader.spool import KannaderSpool, MailEntry, open_guarded
from engine.model import Part
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text import decode
from engine.values import NamedTuple

TASK_PART = "task"
_IMAGE_FIELDS = ("id", "link", SCHEDULE, METADATA, "noted")


class MailImage(NamedTuple):
    """A parsed image."""

    link: bytes
    """The target text of the link."""
    schedule: bytes
    metadata: bytes
    note: sidecar.AttemptNote


def build_image(mail: MailEntry) -> bytes:
    """Build the image: everything stored for one recipient, without the contents."""
    note = mail.note.unstaged
    values = (
        mail.link.id.encode(),
        mail.link.target.text.encode(),
        mail.schedule.data,
        mail.metadata.data,
        b"" if note.is_empty else sidecar.render_note(note),
    )
    pieces = zip(_IMAGE_FIELDS, values, strict=True)
    return b"".join(b"%s %d\n%s\n" % (name.encode(), len(data), data) for name, data in pieces)


def parse_image(image: bytes, ident: str) -> MailImage:
    """Parse the image of the task with this id.

    Raises:
        Refused: it is not an image, or of another mail.
    """
    sections: dict[str, bytes] = {}
    unparsed = image
    for name in _IMAGE_FIELDS:
        head, newline, unparsed = unparsed.partition(b"\n")
        word, _, length = head.partition(b" ")
        size = decode.parse_digits(length)
        if not newline or word != name.encode() or size is None:
            raise Refused(f"not an image of a mail: no {name}")
        sections[name], unparsed = unparsed[:size], unparsed[size + 1 :]
    if unparsed or sections["id"] != ident.encode():
        raise Refused("the image is of another mail")
    note = sidecar.parse_note(sections["noted"]) if sections["noted"] else sidecar.EMPTY_NOTE
    return MailImage(sections["link"], sections[SCHEDULE], sections[METADATA], note)


def list_parts(spool: KannaderSpool, mail: MailEntry) -> Iterator[Part]:
    """Yield the parts of a mail: the recipient's image and the shared contents."""
    link = mail.link
    facts = (
        ("modified", f"{link.file_stat.st_mtime:.0f}"),
        ("changed", f"{link.file_stat.st_ctime:.0f}"),
        ("link", link.target.text),
    )
    yield Part(TASK_PART, f"{spool.root}/{link.where}", len(build_image(mail)), facts)
    contents_stat = mail.contents
    if contents_stat is None:
        return
    try:
        recipients = sum(map(bool, map(is_uuid, spool.list_mail_folder(link.target.mail))))
    except FileNotFoundError:
        return  # deleted in between
    facts = (
        ("modified", f"{contents_stat.st_mtime:.0f}"),
        ("mode", stat.filemode(contents_stat.st_mode)),
        ("recipients", str(recipients)),
    )
    path = f"{spool.root}/data/{link.target.mail}/{CONTENTS}"
    why = files.file_problem(contents_stat, os.fstat(spool.data.fd))
    why = why.removesuffix(", not a task file")
    yield Part(CONTENTS, path, contents_stat.st_size, facts, why, is_wire_format=True)


def open_contents(spool: KannaderSpool, mail: str) -> int:
    """Open the contents of a mail, in wire form; return the descriptor.

    Raises:
        FileNotFoundError: there are none.
        Refused: they are not a plain file.
        OSError: they cannot be opened now, or not by this user.
    """
    with closing_fd(files.open_folder(mail, spool.data.fd)) as folder:
        fd = open_guarded(CONTENTS, folder, os.fstat(spool.data.fd))
        why = files.file_problem(os.fstat(fd), os.fstat(folder))
    if why:
        os.close(fd)
        raise Refused(f"{CONTENTS}: {why}")
    return fd


def read_start(fd: int, limit: int) -> bytes:
    """Read the first bytes of an open file and close it."""
    with closing_fd(fd):
        return os.read(fd, limit)
