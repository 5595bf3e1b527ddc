"""Apply a filter to tasks without an index: the same SQL, on a temporary table in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TypeVar

from engine.index.filter_language import Filter
from engine.index.regexp_operator import Matcher
from engine.index.schema import (
    CHUNK_ROWS,
    CREATE_TABLE,
    INSERT_TASK,
    clean_row,
    filter_condition,
    row_of,
)
from engine.model import Task

T = TypeVar("T")


def select_matching(items: Iterable[T], filter: Filter, now: float) -> Iterator[T]:
    """Yield the tasks that match at `now` (epoch seconds UTC), and all items that are not tasks.

    Raises:
        Unavailable: matching a pattern took longer than `regexp_operator.QUERY_SECONDS`.
    """
    met, values = filter_condition(filter, now)
    waiting = iter(items)
    matcher = Matcher()
    with matcher.query(), closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        matcher.install(db)
        db.execute(CREATE_TABLE)
        while some := list(islice(waiting, CHUNK_ROWS)):
            rows = ((*clean_row(row_of(t)), n) for n, t in enumerate(some) if isinstance(t, Task))
            db.execute("BEGIN")
            db.executemany(INSERT_TASK, rows)
            matching = {n for (n,) in db.execute(f"SELECT n FROM task WHERE {met}", values)}
            db.execute("ROLLBACK")
            yield from (t for n, t in enumerate(some) if n in matching or not isinstance(t, Task))
