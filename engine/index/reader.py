"""Answers questions about an index, whoever fills it meanwhile."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from engine.index.filter_language import Clause, Filter
from engine.index.regexp_operator import Matcher
from engine.index.schema import (
    ALL,
    CHUNK,
    EVERYWHERE,
    LISTED,
    PROBLEMS,
    RANK,
    SHOWN,
    STATES,
    Query,
    Values,
    Window,
    order,
    task_of,
    text_of,
    where,
)
from engine.model import Problem, State, Task
from engine.operations.plans import Row

_in_order = itemgetter(0, 4, 2)
_BEFORE = """
SELECT first, before FROM (
    SELECT first, sum(size) OVER (ORDER BY first) - size AS before FROM block WHERE state=?)
WHERE {condition} ORDER BY first DESC LIMIT 1"""


class Reader:
    """Answers questions about an index; as many of them as there are threads that ask.

    Raises, everywhere: sqlite3.Error, when the file has gone, or `interrupt` was called;
    Unavailable, when matching a pattern took longer than `matching.QUERY_SECONDS`.
    """

    def __init__(self, path: str) -> None:
        """Open an index that a writer has made."""
        self._db = sqlite3.connect(
            f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA cache_size=-4096")
        self._db.execute("PRAGMA temp_store=FILE")
        self._matcher = Matcher()
        self._matcher.install(self._db)
        self._found: tuple[Query, int, float, int] | None = None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def interrupt(self) -> None:
        """End the question being answered with an error; may be called from any thread."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._db.interrupt()

    def window(
        self, query: Query, start: int, size: int, generation: int, now: float = 0.0
    ) -> Window:
        """Up to `size` rows from `start` on; less far on where the result is shorter than that.

        `now` (epoch seconds UTC) is what ages in the filter are measured from, here and below.
        """
        with self._snapshot():
            if not self.is_listed(query):
                return self._window_found(query, start, size, generation, now)
            total = self._total(query)
            start = max(0, min(start, total - size))
            size = min(size, total - start)
            first = total - start - size if query.descending else start
            rows = self._page(query.state, first, size)
        if query.descending:
            rows.reverse()
        return Window(tuple(map(task_of, rows)), start, total, generation)

    def find(self, query: Query, ident: str, generation: int, now: float = 0.0) -> int | None:
        """At which place of a result a task stands; None when it is not in it."""
        with self._snapshot():
            if not self.is_listed(query):
                return self._find_found(query, ident, generation, now)
            rows = self._rows_of(ident, query.state)
            if not rows:
                return None
            listed, values = _listing(query.state, "id>=:first")
            first, before = self._fence(query.state, "first<=?", ident)
            (skipped,) = self._db.execute(
                f"SELECT count(*) {listed} AND id<:id", {**values, "first": first, "id": ident}
            ).fetchone()
            place = int(before + skipped)
            return self._total(query) - 1 - place if query.descending else place

    def task(self, ident: str) -> Task | None:
        """A task by its id, wherever it stands."""
        rows = self._rows_of(ident, None)
        return task_of(rows[0]) if rows else None

    def rows(
        self, query: Query, ids: Collection[str] | None = None, now: float = 0.0
    ) -> tuple[Row, ...]:
        """How tasks stand: all that a query matches, or as much of it as has these ids."""
        return tuple(Row(*found[:3]) for found in self.seen(query, ids, now))

    def seen(
        self, query: Query, ids: Collection[str] | None = None, now: float = 0.0
    ) -> Iterator[tuple[str, State, str, float, bool]]:
        """What a plan is made of: id, state, revision, creation, and whether it is leased."""
        met, values = where(query, now)
        if ids is None:
            source = f"task NOT INDEXED WHERE {met}"
        else:
            source = (
                f"task INDEXED BY by_id WHERE state IN ({EVERYWHERE}) AND {met} "
                "AND id IN (SELECT value FROM json_each(?))"
            )
            values = (*values, json.dumps([text_of(ident) for ident in ids]))
        wanted = "id, state, rev, created, since IS NOT NULL"
        with self._matcher.query():
            found = self._db.execute(f"SELECT {wanted} FROM {source} {order(query)}", values)
            for ident, state, rev, created, leased in found:
                yield ident, STATES[state], rev, created or 0.0, bool(leased)

    def fetch(
        self, sql: str, values: Sequence[str | int | float | None] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a question of somebody else's; nothing stays open."""
        with self._matcher.query():
            return self._db.execute(sql, values).fetchall()

    def has_index(self, name: str) -> bool:
        """Whether an index that comes after the first whole look is there."""
        return bool(self.fetch("SELECT 1 FROM sqlite_master WHERE name=?", (name,)))

    def count(self, query: Query, now: float = 0.0) -> int:
        """How many tasks a query matches."""
        if self.is_listed(query._replace(order="id")):
            return self._total(query)
        met, values = where(query, now)
        return int(self.fetch(f"SELECT count(*) FROM task NOT INDEXED WHERE {met}", values)[0][0])

    def explain(self, query: Query, now: float = 0.0) -> str:
        """Where nothing matches, which part of the filter left nothing; "" where there is some."""
        clauses = query.filter.clauses
        if not clauses or self.count(query, now):
            return ""
        alone = [
            (self._met(query, clauses[:at] + clauses[at + 1 :], now), clause.text)
            for at, clause in enumerate(clauses)
        ]
        most, text = max(alone, key=itemgetter(0))
        if most:
            return f"{text} leaves 0; without it {most:,}"
        left = self._met(query, (), now)
        for end, clause in enumerate(clauses, 1):
            before, left = left, self._met(query, clauses[:end], now)
            if before and not left:
                return f"{clause.text} leaves 0 of the {before:,} that the words before it leave"
        return ""

    def _met(self, query: Query, clauses: tuple[Clause, ...], now: float) -> int:
        return self.count(query._replace(filter=Filter("", clauses)), now)

    def harvest(
        self, query: Query, take: Callable[[Sequence[Task], int, int], bool], now: float = 0.0
    ) -> int:
        """Hand over all that a query matches, in its order, as it was at one moment.

        `take` gets some tasks, how many there were up to and with these, and how many there are; it
        answers False to end. Answers how many were handed over. The rows are copied first: a
        snapshot held open while somebody writes them to a slow disk would keep all that happens
        meanwhile in the log beside the index.
        """
        met, values = where(query, now)
        self._db.execute("DROP TABLE IF EXISTS temp.harvest")
        self._db.execute(f"CREATE TEMP TABLE harvest(place INTEGER PRIMARY KEY, {SHOWN})")
        with self._matcher.query():
            total = self._db.execute(
                f"INSERT INTO temp.harvest({SHOWN}) SELECT {SHOWN} FROM task NOT INDEXED "
                f"WHERE {met} {order(query)}",
                values,
            ).rowcount
        done = 0
        while done < total:
            rows = self.fetch(
                f"SELECT {SHOWN} FROM temp.harvest WHERE place > ? AND place <= ? ORDER BY place",
                (done, done + CHUNK),
            )
            done += len(rows)
            if not take([task_of(row) for row in rows], done, total):
                break
        self._db.execute("DROP TABLE temp.harvest")
        return done

    def problems(self) -> tuple[Problem, ...]:
        """The problems, at most `PROBLEMS` of them."""
        found = self._db.execute(
            "SELECT place, what, state FROM problem ORDER BY place LIMIT ?", (PROBLEMS,)
        )
        return tuple(
            Problem(place, what, None if state is None else STATES[state])
            for place, what, state in found.fetchall()
        )

    # ---- by rank: one state, or all, in the order of ids

    def is_listed(self, query: Query) -> bool:
        """Whether a result is at hand without a search: one state or all, in the order of ids."""
        if query.filter or query.order != "id":
            return False
        return query.state is not None or self._first("SELECT 1 FROM block WHERE state=-1")

    def _first(self, sql: str) -> bool:
        return self._db.execute(f"{sql} LIMIT 1").fetchone() is not None

    def _total(self, query: Query) -> int:
        (total,) = self._db.execute(
            "SELECT coalesce(sum(size), 0) FROM block WHERE state=?", (_number(query.state),)
        ).fetchone()
        return int(total)

    def _fence(self, state: State | None, condition: str, value: str | int) -> tuple[str, int]:
        """The block that is last to meet a condition, and how many rows come before it."""
        found = self._db.execute(
            _BEFORE.format(condition=condition), (_number(state), value)
        ).fetchone()
        return found or ("", 0)

    def _page(self, state: State | None, start: int, size: int) -> list[Values]:
        first, before = self._fence(state, "before<=?", start)
        listed, values = _listing(state, "id>=:first")
        page = f"SELECT n AS m {listed} ORDER BY id, queue LIMIT :size OFFSET :skip"
        rows: list[Values] = self._db.execute(
            f"SELECT {SHOWN} FROM ({page}) CROSS JOIN task ON n = m",
            {**values, "first": first, "size": size, "skip": start - before},
        ).fetchall()
        return sorted(rows, key=_in_order)

    def _rows_of(self, ident: str, state: State | None) -> list[Values]:
        states = EVERYWHERE if state is None else str(RANK[state])
        return self._db.execute(
            f"SELECT {SHOWN} FROM task INDEXED BY by_id "
            f"WHERE state IN ({states}) AND id=? ORDER BY state, queue",
            (text_of(ident),),
        ).fetchall()

    # ---- by search: anything else is found once for each generation, and then known by place

    def _window_found(
        self, query: Query, start: int, size: int, generation: int, now: float
    ) -> Window:
        total = self._find_all(query, generation, now)
        start = max(0, min(start, total - size))
        rows = self._db.execute(
            f"SELECT {SHOWN} FROM temp.found CROSS JOIN task ON task.n = found.n "
            "WHERE place > ? AND place <= ? ORDER BY place",
            (start, start + size),
        ).fetchall()
        return Window(tuple(map(task_of, rows)), start, total, generation)

    def _find_found(self, query: Query, ident: str, generation: int, now: float) -> int | None:
        self._find_all(query, generation, now)
        (place,) = self._db.execute(
            "SELECT min(place) - 1 FROM temp.found WHERE n IN (SELECT n FROM task "
            f"INDEXED BY by_id WHERE state IN ({EVERYWHERE}) AND id=?)",
            (text_of(ident),),
        ).fetchone()
        return None if place is None else int(place)

    def _find_all(self, query: Query, generation: int, now: float) -> int:
        """Have the numbers of all rows of a result in order; how many they are."""
        known = query, generation, now if query.filter.relative else 0.0
        if self._found is not None and self._found[:3] == known:
            return self._found[3]
        self._found = None
        self._db.execute("DROP TABLE IF EXISTS temp.found")
        self._db.execute("CREATE TEMP TABLE found(place INTEGER PRIMARY KEY, n INT)")
        met, values = where(query, now)
        insert = f"INSERT INTO temp.found(n) SELECT n FROM task NOT INDEXED WHERE {met}"
        with self._matcher.query():
            total = self._db.execute(f"{insert} {order(query)}", values).rowcount
        self._found = *known, total
        return total

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several questions about one moment."""
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._found = None
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _number(state: State | None) -> int:
    return ALL if state is None else RANK[state]


def _listing(state: State | None, condition: str) -> tuple[str, dict[str, str | int]]:
    return LISTED[state is None].format(condition=condition), {"state": _number(state)}
