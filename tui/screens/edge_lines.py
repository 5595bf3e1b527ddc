"""The lines around the panes of a screen: above them the top line, with host, environment, path,
totals, OBSERVE or ARMED, and time; below them message and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tui.screens.console_context import ConsoleContext
from tui.screens.message import Message
from tui.text.frames import NARROW_COLUMNS
from tui.text.header import mode_line, totals_parts, trail_line, unread_parts
from tui.text.hints import hint_lines, with_message
from tui.text.keys import Hint
from tui.text.lines import Line, cells_of, cut_line, join_ends, parts_that_fit, width_of
from tui.text.times import format_clock
from tui.widgets.line_widgets import Lines

UNREAD_CELLS, MARK_CELLS, GAP_CELLS = 18, 3, 5
"""Cells for the name of a place that does not answer, which matters more than the path; for the `?`
without it, which matters more than anything but the mode; and between the parts."""


def overview_time(screens: Iterable[object]) -> float | None:
    """The time that the overview among these screens shows while frozen, in epoch seconds UTC; None
    if it is live."""
    times = (getattr(screen, "frozen_time", None) for screen in screens)
    return next((at for at in times if at is not None), None)


class TopLine(Lines):
    """Host, environment, path and totals on the left; OBSERVE or ARMED, and time on the right."""

    _shown: tuple[ConsoleContext, tuple[str, ...]] | None = None

    def update_again(self) -> None:
        """Update the line with what it showed last."""
        if self._shown is not None:
            self.update_line(*self._shown)

    def update_line(self, context: ConsoleContext, trail: tuple[str, ...]) -> None:
        """Update the line; `trail` is the path, outermost first. Places that cannot be read
        and totals fill what room is left."""
        self._shown = context, trail
        arming = context.arming
        width = self.size.width
        frozen = context.frozen()
        is_narrow = width < NARROW_COLUMNS or bool(frozen)
        right = mode_line(arming.seconds_left, arming.read_only, context.clock(), is_narrow)
        right = (*frozen, *right)
        totals = context.totals()
        works = context.operations()
        rate: Line = ()
        if context.refresh:
            rate = ((f"refresh {context.refresh:g}s ", "muted"),)
        elif (seconds := context.repaint_seconds()) > 1:
            rate = ((f"refresh {seconds:g}s (slow link) ", "warn"),)
        path = trail_line(context.host, context.environment, trail, width)
        past = context.overview_time()
        if past is not None and not frozen:
            words, room = f" LIVE, overview frozen {format_clock(past)} ", width - width_of(path)
            is_whole = width_of((*works, *rate, *right)) + cells_of(words) < room
            right = ((words if is_whole else " LIVE ", "chip-accent"), *right)

        def measure_room() -> int:
            return width - width_of((*path, *works, *rate, *right)) - GAP_CELLS

        if totals is not None and totals.unread and measure_room() < UNREAD_CELLS:
            path = trail_line(context.host, context.environment, trail, 0)  # only the last step
            rate = rate if measure_room() >= MARK_CELLS else ()
            if (lacking := MARK_CELLS - measure_room()) > 0:
                path = cut_line(path, max(0, width_of(path) - lacking))
            works = works if measure_room() >= MARK_CELLS else ()
        room = measure_room()
        known = [] if totals is None else unread_parts(totals, room)
        if totals is not None and width >= NARROW_COLUMNS:
            known += totals_parts(totals, width)
        parts = parts_that_fit(known, room)
        gap: Line = (("    ", ""),) if parts or works else ()
        self.show([join_ends((*path, *gap, *parts, *works), (*rate, *right), width)])


class EdgeLines:
    """Their widgets, which have no width before the layout: widths are those of the screen."""

    def __init__(self) -> None:
        self.top = TopLine(id="top-line")
        self.message, self.hints = Lines(id="word"), Lines(id="hints")
        self._step: Line = ()

    def show_hints(self, hints: Iterable[Hint], width: int, lines: int = 1) -> None:
        """Show the keys in at most so many lines, with that of the next step."""
        self.hints.show(hint_lines(tuple(hints), width, lines, self._step))

    def show_message(self, message: Message, otherwise: Callable[[], Line], width: int) -> None:
        """Show the message while it lasts, beside what a key acts on if it fits."""
        message.ends()
        line = self._step = otherwise()
        if message.line:
            line = with_message(message.line, line, width)
        self.message.show([cut_line(line, width)])
