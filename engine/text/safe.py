"""Make untrusted text safe to show, log and store; only this module decides what is safe."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

EMOJI_SELECTOR = "\ufe0f"
"""Variation selector for emoji: terminals disagree whether the character is then wider."""

_SCRIPTS = "[\u0600-\u109f\u1780-\u18af\ua840-\uabff]"
"""Letters and marks of Arabic, Indic and other scripts that are written with joiners."""
_NON_JOINER = f"(?<={_SCRIPTS})\u200c(?={_SCRIPTS})"
_EMOJI = "[\u2600-\u27bf\U0001f000-\U0001faff]"
_JOINER = f"(?<={_SCRIPTS})\u200d(?={_SCRIPTS})|(?<={_EMOJI})\u200d(?={_EMOJI})"
"""Compiled at first use: most commands show printable text only."""


def safe_line(text: str) -> str:
    """Replace every control, C1, bidi, surrogate and other unprintable character by U+FFFD.

    The result is one line that cannot control a terminal. U+FE0F, and U+200D between emoji or
    letters that it joins, are removed, because terminals disagree about their effect on the width.
    U+200C stays between letters of scripts that need it: in others it would be invisible."""
    if EMOJI_SELECTOR in text:
        text = text.replace(EMOJI_SELECTOR, "")
    if text.isprintable():
        return text
    text = re.sub(_JOINER, "", text)
    allowed = {match.start() for match in re.finditer(_NON_JOINER, text)}
    characters = enumerate(text)
    return "".join(c if c.isprintable() or at in allowed else REPLACEMENT for at, c in characters)


def safe_start(text: str, most: int) -> str:
    """`safe_line` of at most `most` characters: a text that was cut ends in an ellipsis."""
    return safe_line(text if len(text) <= most else f"{text[: most - 1]}\u2026")


_OWN_NAME = re.compile(r"^\w+_([2-5]\d\d): (?=\1\b)")


def safe_error(error: str) -> str:
    """`safe_line` of an error, without our own name of it where a reply with the same code follows:
    `450 4.2.0 busy` of `unavailable_450: 450 4.2.0 busy`."""
    return _OWN_NAME.sub("", safe_line(error))


_LINE_ENDS = re.compile(r"(\r?\n|\t)")


def safe_text(text: str) -> str:
    """`safe_line` for each line of a text: only its line ends and tabs stay."""
    if text == "\n" or (text.isprintable() and EMOJI_SELECTOR not in text):
        return text
    parts = _LINE_ENDS.split(text)
    parts[::2] = map(safe_line, parts[::2])
    return "".join(parts)


def state_name(word: str) -> str:
    """A store's word for a state, as an operator reads it: `DLQ` is an abbreviation."""
    return "DLQ" if word == "dlq" else safe_line(word)


def safe_lines(data: bytes | str, limit: int = 1 << 20) -> list[str]:
    """Untrusted data as safe lines; cut at `limit` characters, with a note."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    cut = len(text) > limit
    lines = [safe_line(line.removesuffix("\r").expandtabs(8)) for line in text[:limit].split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    if cut:
        lines.append(f"... cut here: {len(text) - limit:,} more characters")
    return lines


_OTHER_CHARACTER = re.compile("[^A-Za-z0-9 _.:/-]")

ERROR_LIMIT = 200
"""Characters of a stored error (contract: TASK_LAST_ERROR)."""

TEXT_ERROR_LIMIT = 500
"""Characters of a stored error in formats without their own limit."""


def contract_text(text: str) -> str:
    """Reduce text to the contract's character set, which no shell expands.

    Letters, digits, space and `_ . - : /` stay; every other character becomes `_`. Source:
    nftban_task_queue.sh, which does the same to descriptions and errors."""
    return _OTHER_CHARACTER.sub("_", text)


_EXPANDED = re.compile(f'["$`\\\\{REPLACEMENT}]')
"""What a shell expands within double quotes, and the mark of what is not printable."""


def shell_text(text: str) -> str:
    """Text in any script on one line, without what a shell expands within double quotes.

    White space becomes spaces. `"`, `$`, a backtick, a backslash and what is not printable become
    `_`. They are not escaped, because the contract's own program writes the value back without the
    escapes, and then sources it."""
    if not text.isprintable():  # of white space only the space is printable
        text = "".join(" " if c.isspace() else c for c in text)
    return _EXPANDED.sub("_", safe_line(text))


def contract_error(text: str) -> str:
    """An error as the contract stores it: cut to 200 characters, then as `contract_text`."""
    return contract_text(text.rstrip("\n")[:ERROR_LIMIT])


def clean_error(text: str) -> str:
    """An error for formats that store any text: on one line, cut to `TEXT_ERROR_LIMIT`."""
    return safe_line(text.strip())[:TEXT_ERROR_LIMIT]


_is_ascii_part = re.compile(r"[a-z0-9_-]{1,63}").fullmatch


def ascii_name(host: str) -> str:
    """A host name in lower-case ASCII, other characters in Punycode (RFC 3492).

    A name that programs would read as another one, such as one in full-width letters, is refused.

    Raises:
        ValueError: it is not a host name, or is ambiguous."""
    import unicodedata

    parts = []
    for part in unicodedata.normalize("NFC", host).lower().split("."):
        coded = part
        if not part.isascii():
            kinds = [unicodedata.category(c)[0] for c in part if c != "-"]
            mapped = unicodedata.normalize("NFKC", part) != part
            if mapped or kinds[0] == "M" or not {*kinds} <= {*"LMN"}:
                raise ValueError(f"'{safe_line(part[:40])}' is ambiguous in a host name")
            coded = f"xn--{part.encode('punycode').decode('ascii')}"
        if not _is_ascii_part(coded):
            raise ValueError(f"'{safe_line(part[:40])}' is not valid in a host name")
        parts.append(coded)
    return ".".join(parts)


def hide_domain(address: str) -> str:
    """A mail address without its domain, for logs: `admin@...` (contract, "Logging Format")."""
    return address.partition("@")[0] + "@..."
