"""The console: the places it follows, the screens on them, and the ways between those."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.screen import ModalScreen, Screen

from engine.model import State
from tui.format import keys
from tui.format.glyphs import ASCII, Glyphs
from tui.format.glyphs import chosen as glyphs_of
from tui.screens.base import HERE, BaseScreen, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen, Page
from tui.screens.write_mode import Arming
from tui.session.place import Place
from tui.session.place_session import PlaceSession
from tui.terminal.bandwidth import TURN, BandwidthBudget
from tui.terminal.driver import ENDED_BY, Terminal
from tui.terminal.paste_detector import Confirming
from tui.terminal.safe_app import Guarded
from tui.terminal.stylesheet_cache import CachedStylesheet
from tui.widgets.theme_loader import ThemeLoader

if TYPE_CHECKING:
    from tui.global_actions import AppServices
    from tui.queue.screen import QueueScreen


@runtime_checkable
class Cancels(Protocol):
    """A screen on which Ctrl-c first cancels what is typed, and then leaves the console."""

    def cancels(self) -> bool:
        """Cancel what is typed; answers whether the console is to be left instead."""
        ...


WHEEL = 3
"""Lines that a turn of the wheel moves by, where the mouse was asked for."""

LOOKS = 1.0
"""Seconds between two looks at the files of the theme."""

HEADSTART = 0.1
"""Seconds that a place's rows have for themselves once there are any, to be fetched and painted:
lock, figures and logs need more of the processor than they do, and come after them."""


class Console(Guarded, inherit_bindings=False):
    """The operator console. Unless asked it takes no mouse: the terminal's own selection works."""

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
        require_reason: bool = False,
        clock: Callable[[], float] = time.time,
        host: str = "",
        glyphs: Glyphs | None = None,
        environment: str = "",
        first: str = keys.OVERVIEW,
        budget: float = math.inf,
    ) -> None:
        """Look at these places; without `glyphs`, with those of the locale.

        `budget` limits repaints without a key, in bytes a second to the terminal.

        `first` is the screen that it opens on, as the key table names it.

        Raises:
            BadTheme: there is no such theme.
        """
        # The filter that takes colours away is chosen by this argument, before there is a theme.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.stylesheet = CachedStylesheet(variables=self.get_css_variables())
        self.dressing = ThemeLoader(self, theme)
        self.glyphs = glyphs_of(os.environ) if glyphs is None else glyphs
        self.set_class(self.glyphs == ASCII, "-ascii")
        self.animation_level = "none"
        arming = Arming(clock, read_only, start_armed)
        self.wire = BandwidthBudget(
            lambda: self.written, budget=budget, is_operating=self._is_operating
        )
        self.around = ConsoleContext(
            host or platform.node(),
            arming,
            clock,
            len(places),
            environment,
            require_reason,
            self.wire.words,
            lambda: sum(len(live.alerts) for live in self.lives),
            lambda: self.wire.period,
            still=lambda: self.wire.still,
            works=self._works,
        )
        self.lives = [
            PlaceSession(place, clock, number, records=not read_only)
            for number, place in enumerate(places, 1)
        ]
        self._queues: dict[int, QueueScreen] = {}
        self._first = first
        self._here = 1

    def run(self, *, mouse: bool = False, **options: object) -> None:
        """Open the console and stay until it is left."""
        super().run(mouse=mouse, **options)

    def on_mount(self) -> None:
        """Follow each place, show the first screen, leave the terminal as it was in the end."""
        loop = asyncio.get_running_loop()
        for number, code in ENDED_BY.items():
            loop.add_signal_handler(number, partial(self.end, code))
        for live in self.lives:
            self.run_worker(self._follow(live), name=f"follow {live.number}")
        self.run_worker(self._look_after_theme(), name="theme")
        self.set_interval(TURN, self._turn)
        if self._first not in (keys.OVERVIEW, keys.LIST):
            self.goto(Target(keys.OVERVIEW))  # a board is closed, so something stands below it
        self.goto(Target(self._first))

    def _is_operating(self) -> bool:
        """Whether an operation, a lock recovery or a test mail of this console runs."""
        return any(live.is_operating for live in self.lives)

    def _works(self) -> str:
        if works := [work for live in self.lives for work in live.works]:
            from tui.session.running_operations import badge

            return badge(works)
        return ""

    async def _follow(self, live: PlaceSession) -> None:
        await live.follow(lambda: self.wire.period, HEADSTART)

    # What goes over the wire

    @property
    def written(self) -> int:
        """Bytes that went to the terminal so far; 0 before it is ours."""
        return self._driver.output.written if isinstance(self._driver, Terminal) else 0

    async def on_event(self, event: events.Event) -> None:
        """What follows a key, or another size of the terminal, is an answer."""
        if isinstance(event, events.InputEvent | events.Resize):
            self.wire.hand()
        await super().on_event(event)

    # How it looks

    @property
    def looks(self) -> Mapping[str, Style]:
        """The style of each look."""
        return self.dressing.looks

    async def use_theme(self, name: str) -> str:
        """Look like that theme, by name or path; answers with what happened, in words."""
        return await self.dressing.use(name)

    async def _look_after_theme(self) -> None:
        while True:
            await asyncio.sleep(LOOKS)
            if words := await self.dressing.look_after():
                self.say(words)

    def _turn(self) -> None:
        self.wire.look()
        self._tell_news()

    def _tell_news(self) -> None:
        """Say what came of what is carried out, whatever screen is shown.

        It waits while a key's answer is being read, as it would take its place, and while a plan is
        open, as it would look like the result of that plan. A closing console has no screen.
        """
        if not self.screen_stack:  # the console is being left
            return
        if self.wire.answering or isinstance(self.screen, Confirming):
            return
        for live in self.lives:
            if live.news and isinstance(self.screen, BaseScreen) and self.screen.is_mounted:
                self.say(live.news.popleft())
                return

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves as the keys do."""
        self._wheel("down")

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves as the keys do."""
        self._wheel("up")

    def _wheel(self, how: str) -> None:
        move = getattr(self.screen, "action_move", None)
        if move is not None:
            for _ in range(WHEEL):
                move(how)

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        """The screens that shine through the one on top: none, unless that is a question.

        The library counts the one below in any case, and each change of it, seen by nobody, had the
        whole screen painted again.
        """
        return super()._background_screens if isinstance(self.screen, ModalScreen) else []

    # The ways between the screens

    @property
    def here(self) -> PlaceSession:
        """The place that is looked at."""
        return self.lives[self._here - 1]

    def queue(self, place: int = HERE) -> QueueScreen:
        """The screen of a place's tasks; it stays as it was left."""
        from tui.queue.screen import QueueScreen

        number = place or self._here
        if number not in self._queues:
            screen = self._queues[number] = QueueScreen(self.lives[number - 1], self.around)
            self.install_screen(screen, f"queue {number}")  # else it would end when it is left
        return self._queues[number]

    def on_base_screen_go(self, event: BaseScreen.Go) -> None:
        """Somewhere else."""
        self.goto(event.target)

    def goto(self, target: Target) -> None:
        """Show a screen; what lies above it is closed, and what it needs below it is opened."""
        self._here = target.place or self._here
        getattr(self, f"_to_{target.pane}")(target)

    def _to_overview(self, target: Target) -> None:
        from tui.overview.screen import OverviewScreen

        if not self._back_to(OverviewScreen):
            self.push_screen(OverviewScreen(self.lives, self.around))

    def _to_list(self, target: Target) -> None:
        screen = self.queue()
        screen.aim(target)
        if screen in self.screen_stack:
            self._close_above(screen)
            return
        for other in self._queues.values():
            if other in self.screen_stack:
                self._close_above(other)
                self.switch_screen(screen)
                return
        self._close_boards()
        self.push_screen(screen)

    def _to_locks(self, target: Target) -> None:
        from tui.locks.list_screen import LocksScreen

        self._show_board(LocksScreen(self.here, self.around, self.lives))

    def _to_transports(self, target: Target) -> None:
        from tui.transports.screen import TransportsScreen

        self._show_board(TransportsScreen(self.here, self.around))

    def _to_controls(self, target: Target) -> None:
        from tui.operations.controls_screen import ControlsScreen

        self._show_board(ControlsScreen(self.here, self.around))

    def _to_log(self, target: Target) -> None:
        from tui.log.screen import LogScreen

        screen = LogScreen(self.here, self.around, find=target.id, at=target.at, line=target.line)
        self._show_board(screen, keep=bool(target.id) or target.at is not None)

    def _to_failures(self, target: Target) -> None:
        from tui.transports.failures_screen import FailuresScreen

        self.push_screen(FailuresScreen(self.here, self.around, target.id))

    def _to_trial(self, target: Target) -> None:
        from tui.transports.test_mail_screen import TrialScreen

        self.push_screen(TrialScreen(target.id, self.here, self.around))

    def _to_clusters(self, target: Target) -> None:
        from tui.queue.clusters_screen import ClustersScreen

        self.push_screen(ClustersScreen(self.here, self.around, self.queue().wanted))

    def _to_operations(self, target: Target) -> None:
        from tui.operations.screen import OperationsScreen

        for screen in self.screen_stack:
            if isinstance(screen, OperationsScreen) and screen.live is self.here:
                screen.aim(target.id)
                self._close_above(screen)
                return
        self.push_screen(OperationsScreen(self.here, self.around, target.id))

    def _to_operation(self, target: Target) -> None:
        """What is carried out here, by its name in the journal; without one the latest."""
        from tui.operations.running_screen import ReplayScreen
        from tui.plan.screen import PlanScreen

        works = [work for work in self.here.works if work.op == target.id] or self.here.works
        if works:
            screen = ReplayScreen(works[-1], self.here, self.around)
            plan = isinstance(self.screen, PlanScreen)
            (self.switch_screen if plan else self.push_screen)(screen)

    def _to_task(self, target: Target) -> None:
        from tui.task.screen import TaskScreen

        self.push_screen(TaskScreen(target.id, self.here, self.around))

    def _to_lock(self, target: Target) -> None:
        from tui.locks.screen import LockScreen

        live = self.here

        def begin(seen: str, hold: Sequence[str]) -> None:
            freeing = live.recovery.run(seen, hold)  # at once: the screen shows what it says

            async def tell() -> None:
                said = await freeing
                faces = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
                next(face for face in reversed(faces) if face.KIND != keys.LOCK).say(said)

            self.run_worker(tell(), name="recovery", group="recovery")

        self.push_screen(LockScreen(live, begin, self.around))

    def _show_board(self, screen: BaseScreen, keep: bool = False) -> None:
        """Show a board; unless it is wanted on top, in the place of one that is shown."""
        if not keep:
            self._close_boards()
        self.push_screen(screen)

    def _close_boards(self) -> None:
        """Close what lies above the overview: that is where one comes back to."""
        while isinstance(self.screen, ListScreen) and self.screen.KIND != keys.OVERVIEW:
            self.pop_screen()

    def _back_to(self, kind: type[BaseScreen]) -> bool:
        found = next((s for s in self.screen_stack if isinstance(s, kind)), None)
        if found is not None:
            self._close_above(found)
        return found is not None

    def _close_above(self, screen: Screen[Any]) -> None:
        while self.screen is not screen:
            self.pop_screen()

    async def on_base_screen_wants(self, event: BaseScreen.Wants) -> None:
        """Something that every screen has."""
        from tui.global_actions import WISHES

        answer = WISHES[event.what](self, event.face, self._ways())
        if answer is not None:
            await answer

    def _ways(self) -> AppServices:
        from tui.global_actions import AppServices

        return AppServices(
            self.goto,
            self.use_theme,
            self.leave_face,
            self.send,
            self.around.clock,
            tuple(live.place.name for live in self.lives),
            self._terminal(),
        )

    def _terminal(self) -> tuple[str, ...]:
        """What the terminal was found to be: the answer to most questions about how things look."""
        size, environ = self.size, os.environ
        signs = "ASCII" if self.glyphs == ASCII else "UTF-8"
        theme = "none (NO_COLOR)" if environ.get("NO_COLOR") else self.dressing.name
        wire = self.around.wire()
        return (
            f"{size.width}x{size.height}  TERM={environ.get('TERM', '')}  signs {signs}",
            f"theme {theme}" + (f"  wire {wire}" if wire else ""),
        )

    async def leave_face(self, face: BaseScreen, out: bool) -> None:
        """Back to the screen below; where there is none, out of the console if that is meant."""
        if len(self.screen_stack) > 2:  # the library's own empty screen is the first
            self.pop_screen()
        elif out:
            await self.action_quit()
        else:
            face.say("there is nothing to go back to; q leaves the console")

    def send(self, control: str) -> None:
        """Write a control sequence of ours to the terminal, past what is painted."""
        if self._driver is not None:
            self._driver.write(control)
            self._driver.flush()

    async def action_quit(self) -> None:
        """Leave; asks first when something runs that was started here."""
        pids = tuple(live.worker.pid for live in self.lives if live.worker.pid is not None)
        works = [work for live in self.lives for work in live.works if work.ended is None]
        if not pids and not works:
            self._leave("stop")
            return
        from tui.screens.quit import QuitScreen

        dead = self.here.inspector.states.get(State.DEAD, "where they are")
        self.push_screen(QuitScreen(pids, works, dead), self._leave)

    async def action_cancel(self) -> None:
        """Cancel an input or a dialog; on the list it quits, but only when pressed twice."""
        screen = self.screen
        if isinstance(screen, Cancels):
            if screen.cancels():
                await self.action_quit()
        elif isinstance(screen, Page | ListScreen):
            screen.action_back()
        else:
            await screen.run_action("back")

    def _leave(self, answer: str | None) -> None:
        if answer:
            self.run_worker(self._close(keep_worker=answer == "keep", code=0), name="leave")

    def _end(self, code: int) -> None:
        self.run_worker(self._close(keep_worker=False, code=code), name="end")

    async def _close(self, keep_worker: bool, code: int) -> None:
        await self._close_places(keep_worker)
        self.exit(return_code=code)

    async def _close_places(self, keep_worker: bool) -> None:
        await asyncio.gather(*(live.close(keep_worker) for live in self.lives))

    async def on_unmount(self) -> None:
        """However it ends: threads and temporary files end with it."""
        for number in ENDED_BY:
            asyncio.get_running_loop().remove_signal_handler(number)
        await self._close_places(keep_worker=False)
