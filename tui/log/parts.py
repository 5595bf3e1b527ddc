"""The parts of the log screen, without Textual: what is read, counted and shown of its lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Flag, auto

from engine.logs.line_counts import LogCounts
from engine.logs.log_file import CELL_BYTES, FileEntry
from engine.logs.log_filter import DEBUG, LineFilter, lines_naming_task
from engine.logs.merged_log import STEP_CELLS, LogPosition, MergedLog
from engine.model import State, Task
from engine.policy import count_runs
from engine.store import Unavailable
from engine.text.error_pattern import fold_error, pattern_name
from engine.text.error_text import error_text
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.log import log_lines as view
from tui.log.page import LogPage
from tui.log.reader import LogReader, index_of
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import ScreenActions
from tui.screens.message import Message
from tui.session.place_session import PlaceSession
from tui.text.times import format_clock


class LineTask:
    """The task of the line under the cursor, as the index has it."""

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self.id = ""
        """Its id; "" if the line names none."""
        self._task: Task | None = None
        self._is_known = False
        self._generation = -1
        """That of the index for which it was asked last."""

    def select(self, entry: FileEntry | None) -> bool:
        """Select the task that an entry names; True if it is to be looked up: it is another one
        than before, or the index has changed since then."""
        named = view.labelled_ids(entry.line.text)[:1] if entry is not None else ()
        before, self.id = self.id, named[0] if named else ""
        if self.id != before:
            self._task, self._is_known = None, False
        elif self._generation == self._session.inspector.latest.generation:
            return False
        self._generation = self._session.inspector.latest.generation
        return bool(self.id)

    async def look_up(self) -> None:
        """Read the task from the index."""
        asked_id = self.id
        try:
            task = await self._session.inspector.queries.task(asked_id)
        except Unavailable:
            return  # the place cannot be read: its header shows that
        if asked_id == self.id:
            self._task, self._is_known = task, True

    @property
    def is_gone(self) -> bool:
        """True if the queue has no such task."""
        return self._is_known and self._task is None

    def describe(self) -> str:
        """State, attempts and cluster: `dlq, 3 attempts, cluster F-276D`; "" if unknown."""
        task = self._task
        if task is None:
            return ""
        names = self._session.inspector.states
        parts = [safe_line(names.get(task.state, task.state.value))]
        if runs := count_runs(task, self._session.place.max_attempts(task)):
            parts.append(format_count(runs, "attempt"))
        if task.error and task.state is State.DEAD:
            parts.append(f"cluster {pattern_name(fold_error(task.error))}")
        return ", ".join(parts)


MAX_COUNTED_BYTES = 256 << 20
"""Maximum log size in bytes up to which all lines are counted."""

MAX_CACHED_COUNTS = 8

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
        """Wait for uncounted lines and count them, some at a time. Raises OSError: a log cannot be
        read; engine.store.Unavailable: the reader is closed."""
        await self.uncounted.wait()
        self.uncounted.clear()
        while self.is_countable and not self.counts.done:
            await reader.call(self.counts.step)
            await asyncio.sleep(COUNT_PAUSE_SECONDS)


IDLE_READ_SECONDS, BUSY_READ_SECONDS = 1.0, 0.25
"""Seconds between two reads of the logs: without and with new lines."""


FETCH_SECONDS = 10.0
"""Seconds between two copies of the log of a server elsewhere."""


class Change(Flag):
    """What an action of the log screen changed; no more is painted again."""

    NOTHING = 0
    EDGES = auto()
    STATUS = auto()
    """The line under the cursor, the counts, and what follows from them."""
    LINES = auto()
    """All of it."""


class LogParts:
    """Shows the window of a reader, and keeps it up to date."""

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: ScreenActions[Change],
        find: str,
        *,
        is_following: bool,
    ) -> None:
        """`find` shows only lines that mention a task."""
        self.session, self.context, self.screen = session, context, screen
        self.logs = session.place.shown_logs
        self._fetch_problem: str | None = None
        """Why the log of a server elsewhere cannot be copied; "" if it was; None: not tried yet."""
        self._fetched_at = 0.0
        self.page, self.message = LogPage(), Message(context.clock)
        self.level = DEBUG
        self.words = self.named = f'"{find}"' if find else ""
        self.filter = self.naming = lines_naming_task(find)
        self.searched: tuple[str, LineFilter] = ("", LineFilter())
        self.reader = LogReader(
            self.logs,
            self.filter,
            self.show_lines,
            lambda: screen.show_change(Change.EDGES),
            STEP_CELLS,
        )
        self.counter = LogCounter(self.reader.book, self.filter)
        self.line_task = LineTask(session)
        self.style = view.LogStyle(sources=view.source_cells(self.logs))
        self.is_following = is_following
        self.is_busy = self.was_read = False
        """True while a job runs; once the logs were read."""
        self._is_late = False
        """New lines came during a job."""
        self._turn = 0

    @property
    def is_loaded(self) -> bool:
        """True if the lines on screen are those last requested."""
        return self.was_read and not self.is_busy

    @property
    def status(self) -> view.LogStatus:
        """What the status line shows."""
        counter, size = self.counter, self.reader.book.size
        return view.LogStatus(
            self.is_following,
            self.new_lines,
            self.level,
            words=self.words,
            matching=counter.counts.matching,
            lines=counter.counts.lines,
            counted=self.was_read and counter.is_complete,
            wrap=self.style.wrap,
            search_text=self.searched[0],
            uncounted_bytes=0 if counter.is_countable else size,
            source=self._describe_copy(),
            is_copied=self._fetch_problem == "",
        )

    def _describe_copy(self) -> str:
        if self.session.place.log_copy is None:
            return ""
        if self._fetch_problem is None:
            return "copying the end of the server's log"
        since = f" since {format_clock(self._fetched_at)}" if self._fetched_at else ""
        if self._fetch_problem:
            return f"not copied{since}: {self._fetch_problem}"
        return f"copied {format_clock(self._fetched_at)}"

    @property
    def new_lines(self) -> int:
        """How many matching lines came since the log is not followed."""
        return self.counter.news.matching if self.counter.news else 0

    async def follow(self, first: Callable[[], Awaitable[object]]) -> Change:
        """Run a job, then read new lines in a loop. Raises Unavailable: the screen is closing."""
        reader = self.reader
        await reader.call(reader.book.refresh)
        self.was_read, reader.page = True, self.page.height
        self.counter.uncounted.set()
        self.start_job(first)
        while True:
            await asyncio.sleep(IDLE_READ_SECONDS)
            while await reader.call(reader.book.refresh) or self._is_late:
                await self._take_new_lines()
                await asyncio.sleep(BUSY_READ_SECONDS)

    async def fetch(self) -> Change:
        """Copy the end of a log that is elsewhere, again and again while the screen is on top;
        `follow` reads the copy."""
        while self.session.place.log_copy is not None:
            if not self.screen.is_current:
                await asyncio.sleep(IDLE_READ_SECONDS)
                continue
            self._fetch_problem = await asyncio.to_thread(self.session.place.fetch_log)
            if not self._fetch_problem:
                self._fetched_at = self.context.clock()
            if self.was_read and not self.page.entries:
                self.show_lines(0)
            self.screen.show_change(Change.STATUS)
            await asyncio.sleep(FETCH_SECONDS)
        return Change.NOTHING

    async def _take_new_lines(self) -> None:
        """New lines exist: show or count them."""
        self._is_late = self.is_busy
        self.counter.uncounted.set()
        turn = self._turn
        try:
            if self.counter.news is not None:
                await self.reader.run(self.counter.news)
            elif self.is_following and not self.is_busy:
                is_complete = await self.reader.append_new(lambda: turn == self._turn)
                if turn != self._turn:
                    self._is_late = True  # a newer request of the operator has priority
                elif not is_complete:
                    self.start_job(self.reader.read_tail)
        except OSError as error:
            self.say(f"log not readable: {error_text(error)}")
        self.screen.show_change(Change.STATUS)

    def start_job(self, work: Callable[[], Awaitable[object]]) -> Change:
        """Run this and cancel what is running."""
        self._turn += 1
        self.is_busy, turn = True, self._turn
        self.message.clear()

        async def alone() -> Change:
            try:
                await work()
            except OSError as error:
                self.say(f"log not readable: {error_text(error)}")
            except Unavailable:
                return Change.NOTHING  # the screen is closing
            finally:
                if turn == self._turn:
                    self.is_busy, self.reader.job = False, None
                    if self.reader.is_stopping:
                        self.say("stopped: showing the results so far")
                    self.reader.is_stopping = False
            self.counter.uncounted.set()  # the histogram ends at a line that was read now
            return Change.STATUS

        self.screen.run("log", alone)
        return Change.NOTHING

    def read_more(self, *, forward: bool) -> Change:
        """Read the lines before or behind those that are loaded."""
        return self.start_job(
            lambda: self.reader.read_more(forward, lambda: self.page.selected_entry)
        )

    def fill_page(self) -> None:
        """Read more lines if the page got higher than those that are loaded."""
        reader = self.reader
        reader.page = self.page.height
        if self.is_loaded and len(self.page.entries) < reader.page and not reader.window.at_start:
            if self.is_following:
                self.start_job(reader.read_tail)
            else:
                self.read_more(forward=False)

    async def look_up_task(self) -> Change:
        """Look up the task of the line under the cursor."""
        await self.line_task.look_up()
        return Change.EDGES

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message for some seconds."""
        self.message.say(text, style)
        return Change.EDGES

    def show_lines(self, cursor: int, line: int | None = None, is_searching: bool = False) -> None:
        """Show the window with the cursor on an entry, on a screen line; None: the same lines."""
        entries, reader = self.reader.window.entries, self.reader
        if line is not None and len(entries) < reader.page:
            line = min(line, cursor)
        is_searching = is_searching or reader.job is not None
        troubles, width = reader.book.troubles, self.page.width
        no_log = self.session.place.no_server_log
        notice = view.empty_lines(
            self.logs, self.status, is_searching, width, troubles, no_log=no_log
        )
        self.style = self.style.with_columns_for(entries)
        self.page.show(entries, cursor, self.style, line, notice)
        self.screen.show_change(Change.LINES)

    def restyle(self, style: view.LogStyle) -> Change:
        """Show the same lines with another layout."""
        self.style = style
        self.show_lines(self.page.cursor)
        return Change.EDGES

    def pause(self) -> None:
        """Stop following; new lines are counted."""
        if self.is_following:
            self.is_following = False
            self.counter.pause(self.reader.window.end)

    def follow_end(self) -> Change:
        """Follow the end of the log."""
        self.is_following, self.counter.news = True, None
        return self.start_job(self.reader.read_tail)

    def set_filter(self, words: str, what: LineFilter) -> Change:
        """Show only lines that match; the words are those of the operator."""
        self.words, self.filter = words, what
        return self.apply_filter()

    def apply_filter(self) -> Change:
        """Apply the filter and the level; the cursor stays on its line if that still matches."""
        reader, sieve = self.reader, self.filter._replace(level=self.level)
        before, reader.filter = reader.window, sieve
        self.counter.set_filter(sieve)
        selected, line = self.page.selected_entry, max(0, self.page.line_of_cursor)
        if self.is_following or selected is None:
            self.start_job(reader.read_tail)
        else:
            self.start_job(lambda: reader.read_around(LogPosition(selected.key), line))
        # Show the matching lines of the window until more are found.
        reader.window = before.with_filter(sieve)
        entries = reader.window.entries
        self.show_lines(index_of(selected, entries, len(entries) - 1), is_searching=True)
        return Change.EDGES
