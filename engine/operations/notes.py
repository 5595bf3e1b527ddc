"""What operators wrote down about tasks: one file of JSON lines in a spool's journal.

A note is kept beside the task and not in it, so that no worker stumbles over it. It stays with its
task wherever that goes; once the task is nowhere any more it is dropped (`sweep`). No mail address
is written in full.

Lines are only ever added, under the file's flock; the last one about a task wins when it takes the
notes before it away. A line without its end was cut off by a crash and counts for nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from engine.model import Missing
from engine.operations.journal import mask
from engine.store import Store, Unavailable
from engine.system import files
from engine.text import decode

NAME = "notes.jsonl"

LONGEST = 500
"""Characters of a note."""

AWAY = "-"
"""What is typed to take a task's notes away: an empty line is how a question is closed."""

LIMIT = 4 << 20
"""Bytes of all notes: the console holds them in memory. Some ten thousand fit."""

_NEW = "notes.new"
_CUT_OFF = b" cut off\n"
"""Put behind a line that a crash left without its end: with it, it never becomes a whole one."""


class Note(NamedTuple):
    """What somebody wrote down about a task."""

    when: float
    """Epoch seconds UTC."""
    who: str
    text: str
    """On one line, without whole mail addresses; foreign to whoever shows it."""


Noted: TypeAlias = Mapping[str, tuple[Note, ...]]
"""The notes on each task that has some, by its id, the oldest first."""

NOTHING: Noted = MappingProxyType({})


class Notes:
    """The notes on one spool's tasks. Their folder is made when the first is written."""

    def __init__(self, folder: str, root: str = "", clock: Callable[[], float] = time.time) -> None:
        """`root` is the folder below which no symbolic link is followed."""
        self.folder, self._root, self._clock = folder, root, clock
        self._known: tuple[tuple[int, int, int] | None, Noted] = (None, NOTHING)

    def add(self, ident: str, text: str, who: str) -> None:
        """Write a note on a task down; durable when it returns. An empty one takes its notes away.

        Raises:
            Unavailable: it cannot be written; the notes are as they were.
        """
        line = {"when": self._clock(), "who": who, "id": ident, "text": tidy(text)}
        data = f"{json.dumps(line)}\n".encode()
        try:
            with self._ours() as (fd, folder):
                size = os.fstat(fd).st_size
                if size + len(data) > LIMIT:
                    raise Unavailable(f"{self._path}: full, expected at most {LIMIT:,} bytes")
                is_torn = size and os.pread(fd, 1, size - 1) != b"\n"
                files.write_all(fd, _CUT_OFF + data if is_torn else data)
                files.fsync(fd)
                if not size:
                    files.fsync(folder)
        except OSError as error:
            raise self._trouble("the note is not written", error) from error

    def of(self, ident: str) -> tuple[Note, ...]:
        """The notes on a task, the oldest first.

        Raises:
            Unavailable: they cannot be read.
        """
        return self.all().get(ident, ())

    def noted(self) -> frozenset[str]:
        """Ids of the tasks that have a note.

        Raises:
            Unavailable: they cannot be read.
        """
        return frozenset(self.all())

    def all(self) -> Noted:
        """Every note; read only when the file has changed since.

        Raises:
            Unavailable: they cannot be read.
        """
        try:
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(NAME, folder)
            finally:
                os.close(folder)
            try:
                return self._read(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return NOTHING
        except OSError as error:
            raise self._trouble("the notes are not read", error) from error

    def drop(self, gone: Collection[str]) -> int:
        """Forget the notes on these tasks for good, and what no longer counts; how many tasks.

        What others write meanwhile waits, and is kept.

        Raises:
            Unavailable: the file cannot be written anew; it is as it was.
        """
        try:
            with self._ours() as (fd, folder):
                noted = self._read(fd)
                kept = {ident: notes for ident, notes in noted.items() if ident not in gone}
                self._replace(fd, folder, kept)
                return len(noted) - len(kept)
        except OSError as error:
            raise self._trouble("the notes are not swept", error) from error

    def _replace(self, fd: int, folder: int, kept: Noted) -> None:
        lines = (
            json.dumps({"when": note.when, "who": note.who, "id": ident, "text": note.text})
            for ident, notes in kept.items()
            for note in notes
        )
        files.forget(_NEW, folder)  # of one who was killed here: nobody else is here now
        new = files.create(_NEW, folder, None)
        try:
            files.resemble(new, os.fstat(fd))
            files.write_all(new, "".join(f"{line}\n" for line in lines).encode())
            files.fsync(new)
            files.rename(_NEW, NAME, src_dir_fd=folder, dst_dir_fd=folder)
            files.fsync(folder)
        finally:
            os.close(new)

    def _read(self, fd: int) -> Noted:
        seen = os.fstat(fd)  # before it is read: what is added meanwhile makes it another one
        key = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if self._known[0] != key:
            if seen.st_size > LIMIT:
                raise Unavailable(
                    f"{self._path}: {seen.st_size:,} bytes, expected at most {LIMIT:,}"
                )
            self._known = (key, understood(os.pread(fd, LIMIT, 0)))
        return self._known[1]

    @contextmanager
    def _ours(self) -> Iterator[tuple[int, int]]:
        """The file, its flock ours, and its folder; the one of that name, not one that was swept.

        Raises:
            OSError: it cannot be had.
        """
        folder = self._open()
        try:
            while True:
                fd = files.open_shared(NAME, folder, os.O_RDWR | os.O_APPEND)
                try:
                    with files.Flock(fd):
                        if _stands(fd, folder):
                            yield fd, folder
                            return
                finally:
                    os.close(fd)
        finally:
            os.close(folder)

    def _open(self) -> int:
        """The folder, to write in: one that is passed through only cannot be made durable."""
        passed = files.reach(self.folder, self._root, make=True)
        try:
            return files.open_folder(".", passed)
        finally:
            os.close(passed)

    @property
    def _path(self) -> str:
        return f"{self.folder}/{NAME}"

    def _trouble(self, what: str, error: OSError) -> Unavailable:
        return Unavailable(f"{what}: {self._path}: {error.strerror or error}")


def sweep(notes: Notes, store: Store) -> int:
    """Forget the notes on tasks that are nowhere in their store any more; on how many.

    They are looked for twice: a task that is being moved is nowhere for a moment.

    Raises:
        Unavailable: the store or the notes cannot be read, or the notes not be written.
    """
    gone = notes.noted()
    for _ in range(2):
        if gone:
            gone = frozenset(found.id for found in store.look(gone) if isinstance(found, Missing))
    return notes.drop(gone) if gone else 0


def wrong(text: str) -> str:
    """Why something that is typed is no note, in words; "" when it is one."""
    return f"a note has at most {LONGEST} characters" if len(text.strip()) > LONGEST else ""


def meant(text: str) -> str:
    """What is to be kept of something that is typed; "" takes the notes away."""
    return "" if text.strip() == AWAY else tidy(text)


def tidy(text: str) -> str:
    """A note as it is kept: on one line, without whole mail addresses, at most 500 characters."""
    return mask(" ".join(text[: 8 * LONGEST].split()))[:LONGEST]


def understood(data: bytes) -> Noted:
    """The notes in such a file; what is no whole line of its kind is passed by."""
    noted: dict[str, list[Note]] = {}
    *whole, _ = data.split(b"\n")
    for line in whole:
        found = _line(line)
        if found is None:
            continue
        ident, note = found
        if note.text:
            noted.setdefault(ident, []).append(note)
        else:
            noted.pop(ident, None)
    return {ident: tuple(notes) for ident, notes in noted.items()}


def _line(line: bytes) -> tuple[str, Note] | None:
    try:
        told = decode.mapping(decode.load_json(line, LIMIT))
        ident, who, text = (decode.text(told.get(k), k, LIMIT) for k in ("id", "who", "text"))
        return ident, Note(decode.epoch(told.get("when"), "when"), who, tidy(text))
    except decode.Malformed:
        return None


def _stands(fd: int, folder: int) -> bool:
    """Whether an open file still has its name in a folder."""
    try:
        now = os.stat(NAME, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), now)
