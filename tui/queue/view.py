"""The parts of the queue screen, its tabs, and the query of the tab that is shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping

from textual.app import ComposeResult

from engine.config.saved_filters import SavedFilterError, find_filter, read_filters
from engine.index import filter_language
from engine.index.filter_language import Filter
from engine.index.schema import Query
from engine.model import Problem, State, Task
from engine.operations.trash import trashed_at
from engine.store import Unavailable
from engine.text.safe import safe_line, state_name
from tui.plan.acting_screen import PlanningScreen
from tui.queue.filter_line import FilterLine
from tui.queue.lock_line import LockLine
from tui.queue.next_step import describe_departure, purged_by
from tui.queue.panes import LogPane, QueueFrame
from tui.queue.task_details import TaskFindings
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster
from tui.terminal.render_cache import Across, Down
from tui.text import keys
from tui.text.figures import format_count
from tui.text.lines import BLANK_LINE, Line, fold_text
from tui.text.task_list import TrashFacts
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.list_view import CursorPosition
from tui.widgets.picker import Picker
from tui.widgets.task_list import TaskList


class QueueView(PlanningScreen):
    """Base of the queue screen: its widgets and what they show."""

    KIND = keys.LIST

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.session, self.place = session, session.place
        self.context, self._arming, self._clock = context, context.arming, context.clock
        self.inspector, self.worker = session.inspector, session.worker
        self._aim: Target | None = None
        self._change = self.inspector.latest
        self._tab = 0
        self._spots: dict[int, CursorPosition] = {}
        self._marks: dict[State, set[str]] = {}
        self._orders: dict[State, tuple[str, bool]] = {}
        self._hidden: frozenset[str] = frozenset()
        self._everything = False
        self._saved: Mapping[str, str] | SavedFilterError | None = None
        """The saved filters by name, or why there are none; None until a filter mentions one."""
        self._timed_message: tuple[str, float] = ("", 0.0)
        self._next: tuple[State | None, tuple[str, str]] = (None, ("", ""))
        self._findings = TaskFindings()
        self._clusters: tuple[State | None, float, tuple[CheckedCluster, ...]] = (None, 0.0, ())
        self._lacks_worker = False
        self._recount = False
        self._problems: tuple[Problem, ...] = ()
        self._frame = QueueFrame()
        self._graph_pane = GraphPane()
        self._explained: tuple[Query, str] = (Query(), "")
        self._hinted: tuple[tuple[object, ...], list[Line]] = ((), [])
        self.looked = False
        """True if lock, metrics and log are painted."""

    def compose(self) -> ComposeResult:
        """Header, tabs, facts, filter, the panes, next step, hints."""
        session = self.session
        self.list = TaskList(
            self.inspector.queries,
            self._clock,
            id="tasks",
            explain=self._explain_departure,
            max_attempts=self.place.max_attempts,
            trash=TrashFacts(self._purged_by, self._expires),
        )
        self.rows = self.list.rows
        self._top, self._tab_line = TopLine(id="top-line"), Lines(id="tabs")
        self._lock_line = LockLine(session.place, self._arming.read_only)
        self._filter = FilterLine(self._parsed_filter, id="filter")
        self._problem_list, self._log = Picker(id="problems"), LogPane(id="log")
        self._details, self._graph = LongText(id="details"), Lines(id="graph")
        self._states, self._warning = Lines(id="states"), Lines(id="figures")
        self._scope_line, self._hints = Lines(id="scope"), Lines(id="hints")
        yield self._top
        yield self._tab_line
        yield self._lock_line
        yield self._filter
        with Across(id="middle") as self._middle:
            with Down(id="main"):
                yield self.list
                yield self._problem_list
                yield self._log
            with Down(id="side") as self._side:
                yield self._details
                yield self._graph
                yield self._states
        yield self._warning
        yield self._scope_line
        yield self._hints
        lists = (self.list, self._problem_list, self._log)
        for pane in (*lists, self._details, self._graph, self._states):
            pane.add_class("pane")

    def _explain_departure(self, before: Task, after: Task | None) -> str:
        operations = self.session.history.operations
        return describe_departure(before, after, self.inspector.states, operations, self._clock())

    def _purged_by(self, task: Task) -> str:
        return purged_by(trashed_at(task), self.session.history.operations)

    def _expires(self, task: Task) -> float | None:
        since, trash = trashed_at(task), self.place.trash
        return None if since is None or trash is None else since + 3600 * trash.hours

    def _parsed_filter(self, text: str) -> Filter:
        known = self.inspector
        filter_context = (known.states, self._clock(), known.words)
        return filter_language.parse_filter(text, *filter_context, self._find_saved)

    def _find_saved(self, name: str) -> str:
        """The text of a saved filter, from what was read since the filter line was opened."""
        if isinstance(self._saved, SavedFilterError):
            raise self._saved
        if self._saved is not None:
            return find_filter(self._saved, name)

        async def read() -> None:
            try:
                self._saved = await asyncio.to_thread(read_filters, os.environ)
            except SavedFilterError as error:
                self._saved = error
            self._filter.set_text(self._filter.words)
            self._filter.post_message(FilterLine.Changed(self._filter.filter))

        self._run_query("saved filters", read)
        raise SavedFilterError("reading the saved filters ...")

    # Tabs

    @property
    def _tabs(self) -> list[State | None]:
        """The states, and None for the problems tab after them."""
        return [*self.inspector.states, None] if self.inspector.states else []

    @property
    def state(self) -> State | None:
        """The state of the current tab; None on the problems tab and before the store is open."""
        return self._tabs[self._tab] if self._tabs else None

    @property
    def _on_problems(self) -> bool:
        return bool(self._tabs) and self.state is None

    @property
    def _order(self) -> tuple[str, bool]:
        """Order of this tab: column, and True for descending."""
        return self._orders.get(self.state, ("id", False)) if self.state else ("id", False)

    @property
    def tab_query(self) -> Query:
        """Query of this tab: state, filter, order."""
        return Query(self.state, self._filter.filter, *self._order)

    # Questions to the index

    def _run_query(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Run a query in the background; it cancels an unfinished one of the same name."""

        async def answer() -> None:
            try:
                await ask()
            except Unavailable as error:  # for example while the console quits
                if self.is_paintable:
                    self.say(str(error))

        # A function, not its coroutine: one that is cancelled before it starts is never awaited.
        self.run_worker(answer, name=what, exclusive=True, group=what)  # type: ignore[arg-type]

    # Text in place of the rows

    def _notice(self) -> tuple[Line, ...]:
        width = max(20, self.list.size.width - 6)
        if self._change.unavailable:
            why = self._change.unavailable.removeprefix(f"{self.place.name}: ")
            return (
                BLANK_LINE,
                ((f"   {safe_line(self.place.name)} is unavailable:", "strong"),),
                *(((f"   {p}", "error"),) for p in fold_text(safe_line(why), width)),
                BLANK_LINE,
                (("   Retried every second; the list returns automatically.", "muted"),),
            )
        if not self.inspector.states:
            return (BLANK_LINE, (("   opening ...", "muted"),))
        if self.state is not None and self.rows.view.loaded and not self.rows.view.total:
            return (BLANK_LINE, ((f"   {self._empty_text()}", "muted"),))
        return ()

    def _empty_text(self) -> str:
        where = state_name(self.inspector.states[self.state]) if self.state else ""
        amount = self._change.counts.get(self.state, 0) if self.state else 0
        if not self._change.is_complete:
            known = f"{amount:,} {where}" if amount else f"no {where} tasks yet"
            return f"{known}: first scan running"
        if self._filter.filter and amount:
            tasks = format_count(amount, "task")
            return f"0 of {tasks} match in {where}: Esc clears the filter"
        return f"no tasks in {where}"
