"""The screen as plain text, for the terminal's own selection: the copy that always works."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from textual.app import App
from textual.screen import Screen


def text_of(screen: Screen[Any]) -> str:
    """What is on a screen, line by line, without colours."""
    # The library has no public way to what it painted.
    strips = screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips).rstrip() + "\n"


async def show(app: App[None], text: str) -> None:
    """Leave the full screen, print the text, and come back when Enter is pressed."""
    # The last line of the screen is for the way back: the first one must not scroll away.
    text = "".join(text.splitlines(keepends=True)[: app.size.height - 1])
    with app.suspend(), app.batch_update():  # nothing is painted over it meanwhile
        sys.__stdout__.write(f"{text}-- as plain text; Enter goes back -- ")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        await asyncio.to_thread(sys.__stdin__.readline)  # type: ignore[union-attr]
