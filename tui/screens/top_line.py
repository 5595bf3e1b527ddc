"""The top line of every screen: host, environment, path, write mode, time and alerts."""

from __future__ import annotations

from tui.format import present
from tui.screens.console_context import ConsoleContext
from tui.widgets.lines import Lines


class TopLine(Lines):
    """Host, environment and path on the left; write mode, time and alerts on the right."""

    def update_line(self, around: ConsoleContext, trail: tuple[str, ...], aside: str = "") -> None:
        """Update the line; `trail` is the path, outermost first; `aside` is dropped if there is no
        room.
        """
        arming = around.arming
        width = self.size.width
        right = present.mode_line(
            arming.seconds_left, arming.read_only, around.clock(), width < present.NARROW_COLUMNS
        )
        totals = around.totals() if width >= present.NARROW_COLUMNS else ()
        if (seconds := around.repaint_seconds()) > 1:
            totals = ((f"refresh {seconds:g}s  ", "warn"), *totals)
        left = present.trail_line(around.host, around.environment, trail, aside, width)
        works = present.badge_line(around.operations_badge())
        room = present.width_of((*left, *totals, *works, *right)) + 2 <= width
        self.show([present.join_ends(left, (*(totals if room else ()), *works, *right), width)])
