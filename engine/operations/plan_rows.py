"""The rows of a plan. Those of a large one are in a temporary SQLite table (id, state, revision,
suspicious, target, barred, warned), so that a plan of a million tasks takes no memory: all that use
it read windows.

Raises, everywhere: Unavailable, if the disk is too full for a temporary table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from engine.model import State
from engine.operations.temp_table import SqlValues, TableSequence, TempTable, text_value, value_text
from engine.values import NamedTuple

REASON_RECENT, REASON_NOTED = "younger than 15 minutes", "has a note"
"""Why a row is excluded from a purge unless the operator includes it."""
EXCLUSION_REASONS = ("", REASON_RECENT, REASON_NOTED)

MAX_ROWS_IN_MEMORY = 2000
"""Larger plans have their rows in a temporary table."""


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
    warned: int = 0
    """Which of `Edge.warnings` apply to this task: bit 0 for the first one."""


CREATE_ROWS = (
    "CREATE TABLE {schema}.planned(place INTEGER PRIMARY KEY, id TEXT NOT NULL, state INT NOT NULL,"
    " rev TEXT NOT NULL, suspicious INT NOT NULL, created REAL, target INT, barred TEXT,"
    " warned INT NOT NULL DEFAULT 0)"
)
"""The table of one plan. `suspicious` is a position in `EXCLUSION_REASONS`, `state` and `target` in
`State`. `created`, `target` and `barred` may be NULL."""

_STATES = tuple(State)


class RowTable(TableSequence[Row]):
    """The rows of one plan, in order; they never change. Any thread may read them.

    Raises, everywhere: Unavailable, if the file cannot be read."""

    def __init__(self, table: TempTable) -> None:
        """`table` is a database with the table `planned`, which does not change any more."""
        self._planned, counted = table, _count_groups(table)
        self._groups: dict[tuple[Any, ...], int] = {row[:5]: row[5] for row in counted}
        super().__init__(table, sum(self._groups.values()), _ROWS, _make_row)
        self.oldest: float = min((row[6] for row in counted if row[6] is not None), default=0.0)
        """Creation time of the oldest task, epoch seconds UTC; 0 if unknown for all."""
        self.newest: float = max((row[7] for row in counted if row[7] is not None), default=0.0)

    @property
    def states(self) -> frozenset[State]:
        """The states of the tasks."""
        return frozenset(_STATES[state] for state, *_ in self._groups)

    @property
    def has_odd(self) -> bool:
        """True if a row is suspicious or barred."""
        return any(exclusion or bar for _, exclusion, _, bar, _ in self._groups)

    def first(self, limit: int, *, is_suspicious: bool) -> list[Row]:
        """The first rows that are suspicious or barred, or are neither."""
        if not any(
            bool(exclusion or bar) is is_suspicious for _, exclusion, _, bar, _ in self._groups
        ):
            return []  # without a scan
        rows = self._planned.read(
            f"{_ROWS} AND (suspicious > 0 OR barred IS NOT NULL) = ? ORDER BY place LIMIT ?",
            (is_suspicious, limit),
        )
        return [_make_row(row[1:]) for row in rows]

    def group(self, without: Collection[str]) -> Iterator[tuple[Row, int]]:
        """Each row that is named in `without`, and all others as rows without an id that differ in
        state, suspicion, target, bar or warnings, each with their number."""
        counts = dict(self._groups)
        if without:
            among = f"{_ROWS} AND id IN (SELECT value FROM json_each(?))"
            for _, *named in self._planned.read(among, (json.dumps([*without]),)):
                ident, state, rev, *flags = named
                counts[state, *flags] -= 1
                yield _make_row((ident, state, rev, *flags)), 1
        for (state, *flags), count in counts.items():
            if count:
                yield _make_row(("", state, "", *flags)), count


_FLAGS = "suspicious, target, barred, warned"
_GROUPED = f"state, {_FLAGS}"
_IS_GROUP = "state IS ? AND suspicious IS ? AND target IS ? AND barred IS ? AND warned IS ?"
_COUNTED = f"SELECT {_GROUPED}, count(*), min(created), max(created) FROM planned"
_ROWS = f"SELECT place, id, state, rev, {_FLAGS} FROM planned WHERE 1"


def _count_groups(table: TempTable) -> list[tuple[Any, ...]]:
    """The groups with their numbers and times, the first row's first: most plans have one group,
    and a GROUP BY would sort it, which takes five times as long."""
    counted = []
    for first in table.read(f"SELECT {_GROUPED} FROM planned ORDER BY place LIMIT 1"):
        counted = table.read(f"{_COUNTED} WHERE {_IS_GROUP}", first)
        if counted[0][5] < table.read("SELECT count(*) FROM planned")[0][0]:
            clauses = f"WHERE NOT ({_IS_GROUP}) GROUP BY {_GROUPED} ORDER BY min(place)"
            counted += table.read(f"{_COUNTED} {clauses}", first)
    return counted


def _make_row(values: tuple[Any, ...]) -> Row:
    ident, state, rev, exclusion, target, bar_reason, warned = values
    end = None if target is None else _STATES[target]
    ident, rev, bar_reason = value_text(ident), value_text(rev), value_text(bar_reason or "")
    return Row(
        ident,
        _STATES[state],
        rev,
        default_exclusion=EXCLUSION_REASONS[exclusion],
        target=end,
        barred=bar_reason,
        warned=warned,
    )


BY_AGE = "ORDER BY coalesce(created, 0), length(id), id"
"""The oldest tasks first; of ids that are numbers, the smaller one."""


def write_rows(rows: Iterable[tuple[Row, float]], *, by_age: bool = False) -> RowTable:
    """Write rows to a temporary table as they come, or sorted by age, each with the creation time
    of its task (0: unknown). Of several rows with an id, the first is kept."""
    table = TempTable()
    table.read(CREATE_ROWS.format(schema="main"))
    table.write("INSERT INTO planned VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", map(_values_of, rows))
    twice = table.read("SELECT id FROM planned GROUP BY id HAVING count(*) > 1")
    if twice:
        table.write(
            "DELETE FROM planned WHERE id = ? AND place > "
            "(SELECT min(place) FROM planned WHERE id = ?)",
            ((ident, ident) for (ident,) in twice),
        )
    if by_age:
        columns = "id, state, rev, suspicious, created, target, barred, warned"
        table.read("ALTER TABLE planned RENAME TO unsorted")
        table.read(CREATE_ROWS.format(schema="main"))
        table.read(f"INSERT INTO planned({columns}) SELECT {columns} FROM unsorted {BY_AGE}")
        table.read("DROP TABLE unsorted")
    return RowTable(table)


_NUMBERS = {state: number for number, state in enumerate(_STATES)}


def _values_of(row: tuple[Row, float]) -> SqlValues:
    (ident, state, rev, exclusion, target, bar_text, warned), created = row
    end = None if target is None else _NUMBERS[target]
    number, reason = _NUMBERS[state], EXCLUSION_REASONS.index(exclusion)
    bar = text_value(bar_text) if bar_text else None
    return text_value(ident), number, text_value(rev), reason, created or None, end, bar, warned


def keep_rows(rows: Iterable[Row]) -> Sequence[Row]:
    """Few rows in memory, many in a temporary table; there, the first row of an id is kept."""
    waiting = iter(rows)
    first = tuple(islice(waiting, MAX_ROWS_IN_MEMORY + 1))
    if len(first) <= MAX_ROWS_IN_MEMORY:
        return first
    return write_rows((row, 0.0) for row in chain(first, waiting))
