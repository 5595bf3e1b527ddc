"""What lies in the folder of one spooled mail: its name, its files, and the marks beside them."""

from __future__ import annotations

import base64
import binascii
import calendar
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import stat_result
from typing import NamedTuple

from engine.mail.model import BadMail
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

META, HTML, TEXT = "meta.sh", "body.html", "body.txt"
"""Contract, "Mail Spool Format"."""

TRYING, SENT, REFUSED, UNQUEUED = "trying", "sent", "refused", "unqueued"
QUEUING = "queuing"
"""Marks in a mail's folder: a transport has been asked and has not answered; one has accepted the
mail; none ever will; no task could be made for it; its sender has not made its task yet. The other
program knows none of them, and leaves them alone.
"""

FOLDER = "mail-"
"""How the folder of a mail begins; the other program looks at no other."""

NEW = ".new-"
"""How a folder begins that is not complete yet."""

SUBJECT = 10_000
"""Characters of a subject that are kept: however they are encoded, meta.sh stays readable."""

WORDS = 200
"""Characters of a reason; foreign files decide how long it would be."""


class SpoolMark(NamedTuple):
    """What was written down about an attempt."""

    transport: str
    """"" where that cannot be read."""
    at: float
    """When the attempt began, epoch seconds UTC."""


# Names and times.

_ID = re.compile(r"mail-[0-9A-Za-z:.-]+")


def is_id(name: str) -> bool:
    """Whether a mail may be called so by us; others are not asked."""
    return _ID.fullmatch(name) is not None and len(name) <= 100


_STAMP = re.compile(
    r"mail-([0-9]{4})-?([0-9]{2})-?([0-9]{2})T([0-9]{2}):?([0-9]{2}):?([0-9]{2})Z-.+"
)
"""`20260107T120102Z` and `2026-11-20T09:46:04Z`: the other program writes both."""


def stamp_of(id: str) -> float | None:
    """When a mail was made, as its name says; epoch seconds UTC."""
    found = _STAMP.fullmatch(id)
    if found is None:
        return None
    try:
        return float(calendar.timegm((*map(int, found.groups()), 0, 0, 0)))
    except (ValueError, OverflowError):
        return None  # such as the 99th of a month


def by_age(id: str) -> tuple[float, str]:
    """To sort mails by: the oldest first, and those whose name does not say it last."""
    when = stamp_of(id)
    return float("inf") if when is None else when, id


def oldest(names: Iterable[str], spool: int) -> float:
    """When the first of these was spooled, none opened: as a name says, else its folder's time.

    Epoch seconds UTC; infinite where there is none any more.
    """
    marks = [(_STAMP.fullmatch(name), name) for name in names]
    times = [_changed(name, spool) for found, name in marks if not found]
    dated = [(found.groups(), name) for found, name in marks if found]
    if dated:
        _, first = min(dated)
        when = stamp_of(first)
        times.append(_changed(first, spool) if when is None else when)
    return min(times, default=float("inf"))


def _changed(name: str, spool: int) -> float:
    try:
        return os.stat(name, dir_fd=spool, follow_symlinks=False).st_mtime
    except OSError:
        return float("inf")  # gone meanwhile


def is_there(name: str, dir_fd: int) -> bool:
    """Whether anything lies there that we may know of."""
    return os.access(name, os.F_OK, dir_fd=dir_fd)


# Writing.


def place(id: str, parts: dict[str, bytes], spool: int) -> None:
    """A new folder with these files, complete and on the disk before it has its name.

    Raises:
        OSError: nothing of it is left that has the name.
    """
    new = NEW + os.urandom(8).hex()
    placed = ""
    try:
        files.mkdir(new, files.FOLDER_MODE, dir_fd=spool)
        placed = new
        here = files.open_folder(new, spool)
        try:
            _fill(here, parts, files.owner_for(os.fstat(spool)))
        finally:
            os.close(here)
        files.rename(new, id, src_dir_fd=spool, dst_dir_fd=spool)
        placed = id
        files.fsync(spool)
    except OSError:
        if placed:
            # The first error is the one to tell; what cannot be removed now is swept later.
            with suppress(OSError):
                files.remove_folder(placed, spool, (META,))
        raise


def _fill(here: int, parts: dict[str, bytes], owner: tuple[int, int] | None) -> None:
    if owner is not None:
        files.fchown(here, *owner)
    files.fchmod(here, files.FOLDER_MODE)
    for name, data in parts.items():
        fd = files.create(name, here, owner)
        try:
            files.write_all(fd, data)
            files.fsync(fd)
        finally:
            os.close(fd)
    files.fsync(here)


def attempt(transport: str, now: float) -> bytes:
    """What the mark of an attempt holds."""
    return files.assignments({"TRANSPORT": transport, "SINCE": str(int(now))})


def refusal(text: str) -> bytes:
    """What the mark of a mail holds that no attempt would help."""
    return files.assignments({"WHY": text[:WORDS]})


def as_stored(subject: str) -> str:
    """A subject as meta.sh can hold it: ASCII on one line, encoded as in a header (RFC 2047)."""
    line = _on_one_line(subject)[:SUBJECT]
    if line.isascii() and "=?" not in line:
        return line
    return f"=?utf-8?b?{base64.b64encode(line.encode('utf-8', 'replace')).decode()}?="


def as_given(stored: str) -> str:
    """The subject that was stored so; what others wrote is left as it is."""
    found = re.fullmatch(r"=\?utf-8\?b\?([A-Za-z0-9+/=]*)\?=", stored)
    if found is None:
        return stored
    try:
        return _on_one_line(base64.b64decode(found[1], validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        return stored


def _on_one_line(text: str) -> str:
    return "".join(" " if c < " " or "\x7f" <= c <= "\x9f" else c for c in text)


# Reading, guarded.


def short(text: str) -> str:
    """Foreign text as it may stand in a message: safe, and not long."""
    return shown(text[:WORDS])


@contextmanager
def opened(name: str, here: int, spool: stat_result) -> Iterator[int]:
    """A plain file of a mail's folder, of somebody who may put mails in the spool.

    Raises:
        FileNotFoundError: there is none.
        BadMail: it is something else.
        OSError: it cannot be opened now.
    """
    try:
        fd = files.open_guarded(name, here)
    except Refused as refusal:
        if isinstance(refusal.__cause__, PermissionError):
            raise refusal.__cause__ from None  # it says something about us, not about the mail
        raise BadMail(_said_of(name, refusal)) from refusal
    try:
        seen = os.fstat(fd)
        why = files.oddity(seen) or files.stranger(seen, spool)
        if not why and seen.st_mode & stat.S_IWOTH:
            why = f"may be written by everybody, expected mode {files.FILE_MODE:o} or less"
        if why:
            raise BadMail(_said_of(name, why))
        yield fd
    finally:
        os.close(fd)


def content(name: str, here: int, spool: stat_result, limit: int) -> tuple[bytes, stat_result]:
    """All of such a file, and its state.

    Raises:
        BadMail: it has more than `limit` bytes; and as `opened`.
        OSError: as `opened`.
    """
    with opened(name, here, spool) as fd:
        try:
            return files.read_guarded(fd, limit)
        except Refused as refusal:
            raise BadMail(_said_of(name, refusal)) from refusal


def _said_of(name: str, why: object) -> str:
    return f"{short(name)}: {str(why).removesuffix(', not a task file')}"


def mark_values(
    name: str, here: int, spool: stat_result
) -> tuple[Mapping[str, str], stat_result] | None:
    """What a mark says, and its state; None where there is none.

    One that cannot be understood is a mark all the same.

    Raises:
        BadMail: something else has its name.
        OSError: it cannot be read now.
    """
    try:
        data, seen = content(name, here, spool, files.TASK_LIMIT)
    except FileNotFoundError:
        return None
    try:
        return files.parse_assignments(data, lambda key: True), seen
    except Refused:
        return {}, seen


def mark(name: str, here: int, spool: stat_result) -> SpoolMark | None:
    """The mark of an attempt, if it is there.

    Raises:
        BadMail: something else has its name.
        OSError: it cannot be read now.
    """
    found = mark_values(name, here, spool)
    if found is None:
        return None
    values, seen = found
    since = values.get("SINCE", "")
    when = float(since) if since.isascii() and since.isdigit() and len(since) < 12 else None
    return SpoolMark(values.get("TRANSPORT", ""), seen.st_mtime if when is None else when)
