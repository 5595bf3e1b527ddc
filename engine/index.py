"""The mirror of a store in which every view is a query: one SQLite file in a scratch folder.

A `Writer` takes in what looks at the store see, a `Reader` answers questions about it; they meet
only in the file, each on a thread of its own. The store is the truth: an index is never repaired,
it is thrown away and filled again.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from engine.model import EMPTY, Lease, Missing, Problem, State, Task
from engine.plans import Row
from engine.ranks import BLOCK, Ranks

STATES = tuple(State)
"""A state's number in the index is its place here."""
ALL = -1
"""Stands for every state in the blocks of ranks."""

SCHEMA = """
CREATE TABLE task(
    n INTEGER PRIMARY KEY, id TEXT NOT NULL, state INT NOT NULL, queue TEXT NOT NULL,
    kind TEXT, created REAL, due REAL, attempts INT, priority INT, description TEXT,
    destination TEXT, error TEXT, cluster TEXT, owner TEXT, since REAL, until REAL, token TEXT,
    rev TEXT, grp TEXT, word TEXT, payload TEXT, extra TEXT);
CREATE UNIQUE INDEX by_id ON task(state, id, queue);
CREATE TABLE block(state INT, first TEXT, size INT, PRIMARY KEY(state, first)) WITHOUT ROWID;
CREATE TABLE problem(place TEXT PRIMARY KEY, what TEXT, state INT, name TEXT, look INT);
CREATE INDEX problem_by_name ON problem(name);
"""
# The unique index leads with state and id, so that it alone puts a state's rows in order, in
# however many queues they are.

LATER = (
    "CREATE INDEX by_name ON task(id, queue)",
    "CREATE INDEX by_due ON task(state, due)",
    "CREATE INDEX by_cluster ON task(state, cluster, created)",
    "CREATE INDEX by_destination ON task(state, destination, created)",
)
"""Made after the first whole look: kept from the start they would double its time."""

CHUNK = 500
"""Rows a transaction: more gains nothing, and a window waits for nobody."""
PROBLEMS = 10_000
"""Problems that are shown; all are counted."""

ORDERS: Mapping[str, str] = {
    "id": "id",
    "kind": "kind",
    "created": "created",
    "due": "due",
    "attempts": "attempts",
    "destination": "destination",
    "error": "error",
    "description": "description",
}
"""What a result can be ordered by, and the column it is."""

SEARCHED = ("id", "kind", "queue", "destination", "description", "error")
"""The columns in which the words of a query are looked for."""


class Query(NamedTuple):
    """Which tasks, in what order."""

    state: State | None = None
    """None: all of them."""
    words: str = ""
    """Plain words, each of which must be part of one of the `SEARCHED` fields, in any case."""
    order: str = "id"
    """A key of `ORDERS`; tasks alike in it are in the order of ids."""
    descending: bool = False


class Window(NamedTuple):
    """Some consecutive rows of a result: `start` up to `start + len(tasks)`, of `total`."""

    tasks: tuple[Task, ...]
    start: int
    total: int
    generation: int
    """Of the index when it was asked; what it shows is at least as new."""


Values: TypeAlias = tuple[str | int | float | None, ...]
Key: TypeAlias = tuple[int, str, str]
"""State, id and queue: what tells rows apart."""

_COLUMNS = (
    *("id", "kind", "state", "created", "queue", "grp", "word", "due", "attempts", "priority"),
    *("description", "destination", "payload", "error"),
    *("owner", "since", "until", "token", "rev", "extra", "cluster"),
)
"""First those of a task in its own order, so that one is made of a row quickly."""
_SHOWN = ", ".join(_COLUMNS)
_REV = _COLUMNS.index("rev")
_INSERT = f"INSERT INTO task({_SHOWN}, n) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
_CHANGED = ", ".join(
    f"{name}=?{at}" for at, name in enumerate(_COLUMNS, 1) if name not in ("id", "state", "queue")
)
_UPDATE = f"UPDATE task SET {_CHANGED} WHERE n=?{len(_COLUMNS) + 1}"
_rank = {state: at for at, state in enumerate(STATES)}
_key = itemgetter(2, 0, 4)
_in_order = itemgetter(0, 4, 2)
_everywhere = ", ".join(str(at) for at in range(len(STATES)))
_fold = re.compile("[0-9]+").sub
_LARGEST = (1 << 63) - 1
_FENCES = """
SELECT id, min(before) FROM (
    SELECT id, rank() OVER (ORDER BY id) - 1 AS before,
           row_number() OVER (ORDER BY id, queue) AS place
    FROM task INDEXED BY by_name)
WHERE place % ? = 0 GROUP BY id
UNION ALL SELECT NULL, count(*) FROM task"""
"""Every so many rows, an id and how many rows come before it; at last how many there are."""


def cluster(error: str) -> str:
    """An error without what tells its kin apart: each run of digits is `#`."""
    return _fold("#", error) if error else ""


def _values(task: Task) -> Values:
    return (
        task.id,
        task.kind,
        _rank[task.state],
        task.created,
        task.queue,
        task.group,
        task.word,
        task.due,
        task.attempts,
        task.priority,
        task.description,
        task.destination,
        task.payload,
        task.error,
        *(task.lease or _NO_LEASE),
        task.rev,
        json.dumps(dict(task.extra)) if task.extra else "",
        cluster(task.error),
    )


_NO_LEASE = (None, None, None, None)


def _task(row: tuple[Any, ...]) -> Task:
    owner, since, until, token, rev, extra, _ = row[14:]
    lease = None if owner is None else Lease(owner, since, until, token)
    told = json.loads(extra) if extra else EMPTY
    fields = [row[0], row[1], STATES[row[2]], *row[3:14], lease, rev, told]
    return Task(*fields)


def _storable(row: Values) -> Values:
    """The values of a task, whatever its files held: text that is text, numbers that fit."""
    return tuple(
        _text(value)
        if isinstance(value, str)
        else max(-_LARGEST, min(_LARGEST, value))
        if isinstance(value, int)
        else value
        for value in row
    )


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _problem_row(problem: Problem) -> tuple[str, str, int | None]:
    state = None if problem.state is None else _rank[problem.state]
    return _text(problem.where), _text(problem.what), state


def _name(problem: Problem) -> str:
    """The name by which a look finds a problem's place again."""
    return _text(problem.where).rpartition("/")[2]


def _stems(problem: Problem) -> set[str]:
    """The ids that a task at a problem's place may have had when it could be read."""
    name = _name(problem)
    return {name, name.rpartition(".")[0] or name}


class Sighting(NamedTuple):
    """What taking in some tasks changed: the ids that are new to the index, and that left it."""

    came: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    changed: bool = False
    """Whether anything in the index is different now."""


FREE, UNSEEN, SEEN = b"\0\1\2"


class Writer:
    """Takes in what is seen; one for an index, on one thread.

    Raises, everywhere: sqlite3.Error, when the disk is full or the file has gone; then only
    `close` makes sense.
    """

    def __init__(self, path: str) -> None:
        """Make a new index in a file that does not exist yet."""
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in (
            "page_size=8192",
            "journal_mode=WAL",
            "synchronous=OFF",  # it is never read again after a crash
            "wal_autocheckpoint=1000",
            "cache_size=-8192",
            "temp_store=FILE",  # memory costs 30-70 MiB at each index made
        ):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.executescript(SCHEMA)
        self._ranks = {at: Ranks() for at in range(len(STATES))}
        # One byte for each n, so that what a look did not see is found without asking the disk.
        self._marks = bytearray(1)
        self._free: list[int] = []
        self._look = 0
        self._filled = False
        self.problems = 0
        """How many there are."""

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def interrupt(self) -> None:
        """End what it is doing with an error; may be called from any thread."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._db.interrupt()

    def count(self, state: State) -> int:
        """How many tasks stand in a state."""
        return self._ranks[_rank[state]].total

    @property
    def total(self) -> int:
        """How many rows there are."""
        return sum(self.count(state) for state in STATES)

    # ---- a whole look

    def begin_look(self) -> None:
        """From now on remember what is seen, so that the rest can be told at the end."""
        self._look += 1
        self._filled = self.total > 0
        self._marks = self._marks.replace(bytes([SEEN]), bytes([UNSEEN]))

    def see(self, seen: Collection[Task | Missing | Problem]) -> Sighting:
        """Take in a part of a whole look; what it does not see stays until its end."""
        tasks = [_values(item) for item in seen if isinstance(item, Task)]
        problems = [item for item in seen if isinstance(item, Problem)]
        try:
            return self._see(tasks, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._see([_storable(row) for row in tasks], problems)

    def _see(self, values: list[Values], problems: list[Problem]) -> Sighting:
        rows = {_key(row): row for row in values}
        with self._transaction():
            known = self._known(rows)
            came = {key[1] for key in rows if key not in known}
            moved: dict[Key, int] = {}
            if self._filled and came:
                elsewhere = self._everywhere(came)
                came -= {key[1] for key in elsewhere}
                # Seen in this look where it stood before, it is in two places, which is shown.
                moved = {
                    key: n
                    for key, (n, _) in elsewhere.items()
                    if self._marks[n] == UNSEEN and key not in rows
                }
            changed = self._put(rows, known)
            self._remove(moved)
            changed |= self._replace_problems({_text(p.where) for p in problems}, "place", problems)
        return Sighting(frozenset(came), frozenset(), changed or bool(moved))

    def unseen(self, limit: int = CHUNK) -> list[str]:
        """Ids of some rows that this look has not seen."""
        numbers = list(islice(self._unseen(), limit))
        marks = ", ".join("?" * len(numbers))
        found = self._db.execute(f"SELECT id FROM task WHERE n IN ({marks})", numbers)
        return [ident for (ident,) in found.fetchall()]

    def _unseen(self) -> Iterator[int]:
        n = self._marks.find(UNSEEN)
        while n >= 0:
            yield n
            n = self._marks.find(UNSEEN, n + 1)

    def keep(self, ids: Iterable[str]) -> None:
        """Count these as seen: they are between two places just now."""
        for n, _ in self._everywhere(ids).values():
            self._marks[n] = SEEN

    def end_look(self) -> bool:
        """Forget the problems that the look did not see again; whether there were any."""
        with self._transaction():
            gone = self._db.execute("DELETE FROM problem WHERE look < ?", (self._look,)).rowcount
            self._count_problems()
        return gone > 0

    def arrange(self) -> Iterator[None]:
        """Make what waits for the first whole look, one index at each step."""
        for statement in LATER:
            self._db.execute(statement)
            if ALL not in self._ranks:
                with self._transaction():
                    self._ranks[ALL] = Ranks(self._db.execute(_FENCES, (BLOCK,)).fetchall())
            yield

    # ---- a look at some names

    def settle(
        self, asked: Collection[str], seen: Collection[Task | Missing | Problem]
    ) -> Sighting:
        """Take in all that a look at some names said: these tasks stand there and nowhere else.

        Of a name that nothing was said of, nothing is known: it stays as it is.
        """
        tasks = [_values(item) for item in seen if isinstance(item, Task)]
        gone = {_text(item.id) for item in seen if isinstance(item, Missing)}
        problems = [item for item in seen if isinstance(item, Problem)]
        names = {_text(name) for name in asked}
        try:
            return self._settle(names, tasks, gone, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._settle(names, [_storable(row) for row in tasks], gone, problems)

    def _settle(
        self, asked: set[str], tasks: list[Values], gone: set[str], problems: list[Problem]
    ) -> Sighting:
        rows = {_key(row): row for row in tasks}
        ids = {key[1] for key in rows}
        unreadable = {
            (_rank[problem.state], stem)
            for problem in problems
            if problem.state is not None
            for stem in _stems(problem)
        }
        with self._transaction():
            there = self._everywhere(ids | gone | {stem for _, stem in unreadable})
            moved = {
                key: n
                for key, (n, _) in there.items()
                if key not in rows and (key[1] in ids or key[1] in gone or key[:2] in unreadable)
            }
            changed = self._put(rows, there)
            self._remove(moved)
            names = asked | {_name(problem) for problem in problems}
            changed |= self._replace_problems(names, "name", problems)
        before = {key[1] for key in there}
        after = ids | {key[1] for key in there if key not in moved}
        return Sighting(frozenset(ids - before), frozenset(before - after), changed or bool(moved))

    # ---- problems

    def troubled(self, limit: int) -> list[str]:
        """Names to look at again because something was wrong there, those longest known last."""
        found = self._db.execute(
            "SELECT DISTINCT name FROM problem ORDER BY rowid DESC LIMIT ?", (limit,)
        )
        return [name for (name,) in found.fetchall()]

    def _replace_problems(self, names: set[str], column: str, problems: list[Problem]) -> bool:
        """Put these in the place of those known there; whether that makes a difference."""
        if not self.problems and not problems:
            return False
        known = self._db.execute(
            f"DELETE FROM problem WHERE {column} IN (SELECT value FROM json_each(?)) "
            "RETURNING place, what, state",
            (json.dumps(list(names)),),
        ).fetchall()
        for problem in problems:
            self._note(problem)
        self._count_problems()
        return set(known) != {_problem_row(problem) for problem in problems}

    def _note(self, problem: Problem) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO problem(place, what, state, name, look) VALUES (?, ?, ?, ?, ?)",
            (*_problem_row(problem), _name(problem), self._look),
        )

    def _count_problems(self) -> None:
        (self.problems,) = self._db.execute("SELECT count(*) FROM problem").fetchone()

    # ---- rows

    def _known(self, rows: Mapping[Key, Values]) -> dict[Key, tuple[int, str]]:
        """Which of these rows there are: their number and revision."""
        known = {}
        for state in {key[0] for key in rows}:
            ids = [key[1] for key in rows if key[0] == state]
            marks = ", ".join("?" * len(ids))
            for n, ident, queue, rev in self._db.execute(
                f"SELECT n, id, queue, rev FROM task WHERE state=? AND id IN ({marks})",
                (state, *ids),
            ).fetchall():
                known[state, ident, queue] = n, rev
        return known

    def _everywhere(self, ids: Iterable[str]) -> dict[Key, tuple[int, str]]:
        """Every row of these ids: its number and revision."""
        wanted = iter(ids)
        known = {}
        while some := list(islice(wanted, CHUNK)):
            marks = ", ".join("?" * len(some))
            for n, state, ident, queue, rev in self._db.execute(
                "SELECT n, state, id, queue, rev FROM task INDEXED BY by_id "
                f"WHERE state IN ({_everywhere}) AND id IN ({marks})",
                some,
            ).fetchall():
                known[state, ident, queue] = n, rev
        return known

    def _put(self, rows: Mapping[Key, Values], known: Mapping[Key, tuple[int, str]]) -> bool:
        """Write what differs from what is known, and count all as seen; whether anything did."""
        new = sorted(key for key in rows if key not in known)  # in order the tree stays compact
        numbers = self._numbers(len(new))
        altered = [
            (*row, known[key][0])
            for key, row in rows.items()
            if key in known and (not row[_REV] or row[_REV] != known[key][1])
        ]
        inserts = ((*rows[key], n) for n, key in zip(numbers, new, strict=True))
        self._db.executemany(_INSERT, inserts)
        self._db.executemany(_UPDATE, altered)
        # Only now: a value that cannot be stored must leave nothing behind but a gap.
        for key in new:
            self._count(key, 1)
        for n in numbers:
            self._marks[n] = SEEN
        for key, (n, _) in known.items():
            if key in rows:
                self._marks[n] = SEEN
        return bool(new or altered)

    def _remove(self, rows: Mapping[Key, int]) -> None:
        self._db.executemany("DELETE FROM task WHERE n=?", [(n,) for n in rows.values()])
        for key, n in rows.items():
            self._marks[n] = FREE
            self._free.append(n)
            self._count(key, -1)

    def _numbers(self, count: int) -> list[int]:
        """So many numbers that no row has."""
        kept = len(self._free) - min(count, len(self._free))
        numbers, self._free = self._free[kept:], self._free[:kept]
        more = count - len(numbers)
        numbers += range(len(self._marks), len(self._marks) + more)
        self._marks += bytes([FREE]) * more
        return numbers

    def _count(self, key: Key, count: int) -> None:
        for state in (key[0], ALL):
            if state in self._ranks:
                self._ranks[state].add(key[1], count)

    # ---- transactions

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._store_ranks()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _store_ranks(self) -> None:
        for state, ranks in self._ranks.items():
            for first, size in ranks.changes(partial(self._split, state)):
                sql = _KEEP_BLOCK if size else _FORGET_BLOCK
                self._db.execute(sql, (state, first, size))

    def _split(self, state: int, first: str, rows: int) -> tuple[str, int] | None:
        listed = _LISTED[state == ALL].format(condition="id>=:first")
        values = {"state": state, "first": first, "rows": rows}
        (name,) = self._db.execute(
            f"SELECT id {listed} ORDER BY id, queue LIMIT 1 OFFSET :rows", values
        ).fetchone()
        (before,) = self._db.execute(
            f"SELECT count(*) {listed} AND id<:name", {**values, "name": name}
        ).fetchone()
        return (name, before) if before else None


_KEEP_BLOCK = "INSERT OR REPLACE INTO block(state, first, size) VALUES (?1, ?2, ?3)"
_FORGET_BLOCK = "DELETE FROM block WHERE state=?1 AND first=?2 AND ?3=0"

_LISTED = (
    "FROM task INDEXED BY by_id WHERE state=:state AND {condition}",
    "FROM task INDEXED BY by_name WHERE {condition}",
)
"""The rows of one state, and of all, in the order of ids, from an index that holds nothing else."""


_BEFORE = """
SELECT first, before FROM (
    SELECT first, sum(size) OVER (ORDER BY first) - size AS before FROM block WHERE state=?)
WHERE {condition} ORDER BY first DESC LIMIT 1"""
_WITH_WORD = " OR ".join(f"{name} LIKE ? ESCAPE '\\'" for name in SEARCHED)


class Reader:
    """Answers questions about an index; as many of them as there are threads that ask.

    Raises, everywhere: sqlite3.Error, when the file has gone, or `interrupt` was called.
    """

    def __init__(self, path: str) -> None:
        """Open an index that a writer has made."""
        self._db = sqlite3.connect(
            f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA cache_size=-4096")
        self._db.execute("PRAGMA temp_store=FILE")
        self._found: tuple[Query, int, int] | None = None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def interrupt(self) -> None:
        """End the question being answered with an error; may be called from any thread."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._db.interrupt()

    def window(self, query: Query, start: int, size: int, generation: int) -> Window:
        """Up to `size` rows from `start` on; less far on where the result is shorter than that."""
        with self._snapshot():
            if not self.is_listed(query):
                return self._window_found(query, start, size, generation)
            total = self._total(query)
            start = max(0, min(start, total - size))
            size = min(size, total - start)
            first = total - start - size if query.descending else start
            rows = self._page(query.state, first, size)
        if query.descending:
            rows.reverse()
        return Window(tuple(map(_task, rows)), start, total, generation)

    def find(self, query: Query, ident: str, generation: int) -> int | None:
        """At which place of a result a task stands; None when it is not in it."""
        with self._snapshot():
            if not self.is_listed(query):
                return self._find_found(query, ident, generation)
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
        return _task(rows[0]) if rows else None

    def rows(self, query: Query, ids: Collection[str] | None = None) -> tuple[Row, ...]:
        """What a plan is made of: all that a query matches, or what stands under some ids."""
        if ids is None:
            where, values = _where(query)
            source = f"task NOT INDEXED WHERE {where}"
        else:
            where, values = _where(query._replace(words=""))
            source = (
                f"task INDEXED BY by_id WHERE state IN ({_everywhere}) AND {where} "
                "AND id IN (SELECT value FROM json_each(?))"
            )
            values = (*values, json.dumps([_text(ident) for ident in ids]))
        found = self._db.execute(f"SELECT id, state, rev FROM {source} {_order(query)}", values)
        return tuple(Row(ident, STATES[state], rev) for ident, state, rev in found.fetchall())

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
        if query.words or query.order != "id":
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
            f"SELECT {_SHOWN} FROM ({page}) CROSS JOIN task ON n = m",
            {**values, "first": first, "size": size, "skip": start - before},
        ).fetchall()
        return sorted(rows, key=_in_order)

    def _rows_of(self, ident: str, state: State | None) -> list[Values]:
        states = _everywhere if state is None else str(_rank[state])
        return self._db.execute(
            f"SELECT {_SHOWN} FROM task INDEXED BY by_id "
            f"WHERE state IN ({states}) AND id=? ORDER BY state, queue",
            (_text(ident),),
        ).fetchall()

    # ---- by search: anything else is found once for each generation, and then known by place

    def _window_found(self, query: Query, start: int, size: int, generation: int) -> Window:
        total = self._find_all(query, generation)
        start = max(0, min(start, total - size))
        rows = self._db.execute(
            f"SELECT {_SHOWN} FROM temp.found CROSS JOIN task ON task.n = found.n "
            "WHERE place > ? AND place <= ? ORDER BY place",
            (start, start + size),
        ).fetchall()
        return Window(tuple(map(_task, rows)), start, total, generation)

    def _find_found(self, query: Query, ident: str, generation: int) -> int | None:
        self._find_all(query, generation)
        (place,) = self._db.execute(
            "SELECT min(place) - 1 FROM temp.found WHERE n IN (SELECT n FROM task "
            f"INDEXED BY by_id WHERE state IN ({_everywhere}) AND id=?)",
            (_text(ident),),
        ).fetchone()
        return None if place is None else int(place)

    def _find_all(self, query: Query, generation: int) -> int:
        """Have the numbers of all rows of a result in order; how many they are."""
        if self._found is not None and self._found[:2] == (query, generation):
            return self._found[2]
        self._found = None
        self._db.execute("DROP TABLE IF EXISTS temp.found")
        self._db.execute("CREATE TEMP TABLE found(place INTEGER PRIMARY KEY, n INT)")
        where, values = _where(query)
        total = self._db.execute(
            f"INSERT INTO temp.found(n) SELECT n FROM task NOT INDEXED WHERE {where} "
            f"{_order(query)}",
            values,
        ).rowcount
        self._found = query, generation, total
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
    return ALL if state is None else _rank[state]


def _listing(state: State | None, condition: str) -> tuple[str, dict[str, str | int]]:
    return _LISTED[state is None].format(condition=condition), {"state": _number(state)}


def _where(query: Query) -> tuple[str, Values]:
    """The condition of a query; what the operator typed goes in as values, never as text."""
    conditions, values = ["1"], list[str | int]()
    if query.state is not None:
        conditions.append("state=?")
        values.append(_rank[query.state])
    for word in _text(query.words).split():
        escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        conditions.append(f"({_WITH_WORD})")
        values += [f"%{escaped}%"] * len(SEARCHED)
    return " AND ".join(conditions), tuple(values)


def _order(query: Query) -> str:
    way = "DESC" if query.descending else "ASC"
    columns = dict.fromkeys((ORDERS[query.order], "id", "queue", "state"))
    return "ORDER BY " + ", ".join(f"{column} {way}" for column in columns)
