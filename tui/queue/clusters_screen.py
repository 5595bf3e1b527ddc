"""The errors of a queue, alike with alike, and whether they still happen."""

from __future__ import annotations

import asyncio

from engine.index import filter_language
from engine.index.schema import Query
from engine.store import Unavailable
from tui.format import keys, task_row
from tui.format.export import ExportTable, Take
from tui.format.present import BLANK, Line
from tui.plan.acting_screen import PlanningScreen
from tui.plan.planning import Asked
from tui.queue import cluster_lines as view
from tui.screens.base import HASTY, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import Judged, judged
from tui.widgets.lines import LongText
from tui.widgets.picker import Picker

SPARING = 5
"""Times that an answer took, until it is asked for again."""


class ClustersScreen(PlanningScreen, ListScreen):
    """Kept up to date while it is looked at; Enter shows the tasks of one."""

    KIND = keys.CLUSTERS
    BINDINGS = keys.bindings(keys.CLUSTERS)

    def __init__(self, live: PlaceSession, around: ConsoleContext, query: Query) -> None:
        """`query` is what the queue shows: its state and its filter."""
        super().__init__(live, around)
        self._query = query
        self._clusters: tuple[Judged, ...] = ()
        self._asked = False

    def on_mount(self) -> None:
        """Ask, and again when the tasks, the logs or the minute are others."""
        self.run_worker(self._follow(), name="clusters")

    async def _follow(self) -> None:
        grounds: tuple[object, ...] = ()
        while True:
            before, grounds = grounds, self._grounds()
            if grounds != before:
                began = asyncio.get_running_loop().time()
                try:
                    self._clusters = await judged(self.live, self._query)
                except Unavailable:
                    return  # closed: the console is being left
                self._asked = True
                self.paint()
                await asyncio.sleep(SPARING * (asyncio.get_running_loop().time() - began))
            await self.live.next_look()

    def _grounds(self) -> tuple[object, ...]:
        """What the answers rest on: the tasks, what the logs tell, and the minute."""
        live = self.live
        return live.inspector.latest.generation, live.events(), int(live.clock() // 60)

    def trail(self) -> tuple[str, ...]:
        """The place, and what of it."""
        state = self._query.state
        word = self.live.inspector.states.get(state, "") if state else "all"
        return (self.live.place.name, word, "errors")

    def lay_out(self, width: int) -> None:
        """A row for each, and the evidence of the one under the cursor."""
        now = self.around.clock()
        picker = self.query_one(Picker)
        picker.offer(view.rows(self._clusters, now, width), [view.head(width)])
        here = self._here
        nothing = self.missing("no task here has an error") if self._asked else "asking ..."
        text: list[Line] = [BLANK, ((f"   {nothing}", "dim"),)]
        self.query_one(LongText).show(view.evidence(here, width) if here else text)

    @property
    def _here(self) -> Judged | None:
        key = self.picked
        return next((judged for judged in self._clusters if judged.cluster.mark == key), None)

    def word(self) -> Line:
        """What they come to, and what the filter is."""
        text = self._query.filter.text
        lead = f"filter: {text}   " if text else ""
        return ((f" {lead}{view.summary(self._clusters)}", ""),)

    def asked(self, verb: str) -> Asked | str:
        """All tasks with the error under the cursor."""
        here, state = self._here, self._query.state
        if here is None:
            return self.missing("there is no error to act on here")
        if refusal := self.no_verb(verb, state):
            return refusal
        known = self.live.inspector
        cluster = filter_language.parse(
            self._words(here), known.states, self.around.clock(), known.words
        )
        words = f"all that fail so: {here.cluster.pattern}"
        return Asked(verb, None, self._query._replace(filter=cluster), lambda _: words)

    def _words(self, judged: Judged) -> str:
        return f"{self._query.filter.text} cluster={judged.cluster.mark}".strip()

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        self.say(HASTY if self.hasty else self.around.arming.toggle())
        self.paint()

    def action_open(self) -> None:
        """The tasks of the one under the cursor, in the queue."""
        here = self._here
        if here is None:
            self.say(self.missing("there is no error to open here"))
            return
        self.go(Target(keys.LIST, state=self._query.state, filter=self._words(here)))

    def copies(self) -> tuple[Copy, ...]:
        """The one under the cursor."""
        here = self._here
        if here is None:
            return ()
        (values,) = view.as_rows([here])
        line = "".join(text for text, _ in view.row(here, self.around.clock(), 160)).strip()
        return (
            Copy("i", "mark", here.cluster.mark),
            Copy("r", "row", line),
            Copy("j", "JSON", task_row.json_line(values).strip()),
        )

    def sheet(self) -> ExportTable | None:
        """All of them."""
        values = view.as_rows(self._clusters)

        async def hand(take: Take) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        columns = tuple(values[0]) if values else ()
        return ExportTable("errors", columns, hand) if values else None
