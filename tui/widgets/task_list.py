"""The task list: a window on a query result of up to a million rows, painted line by line.

It is no ScrollView: there, each change of the number of rows would lay out the whole screen."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from rich.cells import cell_len
from textual.message import Message
from textual.strip import Strip

from engine.model import AttemptLimit, attempts_allowed
from engine.store import StoreError
from engine.text.figure import Figure
from engine.text.safe import safe_line
from tui.text.lines import BLANK_LINE, MARGIN_CELLS, Line, cut_line
from tui.text.table import COLUMN_GAP_CELLS, Column
from tui.text.task_list import (
    NO_TRASH_FACTS,
    ListedTask,
    TaskContents,
    TaskContext,
    TrashFacts,
    id_cells,
    resize_columns,
    task_columns,
    task_line,
    title_line,
)
from tui.widgets.background import run_in_background
from tui.widgets.line_widgets import Painted
from tui.widgets.list_view import ListView, RowSigns, task_at
from tui.widgets.task_rows import TaskRows


class TaskList(Painted, can_focus=True):
    """The tasks that match a query; the cursor stays on its task when other rows change."""

    class RowChanged(Message):
        """The shown rows have changed, maybe also the task under the cursor."""

    class Vanished(Message):
        """The task that the operator had moved the cursor to has left; a neighbour has it now."""

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    def __init__(
        self,
        rows: TaskRows,
        clock: Callable[[], float],
        id: str | None = None,
        max_attempts: AttemptLimit = attempts_allowed,
        trash: TrashFacts = NO_TRASH_FACTS,
    ) -> None:
        super().__init__(id=id)
        self.rows = rows
        self.signs = RowSigns()
        self._columns_of = partial(task_columns, limit=max_attempts, trash=trash)
        self._now = clock()
        self._painted: dict[int, Line] = {}
        self._made: dict[int, tuple[tuple[object, ...], Line]] = {}
        self._grounds: object = None
        """What the columns were looked up for."""
        self._layout: object = None
        """What they were made from."""
        self._columns: tuple[Column[ListedTask], ...] = ()
        # The result whose rows were seen, and what they had: columns do not change back.
        self._contents: tuple[object, TaskContents] = None, TaskContents()
        self._reported: tuple[object, ...] = ()

    @property
    def loaded(self) -> bool:
        """False while the rows of the current query are read: keys wait for them."""
        return self.rows.view.loaded

    @property
    def row_words(self) -> str:
        """The position of the cursor: `row 4 of 59`, `(1 gone)` if so many have left the tasks but
        keep their rows for a while; "" without rows."""
        view = self.rows.view
        has_rows = view.total and not self.signs.notice
        known = view.total if view.window.is_counted else None
        total = Figure(known, not self.rows.is_first_scan).text()
        left = f" ({len(view.departed)} gone)" if view.departed else ""
        return f"row {view.cursor.at + 1:,} of {total}{left}" if has_rows else ""

    @property
    def line_of_cursor(self) -> int:
        """Line of the row under the cursor, from the top of the list."""
        return self.rows.view.cursor.at - self.rows.view.cursor.top + 1  # below the titles

    def show_signs(self, signs: RowSigns) -> None:
        """Show marks, notes, or a notice instead of the rows."""
        if signs != self.signs:
            self.signs = signs
            self.paint()

    def tick(self, now: float) -> None:
        """Once a second: end the hold time; update ages each minute, and when a task is due."""
        self.rows.tick()
        is_due = any(self._now < (t.due or 0) <= now for t in self.rows.view.window.tasks)
        if is_due or int(now // 60) != int(self._now // 60):
            self._now = now
            self.paint()

    def move(self, action: str) -> None:
        """Move by a motion of the key table: down, up, half_down, page_down, first and so on. It
        sends no message, as the caller knows that the cursor moved: that would repaint again."""
        before, is_told = self.rows.view.cursor, self._reported == _facts(self.rows.view)
        self.rows.move(action)
        now = self.rows.view.cursor
        if is_told:  # else rows have just been read, and the message about them is still to come
            self._reported = _facts(self.rows.view)
        if now.top != before.top:
            self.paint()
            return
        low, high = sorted((before.at - now.top, now.at - now.top))
        self.paint((low, high) if self.rows.view.anchor is None else range(low, high + 1))

    def on_mount(self) -> None:
        run_in_background(self, self._follow, name="rows")

    async def _follow(self) -> None:
        while True:
            try:
                vanished = await self.rows.read()
            except StoreError as error:
                text = (BLANK_LINE, ((f"   {error}", "error"),))
                self.show_signs(self.signs._replace(notice=text))
                continue
            if vanished is not None:
                self.paint()
            if vanished:  # first: what was to be done with this task is not done with another
                self.post_message(self.Vanished(vanished))
            if vanished is not None and self._reported != _facts(
                self.rows.view
            ):  # not just more rows around it
                self._reported = _facts(self.rows.view)
                self.post_message(self.RowChanged())

    def on_resize(self) -> None:
        self.rows.resize(max(1, self.size.height - 1) if self.size.width else 0)
        self.paint()

    def paint(self, rows: Collection[int] | None = None) -> None:
        """Paint the titles and all rows, or these ones, where they differ from those on screen."""
        width = self.size.width
        if not width or (self.rows.view.has_new_result and not self.signs.notice):
            return
        rows = range(self.rows.height) if rows is None else rows
        lines = {y: self._line(y, width) for y in (0, *(row + 1 for row in rows))}
        changed = {y: line for y, line in lines.items() if line != self._painted.get(y)}
        self._painted |= changed
        self.repaint_lines(changed)

    def render_line(self, y: int) -> Strip:
        if y not in self._painted:
            self._painted[y] = self._line(y, self.size.width)
        return self.strip_of(self._painted[y])

    def _shape(self, width: int) -> tuple[Column[ListedTask], ...]:
        """The columns for the rows; they stay while single rows are updated in place."""
        query, window, is_new = (view := self.rows.view).query, view.window, view.is_new_query
        options = self.signs.shown
        # Its tasks are more than before once the list became higher.
        rows = window.generation, window.start, window.total, len(window.tasks), self._now
        grounds = (query, width, *rows, options, is_new)
        if self._grounds != grounds:
            self._grounds, tasks = grounds, window.tasks
            longest = id_cells(tasks)
            kinds = max((cell_len(safe_line(kind)) for kind in {t.kind for t in tasks}), default=0)
            destined, worded = any(t.destination for t in tasks), any(t.word for t in tasks)
            ids = max((cell_len(safe_line(t.id)) for t in tasks if "ids" in options), default=0)
            result = query.state, query.filter, query.order
            before = self._contents[1] if self._contents[0] == result else TaskContents()
            contents = before.with_tasks(tasks, self._now)
            self._contents = result, before if is_new else contents  # rows of the former result
            layout = (result, width, destined, longest, worded, kinds, ids, options, contents)
            # Columns that are made again are equal but for their functions: all rows would be, too.
            if layout != self._layout:
                columns: tuple[Column[ListedTask], ...] = ()
                make, mailed = self._columns_of, bool(contents.address)
                if query.state:
                    make = partial(make, query.state, width, destined, longest, worded)
                    columns = make(kinds=kinds, mailed=mailed, contents=contents)
                self._columns = resize_columns(columns, width, ids, is_wide="wide" in options)
                self._layout = layout
        return self._columns

    def order_at(self, x: int) -> str:
        """The order of the index by which the title at a column of the screen sorts; "" if none."""
        for column in self._shape(self.size.width):
            x -= column.width + COLUMN_GAP_CELLS
            if x < MARGIN_CELLS - COLUMN_GAP_CELLS:
                return column.order
        return ""

    def _line(self, y: int, width: int) -> Line:
        query, notice = self.rows.view.query, self.signs.notice
        if y == 0:
            return title_line(self._shape(width), width, (query.order, query.descending))
        if notice:
            return cut_line(notice[y - 1], width) if y <= len(notice) else BLANK_LINE
        return self._row(self.rows.view.cursor.top + y - 1, width)

    def _row(self, position: int, width: int) -> Line:
        view, signs = self.rows.view, self.signs
        task = task_at(view.window, position)
        if task is None:
            return ((" ~", "muted"),) if position < view.total else BLANK_LINE
        place = TaskContext(
            position == view.cursor.at,
            signs.everything or task.id in signs.marks or view.is_marking(position),
            task.id in view.departed,
            task.id in signs.notes,
            view.departed.get(task.id, ""),
        )
        # Each page is painted when the key comes, and again when its rows arrive.
        inputs = task, self._shape(width), self._now, place, width
        y = position - view.cursor.top
        if y not in self._made or self._made[y][0] != inputs:
            self._made[y] = inputs, task_line(*inputs)
        return self._made[y][1]


def _facts(view: ListView) -> tuple[object, ...]:
    """What others show of the rows: the task under the cursor, and numbers."""
    window, cursor = view.window._replace(tasks=(), start=0), (*view.cursor[:2], view.task_here)
    return view.query, window, cursor, view.departed, view.matching, view.fresh, view.loaded
