"""Clusters of one place's errors, each with the answer to "same now?"."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from engine.index.error_clusters import Cluster
from engine.index.schema import Query
from engine.monitor.recurrence import Recurrence, StillHappens, answers
from tui.session.place_session import PlaceSession

UNTOLD = Recurrence(StillHappens.UNKNOWN, "?", ("not judged yet",))


class Judged(NamedTuple):
    """A cluster, and whether it still happens."""

    cluster: Cluster
    now: Recurrence = UNTOLD

    @property
    def last(self) -> float | None:
        """When it was seen last, epoch seconds UTC; None where neither log nor spool says.

        Of what waits to be tried again, and of what its store keeps no time for, the logs tell.
        """
        return self.cluster.last if self.now.last is None else self.now.last


async def judged(live: PlaceSession, query: Query) -> tuple[Judged, ...]:
    """The errors of a query, biggest first, by what the logs of the last hour tell of each.

    Raises:
        Unavailable: the place is not open any more.
    """
    if not live.looked:
        await live.next_look()  # before the logs were read nothing can be told
    clusters = await live.inspector.clusters(query)
    events, now = live.events(), live.clock()

    def judge() -> tuple[Judged, ...]:
        return tuple(map(Judged, clusters, answers(clusters, events, now)))

    return await asyncio.to_thread(judge)


NAMED = 2
"""Errors that are named one by one, the most frequent first."""


def still_failing(found: Sequence[Judged]) -> tuple[str, ...]:
    """What to think of before tasks are run again whose errors happen to fresh work now."""
    same = [one for one in found if one.now.answer is StillHappens.YES]
    if not same:
        return ()
    marks, more = [one.cluster.mark for one in same[:NAMED]], len(same) - NAMED
    words = ", ".join(marks) + (f" and {more:,} more" if more > 0 else "")
    happens = "errors that still happen" if len(same) > 1 else "an error that still happens"
    seen = f", {same[0].now.evidence[0]}" if len(same) == 1 else ""
    return (f"{sum(one.cluster.count for one in same):,} of these have {happens}: {words}{seen}",)
