"""A frozen plan: one verb for the tasks that the operator saw, every row accounted for.

What is acted on is what was on the screen. Each row carries the state and the revision in which its
task was seen; a task that differs from that when the plan is applied is left alone, as gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from engine.model import Edges, Move, Outcome, State, Task
from engine.store import Gone, Store, Unavailable
from engine.verbs import VERBS

GROUP = 500
"""Rows looked at again and swapped together: few enough that what was seen is still fresh."""


class Row(NamedTuple):
    """One task of a plan, as the operator saw it."""

    id: str
    state: State
    rev: str


class Plan(NamedTuple):
    """One verb for some tasks, frozen at a moment."""

    verb: str
    """A key of `VERBS`."""
    rows: tuple[Row, ...]
    made: float
    """Epoch seconds UTC."""


class Report(NamedTuple):
    """What became of a plan: every row is in exactly one of `done`, `gone` and `failed`."""

    plan: Plan
    done: tuple[str, ...]
    """Ids of the tasks that the verb was carried out on; durable."""
    gone: tuple[str, ...]
    """Ids of those that were not as they had been seen; left alone."""
    failed: tuple[tuple[str, str], ...]
    """Ids of those that could not be changed, each with the reason."""


def freeze(verb: str, tasks: Iterable[Task], now: float) -> Plan:
    """The plan to do this to exactly these tasks, as they were seen."""
    rows = dict.fromkeys(Row(task.id, task.state, task.rev) for task in tasks)
    return Plan(verb, tuple(rows), now)


def offered(edges: Edges, verb: str, state: State) -> str | None:
    """Why a verb is not offered for tasks in a state; None when it is."""
    ways = [way for way in VERBS[verb].edges if way[0] is state]
    if not ways:
        return f"not from {state}"
    closed = [edges[way].refused for way in ways if way in edges]
    if not closed:
        return f"no {verb} from {state} here"
    return None if "" in closed else closed[0]


def apply(store: Store, plan: Plan, now: float) -> Report:
    """Carry a plan out, looking again at each row first; blocks until all of it is durable.

    Rivals may do what they like meanwhile: a row they were faster with is gone. When the store
    becomes unavailable, the rows not yet carried out have failed for that reason.
    """
    tally = _Tally(plan)
    rows = iter(dict.fromkeys(plan.rows))
    while group := list(islice(rows, GROUP)):
        try:
            tally.settle(group, _carry_out(store, plan.verb, group, now, tally))
        except Unavailable as error:
            tally.give_up([*group, *rows], str(error))
    return tally.report()


def _carry_out(
    store: Store, verb: str, group: list[Row], now: float, tally: _Tally
) -> Iterator[Outcome]:
    """Swap what is still as it was seen, and put the other rows into the tally."""
    there = {
        Row(seen.id, seen.state, seen.rev): seen
        for seen in store.look({row.id for row in group})
        if isinstance(seen, Task)
    }
    moves = []
    for row in group:
        task = there.get(row)
        if task is None:
            tally.is_gone(row)
        elif reason := offered(store.edges, verb, row.state):
            tally.has_failed(row, reason)
        else:
            moves.append(Move(task, VERBS[verb].act(task, now)))
    return store.swap_all(moves)


class _Tally:
    """What has become of each row so far; the first word on a row is the last."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open = set(plan.rows)
        self._done: list[str] = []
        self._gone: list[str] = []
        self._failed: list[tuple[str, str]] = []

    def settle(self, group: list[Row], outcomes: Iterable[Outcome]) -> None:
        """Count each outcome as it becomes durable; a row without one has failed."""
        for outcome in outcomes:
            old, error = outcome.move.old, outcome.error
            assert old is not None
            row = Row(old.id, old.state, old.rev)
            if error is None:
                self.is_done(row)
            elif isinstance(error, Gone):
                self.is_gone(row)
            else:
                self.has_failed(row, str(error))
        self.give_up(group, "its store gave no answer")

    def is_done(self, row: Row) -> None:
        """The verb was carried out on its task."""
        if self._close(row):
            self._done.append(row.id)

    def is_gone(self, row: Row) -> None:
        """Its task is not as it was seen."""
        if self._close(row):
            self._gone.append(row.id)

    def has_failed(self, row: Row, reason: str) -> None:
        """Its task could not be changed."""
        if self._close(row):
            self._failed.append((row.id, reason))

    def give_up(self, rows: Iterable[Row], reason: str) -> None:
        """All of these that nothing is known of have failed."""
        for row in rows:
            self.has_failed(row, reason)

    def _close(self, row: Row) -> bool:
        known = row in self._open
        self._open.discard(row)
        return known

    def report(self) -> Report:
        """The whole account."""
        done, gone, failed = tuple(self._done), tuple(self._gone), tuple(self._failed)
        return Report(self._plan, done, gone, failed)
