"""The rows of a task list: reads about three pages around the cursor, again when they change.

The cursor follows a task's id; its position is looked up after each change. Only during the first
scan of a store the cursor is the first row until the operator moves it, because the scan finds
tasks in random order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from engine.index.schema import Query, Window
from engine.model import Task
from tui.widgets.list_view import CursorPosition, ListView, covers, task_at

HOLD_SECONDS = 5.0
"""Seconds after a motion in which rows keep their positions: keys hit the row that was seen."""

GHOST_SECONDS = 10.0
"""Seconds for which a row on screen whose task has left stays there, and the order with it."""

SEEN_SECONDS = 0.3
"""Seconds until the operator has seen that the task under the cursor has changed."""

UNSEEN_SECONDS = 0.4
"""Seconds in which the operator cannot have seen that another task is under the cursor."""

COUNT_REST_SECONDS = 0.15
"""Seconds without another filter until the result of a search is counted."""

MAX_FETCHES = 3
"""Maximum windows fetched until one contains the task under the cursor."""

NEIGHBOUR_ROWS = 5
"""Rows on either side in which to search a neighbour if the task under the cursor has left."""


class RowSource(Protocol):
    """Source of the rows."""

    async def window(self, query: Query, start: int, size: int, *, counts: bool = True) -> Window:
        """Return `size` rows of a result, from position `start` on; without `counts`, perhaps
        before it is known how many there are."""

    async def find(self, query: Query, id: str) -> int | None:
        """Return the position of a task in a result."""

    async def task(self, id: str) -> Task | None:
        """Return the current record of a task."""


class TaskRows:
    """What a list shows (`view`), kept up to date."""

    def __init__(
        self,
        source: RowSource,
        clock: Callable[[], float],
        explain: Callable[[Task, Task | None], str] = lambda before, after: "",
    ) -> None:
        """`explain`: why a task has left, from its former and its present record."""
        self._source, self._clock, self._explain = source, clock, explain
        self.view = ListView()
        self.height = 0
        """Rows on screen; 0 before the first layout."""
        self.is_first_scan = False
        """True while the first scan runs: results are incomplete."""
        self._read_wanted = asyncio.Event()
        self._reading: asyncio.Future[str | None] | None = None
        self._is_last_wanted = False
        """The cursor is to move to the last row once the rows are counted."""
        self._is_changed = False
        """The store has changed since rows were read, also only in place."""
        self._is_outdated = False
        """The order of the rows is of before the last change."""
        self._held_until = self._ghosts_until = 0.0

    @property
    def is_unseen(self) -> bool:
        """True if another task moved under the cursor just now: a key was meant for the former."""
        return _loop_time() - self.view.cursor_moved_at < UNSEEN_SECONDS

    @property
    def is_altered(self) -> bool:
        """True if the task under the cursor changed just now: a key meant its former state."""
        return _loop_time() - self.view.task_changed_at < SEEN_SECONDS

    def show_query(self, query: Query, cursor: CursorPosition | None = None) -> None:
        """Show another result; without `cursor` it stays on its task if the result has it."""
        self.view = self.view.with_query(query, cursor)
        self._held_until, self._is_last_wanted = 0.0, False
        if self._reading is not None:
            self._reading.cancel()  # also interrupts its search
        self._read_wanted.set()

    def pin_cursor(self) -> None:
        """Pin the cursor to its task: a key was meant for this task."""
        view = self.view
        self.view = view._replace(is_unpinned=view.is_unpinned and not view.cursor.id)

    def set_range(self, is_open: bool) -> None:
        """Start a range at the cursor, or end it."""
        if is_open:
            self.pin_cursor()
        cursor = self.view.cursor
        self.view = self.view._replace(anchor=cursor if is_open and cursor.id else None)

    def move(self, action: str) -> None:
        """Move the cursor by a motion of the key table, and hold the order."""
        self._is_last_wanted = action == "last" and not self.view.window.is_counted
        self.view = self.view.move(action, max(1, self.height))
        self._held_until = self._clock() + HOLD_SECONDS
        if self.view.is_near_edge(self.height):
            self._read_wanted.set()

    def resize(self, height: int) -> None:
        """Keep the cursor on a screen of that height, and read as many rows as it needs."""
        self.height = height
        self.view = self.view.resize(height)
        self._read_wanted.set()

    def store_changed(self) -> None:
        """The store has changed: read again, now or after the last motion's hold time."""
        self._is_changed = self._is_outdated = True
        self._read_wanted.set()

    def tick(self) -> None:
        """Once a second: end the hold time."""
        if self._is_outdated and not _is_holding(self._held_until, self._clock()):
            self._read_wanted.set()

    def _keeps_ghosts(self) -> bool:
        """True while rows that left stay on screen; not if they are more than half of it."""
        few = 2 * len(self.view.departed) <= min(self.height, len(self.view.window.tasks))
        return few and _loop_time() < self._ghosts_until

    async def read(self) -> str | None:
        """Wait until rows are needed, and read them; None if the view is unchanged. The result is
        the id of the task under the cursor, if the operator had chosen it and it has left: then the
        cursor is on a neighbour. Raises engine.store.StoreError: the rows cannot be read."""
        await self._read_wanted.wait()
        self._read_wanted.clear()
        if not self.height:
            return None
        reading = self._reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait({reading})
        finally:
            reading.cancel()
        if reading.cancelled():
            return None  # another query is shown now
        chosen = reading.result()
        if not self.view.window.is_counted:
            self._read_wanted.set()
        return chosen

    async def _read(self) -> str | None:
        view = self.view
        if not view.is_new_query and not view.window.is_counted:
            await asyncio.sleep(COUNT_REST_SECONDS)
            chosen = await self._load()
            if self._is_last_wanted and self.view.window.is_counted:
                self.move("last")
            return chosen
        # No key could hit another row of an empty list: it shows new ones immediately.
        is_covered = not view.is_new_query and bool(view.window.tasks)
        is_covered &= covers(view.window, view.cursor.top, self.height)
        stays = is_covered and (
            _is_holding(self._held_until, self._clock()) or self._keeps_ghosts()
        )
        # If only the order is outdated, the same rows would be read again, however near their edge.
        is_enough = self._is_outdated or not self.view.is_near_edge(self.height)
        if stays and not self._is_changed and is_enough:
            return None
        keeps = stays or not (view.departed or self.is_first_scan)
        if is_covered and self._is_outdated and keeps:
            await self._keep_departed_rows()
            if stays or self._keeps_ghosts():
                return ""
        return await self._load(counts=not (view.is_new_query and view.query.filter))

    async def _load(self, *, counts: bool = True) -> str | None:
        """Read the window around the cursor's task; without `counts`, before a search's total."""
        self._is_changed = self._is_outdated = False
        asked, filling, page = self.view, self.is_first_scan, self.height
        top = asked.cursor.top if counts else 0
        for _ in range(MAX_FETCHES):
            window = await self._source.window(
                asked.query, max(0, top - page), 3 * page, counts=counts
            )
            at, vanished = await _find_cursor(self._source, asked, window)
            line = max(0, min(asked.cursor.at - asked.cursor.top, page - 1))
            top = max(0, min(at - line, window.total - page))
            # The position may be newer than the window: then another task is there.
            task = task_at(window, at)
            is_in = task is not None and task.id == asked.cursor.id
            is_in = is_in or asked.is_unpinned or not asked.cursor.id
            if covers(window, top, page) and (vanished or is_in):
                break
        anchor = self.view.anchor
        anchored = await _find(self._source, asked, window, anchor.id) if anchor else None
        view = self.view
        is_same = (view.query, view.cursor) == (asked.query, asked.cursor)
        if not is_same or view.is_unpinned != asked.is_unpinned:
            self.store_changed()
            return None
        if view.anchor is not None:
            # The start has left: a range from a neighbour is not what the operator meant.
            start = None if anchored is None else view.anchor._replace(at=anchored)
            view = view._replace(anchor=start)
        view, chosen = view.settle(window, at, top, vanished, _loop_time())
        self.view = view._replace(is_unpinned=view.is_unpinned and filling)
        return chosen

    async def _keep_departed_rows(self) -> None:
        """During the hold time: update changed rows in place, and show departed ones as gone."""
        self._is_changed = self._is_outdated = False
        before = self.view.window
        fresh = await self._source.window(self.view.query, before.start, len(before.tasks))
        known = {task.id: task for task in fresh.tasks}
        ghosts: dict[str, str] = {}
        tasks = list(before.tasks)
        for offset, task in enumerate(before.tasks):
            now = known.get(task.id)
            row = before.start + offset - self.view.cursor.top
            if now is None and 0 <= row < self.height:
                now = await self._source.task(task.id)
                if now is None or now.state is not task.state:
                    ghosts[task.id] = self._explain(task, now)
                    continue
            tasks[offset] = now or task
        if ghosts and not self.view.departed:
            self._ghosts_until = _loop_time() + GHOST_SECONDS
        window = before._replace(tasks=tuple(tasks))
        view = self.view.note_change(task_at(window, self.view.cursor.at), _loop_time())
        new = max(0, fresh.total - before.total + len(ghosts))
        view = view._replace(window=window, departed=ghosts)
        view = view._replace(matching=fresh.total, fresh=new)
        # Before the first motion the cursor is on no chosen row: it passes those that left.
        self.view = view.pass_departed(_loop_time()) if not view.is_chosen else view
        # Other changes are read by the first tick after the hold time.
        self._is_outdated = True


def _is_holding(until: float, now: float) -> bool:
    """True before that time; if the clock was set back, the order is not held for longer."""
    return 0 < until - now <= HOLD_SECONDS


async def _find_cursor(source: RowSource, view: ListView, window: Window) -> tuple[int, str]:
    """Position for the cursor, and the id of its former task if that has left. Then the cursor is
    on the next task that still exists: below, else above."""
    id, at = view.cursor.id, view.cursor.at
    if view.is_unpinned or not id:
        return (0 if view.is_unpinned else at), ""
    if (position := await _find(source, view, window, id)) is not None:
        return position, ""
    if view.is_new_query:
        return 0, id
    offset = at - view.window.start
    below, above = view.window.tasks[offset + 1 :], view.window.tasks[: max(0, offset)][::-1]
    for task in (*below[:NEIGHBOUR_ROWS], *above[:NEIGHBOUR_ROWS]):
        if (position := await _find(source, view, window, task.id)) is not None:
            return position, id
    return at, id


async def _find(source: RowSource, view: ListView, window: Window, id: str) -> int | None:
    """Position of a task: in the window, else in the result."""
    for offset, task in enumerate(window.tasks):
        if task.id == id:
            return window.start + offset
    return await source.find(view.query, id)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
