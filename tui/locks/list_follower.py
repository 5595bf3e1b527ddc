"""Keep the list of locks up to date: examine the lock under the cursor, count what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.index.age_table import Ages
from engine.store import Unavailable
from tui.locks.examination import LockExaminer
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.page import ListScreen
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker

CHANGED_COUNT_SECONDS, UNCHANGED_COUNT_SECONDS = 2.0, 10.0
"""Seconds until the backlog is counted again: after a change, and without one."""

COUNT_COST_FACTOR = 10
"""Minimum pause between counts, as a multiple of their duration."""


class LocksFollower(ListScreen):
    """Examines the lock under the cursor and counts the tasks behind it."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        """`session` is the place that the cursor starts on."""
        super().__init__(session, context)
        self._sessions = [n for n in sessions if n.place.lock is not None or n.place.has_leases]
        self._kinds: dict[int, Ages] = {}
        self._exams: dict[int, LockExaminer] = {}
        self._moved = asyncio.Event()
        self.graph_pane = GraphPane()

    def begin(self) -> None:
        """Put the cursor on its place; start counting and examining."""
        super().begin()
        self.paint()
        self.query_one(Picker).select_key(str(self.session.number))
        self.run_worker(self._count(), name="what waits")
        self.run_worker(self._examine(), name="examination")

    async def _examine(self) -> None:
        """Examine the lock under the cursor, its holder and its active tasks."""
        while True:
            session = self._selected_session
            if session is not None and session.place.lock is not None and self.is_current:
                exam = self._exams.setdefault(session.number, LockExaminer(session))
                await exam.examine()
                if await exam.read_logs():
                    await exam.examine()
                self.paint()
            await asyncio.sleep(CHANGED_COUNT_SECONDS)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            session, began = self._selected_session, loop.time()
            if session is not None and self.is_current:
                self._kinds |= await self._kinds_of(session)
                self.paint()
            self._moved.clear()
            generation = -1 if session is None else session.inspector.latest.generation
            period = max(CHANGED_COUNT_SECONDS, COUNT_COST_FACTOR * (loop.time() - began))
            await self._wait_for_change(session, generation, period)

    async def _kinds_of(self, session: PlaceSession) -> dict[int, Ages]:
        try:
            return {session.number: await index_queries.query_due_kinds(session)}
        except Unavailable:
            return {}  # its lock is shown anyway

    async def _wait_for_change(
        self, session: PlaceSession | None, generation: int, period: float
    ) -> None:
        """Wait until it is time to count again, or until the cursor moved."""
        loop = asyncio.get_running_loop()
        in_any_case = loop.time() + UNCHANGED_COUNT_SECONDS
        while loop.time() < in_any_case:
            try:
                await asyncio.wait_for(self._moved.wait(), period)
            except TimeoutError:
                if session is None or session.inspector.latest.generation == generation:
                    continue
            return

    def action_graph_range(self) -> None:
        """Show the next range of the graph of the place under the cursor."""
        self.graph_pane.next_range()
        reading = self.graph_pane.follow(lambda: self._selected_session, self.paint)
        self.run_worker(reading, name="graph", group="graph", exclusive=True)

    @property
    def _selected_session(self) -> PlaceSession | None:
        key = self.selected_key
        return next((session for session in self._sessions if str(session.number) == key), None)

    def on_picker_cursor_moved(self) -> None:
        """Another lock is under the cursor."""
        self._moved.set()
        self.query_one(LongText).move("first")
