"""Background reads of the overview: ages, clusters and graph of a place, after a change and every
30 s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from engine.index.age_table import Ages
from engine.index.schema import Query
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import State
from engine.store import Unavailable
from engine.values import NamedTuple
from tui.overview.alert_lines import has_dead_alert
from tui.screens.graph_pane import GraphPane
from tui.session import index_queries
from tui.session.index_queries import CheckedCluster, check_clusters, failed_state
from tui.session.place_session import PlaceSession

CHANGED_READ_SECONDS, UNCHANGED_READ_SECONDS = 2.0, 30.0
"""Seconds until ages and clusters are read again: after a change, and without one."""

READ_COST_FACTOR = 10
"""Minimum pause between reads, as a multiple of their duration."""

HISTOGRAM_SECONDS, HISTOGRAM_STEPS = 3600.0, 120
"""Length of the histogram of log events, and its number of equal parts."""


class EventCounts(NamedTuple):
    """Task events of the logs in equal parts of the last hour, the latest part last."""

    all: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


def count_events(events: Iterable[TaskEvent], now: float) -> EventCounts:
    """Count events by time. Parts begin at whole multiples of their length, so that only the last
    one changes from second to second."""
    length = HISTOGRAM_SECONDS / HISTOGRAM_STEPS
    first = int(now // length) - HISTOGRAM_STEPS + 1
    counts, failed = [0] * HISTOGRAM_STEPS, [0] * HISTOGRAM_STEPS
    for event in events:
        at = -1 if event.when is None else int(event.when // length) - first
        if 0 <= at < HISTOGRAM_STEPS:
            counts[at] += 1
            failed[at] += event.what in (EventKind.FAILED, EventKind.BURIED)
    return EventCounts(tuple(counts), tuple(failed))


class PlaceReads(NamedTuple):
    """What was read of one place."""

    state: State
    """State of the tasks in the age table."""
    ages: Ages
    generation: int
    when: float
    """Time of the read, epoch seconds UTC."""
    clusters: tuple[CheckedCluster, ...] = ()
    events: EventCounts = EventCounts()
    counts: Mapping[State, int] = {}
    """Of the tasks when it was read."""


class _Schedule(NamedTuple):
    generation: int
    earliest: float
    """Next read after a change, in seconds of the event loop's clock."""
    in_any_case: float
    """Next read without one."""


class OverviewReads:
    """Reads places one after the other; the latest read of each stays."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._place_reads: dict[int, PlaceReads] = {}
        self._schedules: dict[int, _Schedule] = {}
        self._chosen: set[int] = set()
        """Places whose age-table rows the operator chose."""
        self.read_due = asyncio.Event()

    def of(self, session: PlaceSession) -> PlaceReads | None:
        """What was read of a place; None before the first read, and if it cannot be read."""
        return self._place_reads.get(session.number)

    def request(self, number: int | None = None) -> None:
        """Read a place again soon; without a number each place."""
        if number is None:
            self._schedules.clear()
        else:
            self._schedules.pop(number, None)
        self.read_due.set()

    async def wait(self) -> None:
        """Wait until a read may be due, at most a second."""
        self.read_due.clear()
        try:
            await asyncio.wait_for(self.read_due.wait(), 1.0)
        except TimeoutError:
            return

    def is_due(self, session: PlaceSession) -> bool:
        """True if a place is to be read now."""
        latest = session.inspector.latest
        if not latest.is_complete:
            return False
        schedule = self._schedules.get(session.number, _Schedule(-1, 0.0, 0.0))
        now = asyncio.get_running_loop().time()
        has_changed = latest.generation != schedule.generation
        return now >= schedule.in_any_case or (has_changed and now >= schedule.earliest)

    async def read(
        self, session: PlaceSession, graph: GraphPane | None, is_wanted: Callable[[], bool]
    ) -> None:
        """Read a place; its graph only with `graph`, its clusters with it or for an alert. All
        parts change together, or none if it is not wanted any more."""
        loop = asyncio.get_running_loop()
        began, generation = loop.time(), session.inspector.latest.generation
        before = self.of(session)
        try:
            place_reads = await self._read(session, graph)
        except Unavailable:
            self._place_reads.pop(session.number, None)  # its line says why
        else:
            if is_wanted():
                present = self.of(session)
                if present is not None and present is not before:  # by `next_rows`
                    place_reads = place_reads._replace(state=present.state, ages=present.ages)
                self._place_reads[session.number] = place_reads
        ended = loop.time()
        earliest = ended + max(CHANGED_READ_SECONDS, READ_COST_FACTOR * (ended - began))
        self._schedules[session.number] = _Schedule(
            generation, earliest, ended + UNCHANGED_READ_SECONDS
        )

    async def _read(self, session: PlaceSession, graph: GraphPane | None) -> PlaceReads:
        generation, when = session.inspector.latest.generation, self._clock()
        before, is_chosen = self.of(session), session.number in self._chosen
        counts = session.inspector.latest.counts
        if before is not None and (
            is_chosen or (counts.get(before.state, 0) and any(row.name for row in before.ages.rows))
        ):
            state = before.state
            ages = await index_queries.query_ages(session, state, before.ages.by)
        else:
            state, ages = await index_queries.first_useful_ages(session)
        clusters = () if before is None else before.clusters
        dead = session.inspector.latest.counts.get(State.DEAD, 0)
        is_alarming = dead > session.place.alerts.dlq or has_dead_alert(session.alerts)
        if graph is not None or is_alarming:  # the alert says how many
            clusters = await check_clusters(session, Query(failed_state(session)))
        if graph is not None:
            await graph.read(session, self._clock())
        events = await asyncio.to_thread(count_events, session.events(), when)
        read = PlaceReads(state, ages, generation, when=when, clusters=clusters)
        return read._replace(events=events, counts=counts)

    async def next_rows(self, session: PlaceSession) -> bool:
        """Read the age table by the next field or state that has data; False if none has.

        Raises:
            Unavailable: the place was closed.
        """
        if (before := self.of(session)) is None:
            return False
        groupings = index_queries.age_groupings(session)
        choices = [(state, by) for state in index_queries.AGE_TABLE_STATES for by in groupings]
        now = before.state, before.ages.by
        at = choices.index(now) if now in choices else -1
        for state, by in (*choices[at + 1 :], *choices[:at]):
            generation, when = session.inspector.latest.generation, self._clock()
            ages = await index_queries.query_ages(session, state, by)
            if any(row.name for row in ages.rows):
                self._place_reads[session.number] = before._replace(
                    state=state, ages=ages, generation=generation, when=when
                )
                self._chosen.add(session.number)
                self.request(session.number)  # the clusters are older than these ages
                return True
        return False
