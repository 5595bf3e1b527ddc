"""Clicks: a row is selected, then opened; a title orders; a tab opens; a hint is its key."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import App
from textual.screen import Screen
from textual.widget import Widget

from tui.key_tables import keys_on
from tui.log.widgets import LogLines
from tui.terminal.key_queue import key_event
from tui.text.lines import Line, cells_of
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker
from tui.widgets.task_list import TaskList

WHEEL_LINES = 3

MAX_TABS = 20
"""More tabs than any screen has."""

TAB_LINES = {"tabs", "parts"}
"""Lines with tabs; the key `right` goes on to the next one."""

CURRENT_TAB_LOOKS = {"tab", "chip-accent"}

_NAMED_KEYS = {"Space": "space", "Esc": "escape", "Enter": "enter"}
"""Keys of hints that are not in the key table: those of a menu or an input line."""


def turn_wheel(screen: Screen[Any], how: str) -> None:
    """Move as the up and down keys do."""
    if (move := getattr(screen, "action_move", None)) is not None:
        for _ in range(WHEEL_LINES):
            move(how)


def click(app: App[Any], event: events.Click) -> None:
    """Do what the clicked part of the screen offers."""
    screen = app.screen
    widget, _ = screen.get_widget_at(*event.screen_offset)
    x, y = event.screen_offset - widget.content_region.offset
    if isinstance(widget, TaskList) and y == 0 and (order := widget.order_at(x)):
        screen.action_sort(order)  # type: ignore[attr-defined]
    elif isinstance(widget, TaskList | Picker | LogLines):
        if _select_line(screen, widget, y):
            press(app, "enter")
    elif isinstance(widget, Lines) and 0 <= y < len(widget.lines):
        if widget.id in TAB_LINES:
            _switch_tab(screen, widget, tab_at(widget.lines[y], x))
        elif hint := hint_at(widget.lines[y], x):
            press(app, key_of(getattr(screen, "KIND", ""), hint))


def press(app: App[Any], key: str) -> None:
    """Let the app take a key as if it had been typed; "" is none."""
    if key:
        app.post_message(key_event(key))


def _select_line(screen: Screen[Any], widget: TaskList | Picker | LogLines, y: int) -> bool:
    """Move the cursor to a line of the list; return True if it was there before."""
    was_active = _activate_pane(screen, widget)
    if isinstance(widget, Picker):
        return widget.select_line(y) and was_active
    if (
        isinstance(widget, TaskList)
        and not 1 <= y <= widget.rows.view.total - widget.rows.view.cursor.top
    ):
        return False  # the titles, or below the last row
    before, line = -1, _line_of_cursor(widget)
    if line == y:
        return was_active
    how = "down" if line < y else "up"
    while line != before and (line < y) == (how == "down") and line != y:
        screen.action_move(how)  # type: ignore[attr-defined]
        before, line = line, _line_of_cursor(widget)
    return False


def _line_of_cursor(widget: TaskList | LogLines) -> int:
    if isinstance(widget, LogLines):
        return widget.page.line_of_cursor
    cursor = widget.rows.view.cursor
    return cursor.at - cursor.top + 1  # below the titles


def _activate_pane(screen: Screen[Any], widget: Widget) -> bool:
    """Go to the clicked pane; True if it had the cursor before."""
    was_active = bool(getattr(widget, "is_active", True))
    if (focus := getattr(screen, "focus_pane", None)) is not None:
        focus(widget)
    return was_active


def _switch_tab(screen: Screen[Any], widget: Lines, name: str) -> None:
    for _ in range(MAX_TABS if name else 0):
        current = [text for text, style in widget.lines[0] if style in CURRENT_TAB_LOOKS]
        if any(text.strip(" []").startswith(name) for text in current):
            return
        screen.action_key("right")  # type: ignore[attr-defined]


def tab_at(line: Line, x: int) -> str:
    """The name of the tab at a column, maybe cut; its count is a part of the tab."""
    name = ""
    for text, _ in line:
        first = text.strip(" []").partition(" ")[0]
        name = first if first[:1].isalpha() else name
        x -= cells_of(text)
        if x < 0:
            return name if first else ""
    return ""


def hint_at(line: Line, x: int) -> str:
    """The key of the hint at a column, as shown; "" if none, or if it is refused."""
    hint = ""
    for text, style in line:
        x -= cells_of(text)
        if style == "key":
            hint = text.strip()
        if x < 0:
            return hint if style in ("key", "") and text.strip() else ""
    return ""


def key_of(screen: str, hint: str) -> str:
    """The Textual name of a key that a hint shows; "" if the hint names several keys."""
    for key in keys_on(screen):
        if key.shown == hint:
            return "" if key.passes_key else key.keys[0]
    return _NAMED_KEYS.get(hint, hint if len(hint) == 1 else "")
