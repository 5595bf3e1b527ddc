"""Errors by what they have in common: which there are, how often, since when."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.index.reader import Reader
from engine.index.schema import EVERYWHERE, Query, where
from engine.text import error_pattern

MOST = 200
"""Clusters that are told, those with most tasks."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Tasks whose last errors are alike."""

    mark: str
    """A short name to type: `cluster=F-3A91`."""
    pattern: str
    """The error without what varies (`fingerprint.fold`)."""
    count: int
    first: float | None
    """When the first of these tasks died, epoch seconds UTC; None where no task says when it did.

    Of a task that waits to be tried again no store tells when it failed: it counts, but has no part
    in `first` and `last`.
    """
    last: float | None
    kinds: tuple[str, ...]
    example: str
    """The id of one of them."""


_KINDS = """
SELECT cluster, kind, count(*) AS c, min(died) AS f, max(died) AS l, max(n) AS m
FROM task {how} WHERE {met} GROUP BY {by}"""
_CLUSTERS = f"""
SELECT cluster, c, f, l, kinds, (SELECT id FROM task WHERE n = m) FROM (
    SELECT cluster, sum(c) AS c, min(f) AS f, max(l) AS l, json_group_array(DISTINCT kind) AS kinds,
           max(m) AS m
    FROM ({_KINDS}) GROUP BY cluster ORDER BY 2 DESC, 1 LIMIT {MOST})"""


def ask(reader: Reader, query: Query, now: float) -> tuple[Cluster, ...]:
    """The clusters of what a query matches, at most `MOST`, those with most tasks first."""
    met, values = where(query, now)
    if query.filter or not reader.has_index("by_cluster"):
        how, by = "NOT INDEXED", "cluster, kind"
    else:
        how, by = "INDEXED BY by_cluster", "state, cluster, kind"
        if query.state is None:
            met = f"state IN ({EVERYWHERE})"
    sql = _CLUSTERS.format(how=how, met=f"cluster<>'' AND {met}", by=by)
    return tuple(
        Cluster(error_pattern.mark(pattern), pattern, count, first, last, _kinds(kinds), example)
        for pattern, count, first, last, kinds, example in reader.fetch(sql, values)
    )


def _kinds(listed: str) -> tuple[str, ...]:
    return tuple(sorted(json.loads(listed)))
