"""Answer queries from the index, while another thread writes to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

from engine.index.filter_language import RECIPIENTS_FIELDS, Clause, Filter
from engine.index.filter_tasks import Matcher
from engine.index.listed_rows import ListedRows
from engine.index.schema import (
    ALL_STATE_NUMBERS,
    CHUNK_ROWS,
    MAX_PROBLEMS,
    STATE_NUMBERS,
    STATES,
    TASK_COLUMNS,
    Query,
    Values,
    Window,
    clean_text,
    order_clause,
    query_condition,
    task_of,
    task_source,
)
from engine.model import Problem, State, Task
from engine.operations.plan_rows import Row
from engine.system.cleanup import closed_on_error
from engine.values import NamedTuple

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
        select = f"SELECT task.n FROM {source} WHERE {met} {order} LIMIT ?"
        most = -1 if limit is None else limit
        with self._matcher.query():
            insert = f"INSERT INTO temp.found(n) {select}"
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
    query, *at = request
    same = query._replace(filter=stored.query.filter) == stored.query
    return same and [*stored[1:3]] == at and query.filter.extends(stored.query.filter)


class Reader:
    """A read-only connection to the index; each thread that queries has its own.

    Raises, everywhere: sqlite3.Error, if the file is gone, or `interrupt` was called; Unavailable,
    if matching a pattern took longer than `filter_tasks.QUERY_SECONDS`."""

    def __init__(self, path: str) -> None:
        """Open an existing index."""
        from urllib.parse import quote  # loaded for an index: a command without one is quicker

        self._db = sqlite3.connect(
            f"file:{quote(path)}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=16,  # some 8 KiB each; a screen repeats about ten of them
        )
        self.path = path
        with closed_on_error(self._db):
            self._db.execute("PRAGMA cache_size=-512")
            self._db.execute("PRAGMA temp_store=FILE")
            self._matcher = Matcher()
            self._matcher.install(self._db)
            self._listed = ListedRows(self._db)
            self._search = Search(self._db, self._matcher, self._listed)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def interrupt(self) -> None:
        """Make the running query fail; may be called from any thread."""
        with suppress(sqlite3.ProgrammingError):  # already closed
            self._db.interrupt()

    def window(
        self,
        query: Query,
        start: int,
        size: int,
        generation: int,
        now: float = 0.0,
        *,
        counts: bool = True,
    ) -> Window:
        """Up to `size` rows from `start` on; from an earlier row if the result is shorter. Ages in
        the filter are measured from `now` (epoch seconds UTC), here and below. Without `counts`, a
        search by id may end at the last of these rows."""
        with self._snapshot():
            if not self.is_listed(query):
                return self._search.window(query, start, size, generation, now, counts=counts)
            total = self._listed.total(query)
            start = max(0, min(start, total - size))
            size = min(size, total - start)
            first = total - start - size if query.descending else start
            rows = self._listed.page(query.state, first, size)
        if query.descending:
            rows.reverse()
        return Window(tuple(map(task_of, rows)), start, total, generation)

    def find(self, query: Query, ident: str, generation: int, now: float = 0.0) -> int | None:
        """The position of a task in a result; None if it is not in it."""
        with self._snapshot():
            if not self.is_listed(query):
                return self._search.find(query, ident, generation, now)
            is_there = self._rows_of(ident, query.state)
            return self._listed.place(query, ident) if is_there else None

    def task(self, ident: str) -> Task | None:
        """A task by its id, in any state."""
        rows = self._rows_of(ident, None)
        return task_of(rows[0]) if rows else None

    def rows(
        self, query: Query, ids: Collection[str] | None = None, now: float = 0.0
    ) -> tuple[Row, ...]:
        """Id, state and revision of all tasks that match a query, or of those among `ids`."""
        return tuple(Row(*fields[:3]) for fields in self.plan_rows(query, ids, now))

    def plan_rows(
        self,
        query: Query,
        ids: Collection[str] | None = None,
        now: float = 0.0,
        judge: Callable[[Task], tuple[str, int]] | None = None,
    ) -> Iterator[tuple[str, State, str, float, str, int]]:
        """The fields for a plan: id, state, revision, creation time, and the result of `judge`,
        which is `engine.operations.plans.judge`; None judges no task, and builds none."""
        source, values = task_source(query, ids, now)
        columns = "id, state, rev, created" if judge is None else TASK_COLUMNS
        with self._matcher.query():
            rows = self._db.execute(f"SELECT {columns} FROM {source} {order_clause(query)}", values)
            if judge is None:
                for ident, state, rev, created in rows:
                    yield ident, STATES[state], rev, created or 0.0, "", 0
            else:
                for task in map(task_of, rows):
                    yield task.id, task.state, task.rev, task.created, *judge(task)

    def fetch(
        self, sql: str, values: Sequence[str | int | float | None] = ()
    ) -> list[tuple[Any, ...]]:
        """Run a query of another module and return all rows, so that no cursor stays open."""
        with self._matcher.query():
            return self._db.execute(sql, values).fetchall()

    def has_index(self, name: str) -> bool:
        """True if an index that is created after the first full scan exists."""
        return bool(self.fetch("SELECT 1 FROM sqlite_master WHERE name=?", (name,)))

    def has_mail(self) -> bool:
        """True if a task is a mail, or was one."""
        return self.has_index("by_sender")

    def count_searched(self, state: State | None) -> tuple[int, int]:
        """How many recipients a filter searches, of how many, in the mails of a state that have
        more than the index has; None: in all states."""
        states = ALL_STATE_NUMBERS if state is None else str(STATE_NUMBERS[state])
        (row,) = self.fetch(
            "SELECT sum(length(recipients) - length(replace(recipients, char(10), '')) - "
            "(recipients <> '')), sum(all_recipients) FROM task NOT INDEXED "
            f"WHERE all_recipients IS NOT NULL AND state IN ({states})"
        )
        return row[0] or 0, row[1] or 0

    def count(self, query: Query, now: float = 0.0) -> int:
        """The number of tasks that match a query."""
        if self.is_listed(query._replace(order="id")):
            return self._listed.total(query)
        return self._search.count(query, now)

    def explain(self, query: Query, now: float = 0.0) -> str:
        """If nothing matches: the part of the filter that excludes all tasks. If not all recipients
        are searched: of how many. Else ""."""
        words = self._explain_nothing(query, now), self._explain_searched(query)
        return "; ".join(filter(None, words))

    def _explain_searched(self, query: Query) -> str:
        if not any(map(query.filter.mentions_field, RECIPIENTS_FIELDS)) or not self.has_mail():
            return ""
        searched, total = self.count_searched(query.state)
        return f"searched {searched:,} of {total:,} recipients" if total else ""

    def _explain_nothing(self, query: Query, now: float) -> str:
        clauses = query.filter.clauses
        if not clauses or (not self._search.is_empty(query) and self.count(query, now)):
            return ""
        alone = [
            (self._met(query, clauses[:at] + clauses[at + 1 :], now), clause.text)
            for at, clause in enumerate(clauses)
        ]
        most, text = max(alone, key=itemgetter(0))
        if most:
            return f'"{text}" matches none; {most:,} without it'
        matches = self._met(query, (), now)
        for end, clause in enumerate(clauses, 1):
            before, matches = matches, self._met(query, clauses[:end], now)
            if before and not matches:
                return f'"{clause.text}" matches none of the {before:,} left by the words before'
        return ""

    def _met(self, query: Query, clauses: tuple[Clause, ...], now: float) -> int:
        return self.count(query._replace(filter=Filter("", clauses)), now)

    def export(
        self, query: Query, take: Callable[[Sequence[Task], int, int], bool], now: float = 0.0
    ) -> int:
        """Pass all tasks that match a query to `take`, in order, as of one point in time.

        `take` gets some tasks, the number of tasks so far, and the total; it returns False to stop.
        Returns the number of tasks passed. The rows are copied to a temporary table first: a read
        transaction that stays open during slow output would keep all later changes in the WAL."""
        met, values = query_condition(query, now)
        self._db.execute("DROP TABLE IF EXISTS temp.harvest")
        self._db.execute(f"CREATE TEMP TABLE harvest(place INTEGER PRIMARY KEY, {TASK_COLUMNS})")
        with self._matcher.query():
            total = self._db.execute(
                f"INSERT INTO temp.harvest({TASK_COLUMNS}) SELECT {TASK_COLUMNS} "
                f"FROM task NOT INDEXED WHERE {met} {order_clause(query)}",
                values,
            ).rowcount
        done = 0
        while done < total:
            page = f"SELECT {TASK_COLUMNS} FROM temp.harvest WHERE place > ? AND place <= ?"
            rows = self.fetch(f"{page} ORDER BY place", (done, done + CHUNK_ROWS))
            done += len(rows)
            if not take([task_of(row) for row in rows], done, total):
                break
        self._db.execute("DROP TABLE temp.harvest")
        return done

    def problems(self) -> tuple[Problem, ...]:
        """The problems, at most `MAX_PROBLEMS`."""
        rows = self._db.execute(
            "SELECT place, what, state, since, quarantined FROM problem ORDER BY place LIMIT ?",
            (MAX_PROBLEMS,),
        )
        return tuple(
            Problem(place, what, None if state is None else STATES[state], *times)
            for place, what, state, *times in rows.fetchall()
        )

    def is_listed(self, query: Query) -> bool:
        """True if the result needs no search: one state or all, without a filter, sorted by id."""
        return self._listed.is_listed(query)

    def _rows_of(self, ident: str, state: State | None) -> list[Values]:
        states = ALL_STATE_NUMBERS if state is None else str(STATE_NUMBERS[state])
        return self._db.execute(
            f"SELECT {TASK_COLUMNS} FROM task INDEXED BY by_id "
            f"WHERE state IN ({states}) AND id=? ORDER BY state, queue",
            (clean_text(ident),),
        ).fetchall()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A read transaction, so that several queries see the same data."""
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._search.forget()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
