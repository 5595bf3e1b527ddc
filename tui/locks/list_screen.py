"""Every place's lock on one line, and the evidence on the one under the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from engine.index.age_table import Ages
from engine.store import Unavailable
from tui.format import keys
from tui.format.present import Line
from tui.locks import list_lines as view
from tui.locks.examination import LockExaminer
from tui.screens.base import PANES, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.widgets.lines import LongText
from tui.widgets.picker import Choice, Picker

OFTEN, SELDOM = 2.0, 10.0
"""Seconds until it is counted again what waits, by kind: when something has changed, and when not.
"""

SPARING = 10
"""The same, in times of what counting took."""

PLAN: Line = ((" U", "key"), (" shows the plan; nothing is done before it is confirmed", ""))
"""What there is to free a lock with."""


class LocksScreen(ListScreen):
    """Kept up to date while it is looked at; U, or Enter, leads to the lock's own screen."""

    KIND = keys.LOCKS
    BINDINGS = keys.bindings(keys.LOCKS)

    def __init__(
        self, live: PlaceSession, around: ConsoleContext, lives: Sequence[PlaceSession]
    ) -> None:
        """`live` is the place that the cursor is on at first."""
        super().__init__(live, around)
        self._lives = [n for n in lives if n.place.lock is not None or n.place.leases]
        self._kinds: dict[int, Ages] = {}
        self._exams: dict[int, LockExaminer] = {}
        self._moved = asyncio.Event()

    def begin(self) -> None:
        """Put the cursor on the place that was looked at; count what waits."""
        super().begin()
        self.paint()
        self.query_one(Picker).put_on(str(self.live.number))
        self.run_worker(self._count(), name="what waits")
        self.run_worker(self._examine(), name="examination")

    async def _examine(self) -> None:
        """Look at the lock under the cursor, its holder, and what that had in hand."""
        while True:
            here = self._here
            if here is not None and here.place.lock is not None and self.is_current:
                exam = self._exams.setdefault(here.number, LockExaminer(here))
                await exam.look()
                if await exam.read_logs():
                    await exam.look()
                self.paint()
            await asyncio.sleep(OFTEN)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            here, began = self._here, loop.time()
            if here is not None and self.is_current:
                self._kinds |= await self._kinds_of(here)
                self.paint()
            self._moved.clear()
            generation = -1 if here is None else here.inspector.latest.generation
            period = max(OFTEN, SPARING * (loop.time() - began))
            await self._rest(here, generation, period)

    async def _kinds_of(self, live: PlaceSession) -> dict[int, Ages]:
        try:
            return {live.number: await index_queries.due_kinds(live)}
        except Unavailable:
            return {}  # its lock is told of all the same

    async def _rest(self, here: PlaceSession | None, generation: int, period: float) -> None:
        """Until it is time to count again, or another lock is under the cursor."""
        loop = asyncio.get_running_loop()
        in_any_case = loop.time() + SELDOM
        while loop.time() < in_any_case:
            try:
                await asyncio.wait_for(self._moved.wait(), period)
            except TimeoutError:
                if here is None or here.inspector.latest.generation == generation:
                    continue
            return

    def trail(self) -> tuple[str, ...]:
        """All locks, of whatever place."""
        return ("locks",)

    @property
    def _here(self) -> PlaceSession | None:
        key = self.picked
        return next((live for live in self._lives if str(live.number) == key), None)

    def lay_out(self, width: int) -> None:
        """A line for each lock, and for each place that needs none; and all there is to say of the
        one under the cursor."""
        now = self.around.clock()
        locks = [view.of(live) for live in self._lives]
        head, lines = view.table(locks, now, width)
        picker = self.query_one(Picker)
        rows = [Choice(str(k.number), line) for k, line in zip(locks, lines, strict=True)]
        picker.offer(rows, [head])
        picker.styles.height = min(len(picker.rows) + 1, max(2, self.size.height // 3))
        here = self._here
        text: list[Line] = [((" no place here has a lock", "dim"),)]
        if here is not None:
            text = self._about(here, now, width)
        self.query_one(LongText).show(text)

    def _about(self, here: PlaceSession, now: float, width: int) -> list[Line]:
        free = PLAN if here.place.recover else ()
        exam = self._exams.get(here.number)
        case = None if exam is None else exam.case
        return view.about(view.of(here), self._kinds.get(here.number), free, now, width, case)

    def word(self) -> Line:
        """How much of the evidence is further down."""
        below = self.query_one(LongText).below
        return ((f" {below} more below: Ctrl-d" if below else "", "dim"),)

    def without(self) -> Collection[str]:
        """What is not offered here now."""
        none = bool(self._lives) and all(live.place.leases for live in self._lives)
        return {*super().without(), *(["unlock"] if none else [])}

    def on_picker_moved(self) -> None:
        """Another lock is under the cursor."""
        self._moved.set()
        self.query_one(LongText).move("first")

    def action_move(self, how: str) -> None:
        """Move the cursor; half pages and pages move through the evidence."""
        if how in ("down", "up", "first", "last"):
            self.query_one(Picker).move(how)
        else:
            self.query_one(LongText).move(how)
            self._show_word()

    def action_open(self) -> None:
        """The lock under the cursor, in full, with the plan to free it."""
        self.action_unlock()

    def action_unlock(self) -> None:
        """The lock under the cursor, in full, with the plan to free it."""
        here = self._here
        if here is None:
            self.say("no place here has a lock")
        elif refusal := here.place.no_unlock(self.around.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=here.number))

    def action_pane(self, digit: str) -> None:
        """To the screen of that digit, of the place under the cursor."""
        here = self._here
        self.go(PANES[digit]._replace(place=0 if here is None else here.number))

    def copies(self) -> tuple[Copy, ...]:
        """What is known of the lock under the cursor."""
        here = self._here
        if here is None:
            return ()
        lock, now = view.of(here), self.around.clock()
        lines = self._about(here, now, 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        pid = lock.evidence.pid if lock.evidence is not None else None
        return (
            *((Copy("p", "PID", str(pid)),) if pid is not None else ()),
            Copy("i", "place", here.place.name),
            Copy("e", "evidence", text),
        )
