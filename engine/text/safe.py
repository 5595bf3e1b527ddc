"""Makes any foreign text safe to show, to log and to store: the only place that decides what is."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

AS_PICTURE = "\ufe0f"
"""Asks for a sign as a picture: with it some terminals make one cell two, and others do not."""


def shown(text: str) -> str:
    """The text on one line, with every control, C1, bidi, surrogate and other unprintable
    character replaced by U+FFFD, so that no terminal can be made to act on it.

    U+FE0F is left out: how wide a sign is with it is not the same on all terminals.
    """
    if AS_PICTURE in text:
        text = text.replace(AS_PICTURE, "")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else REPLACEMENT for c in text)


def shown_lines(data: bytes | str, limit: int = 1 << 20) -> list[str]:
    """Foreign data as lines that are safe to show; at most `limit` characters, and it says so."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    cut = len(text) > limit
    lines = [shown(line.removesuffix("\r").expandtabs(8)) for line in text[:limit].split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    if cut:
        lines.append(f"... cut here: {len(text) - limit:,} more characters")
    return lines


class _Fold(dict[int, str]):
    """Maps what the contract allows to itself and all else to an underscore."""

    def __missing__(self, code: int) -> str:
        return "_"


_CONTRACT = _Fold(
    {ord(c): c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _.-:/"}
)

_is_plain = re.compile("[A-Za-z0-9 _.:/-]*").fullmatch

ERROR_LIMIT = 200
"""Characters of an error that are kept (contract: TASK_LAST_ERROR)."""

SAID_LIMIT = 500
"""The same where no contract says so."""


def plain(text: str) -> str:
    """The text in the contract's character set, in which no shell finds anything to expand.

    Letters, digits, space and `_ . - : /` stay; every other character becomes `_`, the backslash
    too. Source: nftban_task_queue.sh, which replaces in descriptions and errors the same way.
    """
    return text if _is_plain(text) else text.translate(_CONTRACT)


def plain_error(text: str) -> str:
    """An error as it is stored: cut to 200 characters, then made plain."""
    return plain(text.rstrip("\n")[:ERROR_LIMIT])


def said(text: str) -> str:
    """An error as it is stored where any text may be: on one line, cut to `SAID_LIMIT`."""
    return shown(text.strip())[:SAID_LIMIT]


_is_ascii_part = re.compile(r"[a-z0-9_-]{1,63}").fullmatch


def ascii_name(host: str) -> str:
    """A host's name as the network has it: what is beyond ASCII in Punycode (RFC 3492).

    Capitals count for nothing; a name that programs would take for another than is shown, such as
    one in full-width letters, is refused.

    Raises:
        ValueError: it is no name, or does not stand for itself alone.
    """
    import unicodedata

    parts = []
    for part in unicodedata.normalize("NFC", host).lower().split("."):
        coded = part
        if not part.isascii():
            kinds = [unicodedata.category(c)[0] for c in part if c != "-"]
            mapped = unicodedata.normalize("NFKC", part) != part
            if mapped or kinds[0] == "M" or not {*kinds} <= {*"LMN"}:
                raise ValueError(f"'{shown(part[:40])}' does not stand for itself in a host's name")
            coded = f"xn--{part.encode('punycode').decode('ascii')}"
        if not _is_ascii_part(coded):
            raise ValueError(f"'{shown(part[:40])}' is no part of a host's name")
        parts.append(coded)
    return ".".join(parts)


def private(address: str) -> str:
    """A mail address as it may stand in a log: `admin@...` (contract, "Logging Format")."""
    return address.partition("@")[0] + "@..."
