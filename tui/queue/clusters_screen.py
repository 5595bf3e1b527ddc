"""Screen of a place's error clusters, and whether they still happen."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from textual import work

from engine.index import filter_language
from engine.index.error_clusters import count_deaths
from engine.index.filter_language import BadFilter, Filter
from engine.index.schema import Query
from engine.model import Task
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.format import keys, present, task_row
from tui.format.export import ExportTable, RowSink
from tui.format.present import Line
from tui.plan.acting_screen import PlanningScreen
from tui.plan.planning import VerbRequest
from tui.queue import cluster_lines as view
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.widgets.lines import Frame, LongText
from tui.widgets.picker import Picker

MAX_TASKS = 50
"""Tasks of the cluster under the cursor that are listed."""

CURSOR_REST_SECONDS = 0.15
"""Seconds that the cursor must rest before the tasks of its cluster are read."""

READ_COST_FACTOR = 5
"""Minimum pause between reads, as a multiple of their duration."""


class ClusterList(PlanningScreen, ListScreen):
    """The clusters and the evidence of the one under the cursor, updated while visible."""

    aim = ""
    """Cluster on which the cursor is put when it appears."""

    def __init__(self, live: PlaceSession, around: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__(live, around)
        self._query = query
        self._clusters: tuple[CheckedCluster, ...] = ()
        self._tasks: tuple[str, tuple[Task, ...], tuple[int, ...]] = ("", (), ())
        """The mark of a cluster, some of its tasks, and its deaths over time."""
        self._asked = False

    def on_mount(self) -> None:
        """Start reading; repeat when the tasks, the logs or the minute change."""
        self.run_worker(self._follow(), name="clusters")

    async def _follow(self) -> None:
        grounds: tuple[object, ...] = ()
        while True:
            before, grounds = grounds, self._input_version()
            if grounds != before:
                began = asyncio.get_running_loop().time()
                try:
                    self._clusters = await check_clusters(self.live, self._query)
                except Unavailable:
                    return  # closed: the console is being left
                self._asked = True
                self.paint()
                self._read_tasks()
                await asyncio.sleep(READ_COST_FACTOR * (asyncio.get_running_loop().time() - began))
            await self.live.wait_for_readings()

    def _input_version(self) -> tuple[object, ...]:
        """Input of the evaluation: index generation, log events, minute."""
        live = self.live
        return live.inspector.latest.generation, live.events(), int(live.clock() // 60)

    def trail(self) -> tuple[str, ...]:
        """The place and its state."""
        state = self._query.state
        word = self.live.inspector.states.get(state, "") if state else "all"
        return (self.live.name, present.state_name(word), "clusters")

    def rows_frame(self) -> Frame:
        """The frame of the clusters: how many there are, and of how many tasks."""
        failed = sum(judged.cluster.count for judged in self._clusters)
        amount = f"{len(self._clusters):,}, failed {failed:,}" if self._asked else "?"
        text = self._query.filter.text
        right: Line = ((f"filter {safe_line(text)}   ", "key"),) if text else ()
        return Frame("Clusters", "4", amount, (*right, ("order: count", "muted")))

    def text_frame(self) -> Frame:
        """The frame of the evidence, with the answer."""
        if (here := self._here) is None:
            return Frame("Evidence")
        still = (here.now.text, present.STILL_LOOKS[here.now.answer])
        return Frame(here.cluster.mark, right=(("STILL? ", "muted"), still))

    def on_picker_cursor_moved(self) -> None:
        """Read the tasks of the cluster under the cursor."""
        self._read_tasks()

    @work(exclusive=True, group="tasks")
    async def _read_tasks(self) -> None:
        """Read the latest tasks of the cluster under the cursor."""
        await asyncio.sleep(CURSOR_REST_SECONDS)
        if (here := self._here) is None:
            return
        filter = self._cluster_filter(here)
        query = self._query._replace(filter=filter, order="died", descending=True)
        try:
            known, now = self.live.inspector, self.around.clock()
            window = await known.queries.window(query, 0, MAX_TASKS)
            none: tuple[int, ...] = ()
            key = ("deaths", query, int(now // 60))
            deaths = await known.tallies.ask(
                key, lambda reader: count_deaths(reader, query, now, view.DEATHS_MINUTES), none
            )
        except Unavailable:
            return  # its line says why
        self._tasks = here.cluster.mark, window.tasks, deaths
        self.paint()

    def lay_out(self, width: int) -> None:
        """One row per cluster, and the evidence of the one under the cursor."""
        now, width = self.around.clock(), self.rows_width
        picker = self.query_one(Picker)
        picker.show_rows(view.cluster_rows(self._clusters, now, width), [view.head_line(width)])
        if self.aim in [one.cluster.mark for one in self._clusters]:
            picker.select_key(self.aim)
            self.aim = ""
        here, text = self._here, self.query_one(LongText)
        if here is None:
            nothing = self.no_row_reason("no failed tasks") if self._asked else "loading ..."
            text.show([((f"   {nothing}", "muted"),)])
            return
        mark, tasks, deaths = self._tasks
        if mark != here.cluster.mark:
            tasks, deaths = (), ()
        limit = self.live.place.max_attempts
        text.show(view.evidence_lines(here, tasks, now, self.text_width, limit, deaths))

    @property
    def _here(self) -> CheckedCluster | None:
        key = self.selected_key
        return next((judged for judged in self._clusters if judged.cluster.mark == key), None)

    def _cluster_filter(self, judged: CheckedCluster) -> Filter:
        """The filter of the task list and the cluster; parsed again, it could be too long."""
        filter, term = self._query.filter, f"cluster={judged.cluster.mark}"
        if term in (clause.text for clause in filter.clauses):
            return filter
        return filter.narrow(filter_language.parse_filter(term))


class ClustersScreen(ClusterList):
    """The keys on a cluster: verbs, and Enter for its tasks."""

    KIND = keys.CLUSTERS
    BINDINGS = key_bindings(keys.CLUSTERS)

    def default_message(self) -> Line:
        """The next step for the cluster under the cursor, and what a key acts on."""
        here, width = self._here, self.size.width
        if here is None:
            return present.next_line("Esc", "back to the tasks", "nothing", width)
        refused = self.verb_refusal("retry", self._query.state)
        key, does = view.next_step(here, read_only=bool(refused))
        return present.next_line(key, does, f"{here.cluster.count:,} in {here.cluster.mark}", width)

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the hints; verbs that these tasks do not have are grey."""
        state = self._query.state
        refused = {key.action for key in keys.verb_keys() if self.verb_refusal(key.verb, state)}
        super().show_hints({*grey, *refused})

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """All tasks of the cluster under the cursor."""
        here, state = self._here, self._query.state
        if here is None:
            return self.no_row_reason("no cluster selected")
        if refusal := self.verb_refusal(verb, state):
            return refusal + self.other_verbs(state)
        cluster = self._cluster_filter(here)
        words = f"all in this cluster: {here.cluster.pattern}"
        return VerbRequest(verb, None, self._query._replace(filter=cluster), lambda _: words)

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(TOO_EARLY if self.hasty else self.around.arming.toggle())
        self.paint()

    def action_open(self) -> None:
        """Open the task list filtered for the cluster under the cursor."""
        here = self._here
        if here is None:
            self.say(self.no_row_reason("no cluster to open"))
            return
        known, text = self.live.inspector, self._cluster_filter(here).text
        try:
            filter_language.parse_filter(text, known.states, self.around.clock(), known.words)
        except BadFilter as error:
            self.say(f"list not opened: {error.message} with the cluster")
            return
        self.go(Target(keys.LIST, state=self._query.state, filter=text))

    def copies(self) -> tuple[Copy, ...]:
        """The cluster under the cursor."""
        here = self._here
        if here is None:
            return ()
        (values,) = view.cluster_values([here])
        row = view.cluster_line(here, self.around.clock(), 160)
        line = "".join(text for text, _ in row).strip()
        return (
            Copy("i", "mark", here.cluster.mark),
            Copy("r", "row", line),
            Copy("j", "JSON", task_row.json_line(values).strip()),
        )

    def export_table(self) -> ExportTable | None:
        """Export: all clusters."""
        values = view.cluster_values(self._clusters)

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        columns = tuple(values[0]) if values else ()
        return ExportTable("errors", columns, hand) if values else None
