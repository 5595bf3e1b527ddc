"""The terminal at the other end: what goes to it, what comes from it, and that it may go away."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.geometry import Size

from tui.format.glyphs import UTF8, Glyphs
from tui.terminal.paste_detector import PasteDetector

UNSENT: Mapping[str, str] = {
    "\x1b[?2026$p": "a question: its answer, late over a slow line, is typed into the shell",
    "\x1b[?2048$p": "a question; a change of size is heard by a signal as well",
    "\x1b[>25u": "the kitty keyboard: keys as long sequences, in the shell too if we are killed",
    "\x1b[<u": "the end of the same",
    "\x1b[?1004h": "word of the focus: nothing here asks for it, and it too can reach the shell",
    "\x1b[?1004l": "the end of the same",
}
"""What the library would send and we do not, and why; old terminals print some of it as text."""

POINTER = "\x1b]22;"
"""Begins what changes the form of the mouse pointer; the library sends it without one too."""

TIDY = "\x1b[0m\x1b[2J\x1b[H"
"""Leaves nothing of ours on a terminal that has no second screen (linux, vt100)."""

BUFFER = 1 << 16
"""Characters that are gathered before they are written."""

ENDED_BY: Mapping[int, int] = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
"""Signals that close the console with the terminal restored, and the exit codes that say so."""

USUAL = (80, 24)
"""Columns and rows of a terminal that does not know its own: a serial line."""

PARTIAL = 100
"""Milliseconds after which Esc counts as a key of its own, and not as the begin of a sequence."""


class Output:
    """The wire to the terminal: counts what goes over it, and outlives it."""

    def __init__(self, fd: int, glyphs: Glyphs, gone: Callable[[], None]) -> None:
        """`gone` is called, from any thread, when nothing can be written any more."""
        self.written = 0
        """Bytes so far."""
        self._fd, self._glyphs, self._gone = fd, glyphs, gone
        self._buffer: list[str] = []
        self._size = 0
        self._broken = False

    def fileno(self) -> int:
        """The file descriptor of the terminal."""
        return self._fd

    def write(self, text: str) -> int:
        """Add to what is to be written."""
        # Whatever paints, the library's own widgets too: no locale but UTF-8 gets more than ASCII.
        if self._glyphs and not text.isascii():
            text = text.translate(self._glyphs)
        self._buffer.append(text)
        self._size += len(text)
        if self._size >= BUFFER:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Write; what a terminal that is gone would have got is dropped."""
        data = memoryview("".join(self._buffer).encode("utf-8", "replace"))
        self._buffer.clear()
        self._size = 0
        while data and not self._broken:
            try:
                count = os.write(self._fd, data)
            except BlockingIOError:  # whoever shares the terminal with us may have made it so
                select.select([], [self._fd], [])
                continue
            except OSError:
                self._broken = True
                self._gone()
                return
            self.written += count
            data = data[count:]


class Terminal(LinuxDriver):
    """The library's driver, for every terminal, and for one that goes away or is left for a while.

    Signals that stop and continue us are heard on the event loop: a handler that runs anywhere
    could find half-done what it has to undo.
    """

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._away = False
        self._haste = PasteDetector()
        out = sys.__stdout__
        assert out is not None
        # To where the terminal is known to be: standard error may well be a file.
        self.output = Output(out.fileno(), getattr(app, "glyphs", UTF8), self._lost)
        self._file = cast(TextIOWrapper, self.output)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Before it takes the screen: what ends us from now on ends the app, never the loop.
        end: Callable[[int], None] = getattr(app, "end", lambda code: app.exit(return_code=code))
        for number, code in ENDED_BY.items():
            self._loop.add_signal_handler(number, end, code)
        self._loop.add_signal_handler(signal.SIGTSTP, self.step_back)
        self._loop.add_signal_handler(signal.SIGCONT, self._come_back)

    def _lost(self) -> None:
        """Tell the console that nobody is there any more."""
        leave: Callable[[], None] = getattr(self._app, "terminal_gone", self._app.exit)
        try:
            self._loop.call_soon_threadsafe(leave)
        except RuntimeError:
            return  # the loop has ended: we are leaving already

    def _get_terminal_size(self) -> tuple[int, int]:
        # The variables COLUMNS and LINES, which the library heeds, do not follow the terminal.
        try:
            columns, rows = os.get_terminal_size(self.output.fileno())
        except OSError:
            return USUAL
        return (columns, rows) if columns and rows else USUAL

    def write(self, data: str) -> None:
        """Send to the terminal, unless it is the shell's just now."""
        if not (self._away or data in UNSENT or data.startswith(POINTER)):
            super().write(data)

    def _enable_mouse_support(self) -> None:
        if self._mouse:  # clicks and the wheel; the library would have every motion too
            self.write("\x1b[?1000h\x1b[?1006h")

    def start_application_mode(self) -> None:
        """Take the terminal, and follow its size."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # The library's own handler can be interrupted by itself, by a newer size: the older one was
        # read first and would be told last. On the loop one comes after the other.
        self._loop.add_signal_handler(signal.SIGWINCH, self._tell_size)
        self._tell_size()

    def _tell_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(Resize(size, size))

    # In

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:  # a bug; the library's own way out would print its message
            self._loop.call_soon_threadsafe(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Hand on what is typed, until the terminal closes or is not ours any more."""
        parser = XTermParser(self._debug)
        # A terminal that is not UTF-8, whatever its locale says, must not end the console.
        decode = getincrementaldecoder("utf-8")("replace").decode
        ready = select.poll()
        ready.register(self.fileno, select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        while not self.exit_event.is_set():
            # Idle, it does not wake up at all.
            pending = PARTIAL if parser._timeout_time is not None else None
            if any(fd == self.fileno for fd, _ in ready.poll(pending)):
                data = self._read()
                if data == b"":
                    self._lost()
                    return
                # What the decoder keeps for now is nothing yet, which the parser takes for the end.
                found = list(parser.feed(text)) if (text := decode(data or b"")) else []
                self._haste.heard([e for e in found if isinstance(e, Key)], time.monotonic())
                for event in found:
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    def _read(self) -> bytes | None:
        """What was typed; None when somebody else took it, empty when the terminal is gone."""
        try:
            return os.read(self.fileno, 4096)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def disable_input(self) -> None:
        """Stop listening."""
        os.eventfd_write(self._wake, 1)
        super().disable_input()
        if self._key_thread is not None and not self._key_thread.is_alive():
            self._drain()

    def _drain(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return  # it was not asked to wake up

    # Away and back

    def stop_application_mode(self) -> None:
        """Leave the terminal as it was."""
        self.write(TIDY)
        super().stop_application_mode()

    @property
    def is_away(self) -> bool:
        """Whether the terminal is the shell's just now."""
        return self._away

    def suspend_application_mode(self) -> None:
        """Give the terminal back for now; what is painted meanwhile goes nowhere."""
        if not self._away:
            super().suspend_application_mode()
            self._away = True

    def resume_application_mode(self) -> None:
        """Take the terminal again, and paint everything; not from the background."""
        before, self._away = self._writer_thread, False
        super().resume_application_mode()
        if self._writer_thread is before:  # we were in the background, and are stopped again
            self._away = True
        else:
            self._app.refresh(layout=True)

    def step_back(self) -> None:
        """Give the terminal back, and stop until somebody continues us."""
        self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _come_back(self) -> None:
        """Continued, maybe after a stop that was not asked for (SIGSTOP).

        So what a shell has made of the terminal since then is undone too.
        """
        if self._writer_thread is not None and self._auto_restart:
            self.suspend_application_mode()
            self.resume_application_mode()

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        loop = asyncio.get_running_loop()
        if not self._app.is_running:
            for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
                loop.remove_signal_handler(number)


def shell_waits() -> bool:
    """Whether somebody is there to continue us when we stop: a shell with job control.

    Blocks, for as long as /proc takes. That is so when the parent of our process group's leader
    is of our session, and of another group.
    """
    leader = os.getpgrp()
    try:
        stat = Path(f"/proc/{leader}/stat").read_text(encoding="utf-8", errors="replace")
        parent = int(stat.rpartition(")")[2].split()[1])
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != leader
    except (OSError, ValueError):
        return False  # the leader has ended; nobody waits for it
