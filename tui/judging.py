"""Clusters of one place's errors, each with the answer to "same now?"."""

from __future__ import annotations

import asyncio

from engine.index import Query
from engine.samenow import answers
from tui.live import Live
from tui.views.clusters import Judged


async def judged(live: Live, query: Query) -> tuple[Judged, ...]:
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
