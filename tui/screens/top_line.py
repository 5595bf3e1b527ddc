"""The top line of every screen: host, environment, path, totals, OBSERVE or ARMED, and time."""

from __future__ import annotations

from tui.format import present
from tui.format.present import Line
from tui.screens.console_context import ConsoleContext
from tui.widgets.line_widgets import Lines


class TopLine(Lines):
    """Host, environment, path and totals on the left; OBSERVE or ARMED, and time on the right."""

    def update_line(self, context: ConsoleContext, trail: tuple[str, ...]) -> None:
        """Update the line; `trail` is the path, outermost first. Totals fill what room is left."""
        arming = context.arming
        width = self.size.width
        right = present.mode_line(
            arming.seconds_left, arming.read_only, context.clock(), width < present.NARROW_COLUMNS
        )
        totals = context.totals() if width >= present.NARROW_COLUMNS else None
        works = context.operations()
        if (seconds := context.repaint_seconds()) > 1:
            right = ((f"refresh {seconds:g}s (slow link) ", "warn"), *right)
        path = present.trail_line(context.host, context.environment, trail, width)
        room = width - present.width_of((*path, *works, *right)) - 5
        known = [] if totals is None else present.totals_parts(totals, width)
        parts = present.parts_that_fit(known, room)
        gap: Line = (("    ", ""),) if parts or works else ()
        self.show([present.join_ends((*path, *gap, *parts, *works), right, width)])
