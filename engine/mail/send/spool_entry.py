"""The folder of one spooled mail: its name, its files and its mark files."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import stat_result

from engine.mail.address import split_addresses
from engine.mail.model import BadMail
from engine.mail.spool_meta import parse_meta
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import safe_line
from engine.values import NamedTuple

META, HTML, TEXT = "meta.sh", "body.html", "body.txt"
"""File names of a mail (contract, "Mail Spool Format")."""

TRYING, SENT, REFUSED, UNQUEUED = "trying", "sent", "refused", "unqueued"
QUEUING = "queuing"
"""Mark files in a mail's folder. The other program does not know them and does not touch them.

- trying: a transport was asked and has not answered
- sent: a transport has accepted the mail
- refused: no attempt can succeed
- unqueued: no task could be made
- queuing: the sender has not made the task yet
"""

MAIL_FOLDER_PREFIX = "mail-"
"""Prefix of a mail's folder; the other program reads no other."""

INCOMPLETE_PREFIX = ".new-"
"""Prefix of a folder that is not complete yet."""

MAX_TEXT_LENGTH = 10_000
"""Maximum characters of a subject or recipient; in any encoding, meta.sh stays below its size
limit."""

MAX_REASON_LENGTH = 200
"""Maximum characters of a reason, as it may come from outside."""


class SpoolMark(NamedTuple):
    """The content of a mark file: an attempt."""

    transport: str
    """"" if it cannot be read."""
    at: float
    """When the attempt began, epoch seconds UTC."""


_ID = re.compile(r"mail-[0-9A-Za-z:.-]+")


def is_id(name: str) -> bool:
    """True if the name is valid for our own mail; ids of the other program are not checked."""
    return _ID.fullmatch(name) is not None and len(name) <= 100


def new_id(now: float) -> str:
    """Return a new mail id: `mail-20260107T120102Z-a1b2c3d4`, in UTC."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return f"{MAIL_FOLDER_PREFIX}{stamp}-{os.urandom(4).hex()}"


_STAMP = re.compile(
    r"mail-([0-9]{4})-?([0-9]{2})-?([0-9]{2})T([0-9]{2}):?([0-9]{2}):?([0-9]{2})Z-.+"
)
"""`20260107T120102Z` and `2026-11-20T09:46:04Z`: the other program writes both forms."""


def time_in_id(id: str) -> float | None:
    """Return the time in a mail's name, epoch seconds UTC; None if missing."""
    match = _STAMP.fullmatch(id)
    if match is None:
        return None

    from calendar import timegm  # loads locale: most commands see no mail

    try:
        return float(timegm((*map(int, match.groups()), 0, 0, 0)))
    except (ValueError, OverflowError):
        return None  # such as day 99


def age_sort_key(id: str) -> tuple[float, str]:
    """Sort key: oldest first, names without a time last."""
    when = time_in_id(id)
    return float("inf") if when is None else when, id


def oldest_time(names: Iterable[str], spool: int) -> float:
    """Return when the oldest of these mails was spooled: the time in its name, else of its folder.
    Epoch seconds UTC; infinite if no recipient is left. No file is opened."""
    marks = [(_STAMP.fullmatch(name), name) for name in names]
    times = [_folder_time(name, spool) for match, name in marks if not match]
    dated = [(match.groups(), name) for match, name in marks if match]
    if dated:
        _, first = min(dated)
        when = time_in_id(first)
        times.append(_folder_time(first, spool) if when is None else when)
    return min(times, default=float("inf"))


def _folder_time(name: str, spool: int) -> float:
    try:
        return os.stat(name, dir_fd=spool, follow_symlinks=False).st_mtime
    except OSError:
        return float("inf")  # removed in between


def name_exists(name: str, dir_fd: int) -> bool:
    """True if the name exists and we may see it."""
    return os.access(name, os.F_OK, dir_fd=dir_fd)


# Writing.


def create_folder(id: str, parts: dict[str, bytes], spool: int) -> None:
    """Create a mail's folder with these files: write it under a temporary name, fsync, then rename
    it. Raises OSError: it could not be created; no folder with this id is left."""
    new = INCOMPLETE_PREFIX + os.urandom(8).hex()
    placed = ""
    try:
        mail_fd = files.create_folder(new, spool)
        placed = new
        try:
            _fill(mail_fd, parts, files.new_file_owner(os.fstat(spool)))
        finally:
            os.close(mail_fd)
        files.rename(new, id, src_dir_fd=spool, dst_dir_fd=spool)
        placed = id
        files.fsync(spool)
    except OSError:
        if placed:
            # Raise the first error; a later sweep removes what is left here.
            with suppress(OSError):
                files.remove_folder(placed, spool, (META,))
        raise


def _fill(mail_fd: int, parts: dict[str, bytes], owner: tuple[int, int] | None) -> None:
    for name, data in parts.items():
        fd = files.create_file(name, mail_fd, owner)
        try:
            files.write_all(fd, data)
            files.fsync(fd)
        finally:
            os.close(fd)
    files.fsync(mail_fd)


def render_attempt(transport: str, now: float) -> bytes:
    """Return the content of the mark of an attempt."""
    return files.format_assignments({"TRANSPORT": transport, "SINCE": str(int(now))})


def render_refusal(text: str) -> bytes:
    """Return the content of the mark of a refused mail."""
    return files.format_assignments({"WHY": text[:MAX_REASON_LENGTH]})


def encode_text(text: str) -> str:
    """Return a subject or recipient for meta.sh: one line, which a shell reads; encoded as in a
    header (RFC 2047) if it would be read in another way."""
    line = _on_one_line(text)[:MAX_TEXT_LENGTH].encode("utf-8", "replace").decode()
    written = files.format_assignment("A", line, utf8=True).encode()
    if "=?" not in line and files.parse_assignments(written, bool) == {"A": line}:
        return line
    return f"=?utf-8?b?{base64.b64encode(line.encode('utf-8', 'replace')).decode()}?="


def decode_text(stored: str) -> str:
    """Decode a text from `encode_text`; a text of another program is returned unchanged."""
    match = re.fullmatch(r"=\?utf-8\?b\?([A-Za-z0-9+/=]*)\?=", stored)
    if match is None:
        return stored
    try:
        return _on_one_line(base64.b64decode(match[1], validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        return stored


def find_domain(meta: bytes) -> str:
    """Return the domain of a mail's recipients, from its meta.sh; "" if it names none, or several.
    Raises Refused: it is no such file."""
    values = parse_meta(meta)
    recipients = split_addresses(decode_text(values.get("MAIL_TO", "")))
    domains = {one.rpartition("@")[2].lower() for one in recipients if "@" in one}
    return domains.pop() if len(domains) == 1 else ""


def _on_one_line(text: str) -> str:
    return "".join(" " if c < " " or "\x7f" <= c <= "\x9f" else c for c in text)


# Guarded reading. The readers of marks raise as `open_file`, but for a missing file.


def shorten_text(text: str) -> str:
    """Return text from outside for a message: safe to show, at most `WORDS` characters."""
    return safe_line(text[:MAX_REASON_LENGTH])


@contextmanager
def open_file(name: str, mail_fd: int, spool: stat_result) -> Iterator[int]:
    """Open a plain file of a mail's folder; its owner must be allowed to put mail into the spool.

    Raises:
        FileNotFoundError: there is no such file.
        BadMail: it is not a plain file, or has an untrusted owner or mode.
        OSError: it cannot be opened now.
    """
    try:
        fd = files.open_outgoing(name, mail_fd, spool)
    except Refused as refusal:
        if isinstance(refusal.__cause__, PermissionError):
            raise refusal.__cause__ from None  # our permissions, not a fault of the mail
        raise BadMail(_describe_fault(name, refusal)) from refusal
    try:
        file_stat = os.fstat(fd)
        why = files.file_problem(file_stat, spool) or files.owner_problem(file_stat, spool)
        if not why and file_stat.st_mode & stat.S_IWOTH:
            why = f"writable by all users, expected mode {files.FILE_MODE:o} or less"
        if why:
            raise BadMail(_describe_fault(name, why))
        yield fd
    finally:
        os.close(fd)


def read_file(name: str, mail_fd: int, spool: stat_result, limit: int) -> tuple[bytes, stat_result]:
    """Read such a file of at most `limit` bytes; return its bytes and its stat. Raises as
    `open_file`, and BadMail if it is larger."""
    with open_file(name, mail_fd, spool) as fd:
        try:
            return files.read_guarded(fd, limit, dir_fd=mail_fd)
        except Refused as refusal:
            raise BadMail(_describe_fault(name, refusal)) from refusal


def _describe_fault(name: str, why: object) -> str:
    return f"{shorten_text(name)}: {str(why).removesuffix(', not a task file')}"


def read_mark_values(
    name: str, mail_fd: int, spool: stat_result
) -> tuple[Mapping[str, str], stat_result] | None:
    """Read the values of a mark file and its stat; None if there is no mark. A mark that cannot be
    parsed counts as a mark without values."""
    try:
        data, mark_stat = read_file(name, mail_fd, spool, files.MAX_TASK_BYTES)
    except FileNotFoundError:
        return None
    try:
        return files.parse_assignments(data, lambda key: True), mark_stat
    except Refused:
        return {}, mark_stat


def read_mark(name: str, mail_fd: int, spool: stat_result) -> SpoolMark | None:
    """Read the mark of an attempt; None if missing."""
    mark = read_mark_values(name, mail_fd, spool)
    if mark is None:
        return None
    values, mark_stat = mark
    since = values.get("SINCE", "")
    when = float(since) if since.isascii() and since.isdigit() and len(since) < 12 else None
    return SpoolMark(values.get("TRANSPORT", ""), mark_stat.st_mtime if when is None else when)
