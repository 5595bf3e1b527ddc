"""An app that gives the terminal back, whatever ends it: a bug, a signal, a line that breaks."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from typing import Any

from textual.app import App
from textual.events import Event, Key, Paste
from textual.screen import Screen

from tui.terminal.crash_report import EX_SOFTWARE, told
from tui.terminal.driver import Terminal, shell_waits
from tui.terminal.key_queue import KeyQueue
from tui.terminal.paste_detector import Confirming, is_burst
from tui.widgets.lines import Painted

LAST = 3.0
"""Seconds that threads get to end by themselves once everything is closed."""

NOBODY = "there is no shell with job control to go to here"
"""What Ctrl-z says where nobody would ever continue us."""


class Guarded(App[None], inherit_bindings=False):
    """Errors that nobody caught end it, without a word about what they were working on."""

    ALLOW_SELECT = False  # selecting is the terminal's own affair

    def __init__(self, **options: Any) -> None:
        super().__init__(driver_class=Terminal, **options)
        self.crash: BaseException | None = None
        """The first error that nobody caught; whoever ran us makes a report of it."""
        self._typed = KeyQueue(self, self._act)
        self._hook = threading.excepthook
        self._last_resort: threading.Timer | None = None
        self.hasty = False
        """Whether the key that acts now came in a burst that no hand types."""
        self.arrived = -math.inf
        """When the key that acts now was read from the terminal, in monotonic seconds."""
        self._gone = False
        self._ended: int | None = None
        self._begun = False

    def on_mount(self) -> None:
        """Hear of errors in threads and callbacks as well."""
        loop = asyncio.get_running_loop()

        def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if isinstance(error, Exception):
                self._handle_exception(error)
            else:
                loop.default_exception_handler(context)

        def ended(arguments: threading.ExceptHookArgs) -> None:
            error = arguments.exc_value
            if isinstance(error, Exception):
                loop.call_soon_threadsafe(self._handle_exception, error)

        loop.set_exception_handler(failed)
        threading.excepthook = ended
        self._begun = True
        if self._ended is not None:
            self.end(self._ended)

    async def on_event(self, event: Event) -> None:
        """What is typed acts in its order; all else at once."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._typed.take(event)
        else:
            await super().on_event(event)

    async def _act(self, event: Event) -> None:
        self.hasty = isinstance(event, Key) and is_burst(event)
        self.arrived = event.time
        # Painted lines take no keys. The way from them up through all that they stand in, each part
        # with a queue of its own, costs more than what the key does.
        lines = self.focused if isinstance(self.focused, Painted) else None
        if isinstance(event, Key) and lines is not None and await self._is_bound(event.key, lines):
            return
        await super().on_event(event)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        super()._display(screen, renderable)
        if isinstance(screen, Confirming) and renderable is not None and screen.is_active:
            screen.guard.painted(time.monotonic())

    async def _is_bound(self, key: str, lines: Painted) -> bool:
        """Do what a key is bound to where these lines have the focus; whether it was to anything.

        The library's own search has all that they stand in say first, of every key there is and
        twice for each key pressed, whether that would rather be typed there: here nothing would.
        """
        way = [
            (node, node._bindings.key_to_bindings.get(key, ()))
            for node in lines.ancestors_with_self
        ]
        for node, bindings in reversed(way):
            for binding in bindings:
                if binding.priority and await self.run_action(binding.action, node):
                    return True
        for node, bindings in way:
            for binding in bindings:
                if not binding.priority and await self.run_action(binding.action, node):
                    return True
            if node.is_modal:
                break  # it keeps keys from what lies below it
        return False

    def run(self, **options: Any) -> None:
        """Stay until it is left; a thread that waits for a disk which hangs holds up nobody."""
        try:
            super().run(**options)
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()

    async def on_unmount(self) -> None:
        """Leave the process as it was."""
        threading.excepthook = self._hook
        if isinstance(self._driver, Terminal):  # the terminal is given back already
            self._last_resort = threading.Timer(LAST, self._end_now)
            self._last_resort.daemon = True
            self._last_resort.start()

    def _end_now(self) -> None:
        # The library waits for every thread that it has started, and so does the interpreter.
        if self.crash is not None:
            print(f"spooldeck: {told(self.crash, os.environ, time.time())}", file=sys.__stderr__)
        os._exit(self.return_code or 0)

    def _handle_exception(self, error: Exception) -> None:
        # The library's own would print the error with the values of all variables.
        if self.crash is None:
            self.crash = error
        if self._exception is None:  # for tests, which raise it
            self._exception = error
            self._exception_event.set()
        self._return_code = EX_SOFTWARE
        self._close_messages_no_wait()

    def end(self, code: int) -> None:
        """Leave with that code, as a signal asked; one that comes early waits for the beginning."""
        self._ended = code
        if self._begun:
            self._end(code)

    def _end(self, code: int) -> None:
        self.exit(return_code=code)

    def terminal_gone(self) -> None:
        """Nobody is there any more: leave. Reading and writing both find that out."""
        if not self._gone:
            self._gone = True
            os.kill(os.getpid(), signal.SIGHUP)

    async def action_suspend_process(self) -> None:  # type: ignore[override]
        """To the shell; with us stops all that was started with us, as after Ctrl-z anywhere."""
        if not isinstance(self._driver, Terminal):
            return
        if await asyncio.to_thread(shell_waits):
            os.kill(0, signal.SIGTSTP)
        else:
            self.say(NOBODY)

    def say(self, text: str) -> None:
        """Say something on the screen that is shown; one that cannot, or not yet, rings a bell."""
        speak = getattr(self.screen, "say", None)
        if speak is None or not self.screen.is_mounted:
            self.bell()
        else:
            speak(text)
