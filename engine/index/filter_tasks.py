"""A filter for whoever has tasks and no index: the same SQL, over some rows at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TypeVar

from engine.index.filter_language import Filter
from engine.index.regexp_operator import Matcher
from engine.index.schema import CHUNK, INSERT, TABLE, matching, row_of, storable
from engine.model import Task

T = TypeVar("T")


def sieve(items: Iterable[T], filter: Filter, now: float) -> Iterator[T]:
    """Those of the tasks that match at a moment (epoch seconds UTC), and all that is no task.

    Raises:
        Unavailable: matching a pattern took longer than `matching.QUERY_SECONDS`.
    """
    met, values = matching(filter, now)
    waiting = iter(items)
    matcher = Matcher()
    with matcher.query(), closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        matcher.install(db)
        db.execute(TABLE)
        while some := list(islice(waiting, CHUNK)):
            rows = ((*storable(row_of(t)), n) for n, t in enumerate(some) if isinstance(t, Task))
            db.execute("BEGIN")
            db.executemany(INSERT, rows)
            kept = {n for (n,) in db.execute(f"SELECT n FROM task WHERE {met}", values)}
            db.execute("ROLLBACK")
            yield from (t for n, t in enumerate(some) if n in kept or not isinstance(t, Task))
