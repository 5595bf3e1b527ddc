"""Why a task waits, asked of everything that could keep it."""

from __future__ import annotations

import asyncio

from engine import policy
from engine.index import Query
from engine.inspector import Inspector
from engine.model import LockEvidence, State, Task
from tui.place import Place

NEARBY = 500
"""How many tasks before this one are looked at to count those that are due."""


async def why_waiting(
    inspector: Inspector, place: Place, lock: LockEvidence | None, task: Task, now: float
) -> str:
    """One sentence on what keeps a task from running; "" for one that does not wait."""
    if task.state is not State.PENDING:
        return policy.why_waiting(task, now, policy.Circumstances())
    token_at = 0.0
    if place.token_at is not None:
        token_at = await asyncio.to_thread(place.token_at, task.kind)
    about = policy.Circumstances(
        lock=lock,
        handled=place.handled,
        token_at=token_at,
        ahead=await _ahead(inspector, task, now) if policy.is_due(task, now) else 0,
    )
    return policy.why_waiting(task, now, about)


async def _ahead(inspector: Inspector, task: Task, now: float) -> int:
    query = Query(state=State.PENDING)
    position = await inspector.find(query, task.id)
    if not position:
        return 0
    start = max(0, position - NEARBY)
    window = await inspector.window(query, start, position - start)
    return sum(policy.is_due(other, now) for other in window.tasks)
