"""Group tasks by the pattern of their last error: how many, and since when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.index.reader import Reader
from engine.index.schema import ALL_STATE_NUMBERS, Query, clean_text, query_condition
from engine.text import error_pattern
from engine.verbs import WAITING_PREFIX

MAX_CLUSTERS = 200
"""Maximum number of clusters, the largest first."""

MAX_DESTINATIONS = 20
"""Destinations that a cluster names; one with more is not the fault of a few servers."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Tasks with the same error pattern."""

    mark: str
    """A short name to type: `cluster=F-3A91`."""
    pattern: str
    """The error without its variable parts (`engine.text.error_pattern.fold`)."""
    count: int
    first: float | None
    """When the first of these tasks died, epoch seconds UTC; None if no task has a time of death.

    Stores do not know when a task that waits for a retry failed: it is counted, but ignored in
    `first` and `last`."""
    last: float | None
    kinds: tuple[str, ...]
    example: str
    """The id of one of these tasks."""
    destinations: tuple[str, ...] = ()
    """Where its tasks go: all their domains or origins; empty if they name none, or more than
    `MAX_DESTINATIONS`, or if the first scan has not ended."""


_KINDS = """
SELECT cluster, kind, count(*) AS c, min(died) AS f, max(died) AS l, max(n) AS m
FROM task {how} WHERE {met} GROUP BY {by}"""
_FAILED = f"cluster<>'' AND cluster NOT LIKE '{WAITING_PREFIX}%'"
"""With an error, and not only with what the task waits for."""
_CLUSTERS = f"""
SELECT cluster, c, f, l, kinds, (SELECT id FROM task WHERE n = m) FROM (
    SELECT cluster, sum(c) AS c, min(f) AS f, max(l) AS l, json_group_array(DISTINCT kind) AS kinds,
           max(m) AS m
    FROM ({_KINDS}) GROUP BY cluster ORDER BY 2 DESC, 1 LIMIT {MAX_CLUSTERS})"""


def query_clusters(reader: Reader, query: Query, now: float) -> tuple[Cluster, ...]:
    """Group the tasks that match a query; at most `MAX_CLUSTERS`, the largest first."""
    met, values = query_condition(query, now)
    if query.filter or not reader.has_index("by_cluster"):
        how, by = "NOT INDEXED", "cluster, kind"
    else:
        how, by = "INDEXED BY by_cluster", "state, cluster, kind"
    if query.state is None:
        met = f"state IN ({ALL_STATE_NUMBERS}) AND {met}"  # the index begins with the state
    sql = _CLUSTERS.format(how=how, met=f"{_FAILED} AND {met}", by=by)
    clusters: list[Cluster] = []
    for pattern, count, first, last, kinds, example in reader.fetch(sql, values):
        is_sorted = reader.has_index("by_cluster")
        places = _destinations(reader, met, (*values, pattern)) if is_sorted else ()
        clusters.append(
            Cluster(
                error_pattern.pattern_name(pattern),
                pattern,
                count,
                first=first,
                last=last,
                kinds=tuple(sorted(json.loads(kinds))),
                example=example,
                destinations=places,
            )
        )
    return tuple(clusters)


def _destinations(
    reader: Reader, met: str, values: Sequence[str | int | float | None]
) -> tuple[str, ...]:
    sql = f"""SELECT DISTINCT domain FROM task INDEXED BY by_cluster
              WHERE {met} AND cluster = ? AND domain<>'' LIMIT {MAX_DESTINATIONS + 1}"""
    domains = tuple(sorted(domain for (domain,) in reader.fetch(sql, values)))
    return domains if len(domains) <= MAX_DESTINATIONS else ()


def find_destinations(reader: Reader, ids: Iterable[str]) -> dict[str, str]:
    """The domain or origin that tasks go to, by id, of those that are in the index and name one, or
    were among the last `MAX_DEPARTED` to leave it."""
    indexed = f"""SELECT domain FROM task INDEXED BY by_id
                WHERE state IN ({ALL_STATE_NUMBERS}) AND id = ? AND domain<>'' LIMIT 1"""
    departed = "SELECT domain FROM departed WHERE id = ? ORDER BY n DESC LIMIT 1"
    texts = {id: (clean_text(id),) for id in ids}
    rows_by_id = {
        id: reader.fetch(indexed, t) or reader.fetch(departed, t) for id, t in texts.items()
    }
    return {id: rows[0][0] for id, rows in rows_by_id.items() if rows}


def count_deaths(reader: Reader, query: Query, now: float, minutes: int) -> tuple[int, ...]:
    """How many of the tasks that match a query died in each of the last `minutes`, in order."""
    met, values = query_condition(query, now)
    age = f"CAST(({now:f} - died) / 60 AS INT)"
    sql = f"SELECT {age}, count(*) FROM task WHERE {met} AND died BETWEEN ? AND ? GROUP BY 1"
    deaths = dict(reader.fetch(sql, (*values, now - 60 * minutes, now)))
    return tuple(deaths.get(at, 0) for at in reversed(range(minutes)))
