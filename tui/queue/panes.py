"""The panes around the task list, how the screen is divided between them, and what they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.geometry import Size

from engine.logs.log_line import LogLine
from tui.queue.task_details import BRIEF_LINES
from tui.screens.list_panes import WIDE_COLUMNS, WIDE_LINES
from tui.text.frames import frame_border
from tui.text.lines import Line
from tui.text.log_line import log_line, shorten_ids
from tui.widgets.line_widgets import Lines

MIN_LOG_HEIGHT = 28
"""Lines for list, details and log from which a narrow screen has a log."""

FIXED_LINES = 5
"""Header, tabs, facts, next step, hints."""


class QueueFrame(NamedTuple):
    """Heights of the panes, with their frames; 0: not shown. The list gets the rest."""

    border: int = 0
    wide: bool = False
    """True if the details are at the right of the list."""
    facts: int = 1
    log: int = 0
    details: int = 0
    graph: int = 0
    states: int = 0
    side: int = 0
    """Cells of the panes at the right."""


def divide_screen(
    size: Size, states: int, filtered: bool, rows: int, alarms: bool, facts: int
) -> QueueFrame:
    """Divide a screen between the list, the task under its cursor, the log, graph and states.

    `rows`: rows of the list. `alarms`: the lock has an alarm. `facts`: rows of the queue as a
    whole.
    """
    width, height = size
    border = frame_border(width, height)
    room = height - FIXED_LINES - filtered
    if width >= WIDE_COLUMNS and height >= WIDE_LINES:
        few = rows + 3 <= room // 2  # then the log gets half of the screen
        bars = states + facts + 2
        graph = max(0, min(room - bars - 8, max(10, room * 3 // 10)))
        log = room - room // 2 if few else max(5, (room + 1) // 4)
        return QueueFrame(
            border, True, 1, log=log, details=1, graph=graph, states=bars, side=width // 3
        )
    brief = BRIEF_LINES + border if border else 0
    log = room // 4 if border and room >= MIN_LOG_HEIGHT else 0
    return QueueFrame(border, False, int(alarms or height >= 12), log, brief)


class LogPane(Lines):
    """The last log lines that fit."""

    _painted: tuple[Sequence[LogLine], Size | None] = ((), None)

    def show_log(self, log: Sequence[LogLine]) -> None:
        """Show the newest lines."""
        size = self.size
        width, height = size
        if not height or (log, size) == self._painted:
            return  # unchanged, as in most calls: this runs every second
        self._painted = log, size
        rows = [
            log_line(line.when, line.level, shorten_ids(line.text), width) for line in log[-height:]
        ]
        nothing: Line = ((" no log lines yet", "muted"),)
        self.show(rows or [nothing])
