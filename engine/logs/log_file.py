"""One log file, read in cells: any part of it at once, however long it is.

A cell is a stretch of the file at a fixed place, and holds the lines that begin in it. Nothing is
read but by `pread`: a file that is cut short under a memory map would end the process.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from engine.logs.log_filter import INFO, rank_of
from engine.logs.log_tail import LogLine, parse

CELL = 64 * 1024
"""Bytes of a cell, and of a line that are kept."""

CELLS_KEPT = 8
"""Cells of a file that are kept parsed: a few pages in each direction."""

_SWEEP = 1 << 20
"""Bytes that are read at a time in search of the end of a line."""

PARSED_IN_VAIN = 32
"""Cells that are parsed in search of the time of lines that have none, and hold none: 2 MiB."""

_HEAD = 32
"""Bytes by which `_may_say` judges a line, and some more."""

_may_say = re.compile(rb"^(?:\[.{19}\] \[|\{)", re.MULTILINE).search
"""Whether a line begins that may hold a time or a level, as one of the contract or of JSON."""

_MEMORY = 64
"""Bytes before the known end that must still be the same, or the file was written anew."""

NEVER = float("-inf")
"""The time of lines before the first one that has a time."""

Key: TypeAlias = tuple[float, int, int]
"""What lines are ordered by: time, file, and offset of its first byte."""


class FileEntry(NamedTuple):
    """A line and its place among all lines."""

    key: Key
    """Its time is never before those of the lines before it in its cell and the cell before."""
    line: LogLine
    """Its text as it was found: make it safe before showing it."""
    rank: int
    """How grave it is; a line that does not say goes by the one before it."""
    end: int
    """Offset behind its last byte."""
    hidden: int = 0
    """Bytes of it that are not in its text."""
    torn: bool = False
    """Whether its end has not come yet."""


class _Carried(NamedTuple):
    """What holds for a line that says nothing of it."""

    high: float = NEVER
    rank: int = INFO


class _Cell:
    """The lines that begin in one stretch of a file, as far as they have been read."""

    def __init__(self, begin: int, stop: int) -> None:
        self.begin, self.stop = begin, stop
        self.lines: list[FileEntry] = []
        """Their keys hold their own time; NEVER where they have none."""
        self.entries: list[FileEntry] = []
        """The same with their keys as they should be, so far as somebody asked."""
        self.seen = -1
        """The size of the file when it was read."""
        self.closed = False
        """Whether nothing more can come."""


class LogFile:
    """What lies in one file that was opened once, whatever happens to its name."""

    def __init__(self, path: str, number: int, fd: int, cell: int = CELL) -> None:
        """`fd` is ours from now on; `number` is the file's place among others."""
        self.path, self.number, self.cell_size = path, number, cell
        self._fd = fd
        self.size = 0
        """Bytes that are known to be there."""
        self._cells: OrderedDict[int, _Cell] = OrderedDict()
        self._carried: dict[int, _Carried] = {}
        self._parsed_in_vain = 0
        """Cells that were parsed one after the other and held no time or level."""
        self._no_newline = (0, 0)
        self._whole = (0, 0)
        self._before = b""
        self._seen: tuple[int, int] | None = None

    @property
    def closed(self) -> bool:
        """Whether it was let go of."""
        return self._fd < 0

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return -(-self.size // self.cell_size)

    def close(self) -> None:
        """Let go of the file; there is nothing in it any more."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.size = -1, 0
        self._cells.clear()

    def detach(self) -> int:
        """Another descriptor of the same file, for whoever reads it anew."""
        return os.dup(self._fd)

    def identity(self) -> os.stat_result:
        """What is open here."""
        return os.fstat(self._fd)

    def grew(self) -> bool | None:
        """Whether there is more of it than at the last look; None: it was written anew.

        Raises:
            OSError: it cannot be read.
        """
        now = os.fstat(self._fd)
        if self._seen == (now.st_size, now.st_mtime_ns):
            return False
        known = len(self._before)
        if now.st_size < self.size or self.read(self.size - known, known) != self._before:
            return None
        more = now.st_size > self.size
        self._seen, self.size = (now.st_size, now.st_mtime_ns), now.st_size
        begin = max(0, self.size - _MEMORY)
        self._before = self.read(begin, self.size - begin)
        return more

    @property
    def whole(self) -> int:
        """The offset behind the last line whose end has come."""
        if self._whole[0] != self.size:
            self._whole = self.size, self._last_whole()
        return self._whole[1]

    def _last_whole(self) -> int:
        for number in range(self.cells - 1, -1, -1):
            if found := self.entries(number):
                return found[-1].key[2] if found[-1].torn else self.size
        return self.size

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the file; fewer where it ends."""
        return os.pread(self._fd, size, at) if self._fd >= 0 and size > 0 else b""

    # Lines

    def entries(self, number: int) -> Sequence[FileEntry]:
        """The lines that begin in a cell, in their order."""
        cell = self._cell(number)
        if len(cell.entries) < len(cell.lines):
            carried = self._carried_into(number)
            if cell.entries:
                carried = _Carried(cell.entries[-1].key[0], cell.entries[-1].rank)
            for line in cell.lines[len(cell.entries) :]:
                carried = _after(carried, line)
                key = (carried.high, self.number, line.key[2])
                cell.entries.append(line._replace(key=key, rank=carried.rank))
        return cell.entries

    def first_from(self, number: int) -> FileEntry | None:
        """The first line that begins in that cell or a later one; None: there is none."""
        for cell in range(number, self.cells):
            if found := self.entries(cell):
                return found[0]
        return None

    def _cell(self, number: int) -> _Cell:
        cell = self._cells.get(number)
        if cell is None:
            begin = number * self.cell_size
            cell = self._cells[number] = _Cell(begin, begin + self.cell_size)
            if len(self._cells) > CELLS_KEPT:
                self._cells.popitem(last=False)
        self._cells.move_to_end(number)
        if not cell.closed and cell.seen != self.size:
            self._read_on(cell)
        return cell

    def _read_on(self, cell: _Cell) -> None:
        """Read what has come since; a torn line is read again."""
        begin, at_line = cell.begin, cell.begin == 0
        if cell.lines:
            last = cell.lines[-1]
            begin, at_line = (last.key[2] if last.torn else last.end), True
            if last.torn:
                cell.lines.pop()
                del cell.entries[len(cell.lines) :]
        cell.lines += self._lines(begin, cell.stop, at_line)
        cell.seen = self.size
        torn = bool(cell.lines) and cell.lines[-1].torn
        cell.closed = self.size >= cell.stop and not torn

    def _lines(self, begin: int, stop: int, at_line: bool) -> list[FileEntry]:
        """The lines that begin in a stretch; `at_line`: one begins where the stretch does."""
        base = begin if at_line else begin - 1
        stop = min(stop, self.size)
        data = self.read(base, min(stop + self.cell_size, self.size) - base)
        at = 0
        if not at_line:
            at = data.find(b"\n", 0, max(0, stop - base - 1)) + 1
            if not at:
                return []
        lines = []
        while at < min(stop - base, len(data)):
            end = data.find(b"\n", at)
            line = self._line(data, base, at, end)
            lines.append(line)
            at = line.end - base
        return lines

    def _line(self, data: bytes, base: int, at: int, newline: int) -> FileEntry:
        begin = base + at
        if newline < 0:
            newline = self._newline_from(base + len(data))
        else:
            newline += base
        end = self.size if newline < 0 else newline
        raw = data[at : at + min(self.cell_size, end - begin)]
        if raw.startswith(b"\0"):
            # A writer that did not notice that its log was emptied leaves a hole before its line.
            text = self._behind_nuls(begin, end)
            raw = self.read(text, min(self.cell_size, end - text))
        line = parse(raw, self.path)
        when = NEVER if line.when is None else line.when
        return FileEntry(
            (when, self.number, begin),
            line,
            rank_of(line.level),
            end if newline < 0 else newline + 1,
            end - begin - len(raw),
            newline < 0,
        )

    def _newline_from(self, at: int) -> int:
        """The offset of the next end of a line; -1: there is none yet."""
        known, upto = self._no_newline
        begin = at
        if known <= at <= upto:
            at = upto
            begin = known
        while at < self.size:
            data = self.read(at, min(_SWEEP, self.size - at))
            found = data.find(b"\n")
            if found >= 0:
                return at + found
            if not data:
                break
            at += len(data)
        self._no_newline = (begin, at)
        return -1

    def _behind_nuls(self, at: int, end: int) -> int:
        while at < end:
            data = self.read(at, min(_SWEEP, end - at))
            rest = data.lstrip(b"\0")
            if rest or not data:
                return at + len(data) - len(rest)
            at += len(data)
        return end

    # What lines go by that say nothing

    def _carried_into(self, number: int) -> _Carried:
        """What the nearest cell before this one says that holds a time or a level."""
        passed = []
        found, self._parsed_in_vain = _Carried(), 0
        for cell in range(number - 1, -1, -1):
            if cell in self._carried:
                found = self._carried[cell]
                break
            summed = self._summed(cell)
            if summed is not None:
                found = summed
                break
            passed.append(cell)
            if self._parsed_in_vain >= PARSED_IN_VAIN:
                break  # garbage that looks like a log; of what came before it nothing is known
        for cell in passed:
            self._carried[cell] = found
        return found

    def _summed(self, number: int) -> _Carried | None:
        cell = self._cells.get(number)
        if cell is None or not cell.closed:
            begin, stop = number * self.cell_size, (number + 1) * self.cell_size
            # The head of a line that begins here may end in the next cell.
            data = self.read(max(0, begin - 1), stop - max(0, begin - 1) + _HEAD)
            if not _may_say(data):
                return None
            self._parsed_in_vain += 1
            lines = self._cell(number).lines
        else:
            lines = cell.lines
        if all(line.line.when is None and not line.line.level for line in lines):
            return None
        self._parsed_in_vain = 0
        carried = _Carried()
        for line in lines:
            carried = _after(carried, line)
        return carried


def _after(carried: _Carried, line: FileEntry) -> _Carried:
    """What holds from this line on."""
    says = line.line.when is not None or line.line.level
    return _Carried(max(carried.high, line.key[0]), line.rank if says else carried.rank)
