"""Screen of the locks of all places, with details of the one under the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from engine.index.age_table import Ages
from engine.store import Unavailable
from tui.format import keys
from tui.format.present import Line
from tui.format.table import Choice
from tui.locks import list_lines as view
from tui.locks.examination import LockExaminer
from tui.operations.worker_screen import show_worker_plan
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.widgets.lines import LongText
from tui.widgets.picker import Picker

CHANGED_COUNT_SECONDS, UNCHANGED_COUNT_SECONDS = 2.0, 10.0
"""Seconds until the backlog is counted again: after a change, and without one."""

COUNT_COST_FACTOR = 10
"""Minimum pause between counts, as a multiple of their duration."""

PLAN_HINT: Line = ((" U", "key"), (" shows the plan (asks before it acts)", ""))
"""Hint for freeing a lock."""


class LocksScreen(ListScreen):
    """Kept up to date; U or Enter opens the lock screen."""

    KIND = keys.LOCKS
    BINDINGS = key_bindings(keys.LOCKS)

    def __init__(
        self, live: PlaceSession, around: ConsoleContext, lives: Sequence[PlaceSession]
    ) -> None:
        """`live` is the place that the cursor starts on."""
        super().__init__(live, around)
        self._lives = [n for n in lives if n.place.lock is not None or n.place.has_leases]
        self._kinds: dict[int, Ages] = {}
        self._exams: dict[int, LockExaminer] = {}
        self._moved = asyncio.Event()

    def begin(self) -> None:
        """Put the cursor on its place; start counting and examining."""
        super().begin()
        self.paint()
        self.query_one(Picker).select_key(str(self.live.number))
        self.run_worker(self._count(), name="what waits")
        self.run_worker(self._examine(), name="examination")

    async def _examine(self) -> None:
        """Examine the lock under the cursor, its holder and its active tasks."""
        while True:
            here = self._here
            if here is not None and here.place.lock is not None and self.is_current:
                exam = self._exams.setdefault(here.number, LockExaminer(here))
                await exam.examine()
                if await exam.read_logs():
                    await exam.examine()
                self.paint()
            await asyncio.sleep(CHANGED_COUNT_SECONDS)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            here, began = self._here, loop.time()
            if here is not None and self.is_current:
                self._kinds |= await self._kinds_of(here)
                self.paint()
            self._moved.clear()
            generation = -1 if here is None else here.inspector.latest.generation
            period = max(CHANGED_COUNT_SECONDS, COUNT_COST_FACTOR * (loop.time() - began))
            await self._wait_for_change(here, generation, period)

    async def _kinds_of(self, live: PlaceSession) -> dict[int, Ages]:
        try:
            return {live.number: await index_queries.query_due_kinds(live)}
        except Unavailable:
            return {}  # its lock is shown anyway

    async def _wait_for_change(
        self, here: PlaceSession | None, generation: int, period: float
    ) -> None:
        """Wait until it is time to count again, or until the cursor moved."""
        loop = asyncio.get_running_loop()
        in_any_case = loop.time() + UNCHANGED_COUNT_SECONDS
        while loop.time() < in_any_case:
            try:
                await asyncio.wait_for(self._moved.wait(), period)
            except TimeoutError:
                if here is None or here.inspector.latest.generation == generation:
                    continue
            return

    def trail(self) -> tuple[str, ...]:
        """All locks, independent of the place."""
        return ("locks",)

    @property
    def _here(self) -> PlaceSession | None:
        key = self.selected_key
        return next((live for live in self._lives if str(live.number) == key), None)

    def lay_out(self, width: int) -> None:
        """One line per place, and details of the one under the cursor."""
        now = self.around.clock()
        locks = [view.place_lock(live) for live in self._lives]
        head, lines = view.lock_table(locks, now, width)
        picker = self.query_one(Picker)
        rows = [Choice(str(k.number), line) for k, line in zip(locks, lines, strict=True)]
        picker.show_rows(rows, [head])
        picker.styles.height = min(len(picker.rows) + 1, max(2, self.size.height // 3))
        here = self._here
        text: list[Line] = [((" no place has a lock", "muted"),)]
        if here is not None:
            text = self._about(here, now, width)
        self.query_one(LongText).show(text)

    def _about(self, here: PlaceSession, now: float, width: int) -> list[Line]:
        free = PLAN_HINT if here.place.recovery_command else ()
        exam = self._exams.get(here.number)
        case = None if exam is None else exam.report
        return view.detail_lines(
            view.place_lock(here), self._kinds.get(here.number), free, now, width, case
        )

    def default_message(self) -> Line:
        """Number of lines below the screen."""
        below = self.query_one(LongText).below
        return ((f" {below} more below: Ctrl+D" if below else "", "muted"),)

    def without(self) -> Collection[str]:
        """Actions that are hidden now."""
        none = bool(self._lives) and all(live.place.has_leases for live in self._lives)
        without = {"unlock"} if none else set()
        return without | ({"worker"} if self.around.arming.read_only else set())

    def on_picker_cursor_moved(self) -> None:
        """Another lock is under the cursor."""
        self._moved.set()
        self.query_one(LongText).move("first")

    def action_move(self, how: str) -> None:
        """Move the cursor; page and half-page keys scroll the details."""
        if how in ("down", "up", "first", "last"):
            self.query_one(Picker).move(how)
        else:
            self.query_one(LongText).move(how)
            self._show_message_line()

    def action_unlock(self) -> None:
        """Open the lock screen of the place under the cursor."""
        here = self._here
        if here is None:
            self.say("no place has a lock")
        elif refusal := here.place.why_no_unlock(self.around.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=here.number))

    action_open = action_unlock

    def action_worker(self) -> None:
        """Plan to start or stop a worker of the place under the cursor."""
        if (here := self._here) is None:
            self.say("no place has a lock")
        else:
            show_worker_plan(self, here, self.around)

    def action_screen(self, digit: str) -> None:
        """Open the screen with that digit for the place under the cursor."""
        here = self._here
        self.go(SCREEN_TARGETS[digit]._replace(place=0 if here is None else here.number))

    def copies(self) -> tuple[Copy, ...]:
        """The evidence on the lock under the cursor."""
        here = self._here
        if here is None:
            return ()
        lock, now = view.place_lock(here), self.around.clock()
        lines = self._about(here, now, 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        pid = lock.evidence.pid if lock.evidence is not None else None
        return (
            *((Copy("p", "PID", str(pid)),) if pid is not None else ()),
            Copy("i", "place", here.place.name),
            Copy("e", "evidence", text),
        )
