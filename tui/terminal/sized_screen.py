"""Screens and widgets that always know their present size; each works around a fault of Textual."""

from __future__ import annotations

from typing import Any

from textual._compositor import CompositorMap
from textual.app import App
from textual.events import Resize, ScreenResume
from textual.geometry import Size
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widget import Widget

from tui.text.frames import BOX, RULE, frame_border


class SizedScreen(Screen[ScreenResultType]):
    """A screen that takes its size from the terminal, not from the event that reports a change.
    With each new size Textual 8.2 lets a screen send itself another event of that size. If two
    sizes are under way at once, as when the edge of a window is dragged, each of these events
    undoes the other: the screen is laid out for both in turn without end, and answers no key."""

    _painted_map: CompositorMap | None = None
    """Where each widget was at the last layout that was painted."""

    pane_border = staticmethod(frame_border)
    """(columns, lines) -> the frames of its panes: `BOX`, `RULE`, or 0 for none."""

    def _on_screen_resume(self, event: ScreenResume) -> None:
        # Every widget was styled when it was mounted; Textual 8.2 styles all of them once more.
        event.refresh_styles &= self._painted_map is not None

    def _screen_resized(self, size: Size) -> None:
        if self._painted_map is None or self._compositor.size != self.app.size:
            super()._screen_resized(self.app.size)

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lay out the screen and paint what moved. A pane that appears makes Textual 8.2 compute
        the new places of all widgets before the layout. The layout then finds that nothing has
        moved and paints nothing: old lines stayed on the terminal. So it is compared with the
        places that were painted."""
        frame_panes(self)  # before the panes get their sizes, for which they are painted
        if self._painted_map is not None:
            self._compositor._full_map = self._painted_map
        super()._refresh_layout(size, scroll)
        self._painted_map = self._compositor._full_map


def frame_panes(screen: SizedScreen[Any], *, update: bool = True) -> None:
    """Give a screen the CSS class for the frames of its panes at the terminal's size."""
    border = screen.pane_border(*screen.app.size)
    screen.update_classes(
        {"-boxed": border == BOX, "-ruled": border == RULE}, update, animate=False
    )


class SizedModalScreen(SizedScreen[ScreenResultType], ModalScreen[ScreenResultType]):
    """The same for a screen that shows the one below."""


class SizedWidget(Widget):
    """A widget whose `on_resize` is called for each of its sizes."""

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Take a new size, and make sure that `on_resize` is called for it. Textual 8.2 does not
        call it if the region of any widget was read after a style changed and before the screen was
        laid out again. Two events of one size become one call."""
        before = self._size
        is_changed = super()._size_updated(size, virtual_size, container_size, layout)
        if before != size:
            self.post_message(Resize(size, virtual_size, container_size))
        return is_changed


def pass_on_size(app: App[None]) -> None:
    """Pass on a new terminal size to the screens, if Textual has not; called from time to time. A
    one-shot timer of Textual never fires if the process gets no CPU for the timer's whole interval
    while it starts (8 ms for a size). Then no later size reaches the screens."""
    app._check_resize()
