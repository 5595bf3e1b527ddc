"""Show the screen as plain text for the terminal's own selection: a copy that works everywhere."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from textual.app import App
from textual.screen import Screen


def screen_text(screen: Screen[Any]) -> str:
    """Text of a screen, line by line, without colours."""
    # Textual has no public access to what it painted.
    strips = screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips).rstrip() + "\n"


async def show_plain_text(app: App[None], text: str) -> None:
    """Leave the full screen, print the text, and come back when Enter is pressed."""
    # The last line is for the prompt: the first line must not scroll away.
    text = "".join(text.splitlines(keepends=True)[: app.size.height - 1])
    with app.suspend(), app.batch_update():  # paint nothing over the text
        sys.__stdout__.write(f"{text}-- plain text; Enter returns -- ")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        await asyncio.to_thread(sys.__stdin__.readline)  # type: ignore[union-attr]
