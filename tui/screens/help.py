"""The help: every key of a screen, from the one table."""

from __future__ import annotations

from collections.abc import Collection

from tui import keys, present
from tui.present import BLANK, Line
from tui.screens.pages import Page

TITLES = {
    keys.LIST: "the task list",
    keys.TASK: "a task",
    keys.PROBLEMS: "the problems",
    keys.PLAN: "a plan",
    keys.LOCK: "the lock",
}


def lines(screen: str, without: Collection[str], width: int) -> list[Line]:
    """The keys of a screen under their headings."""
    rows: list[Line] = []
    for group in keys.GROUPS:
        here = [key for key in keys.on(screen, without) if key.group == group]
        if here:
            rows += [BLANK] if rows else []
            rows.append(present.heading(group, width))
            rows += [((f"  {key.shown:<9}", "key"), (key.about, "")) for key in here]
    return rows


class HelpScreen(Page):
    """What can be pressed on the screen that it was opened from."""

    KIND = keys.HELP
    BINDINGS = keys.bindings(keys.HELP)

    def __init__(self, about: str, without: Collection[str] = ()) -> None:
        super().__init__()
        self._about = about
        self._without = without

    def lay_out(self, width: int) -> None:
        """The keys, for this width."""
        title = ((f" Keys of {TITLES[self._about]}", "strong"),)
        self.show(title, lines(self._about, self._without, width), ())
        self.show_hints()
