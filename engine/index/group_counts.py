"""Count tasks by queue, kind, group, destination, sender or account: by state, with the oldest, the
next due and the last error (SQL GROUP BY). By destination, a mail counts once for each of its open
recipients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.destinations.watch import CountedTasks, DestinationTasks
from engine.index.counted_rows import TASKS, UNITS, counted_rows
from engine.index.reader import Reader
from engine.index.schema import STATE_NUMBERS, STATES, Query, query_condition
from engine.model import State
from engine.values import NamedTuple
from engine.verbs import WAITING_PREFIX

MAX_GROUPS = 200
"""Maximum groups returned, the largest first; the others are counted."""

GROUP_COLUMNS = {
    **{"queue": "queue", "kind": "kind", "group": "grp", "destination": "domain"},
    **{"sender": "sender", "sender-domain": "sender_domain", "account": "account"},
}
"""What tasks can be grouped by, and the column of the index; of a destination, its domain."""
TASK_GROUPINGS = tuple(GROUP_COLUMNS)[:4]
"""Those of all tasks; the others are of mails."""

FILTER_FIELDS = {
    **{"queue": "queue", "kind": "kind", "group": "group", "destination": "dest"},
    **{"sender": "from", "sender-domain": "from_domain", "account": "account"},
}
"""The field of the filter language that selects a group."""

DEFAULT_GROUPING = "kind"
"""The grouping if no other one has more than one group."""


class TaskGroup(NamedTuple):
    """The tasks with the same queue, kind, group, destination, sender or account."""

    name: str
    """Their common value; "" for tasks without one."""
    counts: tuple[int, ...]
    """Number in each state, in the order of `State`: of tasks, or of recipients."""
    oldest: float | None
    """Creation of its oldest task, epoch seconds UTC; None if the store knows none."""
    next_due: float | None
    """When its next pending task is due, epoch seconds UTC; 0: now. None: no task is pending, or
    the store does not know when."""
    error: str = ""
    """The error of its task that died last, or was created last and has not died. What such a task
    waits for, with `WAITING_PREFIX`, only if none has an error."""
    error_at: float | None = None
    """When that task died, epoch seconds UTC; None if it has not, or if unknown."""
    error_rank: float = 0.0
    """Of two groups the larger one has the later error."""
    payloads: int | None = None
    """Number of different payloads, such as the messages of recipients; None if not counted."""
    tasks: tuple[int, ...] = ()
    """Number of tasks in each state, where `counts` are not of tasks."""

    @property
    def total(self) -> int:
        """The sum of its counts."""
        return sum(self.counts)

    @property
    def waits(self) -> str:
        """What its tasks wait for, if `error` is only that; else ""."""
        waits = self.error.removeprefix(WAITING_PREFIX)
        return "" if waits == self.error else waits

    def count(self, state: State | None) -> int:
        """Its count in a state; None: in all."""
        return self.total if state is None else self.counts[STATE_NUMBERS[state]]

    def count_tasks(self, state: State | None) -> int:
        """Number of its tasks in a state; None: in all."""
        tasks = self.tasks or self.counts
        return sum(tasks) if state is None else tasks[STATE_NUMBERS[state]]


class GroupTable(NamedTuple):
    """Tasks by group."""

    by: str = DEFAULT_GROUPING
    """A key of `GROUP_COLUMNS`."""
    groupings: tuple[str, ...] = (DEFAULT_GROUPING,)
    """The keys that these tasks have values for; without tasks only `by`."""
    groups: tuple[TaskGroup, ...] = ()
    """At most `MAX_GROUPS`, the largest first."""
    others: int = 0
    """Number of further groups; `other_tasks` is the sum of their counts."""
    other_tasks: int = 0
    unit: str = TASKS
    """What is counted: one of the units of `engine.index.counted_rows`."""

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return self.other_tasks + sum(group.total for group in self.groups)


_TASKS = "".join(f", sum(state={number})" for number in range(len(STATES)))
_GROUPS = f"""
SELECT {{name}} AS name, {{payloads}}, min(created),
       min(CASE WHEN state={STATE_NUMBERS[State.PENDING]} THEN due END),
       max({{unit}}) OVER () | min({{unit}}) OVER (), count(*) OVER (), sum({{total}}) OVER (),
       {{counts}}{{tasks}}
FROM {{source}} GROUP BY 1
ORDER BY {{first}} {{total}} DESC, name LIMIT {{most}}"""
# SQLite takes a bare column from the row of the maximum only if there is one maximum in the query.
_ERRORS = f"""
SELECT {{name}}, error, died,
    max((error NOT LIKE '{WAITING_PREFIX}%') * 1e12 + coalesce(died, created, 0))
FROM {{source}} AND error<>'' AND {{name}} IN (SELECT value FROM json_each(?)) GROUP BY 1"""


def query_groups(
    reader: Reader,
    query: Query,
    by: str,
    now: float,
    first: State | None = None,
    *,
    counts_payloads: bool = False,
    most: int = MAX_GROUPS,
) -> GroupTable:
    """Group the tasks that match a query at `now` (epoch seconds UTC); the largest groups first, of
    tasks in the state `first` if there is one; `most` groups, -1: all. Without `by`, the first key
    of `GROUP_COLUMNS` with more than one group is used, of mail the destination, not the
    group."""
    met, values = query_condition(query, now)
    known = tuple(GROUP_COLUMNS) if reader.has_mail() else TASK_GROUPINGS
    extremes = ", ".join(f"min({GROUP_COLUMNS[key]}), max({GROUP_COLUMNS[key]})" for key in known)
    (bounds,) = reader.fetch(f"SELECT {extremes} FROM task NOT INDEXED WHERE {met}", values)
    ranges = dict(zip(known, zip(bounds[::2], bounds[1::2], strict=True), strict=True))
    several = (key for key, (low, high) in ranges.items() if low != high)
    if not by:
        by = next(several, DEFAULT_GROUPING)
        if by == "group" and len(known) > len(TASK_GROUPINGS) and ranges["destination"][1]:
            by = "destination"  # the group of a mail may be that of its first recipient alone
    groupings = tuple(key for key, (_, high) in ranges.items() if high) or (by,)
    source = counted_rows(reader, GROUP_COLUMNS[by], met, "NOT INDEXED")
    counts = [source.count_where(f"state={number}") for number in range(len(STATES))]
    form = _GROUPS.format(
        name=source.name,
        source=source.source,
        counts=", ".join(counts),
        total=source.count_where("1"),
        tasks=_TASKS if source.weight else "",
        unit=source.unit,
        payloads="count(DISTINCT payload)" if counts_payloads else "NULL",
        first="" if first is None else f"{counts[STATE_NUMBERS[first]]} DESC,",
        most=most,
    )
    rows = reader.fetch(form, values)
    if not rows:
        return GroupTable(by, groupings)
    names = json.dumps([row[0] for row in rows])
    last = reader.fetch(_ERRORS.format(name=source.name, source=source.source), (*values, names))
    errors = {name: (error, at, rank) for name, error, at, rank in last}
    units, amount, total = rows[0][4:7]
    groups = tuple(_group(row, errors) for row in rows)
    remainder = total - sum(group.total for group in groups)
    others = amount - len(groups)
    return GroupTable(by, groupings, groups, others, remainder, unit=UNITS[units])


def _group(row: Sequence[Any], errors: Mapping[str, tuple[str, float | None, float]]) -> TaskGroup:
    name, payloads, oldest, due, _, _, _, *numbers = row
    error, error_at, rank = errors.get(name, ("", None, 0.0))
    counts, tasks = tuple(numbers[: len(STATES)]), tuple(numbers[len(STATES) :])
    return TaskGroup(
        name,
        counts,
        oldest,
        due,
        error=error,
        error_at=error_at,
        error_rank=rank,
        payloads=payloads,
        tasks=tasks,
    )


MAX_DESTINATION_ROWS = 5000
"""Maximum counts of destinations, one for each state and error code."""

_DESTINATIONS = f"""
SELECT domain, state, CASE WHEN state<>{STATE_NUMBERS[State.DEAD]} THEN ''
    WHEN error LIKE '[%]%' THEN substr(error, 2, min(40, instr(error, ']') - 2))
    WHEN error LIKE '!_%!_ %' ESCAPE '!' THEN substr(error, 2, min(40, instr(error, '_ ') - 2))
    ELSE '' END AS bracketed,
    count(*), min(created)
FROM task WHERE state IN ({STATE_NUMBERS[State.PENDING]}, {STATE_NUMBERS[State.DEAD]})
    AND domain >= 'http' AND domain < 'httq' AND domain LIKE '%://%'
GROUP BY domain, state, bracketed ORDER BY domain LIMIT ?"""
# The range is one of the index by state and domain: mail addresses are not read. Task files
# have `_` in the place of the brackets around a code.


def count_destinations(reader: Reader, most: int = MAX_DESTINATION_ROWS) -> CountedTasks:
    """The tasks of each destination that is an origin, such as https://peer.example, as far as
    there are fewer than `most` counts of them."""
    by_origin: dict[str, DestinationTasks] = {}
    rows = reader.fetch(_DESTINATIONS, (most,))
    for origin, state, code, number, oldest in rows:
        had = by_origin.get(origin, DestinationTasks())
        if STATES[state] is State.PENDING:
            by_origin[origin] = had._replace(waiting=number, oldest=oldest)
        else:
            by_origin[origin] = had._replace(failed={**had.failed, code: number})
    if len(rows) < most:
        return CountedTasks(by_origin)
    last = rows[-1][0]  # perhaps not with all of its codes
    del by_origin[last]
    return CountedTasks(by_origin, unknown_from=last)
