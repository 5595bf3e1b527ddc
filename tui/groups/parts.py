"""The parts of the screens of groups and of error clusters, without Textual: what is read, which
row has the cursor, and what a verb would act on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from engine.index.filter_language import Filter
from engine.index.schema import Query
from engine.model import State, Task
from engine.store import Unavailable
from engine.text.safe import safe_line, state_name
from tui.plan import refusals
from tui.plan.planning import VerbRequest
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.session.place_session import PlaceSession
from tui.text import task_row
from tui.text.export import ExportTable, RowSink
from tui.text.hints import next_line
from tui.text.lines import Line

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

    def term_of(self, group: G) -> Filter:
        """The filter that a group's tasks match, without that of the task list."""
        raise NotImplementedError

    def target_state(self, group: G) -> State | None:
        """The state of the listed tasks of a group, and the tab that Enter opens."""
        return self.query.state

    def count_of(self, group: G) -> int:
        """Number of tasks of a group that a verb acts on."""
        raise NotImplementedError

    def scope_words(self, group: G) -> str:
        """The scope of a plan for a group."""
        raise NotImplementedError

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
        while True:
            before, grounds = grounds, self.version()
            if grounds != before:
                began = asyncio.get_running_loop().time()
                self.groups = await self.read()
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
        query = self.query_of(selected)
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

    def query_of(self, group: G) -> Query:
        """The tasks of a group that a verb acts on: those of the task list."""
        filter, term = self.query.filter, self.term_of(group)
        if term.text in (clause.text for clause in filter.clauses):
            return self.query
        return self.query._replace(filter=filter.narrow(term))

    @property
    def verb_state(self) -> State | None:
        return self.query.state

    def verb_refusal(self, verb: str) -> str:
        return refusals.verb_refusal(self.session, self.context, verb, self.query.state)

    # What is shown

    @property
    def state_word(self) -> str:
        """Word for the state that verbs act on."""
        state = self.query.state
        return state_name(self.session.inspector.states.get(state, "") if state else "all")

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, self.state_word, f"{self.noun}s")

    def next_step(self, width: int) -> Line:
        if (selected := self.selected) is None:
            return next_line("Esc", "back to the tasks", "nothing", width)
        return self.step_of(selected, width)

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is not None:
            key, tasks = self._tasks
            is_read = key == self.key_of(selected)
            return self.details_of(selected, tasks if is_read else None, width)
        if why := self.session.inspector.latest.unavailable:
            return [(("   ? ", "unknown"), (f"unavailable: {safe_line(why)}", "error"))]
        words = self.no_row_reason(self.none) if self.is_known else "loading ..."
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
