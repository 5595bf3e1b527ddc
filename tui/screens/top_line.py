"""The top line of every screen: host, environment, path, totals, OBSERVE or ARMED, and time."""

from __future__ import annotations

from tui.screens.console_context import ConsoleContext
from tui.text.frames import NARROW_COLUMNS
from tui.text.header import mode_line, totals_parts, trail_line
from tui.text.lines import Line, join_ends, parts_that_fit, width_of
from tui.widgets.line_widgets import Lines


class TopLine(Lines):
    """Host, environment, path and totals on the left; OBSERVE or ARMED, and time on the right."""

    def update_line(self, context: ConsoleContext, trail: tuple[str, ...]) -> None:
        """Update the line; `trail` is the path, outermost first. Totals fill what room is left."""
        arming = context.arming
        width = self.size.width
        right = mode_line(
            arming.seconds_left, arming.read_only, context.clock(), width < NARROW_COLUMNS
        )
        totals = context.totals() if width >= NARROW_COLUMNS else None
        works = context.operations()
        if (seconds := context.repaint_seconds()) > 1:
            right = ((f"refresh {seconds:g}s (slow link) ", "warn"), *right)
        path = trail_line(context.host, context.environment, trail, width)
        room = width - width_of((*path, *works, *right)) - 5
        known = [] if totals is None else totals_parts(totals, width)
        parts = parts_that_fit(known, room)
        gap: Line = (("    ", ""),) if parts or works else ()
        self.show([join_ends((*path, *gap, *parts, *works), right, width)])
