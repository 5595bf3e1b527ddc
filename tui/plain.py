"""The screen as plain text, for the terminal's own selection: the copy that always works."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from textual.app import App
from textual.screen import Screen


def text_of(screen: Screen[Any]) -> str:
    """What is on a screen, line by line, without colours.

    The hints are left out: with the line that says how to come back, the whole must fit.
    """
    # The library has no public way to what it painted.
    strips = screen._compositor.render_strips()
    hints = [hints for hints in screen.query("#hints") if hints.size.height]
    end = hints[0].region.y if hints else len(strips)
    rows = [strip.text.rstrip() for strip in strips[:end]]
    return "\n".join(rows).rstrip() + "\n"


async def show(app: App[None], text: str) -> None:
    """Leave the full screen, print the text, and come back when Enter is pressed."""
    with app.suspend(), app.batch_update():  # nothing is painted over it meanwhile
        sys.__stdout__.write(f"{text}-- as plain text; Enter goes back -- ")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        await asyncio.to_thread(sys.__stdin__.readline)  # type: ignore[union-attr]
