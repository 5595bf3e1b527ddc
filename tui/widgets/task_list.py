"""The task list: a window on a result that may hold a million rows, painted line by line.

It asks for about three pages at a time and holds nothing else. The cursor is a task's id; its place
is found again after each change. Only while the store is looked at for the first time the cursor is
the first row until somebody puts it elsewhere: what is found first comes first by chance. The list
is no ScrollView: there, a changed number of rows is a changed layout, and the whole screen would be
painted again with each task that comes or goes.
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
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line
from tui.widgets.lines import Painted

HOLD = 5.0
"""Seconds after a motion in which rows keep their places: a moving hand must hit what it saw."""

JUMP = 3
"""The view jumps by a third of a page at its edge: each jump paints all lines, a step only two."""

LAG = 0.3
"""Seconds after which a task that changed under the cursor has been seen as it is now."""

UNSEEN = 0.4
"""Seconds for which nobody can have seen that the row under the cursor is another one now."""

TRIES = 3
"""Windows that are fetched at most until the task under the cursor stands in one of them."""

NEAR = 5
"""Rows on either side among which a neighbour is sought when the task under the cursor left."""


class RowSource(Protocol):
    """Where the list gets its rows from."""

    async def window(self, query: Query, start: int, size: int) -> Window:
        """So many rows of a result, from a position on."""
        ...

    async def find(self, query: Query, id: str) -> int | None:
        """The position of a task in a result."""
        ...

    async def task(self, id: str) -> Task | None:
        """A task as it stands now."""
        ...


class CursorPosition(NamedTuple):
    """Where the cursor stands, and what part of the result is on screen."""

    at: int = 0
    """Position in the result."""
    id: str = ""
    """The task there; "" while it is not known yet."""
    top: int = 0
    """Position of the first row on screen."""


class Anchor(NamedTuple):
    """Where a range begins that reaches to the cursor."""

    id: str
    at: int


NO_ROWS = Window((), 0, 0, -1)


class TaskList(Painted, can_focus=True):
    """The tasks that match a query; the cursor stays on its task whatever happens around it."""

    class Moved(Message):
        """What the list shows has changed, and perhaps the task that the cursor is on."""

    class Vanished(Message):
        """The task that the operator had put the cursor on has left; a neighbour has it now.

        A cursor that nobody moved goes with the flow, and there is nothing to say.
        """

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    def __init__(self, rows: RowSource, clock: Callable[[], float], id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows = rows
        self._clock = clock
        self._query = Query()
        self._new_query = True
        self._spot = CursorPosition()
        self._window = NO_ROWS
        self._ghosts: frozenset[str] = frozenset()
        self._fresh = 0
        self._matching = 0
        self._chosen = False
        self._filling = False
        self._adrift = True
        self._turned = False
        self._handed_on = float("-inf")
        self._altered = float("-inf")
        self._marks: Collection[str] = ()
        self._notes: Collection[str] = ()
        self._everything = False
        self._anchor: Anchor | None = None
        self._notice: tuple[Line, ...] = ()
        self._held_until = 0.0
        self._late = False
        self._wanted = asyncio.Event()
        self._painted: dict[int, Line] = {}
        self._made: dict[int, tuple[tuple[object, ...], Line]] = {}
        self._shape: tuple[present.TaskColumn, ...] = ()
        self._now = 0.0
        self.loads = 0

    # What the screen may ask

    @property
    def task_here(self) -> Task | None:
        """The task under the cursor; None while it is not known, or has left."""
        task = None if self._turned else self._at(self._spot.at)
        return task if task is not None and task.id not in self._ghosts else None

    @property
    def cursor(self) -> CursorPosition:
        """Where the cursor stands."""
        return self._spot

    @property
    def kept(self) -> CursorPosition:
        """Where to put the cursor when this result is shown again."""
        return CursorPosition() if self._adrift else self._spot

    @property
    def gone(self) -> bool:
        """Whether the row under the cursor is a ghost: it has left since it was shown."""
        return self._spot.id in self._ghosts

    @property
    def unseen(self) -> bool:
        """Whether another task came under the cursor just now: whoever presses a key meant the one
        before."""
        return asyncio.get_running_loop().time() - self._handed_on < UNSEEN

    @property
    def altered(self) -> bool:
        """Whether the task under the cursor changed just now: whoever presses a key meant it as it
        was."""
        return asyncio.get_running_loop().time() - self._altered < LAG

    @property
    def total(self) -> int:
        """How many tasks match, as far as the list knows."""
        return self._window.total

    @property
    def matching(self) -> int:
        """How many tasks match now, also while rows that have left stay on screen."""
        return self._matching

    @property
    def range_from(self) -> Anchor | None:
        """Where the range begins that is being marked; None while none is."""
        return self._anchor

    def held(self, low: int, high: int) -> dict[int, str]:
        """The tasks that it shows from one position up to another, as far as it holds them."""
        if self._turned or self._new_query:
            return {}
        start, tasks = self._window.start, self._window.tasks
        first = max(0, low - start)
        ids = [task.id for task in tasks[first : max(0, high + 1 - start)]]
        return dict(enumerate(ids, start + first))

    @property
    def ghosts(self) -> frozenset[str]:
        """Tasks that have left, and whose rows keep their places for a while."""
        return self._ghosts

    @property
    def asked(self) -> bool:
        """Whether it was asked for anything yet."""
        return self._query.state is not None

    @property
    def loaded(self) -> bool:
        """Whether what is shown answers the query it was last asked, and has the cursor's row."""
        return not self._new_query and bool(self._spot.id or not self.total)

    # What the screen may tell it

    def ask(self, query: Query, spot: CursorPosition | None = None) -> None:
        """Show another result; the cursor stays on its task if that is in it."""
        self._query = query
        self._shape = ()
        self._spot = self._spot if spot is None else spot
        self._chosen = self._chosen and spot is None
        self._adrift = self._adrift if spot is None else not (spot.id or spot.at)
        # A spot of the new result means nothing among the rows of the old: those stay as painted.
        self._turned = self._turned or spot is not None
        self._new_query = True
        self._held_until = 0.0
        self._wanted.set()

    def fill(self, filling: bool) -> None:
        """Say whether the store is still looked at for the first time: what it holds comes to be
        known in any order then, and a result is a part of what it will be."""
        self._filling = filling

    def stay(self) -> None:
        """A key was meant for the task under the cursor: from now on the cursor is that task."""
        self._adrift = self._adrift and not self._spot.id

    def changed(self) -> None:
        """Something happened in the store: look again, now or when the hands rest."""
        self._late = True
        self._wanted.set()

    def tick(self, now: float) -> None:
        """A moment passed: let go of an order that was held, and let ages grow by the minute."""
        if self._late and not self._holding():
            self._wanted.set()
        if int(now // 60) != int(self._now // 60):
            self._now = now
            self.paint()

    def show_marks(self, marks: Collection[str], everything: bool) -> None:
        """Show these tasks as marked, or all of them."""
        self._marks, self._everything = marks, everything
        self.paint()

    def show_notes(self, noted: Collection[str]) -> None:
        """Show that these tasks have a note."""
        if noted is not self._notes:
            self._notes = noted
            self.paint()

    def begin_range(self) -> None:
        """From now on show all rows between here and the cursor as marked."""
        self.stay()
        self._anchor = Anchor(self._spot.id, self._spot.at) if self._spot.id else None
        self.paint()

    def end_range(self) -> None:
        """No range any more."""
        self._anchor = None
        self.paint()

    def say(self, notice: tuple[Line, ...]) -> None:
        """Say something in place of the rows; nothing to say shows the rows again."""
        if notice != self._notice:
            self._notice = notice
            self.paint()

    # Moving

    def move(self, action: str) -> None:
        """Move as the key table names it: down, up, half_down, page_down, first and so on.

        Whoever calls this knows that the cursor moved: there is no message, which would come a
        frame later and cost another one.
        """
        page = self._height
        half = max(1, page // 2)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        steps |= {"half_down": half, "half_up": -half}
        if action in steps:
            self._go(self._spot.at + steps[action], steps[action])
        else:
            self._go(0 if action == "first" else self.total - 1, 0)

    def _go(self, at: int, step: int) -> None:
        at, height = max(0, min(at, self.total - 1)), self._height
        top = self._view_for(at, step, height)
        task = self._at(at)
        before, self._spot = self._spot, CursorPosition(at, task.id if task else "", top)
        self._chosen, self._adrift = True, False
        self._handed_on = float("-inf")
        self._held_until = self._clock() + HOLD
        if top == before.top:
            low, high = sorted((before.at - top, at - top))
            rows = (low, high) if self._anchor is None else range(low, high + 1)
            self._paint_rows(rows, title=True)
        else:
            self.paint()
        if not self._covers(top, height) or self._near_edge(top, height):
            self._wanted.set()

    def _view_for(self, at: int, step: int, height: int) -> int:
        top = self._spot.top
        if abs(step) >= height:
            top += step
        elif at >= top + height:
            top = at - height + max(1, height // JUMP)
        elif at < top:
            top = at - max(1, height // JUMP) + 1
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
        # A clock that was set back must not hold the order for longer than it should.
        return 0 < self._held_until - self._clock() <= HOLD

    def on_mount(self) -> None:
        """Begin to fetch whatever is asked for."""
        self._now = self._clock()
        self.run_worker(self._serve(), name="rows", exit_on_error=True)

    def on_resize(self) -> None:
        """Another size shows other columns and more rows."""
        self._shape = ()
        self._spot = self._spot._replace(top=self._view_for(self._spot.at, 0, self._height))
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
                self.say(((("", ""),), ((f"   {error}", "bad"),)))

    async def _fetch(self) -> None:
        if self._holding() and not self._new_query and self._covers(self._spot.top, self._height):
            if self._late:
                await self._haunt()
            elif self._near_edge(self._spot.top, self._height):
                await self._load()
        else:
            await self._load()

    async def _load(self) -> None:
        """Fetch the window around the cursor's task, wherever that stands now."""
        self._late = False
        asked, filling = (self._query, self._spot, self._adrift), self._filling
        top = self._spot.top
        for _ in range(TRIES):
            window = await self._window_around(top)
            at, vanished = await self._whereabouts(window)
            top = self._top_for(at, window.total)
            # Its place may be newer than the window: then another task stands there.
            if _holds(window, top, self._height) and (vanished or self._is_in(window, at)):
                break
        anchored = await self._position(window, self._anchor.id) if self._anchor else None
        if asked != (self._query, self._spot, self._adrift):
            self._late = True
            self._wanted.set()
            return
        if self._anchor is not None:
            # Where it begins has left: a range from a neighbour is not what was meant.
            self._anchor = None if anchored is None else self._anchor._replace(at=anchored)
        self._settle(window, at, top, vanished)
        self._adrift = self._adrift and filling

    async def _window_around(self, top: int) -> Window:
        self.loads += 1
        page = self._height
        return await self._rows.window(self._query, max(0, top - page), 3 * page)

    async def _whereabouts(self, window: Window) -> tuple[int, str]:
        """Where the cursor is to stand, and the task that it was on if that has left."""
        if self._adrift:
            return 0, ""
        id = self._spot.id
        at = await self._position(window, id) if id else self._spot.at
        return (await self._neighbour(window), id) if at is None else (at, "")

    def _is_in(self, window: Window, at: int) -> bool:
        here = window.tasks[max(0, at - window.start) :][:1]
        return self._adrift or not self._spot.id or any(task.id == self._spot.id for task in here)

    async def _position(self, window: Window, id: str) -> int | None:
        for offset, task in enumerate(window.tasks):
            if task.id == id:
                return window.start + offset
        return await self._rows.find(self._query, id)

    async def _neighbour(self, window: Window) -> int:
        """Where the next task that is still there stands now: below, else above."""
        if self._new_query:
            return 0
        here = self._spot.at - self._window.start
        below, above = self._window.tasks[here + 1 :], self._window.tasks[: max(0, here)][::-1]
        for task in (*below[:NEAR], *above[:NEAR]):
            at = await self._position(window, task.id)
            if at is not None:
                return at
        return self._spot.at

    def _top_for(self, at: int, total: int) -> int:
        line = max(0, min(self._spot.at - self._spot.top, self._height - 1))
        return max(0, min(at - line, total - self._height))

    def _settle(self, window: Window, at: int, top: int, vanished: str) -> None:
        before = None if self._new_query else self.task_here
        self._window, self._ghosts, self._fresh = window, frozenset(), 0
        at = max(0, min(at, window.total - 1))
        task = self._at(at)
        if before is not None and task is not None and before.id == task.id and before != task:
            self._altered = asyncio.get_running_loop().time()
        id = task.id if task else ""
        vanished = vanished or (self._spot.id if id != self._spot.id else "")
        if vanished and not self._turned and not self._new_query:
            self._handed_on = asyncio.get_running_loop().time()
        self._turned = False
        said = vanished if not self._new_query else ""
        said = said if self._chosen else ""
        self._chosen = self._chosen and not vanished
        self._shape = ()
        self._matching = window.total
        self._new_query = False
        self._spot = CursorPosition(at, id, top)
        self.paint()
        self.post_message(self.Moved())
        if said:
            self.post_message(self.Vanished(said))

    async def _haunt(self) -> None:
        """While the order is held: show in its place what changed, and what has left as gone."""
        self._late = False
        before = self._window
        fresh = await self._rows.window(self._query, before.start, len(before.tasks))
        known = {task.id: task for task in fresh.tasks}
        ghosts, tasks = set(), list(before.tasks)
        for offset, task in enumerate(before.tasks):
            now = known.get(task.id)
            if now is None and self._on_screen(before.start + offset):
                now = await self._rows.task(task.id)
                if now is None or now.state is not task.state:
                    ghosts.add(task.id)
                    continue
            tasks[offset] = now or task
        if self._window is before:
            self._fresh = max(0, fresh.total - before.total + len(ghosts))
            self._matching = fresh.total
            self._window = before._replace(tasks=tuple(tasks))
            self._ghosts = frozenset(ghosts)
            self.paint()
            self.post_message(self.Moved())
        # What was held back is fetched by the first tick after the hands came to rest.
        self._late = True

    def _on_screen(self, position: int) -> bool:
        return self._spot.top <= position < self._spot.top + self._height

    # Painting

    def paint(self) -> None:
        """Paint the lines that differ from what is on screen."""
        self._paint_rows(range(self._height), title=True)

    def _paint_rows(self, rows: Collection[int], title: bool = False) -> None:
        width = self.size.width
        if not width or (self._turned and not self._notice):
            return
        for y in ([0] if title else []) + [row + 1 for row in rows]:
            line, before = self._line(y, width), self._painted.get(y)
            if line != before:
                self._painted[y] = line
                self.repaint_line(y, before, line)

    def render_line(self, y: int) -> Strip:
        """A line as it was last painted."""
        if y not in self._painted:
            self._painted[y] = self._line(y, self.size.width)
        return self.strip_of(self._painted[y])

    def _line(self, y: int, width: int) -> Line:
        if not self._shape:
            state = self._query.state
            destined = any(task.destination for task in self._window.tasks)
            longest = max((cell_len(shown(task.id)) for task in self._window.tasks), default=0)
            worded = any(task.word for task in self._window.tasks)
            self._shape = present.columns(state, width, destined, longest, worded) if state else ()
        if y == 0:
            order = (self._query.order, self._query.descending)
            return present.titles(self._shape, self._position_words(), width, order)
        if self._notice:
            return present.cut(self._notice[y - 1], width) if y <= len(self._notice) else BLANK
        return self._row(self._spot.top + y - 1, width)

    def _position_words(self) -> str:
        if self._notice:
            return ""  # no rows are shown that could be counted
        words = f"{self._spot.at + 1:,}/{self.total:,}" if self.total else ""
        return f"{self._fresh} new  {words}" if self._fresh else words

    def _row(self, position: int, width: int) -> Line:
        task = self._at(position)
        if task is None:
            return ((" ~", "dim"),) if position < self.total else BLANK
        place = present.TaskContext(
            position == self._spot.at,
            self._everything or task.id in self._marks or self._is_between(position),
            task.id in self._ghosts,
            task.id in self._notes,
        )
        # Each page is painted when the key comes, and looked at again when its rows do.
        wanted = task, self._shape, self._now, place, width
        y = position - self._spot.top
        if y not in self._made or self._made[y][0] != wanted:
            self._made[y] = wanted, present.row(*wanted)
        return self._made[y][1]

    def _is_between(self, position: int) -> bool:
        if self._anchor is None:
            return False
        low, high = sorted((self._anchor.at, self._spot.at))
        return low <= position <= high


def _holds(window: Window, top: int, height: int) -> bool:
    end = window.start + len(window.tasks)
    return window.start <= top and min(top + height, window.total) <= end
