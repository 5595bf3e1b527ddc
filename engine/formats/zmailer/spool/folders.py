"""The folders of a spool, as open descriptors: find, read and check control and message files.

No path below the spool is followed by name: each folder is opened in the one above it (O_NOFOLLOW),
so that no user can redirect a reader that runs as root.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from os import stat_result
from typing import BinaryIO

from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.control_file import BLOCK_BYTES, FileLayout, FileVersion
from engine.model import Problem
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

TRANSPORT, QUEUE = "transport", "queue"
FREEZER = "freezer"
"""Where the scheduler puts control files that it cannot use."""
KEPT = ".spooldeck/kept"
"""Our folder of second hard links, with transport/ and queue/ in it."""

MAX_CONTROL_BYTES = 256 << 20
"""Larger control files are not read: about four million recipients."""

LARGE_BYTES = 128 << 10
"""Control files from this size are never in memory in whole; what is known of them is kept."""

MAX_CACHED_RECIPIENTS = 4_000_000
"""The most recipient lines in kept layouts, with four bytes each, and diagnostics."""

WINDOW_BYTES = 256 << 10
"""Bytes of a large file that are read at a time."""

LINE_BYTES = 512
"""Bytes that are read first to find a line."""

CTIME_GRAIN_NANOSECONDS = 50_000_000
"""Nanoseconds: two changes closer than this may give a file the same time of change."""

MAX_OPEN_FOLDERS = 64
"""Folders that are kept open for many reads in a row."""


class Changing(Exception):
    """A file changes while it is read."""


class OpenControl(NamedTuple):
    """An open control file."""

    fd: int
    name: str
    folder: str
    """The hash folder with its final slash; "" for none."""
    is_kept: bool
    """True if only our own link to it exists: for the scheduler the message is finished."""

    @property
    def where(self) -> str:
        """Its path below the spool."""
        return f"{KEPT if self.is_kept else ''}/{TRANSPORT}/{self.folder}{self.name}".lstrip("/")


class SpoolEntry(NamedTuple):
    """A control file as it was read, and the status of its message file."""

    name: str
    where: str
    is_kept: bool
    file_stat: stat_result
    layout: FileLayout
    line_at: Callable[[int], bytes]
    """Returns the line at an offset without its LF: any if the whole file was read, else only those
    that were asked for."""
    large: LargeFile | None
    """To read more of a large file; None if all of the file was read."""
    message: stat_result
    message_path: str
    """Below the spool."""


class FolderCache:
    """Open folders below others, for many reads in a row; those not used lately are closed.

    Each component is opened in the one above without following a link. A folder that is renamed
    meanwhile is read until `close`."""

    def __init__(self) -> None:
        self._fds: dict[tuple[int, str], int] = {}

    def open(self, above: int, path: str) -> int:
        """Open a folder below an open one; valid until `MAX_OPEN_FOLDERS` others were opened.
        Raises OSError: one component is missing, or no folder."""
        if not path:
            return above
        fd = self._fds.pop((above, path), -1)
        if fd < 0:
            over, _, name = path.rpartition("/")
            fd = files.open_folder(name, self.open(above, over))
            if len(self._fds) >= MAX_OPEN_FOLDERS:
                os.close(self._fds.pop(next(iter(self._fds))))
        self._fds[above, path] = fd
        return fd

    def close(self) -> None:
        """Close all."""
        while self._fds:
            os.close(self._fds.popitem()[1])


class KnownFile(NamedTuple):
    """A large file as it was when it was read."""

    file_stat: stat_result
    version: FileVersion
    is_settled: bool
    """False if it may have changed since without another time of change."""

    def has_layout_of(self, now: stat_result) -> bool:
        """True if its layout is that of a file with this status."""
        return files.is_same_file(self.file_stat, now)

    def is_unchanged(self, now: stat_result) -> bool:
        """True if a file with this status has the same bytes. Our own changes keep its time, but
        not the time of its last status change."""
        is_same = self.has_layout_of(now) and self.file_stat.st_ctime_ns == now.st_ctime_ns
        return is_same and self.is_settled


class VersionCache:
    """What is known of large files."""

    def __init__(self) -> None:
        self._known: dict[str, KnownFile] = {}

    def get(self, name: str) -> KnownFile | None:
        """A file as it was when it was last read."""
        return self._known.get(name)

    def keep(self, name: str, file_stat: stat_result, version: FileVersion) -> None:
        """Keep the version of a file that had this status before it was read; the oldest go if all
        have too many recipients."""
        self._known.pop(name, None)
        is_settled = time.time_ns() - file_stat.st_ctime_ns > CTIME_GRAIN_NANOSECONDS
        self._known[name] = KnownFile(file_stat, version, is_settled)
        room = MAX_CACHED_RECIPIENTS
        for each, (_, one, _) in reversed([*self._known.items()]):
            room -= len(one.layout.recipients) + len(one.layout.diagnostics)
            if room < 0 and each != name:
                del self._known[each]


class PostofficeFolders:
    """The folders of one spool."""

    def __init__(self, root: str) -> None:
        """Open them. Raises Unavailable: one is missing or cannot be opened."""
        self.root = root
        self._fds: list[int] = []
        self.versions = VersionCache()
        try:
            self.fd = self._open(root, None)
            self.transport = self._open(TRANSPORT, self.fd)
            self.queue = self._open(QUEUE, self.fd)
        except Unavailable:
            self.close()
            raise

    def _open(self, path: str, above: int | None) -> int:
        try:
            self._fds.append(files.open_folder(path, above))
        except OSError as error:
            where = path if above is None else f"{self.root}/{path}"
            raise Unavailable(f"{where}: {error_text(error)}") from error
        return self._fds[-1]

    def close(self) -> None:
        """Close all descriptors."""
        while self._fds:
            os.close(self._fds.pop())

    def check(self) -> None:
        """Raise Unavailable if the spool's folder is not the one that was opened."""
        try:
            is_same = os.path.samestat(os.stat(f"{self.root}/{TRANSPORT}"), self.transport_status)
        except (OSError, IndexError) as error:
            raise Unavailable(f"{self.root}/{TRANSPORT}: {error}") from error
        if not is_same:
            raise Unavailable(f"{self.root}/{TRANSPORT}: replaced since it was opened")

    @property
    def transport_status(self) -> stat_result:
        """The status of transport/, in which scheduler and agents work."""
        return os.fstat(self.transport)

    @contextmanager
    def open_below(self, above: int, path: str) -> Iterator[int]:
        """Open a folder below an open one, each component without following a link. Raises OSError:
        one is missing, or no folder."""
        fd = os.dup(above)
        try:
            for name in path.split("/"):
                if name:
                    below = files.open_folder(name, fd)
                    os.close(fd)
                    fd = below
            yield fd
        finally:
            os.close(fd)

    def make_below(self, path: str, mode: int) -> None:
        """Make a folder below the spool, for its owner, with its parents, if one is missing."""
        owner, above = files.new_file_owner(os.fstat(self.fd)), ""
        for part in path.split("/"):
            with self.open_below(self.fd, above) as fd:
                files.make_folder(part, fd, mode, owner)
            above = f"{above}/{part}"

    def list_controls(self) -> tuple[dict[str, str], list[str]]:
        """The hash folder of each control file by its name; and the paths below transport/ of those
        that are there a second time. Raises Unavailable: transport/ cannot be read."""
        folder_by_name: dict[str, str] = {}
        twice: list[str] = []
        try:
            for folder in self.list_folders():
                with suppress(FileNotFoundError), self.open_below(self.transport, folder) as fd:
                    for name in _entries(fd):
                        if names.message_number(name) is None or name.endswith("-etrn"):
                            continue
                        if folder_by_name.setdefault(name, folder) != folder:
                            twice.append(folder + name)
        except OSError as error:
            raise Unavailable(f"{self.root}/{TRANSPORT}: {error_text(error)}") from error
        return folder_by_name, [path for path in twice if self._is_there(path)]

    def list_folders(self) -> Iterator[str]:
        """transport/ and its hash folders on both levels, each as "" or with a final slash."""
        yield ""
        for one in filter(names.is_hash_folder, _entries(self.transport)):
            with suppress(OSError), self.open_below(self.transport, one) as fd:
                yield f"{one}/"
                for two in filter(names.is_hash_folder, _entries(fd)):
                    with suppress(OSError), self.open_below(fd, two):
                        yield f"{one}/{two}/"

    def list_parked(self) -> list[str]:
        """Names of the files in freezer/."""
        try:
            with self.open_below(self.fd, FREEZER) as fd:
                return sorted(_entries(fd))
        except OSError:
            return []  # most spools have none; what cannot be listed cannot be shown

    def _is_there(self, path: str) -> bool:
        """True if a file is still there, and not moved from one folder to the other meanwhile."""
        folder, _, name = path.rpartition("/")
        number = names.message_number(name) or 0
        existing = []
        for one in {folder, *(each.rstrip("/") for each in names.hash_folders(number))}:
            with suppress(OSError), self.open_below(self.transport, one) as fd:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
                existing.append(one)
        return len(existing) > 1

    def list_kept(self) -> set[str]:
        """Names of the control files to which we have a link."""
        try:
            with self.open_below(self.fd, f"{KEPT}/{TRANSPORT}") as fd:
                return {name for name in _entries(fd) if names.message_number(name) is not None}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise Unavailable(f"{self.root}/{KEPT}: {error_text(error)}") from error

    @contextmanager
    def open_control(self, name: str, flags: int = os.O_RDONLY) -> Iterator[OpenControl]:
        """Open a control file where it is now, or our own link to it. Raises FileNotFoundError:
        there is none; Refused: it is not a plain file, or has a hard link that is not ours;
        OSError: it cannot be opened now."""
        number = names.message_number(name)
        if number is None:
            raise FileNotFoundError(name)
        places = [(self.transport, folder, False) for folder in names.hash_folders(number)]
        for above, folder, is_kept in (*places, (self.fd, f"{KEPT}/{TRANSPORT}/", True)):
            try:
                with self.open_below(above, folder) as fd:
                    file = files.open_guarded(name, fd) if flags == os.O_RDONLY else _open(name, fd)
                    folder_stat = os.fstat(fd)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with closing_fd(file):
                self.require_plain(name, os.fstat(file), folder_stat)
                yield OpenControl(file, name, "" if is_kept else folder, is_kept)
            return
        raise FileNotFoundError(name)

    def require_plain(self, name: str, file_stat: stat_result, folder_stat: stat_result) -> None:
        """Check the status of an open control file in a folder with `folder_stat`. Raises Refused:
        it is not a plain file, or may be the link of another user to it."""
        if file_stat.st_nlink == 1 and stat.S_ISREG(file_stat.st_mode):
            return
        why = files.file_problem(file_stat, folder_stat)
        if not why:
            return
        if file_stat.st_nlink != 2 or not has_our_link(self, name, file_stat):
            raise Refused(why)

    def find_message(
        self, name: str, is_kept: bool = False, opened: FolderCache | None = None, likely: str = ""
    ) -> tuple[stat_result, str]:
        """Status and path of the message file of a control file; `likely` is the hash folder to try
        first, `opened` has folders open from other reads. Raises Refused: there is none, or it is
        no plain file."""
        if opened is None:
            with closing(FolderCache()) as cache:
                return self.find_message(name, is_kept, cache, likely)
        for folder in self._message_folders(name, is_kept, likely):
            try:
                at = opened.open(self.fd, folder[:-1])
                file_stat = os.stat(name, dir_fd=at, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if not stat.S_ISREG(file_stat.st_mode):
                raise Refused("its message file is not a plain file")
            return file_stat, folder + name
        raise Refused(f"no message file: {QUEUE}/{name} is missing")

    def open_message(self, name: str, is_kept: bool = False) -> BinaryIO:
        """Open the message file of a control file to read. Raises Refused: there is none, or it is
        no plain file; OSError: it cannot be read now."""
        above, last = os.path.split(self.find_message(name, is_kept)[1])
        with self.open_below(self.fd, above) as folder:
            return os.fdopen(files.open_outgoing(last, folder, os.fstat(self.fd)), "rb")

    @staticmethod
    def _message_folders(name: str, is_kept: bool, likely: str) -> Iterator[str]:
        if is_kept:
            yield f"{KEPT}/{QUEUE}/"
            return
        yield f"{QUEUE}/{likely}"
        for folder in names.hash_folders(names.message_number(name) or 0):
            if folder != likely:
                yield f"{QUEUE}/{folder}"


def has_our_link(folders: PostofficeFolders, name: str, file_stat: stat_result) -> bool:
    """True if our link with the name of a control file is to this one."""
    if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_nlink < 2:
        return False
    with suppress(OSError), folders.open_below(folders.fd, f"{KEPT}/{TRANSPORT}") as fd:
        return os.path.samestat(os.stat(name, dir_fd=fd, follow_symlinks=False), file_stat)
    return False


class LargeFile:
    """Reads parts of a large control file, which is opened again for each."""

    def __init__(
        self, folders: PostofficeFolders, where: str, file_stat: stat_result, version: FileVersion
    ) -> None:
        self._folders, self._where, self._file_stat = folders, where, file_stat
        self.version, self._layout = version, version.layout
        self._windows: dict[int, tuple[int, bytes]] = {}

    def line_at(self, offset: int) -> bytes:
        """The line at an offset, without its LF; no bytes at the end of the file. Raises Changing:
        the file is no longer there, or was cut."""
        # Offsets in the order of their digits are ascending among those with as many digits.
        key, size = len(str(offset)), WINDOW_BYTES
        if offset > self._layout.recipients[-1]:
            key, size = 0, BLOCK_BYTES  # diagnostics, in any order
        start, data = self._windows.get(key, (0, b""))
        end = data.find(b"\n", offset - start) if start <= offset else -1
        while end < 0:
            if offset >= self._layout.size:
                return b""
            start, data = offset, self.read(offset, offset + size)
            end, size = data.find(b"\n"), 4 * size
            self._windows[key] = start, data
            if end < 0 and offset + len(data) >= self._layout.size:
                raise Changing(self._where)
        return data[offset - start : end]

    def read(self, start: int, end: int) -> bytes:
        """The bytes from one offset to another. Raises Changing: the file is no longer there, or
        was cut."""
        above, name = os.path.split(self._where)
        try:
            with self._folders.open_below(self._folders.fd, above) as folder:
                fd = files.open_guarded(name, folder)
        except FileNotFoundError:
            raise Changing(self._where) from None
        with closing_fd(fd):
            if not os.path.samestat(os.fstat(fd), self._file_stat):
                raise Changing(self._where)
            data = read_span(fd, start, min(end, self._layout.size))
        if not data:
            raise Changing(self._where)
        return data


def problem_at(where: str, what: str, file_stat: stat_result | None = None) -> Problem:
    """A problem of a file below the spool."""
    return Problem(safe_line(where), safe_line(what), None, file_stat and file_stat.st_mtime)


def read_whole(fd: int) -> tuple[bytes, stat_result]:
    """All bytes of an open control file, and its status before. Raises Refused: it is larger than
    `MAX_CONTROL_BYTES`."""
    file_stat = os.fstat(fd)
    if file_stat.st_size > MAX_CONTROL_BYTES:
        raise Refused(f"{file_stat.st_size:,} bytes, expected at most {MAX_CONTROL_BYTES:,}")
    return read_span(fd, 0, file_stat.st_size), file_stat


def read_span(fd: int, start: int, end: int) -> bytes:
    """The bytes of an open file from one offset to another."""
    return os.pread(fd, end - start, start)


def read_line(fd: int, offset: int) -> bytes:
    """The line at an offset of an open file without its LF."""
    line, size = b"", LINE_BYTES
    while more := os.pread(fd, size, offset + len(line)):
        part, end, _ = more.partition(b"\n")
        line += part
        if end:
            return line
        size *= 2
    return line


def _open(name: str, folder: int) -> int:
    """Open a file for reading and writing, without following a link or blocking."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=folder)
    except IsADirectoryError as error:
        raise Refused("a folder") from error


def _entries(fd: int) -> Iterator[str]:
    with os.scandir(fd) as entries:
        for entry in entries:
            if not files.is_disks_own(entry.name):
                yield entry.name
