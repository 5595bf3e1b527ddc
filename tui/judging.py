"""Clusters of one place's errors, each with the answer to "same now?"."""

from __future__ import annotations

import asyncio

from engine.index import Query
from engine.samenow import same_now
from tui.live import Live
from tui.views.clusters import Judged


async def judged(live: Live, query: Query) -> tuple[Judged, ...]:
    """The errors of a query, biggest first, by what the logs of the last hour tell of each.

    Raises:
        Unavailable: the place is not open any more.
    """
    clusters = await live.inspector.clusters(query)
    events, now = live.events(), live.clock()

    def judge() -> tuple[Judged, ...]:
        return tuple(Judged(cluster, same_now(cluster, events, now)) for cluster in clusters)

    return await asyncio.to_thread(judge)
