"""Group similar errors: replace what varies (numbers, hosts, ids), and name the pattern.

`connect_timeout mx7.example.net 25` and `connect_timeout mx31.example.org 587` are one error to an
operator; `421 4.7.0 try again later` and `550 5.1.1 user unknown` are two, with different codes. So
variable parts are replaced, but the reply codes of a mail server stay."""

from __future__ import annotations

import re
import zlib
from functools import cache, lru_cache

from engine.text.safe import ERROR_LIMIT

_FILES = "sh|py|pl|rb|md|rs|ts|js|so|cc|gz|bz|xz|db|conf|log|html|json|yaml|task|service|list"
"""File name extensions: such a name is not a host name."""

_DOMAINS = (
    "com|net|org|edu|gov|mil|int|info|biz|test|example|invalid|local|localdomain|lan|internal|home|"
    "dev|app|cloud|email|online|site|eu|uk|de|fr|nl|it|es|ch|at|be|se|dk|no|fi|cz|us|ca|io|co"
)
"""Top-level domains of host names with one dot; with more dots, any ending counts."""

_NUMBER = r"""
    (?<![a-zA-Z0-9#]) (?:
        0x[0-9a-fA-F]+ (?![a-zA-Z0-9])
      | (?=[a-fA-F]*[0-9]) (?:[0-9a-fA-F]{8} | [0-9a-fA-F]{12,}) (?![a-zA-Z0-9])
      | [a-zA-Z]* (?:[0-9]+[a-zA-Z]+)+ [0-9]+ [a-zA-Z0-9]* )
    | [0-9]+
"""
"""Numbers, hexadecimal of the lengths of ids, and words with two groups of digits."""

_H = "[0-9a-fA-F]{1,4}"
"""One group of an IPv6 address."""

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
"""Addresses, ids, host names and paths: words with punctuation."""

_NAMES_AND_NUMBERS = f"{_NAME} | {_NUMBER}"

_PUNCTUATED = re.compile(r"[./:@-]").search

_ENHANCED = r"[ -][245](?:\.[0-9]{1,3}){2}"
_WORD_END = r"(?![.\w])"

_CODE = re.compile(rf"([245][0-9]{{2}})(?:{_ENHANCED})?{_WORD_END}")
"""A mail server's reply: its code and enhanced status code (RFC 5321, RFC 3463)."""

_AFTER_ERROR_NAME = re.compile(rf"[a-z_]+_([245][0-9]{{2}}): \1(?:{_ENHANCED})?{_WORD_END}")
"""The same after our own error name: `unavailable_450: 450 4.2.0`."""

_AFTER_COLON = re.compile(rf"(?<=[^:]: )([245][0-9]{{2}}){_ENHANCED}{_WORD_END}")
"""Both codes after any other text: `Invalid login: 535 5.7.8`. The first one alone could be any
number there (`timeout: 250 ms`), and text that ends in two colons could be an IPv6 address."""

_HTTP_STATUS = re.compile(r"[\[_]HTTP_([1-9][0-9]{2})[\]_](?![^ ])")
"""The status of an HTTP answer, at the start: `[HTTP_503]`, or "_HTTP_503_" in a task file."""

_CLASSES = frozenset("245")
"""First digit of a reply: success, temporary failure, permanent failure."""

_QUOTED = " said: "
"""Mail programs quote the server's reply after this text."""


def fold_error(error: str) -> str:
    """Return the pattern of an error, which similar errors share.

    Numbers and hexadecimal words become `#`, task ids and UUIDs `<id>`, mail addresses `<address>`,
    host names and IP addresses `<host>`, absolute paths `<path>`. The reply code of a server stays
    (`421 4.7.0`): at the start, after ` said: `, after our own error name (`unavailable_450: 450`),
    and, if it has both codes, after any colon; so does the status of an HTTP answer. Only the first
    `ERROR_LIMIT_CHARS` characters count, the part that a task file stores, so that a log and a
    spool give the same pattern. Folding a pattern again does not change it."""
    error = error[:ERROR_LIMIT]
    reply = _find_reply(error)
    if reply is None:
        return _fold_words(error)
    start, end = reply.span()
    head = _fold_words(error[:start]) if start else ""
    return head + error[start:end] + _fold_words(error[end:])


def reply_code(error: str) -> str:
    """The three-digit code of a server's reply that `fold_error` keeps; "" if none."""
    reply = _find_reply(error)
    return reply[1] if reply else ""


def pattern_name(folded: str) -> str:
    """Short name of a pattern, easy to type: `F-3A91`. It has 16 bits of a CRC-32: among 100
    patterns, two share a name in 1 of 13 cases. A filter by that name then matches both."""
    return f"F-{zlib.crc32(folded.encode('utf-8', 'replace')) & 0xFFFF:04X}"


def _find_reply(error: str) -> re.Match[str] | None:
    quoted = error.find(_QUOTED)
    if quoted >= 0 and (match := _CODE.match(error, quoted + len(_QUOTED))):
        return match
    # Most errors have no reply code, and this test is faster than the patterns.
    if error[:1] in _CLASSES and (match := _CODE.match(error)):
        return match
    if error[:1] in ("[", "_") and (match := _HTTP_STATUS.match(error)):
        return match
    return _AFTER_ERROR_NAME.match(error) or _AFTER_COLON.search(error) if ": " in error else None


def _fold_words(text: str) -> str:
    # Cached by word, because words recur where whole errors do not.
    return " ".join(map(_fold_word, text.split(" ")))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """An expression; takes some milliseconds to compile, so only with the first error."""
    return re.compile(text, re.VERBOSE | re.ASCII)


@lru_cache(8192)
def _fold_word(word: str) -> str:
    if word.isalpha():
        return word
    if _PUNCTUATED(word):
        return _pattern(_NAMES_AND_NUMBERS).sub(_placeholder, word)
    return _pattern(_NUMBER).sub("#", word)


def _placeholder(match: re.Match[str]) -> str:
    name = "host" if match.lastgroup == "number" else match.lastgroup
    return f"<{name}>" if name else "#"
