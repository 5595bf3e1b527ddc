"""Count log lines and errors per second, for a histogram of some period."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from engine.logs.byte_search import contract_lines
from engine.logs.log_file import NO_TIME, LogFile
from engine.logs.log_filter import ERROR, level_rank
from engine.logs.log_line import is_repeated, parse_local_time
from engine.logs.merged_log import STEP_CELLS, MergedLog, find_offset, key_of, open_back_to

_heads_of = re.compile(rb"^\[(.{19})\] \[([A-Za-z]+)\]", re.MULTILINE).findall


class LineRate(NamedTuple):
    """Lines in a part of the period."""

    lines: int = 0
    errors: int = 0


class LineRates:
    """The lines since some time by their second; continues when the logs grow.

    The start is found by binary search, so a log whose times are not in order may be read in part.
    """

    def __init__(self, book: MergedLog, begin: float, step_cells: int = STEP_CELLS) -> None:
        self.begin = begin
        """Epoch seconds."""
        self.read = 0
        self._book, self._step_cells = book, step_cells
        self._offsets: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._seconds: dict[float, LineRate] = {}
        self._is_open = False
        """True if all files with lines of the period are open."""

    @property
    def done(self) -> bool:
        """True if all lines of the period were counted, as of the last reading of the logs."""
        files = self._book.files
        return self._is_open and all(self._settled.get(file.number) == file.size for file in files)

    @property
    def total(self) -> int:
        """Bytes to process, as of now."""
        offsets = self._offsets
        return self.read + sum(f.size - offsets.get(f.number, 0) for f in self._book.files)

    def step(self) -> None:
        """Count on, at most 1 MiB.

        Raises:
            OSError: a log cannot be read.
        """
        if not self._is_open and (read := open_back_to(self._book, self.begin)):
            self.read += read
            return
        self._is_open = True
        budget = self._step_cells
        for file in self._book.files:
            if file.number not in self._offsets:
                self._offsets[file.number] = find_offset(file, key_of(self.begin))
            while budget > 0 and self._offsets[file.number] < file.complete_bytes:
                self._offsets[file.number] = self._count(file, self._offsets[file.number])
                budget -= 1
            if self._offsets[file.number] >= file.complete_bytes:
                self._settled[file.number] = file.size

    def _count(self, file: LogFile, at: int) -> int:
        """Count the rest of a cell; return the offset to continue at."""
        cell = at // file.cell_size
        stop = min((cell + 1) * file.cell_size, file.complete_bytes)
        is_whole = at == cell * file.cell_size and stop == at + file.cell_size
        counts: Counter[tuple[float, bool]] = Counter()
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
        self.read += stop - at
        return stop

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
