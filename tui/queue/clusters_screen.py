"""Screen of a place's error clusters, and whether they still happen."""

from __future__ import annotations

import asyncio

from engine.index import filter_language
from engine.index.schema import Query
from engine.store import Unavailable
from tui.format import keys, task_row
from tui.format.export import ExportTable, RowSink
from tui.format.present import BLANK_LINE, Line
from tui.plan.acting_screen import PlanningScreen
from tui.plan.planning import VerbRequest
from tui.queue import cluster_lines as view
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.widgets.lines import LongText
from tui.widgets.picker import Picker

READ_COST_FACTOR = 5
"""Minimum pause between reads, as a multiple of their duration."""


class ClustersScreen(PlanningScreen, ListScreen):
    """Updated while it is visible; Enter shows the tasks of a cluster."""

    KIND = keys.CLUSTERS
    BINDINGS = key_bindings(keys.CLUSTERS)

    def __init__(self, live: PlaceSession, around: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__(live, around)
        self._query = query
        self._clusters: tuple[CheckedCluster, ...] = ()
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
        return (self.live.name, word, "errors")

    def lay_out(self, width: int) -> None:
        """One row per cluster, and the evidence of the one under the cursor."""
        now = self.around.clock()
        picker = self.query_one(Picker)
        picker.show_rows(view.cluster_rows(self._clusters, now, width), [view.head_line(width)])
        here = self._here
        nothing = self.no_row_reason("no failed tasks") if self._asked else "loading ..."
        text: list[Line] = [BLANK_LINE, ((f"   {nothing}", "muted"),)]
        self.query_one(LongText).show(view.evidence_lines(here, width) if here else text)

    @property
    def _here(self) -> CheckedCluster | None:
        key = self.selected_key
        return next((judged for judged in self._clusters if judged.cluster.mark == key), None)

    def default_message(self) -> Line:
        """Totals and the filter."""
        text = self._query.filter.text
        lead = f"filter: {text}   " if text else ""
        return ((f" {lead}{view.summary(self._clusters)}", ""),)

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """All tasks of the cluster under the cursor."""
        here, state = self._here, self._query.state
        if here is None:
            return self.no_row_reason("no cluster selected")
        if refusal := self.verb_refusal(verb, state):
            return refusal
        known = self.live.inspector
        cluster = filter_language.parse_filter(
            self._cluster_filter(here), known.states, self.around.clock(), known.words
        )
        words = f"all in this cluster: {here.cluster.pattern}"
        return VerbRequest(verb, None, self._query._replace(filter=cluster), lambda _: words)

    def _cluster_filter(self, judged: CheckedCluster) -> str:
        text, term = self._query.filter.text, f"cluster={judged.cluster.mark}"
        return text if term in text.split() else f"{text} {term}".strip()

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
        self.go(Target(keys.LIST, state=self._query.state, filter=self._cluster_filter(here)))

    def copies(self) -> tuple[Copy, ...]:
        """The cluster under the cursor."""
        here = self._here
        if here is None:
            return ()
        (values,) = view.cluster_values([here])
        line = "".join(
            text for text, _ in view.cluster_line(here, self.around.clock(), 160)
        ).strip()
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
