"""The size and age of the backlog, the position of a task in it, and the oldest dead task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from engine.index.reader import Reader
from engine.index.schema import STATE_NUMBERS, clean_text
from engine.largest_share import WAITING_STATES, LargestShare, find_largest
from engine.model import DueTasks, State, Task
from engine.values import NamedTuple
from engine.verbs import TOKEN_LENGTH


class BacklogSummary(NamedTuple):
    """The pending tasks of a queue at one time, and its oldest dead one."""

    oldest: float | None = None
    """Creation time of the oldest, epoch seconds UTC; None if there are none."""
    due: int | None = 0
    """Number of tasks that may run now; None if the due time of a task is unknown."""
    oldest_due: float | None = None
    """Creation time of the oldest of these."""
    oldest_died: float | None = None
    """When the first of the dead tasks died; None if no dead task has a time of death."""
    kinds: Mapping[str, int] = {}
    """Number of pending tasks of the requested kinds."""
    largest: LargestShare | None = None
    """None if no mail waits."""
    has_mail: bool = False
    """True if tasks are mails, or were."""


_PENDING = STATE_NUMBERS[State.PENDING]
_IS_DUE = "coalesce(due, 0) <= ?"
_STANDING = f"""
SELECT min(created), count(CASE WHEN due <= ? THEN 1 END), count(*) - count(due),
       min(CASE WHEN due <= ? THEN created END)
FROM task {{how}} WHERE state={_PENDING}"""
_NEXT_DUE = f"SELECT min(due) FROM task {{how}} WHERE state={_PENDING} AND due > ?"
_DIED = f"SELECT min(died) FROM task {{how}} WHERE state={STATE_NUMBERS[State.DEAD]}"
_OF_KIND = f"SELECT count(*) FROM task {{how}} WHERE state={_PENDING} AND kind = ?"
_DUE_OF_KIND = f"""
SELECT count(*), min(created) FROM task {{how}} WHERE state={_PENDING} AND kind = ? AND due <= ?"""
_KINDS = f"""
SELECT kind, count(*), min(created) FROM task {{how}} WHERE state={_PENDING}
GROUP BY kind ORDER BY 2 DESC LIMIT ?"""
_MAILS = f"""
SELECT {{by}}, count(*) FROM task INDEXED BY by_sender
WHERE state IN ({", ".join(str(STATE_NUMBERS[state]) for state in WAITING_STATES)})
AND domains IS NOT NULL GROUP BY {{by}}"""
_AHEAD = f"""
SELECT kind, count(*) FROM task {{how}}
WHERE state={_PENDING} AND queue = ? AND {_IS_DUE} AND coalesce(created, 0) <= ?
AND (coalesce(created, 0), substr(id, 1, instr(id || '-', '-') - 1),
    substr(id, -{TOKEN_LENGTH}), id) < (?, ?, ?, ?) GROUP BY kind"""
_DUE_EARLIER = f"""
SELECT kind, sum((coalesce(due, 0), coalesce(created, 0)) < (?1, ?2)),
    sum((coalesce(due, 0), coalesce(created, 0)) = (?1, ?2))
FROM task {{how}} WHERE state={_PENDING} AND queue = ?3 AND coalesce(due, 0) <= ?4
AND (coalesce(due, 0), coalesce(created, 0)) <= (?1, ?2) AND id <> ?5 GROUP BY kind"""
_OTHERS_DUE = f"""
SELECT kind, count(*) FROM task {{how}}
WHERE state={_PENDING} AND queue = ? AND {_IS_DUE} AND id <> ? GROUP BY kind"""

_PLANNED = f"""
SELECT kind, count(*), max(coalesce(created, 0)), sum(state={_PENDING} AND {_IS_DUE})
FROM task WHERE id IN ({{marks}}) AND state NOT IN (
    {STATE_NUMBERS[State.DONE]}, {STATE_NUMBERS[State.TRASH]}) GROUP BY kind"""
_DUE_OLDER = f"""
SELECT kind, count(*) FROM task {{how}}
WHERE state={_PENDING} AND {_IS_DUE} AND coalesce(created, 0) <= ? GROUP BY kind"""

BY_CREATED, BY_DUE = "created", "due"
"""The orders in which a store may take its due tasks: by creation, and of those of one second by
the stamp and the token in the id; or by due time, and of those with the same due time the older
first."""


def summarize_backlog(reader: Reader, now: float, kinds: Collection[str] = ()) -> BacklogSummary:
    """Summarize the backlog at `now` (epoch seconds UTC), with counts for some kinds."""
    oldest, due, undated, oldest_due = _ask(reader, _STANDING, "by_due", now, now)
    (died,) = _ask(reader, _DIED, "by_cluster")
    counted = {kind: _ask(reader, _OF_KIND, "by_cluster", clean_text(kind))[0] for kind in kinds}
    summary = BacklogSummary(oldest, None if undated else due, oldest_due, died, counted)
    if not reader.has_mail():
        return summary
    return summary._replace(largest=_find_largest(reader), has_mail=True)


def _find_largest(reader: Reader) -> LargestShare | None:
    senders, accounts = (dict(reader.fetch(_MAILS.format(by=by))) for by in ("sender", "account"))
    return find_largest(senders, accounts)


def next_due(reader: Reader, now: float) -> float:
    """When the next of the waiting tasks is due (epoch seconds UTC); infinite if none."""
    (due,) = _ask(reader, _NEXT_DUE, "by_due", now)
    return math.inf if due is None else float(due)


def _ask(reader: Reader, query: str, index: str, *values: str | float) -> Sequence[Any]:
    """The only row of a query that uses an index, if that exists already."""
    (row,) = _rows(reader, query, index, *values)
    return row


def _rows(reader: Reader, query: str, index: str, *values: str | float) -> list[tuple[Any, ...]]:
    how = f"INDEXED BY {index}" if reader.has_index(index) else "NOT INDEXED"
    return reader.fetch(query.format(how=how), values)


def count_due(reader: Reader, now: float, kinds: Collection[str]) -> dict[str, DueTasks]:
    """Count the tasks of some kinds that may run at `now` (epoch seconds UTC)."""
    due = {}
    for kind in kinds:
        number, oldest = _ask(reader, _DUE_OF_KIND, "by_cluster", clean_text(kind), now)
        if number:
            due[kind] = DueTasks(number, now if oldest is None else oldest)
    return due


def count_kinds(reader: Reader, most: int) -> dict[str, tuple[int, float | None]]:
    """Count the pending tasks by kind, of the `most` largest kinds, each with the creation time of
    its oldest one in epoch seconds UTC; None if no task has one."""
    rows = _rows(reader, _KINDS, "by_cluster", most)
    return {kind: (number, oldest) for kind, number, oldest in rows}


class PlannedRuns(NamedTuple):
    """Tasks that a plan makes due, and others that run before the last of them, by kind."""

    planned: Mapping[str, int] = {}
    first: Mapping[str, int] = {}


MAX_NAMED_IDS = 500
"""Ids in one query."""


def count_planned(
    reader: Reader, ids: Iterable[str], now: float, by: str = BY_CREATED
) -> PlannedRuns:
    """Count the tasks with these ids by kind, and the other due ones that are claimed before the
    last of them in the order `by`: the older ones, or in another order all."""
    planned, due_already, newest, more = Counter[str](), Counter[str](), -math.inf, iter(ids)
    while some := list(map(clean_text, islice(more, MAX_NAMED_IDS))):
        marks = ", ".join("?" * len(some))
        rows = reader.fetch(_PLANNED.format(marks=marks), [now, *some])
        planned.update({kind: number for kind, number, *_ in rows})
        due_already.update({kind: due for kind, *_, due in rows})
        newest = max([newest, *(created for *_, created, _ in rows)])
    until = newest if by == BY_CREATED else math.inf
    first = Counter(dict(_rows(reader, _DUE_OLDER, "by_due", now, until)))
    return PlannedRuns(planned, first - due_already)


def count_ahead(reader: Reader, task: Task, now: float, by: str = BY_CREATED) -> dict[str, int]:
    """Count the due tasks of its queue that run before a task, in the order `by`, by kind. For
    any order but `BY_CREATED` and `BY_DUE`, all other due tasks: its position is unknown."""
    queue, created = clean_text(task.queue), task.created
    if by == BY_DUE:
        values = task.due or 0.0, created, queue, now, clean_text(task.id)
        rows = _rows(reader, _DUE_EARLIER, "by_due", *values)
        # Which of the same second are first is not known: half of them.
        return {kind: first + -(-same // 2) for kind, first, same in rows if first + same}
    if by != BY_CREATED:
        return dict(_rows(reader, _OTHERS_DUE, "by_due", queue, now, clean_text(task.id)))
    key = map(clean_text, (task.id.partition("-")[0], task.id[-TOKEN_LENGTH:], task.id))
    return dict(_rows(reader, _AHEAD, "by_due", queue, now, created, created, *key))
