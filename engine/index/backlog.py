"""How much work waits, for how long, what comes before a task, and what has been dead longest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from engine.index.reader import Reader
from engine.index.schema import RANK, text_of
from engine.model import State, Task


class BacklogSummary(NamedTuple):
    """The pending tasks of a queue at a moment, and its dead ones."""

    oldest: float | None = None
    """When the oldest was created, epoch seconds UTC; None without any."""
    due: int = 0
    """How many may be attempted now."""
    oldest_due: float | None = None
    """When the oldest of those was created."""
    oldest_died: float | None = None
    """When the one died that has been dead longest; None where no dead task says when it did."""
    kinds: Mapping[str, int] = {}
    """How many are pending of the kinds that were asked for."""


_PENDING = RANK[State.PENDING]
_IS_DUE = "coalesce(due, 0) <= ?1"
_STANDING = f"""
SELECT min(created), count(CASE WHEN {_IS_DUE} THEN 1 END),
       min(CASE WHEN {_IS_DUE} THEN created END)
FROM task {{how}} WHERE state={_PENDING}"""
_DIED = f"SELECT min(died) FROM task {{how}} WHERE state={RANK[State.DEAD]}"
_OF_KIND = f"SELECT count(*) FROM task {{how}} WHERE state={_PENDING} AND kind = ?1"
_AHEAD = f"""
SELECT count(*) FROM task INDEXED BY by_id
WHERE state={_PENDING} AND id < ?2 AND queue = ?3 AND {_IS_DUE}"""
_DUE_EARLIER = f"""
SELECT count(*) FROM task {{how}}
WHERE state={_PENDING} AND queue = ?4 AND {_IS_DUE}
AND (coalesce(due, 0), coalesce(created, 0)) < (?2, ?3)"""

BY_ID, BY_DUE = "id", "due"
"""How a store may take its due tasks: in the order of their ids; or of when they came due, and
of those that did at once the older first."""


def standing(reader: Reader, now: float, kinds: Collection[str] = ()) -> BacklogSummary:
    """How much waits at a moment (epoch seconds UTC), and for how long; and how much of each of
    some kinds."""

    def ask(query: str, index: str, *values: str | float) -> Sequence[Any]:
        how = f"INDEXED BY {index}" if reader.has_index(index) else "NOT INDEXED"
        (row,) = reader.fetch(query.format(how=how), values)
        return row

    oldest, due, oldest_due = ask(_STANDING, "by_due", now)
    (died,) = ask(_DIED, "by_cluster")
    counted = {kind: ask(_OF_KIND, "by_cluster", text_of(kind))[0] for kind in kinds}
    return BacklogSummary(oldest, due, oldest_due, died, counted)


def ahead(reader: Reader, task: Task, now: float, by: str = BY_ID) -> int:
    """How many tasks of its queue that are due come before a task, which are taken in that order;
    none where that is neither `BY_ID` nor `BY_DUE`: then nothing is to be told."""
    if by == BY_DUE:
        how = "INDEXED BY by_due" if reader.has_index("by_due") else "NOT INDEXED"
        values = (now, task.due or 0.0, task.created, text_of(task.queue))
        return int(reader.fetch(_DUE_EARLIER.format(how=how), values)[0][0])
    if by != BY_ID:
        return 0
    return int(reader.fetch(_AHEAD, (now, text_of(task.id), text_of(task.queue)))[0][0])
