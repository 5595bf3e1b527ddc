"""The panes of the overview: their widgets, and the room that each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.screen import Screen

from engine.index.age_table import summarize_ages
from engine.logs.log_filter import WARN
from engine.logs.log_tail import LogLine
from engine.monitor.recorded_history import RecordedHistory
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from tui.overview import age_lines as age_view
from tui.overview import past_values
from tui.overview.age_widget import AgeTable
from tui.overview.division import MAX_GRAPHS, OverviewFrame
from tui.overview.reads import HISTOGRAM_SECONDS, EventCounts, PlaceReads
from tui.overview.side_panes import (
    HISTOGRAM_LINES,
    MAX_PANE_ROWS,
    WALL_PANES,
    WIDE_PANES,
    OverviewData,
    PaneRows,
    histogram_lines,
    log_rows,
)
from tui.screens.graph_pane import GRAPH_LINES, GraphPane
from tui.screens.target import Target
from tui.screens.two_panes import frame_panes
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Across, Down
from tui.text.flow_graph import AXIS_CELLS, time_axis
from tui.text.frames import BOX_FRAME_CELLS
from tui.text.lines import Line, cut_line
from tui.text.table import Choice
from tui.widgets.line_widgets import Frame, Lines, Painted
from tui.widgets.picker import Picker

GRAPH, OTHER_AGES, KINDS, OUTLOOK, LOG = "graph", "other-ages", "kinds", "outlook", "warnings"
ALERTS, QUEUES, AGES = "alerts", "queues", "ages"
ROW_PANES = (KINDS, LOG, *WALL_PANES)
"""The panes of rows below and beside alerts, queues and ages, in the order of Tab."""


class LogPaneValues(NamedTuple):
    """What the pane of the log shows."""

    recent: Sequence[tuple[str, Sequence[LogLine]]]
    """The latest lines, by name of the place."""
    last_hour: Sequence[EventCounts]
    """The events of each place by time."""
    now: float
    """Epoch seconds UTC."""
    late: Mapping[str, float] | None = None
    """At a past time, seconds until the first known line by name of a place without one; None: now.
    """


class GraphTime(NamedTuple):
    """What time a graph shows."""

    now: float
    """Epoch seconds UTC at its right end."""
    is_frozen: bool
    past: Mapping[int, RecordedHistory] | None
    """Recorded history by number of the place, for a time before the freeze; None for the course
    that the console itself has seen."""


class OverviewPanes:
    """Makes the widgets, gives them the lines of a frame, and shows what they hold."""

    def __init__(self, sessions: Sequence[PlaceSession]) -> None:
        self.frame = OverviewFrame()
        """The present division of the screen."""
        self.alerts, self.queues = Picker(id=ALERTS), Picker(id=QUEUES)
        self.ages = AgeTable(id=AGES)
        rows = {name: Picker(id=name) for name in ROW_PANES}
        self.focusable: dict[str, Picker | AgeTable] = {
            **{ALERTS: self.alerts, QUEUES: self.queues, AGES: self.ages},
            **rows,
        }
        """The panes that take the focus, in the order of Tab."""
        self.rows = rows
        """The panes of rows but alerts and queues."""
        self.targets: dict[str, Mapping[str, Target]] = {}
        """Where Enter leads from each row, by the pane."""
        self.departed: dict[str, Target] = {}
        """Where it led from the last row that left under the cursor, by the pane."""
        self.lines = {name: Lines(id=name) for name in (OTHER_AGES, OUTLOOK, GRAPH)}
        self.graphs = [Lines(id=f"graph-{session.number}") for session in sessions[:MAX_GRAPHS]]
        self.needed: dict[str, int] = {}
        """Most lines that each pane at the right has had at this size: frames do not move while
        rows come and go."""
        self._drawn: dict[Painted, tuple[int, float, int, int]] = {}
        """Place, time, width and height of each graph as last drawn."""

    def compose(self) -> ComposeResult:
        """Alerts, queues and ages, and the optional panes around them."""
        yield self.alerts
        with Across(id="panes"):
            with Down(id="main") as self._main:
                with Across(id="upper") as self._upper:
                    with Down(id="left") as self._left:
                        yield from (self.queues, self.ages)
                        yield from (self.lines[OTHER_AGES], self.lines[OUTLOOK], self.rows[KINDS])
                    with Down(id="middle") as self._middle:
                        yield from self.graphs
                yield self.rows[LOG]
            with Down(id="right") as self._right:
                yield self.lines[GRAPH]
                yield from (self.rows[name] for name in WALL_PANES)
        for part in self._heights:
            part.add_class("pane")

    @property
    def _heights(self) -> dict[Painted, int]:
        """The panes, each with its lines in the present frame."""
        frame, lines, rows = self.frame, self.lines, self.rows
        graphs = (*frame.graphs, *[0] * len(self.graphs))
        return {
            self.alerts: frame.alerts,
            self.queues: frame.queues,
            self.ages: frame.ages,
            lines[OTHER_AGES]: frame.other_ages,
            lines[OUTLOOK]: frame.outlook,
            rows[KINDS]: frame.kinds,
            rows[LOG]: frame.log,
            lines[GRAPH]: frame.sides.get(GRAPH, 0),
            **{rows[name]: frame.sides.get(name, 0) for name in WALL_PANES},
            **dict(zip(self.graphs, graphs, strict=False)),
        }

    def lines_needed(self, sides: Mapping[str, PaneRows], *, is_wall: bool) -> dict[str, int]:
        """The lines that each pane at the right needs."""
        needed = {} if is_wall or not sides else {GRAPH: GRAPH_LINES}
        for name, pane_rows in sides.items():
            needed[name] = max(pane_rows.height, self.needed.get(name, 0))
        self.needed = needed
        return needed

    def divide(self, frame: OverviewFrame, screen: Screen[None]) -> None:
        """Give each pane its lines, and the columns their widths."""
        self.frame = frame
        word, hints = screen.query_one("#word"), screen.query_one("#hints")
        for part, amount in (*self._heights.items(), (word, frame.next), (hints, frame.hints)):
            part.styles.height = amount
            part.display = amount > 0
        self._right.display, self._middle.display = frame.is_wide, frame.is_wall
        self._upper.styles.height = frame.upper
        self._left.styles.width = frame.left_width if frame.is_wall else "1fr"
        columns = frame.left_width + frame.middle_width
        self._main.styles.width = columns if frame.is_wide else "1fr"
        frame_panes(screen, frame.border)

    def show(self, name: str, words: Frame, lines: Sequence[Line]) -> None:
        """Show lines in a pane without a cursor, as far as it has room."""
        part = self.lines[name]
        part.show(lines[: self.frame.inside(self._heights[part])])
        part.show_frame(words)

    def show_rows(self, name: str, words: Frame, pane_rows: PaneRows, *, focused: bool) -> None:
        """Show rows in a pane; one without rows loses the cursor."""
        part = self.rows[name]
        if not pane_rows.rows:
            part.activate(False)
        part.show_rows(
            [Choice(row.key, row.line) for row in pane_rows.rows], pane_rows.head, pane_rows.foot
        )
        part.show_frame(words, focused=focused)
        self.set_targets(name, {row.key: row.target for row in pane_rows.rows})

    def set_targets(self, name: str, targets: Mapping[str, Target]) -> None:
        """Store where the rows of a pane lead; the target of a row that has left is kept."""
        before = self.targets.get(name, {})
        part = self.focusable[name]
        for row in part.rows if isinstance(part, Picker) and part.is_gone else ():
            if row.key in before and row.key not in targets:
                self.departed[name] = before[row.key]
        self.targets[name] = targets

    def has_left(self, name: str) -> bool:
        """True if the row under the cursor of a pane has left: there is nothing to act on."""
        part = self.focusable[name]
        return isinstance(part, Picker) and part.is_gone

    def show_sides(
        self, data: OverviewData, sides: Mapping[str, PaneRows], focused: str, *, counted: bool
    ) -> None:
        """Show the panes at the right; `counted`: with the counts of now in their titles."""
        panes = WALL_PANES if data.is_wall else WIDE_PANES
        for name, pane_rows in sides.items():
            words = panes[name].frame(data)
            words = words if counted else words._replace(amount="")
            self.show_rows(name, words, pane_rows, focused=name == focused)

    def show_log(self, log: LogPaneValues, width: int, *, focused: bool) -> None:
        """The latest warnings; on a wall all lines, and a histogram of the last hour.

        Without the focus, the newest lines.
        """
        name, level, axis = "Recent warnings", WARN, ""
        room = self.frame.inside(self.frame.log)
        foot: list[Line] = []
        if self.frame.is_wall:
            name, level = "Log of all places", 0
            axis = time_axis(log.now, HISTOGRAM_SECONDS, width - 4)
            foot = histogram_lines(log.last_hour, width - 4, HISTOGRAM_LINES)
        most = MAX_PANE_ROWS if focused else room - len(foot) - len(log.late or ())
        pane_rows = log_rows(log.recent, width, most, level)._replace(foot=foot)
        if log.late is not None:
            pane_rows = past_values.with_unknown_places(
                pane_rows, log.late, past_values.NOTHING_LOGGED, width
            )
        self.show_rows(LOG, Frame(name, "7", bottom=axis), pane_rows, focused=focused)
        if pane_rows.rows and not focused:
            self.rows[LOG].select_key(pane_rows.rows[-1].key)

    def show_other_ages(self, session: PlaceSession, read: PlaceReads | None, width: int) -> None:
        """The second age table of a wall, without a cursor; empty while nothing is read."""
        if read is None:
            self.show(OTHER_AGES, Frame(f"Ages: {session.name}"), [])
            return
        names = max(0, self.frame.inside(self.frame.other_ages) - 3)
        lines = [*age_view.table_lines(read.ages, None, width, names), age_sentence(read, width)]
        self.show(OTHER_AGES, Frame(age_title(session, read), right=ages_right(None)), lines)

    def show_graphs(
        self, graph: GraphPane, places: Sequence[PlaceSession], time: GraphTime, width: int
    ) -> None:
        """The graph of one place at the right; on a wall, those of all places."""
        frame, right = self.frame, (("z", "key"), (" range", "muted"))
        graphs: Sequence[tuple[Lines, int]] = [(self.lines[GRAPH], frame.sides.get(GRAPH, 0))]
        if frame.is_wall:
            width = frame.middle_width - BOX_FRAME_CELLS
            graphs = list(zip(self.graphs, frame.graphs, strict=False))
        for (part, lines), session in zip(graphs, places, strict=False):
            drawn = (session.number, time.now, width, lines)
            if time.is_frozen and self._drawn.get(part) == drawn:
                continue  # samples that came after the freeze would change its end
            self._drawn[part] = drawn
            past = None if time.past is None else time.past[session.number]
            height, is_live = frame.inside(lines), not time.is_frozen
            part.show(graph.lines(session, time.now, width, height, past, is_live=is_live))
            axis = time_axis(time.now, graph.seconds, width - AXIS_CELLS)
            title = f"{session.name}, last {graph.range}"
            part.show_frame(Frame(title, right=right, bottom=axis))


def age_title(session: PlaceSession, read: PlaceReads) -> str:
    """The title of an age table: its place, state and rows."""
    word = session.inspector.states.get(read.state, read.state)
    return age_view.table_heading(read.ages, session.name, word, session.place.group_titles)


def age_sentence(read: PlaceReads, width: int) -> Line:
    """Since when tasks wait, and whether they become fewer."""
    sentence = f"   Backlog {safe_line(summarize_ages(read.ages))}" if read.ages.total.total else ""
    return cut_line(((sentence, "muted"),), width)


def ages_right(age: float | None) -> Line:
    """The right end of the title of an age table: its unit, or its age in seconds if it is old."""
    if age is None:
        return (("minutes", "muted"),)
    return ((f"{format_rough_duration(age)} old", "warn"),)


def inner_width(frame: OverviewFrame) -> int:
    """The cells inside a pane of the left column."""
    return frame.left_width - (BOX_FRAME_CELLS if frame.is_wide else 0)
