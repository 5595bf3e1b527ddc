"""How old tasks are, by destination, kind or error: the table that qshape prints for mail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from operator import sub
from typing import NamedTuple

from engine.index.reader import Reader
from engine.index.schema import RANK, Query, where
from engine.model import State

BOUNDS = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Upper bounds of the buckets in minutes; behind the last one there is one more."""
MOST = 200
"""Rows of a table; what is beyond is in its total."""
DENSE = 2_000
"""Names up to which an index is asked for each of them; with more, all rows are counted in turn."""
UNFINISHED = (State.PENDING, State.HELD, State.DEAD)
"""Whose ages are told when no state is asked for: what nobody works on, and that is not over."""

BY = {
    "destination": ("by_domain", ("domain",), "domain"),
    "kind": ("by_cluster", ("cluster", "kind"), "kind"),
    "error": ("by_cluster", ("cluster", "kind"), "cluster"),
}
"""By what the rows can be: the index that knows, its columns before the time, and the row's own."""


class AgeRow(NamedTuple):
    """How many tasks of one name are how old."""

    name: str
    """Of a destination (of an address its domain) or a kind, or the pattern of an error; "" for
    tasks that have none."""
    counts: tuple[int, ...]
    """By bucket, the youngest first."""
    unknown: int = 0
    """How many further ones there are of which the store does not know how old they are."""

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts) + self.unknown


class Ages(NamedTuple):
    """Ages of tasks since they were created, also of those that have died since."""

    by: str
    """A key of `BY`."""
    rows: tuple[AgeRow, ...]
    """At most `MOST`, those with most tasks first."""
    total: AgeRow
    others: int
    """How many further names there are; `rest` has their tasks."""

    @property
    def rest(self) -> AgeRow:
        """The tasks of the names that have no row, together."""
        return _row("", map(sub, _figures(self.total), _sums(map(_figures, self.rows))))


_NONE = (0,) * (len(BOUNDS) + 1)


def _figures(row: AgeRow) -> tuple[int, ...]:
    return (*row.counts, row.unknown)


def _row(name: str, figures: Iterable[int]) -> AgeRow:
    *counts, unknown = figures
    return AgeRow(name, tuple(counts), unknown)


def _sums(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip((*_NONE, 0), *rows, strict=True)))


NO_AGES = Ages("destination", (), AgeRow("", _NONE), 0)
"""Of nothing."""


def within(bucket: int) -> str:
    """The filter for the ages of one bucket, as it would be typed: `age>=20m age<40m`."""
    older = f"age>={BOUNDS[bucket - 1]}m" if bucket else ""
    younger = f"age<{BOUNDS[bucket]}m" if bucket < len(BOUNDS) else ""
    return f"{older} {younger}".strip()


# ---- asking


def ask(reader: Reader, query: Query, by: str, now: float) -> Ages:
    """The ages at a moment (epoch seconds UTC) of what a query matches.

    A query without a state means all that is `UNFINISHED`, unless its filter speaks of states.
    """
    edges = [now - 60.0 * bound for bound in BOUNDS]
    groups = None if query.filter else _one_by_one(reader, _states(query), by, edges)
    counted: dict[str, tuple[int, ...]] = {}
    for name, figures in groups or _all_at_once(reader, query, by, now, edges):
        counted[name] = _sums((counted.get(name, (*_NONE, 0)), figures))
    rows = [_row(name, figures) for name, figures in counted.items()]
    rows.sort(key=lambda row: (-row.total, row.name))
    total = _row("TOTAL", _sums(map(_figures, rows)))
    return Ages(by, tuple(rows[:MOST]), total, max(0, len(rows) - MOST))


def _states(query: Query) -> tuple[State, ...]:
    if query.state is not None:
        return (query.state,)
    return tuple(State) if query.filter.names("state") else UNFINISHED


def _one_by_one(
    reader: Reader, states: Sequence[State], by: str, edges: Sequence[float]
) -> list[tuple[str, Sequence[int]]] | None:
    """By ranges of an index, which are counted fast; None where that has too many names for it."""
    index, columns, name = BY[by]
    if not reader.has_index(index):
        return None
    found = list(islice(_names(reader, states, index, columns), DENSE + 1))
    if len(found) > DENSE:
        return None
    met = " AND ".join(f"{column}=?" for column in ("state", *columns))
    count = f"(SELECT count(*) FROM task INDEXED BY {index} WHERE {met} AND "
    known, unknown = f"{count}created>? AND created<=?)", f"{count}created IS NULL)"
    sql = "SELECT " + ", ".join([*([known] * len(_NONE)), unknown])
    at = 1 + columns.index(name)
    ends = list(pairwise((float("inf"), *edges, float("-inf"))))
    return [
        (str(key[at]), reader.fetch(sql, [*(v for a, b in ends for v in (*key, b, a)), *key])[0])
        for key in found
    ]


def _names(
    reader: Reader, states: Sequence[State], index: str, columns: Sequence[str]
) -> Iterator[tuple[int | str, ...]]:
    """Which states and names an index begins with, jumping from each to the next."""
    listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
    first = f"SELECT {listed} FROM task INDEXED BY {index} WHERE state=?"
    rest = f"ORDER BY {listed} LIMIT 1"
    for state in map(RANK.__getitem__, states):
        rows = reader.fetch(f"{first} {rest}", (state,))
        while rows:
            yield state, *rows[0]
            after = f"{first} AND ({listed}) > ({marks}) {rest}"
            rows = reader.fetch(after, (state, *rows[0]))


def _all_at_once(
    reader: Reader, query: Query, by: str, now: float, edges: Sequence[float]
) -> list[tuple[str, Sequence[int]]]:
    """By a look at every row."""
    index, columns, name = BY[by]
    listed = ", ".join(columns)
    met, values = where(query, now)
    states = ", ".join(str(RANK[state]) for state in _states(query))
    how = "NOT INDEXED" if query.filter or not reader.has_index(index) else f"INDEXED BY {index}"
    younger = ", ".join("count(CASE WHEN created>? THEN 1 END)" for _ in edges)
    rows = reader.fetch(
        f"SELECT {name}, {younger}, count(created), count(*) FROM task {how} "
        f"WHERE state IN ({states}) AND {met} "
        f"GROUP BY {'state, ' + listed if 'NOT' not in how else name}",
        (*edges, *values),
    )
    # Of what nobody knows the age, all counts but the last leave it out.
    return [(name, [b - a for a, b in pairwise((0, *counts))]) for name, *counts in rows]


# ---- reading

FEW = 0.05
"""A share of the tasks, the oldest, that is left out of account: stragglers."""
SLOW = 0.1
"""Fewer than so much of the mean a minute came when it was over."""
MUCH = 0.5
"""A share from which on one row, or one end, is what the table is about."""
_MINUTES = (BOUNDS[0], *(b - a for a, b in pairwise(BOUNDS)), BOUNDS[-1])
"""How wide each bucket is; the last is as wide as all the others."""


def reading(ages: Ages) -> str:
    """One sentence on what a table says, as qshape's manual would have one read it; "" for none.

    Work that comes and goes stands at the left. Trouble moves to the right as time passes: the
    oldest bucket that holds much says when it began, the youngest one whether it is over. What has
    arrived at the right end is debris of long ago.
    """
    counts, unknown = ages.total.counts, ages.total.unknown
    if not ages.total.total:
        return ""
    ageless = f"{unknown:,} of unknown age" if unknown else ""
    if unknown == ages.total.total:
        return ageless + _where(ages)
    old = _oldest(counts)
    when = _when(counts, _youngest(counts, old), old)
    return when + (f"; {ageless}" if ageless else "") + _where(ages)


def _oldest(counts: Sequence[int]) -> int:
    """The last bucket, without the stragglers."""
    spare = FEW * sum(counts)
    behind = accumulate(reversed(counts))
    return len(counts) - 1 - next(at for at, count in enumerate(behind) if count > spare)


def _youngest(counts: Sequence[int], old: int) -> int:
    """The first bucket in whose time as much came a minute as is worth the name."""
    mean = sum(counts[: old + 1]) / sum(_MINUTES[: old + 1])
    rates = (count / minutes for count, minutes in zip(counts, _MINUTES, strict=True))
    return next(at for at, rate in enumerate(rates) if rate >= SLOW * mean)


def _when(counts: Sequence[int], young: int, old: int) -> str:
    last = len(counts) - 1
    fresh, debris = sum(counts[:2]), sum(counts[-3:])
    if old <= 1:
        return f"younger than {_span(old)}: fresh work, or trouble that has just begun"
    if young >= last - 2:
        return f"older than {_span(young - 1)}: debris of long ago, hardly anything new"
    if old < last:
        goes_on = f"over for {_span(young - 1)}, nothing younger" if young > 1 else "goes on"
        return f"began {_span(old - 1)} to {_span(old)} ago; {goes_on}"
    if young > 1:
        return f"began over {_span(last - 1)} ago; over for {_span(young - 1)}, nothing younger"
    if debris >= MUCH * sum(counts):
        return f"mostly older than {_span(last - 3)}: debris, with fresh work beside it"
    if fresh >= MUCH * sum(counts):
        return f"mostly fresh work; {debris:,} older than {_span(last - 3)}: debris"
    return f"of every age: began over {_span(last - 1)} ago; goes on"


def _where(ages: Ages) -> str:
    first = ages.rows[0]
    share = first.total / ages.total.total
    if len(ages.rows) == 1 or share < MUCH:
        return ""
    return f"; {share:.0%} {first.name or f'without {ages.by}'}"


def _span(bucket: int) -> str:
    """The upper bound of a bucket, in words: `40m`, `2h40m`."""
    hours, minutes = divmod(BOUNDS[bucket], 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes or not hours else "")
