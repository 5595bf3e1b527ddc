"""Several logs as one book: merged by time, opened at any place, whatever their size.

Everything here blocks, and belongs to one thread. What may take long is done in steps of at most
a few mebibytes, so that it can be watched and given up between any two of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple, Protocol

from engine.logs.log_file import CELL, NEVER, FileEntry, Key, LogFile
from engine.logs.log_filter import DEBUG, EVERYTHING, LineFilter, naming
from engine.logs.log_tail import LogLine, SharedLog
from engine.system import files
from engine.text.safe import shown

STEP_CELLS = 16
"""Cells that one step reads at most: a mebibyte."""

STRIDE = 8
"""Times as much that a step reads where the steps before found nothing: what is sought in all of a
long log costs more in steps, each of which goes from one thread to another, than in bytes."""

FORMER = 2
"""Files of a name that are kept open after another has taken it."""

MENTIONED = 16 << 20
"""Bytes that are read at most for the lines that speak of something."""

NOT_THERE = os.strerror(errno.ENOENT)
"""The trouble with a log that was not there so far: a place need not have every log."""

_LEFT = "it is not there any more"


class LogPosition(NamedTuple):
    """A place in a book, before one line and behind another: it stays there when logs grow."""

    key: Key
    """All lines before it have smaller keys."""
    offsets: Mapping[int, int] = {}
    """Where that is in each file, for the sieve it was reached with; else it is looked for."""


BEGIN = LogPosition((NEVER, -1, -1))
END = LogPosition((float("inf"), 0, 0))


class Job(Protocol):
    """Something that takes a while."""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        ...

    @property
    def read(self) -> int:
        """Bytes that were gone through."""
        ...

    @property
    def total(self) -> int:
        """Bytes that there are to go through at most."""
        ...

    def step(self) -> None:
        """Go on for a moment.

        Raises:
            OSError: a log cannot be read.
        """
        ...


def finish(job: Job) -> None:
    """Do it all at once.

    Raises:
        OSError: a log cannot be read.
    """
    while not job.done:
        job.step()


class MergedLog:
    """The logs under some paths, and how they lie open now."""

    def __init__(self, paths: Sequence[str], cell: int = CELL) -> None:
        self._shelves = [_Shelf(path, self._take) for path in paths]
        self._cell = cell
        self._files: list[LogFile] = []
        self._number = 0

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Those that lie open, in the order in which they were."""
        return tuple(self._files)

    @property
    def size(self) -> int:
        """Bytes in all of them."""
        return sum(file.size for file in self._files)

    @property
    def troubles(self) -> dict[str, str]:
        """Why a log cannot be read, or not under its name, by its path."""
        return {shelf.path: shelf.trouble for shelf in self._shelves if shelf.trouble}

    def look(self) -> bool:
        """See what has come, gone, or was written anew; answers whether anything has."""
        before = self.troubles
        changed = [shelf.look() for shelf in self._shelves]
        self._files = sorted(
            (file for shelf in self._shelves for file in shelf.files if not file.closed),
            key=lambda file: file.number,
        )
        return any(changed) or self.troubles != before

    def here(self) -> LogPosition:
        """The place behind all whole lines there are now; it stays there when logs grow."""
        return LogPosition(END.key, {file.number: file.whole for file in self._files})

    def _take(self, path: str, fd: int) -> LogFile:
        self._number += 1
        return LogFile(path, self._number, fd, self._cell)

    def close(self) -> None:
        """Let go of everything."""
        for shelf in self._shelves:
            shelf.close()
        self._files = []

    def offset(self, file: LogFile, mark: LogPosition) -> int:
        """Where a place is in one of the files."""
        if file.number in mark.offsets:
            return mark.offsets[file.number]
        if mark.key == BEGIN.key:
            return 0
        if mark.key == END.key:  # reached before this file was there: all of it has come since
            return 0 if mark.offsets else file.size
        return split(file, mark.key)


def named(troubles: Mapping[str, str]) -> str:
    """What `MergedLog.troubles` says, each log by its name; safe to show, "" for no trouble."""
    names = {path: shown(PurePath(path).name) for path in troubles}
    absent = [names[path] for path, why in troubles.items() if why == NOT_THERE]
    said = [f"{names[path]}: {shown(why)}" for path, why in troubles.items() if why != NOT_THERE]
    return "; ".join([*said, *_absent(absent)])


def _absent(names: Sequence[str]) -> Iterator[str]:
    *first, last = names or [""]
    if len(first) > 1:
        yield f"{', '.join(first)} and {last} are not there"
    elif first:
        yield f"neither {first[0]} nor {last} is there"
    elif last:
        yield f"{last} is not there"


class _Shelf:
    """What lies, and has lain, under one path."""

    def __init__(self, path: str, take: _Take) -> None:
        self.path, self._take = path, take
        self.files: list[LogFile] = []
        """The last one is the one under the path, unless there is trouble."""
        self.trouble = ""

    def look(self) -> bool:
        changed = False
        for file in tuple(self.files):
            changed |= self._look_at(file)
        try:
            there = os.stat(self.path)
            if not self.files or not os.path.samestat(there, self.files[-1].identity()):
                self.files.append(self._open())
                self.files[-1].grew()
                changed = True
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            why = (_LEFT if self.files else NOT_THERE) if gone else error.strerror or str(error)
            kept = "; what lay there before is still shown" if self.files else ""
            self.trouble = why + kept
            return changed
        self.trouble = ""
        while len(self.files) > 1 + FORMER:
            self.files.pop(0).close()
        return changed

    def _look_at(self, file: LogFile) -> bool:
        grew = file.grew()
        if grew is not None:
            return grew
        anew = self._take(self.path, file.detach())
        self.files[self.files.index(file)] = anew
        file.close()
        anew.grew()
        return True

    def _open(self) -> LogFile:
        fd = files.open_file(self.path)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "expected a regular file", self.path)
        return self._take(self.path, fd)

    def close(self) -> None:
        for file in self.files:
            file.close()


class _Take(Protocol):
    def __call__(self, path: str, fd: int) -> LogFile: ...


def split(file: LogFile, key: Key) -> int:
    """The offset in a file of its first line that is not before a key; by halving."""
    low, high = 0, file.cells  # the first line from `high` on is not before the key
    while low < high:
        middle = (low + high) // 2
        first = file.first_from(middle)
        if first is None or first.key >= key:
            high = middle
        else:
            low = middle + 1
    if not high:
        return 0
    for entry in file.entries(high - 1):
        if entry.key >= key:
            return entry.key[2]
    first = file.first_from(high)
    return first.key[2] if first else file.size


class _SearchBounds:
    """How far a scan has come in one file."""

    def __init__(self, file: LogFile, at: int, forward: bool) -> None:
        self.file, self.at, self.forward = file, at, forward
        """All lines between where it began and `at` were looked at."""
        self.found: deque[FileEntry] = deque()
        self._edge: tuple[int, Key | None] = (-1, None)

    @property
    def ended(self) -> bool:
        through = self.at >= self.file.size if self.forward else self.at <= 0
        return through or self.file.closed

    def edge(self) -> Key | None:
        """The next line's key, whether it is let through or not; None: there is none."""
        if self._edge[0] != self.at:
            self._edge = self.at, None
            for cell in self._cells(self.file.cells):
                if entries := self._beyond(cell):
                    self._edge = self.at, entries[0].key
                    break
                self.at = self._behind(cell)
        return self._edge[1]

    def read_on(self, sieve: LineFilter, cells: int) -> int:
        """Look at the next so many cells, up to the first in which something is let through.

        Answers how many bytes that were.
        """
        began = self.at
        numbers = tuple(self._cells(cells))
        if numbers and not _none_in(self.file, sieve, min(numbers), max(numbers)):
            for cell in numbers:
                if not _none_in(self.file, sieve, cell, cell):
                    self.found.extend(e for e in self._beyond(cell) if _lets(sieve, e))
                self.at = self._behind(cell)
                if self.found:
                    break
        elif numbers:
            self.at = self._behind(numbers[-1])
        return abs(self.at - began)

    def _cells(self, most: int) -> Iterator[int]:
        size = self.file.cell_size
        if self.ended:
            return iter(())
        if self.forward:
            return iter(range(self.at // size, self.file.cells)[:most])
        return iter(range((min(self.at, self.file.size) - 1) // size, -1, -1)[:most])

    def _beyond(self, cell: int) -> list[FileEntry]:
        entries = self.file.entries(cell)
        if self.forward:
            return [entry for entry in entries if entry.key[2] >= self.at]
        return [entry for entry in reversed(entries) if entry.key[2] < self.at]

    def _behind(self, cell: int) -> int:
        size = self.file.cell_size
        return min((cell + 1) * size, self.file.size) if self.forward else cell * size


def _lets(sieve: LineFilter, entry: FileEntry) -> bool:
    return not entry.line.foreign and sieve.keeps(entry.rank, entry.line.text)


def _none_in(file: LogFile, sieve: LineFilter, first: int, last: int) -> bool:
    """Whether it is certain that no line that begins in these cells is let through."""
    if sieve.is_open:
        return False
    begin, stop = first * file.cell_size, (last + 1) * file.cell_size
    # What is kept of a line is no longer than a cell.
    data = file.read(max(0, begin - 1), stop + file.cell_size - max(0, begin - 1))
    at = data.find(b"\n") + 1 if begin else 0
    if begin and (not at or begin - 1 + at >= stop):
        return True  # no line begins here
    # The rest of the line before may hold a word, too, which only costs a look at these lines; it
    # does not say a level. To cut it off from a mebibyte costs as much as to search that.
    return not sieve.maybe(data[at:] if sieve.level > DEBUG else data)


class Scan:
    """The next lines that a sieve lets through, from a place on, in one direction."""

    def __init__(
        self,
        book: MergedLog,
        mark: LogPosition,
        sieve: LineFilter = EVERYTHING,
        want: int = 1,
        forward: bool = True,
        step_cells: int = STEP_CELLS,
        stride: int = STRIDE,
    ) -> None:
        self._forward, self._sieve, self._want = forward, sieve, want
        self._step_cells, self._stride, self._longest = step_cells, 1, stride
        self._mark = mark
        self._book = book
        self._reaches: list[_SearchBounds] | None = None
        self._reached: LogPosition | None = None
        self.found: list[FileEntry] = []
        """In the direction of the scan."""
        self.done = want <= 0
        self.exhausted = False
        """Whether there is nothing more in that direction."""
        self.read, self.total = 0, 0

    @property
    def entries(self) -> list[FileEntry]:
        """What was found, in the order of the book."""
        return self.found if self._forward else self.found[::-1]

    @property
    def reached(self) -> LogPosition:
        """The place behind what was found, to go on from in the same direction."""
        return self._reached or self._place()

    def _place(self) -> LogPosition:
        if self._reaches is None:
            return self._mark
        if self.exhausted and not self._forward:
            return BEGIN
        offsets = {reach.file.number: self._offset(reach) for reach in self._reaches}
        if not self.found:
            return LogPosition(self._mark.key, offsets)
        time, file, at = self.found[-1].key
        return LogPosition((time, file, at + 1 if self._forward else at), offsets)

    def _offset(self, reach: _SearchBounds) -> int:
        if reach.found:
            return reach.found[0].key[2] if self._forward else reach.found[0].end
        # A torn line is read again when it is whole.
        return min(reach.at, reach.file.whole) if self.exhausted else reach.at

    def horizon(self) -> float:
        """The time of the next line in this direction, whether it is let through or not."""
        keys = [
            key
            for reach in self._reaches or ()
            if (key := reach.found[0].key if reach.found else reach.edge()) is not None
        ]
        if not keys or self._reaches is None:
            return -NEVER if self._reaches is None or self._forward else NEVER
        return (min(keys) if self._forward else max(keys))[0]

    def step(self) -> None:
        """Read on: at most a mebibyte, or `STRIDE` where the steps before found nothing; at least
        up to the next line where all are let through.

        Raises:
            OSError: a log cannot be read.
        """
        if self._reaches is None:
            self._begin()
        assert self._reaches is not None
        left, known = self._step_cells * self._stride, len(self.found)
        while not self.done and left > 0:
            reach = self._blocking()
            if reach is None:
                self._take_one()
                continue
            most = 1 if self._sieve.is_open else min(left, self._step_cells)
            read = reach.read_on(self._sieve, most)
            self.read += read
            left -= max(1, -(-read // reach.file.cell_size))
        self._stride = 1 if len(self.found) > known else min(2 * self._stride, self._longest)
        if self.done:
            self._reached = self._place()

    def _begin(self) -> None:
        self._reaches = []
        for file in self._book.files:
            at = self._book.offset(file, self._mark)
            self._reaches.append(_SearchBounds(file, at, self._forward))
            self.total += file.size - at if self._forward else at

    def _heads(self) -> list[_SearchBounds]:
        return [reach for reach in self._reaches or () if reach.found]

    def _best(self) -> _SearchBounds | None:
        heads = self._heads()
        if not heads:
            return None
        choose = min if self._forward else max
        return choose(heads, key=lambda reach: reach.found[0].key)

    def _blocking(self) -> _SearchBounds | None:
        """The file in which the next line may lie, when that is not known yet."""
        open_ones = [r for r in self._reaches or () if not r.found and not r.ended]
        if len(open_ones) == 1 and not self._heads():
            return open_ones[0]
        edges = [(key, r) for r in open_ones if (key := r.edge()) is not None]
        if not edges:
            return None
        choose = min if self._forward else max
        key, reach = choose(edges, key=lambda edge: edge[0])
        best = self._best()
        if best is None:
            return reach
        nearer = key < best.found[0].key if self._forward else key > best.found[0].key
        return reach if nearer else None

    def _take_one(self) -> None:
        best = self._best()
        if best is None:
            self.done = self.exhausted = True
            return
        self.found.append(best.found.popleft())
        ended = all(reach.ended and not reach.found for reach in self._reaches or ())
        self.exhausted = ended
        self.done = ended or len(self.found) >= self._want


class Seek:
    """The place of a time: by halving, and where the times of a log are not in order, by looking
    at all of it for the first line that is not before.
    """

    def __init__(self, book: MergedLog, when: float, step_cells: int = STEP_CELLS) -> None:
        self._key = (when, -1, -1)
        self._todo = list(book.files)
        self._step_cells = step_cells
        self._cell = -1
        self._offsets: dict[int, int] = {}
        self.done = not self._todo
        self.read, self.total = 0, 0

    @property
    def mark(self) -> LogPosition:
        """The place."""
        return LogPosition(self._key, self._offsets)

    def step(self) -> None:
        """One file by halving, or some cells of one that is not in order.

        Raises:
            OSError: a log cannot be read.
        """
        file = self._todo[0]
        if self._cell < 0 and _in_order(file):
            self._settle(file, split(file, self._key))
            return
        if self._cell < 0:
            self._cell = 0
            self.total += file.size
        for _ in range(self._step_cells):
            if self._cell >= file.cells:
                self._settle(file, file.size)
                return
            for entry in file.entries(self._cell):
                if entry.key >= self._key:
                    self._settle(file, entry.key[2])
                    return
            self._cell += 1
            self.read += file.cell_size

    def _settle(self, file: LogFile, offset: int) -> None:
        self._offsets[file.number] = offset
        self._todo.pop(0)
        self._cell = -1
        self.done = not self._todo


PROBES = 16
"""Places of a file at which its times are compared to see whether they are in order."""


def _in_order(file: LogFile) -> bool:
    numbers = sorted({file.cells * probe // PROBES for probe in range(PROBES)})
    found = [first for number in numbers if (first := file.first_from(number)) is not None]
    return all(a.key <= b.key for a, b in pairwise(found))


class LogCounts:
    """How many lines there are, and how many a sieve lets through; goes on when the logs grow."""

    def __init__(
        self,
        book: MergedLog,
        sieve: LineFilter,
        since: LogPosition = BEGIN,
        step_cells: int = STEP_CELLS,
    ) -> None:
        self._book, self._sieve, self.since = book, sieve, since
        self._step_cells = step_cells
        self._places: dict[int, int] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._settled: dict[int, int] = {}
        self.read = 0

    @property
    def lines(self) -> int:
        """Lines counted, but for a torn one: that counts when its end has come."""
        return sum(self._counts.get(file.number, (0, 0))[0] for file in self._book.files)

    @property
    def kept(self) -> int:
        """Those of them that are let through."""
        return sum(self._counts.get(file.number, (0, 0))[1] for file in self._book.files)

    @property
    def total(self) -> int:
        """Bytes that there are to go through, now."""
        return self.read + sum(file.size - self._at(file) for file in self._book.files)

    @property
    def done(self) -> bool:
        """Whether all that is there was counted."""
        # Asked by whoever may not wait: it is a matter of what the last step and the last look saw.
        return all(self._settled.get(file.number) == file.size for file in self._book.files)

    def step(self) -> None:
        """Count on: at most a mebibyte.

        Raises:
            OSError: a log cannot be read.
        """
        left = self._step_cells
        for file in self._book.files:
            if file.number not in self._places:
                self._places[file.number] = self._book.offset(file, self.since)
            while left > 0 and not self._is_through(file):
                before = self._at(file)
                self._count(file, before)
                self.read += self._at(file) - before
                left -= 1
            if self._is_through(file):
                self._settled[file.number] = file.size

    def _at(self, file: LogFile) -> int:
        return self._places.get(file.number, 0)

    def _is_through(self, file: LogFile) -> bool:
        return self._at(file) >= file.whole

    def _count(self, file: LogFile, at: int) -> None:
        """Count the rest of a cell."""
        cell = at // file.cell_size
        begin, stop = cell * file.cell_size, (cell + 1) * file.cell_size
        lines, kept = self._counts.get(file.number, (0, 0))
        passed = at == begin and stop <= file.whole
        # Whose a line is in a shared log, only the line itself tells.
        passed = passed and not isinstance(file.path, SharedLog)
        if passed and (self._sieve.is_open or _none_in(file, self._sieve, cell, cell)):
            data = file.read(max(0, begin - 1), stop - 1 - max(0, begin - 1))
            more = data.count(b"\n") + (begin == 0)
            let_through = more if self._sieve.is_open else 0
        else:
            entries = [e for e in file.entries(cell) if e.key[2] >= at and not e.torn]
            more = sum(not e.line.foreign for e in entries)
            let_through = sum(_lets(self._sieve, e) for e in entries)
        self._counts[file.number] = lines + more, kept + let_through
        self._places[file.number] = min(stop, file.whole)


class Mentions(NamedTuple):
    """The last lines that speak of something, in the order of time."""

    lines: tuple[LogLine, ...] = ()
    early: bool = False
    """Whether there may be more, further back."""
    troubles: Mapping[str, str] = {}
    """Why a log could not be read, by its path."""


def mentions(
    paths: Sequence[str],
    id: str,
    limit: int,
    since: float | None = None,
    most: int = MENTIONED,
    cell: int = CELL,
) -> Mentions:
    """The last lines that speak of a task: at most `limit`, none from before `since`, and from no
    more than the last `most` bytes of the logs.

    Raises:
        OSError: a log broke off while it was read.
    """
    book = MergedLog(paths, cell)
    try:
        book.look()
        scan = Scan(book, END, naming(id), limit, forward=False, stride=1)
        floor = NEVER if since is None else since
        while not scan.done and scan.read < most and not _is_before(scan, floor):
            scan.step()
        lines = tuple(entry.line for entry in scan.entries if entry.key[0] >= floor)
        early = not scan.exhausted and not _is_before(scan, floor)
        return Mentions(lines, early, book.troubles)
    finally:
        book.close()


def _is_before(scan: Scan, floor: float) -> bool:
    return floor > NEVER and scan.horizon() < floor
