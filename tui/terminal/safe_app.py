"""A Textual app that always restores the terminal: after a bug, a signal or a lost connection."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from typing import Any

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.events import Event, InputEvent, Key, MouseEvent, MouseUp, Paste, Resize
from textual.geometry import Offset, Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from engine.text.safe import safe_line
from tui.terminal.crash_report import EX_SOFTWARE, report_crash
from tui.terminal.driver import Output, Terminal, has_job_control_shell
from tui.terminal.key_queue import KeyQueue, guard_of, is_burst
from tui.terminal.picture import Picture
from tui.terminal.render_cache import CachedRender
from tui.terminal.screen_cells import CellUpdate, ScreenCells
from tui.terminal.sized_screen import SizedScreen, frame_panes

EXIT_TIMEOUT_SECONDS = 3.0
"""Seconds for threads to end once everything is closed."""

NO_SHELL = "no shell with job control to return to"
"""Message for Ctrl-z if no shell would continue the process."""


class SafeApp(App[None], inherit_bindings=False):
    """Base app: uncaught errors end it without printing any data."""

    ALLOW_SELECT = False  # the terminal selects text itself

    def __init__(self, **options: Any) -> None:
        super().__init__(driver_class=Terminal, **options)
        self.crash: BaseException | None = None
        """The first uncaught error; the caller writes a crash report of it."""
        self.cells = ScreenCells()
        self.picture = Picture()
        self._is_press_dropped = False
        """A mouse button went down on a frozen picture, and is not up yet."""
        self._shown_screen: Screen[Any] | None = None
        self.shows_cursor = False
        """True: the terminal's own cursor is visible, at the row under the cursor."""
        self._terminal_size: Size | None = None
        """Size that the terminal reported last; None before the first report."""
        self._typed = KeyQueue(self, self._act)
        self._hook = threading.excepthook
        self._last_resort: threading.Timer | None = None
        self.is_pasted = False
        """True if the current key came in a burst too fast for typing."""
        self.arrived = -math.inf
        """When the current key was read from the terminal, monotonic seconds."""
        self._gone = False
        self._ended: int | None = None
        self._begun = False

    def on_mount(self) -> None:
        """Also catch errors in threads and callbacks."""
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

    def _register(self, parent: DOMNode, *widgets: Widget, **options: Any) -> list[Widget]:
        for widget in widgets:
            if isinstance(widget, SizedScreen):
                # Before its widgets are styled: a class that is set later styles them all again.
                frame_panes(widget, update=False)
        return super()._register(parent, *widgets, **options)

    async def on_event(self, event: Event) -> None:
        """Queue key events; handle all other events immediately."""
        if isinstance(event, Resize):
            self._terminal_size = event.size
            self.cells.forget()  # the terminal may have moved or cut its lines
            if self.picture.is_frozen:
                self.release_picture("live: the terminal has another size")
            for screen in self.screen_stack:
                if (guard := guard_of(screen)) is not None:
                    guard.plan_hidden()  # a part that was cut off was not read
            if event.size == self.size:  # it had another size in between: no new layout follows
                self.refresh(layout=True)
        if isinstance(event, MouseEvent) and self._is_click_of_frozen(event):
            return
        if isinstance(event, InputEvent | Resize):
            self.picture.wake(time.monotonic())
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._typed.accept_key(event)
        else:
            await super().on_event(event)

    def freeze_picture(self) -> None:
        """Hold the picture once what is painted now is on screen."""
        self.picture.freeze()
        self.paint_header()
        self.screen.call_after_refresh(self.picture.close)

    def release_picture(self, words: str) -> None:
        """Show the present picture with a message."""
        self.picture.release()
        self.paint_header()
        self.say(words)
        self.screen.call_after_refresh(self.show_missed)

    def paint_header(self) -> None:
        """Paint whether the picture is frozen."""

    def show_missed(self) -> None:
        """Send what was painted while no frame was sent."""
        screen = self.screen
        stack = self._background_screens
        frame = screen._compositor.render_update(full=True, screen_stack=stack)
        self.picture.let_pass()
        self._display(screen, frame)

    def _is_click_of_frozen(self, event: MouseEvent) -> bool:
        """True for a mouse event that was meant for a frozen picture, and for the end of a click
        that began on one: a button that goes up alone would make a click with an earlier press."""
        is_rest, self._is_press_dropped = self._is_press_dropped, False
        if self.picture.is_frozen:
            self.release_picture("live: click again")
        elif not self.picture.is_unseen(event.time) and not (
            is_rest and isinstance(event, MouseUp)
        ):
            return False
        self._is_press_dropped = not isinstance(event, MouseUp)
        return True

    def _is_of_frozen(self, event: Event) -> bool:
        """True for a key that was pressed at the sight of a frozen picture: it does nothing but
        release it."""
        key = event.key if isinstance(event, Key) else "the keys"
        if self.picture.is_frozen:
            is_toggle = key in ("p", "escape")
            self.release_picture("live" if is_toggle else f"live again: press {key} again")
            return True
        if is_unseen := self.picture.is_unseen(event.time):
            self.say(f"live again: press {key} again")
        return is_unseen

    async def _act(self, event: Event) -> None:
        if self._is_of_frozen(event):
            return
        self.is_pasted = isinstance(event, Key) and is_burst(event)
        self.arrived = event.time
        # Painted lines take no keys. Passing a key up through all their parents, each with a queue
        # of its own, takes longer than the key's action.
        lines = self.focused if isinstance(self.focused, CachedRender) else None
        if isinstance(event, Key) and lines is not None:
            if await self._is_bound(event.key, lines):
                return
            self.note_unknown_key(event)
        await super().on_event(event)

    def note_unknown_key(self, event: Key) -> None:
        """A key has no action on the screen on top."""

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if self._terminal_size not in (None, screen._compositor.size) and not self.is_headless:
            return  # a frame of a former size: the terminal would cut it; a new layout follows
        now = time.monotonic()
        if self._shown_screen is not screen:
            self._shown_screen = screen
            self.picture.wake(now)
        if renderable is None or not (self.is_headless or self.picture.passes(now)):
            return
        is_lacking = self.cells.is_forgotten or self.picture.is_missed
        if isinstance(renderable, ChopsUpdate) and is_lacking and not self.is_headless:
            # Parts of a frame do not repair what the terminal has cut, or lacks.
            stack = self._background_screens
            renderable = screen._compositor.render_update(full=True, screen_stack=stack)
        if isinstance(renderable, ChopsUpdate | LayoutUpdate):
            renderable = CellUpdate(renderable, self.cells)
        if self.shows_cursor and (place := _cursor_place(self.focused)) is not None:
            self.cursor_position = place
        super()._display(screen, renderable)
        self.picture.sent(time.monotonic())
        guard = guard_of(screen)
        if guard is not None and screen.is_active:
            guard.plan_painted(time.monotonic())

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        """Screens that are visible behind the top one: none, unless the top one is a dialog.
        Textual always counts the screen below, so its changes would repaint the terminal."""
        return super()._background_screens if isinstance(self.screen, ModalScreen) else []

    @property
    def output(self) -> Output | None:
        """The output to the terminal; None before it is opened."""
        return self._driver.output if isinstance(self._driver, Terminal) else None

    def send(self, control: str) -> None:
        """Write a control sequence to the terminal, outside Textual's painting."""
        if self._driver is not None:
            self._driver.write(control)
            self._driver.flush()

    async def _is_bound(self, key: str, lines: Widget) -> bool:
        """Run the key's binding for the focused lines; return True if there was one. Textual's own
        search asks all parents twice per key whether they take it as text: none does."""
        widgets = [
            (node, node._bindings.key_to_bindings.get(key, ()))
            for node in lines.ancestors_with_self
        ]
        for node, bindings in reversed(widgets):
            for binding in bindings:
                if binding.priority and await self.run_action(binding.action, node):
                    return True
        for node, bindings in widgets:
            for binding in bindings:
                if not binding.priority and await self.run_action(binding.action, node):
                    return True
            if node.is_modal:
                break  # a dialog keeps keys from the screens below
        return False

    def run(self, **options: Any) -> None:
        """Run until closed; a thread that waits for a hanging disk does not delay the exit."""
        try:
            super().run(**options)
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()

    async def on_unmount(self) -> None:
        """Restore the thread hook; end the process after `EXIT_TIMEOUT_SECONDS` if threads hang."""
        threading.excepthook = self._hook
        if isinstance(self._driver, Terminal):  # the terminal is already restored
            self._last_resort = threading.Timer(EXIT_TIMEOUT_SECONDS, self._end_now)
            self._last_resort.daemon = True
            self._last_resort.start()

    def _end_now(self) -> None:
        # Textual and the interpreter wait for every thread that they have started.
        if self.crash is not None:
            print(
                f"spooldeck: {safe_line(report_crash(self.crash, os.environ, time.time()))}",
                file=sys.__stderr__,
            )
        os._exit(self.return_code or 0)

    def _handle_exception(self, error: Exception) -> None:
        if self._exit and isinstance(error, NoMatches):
            # The end has removed the parts of a screen that was just opened: its events come later.
            self._close_messages_no_wait()
            return
        # Textual's own handler would print the error with the values of all variables.
        if self.crash is None:
            self.crash = error
        if self._exception is None:  # for tests, which raise it
            self._exception = error
            self._exception_event.set()
        self._return_code = EX_SOFTWARE
        self._close_messages_no_wait()

    async def _close_all(self) -> None:
        # Before the screens, as when the message loop ends: a worker of the app that outlives its
        # screen finds none. Without it, the end of a Textual pilot closes the screens first. First
        # what was just made may start: a coroutine that never starts is a warning.
        await asyncio.sleep(0)
        self.workers.cancel_all()
        await super()._close_all()

    def end(self, code: int) -> None:
        """Close with that exit code after a signal; an early signal waits for the start."""
        self._ended = code
        if self._begun:
            self._end(code)

    def _end(self, code: int) -> None:
        self.exit(return_code=code)

    def terminal_gone(self) -> None:
        """The terminal is gone: close. Reading and writing both detect it."""
        if not self._gone:
            self._gone = True
            os.kill(os.getpid(), signal.SIGHUP)

    async def action_suspend_process(self) -> None:  # type: ignore[override]
        """Suspend to the shell together with all children, as Ctrl-z does in other programs."""
        if not isinstance(self._driver, Terminal):
            return
        if await asyncio.to_thread(has_job_control_shell):
            os.kill(0, signal.SIGTSTP)
        else:
            self.say(NO_SHELL)

    def say(self, text: str) -> None:
        """Show a message on the current screen; without one, ring the terminal bell."""
        speak = getattr(self.screen, "say", None)
        if speak is None or not self.screen.is_mounted:
            self.bell()
        else:
            speak(text)


def _cursor_place(focused: Widget | None) -> Offset | None:
    """Where the row under the cursor begins on screen; None for an input, which has its own."""
    line = getattr(focused, "line_of_cursor", None)
    if focused is None or line is None:
        return None
    region = focused.content_region
    return Offset(region.x, region.y + max(0, min(line, region.height - 1)))
