"""What a key on the queue screen acts on: marks, ranges, all matching tasks, or the cursor row."""

from __future__ import annotations

from functools import partial

from engine.index.filter_language import NO_FILTER
from engine.index.schema import Query
from engine.model import State, Task
from engine.operations.execute import Report
from tui.plan import planning
from tui.plan.planning import VerbRequest
from tui.plan.refusals import TASK_JUST_CHANGED
from tui.queue.painter import QueuePainter
from tui.text.figures import format_count
from tui.text.hints import Scope
from tui.widgets.list_view import CursorPosition

CURSOR_JUST_MOVED = "the cursor moved to another task: check it, press the key again"
"""Refusal if another task came under the cursor just before the key was pressed."""

MAX_RANGE_ROWS = 20_000
"""Maximum number of rows in a range; use a filter for more."""


class QueueMarks(QueuePainter):
    """The marks of each tab, and the marks that its filter hides."""

    @property
    def _marked(self) -> set[str]:
        return self._marks.setdefault(self.state, set()) if self.state else set()

    def action_mark(self) -> None:
        """Toggle the mark of the task under the cursor and move down."""
        self._timed_message = ("", 0.0)  # the scope must be seen
        self.rows.pin_cursor()
        task = self.rows.view.task_here
        if task is None or self.state is None or self.rows.is_unseen:
            self.say(CURSOR_JUST_MOVED if self.rows.is_unseen else "no task to mark")
            return
        self._everything = False
        self._marked.symmetric_difference_update({task.id})
        self.list.move("down")
        self._show_marks()
        self.row_changed()

    def action_range(self) -> None:
        """Begin a range; the second key marks it."""
        self._timed_message = ("", 0.0)  # the scope must be seen
        if self._filter.error:
            self.say(self._filter.error)
        elif self.rows.view.anchor is None:
            self._everything = False
            self.list.set_range(True)
            self._paint_scope()
        else:
            self._close_range(self.rows.view.anchor, self.rows.view.cursor)

    def _close_range(self, begun: CursorPosition, cursor: CursorPosition) -> None:
        """Mark the loaded rows of the range; read them from the index if some are not loaded."""
        low, high = sorted((begun.at, cursor.at))
        if high - low >= MAX_RANGE_ROWS:
            self.say(f"range over {MAX_RANGE_ROWS:,} rows: use a filter and *")
            return
        end_ids = {begun.at: begun.id, cursor.at: cursor.id}
        ids = self.rows.view.held_ids(low, high)
        if len(ids) > high - low:
            self._mark_rows(ids, end_ids)
        else:
            far = partial(self._mark_far, low, high, ids | end_ids)
            self._run_query("range", far)

    async def _mark_far(self, low: int, high: int, known_ids: dict[int, str]) -> None:
        state = self.state
        window = await self.inspector.queries.window(self.tab_query, low, high - low + 1)
        if state is self.state:
            rows = enumerate((task.id for task in window.tasks), window.start)
            self._mark_rows(dict(rows), known_ids)

    def _mark_rows(self, rows: dict[int, str], known_ids: dict[int, str]) -> None:
        """Mark rows by position if the seen rows are unchanged; without departed ones."""
        if known_ids.items() <= rows.items():
            self._marked.update(set(rows.values()) - self.rows.view.departed.keys())
        else:
            self.say("rows moved, nothing marked: v starts again")
        self.list.set_range(False)
        self._show_marks()

    def action_mark_all(self) -> None:
        """Make verbs act on all matching tasks; again: on the cursor row."""
        self._timed_message = ("", 0.0)  # the scope must be seen
        if self._filter.error:
            self.say(self._filter.error)
        elif self.state is not None:
            self._everything = not self._everything
            self._show_marks()

    def action_unmark(self) -> None:
        """Clear all marks."""
        self._timed_message = ("", 0.0)  # the scope must be seen
        self._everything = False
        self._marked.clear()
        self._hidden = frozenset()
        self._show_marks()

    def _show_marks(self) -> None:
        marks, everything = frozenset(self._marked), self._everything
        self.list.show_signs(self.list.signs._replace(marks=marks, everything=everything))
        self._paint_scope()

    def _count_hidden(self) -> None:
        if not self._marked:
            self._hidden = frozenset()
            return
        self._run_query("marks", self._check_marks)

    async def _check_marks(self) -> None:
        """Find marks that the filter hides, and drop marks of tasks that are gone."""
        state, query, marks = self.state, self.tab_query, set(self._marked)
        out = marks - await self.inspector.queries.matching_ids(query, marks)
        hidden: frozenset[str] = frozenset()
        if query.filter:
            hidden = await self.inspector.queries.matching_ids(Query(state), out)
        departed = out - hidden
        if state is self.state and query == self.tab_query:
            self._hidden = hidden
            self._marked.difference_update(departed)
            if departed:
                self.say(f"{format_count(len(departed), 'marked task')} gone, marks removed")
            self._show_marks()

    def row_changed(self) -> None:
        """Update everything that depends on the task under the cursor."""
        raise NotImplementedError


class QueueScope(QueueMarks):
    """What a verb acts on now, as it is on screen."""

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """The scope shown on screen when the key was pressed."""
        self.rows.pin_cursor()
        if refusal := self.verb_refusal_here(verb):
            is_off = self._on_problems or self._filter.error
            return refusal + ("" if is_off else self.other_verbs(self.state, self.selected_task()))
        if refusal := self._nothing_in_scope():
            return refusal
        words = partial(_describe_scope, self._scope())
        verb = planning.verb_in_state(verb, self.state, self.inspector.edges)
        return VerbRequest(verb, self._scope_ids(), self._plan_query(), words)

    def selected_task(self) -> Task | None:
        """The task under the cursor, if verbs act on it alone."""
        return None if self._everything or self._marked else self.rows.view.task_here

    @property
    def selected_state(self) -> State | None:
        """The state of the open tab."""
        return self.state

    def _nothing_in_scope(self) -> str:
        if self.rows.view.anchor is not None:
            return "range open: v marks it, Esc cancels"
        if self._everything:
            return ""
        if self._marked:
            return "" if self._marked - self._hidden else "the filter hides all marks"
        if self.rows.view.is_gone:
            return "the task under the cursor is gone"
        if self.rows.is_unseen:
            return CURSOR_JUST_MOVED
        if self.rows.is_altered:
            return TASK_JUST_CHANGED
        return "" if self.rows.view.task_here is not None else "no task here"

    def _scope_ids(self) -> set[str] | None:
        """Ids of the tasks to act on; None for all that match."""
        if self._everything:
            return None
        if self._marked:
            return self._marked - self._hidden
        task = self.rows.view.task_here
        return {task.id} if task is not None else set()

    def _plan_query(self) -> Query:
        """Query for a plan.

        Marked tasks must match the filter when the plan is made. The task under the cursor need
        not: the operator has seen it.
        """
        query = self.tab_query
        return query if self._everything or self._marked else query._replace(filter=NO_FILTER)

    def plan_applied(self, report: Report) -> None:
        """Remove the marks of processed tasks."""
        self._everything = False
        self._marked.difference_update(report.done, report.gone)
        self._hidden -= set(report.done)
        self._show_marks()
        super().plan_applied(report)

    def _scope(self) -> Scope:
        """What a verb would act on, for the line above the hints."""
        if self._on_problems:
            return Scope()
        begun = self.rows.view.anchor
        return Scope(
            self.rows.view.cursor.id,
            self.rows.view.is_gone,
            len(self._marked - self._hidden),
            hidden=len(self._hidden & self._marked),
            acts_on_all=self._everything,
            matching=self.rows.view.matching_words,
            ranged=abs(self.rows.view.cursor.at - begun.at) + 1 if begun else 0,
            filter_error=self._filter.error,
        )


def _describe_scope(scope: Scope, planned: int) -> str:
    if scope.acts_on_all:
        return f"all {planned:,} that match"
    if scope.marked:
        out = max(0, scope.hidden + scope.marked - planned)
        hidden = f", {out:,} excluded: hidden or gone" if out else ""
        return f"{planned:,} marked{hidden}"
    return f"row {scope.row}"
