"""Let the terminal scroll the lines of a widget (DECSTBM), so that only new ones are sent."""

from __future__ import annotations

from textual.geometry import Region
from textual.widget import Widget

from tui.terminal.safe_app import SafeApp


def scroll_up(widget: Widget, rows: int) -> bool:
    """Scroll the lines of a widget up on the terminal; the last `rows` are painted again.

    Returns False, and does nothing, if the widget is not as wide as the screen, if a part of it is
    still to be painted, or without a terminal.
    """
    app, width, height = widget.app, *widget.size
    is_whole = widget.region.width == app.size.width and widget.screen.is_active
    if widget._repaint_regions or not is_whole:
        return False
    if not isinstance(app, SafeApp) or not app.bytes_written:
        return False
    top = widget.region.y + widget.gutter.top + 1
    bottom = top + height - 1
    lines = "\n" * rows
    app.send(f"\x1b[0m\x1b[{top};{bottom}r\x1b[{bottom};1H{lines}\x1b[r")
    # Textual's cache of the lines did not move with them.
    widget._styles_cache.set_dirty(Region(0, 0, width, height).translate(widget.content_offset))
    for y in range(height - rows, height):
        widget.refresh(Region(-widget.gutter.left, y, widget.region.width, 1))
    return True
