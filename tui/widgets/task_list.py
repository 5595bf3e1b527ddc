"""The task list: a window on a query result of up to a million rows, painted line by line.

It fetches about three pages at a time and holds nothing else. The cursor follows a task's id; its
position is looked up after each change. Only during the first scan of a store the cursor is the
first row until the operator moves it, because the scan finds tasks in random order. The list is no
ScrollView: there, each change of the number of rows would lay out and repaint the whole screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from rich.cells import cell_len
from textual.message import Message
from textual.strip import Strip

from engine.index.schema import Query, Window
from engine.model import Task
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import BLANK_LINE, Line
from tui.widgets.lines import Painted

HOLD_SECONDS = 5.0
"""Seconds after a cursor motion in which rows keep their positions, so that keys hit the row that
was seen.
"""

GHOST_SECONDS = 10.0
"""Seconds for which a row on screen whose task has left stays there, and the order with it."""

JUMP_DIVISOR = 3
"""At its edge the view jumps by 1/`JUMP_DIVISOR` of a page: a jump repaints all lines, a step
inside two.
"""

SEEN_SECONDS = 0.3
"""Seconds until the operator has seen that the task under the cursor has changed."""

UNSEEN_SECONDS = 0.4
"""Seconds in which the operator cannot have seen that another task is under the cursor."""

MAX_FETCHES = 3
"""Maximum windows fetched until one contains the task under the cursor."""

NEIGHBOUR_ROWS = 5
"""Rows on either side in which to search a neighbour if the task under the cursor has left."""


class RowSource(Protocol):
    """Source of the rows."""

    async def window(self, query: Query, start: int, size: int) -> Window:
        """Return `size` rows of a result, from position `start` on."""
        ...

    async def find(self, query: Query, id: str) -> int | None:
        """Return the position of a task in a result."""
        ...

    async def task(self, id: str) -> Task | None:
        """Return the current record of a task."""
        ...


class CursorPosition(NamedTuple):
    """Position of the cursor and of the view in the result."""

    at: int = 0
    """Position in the result."""
    id: str = ""
    """The task there; "" if not known yet."""
    top: int = 0
    """Position of the first row on screen."""


class Anchor(NamedTuple):
    """Start of a range; the cursor is its other end."""

    id: str
    at: int


NO_ROWS = Window((), 0, 0, -1)


class TaskList(Painted, can_focus=True):
    """The tasks that match a query; the cursor stays on its task when other rows change."""

    class RowChanged(Message):
        """The shown rows have changed, maybe also the task under the cursor."""

    class Vanished(Message):
        """The task that the operator had selected has left; the cursor is on a neighbour.

        Not sent if the operator never moved the cursor.
        """

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    def __init__(
        self,
        rows: RowSource,
        clock: Callable[[], float],
        id: str | None = None,
        explain: Callable[[Task, Task | None], str] = lambda before, after: "",
        max_attempts: int | None = None,
        trash: present.TrashFacts = present.NO_TRASH_FACTS,
    ) -> None:
        """`explain`: why a task has left, from its former and its present record."""
        super().__init__(id=id)
        self._rows = rows
        self._clock = clock
        self._explain, self._max_attempts, self._trash = explain, max_attempts, trash
        self._query = Query()
        self._new_query = True
        self._cursor_position = CursorPosition()
        self._window = NO_ROWS
        self._departed: dict[str, str] = {}
        """Ids of tasks that have left, and why."""
        self._fresh = 0
        self._matching = 0
        self._chosen = False
        self._is_first_scan = False
        self._is_unpinned = True
        self._has_new_result = False
        self._cursor_moved_at = float("-inf")
        self._task_changed_at = float("-inf")
        self._marks: Collection[str] = ()
        self._notes: Collection[str] = ()
        self._everything = False
        self._anchor: Anchor | None = None
        self._notice: tuple[Line, ...] = ()
        self._held_until = 0.0
        self._ghosts_until = 0.0
        self._is_outdated = False
        self._wanted = asyncio.Event()
        self._painted: dict[int, Line] = {}
        self._made: dict[int, tuple[tuple[object, ...], Line]] = {}
        self._shape: tuple[present.TaskColumn, ...] = ()
        self._now = 0.0
        self.loads = 0

    # Queries by the screen

    @property
    def task_here(self) -> Task | None:
        """The task under the cursor; None if not known yet or gone."""
        task = None if self._has_new_result else self._at(self._cursor_position.at)
        return task if task is not None and task.id not in self._departed else None

    @property
    def cursor(self) -> CursorPosition:
        """Current position of the cursor and the view."""
        return self._cursor_position

    @property
    def saved_position(self) -> CursorPosition:
        """Position to restore when this result is shown again."""
        return CursorPosition() if self._is_unpinned else self._cursor_position

    @property
    def is_gone(self) -> bool:
        """True if the row under the cursor is a departed one."""
        return self._cursor_position.id in self._departed

    @property
    def is_unseen(self) -> bool:
        """True if another task moved under the cursor just now: a pressed key was meant for the one
        before.
        """
        return asyncio.get_running_loop().time() - self._cursor_moved_at < UNSEEN_SECONDS

    @property
    def is_altered(self) -> bool:
        """True if the task under the cursor changed just now: a pressed key was meant for its
        former state.
        """
        return asyncio.get_running_loop().time() - self._task_changed_at < SEEN_SECONDS

    @property
    def total(self) -> int:
        """Number of matching tasks, as far as known."""
        return self._window.total

    @property
    def matching(self) -> int:
        """Number of tasks that match now, without departed rows."""
        return self._matching

    @property
    def range_from(self) -> Anchor | None:
        """Start of the range that is being marked; None if none is."""
        return self._anchor

    def held_ids(self, low: int, high: int) -> dict[int, str]:
        """Ids of the tasks from position `low` to `high`, as far as the window holds them."""
        if self._has_new_result or self._new_query:
            return {}
        start, tasks = self._window.start, self._window.tasks
        first = max(0, low - start)
        ids = [task.id for task in tasks[first : max(0, high + 1 - start)]]
        return dict(enumerate(ids, start + first))

    @property
    def departed(self) -> frozenset[str]:
        """Ids of tasks that have left and whose rows stay for a while."""
        return frozenset(self._departed)

    @property
    def fresh(self) -> int:
        """Number of new tasks that are not shown yet, because the order is held."""
        return self._fresh

    @property
    def row_words(self) -> str:
        """The position of the cursor: `row 4 of 59`; "" without rows."""
        if not self.total or self._notice:
            return ""
        return f"row {self._cursor_position.at + 1:,} of {self.total:,}"

    @property
    def has_query(self) -> bool:
        """True if a query was set."""
        return self._query.state is not None

    @property
    def loaded(self) -> bool:
        """True if the rows answer the current query and include the cursor's row."""
        return not self._new_query and bool(self._cursor_position.id or not self.total)

    # Commands by the screen

    def show_query(self, query: Query, spot: CursorPosition | None = None) -> None:
        """Show another result; the cursor stays on its task if the result contains it."""
        self._query = query
        self._shape = ()
        self._cursor_position = self._cursor_position if spot is None else spot
        self._chosen = self._chosen and spot is None
        self._is_unpinned = self._is_unpinned if spot is None else not (spot.id or spot.at)
        self._departed = {} if spot is not None else self._departed
        # A position in the new result has no meaning among the old rows: those stay as painted.
        self._has_new_result = self._has_new_result or spot is not None
        self._new_query = True
        self._held_until = 0.0
        self._wanted.set()

    def set_first_scan(self, filling: bool) -> None:
        """Set whether the first scan is still running: it finds tasks in any order, so results are
        incomplete.
        """
        self._is_first_scan = filling

    def pin_cursor(self) -> None:
        """Pin the cursor to its task: a key was meant for this task."""
        self._is_unpinned = self._is_unpinned and not self._cursor_position.id

    def store_changed(self) -> None:
        """The store has changed: fetch again, now or after the last motion's hold time."""
        self._is_outdated = True
        self._wanted.set()

    def tick(self, now: float) -> None:
        """Once a second: end the hold time, and update the ages each minute."""
        if self._is_outdated and not self._holding():
            self._wanted.set()
        if int(now // 60) != int(self._now // 60):
            self._now = now
            self.paint()

    def show_marks(self, marks: Collection[str], everything: bool) -> None:
        """Show these tasks as marked, or all tasks."""
        self._marks, self._everything = marks, everything
        self.paint()

    def show_notes(self, noted: Collection[str]) -> None:
        """Show which tasks have a note."""
        if noted is not self._notes:
            self._notes = noted
            self.paint()

    def begin_range(self) -> None:
        """Start a range: show all rows from here to the cursor as marked."""
        self.pin_cursor()
        self._anchor = (
            Anchor(self._cursor_position.id, self._cursor_position.at)
            if self._cursor_position.id
            else None
        )
        self.paint()

    def end_range(self) -> None:
        """End the range."""
        self._anchor = None
        self.paint()

    def show_notice(self, notice: tuple[Line, ...]) -> None:
        """Show a notice instead of the rows; an empty one shows the rows again."""
        if notice != self._notice:
            self._notice = notice
            self.paint()

    # Motions

    def move(self, action: str) -> None:
        """Move by a motion of the key table: down, up, half_down, page_down, first and so on.

        No message is sent, as the caller knows that the cursor moved: the message would come one
        frame later and repaint once more.
        """
        page = self._height
        half = max(1, page // 2)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        steps |= {"half_down": half, "half_up": -half}
        if action in steps:
            self._go(self._cursor_position.at + steps[action], steps[action])
        else:
            self._go(0 if action == "first" else self.total - 1, 0)

    def _go(self, at: int, step: int) -> None:
        at, height = max(0, min(at, self.total - 1)), self._height
        top = self._view_for(at, step, height)
        task = self._at(at)
        before, self._cursor_position = (
            self._cursor_position,
            CursorPosition(at, task.id if task else "", top),
        )
        self._chosen, self._is_unpinned = True, False
        self._cursor_moved_at = float("-inf")
        self._held_until = self._clock() + HOLD_SECONDS
        if top == before.top:
            low, high = sorted((before.at - top, at - top))
            rows = (low, high) if self._anchor is None else range(low, high + 1)
            self._paint_rows(rows, title=True)
        else:
            self.paint()
        if not self._covers(top, height) or self._near_edge(top, height):
            self._wanted.set()

    def _view_for(self, at: int, step: int, height: int) -> int:
        top = self._cursor_position.top
        if abs(step) >= height:
            top += step
        elif at >= top + height:
            top = at - height + max(1, height // JUMP_DIVISOR)
        elif at < top:
            top = at - max(1, height // JUMP_DIVISOR) + 1
        top = min(max(top, at - height + 1), at)
        return max(0, min(top, self.total - height))

    # Rows

    @property
    def _height(self) -> int:
        return max(1, self.size.height - 1)

    def _at(self, position: int) -> Task | None:
        offset = position - self._window.start
        tasks = self._window.tasks
        return tasks[offset] if 0 <= offset < len(tasks) else None

    def _covers(self, top: int, height: int) -> bool:
        start, end = self._window.start, self._window.start + len(self._window.tasks)
        return start <= top and min(top + height, self.total) <= end

    def _near_edge(self, top: int, height: int) -> bool:
        half = height // 2
        return not self._covers(max(0, top - half), height + 2 * half)

    def _holding(self) -> bool:
        # If the clock was set back, do not hold the order for longer than it should.
        return 0 < self._held_until - self._clock() <= HOLD_SECONDS

    def on_mount(self) -> None:
        """Start the worker that fetches rows."""
        self._now = self._clock()
        self.run_worker(self._serve(), name="rows", exit_on_error=True)

    def on_resize(self) -> None:
        """Another size shows other columns and more rows."""
        self._shape = ()
        self._cursor_position = self._cursor_position._replace(
            top=self._view_for(self._cursor_position.at, 0, self._height)
        )
        self.paint()
        self._wanted.set()

    async def _serve(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not self.size.width:
                continue
            try:
                await self._fetch()
            except StoreError as error:
                self.show_notice(((("", ""),), ((f"   {error}", "error"),)))

    async def _fetch(self) -> None:
        top, height = self._cursor_position.top, self._height
        covered = not self._new_query and self._covers(top, height)
        if covered and (self._holding() or self._keeps_ghosts):
            if self._is_outdated:
                await self._keep_departed_rows()
            elif self._near_edge(top, height):
                await self._load()
            return
        if covered and self._is_outdated and not (self._departed or self._is_first_scan):
            await self._keep_departed_rows()
            if self._keeps_ghosts:
                return
        await self._load()

    @property
    def _keeps_ghosts(self) -> bool:
        """True while rows that left stay on screen; not if they are more than half of it."""
        few = 2 * len(self._departed) <= min(self._height, len(self._window.tasks))
        return few and asyncio.get_running_loop().time() < self._ghosts_until

    async def _load(self) -> None:
        """Fetch the window around the cursor's task."""
        self._is_outdated = False
        asked, filling = (
            (self._query, self._cursor_position, self._is_unpinned),
            self._is_first_scan,
        )
        top = self._cursor_position.top
        for _ in range(MAX_FETCHES):
            self.loads += 1
            page = self._height
            window = await self._rows.window(self._query, max(0, top - page), 3 * page)
            at, vanished = await self._find_cursor(window)
            top = self._top_for(at, window.total)
            # The position may be newer than the window: then another task is there.
            if _holds(window, top, self._height) and (vanished or self._is_in(window, at)):
                break
        anchored = await self._position(window, self._anchor.id) if self._anchor else None
        if asked != (self._query, self._cursor_position, self._is_unpinned):
            self._is_outdated = True
            self._wanted.set()
            return
        if self._anchor is not None:
            # The start has left: a range from a neighbour is not what the operator meant.
            self._anchor = None if anchored is None else self._anchor._replace(at=anchored)
        self._settle(window, at, top, vanished)
        self._is_unpinned = self._is_unpinned and filling

    async def _find_cursor(self, window: Window) -> tuple[int, str]:
        """Position for the cursor, and the id of its former task if that has left."""
        if self._is_unpinned:
            return 0, ""
        id = self._cursor_position.id
        at = await self._position(window, id) if id else self._cursor_position.at
        return (await self._neighbour(window), id) if at is None else (at, "")

    def _is_in(self, window: Window, at: int) -> bool:
        here = window.tasks[max(0, at - window.start) :][:1]
        return (
            self._is_unpinned
            or not self._cursor_position.id
            or any(task.id == self._cursor_position.id for task in here)
        )

    async def _position(self, window: Window, id: str) -> int | None:
        for offset, task in enumerate(window.tasks):
            if task.id == id:
                return window.start + offset
        return await self._rows.find(self._query, id)

    async def _neighbour(self, window: Window) -> int:
        """Position of the next task that still exists: below, else above."""
        if self._new_query:
            return 0
        here = self._cursor_position.at - self._window.start
        below, above = self._window.tasks[here + 1 :], self._window.tasks[: max(0, here)][::-1]
        for task in (*below[:NEIGHBOUR_ROWS], *above[:NEIGHBOUR_ROWS]):
            at = await self._position(window, task.id)
            if at is not None:
                return at
        return self._cursor_position.at

    def _top_for(self, at: int, total: int) -> int:
        line = max(0, min(self._cursor_position.at - self._cursor_position.top, self._height - 1))
        return max(0, min(at - line, total - self._height))

    def _settle(self, window: Window, at: int, top: int, vanished: str) -> None:
        before = None if self._new_query else self.task_here
        self._window, self._departed, self._fresh = window, {}, 0
        at = max(0, min(at, window.total - 1))
        task = self._at(at)
        self._note_change(before, task)
        id = task.id if task else ""
        vanished = vanished or (self._cursor_position.id if id != self._cursor_position.id else "")
        if vanished and not self._has_new_result and not self._new_query:
            self._cursor_moved_at = asyncio.get_running_loop().time()
        self._has_new_result = False
        said = vanished if not self._new_query else ""
        said = said if self._chosen else ""
        self._chosen = self._chosen and not vanished
        self._shape = ()
        self._matching = window.total
        self._new_query = False
        self._cursor_position = CursorPosition(at, id, top)
        self.paint()
        self.post_message(self.RowChanged())
        if said:
            self.post_message(self.Vanished(said))

    def _note_change(self, before: Task | None, now: Task | None) -> None:
        """Record the time if the task under the cursor is the same one, but has changed."""
        if before is not None and now is not None and before.id == now.id and before != now:
            self._task_changed_at = asyncio.get_running_loop().time()

    async def _keep_departed_rows(self) -> None:
        """During the hold time: update changed rows in place, and show departed ones as gone."""
        self._is_outdated = False
        before = self._window
        fresh = await self._rows.window(self._query, before.start, len(before.tasks))
        known = {task.id: task for task in fresh.tasks}
        ghosts: dict[str, str] = {}
        tasks = list(before.tasks)
        for offset, task in enumerate(before.tasks):
            now = known.get(task.id)
            row = before.start + offset - self._cursor_position.top
            if now is None and 0 <= row < self._height:
                now = await self._rows.task(task.id)
                if now is None or now.state is not task.state:
                    ghosts[task.id] = self._explain(task, now)
                    continue
            tasks[offset] = now or task
        if self._window is before:
            self._fresh = max(0, fresh.total - before.total + len(ghosts))
            self._matching = fresh.total
            here = self.task_here
            self._window = before._replace(tasks=tuple(tasks))
            if ghosts and not self._departed:
                self._ghosts_until = asyncio.get_running_loop().time() + GHOST_SECONDS
            self._departed = ghosts
            self._note_change(here, self.task_here)
            self.paint()
            self.post_message(self.RowChanged())
        # Other changes are fetched by the first tick after the hold time.
        self._is_outdated = True

    # Painting

    def paint(self) -> None:
        """Paint the lines that differ from those on screen."""
        self._paint_rows(range(self._height), title=True)

    def _paint_rows(self, rows: Collection[int], title: bool = False) -> None:
        width = self.size.width
        if not width or (self._has_new_result and not self._notice):
            return
        for y in ([0] if title else []) + [row + 1 for row in rows]:
            line = self._line(y, width)
            if line != self._painted.get(y):
                self._painted[y] = line
                self.repaint_line(y)

    def render_line(self, y: int) -> Strip:
        """A line as it was last painted."""
        if y not in self._painted:
            self._painted[y] = self._line(y, self.size.width)
        return self.strip_of(self._painted[y])

    def _line(self, y: int, width: int) -> Line:
        if not self._shape:
            state = self._query.state
            destined = any(task.destination for task in self._window.tasks)
            longest = max((cell_len(safe_line(task.id)) for task in self._window.tasks), default=0)
            worded = any(task.word for task in self._window.tasks)
            kinds = max((cell_len(safe_line(task.kind)) for task in self._window.tasks), default=0)
            about = (destined, longest, worded, self._max_attempts, kinds, self._trash)
            self._shape = present.task_columns(state, width, *about) if state else ()
        if y == 0:
            order = (self._query.order, self._query.descending)
            return present.title_line(self._shape, width, order)
        if self._notice:
            return (
                present.cut_line(self._notice[y - 1], width)
                if y <= len(self._notice)
                else BLANK_LINE
            )
        return self._row(self._cursor_position.top + y - 1, width)

    def _row(self, position: int, width: int) -> Line:
        task = self._at(position)
        if task is None:
            return ((" ~", "muted"),) if position < self.total else BLANK_LINE
        cursor = self._cursor_position.at
        low, high = sorted((cursor if self._anchor is None else self._anchor.at, cursor))
        in_range = self._anchor is not None and low <= position <= high
        place = present.TaskContext(
            position == cursor,
            self._everything or task.id in self._marks or in_range,
            task.id in self._departed,
            task.id in self._notes,
            self._departed.get(task.id, ""),
        )
        # Each page is painted when the key comes, and again when its rows arrive.
        wanted = task, self._shape, self._now, place, width
        y = position - self._cursor_position.top
        if y not in self._made or self._made[y][0] != wanted:
            self._made[y] = wanted, present.task_line(*wanted)
        return self._made[y][1]


def _holds(window: Window, top: int, height: int) -> bool:
    end = window.start + len(window.tasks)
    return window.start <= top and min(top + height, window.total) <= end
