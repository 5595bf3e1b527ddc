"""The parts of a task: its file, its payload, and the other files of a spooled mail; and which
payloads are named by a task file, in any state or while being moved.

A task file may name any path of the system. Only paths below the mail spool are read, opened
component by component without following symbolic links, and nothing is executed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from os import stat_result

from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.staging import StagingDir
from engine.model import Missing, Part, Problem, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused, Untrusted
from engine.text.error_text import error_text

TASK, PAYLOAD, MAIL = "task", "payload", "mail/"
"""Names of parts; `mail/` is followed by the name of a file in the payload's folder."""

MAIL_FOLDER = "mail-"
"""Prefix of a spooled mail's folder (contract, "Mail Spool")."""

META, SENT = "meta.sh", "sent"
"""The files of a mail that are removed last: its data, and the mark that it was sent."""

MAX_MAIL_FILES = 20
"""Maximum number of files shown of a mail's folder; the contract has two."""


def list_parts(
    path: str, file_stat: stat_result, payload: str, mail_spool: str, root: str = ""
) -> Iterator[Part]:
    """Yield the parts of the task in the file `path` with `file_stat`.

    In this module `root` is the data folder; below it no symbolic link is followed.
    """
    flocked = files.flocked_inodes()
    yield Part(TASK, path, file_stat.st_size, _facts(file_stat, flocked))
    if not payload:
        return
    try:
        with _open_folder(payload, mail_spool, root) as (fd, name, spool_fd):
            spool = os.fstat(spool_fd)
            yield _part(PAYLOAD, payload, name, fd=fd, spool=spool, flocked=flocked)
            folder = os.path.dirname(payload)
            if not os.path.basename(folder).startswith(MAIL_FOLDER):
                return
            other_names = sorted(other for other in os.listdir(fd) if other != name)
            for other in islice(other_names, MAX_MAIL_FILES):
                yield _part(
                    MAIL + other, f"{folder}/{other}", other, fd=fd, spool=spool, flocked=flocked
                )
    except (Refused, OSError) as error:
        yield Part(PAYLOAD, payload, refusal=_describe_error(error))


def read_part(part: str, payload: str, mail_spool: str, root: str = "") -> bytes:
    """Read the first bytes of a part of a task with this payload.

    Raises:
        Gone: there is no such part.
        Unsupported: it must not be read; with the reason.
        Unavailable: it cannot be read now.
    """
    file_name = part.removeprefix(MAIL)
    if not payload or (part != PAYLOAD and file_name == part) or "/" in file_name:
        raise Gone(f"no part {part!r}")
    try:
        with _open_folder(payload, mail_spool, root) as (fd, name, spool):
            name = name if part == PAYLOAD else file_name
            return _read_beginning(name, fd, MAX_PART_BYTES, os.fstat(spool))
    except (Refused, OSError) as error:
        raise _store_error(part, error) from error


DESTINATION_BYTES = 16384
"""Bytes of a payload in which its destination must be."""


def with_destinations(
    tasks: Iterable[Task | Missing | Problem],
    finders: Mapping[str, Callable[[bytes], str]],
    payload_of: Callable[[Task], tuple[str, str]],
    root: str,
) -> Iterator[Task | Missing | Problem]:
    """Give each task the destination that is found in its payload by the function for its kind;
    one whose payload cannot be read has none, which its parts explain. `payload_of` returns the
    path of a task's payload and the folder that must contain it."""
    for one in tasks:
        if isinstance(one, Task) and one.payload and (find := finders.get(one.kind)) is not None:
            with (
                suppress(Refused, OSError),
                _open_folder(*payload_of(one), root) as (fd, name, spool),
            ):
                data = _read_beginning(name, fd, DESTINATION_BYTES, os.fstat(spool))
                one = one._replace(destination=find(data))
        yield one


def preview_file(folder: str, name: str) -> bytes:
    """Read the first bytes of any plain file in a folder, of any owner.

    Raises:
        Gone: it does not exist.
        Unsupported: it is not a plain file; with the reason.
        Unavailable: it cannot be read now.
    """
    try:
        with closing_fd(files.open_folder(folder)) as fd:
            return _read_beginning(name, fd, PREVIEW_BYTES)
    except (Refused, OSError) as error:
        raise _store_error(name, error) from error


def payload_size(payload: str, mail_spool: str, root: str = "") -> int:
    """Return the number of bytes that `remove_payload` would remove.

    Raises:
        Refused: as for `remove_payload`.
        OSError: that cannot be determined now.
    """
    with _open_folder(payload, mail_spool, root) as (fd, name, _):
        if is_mail(payload, mail_spool):
            return sum(file_stat.st_size for _, file_stat in files.regular_files(fd))
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_size


def remove_payload(payload: str, mail_spool: str, root: str = "") -> None:
    """Remove a payload; for a spooled mail, the plain files in its folder and the folder.

    Raises:
        Refused: it is outside the mail spool, or behind a symbolic link.
        OSError: it does not exist, cannot be removed, or the mail's folder contains other entries.
    """
    with _open_folder(payload, mail_spool, root) as (fd, name, spool):
        if is_mail(payload, mail_spool):
            files.remove_folder(os.path.basename(os.path.dirname(payload)), spool, (META, SENT))
        else:
            files.unlink_quietly(name, fd)


def is_mail(payload: str, mail_spool: str) -> bool:
    """True if this is the path of the meta.sh of a spooled mail."""
    whole = payload_folder(payload, mail_spool)
    return whole != payload and payload == f"{whole}/{META}"


def payload_folder(payload: str, mail_spool: str) -> str:
    """Return the spooled mail's folder that contains the payload; the payload itself if there is
    none.

    Two tasks with the same result may remove each other's payload.
    """
    folder = os.path.dirname(payload)
    above, mail = os.path.split(folder)
    return folder if above == mail_spool.rstrip("/") and mail.startswith(MAIL_FOLDER) else payload


def is_sent(payload: str, mail_spool: str, root: str = "") -> bool:
    """True if this is a spooled mail that is marked as sent, so that it is not needed any more."""
    if not is_mail(payload, mail_spool):
        return False
    try:
        with _open_folder(payload, mail_spool, root) as (fd, _, _):
            return stat.S_ISREG(os.stat(SENT, dir_fd=fd, follow_symlinks=False).st_mode)
    except (OSError, Refused):
        return False


@contextmanager
def _open_folder(payload: str, mail_spool: str, root: str) -> Iterator[tuple[int, str, int]]:
    """Open the payload's folder; yield its descriptor, the file name, and a descriptor of the mail
    spool.

    Raises:
        Refused: the payload is outside the mail spool, or behind a symbolic link.
        OSError: the folder cannot be opened.
    """
    if not mail_spool:
        raise Refused("no mail spool is configured")
    below = files.components_below(mail_spool, payload)
    with ExitStack() as stack:
        try:
            spool = stack.enter_context(closing_fd(files.open_dir(mail_spool, root)))
            fd, name = files.open_parent(spool, below)
        except NotADirectoryError as error:
            raise Refused(f"is behind {error.filename}, a symbolic link or not a folder") from error
        yield stack.enter_context(closing_fd(fd)), name, spool


def _part(
    name: str, where: str, file: str, fd: int, spool: stat_result, flocked: frozenset[int]
) -> Part:
    """Describe a file without opening it."""
    try:
        file_stat = os.stat(file, dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        return Part(name, where, refusal=_describe_error(error))
    why = _describe_refusal(files.file_problem(file_stat, os.fstat(fd)))
    why = why or files.owner_problem(file_stat, spool)
    return Part(name, where, file_stat.st_size, _facts(file_stat, flocked), why)


def _describe_refusal(why: str) -> str:
    """Turn a refusal about a task file into a phrase about any file."""
    why = why.removesuffix(", not a task file")
    return f"is {why}" if why.startswith(("a ", "not ")) else why


def open_payload(payload: str, spool_folder: str, root: str = "") -> int:
    """Open a payload below a folder to give it to a program.

    Raises:
        Refused: it is elsewhere, behind a symbolic link, or not a plain file of the folder's owner.
        OSError: it does not exist, or cannot be opened now.
    """
    with (
        _open_folder(payload, spool_folder, root) as (fd, name, spool),
        closing_fd(files.open_outgoing(name, fd, os.fstat(spool))) as file,
    ):
        _require_plain(file, fd, os.fstat(spool))
        return os.dup(file)


def _read_beginning(name: str, fd: int, limit: int, spool: stat_result | None = None) -> bytes:
    with closing_fd(files.open_guarded(name, fd)) as file:
        _require_plain(file, fd, spool)
        return os.read(file, limit)


def _require_plain(file: int, folder: int, spool: stat_result | None) -> None:
    file_stat = os.fstat(file)
    why = _describe_refusal(files.file_problem(file_stat, os.fstat(folder)))
    if why := why or (files.owner_problem(file_stat, spool) if spool is not None else ""):
        raise Refused(why)


def _facts(file_stat: stat_result, flocked: frozenset[int]) -> tuple[tuple[str, str], ...]:
    facts = [
        ("modified", f"{file_stat.st_mtime:.0f}"),
        ("changed", f"{file_stat.st_ctime:.0f}"),
        ("inode", str(file_stat.st_ino)),
        ("mode", stat.filemode(file_stat.st_mode)),
        ("owner", _owner(file_stat)),
    ]
    if file_stat.st_nlink > 1:
        facts.append(("links", str(file_stat.st_nlink)))
    if file_stat.st_ino in flocked:
        facts.append(("lock", "its flock is held"))
    return tuple(facts)


def _owner(file_stat: stat_result) -> str:
    from grp import getgrgid

    from engine.system.users import user_name

    group = str(file_stat.st_gid)
    with suppress(KeyError):
        group = getgrgid(file_stat.st_gid).gr_name
    return f"{user_name(file_stat.st_uid) or file_stat.st_uid}:{group}"


def _store_error(name: str, error: Refused | OSError) -> Gone | Unsupported | Unavailable:
    text = f"{name}: {_describe_error(error)}"
    if isinstance(error, FileNotFoundError):
        return Gone(text)
    return Unsupported(text) if isinstance(error, Refused) else Unavailable(text)


def _describe_error(error: Refused | OSError) -> str:
    if isinstance(error, Refused):
        return _describe_refusal(str(error))
    if error.errno == errno.ENOENT:
        return "is not there"
    return f"cannot be looked at: {error_text(error)}"


_PAYLOAD_LINE = re.compile(rb"""^[ \t]*TASK_PAYLOAD_FILE=["']?([^"'\n]*)""", re.MULTILINE)
"""Broader than the task parser: a broken file may be repaired, and then names its payload again."""


def find_named_payloads(
    payloads: Collection[str], mail_spool: str, states: Iterable[TaskFolder], staging: StagingDir
) -> dict[str, str]:
    """Return those of the payloads that a task file names, with the path of such a file.

    Raises:
        Unavailable: a folder cannot be read.
        OSError: a file cannot be read now, or another process holds the staging lock.
    """
    payload_folders = {payload_folder(path, mail_spool) for path in payloads}
    # The staging directory last: a file on its way between two states is in it.
    places = [*states, staging.folder, staging.duplicates, staging.corrupt]
    read_names: set[tuple[str, str]] = set()
    path_by_folder: dict[str, str] = {}

    def search() -> None:
        for where, path in _new_payloads(places, read_names, staging.folder):
            if (named_folder := payload_folder(path, mail_spool)) in payload_folders:
                path_by_folder.setdefault(named_folder, where)

    staging.corrupt.reopen_if_replaced()
    search()
    # A file that was being moved may have been missed, so read again under the lock that placing
    # needs. Files already read are skipped, which keeps the lock short.
    with staging.placing_lock():
        search()
    folders = {path: payload_folder(path, mail_spool) for path in payloads}
    return {path: path_by_folder[at] for path, at in folders.items() if at in path_by_folder}


def _new_payloads(
    places: Iterable[TaskFolder], read_names: set[tuple[str, str]], staging_folder: TaskFolder
) -> Iterator[tuple[str, str]]:
    """Yield each file that is not in `read_names` yet, with the path of its payload."""
    for folder in places:
        entries = folder.iter_entries()
        for name in [each.name for each in entries if each.is_file(follow_symlinks=False)]:
            is_other = folder is staging_folder and name[:2] not in ("D.", "T.")
            if is_other or (folder.word, name) in read_names:
                continue
            try:
                data = _read(name, folder.fd)
            except FileNotFoundError:
                continue  # moved: its new folder is listed later
            except Untrusted as refusal:
                # It may be a task that runs once its mode or owner is corrected.
                raise PermissionError(errno.EACCES, str(refusal), name) from refusal
            except Refused:
                data = b""  # not a plain file: not a task that can run
            read_names.add((folder.word, name))
            if match := _PAYLOAD_LINE.search(data):
                yield f"{folder.word}/{name}", os.path.normpath(os.fsdecode(match[1]))


def _read(name: str, dir_fd: int) -> bytes:
    with closing_fd(files.open_guarded(name, dir_fd)) as fd:
        if why := files.file_problem(os.fstat(fd), os.fstat(dir_fd)):
            raise Untrusted(why)
        return os.read(fd, files.MAX_TASK_BYTES)
