"""Fills an index with what looks at a store see, and keeps it like that."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from engine.index.row_positions import BLOCK, Ranks
from engine.index.schema import (
    ALL,
    CHUNK,
    COLUMNS,
    EVERYWHERE,
    INSERT,
    LATER,
    LISTED,
    RANK,
    SCHEMA,
    STATES,
    WORDS,
    Values,
    row_of,
    storable,
    text_of,
)
from engine.model import Missing, Problem, State, Task

Key: TypeAlias = tuple[int, str, str]
"""State, id and queue: what tells rows apart."""

_key = itemgetter(2, 0, 4)
_REV = COLUMNS.index("rev")
_CHANGED = ", ".join(
    f"{name}=?{at}" for at, name in enumerate(COLUMNS, 1) if name not in ("id", "state", "queue")
)
_UPDATE = f"UPDATE task SET {_CHANGED} WHERE n=?{len(COLUMNS) + 1}"
_FENCES = """
SELECT id, min(before) FROM (
    SELECT id, rank() OVER (ORDER BY id) - 1 AS before,
           row_number() OVER (ORDER BY id, queue) AS place
    FROM task INDEXED BY by_name)
WHERE place % ? = 0 GROUP BY id
UNION ALL SELECT NULL, count(*) FROM task"""
"""Every so many rows, an id and how many rows come before it; at last how many there are."""


def _problem_row(problem: Problem) -> tuple[str, str, int | None]:
    state = None if problem.state is None else RANK[problem.state]
    return text_of(problem.where), text_of(problem.what), state


def _name(problem: Problem) -> str:
    """The name by which a look finds a problem's place again."""
    return text_of(problem.where).rpartition("/")[2]


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
        return self._ranks[RANK[state]].total

    def count_words(self) -> None:
        """Count tasks by words finer than their state; to be called before the first row."""
        self._db.executescript(WORDS)

    def words(self) -> dict[tuple[State, str], int]:
        """How many tasks have a word that is finer than their state, by state and word."""
        found = self._db.execute("SELECT state, word, tasks FROM worded WHERE tasks > 0").fetchall()
        return {(STATES[state], word): tasks for state, word, tasks in found}

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
        tasks = [row_of(item) for item in seen if isinstance(item, Task)]
        problems = [item for item in seen if isinstance(item, Problem)]
        try:
            return self._see(tasks, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._see([storable(row) for row in tasks], problems)

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
            places = {text_of(problem.where) for problem in problems}
            changed |= self._replace_problems(places, "place", problems)
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
        tasks = [row_of(item) for item in seen if isinstance(item, Task)]
        gone = {text_of(item.id) for item in seen if isinstance(item, Missing)}
        problems = [item for item in seen if isinstance(item, Problem)]
        names = {text_of(name) for name in asked}
        try:
            return self._settle(names, tasks, gone, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._settle(names, [storable(row) for row in tasks], gone, problems)

    def _settle(
        self, asked: set[str], tasks: list[Values], gone: set[str], problems: list[Problem]
    ) -> Sighting:
        rows = {_key(row): row for row in tasks}
        ids = {key[1] for key in rows}
        unreadable = {
            (RANK[problem.state], stem)
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
                f"WHERE state IN ({EVERYWHERE}) AND id IN ({marks})",
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
        self._db.executemany(INSERT, inserts)
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
        listed = LISTED[state == ALL].format(condition="id>=:first")
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
