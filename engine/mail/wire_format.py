"""Check a mail in wire form, as SMTP sends it after DATA, before any server gets it.

Lines end with CRLF, a leading dot is doubled, and a line with one dot ends the mail (RFC 5321,
4.5.2). An earlier line of one dot would let the rest be read as SMTP commands (SMTP smuggling).
Servers differ in which line ends they accept, so every variant is refused.
"""

import re
from collections.abc import Iterable, Iterator
from typing import IO, BinaryIO

from engine.mail.model import BadMail
from engine.values import NamedTuple

END_OF_MAIL = b".\r\n"
"""The line that ends a mail."""

CHUNK_BYTES = 1 << 16
"""Bytes per read."""

_find_lone_dot = re.compile(rb"[\r\n]\.[\r\n]").search


class WireFacts(NamedTuple):
    """The properties of a mail that SMTP needs in advance."""

    size: int
    """Bytes, including the line that ends it."""
    eight_bit: bool
    """True if it contains bytes beyond ASCII."""


def check_wire_format(contents: BinaryIO) -> WireFacts:
    """Read a mail in wire form from here to its end; return its size and whether it is 8-bit.
    Raises BadMail: it is not valid wire form; the message contains the reason; OSError: it cannot
    be read."""
    size, eight_bit, alone = 0, False, -1
    tail = b"\n"  # the mail begins on a new line
    for chunk in _read_chunks(contents):
        window = tail + chunk
        dot = _find_lone_dot(window) if alone < 0 else None
        if dot:
            alone = size - len(tail) + dot.start() + 1
        eight_bit = eight_bit or not chunk.isascii()
        size += len(chunk)
        tail = window[-(len(END_OF_MAIL) + 2) :]
    if tail != b"\n" + END_OF_MAIL and not tail.endswith(b"\r\n" + END_OF_MAIL):
        raise BadMail("not in wire form: it does not end with a line of one dot")
    if 0 <= alone < size - len(END_OF_MAIL):
        raise BadMail(f"not in wire form: a line of one dot at byte {alone:,}, before its end")
    return WireFacts(size, eight_bit)


def _read_chunks(contents: BinaryIO) -> Iterator[bytes]:
    while chunk := contents.read(CHUNK_BYTES):
        yield chunk


def write_wire_format(pieces: Iterable[bytes], out: IO[bytes]) -> None:
    """Write a mail in wire form: CRLF line ends, doubled leading dots, the line that ends it. Each
    piece is a line with its LF or CRLF, or a part of a line. Raises OSError: it cannot be
    written."""
    is_at_start = True
    for piece in pieces:
        if is_at_start and piece.startswith(b"."):
            out.write(b".")
        is_at_start = piece.endswith(b"\n")
        if is_at_start and not piece.endswith(b"\r\n"):
            piece = piece[:-1] + b"\r\n"
        out.write(piece)
    out.write(END_OF_MAIL if is_at_start else b"\r\n" + END_OF_MAIL)


def read_headers(contents: BinaryIO, most: int = CHUNK_BYTES) -> bytes:
    """Return the headers of a mail in wire form, with LF line ends and without doubled dots. If
    they are longer than `most` bytes, only the whole lines that fit."""
    headers = []
    for line in contents.read(most).split(b"\n")[:-1]:
        line = line.removesuffix(b"\r")
        if line in (b"", b"."):
            break
        headers.append(line.removeprefix(b"."))
    return b"\n".join(headers)
