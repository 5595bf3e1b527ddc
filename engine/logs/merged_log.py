"""Several logs merged by time, with random access at any size.

All calls block, belong to one thread, and raise OSError if a log cannot be read. Long work is done
in steps of at most a few MiB, so that a caller can show progress and stop between two steps."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from engine.logs.byte_search import matching_entries, may_match_cells
from engine.logs.log_file import (
    CELL_BYTES,
    MAX_CACHED_CELLS,
    NO_TIME,
    FileCache,
    FileEntry,
    Key,
    LogFile,
)
from engine.logs.log_filter import ALL_LINES, LineFilter, lines_naming_task
from engine.logs.log_line import LogLine
from engine.logs.rotated_log import NO_LOG_FILE, RotatedLog
from engine.text.safe import safe_line
from engine.values import NamedTuple

STEP_CELLS = 16
"""Maximum cells that one step reads: 1 MiB."""

MAX_STRIDE = 8
"""A step reads up to so many times more while it finds nothing: in a search through a long log, the
thread switch for each step costs more than the reading."""

MAX_MENTION_BYTES = 64 << 20


def key_of(when: float) -> Key:
    """The key that is before those of all lines with this time."""
    return when, -1, -1


class LogPosition(NamedTuple):
    """A position between two lines; it stays the same when logs grow."""

    key: Key
    """All lines before it have smaller keys."""
    offsets: Mapping[int, int] = {}
    """Its offset by file number, for the filter with which it was reached."""


BEGIN = LogPosition(key_of(NO_TIME))
END = LogPosition(key_of(float("inf")))

_NO_FILE = {0: 0}
"""In the offsets of a position at the end: files that come later are behind it, the first too."""


class SteppedWork(Protocol):
    """Work that is done in steps."""

    @property
    def done(self) -> bool:
        """True if the work is complete."""

    @property
    def read(self) -> int:
        """Bytes processed so far."""

    @property
    def total(self) -> int:
        """Maximum bytes to process."""

    def step(self) -> None:
        """Do one step."""


def run_to_end(job: SteppedWork) -> None:
    """Run all steps."""
    while not job.done:
        job.step()


class MergedLog:
    """The logs under some paths, and their open files."""

    def __init__(
        self, paths: Sequence[str], cell: int = CELL_BYTES, cached_cells: int = MAX_CACHED_CELLS
    ) -> None:
        cache = FileCache(cell, cached_cells)
        self._logs = [RotatedLog(path, cache) for path in paths]
        self.files: tuple[LogFile, ...] = ()
        """The open files, sorted by number."""

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(file.size for file in self.files)

    @property
    def troubles(self) -> dict[str, str]:
        """Why a log cannot be read, or not under its name, by path."""
        damages = {path: why for log in self._logs for path, why in log.damages.items()}
        return {log.path: log.trouble for log in self._logs if log.trouble} | damages

    def refresh(self) -> bool:
        """Re-read the state of all files: grown, replaced or rewritten. True if any has changed."""
        before = self.troubles
        changed = [log.refresh() for log in self._logs]
        self._sort_files()
        return any(changed) or self.troubles != before

    def open_earlier(self, is_needed: Callable[[LogFile], bool], since: float = NO_TIME) -> int:
        """Do one step to open the rotated file before the first file of a log, if that satisfies
        `is_needed`; files that were last written before `since` are not opened.

        Return the number of bytes that were read; 0 if no file is needed."""
        for log in self._logs:
            if (not log.files or is_needed(log.files[0])) and (read := log.open_earlier(since)):
                self._sort_files()
                return read
        return 0

    def close_removed(self) -> None:
        """See `RotatedLog.close_removed`."""
        for log in self._logs:
            log.close_removed()
        self._sort_files()

    def _sort_files(self) -> None:
        opened = (file for log in self._logs for file in log.files)
        self.files = tuple(sorted(opened, key=lambda file: file.number))

    def end_position(self) -> LogPosition:
        """The position after all complete lines now; it stays the same when logs grow."""
        offsets = {file.number: file.complete_bytes for file in self.files}
        return LogPosition(END.key, _NO_FILE | offsets)

    def close(self) -> None:
        """Close all files."""
        for log in self._logs:
            log.close()
        self.files = ()

    def offset(self, file: LogFile, mark: LogPosition) -> int:
        """The offset of a position in one of the files."""
        if file.number in mark.offsets:
            return mark.offsets[file.number]
        if mark.key == BEGIN.key:
            return 0
        if mark.key == END.key:
            is_newer = bool(mark.offsets) and file.number > max(mark.offsets)
            return 0 if is_newer else file.size
        return find_offset(file, mark.key)


def describe_troubles(troubles: Mapping[str, str]) -> str:
    """Describe `MergedLog.troubles` by log name; safe to show, "" for none."""
    names = {path: safe_line(os.path.basename(path)) for path in troubles}
    problems = [
        f"{names[path]}: {safe_line(why)}" for path, why in troubles.items() if why != NO_LOG_FILE
    ]
    *first, last = [names[path] for path, why in troubles.items() if why == NO_LOG_FILE] or [""]
    if first:
        problems.append(f"{', '.join(first)} and {last} do not exist")
    elif last:
        problems.append(f"{last} does not exist")
    return "; ".join(problems)


def find_offset(file: LogFile, key: Key) -> int:
    """The offset of the first line in a file that is not before a key; by binary search."""
    low, high = 0, file.cell_count  # the first line from `high` on is not before the key
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
    """The progress of a scan in one file."""

    def __init__(self, file: LogFile, at: int, forward: bool) -> None:
        self.file, self.at, self.forward = file, at, forward
        """All lines between the start and `at` were searched."""
        self.matches: deque[FileEntry] = deque()
        self._edge: tuple[int, Key | None] = (-1, None)

    @property
    def ended(self) -> bool:
        through = self.at >= self.file.size if self.forward else self.at <= 0
        return through or self.file.is_closed

    def edge(self) -> Key | None:
        """The key of the next line, matching or not; None if missing."""
        if self._edge[0] != self.at:
            self._edge = self.at, None
            for cell in self._cells(self.file.cell_count):
                if entries := self._ahead(self.file.entries(cell)):
                    self._edge = self.at, entries[0].key
                    break
                self.at = self._behind(cell)
        return self._edge[1]

    def read_on(self, sieve: LineFilter, cells: int) -> int:
        """Search the next cells, up to the first one with a match; return the number of bytes."""
        began = self.at
        numbers = tuple(self._cells(cells))
        if numbers and may_match_cells(self.file, min(numbers), max(numbers), sieve):
            for cell in numbers:
                entries = matching_entries(self.file, cell, sieve)
                self.matches.extend(e for e in self._ahead(entries) if is_match(sieve, e))
                self.at = self._behind(cell)
                if self.matches:
                    break
        elif numbers:
            self.at = self._behind(numbers[-1])
        return abs(self.at - began)

    def _cells(self, most: int) -> Iterator[int]:
        size = self.file.cell_size
        if self.ended:
            return iter(())
        if self.forward:
            return iter(range(self.at // size, self.file.cell_count)[:most])
        return iter(range((min(self.at, self.file.size) - 1) // size, -1, -1)[:most])

    def _ahead(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        if self.forward:
            return [entry for entry in entries if entry.key[2] >= self.at]
        return [entry for entry in reversed(entries) if entry.key[2] < self.at]

    def _behind(self, cell: int) -> int:
        size = self.file.cell_size
        return min((cell + 1) * size, self.file.size) if self.forward else cell * size


def is_match(sieve: LineFilter, entry: FileEntry) -> bool:
    """True if a line is of the log's own database and matches a filter."""
    return not entry.line.is_foreign and sieve.is_match(entry.rank, entry.line.text)


class LineScan:
    """The next lines that match a filter, from a position on, in one direction."""

    def __init__(
        self,
        book: MergedLog,
        mark: LogPosition,
        sieve: LineFilter = ALL_LINES,
        want: int = 1,
        forward: bool = True,
        step_cells: int = STEP_CELLS,
        stride: int = MAX_STRIDE,
        since: float = NO_TIME,
    ) -> None:
        """Backward, rotated files are opened as needed, none that ends before `since`."""
        self._book, self._mark, self._since = book, mark, since
        self._forward, self._sieve, self._want = forward, sieve, want
        self._step_cells, self._stride, self._longest = step_cells, 1, stride
        self._is_opening = 0
        """Not 0 while an earlier file may have the next line."""
        self._has_begun = False
        self._reaches: list[_SearchBounds] = []
        self._reached: LogPosition | None = None
        self.found: list[FileEntry] = []
        """In the direction of the scan."""
        self.done = want <= 0
        self.exhausted = False
        """True if there are no more matches in that direction."""
        self.read, self.total = 0, 0

    @property
    def entries(self) -> list[FileEntry]:
        """The matches in the order of the log."""
        return self.found if self._forward else self.found[::-1]

    @property
    def reached(self) -> LogPosition:
        """The position after the matches, to continue in the same direction."""
        return self._reached or self._place()

    def _place(self) -> LogPosition:
        if not self._has_begun:
            return self._mark
        if self.exhausted and not self._forward:
            return BEGIN
        offsets = {reach.file.number: self._offset(reach) for reach in self._reaches} | _NO_FILE
        if not self.found:
            return LogPosition(self._mark.key, offsets)
        time, file, at = self.found[-1].key
        return LogPosition((time, file, at + 1 if self._forward else at), offsets)

    def _offset(self, reach: _SearchBounds) -> int:
        if reach.matches:
            return reach.matches[0].key[2] if self._forward else reach.matches[0].end_offset
        # An incomplete line is read again later.
        return min(reach.at, reach.file.complete_bytes) if self.exhausted else reach.at

    def horizon(self) -> float:
        """The time of the next line in this direction, matching or not."""
        if self._is_opening:
            return -NO_TIME
        keys = [
            key
            for reach in self._reaches
            if (key := reach.matches[0].key if reach.matches else reach.edge()) is not None
        ]
        if not keys:
            return -NO_TIME if self._forward or not self._has_begun else NO_TIME
        return (min(keys) if self._forward else max(keys))[0]

    def step(self) -> None:
        """Read at most 1 MiB, or up to `MAX_STRIDE` times that if earlier steps found nothing; at
        least up to the next line if every line matches."""
        if not self._has_begun:
            self._has_begun = True
            self._add_files()
        budget, known = self._step_cells * self._stride, len(self.found)
        while not self.done:
            read = self._is_opening = 0 if self._forward else self._open_earlier()
            self.read += read
            budget -= -(-read // CELL_BYTES)
            if budget <= 0:
                break
            if read:
                continue
            reach = self._blocking()
            if reach is None:
                self._take_one()
                continue
            most = 1 if self._sieve.matches_all else min(budget, self._step_cells)
            read = reach.read_on(self._sieve, most)
            self.read += read
            budget -= max(1, -(-read // reach.file.cell_size))
        self._stride = 1 if len(self.found) > known else min(2 * self._stride, self._longest)
        if self.done:
            self._reached = self._place()

    def _add_files(self) -> None:
        """Search the open files that are not searched yet."""
        known = {reach.file.number for reach in self._reaches}
        for file in self._book.files:
            if file.number not in known:
                at = self._book.offset(file, self._mark)
                self._reaches.append(_SearchBounds(file, at, self._forward))
                self.total += file.size - at if self._forward else at

    def _open_earlier(self) -> int:
        """Open the file before one that was searched to its beginning; return the bytes read."""
        reaches = {reach.file.number: reach for reach in self._reaches}

        def is_needed(first: LogFile) -> bool:
            reach = reaches.get(first.number)
            return reach is None or (reach.ended and not reach.matches)

        if read := self._book.open_earlier(is_needed, self._since):
            self._add_files()
        return read

    def _best(self) -> _SearchBounds | None:
        heads = (reach for reach in self._reaches if reach.matches)
        choose = min if self._forward else max
        return choose(heads, key=lambda reach: reach.matches[0].key, default=None)

    def _blocking(self) -> _SearchBounds | None:
        """The unread file that may contain the next line; None if the next line is known."""
        open_ones = [r for r in self._reaches if not r.matches and not r.ended]
        best = self._best()
        if len(open_ones) == 1 and best is None:
            return open_ones[0]
        edges = [(key, r) for r in open_ones if (key := r.edge()) is not None]
        if not edges:
            return None
        choose = min if self._forward else max
        key, reach = choose(edges, key=lambda edge: edge[0])
        if best is None:
            return reach
        nearer = key < best.matches[0].key if self._forward else key > best.matches[0].key
        return reach if nearer else None

    def _take_one(self) -> None:
        best = self._best()
        if best is None:
            self.done = self.exhausted = True
            return
        self.found.append(best.matches.popleft())
        ended = all(reach.ended and not reach.matches for reach in self._reaches)
        self.exhausted = ended and (self._forward or not self._open_earlier())
        self.done = self.exhausted or len(self.found) >= self._want


class TimeSearch:
    """Find the position of a time: by binary search, or if the times of a log are not in order, by
    reading all of it for the first line that is not before."""

    def __init__(self, book: MergedLog, when: float, step_cells: int = STEP_CELLS) -> None:
        self._key = key_of(when)
        self._book = book
        self._todo: list[LogFile] | None = None
        self._step_cells = step_cells
        self._cell = -1
        self._offsets: dict[int, int] = {}
        self.done = False
        self.read, self.total = 0, 0

    @property
    def position(self) -> LogPosition:
        """The position."""
        return LogPosition(self._key, self._offsets)

    def step(self) -> None:
        """Open a rotated file, search one by halving, or some cells of one that is not in order."""
        if self._todo is None:
            if open_back_to(self._book, self._key[0]):
                return
            self._todo = list(self._book.files)
        if not self._todo:
            self.done = True
            return
        file = self._todo[0]
        if self._cell < 0 and _in_order(file):
            self._settle(file, find_offset(file, self._key))
            return
        if self._cell < 0:
            self._cell = 0
            self.total += file.size
        for _ in range(self._step_cells):
            if self._cell >= file.cell_count:
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
        if self._todo:
            self._todo.pop(0)
        self._cell = -1
        self.done = not self._todo


def open_back_to(book: MergedLog, when: float) -> int:
    """Do one step to open the rotated files with lines since a time (epoch seconds UTC); return the
    number of bytes read, 0 if there are no more."""

    def is_needed(first: LogFile) -> bool:
        begin = first.first_time()
        return begin is None or begin >= when

    return book.open_earlier(is_needed, when)


ORDER_PROBES = 16
"""Number of positions in a file whose times are compared to see whether they are in order."""


def _in_order(file: LogFile) -> bool:
    numbers = sorted({file.cell_count * probe // ORDER_PROBES for probe in range(ORDER_PROBES)})
    entries = [first for number in numbers if (first := file.first_from(number)) is not None]
    return all(a.key <= b.key for a, b in pairwise(entries))


class Mentions(NamedTuple):
    """The last lines that mention a task, sorted by time."""

    lines: tuple[LogLine, ...] = ()
    has_more: bool = False
    """True if there may be more, further back."""
    troubles: Mapping[str, str] = {}


def find_mentions(
    paths: Sequence[str],
    id: str,
    limit: int,
    since: float | None = None,
    most: int = MAX_MENTION_BYTES,
    cell: int = CELL_BYTES,
) -> Mentions:
    """The last lines that mention a task: at most `limit`, none before `since`, and from no more
    than the last `most` bytes of the logs."""
    book = MergedLog(paths, cell)
    try:
        book.refresh()
        floor = NO_TIME if since is None else since
        sieve = lines_naming_task(id)
        scan = LineScan(book, END, sieve, limit, forward=False, stride=1, since=floor)
        while not scan.done and scan.read < most and not _is_before(scan, floor):
            scan.step()
        lines = tuple(entry.line for entry in scan.entries if entry.key[0] >= floor)
        has_more = not scan.exhausted and not _is_before(scan, floor)
        return Mentions(lines, has_more, book.troubles)
    finally:
        book.close()


def _is_before(scan: LineScan, floor: float) -> bool:
    return floor > NO_TIME and scan.horizon() < floor
