"""What is kept between two paintings is never shown once something else holds."""

from __future__ import annotations

import weakref

from textual._styles_cache import StylesCache
from textual.color import Color
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget

from tests.console_operator import an_operator
from tests.console_places import a_memory, a_place, some_tasks
from tests.tables import each
from tui.terminal.render_cache import CachedLines


def cells(strips: list[Strip]) -> list[list[tuple[str, object]]]:
    """Each cell of each line, and its style."""
    return [[(char, run.style) for run in strip for char in run.text] for strip in strips]


async def strips_differ(pilot: Pilot[None]) -> list[str]:
    """Whose kept lines are not those that an empty cache makes of the widget now."""
    await pilot.pause()
    wrong = []
    for widget in pilot.app.screen.walk_children(Widget, with_self=True):
        if isinstance(widget._styles_cache, CachedLines) and widget.display and widget.size:
            crop = Region(0, 0, *widget.outer_size)
            rendered = widget._styles_cache.render_widget(widget, crop)
            if cells(rendered) != cells(CachedLines().render_widget(widget, crop)):
                wrong.append(str(widget))
    return wrong


async def test_kept_lines_are_those_of_now() -> None:
    """After keys, another size, another theme: each widget's kept lines are what it would paint."""
    async with an_operator(a_place(a_memory(some_tasks()))) as operator:
        console, pilot = operator.console, operator.pilot
        parts = console.screen.walk_children(Widget)
        assert any(isinstance(part._styles_cache, CachedLines) for part in parts)
        for pressed in ("j", "pagedown", "space", "4", "v", "j", "h", "2"):
            await pilot.press(pressed)
            assert await strips_differ(pilot) == [], pressed
        for then in ((120, 40), "paper", (60, 15), "mono"):
            use_theme = console.theme_loader.use_theme
            await (use_theme(then) if isinstance(then, str) else pilot.resize_terminal(*then))
            assert await strips_differ(pilot) == [], then


@each("kind", [StylesCache, CachedLines])
def test_the_lines_of_a_closed_screen_are_released(kind: type[StylesCache]) -> None:
    """No cache of colours keeps the lines of a widget that has been removed."""
    lines = kind()
    reference = weakref.ref(lines)
    lines.get_inner_outer(Color(0, 0, 0), Color(9, 9, 9))
    del lines
    assert reference() is None
