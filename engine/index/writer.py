"""Write the results of store scans to the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeAlias

from engine.index.listed_rows import RowPositions
from engine.index.mail_columns import NO_MAIL
from engine.index.schema import (
    ALL_STATE_NUMBERS,
    ALL_STATES,
    CHUNK_ROWS,
    CREATE_SCHEMA,
    DEFERRED_INDEXES,
    DEPARTURE_TRIGGER,
    INSERT_NO_MAIL,
    INSERT_PLAIN_TASK,
    INSERT_TASK,
    MAIL_INDEX,
    NO_RARE_VALUES,
    PLAIN_COLUMNS,
    ROW_COLUMNS,
    SORTED_ROWS,
    STATE_NUMBERS,
    STATES,
    WORD_TRIGGERS,
    Values,
    clean_row,
    clean_text,
    row_of,
)
from engine.model import AttemptLimit, Missing, Problem, State, Task
from engine.system.cleanup import closed_on_error
from engine.values import NamedTuple

Key: TypeAlias = tuple[int, str, str]
"""State, id and queue: the identity of a row."""

_key = itemgetter(*map(ROW_COLUMNS.index, ("state", "id", "queue")))
_PLAIN = PLAIN_COLUMNS.count(",") + 1
_NO_MAIL = _PLAIN + len(NO_RARE_VALUES)
_NO_RARE_VALUES = (*NO_RARE_VALUES, *NO_MAIL)
_REV, _DUE = ROW_COLUMNS.index("rev"), ROW_COLUMNS.index("due")
_COMPARED_COLUMNS = ("rev", "attempts", "word", "error", "extra")
_compared_values = itemgetter(*map(ROW_COLUMNS.index, _COMPARED_COLUMNS))
_KNOWN = f"n, id, queue, due, {', '.join(_COMPARED_COLUMNS)}"
_CHANGED = [at for at, name in enumerate(ROW_COLUMNS) if name not in ("id", "state", "queue")]
_changed_values = itemgetter(*_CHANGED)
_DOMAINS = _CHANGED.index(ROW_COLUMNS.index("domains"))
_UPDATE = f"UPDATE task SET {', '.join(f'{ROW_COLUMNS[at]}=?' for at in _CHANGED)} WHERE n=?"


def _count_died(rows: Iterable[Key], known: Container[Key]) -> int:
    dead = STATE_NUMBERS[State.DEAD]
    return sum(key[0] == dead and key not in known for key in rows)


def _problem_row(problem: Problem) -> tuple[str | float | None, ...]:
    where, what, state, *times = problem
    number = None if state is None else STATE_NUMBERS[state]
    return clean_text(where), clean_text(what), number, *times


def _name(problem: Problem) -> str:
    """The name by which the store can look up a problem's file again."""
    return clean_text(problem.where).rpartition("/")[2]


def _stems(problem: Problem) -> set[str]:
    """The ids that a task in a problem's file may have had while it was readable."""
    name = _name(problem)
    return {name, name.rpartition(".")[0] or name}


class IndexDelta(NamedTuple):
    """The effect of an update: ids that are new to the index, and ids that have left it."""

    appeared: frozenset[str] = frozenset()
    departed: frozenset[str] = frozenset()
    changed: bool = False
    died: int = 0
    """Tasks that are new in the dead-letter queue, although others may have left it meanwhile."""


DUE_ROUNDING_SECONDS = 2.0
"""Due times of one revision that differ by no more are the same: servers round what they show."""

KnownRow: TypeAlias = tuple[int, float | None, Values]
"""The number of a row, its due time and the values of `_COMPARED_COLUMNS`."""


def _differs(row: Values, known: KnownRow) -> bool:
    """True if a row must be written again. A server's facts of a task, such as its due time and why
    it waits, change without its revision, which is that of the file."""
    _, before, values = known
    due = row[_DUE]
    if not row[_REV] or _compared_values(row) != values:
        return True
    if due == before or not isinstance(due, float | int) or before is None:
        return due != before
    return abs(due - before) > DUE_ROUNDING_SECONDS


MAX_EARLY_ROWS = 5000
"""Rows at the beginning of the first scan that may be of the store's sample, and come again."""

FREE, UNSEEN, SEEN = b"\0\1\2"


class Writer:
    """The only writer of an index, on one thread.

    Raises, everywhere: sqlite3.Error, if the disk is full or the file is gone; after that, only
    `close` is useful."""

    def __init__(self, path: str, limit: AttemptLimit) -> None:
        """Create a new index in a file that does not exist yet; `limit` as in `row_of`."""
        self._limit = limit
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with closed_on_error(self._db):
            for pragma in (
                "page_size=8192",
                "journal_mode=WAL",
                "synchronous=OFF",  # the file is not used after a crash
                "wal_autocheckpoint=1000",
                "cache_size=-1024",  # KiB: the kernel caches the file, for all places together
                "temp_store=FILE",  # MEMORY would cost 30-70 MiB for each index created
            ):
                self._db.execute(f"PRAGMA {pragma}").fetchall()
            self._db.executescript(CREATE_SCHEMA)
            self._db.execute(DEPARTURE_TRIGGER)
        self._ranks = {at: RowPositions() for at in range(len(STATES))}
        # One byte for each row number: unseen rows are found without reading the disk.
        self._marks = bytearray(1)
        self._free: list[int] = []
        self._scan_number = 0
        self._filled = self._has_mail = False
        self._early: set[Key] = set()
        """In the first scan, rows that it may yet show: of the store's sample, and of lookups."""
        self.problems = 0

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def interrupt(self) -> None:
        """Make the running statement fail; may be called from any thread."""
        with suppress(sqlite3.ProgrammingError):  # already closed
            self._db.interrupt()

    def count(self, state: State) -> int:
        """The number of tasks in a state."""
        return self._ranks[STATE_NUMBERS[state]].total

    def count_words(self) -> None:
        """Start to count tasks by words finer than their state; call it before the first row."""
        self._db.executescript(WORD_TRIGGERS)

    def word_counts(self) -> dict[tuple[State, str], int]:
        """The number of tasks by state and by words finer than a state."""
        rows = self._db.execute("SELECT state, word, tasks FROM worded WHERE tasks > 0").fetchall()
        return {(STATES[state], word): tasks for state, word, tasks in rows}

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.count(state) for state in STATES)

    # ---- a full scan

    def begin_scan(self) -> None:
        """Start a full scan: from now on, remember which rows are seen."""
        self._scan_number += 1
        self._filled = self.total > 0
        self._early.clear()
        self._marks = self._marks.replace(bytes([SEEN]), bytes([UNSEEN]))

    def add_scanned(self, scanned: Collection[Task | Missing | Problem]) -> IndexDelta:
        """Write a part of a full scan; rows that are not in it stay until the end of the scan."""
        tasks = [row_of(item, self._limit) for item in scanned if isinstance(item, Task)]
        problems = [item for item in scanned if isinstance(item, Problem)]
        try:
            return self._add_scanned(tasks, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._add_scanned([clean_row(row) for row in tasks], problems)

    def _add_scanned(self, values: list[Values], problems: list[Problem]) -> IndexDelta:
        rows = {_key(row): row for row in values}
        if not self._filled:
            try:
                return self._put_scanned(rows, self._known(self._early & rows.keys()), problems)
            except sqlite3.IntegrityError:
                pass  # the store has shown a row twice
        return self._put_scanned(rows, self._known(rows), problems)

    def _put_scanned(
        self,
        rows: Mapping[Key, Values],
        known: Mapping[Key, KnownRow],
        problems: list[Problem],
    ) -> IndexDelta:
        with self._transaction():
            appeared = {key[1] for key in rows if key not in known}
            moved: dict[Key, int] = {}
            if self._filled and appeared:
                elsewhere = self._rows_with_ids(appeared)
                appeared -= {key[1] for key in elsewhere}
                # A row that this scan has seen in its old state, too, exists twice; both stay.
                moved = {
                    key: n
                    for key, (n, *_) in elsewhere.items()
                    if self._marks[n] == UNSEEN and key not in rows
                }
            changed, died = self._put(rows, known), _count_died(rows, known)
            if self.total < MAX_EARLY_ROWS:
                self._early.update(rows)
            self._remove(moved)
            places = {clean_text(problem.where) for problem in problems}
            changed |= self._replace_problems(places, "place", problems)
        return IndexDelta(frozenset(appeared), frozenset(), changed or bool(moved), died)

    def mark_unchanged(self, unchanged: Collection[tuple[str, State, str]]) -> list[str]:
        """Count the rows with these ids, states and revisions as seen; return the other ids."""
        revs = {(STATE_NUMBERS[state], clean_text(name), ""): rev for name, state, rev in unchanged}
        known = self._known(revs)
        others = []
        for key, rev in revs.items():
            n, _, values = known.get(key, (0, None, ("",)))
            if rev and rev == values[0]:
                self._marks[n] = SEEN
            else:
                others.append(key[1])
        return others

    def unseen_ids(self, limit: int = CHUNK_ROWS) -> list[str]:
        """Ids of some rows that this scan has not seen."""
        numbers: list[int] = []
        while len(numbers) < limit:
            n = self._marks.find(UNSEEN, numbers[-1] + 1 if numbers else 0)
            if n < 0:
                break
            numbers.append(n)
        marks = ", ".join("?" * len(numbers))
        rows = self._db.execute(f"SELECT id FROM task WHERE n IN ({marks})", numbers)
        return [ident for (ident,) in rows.fetchall()]

    def mark_seen(self, ids: Iterable[str]) -> None:
        """Count these as seen: they are being moved between two states."""
        for n, *_ in self._rows_with_ids(ids).values():
            self._marks[n] = SEEN

    def end_scan(self) -> bool:
        """Delete the problems that the scan has not seen again; True if there were any."""
        self._filled, self._early = True, set()
        with self._transaction():
            deleted = self._db.execute(
                "DELETE FROM problem WHERE look < ?", (self._scan_number,)
            ).rowcount
            self._count_problems()
        # The first scan is done: changes that come later need few pages.
        for pragma in ("cache_size=-256", "shrink_memory"):
            self._db.execute(f"PRAGMA {pragma}")
        return deleted > 0

    def build_indexes(self) -> Iterator[None]:
        """Create the indexes that wait for the first full scan, one at each step."""
        for statement in DEFERRED_INDEXES:
            self._db.execute(statement)
            if ALL_STATES not in self._ranks:
                with self._transaction():
                    self._ranks[ALL_STATES] = RowPositions(self.total)
            self._db.execute("PRAGMA shrink_memory")
            yield

    # ---- a lookup of some names

    def apply_lookup(
        self, asked: Collection[str], answers: Collection[Task | Missing | Problem]
    ) -> IndexDelta:
        """Write the result of looking up some names: these tasks exist there, and nowhere else. A
        name without a result is unknown: its rows do not change."""
        tasks = [row_of(item, self._limit) for item in answers if isinstance(item, Task)]
        missing = {clean_text(item.id) for item in answers if isinstance(item, Missing)}
        problems = [item for item in answers if isinstance(item, Problem)]
        names = {clean_text(name) for name in asked}
        try:
            return self._apply_lookup(names, tasks, missing, problems)
        except (UnicodeEncodeError, OverflowError):
            return self._apply_lookup(names, [clean_row(row) for row in tasks], missing, problems)

    def _apply_lookup(
        self, asked: set[str], tasks: list[Values], missing: set[str], problems: list[Problem]
    ) -> IndexDelta:
        rows = {_key(row): row for row in tasks}
        ids = {key[1] for key in rows}
        unreadable = {
            (STATE_NUMBERS[problem.state], stem)
            for problem in problems
            if problem.state is not None
            for stem in _stems(problem)
        }
        with self._transaction():
            missing |= _ids_below(self._db, (name for name in missing if name.endswith("/")))
            known = self._rows_with_ids(ids | missing | {stem for _, stem in unreadable})
            moved = {
                key: n
                for key, (n, *_) in known.items()
                if key not in rows and (key[1] in ids or key[1] in missing or key[:2] in unreadable)
            }
            changed, died = self._put(rows, known), _count_died(rows, known)
            if not self._filled:
                self._early.update(rows)
            self._remove(moved)
            names = asked | {_name(problem) for problem in problems}
            changed |= self._replace_problems(names, "name", problems)
        before = {key[1] for key in known}
        after = ids | {key[1] for key in known if key not in moved}
        return IndexDelta(
            frozenset(ids - before), frozenset(before - after), changed or bool(moved), died
        )

    # ---- problems

    def problem_names(self, limit: int) -> list[str]:
        """Names of files with problems to look up again, the longest known last."""
        rows = self._db.execute(
            "SELECT DISTINCT name FROM problem ORDER BY rowid DESC LIMIT ?", (limit,)
        )
        return [name for (name,) in rows.fetchall()]

    def _replace_problems(self, names: set[str], column: str, problems: list[Problem]) -> bool:
        """Replace the problems known for these names; True if that changes anything."""
        if not self.problems and not problems:
            return False
        known = self._db.execute(
            f"DELETE FROM problem WHERE {column} IN (SELECT value FROM json_each(?)) "
            "RETURNING place, what, state, since, quarantined",
            (json.dumps(list(names)),),
        ).fetchall()
        self._db.executemany(
            "INSERT OR REPLACE INTO problem VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*_problem_row(one), _name(one), self._scan_number) for one in problems],
        )
        self._count_problems()
        return set(known) != {_problem_row(problem) for problem in problems}

    def _count_problems(self) -> None:
        (self.problems,) = self._db.execute("SELECT count(*) FROM problem").fetchone()

    # ---- rows

    def _known(self, rows: Collection[Key]) -> dict[Key, KnownRow]:
        known = {}
        for state in {key[0] for key in rows}:
            ids = [key[1] for key in rows if key[0] == state]
            marks = ", ".join("?" * len(ids))
            for n, ident, queue, due, *values in self._db.execute(
                f"SELECT {_KNOWN} FROM task WHERE state=? AND id IN ({marks})", (state, *ids)
            ).fetchall():
                known[state, ident, queue] = n, due, tuple(values)
        return known

    def _rows_with_ids(self, ids: Iterable[str]) -> dict[Key, KnownRow]:
        """What is known of every row with these ids, in any state."""
        remaining = iter(ids)
        known = {}
        while some := list(islice(remaining, CHUNK_ROWS)):
            marks = ", ".join("?" * len(some))
            for state, n, ident, queue, due, *values in self._db.execute(
                f"SELECT state, {_KNOWN} FROM task INDEXED BY by_id "
                f"WHERE state IN ({ALL_STATE_NUMBERS}) AND id IN ({marks})",
                some,
            ).fetchall():
                known[state, ident, queue] = n, due, tuple(values)
        return known

    def _put(self, rows: Mapping[Key, Values], known: Mapping[Key, KnownRow]) -> bool:
        """Insert and update the rows that differ, and mark all as seen; True if any differed."""
        new = sorted(key for key in rows if key not in known)  # it keeps the B-tree compact
        numbers = self._numbers(len(new))
        altered = [
            (*_changed_values(row), known[key][0])
            for key, row in rows.items()
            if key in known and _differs(row, known[key])
        ]
        plain, no_mails, full = [], [], []
        for n, key in zip(numbers, new, strict=True):
            row = rows[key]
            if row[_PLAIN:] == _NO_RARE_VALUES:
                plain.append((*row[:_PLAIN], n))
            elif row[_NO_MAIL:] == NO_MAIL:
                no_mails.append((*row[:_NO_MAIL], n))
            else:
                full.append((*row, n))
        if not self._has_mail and (full or any(row[_DOMAINS] is not None for row in altered)):
            self._db.execute(MAIL_INDEX)
            self._has_mail = True
        self._db.executemany(INSERT_PLAIN_TASK, plain)
        self._db.executemany(INSERT_NO_MAIL, no_mails)
        self._db.executemany(INSERT_TASK, full)
        self._db.executemany(_UPDATE, altered)
        # Only after the inserts: a value that cannot be stored must change no count.
        for state, keys in groupby(new, itemgetter(0)):
            names = [key[1] for key in keys]
            for each in (state, ALL_STATES):
                if each in self._ranks:
                    self._ranks[each].add_sorted(names)
        for n in numbers:
            self._marks[n] = SEEN
        for key, (n, *_) in known.items():
            if key in rows:
                self._marks[n] = SEEN
        return bool(new or altered)

    def _remove(self, rows: Mapping[Key, int]) -> None:
        self._db.executemany("DELETE FROM task WHERE n=?", [(n,) for n in rows.values()])
        for key, n in rows.items():
            self._marks[n] = FREE
            self._free.append(n)
            for state in (key[0], ALL_STATES):
                if state in self._ranks:
                    self._ranks[state].add(key[1], -1)

    def _numbers(self, count: int) -> list[int]:
        """Allocate row numbers, free ones first."""
        split = len(self._free) - min(count, len(self._free))
        numbers, self._free = self._free[split:], self._free[:split]
        more = count - len(numbers)
        numbers += range(len(self._marks), len(self._marks) + more)
        self._marks += bytes([FREE]) * more
        return numbers

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
            self._has_mail = False  # its index may have been made in this one
            raise
        self._db.execute("COMMIT")

    def _store_ranks(self) -> None:
        for state, ranks in self._ranks.items():
            for first, size in ranks.take_changes(partial(self._split, state)):
                sql = _KEEP_BLOCK if size else _FORGET_BLOCK
                self._db.execute(sql, (state, first, size))

    def _split(self, state: int, first: str, rows: int) -> tuple[str, int] | None:
        listed = SORTED_ROWS[state == ALL_STATES]
        values = {"state": state, "first": first, "rows": rows}
        (name,) = self._db.execute(
            f"SELECT id {listed} ORDER BY id, queue LIMIT 1 OFFSET :rows", values
        ).fetchone()
        (before,) = self._db.execute(
            f"SELECT count(*) {listed} AND id<:name", {**values, "name": name}
        ).fetchone()
        return (name, before) if before else None


_KEEP_BLOCK = "INSERT OR REPLACE INTO block(state, first, size) VALUES (?, ?, ?)"
_FORGET_BLOCK = "DELETE FROM block WHERE state=? AND first=? AND ?=0"


def _ids_below(db: sqlite3.Connection, prefixes: Iterable[str]) -> set[str]:
    """The ids of all rows that begin with one of these prefixes, each with a final slash."""
    among = f"task INDEXED BY by_id WHERE state IN ({ALL_STATE_NUMBERS})"
    select = f"SELECT id FROM {among} AND id > ? AND id < ?"
    # "0" is the character after "/".
    spans = ((prefix, f"{prefix[:-1]}0") for prefix in prefixes)
    return {ident for span in spans for (ident,) in db.execute(select, span)}
