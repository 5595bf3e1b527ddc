"""The terminal driver: output, input, size, suspend and resume, and loss of the terminal."""

from __future__ import annotations

import asyncio
import os
import re
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
from textual.message import Message

from tui.terminal.bandwidth import OutputWait
from tui.terminal.key_queue import PasteDetector
from tui.terminal.picture import Picture
from tui.terminal.screen_cells import ScreenCells
from tui.text.glyphs import UTF8, Glyphs

UNSENT_SEQUENCES: Mapping[str, str] = {
    "\x1b[?2026$p": "a query: a late answer, over a slow line, would be typed into the shell",
    "\x1b[?2048$p": "a query; size changes are also signalled (SIGWINCH)",
    "\x1b[>25u": "kitty keyboard protocol: if killed, the shell would get long key sequences",
    "\x1b[<u": "the end of the one before",
    "\x1b[?1004h": "focus reports: unused here, and they can reach the shell",
    "\x1b[?1004l": "the end of the one before",
}
"""Sequences of Textual that are not sent, and why; old terminals print some of them as text."""

POINTER_SEQUENCE = "\x1b]22;"
"""Start of the sequence that changes the mouse pointer; Textual sends it even without a mouse."""

MAX_CELLS = 1000
"""Most columns and lines that are painted; a terminal may claim 65,535 of each."""

CLEAR_SEQUENCE = "\x1b[0m\x1b[2J\x1b[H"
"""Clears a terminal without an alternate screen (linux, vt100)."""

SHOW_CURSOR = "\x1b[?25h"

BUFFER_CHARACTERS = 1 << 16

SIGNAL_EXIT_CODES: Mapping[int, int] = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
"""Signals that close the console and restore the terminal, with their exit codes."""

DEFAULT_SIZE = (80, 24)
"""Columns and rows if the terminal does not report its size, as on a serial line."""

ESCAPE_TIMEOUT_MS = 100
"""Milliseconds after which Esc is a key, not the start of an escape sequence."""


class Output:
    """Buffered output to the terminal that counts bytes; dropped after the terminal is gone."""

    def __init__(self, fd: int, glyphs: Glyphs, gone: Callable[[], None]) -> None:
        """`gone` is called, from any thread, when the terminal cannot be written any more."""
        self.bytes_written = 0
        self._write_began: float | None = None
        self._longest_wait = 0.0
        self._fd, self._glyphs, self._gone = fd, glyphs, gone
        self._buffer: list[str] = []
        self._size = 0
        self._broken = False

    def fileno(self) -> int:
        """The file descriptor of the terminal."""
        return self._fd

    def write(self, text: str) -> int:
        """Add text to the buffer."""
        # Applies to all output, also of Textual's own widgets: without UTF-8, send only ASCII.
        if self._glyphs and not text.isascii():
            text = text.translate(self._glyphs)
        self._buffer.append(text)
        self._size += len(text)
        if self._size >= BUFFER_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Write the buffer; drop it if the terminal is gone."""
        data = memoryview("".join(self._buffer).encode("utf-8", "replace"))
        self._buffer.clear()
        self._size = 0
        self._write_began = time.monotonic()
        while data and not self._broken:
            try:
                count = os.write(self._fd, data)
            except BlockingIOError:  # set by another process on the terminal
                select.select([], [self._fd], [])
                continue
            except OSError:
                self._broken = True
                self._gone()
                return
            self.bytes_written += count
            data = data[count:]
        self._longest_wait = max(self._longest_wait, time.monotonic() - self._write_began)
        self._write_began = None

    def take_wait(self) -> OutputWait:
        """How long output waits now, and the longest wait since the last call."""
        began = self._write_began  # the writing thread may end its write any time
        now = 0.0 if began is None else time.monotonic() - began
        longest, self._longest_wait = max(self._longest_wait, now), 0.0
        return OutputWait(now, longest)


class Terminal(LinuxDriver):
    """Textual's Linux driver, extended for old terminals, lost terminals and job control. Signals
    that stop and continue the process are handled on the event loop: a handler that runs at any
    point could interrupt a half-done change of the terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._is_suspended = False
        self._paste_detector = PasteDetector()
        out = sys.__stdout__
        assert out is not None
        # Write to stdout, which is known to be the terminal; stderr may be a file.
        self.output = Output(out.fileno(), getattr(app, "glyphs", UTF8), self._report_loss)
        self._file = cast(TextIOWrapper, self.output)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Set before the screen is taken: from now on these signals end the app, not the event loop.
        end: Callable[[int], None] = getattr(app, "end", lambda code: app.exit(return_code=code))
        for number, code in SIGNAL_EXIT_CODES.items():
            self._loop.add_signal_handler(number, end, code)
        self._loop.add_signal_handler(signal.SIGTSTP, self.suspend_process)
        self._loop.add_signal_handler(signal.SIGCONT, self._resume_process)

    def _report_loss(self) -> None:
        leave: Callable[[], None] = getattr(self._app, "terminal_gone", self._app.exit)
        try:
            self._loop.call_soon_threadsafe(leave)
        except RuntimeError:
            return  # the loop has ended: we are leaving already

    def _get_terminal_size(self) -> tuple[int, int]:
        # Textual uses COLUMNS and LINES, which do not follow the terminal's size.
        try:
            columns, rows = os.get_terminal_size(self.output.fileno())
        except OSError:
            return DEFAULT_SIZE
        if not (columns and rows):
            return DEFAULT_SIZE
        return min(columns, MAX_CELLS), min(rows, MAX_CELLS)

    def write(self, data: str) -> None:
        """Write to the terminal, unless the console is suspended to the shell."""
        if not (
            self._is_suspended or data in UNSENT_SEQUENCES or data.startswith(POINTER_SEQUENCE)
        ):
            super().write(data)

    def _enable_mouse_support(self) -> None:
        if self._mouse:  # clicks and wheel; Textual would also report motion
            self.write("\x1b[?1000h\x1b[?1006h")

    def start_application_mode(self) -> None:
        """Take the terminal and follow its size."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if getattr(self._app, "shows_cursor", False):
            self.write(SHOW_CURSOR)
        # Textual's handler can be interrupted by a newer size: then the older size
        # would be reported last. On the loop, one signal is handled after the other.
        self._loop.add_signal_handler(signal.SIGWINCH, self._report_size)
        self._report_size()

    def _report_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(Resize(size, size))

    # Input

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:  # a bug; Textual would print its message
            self._loop.call_soon_threadsafe(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read keys until the terminal is closed or released."""
        parser = XTermParser(self._debug)
        # Invalid UTF-8 must not end the console in any locale.
        decode = getincrementaldecoder("utf-8")("replace").decode
        is_after_escape = False
        ready = select.poll()
        ready.register(self.fileno, select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        while not self.exit_event.is_set():
            # While idle, the thread does not wake up at all.
            pending = ESCAPE_TIMEOUT_MS if parser._timeout_time is not None else None
            if any(fd == self.fileno for fd, _ in ready.poll(pending)):
                data = self._read()
                if data == b"":
                    self._report_loss()
                    return
                # If the decoder holds an incomplete character, text is "", which the parser takes
                # for the end.
                text = decode(data or b"")
                events = parse_keys(parser, text, is_after_escape) if text else []
                is_after_escape = text.endswith("\x1b") if text else is_after_escape
                self._paste_detector.record_keys(
                    [e for e in events if isinstance(e, Key)], time.monotonic()
                )
                for event in events:
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    def _read(self) -> bytes | None:
        """The typed bytes; None if another process read them, empty if the terminal is gone."""
        try:
            return os.read(self.fileno, 4096)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def disable_input(self) -> None:
        """Stop reading keys."""
        os.eventfd_write(self._wake, 1)
        super().disable_input()
        if self._key_thread is not None and not self._key_thread.is_alive():
            self._drain()

    def _drain(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return  # no wake-up is pending

    # Suspend and resume

    def stop_application_mode(self) -> None:
        """Restore the terminal."""
        self.write(CLEAR_SEQUENCE)
        super().stop_application_mode()

    @property
    def is_suspended(self) -> bool:
        """True while the console is suspended to the shell."""
        return self._is_suspended

    def suspend_application_mode(self) -> None:
        """Release the terminal; what is painted until `resume_application_mode` is dropped."""
        if not self._is_suspended:
            super().suspend_application_mode()
            self._is_suspended = True

    def resume_application_mode(self) -> None:
        """Take the terminal again and repaint everything; not from the background."""
        before, self._is_suspended = self._writer_thread, False
        super().resume_application_mode()
        if self._writer_thread is before:  # in the background: stopped again
            self._is_suspended = True
        else:
            repaint_terminal(self._app)

    def suspend_process(self) -> None:
        """Release the terminal and stop the process until SIGCONT."""
        self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume_process(self) -> None:
        """Handle SIGCONT, maybe after a SIGSTOP that released nothing. Release and take the
        terminal, so that changes by the shell are undone too."""
        if self._writer_thread is not None and self._auto_restart:
            self.suspend_application_mode()
            self.resume_application_mode()

    def close(self) -> None:
        """Close the driver and remove the signal handlers."""
        super().close()
        loop = asyncio.get_running_loop()
        if not self._app.is_running:
            for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
                loop.remove_signal_handler(number)


_KEY_AFTER_ESCAPE = re.compile(r"(?<=\x1b)(?=[^\x1b\[O])")


def parse_keys(parser: XTermParser, text: str, is_after_escape: bool) -> list[Message]:
    """The events of a text; `is_after_escape`: the text before it ended with Esc. A key that comes
    within 100 ms after Esc, as on a slow link, makes Textual an Alt key of both. No key is bound to
    Alt: it is Esc, and then the key. Sequences of a terminal begin with Esc and `[` or `O`."""
    events: list[Message] = []
    for part in _KEY_AFTER_ESCAPE.split(text):
        if is_after_escape and parser._timeout_time is not None and part[0] not in "[O":
            parser._timeout_time = 0.0  # the waiting Esc is a key
            events += parser.tick()
        events += parser.feed(part)
        is_after_escape = part.endswith("\x1b")
    return events


def repaint_terminal(app: App[Any]) -> None:
    """Send the whole screen again: the terminal may show anything."""
    if isinstance(cells := getattr(app, "cells", None), ScreenCells):
        cells.forget()
    if isinstance(picture := getattr(app, "picture", None), Picture):
        picture.release()
    app.refresh(layout=True)


def has_job_control_shell() -> bool:
    """True if a shell with job control can continue this process after a stop. Blocks while reading
    /proc. A shell is there if the parent of the leader of our process group is in our session but
    in another group."""
    leader = os.getpgrp()
    try:
        stat = Path(f"/proc/{leader}/stat").read_text(encoding="utf-8", errors="replace")
        parent = int(stat.rpartition(")")[2].split()[1])
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != leader
    except (OSError, ValueError):
        return False  # the leader has ended: no shell waits
