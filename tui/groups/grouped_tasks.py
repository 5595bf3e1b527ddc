"""Base of the screens whose rows are groups of tasks: read them, filter by one, plan for one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, TypeVar

from textual import work

from engine.index import filter_language
from engine.index.filter_language import BadFilter, Filter
from engine.index.schema import Query
from engine.model import State, Task
from engine.store import Unavailable
from engine.text.safe import safe_line, state_name
from tui.plan.acting_screen import PlanningScreen
from tui.plan.planning import VerbRequest, hint_words, verb_in_state, verbs_elsewhere
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys, task_row
from tui.text.export import ExportTable, RowSink
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.picker import Picker

G = TypeVar("G")

MAX_TASKS = 50
"""Tasks of the group under the cursor that are listed."""

CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before the tasks of its group are read."""

READ_COST_FACTOR = 5
"""Minimum pause between reads, as a multiple of their duration."""


class GroupReader(PlanningScreen, ListScreen, Generic[G]):
    """The groups, and some tasks of the one under the cursor, updated while visible."""

    NOUN = "group"

    aim = ""
    """Key of the group on which the cursor is put when it appears."""

    def __init__(self, session: PlaceSession, context: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__(session, context)
        self._query = query
        self.hint_words = hint_words(session.inspector.edges, query.state)
        self._groups: Sequence[G] = ()
        self._tasks: tuple[str, tuple[Task, ...]] = ("", ())
        """The key of a group, and some of its tasks."""
        self.is_known = False
        """True if the groups are those of the place: they were read, and it can be reached."""

    async def read_groups(self) -> Sequence[G]:
        """Read the groups, in the order of their rows.

        Raises:
            Unavailable: the place was closed.
        """
        raise NotImplementedError

    async def read_more(self, group: G) -> None:
        """Read what else the details of a group show; raises as `read_groups`."""

    def key_of(self, group: G) -> str:
        """Key of a group's row."""
        raise NotImplementedError

    def term_of(self, group: G) -> Filter:
        """The filter that a group's tasks match, without that of the task list."""
        raise NotImplementedError

    def target_state(self, group: G) -> State | None:
        """The state of the listed tasks of a group, and the tab that Enter opens."""
        return self._query.state

    def on_mount(self) -> None:
        """Start reading."""
        self.start_reading()

    def start_reading(self) -> None:
        """Read the groups now, and again when what they depend on changes."""
        self.run_worker(self._follow(), name="groups", group="groups", exclusive=True)

    async def _follow(self) -> None:
        grounds: tuple[object, ...] = ()
        while True:
            before, grounds = grounds, self.input_version()
            if grounds != before:
                began = asyncio.get_running_loop().time()
                try:
                    self._groups = await self.read_groups()
                except Unavailable:
                    return  # closed: the console is being left
                self.is_known = not self.session.inspector.latest.unavailable
                self.paint()
                self._read_tasks()
                await asyncio.sleep(READ_COST_FACTOR * (asyncio.get_running_loop().time() - began))
            await self.session.wait_for_readings()

    def input_version(self) -> tuple[object, ...]:
        """What the groups depend on: index generation, log events, minute, reachability."""
        session, latest = self.session, self.session.inspector.latest
        minute = int(session.clock() // 60)
        return latest.generation, session.events(), minute, latest.unavailable

    def empty_words(self, otherwise: str) -> Line:
        """Why no group is under the cursor; `otherwise` if none."""
        if why := self.session.inspector.latest.unavailable:
            return (("   ? ", "unknown"), (f"unavailable: {safe_line(why)}", "error"))
        return (
            (f"   {self.no_row_reason(otherwise) if self.is_known else 'loading ...'}", "muted"),
        )

    def on_picker_cursor_moved(self) -> None:
        """Read the tasks of the group under the cursor."""
        self._read_tasks()

    @work(exclusive=True, group="tasks")
    async def _read_tasks(self) -> None:
        """Read the latest tasks of the group under the cursor."""
        await asyncio.sleep(CURSOR_REST_SECONDS)
        if (selected := self.selected_group) is None:
            return
        state = self.target_state(selected)
        order = "died" if state is State.DEAD else "created"
        query = self.query_of(selected)._replace(state=state, order=order, descending=True)
        try:
            window = await self.session.inspector.queries.window(query, 0, MAX_TASKS)
            await self.read_more(selected)
        except Unavailable:
            return  # its line says why
        self._tasks = self.key_of(selected), window.tasks
        self.paint()

    @property
    def selected_group(self) -> G | None:
        """The group under the cursor."""
        key = self.selected_key
        return next((group for group in self._groups if self.key_of(group) == key), None)

    def query_of(self, group: G) -> Query:
        """The tasks of a group that a verb acts on: those of the task list."""
        filter, term = self._query.filter, self.term_of(group)
        if term.text in (clause.text for clause in filter.clauses):
            return self._query
        return self._query._replace(filter=filter.narrow(term))


class GroupActions(GroupReader[G]):
    """The keys on a group: verbs, and Enter for its tasks."""

    def scope_words(self, group: G) -> str:
        """The scope of a plan for a group."""
        raise NotImplementedError

    def count_of(self, group: G) -> int:
        """Number of tasks of a group that a verb acts on."""
        raise NotImplementedError

    def values_of(self, groups: Sequence[G]) -> list[Mapping[str, object]]:
        """Groups for JSON and export; times in epoch seconds UTC."""
        raise NotImplementedError

    def row_of(self, group: G) -> Line:
        """The row of a group, for copying."""
        raise NotImplementedError

    def show_rows(self, head: Line, rows: Sequence[Choice], foot: Sequence[Line] = ()) -> None:
        """Show the rows of the groups between these lines."""
        picker = self.query_one(Picker)
        picker.show_rows(rows, [head], foot)
        if self.aim in [row.key for row in rows]:
            picker.select_key(self.aim)
            self.aim = ""

    def trail(self) -> tuple[str, ...]:
        """The place, the state that verbs act on, and the screen."""
        return (self.session.name, self.state_word, self.KIND)

    @property
    def state_word(self) -> str:
        """Word for the state that verbs act on."""
        state = self._query.state
        return state_name(self.session.inspector.states.get(state, "") if state else "all")

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the hints of the verbs of these tasks; those that are refused now are grey."""
        state = self._query.state
        refused = {key.action for key in keys.verb_keys() if self.verb_refusal(key.verb, state)}
        super().show_hints({*grey, *refused})

    def without(self) -> set[str]:
        """Hide the verbs for tasks in other states."""
        state, edges = self._query.state, self.session.inspector.edges
        elsewhere = set() if state is None else verbs_elsewhere(edges, state)
        return super().without() | elsewhere

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """All tasks of the group under the cursor."""
        selected, state = self.selected_group, self._query.state
        if selected is None:
            return self.no_row_reason(f"no {self.NOUN} selected")
        if refusal := self.verb_refusal(verb, state):
            return refusal + self.other_verbs(state)
        if not self.count_of(selected):
            return f"no task of this {self.NOUN} in {self.state_word}"
        words = self.scope_words(selected)
        verb = verb_in_state(verb, state, self.session.inspector.edges)
        return VerbRequest(verb, None, self.query_of(selected), lambda _: words)

    def action_open(self) -> None:
        """Open the task list filtered for the group under the cursor."""
        selected = self.selected_group
        if selected is None:
            self.say(self.no_row_reason(f"no {self.NOUN} to open"))
            return
        known, text = self.session.inspector, self.query_of(selected).filter.text
        if safe_line(text) != text:
            self.say("list not opened: no filter can be typed for control characters")
            return
        try:
            filter_language.parse_filter(text, known.states, self.context.clock(), known.words)
        except BadFilter as error:
            self.say(f"list not opened: {error.message} with the {self.NOUN}")
            return
        self.go(Target(keys.LIST, state=self.target_state(selected), filter=text))

    def copies(self) -> tuple[Copy, ...]:
        """The group under the cursor."""
        selected = self.selected_group
        if selected is None:
            return ()
        (values,) = self.values_of([selected])
        line = "".join(text for text, _ in self.row_of(selected)).strip()
        return (
            Copy("i", "name", self.key_of(selected)),
            Copy("r", "row", line),
            Copy("j", "JSON", task_row.json_line(values).strip()),
        )

    def export_table(self) -> ExportTable | None:
        """Export: all groups."""
        values = self.values_of(self._groups)

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        columns = tuple(values[0]) if values else ()
        return ExportTable(f"{self.NOUN}s", columns, hand) if values else None
