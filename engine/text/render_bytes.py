"""What foreign bytes say, as lines that are safe to show: a mail, JSON, a page, text, or bytes.

Whoever wrote them may mean harm: the work is bounded whatever they hold, and nothing of it is ever
fetched, run or believed.
"""

from __future__ import annotations

import binascii
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from typing import NamedTuple

from engine.text.html_text import from_html
from engine.text.safe import shown_lines

DEPTH, PARTS = 10, 50
"""How deep the parts of a mail are gone into, and how many of them."""
HEADERS, HEADER = 100, 2000
"""Headers of one part, and characters of each, that are looked at: the library that takes them
apart needs time with the square of their length."""
LINES = 20_000
"""Lines that are shown."""
DUMPED = 64 * 1024
"""Bytes that are shown as such."""

_SHOWN = 1 << 20
_SAMPLE = 4096
"""Bytes by which it is judged whether they are text."""


class RenderedBytes(NamedTuple):
    """What some bytes say."""

    kind: str
    """What they were taken for: mail, JSON, HTML, text, bytes, or nothing."""
    lines: tuple[str, ...]
    """Safe to show, of any length."""


def read(
    data: bytes, per_row: int = 16, *, is_html: bool = False, is_wire: bool = False
) -> RenderedBytes:
    """What the bytes say; those that are no text as hexadecimal numbers, so many in a row.

    Where it is known that they are HTML they are read as such, without any mark of it; and so with
    a mail in the form in which it goes over SMTP.
    """
    data = _off_the_wire(data) if is_wire else data
    if not data:
        return RenderedBytes("nothing", ())
    if is_html and _is_text(data[:_SAMPLE]):
        page = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
        return _letter("HTML", shown_lines(from_html(page), _SHOWN))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _letter("text", shown_lines(data.decode("utf-16", "replace"), _SHOWN))
    headers, body = _split(data)
    if _is_mail(headers) or (is_wire and headers):
        return _letter("mail", _ParsedMail().lines(headers, body))
    if not _is_text(data[:_SAMPLE]):
        return _letter("bytes", dump(data, per_row))
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    start = text[:200].lstrip()
    if start[:1] in ("{", "[") and (pretty := _pretty(text)) is not None:
        return _letter("JSON", shown_lines(pretty, _SHOWN))
    if re.match(r"<(!doctype\s|html\b|body\b|head\b|div\b|p\b|table\b)", start, re.IGNORECASE):
        return _letter("HTML", shown_lines(from_html(text), _SHOWN))
    return _letter("text", shown_lines(text, _SHOWN))


_DOUBLED = re.compile(rb"^\.(?=[^\r\n])", re.MULTILINE)


def _off_the_wire(data: bytes) -> bytes:
    """A mail as it was before its dots were doubled and a last one was put behind it.

    A dot alone before the end is no part of any such mail, and stays to be seen.
    """
    behind = data.removesuffix(b".\r\n")
    body = behind if not behind or behind.endswith(b"\n") else data
    return _DOUBLED.sub(b"", body)


def verbatim(data: bytes, per_row: int = 16) -> RenderedBytes:
    """The bytes as they are: a text with nothing in it decoded, or else their numbers."""
    if not _is_text(data[:_SAMPLE]):
        return _letter("bytes", dump(data, per_row))
    return _letter("text", shown_lines(data, _SHOWN))


def _letter(kind: str, lines: Iterable[str]) -> RenderedBytes:
    kept: list[str] = []
    for line in lines:
        if len(kept) == LINES:
            kept.append(f"... cut here, after {LINES:,} lines")
            break
        kept.append(line)
    return RenderedBytes(kind, tuple(kept))


def dump(data: bytes, per_row: int = 16) -> Iterator[str]:
    """The bytes as numbers, with the offset of each row before and their ASCII behind."""
    for at in range(0, min(len(data), DUMPED), per_row):
        row = data[at : at + per_row]
        ascii = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):{3 * per_row - 1}}  {ascii}"
    if len(data) > DUMPED:
        yield f"... cut here: {len(data) - DUMPED:,} more bytes"


_TEXT = bytes({*range(9, 14), 27, *range(32, 127), *range(128, 256)})


def _is_text(sample: bytes) -> bool:
    """Whether hardly a byte of it is a control character, and what is not ASCII is mostly UTF-8."""
    if len(sample.translate(None, _TEXT)) * 20 > len(sample):
        return False
    wrong = sample.decode("utf-8", "replace").count("\ufffd")
    return wrong * 4 <= len(sample) + 12  # the sample may end within a character


def _pretty(text: str) -> str | None:
    """JSON with a value a line; None when it is none."""
    try:
        said = json.loads(text)
        pieces: list[str] = []
        length = 0
        # Indented, what is deep within takes a thousand times its own length.
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(said):
            pieces.append(piece)
            length += len(piece)
            if length > _SHOWN:
                break
    except (ValueError, RecursionError):
        return None
    return "".join(pieces)


# Mail

_NAMES = re.compile(rb"([!-9;-~]{1,76}):[ \t]?")
_KNOWN = {
    *("from", "to", "cc", "subject", "date", "received", "return-path", "reply-to", "sender"),
    *("mime-version", "content-type", "message-id", "delivered-to"),
}
_FIRST = ("from", "to", "cc", "subject", "date")
"""Headers that are shown above the text, in this order; the others below it."""


class _Headers(list[tuple[str, str]]):
    """Names and values, unfolded and cut, as they were found."""

    def first(self, name: str) -> str:
        """The value of the first of that name; "" when there is none."""
        return next((value for key, value in self if key.lower() == name), "")


def _is_mail(headers: _Headers) -> bool:
    return len({name.lower() for name, _ in headers} & _KNOWN) >= 2


def _split(data: bytes) -> tuple[_Headers, bytes]:
    """The headers at the beginning, and what is behind them."""
    headers = _Headers()
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at : min(end, at + HEADER)].rstrip(b"\r\n")
        name = _NAMES.match(line)
        if not line:
            return headers, data[end + 1 :]
        if line[:1] in b" \t" and headers:
            key, value = headers[-1]
            if len(value) < HEADER:
                headers[-1] = key, f"{value} {_header_text(line.strip())}"[:HEADER]
        elif name is not None:
            if len(headers) < HEADERS:
                headers.append((name[1].decode("ascii"), _header_text(line[name.end() :])))
        elif at or not line.startswith(b"From "):  # the first line of a mailbox
            return headers, data[at:]
        at = end + 1
    return headers, b""


def _header_text(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\0", "\ufffd")


def decoded(header: str) -> str:
    """A header with its encoded words decoded, as far as they can be."""
    if "=?" not in header:
        return header
    try:
        pieces = decode_header(header)
    except HeaderParseError:
        return header  # what cannot be decoded is shown as it stands
    return "".join(
        piece if isinstance(piece, str) else _decoded(piece, charset or "raw-unicode-escape")
        for piece, charset in pieces
    )


_CHARSETS = (
    *("ascii", "utf", "iso8859", "iso2022", "cp", "koi8", "big5", "gb", "euc", "shift_jis", "hz"),
    *("mac", "tis", "johab", "kz1048", "ptcp154", "raw-unicode-escape"),
)
"""How the codecs begin, by Python's names, that are character sets of mails."""


def _decoded(data: bytes, charset: str) -> str:
    try:
        name = codecs.lookup(charset[:40]).name
    except (LookupError, ValueError):
        name = ""
    # The others, such as idna and unicode-escape, raise or need time with the square of the length.
    known = name.replace("_", "-").startswith(tuple(c.replace("_", "-") for c in _CHARSETS))
    return data.decode(name if known else "utf-8", "replace")


class _Kind(NamedTuple):
    """What the headers of a part say of it."""

    type: str
    charset: str = "utf-8"
    boundary: str = ""
    name: str = ""
    """Of an attachment, as it is to be shown."""
    is_attachment: bool = False
    encoding: str = ""


def _kind(headers: _Headers) -> _Kind:
    about = Message()
    for name in ("Content-Type", "Content-Disposition"):
        if value := headers.first(name.lower()):
            about[name] = value
    try:
        charset, boundary = about.get_content_charset(""), about.get_boundary("")
        name = about.get_filename("") or ""
    except ValueError:  # of a codec that a parameter names
        charset = boundary = name = ""
    return _Kind(
        about.get_content_type(),
        charset or "utf-8",
        boundary or "",
        decoded(name),
        about.get_content_disposition() == "attachment",
        headers.first("content-transfer-encoding").strip().lower(),
    )


class _ParsedMail:
    """Takes one mail apart; it counts what it has done."""

    def __init__(self) -> None:
        self._parts = PARTS

    def lines(self, headers: _Headers, body: bytes) -> Iterator[str]:
        """The headers that matter, the parts, and the other headers."""
        yield from _header_lines(headers, first=True)
        yield from self._part(headers, body, 1)
        yield ""
        yield "--- other headers"
        yield from _header_lines(headers, first=False)

    def _part(self, headers: _Headers, body: bytes, depth: int) -> Iterator[str]:
        kind = _kind(headers)
        self._parts -= 1
        if self._parts < 0 or depth > DEPTH:
            return
        if kind.type.startswith("multipart/") and kind.boundary:
            yield from self._several(body, kind.boundary, depth)
        elif kind.type == "message/rfc822":
            inner, rest = _split(body)
            yield from ("", "--- a mail within the mail")
            yield from _header_lines(inner, first=True)
            yield from self._part(inner, rest, depth + 1)
        else:
            yield ""
            yield from _leaf(kind, body)

    def _several(self, body: bytes, boundary: str, depth: int) -> Iterator[str]:
        if depth == DEPTH:
            yield f"--- more parts, deeper than {DEPTH}: not gone into"
            return
        mark = b"--" + boundary.encode("utf-8", "replace")
        at = _mark_from(body, mark, 0)
        while at >= 0 and not body.startswith(b"--", at + len(mark)):
            if self._parts <= 0:
                yield f"--- more parts than {PARTS}: not gone into"
                return
            begin = body.find(b"\n", at) + 1 or len(body)
            at = _mark_from(body, mark, begin)
            part = body[begin:] if at < 0 else body[begin : max(begin, at - 1)]
            yield from self._part(*_split(part), depth + 1)


def _mark_from(body: bytes, mark: bytes, at: int) -> int:
    """Where the next line is that holds the mark and nothing else; -1: there is none."""
    while True:
        at = body.find(mark, at)
        behind = body[at + len(mark) : at + len(mark) + 1]
        if at < 0 or ((at == 0 or body[at - 1] == 0x0A) and behind in b"-\r\n \t"):
            return at
        at += 1


def _header_lines(headers: _Headers, first: bool) -> Iterator[str]:
    chosen = [pair for pair in headers if (pair[0].lower() in _FIRST) is first]
    if first:
        chosen.sort(key=lambda pair: _FIRST.index(pair[0].lower()))
    for name, value in chosen:
        cut = " ... (cut)" if len(value) >= HEADER else ""
        # A decoded word may hold an end of line: no header of its own comes of it.
        yield from shown_lines(f"{name}: {decoded(value)}{cut}".replace("\n", "\ufffd"))


def _leaf(kind: _Kind, body: bytes) -> Iterator[str]:
    data, note = _transferred(body, kind.encoding)
    if kind.is_attachment or not kind.type.startswith("text/"):
        name = kind.name or "without a name"
        about = f"{name}: {kind.type}"[:300]
        yield from shown_lines(f"--- attachment {about}, {len(data):,} bytes{note}")
        return
    text = _decoded(data, kind.charset)
    as_text = ", shown as text" if kind.type == "text/html" else ""
    yield from shown_lines(f"--- {kind.type[:80]}{as_text}{note}")
    yield from shown_lines(from_html(text) if as_text else text, _SHOWN)


_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLANK = b"= \t\r\n"
_NO_BASE64 = bytes(set(range(256)) - set(_BASE64))


def _transferred(body: bytes, encoding: str) -> tuple[bytes, str]:
    """The bytes of a part as they were before they were sent, and a remark on that."""
    if encoding == "base64":
        kept = body.translate(None, _NO_BASE64)
        odd = len(kept) % 4 == 1
        damaged = odd or bool(body.translate(None, _BASE64 + _BLANK))
        data = binascii.a2b_base64((kept[:-1] if odd else kept) + b"===")
        return data, ", its base64 is damaged" if damaged else ""
    if encoding == "quoted-printable":
        return binascii.a2b_qp(body), ""
    if encoding in ("", "7bit", "8bit", "binary"):
        return body, ""
    return body, f", encoded as {encoding[:40]}: not decoded"
