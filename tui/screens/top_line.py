"""The first line of every screen: whose machine, where one is, what may be done, and the time."""

from __future__ import annotations

from tui.format import present
from tui.screens.console_context import ConsoleContext
from tui.widgets.lines import Lines


class TopLine(Lines):
    """Host, environment and where one is; at the right the mode, the time and the alerts."""

    def tell(self, around: ConsoleContext, trail: tuple[str, ...], aside: str = "") -> None:
        """Show it for now; `trail` leads from the outside in, `aside` is left out if need be."""
        arming = around.arming
        width = self.size.width
        right = present.mode(arming.left, arming.read_only, around.clock(), width < present.NARROW)
        signs = present.signs(around.wire(), around.alerts(), width)
        left = present.trail(around.host, around.environment, trail, aside, width)
        works = present.badge(around.works())
        self.show([present.join(left, (*works, *right, *signs), width)])
