"""Panes in two columns, for screens that show all parts of a thing at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.app import ComposeResult

from tui.terminal.render_cache import Box
from tui.text.frames import Frame
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines


class Panel(NamedTuple):
    """The content of a pane; one without lines is hidden."""

    frame: Frame
    lines: Sequence[Line]


class Board(Box):
    """Panes by their ids: some over the whole width above and below two columns. A pane is as high
    as its lines; those of `FILLS` get the lines that are left in their column.
    """

    ABOVE: tuple[str, ...] = ()
    LEFT: tuple[str, ...] = ()
    RIGHT: tuple[str, ...] = ()
    BELOW: tuple[str, ...] = ()
    FILLS: frozenset[str] = frozenset()
    FOCUSED = ""
    """The pane that stands out."""

    def compose(self) -> ComposeResult:
        yield from self._panes(self.ABOVE)
        with Box(id="columns"):
            with Box(classes="column"):
                yield from self._panes(self.LEFT)
            with Box(classes="column"):
                yield from self._panes(self.RIGHT)
        yield from self._panes(self.BELOW)

    def _panes(self, ids: Sequence[str]) -> ComposeResult:
        for id in ids:
            yield Lines(id=id, classes="pane -fills" if id in self.FILLS else "pane")

    def show(self, panels: Mapping[str, Panel]) -> None:
        """Show these panes."""
        for id, panel in panels.items():
            pane = self.query_one(f"#{id}", Lines)
            pane.display = bool(panel.lines)
            pane.show(panel.lines)
            pane.show_frame(panel.frame, focused=id == self.FOCUSED)
