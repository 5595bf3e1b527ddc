"""Screen of a place's tasks by queue, kind, group or destination, and by rings of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.index.filter_language import Filter, equality_filter
from engine.index.group_counts import FILTER_FIELDS, TaskGroup
from engine.model import State
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line, state_name
from tui.groups import group_lines as view
from tui.groups.grouped_tasks import GroupActions
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.screens.base import key_bindings
from tui.text import keys
from tui.text.figures import format_count
from tui.text.hints import next_line
from tui.text.lines import Line, fit_text
from tui.text.table import Choice
from tui.widgets.line_widgets import Frame, LongText


class GroupsScreen(GroupActions[TaskGroup]):
    """One row for each group, with its tasks in all states; verbs act on those in one state."""

    KIND = keys.GROUPS
    BINDINGS = key_bindings(keys.GROUPS)

    by = ""
    """The grouping that was chosen; "" for the default one."""

    _read = GroupsRead()

    async def read_groups(self) -> Sequence[TaskGroup]:
        """The groups of all tasks that match the filter, in any state."""
        query = self._query._replace(state=None, order="id", descending=False)
        groups_read = await read_groups(self.session, query, self.by, self._query.state)
        if groups_read.table.by not in groups_read.table.groupings:
            groups_read = await read_groups(self.session, query, "", self._query.state)
            self.say(f"{view.no_values(self.by)}: by {groups_read.table.by}")
        self._read, self.by = groups_read, groups_read.table.by
        return groups_read.table.groups

    def input_version(self) -> tuple[object, ...]:
        """Also the grouping; the logs do not matter."""
        seconds = 60 if self.session.place.groups is None else 10
        return (
            self.session.inspector.latest.generation,
            int(self.session.clock() // seconds),
            self.by,
        )

    def key_of(self, group: TaskGroup) -> str:
        """Grouping and name: a group of another grouping may have the same name."""
        return f"{self._read.table.by}={group.name}"

    def term_of(self, group: TaskGroup) -> Filter:
        """The filter of a group."""
        if self._read.ring_queues:
            return equality_filter("queue", *self._read.ring_queues.get(group.name, [group.name]))
        return equality_filter(FILTER_FIELDS[self._read.table.by], group.name)

    def target_state(self, group: TaskGroup) -> State | None:
        """The state that verbs act on, or the largest one if the group has no task in that."""
        state = self._query.state
        if state is not None and group.count(state):
            return state
        return max(self.session.inspector.states, key=group.count, default=None)

    def rows_frame(self) -> Frame:
        """The frame of the groups: how many there are, of how many tasks, and the groupings."""
        table, text = self._read.table, self._query.filter.text
        amount = f"{len(table.groups) + table.others:,}, tasks {table.total:,}"
        right: Line = ((f"filter {fit_text(safe_line(text), 20).strip()}  ", "key"),)
        right = (*(right if text else ()), *view.tabs_line(table, self.session.place.group_titles))
        return Frame("Groups", "", amount if self.is_known else UNKNOWN, right)

    def text_frame(self) -> Frame:
        """The frame of the details, with the name of the group."""
        return Frame(
            "Group" if (selected := self.selected_group) is None else view.name_of(selected.name)
        )

    def lay_out(self, width: int) -> None:
        """One row per group, and the details of the one under the cursor."""
        now, states = self.context.clock(), self.session.inspector.states
        title = self.session.place.group_titles.get(self._read.table.by, "")
        table, facts, room = self._read.table, self._read.facts, self.rows_width
        head, lines = view.group_table(table, states, self._query.state, now, room, title, facts)
        rows = [
            Choice(self.key_of(one), line) for one, line in zip(table.groups, lines, strict=True)
        ]
        self.show_rows(head, rows, view.others_line(table, room))
        selected, text, width = self.selected_group, self.query_one(LongText), self.text_width
        if selected is None:
            text.show([self.empty_words("no tasks match")])
            return
        lines = view.detail_lines(selected, states, now, width, self._read.facts.get(selected.name))
        key, tasks = self._tasks
        if key == self.key_of(selected) and tasks:
            state = tasks[0].state
            title = f"{state_name(states[state])} {selected.count(state):,}"
            limit = self.session.place.max_attempts
            lines += view.task_lines(title, tasks, state, now=now, width=width, limit=limit)
        text.show(lines)

    def default_message(self) -> Line:
        """The next step for the group under the cursor, and what a key acts on."""
        selected, width = self.selected_group, self.size.width
        if selected is None:
            return next_line("Esc", "back to the tasks", "nothing", width)
        states = self.session.inspector.states
        state = self.target_state(selected)
        word = state_name(states.get(state, "")) if state else ""
        amount = format_count(selected.count(state), "task")
        scope = f"{self.count_of(selected):,} {self.state_word} in {view.name_of(selected.name)}"
        return next_line("Enter", f"shows {amount} in {word}", scope, width)

    def scope_words(self, group: TaskGroup) -> str:
        """The scope of a plan for a group."""
        title = self.session.place.group_titles.get(self._read.table.by, self._read.table.by)
        return f"all in this group: {title} {view.name_of(group.name)}"

    def count_of(self, group: TaskGroup) -> int:
        """Number of tasks of a group in the state that verbs act on."""
        return group.count(self._query.state)

    def values_of(self, groups: Sequence[TaskGroup]) -> list[Mapping[str, object]]:
        """Groups for JSON and export."""
        states, read = self.session.inspector.states, self._read
        return view.group_values(read.table.by, groups, states, read.facts)

    def row_of(self, group: TaskGroup) -> Line:
        """The row of a group, for copying."""
        states = self.session.inspector.states
        table = self._read.table
        _, lines = view.group_table(table, states, None, self.context.clock(), 160)
        return lines[table.groups.index(group)]

    def action_grouping(self, pressed: str) -> None:
        """Group by the previous or next column."""
        offered = self._read.table.groupings
        at = offered.index(self._read.table.by) + keys.step_of(pressed)
        self.by = offered[at % len(offered)]
        self.start_reading()
