"""Copy to the operator's clipboard through the terminal, with OSC 52, or show the screen as plain
text for the terminal's own selection: a copy that works everywhere.

Source: xterm's control sequences ("Operating System Commands", Ps = 52); tmux(1) on `set-clipboard`
and `allow-passthrough`; screen(1), "Virtual Terminal": `ESC P` begins a string for the terminal
outside, of at most MAXSTR bytes (its source)."""

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

from tui.text.glyphs import is_linux_console

DEFAULT_LIMIT_BYTES = 74_994
"""Default limit in encoded bytes: terminals drop longer texts (value from k9s)."""

LIMIT_VARIABLE = "SPOOLDECK_OSC52_MAX"
"""Environment variable with another limit, in encoded bytes."""


SCREEN_STRING_BYTES = 240
"""The longest string that each version of GNU screen passes on: the older ones have 256 bytes."""


class NotCopied(Exception):
    """The text is longer than the terminal accepts, or there is no clipboard; the message says."""


def osc52_sequence(text: str, environ: Mapping[str, str]) -> str:
    """The control sequence that puts the text on the terminal's clipboard. Inside tmux it is sent
    twice: to tmux's own clipboard (`set-clipboard`), and through tmux to the outer terminal
    (`allow-passthrough`). GNU screen passes it to the terminal in strings of its own. Raises
    NotCopied: the text is longer than the limit, or the terminal is the Linux text console, which
    would print some of it."""
    if is_linux_console(environ):
        raise NotCopied("the Linux text console has no clipboard; next: = shows plain text")
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    setting = environ.get(LIMIT_VARIABLE, "")
    cap = int(setting) if setting.isascii() and setting.isdigit() else DEFAULT_LIMIT_BYTES
    if len(encoded) > cap:
        raise NotCopied(
            f"{len(encoded):,} bytes encoded; a terminal takes {cap:,} ({LIMIT_VARIABLE})"
        )
    plain = f"\x1b]52;c;{encoded}\x07"
    has_screen, has_tmux = bool(environ.get("STY")), bool(environ.get("TMUX"))
    if has_screen or (not has_tmux and environ.get("TERM", "").startswith("screen")):
        # Both set: one is inside the other. One set on the host that we are logged in from: it may
        # be tmux, which takes the plain one. Screen drops a short one, and prints a long one.
        is_plain = not has_screen or has_tmux
        is_short = len(plain) <= SCREEN_STRING_BYTES
        return (plain if is_plain and is_short else "") + _through_screen(plain)
    if not has_tmux:
        return plain
    return f"{plain}\x1bPtmux;{plain.replace(chr(27), chr(27) * 2)}\x1b\\"


def _through_screen(sequence: str) -> str:
    """Wrap a sequence for GNU screen, cut in strings that it takes."""
    starts = range(0, len(sequence), SCREEN_STRING_BYTES)
    parts = (sequence[start : start + SCREEN_STRING_BYTES] for start in starts)
    return "".join(f"\x1bP{part}\x1b\\" for part in parts)


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
