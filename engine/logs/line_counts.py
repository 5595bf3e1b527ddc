"""Count log lines: those that match a filter, and those of each second for a histogram."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter

from engine.logs.byte_search import contract_lines, count_matches, line_bytes, may_match_cells
from engine.logs.log_file import NO_TIME, LogFile
from engine.logs.log_filter import ERROR, LineFilter, level_rank
from engine.logs.log_line import SharedLog, is_repeated, parse_local_time
from engine.logs.merged_log import (
    BEGIN,
    STEP_CELLS,
    LogPosition,
    MergedLog,
    is_match,
    key_of,
    open_back_to,
)
from engine.override import override
from engine.values import NamedTuple

_heads_of = re.compile(rb"^\[(.{19})\] \[([A-Za-z]+)\]", re.MULTILINE).findall


class _FileCounts(ABC):
    """Counts the lines of each file, a cell at a time; continues when the logs grow."""

    def __init__(self, book: MergedLog, since: LogPosition, step_cells: int) -> None:
        self.book, self.since, self._step_cells = book, since, step_cells
        self._offsets: dict[int, int] = {}
        """Up to where each file was counted, by its number."""
        self._settled: dict[int, int] = {}
        """The size of each file when all of it was counted."""
        self.read = 0

    @property
    def total(self) -> int:
        """Bytes to process, as of now."""
        offsets = self._offsets
        return self.read + sum(f.size - offsets.get(f.number, 0) for f in self.book.files)

    @property
    def done(self) -> bool:
        """True if all existing lines were counted."""
        # Callers may not wait, so this uses the sizes from the last step and the last `refresh`.
        return all(self._settled.get(file.number) == file.size for file in self.book.files)

    def step(self) -> None:
        """Count on, at most 1 MiB."""
        budget, offsets = self._step_cells, self._offsets
        for file in self.book.files:
            if file.number not in offsets:
                offsets[file.number] = self.book.offset(file, self.since)
            while budget > 0 and (at := offsets[file.number]) < file.complete_bytes:
                stop = min((at // file.cell_size + 1) * file.cell_size, file.complete_bytes)
                self._count(file, at, stop)
                offsets[file.number] = stop
                self.read += stop - at
                budget -= 1
            if offsets[file.number] >= file.complete_bytes:
                self._settled[file.number] = file.size

    @abstractmethod
    def _count(self, file: LogFile, at: int, stop: int) -> None:
        """Count the lines of a cell from an offset on, up to the end of it or of the last line."""


def _is_whole(file: LogFile, at: int, stop: int) -> bool:
    return at % file.cell_size == 0 and stop == at + file.cell_size


class LogCounts(_FileCounts):
    """The number of all lines, and of those that match a filter."""

    def __init__(
        self,
        book: MergedLog,
        sieve: LineFilter,
        since: LogPosition = BEGIN,
        step_cells: int = STEP_CELLS,
    ) -> None:
        super().__init__(book, since, step_cells)
        self._sieve = sieve
        self._counts: dict[int, tuple[int, int]] = {}

    @property
    def lines(self) -> int:
        """The number of complete lines so far."""
        return sum(self._counts.get(file.number, (0, 0))[0] for file in self.book.files)

    @property
    def matching(self) -> int:
        """The number of matching lines so far."""
        return sum(self._counts.get(file.number, (0, 0))[1] for file in self.book.files)

    @override
    def _count(self, file: LogFile, at: int, stop: int) -> None:
        cell, sieve, is_whole = at // file.cell_size, self._sieve, _is_whole(file, at, stop)
        lines, matching = self._counts.get(file.number, (0, 0))
        if data := contract_lines(file, cell).data if is_whole else b"":
            more = data.count(b"\n")
            let_through = more if sieve.matches_all else count_matches(data, sieve)
        elif (
            is_whole
            and not isinstance(file.path, SharedLog)
            and (sieve.matches_all or not may_match_cells(file, cell, cell, sieve))
        ):
            more = line_bytes(file, cell).data.count(b"\n")
            let_through = more if sieve.matches_all else 0
        else:  # in a shared log, only the parsed line has the name of its database
            entries = [e for e in file.entries(cell) if e.key[2] >= at and not e.is_torn]
            more = sum(not e.line.is_foreign for e in entries)
            let_through = sum(is_match(sieve, e) for e in entries)
        self._counts[file.number] = lines + more, matching + let_through


class LineRate(NamedTuple):
    """Lines in a part of the period."""

    lines: int = 0
    errors: int = 0


class LineRates(_FileCounts):
    """The lines since some time by their second. The start is found by binary search, so a log
    whose times are not in order may be read in part."""

    def __init__(self, book: MergedLog, begin: float) -> None:
        super().__init__(book, LogPosition(key_of(begin)), STEP_CELLS)
        self.begin = begin
        """Epoch seconds."""
        self._seconds: dict[float, LineRate] = {}
        self._is_open = False
        """True if all files with lines of the period are open."""

    @property
    @override
    def done(self) -> bool:
        return self._is_open and super().done

    @override
    def step(self) -> None:
        if not self._is_open and (read := open_back_to(self.book, self.begin)):
            self.read += read
            return
        self._is_open = True
        super().step()

    @override
    def _count(self, file: LogFile, at: int, stop: int) -> None:
        cell = at // file.cell_size
        counts: Counter[tuple[float, bool]] = Counter()
        is_whole = _is_whole(file, at, stop)
        heads = Counter(_heads_of(contract_lines(file, cell).data if is_whole else b""))
        times = {stamp: parse_local_time(stamp.decode()) for stamp, _ in heads}
        if heads and not any(map(is_repeated, times.values())):
            for (stamp, level), number in heads.items():
                when = times[stamp]
                is_error = level_rank(level.decode().upper()) >= ERROR
                counts[NO_TIME if when is None else when, is_error] += number
        else:
            for entry in file.entries(cell):
                if entry.key[2] >= at and not entry.is_torn and not entry.line.is_foreign:
                    counts[entry.key[0] // 1, entry.rank >= ERROR] += 1
        for (when, is_error), number in counts.items():
            if self.begin <= when:
                lines, errors = self._seconds.get(when, LineRate())
                self._seconds[when] = LineRate(lines + number, errors + number * is_error)

    def parts(self, number: int, begin: float, end: float) -> list[LineRate]:
        """The lines in `number` equal parts of the time from `begin` to `end`."""
        lines, errors = [0] * number, [0] * number
        # A copy: `step` may run on another thread.
        for when, rate in self._seconds.copy().items():
            if begin <= when < end:
                at = min(number - 1, int((when - begin) / (end - begin) * number))
                lines[at] += rate.lines
                errors[at] += rate.errors
        return [LineRate(*both) for both in zip(lines, errors, strict=True)]
