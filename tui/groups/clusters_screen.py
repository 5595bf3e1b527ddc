"""Screen of a place's error clusters, and whether they still happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.index.error_clusters import count_deaths
from engine.index.filter_language import Filter, equality_filter
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.groups import cluster_lines as view
from tui.groups.grouped_tasks import GroupActions
from tui.screens.base import key_bindings
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.text import keys
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.styles import STILL_LOOKS
from tui.widgets.line_widgets import Frame, LongText


class ClustersScreen(GroupActions[CheckedCluster]):
    """The clusters and the evidence of the one under the cursor."""

    KIND = keys.CLUSTERS
    NOUN = "cluster"
    BINDINGS = key_bindings(keys.CLUSTERS)

    _deaths: tuple[int, ...] = ()
    """Deaths in the cluster over time."""

    async def read_groups(self) -> Sequence[CheckedCluster]:
        """The clusters of the query, checked against the logs."""
        return await check_clusters(self.session, self._query)

    async def read_more(self, group: CheckedCluster) -> None:
        """Count the deaths in a cluster over time."""
        query, now = self.query_of(group), self.context.clock()
        none: tuple[int, ...] = ()
        key = ("deaths", query, int(now // 60))
        self._deaths = await self.session.inspector.tallies.ask(
            key, lambda reader: count_deaths(reader, query, now, view.DEATHS_MINUTES), none
        )

    def key_of(self, group: CheckedCluster) -> str:
        """The mark of a cluster."""
        return group.cluster.mark

    def term_of(self, group: CheckedCluster) -> Filter:
        """The filter of a cluster."""
        return equality_filter("cluster", group.cluster.mark)

    def rows_frame(self) -> Frame:
        """The frame of the clusters: how many there are, and of how many tasks."""
        failed = sum(judged.cluster.count for judged in self._groups)
        amount = f"{len(self._groups):,}, failed {failed:,}" if self.is_known else UNKNOWN
        text = self._query.filter.text
        right: Line = ((f"filter {safe_line(text)}   ", "key"),) if text else ()
        return Frame("Clusters", "4", amount, (*right, ("order: count", "muted")))

    def text_frame(self) -> Frame:
        """The frame of the evidence, with the answer."""
        if (selected := self.selected_group) is None:
            return Frame("Evidence")
        still = (selected.now.text, STILL_LOOKS[selected.now.answer])
        return Frame(selected.cluster.mark, right=(("STILL? ", "muted"), still))

    def lay_out(self, width: int) -> None:
        """One row per cluster, and the evidence of the one under the cursor."""
        now, width = self.context.clock(), self.rows_width
        self.show_rows(*view.cluster_table(self._groups, now, width))
        selected, text = self.selected_group, self.query_one(LongText)
        if selected is None:
            text.show([self.empty_words("no failed tasks")])
            return
        mark, tasks = self._tasks
        is_read = mark == selected.cluster.mark
        deaths = self._deaths if is_read else ()
        limit = self.session.place.max_attempts
        cluster_tasks = tasks if is_read else ()
        text.show(
            view.evidence_lines(
                selected, cluster_tasks, now, width=self.text_width, limit=limit, deaths=deaths
            )
        )

    def default_message(self) -> Line:
        """The next step for the cluster under the cursor, and what a key acts on."""
        selected, width = self.selected_group, self.size.width
        if selected is None:
            return next_line("Esc", "back to the tasks", "nothing", width)
        refused = self.verb_refusal("retry", self._query.state)
        key, does = view.next_step(selected, read_only=bool(refused))
        return next_line(key, does, f"{selected.cluster.count:,} in {selected.cluster.mark}", width)

    def scope_words(self, group: CheckedCluster) -> str:
        """The scope of a plan for a cluster."""
        return f"all in this cluster: {group.cluster.pattern}"

    def count_of(self, group: CheckedCluster) -> int:
        """Number of tasks of a cluster."""
        return group.cluster.count

    def values_of(self, groups: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
        """Clusters for JSON and export."""
        return view.cluster_values(groups)

    def row_of(self, group: CheckedCluster) -> Line:
        """The row of a cluster, for copying."""
        _, rows = view.cluster_table(self._groups, self.context.clock(), 160)
        return rows[self._groups.index(group)].line
