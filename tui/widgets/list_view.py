"""What a task list shows, as a value: known rows, cursor, first row on screen, departed rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from engine.index.schema import Query, Window
from engine.model import Task
from engine.text.figure import Figure
from engine.values import NamedTuple
from tui.text.keys import motion_rows
from tui.text.lines import Line

JUMP_DIVISOR = 3
"""At its edge the view jumps by this part of a page: a jump repaints all lines, a step two."""


NONE_DEPARTED: Mapping[str, str] = MappingProxyType({})


class CursorPosition(NamedTuple):
    """Position of the cursor and of the view in the result."""

    at: int = 0
    """Position in the result."""
    id: str = ""
    """The task there; "" if not known yet."""
    top: int = 0
    """Position of the first row on screen."""


class ListView(NamedTuple):
    """A window on the result of a query, and the cursor in it."""

    query: Query = Query()
    window: Window = Window((), 0, 0, -1)
    cursor: CursorPosition = CursorPosition()
    anchor: CursorPosition | None = None
    """Start of the open range; its other end is the cursor. None without a range."""
    departed: Mapping[str, str] = NONE_DEPARTED
    """Ids of tasks that have left and whose rows stay for a while, and why they left."""
    fresh: int = 0
    """Number of new tasks that are not shown yet, because the order is held."""
    matching: int = 0
    """Number of tasks that match now, without departed rows."""
    is_chosen: bool = False
    """The operator moved the cursor to its task."""
    is_unpinned: bool = True
    """The cursor is the first row, not a task."""
    is_new_query: bool = True
    """The window answers a former query."""
    has_new_result: bool = False
    """The cursor is a position in a result that is not read yet: the rows stay as painted."""
    cursor_moved_at: float = float("-inf")
    """When another task moved under the cursor, in seconds of the event loop."""
    task_changed_at: float = float("-inf")
    """When the task under the cursor changed, in seconds of the event loop."""

    @property
    def task_here(self) -> Task | None:
        """The task under the cursor; None if not known yet or gone."""
        return None if self.has_new_result or self.is_gone else task_at(self.window, self.cursor.at)

    @property
    def is_gone(self) -> bool:
        """True if the row under the cursor is a departed one."""
        return self.cursor.id in self.departed

    @property
    def total(self) -> int:
        """Number of rows, as far as known."""
        return self.window.total

    @property
    def matching_words(self) -> str:
        """The number of tasks that match now; `?` until they are counted."""
        return Figure(self.matching if self.window.is_counted else None).text()

    @property
    def saved_position(self) -> CursorPosition:
        """Position to restore when this result is shown again."""
        return CursorPosition() if self.is_unpinned else self.cursor

    @property
    def loaded(self) -> bool:
        """True if the rows answer the current query and include the cursor's row."""
        return not self.is_new_query and bool(self.cursor.id or not self.total)

    def held_ids(self, low: int, high: int) -> dict[int, str]:
        """Ids of the tasks from position `low` to `high`, as far as the window holds them."""
        if self.has_new_result or self.is_new_query:
            return {}
        start, tasks = self.window.start, self.window.tasks
        first = max(0, low - start)
        ids = (task.id for task in tasks[first : max(0, high + 1 - start)])
        return dict(enumerate(ids, start + first))

    def is_near_edge(self, height: int) -> bool:
        """True if the window does not hold half a page above and below the screen."""
        top, half = self.cursor.top, height // 2
        return not covers(self.window, max(0, top - half), height + 2 * half)

    def is_marking(self, position: int) -> bool:
        """True for the rows from the start of the range to the cursor."""
        if self.anchor is None:
            return False
        low, high = sorted((self.anchor.at, self.cursor.at))
        return low <= position <= high

    def with_query(self, query: Query, cursor: CursorPosition | None) -> ListView:
        """Another result; without `cursor` it stays on its task if the result has it."""
        view = self._replace(query=query, is_new_query=True)
        if cursor is None:
            return view
        view = view._replace(cursor=cursor, is_unpinned=not (cursor.id or cursor.at))
        view = view._replace(is_chosen=bool(cursor.id))
        return view._replace(departed=NONE_DEPARTED, has_new_result=True)

    def move(self, action: str, height: int) -> ListView:
        """Move by a motion of the key table: down, up, half_down, page_down, first and so on."""
        step = motion_rows(action, height)
        end_positions = {"first": 0, "last": self.total - 1}
        at = max(0, min(end_positions.get(action, self.cursor.at + step), self.total - 1))
        task = task_at(self.window, at)
        cursor = CursorPosition(at, task.id if task else "", self._top_for(at, step, height))
        moved = self._replace(cursor=cursor, is_chosen=True, is_unpinned=False)
        return moved._replace(cursor_moved_at=float("-inf"))

    def resize(self, height: int) -> ListView:
        """Keep the cursor on a screen of that height."""
        top = self._top_for(self.cursor.at, 0, height)
        return self._replace(cursor=self.cursor._replace(top=top))

    def _top_for(self, at: int, step: int, height: int) -> int:
        top, jump = self.cursor.top, max(1, height // JUMP_DIVISOR)
        if abs(step) >= height:
            top += step
        elif at >= top + height:
            top = at - height + jump
        elif at < top:
            top = at - jump + 1
        return max(0, min(max(top, at - height + 1), at, self.total - height))

    def settle(
        self, window: Window, at: int, top: int, vanished: str, now: float
    ) -> tuple[ListView, str]:
        """Show another window, with the cursor at a position; also the id of the task that the
        operator had chosen, or for which the result was opened, if it has left. `vanished`: id of
        the cursor's former task if that has left. `now`: time of the event loop."""
        at = max(0, min(at, window.total - 1))
        task = task_at(window, at)
        id = task.id if task else ""
        vanished = vanished or (self.cursor.id if id != self.cursor.id else "")
        is_opened = self.is_new_query and self.has_new_result
        is_moved = bool(vanished) and (is_opened or not (self.has_new_result or self.is_new_query))
        is_wanted = self.is_chosen and (is_opened or not self.is_new_query)
        view = self if self.is_new_query else self.note_change(task, now)
        view = view._replace(window=window, matching=window.total, fresh=0, departed=NONE_DEPARTED)
        view = view._replace(is_new_query=False, has_new_result=False)
        view = view._replace(is_chosen=self.is_chosen and not vanished)
        view = view._replace(cursor=CursorPosition(at, id, top))
        view = view._replace(cursor_moved_at=now) if is_moved else view
        return view, vanished if is_wanted else ""

    def pass_departed(self, now: float) -> ListView:
        """Move the cursor from a departed row to the first one that is there, if there is one."""
        known = enumerate(self.window.tasks, self.window.start)
        remaining = ((at, task.id) for at, task in known if task.id not in self.departed)
        at, id = next(remaining, (0, ""))
        if not self.is_gone or not id:
            return self
        return self._replace(cursor=CursorPosition(at, id, self.cursor.top), cursor_moved_at=now)

    def note_change(self, task: Task | None, now: float) -> ListView:
        """Note the time if the task under the cursor is the same one, but has changed."""
        selected = self.task_here
        if selected is None or task is None or selected.id != task.id or selected == task:
            return self
        return self._replace(task_changed_at=now)


class RowSigns(NamedTuple):
    """What is shown at the rows, or instead of them."""

    marks: Collection[str] = ()
    everything: bool = False
    notes: Collection[str] = ()
    notice: tuple[Line, ...] = ()
    """Shown instead of the rows, if it is not empty."""
    shown: frozenset[str] = frozenset()
    """`ids`: ids in full; `wide`: the error column has the room of the others."""


def task_at(window: Window, position: int) -> Task | None:
    """The task at a position of the result; None if the window does not hold it."""
    offset = position - window.start
    return window.tasks[offset] if 0 <= offset < len(window.tasks) else None


def covers(window: Window, top: int, height: int) -> bool:
    """True if a window holds a page."""
    end = window.start + len(window.tasks)
    return window.start <= top and min(top + height, window.total) <= end
