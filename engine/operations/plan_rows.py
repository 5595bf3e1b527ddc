"""The rows of a plan. Those of a large one are in a temporary SQLite table (id, state, revision,
suspicious), so that a plan of a million tasks takes no memory: all that use it read windows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from engine.model import State
from engine.operations.temp_table import TableSequence, TempTable

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

_STATES = tuple(State)


class RowTable(TableSequence[Row]):
    """The rows of one plan, in order; they never change. Any thread may read them.

    Raises, everywhere: Unavailable, if the file cannot be read.
    """

    def __init__(self, path: str) -> None:
        """Open the table in a file with nothing but that table; unlinks it immediately."""
        table = TempTable(path)
        counted = table.read(
            "SELECT state, suspicious, count(*), min(created), max(created) FROM planned "
            "GROUP BY state, suspicious ORDER BY min(place)"
        )
        self._groups: dict[tuple[int, int], int] = {row[:2]: row[2] for row in counted}
        super().__init__(table, sum(self._groups.values()), _ROWS, _make_row)
        self.oldest: float = min((row[3] for row in counted if row[3] is not None), default=0.0)
        """Creation time of the oldest task, epoch seconds UTC; 0 if unknown for all."""
        self.newest: float = max((row[4] for row in counted if row[4] is not None), default=0.0)

    @property
    def states(self) -> frozenset[State]:
        """The states of the tasks."""
        return frozenset(_STATES[state] for state, _ in self._groups)

    def first(self, limit: int, *, is_suspicious: bool) -> list[Row]:
        """The first rows that are suspicious, or are not."""
        sign = ">" if is_suspicious else "="
        found = self._table.read(
            f"{_ROWS} AND suspicious {sign} 0 ORDER BY place LIMIT ?", (limit,)
        )
        return [_make_row(row[1:]) for row in found]

    def group(self, without: Collection[str]) -> Iterator[tuple[Row, int]]:
        """Each row that is named in `without`, and all others as rows without an id that differ in
        state or suspicion, each with their number.
        """
        left = dict(self._groups)
        if without:
            among = f"{_ROWS} AND id IN (SELECT value FROM json_each(?))"
            for _, *named in self._table.read(among, (json.dumps([*without]),)):
                row = _make_row(tuple(named))
                left[named[1], named[3]] -= 1
                yield row, 1
        for (state, odd), count in left.items():
            if count:
                yield Row("", _STATES[state], "", EXCLUSION_REASONS[odd]), count


_ROWS = "SELECT place, id, state, rev, suspicious FROM planned WHERE 1"


def _make_row(values: tuple[Any, ...]) -> Row:
    ident, state, rev, odd = values
    return Row(ident, _STATES[state], rev, EXCLUSION_REASONS[odd])
