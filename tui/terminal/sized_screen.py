"""Screens that are laid out for the present size of the terminal, never for a former one."""

from __future__ import annotations

from textual.app import App
from textual.geometry import Size
from textual.screen import ModalScreen, Screen, ScreenResultType


class SizedScreen(Screen[ScreenResultType]):
    """A screen that takes its size from the terminal, not from the event that reports a change.

    With each new size Textual 8.2 lets a screen send itself another event of that size. If two
    sizes are under way at once, as when the edge of a window is dragged, each of these events
    undoes the other: the screen is laid out for both in turn without end, and answers no key.
    """

    def _screen_resized(self, size: Size) -> None:
        super()._screen_resized(self.app.size)


class SizedModalScreen(SizedScreen[ScreenResultType], ModalScreen[ScreenResultType]):
    """The same for a screen that shows the one below."""


def pass_on_size(app: App[None]) -> None:
    """Pass on a new terminal size to the screens, if Textual has not; called from time to time.

    A one-shot timer of Textual never fires if the process gets no CPU for the timer's whole
    interval while it starts (8 ms for a size). Then no later size reaches the screens, and no frame
    the terminal.
    """
    app._check_resize()
