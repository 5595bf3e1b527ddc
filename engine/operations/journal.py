"""What operators did: a file of JSON lines for each operation, in a spool's `.spooldeck/journal/`.

`<op>.jsonl` begins with the intent and the rows, durable before the first task moves; outcomes
follow batch by batch; an `end` line says that it is over. Whoever carries it out holds the file's
flock: one without an end that nobody holds was interrupted. `<op>.before` holds what its tasks were
before they were changed, for as long as it can be taken back. Neither names a payload's content,
and no mail address is written in full.

A file is only ever added to. A last line without its end was cut off by a crash and counts for
nothing; what cannot be understood is passed by and counted.
"""

from __future__ import annotations

import calendar
import errno
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO, Any, NamedTuple

from engine.operations.execute import RowOutcome, RowResult
from engine.operations.journal_format import (
    LONGEST,
    NOT_OURS,
    Ends,
    Head,
    JournaledRows,
    ended_as,
    understood,
)
from engine.operations.journal_writer import (
    HIDDEN,
    Intent,
    JournalWriter,
    Who,
    begun,
    created,
    end_torn_line,
    mask,
    who,
)
from engine.operations.plans import Plan, Row
from engine.operations.retention import OPERATION
from engine.store import SHOWN, Unavailable
from engine.system import files
from engine.text import decode

__all__ = [
    "HIDDEN",
    "Entry",
    "Intent",
    "Journal",
    "JournalWriter",
    "Operation",
    "Who",
    "mask",
    "who",
]

MOMENT = 0.5
"""Seconds for which a file's lock is waited for: whoever asks whether it is held has it so long."""


class Operation(NamedTuple):
    """One operation as the journal tells of it."""

    op: str
    when: float
    """When it began, epoch seconds UTC."""
    intent: Intent
    planned: int
    """Rows, with those that were left out."""
    counts: Mapping[RowResult, int]
    ended: float | None
    """When it was over, epoch seconds UTC; None while it runs, and when it was interrupted."""
    running: bool
    kept: bool = False
    """Whether what its tasks were is still there."""
    notes: tuple[Mapping[str, Any], ...] = ()
    """What else was written down meanwhile: paused, faster, what really became of tasks."""
    damaged: int = 0
    """Lines that could not be understood."""

    @property
    def open(self) -> int:
        """Rows of which no outcome is known."""
        return self.planned - sum(self.counts.values())

    @property
    def interrupted(self) -> bool:
        """Whether whoever carried it out is gone, with rows left."""
        return self.ended is None and not self.running


class Entry(NamedTuple):
    """A row of an operation, and what became of it."""

    row: Row
    ended: RowOutcome | None


class Journal:
    """The journal of one spool. Its folder is made when something is first written down."""

    def __init__(self, folder: str, root: str = "", clock: Any = time.time) -> None:
        """`root` is the folder below which no symbolic link is followed."""
        self.folder, self._root, self._clock = folder, root, clock
        self._over: dict[str, Operation] = {}

    def begin(self, intent: Intent, plan: Plan) -> JournalWriter:
        """Write down what is about to be done; durable when it returns.

        Raises:
            Unavailable: it cannot be written, so nothing may be done.
        """
        now = self._clock()
        folder = fd = -1
        op = ""
        try:
            folder = self._open(make=True)
            op, fd = created(folder, now)
            files.Flock(fd, MOMENT).__enter__()
            files.write_all(fd, begun(op, now, intent, plan))
            files.fsync(fd)
            files.fsync(folder)
        except OSError as error:
            if fd >= 0:
                with suppress(OSError):  # empty or torn it counts for nothing, and is swept
                    files.forget(f"{op}.jsonl", folder)
                os.close(fd)
            if folder >= 0:
                os.close(folder)
            raise Unavailable(
                f"the journal in {self.folder} cannot be written: {error.strerror}"
            ) from error
        return JournalWriter(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)

    def resume(self, op: str) -> JournalWriter | None:
        """Go on writing an interrupted operation down; None while somebody carries it out.

        Raises:
            Unavailable: it cannot be written.
        """
        folder = fd = -1
        try:
            folder = self._open()
            fd = files.open_plain(f"{_known(op)}.jsonl", folder, os.O_RDWR | os.O_APPEND)
            _require_ours(fd, folder)
            files.Flock(fd, MOMENT).__enter__()
            end_torn_line(fd)
            return JournalWriter(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)
        except OSError as error:
            for one in (fd, folder):
                if one >= 0:
                    os.close(one)
            if isinstance(error, TimeoutError):
                return None
            raise Unavailable(f"the journal's {op} cannot be written: {error.strerror}") from error

    # ---- reading

    def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """Those that began at or after a moment (epoch seconds UTC), the latest first.

        Raises:
            Unavailable: the journal cannot be read.
        """
        names = self._names()
        floor = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, since)))
        ops = sorted((n for n in names if n.endswith(".jsonl") and n >= floor), reverse=True)
        found = (self._operation(name.removesuffix(".jsonl"), names) for name in ops)
        there = (operation for operation in found if operation is not None)
        # Names tell seconds only; of what began in one of them, too, the latest comes first.
        return tuple(sorted(there, key=lambda operation: operation.when, reverse=True))

    def operation(self, op: str) -> Operation | None:
        """One of them; None when there is no such, or it never came as far as its intent.

        Raises:
            Unavailable: the journal cannot be read.
        """
        return self._operation(op, self._names())

    def entries(self, op: str) -> Iterator[Entry]:
        """Its rows in the order of its plan, each with what became of it.

        Raises:
            Unavailable: the journal cannot be read.
        """
        rows: dict[str, Row] = {}
        ends: dict[str, tuple[RowResult, str]] = {}
        for line in map(understood, self._lines(op)):
            if isinstance(line, JournaledRows):
                for row in line.rows:
                    rows.setdefault(row.id, row)
            elif isinstance(line, Ends):
                for ident, end, words in line.ends:
                    ends.setdefault(ident, (end, words))
        for row in rows.values():
            its = ends.get(row.id)
            yield Entry(row, None if its is None else ended_as(row, *its))

    def images(self, op: str) -> dict[str, bytes]:
        """What its tasks were before, by their ids; those that were kept whole.

        Raises:
            Unavailable: they cannot be read.
        """
        found: dict[str, bytes] = {}
        with self._reading(f"{op}.before") as file:
            while (head := file.readline(LONGEST)).endswith(b"\n"):
                try:
                    told = decode.load_json(head, LONGEST)
                    ident, size = str(told["id"]), decode.count(told["size"], "size", SHOWN)
                except NOT_OURS:
                    break  # torn by a crash: nothing behind it was ever relied upon
                image = file.read(size + 1)
                if len(image) <= size or image[size:] != b"\n":
                    break
                found.setdefault(ident, image[:size])
        return found

    def lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        """Everything that is written down of an operation, line by line.

        Raises:
            Unavailable: the journal cannot be read.
        """
        return self._lines(op)

    def _operation(self, op: str, names: frozenset[str]) -> Operation | None:
        known = self._over.get(op)
        if known is None:
            try:
                known = self._told(op)
            except Unavailable as error:
                # It may be readable the next time: nothing of this is remembered.
                when = _began(op)
                return Operation(op, when, Intent("?", Who("?"), str(error)), 0, {}, when, False)
            if known is not None and known.ended is not None and not self._is_held(op):
                self._over[op] = known  # nothing more is written to it
        return None if known is None else known._replace(kept=f"{op}.before" in names)

    def _told(self, op: str) -> Operation | None:
        """What a file says; None when it never came as far as its intent, or is none of ours."""
        head: Head | None = None
        rows: set[str] = set()
        ends: dict[str, RowResult] = {}
        notes: list[Mapping[str, Any]] = []
        over: float | None = None
        damaged = 0
        for line in map(understood, self._lines(op)):
            if isinstance(line, Head) and head is None:
                head = line
            elif isinstance(line, JournaledRows):
                rows.update(row.id for row in line.rows)
            elif isinstance(line, Ends):
                for ident, end, _ in line.ends:
                    ends.setdefault(ident, end)
            elif isinstance(line, float):
                over = line
            elif isinstance(line, dict):
                notes.append(line)
            else:
                damaged += 1
        counts = Counter(end for ident, end in ends.items() if ident in rows)
        untouched = not (damaged or set(counts) - {RowResult.EXCLUDED} or over is not None)
        if head is None or (len(rows) < head.planned and untouched):
            # Cut off while it was written, and before that is durable no task moves.
            return None
        return Operation(
            op,
            head.when,
            head.intent,
            max(head.planned, len(rows)),
            {end: counts[end] for end in RowResult},
            over,
            over is None and self._is_held(op),
            notes=tuple(notes),
            damaged=damaged,
        )

    def _lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        with self._reading(f"{op}.jsonl") as file:
            while text := file.readline(LONGEST):
                while not text.endswith(b"\n"):
                    if len(text) < LONGEST:
                        return  # the end of it was cut off
                    text = b" " + file.readline(LONGEST - 1)
                try:
                    line = decode.load_json(text, LONGEST)
                except decode.Malformed:
                    line = None
                yield line if isinstance(line, dict) else {"line": "damaged"}

    def _names(self) -> frozenset[str]:
        try:
            folder = self._open()
            try:
                return frozenset(n for n in os.listdir(folder) if OPERATION.fullmatch(n))
            finally:
                os.close(folder)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise Unavailable(f"the journal in {self.folder}: {error.strerror}") from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[IO[bytes]]:
        """A file of the journal; an empty one where there is none."""
        try:
            _known(name.partition(".")[0])
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(name, folder)
                with open(fd, "rb") as file:
                    _require_ours(fd, folder)
                    yield file
            finally:
                os.close(folder)
        except FileNotFoundError:
            yield BytesIO()
        except OSError as error:
            raise Unavailable(f"the journal's {name}: {error.strerror}") from error

    def _open(self, *, make: bool = False) -> int:
        """The folder, to write in: one that is passed through only cannot be made durable."""
        passed = files.reach(self.folder, self._root, make=make)
        try:
            return files.open_folder(".", passed)
        finally:
            os.close(passed)

    def _is_held(self, op: str) -> bool:
        try:
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(f"{op}.jsonl", folder)
            finally:
                os.close(folder)
        except OSError:
            return False
        try:
            return not files.is_unclaimed(fd)
        finally:
            os.close(fd)


def _began(op: str) -> float:
    """When an operation began, by its name; 0 where that is no date."""
    try:
        return float(calendar.timegm(time.strptime(op[:16], "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return 0.0


def _known(op: str) -> str:
    """An operation's name, which is a file's.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    if not OPERATION.fullmatch(f"{op}.jsonl"):
        raise FileNotFoundError(errno.ENOENT, "no operation has such a name", op)
    return op


def _require_ours(fd: int, folder: int) -> None:
    """Make sure that a file was written by somebody who may put files into its folder.

    Raises:
        PermissionError: it was not.
    """
    seen = os.fstat(fd)
    if seen.st_uid != os.geteuid() and (why := files.stranger(seen, os.fstat(folder))):
        raise PermissionError(errno.EPERM, why)
