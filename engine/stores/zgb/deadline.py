"""End an SQL statement that takes too long, with SQLite's progress handler, and let Ctrl-C end it.

A database may hold a view, a trigger or a generated column that never comes to an end. While SQLite
works, Python runs no signal handler: the progress handler is where SIGINT is noticed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.store import Unavailable

READ_SECONDS = 10.0
"""CPU time of this thread that one statement may take to read."""

CHANGE_SECONDS = 60.0
"""The same for one that changes rows: a purge of a million takes its time."""

PAUSE_SECONDS = 60.0
"""Seconds after a statement was ended in which its connection carries out no other one."""

STEPS = 50_000
"""Instructions of SQLite's virtual machine between two looks at the clock: some milliseconds."""


class Deadline:
    """Limits the work of each statement on one connection."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._path, self._end = path, float("inf")
        self._why, self._ended_at = "", -float("inf")
        db.set_progress_handler(self._is_over, STEPS)

    def _is_over(self) -> bool:
        return time.thread_time() > self._end

    @contextmanager
    def statement(self, *, changes: bool = False) -> Iterator[None]:
        """Run one statement for a limited CPU time; `changes`: it changes rows.

        Raises:
            Unavailable: it took longer, and was ended; or another one was, less than
                `PAUSE_SECONDS` ago.
            KeyboardInterrupt: SIGINT came meanwhile.
        """
        if time.monotonic() < self._ended_at + PAUSE_SECONDS:
            raise Unavailable(self._why)
        seconds = CHANGE_SECONDS if changes else READ_SECONDS
        self._end = time.thread_time() + seconds
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            if not self._is_over():
                # What a signal handler raises in a progress handler ends the statement, and is
                # lost there.
                raise KeyboardInterrupt from error
            why = f"a statement took more than {seconds:g} s: a view or trigger without end?"
            self._why, self._ended_at = f"{self._path}: {why}", time.monotonic()
            raise Unavailable(self._why) from error
        finally:
            self._end = float("inf")
