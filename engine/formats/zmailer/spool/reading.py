"""Read one control file, and one task: its parts, the bytes of a problem."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from os import stat_result

from engine.formats.zmailer.spool import lock_process, names
from engine.formats.zmailer.spool.control_file import (
    CHUNK_BYTES,
    TRIGGER,
    FileLayout,
    FileVersion,
    block_sums,
    last_sum,
    layout_of,
    line_in,
    parse_layout,
    split_chunks,
    update_layout,
)
from engine.formats.zmailer.spool.folders import (
    FREEZER,
    KEPT,
    LARGE_BYTES,
    MAX_CONTROL_BYTES,
    TRANSPORT,
    Changing,
    FolderCache,
    LargeFile,
    PostofficeFolders,
    SpoolEntry,
    VersionCache,
    problem_at,
    read_line,
    read_span,
    read_whole,
)
from engine.formats.zmailer.spool.tasks import tasks_of
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
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line

PREVIEWED = (f"{TRANSPORT}/", f"{KEPT}/", f"{FREEZER}/")
"""Beginnings of the paths of problems that have bytes to show."""

TASK_PART, CONTROL_PART, MESSAGE_PART = "task", "control", "message"

READ_TRIES = 3
"""How often a file that changes while it is read is read again."""


def _require_name(layout: FileLayout, name: str) -> FileLayout:
    if layout.name != os.fsencode(name):
        inner_name = safe_line(layout.name.decode("utf-8", "replace"))[:80]
        raise Refused(f"its i line names {inner_name}")
    return layout


def find_layout(versions: VersionCache, name: str, fd: int) -> tuple[stat_result, FileLayout]:
    """Status and layout of an open control file; a large one is read only if it is not known.
    Raises Refused: it is no control file, or too large; Changing: it is cut while it is read."""
    file_stat = os.fstat(fd)
    if file_stat.st_size < LARGE_BYTES:
        data, file_stat = read_whole(fd)
        return file_stat, parse_layout(data)
    return file_stat, find_version(versions, name, fd, file_stat, True).layout


def find_version(
    versions: VersionCache, name: str, fd: int, file_stat: stat_result, is_layout_enough: bool
) -> FileVersion:
    """What is known of a large open file with this status. It is read in chunks, unless it is the
    same as before, or has the same layout if that is enough; its lines are parsed only where tags
    have changed since then."""
    if file_stat.st_size > MAX_CONTROL_BYTES:
        raise Refused(f"{file_stat.st_size:,} bytes, expected at most {MAX_CONTROL_BYTES:,}")
    known = versions.get(name)
    if known is not None and (
        known.has_layout_of(file_stat) if is_layout_enough else known.is_unchanged(file_stat)
    ):
        return known.version
    sums: list[int] = []
    version: FileVersion | None = None
    if known is not None and known.file_stat.st_ino == file_stat.st_ino:
        version = _update_version(known.version, fd, file_stat.st_size)
    if version is None:
        layout = layout_of(split_chunks(_read_chunks(fd, file_stat.st_size, sums)))
        version = FileVersion(layout, tuple(sums))
    versions.keep(name, file_stat, version)
    return version


def _update_version(old: FileVersion, fd: int, size: int) -> FileVersion | None:
    """The version of a file that has grown or not since another one; None if it has to be parsed
    again."""
    if size < old.layout.size:
        return None
    sums: list[int] = []
    for _ in _read_chunks(fd, size, sums):
        pass
    now = FileVersion(old.layout._replace(size=size), tuple(sums))
    spans = old.changed_spans(now, last_sum(old, partial(read_span, fd)))
    layout = update_layout(old.layout, spans, partial(read_span, fd))
    return layout and now._replace(layout=layout)


def _read_chunks(fd: int, size: int, sums: list[int]) -> Iterator[bytes]:
    """Read an open file in chunks, and append the checksums of its blocks. Raises Changing: it is
    shorter than `size`."""
    for at in range(0, size, CHUNK_BYTES):
        chunk = os.pread(fd, min(CHUNK_BYTES, size - at), at)
        if len(chunk) < min(CHUNK_BYTES, size - at):
            raise Changing(f"offset {at}")
        sums.extend(block_sums(chunk))
        yield chunk


def _read_lines(fd: int, layout: FileLayout, offsets: Collection[int]) -> Callable[[int], bytes]:
    """Read the lines of some recipients of an open file, with their N lines and diagnostics."""
    lines: dict[int, bytes] = {}
    for offset in filter(layout.has_recipient, offsets):
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

    def has_ended(self, pid: int, locked_at: float) -> bool:
        """True if the agent that wrote a lock at that time has ended."""
        return lock_process.has_ended(pid, locked_at, self._folders.transport_status)

    def read(
        self,
        name: str,
        offsets: Collection[int] | None = None,
        opened: FolderCache | None = None,
        likely: str = "",
    ) -> SpoolEntry | Problem | None:
        """Read a control file, again if it is changed or replaced meanwhile; None if it is gone, or
        a request for a delivery (ETRN).

        With `offsets`, of a large file with a known layout only the recipients at these offsets are
        read. `opened` has folders open from other reads; `likely` is the hash folder to try first.
        """
        try:
            if opened is not None:
                with suppress(Changing):  # a folder may have been replaced
                    return self._read_first(name, offsets, opened, likely)
            for _ in range(READ_TRIES):
                with closing(FolderCache()) as cache, suppress(Changing):
                    return self._read_first(name, offsets, cache, likely)
            why = "cannot be read now: it changes all the time"
        except FileNotFoundError:
            return None
        except Refused as refusal:
            why = str(refusal)
        except OSError as error:
            why = f"cannot be read now: {error_text(error)}"
        return problem_at(self._find_path(name), why)

    def _read_first(
        self, name: str, offsets: Collection[int] | None, opened: FolderCache, likely: str
    ) -> SpoolEntry | None:
        for above, path, is_kept in self._places(name, likely):
            try:
                folder = opened.open(above, path[:-1])
                fd = files.open_guarded(name, folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            where = f"{path if is_kept else f'{TRANSPORT}/{path}'}{name}"
            try:
                read = self._read_open(fd, name, where, offsets, os.fstat(folder))
                now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                raise Changing(name) from None
            finally:
                os.close(fd)
            if read is None:
                return None
            if not files.is_same_file(now, read[0]):
                raise Changing(name)
            message, message_path = self._folders.find_message(name, is_kept, opened, path)
            return SpoolEntry(
                name, where, is_kept, *read, message=message, message_path=message_path
            )
        raise FileNotFoundError(name)

    def _places(self, name: str, likely: str) -> Iterator[tuple[int, str, bool]]:
        """The folders in which a control file may be, each below an open one, ours last: for that
        the scheduler has finished the message."""
        number = names.message_number(name)
        if number is None:
            return
        yield self._folders.transport, likely, False
        for folder in names.hash_folders(number):
            if folder != likely:
                yield self._folders.transport, folder, False
        yield self._folders.fd, f"{KEPT}/{TRANSPORT}/", True

    def _read_open(
        self,
        fd: int,
        name: str,
        where: str,
        offsets: Collection[int] | None,
        folder_stat: stat_result,
    ) -> tuple[stat_result, FileLayout, Callable[[int], bytes], LargeFile | None] | None:
        """Read an open control file: its status, layout and lines; and a large one to read more
        of it."""
        file_stat = os.fstat(fd)
        self._folders.require_plain(name, file_stat, folder_stat)
        if file_stat.st_size < LARGE_BYTES:
            data = read_span(fd, 0, file_stat.st_size)
            if data[:1] == TRIGGER:
                return None
            layout = parse_layout(data)
            return file_stat, _require_name(layout, name), partial(line_in, data), None
        is_layout_enough = offsets is not None
        version = find_version(self._folders.versions, name, fd, file_stat, is_layout_enough)
        layout = _require_name(version.layout, name)
        large = LargeFile(self._folders, where, file_stat, version)
        if offsets is None:
            return file_stat, layout, large.line_at, large
        return file_stat, layout, _read_lines(fd, layout, offsets), large

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

    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """Yield the unchanged tasks; each control file is read once."""
        expected_by_name: dict[str, dict[int, tuple[State, str]]] = {}
        for ident, state, rev in known_tasks:
            if parsed := names.parse_task_id(ident):
                expected_by_name.setdefault(parsed[0], {})[parsed[1]] = state, rev
        for name, those in expected_by_name.items():
            entry = self.read(name, those)
            if isinstance(entry, Problem):
                for offset, (state, _) in those.items():
                    yield Problem(names.task_id(name, offset), entry.what, state)
            elif entry is not None:
                expected = {names.task_id(name, offset): one for offset, one in those.items()}
                for task in tasks_of(entry, self.has_ended, those):
                    if (task.state, task.rev) == expected[task.id]:
                        yield task

    def parts(self, task: Task) -> Iterator[Part]:
        """List a task's line, its control file and its message file. Raises Gone: the task has
        changed; Unavailable: it cannot be read now."""
        entry = self._read_unchanged(task)
        facts = (
            ("modified", f"{entry.file_stat.st_mtime:.0f}"),
            ("changed", f"{entry.file_stat.st_ctime:.0f}"),
        )
        where = f"{self._folders.root}/{entry.where}"
        yield Part(TASK_PART, where, len(_image(task, entry)), facts)
        yield Part(CONTROL_PART, where, entry.file_stat.st_size)
        message = f"{self._folders.root}/{entry.message_path}"
        yield Part(MESSAGE_PART, message, entry.message.st_size)

    def size(self, task: Task) -> int:
        """Bytes of the task's line, and of both files if it is the only task of its message. Raises
        Gone: the task has changed; Unavailable: it cannot be read now."""
        entry = self._read_unchanged(task)
        line_size = len(_image(task, entry))
        if entry.large is not None:  # its other lines were not read
            is_only = len(entry.layout.recipients) == 1
        else:
            is_only = len([*islice(tasks_of(entry, self.has_ended), 2)]) == 1
        if not is_only:
            return line_size
        return line_size + entry.file_stat.st_size + entry.message.st_size

    def read_part(self, task: Task, part: str = "") -> bytes:
        """Read a part of a task. Raises Gone: the task has changed, or there is no such part;
        Unsupported: it is no plain file; Unavailable: it cannot be read now."""
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
                file_stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(file_stat.st_mode):
            return None
        try:
            parse_layout(self._read_file(where, MAX_PART_BYTES))
            why = "the scheduler could not use it"
        except (Refused, StoreError) as error:
            why = str(error)
        return problem_at(
            where, f"parked: {why}; move it back to {TRANSPORT}/ once mended", file_stat
        )

    def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of a control file with a problem. Raises Gone: it no longer exists;
        Unsupported: it cannot be read as part of this spool; Unavailable: it cannot be read now."""
        folders = problem.where.split("/")
        if ".." in folders or not problem.where.startswith(PREVIEWED):
            raise Unsupported(f"{problem.where}: it cannot be previewed")
        return self._read_file(problem.where, PREVIEW_BYTES)

    def _read_file(self, path: str, limit: int) -> bytes:
        above, name = os.path.split(path)
        try:
            with self._folders.open_below(self._folders.fd, above) as fd:
                file = files.open_guarded(name, fd)
            with closing_fd(file):
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unsupported(f"{path}: not a plain file")
                return os.read(file, limit)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(path) from None
        except Refused as refusal:
            raise Unsupported(f"{path}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{path}: {error_text(error)}") from error

    def _read_unchanged(self, task: Task) -> SpoolEntry:
        parsed = names.parse_task_id(task.id)
        entry = self.read(parsed[0], parsed[1:]) if parsed else None
        if isinstance(entry, Problem):
            raise Unavailable(f"{entry.where}: {entry.what}")
        if parsed is None or entry is None:
            raise Gone(task.id)
        tasks = list(tasks_of(entry, self.has_ended, {parsed[1]}))
        if not tasks or (tasks[0].state, tasks[0].rev) != (task.state, task.rev):
            raise Gone(task.id)
        return entry


def _image(task: Task, entry: SpoolEntry) -> bytes:
    """The id of a task, and its line as it is stored."""
    offset = int(task.id.rpartition("/")[2])
    return b"%b\n%b\n" % (task.id.encode(), entry.line_at(offset))
