"""A frozen plan: one verb for the tasks that the operator saw, and what it would do to each.

What is acted on is what was on the screen. Each row carries the state and the revision in which its
task was seen; a task that differs from that when the plan is applied is left alone, as gone
(`engine.operations.execute`). Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from engine.model import Edge, Edges, State, Task
from engine.verbs import VERBS

YOUNG = 900.0
"""Seconds: what is younger looks odd among what is purged, it may be just what is worked on."""

YOUNGER, NOTED, LOCKED = "younger than 15 minutes", "noted", "locked: somebody works on it"
"""Why a row is left out of a purge unless it is taken in."""

NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class Row(NamedTuple):
    """One task of a plan, as the operator saw it."""

    id: str
    state: State
    rev: str
    odd: str = ""
    """Why it is left out unless taken in; "" where nothing about it is odd."""
    end: State | None = None
    """Where it goes, where that is not for the verb to say: what is taken back."""


class Plan(NamedTuple):
    """One verb for some tasks, frozen at a moment."""

    verb: str
    """A key of `VERBS`."""
    rows: tuple[Row, ...]
    """All of them, whether they are left out or not."""
    made: float
    """Epoch seconds UTC."""
    filter: str = ""
    """What they were found by, as it was typed."""
    values: Mapping[str, Any] = NO_VALUES
    """What the verb takes besides: the new description, the new due time."""
    undoes: str = ""
    """The operation that it takes back; "" for any other plan."""
    taken_in: frozenset[str] = frozenset()
    """Ids of odd rows that are acted on all the same."""
    left_out: frozenset[str] = frozenset()
    """Ids of rows that the operator has left out."""
    oldest: float = 0.0
    """When the oldest of the tasks was created, epoch seconds UTC; 0 where that is not known of
    any."""
    newest: float = 0.0

    def why_out(self, row: Row) -> str:
        """Why a row is left out; "" when it is acted on."""
        if row.id in self.left_out:
            return "left out by the operator"
        return "" if row.id in self.taken_in else row.odd

    @property
    def included(self) -> tuple[Row, ...]:
        """The rows that are acted on."""
        return tuple(row for row in self.rows if not self.why_out(row))

    @property
    def excluded(self) -> tuple[tuple[Row, str], ...]:
        """The rows that are left out, each with the reason."""
        return tuple((row, why) for row in self.rows if (why := self.why_out(row)))


Way: TypeAlias = tuple[State | None, State | None]


class TransitionPreview(NamedTuple):
    """What would happen to the rows of a plan that start in one state and go to another."""

    way: Way
    amount: int
    refused: str
    """Why they cannot go that way now; "" when they can."""
    edge: Edge
    """What the store says of that way; an empty one where it has none."""


def freeze(
    verb: str,
    tasks: Iterable[Task],
    now: float,
    *,
    filter: str = "",
    noted: frozenset[str] = frozenset(),
) -> Plan:
    """The plan to do this to exactly these tasks, as they were seen; `noted` ids have a note."""
    seen = ((t.id, t.state, t.rev, t.created, t.lease is not None) for t in tasks)
    return frozen(verb, seen, now, filter=filter, noted=noted)


def frozen(
    verb: str,
    seen: Iterable[tuple[str, State, str, float, bool]],
    now: float,
    *,
    filter: str = "",
    noted: frozenset[str] = frozenset(),
) -> Plan:
    """The same of id, state, revision, creation (epoch seconds UTC) and whether it is leased."""
    careful = VERBS[verb].careful
    rows: dict[str, Row] = {}
    oldest = newest = 0.0
    for ident, state, rev, created, leased in seen:
        if ident in rows:
            continue  # what stands in two places is acted on in one of them: a row is its id's
        odd = _odd(created, leased, ident in noted, now) if careful else ""
        rows[ident] = Row(ident, state, rev, odd)
        oldest = min(oldest or created, created or oldest)
        newest = max(newest, created)
    return Plan(verb, tuple(rows.values()), now, filter, oldest=oldest, newest=newest)


def _odd(created: float, leased: bool, noted: bool, now: float) -> str:
    if leased:
        return LOCKED
    if noted:
        return NOTED
    return YOUNGER if now - created < YOUNG else ""


def way(verb: str, row: Row) -> Way | None:
    """From where to where a row goes; None when the verb does not start there, or is unknown."""
    if row.end is not None:
        return row.state, row.end
    edges = VERBS[verb].edges if verb in VERBS else ()
    return next((way for way in edges if way[0] is row.state), None)


def offered(edges: Edges, verb: str, state: State, word: str = "") -> str | None:
    """Why a verb is not offered for tasks in a state, which the store calls `word`; None when it
    is."""
    ways = [way for way in VERBS[verb].edges if way[0] is state]
    if not ways:
        return f"not from {word or state}"
    closed = [edges[way].refused for way in ways if way in edges]
    if not closed:
        return f"no {verb} from {word or state} here"
    return None if "" in closed else closed[0]


def refusal(edges: Edges, verb: str, row: Row) -> str:
    """Why the store lets a row not go its way now; "" when it does."""
    its = way(verb, row)
    if its is None:
        return f"not from {row.state}"
    edge = edges.get(its)
    return f"no way from {its[0]} to {its[1]} here" if edge is None else edge.refused


def foreseen(
    verb: str, amounts: Mapping[tuple[State, State | None], int], edges: Edges
) -> tuple[TransitionPreview, ...]:
    """What would happen to rows, alike with alike; nothing is looked at.

    `amounts` are how many start in a state and go to the one that they name, if they do.
    """
    return tuple(
        _would(verb, Row("", start, "", end=end), n, edges) for (start, end), n in amounts.items()
    )


def _would(verb: str, row: Row, amount: int, edges: Edges) -> TransitionPreview:
    its = way(verb, row)
    why = refusal(edges, verb, row)
    return TransitionPreview(
        its or (row.state, row.state), amount, why, edges.get(its, Edge()) if its else Edge()
    )


def differ(plan: Plan, there: Mapping[str, Row]) -> Iterator[tuple[Row, str]]:
    """The rows whose task is not as it was seen, each with how it is now, by what is `there`: the
    state that it stands in, or words.
    """
    for row in plan.rows:
        now = there.get(row.id)
        if now is None:
            yield row, "not there any more: it ran, or was removed"
        elif now.state is not row.state:
            yield row, now.state
        elif now.rev != row.rev:
            yield row, "changed"
