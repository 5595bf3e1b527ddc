"""The parts of the queue screen, without Textual: they do not know each other.

What a key acts on is a value made from them when it is asked for."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from enum import Flag, auto
from functools import partial
from typing import Protocol

from engine.index import filter_language
from engine.index.filter_language import NO_FILTER, Filter
from engine.index.schema import Query
from engine.live.inspector import IndexChanged
from engine.model import Problem, State, Task
from engine.operations.execute import Report
from engine.operations.trash import trashed_at
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.plan import planning, refusals
from tui.plan.planning import VerbRequest
from tui.queue.filter_text import FilterText, SavedFilters
from tui.queue.tabs import Tabs
from tui.queue.task_details import TaskLookup, describe_departure, purged_by
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import ScreenActions
from tui.screens.message import Message
from tui.screens.target import Target
from tui.session.place_session import PlaceSession, without_time
from tui.text.hints import Scope
from tui.text.task_list import TrashFacts
from tui.widgets.list_view import CursorPosition
from tui.widgets.task_rows import TaskRows


class Marks:
    """What verbs act on instead of the task under the cursor."""

    def __init__(self) -> None:
        self._ids: dict[State, set[str]] = {}
        self.hidden: frozenset[str] = frozenset()
        """Marked tasks that the filter hides; verbs do not act on them."""
        self.has_all = False
        """Verbs act on all matching tasks."""

    def of(self, state: State | None) -> frozenset[str]:
        """Ids of the marked tasks of a state."""
        return frozenset(self._ids.get(state, ())) if state else frozenset()

    def visible(self, state: State | None) -> frozenset[str]:
        """Those that the filter does not hide."""
        return self.of(state) - self.hidden

    def toggle(self, state: State, id: str) -> None:
        """Mark a task, or take its mark away."""
        self.has_all = False
        self._ids.setdefault(state, set()).symmetric_difference_update({id})

    def add(self, state: State, ids: Collection[str]) -> None:
        """Mark tasks."""
        self._ids.setdefault(state, set()).update(ids)

    def remove(self, state: State | None, ids: Collection[str]) -> None:
        """Take the marks of these tasks away."""
        if state is not None:
            self._ids.setdefault(state, set()).difference_update(ids)
        self.hidden -= frozenset(ids)

    def clear(self, state: State | None) -> None:
        """Take all marks of a state away."""
        self.has_all = False
        self.remove(state, self.of(state))
        self.hidden = frozenset()


CURSOR_JUST_MOVED = "the cursor moved to another task: check it, press the key again"
"""Refusal if another task came under the cursor just before the key was pressed."""

THEN_SECONDS = 2.0
"""Seconds within which the rows must be read for an action of the palette to run."""


class Change(Flag):
    """The parts that an action changed, in the order of painting; no others are painted again."""

    NOTHING = 0
    FILTER = auto()
    """The text of the filter line, or whether it is open."""
    FOCUS = auto()
    """What takes the keys."""
    ALL = auto()
    """Another tab: every pane."""
    HEADER = auto()
    TABS = auto()
    """The counts of the states."""
    ROWS = auto()
    """The signs at the rows, or the text in their place."""
    CURSOR = auto()
    """The task under the cursor."""
    TITLE = auto()
    """The title of the rows."""
    DETAILS = auto()
    """What was looked up about that task."""
    GRAPH = auto()
    """What the graph has read."""
    SCOPE = auto()
    """The message, the next step, what a key acts on, and the keys."""
    HINTS = auto()
    """The keys alone."""


class QueueActions(ScreenActions[Change], Protocol):
    """What only the screen can do for its parts."""

    def move(self, how: str) -> Change:
        """Move the cursor, or scroll the details if they have the focus."""

    def switch_pane(self) -> Change:
        """Move the focus to the details, or back to the rows."""

    def next_graph_range(self) -> Change:
        """Show the next range of the graph."""

    def plan(self, asked: VerbRequest, task: Task | None) -> None:
        """Open a plan; `task` is the one that is edited."""


class PendingTarget:
    """What the screen was opened for: a tab, a filter or a task, and an action there."""

    def __init__(self) -> None:
        self._target: Target | None = None
        self._action = ("", 0.0)

    def set(self, target: Target, now: float) -> None:
        """Keep what is to be shown, and the action to run once its rows are read."""
        self._action = target.action, now
        if (target.state, target.filter) != (None, None) or target.id or target.problems:
            self._target = target

    def take_target(self) -> Target | None:
        """What is to be shown, once."""
        target, self._target = self._target, None
        return target

    def take_action(self, now: float) -> str:
        """The action to run, once; "" if none, or if it was asked for too long ago."""
        (action, asked), self._action = self._action, ("", 0.0)
        return action if 0 <= now - asked <= THEN_SECONDS else ""


COUNT_COST_FACTOR = 10.0
"""The next count of all matches waits this many times as long as the last one took."""


class QueueParts:
    """All that the queue screen shows and its keys act on."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: QueueActions
    ) -> None:
        self.session, self.place, self.inspector = session, session.place, session.inspector
        self.context, self.clock, self.screen = context, context.clock, screen
        self.change = without_time(self.inspector.latest)
        """The counts, and how far the first scan is."""
        self.tabs = Tabs(lambda: self.inspector.states)
        self.saved = SavedFilters(lambda: screen.run("saved filters", self._read_saved))
        self.filter = FilterText(self._parse_filter)
        self.rows = TaskRows(self.inspector.queries, self.clock, self._explain_departure)
        self.marks = Marks()
        self.message = Message(self.clock)
        self.pending = PendingTarget()
        self.lookup = TaskLookup(session)
        self.problems: tuple[Problem, ...] = ()
        self.problem_key = ""
        """The problem under the cursor."""
        self.explained: tuple[Query, str] = (Query(), "")
        """A query without a match, and which part of its filter excludes all tasks."""
        self.shown: frozenset[str] = frozenset()
        """See `RowSigns.shown`."""
        self.lacks_worker = False
        self.next_step: tuple[State | None, tuple[str, str]] = (None, ("", ""))
        """The tab and its next step: kept until the rows of another tab are read."""
        self._must_recount = False
        self.matches: tuple[Filter, Mapping[State, int]] = (NO_FILTER, {})
        """A filter, and how many tasks of each state match it."""
        self._is_counting, self._is_count_old = False, False
        """The matches are being counted; the index has changed since the last count began."""
        self._next_count = 0.0
        """Earliest time of the next count, on the monotonic clock."""

    # What is shown

    @property
    def state(self) -> State | None:
        """The state of the open tab; None on the problems and before the store is open."""
        return self.tabs.state

    @property
    def query(self) -> Query:
        """Query of this tab: state, filter, order."""
        return Query(self.state, self.filter.filter, *self.tabs.order)

    @property
    def selected_task(self) -> Task | None:
        """The task under the cursor, if verbs act on it alone."""
        is_other = self.marks.has_all or self.marks.of(self.state)
        return None if is_other else self.rows.view.task_here

    @property
    def problem(self) -> Problem | None:
        """The problem under the cursor."""
        return next((each for each in self.problems if each.where == self.problem_key), None)

    @property
    def problem_controls(self) -> list[str]:
        """Controls of the queue that change the problem under the cursor: its text names them."""
        words = {*re.findall(r"\w+", self.problem.what)} if self.problem else set()
        controls = self.inspector.controls.items()
        return [name for name, one in controls if not one.refusal and {*name.split("-")} <= words]

    @property
    def trash_facts(self) -> TrashFacts:
        """Who purged a task, and when it expires."""
        operations, trash = self.session.history, self.place.trash

        def expires(task: Task) -> float | None:
            since = trashed_at(task)
            return None if since is None or trash is None else since + 3600 * trash.hours

        return TrashFacts(lambda task: purged_by(trashed_at(task), operations.operations), expires)

    def _explain_departure(self, before: Task, after: Task | None) -> str:
        operations = self.session.history.operations
        states, events = self.inspector.states, self.session.events()
        return describe_departure(before, after, states, operations, self.clock(), events=events)

    def _parse_filter(self, text: str) -> Filter:
        known = self.inspector
        return filter_language.parse_filter(
            text, known.states, self.clock(), known.words, self.saved.find
        )

    async def _read_saved(self) -> Change:
        await self.saved.read()
        self.filter.take(self.filter.words)
        return Change.FILTER | self.filter_changed()

    # What changes

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message for some seconds."""
        self.message.say(text, style)
        return Change.SCOPE

    def show_query(self, position: CursorPosition | None = None) -> Change:
        """Read the rows of this tab; without `position` the cursor stays on its task."""
        self.rows.show_query(self.query, position)
        self.count_hidden()
        return Change.ROWS | Change.SCOPE

    def filter_changed(self) -> Change:
        """Another filter is in effect."""
        if self.state is None:
            return Change.SCOPE
        self.marks.has_all = False
        return self.show_query()

    def to_tab(self, number: int, position: CursorPosition | None = None) -> Change:
        """Open a tab; without `position`, the cursor returns to its last position there."""
        view = self.rows.view
        if view.query.state is None:
            before = self.tabs.open(number, CursorPosition())
        elif number == self.tabs.number and position is None:
            return Change.NOTHING
        else:
            before = self.tabs.open(number, view.saved_position)
        self.marks.has_all = self.filter.takes_keys = False
        self.rows.set_range(False)
        if self.tabs.on_problems:
            self.screen.run("problems", self.read_problems)
        else:
            self.show_query(position or before)
        return Change.FOCUS | Change.ALL

    def show_target(self) -> Change:
        """Show what the screen was opened for, once the states are known."""
        if not self.tabs.all or (target := self.pending.take_target()) is None:
            return Change.NOTHING
        change = Change.FILTER
        if target.filter is not None:
            self.saved.forget()
            self.filter.replace(safe_line(target.filter))  # it is painted
            self.filter.is_open = bool(target.filter)
        state = None if target.problems else target.state or self.state or State.PENDING
        if state not in self.tabs.all:
            change |= self.say(f"{self.place.name} has no state {state}")
            state = self.state
        is_aimed = bool(target.id) or target.filter is not None
        position = CursorPosition(id=target.id) if is_aimed else None
        return change | self.to_tab(self.tabs.all.index(state), position)

    def store_changed(self, change: IndexChanged) -> Change:
        """The index has changed: read again."""
        is_first = self.rows.view.query.state is None and bool(self.inspector.states)
        self.change, self._must_recount, self._is_count_old = without_time(change), True, True
        self.rows.is_first_scan = not change.is_complete
        shown = self.show_target() if is_first else Change.NOTHING
        if is_first and not shown:
            self.show_query(CursorPosition())
        elif not is_first:
            self.rows.store_changed()
        if self.tabs.on_problems:
            self.screen.run("problems", self.read_problems)
        return shown | Change.ALL

    async def read_problems(self) -> Change:
        """Read the problems again."""
        self.problems = await self.inspector.queries.problems()
        return Change.ALL

    async def explain_filter(self) -> Change:
        """Find out which part of the filter excludes all tasks, and what it does not search."""
        query = self.query
        self.explained = query, await self.inspector.queries.explain(query)
        return Change.FILTER

    async def look_up(self, task: Task) -> Change:
        """Find out what the details show about a task."""
        await self.lookup.look_up(task)
        return Change.DETAILS

    def recount(self) -> None:
        """Once a second: check the marks and count the matches, if the index has changed."""
        if self._must_recount and self.marks.of(self.state):
            self.count_hidden()
        is_new = self.matches[0] != self.filter.filter
        is_due = self._is_count_old and time.monotonic() >= self._next_count
        if self.filter.filter and (is_new or is_due) and not self._is_counting:
            self._is_counting, self._is_count_old = True, False
            self.screen.run("matches", self._count_matches)
        self._must_recount = False

    async def _count_matches(self) -> Change:
        """Count the tasks of each state that match the filter; after a costly count the next one
        waits longer."""
        asked, began, counts = self.filter.filter, time.monotonic(), {}
        try:
            for state in self.inspector.states:
                counts[state] = await self.inspector.queries.count(Query(state, asked))
        finally:  # also if it cannot be read: it is not asked again at once
            self._is_counting, self.matches = False, (asked, counts)
            self._next_count = time.monotonic() + COUNT_COST_FACTOR * (time.monotonic() - began)
        return Change.TABS

    def count_hidden(self) -> None:
        """Check the marks in the background."""
        if self.marks.of(self.state):
            self.screen.run("marks", self.check_marks)
        else:
            self.marks.hidden = frozenset()

    async def check_marks(self) -> Change:
        """Find marks that the filter hides, and drop marks of tasks that are gone."""
        state, query, ids = self.state, self.query, self.marks.of(self.state)
        out = ids - await self.inspector.queries.matching_ids(query, ids)
        hidden: frozenset[str] = frozenset()
        if query.filter:
            hidden = await self.inspector.queries.matching_ids(Query(state), out)
        if state is not self.state or query != self.query:
            return Change.NOTHING
        self.marks.hidden = hidden
        if departed := out - hidden:
            self.marks.remove(state, departed)
            self.say(f"{format_count(len(departed), 'marked task')} gone, marks removed")
        return Change.ROWS | Change.SCOPE

    def plan_applied(self, report: Report) -> Change:
        """Take the marks of processed tasks away, and say the result."""
        self.marks.has_all = False
        self.marks.remove(self.state, [*report.done, *report.gone])
        return Change.ROWS | self.say(refusals.describe_report(report))

    # What a key acts on

    @property
    def scope(self) -> Scope:
        """What a verb would act on, for the line above the hints."""
        if self.tabs.on_problems:
            return Scope()
        view, marked = self.rows.view, self.marks.of(self.state)
        return Scope(
            view.cursor.id,
            view.is_gone,
            len(marked - self.marks.hidden),
            hidden=len(self.marks.hidden & marked),
            acts_on_all=self.marks.has_all,
            matching=view.matching_words,
            ranged=abs(view.cursor.at - view.anchor.at) + 1 if view.anchor else 0,
            filter_error=self.filter.error,
        )

    def request(self, verb: str) -> VerbRequest:
        """A verb for what the scope line shows. Marked tasks must match the filter when the plan is
        made. The task under the cursor need not: the operator has seen it."""
        ids, query = None, self.query
        if not self.marks.has_all:
            ids = self.marks.visible(self.state)
            if (task := self.selected_task) is not None:
                ids, query = frozenset({task.id}), query._replace(filter=NO_FILTER)
        verb = planning.verb_in_state(verb, self.state, self.inspector.edges)
        return VerbRequest(verb, ids, query, partial(describe_scope, self.scope))

    def scope_refusal(self) -> str:
        """Why there is nothing to act on; "" if there is."""
        view = self.rows.view
        if view.anchor is not None:
            return "range open: v marks it, Esc cancels"
        if self.marks.has_all:
            return ""
        if self.marks.of(self.state):
            return "" if self.marks.visible(self.state) else "the filter hides all marks"
        if view.is_gone:
            return "the task under the cursor is gone"
        if self.rows.is_unseen:
            return CURSOR_JUST_MOVED
        if self.rows.is_altered:
            return refusals.TASK_JUST_CHANGED
        return "" if view.task_here is not None else "no task here"

    @property
    def verb_state(self) -> State | None:
        return self.state

    @property
    def verb_amount(self) -> tuple[int, bool]:
        if self.marks.has_all:
            return self.rows.view.total, False
        return max(1, len(self.marks.visible(self.state))), True

    @property
    def is_empty(self) -> bool:
        """True if the list has no task, and none that is marked; False if not known yet."""
        is_read = self.rows.view.loaded and self.change.is_complete
        return is_read and not self.rows.view.matching and not self.marks.visible(self.state)

    def verb_refusal(self, verb: str) -> str:
        if self.tabs.on_problems:
            if not self.context.arming.read_only and self.problem_controls:
                return "problems are changed by controls: C lists them"
            return "problems cannot be changed here: Enter shows them"
        refused = self.filter.error or refusals.verb_refusal(
            self.session, self.context, verb, self.state, self.selected_task
        )
        return refused or refusals.NO_TASK * self.is_empty


def describe_scope(scope: Scope, planned: int) -> str:
    """What a plan is for, with the number of its tasks."""
    if scope.acts_on_all:
        return f"all {planned:,} that match"
    if scope.marked:
        out = max(0, scope.hidden + scope.marked - planned)
        hidden = f", {out:,} excluded: hidden or gone" if out else ""
        return f"{planned:,} marked{hidden}"
    return f"row {scope.row}"
