"""The graph of one place: its course live, as recorded, or up to a frozen time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from engine.model import State
from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import UnreadableRecording
from engine.monitor.throughput import HISTORY_SECONDS, FlowSeries
from engine.store import Unavailable
from tui.session.place_session import PlaceSession
from tui.text.frames import Frame
from tui.text.graphs import (
    AXIS_CELLS,
    LAST_OF_LINES,
    RANGES,
    UNKNOWN_FLOW,
    LatestFlow,
    flow_graph,
    graph_steps,
    time_axis,
)
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines

GRAPH_LINES, MIN_GRAPH_LINES = 11, 6
"""Lines that the graph has if there is room, and at least."""

GRAPH_READ_SECONDS = 10.0
"""Seconds between two reads of a recorded course."""


def latest_flow(session: PlaceSession, now: float) -> LatestFlow:
    """The figures that all tables and graphs print; until the first scan, those of the lines."""
    latest = session.inspector.latest
    if latest.unavailable:
        return UNKNOWN_FLOW
    if not latest.is_complete:
        return LAST_OF_LINES
    waiting = latest.counts.get(State.PENDING, 0)
    return LatestFlow(session.flow.rates(now), session.flow.died(now), waiting)


class GraphPane:
    """The range of the graph, and what was read of the recordings for it."""

    def __init__(self) -> None:
        self.range = "10m"
        """Name of the range (`RANGES`)."""
        self.width = 0
        """Cells of the graph, as last drawn."""
        self._courses: dict[tuple[int, str], FlowSeries] = {}

    @property
    def seconds(self) -> float:
        """Length of the range in seconds."""
        return RANGES[self.range]

    def next_range(self) -> None:
        """Go to the next range."""
        names = [*RANGES]
        self.range = names[(names.index(self.range) + 1) % len(names)]

    def show(self, part: Lines, session: PlaceSession, now: float, width: int) -> None:
        """Show the live graph of a place in a pane, with its frame."""
        part.show(self.lines(session, now, width, max(MIN_GRAPH_LINES, part.size.height)))
        axis = time_axis(now, self.seconds, width - AXIS_CELLS)
        part.show_frame(Frame(f"{session.name}, last {self.range}", bottom=axis))

    async def read(self, session: PlaceSession, now: float) -> None:
        """Read the recorded course of a place, if the range is longer than what is in memory.
        Raises Unavailable: the place was closed."""
        if self.seconds <= HISTORY_SECONDS or session.place.recording is None or not self.width:
            return
        name, steps = self.range, graph_steps(self.width)
        with suppress(UnreadableRecording):  # then the graph is blank
            history = await session.recorded_history(now - self.seconds, now, session.sample())
            course = await asyncio.to_thread(history.series, now, RANGES[name], steps)
            self._courses[session.number, name] = course

    async def follow(
        self, place: Callable[[], PlaceSession | None], paint: Callable[[], None]
    ) -> None:
        """Paint the range; read the recorded course while it is longer than what is in memory.
        `place` returns the place on screen, None if there is none."""
        while (session := place()) is not None:
            paint()
            if self.seconds <= HISTORY_SECONDS:
                return  # as in memory: the screen paints it later
            try:
                await self.read(session, session.clock())
            except Unavailable:
                return  # closed: the console is being left
            paint()
            await asyncio.sleep(GRAPH_READ_SECONDS)

    def lines(
        self,
        session: PlaceSession,
        now: float,
        width: int,
        height: int,
        past: RecordedHistory | None = None,
        *,
        latest: LatestFlow | None = None,
    ) -> tuple[Line, ...]:
        """The graph in `height` lines, up to `now`; `past` is the history of a frozen time. It
        prints the figures that the tables show: `latest`, those of the place by default."""
        self.width, steps = width, graph_steps(width)
        if past is not None:
            course = past.series(now, self.seconds, steps)
        elif self.seconds <= HISTORY_SECONDS:
            course = session.flow.series(now, self.seconds, steps)
        else:
            course = self._courses.get((session.number, self.range), FlowSeries())
        if len(course.backlog) != steps:
            blank = (None,) * steps
            course = FlowSeries(blank, blank, blank, blank)
        return flow_graph(course, width, height, latest or latest_flow(session, now))
