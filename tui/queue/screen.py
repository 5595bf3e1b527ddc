"""One place: its tasks by state, its lock, its figures and its logs."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from textual import work
from textual.app import ComposeResult

from engine.index import filter_language
from engine.index.filter_language import NOTHING, Filter
from engine.index.schema import Query
from engine.live.inspector import AGEING, IndexChanged
from engine.model import Problem, State, Task, own_word, words_of
from engine.monitor.metrics_check import Ours
from engine.operations.execute import Report
from engine.store import Unavailable
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import keys, present, task_row
from tui.format.export import ExportTable, Take
from tui.format.present import BLANK, Line
from tui.format.progress_bar import first_look
from tui.operations.control_screen import no_control, pausing, plan_control
from tui.plan import planning
from tui.plan.acting_screen import ALTERED, PlanningScreen
from tui.plan.planning import Asked
from tui.queue.filter_line import FilterLine
from tui.queue.lock_line import LockLine
from tui.queue.panes import Details, LogPane, MetricsPane
from tui.screens.base import HASTY, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.task.why_waiting import why_waiting
from tui.widgets.lines import Lines, LongText
from tui.widgets.render_cache import Across, Down
from tui.widgets.task_list import Anchor, CursorPosition, TaskList

SAID = 6.0
"""Seconds for which a word to the operator stays."""

AGAIN = "Ctrl-c again, or q, leaves the console"
"""What the first Ctrl-c says; the second one counts as long as this is on screen."""

ANOTHER = "another task came under the cursor just now; look which one it is, and press again"
"""Why a key is refused that may have been meant for the task before."""

TYPING = (keys.Hint("Enter", "keep this filter"), keys.Hint("Esc", "clear it"))
"""What is hinted at while a filter is typed."""

OF_TASKS = frozenset(
    {"filter", "clusters", "order", "log", "mark", "range", "mark_all", "unmark"}
    | {key.action for key in keys.verbs()}
)
"""Actions that are not hinted at beside problems: those are no tasks."""

TO_LOOK = frozenset({"clusters", "order", "log"})
"""Actions that give up their place in the hints to what can be done here, where it is narrow: they
are the same in every tab."""

RANGE = 20_000
"""Rows that a range may have: more is what filters are for."""

RESTED = 0.15
"""Seconds a cursor rests before it is asked why its task waits."""


class QueueScreen(PlanningScreen):
    """A place as the operator works in it."""

    KIND = keys.LIST
    BINDINGS = keys.bindings(keys.LIST)

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
        """Whether lock, figures and logs are on screen."""
        self._make_widgets()

    def _make_widgets(self) -> None:
        self.list = TaskList(self.inspector, self._clock, id="tasks")
        self._top = TopLine(id="top-line")
        self._tab_line = Lines(id="tabs")
        self._lock_line = LockLine(self.place, self._arming.read_only)
        self._filter = FilterLine(self._parsed_filter, id="filter")
        self._explained: tuple[Query, str] = (Query(), "")
        self._problem_text = LongText(id="problems")
        self._details, self._side_figures = Details(id="details"), MetricsPane(id="side-figures")
        self._figures, self._log = MetricsPane(id="figures"), LogPane(id="log")
        self._hinted: tuple[tuple[object, ...], list[Line]] = ((), [])
        self._scope_line, self._hints = Lines(id="scope"), Lines(id="hints")

    def compose(self) -> ComposeResult:
        """Header, tabs, lock, list, and what happens around it."""
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
        """Open the place and begin to follow it."""
        self.list.focus()
        self.run_worker(self._follow(), name="follow")
        self.run_worker(self._watch_signs(), name="watch")
        self.set_interval(1.0, self._tick)

    def aim(self, target: Target) -> None:
        """Show that part of the queue, as soon as its states are known."""
        if target.state is None and target.filter is None and not target.id and not target.problems:
            return
        self._aim = target
        if self.stands and self._tabs:
            self._take_aim()

    def _take_aim(self) -> None:
        target, self._aim = self._aim, None
        if target is None:
            return
        if target.filter is not None:
            self._filter.put(target.filter)
        wanted = None if target.problems else target.state or self.state or State.PENDING
        if wanted in self._tabs:
            self._tab = self._tabs.index(wanted)
        self._everything = False
        self._show_tab(CursorPosition(id=target.id))

    # Following

    async def _follow(self) -> None:
        self._take(self._change)
        while True:
            try:
                change = await self.inspector.changed(self._change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._take(change)
            if self.around.pace() > 1.0:  # the line is slow: what changes is gathered
                await asyncio.sleep(self.around.pace())

    def _take(self, change: IndexChanged) -> None:
        first = not self.list.asked and bool(self.inspector.states)
        self._change = change
        self._recount = True
        self.list.fill(not change.complete)
        self.list.say(self._notice())
        if first and self._aim is not None:
            self._take_aim()
        elif first:
            self._ask(CursorPosition())
        else:
            self.list.changed()
        if self._on_problems:
            self._load_problems()
        self._paint_tabs()
        self._paint_header()
        self._paint_figures()
        self._paint_scope()

    def _notice(self) -> tuple[Line, ...]:
        width = max(20, self.list.size.width - 6)
        if self._change.unavailable:
            return (
                BLANK,
                ((f"   {shown(self.place.name)} cannot be reached now:", "strong"),),
                *(
                    ((f"   {p}", "bad"),)
                    for p in present.folded(shown(self._change.unavailable), width)
                ),
                BLANK,
                (("   It is looked at again each second; the list comes back by itself.", "dim"),),
            )
        if not self.inspector.states:
            return (BLANK, (("   opening ...", "dim"),))
        if self.state is not None and self.list.loaded and not self.list.total:
            return (BLANK, ((f"   {self._nothing()}", "dim"),))
        return ()

    def _progress(self) -> Line:
        """How far the first look at everything is; nothing to say once it has ended."""
        seconds = self._clock() - self.live.begun
        return first_look(self._change, self.inspector.states, seconds, self.size.width)

    def _nothing(self) -> str:
        where = shown(self.inspector.states[self.state]) if self.state else ""
        if not self._change.complete:
            return f"nothing in {where} so far: the first look has not ended"
        amount = self._change.counts.get(self.state, 0) if self.state else 0
        if self._filter.filter and amount:
            return (
                f"none of {present.count(amount, 'task')} in {where} matches; Esc clears the filter"
            )
        return f"nothing in {where}"

    async def _watch_signs(self) -> None:
        while True:
            if self.is_current and self.live.looked:
                self.list.show_notes(self.live.signs.notes)
                self._paint_lock()
                self._paint_figures()
                self._paint_log()
                self.looked = True
            await self.live.next_look()

    def _tick(self) -> None:
        now = self._clock()
        if self.worker.has_ended:
            self._on_thread(self.worker.farewell)
        if self._said[0] and not 0 <= now - self._said[1] < SAID:
            self._said = ("", 0.0)
            self._paint_hints()
        if self._recount and self._marked:
            self._count_hidden()
        self._recount = False
        if self.is_current and not self.around.still():
            if self._filter.filter.relative and not int(now) % int(AGEING):
                self.list.changed()
            self.list.tick(now)
            self._paint_header()

    def _parsed_filter(self, text: str) -> Filter:
        known = self.inspector
        return filter_language.parse(text, known.states, self._clock(), known.words)

    # Tabs

    @property
    def _tabs(self) -> list[State | None]:
        """The states, and None for the problems behind them."""
        return [*self.inspector.states, None] if self.inspector.states else []

    @property
    def state(self) -> State | None:
        """Which state's tasks are shown; None on the problems and before the place is open."""
        return self._tabs[self._tab] if self._tabs else None

    @property
    def _on_problems(self) -> bool:
        return bool(self._tabs) and self.state is None

    def action_tab(self, number: str) -> None:
        """To the tab of that number."""
        self._to_tab(int(number) - 1)

    def action_next_tab(self) -> None:
        """To the next tab."""
        self._to_tab((self._tab + 1) % max(1, len(self._tabs)))

    def action_previous_tab(self) -> None:
        """To the tab before."""
        self._to_tab((self._tab - 1) % max(1, len(self._tabs)))

    def _to_tab(self, tab: int) -> None:
        if tab >= len(self._tabs):
            self.say(f"there is no tab {tab + 1}")
            return
        if tab == self._tab:
            return
        self._spots[self._tab] = self.list.kept
        self._tab = tab
        self._everything = False
        self.list.end_range()
        self._show_tab(self._spots.get(tab, CursorPosition()))

    def _show_tab(self, spot: CursorPosition) -> None:
        self._middle.set_class(self._on_problems, "-problems")
        if self._on_problems:
            self._load_problems()
        else:
            self._ask(spot)
        self._paint_tabs()
        self._paint_scope()
        self._paint_details()

    def _load_problems(self) -> None:
        self._fetch_problems()

    @work(exclusive=True, group="problems")
    async def _fetch_problems(self) -> None:
        self._problems = await self.inspector.problems()
        self._paint_problems()

    def _paint_problems(self) -> None:
        pane = self._problem_text
        width = pane.size.width or self.size.width
        rows = [
            line
            for problem in self._problems
            for line in present.problem(problem, self.inspector.states, width)
        ]
        nothing: list[Line] = [BLANK, (("   nothing here that cannot be read", "dim"),)]
        pane.show(rows or nothing)

    # Order

    def action_order(self) -> None:
        """Order by a column that is picked by its letter; picked again, the other way round."""
        from tui.screens.menu import MenuScreen, Option

        if self.state is None:
            self.say("the problems have no other order")
            return
        now, falling = self._order
        options = [
            Option(key, f"{name}{', the other way' if order == now else ''}")
            for key, (name, order) in orders(self.state).items()
        ]

        def pick(key: str | None) -> None:
            if key and self.state is not None:
                _, order = orders(self.state)[key]
                self._orders[self.state] = (order, order == now and not falling)
                self._ask(CursorPosition(id=self.list.kept.id))

        self.app.push_screen(MenuScreen("order by", options), pick)

    @property
    def _order(self) -> tuple[str, bool]:
        """By what this tab is ordered, and whether from the greatest down."""
        return self._orders.get(self.state, ("id", False)) if self.state else ("id", False)

    # Filter

    @property
    def wanted(self) -> Query:
        """What the tab shows: its state, its filter, its order."""
        return self._query()

    def _query(self) -> Query:
        return Query(self.state, self._filter.filter, *self._order)

    def _ask_for(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask the index in the background; who asked the same before is not answered any more."""

        async def answer() -> None:
            try:
                await ask()
            except Unavailable as error:  # as when the console is being left
                if self.stands:
                    self.say(str(error))

        self.run_worker(answer(), name=what, exclusive=True, group=what)

    def _ask(self, spot: CursorPosition | None = None) -> None:
        self.list.ask(self._query(), spot)
        self._show_marks()
        self._count_hidden()

    def action_filter(self) -> None:
        """Type what to show."""
        self._filter.open()

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Show only what matches, while it is typed."""
        if self.state is not None:
            self._everything = False
            self._ask()

    def on_filter_line_wrong(self) -> None:
        """What is typed is no filter: as long as that is so, nothing is acted on."""
        self._paint_scope()

    def on_descendant_focus(self) -> None:
        """Other keys are to be hinted at while letters go into the filter."""
        self._paint_hints()

    def on_filter_line_kept(self) -> None:
        """Done typing; without words there is no filter."""
        line = self._filter
        if not line.words.strip():
            line.close()
        self.list.focus()

    def action_back(self) -> None:
        """Clear the filter; without one, back to the overview."""
        if self.list.range_from is not None:
            self.list.end_range()
            self._paint_scope()
        elif not (self._change.complete or self._change.halted):
            self.inspector.halt()
        elif self._filter.is_on:
            self._filter.close()
            self.list.focus()
        else:
            self.post_message(self.Wants(self, "back"))

    def action_leave(self) -> None:
        """Back to what is below, else out of the console; this place stays as it is."""
        self.post_message(self.Wants(self, "leave"))

    def cancels(self) -> bool:
        """Cancel what is typed; answers whether the console is to be left instead."""
        if not self.list.has_focus and self._filter.is_on:
            self.action_back()
            return False
        again = self._said[0] == AGAIN
        if not again:
            self.say(AGAIN)
        return again

    # Moving and marking

    def action_move(self, how: str) -> None:
        """Move the cursor."""
        if self._on_problems:
            self._problem_text.move(how)
        else:
            self.list.move(how)
            self.on_task_list_moved()

    @property
    def _marked(self) -> set[str]:
        return self._marks.setdefault(self.state, set()) if self.state else set()

    def action_mark(self) -> None:
        """Mark the task under the cursor, or take its mark away, and go on to the next."""
        self.list.stay()
        task = self.list.task_here
        if task is None or self.state is None or self.list.unseen:
            self.say(ANOTHER if self.list.unseen else "there is no task to mark here")
            return
        self._everything = False
        self._marked.symmetric_difference_update({task.id})
        self.list.move("down")
        self._show_marks()
        self.on_task_list_moved()

    def action_range(self) -> None:
        """Begin a range here; again: mark all from there to the cursor."""
        if self._filter.error:
            self.say(self._filter.error)
        elif self.list.range_from is None:
            self._everything = False
            self.list.begin_range()
            self._paint_scope()
        else:
            self._close_range(self.list.range_from, self.list.cursor)

    def _close_range(self, begun: Anchor, cursor: CursorPosition) -> None:
        """Mark the rows as they are painted at this key; what is too long for that is asked for."""
        low, high = sorted((begun.at, cursor.at))
        if high - low >= RANGE:
            self.say(f"a range of more than {RANGE:,} rows: use a filter and * instead")
            return
        ends = {begun.at: begun.id, cursor.at: cursor.id}
        held = self.list.held(low, high)
        if len(held) > high - low:
            self._mark_rows(held, ends)
        else:
            far = partial(self._mark_far, low, high, held | ends)
            self._ask_for("range", far)

    async def _mark_far(self, low: int, high: int, seen: dict[int, str]) -> None:
        state = self.state
        window = await self.inspector.window(self.wanted, low, high - low + 1)
        if state is self.state:
            rows = enumerate((task.id for task in window.tasks), window.start)
            self._mark_rows(dict(rows), seen)

    def _mark_rows(self, rows: dict[int, str], seen: dict[int, str]) -> None:
        """Mark these, by position, if what was seen stands among them; not what has left."""
        if seen.items() <= rows.items():
            self._marked.update(set(rows.values()) - self.list.ghosts)
        else:
            self.say("the rows have moved meanwhile; nothing was marked, v begins again")
        self.list.end_range()
        self._show_marks()

    def action_mark_all(self) -> None:
        """Act on all that match; again: on the row again."""
        if self._filter.error:
            self.say(self._filter.error)
        elif self.state is not None:
            self._everything = not self._everything
            self._show_marks()

    def action_unmark(self) -> None:
        """Take all marks away."""
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
        self._ask_for("marks", self._sort_marks)

    async def _sort_marks(self) -> None:
        """Which marks the filter hides, and which stand on tasks that have left."""
        state, query, marks = self.state, self._query(), set(self._marked)
        out = marks - await self.inspector.among(query, marks)
        hidden = await self.inspector.among(Query(state), out) if query.filter else frozenset()
        left = out - hidden
        if state is self.state and query == self._query():
            self._hidden = hidden
            self._marked.difference_update(left)
            if left:
                self.say(f"{present.count(len(left), 'marked task')} left; the marks are gone too")
            self._show_marks()

    def on_task_list_moved(self) -> None:
        """Another task is under the cursor, or it changed."""
        self.list.say(self._notice())
        self._paint_scope()
        self._paint_filter()
        self._paint_details()
        if not self.list.matching and self._filter.filter and self._explained[0] != self._query():
            self._ask_for("filter", self._explain_filter)
        if self.has_class("-wide"):
            self._ask_for("why", self._explain)

    async def _explain_filter(self) -> None:
        query = self._query()
        self._explained = query, await self.inspector.explain(query)
        self._paint_filter()

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """The task under the cursor has left."""
        self.say(f"{event.id} is gone; the cursor is on its neighbour")

    async def _explain(self) -> None:
        await asyncio.sleep(RESTED)
        task = self.list.task_here
        if task is not None:
            why = await why_waiting(
                self.inspector,
                self.place,
                self.live.signs.lock,
                task,
                self._clock(),
                self.live.alerts,
            )
            self._why = (task.id, why)
            self._paint_details()

    # Looking and acting

    def action_open(self) -> None:
        """The task in full; on their tab, the problems."""
        if self._on_problems:
            self._open_problems()
            return
        task = self.list.task_here
        if task is None:
            self.say("there is no task to open here")
        else:
            self.list.stay()
            self.go(Target(keys.TASK, id=task.id))

    def action_log(self) -> None:
        """The log lines that speak of the task under the cursor."""
        self.list.stay()
        self.go(Target(keys.LOG, id=self.list.cursor.id))

    def copies(self) -> tuple[Copy, ...]:
        """The task under the cursor, and the command that lists what is shown."""
        task, state = self.list.task_here, self.state
        if task is None or state is None:
            return ()
        shape = present.columns(state, 160)
        line = present.row(task, shape, self._clock(), present.TaskContext(), 160)
        known = self.inspector
        word = own_word(task, known.states, known.words)
        words = ",".join(words_of(state, known.states, known.words))
        command = [*self.place.command, "queue", "list", "--state", words]
        command += ["--filter", self._filter.filter.text] if self._filter.filter else []
        return (
            Copy("i", "id", task.id),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(task_row.row(task, word)).strip()),
            Copy("c", "command", shlex.join(command)),
        )

    def sheet(self) -> ExportTable | None:
        """All that the tab shows, as it is when the export begins."""
        query, states, words = self.wanted, self.inspector.states, self.inspector.words
        if query.state is None:
            return None

        async def hand(take: Take) -> int:
            def give(some: Sequence[Task], done: int, total: int) -> bool:
                values = [task_row.row(task, own_word(task, states, words)) for task in some]
                return take(values, done, total)

            return await self.inspector.harvest(query, give)

        return ExportTable(f"{states[query.state]}", task_row.FIELDS, hand)

    def action_clusters(self) -> None:
        """The errors here, alike with alike."""
        self.go(Target(keys.CLUSTERS))

    def _open_problems(self) -> None:
        from tui.queue.problems_screen import ProblemsScreen

        if self._problems:
            shared = (self.inspector.states, self.inspector.glimpse)
            self.app.push_screen(ProblemsScreen(self._problems, *shared))
        else:
            self.say("there is no problem to open here")

    def refusal(self, verb: str) -> str:
        """Why a verb is not to be had here now; "" when it is."""
        if self._on_problems:
            return "a problem is no task: nothing can be done to it here"
        return self._filter.error or self.no_verb(verb, self.state)

    def asked(self, verb: str) -> Asked | str:
        """What the scope line says: what is on screen at this key, whatever comes before the plan
        is made."""
        self.list.stay()
        if refusal := self.refusal(verb) or self._nothing_in_scope():
            return refusal
        words = partial(_scope_words, self._scope())
        verb = planning.meant(verb, self.state)
        return Asked(verb, self._in_scope(), self._in_question(), words)

    def about(self) -> Task | None:
        """The task under the cursor, where it is the one that a key is for."""
        return None if self._everything or self._marked else self.list.task_here

    def _nothing_in_scope(self) -> str:
        if self.list.range_from is not None:
            return "a range is being marked: v marks it, Esc drops it"
        if self._everything:
            return ""
        if self._marked:
            return "" if self._marked - self._hidden else "all marks are hidden by the filter"
        if self.list.gone:
            return "the task under the cursor is gone"
        if self.list.unseen:
            return ANOTHER
        if self.list.altered:
            return ALTERED
        return "" if self.list.task_here is not None else "there is no task here"

    def _in_scope(self) -> set[str] | None:
        """The tasks that a verb would be for; None for all that match."""
        if self._everything:
            return None
        if self._marked:
            return self._marked - self._hidden
        task = self.list.task_here
        return {task.id} if task is not None else set()

    def _in_question(self) -> Query:
        """What a verb would be for, besides ids.

        A mark that the filter hides at the moment of the plan is in none, whether the scope line
        knew it or not; the task under the cursor was seen, whatever became of it since.
        """
        query = self._query()
        return query if self._everything or self._marked else query._replace(filter=NOTHING)

    def action_note(self) -> None:
        """Write a note on the task under the cursor down."""
        self.list.stay()
        super().action_note()

    def applied(self, report: Report) -> None:
        """What was done is marked no more."""
        self._everything = False
        self._marked.difference_update(report.done, report.gone)
        self._hidden -= set(report.done)
        self._show_marks()
        super().applied(report)

    def action_unlock(self) -> None:
        """Who has the lock, and a plan to free it."""
        if refusal := self._lock_line.refusal:
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK))

    def action_controls(self) -> None:
        """What concerns the queue as a whole."""
        self.go(Target(keys.CONTROLS))

    def action_pause_queue(self) -> None:
        """A plan to pause the whole queue, or to let it go on."""
        plan_control(self, self.live, self.around, pausing(self.live))

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        if self.hasty:
            self.say(HASTY)
            return
        self.say(self._arming.toggle())
        self._paint_header()

    def action_worker(self) -> None:
        """Plan to start a worker, or to stop the one that was started here."""
        if self._arming.read_only:
            self.say("read only: no worker is started from here")
        elif not self.place.work:
            self.say("no worker can be started for this place")
        elif self.hasty:
            self.say(HASTY)
        else:
            self._plan_worker()

    def _plan_worker(self) -> None:
        from tui.operations.worker_screen import WorkerScreen

        screen = WorkerScreen(self.live, self.around)

        def back(_: None) -> None:
            if screen.agreed and screen.pid == self.worker.pid:
                self._on_thread(self.worker.start if screen.pid is None else self.worker.stop)

        self.app.push_screen(screen, back)

    def _on_thread(self, act: Callable[[], str]) -> None:
        async def run() -> None:
            if words := await asyncio.to_thread(act):
                self.say(words)
            self._paint_lock()

        self.run_worker(run(), name="worker", group="worker")

    def action_reread(self) -> None:
        """Look at everything again."""

        async def run() -> None:
            await self.inspector.refresh()
            self.say("everything was looked at again")

        self.run_worker(run(), name="reread", exclusive=True, group="reread")

    def action_next_place(self) -> None:
        """To the next place."""
        self._to_place(1)

    def action_previous_place(self) -> None:
        """To the place before."""
        self._to_place(-1)

    def _to_place(self, step: int) -> None:
        if self.around.places == 1:
            self.say("there is only this place")
        else:
            number = (self.live.number - 1 + step) % self.around.places + 1
            self.go(Target(keys.LIST, place=number))

    # Painting

    def on_resize(self) -> None:
        """Choose the layout, and lay everything out for it."""
        wide = self.size.width >= 120 and self.size.height >= 30
        self.set_class(wide, "-wide")
        self.set_class(self.size.height < 20, "-low")
        self.set_class(self.size.height < 12, "-tiny")
        self.set_class(self._narrow, "-narrow")
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        """Back on top: show what changed meanwhile."""
        if self.stands:
            self.list.tick(self._clock())
            self.paint()

    def paint(self) -> None:
        """Paint whatever differs from what is on screen."""
        self.list.say(self._notice())
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
        change, around = self._change, self.around
        amount = present.count(sum(change.counts.values()), "task")
        number = f" ({self.live.number}/{around.places})" if around.places > 1 else ""
        so_far = "" if change.complete else " so far"
        rates = "" if self._narrow else present.rates(self.live.flow.rates(self._clock()))
        known = "" if change.unavailable else f"{amount}{so_far}{rates}"
        self._top.tell(around, (f"{self.place.name}{number}",), known)

    @property
    def _narrow(self) -> bool:
        return self.size.width < present.NARROW

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
        line = present.tabs(names, counts, self._tab, change.complete, self.size.width, within)
        self._tab_line.show([line])

    def _paint_lock(self) -> None:
        worker = self.worker.pid if self.place.leases else None
        self._lock_line.tell(self.live.signs.lock, self._clock(), self.size.width, worker)
        self.set_class(self._lock_line.alarms, "-alarm")

    def _paint_filter(self) -> None:
        line = self._filter
        if line.is_on and self.state is not None:
            of = self._change.counts.get(self.state, 0)
            query, why = self._explained
            nothing = not self.list.matching and self.list.loaded
            why = why if nothing and query == self._query() else ""
            line.show_count(self.list.matching, of, why)

    def _ours(self) -> Ours:
        change = self._change
        complete = change.complete and not change.unavailable
        return Ours(self.inspector.states, change.counts, complete, self.live.counted)

    def _paint_figures(self) -> None:
        beside = self.has_class("-wide")
        pane = self._side_figures if beside else self._figures
        pane.tell(self.live.signs, self._ours(), self._clock(), beside)

    def _paint_log(self) -> None:
        self._log.tell(self.live.signs.log)

    def _paint_details(self) -> None:
        if not self.has_class("-wide"):
            return
        task = None if self._on_problems else self.list.task_here
        why = self._why[1] if task is not None and self._why[0] == task.id else ""
        self._details.tell(task, self.inspector.states, why, self._clock())

    def _scope(self) -> present.Scope:
        if self._on_problems:
            return present.Scope()
        begun = self.list.range_from
        return present.Scope(
            self.list.cursor.id,
            self.list.gone,
            len(self._marked - self._hidden),
            len(self._hidden & self._marked),
            self._everything,
            self.list.matching,
            abs(self.list.cursor.at - begun.at) + 1 if begun else 0,
            self._filter.error,
        )

    def _paint_scope(self) -> None:
        line = present.scope(self._scope(), self.size.width)
        self._scope_line.show([line])
        self._paint_hints()

    def without(self) -> set[str]:
        """Actions that make no sense here."""
        without = {"next_place", "previous_place"} if self.around.places == 1 else set()
        if self._arming.read_only:
            without |= {key.action for key in keys.verbs()} | {"arm", "worker", "unlock"}
            without |= {"mark", "mark_all", "unmark", "note", "pause_queue"}
        without |= set() if self.live.is_told_of else {"controls"}
        without |= set() if self.inspector.controls else {"pause_queue"}
        without |= {"unlock"} if self.place.leases else set()
        return without

    def _grey(self) -> set[str]:
        grey = {key.action for key in keys.verbs() if self.refusal(key.verb)}
        if not self.place.work:
            grey.add("worker")
        if self._lock_line.refusal:
            grey.add("unlock")
        if no_control(self.live, self.around, pausing(self.live)):
            grey.add("pause_queue")
        if self._on_problems and not self._problems:
            grey.add("open")
        return grey

    def _grounds(self) -> tuple[object, ...]:
        """All that the hints hang on: each cursor move looks at this instead of making them."""
        arming, change = self._arming, self._change
        return (
            *(self.size.width, self.around.places, arming.read_only, arming.armed),
            *(self.worker.pid, self._on_problems, self.state, bool(change.unavailable)),
            bool(self._problems),
            *(self.inspector.edges, self._lock_line.refusal, self._types, self._filter.error),
            self.inspector.controls,
        )

    def _is_for(self, verb: str) -> bool:
        """Whether a verb is for tasks that stand where these do, and leads anywhere here."""
        ways = (way for way in VERBS[verb].edges if way[0] is self.state)
        return any(way in self.inspector.edges for way in ways)

    @property
    def _types(self) -> bool:
        """Whether letters go into the filter, and are no keys."""
        return self._filter.is_on and self._filter.has_focus_within

    def _hint_rows(self) -> list[Line]:
        grounds = self._grounds()
        if self._hinted[0] != grounds:
            words = {"arm": keys.arm_words(self._arming.armed)}
            words |= {"open": "all in full"} if self._on_problems else {}
            grey = self._grey()
            # Verbs that are for other states would push out what can be done here.
            meant = {key.action: planning.meant(key.verb, self.state) for key in keys.verbs()}
            words |= {action: verb for action, verb in meant.items() if f"'{verb}'" not in action}
            elsewhere = {action for action, verb in meant.items() if not self._is_for(verb)}
            without = self.without() | elsewhere | (OF_TASKS if self._on_problems else set())
            hints = _weighed(keys.hints(keys.LIST, grey, without, words), self.size.width)
            if self._types:
                hints = TYPING
            self._hinted = grounds, present.hint_lines(hints, self.size.width)
        return self._hinted[1].copy()

    def _paint_hints(self) -> None:
        rows = self._hint_rows()
        if far := self._progress():
            rows[0] = present.cut(far, self.size.width)
        if self._said[0]:
            rows[0] = present.cut(((f" {self._said[0]}", "warning"),), self.size.width)
        self._hints.show(rows)

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator, in the first hint line, for a few seconds."""
        self._said = (shown(text), self._clock())
        self._paint_hints()


def orders(state: State) -> dict[str, tuple[str, str]]:
    """What a tab can be ordered by: by a letter, its name and its order in the index."""
    _, _, when = present.WHEN.get(state, ("", None, ""))
    times = {"w": ({"due": "when due", "since": "how long in work", "died": "when it died"}, when)}
    named = {key: (names[order], order) for key, (names, order) in times.items() if order}
    return {
        **{"i": ("id", "id"), "k": ("kind", "kind"), "a": ("age", "created")},
        **{"t": ("tries", "attempts"), **named, "e": ("error", "error")},
        **{"d": ("description", "description"), "m": ("destination", "destination")},
    }


def _weighed(hints: Sequence[keys.Hint], width: int) -> tuple[keys.Hint, ...]:
    """The hints, of which those that act on what is shown stay the longest where not all fit."""
    acts = {key.shown for key in keys.verbs()}
    look = {key.shown for key in keys.on(keys.LIST) if key.action in TO_LOOK}
    told = tuple(h._replace(minor=h.minor and (h.grey or h.shown not in acts)) for h in hints)
    least = [hint for hint in told if not hint.minor]
    third = present.hint_lines(least, width, 3)[2]
    if not any(text.strip() for text, _ in third):
        return told
    return tuple(hint._replace(minor=hint.shown in look) for hint in least)


def _scope_words(scope: present.Scope, planned: int) -> str:
    if scope.everything:
        return f"all {planned:,} that matched when it was made"
    if scope.marked:
        out = max(0, scope.hidden + scope.marked - planned)
        hidden = f", {out:,} hidden or gone ones not included" if out else ""
        return f"{planned:,} marked{hidden}"
    return f"row {scope.row}"
