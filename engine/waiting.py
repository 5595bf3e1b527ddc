"""How much work waits, for how long, and what comes before a task."""

from __future__ import annotations

from typing import NamedTuple

from engine.index import RANK, text_of
from engine.model import State, Task
from engine.reader import Reader


class Standing(NamedTuple):
    """The pending tasks of a queue, at a moment."""

    oldest: float | None = None
    """When the oldest was created, epoch seconds UTC; None without any."""
    due: int = 0
    """How many may be attempted now."""
    oldest_due: float | None = None
    """When the oldest of those was created."""


_PENDING = RANK[State.PENDING]
_IS_DUE = "coalesce(due, 0) <= ?1"
_STANDING = f"""
SELECT min(created), count(CASE WHEN {_IS_DUE} THEN 1 END),
       min(CASE WHEN {_IS_DUE} THEN created END)
FROM task {{how}} WHERE state={_PENDING}"""
_AHEAD = f"""
SELECT count(*) FROM task INDEXED BY by_id
WHERE state={_PENDING} AND id < ?2 AND queue = ?3 AND {_IS_DUE}"""


def standing(reader: Reader, now: float) -> Standing:
    """How much waits at a moment (epoch seconds UTC), and for how long."""
    how = "INDEXED BY by_due" if reader.has_index("by_due") else "NOT INDEXED"
    (row,) = reader.fetch(_STANDING.format(how=how), (now,))
    return Standing(*row)


def ahead(reader: Reader, task: Task, now: float) -> int:
    """How many tasks of its queue that are due come before a task."""
    return int(reader.fetch(_AHEAD, (now, text_of(task.id), text_of(task.queue)))[0][0])
