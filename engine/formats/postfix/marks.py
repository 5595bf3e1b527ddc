"""Marks of purged messages: a file of JSON lines in our own folder for the place, under its flock.

A purged message is on hold; only its mark makes it trash. So a mark is written and fsynced before
the message is put on hold, and a message is trash only while its mark fits it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

FILE_NAME = "marks.jsonl"
_NEW = "marks.new"

MARGIN_SECONDS = 150
"""Seconds from a mark to the hold that belongs to it: an act ends after 120 s. A later hold is
another operator's."""

MAX_BYTES = 64 << 20
"""Maximum bytes of the file: about 300,000 marks."""

SPARE_BYTES, LINE_BYTES = 64 << 10, 400
"""A file with more bytes than this, and this for each mark, is written again."""

_CUT_OFF = b" cut off\n"
"""Appended to a line that a crash cut off, so that it never becomes a valid one."""


class Mark(NamedTuple):
    """A message that was purged."""

    id: str
    identity: str
    """Of arrival, size, sender and number of open recipients."""
    sender: str
    queue: str
    """The queue that it was in before."""
    at: float
    """Epoch seconds UTC of its host."""
    who: str


class Marks:
    """The marks of one place. Their folder is created with the first one.

    Raises, everywhere: Unavailable, if they cannot be read or written; then they are unchanged."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: tuple[tuple[int, int, int] | None, Mapping[str, Mark]] = (None, {})

    def read(self) -> Mapping[str, Mark]:
        """All marks by id; the file is only read again if it has changed."""
        try:
            with closing_fd(files.open_dir_path(self._folder)) as folder:
                fd = files.open_plain(FILE_NAME, folder)
            with closing_fd(fd):
                return self._read(fd)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._trouble("cannot read", error) from error

    def is_trash(self, ident: str, identity: str, ctime: float | None) -> bool:
        """True if a mark of the last `read` fits a message that is on hold, and that was not put on
        hold again since; without a ctime, that is unknown."""
        mark = self._known[1].get(ident)
        if mark is None or mark.identity != identity:
            return False
        return ctime is None or ctime <= mark.at + MARGIN_SECONDS

    def version(self) -> object:
        """What differs after each change of the marks."""
        self.read()
        return self._known[0]

    @property
    def known(self) -> Mapping[str, Mark]:
        """The marks of the last `read`, by id."""
        return self._known[1]

    def add(self, marks: Collection[Mark], stale: Collection[Mark] = ()) -> None:
        """Add marks, durable on return; the `stale` ones are removed, if they are still the same
        and older than an act can take."""
        with self._open_locked() as (fd, folder):
            known, now = self._read(fd), max((mark.at for mark in marks), default=0.0)
            old = [m.id for m in stale if known.get(m.id) == m and m.at + MARGIN_SECONDS < now]
            self._append(fd, folder, [*map(_format_gone, old), *map(_format_mark, marks)])

    def remove(self, ids: Collection[str]) -> None:
        """Remove the marks of these ids; durable on return."""
        if not any(ident in self.read() for ident in ids):
            return
        with self._open_locked() as (fd, folder):
            self._append(fd, folder, map(_format_gone, ids))
            remaining = self._read(fd)
            if os.fstat(fd).st_size > SPARE_BYTES + LINE_BYTES * len(remaining):
                self._replace(fd, folder, remaining)

    def _append(self, fd: int, folder: int, lines: Iterable[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        size = os.fstat(fd).st_size
        if size + len(data) > MAX_BYTES:
            raise Unavailable(f"{self._path}: full, expected at most {MAX_BYTES:,} bytes")
        is_torn = size and os.pread(fd, 1, size - 1) != b"\n"
        files.write_all(fd, _CUT_OFF + data if is_torn else data)
        files.fsync(fd)
        if not size:
            files.fsync(folder)
        self._read(fd)

    def _replace(self, fd: int, folder: int, marks: Mapping[str, Mark]) -> None:
        data = "".join(f"{_format_mark(mark)}\n" for mark in marks.values()).encode()
        files.unlink_quietly(_NEW, folder)  # left by a killed process; we hold the flock
        with closing_fd(files.create_file(_NEW, folder, None)) as new:
            files.copy_mode(new, os.fstat(fd))
            files.write_all(new, data)
            files.fsync(new)
            files.rename(_NEW, FILE_NAME, src_dir_fd=folder, dst_dir_fd=folder)
            files.fsync(folder)

    def _read(self, fd: int) -> Mapping[str, Mark]:
        status = os.fstat(fd)  # before reading, so that a later change gives another key
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known[0] != key:
            data = os.pread(fd, MAX_BYTES, 0)
            self._known = (key, _parse_marks(data))
        return self._known[1]

    @contextmanager
    def _open_locked(self) -> Iterator[tuple[int, int]]:
        """Open the file with its flock held, and its folder; reopens a replaced file."""
        try:
            with closing_fd(files.open_dir(self._folder, make=True)) as folder:
                while True:
                    fd = files.open_shared(FILE_NAME, folder, os.O_RDWR | os.O_APPEND, 0o600)
                    with closing_fd(fd), files.Flock(fd):
                        if files.is_named(FILE_NAME, os.fstat(fd), folder):
                            yield fd, folder
                            return
        except OSError as error:
            raise self._trouble("cannot write", error) from error

    @property
    def _path(self) -> str:
        return f"{self._folder}/{FILE_NAME}"

    def _trouble(self, what: str, error: OSError) -> Unavailable:
        return Unavailable(f"{self._path}: {what} the marks of the trash: {error_text(error)}")


def _format_mark(mark: Mark) -> str:
    return json.dumps(mark._asdict())


def _format_gone(ident: str) -> str:
    return json.dumps({"id": ident, "gone": True})


def _parse_marks(data: bytes) -> dict[str, Mark]:
    """Marks by id; a line that is not one is skipped, as it was cut off by a crash."""
    marks: dict[str, Mark] = {}
    for line in data.split(b"\n")[:-1]:
        try:
            fields = json.loads(line)
            ident = str(fields["id"])
            if fields.get("gone"):
                marks.pop(ident, None)
                continue
            marks[ident] = Mark(
                ident,
                str(fields["identity"]),
                str(fields["sender"]),
                str(fields["queue"]),
                at=float(fields["at"]),
                who=str(fields["who"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return marks
