"""The files that have, and have had, the path of a log: rotation, truncation, compression.

All readers of logs are built on this: it knows which file has which lines, so that each line is
read once. Files are told apart by device and inode, and a copy by its first and last bytes."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator

from engine.logs.log_file import NO_TIME, FileCache, KnownBytes, LogFile
from engine.logs.unpacked_file import SUFFIXES
from engine.system import files
from engine.text.error_text import error_text

MAX_ROTATED_FILES = 2
"""Files that stay open after they were rotated; few, because a removed file still takes space."""

MAX_CLOSED_FILES = 5
"""Files that are known after they were closed."""

MAX_EARLIER_FILES = 100
"""Rotated files that are opened by their names."""

UNPACKED_STEP_BYTES = 8 << 20

MAX_UNPACKED_BYTES = 64 << 20
"""Bytes to unpack at once, where a file was compressed between two refreshes."""

CLOCK_SKEW_SECONDS = 60.0
"""Seconds by which the times of lines may be after that of the file's last write."""

NO_LOG_FILE = os.strerror(errno.ENOENT)
"""The error for a log that has never existed: a place need not have every log."""

_REMOVED = "removed"

_ROTATED = re.compile(rf"[.-]([0-9][0-9-]*)({'|'.join(map(re.escape, SUFFIXES))})?")
"""What logrotate adds to a name: `.1`, `.2.gz`, `-20261120.xz`."""


def rotated_names(path: str) -> list[tuple[str, str]]:
    """The paths of the rotated files of a log with the suffix of their compression, the newest
    first. Of one that is being compressed only the original is named. Raises `OSError`."""
    folder, name = os.path.split(path)
    if not name:
        return []
    numbered: dict[int, tuple[str, str]] = {}
    dated: dict[str, tuple[str, str]] = {}
    for each in files.list_names(folder or "."):  # sorted: the original comes first
        match = _ROTATED.fullmatch(each, len(name)) if each.startswith(name) else None
        if match is not None:
            entry = os.path.join(folder, each), match[2] or ""
            if match[1].isdecimal() and len(match[1]) < len("20261120"):
                numbered.setdefault(int(match[1]), entry)
            else:
                dated.setdefault(match[1], entry)
    return [numbered[n] for n in sorted(numbered)] + [dated[d] for d in sorted(dated)[::-1]]


class RotatedLog:
    """The open files of one log, the earliest first. Raises OSError if one cannot be read."""

    def __init__(self, path: str, cache: FileCache | None = None) -> None:
        self.path, self._cache = path, cache or FileCache()
        self.files: list[LogFile] = []
        """The last one has the path now, unless there is an error."""
        self.error: OSError | None = None
        """Why the log cannot be read, or not under its name."""
        self.damages: dict[str, str] = {}
        """Why a rotated file cannot be read to its end, by its path."""
        self.unread_until = NO_TIME
        """When the newest of the rotated files that were not opened was last written, epoch seconds
        UTC, after `open_earlier` has found none; `NO_TIME`: there is none."""
        self._closed_files: deque[KnownBytes] = deque(maxlen=MAX_CLOSED_FILES)
        """Files that were read and closed: a compressed copy of one of them is not new."""
        self._measured: LogFile | None = None
        """The earlier file that is being unpacked for the first time."""
        self._measured_path = ""
        self._complete_since: float | None = None
        """From this time on there are no more files to open; None: not known."""

    @property
    def is_missing(self) -> bool:
        """True if no file has the path now."""
        return isinstance(self.error, FileNotFoundError | NotADirectoryError)

    @property
    def trouble(self) -> str:
        """Why the log cannot be read; "" if it can."""
        if self.error is None:
            return ""
        is_gone = isinstance(self.error, FileNotFoundError)
        if not self.files:
            return NO_LOG_FILE if is_gone else error_text(self.error)
        if is_gone and self.files[-1].identity().st_nlink:
            return ""  # rotated, and not created again yet
        why = _REMOVED if is_gone else error_text(self.error)
        return f"{why}; its former lines are still shown"

    def refresh(self) -> bool:
        """Re-read the state of all files: grown, replaced or rewritten. True if any has changed."""
        before = tuple(self.files)
        unchanged = [file for file in before if not self._refresh_file(file)]
        changed = len(unchanged) < len(before)
        read_before = [file for file in unchanged if file is not before[-1]]
        try:
            named_stat = os.stat(self.path)
            if not self.files or not os.path.samestat(named_stat, self.files[-1].identity()):
                self._add(self._open(), read_before)
                changed = True
        except OSError as error:
            self.error = error
            if self.is_missing and self.files:
                changed |= self._add(None, read_before)
        else:
            self.error = None
        return changed

    def _add(self, named: LogFile | None, read_before: list[LogFile]) -> bool:
        """Add the file that has the path now, if there is one, and those that had it since the last
        refresh; close some of those that were read before. False if there are none to add."""

        def is_known(other: LogFile) -> bool:
            if named is None and other.modified <= self.files[-1].modified:
                return True  # else each refresh unpacked files while there is no log
            return self._was_closed(other) or any(map(other.has_same_lines, self.files))

        known, later = self._rotated_since(is_known, named)
        if known is not None:
            if not known.has_same_lines(self.files[-1]):
                # The last file was removed: only the times tell which of the others came after it.
                later = _written_after(self.files[-1], later)
            known.close()
        later += [named] if named is not None else []
        if not later:
            return False
        self.files += self._numbered(later, self.files[-1:])
        for earlier in self.files[: -1 - MAX_ROTATED_FILES]:
            if earlier in read_before:
                self._close_read(earlier)
        self._forget_earlier()
        return True

    def _close_read(self, file: LogFile) -> None:
        if file.size:
            self._closed_files.append(file.known_bytes)
        file.close()
        self.files.remove(file)

    def _was_closed(self, other: LogFile) -> bool:
        _is_unpacked(other)
        return any(
            other.size >= known.size and other.begins_with(known) for known in self._closed_files
        )

    def _refresh_file(self, file: LogFile) -> bool:
        grew = file.check_growth()
        if grew is not None:
            return grew

        others = [each for each in self.files if each is not file]

        def is_known(other: LogFile) -> bool:
            if not file.size:  # an empty file has no bytes to compare: only times tell its copies
                if other.modified <= file.modified:
                    return True
                return self._was_closed(other) or any(map(other.has_same_lines, others))
            return _is_unpacked(other) and other.take_place(file)

        reopened = file.reopen(self._cache)
        known, later = self._rotated_since(is_known, reopened)
        copies = []
        if not file.size:
            _closed([known] if known is not None else [])
        elif known is None:
            later = _closed(later)
        else:
            copies = [known]
        at = self.files.index(file)
        self.files[at : at + 1] = [*copies, *self._numbered([*later, reopened], copies)]
        file.close()
        self._forget_earlier()
        return True

    def _numbered(self, later: list[LogFile], before: list[LogFile]) -> list[LogFile]:
        for file in later:
            file.number = next(self._cache.next_numbers)
            if before:
                file.follow_on(before[-1])
            before = [file]
        return later

    def _rotated_since(
        self, is_known: Callable[[LogFile], bool], present: LogFile | None
    ) -> tuple[LogFile | None, list[LogFile]]:
        """The last rotated file that is known, and the files after it, which were created and
        rotated since the last refresh. If the known one was removed, only the times of the files
        tell. With a `present` file, only those that were written before it are returned."""
        later: list[LogFile] = []
        is_ordered = present is None or not present.size or present.identity().st_nlink > 0
        known = None
        for each in self._rotated_files() if self.files else ():
            if is_known(each):
                known = each
                break
            later.append(each)
            if present is not None and each.has_same_lines(present):
                later, is_ordered = _closed(later), True  # the ones before it were written after it
            elif not _is_unpacked(each):
                _closed([later.pop()])
        if present is not None and not is_ordered:  # removed: only the times tell what is before it
            later = _only(later, lambda each: each.modified < present.modified)
        if known is None and self.files:
            later = _written_after(self.files[-1], later)
        return known, later[::-1]

    def _forget_earlier(self) -> None:
        if self._measured is not None:
            self._measured.close()
        self._measured = self._complete_since = None

    def _rotated_files(self) -> Iterator[LogFile]:
        """Open the rotated files that can be opened, the newest first; the caller closes them."""
        for path, packing in self._names():
            try:
                file = self._open_rotated(path, packing)
            except OSError:
                continue
            yield file

    def _names(self) -> list[tuple[str, str]]:
        try:
            return rotated_names(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.damages[os.path.dirname(self.path)] = error_text(error)
            return []

    def open_earlier(self, since: float = NO_TIME) -> int:
        """Do one step to open the rotated file before the first open one, unless its last write was
        before `since` (epoch seconds UTC).

        Return the number of bytes that were read, at least 1; 0 if there is no such file."""
        if self._measured is None:
            if self._complete_since is not None and since >= self._complete_since:
                return 0
            self._measured = self._find_earlier(since)
        file = self._measured
        if file is None:
            self._complete_since = since
            return 0
        if read := file.measure(UNPACKED_STEP_BYTES):
            return read
        self._measured = None
        if file.unpacked is not None and (why := file.unpacked.damage):
            self.damages[self._measured_path] = f"{why}: only what is before is read"
        if self.files:
            self.files[0].follow_on(file)
        self.files.insert(0, file)
        return 1

    def _find_earlier(self, since: float) -> LogFile | None:
        """The newest rotated file with lines that no open file has."""
        self.unread_until = NO_TIME
        for number, (path, packing) in enumerate(self._names()):
            try:
                modified = os.stat(path).st_mtime
            except OSError:
                continue  # it is renamed right now
            if modified < since - CLOCK_SKEW_SECONDS or number == MAX_EARLIER_FILES:
                self.unread_until = max(modified, self.unread_until)
                return None
            try:
                file = self._open_rotated(path, packing)
            except OSError as error:
                self.damages[path] = error_text(error)
                self.unread_until = max(modified, self.unread_until)
                continue
            if not any(map(file.has_same_lines, self.files)):
                self._measured_path = path
                return file
            file.close()
        return None

    def _open_rotated(self, path: str, packing: str) -> LogFile:
        fd = _open_regular(path)
        try:
            # Its lines have the path of the log as their source.
            file = LogFile(self.path, next(self._cache.earlier_numbers), fd, self._cache, packing)
        except OSError:
            os.close(fd)
            raise
        file.check_growth()
        file.measure(1)
        return file

    def _open(self) -> LogFile:
        file = LogFile(self.path, 0, _open_regular(self.path), self._cache)
        file.check_growth()
        return file

    def close_removed(self) -> None:
        """Close former files without a name, which use space while open, once they were read."""
        for file in self.files[:-1]:
            if not file.identity().st_nlink:
                self._close_read(file)

    def close(self) -> None:
        """Close all files."""
        self._forget_earlier()
        self.files = _closed(self.files)


def _closed(opened: list[LogFile]) -> list[LogFile]:
    for file in opened:
        file.close()
    return []


def _written_after(last: LogFile, later: list[LogFile]) -> list[LogFile]:
    """Those of some files that were written after another one; the others are closed."""
    return _only(later, lambda each: each.modified > last.modified)


def _only(opened: list[LogFile], is_kept: Callable[[LogFile], bool]) -> list[LogFile]:
    _closed([each for each in opened if not is_kept(each)])
    return [each for each in opened if not each.is_closed]


def _is_unpacked(file: LogFile) -> bool:
    """Unpack a file; False if it is too large to do that at once."""
    file.measure(MAX_UNPACKED_BYTES)
    return file.unpacked is None or file.unpacked.is_whole


def _open_regular(path: str) -> int:
    fd = files.open_file(path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "expected a regular file", path)
    return fd
