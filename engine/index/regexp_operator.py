"""SQLite's REGEXP operator, on RE2 and with a time limit for each query."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.store import Unavailable
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
        """Define REGEXP on a connection."""
        db.create_function("regexp", 2, self._matches, deterministic=True)

    @contextmanager
    def query(self) -> Iterator[None]:
        """Run one query with a full time limit.

        SQLite replaces an exception of a function by its own; this raises the original again, such
        as a KeyboardInterrupt.

        Raises:
            Unavailable: the time limit was exceeded.
        """
        self._remaining_seconds, self._stopped = QUERY_SECONDS, None
        try:
            yield
        except sqlite3.OperationalError:
            if self._stopped is None:
                raise
            raise self._stopped from None

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
