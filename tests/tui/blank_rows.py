"""Frames with blank rows beside frames that cut rows."""

from __future__ import annotations

import re
from typing import Any

from textual.screen import Screen
from textual.widget import Widget

from tui.terminal.clipboard import screen_text
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker
from tui.widgets.task_list import TaskList

MOST_BLANK_ROWS = 4
GRAPHS = {"graph", "course", "flow", "histogram"}
"""Frames whose blank rows say something."""
MORE = re.compile(r"\d more\b|\+\d+ (more|older)|PgDn")


def panes(screen: Screen[Any]) -> dict[str, Widget]:
    """The frames on a screen, by their ids."""
    shown = screen.query(".pane").results(Widget)
    return {f"{pane.id}": pane for pane in shown if pane.region.area and pane.size.height}


def content(pane: Widget, text: list[str]) -> list[str]:
    """The rows within a frame, of the text of its screen."""
    region = pane.content_region
    return [line[region.x : region.right].strip() for line in text[region.y : region.bottom]]


def is_cut(pane: Widget, rows: list[str]) -> bool:
    """True if a pane has rows that it does not show, or says so."""
    if isinstance(pane, LongText):
        hides = pane.below > 0
    elif isinstance(pane, Picker):
        hides = pane.line_count > pane.size.height
    elif isinstance(pane, TaskList):
        hides = pane.rows.view.total > pane.size.height - 1  # the titles
    else:
        hides = isinstance(pane, Lines) and len(pane.lines) > pane.size.height
    words = f"{pane.border_title} {pane.border_subtitle} {' '.join(rows)}"
    return hides or bool(MORE.search(words))


def wasted_rows(screen: Screen[Any]) -> str:
    """Which frame has blank rows while which other one cuts; "" if none does."""
    text, shown = screen_text(screen).splitlines(), panes(screen)
    text += [""] * (screen.size.height - len(text))
    rows = {id: content(pane, text) for id, pane in shown.items()}
    blank = {id: its.count("") for id, its in rows.items() if id not in GRAPHS}
    blank = {id: number for id, number in blank.items() if number > MOST_BLANK_ROWS}
    cut = [id for id, pane in shown.items() if is_cut(pane, rows[id])]
    if not blank or not set(cut) - set(blank):
        return ""
    return f"{screen.size}: blank {blank}, cut {cut}"
