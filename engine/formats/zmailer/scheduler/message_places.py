"""Where control and message files are: find new ones, by scans and notices, with the oldest first;
open them locked, move them to hash folders, park, remove.

Every folder is opened in the one above it (`PostofficeFolders`), so no path is followed by name.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from os import stat_result

from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.folders import (
    FREEZER,
    KEPT,
    QUEUE,
    TRANSPORT,
    OpenControl,
    PostofficeFolders,
)
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.values import NamedTuple

LOCK_SECONDS = 2.0
"""How long to wait for a file that another process has locked: the mail waits meanwhile."""

_FOLDER_MODE = 0o2755
_MAX_SAME_NAMES = 1000


class MessagePlaces:
    """The files of one spool, for its scheduler."""

    def __init__(self, folders: PostofficeFolders, hash_levels: int = 0) -> None:
        """`hash_levels`: 0 to 2 levels of hash folders to which new files are moved."""
        self.folders, self._hash_levels = folders, hash_levels
        self._changed: set[str] = set()
        """Folders from which files were removed since the last fsync."""

    @contextmanager
    def open(self, name: str) -> Iterator[OpenControl]:
        """Open a control file to read and write, with its write lock. Raises FileNotFoundError:
        there is none in transport/; Refused: it is no plain file; TimeoutError: another process has
        the lock."""
        with self.folders.open_control(name, os.O_RDWR) as opened:
            if opened.is_kept:
                raise FileNotFoundError(name)  # finished: only our own link is left
            with marks.write_lock(opened.fd, LOCK_SECONDS):
                yield opened

    @contextmanager
    def open_now(
        self, name: str, path: str, errors: tuple[type[Exception], ...] = (TimeoutError,)
    ) -> Iterator[OpenControl]:
        """As `open`, but each of `errors` becomes an OSError that names `path`. Raises
        FileNotFoundError: there is none in transport/."""
        try:
            with self.open(name) as opened:
                yield opened
        except errors as error:
            raise OSError(f"{path}: {error}") from error

    def settle(self, opened: OpenControl) -> str:
        """Move both files to their hash folder, the message file first; return the folder.

        A process that is killed leaves at most the message file there, and the next one finds it
        and completes the move. Raises Refused: there is no message file, or another file is at the
        new place."""
        number = names.message_number(opened.name) or 0
        folder = opened.folder
        if not folder and self._hash_levels:
            folder = [*names.hash_folders(number)][self._hash_levels]
        _, path = self.folders.find_message(opened.name)
        if path != f"{QUEUE}/{folder}{opened.name}":
            # Both are found in each folder, so no order has to be durable.
            self._rename(path, f"{QUEUE}/{folder}{opened.name}", is_durable=False)
        if folder != opened.folder:
            target = f"{TRANSPORT}/{folder}{opened.name}"
            self._rename(opened.where, target, is_durable=False)
        return folder

    def park(self, opened: OpenControl, folder: str | None = None) -> str:
        """Move an open control file to the freezer, under a name that is free there; return it. The
        message file stays in queue/."""
        where = f"{TRANSPORT}/{opened.folder if folder is None else folder}{opened.name}"
        self._require_same(where, os.fstat(opened.fd))
        for count in range(_MAX_SAME_NAMES):
            target = f"{FREEZER}/{opened.name}{f'.{count}' if count else ''}"
            with suppress(FileExistsError):
                self._rename(where, target)
                return target
        raise FileExistsError(f"{FREEZER}/{opened.name}: there are {_MAX_SAME_NAMES} of this name")

    def remove(self, opened: OpenControl) -> None:
        """Remove an open control file, then its message file. `flush` makes that durable."""
        self._require_same(opened.where, os.fstat(opened.fd))
        try:
            _, message = self.folders.find_message(opened.name)
        except Refused:
            message = ""
        for path in (opened.where, message):
            above, name = os.path.split(path)
            if name:
                with self.folders.open_below(self.folders.fd, above) as fd:
                    files.unlink_quietly(name, fd)
                self._changed.add(above)

    def flush(self) -> None:
        """Fsync the folders from which files were removed, those of control files first: after a
        power cut no file is there again."""
        for path in sorted(self._changed, key=lambda one: not one.startswith(TRANSPORT)):
            with suppress(FileNotFoundError), self.folders.open_below(self.folders.fd, path) as fd:
                files.fsync(fd)
        self._changed.clear()

    def _require_same(self, path: str, file_stat: stat_result) -> None:
        """Raise FileNotFoundError if another file is at the path now."""
        above, name = os.path.split(path)
        with self.folders.open_below(self.folders.fd, above) as fd:
            current_stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not os.path.samestat(current_stat, file_stat):
            raise FileNotFoundError(f"{path}: is another file now")

    def _rename(self, source: str, target: str, *, is_durable: bool = True) -> None:
        """Rename a file below the spool, and make the folder. Raises FileExistsError: there is a
        file of this name."""
        above, name = os.path.split(target)
        try:
            with self.folders.open_below(self.folders.fd, above):
                pass
        except FileNotFoundError:
            self.folders.make_below(above, _FOLDER_MODE)
        with self.folders.open_below(self.folders.fd, above) as new:
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=new, follow_symlinks=False)
                raise FileExistsError(f"{target}: is there already")
            old_above, old_name = os.path.split(source)
            with self.folders.open_below(self.folders.fd, old_above) as old:
                files.rename(old_name, name, src_dir_fd=old, dst_dir_fd=new)
                if is_durable:
                    files.fsync(new)
                    files.fsync(old)


SCAN_SECONDS = 10.0
"""From one scan of transport/ to the next; with many files waiting up to twice as long."""
HASH_SCAN_SECONDS = 120.0
"""From one scan of the hash folders to the next."""
BATCH_FILES, BATCH_SECONDS = 200, 2.0
"""How much is read before agents get their turn again (ZMailer 3.0.1)."""
ETRN_SUFFIX = "-etrn"
"""Of a file that asks for a delivery: it has the number of no message."""

_FILES_PER_DELAY_SECOND = 32


class ScanLimits(NamedTuple):
    """How much one scan takes in (option -E)."""

    files: int = 40_000
    seconds: float = 5.0


DEFAULT_LIMITS = ScanLimits()


class Arrivals:
    """The control files that wait to be read."""

    def __init__(
        self,
        folders: PostofficeFolders,
        known: Container[int],
        clock: Callable[[], float],
        limits: ScanLimits = DEFAULT_LIMITS,
    ) -> None:
        """`known`: the numbers of the messages that are scheduled; `clock` is monotonic."""
        self._folders, self._known, self._clock, self._limits = folders, known, clock, limits
        self._heap: list[tuple[float, str]] = []
        """Names by the time of their last change, and then by themselves."""
        self._waiting: set[str] = set()
        self._later: list[tuple[float, str]] = []
        """Postponed names by the time at which they are read again."""
        self.scan_soon()
        self.is_cut = False
        """True if the last scan was ended by a limit: there is more."""
        self._link_ctimes: dict[str, int] | None = None
        """When each control file with links of an operator last changed, ns of its ctime."""
        self.changed: set[str] = set()
        """Scheduled files among them that have changed: a recipient may be released, and its notice
        lost. The caller removes them."""
        self.problem = ""
        """Why the last scan could not read all; "" if it did."""

    def __len__(self) -> int:
        return len(self._waiting)

    def next_due(self) -> float:
        """When there is something to do, by the clock."""
        if self._heap:
            return float("-inf")
        return min(self._scan_at, self._later[0][0] if self._later else float("inf"))

    def scan_soon(self) -> None:
        """Let the next call of `scan` look into all folders."""
        self._scan_at = self._hash_scan_at = float("-inf")

    def scan(self, now: float) -> None:
        """Scan transport/ if its time has come, and the hash folders if theirs has."""
        while self._later and self._later[0][0] <= now:
            self._add(heapq.heappop(self._later)[1], 0.0)
        if now < self._scan_at:
            return
        is_full = now >= self._hash_scan_at
        until, file_count, self.is_cut, self.problem = now + self._limits.seconds, 0, False, ""
        for folder in self._folders.list_folders() if is_full else ("",):
            try:
                for name, changed in self._new_files(folder):
                    self._add(name, changed)
                    file_count += 1
                    self.is_cut = file_count >= self._limits.files or self._clock() >= until
                    if self.is_cut:
                        break
            except OSError as error:
                self.problem = f"transport/{folder}: {error_text(error)}"
            if self.is_cut:
                break
        self._scan_kept()
        if is_full and not self.is_cut:
            self._hash_scan_at = now + HASH_SCAN_SECONDS
        delay = min(SCAN_SECONDS, len(self._waiting) / _FILES_PER_DELAY_SECOND)
        self._scan_at = now + SCAN_SECONDS + delay

    def _scan_kept(self) -> None:
        link_ctimes: dict[str, int] = {}
        below = f"{KEPT}/{TRANSPORT}"
        with suppress(OSError), self._folders.open_below(self._folders.fd, below) as fd:
            for name in os.listdir(fd):
                with suppress(FileNotFoundError):
                    link_ctimes[name] = os.stat(name, dir_fd=fd, follow_symlinks=False).st_ctime_ns
        if self._link_ctimes is not None:
            changed = (
                name for name, at in link_ctimes.items() if self._link_ctimes.get(name) != at
            )
            self.changed.update(n for n in changed if names.message_number(n) in self._known)
        self._link_ctimes = link_ctimes

    def _new_files(self, folder: str) -> Iterator[tuple[str, float]]:
        with (
            self._folders.open_below(self._folders.transport, folder) as fd,
            os.scandir(fd) as entries,
        ):
            for entry in entries:
                name = entry.name
                if not self.is_new(name):
                    continue
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        yield name, entry.stat(follow_symlinks=False).st_ctime

    def is_new(self, name: str) -> bool:
        """True for the name of a control file that is not scheduled and does not wait."""
        number = names.message_number(name)
        if number is None or name in self._waiting:
            return False
        return name.endswith(ETRN_SUFFIX) or number not in self._known

    def _add(self, name: str, changed: float) -> None:
        self._waiting.add(name)
        heapq.heappush(self._heap, (changed, name))

    def notice(self, path: str) -> None:
        """Add a file of which the router has sent a notice, a path below transport/."""
        name = path.rpartition("/")[2]
        if self.is_new(name):
            self._add(name, 0.0)

    def postpone(self, name: str, until: float) -> None:
        """Read a file again at a time; scans do not find it before."""
        self._waiting.add(name)
        heapq.heappush(self._later, (until, name))

    def batch(self) -> Iterator[str]:
        """Yield the names to read now, the oldest first, within the limits of a batch."""
        until = self._clock() + BATCH_SECONDS
        for _ in range(min(BATCH_FILES, len(self._heap))):
            _, name = heapq.heappop(self._heap)
            self._waiting.discard(name)
            yield name
            if self._clock() >= until:
                return
