"""Read one control file, and one task: its parts, the bytes of a problem."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from engine.model import Part, Problem, State, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, SeenTask, Unavailable, Unsupported
from engine.stores.zmailer import agents, names
from engine.stores.zmailer.folders import (
    KEPT,
    TRANSPORT,
    Changing,
    PostofficeFolders,
    SpoolEntry,
    problem_at,
)
from engine.stores.zmailer.tasks import tasks_of
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import safe_line

TASK_PART, CONTROL_PART, MESSAGE_PART = "task", "control", "message"


class MessageReader:
    """Reads single files of one spool."""

    def __init__(self, folders: PostofficeFolders) -> None:
        self._folders = folders

    def has_ended(self, pid: int, locked_at: float) -> bool:
        """True if the agent that wrote a lock at that time has ended."""
        return agents.has_ended(pid, locked_at, self._folders.transport_status)

    def read(self, name: str) -> SpoolEntry | Problem | None:
        """Read a control file; None if it is gone, or no message."""
        try:
            return self._folders.read_entry(name)
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
            entry = self.read(name)
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
        if len(list(tasks_of(entry, self.has_ended))) > 1:
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
            return entry.data[:MAX_PART_BYTES]
        if part != MESSAGE_PART:
            raise Gone(f"{task.id} has no part {safe_line(part)}")
        return self._read_file(entry.message_path, MAX_PART_BYTES)

    def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of a control file with a problem.

        Raises:
            Gone: it no longer exists.
            Unsupported: it cannot be read as part of this spool.
            Unavailable: it cannot be read now.
        """
        folders = problem.where.split("/")
        if ".." in folders or not problem.where.startswith((f"{TRANSPORT}/", f"{KEPT}/")):
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
        entry = self.read(parsed[0]) if parsed else None
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
    end = entry.data.index(b"\n", offset) + 1
    return f"{task.id}\n".encode() + entry.data[offset:end]
