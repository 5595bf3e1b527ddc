"""The logs of a place, merged by time: followed, filtered, searched, from line to task."""

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
    literally,
    moment,
    naming,
    sieve,
)
from engine.logs.merged_log import (
    BEGIN,
    END,
    STEP_CELLS,
    Job,
    LogCounts,
    LogPosition,
    MergedLog,
    Scan,
    Seek,
)
from engine.store import Unavailable
from engine.text.safe import shown
from tui.format import keys
from tui.format.present import Line
from tui.format.progress_bar import ProgressBar, bar
from tui.log import lines as view
from tui.log.log_widget import LogLines
from tui.log.window import HELD, Stretch
from tui.screens.base import Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.text_prompt import AskScreen
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.widgets.lines import Lines

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Something to be done in place of what is being done."""

RESTING, FLOWING = 1.0, 0.25
"""Seconds between two looks at the logs: where nothing came, and where something did."""

PAGES = 3
"""Pages that are fetched at once."""

LONG = 0.3
"""Seconds after which something takes long: how far it is is shown, and what was found so far."""

COUNTED = 256 << 20
"""Bytes of logs up to which all lines are counted, to say how many are hidden."""

TALLIES = 8
"""Filters whose counts are kept, the oldest is dropped first."""

COUNT_STEP, COUNT_PAUSE = 2, 0.01
"""Cells that are counted at a time, and seconds between: nobody waits for it."""


class LogScreen(ListScreen):
    """All logs of a place as one."""

    KIND = keys.LOG
    BINDINGS = keys.bindings(keys.LOG)

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
        """`find` shows only what speaks of that task; `at`, epoch seconds UTC, begins there, on the
        first `line` from then on.
        """
        super().__init__(live, around)
        # Held, not looked for: what comes in while the screen is closed still finds them.
        self._status, self._lines = Lines(id="status"), LogLines(id="lines")
        self._book = MergedLog(live.place.logs)
        self._lane = CallThread("log", at_end=self._book.close)
        self._step_cells = step_cells
        self._at, self._line = at, line
        self._level = DEBUG
        self._words = self._named = f'"{find}"' if find else ""
        self._filter = self._naming = naming(find)
        self._searched = ("", LineFilter())
        self._stretch = Stretch(self._book, self._filter)
        self._style = view.Style(sources=len(live.place.logs) > 1)
        self._following = at is None
        self._news: LogCounts | None = None
        self._count = LogCounts(self._book, self._filter, step_cells=COUNT_STEP)
        self._counted = self._filter
        self._tallies: dict[LineFilter, LogCounts] = {}
        self._uncounted = asyncio.Event()
        self._job: tuple[Job, float] | None = None
        self._turn = 0
        self._busy, self._late, self._stopping = False, False, False
        self.looked = False
        """Whether the logs were read once."""

    def compose(self) -> ComposeResult:
        """Title, what is shown, the lines, a line that speaks, hints."""
        yield TopLine(id="top-line")
        yield self._status
        yield self._lines
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Keys go to the lines; open the logs when it is known how many there is room for."""
        self._lines.focus()
        self.call_after_refresh(self._open_book)

    def _open_book(self) -> None:
        self.run_worker(self._follow(), name="follow", group="follow")
        self.run_worker(self._count_on(), name="count", group="count")

    async def on_unmount(self) -> None:
        """Let go of the logs."""
        await self._lane.close(0.0)

    @property
    def loaded(self) -> bool:
        """Whether the lines are those that were asked for."""
        return self.looked and not self._busy

    # Reading

    async def _follow(self) -> None:
        """Look again and again; nothing is painted more often than that."""
        try:
            await self._lane.run(self._book.look)
            self.looked = True
            self._uncounted.set()
            at = self._at
            self._begin(self._tail if at is None else lambda: self._to_time(at, self._line))
            while True:
                await asyncio.sleep(RESTING)
                while await self._lane.run(self._book.look) or self._late:
                    await self._grow()
                    await asyncio.sleep(FLOWING)
        except Unavailable:
            return  # the screen is being closed

    async def _grow(self) -> None:
        """Something has come: show it, or count it."""
        self._late = self._busy
        self._uncounted.set()
        try:
            if self._news is not None:
                await self._go_through(self._news)
            elif self._following and not self._busy:
                await self._follow_on()
        except OSError as error:
            self.say(f"a log cannot be read: {error.strerror or error}")
        self.paint()

    async def _follow_on(self) -> None:
        turn, stretch = self._turn, self._stretch
        scan = Scan(self._book, stretch.end, stretch.through, HELD, True, self._step_cells)
        await self._go_through(scan)
        if turn != self._turn:
            self._late = True  # the operator wants something else by now, and that comes first
            return
        if scan.exhausted:
            stretch.take_more(scan, True)
            self._show(len(stretch.entries) - 1)
        else:
            self._begin(self._tail)

    def _begin(self, work: Work) -> None:
        """Do this in place of what is being done."""
        self._turn += 1
        self._busy, turn = True, self._turn
        self._said = ("", "", 0.0)

        async def alone() -> None:
            try:
                await work()
            except OSError as error:
                self.say(f"a log cannot be read: {error.strerror or error}")
            except Unavailable:
                return  # the screen is being closed
            finally:
                if turn == self._turn:
                    self._busy, self._job = False, None
                    if self._stopping:
                        self.say("stopped: what was found so far is shown")
                    self._stopping = False
            self.paint()

        # Not a coroutine yet: one that is taken back before it began would be missed.
        self.run_worker(alone, name="log", exclusive=True, group="log")  # type: ignore[arg-type]

    async def _go_through(self, job: Job, partly: Callable[[], None] | None = None) -> bool:
        """Make the steps of something that may take long; answers whether it came to its end."""
        began = shown_at = time.monotonic()
        self._job = job, began
        while not job.done and not self._stopping:
            await self._lane.run(job.step)
            now = time.monotonic()
            if now - shown_at > LONG:
                shown_at = now
                if partly is not None:
                    partly()
                self._show_word()
        self._job = None
        return job.done

    async def _tail(self) -> None:
        stretch = Stretch(self._book, self._through())
        scan = self._scan(END, forward=False)

        def first() -> LogPosition:
            here = self._book.here()
            scan.step()
            return here

        here = await self._lane.run(first)

        def take() -> None:
            stretch.take_tail(scan, here)
            self._stretch = stretch
            self._show(len(stretch.entries) - 1, self._low)

        await self._go_through(scan, take)
        take()

    async def _head(self) -> None:
        await self._around(BEGIN, 0)

    async def _around(self, mark: LogPosition, line: int) -> None:
        """Show what lies on both sides of a place, what lies behind it on that line."""
        stretch = Stretch(self._book, self._through())
        after = self._scan(mark)
        before = self._scan(mark, forward=False)

        def take() -> None:
            stretch.take_around(before, after)
            self._stretch = stretch
            cursor = len(before.found)
            self._show(cursor - (cursor == len(stretch.entries)), line)

        await self._go_through(after, take)
        await self._go_through(before, take)
        take()

    async def _more(self, forward: bool) -> None:
        stretch = self._stretch
        mark = stretch.end if forward else stretch.start
        scan = self._scan(mark, forward)
        await self._go_through(scan)
        self._extend(stretch, scan, forward)

    def _extend(self, stretch: Stretch, scan: Scan, forward: bool) -> None:
        here = self._lines.here
        stretch.take_more(scan, forward)
        self._show(_place_of(here, stretch.entries, 0 if forward else len(stretch.entries) - 1))

    def _scan(
        self, mark: LogPosition, forward: bool = True, through: LineFilter | None = None
    ) -> Scan:
        page = PAGES * self._lines.page
        wanted = (self._through(), page) if through is None else (through, 1)
        return Scan(self._book, mark, *wanted, forward, self._step_cells)

    def _through(self) -> LineFilter:
        return self._filter._replace(level=self._level)

    async def _count_on(self) -> None:
        """Count all lines, a little at a time, whenever there is something to count."""
        try:
            while True:
                await self._uncounted.wait()
                self._uncounted.clear()
                while self._book.size <= COUNTED and not self._count.done:
                    await self._lane.run(self._count.step)
                    await asyncio.sleep(COUNT_PAUSE)
                self._paint_status()
        except (OSError, Unavailable):
            return  # what cannot be read is said where it is shown

    # Showing

    @property
    def _low(self) -> int:
        """The line of the screen on which the last line is put: there is room for what comes."""
        page = self._lines.page
        return page - max(1, page // 3)

    def _show(self, cursor: int, line: int | None = None, looking: bool = False) -> None:
        entries = self._stretch.entries
        if line is not None and len(entries) < self._lines.page:
            line = min(line, cursor)
        looking = looking or self._job is not None
        paths, troubles = self.live.place.logs, self._book.troubles
        notice = view.nothing(paths, self._standing(), looking, self.size.width, troubles)
        self._lines.show(entries, cursor, self._style, line, notice)
        self._paint_status()

    def lay_out(self, width: int) -> None:
        """What is shown, and how much of it."""
        self._paint_status()

    def _paint_status(self) -> None:
        if self.stands and self.size.width:
            line = view.status(self._standing(), self.size.width)
            self._status.show([line])

    def _standing(self) -> view.LogStatus:
        count = self._count
        whole = self.looked and self._book.size <= COUNTED and count.done
        kept, lines = count.kept, count.lines
        return view.LogStatus(
            self._following,
            self._news.kept if self._news else 0,
            self._level,
            self._words,
            kept,
            lines,
            whole,
            self._style.wrap,
            self._searched[0],
            self._book.size if self._book.size > COUNTED else 0,
        )

    def trail(self) -> tuple[str, ...]:
        """Where one is."""
        logs = len(self.live.place.logs)
        there = len({file.path for file in self._book.files}) if self.looked else logs
        files = f"{logs} files merged by time" if there == logs else f"{there} of {logs} files"
        roomy = logs > 1 and self.size.width >= 80
        return (self.live.place.name, f"log  {files}" if roomy else "log")

    def word(self) -> Line:
        """How far something is that takes long, or what cannot be read."""
        if self._job is not None and time.monotonic() - self._job[1] > LONG:
            job, began = self._job
            far = ProgressBar(job.read >> 10, max(job.read, job.total) >> 10)
            seconds = time.monotonic() - began
            stop: Line = (("  Esc stops", "key"),)
            if not far.total:  # by halving: there are no bytes to go through
                return ((" looking ...", ""), *stop)
            return (*bar(far, seconds, "KiB", self.size.width - 12), *stop)
        return view.troubles(self._book.troubles, self.size.width)

    def without(self) -> tuple[str, ...]:
        """What is of no use now."""
        return () if self._searched[0] else ("search_next", "search_previous")

    def copies(self) -> tuple[Copy, ...]:
        """The line under the cursor, and the tasks that it names."""
        here = self._lines.here
        if here is None:
            return ()
        text = shown(here.line.text)
        when = view.stamp(here.line.when, view.LogTimeFormat.DATE)
        found = view.ids_named_in(text)[:1]
        return (
            Copy("l", "line", f"{when}{here.line.level} {text}".strip()),
            *(Copy("i", "id", id) for id in found),
        )

    # Moving

    def action_move(self, how: str) -> None:
        """Move the cursor; to be anywhere but at the end is to pause."""
        if how == "last":
            self.action_follow()
        elif how == "first":
            self._pause()
            self._begin(self._head)
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
                self._begin(lambda: self._more(forward))
        elif left == 0 and forward and stretch.at_end and self._news and not self._busy:
            self._begin(lambda: self._more(forward))

    def _pause(self) -> None:
        if self._following:
            self._following = False
            self._news = LogCounts(self._book, self._through(), self._stretch.end)

    def action_follow(self) -> None:
        """Follow the end again, or stay here."""
        if self._following:
            self._pause()
            self._paint_status()
        else:
            self._following, self._news = True, None
            self._begin(self._tail)

    def action_open(self) -> None:
        """The task that the line speaks of."""
        here = self._lines.here
        if here is None:
            self.say("there is no line here")
        else:
            self._begin(lambda: self._open(here))

    async def _open(self, entry: FileEntry) -> None:
        names = view.ids_in(entry.line.text)
        for name in names:
            if await self.live.inspector.task(name) is not None:
                self.go(Target(keys.TASK, id=name))
                return
        named = view.ids_named_in(entry.line.text)
        gone = f"{named[0]} is not in the queue any more" if named else "this line names no task"
        self.say(gone)

    # What is shown

    def _reshow(self) -> None:
        """Another filter or level: the same line stays, if it is let through."""
        through, before = self._through(), self._stretch
        # What was counted for a filter that comes back, as by Esc, is not counted again.
        self._tallies[self._counted] = self._count
        self._counted = through
        known = through in self._tallies
        fresh = LogCounts(self._book, through, step_cells=COUNT_STEP)
        self._count = self._tallies.pop(through) if known else fresh
        while len(self._tallies) > TALLIES:
            del self._tallies[next(iter(self._tallies))]
        self._uncounted.set()
        if self._news is not None:
            self._news = LogCounts(self._book, through, self._news.since)
        here, line = self._lines.here, max(0, self._lines.line_of_cursor)
        if self._following or here is None:
            self._begin(self._tail)
        else:
            self._begin(lambda: self._around(LogPosition(here.key), line))
        # Until more is found: of the lines on screen those that the new filter lets through.
        self._stretch = before.only(through)
        entries = self._stretch.entries
        self._show(_place_of(here, entries, len(entries) - 1), looking=True)

    def action_level_up(self) -> None:
        """Only graver lines."""
        self._to_level(self._level + 1)

    def action_level_down(self) -> None:
        """Less grave ones, too."""
        self._to_level(self._level - 1)

    def _to_level(self, level: int) -> None:
        if not DEBUG <= level <= ERROR:
            self.say("all lines are shown" if level < DEBUG else "only errors are shown already")
            return
        self._level = level
        self._reshow()

    def action_only(self) -> None:
        """Type what lines are to hold."""

        def take(words: str | None) -> None:
            if words:
                self._only(words)

        title = "show only lines with (words, a|b, !not, ~pattern)"
        self.app.push_screen(AskScreen(title, self._words, _wrong_words), take)

    def _only(self, words: str) -> None:
        self._words = words
        self._filter = self._naming if words == self._named else sieve(words)
        self._reshow()

    def action_back(self) -> None:
        """Stop what takes long, else show all lines again, else close the log."""
        if self._job is not None and self._busy and not self._stopping:
            self._stopping = True
        elif self._words and self._filter is not self._naming:
            self._words, self._filter = "", LineFilter()
            self._reshow()
        else:
            self.dismiss()

    def action_wrap(self) -> None:
        """Long lines in full, or cut."""
        self._restyle(self._style._replace(wrap=not self._style.wrap))

    def action_stamps(self) -> None:
        """Times with their date, or none."""
        self._restyle(self._style._replace(stamps=self._style.stamps.next))

    def _restyle(self, style: view.Style) -> None:
        self._style = style
        self._show(self._lines.cursor)

    # Searching

    def action_search(self) -> None:
        """Type what to look for."""

        def take(words: str | None) -> None:
            if words:
                self._searched = (words, sieve(words))
                self.show_hints()
                self._seek(True, self._searched[1], words, from_here=True)

        title = "look for (words, a|b, !not, ~pattern); n the next, N the one before"
        self.app.push_screen(AskScreen(title, self._searched[0], _wrong_words), take)

    def action_search_next(self) -> None:
        """The next line found."""
        self._seek_again(True)

    def action_search_previous(self) -> None:
        """The line found before."""
        self._seek_again(False)

    def _seek_again(self, forward: bool) -> None:
        if self._searched[0]:
            self._seek(forward, self._searched[1], self._searched[0])
        else:
            self.say("nothing was searched for yet: / searches")

    def action_next_error(self) -> None:
        """The next error; while the end is followed, the last one."""
        self._seek(not self._following, LineFilter(ERROR), "an error")

    def _seek(self, forward: bool, what: LineFilter, words: str, from_here: bool = False) -> None:
        here = self._lines.here
        if here is None:
            self.say("there is no line to search from")
            return
        self._pause()
        time_, file, at = here.key
        beyond = forward and not from_here
        mark = LogPosition((time_, file, here.end if beyond else at))
        self._begin(lambda: self._find_next(mark, forward, what, words))

    async def _find_next(
        self, mark: LogPosition, forward: bool, what: LineFilter, words: str
    ) -> None:
        scan = self._scan(mark, forward, self._through().with_words(what))
        finished = await self._go_through(scan)
        if not finished:
            return
        if not scan.found:
            where = "down to the end" if forward else "up to the beginning"
            back = "N looks back" if forward else "n looks on"
            self.say(f"{words}: not found from here {where}; {back}")
            return
        found = scan.found[0]
        at = _place_of(found, self._stretch.entries, -1)
        if at >= 0:
            self._show(at)
        else:
            await self._around(LogPosition(found.key), self._lines.page // 3)

    def action_goto_time(self) -> None:
        """Type a time to go to."""
        now = self.around.clock()

        def wrong(text: str) -> str:
            try:
                moment(text, now)
            except ValueError as error:
                return str(error)
            return ""

        def take(text: str | None) -> None:
            if text:
                self._begin(lambda: self._to_time(moment(text, now)))

        self.app.push_screen(AskScreen("go to a time", "", wrong), take)

    async def _to_time(self, when: float, line: str = "") -> None:
        self._pause()
        seek = Seek(self._book, when, self._step_cells)
        if not await self._go_through(seek):
            return
        mark, found = seek.mark, False
        if line:
            scan = self._scan(mark, through=literally(line))
            await self._go_through(scan)
            found = bool(scan.found)
            mark = LogPosition(scan.found[0].key) if found else mark
        await self._around(mark, self._lines.page // 3)
        here = self._lines.here
        if found:
            self.say("the log line of this error", "")
        elif here is None or here.key[0] < when:
            self.say(f"nothing was logged since {_said(when)}; this is the last line before")
        else:
            self.say(f"the first line since {_said(when)}", "")


def _said(when: float) -> str:
    return view.stamp(when, view.LogTimeFormat.DATE).strip()


def _wrong_words(text: str) -> str:
    try:
        sieve(text)
    except BadWords as error:
        return f"{error} at {error.at + 1}"
    return ""


def _place_of(entry: FileEntry | None, entries: list[FileEntry], otherwise: int) -> int:
    """Where a line stands among others, whatever its time came to be."""
    if entry is None:
        return otherwise
    return next((n for n, e in enumerate(entries) if e.key[1:] == entry.key[1:]), otherwise)
