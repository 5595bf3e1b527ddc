"""The parts of the screens of groups and of error clusters, without Textual: what is read, which
row has the cursor, and what a verb would act on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from engine.index.error_clusters import count_deaths
from engine.index.filter_language import Filter, equality_filter
from engine.index.group_counts import FILTER_FIELDS, TaskGroup
from engine.index.schema import Query
from engine.model import State, Task
from engine.monitor.recurrence import StillHappens
from engine.store import Unavailable
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_error, safe_line, state_name
from tui.groups import cluster_lines
from tui.groups import group_lines as view
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.plan import refusals
from tui.plan.planning import VerbRequest
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.target import Target
from tui.session.index_queries import CheckedCluster, check_clusters, failed_state, none_failed
from tui.session.place_session import PlaceSession
from tui.text import keys, task_row
from tui.text.export import ExportTable, RowSink
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, cells_of, fit_text
from tui.text.styles import STILL_LOOKS
from tui.text.table import Choice, ShownRows, mark_row

COPIED_CELLS = 160
G = TypeVar("G")

MAX_TASKS = 50
"""Tasks of the group under the cursor that are listed."""

CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before the tasks of its group are read."""

READ_COST_FACTOR, MAX_PAUSE_SECONDS = 5, 10.0
"""Minimum pause between reads, as a multiple of their duration; never longer than this."""


class GroupScreenActions(RowsActions, Protocol):
    """What only the screen can do."""

    def plan(self, asked: VerbRequest) -> None:
        """Open the plan for a verb."""


class GroupParts(RowsParts, Generic[G]):
    """The groups, and some tasks of the one under the cursor, updated while visible. A subclass
    says what the rows are: tasks with a common value, or failed tasks with the same error."""

    screen: GroupScreenActions
    noun = none = ""
    """What a row is called; said where there are no rows."""
    notice = ""
    """What the last reading could not do as asked; "" if nothing."""

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: GroupScreenActions,
        query: Query,
        aim: str = "",
    ) -> None:
        """`query` is the state and filter of the task list; the group `aim` gets the cursor."""
        super().__init__(session, context, screen, aim)
        self.query = query
        self.groups: Sequence[G] = ()
        self._tasks: tuple[str, tuple[Task, ...]] = ("", ())
        """The key of a group, and some of its tasks."""
        self.marks: frozenset[str] = frozenset()
        """Keys of the marked groups: verbs act on these, without marks on the one selected."""
        self.is_known = False
        """True if the groups are those of the place: they were read, and it can be reached."""

    # What the rows are

    def version(self) -> tuple[object, ...]:
        """What the groups depend on; they are read again when it changes."""
        raise NotImplementedError

    async def read(self) -> Sequence[G]:
        """Read the groups, in the order of their rows.

        Raises:
            Unavailable: the place was closed.
        """
        raise NotImplementedError

    async def read_more(self, group: G, query: Query) -> None:
        """Read what else the details of a group show; raises as `read`."""

    def key_of(self, group: G) -> str:
        """Key of a group's row."""
        raise NotImplementedError

    def term_of(self, groups: Sequence[G]) -> Filter:
        """The filter that the tasks of some groups match, without that of the task list."""
        raise NotImplementedError

    def target_state(self, group: G) -> State | None:
        """The state of the listed tasks of a group, and the tab that Enter opens."""
        return self.query.state

    def count_of(self, group: G) -> int:
        """Number of tasks of a group that a verb acts on."""
        raise NotImplementedError

    def scope_words(self, groups: Sequence[G]) -> str:
        """The scope of a plan for some groups."""
        raise NotImplementedError

    def has_stopped(self, group: G) -> bool:
        """True if a group's error is known to have stopped."""
        return False

    def details_of(self, group: G, tasks: Sequence[Task] | None, width: int) -> list[Line]:
        """The details of a group, with some of its tasks; None: not read yet."""
        raise NotImplementedError

    def step_of(self, group: G, width: int) -> Line:
        """The next step for a group, and what a key acts on."""
        raise NotImplementedError

    def values_of(self, groups: Sequence[G]) -> list[Mapping[str, object]]:
        """Groups for JSON and export; times in epoch seconds UTC."""
        raise NotImplementedError

    # What is read

    def start(self) -> None:
        self.screen.run("groups", self.follow)

    def cursor_moved(self) -> Change:
        self.screen.run("tasks", self.read_tasks)
        return Change.ROWS

    async def follow(self) -> Change:
        """Read the groups now, and again when what they depend on changes.

        Raises:
            Unavailable: the place was closed.
        """
        grounds: tuple[object, ...] = ()
        tallies = self.session.inspector.tallies
        while True:
            before, grounds, old_answers = grounds, self.version(), tallies.old_answers
            if grounds != before:
                began = asyncio.get_running_loop().time()
                self.groups = await self.read()
                if tallies.old_answers != old_answers:
                    grounds = ()  # read before the last change: ask again
                if self.notice:
                    self.say(self.notice)
                self.is_known = not self.session.inspector.latest.unavailable
                self.screen.show_change(Change.ROWS)
                self.screen.run("tasks", self.read_tasks)
                took = asyncio.get_running_loop().time() - began
                await asyncio.sleep(min(READ_COST_FACTOR * took, MAX_PAUSE_SECONDS))
            await self.session.wait_for_readings()

    async def read_tasks(self) -> Change:
        """Read the latest tasks of the group under the cursor, once that rests."""
        await asyncio.sleep(CURSOR_REST_SECONDS)
        if (selected := self.selected) is None:
            return Change.NOTHING
        state = self.target_state(selected)
        order = "died" if state is State.DEAD else "created"
        query = self.query_of([selected])
        listed = query._replace(state=state, order=order, descending=True)
        try:
            window = await self.session.inspector.queries.window(listed, 0, MAX_TASKS)
            await self.read_more(selected, query)
        except Unavailable:
            return Change.NOTHING  # its line says why
        self._tasks = self.key_of(selected), window.tasks
        return Change.ROWS

    # What is under the cursor

    @property
    def selected(self) -> G | None:
        """The group under the cursor."""
        key = self.screen.cursor.key
        return next((group for group in self.groups if self.key_of(group) == key), None)

    @property
    def chosen(self) -> Sequence[G]:
        """The groups that a verb acts on: the marked ones that are still there; without marks the
        one under the cursor."""
        if self.marks:
            return [group for group in self.groups if self.key_of(group) in self.marks]
        return [] if self.selected is None else [self.selected]

    @property
    def why_no_rows(self) -> str:
        """Why no row is shown."""
        return self.none

    @property
    def why_none(self) -> str:
        """Why there is no group to act on."""
        if self.marks:
            return f"the marked {self.noun}s have left: \\ clears the marks"
        return self.no_row_reason(f"no {self.noun} selected")

    def mark(self) -> Change:
        """Mark the group under the cursor, or take its mark away; the cursor moves on."""
        if self.selected is None:
            return self.say(self.no_row_reason(f"no {self.noun} to mark"))
        self.marks ^= {self.key_of(self.selected)}
        return self.move("down") | Change.ROWS

    def mark_stopped(self) -> Change:
        """Mark all groups whose error has stopped."""
        stopped = frozenset(self.key_of(one) for one in self.groups if self.has_stopped(one))
        if not stopped:
            return self.say(f"no {self.noun} is known to have stopped")
        self.marks = stopped
        return Change.ROWS

    def plan_applied(self) -> None:
        self.unmark()  # they did what they were for; their groups may stay, with other tasks

    def unmark(self) -> Change:
        """Take all marks away."""
        self.marks = frozenset()
        return Change.ROWS

    def query_of(self, groups: Sequence[G]) -> Query:
        """The tasks of some groups that a verb acts on: those of the task list."""
        filter, term = self.query.filter, self.term_of(groups)
        if term.text in (clause.text for clause in filter.clauses):
            return self.query
        return self.query._replace(filter=filter.narrow(term))

    @property
    def verb_state(self) -> State | None:
        return self.query.state

    @property
    def verb_amount(self) -> tuple[int, bool]:
        return sum(map(self.count_of, self.chosen)), False

    @property
    def is_empty(self) -> bool:
        """True if all tasks are read, and no group has any, also none that is marked."""
        is_read = self.is_known and self.session.inspector.latest.is_complete
        return is_read and not self.groups and not self.marks

    def verb_refusal(self, verb: str) -> str:
        refused = refusals.verb_refusal(self.session, self.context, verb, self.query.state)
        return refused or refusals.NO_TASK * self.is_empty

    # What is shown

    @property
    def why_old(self) -> str:
        latest = self.session.inspector.latest
        return latest.unavailable or ("" if latest.is_complete else "first scan running")

    @property
    def state_word(self) -> str:
        """Word for the state that verbs act on."""
        state = self.query.state
        return state_name(self.session.inspector.states.get(state, "") if state else "all")

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, self.state_word, f"{self.noun}s")

    def next_step(self, width: int) -> Line:
        if self.marks:
            chosen = self.chosen
            amount = format_count(sum(map(self.count_of, chosen)), "task")
            left = len(self.marks) - len(chosen)
            scope = f"{amount} in {format_count(len(chosen), f'marked {self.noun}')}"
            scope += f"; {left:,} have left" if left else ""
            if self.query.state is State.DEAD and chosen and all(map(self.has_stopped, chosen)):
                return next_line("R", f"replays {amount}: these errors have stopped", scope, width)
            return next_line("\\", "clears the marks", scope, width)
        if (selected := self.selected) is None:
            return next_line("Esc", "back to the tasks", "nothing", width)
        if why := self.why_old:
            mark = f" {UNKNOWN} {safe_line(why)} "
            return ((mark, "unknown"), *self.step_of(selected, width - cells_of(mark)))
        return self.step_of(selected, width)

    def choices(self, lines: Sequence[Line]) -> list[Choice]:
        """The rows of the groups, with a sign at those that are marked."""
        keys = [self.key_of(group) for group in self.groups]
        return [
            Choice(key, mark_row(line) if key in self.marks else line)
            for key, line in zip(keys, lines, strict=True)
        ]

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is not None:
            key, tasks = self._tasks
            is_read = key == self.key_of(selected)
            return self.details_of(selected, tasks if is_read else None, width)
        if why := self.session.inspector.latest.unavailable:
            return [(("   ? ", "unknown"), (f"unavailable: {safe_line(why)}", "error"))]
        words = self.no_row_reason(self.why_no_rows) if self.is_known else "loading ..."
        return [((f"   {words}", "muted"),)]

    # What an operator takes from it

    def copies(self) -> tuple[Copy, ...]:
        if (selected := self.selected) is None:
            return ()
        key, (values,) = self.key_of(selected), self.values_of([selected])
        rows = self.rows(COPIED_CELLS).rows
        line = next(row.line for row in rows if row.key == key)
        return (
            Copy("i", "name", key),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(values).strip()),
        )

    def export_table(self) -> ExportTable | None:
        values = self.values_of(self.groups)

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        columns = tuple(values[0]) if values else ()
        return ExportTable(f"{self.noun}s", columns, hand) if values else None


class TaskGroups(GroupParts[TaskGroup]):
    """One row for each group, with its tasks in all states; verbs act on those in one state."""

    noun, none = "group", "no tasks match"
    _latest = GroupsRead()
    _legend = ""

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: GroupScreenActions,
        query: Query,
        aim: str = "",
    ) -> None:
        super().__init__(session, context, screen, query, aim)
        self.by = aim.partition("=")[0]
        """The grouping that was chosen; "" for the default one."""
        self._is_turned = False

    @property
    def _title(self) -> str:
        by = self._latest.table.by
        return self.session.place.group_titles.get(by, by)

    def turn(self, step: int) -> None:
        """Choose the previous or next grouping."""
        offered = self._latest.table.groupings
        self.by = offered[(offered.index(self._latest.table.by) + step) % len(offered)]
        self._is_turned = True

    async def read(self) -> Sequence[TaskGroup]:
        """The groups of all tasks that match the filter, in any state."""
        query, state = self.query._replace(state=None, order="id"), self.query.state
        query, self.notice = query._replace(descending=False), ""
        latest = await read_groups(self.session, query, self.by, state)
        if latest.table.by not in latest.table.groupings:
            latest = await read_groups(self.session, query, "", state)
            self.notice = f"{view.no_values(self.by)}: by {latest.table.by}"
        self._latest, self.by = latest, latest.table.by
        if self._is_turned and latest.table.groups:  # no row of the grouping before is here
            self.aim, self._is_turned = self.key_of(latest.table.groups[0]), False
        return latest.table.groups

    def version(self) -> tuple[object, ...]:
        """Index generation, time and grouping; the logs do not matter."""
        seconds = 60 if self.session.place.groups is None else 10
        turn = int(self.session.clock() // seconds)
        return self.session.inspector.latest.generation, turn, self.by

    def key_of(self, group: TaskGroup) -> str:
        """Grouping and name: a group of another grouping may have the same name."""
        return f"{self._latest.table.by}={group.name}"

    def term_of(self, groups: Sequence[TaskGroup]) -> Filter:
        names = [group.name for group in groups]
        if queues := self._latest.ring_queues:
            rings = (queues.get(name, [name]) for name in names)
            return equality_filter("queue", *(queue for ring in rings for queue in ring))
        return equality_filter(FILTER_FIELDS[self._latest.table.by], *names)

    def target_state(self, group: TaskGroup) -> State | None:
        """The state that verbs act on, or the largest one if the group has no task in that."""
        state = self.query.state
        if state is not None and group.count_tasks(state):
            return state
        return max(self.session.inspector.states, key=group.count_tasks, default=None)

    def count_of(self, group: TaskGroup) -> int:
        return group.count_tasks(self.query.state)

    def scope_words(self, groups: Sequence[TaskGroup]) -> str:
        these = "this group" if len(groups) == 1 else f"these {len(groups):,} groups"
        return f"all in {these}: {self._title} {', '.join(view.name_of(g.name) for g in groups)}"

    def rows_frame(self) -> Frame:
        table, text = self._latest.table, self.query.filter.text
        amount = f"{len(table.groups) + table.others:,}, {table.unit} {table.total:,}"
        right: Line = ((f"filter {fit_text(safe_line(text), 20).strip()}  ", "key"),)
        tabs = view.tabs_line(table, self.session.place.group_titles)
        right = (*(right if text else ()), *tabs)
        return Frame("Groups", "", amount if self.is_known else UNKNOWN, right, self._legend)

    def details_frame(self, below: int) -> Frame:
        group = self.selected
        return Frame("Group" if group is None else view.name_of(group.name))

    def rows(self, width: int) -> ShownRows:
        table, facts, _ = self._latest
        head, lines = view.group_table(
            table,
            self.session.inspector.states,
            self.query.state,
            self.context.clock(),
            width,
            title=self._title,
            facts=facts,
        )
        self._legend = view.bar_legend(head, self.session.inspector.states)
        rows = self.choices(lines)
        below = view.others_line(table, width)
        return ShownRows(head, rows, below + view.unread_line(table, self.session.place, width))

    def details_of(self, group: TaskGroup, tasks: Sequence[Task] | None, width: int) -> list[Line]:
        now, states = self.context.clock(), self.session.inspector.states
        lines = view.detail_lines(group, states, now, width, self._latest.facts.get(group.name))
        if not tasks:
            return lines
        state = tasks[0].state
        title = f"{state_name(states[state])} {group.count_tasks(state):,}"
        limit = self.session.place.max_attempts
        return lines + view.task_lines(title, tasks, state, now=now, width=width, limit=limit)

    def step_of(self, group: TaskGroup, width: int) -> Line:
        state = self.target_state(group)
        word = state_name(self.session.inspector.states.get(state, "")) if state else ""
        amount = format_count(group.count_tasks(state), "task")
        scope = f"{self.count_of(group):,} {self.state_word} in {view.name_of(group.name)}"
        return next_line("Enter", f"shows {amount} in {word}", scope, width)

    def values_of(self, groups: Sequence[TaskGroup]) -> list[Mapping[str, object]]:
        latest, states = self._latest, self.session.inspector.states
        return view.group_values(latest.table, groups, states, latest.facts)


class ErrorClusters(GroupParts[CheckedCluster]):
    """The clusters and the evidence of the one under the cursor."""

    noun, none = "cluster", "no failed tasks"
    _deaths: tuple[int, ...] = ()

    @property
    def why_no_rows(self) -> str:
        """That none failed, or none with an error; beside a state without, how many have."""
        session, state = self.session, self.query.state
        dead, states = session.inspector.latest.counts.get(State.DEAD, 0), session.inspector.states
        if self.query.filter or not dead:
            return none_failed(self.none, None if self.query.filter else self.context.totals())
        if state in (None, State.DEAD):
            return f"{format_count(dead, 'task')} failed without an error: 4 lists them"
        here, there = (state_name(states.get(one, one)) for one in (state, State.DEAD))
        return f"none in {here}; {dead:,} in {there}: 4, then c"

    def to_place(self, step: int) -> Change:
        """Go to the failed tasks of the place before or after this one."""
        number = (self.session.number - 1 + step) % self.context.places + 1
        is_failed = self.query.state is failed_state(self.session)
        self.screen.go(Target(keys.CLUSTERS, number, State.DEAD if is_failed else self.query.state))
        return Change.NOTHING

    def version(self) -> tuple[object, ...]:
        session, latest = self.session, self.session.inspector.latest
        minute = int(session.clock() // 60)
        return latest.generation, session.events(), minute, latest.unavailable

    async def read(self) -> Sequence[CheckedCluster]:
        return await check_clusters(self.session, self.query)

    async def read_more(self, group: CheckedCluster, query: Query) -> None:
        now, none = self.context.clock(), tuple[int, ...]()
        key = ("deaths", query, int(now // 60))
        self._deaths = await self.session.inspector.tallies.ask(
            key, lambda reader: count_deaths(reader, query, now, cluster_lines.DEATHS_MINUTES), none
        )

    def key_of(self, group: CheckedCluster) -> str:
        return group.cluster.mark

    def term_of(self, groups: Sequence[CheckedCluster]) -> Filter:
        return equality_filter("cluster", *(group.cluster.mark for group in groups))

    def has_stopped(self, group: CheckedCluster) -> bool:
        return group.now.answer is StillHappens.NO

    def count_of(self, group: CheckedCluster) -> int:
        return group.cluster.count

    def scope_words(self, groups: Sequence[CheckedCluster]) -> str:
        if len(groups) == 1:
            return f"all in this cluster: {safe_error(groups[0].cluster.pattern)}"
        return f"all in {', '.join(group.cluster.mark for group in groups)}"

    def rows_frame(self) -> Frame:
        failed = sum(judged.cluster.count for judged in self.groups)
        amount = f"{len(self.groups):,}, failed {failed:,}" if self.is_known else UNKNOWN
        text = self.query.filter.text
        right: Line = ((f"filter {safe_line(text)}   ", "key"),) if text else ()
        return Frame("Clusters", "4", amount, (*right, ("order: count", "muted")))

    def details_frame(self, below: int) -> Frame:
        if (group := self.selected) is None:
            return Frame("Evidence")
        still = (group.now.text, STILL_LOOKS[group.now.answer])
        return Frame(group.cluster.mark, right=(("STILL? ", "muted"), still))

    def rows(self, width: int) -> ShownRows:
        head, rows = cluster_lines.cluster_table(self.groups, self.context.clock(), width)
        return ShownRows(head, self.choices([row.line for row in rows]))

    def details_of(
        self, group: CheckedCluster, tasks: Sequence[Task] | None, width: int
    ) -> list[Line]:
        return cluster_lines.evidence_lines(
            group,
            tasks or (),
            self.context.clock(),
            width=width,
            state=self.query.state,
            limit=self.session.place.max_attempts,
            deaths=() if tasks is None else self._deaths,
        )

    def step_of(self, group: CheckedCluster, width: int) -> Line:
        key, does = cluster_lines.next_step(group, read_only=bool(self.verb_refusal("retry")))
        return next_line(key, does, f"{group.cluster.count:,} in {group.cluster.mark}", width)

    def values_of(self, groups: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
        return cluster_lines.cluster_values(groups)
