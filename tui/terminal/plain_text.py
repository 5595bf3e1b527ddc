"""Show the screen as plain text for the terminal's own selection: a copy that works everywhere."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Any

from textual.app import App
from textual.screen import Screen

CHECK_SECONDS = 0.1


def screen_text(screen: Screen[Any]) -> str:
    """Text of a screen, line by line, without colours."""
    # Textual has no public access to what it painted.
    strips = screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips).rstrip() + "\n"


async def show_plain_text(app: App[None], text: str) -> None:
    """Leave the full screen, print the text, and come back when Enter is pressed, or when a signal
    ends the app: the event loop handles signals, so it waits for both.
    """
    # The last line is for the prompt: the first line must not scroll away.
    text = "".join(text.splitlines(keepends=True)[: app.size.height - 1])
    out, keyboard = sys.__stdout__, sys.__stdin__
    assert out is not None and keyboard is not None
    with app.suspend(), app.batch_update():  # paint nothing over the text
        out.write(f"{text}-- plain text; Enter returns -- ")
        out.flush()
        loop, pressed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(keyboard.fileno(), pressed.set)
        try:
            while not pressed.is_set() and app.return_code is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(pressed.wait(), CHECK_SECONDS)
        finally:
            loop.remove_reader(keyboard.fileno())
        if pressed.is_set():
            os.read(keyboard.fileno(), 4096)  # a line, or its end
