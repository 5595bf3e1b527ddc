"""Queries of the index of a place: age tables, due tasks by kind, groups, and error clusters with
the answer whether they still happen. All raise Unavailable: the place was closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from engine.index import filter_language
from engine.index.age_table import Ages
from engine.index.error_clusters import MAX_CLUSTERS, Cluster
from engine.index.filter_language import NO_FILTER, Filter
from engine.index.group_counts import MAX_GROUPS, GroupTable, query_groups
from engine.index.schema import Query
from engine.logs.task_events import EventKind
from engine.model import State
from engine.monitor.recurrence import NO_LOG, Recurrence, StillHappens, check_recurrences
from engine.places.place import WholeQueueFigures
from engine.text.error_pattern import pattern_name
from engine.text.figure import UNKNOWN, Figure
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession
from tui.text.header import Totals

AGE_TABLE_STATES = (State.PENDING, State.DEAD)
"""States with an age table, in order of preference."""

DUE_FILTER = "!due>now"
"""Filter for due tasks; a task without a due time counts as due."""


def age_groupings(session: PlaceSession) -> tuple[str, ...]:
    """The keys of `age_table.GROUPINGS` that a place has age tables by, in order of preference. A
    place with groups of its own, such as the hosts that mail goes to, has them by these and not by
    destination: the recipients of one host may have any domain."""
    has_mail = session.backlog is not None and session.backlog.has_mail
    mail = ("sender", "sender-domain", "account") if has_mail else ()
    first = "destination" if session.place.groups is None else "group"
    return (first, *mail, "kind", "error")


async def query_ages(
    session: PlaceSession, state: State, by: str, condition: Filter = NO_FILTER
) -> Ages:
    """Ages of the tasks in a state that match a filter, by a key of `age_table.GROUPINGS`."""
    return await session.inspector.tallies.ages(Query(state, condition), by, session.clock())


async def first_useful_ages(
    session: PlaceSession, condition: Filter = NO_FILTER
) -> tuple[State, Ages]:
    """The first age table that is informative; else the first with a named row."""
    otherwise: tuple[State, Ages] | None = None
    for state in AGE_TABLE_STATES:
        for by in age_groupings(session):
            ages = await query_ages(session, state, by, condition)
            if ages.is_informative:
                return state, ages
            if any(row.name for row in ages.rows):
                otherwise = otherwise or (state, ages)
    return otherwise or (State.PENDING, await query_ages(session, State.PENDING, "kind", condition))


def failed_state(session: PlaceSession) -> State:
    """The state of failed tasks; without one for dead tasks that of those which wait again."""
    states = session.inspector.states
    return State.PENDING if states and State.DEAD not in states else State.DEAD


def none_failed(none: str, totals: Totals | None) -> str:
    """That a place has no failed tasks; if others have, how many, and the key that leads there."""
    if totals is None or not totals.dead:
        return none
    others = Figure(totals.dead, not totals.is_partial).text()
    return f"{none} here, {others} at other places: ] next place"


async def query_due_kinds(session: PlaceSession) -> Ages:
    """Ages of the due tasks, by kind."""
    query = Query(State.PENDING, filter_language.parse_filter(DUE_FILTER))
    return await session.inspector.tallies.ages(query, "kind", session.clock())


async def read_group_table(
    session: PlaceSession,
    query: Query,
    by: str,
    first: State | None = None,
    most: int = MAX_GROUPS,
) -> GroupTable:
    """The groups of a query's tasks, `most` of them, -1: all; those with the most tasks in the
    state `first` come first."""
    now, nothing = session.clock(), GroupTable()
    key = ("groups", query, by, first, most)
    shares = session.place.groups is not None and session.place.groups.share_payloads
    return await session.inspector.tallies.ask(
        key,
        lambda reader: query_groups(
            reader, query, by, now, first, counts_payloads=shares, most=most
        ),
        nothing,
    )


NOT_CHECKED = Recurrence(StillHappens.UNKNOWN, UNKNOWN, ("not checked yet",))


GONE = Recurrence(
    StillHappens.UNKNOWN,
    UNKNOWN,
    (
        "its recipients have left the spool: their number is from the statistics log",
        "the reasons are in the reports to the senders",
    ),
)
"""The statistics log has neither times nor reasons."""


class CheckedCluster(NamedTuple):
    """A cluster and whether it still happens."""

    cluster: Cluster
    now: Recurrence = NOT_CHECKED

    @property
    def has_left(self) -> bool:
        """True for tasks that have left the store: only their number is known."""
        return self.now is GONE

    @property
    def last(self) -> float | None:
        """Time of its last failure, epoch seconds UTC; None if neither log nor store has it. Tasks
        that will be retried, and stores that keep no time of death, have it only in the logs."""
        return self.cluster.last if self.now.last is None else self.now.last


async def check_clusters(session: PlaceSession, query: Query) -> tuple[CheckedCluster, ...]:
    """The error clusters of a query, largest first, checked against the logs of the last hour."""
    if not session.has_readings:
        await session.wait_for_readings()  # the logs must have been read once
    clusters = await session.inspector.tallies.clusters(query)
    events, now = session.events(), session.clock()
    done = {event.id for event in events if event.what is EventKind.SUCCEEDED and event.id}
    has_destinations = any(cluster.destinations for cluster in clusters)
    sent_to = await session.inspector.tallies.destinations_of(
        frozenset(done if has_destinations else ())
    )
    registry = session.readings.destinations.found
    if query == Query(State.DEAD):
        session.dead_clusters = len(clusters), now

    def judge() -> tuple[CheckedCluster, ...]:
        recurrences = check_recurrences(clusters, events, now, sent_to=sent_to, registry=registry)
        if session.place.server:
            log = session.place.no_server_log or SERVER_LOG
            recurrences = (_with_server_log(one, log) for one in recurrences)
        return tuple(map(CheckedCluster, clusters, recurrences))

    is_all_failed = query in (Query(State.DEAD), Query(None))
    gone = _gone_clusters(session.readings.queue_figures) if is_all_failed else ()
    judged = await asyncio.to_thread(judge)
    return tuple(sorted((*judged, *gone), key=lambda one: -one.cluster.count))


def _with_server_log(one: Recurrence, log: str) -> Recurrence:
    """The recurrence at a place whose server has a log: it is shown, but not counted."""
    known = (log if text == NO_LOG else text for text in one.evidence)
    return one._replace(evidence=tuple(known))


SERVER_LOG = "the log of the server is not counted: 7 shows it"


def _gone_clusters(figures: WholeQueueFigures) -> Iterator[CheckedCluster]:
    """The failures of tasks that have left the store, as clusters by their group."""
    for group, count in list(figures.gone_failures.items())[:MAX_CLUSTERS]:
        pattern = f"{group}: failed, message finished"
        kind = group.partition("/")[0]
        cluster = Cluster(
            pattern_name(pattern), pattern, count, first=None, last=None, kinds=(kind,), example=""
        )
        yield CheckedCluster(cluster, GONE)
