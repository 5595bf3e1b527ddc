"""Read one control file, and one task: its parts, the bytes of a problem."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from os import stat_result

from engine.model import Part, Problem, State, Task
from engine.store import (
    MAX_PART_BYTES,
    PREVIEW_BYTES,
    Gone,
    SeenTask,
    StoreError,
    Unavailable,
    Unsupported,
)
from engine.stores.zmailer import agents, names
from engine.stores.zmailer.control_file import TRIGGER, FileLayout, line_in, parse_layout
from engine.stores.zmailer.folders import (
    FREEZER,
    KEPT,
    TRANSPORT,
    FolderCache,
    PostofficeFolders,
    SpoolEntry,
    problem_at,
    read_line,
    read_whole,
)
from engine.stores.zmailer.tasks import tasks_of
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import safe_line

PREVIEWED = (f"{TRANSPORT}/", f"{KEPT}/", f"{FREEZER}/")
"""Beginnings of the paths of problems that have bytes to show."""

TASK_PART, CONTROL_PART, MESSAGE_PART = "task", "control", "message"

READ_TRIES = 3
"""How often a file that changes while it is read is read again."""


class Changing(Exception):
    """A file changed each time it was read."""


class EntryReader:
    """Reads control files of one spool, whole or some of their recipients."""

    def __init__(self, folders: PostofficeFolders) -> None:
        self._folders = folders

    def read(
        self,
        name: str,
        wanted: Collection[int] | None = None,
        opened: FolderCache | None = None,
        likely: str = "",
    ) -> SpoolEntry | None:
        """Read a control file, again if it is changed or replaced meanwhile; None for a file that
        is a request for a delivery (ETRN).

        With `wanted`, of a large file with a known layout only the recipients at these offsets are
        read. `opened` has folders open from other reads; `likely` is the hash folder to try first.

        Raises:
            FileNotFoundError: there is none.
            Refused: it is no control file of a message.
            Changing: it changed each time.
            OSError: it cannot be read now.
        """
        with closing(FolderCache()) as own:
            for _ in range(READ_TRIES):
                try:
                    return self._read_first(name, wanted, opened or own, likely)
                except Changing:
                    own.close()
                    opened = None  # a folder may have been replaced
        raise Changing(name)

    def _read_first(
        self, name: str, wanted: Collection[int] | None, opened: FolderCache, likely: str
    ) -> SpoolEntry | None:
        """Read a control file in the first folder that has it."""
        for above, path, is_kept in self._places(name, likely):
            try:
                folder = opened.open(above, path[:-1])
                fd = files.open_guarded(name, folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                read = self._read_open(fd, name, folder, wanted)
            finally:
                os.close(fd)
            if read is None:
                return None
            message, message_path = self._folders.find_message(name, is_kept, opened, path)
            where = f"{path if is_kept else f'{TRANSPORT}/{path}'}{name}"
            return SpoolEntry(name, where, is_kept, *read, message, message_path)
        raise FileNotFoundError(name)

    def _places(self, name: str, likely: str) -> Iterator[tuple[int, str, bool]]:
        """The folders in which a control file may be, each below an open one, ours last: for that
        the scheduler has finished the message.
        """
        number = names.message_number(name)
        if number is None:
            return
        yield self._folders.transport, likely, False
        for folder in names.hash_folders(number):
            if folder != likely:
                yield self._folders.transport, folder, False
        yield self._folders.fd, f"{KEPT}/{TRANSPORT}/", True

    def _read_open(
        self, fd: int, name: str, folder: int, wanted: Collection[int] | None
    ) -> tuple[stat_result, FileLayout, Callable[[int], bytes], bytes | None] | None:
        """Read an open control file in a folder: its status, layout, lines and bytes."""
        seen = os.fstat(fd)
        self._folders.require_plain(name, seen)
        layout = self._folders.layouts.get(name, seen)
        data: bytes | None = None
        line_at: Callable[[int], bytes]
        if wanted is None or layout is None:
            data, seen = read_whole(fd)
            if data[:1] == TRIGGER:
                return None
            line_at = partial(line_in, data)
        else:
            line_at = _read_lines(fd, layout, wanted)
        try:
            if not files.is_same_file(os.stat(name, dir_fd=folder, follow_symlinks=False), seen):
                raise Changing(name)
        except FileNotFoundError:
            raise Changing(name) from None
        if data is not None and (layout := self._folders.layouts.get(name, seen)) is None:
            layout = parse_layout(data)
            self._folders.layouts.keep(name, seen, layout)
        assert layout is not None  # either it was known, or all was read
        if layout.name != os.fsencode(name):
            said = safe_line(layout.name.decode("utf-8", "replace"))[:80]
            raise Refused(f"its i line names {said}")
        return seen, layout, line_at, data


def _read_lines(fd: int, layout: FileLayout, wanted: Collection[int]) -> Callable[[int], bytes]:
    """Read the lines of some recipients of an open file, with their N lines and diagnostics."""
    lines: dict[int, bytes] = {}
    for offset in filter(layout.has_recipient, wanted):
        lines[offset] = line = read_line(fd, offset)
        notify = layout.notify_lines.get(offset, offset + len(line) + 1)
        for at in (notify, layout.diagnostics.get(offset)):
            if at is not None:
                lines[at] = read_line(fd, at)
    return lambda at: lines.get(at, b"")


class MessageReader:
    """Reads single files of one spool."""

    def __init__(self, folders: PostofficeFolders) -> None:
        self._folders = folders
        self._entries = EntryReader(folders)

    def has_ended(self, pid: int, locked_at: float) -> bool:
        """True if the agent that wrote a lock at that time has ended."""
        return agents.has_ended(pid, locked_at, self._folders.transport_status)

    def read(
        self,
        name: str,
        wanted: Collection[int] | None = None,
        opened: FolderCache | None = None,
        likely: str = "",
    ) -> SpoolEntry | Problem | None:
        """Read a control file as `EntryReader.read` does; None if it is gone, or no message."""
        try:
            return self._entries.read(name, wanted, opened, likely)
        except FileNotFoundError:
            return None
        except Refused as refusal:
            return problem_at(self._find_path(name), str(refusal))
        except Changing:
            return problem_at(self._find_path(name), "cannot be read now: it changes all the time")
        except OSError as error:
            return problem_at(self._find_path(name), f"cannot be read now: {error.strerror}")

    def _find_path(self, name: str) -> str:
        """The path of a file that cannot be read, as far as it can be found."""
        number = names.message_number(name) or 0
        for folder in names.hash_folders(number):
            try:
                with self._folders.open_below(self._folders.transport, folder) as fd:
                    os.stat(name, dir_fd=fd, follow_symlinks=False)
                return f"{TRANSPORT}/{folder}{name}"
            except OSError:
                continue
        return f"{KEPT}/{TRANSPORT}/{name}"

    def verify(self, seen: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """Yield the unchanged tasks; each control file is read once."""
        wanted: dict[str, dict[int, tuple[State, str]]] = {}
        for ident, state, rev in seen:
            if parsed := names.parse_task_id(ident):
                wanted.setdefault(parsed[0], {})[parsed[1]] = state, rev
        for name, those in wanted.items():
            entry = self.read(name, those)
            if isinstance(entry, Problem):
                for offset, (state, _) in those.items():
                    yield Problem(names.task_id(name, offset), entry.what, state)
            elif entry is not None:
                expected = {names.task_id(name, offset): one for offset, one in those.items()}
                for task in tasks_of(entry, self.has_ended, those):
                    if (task.state, task.rev) == expected[task.id]:
                        yield task

    # ---- one task

    def parts(self, task: Task) -> Iterator[Part]:
        """List a task's line, its control file and its message file.

        Raises:
            Gone: the task has changed.
            Unavailable: it cannot be read now.
        """
        entry = self._read_unchanged(task)
        facts = (
            ("modified", f"{entry.seen.st_mtime:.0f}"),
            ("changed", f"{entry.seen.st_ctime:.0f}"),
        )
        where = f"{self._folders.root}/{entry.where}"
        yield Part(TASK_PART, where, len(_image(task, entry)), facts)
        yield Part(CONTROL_PART, where, entry.seen.st_size)
        message = f"{self._folders.root}/{entry.message_path}"
        yield Part(MESSAGE_PART, message, entry.message.st_size)

    def size(self, task: Task) -> int:
        """Bytes of the task's line, and of both files if it is the only task of its message.

        Raises:
            Gone: the task has changed.
            Unavailable: it cannot be read now.
        """
        entry = self._read_unchanged(task)
        own = len(_image(task, entry))
        # Of a large file, only the lines of this task were read.
        if entry.data is None or len([*islice(tasks_of(entry, self.has_ended), 2)]) > 1:
            return own
        return own + entry.seen.st_size + entry.message.st_size

    def read_part(self, task: Task, part: str = "") -> bytes:
        """Read a part of a task.

        Raises:
            Gone: the task has changed, or there is no such part.
            Unsupported: it is no plain file.
            Unavailable: it cannot be read now.
        """
        entry = self._read_unchanged(task)
        if part in ("", TASK_PART):
            return _image(task, entry)
        if part == CONTROL_PART:
            return self._read_file(entry.where, MAX_PART_BYTES)
        if part != MESSAGE_PART:
            raise Gone(f"{task.id} has no part {safe_line(part)}")
        return self._read_file(entry.message_path, MAX_PART_BYTES)

    def read_parked(self, name: str) -> Problem | None:
        """The problem of a file in freezer/; None if it is gone."""
        where = f"{FREEZER}/{name}"
        try:
            with self._folders.open_below(self._folders.fd, FREEZER) as fd:
                seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(seen.st_mode):
            return None
        try:
            parse_layout(self._read_file(where, MAX_PART_BYTES))
            why = "the scheduler could not use it"
        except (Refused, StoreError) as error:
            why = str(error)
        return problem_at(where, f"parked: {why}; move it back to {TRANSPORT}/ once mended", seen)

    def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of a control file with a problem.

        Raises:
            Gone: it no longer exists.
            Unsupported: it cannot be read as part of this spool.
            Unavailable: it cannot be read now.
        """
        folders = problem.where.split("/")
        if ".." in folders or not problem.where.startswith(PREVIEWED):
            raise Unsupported(f"{problem.where}: it cannot be previewed")
        return self._read_file(problem.where, PREVIEW_BYTES)

    def _read_file(self, path: str, limit: int) -> bytes:
        """The first bytes of a plain file below the spool."""
        above, name = os.path.split(path)
        try:
            with self._folders.open_below(self._folders.fd, above) as fd:
                file = files.open_guarded(name, fd)
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unsupported(f"{path}: not a plain file")
                return os.read(file, limit)
            finally:
                os.close(file)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(path) from None
        except Refused as refusal:
            raise Unsupported(f"{path}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error

    def _read_unchanged(self, task: Task) -> SpoolEntry:
        parsed = names.parse_task_id(task.id)
        entry = self.read(parsed[0], parsed[1:]) if parsed else None
        if isinstance(entry, Problem):
            raise Unavailable(f"{entry.where}: {entry.what}")
        if parsed is None or entry is None:
            raise Gone(task.id)
        there = list(tasks_of(entry, self.has_ended, {parsed[1]}))
        if not there or (there[0].state, there[0].rev) != (task.state, task.rev):
            raise Gone(task.id)
        return entry


def _image(task: Task, entry: SpoolEntry) -> bytes:
    """The id of a task, and its line as it is stored."""
    offset = int(task.id.rpartition("/")[2])
    return b"%b\n%b\n" % (task.id.encode(), entry.line_at(offset))
