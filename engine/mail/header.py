"""Encode text from outside as the value of a mail header, so that it cannot start another
header."""

import binascii
import re
import unicodedata
from collections.abc import Iterable

from engine.text.safe import REPLACEMENT

_MAX_LINE_LENGTH = 78
"""Maximum characters of a header line (RFC 5322, 2.1.1)."""

_ENCODED_WORD_BYTES = 39
"""Bytes of text in one encoded word: it has 64 characters then, and a line with one may have 76,
including the header's name (RFC 2047)."""

_MAX_PLAIN_WORD_LENGTH = 60
"""Maximum characters of an unencoded word: the header's name must fit on the same line."""

_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]+")
"""Characters allowed before an address without quotes (RFC 5322, 3.2.3), and spaces."""

_SEPARATOR_CATEGORIES = {"Cc", "Zl", "Zp"}
"""Unicode categories of control characters and of the two separators that some readers take for a
line end."""


def clean_text(text: str) -> str:
    """Return the text on one line: control characters become spaces, and lone surrogates U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_clean_character, text))


def _clean_character(c: str) -> str:
    kind = unicodedata.category(c)
    return " " if kind in _SEPARATOR_CATEGORIES else REPLACEMENT if kind == "Cs" else c


def header_words(text: str) -> list[str]:
    """Return a clean text as header words in ASCII, to be joined by spaces or folded between them.
    Text that all mail readers show unchanged stays as it is. Other text becomes encoded words (RFC
    2047), also if spaces would be lost or if it only looks encoded."""
    if not text:
        return []
    words = text.split(" ")
    if (
        text.isascii()
        and "=?" not in text
        and all(words)
        and max(map(len, words)) <= _MAX_PLAIN_WORD_LENGTH
    ):
        return words
    return [f"=?utf-8?b?{_base64(part)}?=" for part in _split_for_encoding(text)]


def display_name_words(text: str) -> list[str]:
    """As `header_words`, for a display name before an address."""
    if _ATOMS.fullmatch(text):
        return header_words(text)
    if (
        text.isascii()
        and '"' not in text
        and "\\" not in text
        and len(text) <= _MAX_PLAIN_WORD_LENGTH
    ):
        return [f'"{text}"']
    return [f"=?utf-8?b?{_base64(part)}?=" for part in _split_for_encoding(text)]


def fold_header(name: str, words: Iterable[str]) -> str:
    """Return the value of the header `name`, folded to lines of at most 78 characters."""
    lines, line = [], f"{name}:"
    for word in words:
        if len(line) + 1 + len(word) > _MAX_LINE_LENGTH and line != f"{name}:":
            lines.append(line)
            line = ""
        line += f" {word}"
    lines.append(line)
    return "\n".join(lines)[len(name) + 2 :]


def _split_for_encoding(text: str) -> Iterable[str]:
    """Yield parts of whole characters that fit into one encoded word."""
    part, size = "", 0
    for c in text:
        more = len(c.encode("utf-8"))
        if size + more > _ENCODED_WORD_BYTES:
            yield part
            part, size = "", 0
        part += c
        size += more
    yield part


def _base64(text: str) -> str:
    return binascii.b2a_base64(text.encode("utf-8"), newline=False).decode("ascii")
