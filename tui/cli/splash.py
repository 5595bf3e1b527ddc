"""The screen shown while the console is loaded: host and places.

Loading takes most of the time to the first rows. So this module imports almost nothing, shows only
what is known, and restores the screen however the loading ends.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from engine.text.safe import safe_line

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
"""Switch to the alternate screen, hide the cursor, cut long lines."""
LEAVE_SCREEN = "\x1b[2J\x1b[H\x1b[?7h\x1b[?1049l\x1b[?25h"
ENDED_BY = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
"""Signals that would end us without restoring the screen, with their exit codes."""

Handler = Callable[[int, FrameType | None], object] | int | None


class SplashScreen:
    """Shows the loading screen until the console takes over or the loading fails.

    In the background it shows nothing: the terminal belongs to another process then.
    """

    def __init__(
        self, fd: int, host: str, places: Sequence[str], glyphs: Mapping[int, str]
    ) -> None:
        """`fd` is the terminal; `places` are the names of the places to open."""
        self._fd, self._host, self._places, self._glyphs = fd, host, places, glyphs
        self._before: dict[int, Handler] = {}
        self._on = False
        self._attributes: list[Any] | None = None
        """Those of the terminal before; None while they are not changed."""
        self._taken: Callable[[], bool] = lambda: False
        self._code: int | None = None

    def hand_over_when(self, taken: Callable[[], bool]) -> None:
        """The console owns and restores the screen as soon as `taken` returns True.

        Raises SystemExit for a signal whose exception was lost: the interpreter ignores an
        exception raised in a weak reference's callback, which the import system uses.
        """
        self._taken = taken
        self._show_keys()
        if self._code is not None:
            raise SystemExit(self._code)

    def __enter__(self) -> SplashScreen:
        """Show it."""
        if self._is_foreground():
            for number in (*ENDED_BY, signal.SIGTSTP):
                self._before[number] = signal.signal(number, self._handle_signal)
            self._show()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the screen, unless the console took it over and has done so."""
        self._restore_screen()
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle_signal:  # not replaced by the console
                signal.signal(number, handler)

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True  # not a controlling terminal: no background

    def _show(self) -> None:
        self._on = True
        self._hide_keys()
        rows = splash_lines(self._host, self._places, os.get_terminal_size(self._fd).lines)
        self._write(ENTER_SCREEN + "\r\n".join(rows).translate(self._glyphs))

    def _restore_screen(self) -> None:
        on, self._on = self._on, False
        self._show_keys()
        if on and not self._taken():
            with suppress(OSError):  # the terminal is gone
                self._write(LEAVE_SCREEN)

    def _hide_keys(self) -> None:
        """Let the terminal not show typed keys; the console reads and obeys them later."""
        with suppress(termios.error):  # no terminal
            self._attributes = termios.tcgetattr(self._fd)
            attributes = termios.tcgetattr(self._fd)
            attributes[3] &= ~termios.ECHO
            termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def _show_keys(self) -> None:
        attributes, self._attributes = self._attributes, None
        if attributes is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        self._restore_screen()  # also during __enter__ and __exit__
        if number in ENDED_BY:
            self._code = ENDED_BY[signal.Signals(number)]
            raise SystemExit(self._code)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._show()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._fd, data) :]


def splash_lines(host: str, places: Sequence[str], height: int) -> list[str]:
    """The lines to show, for a screen of this height."""
    room = max(1, height - 3)
    more = len(places) - room
    named = places[: room - 1] if more > 0 else places
    rows = [f"   {safe_line(place)}" for place in named]
    if more > 0:
        rows.append(f"   and {more + 1} more")
    count = "1 place" if len(places) == 1 else f"{len(places)} places"
    return [f" spooldeck on {safe_line(host)}: opening {count} ...", "", *rows]
