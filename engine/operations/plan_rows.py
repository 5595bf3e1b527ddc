"""The rows of a plan. Those of a large one are in a temporary SQLite table (id, state, revision,
suspicious), so that a plan of a million tasks takes no memory: all that use it read windows."""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, overload

from engine.model import State
from engine.store import Unavailable

REASON_RECENT, REASON_NOTED = "younger than 15 minutes", "has a note"
"""Why a row is excluded from a purge unless the operator includes it."""
EXCLUSION_REASONS = ("", REASON_RECENT, REASON_NOTED)


class Row(NamedTuple):
    """One task of a plan, as the operator saw it."""

    id: str
    state: State
    rev: str
    default_exclusion: str = ""
    """Why it is excluded unless the operator includes it; "" if it is not."""
    target: State | None = None
    """The target state, if the verb does not decide it: for undo and restore."""
    barred: str = ""
    """Why this task cannot be changed so: it is excluded, and no operator can include it."""


CREATE_ROWS = (
    "CREATE TABLE {schema}.planned(place INTEGER PRIMARY KEY, id TEXT NOT NULL, state INT NOT NULL,"
    " rev TEXT NOT NULL, suspicious INT NOT NULL, created REAL)"
)
"""The table of one plan. `suspicious` is a position in `EXCLUSION_REASONS`, `state` one in `State`.
`created` is NULL if unknown."""

WINDOW_ROWS = 1000
"""Rows that are read together."""

_STATES = tuple(State)


class RowTable(Sequence[Row]):
    """The rows of one plan, in order; they never change. Any thread may read them.

    Raises, everywhere: Unavailable, if the file cannot be read.
    """

    def __init__(self, path: str) -> None:
        """Open the table in a file with nothing but that table.

        The file is unlinked immediately: it is gone when the plan is, also after a crash.
        """
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA query_only=1")
            self._db.execute("PRAGMA cache_size=-1024")
            counted = self._db.execute(
                "SELECT state, suspicious, count(*), min(created), max(created) FROM planned "
                "GROUP BY state, suspicious ORDER BY min(place)"
            ).fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"the rows of the plan in {path}: {error}") from error
        finally:
            with suppress(FileNotFoundError):
                Path(path).unlink()
        self._path = path
        weakref.finalize(self, self._db.close)
        self._groups = {(state, odd): count for state, odd, count, *_ in counted}
        self._count: int = sum(self._groups.values())
        self.oldest = min((row[3] for row in counted if row[3] is not None), default=0.0)
        """Creation time of the oldest task, epoch seconds UTC; 0 if unknown for all."""
        self.newest = max((row[4] for row in counted if row[4] is not None), default=0.0)

    def __len__(self) -> int:
        """The number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Row]:
        """The rows in order, read in windows."""
        for window in self.windows(WINDOW_ROWS):
            yield from window

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        """The row at a position, or some consecutive rows."""
        if isinstance(at, slice):
            start, stop, step = at.indices(self._count)
            rows = self._read("ORDER BY place LIMIT ? OFFSET ?", (max(0, stop - start), start))
            return tuple(row for _, row in rows)[::step]
        start = at + self._count if at < 0 else at
        if not 0 <= start < self._count:
            raise IndexError(at)
        return self._read("ORDER BY place LIMIT 1 OFFSET ?", (start,))[0][1]

    def windows(self, size: int) -> Iterator[list[Row]]:
        """The rows in order, some at a time."""
        last = -1
        while found := self._read("WHERE place > ? ORDER BY place LIMIT ?", (last, size)):
            last = found[-1][0]
            yield [row for _, row in found]

    @property
    def states(self) -> frozenset[State]:
        """The states of the tasks."""
        return frozenset(_STATES[state] for state, _ in self._groups)

    def with_ids(self, ids: Collection[str]) -> list[Row]:
        """The rows of some tasks, in any order."""
        if not ids:
            return []
        found = self._read("WHERE id IN (SELECT value FROM json_each(?))", (json.dumps([*ids]),))
        return [row for _, row in found]

    def first(self, limit: int, *, is_suspicious: bool) -> list[Row]:
        """The first rows that are suspicious, or are not."""
        sign = ">" if is_suspicious else "="
        found = self._read(f"WHERE suspicious {sign} 0 ORDER BY place LIMIT ?", (limit,))
        return [row for _, row in found]

    def group(self, without: Collection[str]) -> Iterator[tuple[Row, int]]:
        """Each row that is named in `without`, and all others as rows without an id that differ in
        state or suspicion, each with their number.
        """
        left = dict(self._groups)
        for row in self.with_ids(without):
            left[_STATES.index(row.state), EXCLUSION_REASONS.index(row.default_exclusion)] -= 1
            yield row, 1
        for (state, odd), count in left.items():
            if count:
                yield Row("", _STATES[state], "", EXCLUSION_REASONS[odd]), count

    def _read(self, condition: str, values: tuple[int | str, ...]) -> list[tuple[int, Row]]:
        with self._reading():
            found = self._db.execute(
                f"SELECT place, id, state, rev, suspicious FROM planned {condition}", values
            ).fetchall()
        return [
            (place, Row(ident, _STATES[state], rev, EXCLUSION_REASONS[odd]))
            for place, ident, state, rev, odd in found
        ]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise Unavailable(f"the rows of the plan in {self._path}: {error}") from error
