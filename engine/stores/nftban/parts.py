"""The pieces of a task: its file, its payload, and what lies beside the payload of a spooled mail.

A task file may name any file of the system. What it names is looked at only below the mail spool,
component by component through no symbolic link, and nothing of it is ever run.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from os import stat_result

from engine.model import Part
from engine.store import GLIMPSE, SHOWN, Gone, Unavailable, Unsupported
from engine.system import files
from engine.system.files import Refused

TASK, PAYLOAD, MAIL = "task", "payload", "mail/"
"""Names of parts; behind the last one stands the name of a file beside the payload."""

MAIL_FOLDER = "mail-"
"""How the folder of one spooled mail begins: contract, "Mail Spool"."""

META, SENT = "meta.sh", "sent"
"""Of a mail's files those that go last: what it is, and the mark that it was sent."""

MOST = 20
"""Files of a mail's folder that are shown; the contract puts two there."""


def of(
    path: str, seen: stat_result, payload: str, mail_spool: str, root: str = ""
) -> Iterator[Part]:
    """The parts of the task in the file `path`, which was `seen` so.

    `root`, here and below, is the data folder under which no symbolic link is followed.
    """
    flocked = files.flocked()
    yield Part(TASK, path, seen.st_size, _facts(seen, flocked))
    if not payload:
        return
    try:
        with _folder_of(payload, mail_spool, root) as (fd, name, spool_fd):
            spool = os.fstat(spool_fd)
            yield _part(PAYLOAD, payload, name, fd, spool, flocked)
            folder = os.path.dirname(payload)
            if not os.path.basename(folder).startswith(MAIL_FOLDER):
                return
            beside = sorted(other for other in os.listdir(fd) if other != name)
            for other in islice(beside, MOST):
                yield _part(MAIL + other, f"{folder}/{other}", other, fd, spool, flocked)
    except (Refused, OSError) as error:
        yield Part(PAYLOAD, payload, refused=_words(error))


def read(part: str, payload: str, mail_spool: str, root: str = "") -> bytes:
    """The first bytes of a part of a task with that payload.

    Raises:
        Gone: there is no such part.
        Unsupported: it is not to be read, with the reason.
        Unavailable: it cannot be read now.
    """
    beside = part.removeprefix(MAIL)
    if not payload or (part != PAYLOAD and beside == part) or "/" in beside:
        raise Gone(f"no part {part!r}")
    try:
        with _folder_of(payload, mail_spool, root) as (fd, name, spool):
            return _begin(name if part == PAYLOAD else beside, fd, SHOWN, os.fstat(spool))
    except (Refused, OSError) as error:
        raise _answer(part, error) from error


def glimpse(folder: str, name: str) -> bytes:
    """The first bytes of whatever lies in a folder under a name, whoever put it there.

    Raises:
        Gone: there is nothing.
        Unsupported: it is no plain file, with the reason.
        Unavailable: it cannot be read now.
    """
    try:
        fd = files.open_folder(folder)
        try:
            return _begin(name, fd, GLIMPSE)
        finally:
            os.close(fd)
    except (Refused, OSError) as error:
        raise _answer(name, error) from error


def weight(payload: str, mail_spool: str, root: str = "") -> int:
    """Bytes of what `discard` would remove.

    Raises:
        Refused: as there.
        OSError: that cannot be found out now.
    """
    with _folder_of(payload, mail_spool, root) as (fd, name, _):
        if is_mail(payload, mail_spool):
            return sum(seen.st_size for _, seen in files.plain_files(fd))
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_size


def discard(payload: str, mail_spool: str, root: str = "") -> None:
    """Remove a payload; of a spooled mail the plain files directly in its folder, and the folder.

    Raises:
        Refused: it lies elsewhere, or behind a symbolic link.
        OSError: it is gone already, or cannot be removed, or there is more in the mail's folder.
    """
    with _folder_of(payload, mail_spool, root) as (fd, name, spool):
        if is_mail(payload, mail_spool):
            files.remove_folder(os.path.basename(os.path.dirname(payload)), spool, (META, SENT))
        else:
            files.forget(name, fd)


def is_mail(payload: str, mail_spool: str) -> bool:
    """Whether this is the path of what a spooled mail's folder is known by."""
    whole = kept_in(payload, mail_spool)
    return whole != payload and payload == f"{whole}/{META}"


def kept_in(payload: str, mail_spool: str) -> str:
    """The folder of the spooled mail that a payload lies in; itself where it lies in none.

    Two tasks whose payloads are kept in one place may take it from each other.
    """
    folder = os.path.dirname(payload)
    above, mail = os.path.split(folder)
    return folder if above == mail_spool.rstrip("/") and mail.startswith(MAIL_FOLDER) else payload


def is_sent(payload: str, mail_spool: str, root: str = "") -> bool:
    """Whether this is a spooled mail that is marked as sent, so that nobody needs it any more."""
    if not is_mail(payload, mail_spool):
        return False
    try:
        with _folder_of(payload, mail_spool, root) as (fd, _, _):
            return stat.S_ISREG(os.stat(SENT, dir_fd=fd, follow_symlinks=False).st_mode)
    except (OSError, Refused):
        return False


@contextmanager
def _folder_of(payload: str, mail_spool: str, root: str) -> Iterator[tuple[int, str, int]]:
    """The folder of a payload as a descriptor, its last name, and the mail spool as one.

    Raises:
        Refused: the payload lies elsewhere, or behind a symbolic link.
        OSError: the folder cannot be opened.
    """
    if not mail_spool:
        raise Refused("lies nowhere that is known: no mail spool is configured")
    below = files.plainly_below(mail_spool, payload)
    with ExitStack() as opened:
        try:
            spool = files.enter(mail_spool, root)
            opened.callback(os.close, spool)
            fd, name = files.descend(spool, below)
            opened.callback(os.close, fd)
        except NotADirectoryError as error:
            raise Refused(f"lies behind {error.filename}, a symbolic link or no folder") from error
        yield fd, name, spool


def _part(
    name: str, where: str, file: str, fd: int, spool: stat_result, flocked: frozenset[int]
) -> Part:
    """What is known of a file without opening it."""
    try:
        seen = os.stat(file, dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        return Part(name, where, refused=_words(error))
    return Part(name, where, seen.st_size, _facts(seen, flocked), _why_not(seen, spool))


def _why_not(seen: stat_result, spool: stat_result | None) -> str:
    why = _said_of(files.oddity(seen))
    return why or (files.stranger(seen, spool) if spool is not None else "")


def _said_of(why: str) -> str:
    """Why something is not read, as what it is or does; it is said of task files elsewhere."""
    why = why.removesuffix(", not a task file")
    return f"is {why}" if why.startswith(("a ", "not ")) else why


def _begin(name: str, fd: int, limit: int, spool: stat_result | None = None) -> bytes:
    opened = files.open_guarded(name, fd)
    try:
        if why := _why_not(os.fstat(opened), spool):
            raise Refused(why)
        return os.read(opened, limit)
    finally:
        os.close(opened)


def _facts(seen: stat_result, flocked: frozenset[int]) -> tuple[tuple[str, str], ...]:
    facts = [
        ("modified", f"{seen.st_mtime:.0f}"),
        ("changed", f"{seen.st_ctime:.0f}"),
        ("inode", str(seen.st_ino)),
        ("mode", stat.filemode(seen.st_mode)),
        ("owner", _owner(seen)),
    ]
    if seen.st_nlink > 1:
        facts.append(("links", str(seen.st_nlink)))
    if seen.st_ino in flocked:
        facts.append(("lock", "its flock is held"))
    return tuple(facts)


def _owner(seen: stat_result) -> str:
    import grp
    import pwd

    try:
        user = pwd.getpwuid(seen.st_uid).pw_name
    except KeyError:
        user = str(seen.st_uid)
    try:
        group = grp.getgrgid(seen.st_gid).gr_name
    except KeyError:
        group = str(seen.st_gid)
    return f"{user}:{group}"


def _answer(name: str, error: Refused | OSError) -> Gone | Unsupported | Unavailable:
    said = f"{name}: {_words(error)}"
    if isinstance(error, FileNotFoundError):
        return Gone(said)
    return Unsupported(said) if isinstance(error, Refused) else Unavailable(said)


def _words(error: Refused | OSError) -> str:
    if isinstance(error, Refused):
        return _said_of(str(error))
    if error.errno == errno.ENOENT:
        return "is not there"
    return f"cannot be looked at: {error.strerror}"
