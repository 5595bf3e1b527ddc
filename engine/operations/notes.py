"""Operators' notes on tasks: one file of JSON lines in a spool's journal folder.

Notes are stored beside the task and not in it, so that no worker stumbles over them. A note stays
with its task through all states; once the task has left the store, `sweep_notes` removes it.
No mail address is written in full.

Lines are appended under the file's flock; a line with an empty text deletes the earlier notes of
its task. A line without a newline was cut off by a crash and is ignored."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeAlias

from engine.model import Missing, Task
from engine.operations.journal import mask_addresses
from engine.store import ReadableStore, Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text import decode
from engine.text.error_text import error_text
from engine.text.typed_json import Epoch, from_json
from engine.values import NamedTuple

NOTES_FILE_NAME = "notes.jsonl"

MAX_NOTE_CHARS = 500

DELETE_INPUT = "-"
"""The input that deletes a task's notes; an empty input only closes the prompt."""

MAX_NOTES_BYTES = 4 << 20
"""Maximum bytes of the file (about ten thousand notes): the console holds all notes in memory."""

_NEW = "notes.new"
_CUT_OFF = b" cut off\n"
"""Appended to a line that a crash cut off, so that it never becomes a valid one."""


class Note(NamedTuple):
    """An operator's note on a task."""

    when: Epoch
    who: str
    text: str
    """One line, without full mail addresses; untrusted: make it safe before showing it."""
    made: Epoch | None = None
    """Creation of its task when it was written; None: not recorded."""


NotesById: TypeAlias = Mapping[str, tuple[Note, ...]]
"""Notes by task id, the oldest first."""

NO_NOTES: NotesById = MappingProxyType({})


class Notes:
    """The notes of one spool. Their folder is created with the first note.

    Raises, everywhere: Unavailable, if the notes cannot be read or written; then they are
    unchanged."""

    def __init__(self, folder: str, root: str = "", clock: Callable[[], float] = time.time) -> None:
        """`root` is the folder below which no symbolic link is followed."""
        self.folder, self._root, self._clock = folder, root, clock
        self._known: tuple[tuple[int, int, int] | None, NotesById] = (None, NO_NOTES)

    def add(self, ident: str, text: str, who: str, made: float | None = None) -> None:
        """Append a note on a task that was created at `made`; durable when it returns. An empty
        text deletes its notes."""
        data = _format_line(ident, Note(self._clock(), who, clean_note(text), made))
        with self._open_locked("cannot write the note") as (fd, folder):
            size = os.fstat(fd).st_size
            if size + len(data) > MAX_NOTES_BYTES:
                most = f"expected at most {MAX_NOTES_BYTES:,} bytes"
                raise Unavailable(f"{self._path}: full, {most}")
            is_torn = size and os.pread(fd, 1, size - 1) != b"\n"
            files.write_all(fd, _CUT_OFF + data if is_torn else data)
            files.fsync(fd)
            if not size:
                files.fsync(folder)

    def noted_ids(self) -> frozenset[str]:
        """Ids of the tasks that have a note."""
        return frozenset(self.read_all())

    def read_all(self) -> NotesById:
        """All notes; the file is only read again if it has changed."""
        try:
            with closing_fd(files.open_dir_path(self.folder, self._root)) as folder:
                fd = files.open_plain(NOTES_FILE_NAME, folder)
            with closing_fd(fd):
                return self._read(fd)
        except FileNotFoundError:
            return NO_NOTES
        except OSError as error:
            raise self._trouble("cannot read the notes", error) from error

    def remove_notes(self, ids: Collection[str]) -> int:
        """Rewrite the file without the notes on these tasks; return the number of tasks removed.
        Other writers wait for the flock, so no note is lost."""
        with self._open_locked("cannot sweep the notes") as (fd, folder):
            by_id = self._read(fd)
            remaining = {ident: notes for ident, notes in by_id.items() if ident not in ids}
            self._replace(fd, folder, remaining)
            return len(by_id) - len(remaining)

    def _replace(self, fd: int, folder: int, by_id: NotesById) -> None:
        lines = (_format_line(ident, note) for ident, notes in by_id.items() for note in notes)
        files.unlink_quietly(_NEW, folder)  # left by a killed process; we hold the flock
        with closing_fd(files.create_file(_NEW, folder, None)) as new:
            files.copy_mode(new, os.fstat(fd))
            files.write_all(new, b"".join(lines))
            files.fsync(new)
            files.rename(_NEW, NOTES_FILE_NAME, src_dir_fd=folder, dst_dir_fd=folder)
            files.fsync(folder)

    def _read(self, fd: int) -> NotesById:
        status = os.fstat(fd)  # before reading, so that a later change gives another key
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known[0] != key:
            if (size := status.st_size) > MAX_NOTES_BYTES:
                most = f"expected at most {MAX_NOTES_BYTES:,}"
                raise Unavailable(f"{self._path}: {size:,} bytes, {most}")
            self._known = (key, parse_notes(os.pread(fd, MAX_NOTES_BYTES, 0)))
        return self._known[1]

    @contextmanager
    def _open_locked(self, what: str) -> Iterator[tuple[int, int]]:
        """Open the file with its flock held, and its folder; reopens a replaced file. An OSError
        is reported as `what`."""
        try:
            with closing_fd(files.open_dir(self.folder, self._root, make=True)) as folder:
                while True:
                    fd = files.open_shared(NOTES_FILE_NAME, folder, os.O_RDWR | os.O_APPEND)
                    with closing_fd(fd), files.Flock(fd):
                        if files.is_named(NOTES_FILE_NAME, os.fstat(fd), folder):
                            yield fd, folder
                            return
        except OSError as error:
            raise self._trouble(what, error) from error

    @property
    def _path(self) -> str:
        return f"{self.folder}/{NOTES_FILE_NAME}"

    def _trouble(self, what: str, error: OSError) -> Unavailable:
        return Unavailable(f"{what}: {self._path}: {error_text(error)}")


def sweep_notes(notes: Notes, store: ReadableStore) -> int:
    """Delete the notes on tasks that have left the store; return the number of these tasks.

    Each is looked up twice: a task that is being moved is missing for a moment.

    Raises:
        Unavailable: the store or the notes cannot be read, or the notes cannot be written."""
    ids = notes.noted_ids()
    for _ in range(2):
        if ids:
            ids = frozenset(each.id for each in store.scan(ids) if isinstance(each, Missing))
    return notes.remove_notes(ids) if ids else 0


CLOCK_SLACK_SECONDS = 60.0
"""Seconds by which the clocks of a store and of the operators may differ."""


def notes_of(notes: NotesById, task: Task, now: float) -> tuple[Note, ...]:
    """The notes on a task. One that was written before the task was made is on an earlier task that
    had its id: numbers of rows, jobs and messages come again, as in a replaced database."""
    written = notes.get(task.id, ())
    if not 0 < task.created <= now:
        return written  # unknown, or set by another program
    return tuple(note for note in written if not _is_on_earlier(note, task.created))


def _is_on_earlier(note: Note, created: float) -> bool:
    slack = 0.0 if note.made not in (None, created) else CLOCK_SLACK_SECONDS
    return note.when < created - slack


def note_problem(text: str) -> str:
    """Why a typed text cannot be a note; "" if it can."""
    is_long = len(text.strip()) > MAX_NOTE_CHARS
    return f"a note has at most {MAX_NOTE_CHARS} characters" if is_long else ""


def parse_note(text: str) -> str:
    """The note to store for a typed text; "" deletes the task's notes."""
    return "" if text.strip() == DELETE_INPUT else clean_note(text)


def clean_note(text: str) -> str:
    """Normalize a note: one line, no full mail addresses, at most 500 characters."""
    return mask_addresses(" ".join(text[: 8 * MAX_NOTE_CHARS].split()))[:MAX_NOTE_CHARS]


def parse_notes(data: bytes) -> NotesById:
    """Parse a file of notes; invalid and incomplete lines are skipped."""
    by_id: dict[str, list[Note]] = {}
    *whole, _ = data.split(b"\n")
    for ident, note in filter(None, map(_parse_line, whole)):
        if note.text:
            by_id.setdefault(ident, []).append(note)
        else:
            by_id.pop(ident, None)
    return {ident: tuple(notes) for ident, notes in by_id.items()}


def _format_line(ident: str, note: Note) -> bytes:
    fields = {"when": note.when, "who": note.who, "id": ident, "text": note.text}
    made = {} if note.made is None else {"made": note.made}
    return f"{json.dumps(fields | made)}\n".encode()


def _parse_line(line: bytes) -> tuple[str, Note] | None:
    try:
        fields = decode.check_object(decode.load_json(line, MAX_NOTES_BYTES))
        ident = decode.check_text(fields.get("id"), "id", MAX_NOTES_BYTES)
        note = from_json(Note, fields, "note")
        return ident, note._replace(text=clean_note(note.text))
    except decode.Malformed:
        return None
