"""Error clusters of one place, each with the answer to "still happening?"."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from engine.index.error_clusters import Cluster
from engine.index.schema import Query
from engine.logs.task_events import EventKind
from engine.model import State
from engine.monitor.recurrence import Recurrence, StillHappens, check_recurrences
from tui.session.place_session import PlaceSession

NOT_CHECKED = Recurrence(StillHappens.UNKNOWN, "?", ("not checked yet",))


class CheckedCluster(NamedTuple):
    """A cluster and whether it still happens."""

    cluster: Cluster
    now: Recurrence = NOT_CHECKED

    @property
    def last(self) -> float | None:
        """Time of its last failure, epoch seconds UTC; None if neither log nor store has it.

        Tasks that will be retried, and stores that keep no time of death, have it only in the logs.
        """
        return self.cluster.last if self.now.last is None else self.now.last


async def check_clusters(live: PlaceSession, query: Query) -> tuple[CheckedCluster, ...]:
    """The error clusters of a query, largest first, checked against the logs of the last hour.

    Raises:
        Unavailable: the place was closed.
    """
    if not live.has_readings:
        await live.wait_for_readings()  # the logs must have been read once
    clusters = await live.inspector.tallies.clusters(query)
    events, now = live.events(), live.clock()
    done = {event.id for event in events if event.what is EventKind.SUCCEEDED and event.id}
    has_destinations = any(cluster.destinations for cluster in clusters)
    sent_to = await live.inspector.tallies.destinations_of(
        frozenset(done if has_destinations else ())
    )
    registry = live.readings.destinations.found
    if query == Query(State.DEAD):
        live.dead_clusters = len(clusters), now

    def judge() -> tuple[CheckedCluster, ...]:
        found = check_recurrences(clusters, events, now, sent_to=sent_to, registry=registry)
        return tuple(map(CheckedCluster, clusters, found))

    return await asyncio.to_thread(judge)
