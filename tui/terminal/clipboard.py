"""Copy to the operator's clipboard through the terminal, with OSC 52, or show the screen as plain
text for the terminal's own selection: a copy that works everywhere.

Source: xterm's control sequences ("Operating System Commands", Ps = 52); tmux(1) on `set-clipboard`
and `allow-passthrough`."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from textual.app import App
from textual.screen import Screen

DEFAULT_LIMIT_BYTES = 74_994
"""Default limit in encoded bytes: terminals drop longer texts (value from k9s)."""

LIMIT_VARIABLE = "SPOOLDECK_OSC52_MAX"
"""Environment variable with another limit, in encoded bytes."""


class ClipboardTooLong(Exception):
    """The text is longer than the terminal accepts; the message gives both sizes."""


def osc52_sequence(text: str, environ: Mapping[str, str]) -> str:
    """The control sequence that puts the text on the terminal's clipboard. Inside tmux it is sent
    twice: to tmux's own clipboard (`set-clipboard`), and through tmux to the outer terminal
    (`allow-passthrough`). Raises ClipboardTooLong: the text is longer than the limit."""
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    setting = environ.get(LIMIT_VARIABLE, "")
    cap = int(setting) if setting.isascii() and setting.isdigit() else DEFAULT_LIMIT_BYTES
    if len(encoded) > cap:
        raise ClipboardTooLong(
            f"{len(encoded):,} bytes encoded; a terminal takes {cap:,} ({LIMIT_VARIABLE})"
        )
    plain = f"\x1b]52;c;{encoded}\x07"
    if not environ.get("TMUX"):
        return plain
    return f"{plain}\x1bPtmux;{plain.replace(chr(27), chr(27) * 2)}\x1b\\"


CHECK_SECONDS = 0.1


def screen_text(screen: Screen[Any]) -> str:
    """Text of a screen, line by line, without colours."""
    # Textual has no public access to what it painted.
    strips = screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips).rstrip() + "\n"


async def show_plain_text(app: App[None], text: str) -> None:
    """Leave the full screen, print the text, and come back when Enter is pressed, or when a signal
    ends the app: the event loop handles signals, so it waits for both."""
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
