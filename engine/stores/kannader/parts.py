"""What there is of a mail, to be shown, and to be put back byte for byte.

The first part is an image of all that a change may alter: the link, the schedule, the envelope and
what we noted. Each stands behind a line with its name and its length in bytes, so that it is kept
as it is and can be read by eye.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from engine.model import Part
from engine.stores.kannader import sidecar
from engine.stores.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, is_uuid
from engine.stores.kannader.spool import KannaderSpool, MailEntry, open_guarded
from engine.system import files
from engine.system.files import Refused
from engine.text import decode

TASK = "task"
_ORDER = ("id", "link", SCHEDULE, METADATA, "noted")


class Image(NamedTuple):
    """What an image holds."""

    link: bytes
    """What the link says."""
    schedule: bytes
    metadata: bytes
    note: sidecar.AttemptNote


def image_of(mail: MailEntry) -> bytes:
    """All that is stored of one recipient of a mail, but for the contents."""
    ours = mail.note._replace(start="", since=0)
    values = (
        mail.link.id.encode(),
        mail.link.target.text.encode(),
        mail.schedule.data,
        mail.metadata.data,
        b"" if ours.is_empty else sidecar.render(ours),
    )
    pieces = zip(_ORDER, values, strict=True)
    return b"".join(b"%s %d\n%s\n" % (name.encode(), len(data), data) for name, data in pieces)


def parse_image(image: bytes, ident: str) -> Image:
    """What an image of the task of this id holds.

    Raises:
        Refused: it is none, or of another mail.
    """
    found: dict[str, bytes] = {}
    rest = image
    for name in _ORDER:
        head, newline, rest = rest.partition(b"\n")
        word, _, length = head.partition(b" ")
        size = decode.digits(length)
        if not newline or word != name.encode() or size is None:
            raise Refused(f"what was kept of it is no mail of this format: no {name}")
        found[name], rest = rest[:size], rest[size + 1 :]
    if rest or found["id"] != ident.encode():
        raise Refused("what was kept is of another mail")
    noted = sidecar.parse(found["noted"]) if found["noted"] else sidecar.NOTHING
    return Image(found["link"], found[SCHEDULE], found[METADATA], noted)


def of(spool: KannaderSpool, mail: MailEntry) -> Iterator[Part]:
    """The parts of a mail: what is stored of the recipient, and the contents that all share."""
    link = mail.link
    facts = [
        ("modified", f"{link.seen.st_mtime:.0f}"),
        ("changed", f"{link.seen.st_ctime:.0f}"),
        ("link", link.target.text),
    ]
    yield Part(TASK, f"{spool.root}/{link.where}", len(image_of(mail)), tuple(facts))
    seen = mail.contents
    if seen is None:
        return
    try:
        recipients = sum(map(bool, map(is_uuid, spool.shared(link.target.mail))))
    except FileNotFoundError:
        return  # erased meanwhile
    yield Part(
        CONTENTS,
        f"{spool.root}/data/{link.target.mail}/{CONTENTS}",
        seen.st_size,
        (
            ("modified", f"{seen.st_mtime:.0f}"),
            ("mode", stat.filemode(seen.st_mode)),
            ("recipients", str(recipients)),
        ),
        files.oddity(seen).removesuffix(", not a task file"),
        wire=True,
    )


def open_contents(spool: KannaderSpool, mail: str) -> int:
    """A descriptor of a mail's contents, in wire form.

    Raises:
        FileNotFoundError: there are none.
        Refused: they are no plain file.
        OSError: they cannot be opened now, or not by us.
    """
    folder = files.open_folder(mail, spool.data.fd)
    try:
        fd = open_guarded(CONTENTS, folder)
    finally:
        os.close(folder)
    if why := files.oddity(os.fstat(fd)):
        os.close(fd)
        raise Refused(f"{CONTENTS}: {why}")
    return fd


def begin(fd: int, limit: int) -> bytes:
    """The first bytes of an open file, which is closed."""
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)
