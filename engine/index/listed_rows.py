"""The rows of one state, or of all, sorted by id: found by position without a search."""

from __future__ import annotations

import sqlite3
from operator import itemgetter

from engine.index.schema import ALL_STATES, SORTED_ROWS, STATE_NUMBERS, TASK_COLUMNS, Query, Values
from engine.model import State

_in_order = itemgetter(0, 4, 2)
_BEFORE = """
SELECT first, before FROM (
    SELECT first, sum(size) OVER (ORDER BY first) - size AS before FROM block WHERE state=?)
WHERE {condition} ORDER BY first DESC LIMIT 1"""


class ListedRows:
    """Positions in the sorted rows, from the blocks that `engine.index.row_positions` keeps.

    Several calls see the same rows only within one read transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def is_listed(self, query: Query) -> bool:
        """True if the result needs no search: one state or all, without a filter, sorted by id."""
        if query.filter or query.order != "id":
            return False
        return query.state is not None or self._has_all_states()

    def _has_all_states(self) -> bool:
        row = self._db.execute("SELECT 1 FROM block WHERE state=-1 LIMIT 1").fetchone()
        return row is not None

    def total(self, query: Query) -> int:
        """The number of rows of its state, or of all; the filter does not count."""
        (total,) = self._db.execute(
            "SELECT coalesce(sum(size), 0) FROM block WHERE state=?", (_number(query.state),)
        ).fetchone()
        return int(total)

    def _last_block(self, state: State | None, condition: str, value: str | int) -> tuple[str, int]:
        """The last block that meets a condition, and the number of rows before it."""
        block = self._db.execute(
            _BEFORE.format(condition=condition), (_number(state), value)
        ).fetchone()
        return block or ("", 0)

    def place(self, query: Query, ident: str) -> int:
        """The position of an id among the rows of a state, or of all, in the order of a query."""
        listed, values = _listing(query.state, "id>=:first")
        first, before = self._last_block(query.state, "first<=?", ident)
        (skipped,) = self._db.execute(
            f"SELECT count(*) {listed} AND id<:id", {**values, "first": first, "id": ident}
        ).fetchone()
        place = int(before + skipped)
        return self.total(query) - 1 - place if query.descending else place

    def page(self, state: State | None, start: int, size: int) -> list[Values]:
        """The rows from a position on, in ascending order."""
        first, before = self._last_block(state, "before<=?", start)
        listed, values = _listing(state, "id>=:first")
        page = f"SELECT n AS m {listed} ORDER BY id, queue LIMIT :size OFFSET :skip"
        rows: list[Values] = self._db.execute(
            f"SELECT {TASK_COLUMNS} FROM ({page}) CROSS JOIN task ON n = m",
            {**values, "first": first, "size": size, "skip": start - before},
        ).fetchall()
        return sorted(rows, key=_in_order)


def _number(state: State | None) -> int:
    return ALL_STATES if state is None else STATE_NUMBERS[state]


def _listing(state: State | None, condition: str) -> tuple[str, dict[str, str | int]]:
    return SORTED_ROWS[state is None].format(condition=condition), {"state": _number(state)}
