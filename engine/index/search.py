"""Search the index: a result is found once for each generation, and kept by position."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from engine.index.listed_rows import ListedRows
from engine.index.regexp_operator import Matcher
from engine.index.schema import (
    ALL_STATE_NUMBERS,
    TASK_COLUMNS,
    Query,
    Window,
    clean_text,
    order_clause,
    query_condition,
    task_of,
)

MAX_FIRST_ROWS = 1000
"""A search for rows up to this position does not store the others: by id it reads the index in
order and stops there, otherwise it sorts at most these."""
COUNTED_ROWS = 30_000
"""A search among so many rows is counted always: that takes 10 ms."""
DENSE_ROWS = 8
"""If one of so many rows matches, a result is only counted: to store it would take longer."""


class _FoundRows(NamedTuple):
    """The result of a search, or its first rows, as `temp.found` has them."""

    query: Query
    generation: int
    now: float
    rows: int
    """Number of rows in the table."""
    total: int | None
    """Number of rows of the result; None if it is not known."""

    def has_rows(self, limit: int | None) -> bool:
        """True if the table has so many rows; None: the whole result."""
        return self.rows == self.total or (limit is not None and self.rows >= limit)


class Search:
    """The last result of a connection, in a temporary table, as far as needed."""

    def __init__(self, db: sqlite3.Connection, matcher: Matcher, listed: ListedRows) -> None:
        self._db, self._matcher, self._listed = db, matcher, listed
        self._stored: _FoundRows | None = None

    def forget(self) -> None:
        """Search again: the temporary table may be incomplete."""
        self._stored = None

    def is_empty(self, query: Query) -> bool:
        """True if this query was the last one, and found nothing."""
        return self._stored is not None and (self._stored.query, self._stored.total) == (query, 0)

    def count(self, query: Query, now: float) -> int:
        """Count the tasks that match, by reading all."""
        met, values = query_condition(query, now)
        with self._matcher.query():
            cursor = self._db.execute(f"SELECT count(*) FROM task NOT INDEXED WHERE {met}", values)
            return int(cursor.fetchone()[0])

    def window(
        self, query: Query, start: int, size: int, generation: int, now: float, *, counts: bool
    ) -> Window:
        """Up to `size` rows from `start` on, as `Reader.window` has them."""
        limit = None
        if query.state is not None and start + size <= MAX_FIRST_ROWS:
            if query.order == "id":
                limit = start + size
            elif not query.filter:  # its number is known
                limit = MAX_FIRST_ROWS
        stored = self._find(query, generation, now, limit)
        if stored.total is None and (counts or self._listed.total(query) <= COUNTED_ROWS):
            stored = self._count_rest(stored)
        total = stored.rows if stored.total is None else stored.total
        start = max(0, min(start, total - size))
        rows = self._db.execute(
            f"SELECT {TASK_COLUMNS} FROM temp.found CROSS JOIN task ON task.n = found.n "
            "WHERE place > ? AND place <= ? ORDER BY place",
            (start, start + size),
        ).fetchall()
        is_counted = stored.total is not None
        return Window(tuple(map(task_of, rows)), start, total, generation, is_counted)

    def find(self, query: Query, ident: str, generation: int, now: float) -> int | None:
        """The position of a task in a result; None if it is not in it."""
        met, values = query_condition(query, now)
        among = f"task INDEXED BY by_id WHERE state IN ({ALL_STATE_NUMBERS}) AND id=?"
        ident = clean_text(ident)
        with self._matcher.query():
            cursor = self._db.execute(f"SELECT 1 FROM {among} AND {met} LIMIT 1", (ident, *values))
            if cursor.fetchone() is None:
                return None
        place = None
        for limit in (0, None):  # among the rows that are known, else among all
            self._find(query, generation, now, limit)
            (place,) = self._db.execute(
                f"SELECT min(place) - 1 FROM temp.found WHERE n IN (SELECT n FROM {among})",
                (ident,),
            ).fetchone()
            if place is not None:
                break
        return place

    def _find(self, query: Query, generation: int, now: float, limit: int | None) -> _FoundRows:
        """Store the row numbers of a result in order in a temporary table: all of them, or at least
        `limit`."""
        known, before = (query, generation, now if query.filter.is_relative else 0.0), self._stored
        if before is not None and before[:3] == known and before.has_rows(limit):
            return before
        self._stored = None
        self._db.execute("DROP TABLE IF EXISTS temp.earlier")
        source, order = "task NOT INDEXED", order_clause(query)
        if before is not None and before.has_rows(None) and _is_within(known, before):
            self._db.execute("ALTER TABLE temp.found RENAME TO earlier")
            source, order = "temp.earlier CROSS JOIN task ON task.n = earlier.n", "ORDER BY place"
        elif limit is not None and query.order == "id":
            source = "task INDEXED BY by_id"
        self._db.execute("DROP TABLE IF EXISTS temp.found")
        self._db.execute("CREATE TEMP TABLE found(place INTEGER PRIMARY KEY, n INT)")
        met, values = query_condition(query, now)
        insert = (
            f"INSERT INTO temp.found(n) SELECT task.n FROM {source} WHERE {met} {order} LIMIT ?"
        )
        most = -1 if limit is None else limit
        with self._matcher.query():
            rows = self._db.execute(insert, (*values, most)).rowcount
        self._stored = _FoundRows(*known, rows, None if rows == most else rows)
        return self._stored

    def _count_rest(self, stored: _FoundRows) -> _FoundRows:
        """Count a result whose first rows are known; if it is not dense, store the others, too."""
        query, now, rows = stored.query, stored.now, stored.rows
        if not query.filter:
            self._stored = stored._replace(total=self._listed.total(query))
            return self._stored
        last = "SELECT id, queue FROM temp.found CROSS JOIN task ON task.n = found.n WHERE place=?"
        end = self._db.execute(last, (rows,)).fetchone()
        if end is None:  # that task has left, but the next generation was not reported yet
            return self._find(query, stored.generation, now, None)
        if self._listed.place(query, end[0]) < DENSE_ROWS * rows:
            self._stored = stored._replace(total=self.count(query, now))
            return self._stored
        met, values = query_condition(query, now)
        behind = f"{met} AND (id, queue) {'<' if query.descending else '>'} (?, ?)"
        insert = f"INSERT INTO temp.found(n) SELECT n FROM task INDEXED BY by_id WHERE {behind} "
        with self._matcher.query():
            more = self._db.execute(insert + order_clause(query), (*values, *end)).rowcount
        self._stored = stored._replace(rows=rows + more, total=rows + more)
        return self._stored


def _is_within(request: tuple[Query, int, float], stored: _FoundRows) -> bool:
    """True if all rows of a result are among those found, in the same order."""
    query, *at = request
    same = query._replace(filter=stored.query.filter) == stored.query
    return same and [*stored[1:3]] == at and query.filter.extends(stored.query.filter)
