"""A list of values in a temporary SQLite table, read in windows: for the rows and the outcomes of a
plan of a million tasks."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, overload

from engine.store import Unavailable

T = TypeVar("T")
SqlValues: TypeAlias = Sequence[str | bytes | int | float | None]

WINDOW_ROWS = 1000


def text_value(text: str) -> str | bytes:
    """A text as SQLite can store and compare it: one with a lone surrogate as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def value_text(value: str | bytes) -> str:
    """The text of a value that `text_value` made."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


class TempTable:
    """A connection to a temporary database, which is gone when this object is, also after a crash.

    Any thread may use it. Raises, everywhere: Unavailable, if the disk is full or the file is torn.
    """

    def __init__(self, path: str = "") -> None:
        """Open the database in a file, and unlink that; "": a new empty database."""
        self._lock, self._what = threading.Lock(), f"the temporary table {path}".rstrip()
        with self._errors():
            try:
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                weakref.finalize(self, self._db.close)
                self.read("PRAGMA cache_size=-1024")
                self.read("SELECT count(*) FROM sqlite_master")  # opens the file
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def read(self, sql: str, values: SqlValues = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self._lock, self._errors():
            return self._db.execute(sql, values).fetchall()

    def write(self, sql: str, rows: Iterable[SqlValues]) -> None:
        """Run a statement for each of some rows, in one transaction."""
        with self._lock, self._errors():
            self._db.execute("BEGIN")
            try:
                self._db.executemany(sql, rows)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(f"{self._what}: {error}") from error


class TableSequence(Sequence[T]):
    """The values of a query, which must not change; raises as `TempTable` does."""

    def __init__(
        self, table: TempTable, count: int, query: str, make: Callable[[tuple[Any, ...]], T]
    ) -> None:
        """`query` has its WHERE clause, and the column `place` first; `make` gets the others."""
        self._table, self._count, self._query, self._make = table, count, query, make

    def __len__(self) -> int:
        """The number of values."""
        return self._count

    def __iter__(self) -> Iterator[T]:
        """The values in order, read in windows."""
        last = -1
        while rows := self._table.read(
            f"{self._query} AND place > ? ORDER BY place LIMIT ?", (last, WINDOW_ROWS)
        ):
            last = rows[-1][0]
            yield from (self._make(row[1:]) for row in rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        """The value at a position, or those of a slice."""
        if isinstance(at, slice):
            start, stop, step = at.indices(self._count)
            assert step > 0
            return self._page(start, max(0, stop - start))[::step]
        start = at + self._count if at < 0 else at
        if not 0 <= start < self._count:
            raise IndexError(at)
        return self._page(start, 1)[0]

    def _page(self, start: int, size: int) -> tuple[T, ...]:
        sql = f"{self._query} ORDER BY place LIMIT ? OFFSET ?"
        return tuple(self._make(row[1:]) for row in self._table.read(sql, (size, start)))
