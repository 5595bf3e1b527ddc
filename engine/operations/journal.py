"""The journal of operations: a file of JSON lines for each, in a spool's `.spooldeck/journal/`.

`<op>.jsonl` begins with the intent and the rows, which are durable (fsync) before the first task
moves. Outcomes follow in batches; an `end` line closes it. The process that runs the operation
holds a flock on the file: a file without an `end` line and without that lock was interrupted.
`<op>.before` holds the images of the tasks before the change, until the undo period ends. Neither
contains the content of payloads, and no mail address is written in full.

Files are only appended to. A last line without a newline was cut off by a crash and is ignored; a
line that cannot be parsed is skipped and counted."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO, Any

from engine.operations.journal_format import (
    LARGE_FILE_BYTES,
    OperationLines,
    OperationTotals,
    SavedImages,
    read_lines,
)
from engine.operations.journal_format import Entry as Entry
from engine.operations.journal_writer import MASKED_LOCAL_PART as MASKED_LOCAL_PART
from engine.operations.journal_writer import Intent as Intent
from engine.operations.journal_writer import JournalWriter as JournalWriter
from engine.operations.journal_writer import Who as Who
from engine.operations.journal_writer import create_operation_file, end_torn_line, intent_lines
from engine.operations.journal_writer import identify_operator as identify_operator
from engine.operations.journal_writer import mask_addresses as mask_addresses
from engine.operations.plans import Plan, RowResult
from engine.operations.retention import OPERATION_FILE_NAME, is_free
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

MAX_OPERATION_BYTES = 1 << 30
"""An operation on ten million tasks has less."""

LOCK_WAIT_SECONDS = 0.5
"""Seconds to wait for a file's flock: a process that tests the lock holds it for a moment."""


class Operation(NamedTuple):
    """One operation, as read from its journal file."""

    op: str
    started: float
    """When it began, epoch seconds UTC."""
    intent: Intent
    planned: int
    """The number of rows, with the excluded ones."""
    counts: Mapping[RowResult, int]
    ended: float | None
    """When it ended, epoch seconds UTC; None while it runs, and if it was interrupted."""
    is_running: bool
    has_images: bool = False
    """True if the images of its tasks still exist, so that it can be undone."""
    notes: tuple[Mapping[str, Any], ...] = ()
    """Notes written while it ran: paused, faster, later outcomes of tasks."""
    damaged_lines: int = 0
    """Number of lines that could not be parsed."""

    @property
    def open_rows(self) -> int:
        """Number of rows without an outcome."""
        return self.planned - sum(self.counts.values())

    @property
    def is_interrupted(self) -> bool:
        """True if its process has ended without writing the `end` line."""
        return self.ended is None and not self.is_running


class Journal:
    """The journal of one spool. Its folder is created with the first operation.

    Raises, everywhere: Unavailable, if the journal cannot be written, so that nothing may be
    changed, or not be read; also when entries or images are read later."""

    def __init__(self, folder: str, root: str = "", clock: Any = time.time) -> None:
        """`root` is the folder below which no symbolic link is followed."""
        self.folder, self._root, self._clock = folder, root, clock
        self._ended_operations: dict[str, Operation] = {}

    def begin(self, intent: Intent, plan: Plan) -> JournalWriter:
        """Create the file of a new operation with its intent and rows; durable when it returns."""
        now = self._clock()
        folder = fd = -1
        op = ""
        try:
            folder = files.open_dir(self.folder, self._root, make=True)
            op, fd = create_operation_file(folder, now)
            files.Flock(fd, LOCK_WAIT_SECONDS).__enter__()
            for line in intent_lines(op, now, intent, plan):
                files.write_all(fd, f"{json.dumps(line)}\n".encode())
            files.fsync(fd)
            files.fsync(folder)
        except (OSError, Unavailable) as error:
            if fd >= 0:
                with suppress(OSError):  # an empty or torn file is ignored, and swept later
                    files.unlink_quietly(f"{op}.jsonl", folder)
                os.close(fd)
            if folder >= 0:
                os.close(folder)
            if isinstance(error, Unavailable):  # the rows of the plan cannot be read
                raise
            what = f"the journal in {self.folder} cannot be written"
            raise Unavailable(f"{what}: {error_text(error)}") from error
        return JournalWriter(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)

    def resume(self, op: str) -> JournalWriter | None:
        """Open an interrupted operation to append to it; None while another process runs it."""
        folder = fd = -1
        try:
            folder = files.open_dir(self.folder, self._root)
            fd = files.open_plain(f"{_checked_id(op)}.jsonl", folder, os.O_RDWR | os.O_APPEND)
            _require_ours(fd, folder)
            files.Flock(fd, LOCK_WAIT_SECONDS).__enter__()
            end_torn_line(fd)
            return JournalWriter(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)
        except OSError as error:
            for one in (fd, folder):
                if one >= 0:
                    os.close(one)
            if isinstance(error, TimeoutError):
                return None
            why = error_text(error)
            raise Unavailable(f"the journal's {op} cannot be written: {why}") from error

    # ---- reading

    def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """The operations that began at or after `since` (epoch seconds UTC), the latest first."""
        names = self._names()
        floor = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, since)))
        ops = sorted((n for n in names if n.endswith(".jsonl") and n >= floor), reverse=True)
        parsed = (self._operation(name.removesuffix(".jsonl"), names) for name in ops)
        operations = (operation for operation in parsed if operation is not None)
        # Ids have whole seconds: sort by the time in the file, also within one second.
        return tuple(sorted(operations, key=lambda operation: operation.started, reverse=True))

    def operation(self, op: str) -> Operation | None:
        """One operation by id; None if it does not exist, or its intent is incomplete."""
        return self._operation(op, self._names())

    def entries(self, op: str) -> Sequence[Entry]:
        """The rows of an operation in the order of its plan, each with its outcome; they are read
        from a temporary table in windows."""
        return OperationLines(self.lines(op)).entries()

    def images(self, op: str) -> Mapping[str, bytes]:
        """The saved images of an operation's tasks, by id; only complete ones. Each is read from
        the file when it is needed."""
        with self._reading(f"{op}.before") as file:
            return SavedImages(file)

    def lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        """All lines of an operation's file, as JSON objects."""
        with self._reading(f"{op}.jsonl") as file:
            yield from read_lines(file)

    def _operation(self, op: str, names: frozenset[str]) -> Operation | None:
        known = self._ended_operations.get(op)
        if known is None:
            try:
                known = self._load_operation(op)
                if known is not None and known.ended is not None and not self._is_held(op):
                    self._ended_operations[op] = known  # cached: the file changes no more
            except Unavailable as error:
                # Not cached: it may be readable the next time.
                when, intent = _start_of(op), Intent("?", Who("?"), str(error))
                return Operation(op, when, intent, 0, {}, ended=when, is_running=False)
        return None if known is None else known._replace(has_images=f"{op}.before" in names)

    def _load_operation(self, op: str) -> Operation | None:
        """Read an operation's file; None if its intent is incomplete, or it is no journal file."""
        with self._reading(f"{op}.jsonl") as file:
            size = file.seek(0, os.SEEK_END)
            if size > MAX_OPERATION_BYTES:
                raise Unavailable(f"the journal's {op}: {size:,} bytes are not read")
            file.seek(0)
            is_large = size > LARGE_FILE_BYTES
            lines = OperationTotals(file, size) if is_large else OperationLines(read_lines(file))
        head, over, counts, rows = lines.head, lines.ended, lines.counts(), lines.rows
        is_touched = any(count for end, count in counts.items() if end is not RowResult.EXCLUDED)
        untouched = not (lines.damaged or is_touched or over is not None)
        if head is None or (rows < head.planned and untouched):
            # The intent was cut off, so no task has moved.
            return None
        return Operation(
            op,
            head.when,
            head.intent,
            planned=max(head.planned, rows),
            counts=counts,
            ended=over,
            is_running=over is None and self._is_held(op),
            notes=tuple(lines.notes),
            damaged_lines=lines.damaged,
        )

    def _names(self) -> frozenset[str]:
        try:
            with closing_fd(files.open_dir(self.folder, self._root)) as folder:
                return frozenset(n for n in os.listdir(folder) if OPERATION_FILE_NAME.fullmatch(n))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise Unavailable(f"the journal in {self.folder}: {error_text(error)}") from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file of the journal; an empty one if it does not exist."""
        try:
            _checked_id(name.partition(".")[0])
            with closing_fd(files.open_dir_path(self.folder, self._root)) as folder:
                fd = files.open_plain(name, folder)
                with open(fd, "rb") as file:
                    _require_ours(fd, folder)
                    yield file
        except FileNotFoundError:
            yield BytesIO()
        except OSError as error:
            raise Unavailable(f"the journal's {name}: {error_text(error)}") from error

    def _is_held(self, op: str) -> bool:
        try:
            folder = files.open_dir_path(self.folder, self._root)
        except OSError:
            return False
        try:
            with closing_fd(folder):
                return not is_free(f"{op}.jsonl", folder)
        except OSError as error:  # no locks on this file system now: it may be held
            raise Unavailable(f"the journal's {op}: {error_text(error)}") from error


def _start_of(op: str) -> float:
    """The start time in an operation's id, epoch seconds UTC; 0 if that is not a date."""
    try:
        from calendar import timegm  # loads datetime

        return float(timegm(time.strptime(op[:16], "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return 0.0


def _checked_id(op: str) -> str:
    """Check that `op` is a valid operation id, as it becomes a file name.

    Raises:
        FileNotFoundError: it is not."""
    if not OPERATION_FILE_NAME.fullmatch(f"{op}.jsonl"):
        raise FileNotFoundError(errno.ENOENT, "no operation has such a name", op)
    return op


def _require_ours(fd: int, folder: int) -> None:
    """Check that a file was written by a user who may create files in its folder.

    Raises:
        PermissionError: it was not."""
    file_stat = os.fstat(fd)
    is_ours = file_stat.st_uid == os.geteuid()
    if not is_ours and (why := files.owner_problem(file_stat, os.fstat(folder))):
        raise PermissionError(errno.EPERM, why)
