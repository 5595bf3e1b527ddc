"""The queue screen: tasks by state, lock, metrics and log of one place."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from textual import work
from textual.app import ComposeResult

from engine.index import filter_language
from engine.index.filter_language import NO_FILTER, Filter
from engine.index.schema import Query
from engine.live.inspector import IndexChanged
from engine.live.queries import AGE_ROUNDING_SECONDS
from engine.model import Problem, State, Task, own_word, state_words
from engine.monitor.metrics_check import OwnCounts
from engine.operations import plans
from engine.operations.execute import Report
from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.format import keys, present, task_row
from tui.format.export import ExportTable, RowSink
from tui.format.present import BLANK_LINE, Line
from tui.format.progress_bar import first_scan_line
from tui.operations.control_screen import control_refusal, pause_control, show_control_plan
from tui.operations.worker_screen import show_worker_plan
from tui.plan import planning
from tui.plan.acting_screen import TASK_JUST_CHANGED, PlanningScreen
from tui.plan.planning import VerbRequest
from tui.queue.filter_line import FilterLine
from tui.queue.lock_line import LockLine
from tui.queue.panes import LogPane, MetricsPane, TaskDetails
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.palette_commands import PaletteCommand
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.task.why_waiting import why_waiting
from tui.terminal.render_cache import Across, Down
from tui.widgets.lines import Lines, LongText
from tui.widgets.task_list import Anchor, CursorPosition, TaskList

MESSAGE_SECONDS = 6.0
"""Seconds for which a message stays."""

QUIT_AGAIN = "Ctrl+C again or q: quit"
"""Message of the first Ctrl+C; a second one quits while it is visible."""

CURSOR_JUST_MOVED = "the cursor moved to another task: check it, press the key again"
"""Refusal if another task came under the cursor just before the key was pressed."""

TYPING_HINTS = (keys.Hint("Enter", "apply"), keys.Hint("Esc", "clear"))
"""Hints while typing a filter."""

TASK_ACTIONS = frozenset(
    {"filter", "clusters", "order", "log", "mark", "range", "mark_all", "unmark"}
    | {key.action for key in keys.verb_keys()}
)
"""Actions on tasks, hidden on the problems tab."""

LOW_PRIORITY_ACTIONS = frozenset({"clusters", "order", "log", "mark", "mark_all", "unmark"})
"""Actions whose hints are dropped first on narrow screens: they are the same in every tab."""

MAX_RANGE_ROWS = 20_000
"""Maximum number of rows in a range; use a filter for more."""

CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before the reason for waiting is read."""


class QueueScreen(PlanningScreen):
    """The task list of one place, with its tabs, lock line, filter and panes."""

    KIND = keys.LIST
    BINDINGS = key_bindings(keys.LIST)

    def __init__(self, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__()
        self.live, self.place = live, live.place
        self.around, self._arming, self._clock = around, around.arming, around.clock
        self.inspector, self.worker = live.inspector, live.worker
        self._aim: Target | None = None
        self._change = self.inspector.latest
        self._tab = 0
        self._spots: dict[int, CursorPosition] = {}
        self._marks: dict[State, set[str]] = {}
        self._orders: dict[State, tuple[str, bool]] = {}
        self._hidden: frozenset[str] = frozenset()
        self._everything = False
        self._said: tuple[str, float] = ("", 0.0)
        self._why = ("", "")
        self._recount = False
        self._problems: tuple[Problem, ...] = ()
        self.looked = False
        """True if lock, metrics and log are painted."""
        self._make_widgets()

    def _make_widgets(self) -> None:
        self.list = TaskList(self.inspector.queries, self._clock, id="tasks")
        self._top = TopLine(id="top-line")
        self._tab_line = Lines(id="tabs")
        self._lock_line = LockLine(self.place, self._arming.read_only)
        self._filter = FilterLine(self._parsed_filter, id="filter")
        self._explained: tuple[Query, str] = (Query(), "")
        self._problem_text = LongText(id="problems")
        self._details, self._side_figures = (
            TaskDetails(id="details"),
            MetricsPane(id="side-figures"),
        )
        self._figures, self._log = MetricsPane(id="figures"), LogPane(id="log")
        self._hinted: tuple[tuple[object, ...], list[Line]] = ((), [])
        self._scope_line, self._hints = Lines(id="scope"), Lines(id="hints")

    def compose(self) -> ComposeResult:
        """Header, tabs, lock line, list and panes."""
        yield self._top
        yield self._tab_line
        yield self._lock_line
        yield self._filter
        with Across(id="middle") as self._middle:
            yield self.list
            yield self._problem_text
            with Down(id="side"):
                yield self._details
                yield self._side_figures
        yield self._figures
        yield self._log
        yield self._scope_line
        yield self._hints

    def on_mount(self) -> None:
        """Start following the index and the place."""
        self.list.focus()
        self.run_worker(self._follow(), name="follow")
        self.run_worker(self._follow_place(), name="watch")
        self.set_interval(1.0, self._tick)

    def aim(self, target: Target) -> None:
        """Show the target's state, filter or task, as soon as the states are known."""
        if target.state is None and target.filter is None and not target.id and not target.problems:
            return
        self._aim = target
        if self.is_paintable and self._tabs:
            self._show_target()

    def _show_target(self) -> None:
        target, self._aim = self._aim, None
        if target is None:
            return
        if target.filter is not None:
            self._filter.set_text(target.filter)
        wanted = None if target.problems else target.state or self.state or State.PENDING
        if wanted not in self._tabs:
            self.say(f"{self.place.name} has no state {wanted}")
            wanted = self.state
        is_aimed = bool(target.id) or target.filter is not None
        spot = CursorPosition(id=target.id) if is_aimed else None
        self._to_tab(self._tabs.index(wanted), spot)

    # Following the index

    async def _follow(self) -> None:
        self._take_change(self._change)
        while True:
            try:
                change = await self.inspector.wait_for_change(self._change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._take_change(change)
            if self.around.repaint_seconds() > 1.0:  # slow terminal: combine changes
                await asyncio.sleep(self.around.repaint_seconds())

    def _take_change(self, change: IndexChanged) -> None:
        first = not self.list.has_query and bool(self.inspector.states)
        self._change = change
        self._recount = True
        self.list.set_first_scan(not change.is_complete)
        self.list.show_notice(self._notice())
        if first and self._aim is not None:
            self._show_target()
        elif first:
            self._query_list(CursorPosition())
        else:
            self.list.store_changed()
        if self._on_problems:
            self._load_problems()
        self._paint_tabs()
        self._paint_header()
        self._paint_figures()
        self._paint_scope()

    def _notice(self) -> tuple[Line, ...]:
        width = max(20, self.list.size.width - 6)
        if self._change.unavailable:
            why = self._change.unavailable.removeprefix(f"{self.place.name}: ")
            return (
                BLANK_LINE,
                ((f"   {safe_line(self.place.name)} is unavailable:", "strong"),),
                *(((f"   {p}", "error"),) for p in present.fold_text(safe_line(why), width)),
                BLANK_LINE,
                (("   Retried every second; the list returns automatically.", "muted"),),
            )
        if not self.inspector.states:
            return (BLANK_LINE, (("   opening ...", "muted"),))
        if self.state is not None and self.list.loaded and not self.list.total:
            return (BLANK_LINE, ((f"   {self._empty_text()}", "muted"),))
        return ()

    def _scan_progress(self) -> Line:
        """Progress of the first scan; empty after it."""
        seconds = self._clock() - self.live.opened_at
        return first_scan_line(self._change, self.inspector.states, seconds, self.size.width)

    def _empty_text(self) -> str:
        where = safe_line(self.inspector.states[self.state]) if self.state else ""
        if not self._change.is_complete:
            return f"no {where} tasks yet: first scan running"
        amount = self._change.counts.get(self.state, 0) if self.state else 0
        if self._filter.filter and amount:
            return (
                f"0 of {present.format_count(amount, 'task')} match in {where}: Esc clears the "
                "filter"
            )
        return f"no tasks in {where}"

    async def _follow_place(self) -> None:
        while True:
            if self.is_current and self.live.has_readings:
                self.list.show_notes(self.live.readings.notes)
                self._paint_lock()
                self._paint_figures()
                self._paint_log()
                self.looked = True
            await self.live.wait_for_readings()

    def _tick(self) -> None:
        now = self._clock()
        if self._said[0] and not 0 <= now - self._said[1] < MESSAGE_SECONDS:
            self._said = ("", 0.0)
            self._paint_hints()
        if self._recount and self._marked:
            self._count_hidden()
        self._recount = False
        if self.is_current and not self.around.skips_repaint():
            if self._filter.filter.is_relative and not int(now) % int(AGE_ROUNDING_SECONDS):
                self.list.store_changed()
            self.list.tick(now)
            self._paint_header()

    def _parsed_filter(self, text: str) -> Filter:
        known = self.inspector
        return filter_language.parse_filter(text, known.states, self._clock(), known.words)

    # Tabs

    @property
    def _tabs(self) -> list[State | None]:
        """The states, and None for the problems tab behind them."""
        return [*self.inspector.states, None] if self.inspector.states else []

    @property
    def state(self) -> State | None:
        """The state of the current tab; None on the problems tab and before the store is open."""
        return self._tabs[self._tab] if self._tabs else None

    @property
    def _on_problems(self) -> bool:
        return bool(self._tabs) and self.state is None

    def action_tab(self, pressed: str) -> None:
        """Switch to the previous or the next tab."""
        if self._tabs:
            self._to_tab((self._tab + keys.step_of(pressed)) % len(self._tabs))

    def _to_tab(self, tab: int, spot: CursorPosition | None = None) -> None:
        """Switch to a tab; without `spot`, the cursor returns to its last position there."""
        if self.list.has_query:
            if tab == self._tab and spot is None:
                return
            self._spots[self._tab] = self.list.saved_position
        self._tab = tab
        self._everything = False
        self.list.end_range()
        self._show_tab(spot or self._spots.get(tab, CursorPosition()))

    def _show_tab(self, spot: CursorPosition) -> None:
        self._middle.set_class(self._on_problems, "-problems")
        if self._on_problems:
            self._load_problems()
        else:
            self._query_list(spot)
        self._paint_tabs()
        self._paint_scope()
        self._paint_details()

    def _load_problems(self) -> None:
        self._fetch_problems()

    @work(exclusive=True, group="problems")
    async def _fetch_problems(self) -> None:
        self._problems = await self.inspector.queries.problems()
        self._paint_problems()

    def _paint_problems(self) -> None:
        pane = self._problem_text
        width = pane.size.width or self.size.width
        rows = [
            line
            for problem in self._problems
            for line in present.problem_lines(problem, self.inspector.states, width)
        ]
        nothing: list[Line] = [BLANK_LINE, (("   no damaged files", "muted"),)]
        pane.show(rows or nothing)

    # Order

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

        self.app.push_screen(MenuScreen("order by", options), pick)

    def action_sort(self, order: str) -> None:
        """Order by a column of the index; if it is the present one, reverse the order."""
        if self.state is not None:
            now, falling = self._order
            self._orders[self.state] = (order, order == now and not falling)
            self._query_list(CursorPosition(id=self.list.saved_position.id))

    def commands(self) -> tuple[PaletteCommand, ...]:
        """A command for each order of this tab."""
        return tuple(
            PaletteCommand(f"sort {name}", "order by this column", "o", action=f"sort('{order}')")
            for name, order in (order_choices(self.state) if self.state else {}).values()
        )

    @property
    def _order(self) -> tuple[str, bool]:
        """Order of this tab: column, and True for descending."""
        return self._orders.get(self.state, ("id", False)) if self.state else ("id", False)

    # Filter

    @property
    def tab_query(self) -> Query:
        """Query of this tab: state, filter, order."""
        return self._query()

    def _query(self) -> Query:
        return Query(self.state, self._filter.filter, *self._order)

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

    def _query_list(self, spot: CursorPosition | None = None) -> None:
        self.list.show_query(self._query(), spot)
        self._show_marks()
        self._count_hidden()

    def action_filter(self) -> None:
        """Open the filter line."""
        self._filter.open()

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Apply the filter while it is typed."""
        if self.state is not None:
            self._everything = False
            self._query_list()

    def on_filter_line_wrong(self) -> None:
        """The filter is invalid: update the scope line, which then refuses actions."""
        self._paint_scope()

    def on_descendant_focus(self) -> None:
        """Update the hints: while typing a filter, letters are no keys."""
        self._paint_hints()

    def on_filter_line_kept(self) -> None:
        """Leave the filter line; hide it if it is empty."""
        line = self._filter
        if not line.words.strip():
            line.close()
        self.list.focus()

    def action_back(self) -> None:
        """End a range, stop the first scan or clear the filter; otherwise back to the overview."""
        if self.list.range_from is not None:
            self.list.end_range()
            self._paint_scope()
        elif not (self._change.is_complete or self._change.is_stopped):
            self.inspector.stop_first_scan()
        elif self._filter.is_visible:
            self._filter.close()
            self.list.focus()
        else:
            self.post_message(self.ActionRequest(self, "back"))

    def action_leave(self) -> None:
        """Close this screen, or quit the console from the outermost one."""
        self.post_message(self.ActionRequest(self, "leave"))

    def cancels(self) -> bool:
        """Close the filter line, or True if the console should quit."""
        if not self.list.has_focus and self._filter.is_visible:
            self.action_back()
            return False
        again = self._said[0] == QUIT_AGAIN
        if not again:
            self.say(QUIT_AGAIN)
        return again

    # Moving and marking

    def action_move(self, how: str) -> None:
        """Move the cursor."""
        if self._on_problems:
            self._problem_text.move(how)
        else:
            self.list.move(how)
            self.on_task_list_row_changed()

    @property
    def _marked(self) -> set[str]:
        return self._marks.setdefault(self.state, set()) if self.state else set()

    def action_mark(self) -> None:
        """Toggle the mark of the task under the cursor and move down."""
        self.list.pin_cursor()
        task = self.list.task_here
        if task is None or self.state is None or self.list.is_unseen:
            self.say(CURSOR_JUST_MOVED if self.list.is_unseen else "no task to mark")
            return
        self._everything = False
        self._marked.symmetric_difference_update({task.id})
        self.list.move("down")
        self._show_marks()
        self.on_task_list_row_changed()

    def action_range(self) -> None:
        """Begin a range; the second key marks it."""
        if self._filter.error:
            self.say(self._filter.error)
        elif self.list.range_from is None:
            self._everything = False
            self.list.begin_range()
            self._paint_scope()
        else:
            self._close_range(self.list.range_from, self.list.cursor)

    def _close_range(self, begun: Anchor, cursor: CursorPosition) -> None:
        """Mark the loaded rows of the range; read them from the index if some are not loaded."""
        low, high = sorted((begun.at, cursor.at))
        if high - low >= MAX_RANGE_ROWS:
            self.say(f"range over {MAX_RANGE_ROWS:,} rows: use a filter and *")
            return
        ends = {begun.at: begun.id, cursor.at: cursor.id}
        held = self.list.held_ids(low, high)
        if len(held) > high - low:
            self._mark_rows(held, ends)
        else:
            far = partial(self._mark_far, low, high, held | ends)
            self._run_query("range", far)

    async def _mark_far(self, low: int, high: int, seen: dict[int, str]) -> None:
        state = self.state
        window = await self.inspector.queries.window(self.tab_query, low, high - low + 1)
        if state is self.state:
            rows = enumerate((task.id for task in window.tasks), window.start)
            self._mark_rows(dict(rows), seen)

    def _mark_rows(self, rows: dict[int, str], seen: dict[int, str]) -> None:
        """Mark rows by position if the seen rows are unchanged; without departed ones."""
        if seen.items() <= rows.items():
            self._marked.update(set(rows.values()) - self.list.departed)
        else:
            self.say("rows moved, nothing marked: v starts again")
        self.list.end_range()
        self._show_marks()

    def action_mark_all(self) -> None:
        """Make verbs act on all matching tasks; again: on the cursor row."""
        if self._filter.error:
            self.say(self._filter.error)
        elif self.state is not None:
            self._everything = not self._everything
            self._show_marks()

    def action_unmark(self) -> None:
        """Clear all marks."""
        self._everything = False
        self._marked.clear()
        self._hidden = frozenset()
        self._show_marks()

    def _show_marks(self) -> None:
        self.list.show_marks(frozenset(self._marked), self._everything)
        self._paint_scope()

    def _count_hidden(self) -> None:
        if not self._marked:
            self._hidden = frozenset()
            return
        self._run_query("marks", self._check_marks)

    async def _check_marks(self) -> None:
        """Find marks that the filter hides, and drop marks of tasks that are gone."""
        state, query, marks = self.state, self._query(), set(self._marked)
        out = marks - await self.inspector.queries.matching_ids(query, marks)
        hidden = (
            await self.inspector.queries.matching_ids(Query(state), out)
            if query.filter
            else frozenset()
        )
        left = out - hidden
        if state is self.state and query == self._query():
            self._hidden = hidden
            self._marked.difference_update(left)
            if left:
                self.say(f"{present.format_count(len(left), 'marked task')} gone, marks removed")
            self._show_marks()

    def on_task_list_row_changed(self) -> None:
        """Update everything that depends on the task under the cursor."""
        self.list.show_notice(self._notice())
        self._paint_scope()
        self._paint_filter()
        self._paint_details()
        if not self.list.matching and self._filter.filter and self._explained[0] != self._query():
            self._run_query("filter", self._explain_filter)
        if self.has_class("-wide"):
            self._run_query("why", self._explain_waiting)

    async def _explain_filter(self) -> None:
        query = self._query()
        self._explained = query, await self.inspector.queries.explain(query)
        self._paint_filter()

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """Report that the task under the cursor is gone."""
        self.say(f"{event.id} is gone; cursor moved to the next task")

    async def _explain_waiting(self) -> None:
        await asyncio.sleep(CURSOR_REST_SECONDS)
        task = self.list.task_here
        if task is not None:
            why = await why_waiting(
                self.inspector,
                self.place,
                self.live.readings.lock,
                task,
                self._clock(),
                self.live.alerts,
            )
            self._why = (task.id, why)
            self._paint_details()

    # Opening and acting

    def action_open(self) -> None:
        """Open the task, or the problems on their tab."""
        if self._on_problems:
            self._open_problems()
            return
        task = self.list.task_here
        if task is None:
            self.say("no task to open")
        else:
            self.list.pin_cursor()
            self.go(Target(keys.TASK, id=task.id))

    def action_log(self) -> None:
        """Open the log, filtered for the task under the cursor."""
        self.list.pin_cursor()
        self.go(Target(keys.LOG, id=self.list.cursor.id))

    def copies(self) -> tuple[Copy, ...]:
        """The task under the cursor, and the command that lists what is shown."""
        task, state = self.list.task_here, self.state
        if task is None or state is None:
            return ()
        shape = present.task_columns(state, 160)
        line = present.task_line(task, shape, self._clock(), present.TaskContext(), 160)
        known = self.inspector
        word = own_word(task, known.states, known.words)
        words = ",".join(state_words(state, known.states, known.words))
        command = [*self.place.command, "queue", "list", "--state", words]
        command += ["--filter", self._filter.filter.text] if self._filter.filter else []
        return (
            Copy("i", "id", task.id),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(task_row.task_row(task, word)).strip()),
            Copy("c", "command", shlex.join(command)),
        )

    def export_table(self) -> ExportTable | None:
        """Export: all tasks of the tab, as of now."""
        query, states, words = self.tab_query, self.inspector.states, self.inspector.words
        if query.state is None:
            return None

        async def hand(take: RowSink) -> int:
            def give(some: Sequence[Task], done: int, total: int) -> bool:
                values = [task_row.task_row(task, own_word(task, states, words)) for task in some]
                return take(values, done, total)

            return await self.inspector.queries.export(query, give)

        return ExportTable(f"{states[query.state]}", task_row.ROW_FIELDS, hand)

    def action_clusters(self) -> None:
        """Open the error clusters."""
        self.go(Target(keys.CLUSTERS))

    def _open_problems(self) -> None:
        from tui.queue.problems_screen import ProblemsScreen

        if self._problems:
            shared = (self.inspector.states, self.inspector.actions.preview_problem)
            self.app.push_screen(ProblemsScreen(self._problems, *shared))
        else:
            self.say("no problem to open")

    def verb_refusal_here(self, verb: str) -> str:
        """Why a verb is not available now; "" if it is."""
        if self._on_problems:
            return "problems cannot be changed here: Enter shows them"
        return self._filter.error or self.verb_refusal(verb, self.state, self.selected_task())

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """The scope shown on screen when the key was pressed."""
        self.list.pin_cursor()
        if refusal := self.verb_refusal_here(verb) or self._nothing_in_scope():
            return refusal
        words = partial(_describe_scope, self._scope())
        verb = planning.verb_in_state(verb, self.state)
        return VerbRequest(verb, self._scope_ids(), self._plan_query(), words)

    def selected_task(self) -> Task | None:
        """The task under the cursor, if verbs act on it alone."""
        return None if self._everything or self._marked else self.list.task_here

    def _nothing_in_scope(self) -> str:
        if self.list.range_from is not None:
            return "range open: v marks it, Esc cancels"
        if self._everything:
            return ""
        if self._marked:
            return "" if self._marked - self._hidden else "the filter hides all marks"
        if self.list.is_gone:
            return "the task under the cursor is gone"
        if self.list.is_unseen:
            return CURSOR_JUST_MOVED
        if self.list.is_altered:
            return TASK_JUST_CHANGED
        return "" if self.list.task_here is not None else "no task here"

    def _scope_ids(self) -> set[str] | None:
        """Ids of the tasks to act on; None for all that match."""
        if self._everything:
            return None
        if self._marked:
            return self._marked - self._hidden
        task = self.list.task_here
        return {task.id} if task is not None else set()

    def _plan_query(self) -> Query:
        """Query for a plan.

        Marked tasks must match the filter when the plan is made. The task under the cursor need
        not: the operator has seen it.
        """
        query = self._query()
        return query if self._everything or self._marked else query._replace(filter=NO_FILTER)

    def action_note(self) -> None:
        """Prompt for a note on the task under the cursor."""
        self.list.pin_cursor()
        super().action_note()

    def plan_applied(self, report: Report) -> None:
        """Remove the marks of processed tasks."""
        self._everything = False
        self._marked.difference_update(report.done, report.gone)
        self._hidden -= set(report.done)
        self._show_marks()
        super().plan_applied(report)

    def action_unlock(self) -> None:
        """Open the lock screen."""
        if refusal := self._lock_line.refusal:
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK))

    def action_controls(self) -> None:
        """Open the controls of this place."""
        self.go(Target(keys.CONTROLS))

    def action_pause_queue(self) -> None:
        """Open a plan to pause or resume the whole queue."""
        show_control_plan(self, self.live, self.around, pause_control(self.live))

    def action_arm(self) -> None:
        """Arm or disarm."""
        if self.hasty:
            self.say(TOO_EARLY)
            return
        self.say(self._arming.toggle())
        self._paint_header()

    def action_worker(self) -> None:
        """Confirm starting a worker, or stopping the one started here."""
        show_worker_plan(self, self.live, self.around)

    def action_reread(self) -> None:
        """Scan the place again."""

        async def run() -> None:
            await self.inspector.scan_now()
            self.say("scanned again")

        self.run_worker(run, name="reread", exclusive=True, group="reread")  # type: ignore[arg-type]

    def action_next_place(self) -> None:
        """Go to the next place."""
        self._to_place(1)

    def action_previous_place(self) -> None:
        """Go to the previous place."""
        self._to_place(-1)

    def _to_place(self, step: int) -> None:
        if self.around.places == 1:
            self.say("only one place open")
        else:
            number = (self.live.number - 1 + step) % self.around.places + 1
            self.go(Target(keys.LIST, place=number))

    # Painting

    def on_resize(self) -> None:
        """Choose the layout for this size and repaint."""
        wide = self.size.width >= 120 and self.size.height >= 30
        self.set_class(wide, "-wide")
        self.set_class(self.size.height < 20, "-low")
        self.set_class(self.size.height < 12, "-tiny")
        self.set_class(self._is_narrow, "-narrow")
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        """Repaint after another screen was on top."""
        if self.is_paintable:
            self.list.tick(self._clock())
            self.paint()

    def paint(self) -> None:
        """Repaint all parts."""
        self.list.show_notice(self._notice())
        self._paint_header()
        self._paint_tabs()
        self._paint_lock()
        self._paint_filter()
        self._paint_details()
        self._paint_figures()
        self._paint_log()
        self._paint_scope()
        if self._on_problems:
            self._paint_problems()

    def _paint_header(self) -> None:
        around = self.around
        number = f" ({self.live.number}/{around.places})" if around.places > 1 else ""
        self._top.update_line(around, (f"{self.live.name}{number}",))

    @property
    def _is_narrow(self) -> bool:
        return self.size.width < present.NARROW_COLUMNS

    def _paint_tabs(self) -> None:
        states, change = self.inspector.states, self._change
        reached = not change.unavailable
        names = [*states.values(), "problems"] if states else []
        counts = [change.counts.get(state, 0) if reached else None for state in states]
        counts += [change.problems if reached else None] if states else []
        within = {
            [*states].index(self.inspector.words[word]): f"{tasks:,} {word}"
            for word, tasks in change.words.items()
        }
        line = present.tab_line(
            names, counts, self._tab, change.is_complete, self.size.width, within
        )
        self._tab_line.show([line])

    def _paint_lock(self) -> None:
        worker = self.worker.pid if self.place.has_leases else None
        self._lock_line.show_lock(self.live.readings.lock, self._clock(), self.size.width, worker)
        self.set_class(self._lock_line.alarms, "-alarm")

    def _paint_filter(self) -> None:
        line = self._filter
        if line.is_visible and self.state is not None:
            of = self._change.counts.get(self.state, 0)
            query, why = self._explained
            nothing = not self.list.matching and self.list.loaded
            why = why if nothing and query == self._query() else ""
            line.show_count(self.list.matching, of, why)

    def _index_counts(self) -> OwnCounts:
        change = self._change
        complete = change.is_complete and not change.unavailable
        return OwnCounts(self.inspector.states, change.counts, complete, self.live.count_samples)

    def _paint_figures(self) -> None:
        beside = self.has_class("-wide")
        pane = self._side_figures if beside else self._figures
        pane.show_metrics(self.live.readings, self._index_counts(), self._clock(), beside)

    def _paint_log(self) -> None:
        self._log.show_log(self.live.readings.log)

    def _paint_details(self) -> None:
        if not self.has_class("-wide"):
            return
        task = None if self._on_problems else self.list.task_here
        why = self._why[1] if task is not None and self._why[0] == task.id else ""
        self._details.show_task(task, self.inspector.states, why, self._clock())

    def _scope(self) -> present.Scope:
        if self._on_problems:
            return present.Scope()
        begun = self.list.range_from
        return present.Scope(
            self.list.cursor.id,
            self.list.is_gone,
            len(self._marked - self._hidden),
            len(self._hidden & self._marked),
            self._everything,
            self.list.matching,
            abs(self.list.cursor.at - begun.at) + 1 if begun else 0,
            self._filter.error,
        )

    def _paint_scope(self) -> None:
        line = present.scope_line(self._scope(), self.size.width)
        self._scope_line.show([line])
        self._paint_hints()

    def without(self) -> set[str]:
        """Actions that are hidden now."""
        without = {"next_place", "previous_place"} if self.around.places == 1 else set()
        if self._arming.read_only:
            without |= {key.action for key in keys.verb_keys()} | {"arm", "worker", "unlock"}
            without |= {"mark", "mark_all", "unmark", "note", "pause_queue"}
        without |= set() if self.live.has_queue_figures else {"controls"}
        without |= set() if self.inspector.controls else {"pause_queue"}
        without |= {"unlock"} if self.place.has_leases else set()
        return without

    def _grey(self) -> set[str]:
        grey = {key.action for key in keys.verb_keys() if self.verb_refusal_here(key.verb)}
        if not self.place.worker_command:
            grey.add("worker")
        if self._lock_line.refusal:
            grey.add("unlock")
        if control_refusal(self.live, self.around, pause_control(self.live)):
            grey.add("pause_queue")
        if self._on_problems and not self._problems:
            grey.add("open")
        return grey

    def _hint_input(self) -> tuple[object, ...]:
        """Input of the hints; compared on each cursor move instead of rebuilding them."""
        arming, change, edges = self._arming, self._change, self.inspector.edges
        verbs = [planning.verb_in_state(key.verb, self.state) for key in keys.verb_keys()]
        task, now = self.selected_task(), self._clock()
        bars = [task and plans.bar_reason(edges, verb, task, now=now) for verb in verbs]
        return (
            *(self.size.width, self.around.places, arming.read_only, arming.is_armed),
            *(self.worker.pid, self._on_problems, self.state, bool(change.unavailable)),
            bool(self._problems),
            *(edges, self._lock_line.refusal, self._is_typing, self._filter.error),
            self.inspector.controls,
            bars,
        )

    def _is_verb_for_state(self, verb: str) -> bool:
        """True if a verb has an edge from this state in this store."""
        ways = (way for way in VERBS[verb].edges if way[0] is self.state)
        return any(way in self.inspector.edges for way in ways)

    @property
    def _is_typing(self) -> bool:
        """True if keys go into the filter line."""
        return self._filter.is_visible and self._filter.has_focus_within

    def _hint_rows(self) -> list[Line]:
        grounds = self._hint_input()
        if self._hinted[0] != grounds:
            words = {"arm": keys.arm_hint(self._arming.is_armed)}
            words |= {"open": "details"} if self._on_problems else {}
            grey = self._grey()
            # Verbs for other states would displace those that work here.
            meant = {
                key.action: planning.verb_in_state(key.verb, self.state) for key in keys.verb_keys()
            }
            words |= {action: verb for action, verb in meant.items() if f"'{verb}'" not in action}
            elsewhere = {
                action for action, verb in meant.items() if not self._is_verb_for_state(verb)
            }
            without = self.without() | elsewhere | (TASK_ACTIONS if self._on_problems else set())
            hints = _prioritize_hints(
                keys.hints_of(keys.LIST, grey, without, words), self.size.width
            )
            if self._is_typing:
                hints = TYPING_HINTS
            self._hinted = grounds, present.hint_lines(hints, self.size.width)
        return self._hinted[1].copy()

    def _paint_hints(self) -> None:
        rows = self._hint_rows()
        if far := self._scan_progress():
            rows[0] = present.cut_line(far, self.size.width)
        if self._said[0]:
            rows[0] = present.cut_line(((f" {self._said[0]}", "warn"),), self.size.width)
        self._hints.show(rows)

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message in the first hint line for some seconds."""
        self._said = (safe_line(text), self._clock())
        self._paint_hints()


def order_choices(state: State) -> dict[str, tuple[str, str]]:
    """Columns to order a tab by: letter -> name and order in the index."""
    _, _, when = present.TIME_COLUMNS.get(state, ("", None, ""))
    times = {"w": ({"due": "due", "since": "time in work", "died": "time of death"}, when)}
    named = {key: (names[order], order) for key, (names, order) in times.items() if order}
    return {
        **{"i": ("id", "id"), "k": ("kind", "kind"), "a": ("age", "created")},
        **{"t": ("tries", "attempts"), **named, "e": ("error", "error")},
        **{"d": ("description", "description"), "m": ("destination", "destination")},
    }


def _prioritize_hints(hints: Sequence[keys.Hint], width: int) -> tuple[keys.Hint, ...]:
    """Hints with priorities: those that act on tasks are dropped last."""
    acts = {key.shown for key in keys.verb_keys()}
    look = {key.shown for key in keys.keys_on(keys.LIST) if key.action in LOW_PRIORITY_ACTIONS}
    told = tuple(
        h._replace(is_minor=h.is_minor and (h.is_refused or h.shown not in acts)) for h in hints
    )
    least = [hint for hint in told if not hint.is_minor]
    second = present.hint_lines(least, width, 2)[1]
    if not any(text.strip() for text, _ in second):
        return told
    return tuple(hint._replace(is_minor=hint.shown in look) for hint in least)


def _describe_scope(scope: present.Scope, planned: int) -> str:
    if scope.acts_on_all:
        return f"all {planned:,} that match"
    if scope.marked:
        out = max(0, scope.hidden + scope.marked - planned)
        hidden = f", {out:,} hidden or gone excluded" if out else ""
        return f"{planned:,} marked{hidden}"
    return f"row {scope.row}"
