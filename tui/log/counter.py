"""Count the lines of a log in the background: all, those that match, and new ones."""

from __future__ import annotations

import asyncio

from engine.logs.line_counts import LogCounts
from engine.logs.log_file import CELL_BYTES
from engine.logs.log_filter import LineFilter
from engine.logs.merged_log import LogPosition, MergedLog
from tui.log.reader import LogReader

MAX_COUNTED_BYTES = 256 << 20
"""Maximum log size in bytes up to which all lines are counted."""

MAX_CACHED_COUNTS = 8
"""Number of filters whose counts are cached."""

COUNT_STEP_CELLS, COUNT_PAUSE_SECONDS = 16, 0.005
"""Cells counted at a time, and seconds between, so that counting stays in the background."""


class LogCounter:
    """Counts for the present filter, and for some former ones."""

    def __init__(self, book: MergedLog, sieve: LineFilter) -> None:
        self._book, self._filter = book, sieve
        self.counts = LogCounts(book, sieve, step_cells=COUNT_STEP_CELLS)
        """Of all lines."""
        self.news: LogCounts | None = None
        """Of the lines since the log was paused; None while it is followed."""
        self._cache: dict[LineFilter, LogCounts] = {}
        self.uncounted = asyncio.Event()
        """Set when there may be lines to count."""

    @property
    def is_countable(self) -> bool:
        """True if the logs are not too large to count all lines."""
        return self._book.size <= MAX_COUNTED_BYTES

    @property
    def is_complete(self) -> bool:
        """True if all lines are counted, but for the latest ones."""
        counts = self.counts
        is_near = counts.read > 0 and counts.total - counts.read < CELL_BYTES
        return self.is_countable and (counts.done or is_near)

    def set_filter(self, sieve: LineFilter) -> None:
        """Count for another filter; counts of a recent one are reused, for example after Esc."""
        self._cache[self._filter] = self.counts
        self._filter = sieve
        fresh = LogCounts(self._book, sieve, step_cells=COUNT_STEP_CELLS)
        self.counts = self._cache.pop(sieve, fresh)
        while len(self._cache) > MAX_CACHED_COUNTS:
            del self._cache[next(iter(self._cache))]
        if self.news is not None:
            self.news = LogCounts(self._book, sieve, self.news.since)
        self.uncounted.set()

    def pause(self, since: LogPosition) -> None:
        """Count the new lines from a position on."""
        self.news = LogCounts(self._book, self._filter, since)

    async def count(self, reader: LogReader) -> None:
        """Wait for uncounted lines and count them, some at a time.

        Raises:
            OSError: a log cannot be read.
            engine.store.Unavailable: the reader is closed.
        """
        await self.uncounted.wait()
        self.uncounted.clear()
        while self.is_countable and not self.counts.done:
            await reader.call(self.counts.step)
            await asyncio.sleep(COUNT_PAUSE_SECONDS)
