"""What stands on the screen while the console is loaded: who we are, and what is being opened.

Loading takes most of the time to the first rows. So this needs nothing that has to be loaded, says
nothing that is not known yet, and gives the screen back whatever becomes of the loading.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

from engine.text.safe import shown

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
"""The alternate screen, without cursor; what is too long for a line is cut."""
LEAVE = "\x1b[2J\x1b[H\x1b[?7h\x1b[?1049l\x1b[?25h"
ENDED_BY = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
"""Signals that would end us with the screen left as it is, and the exit codes that say so."""

Handler = Callable[[int, FrameType | None], object] | int | None


class Opening:
    """Holds the screen of a terminal until the console does, or until it is known that none will.

    In the background it shows nothing: the screen is somebody else's then.
    """

    def __init__(
        self, fd: int, host: str, places: Sequence[str], glyphs: Mapping[int, str]
    ) -> None:
        """`fd` is the terminal; `places` are the names of what is opened."""
        self._fd, self._host, self._places, self._glyphs = fd, host, places, glyphs
        self._before: dict[int, Handler] = {}
        self._on = False
        self._taken: Callable[[], bool] = lambda: False
        self._code: int | None = None

    def until(self, taken: Callable[[], bool]) -> None:
        """From now on the screen is the console's if `taken` says so; then it gives it back.

        Raises SystemExit for a signal whose exception was lost: the interpreter ignores one that
        is raised in a weak reference's callback, as the import system has them.
        """
        self._taken = taken
        if self._code is not None:
            raise SystemExit(self._code)

    def __enter__(self) -> Opening:
        """Show it."""
        if self._in_front():
            for number in (*ENDED_BY, signal.SIGTSTP):
                self._before[number] = signal.signal(number, self._heard)
            self._show()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the screen back, unless the console took it and has done so."""
        self._give_back()
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._heard:  # nobody has taken that over either
                signal.signal(number, handler)

    def _in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True  # a terminal that controls nobody has no background

    def _show(self) -> None:
        self._on = True
        rows = lines(self._host, self._places, os.get_terminal_size(self._fd).lines)
        self._write(ENTER + "\r\n".join(rows).translate(self._glyphs))

    def _give_back(self) -> None:
        on, self._on = self._on, False
        if on and not self._taken():
            with suppress(OSError):  # the terminal is gone, and its screen with it
                self._write(LEAVE)

    def _heard(self, number: int, _: FrameType | None) -> None:
        self._give_back()  # at once: it may be heard while we come, or go
        if number in ENDED_BY:
            self._code = ENDED_BY[signal.Signals(number)]
            raise SystemExit(self._code)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._show()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._fd, data) :]


def lines(host: str, places: Sequence[str], height: int) -> list[str]:
    """What it says, on a screen of so many lines."""
    room = max(1, height - 3)
    more = len(places) - room
    named = places[: room - 1] if more > 0 else places
    rows = [f"   {shown(place)}  opening ..." for place in named]
    if more > 0:
        rows.append(f"   and {more + 1} more")
    return [f" {shown(host)}  spooldeck", "", *rows]
