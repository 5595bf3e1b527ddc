"""A mail in its wire form, as it goes over SMTP behind DATA: judged before anybody is sent it.

Lines end in CRLF, a leading dot is doubled, and a line with a dot alone ends it (RFC 5321, 4.5.2).
Such a line before the end would make a server take the rest for commands, and so for another mail
by whomever it names; servers differ in what they take for a line's end, so each reading counts.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from engine.mail.model import BadMail

END = b".\r\n"
"""The line that ends a mail."""

CHUNK = 1 << 16
"""Bytes that are read at once."""

_ALONE = re.compile(rb"[\r\n]\.[\r\n]").search


class WireFacts(NamedTuple):
    """What is to be known of a mail before it is sent."""

    size: int
    """Bytes, with the line that ends it."""
    eight_bit: bool
    """Whether it holds bytes beyond ASCII."""


def examined(contents: BinaryIO) -> WireFacts:
    """What there is to know of a mail in wire form, which is read from here to its end.

    Raises:
        BadMail: no server may be sent it, with the reason.
        OSError: it cannot be read.
    """
    size, eight_bit, alone = 0, False, -1
    tail = b"\n"  # what begins a mail begins a line
    for chunk in _chunks(contents):
        window = tail + chunk
        found = _ALONE(window) if alone < 0 else None
        if found:
            alone = size - len(tail) + found.start() + 1
        eight_bit = eight_bit or not chunk.isascii()
        size += len(chunk)
        tail = window[-(len(END) + 2) :]
    if tail != b"\n" + END and not tail.endswith(b"\r\n" + END):
        raise BadMail("not in wire form: it does not end with a line of one dot")
    if 0 <= alone < size - len(END):
        raise BadMail(f"not in wire form: a line of one dot at byte {alone:,}, before its end")
    return WireFacts(size, eight_bit)


def _chunks(contents: BinaryIO) -> Iterator[bytes]:
    while chunk := contents.read(CHUNK):
        yield chunk


def headers(contents: BinaryIO, most: int = CHUNK) -> bytes:
    """The headers of a mail in wire form, as people write them: line ends are LF.

    Of more than `most` bytes only the whole lines that fit.
    """
    found = []
    for line in contents.read(most).split(b"\n")[:-1]:
        line = line.removesuffix(b"\r")
        if line in (b"", b"."):
            break
        found.append(line.removeprefix(b"."))
    return b"\n".join(found)
