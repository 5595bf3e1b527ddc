"""A box that gives each of its panes a place, from how many lines the panes need: a Textual layout
of regions; and a board of panes in two columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from engine.values import NamedTuple
from tui.terminal.render_cache import Box
from tui.text.frames import Frame, share_lines
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines

AnyWidget = TypeVar("AnyWidget", bound=Widget)


def stacked(
    room: Region, needed: Mapping[AnyWidget, int], filler: AnyWidget
) -> dict[Widget, Region]:
    """Panes below each other in a room: each has the lines that it needs, if there are as many,
    else they share them; the filler has what is left. In hardly any lines the first one has more
    than half, the filler the rest."""
    lines = share_lines(room.height, needed, filler)
    if not lines[filler]:
        lines = {next(iter(needed)): (room.height + 1) // 2}
        lines[filler] = room.height - sum(lines[pane] for pane in lines if pane is not filler)
    regions, y = dict[Widget, Region](), room.y
    for pane, height in lines.items():
        regions[pane] = Region(room.x, y, room.width, height)
        y += height
    return regions


class _Regions(Layout):
    """Places each widget in its region; one without a region is not shown."""

    name = "regions"

    def __init__(self) -> None:
        self.regions: Mapping[Widget, Region] = {}

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        placed = ((child, self.regions.get(child)) for child in children)
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child)
            for child, region in placed
            if region
        ]


class DividedBox(Box):
    """Panes in the regions that `place` gives them."""

    def __init__(self, *panes: Widget, id: str | None = None) -> None:
        super().__init__(*panes, id=id)
        self._regions = _Regions()

    @property
    def layout(self) -> Layout:
        return self._regions

    def place(self, regions: Mapping[Widget, Region]) -> None:
        """Put each pane in its region, hide the others, and lay out the screen if one changed."""
        if regions == self._regions.regions:
            return
        self._regions.regions = dict(regions)
        for pane in self.children:
            pane.display = bool(regions.get(pane))
        self.refresh_places()


class Panel(NamedTuple):
    """The content of a pane; one without lines is hidden."""

    frame: Frame
    lines: Sequence[Line]
    keeps_end: bool = False
    """Without room the last lines are shown, else the first ones."""


class Board(DividedBox):
    """Panes by their ids: some over the whole width above and below two columns. A pane is as high
    as its lines; those of `FILLS` get the lines that are left in their column. Without room for all
    lines the panes of a column share it, and the frames count the lines that are not shown."""

    ABOVE: tuple[str, ...] = ()
    LEFT: tuple[str, ...] = ()
    RIGHT: tuple[str, ...] = ()
    BELOW: tuple[str, ...] = ()
    FILLS: frozenset[str] = frozenset()
    FOCUSED = ""
    """The pane that stands out."""

    def compose(self) -> ComposeResult:
        for id in (*self.ABOVE, *self.LEFT, *self.RIGHT, *self.BELOW):
            yield Lines(id=id, classes="pane")

    def rest(self, column: Region, *, is_left: bool) -> dict[Widget, Region]:
        """What is shown in the lines that a column leaves; nothing leaves them to its panes."""
        return {}

    def columns(self, size: Size) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """The panes of the left and the right column, and those below, for a board of a size."""
        return self.LEFT, self.RIGHT, self.BELOW

    def show(self, panels: Mapping[str, Panel], size: Size, border: int) -> None:
        """Show these panes on a board of that size; `border`: lines of a frame."""
        panes = {pane.id: pane for pane in self.query(Lines) if pane.id in panels}
        needs = {id: border + len(one.lines) for id, one in panels.items() if one.lines}
        left, right, below = self.columns(size)

        def needed(ids: Sequence[str]) -> dict[Widget, int]:
            return {panes[id]: needs[id] for id in ids if id in needs}

        regions = dict[Widget, Region]()
        room, y = size.region, 0
        for pane, lines in needed(self.ABOVE).items():
            regions[pane] = Region(0, y, size.width, min(lines, size.height - y))
            y += regions[pane].height
        lower = needed(below)
        room = Region(0, y, size.width, max(0, size.height - y - sum(lower.values())))
        y = room.bottom
        for pane, lines in lower.items():
            regions[pane] = Region(0, y, size.width, lines)
            y += lines
        for ids, column in zip((left, right), room.split_vertical(size.width // 2), strict=True):
            if wanted := needed(ids):
                used, free = column.split_horizontal(min(sum(wanted.values()), column.height))
                rest = self.rest(free, is_left=ids is left)
                fill = next((p for p in reversed(wanted) if p.id in self.FILLS), [*wanted][-1])
                regions |= stacked(used if rest else column, wanted, fill) | rest
        for id, panel in panels.items():
            if panes[id] in regions:
                self._show_panel(panes[id], panel, regions[panes[id]].height - border)
        self.place(regions)

    def _show_panel(self, pane: Lines, panel: Panel, room: int) -> None:
        lines, hidden = panel.lines, len(panel.lines) - max(0, room)
        frame = panel.frame
        if hidden > 0:
            lines = lines[hidden:] if panel.keeps_end else lines[: max(0, room)]
            if not panel.keeps_end:
                frame = frame._replace(right=((f"{hidden:,} more", "muted"),))
        pane.show(lines)
        pane.show_frame(frame, focused=pane.id == self.FOCUSED)
