"""The panes of the overview: their widgets, and the room that each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.screen import Screen

from engine.monitor.throughput import format_rough_duration
from tui.format import present
from tui.format.present import Line
from tui.overview.age_widget import AgeTable
from tui.overview.division import MAX_GRAPHS, OverviewFrame
from tui.overview.side_panes import WALL_PANES, WIDE_PANES, OverviewData
from tui.screens.graph_pane import GRAPH_LINES
from tui.screens.two_panes import frame_panes
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Across, Down
from tui.widgets.lines import Frame, Lines, Painted
from tui.widgets.picker import Picker

GRAPH, OTHER_AGES, KINDS, OUTLOOK, LOG = "graph", "other-ages", "kinds", "outlook", "warnings"
SIDES = (GRAPH, *WALL_PANES)
"""The panes at the right, from the top."""


class OverviewPanes:
    """Makes the widgets, gives them the lines of a frame, and shows lines in those without a
    cursor.
    """

    def __init__(
        self, lives: Sequence[PlaceSession], alerts: Picker, queues: Picker, ages: AgeTable
    ) -> None:
        """`alerts`, `queues` and `ages` are the panes with a cursor."""
        self.frame = OverviewFrame()
        """The present division of the screen."""
        self.lines = {name: Lines(id=name) for name in (OTHER_AGES, OUTLOOK, KINDS, LOG)}
        self.sides = {name: Lines(id=f"side-{name}") for name in SIDES}
        self.graphs = [Lines(id=f"graph-{live.number}") for live in lives[:MAX_GRAPHS]]
        self.needed: dict[str, int] = {}
        """Most lines that each pane at the right has had at this size: frames do not move while
        rows come and go."""
        self._alerts, self._queues, self._ages = alerts, queues, ages

    def compose(self) -> ComposeResult:
        """Alerts, queues and ages, and the optional panes around them."""
        yield self._alerts
        with Across(id="panes"):
            with Down(id="main") as self._main:
                with Across(id="upper") as self._upper:
                    with Down(id="left") as self._left:
                        yield self._queues
                        yield self._ages
                        for name in (OTHER_AGES, OUTLOOK, KINDS):
                            yield self.lines[name]
                    with Down(id="middle") as self._middle:
                        yield from self.graphs
                yield self.lines[LOG]
            with Down(id="right") as self._right:
                yield from self.sides.values()
        for part in self._heights:
            part.add_class("pane")

    @property
    def _heights(self) -> dict[Painted, int]:
        """The panes, each with its lines in the present frame."""
        frame, lines = self.frame, self.lines
        graphs = (*frame.graphs, *[0] * len(self.graphs))
        return {
            self._alerts: frame.alerts,
            self._queues: frame.queues,
            self._ages: frame.ages,
            lines[OTHER_AGES]: frame.other_ages,
            lines[OUTLOOK]: frame.outlook,
            lines[KINDS]: frame.kinds,
            lines[LOG]: frame.log,
            **{part: frame.sides.get(name, 0) for name, part in self.sides.items()},
            **dict(zip(self.graphs, graphs, strict=False)),
        }

    def lines_needed(self, sides: Mapping[str, Sequence[Line]], *, is_wall: bool) -> dict[str, int]:
        """The lines that each pane at the right needs."""
        needed = {} if is_wall or not sides else {GRAPH: GRAPH_LINES}
        for name, lines in sides.items():
            needed[name] = max(len(lines), self.needed.get(name, 0))
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
        """Show lines in a pane of the left columns, as far as it has room."""
        part = self.lines[name]
        part.show(lines[: self.frame.inside(self._heights[part])])
        part.show_frame(words)

    def show_sides(
        self, data: OverviewData, sides: Mapping[str, Sequence[Line]], *, counted: bool
    ) -> None:
        """Show the panes at the right; `counted`: with the counts of now in their titles."""
        panes = WALL_PANES if data.is_wall else WIDE_PANES
        for name, lines in sides.items():
            part = self.sides[name]
            part.show(lines[: self.frame.inside(self.frame.sides.get(name, 0))])
            words = panes[name].frame(data)
            part.show_frame(words if counted else words._replace(amount=""))


def ages_right(age: float | None) -> Line:
    """The right end of the title of an age table: its unit, or its age in seconds if it is old."""
    if age is None:
        return (("minutes", "muted"),)
    return ((f"{format_rough_duration(age)} old", "warn"),)


def inner_width(frame: OverviewFrame) -> int:
    """The cells inside a pane of the left column."""
    return frame.left_width - (present.BOX_FRAME_CELLS if frame.is_wide else 0)
