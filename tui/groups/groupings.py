"""A place's tasks by queue, kind, group or destination, and by rings of queues; its error clusters,
and whether they still happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.index.error_clusters import count_deaths
from engine.index.filter_language import Filter, equality_filter
from engine.index.group_counts import FILTER_FIELDS, TaskGroup
from engine.index.schema import Query
from engine.model import State, Task
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line, state_name
from tui.groups import cluster_lines
from tui.groups import group_lines as view
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.groups.parts import GroupParts
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, fit_text
from tui.text.styles import STILL_LOOKS
from tui.text.table import Choice, ShownRows


class TaskGroups(GroupParts[TaskGroup]):
    """One row for each group, with its tasks in all states; verbs act on those in one state."""

    noun, none = "group", "no tasks match"
    by = ""
    """The grouping that was chosen; "" for the default one."""
    _latest = GroupsRead()

    @property
    def _title(self) -> str:
        by = self._latest.table.by
        return self.session.place.group_titles.get(by, by)

    def turn(self, step: int) -> None:
        """Choose the previous or next grouping."""
        offered = self._latest.table.groupings
        self.by = offered[(offered.index(self._latest.table.by) + step) % len(offered)]

    async def read(self) -> Sequence[TaskGroup]:
        """The groups of all tasks that match the filter, in any state."""
        query, state = self.query._replace(state=None, order="id"), self.query.state
        query, self.notice = query._replace(descending=False), ""
        latest = await read_groups(self.session, query, self.by, state)
        if latest.table.by not in latest.table.groupings:
            latest = await read_groups(self.session, query, "", state)
            self.notice = f"{view.no_values(self.by)}: by {latest.table.by}"
        self._latest, self.by = latest, latest.table.by
        return latest.table.groups

    def version(self) -> tuple[object, ...]:
        """Index generation, time and grouping; the logs do not matter."""
        seconds = 60 if self.session.place.groups is None else 10
        turn = int(self.session.clock() // seconds)
        return self.session.inspector.latest.generation, turn, self.by

    def key_of(self, group: TaskGroup) -> str:
        """Grouping and name: a group of another grouping may have the same name."""
        return f"{self._latest.table.by}={group.name}"

    def term_of(self, group: TaskGroup) -> Filter:
        if queues := self._latest.ring_queues:
            return equality_filter("queue", *queues.get(group.name, [group.name]))
        return equality_filter(FILTER_FIELDS[self._latest.table.by], group.name)

    def target_state(self, group: TaskGroup) -> State | None:
        """The state that verbs act on, or the largest one if the group has no task in that."""
        state = self.query.state
        if state is not None and group.count(state):
            return state
        return max(self.session.inspector.states, key=group.count, default=None)

    def count_of(self, group: TaskGroup) -> int:
        return group.count(self.query.state)

    def scope_words(self, group: TaskGroup) -> str:
        return f"all in this group: {self._title} {view.name_of(group.name)}"

    def rows_frame(self) -> Frame:
        table, text = self._latest.table, self.query.filter.text
        amount = f"{len(table.groups) + table.others:,}, tasks {table.total:,}"
        right: Line = ((f"filter {fit_text(safe_line(text), 20).strip()}  ", "key"),)
        tabs = view.tabs_line(table, self.session.place.group_titles)
        right = (*(right if text else ()), *tabs)
        return Frame("Groups", "", amount if self.is_known else UNKNOWN, right)

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
        rows = [Choice(*row) for row in zip(map(self.key_of, table.groups), lines, strict=True)]
        return ShownRows(head, rows, view.others_line(table, width))

    def details_of(self, group: TaskGroup, tasks: Sequence[Task] | None, width: int) -> list[Line]:
        now, states = self.context.clock(), self.session.inspector.states
        lines = view.detail_lines(group, states, now, width, self._latest.facts.get(group.name))
        if not tasks:
            return lines
        state = tasks[0].state
        title = f"{state_name(states[state])} {group.count(state):,}"
        limit = self.session.place.max_attempts
        return lines + view.task_lines(title, tasks, state, now=now, width=width, limit=limit)

    def step_of(self, group: TaskGroup, width: int) -> Line:
        state = self.target_state(group)
        word = state_name(self.session.inspector.states.get(state, "")) if state else ""
        amount = format_count(group.count(state), "task")
        scope = f"{self.count_of(group):,} {self.state_word} in {view.name_of(group.name)}"
        return next_line("Enter", f"shows {amount} in {word}", scope, width)

    def values_of(self, groups: Sequence[TaskGroup]) -> list[Mapping[str, object]]:
        latest, states = self._latest, self.session.inspector.states
        return view.group_values(latest.table.by, groups, states, latest.facts)


class ErrorClusters(GroupParts[CheckedCluster]):
    """The clusters and the evidence of the one under the cursor."""

    noun, none = "cluster", "no failed tasks"
    _deaths: tuple[int, ...] = ()

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

    def term_of(self, group: CheckedCluster) -> Filter:
        return equality_filter("cluster", group.cluster.mark)

    def count_of(self, group: CheckedCluster) -> int:
        return group.cluster.count

    def scope_words(self, group: CheckedCluster) -> str:
        return f"all in this cluster: {group.cluster.pattern}"

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
        return ShownRows(*cluster_lines.cluster_table(self.groups, self.context.clock(), width))

    def details_of(
        self, group: CheckedCluster, tasks: Sequence[Task] | None, width: int
    ) -> list[Line]:
        return cluster_lines.evidence_lines(
            group,
            tasks or (),
            self.context.clock(),
            width=width,
            limit=self.session.place.max_attempts,
            deaths=() if tasks is None else self._deaths,
        )

    def step_of(self, group: CheckedCluster, width: int) -> Line:
        key, does = cluster_lines.next_step(group, read_only=bool(self.verb_refusal("retry")))
        return next_line(key, does, f"{group.cluster.count:,} in {group.cluster.mark}", width)

    def values_of(self, groups: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
        return cluster_lines.cluster_values(groups)
