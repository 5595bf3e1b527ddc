"""Sort the file names of a whole spool with SQLite in a temporary file.

Sorting a million names in Python blocks other threads for a third of a second and takes 90 MiB;
here other threads run between the steps."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Self

from engine.model import State
from engine.store import Unavailable
from engine.system.cleanup import closed_on_error
from engine.text.decode import utf8_name

_STATES = tuple(State)
_PAGE = 1000


class SortedNames:
    """Names by state, to be read back in order; a context manager."""

    def __init__(self) -> None:
        # An empty file name means a private temporary database on disk.
        self.db = sqlite3.connect("", check_same_thread=False)
        with closed_on_error(self.db):
            self.db.execute("PRAGMA cache_size=-1024")
            self.db.execute("CREATE TABLE name(name TEXT, state INT)")
        self.counts: dict[State, int] = {}
        """The number of names of each state, as often as they were added."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.db.close()
        if isinstance(error, sqlite3.Error):
            # SQLite chooses the folder in this order.
            folder = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"
            raise Unavailable(f"names cannot be sorted in {folder}: {error}") from error

    def add(self, state: State, names: Iterable[str]) -> int:
        """Add the names of one state, in any order; return their number."""
        insert = f"INSERT INTO name VALUES (?, {_STATES.index(state)})"
        waiting, count = iter(names), 0
        while page := list(islice(waiting, _PAGE)):
            valid = page if "".join(page).isascii() else map(utf8_name, page)
            self.db.executemany(insert, zip(valid, strict=True))
            count += len(page)
        self.counts[state] = self.counts.get(state, 0) + count
        return count

    def names_in(self, state: State) -> Iterator[str]:
        """The names of one state, in order."""
        return chain.from_iterable(self.pages_in(state))

    def pages_in(self, state: State) -> Iterator[list[str]]:
        """The names of one state, in order, many at a time."""
        query = "SELECT name FROM name WHERE state = ? ORDER BY name"
        cursor = self.db.execute(query, (_STATES.index(state),))
        while page := cursor.fetchmany(_PAGE):
            yield [name for (name,) in page]

    def duplicates(self) -> list[tuple[str, list[State]]]:
        """Names that were added more than once, each with its states."""
        return self._group("1")

    def in_several_states(self) -> list[tuple[str, list[State]]]:
        """Names that exist in several states, with these states; a state has each name once. Faster
        than `duplicates`: the names that only the largest state has are not sorted again."""
        largest = max(self.counts, key=self.counts.__getitem__, default=State.PENDING)
        others = f"SELECT name FROM name WHERE state <> {_STATES.index(largest)}"
        return self._group(f"name IN ({others})")

    def _group(self, condition: str) -> list[tuple[str, list[State]]]:
        query = (
            f"SELECT name, group_concat(state) FROM name WHERE {condition} "
            "GROUP BY name HAVING count(*) > 1"
        )
        return [
            (name, [_STATES[int(n)] for n in sorted(numbers.split(","))])
            for name, numbers in self.db.execute(query)
        ]
