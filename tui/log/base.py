"""The reading and painting part of the log screen: follows the logs and shows the lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

from textual.app import ComposeResult

from engine.logs.log_filter import DEBUG, LineFilter, lines_naming_task
from engine.logs.merged_log import NO_LOG_FILE, STEP_CELLS
from engine.store import Unavailable
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from tui.log import log_lines as view
from tui.log.counter import LogCounter
from tui.log.histogram import LogHistogram
from tui.log.line_task import LineTask
from tui.log.log_widget import LogLines
from tui.log.reader import LogReader
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.figures import format_count
from tui.text.lines import Line, cells_of, fit_text_end
from tui.widgets.line_widgets import Frame, Lines

LogJob: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
"""A coroutine function that replaces the running one."""

IDLE_READ_SECONDS, BUSY_READ_SECONDS = 1.0, 0.25
"""Seconds between two reads of the logs: without and with new lines."""


class LogBase(ListScreen):
    """Shows the window of a reader, and keeps it up to date."""

    KIND = keys.LOG

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        find: str,
        step_cells: int = STEP_CELLS,
    ) -> None:
        """`find` shows only lines that mention a task."""
        super().__init__(session, context)
        logs = session.place.logs
        # Attributes, not queries: tasks that end after the screen closed still find them.
        self.status, self.lines = Lines(id="status"), LogLines(id="lines")
        self.level = DEBUG
        self.words = self.named = f'"{find}"' if find else ""
        self.filter = self.naming = lines_naming_task(find)
        self.searched: tuple[str, LineFilter] = ("", LineFilter())
        self.reader = LogReader(
            logs, self.filter, self.show_lines, self._show_message_line, step_cells
        )
        self.counter = LogCounter(self.reader.book, self.filter)
        self.bars = LogHistogram(self.reader.book)
        self.line_task = LineTask(session)
        self.style = view.LogStyle(sources=view.source_cells(logs))
        self.is_following = True
        self.is_busy = False
        self.was_read = False
        """True if the logs were read once."""
        self._is_late = False
        self._turn = 0

    def compose(self) -> ComposeResult:
        """Path, status, lines, histogram, message line, hints."""
        yield TopLine(id="top-line")
        yield self.status
        yield self.lines
        yield self.bars
        yield Lines(id="word")
        yield Lines(id="hints")

    async def on_unmount(self) -> None:
        """Close the logs."""
        await self.reader.close()

    @property
    def loaded(self) -> bool:
        """True if the lines on screen are those last requested."""
        return self.was_read and not self.is_busy

    # Reading

    async def follow_logs(self, first: LogJob) -> None:
        """Run a job, then read new lines in a loop; repaint at most as often."""
        reader = self.reader
        try:
            await reader.call(reader.book.refresh)
            self.was_read, reader.page = True, self.lines.page
            self.counter.uncounted.set()
            self.start_job(first)
            while True:
                await asyncio.sleep(IDLE_READ_SECONDS)
                while await reader.call(reader.book.refresh) or self._is_late:
                    await self._take_new_lines()
                    await asyncio.sleep(BUSY_READ_SECONDS)
        except Unavailable:
            return  # the screen is closing

    async def count_lines(self) -> None:
        """Count all lines and the histogram in the background."""
        try:
            while True:
                await self.counter.count(self.reader)
                entries = self.reader.window.entries[-1:]
                self.bars.set_period(self.context.clock(), entries, self.lines.selected_entry)
                await self.bars.count(self.reader)
                self.paint_status()
        except (OSError, Unavailable):
            return  # read errors are shown with the lines

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
        self.paint()

    def start_job(self, work: LogJob) -> None:
        """Run this and cancel what is running."""
        self._turn += 1
        self.is_busy, turn = True, self._turn
        self._clear_message()

        async def alone() -> None:
            try:
                await work()
            except OSError as error:
                self.say(f"log not readable: {error_text(error)}")
            except Unavailable:
                return  # the screen is closing
            finally:
                if turn == self._turn:
                    self.is_busy, self.reader.job = False, None
                    if self.reader.is_stopping:
                        self.say("stopped: showing the results so far")
                    self.reader.is_stopping = False
            self.counter.uncounted.set()  # the histogram ends at a line that was read now
            self.paint()

        # A function, not a coroutine: Textual would warn about one cancelled before its first step.
        self.run_worker(alone, name="log", exclusive=True, group="log")  # type: ignore[arg-type]

    # Painting

    def show_lines(self, cursor: int, line: int | None = None, is_searching: bool = False) -> None:
        """Show the window with the cursor on an entry, on a screen line; None: the same lines."""
        entries, reader = self.reader.window.entries, self.reader
        if line is not None and len(entries) < reader.page:
            line = min(line, cursor)
        is_searching = is_searching or reader.job is not None
        troubles, width = reader.book.troubles, self.lines.size.width
        notice = view.empty_lines(
            self.session.place.logs, self.log_status(), is_searching, width, troubles
        )
        self.style = self.style.with_columns_for(entries)
        self.lines.show(entries, cursor, self.style, line, notice)
        self.paint_status()

    def lay_out(self, width: int) -> None:
        """Repaint all that is not a line."""
        frame = files_frame(self.session.place.logs, self.reader.book.troubles)
        self.lines.show_frame(frame, focused=True)
        self.paint_status()
        reader = self.reader
        if self.loaded and len(self.lines.entries) < reader.page and not reader.window.at_start:
            # The screen got higher.
            lines, tail = self.lines, reader.read_tail
            is_tail = self.is_following
            self.start_job(
                tail if is_tail else lambda: reader.read_more(False, lambda: lines.selected_entry)
            )

    def paint_status(self) -> None:
        """Repaint the status line, the histogram and the line above the hints."""
        if not (self.is_paintable and self.size.width):
            return
        self.reader.page = self.lines.page
        self.status.show([view.status_line(self.log_status(), self.size.width)])
        if self.line_task.select(self.lines.selected_entry):
            self.run_worker(self._look_up_task(), exclusive=True, group="line task")
        self.bars.paint(self.lines.selected_entry, self.size)
        self._show_message_line()

    async def _look_up_task(self) -> None:
        await self.line_task.look_up()
        self._show_message_line()

    def log_status(self) -> view.LogStatus:
        """What the status line shows."""
        counter, size = self.counter, self.reader.book.size
        return view.LogStatus(
            self.is_following,
            counter.news.matching if counter.news else 0,
            self.level,
            words=self.words,
            matching=counter.counts.matching,
            lines=counter.counts.lines,
            counted=self.was_read and counter.is_complete,
            wrap=self.style.wrap,
            search_text=self.searched[0],
            uncounted_bytes=0 if counter.is_countable else size,
        )

    def trail(self) -> tuple[str, ...]:
        """The place and the screen."""
        return (self.session.name, "log")


def files_frame(paths: Sequence[str], troubles: Mapping[str, str]) -> Frame:
    """The frame of the lines: how many logs there are, and their names."""
    missing = [path for path in paths if troubles.get(path) == NO_LOG_FILE]
    amount = format_count(len(paths), "file")
    if missing:
        amount = f"{len(paths) - len(missing)} of {amount}"
    names = [f"{'no ' if path in missing else ''}{PurePath(path).name}" for path in paths]
    text = safe_line(", ".join(names))
    right: Line = ((fit_text_end(text, min(40, cells_of(text))), "muted"),)
    return Frame("Log", "7", amount, right)
