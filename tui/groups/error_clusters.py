"""A place's error clusters, and whether they still happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.index.error_clusters import count_deaths
from engine.index.filter_language import Filter, equality_filter
from engine.index.schema import Query
from engine.model import State, Task
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.groups import cluster_lines as view
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.session.place_session import PlaceSession
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.styles import STILL_LOOKS
from tui.text.table import ShownRows


class ErrorClusters:
    """The clusters and the evidence of the one under the cursor."""

    noun, none, notice = "cluster", "no failed tasks", ""

    def __init__(
        self,
        session: PlaceSession,
        clock: Callable[[], float],
        query: Query,
        may_retry: Callable[[], bool],
    ) -> None:
        """`query` is the state and filter of the task list; `may_retry`: a retry is not refused."""
        self._session, self._clock, self._query = session, clock, query
        self._may_retry = may_retry
        self._deaths: tuple[int, ...] = ()
        """Deaths in the cluster over time."""

    def version(self) -> tuple[object, ...]:
        """Index generation, log events, minute, reachability."""
        session, latest = self._session, self._session.inspector.latest
        minute = int(session.clock() // 60)
        return latest.generation, session.events(), minute, latest.unavailable

    async def read(self) -> Sequence[CheckedCluster]:
        """The clusters of the query, checked against the logs."""
        return await check_clusters(self._session, self._query)

    async def read_more(self, group: CheckedCluster, query: Query) -> None:
        """Count the deaths in a cluster over time."""
        now, none = self._clock(), tuple[int, ...]()
        key = ("deaths", query, int(now // 60))
        self._deaths = await self._session.inspector.tallies.ask(
            key, lambda reader: count_deaths(reader, query, now, view.DEATHS_MINUTES), none
        )

    def key_of(self, group: CheckedCluster) -> str:
        """The mark of a cluster."""
        return group.cluster.mark

    def term_of(self, group: CheckedCluster) -> Filter:
        """The filter of a cluster."""
        return equality_filter("cluster", group.cluster.mark)

    def target_state(self, group: CheckedCluster) -> State | None:
        """The state of the task list."""
        return self._query.state

    def count_of(self, group: CheckedCluster) -> int:
        """Number of tasks of a cluster."""
        return group.cluster.count

    def scope_words(self, group: CheckedCluster) -> str:
        """The scope of a plan for a cluster."""
        return f"all in this cluster: {group.cluster.pattern}"

    def rows_frame(self, groups: Sequence[CheckedCluster], *, is_known: bool) -> Frame:
        """How many clusters there are, and of how many tasks."""
        failed = sum(judged.cluster.count for judged in groups)
        amount = f"{len(groups):,}, failed {failed:,}" if is_known else UNKNOWN
        text = self._query.filter.text
        right: Line = ((f"filter {safe_line(text)}   ", "key"),) if text else ()
        return Frame("Clusters", "4", amount, (*right, ("order: count", "muted")))

    def details_frame(self, group: CheckedCluster | None) -> Frame:
        """The mark, and the answer."""
        if group is None:
            return Frame("Evidence")
        still = (group.now.text, STILL_LOOKS[group.now.answer])
        return Frame(group.cluster.mark, right=(("STILL? ", "muted"), still))

    def rows(self, groups: Sequence[CheckedCluster], width: int) -> ShownRows:
        """One row per cluster."""
        return ShownRows(*view.cluster_table(groups, self._clock(), width))

    def details(
        self, group: CheckedCluster, tasks: Sequence[Task] | None, width: int
    ) -> list[Line]:
        """The evidence, and some of its tasks."""
        return view.evidence_lines(
            group,
            tasks or (),
            self._clock(),
            width=width,
            limit=self._session.place.max_attempts,
            deaths=() if tasks is None else self._deaths,
        )

    def next_step(self, group: CheckedCluster, state_word: str, width: int) -> Line:
        """What to do about the error, and what a key acts on."""
        key, does = view.next_step(group, read_only=not self._may_retry())
        return next_line(key, does, f"{group.cluster.count:,} in {group.cluster.mark}", width)

    def values_of(self, groups: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
        """Clusters for JSON and export."""
        return view.cluster_values(groups)
