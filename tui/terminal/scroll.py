"""Let the terminal scroll the lines of a widget (DECSTBM), so that only new ones are sent."""

from __future__ import annotations

from textual.widget import Widget

from tui.terminal.safe_app import SafeApp


def scroll_up(widget: Widget, rows: int) -> None:
    """Scroll the lines of a widget up on the terminal, before they are painted again.

    Nothing happens if the widget is not as wide as the screen, or without a terminal.
    """
    app, region = widget.app, widget.region
    is_whole = region.width == app.size.width and widget.screen.is_active
    if is_whole and isinstance(app, SafeApp) and app.output is not None:
        top = region.y + widget.gutter.top
        app.send(app.cells.scroll_up(top, top + widget.size.height - 1, rows))
