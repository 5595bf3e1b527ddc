"""What goes on at a place, below the rows of a screen that do not need all lines: its graph and the
end of its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.widget import Widget

from engine.logs.log_line import LogLine
from engine.override import override
from tui.screens.graph_pane import MIN_GRAPH_LINES, GraphPane
from tui.session.place_session import PlaceSession
from tui.text.frames import BOX, Frame, frame_border
from tui.text.lines import Line
from tui.text.log_line import log_line, shorten_ids
from tui.widgets.divided import AnyWidget, DividedBox, stacked
from tui.widgets.line_widgets import Lines

SIDE_BY_SIDE_COLUMNS = 160
"""Width in cells from which the graph is beside the log."""

MIN_LOG_LINES = 3
"""Lines of the log that are worth a frame."""

MOST_BLANK_LINES = 4
"""Lines of a pane that may be blank before another one gets them."""


class LogPane(Lines):
    """The last log lines of a place that fit."""

    _painted: tuple[object, ...] = ()

    def show_log(self, session: PlaceSession) -> None:
        """Show the newest lines."""
        right: Line = ((" FOLLOW ", "chip"),)
        self.show_frame(Frame(f"Log of {session.name}", "7", right=right))
        log, (width, height) = session.readings.log, self.size
        painted = log, session.name, self.size
        if not height or painted == self._painted:
            return  # unchanged, as in most calls: this runs every second
        self._painted = painted
        rows = [
            log_line(line.when, line.level, shorten_ids(line.text), width) for line in log[-height:]
        ]
        is_elsewhere = session.place.log_copy is not None
        why = "on the server's host: 7 copies its end" if is_elsewhere else session.no_log
        nothing: Line = ((f" {why or 'no log lines yet'}", "muted"),)
        self.show(rows or [nothing])


class PlaceFoot:
    """The graph and the log of one place."""

    def __init__(self, *, graph_first: bool = False) -> None:
        """`graph_first`: without room for both the graph is shown, not the log."""
        self.graph, self.log = Lines(id="graph", classes="pane"), LogPane(id="log")
        self.log.add_class("pane", update=False)  # styled when mounted
        self._graph_first, self.course = graph_first, GraphPane()

    @property
    def panes(self) -> tuple[Widget, ...]:
        """The panes, to be composed."""
        return self.graph, self.log

    def regions(
        self, room: Region, size: Size, log: Sequence[LogLine], *, has_graph: bool = True
    ) -> dict[Widget, Region]:
        """The regions of the panes in the lines left of a screen of that size. The log gets no
        more lines than it has: the graph can fill any number."""
        border = frame_border(*size)
        least, needed = border + MIN_GRAPH_LINES, border + max(1, len(log))
        if room.height < border + MIN_LOG_LINES:
            return {}
        has_graph = has_graph and (self._graph_first or border == BOX or not log)
        if not has_graph or room.height < least:
            return {self.log: room} if log else {}
        if room.width >= SIDE_BY_SIDE_COLUMNS and needed >= room.height:
            graph, rest = room.split_vertical(room.width // 2)
            return {self.graph: graph, self.log: rest}
        height = room.height - needed
        if self._graph_first:
            height = max(height, room.height * 2 // 3)
        if height <= MOST_BLANK_LINES:
            return {self.log: room}
        height = max(least, height)
        if room.height - height < border + 1:
            return {self.graph if self._graph_first or not log else self.log: room}
        graph, rest = room.split_horizontal(height)
        return {self.graph: graph, self.log: rest}

    def paint(self, session: PlaceSession) -> None:
        """Show the place in the panes that have a size."""
        if self.graph.display and (width := self.graph.size.width):
            self.course.show(self.graph, session, session.clock(), width)
        if self.log.display:
            self.log.show_log(session)


class PlaceBox(DividedBox):
    """Panes below each other, and the place in the lines that they leave."""

    def __init__(self, *panes: Widget, graph_first: bool = False, id: str = "body") -> None:
        super().__init__(id=id)
        self._panes, self.foot = panes, PlaceFoot(graph_first=graph_first)

    @override
    def compose(self) -> ComposeResult:
        yield from self._panes
        yield from self.foot.panes

    def stack(
        self,
        needed: Mapping[AnyWidget, int],
        filler: AnyWidget,
        session: PlaceSession,
        *,
        fixed: int,
        has_graph: bool = True,
    ) -> None:
        """Give each pane the lines that it needs of a screen with so many `fixed` lines, and the
        place those that are left; without room for it the filler has them (`stacked`)."""
        size = self.screen.size
        room = Region(0, 0, size.width, max(0, size.height - fixed))
        upper, lower = room.split_horizontal(min(sum(needed.values()), room.height))
        foot = self.foot.regions(lower, size, session.readings.log, has_graph=has_graph)
        self.place(stacked(upper if foot else room, needed, filler) | foot)
        self.call_after_refresh(self.paint_place, session)

    def paint_place(self, session: PlaceSession) -> None:
        """Show the place, once its panes have their sizes."""
        if self.is_attached:
            self.foot.paint(session)
