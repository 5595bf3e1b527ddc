"""Match tasks with a filter: SQLite's REGEXP operator, on RE2 and with a time limit for each query,
and the same SQL for tasks without an index, on a temporary table in memory, which may have the data
of the tasks too."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

from engine.index.filter_language import DATA_FIELD, Filter
from engine.index.mail_columns import split_recipients
from engine.index.schema import (
    CHUNK_ROWS,
    CREATE_TABLE,
    INSERT_TASK,
    clean_row,
    filter_condition,
    row_of,
)
from engine.model import AttemptLimit, Task, attempts_allowed
from engine.store import Unavailable
from engine.text.folding import fold_case, normalize_text
from engine.text.safe_regex import compile_pattern

QUERY_SECONDS = 10.0
"""Time that one query may spend in matching."""


class Matcher:
    """SQLite's `text REGEXP pattern` for one connection, with a time limit for each query."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` returns seconds; only the time spent in matching counts."""
        self._clock = clock
        self._remaining_seconds = QUERY_SECONDS
        self._stopped: BaseException | None = None

    def install(self, db: sqlite3.Connection) -> None:
        """Define REGEXP on a connection, `matches_line(pattern, text)` for a text of lines between
        newlines, `fold_case` and `normalize_text`."""
        for change in (fold_case, normalize_text):
            db.create_function(change.__name__, 1, partial(_of_text, change), deterministic=True)
        db.create_function("regexp", 2, self._matches, deterministic=True)
        db.create_function("matches_line", 2, self._matches_line, deterministic=True)

    @contextmanager
    def query(self) -> Iterator[None]:
        """Run one query with a full time limit.

        SQLite replaces an exception of a function by its own; this raises the original again, such
        as a KeyboardInterrupt.

        Raises:
            Unavailable: the time limit was exceeded."""
        self._remaining_seconds, self._stopped = QUERY_SECONDS, None
        try:
            yield
        except sqlite3.OperationalError:
            if self._stopped is None:
                raise
            raise self._stopped from None

    def _matches_line(self, pattern: str, lines: str) -> bool:
        return any(self._matches(pattern, line) for line in split_recipients(lines))

    def _matches(self, pattern: str, text: str | None) -> bool:
        began = self._clock()
        try:
            if self._remaining_seconds <= 0:
                seconds = f"{QUERY_SECONDS:g} s"
                raise Unavailable(f"the pattern of the filter needs more than {seconds}: {pattern}")
            return text is not None and compile_pattern(pattern).is_found_in(text)
        except BaseException as error:
            self._stopped = error
            raise
        finally:
            self._remaining_seconds -= self._clock() - began


def _of_text(change: Callable[[str], str], text: str | None) -> str | None:
    return None if text is None else change(text)


CHUNK_ROWS_WITH_DATA = 16
"""Tasks whose data are in memory together, up to 1 MB of each piece."""

T = TypeVar("T")


def select_matching(
    items: Iterable[T],
    filter: Filter,
    now: float,
    read_data: Callable[[Task], str | None] = lambda _: None,
    limit: AttemptLimit = attempts_allowed,
) -> Iterator[T]:
    """Yield the tasks that match at `now` (epoch seconds UTC), and all items that are not tasks.

    `read_data` returns what a task carries, None if it cannot be read; it is called only if the
    filter mentions it, and only for tasks that match the rest of the filter. `limit` is the maximum
    attempts of each task.

    Raises:
        Unavailable: matching a pattern took longer than `QUERY_SECONDS`."""
    met, values = filter_condition(filter, now)
    cheap = filter.without_field(DATA_FIELD)
    first_met, first_values = filter_condition(cheap, now)
    waiting = iter(items)
    matcher = Matcher()
    with matcher.query(), closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        matcher.install(db)
        db.execute(CREATE_TABLE)
        db.execute(f"ALTER TABLE task ADD COLUMN {DATA_FIELD} TEXT")
        reads_data = filter.mentions_field(DATA_FIELD)
        while some := list(islice(waiting, CHUNK_ROWS_WITH_DATA if reads_data else CHUNK_ROWS)):
            rows = (
                (*clean_row(row_of(t, limit)), n) for n, t in enumerate(some) if isinstance(t, Task)
            )
            db.execute("BEGIN")
            db.executemany(INSERT_TASK, rows)
            if reads_data:
                found = db.execute(f"SELECT n FROM task WHERE {first_met}", first_values).fetchall()
                for (n,) in found:
                    task = some[n]
                    data = read_data(task) if isinstance(task, Task) else None
                    db.execute(f"UPDATE task SET {DATA_FIELD} = ? WHERE n = ?", (data, n))
            matching = {n for (n,) in db.execute(f"SELECT n FROM task WHERE {met}", values)}
            db.execute("ROLLBACK")
            yield from (t for n, t in enumerate(some) if n in matching or not isinstance(t, Task))
