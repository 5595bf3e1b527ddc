"""Show untrusted bytes as safe lines: a decoded mail, JSON, HTML, text, or a hex dump.

The bytes may be malicious: the work is limited for any content, and nothing is fetched or run."""

from __future__ import annotations

import binascii
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from itertools import islice

from engine.text.html_text import html_to_text
from engine.text.safe import safe_lines
from engine.values import NamedTuple

MAX_PART_DEPTH, MAX_PARTS = 10, 50
MAX_HEADERS, MAX_HEADER_LENGTH = 100, 2000
"""Headers of a part, and characters of each: Python's parser takes quadratic time in these."""
MAX_LINES = 20_000
MAX_DUMP_BYTES = 64 * 1024

_MAX_TEXT_LENGTH = 1 << 20
_SAMPLE_BYTES = 4096
"""Bytes that are examined to tell text from binary data."""


class RenderedBytes(NamedTuple):
    """Untrusted bytes made readable."""

    kind: str
    """The detected type: mail, JSON, HTML, text, bytes, or nothing."""
    lines: tuple[str, ...]
    """Safe lines of any length."""


def render_data(
    data: bytes, per_row: int = 16, *, is_html: bool = False, is_wire: bool = False
) -> RenderedBytes:
    """Detect the type of the data and format it; binary data as hex, `per_row` bytes per line. With
    `is_html` it is HTML even without any mark of it; with `is_wire` a mail in SMTP wire format."""
    data = _undo_dot_stuffing(data) if is_wire else data
    if not data:
        return RenderedBytes("nothing", ())
    if is_html and _is_text(data[:_SAMPLE_BYTES]):
        page = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
        return _limit_lines("HTML", safe_lines(html_to_text(page), _MAX_TEXT_LENGTH))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _limit_lines("text", safe_lines(data.decode("utf-16", "replace"), _MAX_TEXT_LENGTH))
    headers, body = _split(data)
    known = {name.lower() for name, _ in headers} & _KNOWN
    if len(known) >= 2 or (is_wire and headers):
        return _limit_lines("mail", _ParsedMail().lines(headers, body))
    if not _is_text(data[:_SAMPLE_BYTES]):
        return _limit_lines("bytes", hex_dump(data, per_row))
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    start = text[:200].lstrip()
    if start[:1] in ("{", "[") and (pretty := _indent_json(text)) is not None:
        return _limit_lines("JSON", safe_lines(pretty, _MAX_TEXT_LENGTH))
    if re.match(r"<(!doctype\s|html\b|body\b|head\b|div\b|p\b|table\b)", start, re.IGNORECASE):
        return _limit_lines("HTML", safe_lines(html_to_text(text), _MAX_TEXT_LENGTH))
    return _limit_lines("text", safe_lines(text, _MAX_TEXT_LENGTH))


_DOUBLED = re.compile(rb"^\.(?=[^\r\n])", re.MULTILINE)


def _undo_dot_stuffing(data: bytes) -> bytes:
    """Undo the dot-stuffing of SMTP and remove the final dot. A single dot on an earlier line
    cannot occur in such a mail, so it is kept visible."""
    behind = data.removesuffix(b".\r\n")
    body = behind if not behind or behind.endswith(b"\n") else data
    return _DOUBLED.sub(b"", body)


def render_verbatim(data: bytes, per_row: int = 16) -> RenderedBytes:
    """Format the data undecoded: as plain text, or as hex if it is binary."""
    if not _is_text(data[:_SAMPLE_BYTES]):
        return _limit_lines("bytes", hex_dump(data, per_row))
    return _limit_lines("text", safe_lines(data, _MAX_TEXT_LENGTH))


def _limit_lines(kind: str, lines: Iterable[str]) -> RenderedBytes:
    limited = [*islice(lines, MAX_LINES + 1)]
    if len(limited) > MAX_LINES:
        limited[-1] = f"... cut here, after {MAX_LINES:,} lines"
    return RenderedBytes(kind, tuple(limited))


def hex_dump(data: bytes, per_row: int = 16) -> Iterator[str]:
    """Hex dump with the offset before and ASCII after each row."""
    for at in range(0, min(len(data), MAX_DUMP_BYTES), per_row):
        row = data[at : at + per_row]
        ascii = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):{3 * per_row - 1}}  {ascii}"
    if len(data) > MAX_DUMP_BYTES:
        yield f"... cut here: {len(data) - MAX_DUMP_BYTES:,} more bytes"


_TEXT = bytes({*range(9, 14), 27, *range(32, 127), *range(128, 256)})


def _is_text(sample: bytes) -> bool:
    """True if almost no byte is a control character and non-ASCII bytes are mostly UTF-8."""
    if len(sample.translate(None, _TEXT)) * 20 > len(sample):
        return False
    wrong = sample.decode("utf-8", "replace").count("\ufffd")
    return wrong * 4 <= len(sample) + 12  # the sample may end inside a character


def _indent_json(text: str) -> str | None:
    try:
        document = json.loads(text)
        pieces: list[str] = []
        length = 0
        # With indentation, deeply nested data can grow by a factor of a thousand.
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_TEXT_LENGTH:
                break
    except (ValueError, RecursionError):
        return None
    return "".join(pieces)


# Mail

_NAMES = re.compile(rb"([!-9;-~]{1,76}):[ \t]?")
_FIRST = ("from", "to", "cc", "subject", "date")
"""Headers shown above the text, in this order; the others are shown below it."""
_KNOWN = {"received", "return-path", "reply-to", "sender", "delivered-to", *_FIRST}
_KNOWN |= {"mime-version", "content-type", "message-id"}


class _Headers(list[tuple[str, str]]):
    """(name, value) pairs of headers in file order, unfolded and cut."""

    def first(self, name: str) -> str:
        """The value of the first header with this name; "" if none."""
        return next((value for key, value in self if key.lower() == name), "")


def _split(data: bytes) -> tuple[_Headers, bytes]:
    headers = _Headers()
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at : min(end, at + MAX_HEADER_LENGTH)].rstrip(b"\r\n")
        name = _NAMES.match(line)
        if not line:
            return headers, data[end + 1 :]
        if line[:1] in b" \t" and headers:
            key, value = headers[-1]
            if len(value) < MAX_HEADER_LENGTH:
                headers[-1] = key, f"{value} {_header_text(line.strip())}"[:MAX_HEADER_LENGTH]
        elif name is not None:
            if len(headers) < MAX_HEADERS:
                headers.append((name[1].decode("ascii"), _header_text(line[name.end() :])))
        elif at or not line.startswith(b"From "):  # first line of an mbox entry
            return headers, data[at:]
        at = end + 1
    return headers, b""


def _header_text(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\0", "\ufffd")


def decode_header_words(header: str) -> str:
    """Decode the encoded words (RFC 2047) of a header, as far as possible."""
    if "=?" not in header:
        return header
    try:
        pieces = decode_header(header)
    except HeaderParseError:
        return header  # undecodable: show it unchanged
    return "".join(
        piece if isinstance(piece, str) else _decoded(piece, charset or "raw-unicode-escape")
        for piece, charset in pieces
    )


_is_charset = re.compile(
    "ascii|utf|iso8859|iso2022|cp|koi8|big5|gb|euc|shift[_-]jis|hz|mac|tis|johab|kz1048|ptcp154"
    "|raw[_-]unicode[_-]escape"
).match
"""True for the start of a Python codec name that is a character set of mails."""


def _decoded(data: bytes, charset: str) -> str:
    try:
        name = codecs.lookup(charset[:40]).name
    except (LookupError, ValueError):
        name = ""
    # Others, such as idna and unicode-escape, raise errors or take quadratic time.
    return data.decode(name if _is_charset(name) else "utf-8", "replace")


class _PartType(NamedTuple):
    """Type and encoding of a mail part, from its headers."""

    type: str
    charset: str = "utf-8"
    boundary: str = ""
    name: str = ""
    """File name of an attachment."""
    is_attachment: bool = False
    encoding: str = ""


def _part_type(headers: _Headers) -> _PartType:
    message = Message()
    for name in ("Content-Type", "Content-Disposition"):
        if value := headers.first(name.lower()):
            message[name] = value
    try:
        charset, boundary = message.get_content_charset(""), message.get_boundary("")
        name = message.get_filename("") or ""
    except ValueError:  # raised by a codec that a parameter names
        charset = boundary = name = ""
    return _PartType(
        message.get_content_type(),
        charset or "utf-8",
        boundary or "",
        name=decode_header_words(name),
        is_attachment=message.get_content_disposition() == "attachment",
        encoding=headers.first("content-transfer-encoding").strip().lower(),
    )


class _ParsedMail:
    """Parses one mail and limits the number of its parts."""

    def __init__(self) -> None:
        self._parts = MAX_PARTS

    def lines(self, headers: _Headers, body: bytes) -> Iterator[str]:
        """The main headers, the parts, and the other headers."""
        yield from _header_lines(headers, first=True)
        yield from self._part(headers, body, 1)
        yield ""
        yield "--- other headers"
        yield from _header_lines(headers, first=False)

    def _part(self, headers: _Headers, body: bytes, depth: int) -> Iterator[str]:
        kind = _part_type(headers)
        self._parts -= 1
        if self._parts < 0 or depth > MAX_PART_DEPTH:
            return
        if kind.type.startswith("multipart/") and kind.boundary:
            yield from self._several(body, kind.boundary, depth)
        elif kind.type == "message/rfc822":
            inner, inner_body = _split(body)
            yield from ("", "--- a mail inside the mail")
            yield from _header_lines(inner, first=True)
            yield from self._part(inner, inner_body, depth + 1)
        else:
            yield ""
            yield from _leaf_lines(kind, body)

    def _several(self, body: bytes, boundary: str, depth: int) -> Iterator[str]:
        if depth == MAX_PART_DEPTH:
            yield f"--- more parts, nested deeper than {MAX_PART_DEPTH}: not shown"
            return
        mark = b"--" + boundary.encode("utf-8", "replace")
        at = _find_boundary(body, mark, 0)
        while at >= 0 and not body.startswith(b"--", at + len(mark)):
            if self._parts <= 0:
                yield f"--- more than {MAX_PARTS} parts: the rest is not shown"
                return
            begin = body.find(b"\n", at) + 1 or len(body)
            at = _find_boundary(body, mark, begin)
            part = body[begin:] if at < 0 else body[begin : max(begin, at - 1)]
            yield from self._part(*_split(part), depth + 1)


def _find_boundary(body: bytes, mark: bytes, at: int) -> int:
    """Position of the next boundary line; -1 if none."""
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
        cut = " ... (cut)" if len(value) >= MAX_HEADER_LENGTH else ""
        # A decoded word may contain a line break: it must not look like a new header.
        yield from safe_lines(f"{name}: {decode_header_words(value)}{cut}".replace("\n", "\ufffd"))


def _leaf_lines(kind: _PartType, body: bytes) -> Iterator[str]:
    data, note = _decode_transfer(body, kind.encoding)
    if kind.is_attachment or not kind.type.startswith("text/"):
        name = kind.name or "unnamed"
        label = f"{name}: {kind.type}"[:300]
        yield from safe_lines(f"--- attachment {label}, {len(data):,} bytes{note}")
        return
    text = _decoded(data, kind.charset)
    as_text = ", shown as text" if kind.type == "text/html" else ""
    yield from safe_lines(f"--- {kind.type[:80]}{as_text}{note}")
    yield from safe_lines(html_to_text(text) if as_text else text, _MAX_TEXT_LENGTH)


_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLANK = b"= \t\r\n"
_NO_BASE64 = bytes(set(range(256)) - set(_BASE64))


def _decode_transfer(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Decode the content transfer encoding of a part; return the bytes and a note."""
    if encoding == "base64":
        symbols = body.translate(None, _NO_BASE64)
        is_incomplete = len(symbols) % 4 == 1
        damaged = is_incomplete or bool(body.translate(None, _BASE64 + _BLANK))
        data = binascii.a2b_base64((symbols[:-1] if is_incomplete else symbols) + b"===")
        return data, ", damaged base64" if damaged else ""
    if encoding == "quoted-printable":
        return binascii.a2b_qp(body), ""
    if encoding in ("", "7bit", "8bit", "binary"):
        return body, ""
    return body, f", not decoded: unknown encoding {encoding[:40]}"
