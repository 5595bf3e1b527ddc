"""Screens that take their size from the terminal: how often a new one is styled and laid out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import Screen

from tests.console_operator import an_operator
from tests.console_places import a_memory, a_place, a_task
from tui.queue.screen import QueueScreen
from tui.text import keys


async def test_a_new_screen_is_styled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its boxes and lines get their styles when they are mounted, and not once more when the screen
    is shown; events that repeat a size lay out nothing."""
    styled, resized = Counter[DOMNode](), Counter[object]()
    apply, resize = Stylesheet.apply, Screen._screen_resized

    def counted(self: Stylesheet, node: DOMNode, **how: Any) -> None:
        styled[node] += 1
        apply(self, node, **how)

    def noted(self: Screen[Any], size: Size) -> None:
        resized[self] += 1
        resize(self, size)

    place = a_place(a_memory([a_task(1)]))
    async with an_operator(place, first=keys.OVERVIEW, size=(120, 40)) as operator:
        await operator.sees("Queues 1")
        monkeypatch.setattr(Stylesheet, "apply", counted)
        monkeypatch.setattr(Screen, "_screen_resized", noted)
        screen = await operator.opens(QueueScreen, "2")
        await operator.sees("pending 1")
        parts = [node for node in styled if type(node).__name__ in ("Across", "Down", "Lines")]
        assert len(parts) >= 8 and {styled[part] for part in parts} == {1}
        assert resized[screen] <= 1
