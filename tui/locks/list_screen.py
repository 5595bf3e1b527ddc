"""Screen of the locks of all places: the one under the cursor and what waits behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.index.age_table import Ages
from engine.store import Unavailable
from tui.locks import list_lines as view
from tui.locks.examination import LockExaminer
from tui.locks.list_lines import PlaceLock
from tui.operations.workers_screen import show_worker_plan
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows

CHANGED_COUNT_SECONDS, UNCHANGED_COUNT_SECONDS = 2.0, 10.0
"""Seconds until the backlog is counted again: after a change, and without one."""

COUNT_COST_FACTOR = 10
"""Minimum pause between counts, as a multiple of their duration."""

NO_LOCKS = "no place has a lock"


class LocksParts(RowsParts):
    """The locks of all places, and what is known of the one under the cursor."""

    is_of_one_place = False

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
        sessions: Sequence[PlaceSession],
    ) -> None:
        """`session` is the place that the cursor starts on."""
        super().__init__(session, context, screen, str(session.number))
        self.sessions = [n for n in sessions if n.place.lock is not None or n.place.has_leases]
        self._kinds: dict[int, Ages] = {}
        self._exams: dict[int, LockExaminer] = {}
        self._moved = asyncio.Event()

    def start(self) -> None:
        self.screen.run("what waits", self._count)
        self.screen.run("examination", self._examine)

    def cursor_moved(self) -> Change:
        self._moved.set()
        return Change.ROWS

    async def _examine(self) -> Change:
        """Examine the lock under the cursor, its holder and its active tasks."""
        while True:
            session = self.selected
            if session is not None and session.place.lock is not None and self.screen.is_current:
                exam = self._exams.setdefault(session.number, LockExaminer(session))
                await exam.examine()
                if await exam.read_logs():
                    await exam.examine()
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(CHANGED_COUNT_SECONDS)

    async def _count(self) -> Change:
        loop = asyncio.get_running_loop()
        while True:
            session, began = self.selected, loop.time()
            generation = -1 if session is None else session.inspector.latest.generation
            if session is not None and self.screen.is_current:
                self._kinds |= await self._kinds_of(session)
                self.screen.show_change(Change.ROWS)
            self._moved.clear()
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

    async def follow_graph(self) -> Change:
        """Show the course of the place under the cursor in the range of the graph."""
        await self.graph.follow(lambda: self.selected, lambda: self.screen.show_change(Change.ROWS))
        return Change.NOTHING

    @property
    def selected(self) -> PlaceSession | None:
        """The place under the cursor; before it is painted, the one that gets the cursor."""
        key = self.screen.cursor.key or self.aim
        return next((session for session in self.sessions if str(session.number) == key), None)

    @property
    def selected_session(self) -> PlaceSession:
        """That place, or the one that was open before."""
        return self.selected or self.session

    def no_lock_reason(self) -> str:
        """Why there is no place to act on; "" if there is one."""
        return "" if self.selected is not None else self.no_row_reason(NO_LOCKS)

    def unlock_refusal(self) -> str:
        """Why the lock under the cursor cannot be freed; "" if it can."""
        session, read_only = self.selected, self.context.arming.read_only
        return self.no_lock_reason() if session is None else session.place.why_no_unlock(read_only)

    def trail(self) -> tuple[str, ...]:
        """All locks, independent of the place."""
        return ("locks",)

    def rows(self, width: int) -> ShownRows:
        """One line per place, the worst lock first."""
        locks = view.worst_first([*map(self._lock_of, self.sessions)])
        head, lines = view.lock_table(locks, self.context.clock(), width)
        rows = [Choice(str(k.number), line) for k, line in zip(locks, lines, strict=True)]
        return ShownRows(head, rows)

    def details(self, width: int) -> list[Line]:
        if (session := self.selected) is None:
            return [((f" {self.no_lock_reason()}", "muted"),)]
        exam = self._exams.get(session.number)
        report = None if exam is None else exam.report
        lock, kinds = self._lock_of(session), self._kinds.get(session.number)
        return view.detail_lines(lock, kinds, self.context.clock(), width, report)

    def rows_frame(self) -> Frame:
        return Frame("Locks", "5", f"{len(self.sessions)}")

    def details_frame(self, below: int) -> Frame:
        name = "details" if self.selected is None else self.selected.name
        return Frame(name, right=more_below(below))

    def next_step(self, width: int) -> Line:
        if (session := self.selected) is None:
            return ()
        return next_line(*self._lock_of(session).step, f"lock of {session.name}", width)

    def _lock_of(self, session: PlaceSession) -> PlaceLock:
        return view.place_lock(session, read_only=self.context.arming.read_only)

    def copies(self) -> tuple[Copy, ...]:
        if (session := self.selected) is None:
            return ()
        evidence = self._lock_of(session).evidence
        lines = ("".join(text for text, _ in line).rstrip() for line in self.details(100))
        pid = evidence.pid if evidence is not None else None
        return (
            *((Copy("p", "PID", str(pid)),) if pid is not None else ()),
            Copy("i", "place", session.place.name),
            Copy("e", "evidence", "\n".join(lines)),
        )


def _unlock(parts: LocksParts) -> Change:
    if (session := parts.selected) is not None:
        parts.screen.go(Target(keys.LOCK, place=session.number))
    return Change.NOTHING


def _why_no_start(parts: LocksParts) -> str:
    session = parts.selected
    if session is None:
        return parts.no_lock_reason()
    return session.place.why_no_start if session.place.no_worker else ""


def _worker(parts: LocksParts) -> Change:
    if (session := parts.selected) is not None:
        parts.screen.open(lambda screen: show_worker_plan(screen, session, parts.context))
    return Change.NOTHING


def _next_range(parts: LocksParts) -> Change:
    parts.graph.next_range()
    parts.screen.run("graph", parts.follow_graph)
    return Change.NOTHING


def _open_digit(parts: LocksParts, digit: str) -> Change:
    session = parts.selected
    number = 0 if session is None else session.number
    parts.screen.go(SCREEN_TARGETS[digit]._replace(place=number))
    return Change.NOTHING


make = RowMaker[LocksParts, Change](keys.LOCKS, Change.NOTHING)
key = make.key

ROWS: tuple[KeyRow[LocksParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    make.own(
        "open | enter | Enter | open | View | lock details: holder, evidence, recovery",
        _unlock,
        refusal=LocksParts.unlock_refusal,
    ),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(
        key("graph_range", keys.LOCK),
        _next_range,
        is_absent=lambda parts: not parts.screen.is_large,
    ),
    KeyRow(key("reread"), LocksParts.reread),
    KeyRow(key("screen"), _open_digit),
    make.repaint(),
    make.asks(key("yank")),
    make.asks(key("plain")),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock"),
        _unlock,
        refusal=LocksParts.unlock_refusal,
        is_absent=lambda parts: (
            bool(parts.sessions) and all(session.place.has_leases for session in parts.sessions)
        ),
    ),
    KeyRow(key("worker"), _worker, _why_no_start, is_absent=is_read_only),
    *make.ends(),
)


class LocksScreen(RowsScreen):
    """As other lists, with the graph of the place under the cursor below the rows."""

    KIND = keys.LOCKS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: LocksParts

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        """`session` is the place that the cursor starts on."""
        super().__init__()
        self.panes = ListPanes(beside_percent=50, page_keys_scroll=True)
        self.parts = LocksParts(session, context, self, sessions)

    def on_picker_cursor_moved(self) -> None:
        """The details of another lock are shown from their first line."""
        self.panes.details.move("first")

    def neighbor(self, by: int) -> Target | None:
        while self.panes.rows.move("down" if by > 0 else "up"):
            if (session := self.parts.selected) is not None and not self.parts.unlock_refusal():
                return Target(keys.LOCK, place=session.number)
        return None

    def row_words(self, target: Target) -> str:
        rows = [row.key for row in self.panes.rows.rows]
        key = f"{target.place}"
        return f"row {rows.index(key) + 1} of {len(rows)}" if key == self.cursor.key else ""
