"""The log screen: the logs of a place merged by time, with follow, filter, search, and open
task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from textual.app import ComposeResult

from engine.live.call_thread import CallThread
from engine.logs.log_file import FileEntry
from engine.logs.log_filter import (
    DEBUG,
    ERROR,
    BadWords,
    LineFilter,
    lines_containing,
    lines_naming_task,
    parse_line_filter,
    parse_typed_time,
)
from engine.logs.merged_log import (
    BEGIN,
    END,
    STEP_CELLS,
    LineScan,
    LogCounts,
    LogPosition,
    MergedLog,
    SteppedWork,
    TimeSearch,
)
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.format import keys
from tui.format.present import Line
from tui.format.progress_bar import ProgressBar, bar_line
from tui.log import lines as view
from tui.log.log_widget import LogLines
from tui.log.window import MAX_ENTRIES, LogWindow
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.screens.text_prompt import AskScreen
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.widgets.lines import Lines

LogJob: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A coroutine function that replaces the running one."""

IDLE_READ_SECONDS, BUSY_READ_SECONDS = 1.0, 0.25
"""Seconds between two reads of the logs: without and with new lines."""

READ_PAGES = 3
"""Pages read at a time."""

SHOW_PROGRESS_SECONDS = 0.3
"""Seconds after which a read shows its progress and first results."""

MAX_COUNTED_BYTES = 256 << 20
"""Maximum log size in bytes up to which all lines are counted."""

MAX_CACHED_COUNTS = 8
"""Number of filters whose counts are cached."""

COUNT_STEP_CELLS, COUNT_PAUSE_SECONDS = 16, 0.005
"""Cells counted at a time, and seconds between, so that counting stays in the background."""


class LogScreen(ListScreen):
    """All logs of a place as one."""

    KIND = keys.LOG
    BINDINGS = key_bindings(keys.LOG)

    def __init__(
        self,
        live: PlaceSession,
        around: ConsoleContext,
        *,
        find: str = "",
        at: float | None = None,
        line: str = "",
        step_cells: int = STEP_CELLS,
    ) -> None:
        """`find` shows only lines that mention a task; `at` (epoch seconds UTC) starts at that
        time, on the first matching `line`.
        """
        super().__init__(live, around)
        # Attributes, not queries: tasks that end after the screen closed still find them.
        self._status, self._lines = Lines(id="status"), LogLines(id="lines")
        self._book = MergedLog(live.place.logs)
        self._lane = CallThread("log", at_end=self._book.close)
        self._step_cells = step_cells
        self._at, self._line = at, line
        self._level = DEBUG
        self._words = self._named = f'"{find}"' if find else ""
        self._filter = self._naming = lines_naming_task(find)
        self._searched = ("", LineFilter())
        self._stretch = LogWindow(self._book, self._filter)
        self._style = view.LogStyle(sources=len(live.place.logs) > 1)
        self._following = at is None
        self._news: LogCounts | None = None
        self._count = LogCounts(self._book, self._filter, step_cells=COUNT_STEP_CELLS)
        self._counted = self._filter
        self._tallies: dict[LineFilter, LogCounts] = {}
        self._uncounted = asyncio.Event()
        self._job: tuple[SteppedWork, float] | None = None
        self._turn = 0
        self._busy, self._late, self._stopping = False, False, False
        self.looked = False
        """True if the logs were read once."""

    def compose(self) -> ComposeResult:
        """Trail, status, lines, message line, hints."""
        yield TopLine(id="top-line")
        yield self._status
        yield self._lines
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Focus the lines; start reading when the height is known."""
        self._lines.focus()
        self.call_after_refresh(self._start_reading)

    def _start_reading(self) -> None:
        self.run_worker(self._follow(), name="follow", group="follow")
        self.run_worker(self._count_lines(), name="count", group="count")

    async def on_unmount(self) -> None:
        """Close the logs."""
        await self._lane.close(0.0)

    @property
    def loaded(self) -> bool:
        """True if the lines on screen are those last requested."""
        return self.looked and not self._busy

    # Reading

    async def _follow(self) -> None:
        """Read new lines in a loop; repaint at most as often."""
        try:
            await self._lane.run(self._book.refresh)
            self.looked = True
            self._uncounted.set()
            at = self._at
            self._start_job(
                self._read_tail if at is None else lambda: self._to_time(at, self._line)
            )
            while True:
                await asyncio.sleep(IDLE_READ_SECONDS)
                while await self._lane.run(self._book.refresh) or self._late:
                    await self._take_new_lines()
                    await asyncio.sleep(BUSY_READ_SECONDS)
        except Unavailable:
            return  # the screen is closing

    async def _take_new_lines(self) -> None:
        """New lines exist: show or count them."""
        self._late = self._busy
        self._uncounted.set()
        try:
            if self._news is not None:
                await self._run_job(self._news)
            elif self._following and not self._busy:
                await self._append_new_lines()
        except OSError as error:
            self.say(f"log not readable: {error.strerror or error}")
        self.paint()

    async def _append_new_lines(self) -> None:
        turn, stretch = self._turn, self._stretch
        scan = LineScan(
            self._book, stretch.end, stretch.through, MAX_ENTRIES, True, self._step_cells
        )
        await self._run_job(scan)
        if turn != self._turn:
            self._late = True  # a newer request of the operator has priority
            return
        if scan.exhausted:
            stretch.add_more(scan, True)
            self._show(len(stretch.entries) - 1)
        else:
            self._start_job(self._read_tail)

    def _start_job(self, work: LogJob) -> None:
        """Run this and cancel what is running."""
        self._turn += 1
        self._busy, turn = True, self._turn
        self._message = ("", "", 0.0)

        async def alone() -> None:
            try:
                await work()
            except OSError as error:
                self.say(f"log not readable: {error.strerror or error}")
            except Unavailable:
                return  # the screen is closing
            finally:
                if turn == self._turn:
                    self._busy, self._job = False, None
                    if self._stopping:
                        self.say("stopped: showing the results so far")
                    self._stopping = False
            self.paint()

        # A function, not a coroutine: Textual would warn about one cancelled before its first step.
        self.run_worker(alone, name="log", exclusive=True, group="log")  # type: ignore[arg-type]

    async def _run_job(self, job: SteppedWork, partly: Callable[[], None] | None = None) -> bool:
        """Run the steps of a job with progress; True if it reached its end."""
        began = shown_at = time.monotonic()
        self._job = job, began
        while not job.done and not self._stopping:
            await self._lane.run(job.step)
            now = time.monotonic()
            if now - shown_at > SHOW_PROGRESS_SECONDS:
                shown_at = now
                if partly is not None:
                    partly()
                self._show_message_line()
        self._job = None
        return job.done

    async def _read_tail(self) -> None:
        stretch = LogWindow(self._book, self._line_filter())
        scan = self._scan(END, forward=False)

        def first() -> LogPosition:
            here = self._book.end_position()
            scan.step()
            return here

        here = await self._lane.run(first)

        def take() -> None:
            stretch.set_tail(scan, here)
            self._stretch = stretch
            self._show(len(stretch.entries) - 1, self._tail_row)

        await self._run_job(scan, take)
        take()

    async def _read_head(self) -> None:
        await self._read_around(BEGIN, 0)

    async def _read_around(self, mark: LogPosition, line: int) -> None:
        """Show the lines around a position, which goes to screen line `line`."""
        stretch = LogWindow(self._book, self._line_filter())
        after = self._scan(mark)
        before = self._scan(mark, forward=False)

        def take() -> None:
            stretch.set_around(before, after)
            self._stretch = stretch
            cursor = len(before.found)
            self._show(cursor - (cursor == len(stretch.entries)), line)

        await self._run_job(after, take)
        await self._run_job(before, take)
        take()

    async def _read_more(self, forward: bool) -> None:
        stretch = self._stretch
        mark = stretch.end if forward else stretch.start
        scan = self._scan(mark, forward)
        await self._run_job(scan)
        self._extend(stretch, scan, forward)

    def _extend(self, stretch: LogWindow, scan: LineScan, forward: bool) -> None:
        here = self._lines.here
        stretch.add_more(scan, forward)
        self._show(_index_of(here, stretch.entries, 0 if forward else len(stretch.entries) - 1))

    def _scan(
        self, mark: LogPosition, forward: bool = True, through: LineFilter | None = None
    ) -> LineScan:
        page = READ_PAGES * self._lines.page
        wanted = (self._line_filter(), page) if through is None else (through, 1)
        return LineScan(self._book, mark, *wanted, forward, self._step_cells)

    def _line_filter(self) -> LineFilter:
        return self._filter._replace(level=self._level)

    async def _count_lines(self) -> None:
        """Count all lines in the background, some at a time."""
        try:
            while True:
                await self._uncounted.wait()
                self._uncounted.clear()
                while self._book.size <= MAX_COUNTED_BYTES and not self._count.done:
                    await self._lane.run(self._count.step)
                    await asyncio.sleep(COUNT_PAUSE_SECONDS)
                self._paint_status()
        except (OSError, Unavailable):
            return  # read errors are shown with the lines

    # Painting

    @property
    def _tail_row(self) -> int:
        """Screen line of the last log line: below it is room for new ones."""
        page = self._lines.page
        return page - max(1, page // 3)

    def _show(self, cursor: int, line: int | None = None, looking: bool = False) -> None:
        entries = self._stretch.entries
        if line is not None and len(entries) < self._lines.page:
            line = min(line, cursor)
        looking = looking or self._job is not None
        paths, troubles = self.live.place.logs, self._book.troubles
        notice = view.empty_lines(paths, self._status_values(), looking, self.size.width, troubles)
        self._lines.show(entries, cursor, self._style, line, notice)
        self._paint_status()

    def lay_out(self, width: int) -> None:
        """Repaint the status line."""
        self._paint_status()

    def _paint_status(self) -> None:
        if self.is_paintable and self.size.width:
            line = view.status_line(self._status_values(), self.size.width)
            self._status.show([line])

    def _status_values(self) -> view.LogStatus:
        count = self._count
        whole = self.looked and self._book.size <= MAX_COUNTED_BYTES and count.done
        kept, lines = count.matching, count.lines
        return view.LogStatus(
            self._following,
            self._news.matching if self._news else 0,
            self._level,
            self._words,
            kept,
            lines,
            whole,
            self._style.wrap,
            self._searched[0],
            self._book.size if self._book.size > MAX_COUNTED_BYTES else 0,
        )

    def trail(self) -> tuple[str, ...]:
        """The place and its log files."""
        logs = len(self.live.place.logs)
        there = len({file.path for file in self._book.files}) if self.looked else logs
        files = f"{logs} files merged by time" if there == logs else f"{there} of {logs} files"
        roomy = logs > 1 and self.size.width >= 80
        return (self.live.name, f"log  {files}" if roomy else "log")

    def default_message(self) -> Line:
        """Progress of a long read; otherwise read errors."""
        if self._job is not None and time.monotonic() - self._job[1] > SHOW_PROGRESS_SECONDS:
            job, began = self._job
            far = ProgressBar(job.read >> 10, max(job.read, job.total) >> 10)
            seconds = time.monotonic() - began
            stop: Line = (("  Esc stops", "key"),)
            if not far.total:  # a binary search has no byte count
                return ((" searching ...", ""), *stop)
            return (*bar_line(far, seconds, "KiB", self.size.width - 12), *stop)
        return view.trouble_line(self._book.troubles, self.size.width)

    def without(self) -> tuple[str, ...]:
        """Hide the search keys without a search."""
        return () if self._searched[0] else ("search_next", "search_previous")

    def copies(self) -> tuple[Copy, ...]:
        """The line under the cursor, and the task id in it."""
        here = self._lines.here
        if here is None:
            return ()
        text = safe_line(here.line.text)
        when = view.format_time(here.line.when, view.LogTimeFormat.DATE)
        found = view.labelled_ids(text)[:1]
        return (
            Copy("l", "line", f"{when}{here.line.level} {text}".strip()),
            *(Copy("i", "id", id) for id in found),
        )

    # Moving

    def action_move(self, how: str) -> None:
        """Move the cursor; anywhere but at the end pauses following."""
        if how == "last":
            self.action_follow()
        elif how == "first":
            self._pause()
            self._start_job(self._read_head)
        else:
            self._move(how, how.endswith("down") or how == "down")

    def _move(self, how: str, forward: bool) -> None:
        lines, stretch = self._lines, self._stretch
        if self._following and forward:
            return
        self._pause()
        lines.move(how)
        self._paint_status()
        left = len(lines.entries) - 1 - lines.cursor if forward else lines.cursor
        if left < lines.page and not (stretch.at_end if forward else stretch.at_start):
            if not self._busy:
                self._start_job(lambda: self._read_more(forward))
        elif left == 0 and forward and stretch.at_end and self._news and not self._busy:
            self._start_job(lambda: self._read_more(forward))

    def _pause(self) -> None:
        if self._following:
            self._following = False
            self._news = LogCounts(self._book, self._line_filter(), self._stretch.end)

    def action_follow(self) -> None:
        """Follow the end, or pause."""
        if self._following:
            self._pause()
            self._paint_status()
        else:
            self._following, self._news = True, None
            self._start_job(self._read_tail)

    def action_open(self) -> None:
        """Open the task named in the line."""
        here = self._lines.here
        if here is None:
            self.say("no line here")
        else:
            self._start_job(lambda: self._open(here))

    async def _open(self, entry: FileEntry) -> None:
        names = view.possible_ids(entry.line.text)
        for name in names:
            if await self.live.inspector.queries.task(name) is not None:
                self.go(Target(keys.TASK, id=name))
                return
        named = view.labelled_ids(entry.line.text)
        gone = f"{named[0]} is no longer in the queue" if named else "no task id in this line"
        self.say(gone)

    # Filter and layout

    def _apply_filter(self) -> None:
        """Apply a filter or level; the cursor stays on its line if that still matches."""
        through, before = self._line_filter(), self._stretch
        # Counts of a recent filter are reused, for example after Esc.
        self._tallies[self._counted] = self._count
        self._counted = through
        known = through in self._tallies
        fresh = LogCounts(self._book, through, step_cells=COUNT_STEP_CELLS)
        self._count = self._tallies.pop(through) if known else fresh
        while len(self._tallies) > MAX_CACHED_COUNTS:
            del self._tallies[next(iter(self._tallies))]
        self._uncounted.set()
        if self._news is not None:
            self._news = LogCounts(self._book, through, self._news.since)
        here, line = self._lines.here, max(0, self._lines.line_of_cursor)
        if self._following or here is None:
            self._start_job(self._read_tail)
        else:
            self._start_job(lambda: self._read_around(LogPosition(here.key), line))
        # Show the matching lines of the window until more are found.
        self._stretch = before.with_filter(through)
        entries = self._stretch.entries
        self._show(_index_of(here, entries, len(entries) - 1), looking=True)

    def action_level_up(self) -> None:
        """Raise the minimum level."""
        self._to_level(self._level + 1)

    def action_level_down(self) -> None:
        """Lower the minimum level."""
        self._to_level(self._level - 1)

    def _to_level(self, level: int) -> None:
        if not DEBUG <= level <= ERROR:
            self.say("all levels are shown" if level < DEBUG else "only errors are shown")
            return
        self._level = level
        self._apply_filter()

    def action_only(self) -> None:
        """Prompt for the filter."""

        def take(words: str | None) -> None:
            if words:
                self._set_filter(words)

        title = "filter (words, a|b, !not, ~pattern)"
        self.app.push_screen(AskScreen(title, self._words, _filter_error), take)

    def _set_filter(self, words: str) -> None:
        self._words = words
        self._filter = self._naming if words == self._named else parse_line_filter(words)
        self._apply_filter()

    def action_back(self) -> None:
        """Stop a long read; otherwise clear the filter; otherwise close the log."""
        if self._job is not None and self._busy and not self._stopping:
            self._stopping = True
        elif self._words and self._filter is not self._naming:
            self._words, self._filter = "", LineFilter()
            self._apply_filter()
        else:
            self.dismiss()

    def action_wrap(self) -> None:
        """Wrap or cut long lines."""
        self._restyle(self._style._replace(wrap=not self._style.wrap))

    def action_stamps(self) -> None:
        """Switch the time format."""
        self._restyle(self._style._replace(time_format=self._style.time_format.next_format))

    def _restyle(self, style: view.LogStyle) -> None:
        self._style = style
        self._show(self._lines.cursor)

    # Searching

    def action_search(self) -> None:
        """Prompt for the search text."""

        def take(words: str | None) -> None:
            if words:
                self._searched = (words, parse_line_filter(words))
                self.show_hints()
                self._seek(True, self._searched[1], words, from_here=True)

        title = "search (words, a|b, !not, ~pattern); n next, N previous"
        self.app.push_screen(AskScreen(title, self._searched[0], _filter_error), take)

    def action_search_next(self) -> None:
        """Go to the next match."""
        self._seek_again(True)

    def action_search_previous(self) -> None:
        """Go to the previous match."""
        self._seek_again(False)

    def _seek_again(self, forward: bool) -> None:
        if self._searched[0]:
            self._seek(forward, self._searched[1], self._searched[0])
        else:
            self.say("no search yet: / searches")

    def action_next_error(self) -> None:
        """Go to the next error, or to the last one while following."""
        self._seek(not self._following, LineFilter(ERROR), "an error")

    def _seek(self, forward: bool, what: LineFilter, words: str, from_here: bool = False) -> None:
        here = self._lines.here
        if here is None:
            self.say("no line to search from")
            return
        self._pause()
        time_, file, at = here.key
        beyond = forward and not from_here
        mark = LogPosition((time_, file, here.end_offset if beyond else at))
        self._start_job(lambda: self._find_next(mark, forward, what, words))

    async def _find_next(
        self, mark: LogPosition, forward: bool, what: LineFilter, words: str
    ) -> None:
        scan = self._scan(mark, forward, self._line_filter().combine_with(what))
        finished = await self._run_job(scan)
        if not finished:
            return
        if not scan.found:
            where = "below" if forward else "above"
            back = "N searches up" if forward else "n searches down"
            self.say(f"{words}: not found {where}: {back}")
            return
        found = scan.found[0]
        at = _index_of(found, self._stretch.entries, -1)
        if at >= 0:
            self._show(at)
        else:
            await self._read_around(LogPosition(found.key), self._lines.page // 3)

    def action_goto_time(self) -> None:
        """Prompt for a time to go to."""
        now = self.around.clock()

        def wrong(text: str) -> str:
            try:
                parse_typed_time(text, now)
            except ValueError as error:
                return str(error)
            return ""

        def take(text: str | None) -> None:
            if text:
                self._start_job(lambda: self._to_time(parse_typed_time(text, now)))

        self.app.push_screen(AskScreen("go to time", "", wrong), take)

    async def _to_time(self, when: float, line: str = "") -> None:
        self._pause()
        seek = TimeSearch(self._book, when, self._step_cells)
        if not await self._run_job(seek):
            return
        mark, found = seek.position, False
        if line:
            scan = self._scan(mark, through=lines_containing(line))
            await self._run_job(scan)
            found = bool(scan.found)
            mark = LogPosition(scan.found[0].key) if found else mark
        await self._read_around(mark, self._lines.page // 3)
        here = self._lines.here
        if found:
            self.say("log line of this error", "")
        elif here is None or here.key[0] < when:
            self.say(f"no line since {_time_text(when)}; last line before it")
        else:
            self.say(f"first line since {_time_text(when)}", "")


def _time_text(when: float) -> str:
    return view.format_time(when, view.LogTimeFormat.DATE).strip()


def _filter_error(text: str) -> str:
    try:
        parse_line_filter(text)
    except BadWords as error:
        return f"{error} at {error.at + 1}"
    return ""


def _index_of(entry: FileEntry | None, entries: list[FileEntry], otherwise: int) -> int:
    """Index of an entry in another list, even if its time changed; `otherwise` if it is missing."""
    if entry is None:
        return otherwise
    return next((n for n, e in enumerate(entries) if e.key[1:] == entry.key[1:]), otherwise)
