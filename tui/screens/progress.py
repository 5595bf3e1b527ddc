"""How far something is that takes long, and the way to stop it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from textual.app import ComposeResult
from textual.screen import ModalScreen

from tui import keys, present
from tui.present import Line
from tui.widgets.lines import Lines

GLANCE = 0.25
"""Seconds between two looks at how far it is."""


class Progress(NamedTuple):
    """How far something is; counts in whatever unit its words say."""

    done: int
    total: int
    """0 when that is not known."""


def bar(progress: Progress, seconds: float, unit: str, width: int) -> Line:
    """A bar with counts and the time left, after so many seconds: `[####....] 12,000 of 40,000`."""
    done, total = progress
    if not total:
        return ((f" {done:,} {unit} so far", ""),)
    done = min(done, total)
    left = ""
    if 0 < done < total and seconds >= 1:
        left = f"  {present.countdown(seconds * (total - done) / done)} left"
    words = f" {done:,} of {total:,} {unit}  {100 * done // total}%{left}"
    room = max(4, min(40, width - len(words) - 4))
    filled = room * done // total
    return ((f" [{'#' * filled}{'.' * (room - filled)}]", "strong"), (words, ""))


class ProgressScreen(ModalScreen[None]):
    """Stays until it is dismissed by whoever works, or stopped by the operator."""

    BINDINGS = keys.bindings(keys.PROGRESS)

    def __init__(
        self, title: str, unit: str, far: Callable[[], Progress], stop: Callable[[], None]
    ) -> None:
        super().__init__()
        self._title, self._unit, self._far, self._stop = title, unit, far, stop
        self._began = time.monotonic()

    def compose(self) -> ComposeResult:
        """What it is, how far, and the key that stops it."""
        yield Lines(id="menu")

    def on_mount(self) -> None:
        """Look again and again."""
        self.set_interval(GLANCE, self.paint)

    def on_resize(self) -> None:
        """For this width."""
        self.paint()

    def paint(self) -> None:
        """How far it is now."""
        width = self.size.width
        line = bar(self._far(), time.monotonic() - self._began, self._unit, width)
        hints = present.hint_lines(keys.hints(keys.PROGRESS), width, 1)
        self.query_one(Lines).show([present.heading(self._title, width), line, *hints])

    def action_back(self) -> None:
        """Stop it."""
        self._stop()
