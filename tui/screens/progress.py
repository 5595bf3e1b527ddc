"""How far something is that takes long, and the way to stop it."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.screen import ModalScreen

from tui.format import keys, present
from tui.format.progress_bar import ProgressBar, bar
from tui.widgets.lines import Lines

GLANCE = 0.25
"""Seconds between two looks at how far it is."""


class ProgressScreen(ModalScreen[None]):
    """Stays until it is dismissed by whoever works, or stopped by the operator."""

    BINDINGS = keys.bindings(keys.PROGRESS)

    def __init__(
        self, title: str, unit: str, far: Callable[[], ProgressBar], stop: Callable[[], None]
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
