"""A place's error clusters, and whether they still happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.index.error_clusters import count_deaths
from engine.index.filter_language import Filter, equality_filter
from engine.index.schema import Query
from engine.model import Task
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.groups import cluster_lines as view
from tui.groups.parts import GroupParts
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.styles import STILL_LOOKS
from tui.text.table import ShownRows


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
            key, lambda reader: count_deaths(reader, query, now, view.DEATHS_MINUTES), none
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
        return ShownRows(*view.cluster_table(self.groups, self.context.clock(), width))

    def details_of(
        self, group: CheckedCluster, tasks: Sequence[Task] | None, width: int
    ) -> list[Line]:
        return view.evidence_lines(
            group,
            tasks or (),
            self.context.clock(),
            width=width,
            limit=self.session.place.max_attempts,
            deaths=() if tasks is None else self._deaths,
        )

    def step_of(self, group: CheckedCluster, width: int) -> Line:
        key, does = view.next_step(group, read_only=bool(self.verb_refusal("retry")))
        return next_line(key, does, f"{group.cluster.count:,} in {group.cluster.mark}", width)

    def values_of(self, groups: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
        return view.cluster_values(groups)
