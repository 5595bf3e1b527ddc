"""Count tasks by age and destination, sender, group, kind or error, as Postfix's qshape does for
mail: by destination, a mail counts once for each of its open recipients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from operator import sub

from engine.index.counted_rows import TASKS, UNITS, counted_rows
from engine.index.reader import Reader
from engine.index.schema import STATE_NUMBERS, Query, query_condition
from engine.model import State
from engine.values import NamedTuple

BOUNDS_MINUTES = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Upper bounds of the age buckets in minutes; one more bucket follows the last."""
MAX_AGE_ROWS = 200
"""Maximum rows of a table; the total contains the others."""
MAX_INDEXED_NAMES = 2_000
"""Up to so many names, each is counted by an index range; with more, all rows are scanned."""
UNFINISHED_STATES = (State.PENDING, State.HELD, State.DEAD)
"""The states counted by default: not active, and not finished."""

GROUPINGS = {
    "destination": ("by_domain", ("domain",), "domain"),
    "group": ("", (), "grp"),
    "kind": ("by_cluster", ("cluster", "kind"), "kind"),
    "error": ("by_cluster", ("cluster", "kind"), "cluster"),
    "sender": ("", (), "sender"),
    "sender-domain": ("", (), "sender_domain"),
    "account": ("", (), "account"),
}
"""What rows can be grouped by: the index to use, its columns before the time, and the row's
column. Without an index all rows are scanned: few stores have groups, or mail."""


class AgeRow(NamedTuple):
    """Number of tasks by age for one name."""

    name: str
    """A destination (of an address its domain), a group, a kind, the pattern of an error, a sender;
    "" for tasks without one."""
    counts: tuple[int, ...]
    """By bucket, the youngest first."""
    unknown: int = 0
    """Number of further tasks whose age the store does not know."""

    @property
    def total(self) -> int:
        """Number of all its tasks."""
        return sum(self.counts) + self.unknown


class Ages(NamedTuple):
    """An age table: time since creation, also for tasks that have died since."""

    by: str
    """A key of `GROUPINGS`."""
    rows: tuple[AgeRow, ...]
    """At most `MOST`, the largest first."""
    total: AgeRow
    others: int
    """Number of further names; `rest` counts their tasks."""
    unit: str = TASKS
    """What is counted: one of the units of `engine.index.counted_rows`."""

    @property
    def is_informative(self) -> bool:
        """True if it has several rows, and at least half of its tasks have a name."""
        unnamed = sum(row.total for row in self.rows if not row.name)
        return len(self.rows) > 1 and 2 * unnamed <= self.total.total

    @property
    def rest(self) -> AgeRow:
        """The tasks of the names without a row."""
        return _row("", map(sub, _figures(self.total), _sums(map(_figures, self.rows))))


_ZERO_COUNTS = (0,) * (len(BOUNDS_MINUTES) + 1)


def _figures(row: AgeRow) -> tuple[int, ...]:
    return (*row.counts, row.unknown)


def _row(name: str, figures: Iterable[int]) -> AgeRow:
    *counts, unknown = figures
    return AgeRow(name, tuple(counts), unknown)


def _sums(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip((*_ZERO_COUNTS, 0), *rows, strict=True)))


NO_AGES = Ages("destination", (), AgeRow("", _ZERO_COUNTS), 0)


def bucket_filter(bucket: int) -> str:
    """The filter for the ages of one bucket, as it is typed: `age>=20m age<40m`."""
    older = f"age>={BOUNDS_MINUTES[bucket - 1]}m" if bucket else ""
    younger = f"age<{BOUNDS_MINUTES[bucket]}m" if bucket < len(BOUNDS_MINUTES) else ""
    return f"{older} {younger}".strip()


# ---- asking


def query_ages(
    reader: Reader, query: Query, by: str, now: float, *, most: int = MAX_AGE_ROWS
) -> Ages:
    """Count the tasks that match a query by age at `now` (epoch seconds UTC). A query without a
    state counts the `UNFINISHED_STATES` ones, unless its filter mentions states. At most `most`
    rows; -1: all."""
    edges = [now - 60.0 * bound for bound in BOUNDS_MINUTES]
    groups = None
    if not query.filter and not (by == "destination" and reader.has_mail()):
        groups = _count_by_index(reader, _states(query), by, edges)
    if groups is None:
        return _count_by_scan(reader, query, by, edges, now=now, most=most)
    counted: dict[str, tuple[int, ...]] = {}
    for name, figures in groups:
        counted[name] = _sums((counted.get(name, (*_ZERO_COUNTS, 0)), figures))
    rows = [_row(name, figures) for name, figures in counted.items()]
    rows.sort(key=lambda row: (-row.total, row.name))
    total = _row("TOTAL", _sums(map(_figures, rows)))
    shown = tuple(rows if most < 0 else rows[:most])
    return Ages(by, shown, total, len(rows) - len(shown))


def _states(query: Query) -> tuple[State, ...]:
    if query.state is not None:
        return (query.state,)
    return tuple(State) if query.filter.mentions_field("state") else UNFINISHED_STATES


def _count_by_index(
    reader: Reader, states: Sequence[State], by: str, edges: Sequence[float]
) -> list[tuple[str, Sequence[int]]] | None:
    """Count by index ranges, which is fast; None if the index is missing or has too many names."""
    index, columns, name = GROUPINGS[by]
    if not reader.has_index(index):
        return None
    keys = list(islice(_names(reader, states, index, columns), MAX_INDEXED_NAMES + 1))
    if len(keys) > MAX_INDEXED_NAMES:
        return None
    met = " AND ".join(f"{column}=?" for column in ("state", *columns))
    count = f"(SELECT count(*) FROM task INDEXED BY {index} WHERE {met} AND "
    known, unknown = f"{count}created>? AND created<=?)", f"{count}created IS NULL)"
    sql = "SELECT " + ", ".join([*([known] * len(_ZERO_COUNTS)), unknown])
    at = 1 + columns.index(name)
    spans = list(pairwise((float("inf"), *edges, float("-inf"))))
    return [
        (str(key[at]), reader.fetch(sql, [*(v for a, b in spans for v in (*key, b, a)), *key])[0])
        for key in keys
    ]


def _names(
    reader: Reader, states: Sequence[State], index: str, columns: Sequence[str]
) -> Iterator[tuple[int | str, ...]]:
    """The states and names in an index, by skip scan: jump from each to the next."""
    listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
    first = f"SELECT {listed} FROM task INDEXED BY {index} WHERE state=?"
    order = f"ORDER BY {listed} LIMIT 1"
    for state in map(STATE_NUMBERS.__getitem__, states):
        rows = reader.fetch(f"{first} {order}", (state,))
        while rows:
            yield state, *rows[0]
            after = f"{first} AND ({listed}) > ({marks}) {order}"
            rows = reader.fetch(after, (state, *rows[0]))


def _count_by_scan(
    reader: Reader, query: Query, by: str, edges: Sequence[float], *, now: float, most: int
) -> Ages:
    """Count by a scan of all rows. Only the largest names leave SQLite: a million names would take
    600 MiB here."""
    index, _, name = GROUPINGS[by]
    met, values = query_condition(query, now)
    states = ", ".join(str(STATE_NUMBERS[state]) for state in _states(query))
    how = "NOT INDEXED" if query.filter or not reader.has_index(index) else f"INDEXED BY {index}"
    rows = counted_rows(reader, name, f"state IN ({states}) AND {met}", how)
    younger = ", ".join(f"{rows.count_where('created>?')} AS n{i}" for i in range(len(edges)))
    sums = ", ".join(f"total(n{i})" for i in range(len(edges)))
    counted = reader.fetch(
        f"WITH named AS (SELECT {rows.name} AS name, {younger}, "
        f"{rows.count_where('created IS NOT NULL')} AS known, {rows.count_where('1')} AS tasks, "
        f"{rows.unit} AS unit FROM {rows.source} GROUP BY 1) "
        f"SELECT count(*), {sums}, total(known), total(tasks), max(unit) | min(unit) FROM named "
        "UNION ALL SELECT * FROM "
        f"(SELECT * FROM named ORDER BY tasks DESC, name LIMIT {most})",
        (*edges, *values),
    )
    # Tasks of unknown age are only in the last count.
    (names, *all_counts, units), *largest = counted
    largest_rows = [_row(name, _differences(counts)) for name, *counts, _ in largest]
    total = _row("TOTAL", _differences(map(int, all_counts)))
    unit = UNITS[units or 0]
    return Ages(by, tuple(largest_rows), total, names - len(largest_rows), unit)


def _differences(counts: Iterable[int]) -> list[int]:
    return [b - a for a, b in pairwise((0, *counts))]


# ---- reading

STRAGGLER_SHARE = 0.05
"""Share of the oldest tasks to ignore: stragglers."""
ENDED_RATE_SHARE = 0.1
"""A bucket with less than this share of the mean rate counts as after the end of the trouble."""
DOMINANT_SHARE = 0.5
"""From this share on, one row or one end of the table dominates it."""
_MINUTES = (BOUNDS_MINUTES[0], *(b - a for a, b in pairwise(BOUNDS_MINUTES)), BOUNDS_MINUTES[-1])
"""Width of each bucket; the last counts as wide as all others together."""


def summarize_ages(ages: Ages) -> str:
    """Summarize a table in one sentence, by the rules of qshape's manual; "" for an empty table.

    Normal work is in the youngest buckets. Trouble moves to older buckets as time passes: the
    oldest bucket with many tasks shows when it began, the youngest one whether it has ended. Tasks
    in the last buckets are old leftovers."""
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
    spare = STRAGGLER_SHARE * sum(counts)
    behind = accumulate(reversed(counts))
    return len(counts) - 1 - next(at for at, count in enumerate(behind) if count > spare)


def _youngest(counts: Sequence[int], old: int) -> int:
    """The first bucket with a significant rate of tasks per minute."""
    mean = sum(counts[: old + 1]) / sum(_MINUTES[: old + 1])
    rates = (count / minutes for count, minutes in zip(counts, _MINUTES, strict=True))
    return next(at for at, rate in enumerate(rates) if rate >= ENDED_RATE_SHARE * mean)


def _when(counts: Sequence[int], young: int, old: int) -> str:
    last = len(counts) - 1
    fresh, leftovers = sum(counts[:2]), sum(counts[-3:])
    if old <= 1:
        return f"younger than {_span(old)}: new tasks, or trouble just begun"
    if young >= last - 2:
        return f"older than {_span(young - 1)}: leftovers, almost none new"
    if old < last:
        goes_on = f"; no new ones for {_span(young - 1)}" if young > 1 else " and continues"
        return f"started {_span(old - 1)}-{_span(old)} ago{goes_on}"
    if young > 1:
        return f"started over {_span(last - 1)} ago; no new ones for {_span(young - 1)}"
    if leftovers >= DOMINANT_SHARE * sum(counts):
        return f"mostly older than {_span(last - 3)}: leftovers, some new"
    if fresh >= DOMINANT_SHARE * sum(counts):
        return f"mostly new tasks; {leftovers:,} older than {_span(last - 3)}: leftovers"
    return f"of every age: started over {_span(last - 1)} ago and continues"


def _where(ages: Ages) -> str:
    first = ages.rows[0]
    share = first.total / ages.total.total
    if not first.name or len(ages.rows) == 1 or share < DOMINANT_SHARE:
        return ""
    return f"; {share:.0%} {first.name}"


def _span(bucket: int) -> str:
    """Format the upper bound of a bucket: `40m`, `2h40m`."""
    hours, minutes = divmod(BOUNDS_MINUTES[bucket], 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes or not hours else "")
