"""Files, durable and guarded: the only place that fsyncs, and the only way the engine changes one.

Every call that changes a file goes through a name of this module, so that a test can count each of
them, fail it, or end the process there.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from os import stat_result

rename = os.rename
unlink = os.unlink
write = os.write
fsync = os.fsync
mkdir = os.mkdir
fchown = os.fchown
fchmod = os.fchmod
ftruncate = os.ftruncate
utime = os.utime
link = os.link

TASK_LIMIT = 64 * 1024
"""Bytes of a task file that are read; a longer one is no task (the fields fit in 2 KiB)."""

FILE_MODE = 0o640
FOLDER_MODE = 0o750
"""Contract, "Security Notes": queue directories are 750."""

_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """A file that will not be read as what it claims to be; the message says why."""


def open_folder(path: str, dir_fd: int | None = None) -> int:
    """A descriptor of a folder, never through a symbolic link at its last component.

    Raises:
        OSError: it is not there, no folder, or not to be opened.
    """
    return os.open(path, _FOLDER, dir_fd=dir_fd)


def open_guarded(name: str, dir_fd: int) -> int:
    """A descriptor of whatever lies there, opened so that it can neither block nor be followed.

    Raises:
        FileNotFoundError: nothing of that name.
        Refused: a symbolic link, or something that may not be opened.
    """
    try:
        return os.open(name, _GUARDED, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(_cannot_open(name, dir_fd, error)) from error


def _cannot_open(name: str, dir_fd: int, error: OSError) -> str:
    try:
        kind = stat.S_IFMT(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        kind = 0
    return _KINDS.get(kind) or f"cannot be opened: {error.strerror}"


_KINDS = {
    stat.S_IFLNK: "a symbolic link, not followed",
    stat.S_IFDIR: "a folder, not a task file",
    stat.S_IFIFO: "a FIFO, not a task file",
    stat.S_IFSOCK: "a socket, not a task file",
    stat.S_IFCHR: "a device, not a task file",
    stat.S_IFBLK: "a device, not a task file",
}


def read_guarded(fd: int, limit: int = TASK_LIMIT) -> tuple[bytes, stat_result]:
    """What an opened file holds and its state, judged on the descriptor before a byte is read.

    Raises:
        Refused: no regular file, a second hard link, or more than `limit` bytes.
    """
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        raise Refused(_KINDS.get(stat.S_IFMT(seen.st_mode), "not a regular file"))
    if seen.st_nlink > 1:
        raise Refused("has a second hard link")
    if seen.st_size > limit:
        raise Refused(f"{seen.st_size:,} bytes, expected at most {limit:,}")
    data = os.read(fd, limit + 1)
    if len(data) > limit:
        raise Refused(f"grew beyond {limit:,} bytes while it was read")
    return data, seen


def revision(seen: stat_result) -> str:
    """What changes whenever a file is rewritten, replaced or renamed."""
    return f"{seen.st_ino:x}.{seen.st_ctime_ns:x}.{seen.st_size:x}"


def same_file(a: stat_result, b: stat_result) -> bool:
    """Whether two looks saw one unchanged file; a rename changes neither of these three."""
    return a.st_ino == b.st_ino and a.st_size == b.st_size and a.st_mtime_ns == b.st_mtime_ns


def claim_flock(fd: int) -> bool:
    """Take the exclusive flock of an open file without waiting; False when somebody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_unclaimed(fd: int) -> bool:
    """Whether nobody holds the flock of an open file at this moment."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


class Flock:
    """Holds the exclusive flock of an open file while in the block; waits for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, however many calls that takes."""
    done = write(fd, data)
    while done < len(data):
        done += write(fd, data[done:])


def create(name: str, dir_fd: int, owner: tuple[int, int] | None, mode: int = FILE_MODE) -> int:
    """A descriptor of a new empty file that did not exist; owned by `owner` (uid, gid) if given.

    Raises:
        FileExistsError: something of that name is there.
    """
    fd = os.open(name, _NEW, mode, dir_fd=dir_fd)
    if owner is not None:
        fchown(fd, *owner)
    return fd


def owner_for(folder: stat_result) -> tuple[int, int] | None:
    """Whom to give what is made in a folder: its owner, when we are root; else nobody."""
    if os.geteuid() != 0 or (folder.st_uid, folder.st_gid) == (0, os.getegid()):
        return None
    return folder.st_uid, folder.st_gid


def make_folder(path: str, dir_fd: int | None = None, mode: int = FOLDER_MODE) -> None:
    """Make a folder that may exist already, with the owner of the folder that it is made in."""
    try:
        mkdir(path, mode, dir_fd=dir_fd)
    except FileExistsError:
        return
    fd = open_folder(path, dir_fd)
    try:
        owner = owner_for(os.stat("..", dir_fd=fd))
        if owner is not None:
            fchown(fd, *owner)
        fchmod(fd, mode)
    finally:
        os.close(fd)


def make_folders(path: str, mode: int = FOLDER_MODE) -> None:
    """Make a folder and what is missing above it."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        make_folder(folder, mode=mode)


def publish(path: str, data: bytes, mode: int = 0o644) -> None:
    """Put a whole file in place of another; a reader sees the old one or the new one.

    Not durable: for what can be made again, such as metrics.

    Raises:
        OSError: it could not be written; the old one stands.
    """
    folder, name = os.path.split(path)
    dir_fd = open_folder(folder or ".")
    # The real program shares one `.tmp` name between writers; ours is told apart by the PID.
    new = f"{name}.{os.getpid()}.tmp"
    try:
        fd = os.open(
            new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode, dir_fd=dir_fd
        )
        try:
            owner = owner_for(os.fstat(dir_fd))
            if owner is not None:
                fchown(fd, *owner)
            write_all(fd, data)
        finally:
            os.close(fd)
        rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        forget(new, dir_fd)
        raise
    finally:
        os.close(dir_fd)


def append(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Add to the end of a file in one write, so that lines of several writers do not mix.

    Raises:
        OSError: it could not be written.
    """
    existed = True
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        existed = False
        fd = os.open(path, flags | os.O_CREAT, mode)
    try:
        if not existed:
            owner = owner_for(os.stat(os.path.dirname(path) or "."))
            if owner is not None:
                fchown(fd, *owner)
        write_all(fd, data)
    finally:
        os.close(fd)


def forget(name: str, dir_fd: int) -> None:
    """Unlink a file that may be gone already."""
    try:
        unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return


def open_below(root: str, path: str) -> tuple[int, str]:
    """The folder that holds `path` (as a descriptor) and the last name, if it lies below `root`.

    Component by component, through no symbolic link and no `..`.

    Raises:
        Refused: the path lies elsewhere, or is written in another way than plainly.
        OSError: a component is missing or is no folder.
    """
    prefix = root.rstrip("/") + "/"
    parts = path[len(prefix) :].split("/")
    if not path.startswith(prefix) or any(part in ("", ".", "..") for part in parts):
        raise Refused(f"does not lie plainly below {root}")
    fd = open_folder(root)
    try:
        for part in parts[:-1]:
            deeper = open_folder(part, fd)
            os.close(fd)
            fd = deeper
    except OSError:
        os.close(fd)
        raise
    return fd, parts[-1]


# KEY="value", the form of task files and mail metadata.

_ESCAPED = {"\\": "\\\\", '"': '\\"', "$": "\\$", "`": "\\`"}


def assignment(key: str, value: str) -> str:
    """One `KEY="value"` line that every shell reads back as `value`.

    ASCII only, control characters become spaces: a backslash behind a multi-byte character is
    swallowed by bash in some locales, and what follows would run.
    """
    kept = "".join(
        " " if c < " " or c == "\x7f" else _ESCAPED.get(c, c) if c < "\x7f" else "_" for c in value
    )
    return f'{key}="{kept}"\n'


def assignments(values: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """A file of assignments, in the order given."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return "".join(assignment(k, v) for k, v in pairs).encode("ascii")


def parse_assignments(data: bytes, known: Callable[[str], bool]) -> dict[str, str]:
    """The strict reader of `KEY="value"` files: what it accepts, every shell reads alike.

    Blank lines and comments are allowed, `known` says which keys are. Nothing is expanded.

    Raises:
        Refused: with the line and what was expected.
    """
    if not data:
        raise Refused("empty: a write was interrupted")
    if not data.endswith(b"\n"):
        raise Refused("no newline at its end: a write was interrupted")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from error
    values: dict[str, str] = {}
    for number, line in enumerate(text[:-1].split("\n"), 1):
        if not line.strip(" \t") or line.lstrip(" \t").startswith("#"):
            continue
        key, value = _parse_line(line, number)
        if not known(key):
            raise Refused(f"line {number}: unknown key {key}")
        if key in values:
            raise Refused(f"line {number}: {key} a second time")
        values[key] = value
    return values


def _parse_line(line: str, number: int) -> tuple[str, str]:
    key, quote, rest = line.partition('="')
    if not quote or not key.replace("_", "a").isalnum() or not key.isascii() or key[0].isdigit():
        raise Refused(f'line {number}: expected KEY="value"')
    value: list[str] = []
    at = 0
    while True:
        if at >= len(rest):
            raise Refused(f"line {number}: {key} has no closing quote")
        c = rest[at]
        if c == '"':
            break
        if c in "$`":
            raise Refused(f"line {number}: {key} holds an unescaped {c}, which a shell expands")
        if c == "\\" and rest[at + 1 : at + 2] in _ESCAPED:
            at += 1
            c = rest[at]
        elif c == "\\" and at + 1 >= len(rest):
            raise Refused(f"line {number}: {key} goes on in the next line")
        if (c < " " and c != "\t") or c == "\x7f":
            raise Refused(f"line {number}: {key} holds a control character")
        value.append(c)
        at += 1
    tail = rest[at + 1 :]
    if tail.strip(" \t") and not (tail[0] in " \t" and tail.lstrip(" \t").startswith("#")):
        raise Refused(f"line {number}: {key} is followed by something else than a comment")
    return key, "".join(value)
