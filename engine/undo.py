"""Taking an operation back, which is a plan of its own; and finding out what a crash left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from engine import plans, policy
from engine.journal import Entry, Journal, Operation
from engine.model import Edges, State, Task
from engine.operations import GROUP, End, Ended, Report
from engine.plans import Plan, Row
from engine.store import Store, StoreError
from engine.verbs import VERBS

FROM_WORK = "it came from work, where nobody works on it any more: it stays as it is"
RETIRED = "dead for longer than the retention: it comes back as held"
"""Why a dead task does not go back where it was: the next run would delete it there."""


class Back(NamedTuple):
    """An operation as it would be taken back."""

    plan: Plan
    """Rows that cannot come back are odd in it, with the reason."""
    held: frozenset[str]
    """Ids of dead tasks that come back as held, because their retention is over."""


def undo(
    store: Store, journal: Journal, operation: Operation, now: float, retention: float
) -> Back:
    """The plan to take an operation back, as its tasks stand now; `retention` is in days.

    Raises:
        Unavailable: the journal or the store cannot be read.
    """
    verb = operation.intent.verb
    images = journal.images(operation.op)
    rows: list[Row] = []
    held: set[str] = set()
    done = (e for e in journal.entries(operation.op) if e.ended and e.ended.end is End.DONE)
    while batch := list(islice(done, GROUP)):
        there: dict[str, Task] = {}
        for seen in store.look({entry.row.id for entry in batch}):
            if isinstance(seen, Task):
                there.setdefault(seen.id, seen)
        for entry in batch:
            row = _back(store, verb, entry, there.get(entry.row.id), images)
            if not row.odd and row.end is State.DEAD:
                since = _dead_since(store, there[row.id], images.get(row.id))
                row = kept(row, since, now, retention)
                if row.end is State.HELD:
                    held.add(row.id)
            rows.append(row)
    return Back(Plan("undo", tuple(rows), now, undoes=operation.op), frozenset(held))


def kept(row: Row, since: float | None, now: float, retention: float) -> Row:
    """A row that goes back to the dead, or to the held where the next run would delete it there.

    `since` is when its task died, epoch seconds UTC, None where it does not say; `retention` is in
    days.
    """
    over = since is not None and policy.older_than(since, now, retention)
    return row._replace(end=State.HELD) if row.end is State.DEAD and over else row


def died(task: Task) -> float | None:
    """When a task died, epoch seconds UTC; None when it does not say."""
    try:
        return float(task.extra["dead_since"])
    except (KeyError, ValueError):
        return None


def _back(
    store: Store, verb: str, entry: Entry, task: Task | None, images: dict[str, bytes]
) -> Row:
    """The way back of one row; odd, with the reason, where there is none."""
    row, ended = entry
    assert ended is not None
    its = plans.way(verb, row)
    stood = its[1] if its else None
    if stood is None:
        return Row(row.id, row.state, row.rev, "gone for good", State.HELD)
    end = State.HELD if row.state is State.ACTIVE else row.state
    back = Row(row.id, stood, ended.rev, end=end)
    if row.state is State.ACTIVE and stood is State.HELD:
        return back._replace(odd=FROM_WORK)
    why = _changed(task, stood, ended.rev) or _no_way(store.edges, back)
    if not why and not VERBS[verb].keeps and row.id not in images:
        why = "what it was is not kept any more"
    return back._replace(odd=why)


def _changed(task: Task | None, stood: State, rev: str) -> str:
    """Why a task is not as the operation left it; "" when it is."""
    if task is None:
        return "left since: it ran, or somebody removed it"
    if task.state is not stood:
        return f"{task.state} now: it ran, or somebody moved it"
    return "" if task.rev == rev else "changed since: it was attempted, or somebody edited it"


def _no_way(edges: Edges, row: Row) -> str:
    return plans.refusal(edges, "undo", row)


def _dead_since(store: Store, task: Task, image: bytes | None) -> float | None:
    """When the task that would come back died, epoch seconds UTC; None when it does not say."""
    if image is not None:
        try:
            task = store.recall(task, image, State.DEAD)
        except StoreError:
            return None  # the apply says why it cannot come back
    return died(task)


def settle(store: Store, journal: Journal, operation: Operation) -> Operation | None:
    """Find out what became of the rows that an interrupted operation left open, and write it down.

    Rows whose task stands as it was seen stay open: they were not moved, and `rest` goes on with
    them. Done twice it changes nothing. Answers how it stands then; None while somebody carries it
    out.

    Raises:
        Unavailable: the journal or the store cannot be read, or the journal not be written.
    """
    pen = journal.resume(operation.op)
    if pen is None:
        return None
    try:
        still_open = False
        unknown = (entry.row for entry in journal.entries(operation.op) if entry.ended is None)
        for ended in _found(store, operation.intent.verb, unknown):
            known = [one for one in ended if one is not None]
            still_open |= len(known) < len(ended)
            if known:
                pen.outcomes(known)
        if not still_open:
            pen.end(_tally(journal, operation))
    finally:
        pen.close()
    return journal.operation(operation.op)


def _found(store: Store, verb: str, rows: Iterable[Row]) -> Iterator[list[Ended | None]]:
    """What each row's task says of what became of it; None where it was not moved."""
    waiting = iter(rows)
    while batch := list(islice(waiting, GROUP)):
        there: dict[str, list[Task]] = {}
        for seen in store.look({row.id for row in batch}):
            if isinstance(seen, Task):
                there.setdefault(seen.id, []).append(seen)
        yield [_outcome(verb, row, there.get(row.id, [])) for row in batch]


def _outcome(verb: str, row: Row, tasks: Sequence[Task]) -> Ended | None:
    if any((task.state, task.rev) == (row.state, row.rev) for task in tasks):
        return None
    its = plans.way(verb, row)
    end = its[1] if its else None
    if end is None and not tasks:
        return Ended(row, End.DONE)
    moved = next((task for task in tasks if task.state is end), None)
    if moved is not None:
        return Ended(row, End.DONE, rev=moved.rev)
    return Ended(row, End.GONE, "interrupted, and not where it was, nor where it should go")


def rest(journal: Journal, operation: Operation, now: float) -> Plan:
    """The plan to go on with what an interrupted operation did not come to.

    Raises:
        Unavailable: the journal cannot be read.
    """
    rows = tuple(e.row for e in journal.entries(operation.op) if e.ended is None)
    intent = operation.intent
    return Plan(
        intent.verb,
        rows,
        now,
        filter=intent.filter,
        values=intent.values,
        undoes=intent.undoes,
    )


def drop(journal: Journal, operation: Operation, why: str) -> None:
    """Let an interrupted operation be over: the rows that it did not come to are left as they are.

    Raises:
        Unavailable: the journal cannot be read or written.
    """
    pen = journal.resume(operation.op)
    if pen is None:
        return
    try:
        left = [
            Ended(e.row, End.EXCLUDED, why)
            for e in journal.entries(operation.op)
            if e.ended is None
        ]
        pen.outcomes(left)
        pen.end(_tally(journal, operation))
    finally:
        pen.close()


def _tally(journal: Journal, operation: Operation) -> Report:
    ended: dict[End, list[tuple[str, str]]] = {end: [] for end in End}
    rows = []
    for entry in journal.entries(operation.op):
        rows.append(entry.row)
        if entry.ended is not None:
            ended[entry.ended.end].append((entry.row.id, entry.ended.words))
    return Report(
        Plan(operation.intent.verb, tuple(rows), operation.when),
        tuple(ident for ident, _ in ended[End.DONE]),
        tuple(ident for ident, _ in ended[End.GONE]),
        tuple(ended[End.FAILED]),
        tuple(ended[End.EXCLUDED]),
    )
