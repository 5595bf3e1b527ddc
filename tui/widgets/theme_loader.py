"""What the console wears: one theme at a time, put on anew when its file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.app import App

from tui.widgets import theme as themes
from tui.widgets.lines import Painted
from tui.widgets.theme import BadTheme, Dress


class ThemeLoader:
    """Puts themes on an app and looks after their files; what cannot be read is not put on."""

    def __init__(self, app: App[Any], name: str) -> None:
        """Wear that theme at once; it blocks, as there is no event loop yet.

        Raises:
            BadTheme: there is no such theme.
        """
        self._app = app
        self._dress = themes.load(name)
        self._seen = self._dress.files
        self._worn = 0
        self._put_on(self._dress)

    @property
    def name(self) -> str:
        """The theme that is worn, as it was asked for."""
        return self._dress.name

    async def use(self, name: str) -> str:
        """Wear another theme; answers with what happened, in words."""
        try:
            dress = await asyncio.to_thread(themes.load, name)
        except BadTheme as error:
            return f"{error}; {self.name} stays"
        self._put_on(dress)
        asked = name or themes.DEFAULT
        return f"theme {dress.name}" + (
            f": NO_COLOR is set, {asked} has colours" if dress.name != asked else ""
        )

    async def look_after(self) -> str:
        """Put the theme on anew if a file of it has changed; what happened, "" when nothing."""
        before = self._seen
        seen = await asyncio.to_thread(themes.stamp, [Path(path) for path, _ in before])
        if seen == before or self._seen is not before:
            return ""  # as it was, or another one was chosen meanwhile
        self._seen = seen  # whatever comes of it is said once
        return await self._again(self._dress.name)

    async def _again(self, name: str) -> str:
        before = self._seen
        try:
            dress = await asyncio.to_thread(themes.load, name)
        except BadTheme as error:
            return f"{error}; it stays as it was"
        if self._seen is not before:
            return ""  # another one was chosen meanwhile
        self._put_on(dress)
        return f"theme {Path(dress.name).name} was changed, and is used as it is now"

    def _put_on(self, dress: Dress) -> None:
        app = self._app
        self._dress, self._seen = dress, dress.files
        self._worn += 1
        # The library restyles nothing for a theme of the same name, however much it changed.
        worn = replace(dress.theme, name=f"worn-{self._worn}")
        app.register_theme(worn)
        app.theme = worn.name
        app.unregister_theme(f"worn-{self._worn - 1}")
        self.looks: Mapping[str, Style] = themes.looks(worn)
        for screen in app.screen_stack if app.is_running else ():
            for widget in screen.walk_children(Painted):
                widget.refresh()
