"""Apply a theme to the app, and again when its file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.app import App

from tui.widgets import theme as themes
from tui.widgets.line_widgets import Painted
from tui.widgets.theme import BadTheme, LoadedTheme

CHECK_SECONDS = 1.0
"""Seconds between two checks of the theme files."""


class ThemeLoader:
    """Applies themes to an app and watches their files; a theme with an error is not applied."""

    def __init__(self, app: App[Any], name: str) -> None:
        """Apply that theme now; blocks, because there is no event loop yet.

        Raises:
            BadTheme: there is no such theme.
        """
        self._app = app
        self._loaded = themes.load_theme(name)
        self._stamps = self._loaded.files
        self._apply_count = 0
        self._apply(self._loaded)

    @property
    def name(self) -> str:
        """Current theme, as requested."""
        return self._loaded.name

    @property
    def note(self) -> str:
        """Former style names in the files of the theme; "" if there are none."""
        return self._loaded.note

    async def use_theme(self, name: str) -> str:
        """Apply another theme; return a message."""
        try:
            loaded = await asyncio.to_thread(themes.load_theme, name)
        except BadTheme as error:
            return f"{error}; {self.name} unchanged"
        self._apply(loaded)
        asked = name or themes.default_theme()
        return (loaded.note or f"theme {loaded.name}") + (
            f": NO_COLOR is set, {asked} has colours" if loaded.name != asked else ""
        )

    async def follow_files(self, say: Callable[[str], None]) -> None:
        """Apply the theme again whenever its files change; `say` shows messages."""
        if self.note:
            say(self.note)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if words := await self.reload_if_changed():
                say(words)

    async def reload_if_changed(self) -> str:
        """Apply the theme again if its file has changed; return a message, "" if unchanged."""
        before = self._stamps
        stamps = await asyncio.to_thread(themes.file_stamps, [Path(path) for path, _ in before])
        if stamps == before or self._stamps is not before:
            return ""  # unchanged, or another theme was applied
        self._stamps = stamps  # report an error only once
        return await self._reload(self._loaded.name)

    async def _reload(self, name: str) -> str:
        before = self._stamps
        try:
            loaded = await asyncio.to_thread(themes.load_theme, name)
        except BadTheme as error:
            return f"{error}; theme unchanged"
        if self._stamps is not before:
            return ""  # another theme was applied
        self._apply(loaded)
        return f"theme {Path(loaded.name).name} reloaded"

    def _apply(self, loaded: LoadedTheme) -> None:
        app = self._app
        self._loaded, self._stamps = loaded, loaded.files
        self._apply_count += 1
        # Textual restyles nothing for a theme of the same name, even if its colours changed.
        worn = replace(loaded.theme, name=f"worn-{self._apply_count}")
        app.register_theme(worn)
        app.theme = worn.name
        app.unregister_theme(f"worn-{self._apply_count - 1}")
        self.looks: Mapping[str, Style] = themes.theme_styles(worn)
        self.is_colorless = themes.is_colourless(worn)
        for screen in app.screen_stack if app.is_running else ():
            for widget in screen.walk_children(Painted):
                widget.rewrite_frame()
                widget.refresh()
