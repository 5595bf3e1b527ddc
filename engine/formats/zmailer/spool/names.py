"""Names in a ZMailer spool: control files, hash folders, spool ids, addresses.

The number that begins the name of a control file is the inode number of its message file. Hashing
takes it modulo 26, or modulo 676 on two levels (scheduler(8zm), option -H).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from engine.system.files import Refused
from engine.values import NamedTuple

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123abcdefghijklmnopqrstuvwxyz4567890-"
"""Characters of six bits each in a spool id."""

_match_name = re.compile(r"([0-9]{1,20})(?:-[A-Za-z0-9_.-]{1,40})?").fullmatch
_match_spool_id = re.compile(r"S([0-9]{1,20})A[A-Za-z0-9-]{7}(?:[A-Za-z0-9-]{5})?").fullmatch
_match_task_id = re.compile(r"([0-9][A-Za-z0-9_.-]*)/([0-9]{1,12})").fullmatch
is_thread = re.compile(rb'[^ "()\\]+ [^ "()\\]+').fullmatch
"""Matches channel and host of an address of the usual form: two plain words before the last two."""
_has_groups = re.compile(rb'["()\\]').search
_HASH_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Quad(NamedTuple):
    """An address: channel, host, user and privilege."""

    channel: bytes
    host: bytes
    user: bytes
    privilege: bytes


def message_number(name: str) -> int | None:
    """The number of a control file; None if a name is not one of a control file."""
    match = _match_name(name)
    return int(match[1]) if match else None


def is_hash_folder(name: str) -> bool:
    """True for the name of a hash folder: one letter A-Z."""
    return len(name) == 1 and name in _HASH_LETTERS


def hash_folders(number: int) -> Iterator[str]:
    """The folders below transport/ and queue/ in which a file with this number may be, each with
    its final slash: unhashed, on one level, on two levels."""
    yield ""
    yield f"{_HASH_LETTERS[number % 26]}/"
    high, low = divmod(number % 676, 26)
    yield f"{_HASH_LETTERS[high]}/{_HASH_LETTERS[low]}/"


def all_hash_folders() -> Iterator[str]:
    """All folders on both levels, without a final slash."""
    for one in _HASH_LETTERS:
        yield one
        yield from (f"{one}/{two}" for two in _HASH_LETTERS)


def task_id(name: str, offset: int) -> str:
    """The id of a task: control file and byte offset of the recipient line in it."""
    return f"{name}/{offset}"


def parse_task_id(ident: str) -> tuple[str, int] | None:
    """Control file and offset of a task id; None if it is none."""
    match = _match_task_id(ident)
    if (
        match is None
        or message_number(match[1]) is None
        or task_id(match[1], int(match[2])) != ident
    ):
        return None
    return match[1], int(match[2])


def spool_id(number: int, modified_ns: int) -> str:
    """The id of a message in logs and MAILQ: "S", its number, the time of its file with 8
    characters for the seconds and 5 for the nanoseconds, if there are any."""
    seconds, nanoseconds = divmod(modified_ns, 1_000_000_000)
    at = time.gmtime(seconds)
    values = [at.tm_year >> 12 & 63, at.tm_year >> 6 & 63, at.tm_year & 63, at.tm_mon - 1]
    values += [at.tm_mday - 1, at.tm_hour, at.tm_min, at.tm_sec]
    if nanoseconds:
        values += [nanoseconds >> bits & 63 for bits in (24, 18, 12, 6, 0)]
    return f"S{number}{''.join(map(ALPHABET.__getitem__, values))}"


def spool_id_number(text: str) -> int | None:
    """The number of the message that a spool id names; None if it is no spool id.

    The time begins with "A" until the year 4096. It cannot be decoded: the alphabet has "0" twice.
    To find the message, compare the `spool_id` of the file with this number."""
    match = _match_spool_id(text)
    return int(match[1]) if match else None


def parse_quad(text: bytes) -> Quad:
    """Parse channel, host, user and privilege. A host may be a list in parentheses, or quoted; a
    user may have blanks, and may be missing. Raises Refused: it is not that."""
    channel, _, unparsed = text.lstrip(b" ").partition(b" ")
    unparsed = unparsed.lstrip(b" ")
    end = _word_end(unparsed)
    host, others = unparsed[:end], unparsed[end:].strip(b" ")
    user, _, privilege = others.rpartition(b" ")
    if not channel or not host or not privilege.lstrip(b"-").isdigit():
        raise Refused("no channel, host, user and privilege")
    return Quad(channel.lower(), host.lower(), user.strip(b" "), privilege)


def _word_end(text: bytes) -> int:
    """Where the first word ends: blanks within parentheses and quotes belong to it."""
    end = text.find(b" ")
    if not _has_groups(text):
        return len(text) if end < 0 else end
    depth, is_quoted, is_escaped = 0, False, False
    for at, char in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif char == ord("\\"):
            is_escaped = True
        elif char == ord('"'):
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif char == ord("("):
            depth += 1
        elif char == ord(")"):
            depth -= 1
        elif char == ord(" ") and depth <= 0:
            return at
    if is_quoted or depth > 0:
        raise Refused("a host without its closing quote or parenthesis")
    return len(text)
