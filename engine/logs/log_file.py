"""Random access to one log file of any length, read in cells of 64 KiB.

A cell is a fixed range of the file, and holds the lines that begin in it. Only `pread` is used: if
a file is truncated under a memory map, the process gets SIGBUS."""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

from engine.logs.log_filter import INFO, level_rank
from engine.logs.log_line import (
    LogLine,
    Zone,
    has_no_year,
    is_repeated,
    parse_head,
    parse_log_line,
    time_before,
)
from engine.logs.unpacked_file import UnpackedFile
from engine.values import NamedTuple

CELL_BYTES = 64 * 1024
"""Bytes of a cell; also the maximum bytes of a line."""

MAX_CACHED_CELLS = 24
"""Parsed cells in the cache of a reader: of each of some files a few pages in each direction."""

_SEARCH_BYTES = 1 << 20
"""Bytes to read at a time in search of the end of a line."""

MAX_UNDATED_CELLS = 32
"""Maximum cells without any time that are parsed in search of the time of undated lines: 2 MiB."""

_HEAD_BYTES = 32
"""Bytes of a line that `_may_have_time_or_level` needs, with a margin."""

YEAR_PROBES = 64
"""Positions in a file whose lines show in which year it is there, if they have none."""
_PROBE_BYTES = 4096

_may_have_time_or_level = re.compile(
    rb"^(?:\[.{19}\] \[|\{|\d{14} |\d{4}-\d\d-\d\d[T ]|\d{9,10}\.\d{6} "
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:)",
    re.MULTILINE,
).search
"""True if a line begins that may have a time or level: a form that `parse_log_line` knows."""

_COMPARED_BYTES = 64
_HEAD_OF_FILE_BYTES = 256
"""Bytes before the known end and at the beginning: others show a rewritten file, or no copy."""

NO_TIME = float("-inf")
"""The time of lines before the first line with a time."""

Key: TypeAlias = tuple[float, int, int]
"""The sort key of lines: time, file, and offset of the first byte."""


class FileEntry(NamedTuple):
    """A line and its position among all lines."""

    key: Key
    """Its time is never before that of an earlier line in its cell or the cell before."""
    line: LogLine
    """Its text is untrusted: make it safe before showing it."""
    rank: int
    """Its severity; a line without a level has that of the line before it."""
    end_offset: int
    """Offset after its last byte."""
    hidden_bytes: int = 0
    """Number of its bytes that are not in its text."""
    is_torn: bool = False
    """True if its newline has not been written yet."""


class CarriedTime(NamedTuple):
    """The time and severity for a line that has none."""

    high: float = NO_TIME
    rank: int = INFO


class _Cell:
    """The lines that begin in one range of a file, as far as it has been read."""

    def __init__(self, begin: int, stop: int) -> None:
        self.begin, self.stop = begin, stop
        self.lines: list[FileEntry] = []
        """Their keys have their own time; NEVER if they have none."""
        self.entries: list[FileEntry] = []
        """The same lines with their final keys, as far as they were requested."""
        self.read_size = -1
        """Size of the file when the cell was read."""
        self.closed = False
        """True if no more lines can be added."""


_FIRST_FILE = 1 << 32
"""Number of the first file of a reader; earlier ones have smaller numbers."""


class FileCache:
    """What the files of one reader share, so that its memory is bounded however many there are."""

    def __init__(self, cell: int = CELL_BYTES, cached_cells: int = MAX_CACHED_CELLS) -> None:
        self.cell_size, self.cached_cells = cell, cached_cells
        """Bytes of a cell, and how many are kept."""
        self.cells: OrderedDict[tuple[int, int], _Cell] = OrderedDict()
        """Parsed cells by the file's number and their own."""
        self.windows: list[UnpackedFile] = []
        """Files of which unpacked bytes are kept."""
        self.next_numbers, self.earlier_numbers = count(_FIRST_FILE), count(_FIRST_FILE - 1, -1)
        """Numbers for files with later and with earlier lines."""


class KnownBytes(NamedTuple):
    """By what a file is told from others after it was closed."""

    size: int
    head: bytes
    end: bytes


class LogFile:
    """The content of one open file, even if its name is removed or given to another file. Raises
    OSError if it cannot be read, or this Python cannot unpack it."""

    def __init__(
        self, path: str, number: int, fd: int, cache: FileCache, packing: str = ""
    ) -> None:
        """Takes ownership of `fd`; `number` is the file's position among others, and `packing` the
        end of a compressed file's name: its size is known when `measure` is done."""
        self.path, self.number, self.cell_size = path, number, cache.cell_size
        self._fd = fd
        self.unpacked = UnpackedFile(fd, packing, cache.windows) if packing else None
        """The content of a compressed file."""
        self.size = 0
        """Known size in bytes."""
        self._cells, self._cached_cells = cache.cells, cache.cached_cells
        self._carried: dict[int, CarriedTime] = {}
        self._carried_in = CarriedTime()
        """From the file before."""
        self._times_before: dict[int, float] = {}
        """The time of the line before an offset, in hours that the clocks repeat."""
        self._parsed_in_vain = 0
        """Consecutive cells that were parsed and had no time or level."""
        self._no_newline = (0, 0)
        self._whole = (0, 0)
        self._head = self._before = b""
        self._last_stat: tuple[int, int] | None = None
        self.zone: Zone | None = None
        """The zone of its times without one, see `log_line.parse_head`."""
        self.modified = os.fstat(fd).st_mtime
        """When it was last written, epoch seconds UTC."""
        self._year_marks: list[tuple[int, float]] | None = None
        """Offsets and times of some lines without a year, in order; None: not read yet."""

    @property
    def is_closed(self) -> bool:
        """True if it was closed."""
        return self._fd < 0

    @property
    def cell_count(self) -> int:
        """The number of cells."""
        return -(-self.size // self.cell_size)

    def close(self) -> None:
        """Close the file; it then counts as empty."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.size = -1, 0

    def reopen(self, cache: FileCache) -> LogFile:
        """Open the same file again, to read it from the beginning."""
        file = LogFile(self.path, self.number, os.dup(self._fd), cache)
        file.check_growth()
        return file

    def identity(self) -> os.stat_result:
        """The `fstat` of the open file."""
        return os.fstat(self._fd)

    def check_growth(self) -> bool | None:
        """True if the file has grown since the last call; None if it was rewritten, or had been
        empty: then it may have been filled, copied and emptied meanwhile."""
        if self.unpacked is not None:
            return False
        now = os.fstat(self._fd)
        if self._last_stat == (now.st_size, now.st_mtime_ns):
            return False
        was_empty = self._last_stat is not None and not self.size
        if was_empty or now.st_size < self.size or not self._begins_like(self):
            return None
        more = now.st_size > self.size
        self._last_stat, self.size = (now.st_size, now.st_mtime_ns), now.st_size
        self.modified = now.st_mtime
        self._head, self._before = self.read(0, _HEAD_OF_FILE_BYTES), self._end_of(self.size)
        return more

    def _begins_like(self, other: LogFile) -> bool:
        """True if the file has the known first and last bytes of another one, or of itself."""
        return self.begins_with(other.known_bytes)

    @property
    def known_bytes(self) -> KnownBytes:
        """Its known size, and its first and last bytes up to there."""
        return KnownBytes(self.size, self._head, self._before)

    def begins_with(self, known: KnownBytes) -> bool:
        """True if the file has these bytes at these places: it is, or was copied from, that one."""
        same_head = self.read(0, len(known.head)) == known.head
        return same_head and self._end_of(known.size) == known.end

    def _end_of(self, size: int) -> bytes:
        begin = max(0, size - _COMPARED_BYTES)
        return self.read(begin, size - begin)

    def measure(self, budget: int) -> int:
        """Find the size of a compressed file, for about `budget` unpacked bytes; return the number
        of bytes that were unpacked, 0 if there are no more."""
        if self.unpacked is None:
            return 0
        read = self.unpacked.measure(budget)
        self.size = self.unpacked.size
        return read

    def has_same_lines(self, other: LogFile) -> bool:
        """True if a file is another one, or its copy, as far as the shorter one goes."""
        if os.path.samestat(self.identity(), other.identity()):
            return True
        size = min(self.size, other.size)
        if size < _COMPARED_BYTES and (not size or self.size != other.size):
            return False  # too short to tell
        heads = [each.read(0, min(size, _HEAD_OF_FILE_BYTES)) for each in (self, other)]
        return heads[0] == heads[1] and self._end_of(size) == other._end_of(size)

    def take_place(self, other: LogFile) -> bool:
        """Take the place of a file that was rewritten, if this is a copy of it; True if it is."""
        if not 0 < other.size <= self.size or not self._begins_like(other):
            return False
        self.number, self._carried_in = other.number, other._carried_in
        return True

    @property
    def complete_bytes(self) -> int:
        """The offset after the last complete line."""
        if self._whole[0] != self.size:
            cells = map(self.entries, range(self.cell_count - 1, -1, -1))
            last = next((entries[-1] for entries in cells if entries), None)
            self._whole = self.size, last.key[2] if last and last.is_torn else self.size
        return self._whole[1]

    def read(self, at: int, size: int) -> bytes:
        """Read up to `size` bytes at an offset."""
        if self._fd < 0 or size <= 0:
            return b""
        return self.unpacked.read(at, size) if self.unpacked else os.pread(self._fd, size, at)

    def latest_time(self, offset: int) -> float:
        """The latest time that a line at an offset can have, epoch seconds UTC: that of a line
        behind it, or of the last write. So lines of several years without a year have theirs."""
        if self._year_marks is None:
            self._year_marks = self._find_year_marks()
        later = bisect_right(self._year_marks, (offset, float("inf")))
        marks = self._year_marks[later : later + 1]
        return marks[0][1] if marks else self.modified

    def _find_year_marks(self) -> list[tuple[int, float]]:
        if self.unpacked is not None or not has_no_year(self.read(0, _HEAD_BYTES)):
            return []  # a compressed file is rarely of more than one year, and slow to probe
        marks: list[tuple[int, float]] = []
        latest = self.modified
        for probe in range(YEAR_PROBES - 1, 0, -1):
            begin = self.size * probe // YEAR_PROBES
            data = self.read(begin, _PROBE_BYTES)
            at = data.find(b"\n") + 1
            text = data[at : at + _HEAD_BYTES].decode("ascii", "replace")
            head = parse_head(text, None, latest, zone=self.zone)
            if at and head is not None:
                latest = head[0]
                marks.append((begin + at, latest))
        return marks[::-1]

    # Lines

    def entries(self, number: int) -> Sequence[FileEntry]:
        """The lines that begin in a cell, in order."""
        cell = self._cell(number)
        if len(cell.entries) < len(cell.lines):
            carried = self.carried_into(number)
            if cell.entries:
                carried = CarriedTime(cell.entries[-1].key[0], cell.entries[-1].rank)
            for line in cell.lines[len(cell.entries) :]:
                carried = _after(carried, line)
                key = (carried.high, self.number, line.key[2])
                cell.entries.append(line._replace(key=key, rank=carried.rank))
        return cell.entries

    def first_from(self, number: int) -> FileEntry | None:
        """The first line that begins in this cell or a later one; None if missing."""
        cells = map(self.entries, range(number, self.cell_count))
        return next((entries[0] for entries in cells if entries), None)

    def _cell(self, number: int) -> _Cell:
        key = self.number, number
        cell = self._cells.get(key)
        if cell is None:
            begin = number * self.cell_size
            cell = self._cells[key] = _Cell(begin, begin + self.cell_size)
            if len(self._cells) > self._cached_cells:
                self._cells.popitem(last=False)
        self._cells.move_to_end(key)
        if not cell.closed and cell.read_size != self.size:
            self._read_on(cell)
        return cell

    def _read_on(self, cell: _Cell) -> None:
        """Read new data; an incomplete line is read again."""
        begin, at_line = cell.begin, cell.begin == 0
        if cell.lines:
            last = cell.lines[-1]
            begin, at_line = (last.key[2] if last.is_torn else last.end_offset), True
            if last.is_torn:
                cell.lines.pop()
                del cell.entries[len(cell.lines) :]
        cell.lines += self._lines(begin, cell.stop, at_line=at_line)
        cell.read_size = self.size
        torn = bool(cell.lines) and cell.lines[-1].is_torn
        cell.closed = self.size >= cell.stop and not torn

    def lines_between(self, begin: int, stop: int) -> list[FileEntry]:
        """The lines that begin in a range, with their own times."""
        return self._lines(begin, stop, at_line=begin == 0)

    def _lines(self, begin: int, stop: int, *, at_line: bool) -> list[FileEntry]:
        """The lines that begin in a range; `at_line`: the range begins with a line."""
        base = begin if at_line else begin - 1
        stop = min(stop, self.size)
        if not at_line and self.is_hole(base, stop):
            return []
        data = self.read(base, min(stop + self.cell_size, self.size) - base)
        at = 0
        if not at_line:
            at = data.find(b"\n", 0, max(0, stop - base - 1)) + 1
            if not at:
                return []
        lines = []
        before = None
        while at < min(stop - base, len(data)):
            end = data.find(b"\n", at)
            line = self.parse_line(data, base, at, end, before)
            if before is None and is_repeated(line.line.when):
                before = time_before(
                    self.read,
                    base + at,
                    self.path,
                    self._times_before,
                    self.latest_time(base + at),
                )
                line = self.parse_line(data, base, at, end, before)
            before = before if line.line.when is None else line.line.when
            lines.append(line)
            at = line.end_offset - base
        return lines

    def parse_line(
        self, data: bytes, base: int, at: int, newline: int, before: float | None = None
    ) -> FileEntry:
        """Parse the line at a position of bytes that begin at the offset `base`, with its own time;
        it ends at the position `newline`, or later if that is negative. `before` is the time of the
        line before."""
        begin = base + at
        if newline < 0:
            newline = self._newline_from(base + len(data))
        else:
            newline += base
        end = self.size if newline < 0 else newline
        raw = data[at : at + min(self.cell_size, end - begin)]
        if raw.startswith(b"\0"):
            # A writer that kept its offset while the log was truncated leaves a hole of NUL bytes.
            text = self._behind_nuls(begin, end)
            raw = self.read(text, min(self.cell_size, end - text))
        line = parse_log_line(raw, self.path, before, self.latest_time(begin), zone=self.zone)
        when = NO_TIME if line.when is None else line.when
        return FileEntry(
            (when, self.number, begin),
            line,
            level_rank(line.level),
            end_offset=end if newline < 0 else newline + 1,
            hidden_bytes=end - begin - len(raw),
            is_torn=newline < 0,
        )

    def _newline_from(self, at: int) -> int:
        """The offset of the next newline; -1 if not there yet."""
        known, upto = self._no_newline
        begin = at
        if known <= at <= upto:
            at = upto
            begin = known
        while (at := self._behind_hole(at)) < self.size:
            data = self.read(at, min(_SEARCH_BYTES, self.size - at))
            newline = data.find(b"\n")
            if newline >= 0:
                return at + newline
            if not data:
                break
            at += len(data)
        self._no_newline = (begin, at)
        return -1

    def _behind_nuls(self, at: int, end: int) -> int:
        while (at := self._behind_hole(at)) < end:
            data = self.read(at, min(_SEARCH_BYTES, end - at))
            stripped = data.lstrip(b"\0")
            if stripped or not data:
                return at + len(data) - len(stripped)
            at += len(data)
        return end

    def is_hole(self, begin: int, stop: int) -> bool:
        """True if a range is NULs that were never written: no line begins behind its first byte."""
        return self._behind_hole(begin) >= stop

    def _behind_hole(self, at: int) -> int:
        """The offset of the next data, else the size; SEEK_DATA reads no NULs of a hole."""
        if self.unpacked:
            return at
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError as error:
            # Without data behind it: ENXIO (lseek(2)). Any other error: it is read as it is.
            return max(at, self.size) if error.errno == errno.ENXIO else at

    # Time and severity of lines that have none

    def follow_on(self, earlier: LogFile) -> None:
        """Carry the time and severity of an earlier file into the lines before the first time."""
        self._carried_in = earlier.carried_into(earlier.cell_count)
        self._carried.clear()
        for key in [key for key in self._cells if key[0] == self.number]:
            del self._cells[key]

    def first_time(self) -> float | None:
        """The time of the first line that has one; None if it is not near the beginning."""
        cells = range(min(self.cell_count, MAX_UNDATED_CELLS))
        times = (entry.line.when for cell in cells for entry in self.entries(cell))
        return next((when for when in times if when is not None), None)

    def carried_into(self, number: int) -> CarriedTime:
        """The time and severity from the nearest earlier cell that has any."""
        passed = []
        carried, self._parsed_in_vain = self._carried_in, 0
        for cell in range(number - 1, -1, -1):
            if cell in self._carried:
                carried = self._carried[cell]
                break
            summed = self._summed(cell)
            if summed is not None:
                carried = summed
                break
            passed.append(cell)
            if self._parsed_in_vain >= MAX_UNDATED_CELLS:
                carried = CarriedTime()
                break  # not a log: what came before it is unknown
        for cell in passed:
            self._carried[cell] = carried
        return carried

    def _summed(self, number: int) -> CarriedTime | None:
        cell = self._cells.get((self.number, number))
        if cell is None or not cell.closed:
            begin, stop = number * self.cell_size, (number + 1) * self.cell_size
            if self.is_hole(max(0, begin - 1), stop):
                return None
            # The head of a line that begins here may end in the next cell.
            data = self.read(max(0, begin - 1), stop - max(0, begin - 1) + _HEAD_BYTES)
            if not _may_have_time_or_level(data):
                return None
            self._parsed_in_vain += 1
            lines = self._cell(number).lines
        else:
            lines = cell.lines
        if all(line.line.when is None and not line.line.level for line in lines):
            return None
        self._parsed_in_vain = 0
        carried = CarriedTime()
        for line in lines:
            carried = _after(carried, line)
        return carried


def _after(carried: CarriedTime, line: FileEntry) -> CarriedTime:
    """The time and severity to carry after this line."""
    has_head = line.line.when is not None or line.line.level
    return CarriedTime(max(carried.high, line.key[0]), line.rank if has_head else carried.rank)
