"""A progress dialog for a long action, with a key to stop it."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import ComposeResult

from tui.screens.base import key_bindings
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.hints import hint_lines
from tui.text.lines import heading_line
from tui.text.progress_bar import ProgressBar, bar_line
from tui.widgets.line_widgets import Lines

UPDATE_INTERVAL_SECONDS = 0.25
"""Seconds between two updates of the bar."""


class ProgressScreen(SizedModalScreen[None]):
    """Stays until the action dismisses it or the operator stops the action."""

    BINDINGS = key_bindings(keys.PROGRESS)

    def __init__(
        self, title: str, unit: str, far: Callable[[], ProgressBar], stop: Callable[[], None]
    ) -> None:
        super().__init__()
        self._title, self._unit, self._read_progress, self._stop = title, unit, far, stop
        self._began = time.monotonic()

    def compose(self) -> ComposeResult:
        yield Lines(id="menu")

    def on_mount(self) -> None:
        self.set_interval(UPDATE_INTERVAL_SECONDS, self.paint)

    def on_resize(self) -> None:
        self.paint()

    def paint(self) -> None:
        width = self.size.width
        line = bar_line(self._read_progress(), time.monotonic() - self._began, self._unit, width)
        hints = hint_lines(keys.hints_of(keys.PROGRESS), width, 1)
        self.query_one(Lines).show([heading_line(self._title, width), line, *hints])

    def action_back(self) -> None:
        """Stop the action."""
        self._stop()
