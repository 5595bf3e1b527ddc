"""The rows of one state, or of all, sorted by id: found by position without a search or a count.

Their ids are grouped in blocks of some hundred: the first id of each block, and its size. The row
at a position is found by summing sizes and skipping less than one block; an insert or delete
changes one number. The index stores the blocks beside its rows, in the same transactions."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from engine.index.schema import ALL_STATES, SORTED_ROWS, STATE_NUMBERS, TASK_COLUMNS, Query, Values
from engine.model import State
from engine.values import NamedTuple

BLOCK_ROWS = 512
"""Rows of a block after a split; it is split again at twice as many.

A window then skips at most 1,023 entries of a covering index (50 us), and a list of a million rows
has at most 2,000 blocks to sum (1 ms)."""

Split = Callable[[str, int], tuple[str, int] | None]
"""Takes a block's first name and a number of rows; returns the name so many rows later, and the
number of rows before it in the block; None if no name there can begin a block."""


class Block(NamedTuple):
    """Consecutive names: the first one, and their number."""

    first: str
    size: int


class RowPositions:
    """The blocks of one list; the first block begins at the empty name."""

    def __init__(self, total: int = 0) -> None:
        """`total` rows exist; the next `take_changes` splits them."""
        self._firsts, self._sizes = [""], [total]
        self._touched = {""}
        self.total = total

    def add(self, name: str, count: int) -> None:
        """Add `count` rows with this name; a negative number removes rows."""
        self._add(bisect_right(self._firsts, name) - 1, count)

    def add_sorted(self, names: Sequence[str]) -> None:
        """Add a row for each of these names, which are sorted."""
        start = 0
        while start < len(names):
            at = bisect_right(self._firsts, names[start]) - 1
            is_last = at + 1 == len(self._firsts)
            end = len(names) if is_last else bisect_left(names, self._firsts[at + 1], start)
            self._add(at, end - start)
            start = end

    def _add(self, at: int, count: int) -> None:
        self._sizes[at] += count
        self._touched.add(self._firsts[at])
        self.total += count

    def take_changes(self, split: Split) -> Iterator[Block]:
        """Yield the blocks to store: those that changed since the last call, large ones split. A
        block of size 0 is to be deleted."""
        touched, self._touched = self._touched, set()
        for first in touched:
            at = bisect_right(self._firsts, first) - 1
            while self._sizes[at] >= 2 * BLOCK_ROWS and (
                cut := split(self._firsts[at], BLOCK_ROWS)
            ):
                name, before = cut
                self._firsts.insert(at + 1, name)
                self._sizes.insert(at + 1, self._sizes[at] - before)
                self._sizes[at] = before
                yield Block(self._firsts[at], before)
                at += 1
            yield Block(self._firsts[at], self._sizes[at])
            if not self._sizes[at] and at:
                del self._firsts[at], self._sizes[at]


_in_order = itemgetter(0, 4, 2)
_BEFORE = """
SELECT first, before FROM (
    SELECT first, sum(size) OVER (ORDER BY first) - size AS before FROM block WHERE state=?)
WHERE {condition} ORDER BY first DESC LIMIT 1"""


class ListedRows:
    """Positions in the sorted rows, from the blocks of `RowPositions`. Several calls see the same
    rows only within one read transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def is_listed(self, query: Query) -> bool:
        """True if the result needs no search: one state or all, without a filter, sorted by id."""
        if query.filter or query.order != "id":
            return False
        all_states = f"SELECT 1 FROM block WHERE state={ALL_STATES} LIMIT 1"
        return query.state is not None or self._db.execute(all_states).fetchone() is not None

    def total(self, query: Query) -> int:
        """The number of rows of its state, or of all; the filter does not count."""
        (total,) = self._db.execute(
            "SELECT coalesce(sum(size), 0) FROM block WHERE state=?", (_number(query.state),)
        ).fetchone()
        return int(total)

    def _last_block(self, state: State | None, condition: str, value: str | int) -> tuple[str, int]:
        block = self._db.execute(
            _BEFORE.format(condition=condition), (_number(state), value)
        ).fetchone()
        return block or ("", 0)

    def place(self, query: Query, ident: str) -> int:
        """The position of an id among the rows of a state, or of all, in the order of a query."""
        listed, values = _listing(query.state)
        first, before = self._last_block(query.state, "first<=?", ident)
        (skipped,) = self._db.execute(
            f"SELECT count(*) {listed} AND id<:id", {**values, "first": first, "id": ident}
        ).fetchone()
        place = int(before + skipped)
        return self.total(query) - 1 - place if query.descending else place

    def page(self, state: State | None, start: int, size: int) -> list[Values]:
        """The rows from a position on, in ascending order."""
        first, before = self._last_block(state, "before<=?", start)
        listed, values = _listing(state)
        page = f"SELECT n AS m {listed} ORDER BY id, queue LIMIT :size OFFSET :skip"
        rows: list[Values] = self._db.execute(
            f"SELECT {TASK_COLUMNS} FROM ({page}) CROSS JOIN task ON n = m",
            {**values, "first": first, "size": size, "skip": start - before},
        ).fetchall()
        return sorted(rows, key=_in_order)


def _number(state: State | None) -> int:
    return ALL_STATES if state is None else STATE_NUMBERS[state]


def _listing(state: State | None) -> tuple[str, dict[str, str | int]]:
    return SORTED_ROWS[state is None], {"state": _number(state)}
