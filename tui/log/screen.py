"""The log screen: the logs of a place merged by time, with follow, filter, search, and open
task.

It shows its parts (`tui.log.parts`), and passes keys to their rows (`tui.log.actions`)."""

from __future__ import annotations

from functools import partial
from pathlib import PurePath

from textual.app import ComposeResult

from engine.logs.log_filter import DEBUG
from engine.logs.rotated_log import NO_LOG_FILE
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.log import actions
from tui.log import log_lines as view
from tui.log.actions import ROWS
from tui.log.parts import Change, LogParts
from tui.log.reader import SHOW_PROGRESS_SECONDS
from tui.log.widgets import LogHistogram, LogLines
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import EdgeLines
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, cells_of, fit_text_end, join_ends, width_of
from tui.text.progress_bar import ProgressBar, bar_line
from tui.text.task_list import short_id
from tui.widgets.line_widgets import Lines


def files_frame(parts: LogParts) -> Frame:
    """The frame of the lines: how many logs there are, and their names."""
    paths, troubles = parts.logs, parts.reader.book.troubles
    missing = [path for path in paths if troubles.get(path) == NO_LOG_FILE]
    amount = format_count(len(paths), "file")
    if missing:
        amount = f"{len(paths) - len(missing)} of {amount}"
    # A missing one last: in "no a, b" both would seem to be missing.
    names = [PurePath(path).name for path in paths if path not in missing]
    names += [f"no {PurePath(path).name}" for path in missing]
    text = safe_line(", ".join(names))
    right: Line = ((fit_text_end(text, min(40, cells_of(text))), "muted"),)
    return Frame("Log", "7", amount, right)


def message_line(parts: LogParts, width: int) -> Line:
    """Progress of a long read; read errors; otherwise the next step."""
    reader = parts.reader
    if reader.job is not None and reader.job_seconds > SHOW_PROGRESS_SECONDS:
        job = reader.job[0]
        progress = ProgressBar(job.read >> 10, max(job.read, job.total) >> 10)
        stop: Line = (("  Esc", "key"), (" stops", ""))
        if not progress.total:  # a binary search has no byte count
            return ((" searching ...", ""), *stop)
        return (*bar_line(progress, reader.job_seconds, "KiB", width - 12), *stop)
    return view.trouble_line(reader.book.troubles, width) or next_step(parts, width)


def next_step(parts: LogParts, width: int) -> Line:
    """What a key does with the line under the cursor, and the time of that line."""
    selected, task, new = parts.page.selected_entry, parts.line_task, parts.new_lines
    key, does = "f", f"shows {new:,} new" if new else "follows new lines"
    if selected is None:
        key = "Esc"
        does = "shows all lines" if parts.words else "goes back; new lines appear here"
        if parts.level > DEBUG and not parts.words:
            key, does = "-", "shows lines of lower levels"
    elif task.is_gone:
        key, does = "t", f"shows all lines of {short_id(task.id)} (task is gone)"
    elif task.id:
        state = task.describe()
        key, does = "Enter", f"opens task {short_id(task.id)}{': ' if state else ''}{state}"
    elif parts.is_following:
        key, does = "e", "goes to the last error"
    if selected is None or selected.line.when is None:
        return next_line(key, does, "", width)
    milliseconds = parts.style.has_milliseconds
    at = view.format_stamp(selected.line.when, view.LogTimeFormat.TIME, milliseconds)
    right: Line = (("at ", "muted"), (f"{at} ", "strong"))
    return join_ends(next_line(key, does, "", width - width_of(right) - 1), right, width)


class LogScreen(KeyedScreen):
    """All logs of a place as one."""

    KIND = keys.LOG
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: LogParts

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        *,
        find: str = "",
        at: float | None = None,
        line: str = "",
    ) -> None:
        """`find`: only lines that mention a task; `at` (epoch seconds UTC), `line`: its start."""
        super().__init__()
        self.parts = parts = LogParts(session, context, self, find, is_following=at is None)
        self._first_job = (
            parts.reader.read_tail if at is None else partial(actions.show_time, parts, at, line)
        )
        self.status, self.lines = Lines(id="status"), LogLines(parts.page)
        self.bars, self.edges = LogHistogram(parts.reader.book), EdgeLines()

    @property
    def loaded(self) -> bool:
        """False until the first lines are read: keys wait for a line to search from."""
        return bool(self.parts.page.entries) or self.parts.is_loaded

    def compose(self) -> ComposeResult:
        yield self.edges.top
        yield self.status
        yield self.lines
        yield self.bars
        yield self.edges.message
        yield self.edges.hints

    def on_mount(self) -> None:
        self.lines.focus()
        self.call_after_refresh(self.run, "follow", partial(self.parts.follow, self._first_job))
        self.call_after_refresh(self.run, "count", self._count)
        self.call_after_refresh(self.run, "fetch", self.parts.fetch)

    async def on_unmount(self) -> None:
        await self.parts.reader.close()

    async def _count(self) -> Change:
        parts, reader = self.parts, self.parts.reader
        try:
            while True:
                await parts.counter.count(reader)
                last, selected = reader.window.entries[-1:], parts.page.selected_entry
                self.bars.set_period(parts.context.clock(), last, selected)
                await self.bars.count(reader)
                self.show_change(Change.STATUS)
        except OSError:
            return Change.NOTHING  # read errors are shown with the lines

    def action_move(self, how: str) -> None:
        self.show_change(actions.move(self.parts, how))

    def copies(self) -> tuple[Copy, ...]:
        selected = self.parts.page.selected_entry
        if selected is None:
            return ()
        text = safe_line(selected.line.text)
        when = view.format_stamp(selected.line.when, view.LogTimeFormat.DATE)
        ids = view.labelled_ids(text)[:1]
        return (
            Copy("l", "line", f"{when} {selected.line.level} {text}".strip()),
            *(Copy("i", "id", id) for id in ids),
        )

    def paint(self) -> None:
        """Repaint all but the lines, which change by themselves."""
        self.show_change(Change.STATUS)
        if self.is_paintable and self.size.width:
            self.parts.fill_page()

    def show_change(self, change: Change) -> None:
        if not change or not self.is_paintable or not self.size.width:
            return
        parts, width = self.parts, self.size.width
        if Change.LINES in change:
            self.lines.paint()
        if change & (Change.LINES | Change.STATUS):
            self.lines.show_frame(files_frame(parts), focused=True)
            self.status.show([view.status_line(parts.status, width)])
            self.bars.paint(parts.page.selected_entry, self.size)
            if parts.line_task.select(parts.page.selected_entry):
                self.run("line task", parts.look_up_task)
            self.edges.top.update_line(parts.context, (parts.session.name, "log"))
        self.edges.show_message(parts.message, partial(message_line, parts, width), width)
        self.edges.show_hints(hints_of(ROWS, parts), width)
