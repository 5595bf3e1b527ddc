"""What errors have in common: kin share a pattern and a short mark, whatever varies between them.

`connect_timeout mx7.example.net 25` and `connect_timeout mx31.example.org 587` are one error to an
operator; `421 4.7.0 try again later` and `550 5.1.1 user unknown` are two, and are told apart by
their codes. So what varies is folded, and a mail server's codes stay.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

from engine.text.safe import ERROR_LIMIT

_FILES = "sh|py|pl|rb|md|rs|ts|js|so|cc|gz|bz|xz|db|conf|log|html|json|yaml|task|service|list"
"""Last parts of names that are files or programs, and no hosts."""

_DOMAINS = (
    "com|net|org|edu|gov|mil|int|info|biz|test|example|invalid|local|localdomain|lan|internal|home|"
    "dev|app|cloud|email|online|site|eu|uk|de|fr|nl|it|es|ch|at|be|se|dk|no|fi|cz|us|ca|io|co"
)
"""Last parts that make a host of a name with a single dot; with more dots any will do."""

_NUMBER = r"""
    (?<![a-zA-Z0-9#]) (?:
        0x[0-9a-fA-F]+ (?![a-zA-Z0-9])
      | (?=[a-fA-F]*[0-9]) (?:[0-9a-fA-F]{8} | [0-9a-fA-F]{12,}) (?![a-zA-Z0-9])
      | [a-zA-Z]* (?:[0-9]+[a-zA-Z]+)+ [0-9]+ [a-zA-Z0-9]* )
    | [0-9]+
"""
"""Numbers, hexadecimal of the lengths that ids have, and words in which digits come twice."""

_H = "[0-9a-fA-F]{1,4}"
"""A part of an IPv6 number."""

_NAME = rf"""
    (?<![\w#>]) (?:
        (?P<address> [\w.+%=-]+ @ [\w.-]+ )
      | (?P<id>
            (?:mail-)? [0-9]{{8}} T [0-9]{{6}} Z- (?:\w+-)*? [0-9a-f]{{4,}} (?!\w)
          | [0-9a-fA-F]{{8}} (?:-[0-9a-fA-F]{{4}}){{3}} -[0-9a-fA-F]{{12}} (?!\w) )
      | (?P<host>
            [\w-]+ (?: (?:\.[\w-]+)+ \.(?!(?:{_FILES})\b)[a-z]{{2,}} | \.(?:{_DOMAINS}) )
            (?![a-zA-Z0-9]) )
      | (?P<path> /[\w.+@%~/-]+ ) )
    | (?<![a-zA-Z0-9.#>]) (?P<number>
        [0-9]{{1,3}} (?:\.[0-9]{{1,3}}){{3}} (?![.a-zA-Z0-9])
      | (?: (?:{_H}:){{7}} {_H} | {_H} (?::{_H})* :: (?:[0-9a-fA-F:]*[0-9a-fA-F])?
          | :: {_H} (?::{_H})* ) (?![:a-zA-Z0-9<#]) )
"""
"""What has a punctuation mark in it."""

_PUNCTUATED = re.compile(r"[./:@-]").search
_NUMBERS = re.compile(_NUMBER, re.VERBOSE | re.ASCII)
_VARIES = re.compile(f"{_NAME} | {_NUMBER}", re.VERBOSE | re.ASCII)

_SIGNS = {
    "address": "<address>",
    "id": "<id>",
    "host": "<host>",
    "number": "<host>",
    "path": "<path>",
}

_ENHANCED = r"[ -][245](?:\.[0-9]{1,3}){2}"
_ENDS = r"(?![.\w])"

_CODE = re.compile(rf"([245][0-9]{{2}})(?:{_ENHANCED})?{_ENDS}")
"""A reply of a mail server: its code, and the enhanced code behind it (RFC 5321, RFC 3463)."""

_WORDED = re.compile(rf"[a-z_]+_([245][0-9]{{2}}): \1(?:{_ENHANCED})?{_ENDS}")
"""The same behind our own word for it: `unavailable_450: 450 4.2.0`."""

_TOLD = re.compile(rf"(?<=[^:]: )([245][0-9]{{2}}){_ENHANCED}{_ENDS}")
"""Both codes behind whatever else a program says: `Invalid login: 535 5.7.8`. The first alone would
be any number there (`timeout: 250 ms`); what ends in two colons may be a host's number."""

_CLASSES = frozenset("245")
"""What a reply begins with: done, try again, never."""

_QUOTED = " said: "
"""Behind this a mail program repeats what a server replied."""


def fold(error: str) -> str:
    """The pattern an error shares with its kin.

    Runs of digits, and words of hexadecimal, become `#`, ids of tasks and UUIDs `<id>`, mail
    addresses `<address>`, names and numbers of hosts `<host>`, absolute paths `<path>`. What a
    server replied stays (`421 4.7.0`): at the head, behind ` said: `, behind our own word for it
    (`unavailable_450: 450`), and with both codes behind any colon. Only what a task file keeps of
    an error is looked at (`ERROR_LIMIT` characters), so that a log and a spool agree. What is
    folded stays as it is when it is folded again.
    """
    error = error[:ERROR_LIMIT]
    found = _reply(error)
    if found is None:
        return _words_folded(error)
    start, end = found.span()
    head = _words_folded(error[:start]) if start else ""
    return head + error[start:end] + _words_folded(error[end:])


def code(error: str) -> str:
    """The three digits that a mail server replied, where `fold` keeps them; "" for none."""
    found = _reply(error)
    return found[1] if found else ""


def mark(folded: str) -> str:
    """A short name for a pattern, to be typed: `F-3A91`.

    It is 16 bits of a CRC: among 100 patterns of one queue two share a mark once in 13 times. Then
    a filter by the mark shows both, and their patterns tell them apart.
    """
    return f"F-{zlib.crc32(folded.encode('utf-8', 'replace')) & 0xFFFF:04X}"


def _reply(error: str) -> re.Match[str] | None:
    quoted = error.find(_QUOTED)
    if quoted >= 0 and (found := _CODE.match(error, quoted + len(_QUOTED))):
        return found
    # Most errors are no replies, and this tells them apart faster than the patterns do.
    if error[:1] in _CLASSES and (found := _CODE.match(error)):
        return found
    return _WORDED.match(error) or _TOLD.search(error) if ": " in error else None


def _words_folded(text: str) -> str:
    # Words come again and again, where whole errors do not.
    return " ".join(map(_folded, text.split(" ")))


@lru_cache(8192)
def _folded(word: str) -> str:
    if word.isalpha():
        return word
    return _VARIES.sub(_sign, word) if _PUNCTUATED(word) else _NUMBERS.sub("#", word)


def _sign(found: re.Match[str]) -> str:
    return _SIGNS.get(found.lastgroup or "", "#")
