"""The log screen: the logs of a place merged by time, with follow, filter, search, and open
task.

It shows its parts (`tui.log.parts`), and passes keys to their rows (`tui.log.keys`).
"""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult

from engine.text.safe import safe_line
from tui.log import actions, painters
from tui.log import log_lines as view
from tui.log.histogram import LogHistogram
from tui.log.keys import ROWS
from tui.log.log_widget import LogLines
from tui.log.parts import Change, LogParts
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import EdgeLines
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.screens.list_panes import frame_panes
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import frame_border
from tui.widgets.line_widgets import Lines


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
        """`find` shows only lines that mention a task; `at` (epoch seconds UTC) starts at that
        time, on the first matching `line`.
        """
        super().__init__()
        self.parts = parts = LogParts(session, context, self, find, is_following=at is None)
        self._first_job = (
            parts.reader.read_tail if at is None else partial(actions.show_time, parts, at, line)
        )
        self.status, self.lines = Lines(id="status"), LogLines(parts.page)
        self.bars, self.edges = LogHistogram(parts.reader.book), EdgeLines()

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

    async def on_unmount(self) -> None:
        await self.parts.reader.close()

    async def _count(self) -> Change:
        """Count all lines and the histogram in the background."""
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

    # Painting

    def on_resize(self) -> None:
        frame_panes(self, frame_border(*self.size))

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
            self.lines.show_frame(painters.files_frame(parts), focused=True)
            self.status.show([view.status_line(parts.status, width)])
            self.bars.paint(parts.page.selected_entry, self.size)
            if parts.line_task.select(parts.page.selected_entry):
                self.run("line task", parts.look_up_task)
            self.edges.top.update_line(parts.context, (parts.session.name, "log"))
        self.edges.show_message(parts.message, partial(painters.message_line, parts, width), width)
        self.edges.show_hints(hints_of(ROWS, parts), width)
