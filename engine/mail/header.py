"""Foreign text as the value of a mail header: nothing of it can begin another header."""

import binascii
import re
import unicodedata
from collections.abc import Iterable

from engine.text.safe import REPLACEMENT

_WIDTH = 78
"""Characters of a line of headers (RFC 5322, 2.1.1)."""

_WORD = 39
"""Bytes of text in one encoded word: they make 64 characters, and a line that has one may have 76,
the header's name before it included (RFC 2047)."""

_LONGEST_PLAIN = 60
"""Characters of a word that goes as it is: a header's name has to stand before it on its line."""

_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]+")
"""What may stand before an address without quotes (RFC 5322, 3.2.3), and spaces."""

_APART = {"Cc", "Zl", "Zp"}
"""Controls and the two separators of Unicode that end a line for some readers."""


def clean(text: str) -> str:
    """The text on one line: each control character is a space, and what is no character at all,
    half of a surrogate pair, U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_cleaned, text))


def _cleaned(c: str) -> str:
    kind = unicodedata.category(c)
    return " " if kind in _APART else REPLACEMENT if kind == "Cs" else c


def pieces(text: str) -> list[str]:
    """What a clean text is in a header: ASCII words, to be joined by one space or folded there.

    As it is where every reader reads it alike, else encoded words (RFC 2047): also where spaces
    would be lost, or where it looks encoded and means what it says.
    """
    if not text:
        return []
    words = text.split(" ")
    if (
        text.isascii()
        and "=?" not in text
        and all(words)
        and max(map(len, words)) <= _LONGEST_PLAIN
    ):
        return words
    return [f"=?utf-8?b?{_base64(part)}?=" for part in _parts(text)]


def phrase(text: str) -> list[str]:
    """The same of a name that stands before an address."""
    if _ATOMS.fullmatch(text):
        return pieces(text)
    if text.isascii() and '"' not in text and "\\" not in text and len(text) <= _LONGEST_PLAIN:
        return [f'"{text}"']
    return [f"=?utf-8?b?{_base64(part)}?=" for part in _parts(text)]


def folded(name: str, words: Iterable[str]) -> str:
    """The value of the header `name`, on as many lines as it needs."""
    lines, line = [], f"{name}:"
    for word in words:
        if len(line) + 1 + len(word) > _WIDTH and line != f"{name}:":
            lines.append(line)
            line = ""
        line += f" {word}"
    lines.append(line)
    return "\n".join(lines)[len(name) + 2 :]


def _parts(text: str) -> Iterable[str]:
    """The text in parts that are whole characters, and few enough bytes for an encoded word."""
    part, size = "", 0
    for c in text:
        more = len(c.encode("utf-8"))
        if size + more > _WORD:
            yield part
            part, size = "", 0
        part += c
        size += more
    yield part


def _base64(text: str) -> str:
    return binascii.b2a_base64(text.encode("utf-8"), newline=False).decode("ascii")
