"""The queue screen: tasks by state, lock, metrics and log of one place."""

from __future__ import annotations

import asyncio
from functools import partial

from textual import work

from engine.index.schema import Query
from engine.live.inspector import IndexChanged
from engine.live.queries import AGE_ROUNDING_SECONDS
from engine.logs.task_events import task_attempts, task_history
from engine.model import Part, State, Task
from engine.store import StoreError, Unavailable
from engine.text.error_pattern import fold_error, pattern_name
from engine.waiting_reasons import join_reasons
from tui.queue.actions import QueueActions
from tui.queue.filter_line import FilterLine
from tui.queue.task_details import TaskFindings
from tui.screens.base import QUIT_AGAIN, key_bindings
from tui.screens.graph_pane import GRAPH_READ_SECONDS
from tui.screens.palette_commands import PaletteCommand
from tui.screens.target import Target
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.task.why_waiting import reasons
from tui.text import keys
from tui.text.task_list import TIME_COLUMNS
from tui.widgets.list_view import CursorPosition, task_at
from tui.widgets.task_list import TaskList

MESSAGE_SECONDS = 6.0
"""Seconds for which a message stays."""


CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before its task is looked up."""

CLUSTERS_SECONDS = 10.0
"""Age in seconds from which the clusters of the details are read again."""


THEN_SECONDS = 2.0
"""Seconds within which the rows must be read for an action of the palette to run."""


class QueueTabs(QueueActions):
    """The keys of the tabs, the order and the filter."""

    _then = ("", 0.0)
    """Action to run once the rows are read, and when it was asked for."""

    def aim(self, target: Target) -> None:
        """Show the target's state, filter or task, as soon as the states are known; run its action
        once the rows are read.
        """
        self._then = target.action, self.context.clock()
        if (target.state, target.filter) == (None, None) and not (target.id or target.problems):
            return
        self._aim = target
        if self.is_paintable and self._tabs:
            self._show_target()

    def _show_target(self) -> None:
        target, self._aim = self._aim, None
        if target is None:
            return
        if target.filter is not None:
            self._saved = None
            self._filter.set_text(target.filter)
        state = None if target.problems else target.state or self.state or State.PENDING
        if state not in self._tabs:
            self.say(f"{self.place.name} has no state {state}")
            state = self.state
        is_aimed = bool(target.id) or target.filter is not None
        position = CursorPosition(id=target.id) if is_aimed else None
        self._to_tab(self._tabs.index(state), position)

    def action_tab(self, pressed: str) -> None:
        """Switch to the previous or the next tab."""
        if self._tabs:
            self._to_tab((self._tab + keys.step_of(pressed)) % len(self._tabs))

    def _to_tab(self, tab: int, position: CursorPosition | None = None) -> None:
        """Switch to a tab; without `position`, the cursor returns to its last position there."""
        if self.rows.view.query.state is not None:
            if tab == self._tab and position is None:
                return
            self._spots[self._tab] = self.rows.view.saved_position
        self._tab = tab
        self._everything = False
        self.list.set_range(False)
        self._show_tab(position or self._spots.get(tab, CursorPosition()))

    def _show_tab(self, position: CursorPosition) -> None:
        self._middle.set_class(self._on_problems, "-problems")
        if self._on_problems:
            self._problem_list.focus()
            self._fetch_problems()
        else:
            self.list.focus()
            self._query_list(position)
        self.paint()

    @work(exclusive=True, group="problems")
    async def _fetch_problems(self) -> None:
        self._problems = await self.inspector.queries.problems()
        if self.is_paintable:
            self.paint()

    def action_order(self) -> None:
        """Choose the column to order by; choosing it again reverses the order."""
        from tui.screens.menu import MenuScreen, Option

        if self.state is None:
            self.say("problems have no other order")
            return
        now, _ = self._order
        options = [
            Option(key, f"{name}{' (reverse)' if order == now else ''}")
            for key, (name, order) in order_choices(self.state).items()
        ]

        def pick(key: str | None) -> None:
            if key and self.state is not None:
                self.action_sort(order_choices(self.state)[key][1])

        self.app.push_screen(MenuScreen("Order by", options), pick)

    def action_sort(self, order: str, reverses: bool = True) -> None:
        """Order by a column of the index; if it is the present one, reverse the order, unless the
        operator cannot see it.
        """
        if self.state is not None:
            now, falling = self._order
            self._orders[self.state] = (order, reverses and order == now and not falling)
            self._query_list(CursorPosition(id=self.rows.view.saved_position.id))

    def commands(self) -> tuple[PaletteCommand, ...]:
        """A command for each order of this tab."""
        return tuple(
            PaletteCommand(f"sort {name}", "order by this column", "o", action=f"sort('{order}')")
            for name, order in (order_choices(self.state) if self.state else {}).values()
        )

    def _query_list(self, position: CursorPosition | None = None) -> None:
        self.rows.show_query(self.tab_query, position)
        self._show_marks()
        self._count_hidden()

    def action_filter(self) -> None:
        """Open the filter line."""
        self._saved = None
        self._filter.open()
        self._lay_out()

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Apply the filter while it is typed."""
        if self.state is not None:
            self._everything = False
            self._query_list()

    def on_filter_line_wrong(self) -> None:
        """The filter is invalid: update the scope line, which then refuses actions."""
        self._paint_scope()

    def on_filter_line_kept(self) -> None:
        """Leave the filter line; hide it if it is empty."""
        line = self._filter
        if not line.words.strip():
            line.close()
        self.list.focus()
        self.paint()

    def action_back(self) -> None:
        """End a range, stop the first scan or clear the filter; otherwise back to the overview."""
        if self.rows.view.anchor is not None:
            self.list.set_range(False)
            self._paint_scope()
        elif not (self._change.is_complete or self._change.is_stopped):
            self.inspector.stop_first_scan()
        elif self._filter.is_visible:
            self._filter.close()
            self.list.focus()
            self.paint()
        else:
            self.post_message(self.ActionRequest(self, "back"))


class QueueDetails(QueueTabs):
    """What is looked up about the task under the cursor, once that rests."""

    _cursor_rest_timer: asyncio.TimerHandle | None = None
    """Runs when the cursor has rested; None if it rests."""

    def run_then(self) -> None:
        """Run the action for which the screen was opened, if its rows are read."""
        action, asked = self._then
        if action and self.is_current and self.rows.view.loaded:
            self._then = "", 0.0
            if 0 <= self.context.clock() - asked <= THEN_SECONDS:
                self.call_later(self.run_action, action)

    def on_task_list_row_changed(self) -> None:
        """The list has fetched rows."""
        self._lay_out()
        self._paint_filter()
        self._paint_list_frame()
        self.row_changed()

    def row_changed(self) -> None:
        """Update everything that depends on the task under the cursor."""
        self.list.show_signs(self.list.signs._replace(notice=self._notice()))
        self._paint_scope()
        if (
            not self.rows.view.matching
            and self._filter.filter
            and self._explained[0] != self.tab_query
        ):
            self._run_query("filter", self._explain_filter)
        self.workers.cancel_group(self, "why")
        if self._cursor_rest_timer is not None:
            self._cursor_rest_timer.cancel()
        loop = asyncio.get_running_loop()
        self._cursor_rest_timer = loop.call_later(CURSOR_REST_SECONDS, self._show_details)
        self.run_then()

    async def _explain_filter(self) -> None:
        query = self.tab_query
        self._explained = query, await self.inspector.queries.explain(query)
        self._paint_filter()

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """Report that the chosen task, or the one for which the list was opened, is gone; what was
        to be done with it is dropped."""
        self._then = "", 0.0
        self.say(f"{event.id} is gone; the cursor is on another task")

    def _show_details(self) -> None:
        """The cursor rests: paint what is known of its task, then look up the rest."""
        self._cursor_rest_timer = None
        if not self.is_paintable:
            return
        self._paint_list_frame()
        self._paint_details()
        task = self.rows.view.task_here
        if task is not None and self._frame.details:
            self._run_query("why", partial(self._find_details, task))

    async def _find_details(self, task: Task) -> None:
        session, now = self.session, self._clock()
        lock, alarms = session.readings.lock, session.alerts
        why = await reasons(self.inspector, self.place, lock, task=task, now=now, alerts=alarms)
        attempts = task_attempts(task_history(session.events(), task.id))
        cluster = await self._find_cluster(task) if task.error else None
        parts = await self._read_sizes(task)
        self._findings = TaskFindings(task.id, join_reasons(why), parts, attempts, cluster)
        self._paint_details()

    async def _find_cluster(self, task: Task) -> CheckedCluster | None:
        """The cluster of its error; the clusters of a state are kept for some seconds."""
        now, (state, read, clusters) = self._clock(), self._clusters
        if state is not task.state or not 0 <= now - read < CLUSTERS_SECONDS:
            clusters = await check_clusters(self.session, Query(task.state))
            self._clusters = task.state, now, clusters
        mark = pattern_name(fold_error(task.error))
        return next((each for each in clusters if each.cluster.mark == mark), None)

    async def _read_sizes(self, task: Task) -> tuple[Part, ...]:
        try:
            return tuple(await self.inspector.actions.parts(task))
        except Unavailable:
            raise
        except StoreError:
            return ()  # it has just changed: the list is about to show that

    async def _follow_graph(self) -> None:
        """Read the recorded course while the graph shows more than is in memory."""
        while True:
            if self.is_current and self._frame.graph:
                await self._graph_pane.read(self.session, self._clock())
                self._paint_graph()
            await asyncio.sleep(GRAPH_READ_SECONDS)

    def action_graph_range(self) -> None:
        """Show the next range of the graph."""
        self._graph_pane.next_range()
        self._run_query("graph", self._follow_graph)


class QueueScreen(QueueDetails):
    """The task list of one place, with its tabs, facts, filter and panes."""

    BINDINGS = key_bindings(keys.LIST)

    def on_mount(self) -> None:
        """Start following the index and the place."""
        self.list.focus()
        self.run_worker(self._follow(), name="follow")
        self.run_worker(self._follow_place(), name="watch")
        self._run_query("graph", self._follow_graph)
        self.set_interval(1.0, self._tick)

    async def _follow(self) -> None:
        self._take_change(self._change)
        while True:
            try:
                change = await self.inspector.wait_for_change(self._change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._take_change(change)
            if self.context.repaint_seconds() > 1.0:  # slow terminal: combine changes
                await asyncio.sleep(self.context.repaint_seconds())

    def _take_change(self, change: IndexChanged) -> None:
        first = self.rows.view.query.state is None and bool(self.inspector.states)
        self._change = change
        self._recount = True
        self.rows.is_first_scan = not change.is_complete
        self.list.show_signs(self.list.signs._replace(notice=self._notice()))
        if first and self._aim is not None:
            self._show_target()
        elif first:
            self._query_list(CursorPosition())
        else:
            self.rows.store_changed()
        if self._on_problems:
            self._fetch_problems()
        self.paint()

    async def _follow_place(self) -> None:
        while True:
            if self.is_current and self.session.has_readings:
                self.list.show_signs(self.list.signs._replace(notes=self.session.readings.notes))
                self._lacks_worker = self.session.lacks_worker
                self.paint()
                self.looked = True
            await self.session.wait_for_readings()

    def _tick(self) -> None:
        now = self._clock()
        if self._timed_message[0] and not 0 <= now - self._timed_message[1] < MESSAGE_SECONDS:
            self._timed_message = ("", 0.0)
            self._paint_scope()
        if self._recount and self._marked:
            self._count_hidden()
        self._recount = False
        if self.is_current and not self.context.skips_repaint():
            if self._filter.filter.is_relative and not int(now) % int(AGE_ROUNDING_SECONDS):
                self.rows.store_changed()
            self.list.tick(now)
            self._paint_header()

    def on_descendant_focus(self) -> None:
        """Update the hints: while typing a filter, letters are no keys."""
        self._paint_hints()

    def cancels(self) -> bool:
        """Close the filter line, or True if the console should quit."""
        if self._is_typing:
            self.action_back()
            return False
        again = self._timed_message[0] == QUIT_AGAIN
        if not again:
            self.say(QUIT_AGAIN)
        return again

    def action_pane(self, by: int) -> None:
        """Move the focus to the details, or back to the rows."""
        if self._frame.details and not self._details.has_focus:
            self._details.focus()
        else:
            (self._problem_list if self._on_problems else self.list).focus()
        self.call_after_refresh(self.paint)

    def action_move(self, how: str) -> None:
        """Move the cursor, or scroll the details."""
        if self._details.has_focus:
            self._details.move(how)
        elif self._on_problems:
            self._problem_list.move(how)
        else:
            self.list.move(how)
            self.row_changed()

    def neighbor(self, by: int) -> Target | None:
        """Move to the next task of the list; None at its end, and until its rows are read."""
        view = self.rows.view
        if self._on_problems or task_at(view.window, view.cursor.at + by) is None:
            return None
        self.list.move("down" if by > 0 else "up")
        task = self.rows.view.task_here
        return None if task is None else Target(keys.TASK, id=task.id)

    def row_words(self, target: Target) -> str:
        """The position of a task under the cursor."""
        return self.list.row_words if target.id == self.rows.view.cursor.id else ""

    def on_resize(self) -> None:
        """Choose the layout for this size and repaint."""
        self._lay_out()
        self.call_after_refresh(self.paint)

    def on_picker_cursor_moved(self) -> None:
        """Show the problem under the cursor."""
        self._paint_details()
        self._paint_scope()

    def on_screen_resume(self) -> None:
        """Repaint after another screen was on top."""
        if self.is_paintable:
            self.list.tick(self._clock())
            self.paint()
            self.run_then()


def order_choices(state: State) -> dict[str, tuple[str, str]]:
    """Columns to order a tab by: letter -> name and order in the index."""
    _, _, when = TIME_COLUMNS.get(state, ("", None, ""))
    times = {"w": ({"due": "due", "since": "time in work", "died": "time of death"}, when)}
    named = {key: (names[order], order) for key, (names, order) in times.items() if order}
    return {
        **{"i": ("id", "id"), "k": ("kind", "kind"), "a": ("age", "created")},
        **{"t": ("tries", "attempts"), **named, "e": ("error", "error")},
        **{"d": ("description", "description"), "m": ("destination", "destination")},
    }
