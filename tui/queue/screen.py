"""The queue screen: tasks by state, lock, metrics and log of one place.

It shows its parts (`tui.queue.parts`), asks the index for them, and passes keys to their rows
(`tui.queue.keys`); an action returns what it changed, and no more is painted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from engine.index.filter_language import RECIPIENTS_FIELDS
from engine.live.queries import AGE_ROUNDING_SECONDS
from engine.model import Task, own_word, state_words
from engine.operations.execute import Report
from engine.store import Unavailable
from tui.plan.open_plan import open_plan
from tui.plan.planning import VerbRequest
from tui.queue import actions
from tui.queue.filter_line import FilterLine
from tui.queue.keys import ROWS
from tui.queue.parts import Change, QueueParts
from tui.queue.tabs import order_choices
from tui.queue.widgets import QueueWidgets
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GRAPH_READ_SECONDS
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.screens.palette_commands import PaletteCommand
from tui.screens.target import Target
from tui.session.place_session import PlaceSession, without_time
from tui.text import keys, task_row
from tui.widgets.background import run_in_background
from tui.widgets.list_view import task_at
from tui.widgets.task_list import TaskList

if TYPE_CHECKING:
    from tui.text.export import ExportTable, RowSink

CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before its task is looked up."""


class QueueScreen(KeyedScreen):
    """The task list of one place, with its tabs, facts, filter and panes."""

    KIND = keys.LIST
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: QueueParts

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.context = context
        self.parts = QueueParts(session, context, self)
        self.is_looked_up = False
        """True if lock, metrics and log are painted."""
        self.widgets = QueueWidgets(self, self.parts)
        self._cursor_rest_timer: asyncio.TimerHandle | None = None
        """Runs when the cursor has rested; None if it rests."""

    def compose(self) -> ComposeResult:
        yield from self.widgets.compose()

    def on_mount(self) -> None:
        self.widgets.list.focus()
        run_in_background(self, self._follow, name="follow")
        run_in_background(self, self._follow_place, name="watch")
        self.run("graph", self._follow_graph)

    async def _follow(self) -> None:
        inspector, change = self.session.inspector, self.parts.change
        while True:
            self.show_change(self.parts.store_changed(change))
            if self.context.repaint_seconds() > 1.0:  # slow terminal: combine changes
                await asyncio.sleep(self.context.repaint_seconds())
            try:
                change = await inspector.wait_for_change(change.generation)
            except Unavailable:
                return  # closed: the console is being left

    async def _follow_place(self) -> None:
        while True:
            if self.is_current and self.session.has_readings:
                self.parts.lacks_worker = self.session.lacks_worker
                self.widgets.paint()
                self.is_looked_up = True
                has_rested = self._cursor_rest_timer is None
                if has_rested and self.parts.lookup.is_old(self.parts.rows.view.task_here):
                    self._look_up()
            await self.session.wait_for_readings()

    async def _follow_graph(self) -> Change:
        """Read the recorded course while the graph shows more than is in memory."""
        while True:
            if self.is_current and self.widgets.frame.graph:
                await self.widgets.graph_pane.read(self.session, self.parts.clock())
                self.show_change(Change.GRAPH)
            await asyncio.sleep(GRAPH_READ_SECONDS)

    def tick(self) -> None:
        now, parts = self.parts.clock(), self.parts
        if parts.message.ends():
            self.show_change(Change.SCOPE)
        parts.recount()
        # What hangs does not report that it does.
        latest = without_time(parts.inspector.latest)
        if parts.change.unavailable != latest.unavailable:
            parts.change = latest
            self.show_change(Change.ALL)
        if self.is_current and not self.context.skips_repaint():
            if parts.filter.filter.is_relative and not int(now) % int(AGE_ROUNDING_SECONDS):
                parts.rows.store_changed()
            self.widgets.list.tick(now)
            self.show_change(Change.HEADER | Change.DETAILS)

    def action_move(self, how: str) -> None:
        self.show_change(self.move(how))

    def action_sort(self, order: str, reverses: bool = True) -> None:
        self.show_change(actions.sort(self.parts, order, reverses=reverses))

    def action_save_filter(self, name: str = "") -> None:
        """Save the filter of this list under a name, for `@name`."""
        self.show_change(actions.save(self.parts, name))

    def cancels(self) -> bool:
        """Close the filter line, or True if the console should quit."""
        if self.widgets.is_typing:
            self.show_change(actions.back(self.parts))
            return False
        return self.quits()

    def commands(self) -> tuple[PaletteCommand, ...]:
        choices = order_choices(self.parts.state) if self.parts.state else {}
        return tuple(
            PaletteCommand(f"sort {name}", "order by this column", "o", action=f"sort('{order}')")
            for name, order in choices.values()
        )

    def copies(self) -> tuple[Copy, ...]:
        from tui.task.screen import task_copies

        parts, known = self.parts, self.session.inspector
        task, state = parts.rows.view.task_here, parts.state
        if task is None or state is None:
            return ()
        word = own_word(task, known.states, known.words)
        words = ",".join(state_words(state, known.states, known.words))
        command = [*parts.place.command, "queue", "list", "--state", words]
        command += ["--filter", parts.filter.filter.text] if parts.filter.filter else []
        return task_copies(task, word, command, parts.clock())

    def export_table(self) -> ExportTable | None:
        """Export: all tasks of the tab, as of now."""
        query, known = self.parts.query, self.session.inspector
        if query.state is None:
            return None
        from tui.text.export import ExportTable

        states, words = known.states, known.words

        async def hand(take: RowSink) -> int:
            def give(some: Sequence[Task], done: int, total: int) -> bool:
                values = [task_row.task_row(task, own_word(task, states, words)) for task in some]
                return take(values, done, total)

            return await known.queries.export(query, give)

        return ExportTable(f"{states[query.state]}", task_row.ROW_FIELDS, hand)

    # What the parts ask for (`QueueActions`)

    def move(self, how: str) -> Change:
        if self.widgets.details.has_focus:
            self.widgets.details.move(how)
        elif self.parts.tabs.on_problems:
            self.widgets.problem_list.move(how)
        else:
            self.widgets.list.move(how)
            return Change.CURSOR
        return Change.NOTHING

    def switch_pane(self) -> Change:
        if self.widgets.frame.details and not self.widgets.details.has_focus:
            self.widgets.details.focus()
        else:
            self.widgets.rows_pane.focus()
        self.call_after_refresh(self.paint)
        return Change.NOTHING

    def next_graph_range(self) -> Change:
        self.widgets.graph_pane.next_range()
        self.run("graph", self._follow_graph)
        return Change.NOTHING

    def plan(self, asked: VerbRequest, task: Task | None) -> None:
        open_plan(self, self.session, self.context, asked, task=task, applied=self._plan_applied)

    def _plan_applied(self, report: Report) -> None:
        self.show_change(self.parts.plan_applied(report))

    def aim(self, target: Target) -> None:
        """Show the target once the states are known; run its action once the rows are read."""
        self.parts.pending.set(target, self.parts.clock())
        if self.is_paintable:
            self.show_change(self.parts.show_target())

    def _run_action(self) -> None:
        is_read = self.is_current and self.parts.rows.view.loaded
        if is_read and (action := self.parts.pending.take_action(self.parts.clock())):
            self.call_later(self.run_action, action)

    def neighbor(self, by: int) -> Target | None:
        """Move to the next task of the list; None at its end, and until its rows are read."""
        view = self.parts.rows.view
        if self.parts.tabs.on_problems or task_at(view.window, view.cursor.at + by) is None:
            return None
        self.widgets.list.move("down" if by > 0 else "up")
        task = self.parts.rows.view.task_here
        return None if task is None else Target(keys.TASK, id=task.id)

    def row_words(self, target: Target) -> str:
        is_here = target.id == self.parts.rows.view.cursor.id
        return self.widgets.list.row_words if is_here else ""

    def on_descendant_focus(self) -> None:
        """Update the hints: while typing a filter, letters are no keys."""
        self.show_change(Change.HINTS)

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Apply the filter while it is typed; one with an error refuses actions."""
        changed = self.parts.filter_changed() if event.is_filter else Change.SCOPE
        self.show_change(Change.FILTER | changed)

    def on_filter_line_kept(self) -> None:
        self.show_change(actions.keep_filter(self.parts))

    def on_task_list_row_changed(self) -> None:
        self.show_change(Change.FILTER | Change.CURSOR | Change.TITLE)

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """The chosen task is gone, or the one that was asked for: its action is dropped."""
        self.parts.pending.take_action(0.0)
        self.say(f"{event.id} is gone; the cursor is on another task")

    def on_picker_cursor_moved(self) -> None:
        self.parts.problem_key = self.widgets.problem_list.key
        self.show_change(Change.DETAILS | Change.SCOPE)

    def on_resize(self) -> None:
        self.widgets.lay_out()

    def on_screen_resume(self) -> None:
        if self.is_paintable:
            self.widgets.list.tick(self.parts.clock())
            self._run_action()

    def paint(self) -> None:
        if self.is_paintable:
            self.widgets.paint()

    def show_change(self, change: Change) -> None:
        if self.is_paintable:
            self.widgets.show(change)
            if Change.CURSOR in change:
                self._follow_cursor()

    def _follow_cursor(self) -> None:
        """Look up the task under the cursor once that rests, and what a filter cannot find."""
        parts = self.parts
        filter, explains = parts.filter.filter, not parts.rows.view.matching
        waiting = parts.session.backlog
        if waiting is not None and waiting.has_mail:
            explains |= any(map(filter.mentions_field, RECIPIENTS_FIELDS))
        if filter and explains and parts.explained[0] != parts.query:
            self.run("filter", parts.explain_filter)
        self.workers.cancel_group(self, "why")
        if self._cursor_rest_timer is not None:
            self._cursor_rest_timer.cancel()
        loop = asyncio.get_running_loop()
        self._cursor_rest_timer = loop.call_later(CURSOR_REST_SECONDS, self._look_up)
        self._run_action()

    def _look_up(self) -> None:
        """The cursor rests: paint what is known of its task, then look up the rest."""
        self._cursor_rest_timer = None
        self.show_change(Change.TITLE | Change.DETAILS)
        if not self.is_paintable:
            return
        if (task := self.parts.rows.view.task_here) is not None and self.widgets.frame.details:
            self.run("why", partial(self.parts.look_up, task))
