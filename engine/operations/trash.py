"""The trash: what lies there, since when and from where, the way back, and how much more fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.model import State, Task
from engine.operations import plans, undo
from engine.operations.execute import RowResult
from engine.operations.journal import Journal
from engine.operations.plans import Plan, Row
from engine.operations.sizes import size_of
from engine.operations.undo import Back
from engine.store import Store
from engine.verbs import VERBS

SINCE = "trash_since"
"""In the `extra` of a task in the trash: when it came there, epoch seconds UTC."""

DAY = 86400.0
"""Seconds before the oldest task came there from which on the journal is read: what brought it
there began earlier."""


class Origin(NamedTuple):
    """Where a task in the trash came from, and so where it goes when it is restored."""

    state: State
    words: str
    """How that is known."""
    op: str = ""
    """The operation that put it there; "" where the journal knows of none."""


UNKNOWN = Origin(State.HELD, "nobody remembers where it stood: it comes back as held")


def lying(store: Store) -> Iterator[Task]:
    """Everything in the trash, in the order of ids.

    Raises:
        Unavailable: the store cannot be reached.
    """
    if State.TRASH in store.states:
        seen = store.look({store.states[State.TRASH]})
        yield from (task for task in seen if isinstance(task, Task) and task.state is State.TRASH)


def since(task: Task) -> float | None:
    """When a task came into the trash, epoch seconds UTC; None where that is not known."""
    try:
        return float(task.extra[SINCE])
    except (KeyError, ValueError):
        return None


def discarded(store: Store, now: float, hours: float) -> Iterator[Task]:
    """What came into the trash more than `hours` ago.

    What cannot be read as a task stays there: nobody knows what it was. So does what does not say
    since when it lies there.

    Raises:
        Unavailable: the store cannot be reached.
    """
    for task in lying(store):
        began = since(task)
        if began is not None and now - began > hours * 3600:
            yield task


def origins(journal: Journal | None, tasks: Sequence[Task]) -> dict[str, Origin]:
    """Where some tasks in the trash came from: by the journal, else by what they say themselves.

    Raises:
        Unavailable: the journal cannot be read.
    """
    left = {task.id: task for task in tasks}
    found: dict[str, Origin] = {}
    if journal is not None and left:
        known = [moment for task in tasks if (moment := since(task)) is not None]
        floor = min(known) - DAY if len(known) == len(tasks) else 0.0
        for operation in journal.operations(floor):
            for row in _brought(journal, operation.op, operation.intent.verb, left):
                words = f"{operation.intent.verb} by {operation.intent.who.name}"
                found[row.id] = Origin(row.state, words, operation.op)
                del left[row.id]
            if not left:
                break
    for ident, task in left.items():
        died = task.extra.get("dead_since")
        found[ident] = Origin(State.DEAD, "it says when it died") if died else UNKNOWN
    return found


def _brought(journal: Journal, op: str, verb: str, wanted: dict[str, Task]) -> list[Row]:
    """The rows that an operation brought into the trash, of those that are wanted.

    One of which no outcome is known lies there all the same: so it came from where it was seen.
    """
    rows: list[Row] = []
    if verb not in VERBS:
        return rows  # a journal may come from another version, or from anybody
    for row, ended in journal.entries(op):
        way = plans.way(verb, row)
        went = way is not None and way[1] is State.TRASH
        if row.id in wanted and went and (ended is None or ended.end is RowResult.DONE):
            rows.append(row)
    return rows


def restore(
    store: Store, journal: Journal | None, plan: Plan, now: float, retention: float
) -> Back:
    """A plan to restore tasks, each to where it came from, as far as that is known.

    A dead task that the next run would delete there, being dead for longer than `retention` days,
    comes back as held.

    Raises:
        Unavailable: the store or the journal cannot be read.
    """
    wanted = {(row.id, row.rev) for row in plan.rows}
    there: dict[str, list[Task]] = {}
    for task in store.look({row.id for row in plan.rows}):
        if isinstance(task, Task):
            there.setdefault(task.id, []).append(task)
    tasks = {t.id: t for found in there.values() for t in found if (t.id, t.rev) in wanted}
    came = origins(journal, tuple(tasks.values()))
    rows, held = [], set()
    for row in plan.rows:
        end = came.get(row.id, UNKNOWN).state
        died = undo.died(tasks[row.id]) if row.id in tasks else None
        back = undo.kept(row._replace(end=end), died, now, retention)
        if back.end is not end:
            held.add(row.id)
        odd = row.odd or undo.double(store, row, there.get(row.id, ()))
        rows.append(back._replace(odd=odd))
    return Back(plan._replace(rows=tuple(rows)), frozenset(held))


class Room:
    """How much more fits into a store's trash: asked for each task that is to go there.

    What others put there meanwhile is not seen: two that purge at once may exceed it a little.
    """

    def __init__(self, store: Store, quota: int) -> None:
        """`quota` is in bytes; what lies there is weighed when it is asked first."""
        self._store, self._quota = store, quota
        self._left: int | None = None

    def __call__(self, task: Task) -> str:
        """Why a task does not fit; "" when it does, and then it takes its room.

        Raises:
            Unavailable: the store cannot be reached.
        """
        if self._left is None:
            self._left = self._quota - taken(self._store)
        size = size_of(self._store, task)
        if size > self._left:
            return full(self._quota)
        self._left -= size
        return ""


def full(quota: int) -> str:
    """Why something does not fit into the trash; `quota` is in bytes."""
    most = f"{quota / 1e6:.1f} MB"
    return f"the trash is full: it takes at most {most}; expunge or restore some of it"


def taken(store: Store) -> int:
    """Bytes of all that lies in the trash, with payloads.

    Raises:
        Unavailable: the store cannot be reached.
    """
    return sum(size_of(store, task) for task in lying(store))
