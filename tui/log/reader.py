"""Read a window of some pages of a merged log in jobs, on a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.live.call_thread import CallThread
from engine.logs.log_file import NO_TIME, FileEntry
from engine.logs.log_filter import LineFilter, lines_containing
from engine.logs.merged_log import (
    BEGIN,
    END,
    LineScan,
    LogPosition,
    MergedLog,
    SteppedWork,
    TimeSearch,
)

MAX_ENTRIES = 400


class LogWindow:
    """Consecutive entries of a merged log, with the positions before and behind them. Scans block
    and run on the log's own thread; the caller's thread adds their results between two steps."""

    def __init__(self, book: MergedLog, through: LineFilter) -> None:
        self.book, self.through = book, through
        self.entries: list[FileEntry] = []
        self.start, self.end = BEGIN, END
        self.at_start, self.at_end = False, False
        """True if there is nothing beyond."""

    def with_filter(self, through: LineFilter) -> LogWindow:
        """A copy with the entries that also match another filter."""
        fewer = LogWindow(self.book, through)
        fewer.entries = [e for e in self.entries if through.is_match(e.rank, e.line.text)]
        fewer.start, fewer.end = self.start, self.end
        return fewer

    def set_tail(self, scan: LineScan, end: LogPosition) -> None:
        """Set the result of a scan from the end; `end` is the position of the end."""
        self.entries = scan.entries
        self.start, self.at_start = scan.reached, scan.exhausted
        self.end, self.at_end = end, True

    def set_around(self, before: LineScan, after: LineScan) -> None:
        """Set the entries on both sides of a position."""
        self.entries = [*before.entries, *after.entries]
        self.start, self.at_start = before.reached, before.exhausted
        self.end, self.at_end = after.reached, after.exhausted

    def add_more(self, scan: LineScan, forward: bool) -> None:
        """Add the entries of a scan at one end; a line that is complete now replaces its part."""
        if forward:
            complete = [entry for entry in self.entries if not entry.is_torn]
            self.entries = [*complete, *scan.entries]
            self.end, self.at_end = scan.reached, scan.exhausted
            dropped = self.entries[: -MAX_ENTRIES or None]
            self.entries = self.entries[-MAX_ENTRIES:]
            if dropped:
                self.start = _moved_position(self.start, self.entries[0], dropped, forward)
                self.at_start = False
        else:
            self.entries = [*scan.entries, *self.entries]
            self.start, self.at_start = scan.reached, scan.exhausted
            dropped = self.entries[MAX_ENTRIES:]
            self.entries = self.entries[:MAX_ENTRIES]
            if dropped:
                self.end = _moved_position(self.end, dropped[0], dropped[::-1], forward)
                self.at_end = False


def _moved_position(
    mark: LogPosition, key: FileEntry, passed: Sequence[FileEntry], forward: bool
) -> LogPosition:
    """The position at `key`, derived from a position on the other side of the `passed` entries."""
    offsets = dict(mark.offsets)
    for entry in passed:
        offsets[entry.key[1]] = entry.end_offset if forward else entry.key[2]
    return LogPosition(key.key, offsets)


T = TypeVar("T")

READ_PAGES = 3

SHOW_PROGRESS_SECONDS = 0.3
"""Seconds after which a read shows its progress and first results."""

LAST_ROW = 1 << 16
"""The last line of the page, of any height."""


class LogReader:
    """The part of a merged log that is shown, and the job that reads another one."""

    def __init__(
        self,
        logs: Sequence[str],
        sieve: LineFilter,
        show: Callable[[int, int | None], None],
        show_progress: Callable[[], None],
        step_cells: int,
    ) -> None:
        """`show` is called with the entry under the cursor and its screen line, None for the same.
        `show_progress` is called while a job takes long."""
        self.book, self.filter = MergedLog(logs), sieve
        self.window = LogWindow(self.book, sieve)
        self.page = 1
        self.step_cells = step_cells
        self.is_stopping = False
        """True if the running job shall end where it is."""
        self._show, self._show_progress = show, show_progress
        self._thread = CallThread("log", at_end=self.book.close)
        self.job: tuple[SteppedWork, float] | None = None
        """The running job, and when it started (monotonic seconds)."""

    async def call(self, make: Callable[[], T]) -> T:
        """Run a call on the thread of the logs. Raises Unavailable: the reader is closed."""
        return await self._thread.run(make)

    async def close(self) -> None:
        """Close the logs."""
        await self._thread.close(0.0)

    @property
    def job_seconds(self) -> float:
        """Seconds since the running job started; 0 without a job."""
        return 0.0 if self.job is None else time.monotonic() - self.job[1]

    async def run(self, job: SteppedWork, partly: Callable[[], None] | None = None) -> bool:
        """Run the steps of a job with progress; True if it reached its end. Raises OSError: a log
        cannot be read; Unavailable: the reader is closed."""
        shown_at = time.monotonic()
        self.job = job, shown_at
        while not job.done and not self.is_stopping:
            await self.call(job.step)
            now = time.monotonic()
            if now - shown_at > SHOW_PROGRESS_SECONDS:
                shown_at = now
                if partly is not None:
                    partly()
                self._show_progress()
        self.job = None
        return job.done

    def scan(
        self, mark: LogPosition, forward: bool = True, through: LineFilter | None = None
    ) -> LineScan:
        """A scan for the next pages of lines, or for the next line that matches `through`."""
        sieve, want = (self.filter, READ_PAGES * self.page) if through is None else (through, 1)
        return LineScan(self.book, mark, sieve, want, forward=forward, step_cells=self.step_cells)

    async def read_tail(self) -> None:
        """Show the last lines; the last one at the end of the page."""
        window, scan = LogWindow(self.book, self.filter), self.scan(END, forward=False)

        def first() -> LogPosition:
            end_position = self.book.end_position()
            scan.step()
            return end_position

        end_position = await self.call(first)

        def take() -> None:
            window.set_tail(scan, end_position)
            self.window = window
            self._show(len(window.entries) - 1, LAST_ROW)

        await self.run(scan, take)
        take()

    async def read_head(self) -> None:
        """Show the first lines, of the first rotated file if there are any."""
        if await self.run(TimeSearch(self.book, NO_TIME, self.step_cells)):
            await self.read_around(BEGIN, 0)

    async def read_around(self, mark: LogPosition, line: int) -> None:
        """Show the lines around a position, which goes to screen line `line`."""
        window = LogWindow(self.book, self.filter)
        after, before = self.scan(mark), self.scan(mark, forward=False)

        def take() -> None:
            window.set_around(before, after)
            self.window = window
            cursor = len(before.found)
            self._show(cursor - (cursor == len(window.entries)), line)

        await self.run(after, take)
        await self.run(before, take)
        take()

    async def read_more(self, forward: bool, get_selected: Callable[[], FileEntry | None]) -> None:
        """Add lines at one end; `get_selected` returns the entry under the cursor."""
        window = self.window
        scan = self.scan(window.end if forward else window.start, forward)
        await self.run(scan)
        selected = get_selected()
        window.add_more(scan, forward)
        self._show(
            index_of(selected, window.entries, 0 if forward else len(window.entries) - 1), None
        )

    async def append_new(self, is_wanted: Callable[[], bool]) -> bool:
        """Show new lines at the end, if this is still wanted then; False if there are too many."""
        window = self.window
        scan = LineScan(
            self.book,
            window.end,
            window.through,
            want=MAX_ENTRIES,
            forward=True,
            step_cells=self.step_cells,
        )
        await self.run(scan)
        if is_wanted() and scan.exhausted:
            window.add_more(scan, True)
            self._show(len(window.entries) - 1, LAST_ROW)
        return scan.exhausted

    async def find_time(self, when: float, line: str = "") -> tuple[LogPosition, bool] | None:
        """The position of a time; with a `line`, of the first such line since then, and whether
        there is one. None if the search was stopped."""
        search = TimeSearch(self.book, when, self.step_cells)
        if not await self.run(search):
            return None
        if not line:
            return search.position, False
        scan = self.scan(search.position, through=lines_containing(line))
        await self.run(scan)
        if not scan.found:
            return search.position, False
        return LogPosition(scan.found[0].key), True


def index_of(entry: FileEntry | None, entries: Sequence[FileEntry], otherwise: int) -> int:
    """Index of an entry in another list, even if its time changed; `otherwise` if it is missing."""
    if entry is None:
        return otherwise
    return next((n for n, e in enumerate(entries) if e.key[1:] == entry.key[1:]), otherwise)
