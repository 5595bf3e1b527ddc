"""The console: an app of screens, one for each place, and what they share."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from textual.app import App
from textual.binding import Binding

from tui import theme as themes
from tui.arming import Arming
from tui.glyphs import ASCII, Glyphs
from tui.glyphs import chosen as glyphs_of
from tui.place import Place
from tui.screens.pages import Page
from tui.screens.queue import QueueScreen, Surroundings

ENDED_BY = {signal.SIGTERM: 143, signal.SIGHUP: 129}
"""Signals that close the console with the terminal restored, and the exit codes that say so."""


class Console(App[None], inherit_bindings=False):
    """The operator console. It takes no mouse, so that the terminal's own selection works."""

    TITLE = "spooldeck"
    # Read here and not by CSS_PATH, which is read on the event loop.
    CSS = Path(__file__).with_name("console.tcss").read_text(encoding="utf-8")
    ENABLE_COMMAND_PALETTE = False
    # The library's own Ctrl-q is not wanted: it is flow control. Ctrl-c must come before an input.
    BINDINGS = [Binding("ctrl+c", "cancel", show=False, priority=True)]

    def __init__(
        self,
        places: Sequence[Place],
        *,
        theme: str = "",
        read_only: bool = False,
        start_armed: bool = False,
        clock: Callable[[], float] = time.time,
        host: str = "",
        glyphs: Glyphs | None = None,
    ) -> None:
        """Look at these places; without `glyphs`, with those of the locale.

        Raises:
            BadTheme: there is no such theme.
        """
        # The filter that takes colours away is chosen by this argument, before there is a theme.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        look = themes.load(themes.chosen(theme))
        self.register_theme(look)
        self.theme = look.name
        self.looks = themes.looks(look)
        self.glyphs = glyphs_of(os.environ) if glyphs is None else glyphs
        self.set_class(self.glyphs == ASCII, "-ascii")
        self.animation_level = "none"
        arming = Arming(clock, read_only, start_armed)
        around = Surroundings(host or platform.node(), arming, clock, len(places))
        self.queues = [
            QueueScreen(place, around._replace(number=number))
            for number, place in enumerate(places, 1)
        ]
        self._here = 0

    def run(self, *, mouse: bool = False, **options: object) -> None:
        """Open the console and stay until it is left."""
        return super().run(mouse=mouse, **options)  # type: ignore[arg-type]

    def on_mount(self) -> None:
        """Show the first place, and leave the terminal as it was whatever ends us."""
        loop = asyncio.get_running_loop()
        for number, code in ENDED_BY.items():
            loop.add_signal_handler(number, partial(self._end, code))
        for screen in self.queues:
            self.install_screen(screen, self._name_of(screen))
        self.push_screen(self._name_of(self.queues[0]))

    def _name_of(self, screen: QueueScreen) -> str:
        return f"place {self.queues.index(screen)}"

    def on_queue_screen_turn(self, event: QueueScreen.Turn) -> None:
        """Show another place."""
        self._here = (self._here + event.step) % len(self.queues)
        self.switch_screen(self._name_of(self.queues[self._here]))

    def on_page_help_wanted(self, event: Page.HelpWanted) -> None:
        """Show the keys of the page that asked."""
        from tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(event.about))

    async def action_quit(self) -> None:
        """Leave; asks first when a worker runs that was started here."""
        pids = tuple(s.worker.pid for s in self.queues if s.worker.pid is not None)
        if not pids:
            self._leave("stop")
            return
        from tui.screens.quit import QuitScreen

        self.push_screen(QuitScreen(pids), self._leave)

    async def action_cancel(self) -> None:
        """Cancel an input or a dialog; on the list it quits, but only when pressed twice."""
        screen = self.screen
        if isinstance(screen, QueueScreen):
            if screen.cancels():
                await self.action_quit()
        elif isinstance(screen, Page):
            screen.action_back()
        else:
            screen.dismiss("")

    def _leave(self, answer: str | None) -> None:
        if answer:
            self.run_worker(self._close(keep_worker=answer == "keep", code=0), name="leave")

    def _end(self, code: int) -> None:
        self.run_worker(self._close(keep_worker=False, code=code), name="end")

    async def _close(self, keep_worker: bool, code: int) -> None:
        await self._close_places(keep_worker)
        self.exit(return_code=code)

    async def _close_places(self, keep_worker: bool) -> None:
        await asyncio.gather(*(screen.close_place(keep_worker) for screen in self.queues))

    async def on_unmount(self) -> None:
        """However it ends: threads and temporary files end with it."""
        for number in ENDED_BY:
            asyncio.get_running_loop().remove_signal_handler(number)
        await self._close_places(keep_worker=False)
