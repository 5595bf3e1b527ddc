"""The Textual app of the console: places, screens, navigation between them, and leaving it."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rich.style import Style
from textual import events
from textual.binding import Binding

from engine.live.call_thread import DaemonExecutor
from engine.live.folder_watch import SharedParts
from engine.locks.lock_file import boot_seconds
from engine.monitor.alerts import AlertKind, Goal
from engine.places.place import Place
from engine.text.safe import safe_line
from tui.navigation import Navigator
from tui.screens.base import BaseScreen
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.edge_lines import TopLine, overview_time
from tui.screens.keyed_screen import KeyedScreen
from tui.screens.page import Page
from tui.screens.target import Target
from tui.session.place_session import PlaceSession, count_totals, follow_places
from tui.terminal.bandwidth import SAMPLE_SECONDS, BandwidthBudget, LinkLimit, OutputWait
from tui.terminal.driver import SIGNAL_EXIT_CODES
from tui.terminal.key_queue import guard_of
from tui.terminal.render_cache import CachedStylesheet
from tui.terminal.safe_app import SafeApp
from tui.terminal.sized_screen import pass_on_size
from tui.text import keys
from tui.text.glyphs import ASCII, Glyphs, describe_glyphs
from tui.text.glyphs import glyphs_of_locale as glyphs_of
from tui.text.lines import Line
from tui.text.table import short_names
from tui.text.times import format_clock
from tui.widgets.background import run_in_background
from tui.widgets.theme import ThemeLoader

if TYPE_CHECKING:
    from tui.global_actions import AppServices


class ConsoleExit:
    """The ways out of the console. Each closes all places first, on their threads."""

    def __init__(self, app: SafeApp, sessions: Sequence[PlaceSession]) -> None:
        self._app, self._sessions = app, sessions

    async def close_screen(self, screen: BaseScreen, out: bool) -> None:
        """Close a screen; the last one quits the console if `out`."""
        if len(self._app.screen_stack) > 2:  # the first is Textual's empty screen
            self._app.pop_screen()
        elif out:
            await self._app.action_quit()
        else:
            screen.say("no screen to go back to; q quits the console")

    def quit(self) -> None:
        """Quit; ask first if a worker or an operation of this console is running."""
        workers = {
            pid: each.name for each in self._sessions if (pid := each.worker.pid) is not None
        }
        works = [
            (work, session.inspector.states)
            for session in self._sessions
            for work in session.operations
            if work.ended is None
        ]
        if not workers and not works:
            self._leave("stop")
            return
        from tui.screens.dialogs import QuitScreen

        self._app.push_screen(QuitScreen(workers, works), self._leave)

    def end(self, code: int) -> None:
        """Quit with that exit code without asking: a signal arrived."""
        self._close(keep_worker=False, code=code)

    async def close_places(self, keep_worker: bool) -> None:
        """Close the places: their threads and temporary files are gone afterwards."""
        await asyncio.gather(*(session.close(keep_worker) for session in self._sessions))

    def _leave(self, answer: str | None) -> None:
        if answer:
            self._close(keep_worker=answer == "keep", code=0)

    def _close(self, keep_worker: bool, code: int) -> None:
        async def close() -> None:
            await self.close_places(keep_worker)
            self._app.exit(return_code=code)

        run_in_background(self._app, close, name="leave")


@runtime_checkable
class Cancels(Protocol):
    """A screen on which Ctrl-c first cancels the input, then quits the console."""

    def cancels(self) -> bool:
        """Cancel the input; return True if the console should quit instead."""


HEADSTART_SECONDS = 0.1
"""Seconds between the first rows of a place and the first read of its lock, metrics and logs: those
need more CPU than the rows, which come first."""


MAX_CLOSELY_FOLLOWED = 4
"""Up to so many places are all read as often as the one that is open."""


class Console(SafeApp, inherit_bindings=False):
    """The operator console. The mouse is off by default: the terminal's own selection works."""

    TITLE = "spooldeck"
    # Read here: Textual would read CSS_PATH on the event loop.
    CSS = Path(__file__).with_name("console.tcss").read_text(encoding="utf-8")
    ENABLE_COMMAND_PALETTE = False
    # Textual binds Ctrl-q to quit, but it is flow control. Ctrl-c must come before the input's own.
    BINDINGS = [Binding("ctrl+c", "cancel", show=False, priority=True)]

    def __init__(
        self,
        places: Sequence[Place],
        *,
        theme: str = "",
        read_only: bool = False,
        start_armed: bool = False,
        is_chosen: bool = True,
        require_reason: bool = False,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = boot_seconds,
        host: str = "",
        glyphs: Glyphs | None = None,
        environment: str = "",
        first: str = keys.OVERVIEW,
        limit: LinkLimit = LinkLimit(),  # noqa: B008 - a constant
        refresh: float = 0.0,
        cursor: bool = False,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        """Follow these places; `glyphs` default to those of the locale. `uptime`: seconds on a
        clock that is never set. `limit` is for repaints without a key; with `refresh` the screen
        changes once in so many seconds without one. `cursor`: show the terminal's own one.
        `first` is the first screen, by its name in the key table. `is_chosen`: False for places
        that no operator has named: nothing is written there before the console was armed.
        `trouble` returns the latest failure outside the places, or "": it is asked each second and
        must not block; a new text is shown.
        Raises BadTheme: there is no such theme."""
        # Textual chooses its no-colour filter by this argument, before a theme is loaded.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.stylesheet = CachedStylesheet(variables=self.get_css_variables())
        self.theme_loader = ThemeLoader(self, theme)
        self.glyphs = glyphs_of(os.environ) if glyphs is None else glyphs
        self.set_class(self.glyphs == ASCII, "-ascii")
        self.animation_level = "none"
        self.picture.rest, self.shows_cursor = refresh, cursor
        self._frozen_at = 0.0
        self._alerts: set[tuple[AlertKind, Goal]] = set()
        """Kind and goal of each alert, as last seen."""
        arming = Arming(uptime, read_only, start_armed and is_chosen, is_chosen=is_chosen)
        self.bandwidth = BandwidthBudget(
            lambda: self.output.bytes_written if self.output else 0,
            limit=limit,
            is_operating=lambda: any(session.is_operating for session in self.sessions),
            waited=lambda: self.output.take_wait() if self.output else OutputWait(),
        )
        self.context = ConsoleContext(
            host or platform.node(),
            arming,
            clock,
            places=len(places),
            environment=environment,
            require_reason=require_reason,
            repaint_seconds=lambda: self.bandwidth.period,
            skips_repaint=lambda: self.picture.is_frozen or self.bandwidth.skips_repaint,
            operations=lambda: _operations_line(self.sessions),
            pane_seconds=lambda: self.bandwidth.pane_seconds,
            frozen=self._frozen_chip,
            overview_time=lambda: overview_time(self.screen_stack),
            refresh=refresh,
            totals=lambda: count_totals(self.sessions, clock()),
        )
        names = short_names([place.name for place in places])
        shared = SharedParts(len(places))
        self.sessions = [
            PlaceSession(
                place,
                clock,
                number,
                why_not_written=lambda: arming.why_not_written,
                name=name,
                shared=shared,
            )
            for number, (place, name) in enumerate(zip(places, names, strict=True), 1)
        ]
        self.navigator = Navigator(self, self.context, self.sessions)
        self.leaving = ConsoleExit(self, self.sessions)
        self._first = first
        self._trouble, self._shown_trouble = trouble, ""
        self._noted: set[str] = set()
        """Kinds of screens on which an unknown key was noted."""

    def run(self, *, mouse: bool = False, **options: object) -> None:
        """Run the console until it is closed."""
        super().run(mouse=mouse, **options)

    def on_mount(self) -> None:
        """Follow each place and show the first screen; restore the terminal at the end."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonExecutor())
        for number, code in SIGNAL_EXIT_CODES.items():
            loop.add_signal_handler(number, partial(self.end, code))
        period, is_shown = (lambda: self.bandwidth.period), partial(_is_shown, self)
        following = partial(follow_places, self.sessions, period, HEADSTART_SECONDS, is_shown)
        run_in_background(self, following, name="follow")
        follow_files = partial(self.theme_loader.follow_files, self.say)
        run_in_background(self, follow_files, name="theme")
        self.set_interval(SAMPLE_SECONDS, self._sample)
        if self._first not in (keys.OVERVIEW, keys.LIST):
            self.navigator.goto(Target(keys.OVERVIEW))  # Esc closes it, so it needs a screen below
        self.navigator.goto(Target(self._first))

    def note_unknown_key(self, event: events.Key) -> None:
        """Say so once on each kind of screen."""
        screen = self.screen
        if self.is_pasted or not isinstance(screen, KeyedScreen) or screen.KIND in self._noted:
            return
        self._noted.add(screen.KIND)
        pressed = event.character if event.is_printable else event.key
        screen.say(f"no key {safe_line(pressed or '')} here; ? lists the keys", "muted")

    async def on_event(self, event: events.Event) -> None:
        """Count the following output as an answer to a key or to a new terminal size."""
        if isinstance(event, events.InputEvent | events.Resize):
            self.bandwidth.note_key()
        await super().on_event(event)

    @property
    def looks(self) -> Mapping[str, Style]:
        """Style of each style name."""
        return self.theme_loader.looks

    def action_freeze(self) -> None:
        """Freeze the picture; any key shows the present one."""
        self._frozen_at = self.context.clock()
        self.freeze_picture()

    def paint_header(self) -> None:
        for top in self.screen.query(TopLine):
            top.update_again()
        if isinstance(self.screen, Page):
            self.screen.lay_out(self.screen.size.width)

    def _frozen_chip(self) -> Line:
        chip: Line = ((f" FROZEN since {format_clock(self._frozen_at)} ", "chip-accent"),)
        return chip if self.picture.is_frozen else ()

    def _wake_picture(self) -> None:
        """Show what must not wait: a new alert, and a running operation."""
        found = {(one.kind, one.target) for session in self.sessions for one in session.alerts}
        is_operating = any(session.is_operating for session in self.sessions)
        now = time.monotonic()
        if is_operating or found - self._alerts:
            self.picture.wake(now)
        self._alerts = found
        if self.picture.is_due(now):
            self.show_missed()

    def _sample(self) -> None:
        """Measure the output, then show the result of a background operation."""
        self.bandwidth.measure()
        if self.picture.rest:
            self._wake_picture()
        pass_on_size(self)
        if (trouble := self._trouble()) != self._shown_trouble:
            self._shown_trouble = trouble
            self.sessions[0].messages.append(safe_line(trouble))
        show_result(self)

    def on_mouse_scroll_down(self) -> None:
        from tui import mouse

        mouse.turn_wheel(self.screen, "down")

    def on_mouse_scroll_up(self) -> None:
        from tui import mouse

        mouse.turn_wheel(self.screen, "up")

    def on_click(self, event: events.Click) -> None:
        """Select or open a row, switch to a tab, or press the key of a hint."""
        from tui import mouse

        mouse.click(self, event)

    def on_base_screen_go(self, event: BaseScreen.Go) -> None:
        self.navigator.goto(event.target)

    async def on_base_screen_action_request(self, event: BaseScreen.ActionRequest) -> None:
        from tui.global_actions import GLOBAL_ACTIONS

        answer = GLOBAL_ACTIONS[event.what](self, event.screen, _services(self))
        if answer is not None:
            await answer

    async def action_quit(self) -> None:
        self.leaving.quit()

    async def action_cancel(self) -> None:
        """Cancel an input or a dialog; on the list Ctrl-c must be pressed twice to quit."""
        screen = self.screen
        if isinstance(screen, Cancels):
            if screen.cancels():
                await self.action_quit()
        else:
            await screen.run_action("back")

    def _end(self, code: int) -> None:
        self.leaving.end(code)

    async def on_unmount(self) -> None:
        """Close the places: their threads and temporary files are gone however the app ends."""
        for number in SIGNAL_EXIT_CODES:
            asyncio.get_running_loop().remove_signal_handler(number)
        await self.leaving.close_places(keep_worker=False)


def _is_shown(console: Console, session: PlaceSession) -> bool:
    """True if a place is read each second: a screen shows it alone, or there are few."""
    if len(console.sessions) <= MAX_CLOSELY_FOLLOWED:
        return True
    is_overview = any(
        getattr(top, "KIND", "") == keys.OVERVIEW for top in console.screen_stack[-1:]
    )
    return console.navigator.session is session and not is_overview


def show_result(console: Console) -> None:
    """Show the result of a background operation on the current screen. Wait while the operator may
    still read the answer to a key, which the result would replace, while the picture is frozen, and
    while a plan is open, because it would look like the result of that plan. A closing console has
    no screen."""
    picture = console.picture
    if not console.screen_stack or picture.is_frozen or picture.is_unseen(time.monotonic()):
        return
    if console.bandwidth.is_answering or guard_of(console.screen) is not None:
        return
    for session in console.sessions:
        if (
            session.messages
            and isinstance(console.screen, BaseScreen)
            and console.screen.is_mounted
        ):
            console.picture.wake(time.monotonic())
            console.say(session.messages.popleft())
            return


def _operations_line(sessions: Sequence[PlaceSession]) -> Line:
    works = [work for session in sessions for work in session.operations]
    running = (one for session in sessions for one in session.other_operations)
    others = [*{one.op: one for one in running}.values()]  # a place may be open twice
    if works or others:
        from tui.session.running_operations import operations_line

        is_old = any(one.history.age is not None for one in sessions if one.other_operations)
        return operations_line(works, others, is_old=is_old)
    return ()


def _services(console: Console) -> AppServices:
    from tui.global_actions import AppServices

    return AppServices(
        console.navigator.goto,
        console.theme_loader.use_theme,
        console.leaving.close_screen,
        send=console.send,
        context=console.context,
        states=console.navigator.session.inspector.states,
        places=tuple((one.place.name, one.inspector.states) for one in console.sessions),
        terminal=partial(_describe_terminal, console),
    )


def _describe_terminal(console: Console) -> tuple[str, ...]:
    """Facts about the terminal for the help: they answer most questions about colours and signs."""
    size, environ = console.size, os.environ
    charset = describe_glyphs(console.glyphs)
    theme = "none (NO_COLOR)" if environ.get("NO_COLOR") else console.theme_loader.name
    rate = console.bandwidth.describe_rate()
    return (
        f"{size.width}x{size.height}  TERM={environ.get('TERM', '')}  signs {charset}",
        f"theme {theme}  colours {console.console.color_system or 'none'}  output {rate}",
    )
