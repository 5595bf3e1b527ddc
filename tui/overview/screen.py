"""The overview screen: alerts, one line per place, ages, forecast, tokens, transports, warnings.

It shows its parts (`tui.overview.parts`) in its panes, reads for them, and passes keys to their
rows (`tui.overview.keys`).
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widget import Widget

from engine.model import Edges
from engine.store import Unavailable
from tui.overview import alert_lines, division, painters, snapshot
from tui.overview import place_lines as view
from tui.overview.keys import ROWS, back, focus, is_scanning, move
from tui.overview.panes import OverviewPanes
from tui.overview.parts import QUEUES, Change, OverviewParts
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import EdgeLines
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.widgets.background import run_in_background

if TYPE_CHECKING:
    from tui.text.export import ExportTable, RowSink

UNCHANGED_PAINT_SECONDS = 5.0
"""Seconds between two paints of the panes while nothing changes but the time: then only graphs
move, by less than a cell."""


class OverviewScreen(KeyedScreen):
    """The first screen of the console."""

    KIND = keys.OVERVIEW
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: OverviewParts
    pane_border = staticmethod(division.pane_border)

    def __init__(self, sessions: Sequence[PlaceSession], context: ConsoleContext) -> None:
        super().__init__()
        self.panes, self.edges = OverviewPanes(sessions), EdgeLines()
        self.parts = OverviewParts(sessions, context, self, self.panes.focusable, self.panes.ages)
        self._painted_values: object = None
        self._paint_due = 0.0
        """When the panes are painted even if nothing has changed, by the event loop's clock."""

    def verb_help(self) -> tuple[Mapping[str, str], Edges]:
        return {}, {}  # the keys of the help are those of several places

    def compose(self) -> ComposeResult:
        yield self.edges.top
        yield from self.panes.compose()
        yield self.edges.message
        yield self.edges.hints

    def on_mount(self) -> None:
        self.parts.focus.activate(QUEUES)
        run_in_background(self, self._read_in_turn, name="ages")
        for session in self.parts.sessions:
            run_in_background(
                self, partial(self._follow_first_scan, session), name=f"first look {session.number}"
            )

    async def _follow_first_scan(self, session: PlaceSession) -> None:
        change = session.inspector.latest
        while not change.is_complete:
            try:
                change = await session.inspector.wait_for_change(change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self.parts.reads.read_due.set()
            self.paint()

    async def _read_in_turn(self) -> None:
        """Read the place under the cursor, those with an alert of dead tasks, which has their
        clusters, and on a wall all places, when a read is due."""
        parts = self.parts
        while True:
            selected, is_wall = parts.selected, self.panes.frame.is_wall
            others = [n for n in parts.sessions if is_wall or alert_lines.has_dead_alert(n.alerts)]
            for session in (selected, *others):
                frame, is_live = self.panes.frame, parts.freeze.time is None
                if self.is_current and frame.ages and is_live and parts.reads.is_due(session):
                    is_shown_wide = frame.is_wide and (is_wall or session is selected)
                    graph = parts.graph if is_shown_wide else None
                    await parts.reads.read(session, graph, lambda: parts.freeze.time is None)
                    self.tick()
            await parts.reads.wait()

    @property
    def frozen_time(self) -> float | None:
        """The time that it shows while frozen, in epoch seconds UTC; None if it is live."""
        frozen = self.parts.freeze.time
        return None if frozen is None else frozen.at

    def tick(self) -> None:
        """Paint the panes only if they may have changed: with many places that takes most of the
        time of a console that is idle."""
        if not (self.is_current and self.is_paintable) or self.parts.context.skips_repaint():
            return
        now = asyncio.get_running_loop().time()
        values = painters.steady_values(self.parts, self.panes.frame)
        if values is None or values != self._painted_values or now >= self._paint_due:
            self._painted_values, self._paint_due = values, now + UNCHANGED_PAINT_SECONDS
            self.paint()
        else:
            self._paint_edges()

    # What the app and the widgets ask for

    def action_move(self, how: str) -> None:
        move(self.parts, how)

    def focus_pane(self, widget: Widget) -> None:
        """Focus a pane that the operator clicked, if it has rows."""
        if widget.id in self.panes.focusable:
            self.show_change(focus(self.parts, widget.id))

    def on_picker_cursor_moved(self) -> None:
        self.parts.reads.read_due.set()
        self.paint()

    def on_age_table_cell_changed(self) -> None:
        self.show_change(Change.EDGES)

    def on_resize(self) -> None:
        """What each pane needs depends on its width."""
        self.panes.needed.clear()

    def cancels(self) -> bool:
        """Return to live or stop a scan; with nothing to cancel, True the second time."""
        if self.parts.freeze.time is not None or is_scanning(self.parts):
            self.show_change(back(self.parts))
            return False
        return self.quits()

    def copies(self) -> tuple[Copy, ...]:
        parts, now = self.parts, self.parts.freeze.shown_at
        session, alert = parts.selected, parts.alert
        queue = parts.freeze.snapshot_of(session, view.SPARKLINE_CELLS).queue
        _, (line,) = view.place_table([queue], now, 100)
        texts = [Copy("a", "alert", alert_lines.alert_text(alert, now))] if alert else []
        names = [n.place.name for n in parts.sessions]
        command = shlex.join(["spooldeck", "overview", *parts.freeze.at_words, *names])
        return (
            Copy("i", "place", session.place.name),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            *texts,
            Copy("c", "command", command),
        )

    def export_table(self) -> ExportTable | None:
        from tui.text.export import ExportTable

        freeze, now, real = self.parts.freeze, self.parts.freeze.shown_at, self.parts.clock()
        moments = [freeze.snapshot_of(one, view.SPARKLINE_CELLS) for one in self.parts.sessions]
        values = [view.place_values(moment.queue, now) for moment in moments]
        if freeze.time is not None:
            past = [snapshot.recorded_values(moment, now, real) for moment in moments]
            values = [row | more for row, more in zip(values, past, strict=True)]

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        return ExportTable("overview", tuple(values[0]), hand)

    # Painting

    def show_change(self, change: Change) -> None:
        if Change.PANES in change:
            self.paint()
        elif change:
            self._paint_edges()

    def paint(self) -> None:
        if self.is_paintable and self.size.width:
            before = self.parts.cursor_row
            self.panes.paint(self.parts, self)
            self.parts.note_row(before)
            self.parts.report_recording()
            self._paint_edges()

    def _paint_edges(self) -> None:
        if self.is_paintable and self.size.width:
            parts, edges, width = self.parts, self.edges, self.size.width
            edges.top.update_line(painters.top_context(parts), ())
            edges.show_message(parts.message, partial(painters.next_step, parts, width), width)
            edges.show_hints(painters.hints(parts), width, max(1, self.panes.frame.hints))
