"""Taking an operation back, which is a plan of its own; and finding out what a crash left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from engine import policy
from engine.model import Edges, Missing, State, Task
from engine.operations import controls, plans
from engine.operations.execute import GROUP, Report, RowOutcome, RowResult
from engine.operations.journal import HIDDEN, Entry, Journal, Operation
from engine.operations.plans import Plan, Row
from engine.store import Store, StoreError, Unavailable
from engine.text.safe import shown
from engine.verbs import VERBS, along

T = TypeVar("T")

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
    verb = _verb(operation)
    images = journal.images(operation.op)
    rows: list[Row] = []
    held: set[str] = set()
    done = (e for e in journal.entries(operation.op) if e.ended and e.ended.end is RowResult.DONE)
    while batch := list(islice(done, GROUP)):
        there = _there(store, {entry.row.id for entry in batch})[0]
        for entry in batch:
            tasks = there.get(entry.row.id, [])
            task = _left(verb, entry, tasks)
            row = _back(store, verb, entry, task, images)
            row = row._replace(odd=row.odd or double(store, row, tasks))
            if not row.odd and task is not None and row.end is State.DEAD:
                since = _dead_since(store, task, images.get(row.id))
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


def double(store: Store, row: Row, tasks: Iterable[Task]) -> str:
    """That another task of a row's id stands somewhere already; "" where none does."""
    others = (task.state for task in tasks if task.id == row.id and task.state is not row.state)
    state = next(others, None)
    return f"a task of this id stands in {store.states[state]} already" if state else ""


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
    why = _changed(task, stood, ended.rev, store.states) or _no_way(store.edges, back)
    if not why and not VERBS[verb].keeps and row.id not in images:
        why = "what it was is not kept any more"
    return back._replace(odd=why)


def _left(verb: str, entry: Entry, tasks: Sequence[Task]) -> Task | None:
    """What an operation left of a row: one task may stand in two places."""
    its = plans.way(verb, entry.row)
    ends = (its[1] if its else None, entry.ended.rev if entry.ended else "")
    return next((t for t in tasks if (t.state, t.rev) == ends), tasks[0] if tasks else None)


def _there(store: Store, ids: set[str]) -> tuple[dict[str, list[Task]], set[str]]:
    """The tasks of these ids, wherever they stand, and the ids that stand nowhere.

    One that is being moved, or cannot be read now, is neither.
    """
    there: dict[str, list[Task]] = {}
    missing = set()
    for seen in store.look(ids):
        if isinstance(seen, Task):
            there.setdefault(seen.id, []).append(seen)
        elif isinstance(seen, Missing):
            missing.add(seen.id)
    return there, missing


def _verb(operation: Operation) -> str:
    """What an operation did.

    Raises:
        Unavailable: it is nothing that is known here.
    """
    verb = operation.intent.verb
    if verb == controls.VERB:
        raise Unavailable(f"{operation.op}: {controls.no_undo(operation.intent.values)}")
    if verb not in VERBS:
        raise Unavailable(f"{operation.op} is no operation that is known here: {shown(verb)[:40]}")
    return verb


def _changed(task: Task | None, stood: State, rev: str, words: Mapping[State, str]) -> str:
    """Why a task is not as the operation left it; "" when it is. `words` are the store's own."""
    if task is None:
        return "left since: it ran, or somebody removed it"
    if task.state is not stood:
        return f"{words[task.state]} now: it ran, or somebody moved it"
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


class Settled(NamedTuple):
    """How an interrupted operation stands once it was looked at again."""

    operation: Operation | None
    """As its journal tells of it now; None while somebody carries it out."""
    moving: tuple[Row, ...] = ()
    """Rows of which nothing can be known now: they neither stand as they were seen, nor did
    anything become of them that could be written down."""
    left: tuple[Row, ...] = ()
    """Rows that stand as they were seen: they were not moved."""


def settle(store: Store, journal: Journal, operation: Operation) -> Settled:
    """Find out what became of the rows that an interrupted operation left open, and write it down.

    Rows whose task stands as it was seen stay open: they were not moved, and `rest` goes on with
    them; so do those that are being moved, until somebody has finished that. Done twice it changes
    nothing, and no task is touched.

    Raises:
        Unavailable: the journal or the store cannot be read, or the journal not be written.
    """
    if operation.intent.verb != controls.VERB:  # which has no rows: there is nothing to look at
        _verb(operation)
    return _settle(store, journal, operation)


def _settle(store: Store, journal: Journal, operation: Operation, why: str = "") -> Settled:
    """As `settle`; with `why` what stands as it was seen is left as it is, and all is over.

    The tasks are looked at first: whoever has the pen is taken for the one that carries it out.
    """
    pen = journal.resume(operation.op)
    if pen is None:
        return Settled(None)
    pen.close()
    seen = _looked(store, journal, operation)
    pen = journal.resume(operation.op)
    if pen is None:
        return Settled(None)
    try:
        now = journal.operation(operation.op)
        if now is None or now.ended is not None:
            return Settled(now)
        # Another may have written some of it down meanwhile.
        open_ = {entry.row for entry in journal.entries(operation.op) if entry.ended is None}
        known = [one for one in seen.known if one.row in open_]
        stays, moving = (tuple(r for r in rows if r in open_) for rows in (seen.stays, seen.moving))
        over = not moving and bool(why or not stays)
        left = [RowOutcome(row, RowResult.EXCLUDED, why) for row in stays] if over else []
        for batch in _batches([*known, *left]):
            pen.outcomes(batch)
        if over:
            pen.end(_tally(journal, operation))
    finally:
        pen.close()
    return Settled(journal.operation(operation.op), moving, stays)


class _Looked(NamedTuple):
    """What the tasks of the rows that were left open say of what became of them."""

    known: list[RowOutcome]
    stays: list[Row]
    """Those that stand as they were seen."""
    moving: list[Row]
    """Those of which nothing can be known now."""


def _looked(store: Store, journal: Journal, operation: Operation) -> _Looked:
    found = _Looked([], [], [])
    unknown = (entry.row for entry in journal.entries(operation.op) if entry.ended is None)
    evidence: _Evidence | None = None
    for batch in _batches(unknown):
        evidence = evidence or _Evidence(store, journal, operation)
        there, missing = _there(store, {row.id for row in batch})
        for row in batch:
            its = _outcome(row, there.get(row.id, []), row.id in missing, evidence)
            if isinstance(its, RowOutcome):
                found.known.append(its)
            else:
                (found.stays if its is row else found.moving).append(row)
    return found


def _batches(some: Iterable[T]) -> Iterator[list[T]]:
    waiting = iter(some)
    while batch := list(islice(waiting, GROUP)):
        yield batch


class _Evidence:
    """What tells whether it was this operation that moved a task."""

    def __init__(self, store: Store, journal: Journal, operation: Operation) -> None:
        self._store, self._intent = store, operation.intent
        self.verb = operation.intent.verb
        self._kept = journal.images(operation.op)
        undone = self._intent.undoes
        self._undone = journal.images(undone) if undone else {}
        self.followed: set[str] = set()
        """Ids of tasks that another operation goes on with."""
        self.in_work: set[str] = set()
        """Ids of tasks that another operation, which runs, may be moving."""
        self._others: dict[tuple[str, str], str] = {}
        self._later: dict[str, str] = {}
        for other in journal.operations(operation.when - OVERLAP):
            if other.op != operation.op:
                self._hear(other, journal.entries(other.op), operation)

    def _hear(self, other: Operation, entries: Iterable[Entry], ours: Operation) -> None:
        follows = other.intent.follows == ours.op
        for row, ended in entries:
            if follows:
                self.followed.add(row.id)
            if ended is None and other.running:
                self.in_work.add(row.id)
            if ended is not None and ended.end is RowResult.DONE:
                self._others[row.id, ended.rev] = other.op
                if other.when >= ours.when:
                    self._later.setdefault(row.id, other.op)

    def another(self, row: Row, rev: str = "") -> str:
        """That another operation did it, with its name; "" where the journal knows of none."""
        op = self._later.get(row.id) or self._others.get((row.id, rev))
        return f"another operation did it ({op})" if op else ""

    def against(self, row: Row, task: Task) -> str:
        """Why it was not this operation that brought a task where it would have; "" if it was."""
        if why := self.another(row, task.rev):
            return why
        if VERBS[self.verb].keeps:
            return ""
        if row.id not in self._kept:
            return "interrupted before it was its turn, and changed since"
        try:
            is_so = self._is_as_left(row, task)
        except StoreError:
            is_so = False  # it moves, or cannot be read now
        return "" if is_so else "interrupted, and changed since"

    def _is_as_left(self, row: Row, task: Task) -> bool:
        """Whether a task is as the verb leaves one that was as it was kept."""
        if row.end is not None:
            return self._store.read(task) == self._undone.get(row.id, self._kept[row.id])
        was = self._store.recall(task, self._kept[row.id], row.state)
        new = VERBS[self.verb].act(was, 0.0, **_values(self._intent.values))
        left = along(self._store.edges, was, new)
        return left is not None and _told(left) == _told(task)


OVERLAP = 86400.0
"""Seconds before an operation from which on others are looked at: they may have gone on with it."""


def _told(task: Task) -> tuple[object, ...]:
    """What tells an attempt, or another's edit, from what a verb does; a file knows whole seconds.

    Descriptions do not: what is written of one is cleaned first.
    """
    return task.attempts, task.error, task.payload, -(-(task.due or 0.0) // 1)


FOLLOWED = "gone on with by another operation"
NOWHERE = "nowhere any more; whether this did it is not known"
UNKNOWN = "not as it was seen; what was done is not known here"


def _outcome(
    row: Row, tasks: Sequence[Task], missing: bool, evidence: _Evidence
) -> RowOutcome | Row | None:
    if row.id in evidence.followed:
        return RowOutcome(row, RowResult.EXCLUDED, FOLLOWED)
    if any((t.state, t.rev) == (row.state, row.rev) for t in tasks):
        return row
    if not (tasks or missing) or row.id in evidence.in_work:
        return None
    if evidence.verb not in VERBS:
        return RowOutcome(row, RowResult.GONE, UNKNOWN)
    its = plans.way(evidence.verb, row)
    end = its[1] if its else None
    moved = next((task for task in tasks if task.state is end), None)
    if moved is not None:
        why = evidence.against(row, moved)
        return (
            RowOutcome(row, RowResult.GONE, why)
            if why
            else RowOutcome(row, RowResult.DONE, rev=moved.rev)
        )
    if missing and its is not None and end is None:
        # It may have run, or been removed by anybody, as well.
        return RowOutcome(row, RowResult.GONE, evidence.another(row) or NOWHERE)
    stayed = any(task.state is row.state for task in tasks)
    words = "put back where it was" if stayed else "not where it was, nor where it should go"
    return RowOutcome(row, RowResult.GONE, f"interrupted, and {words}")


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb takes besides, as far as it is what one takes."""
    right = {"description": str, "destination": str, "due": float | int}
    return {n: v for n, v in values.items() if n in right and isinstance(v, right[n])}


def rest(store: Store, journal: Journal, operation: Operation, now: float) -> Plan:
    """The plan to go on with what an interrupted operation did not come to; it is settled first.

    What it left half moved is not in it: `drop` finishes that, once the plan is carried out.

    Raises:
        Unavailable: the journal or the store cannot be read, or the journal not be written;
            somebody carries it out; or the journal does not hold all that it would take.
    """
    verb, values = _verb(operation), _whole_values(operation.intent.values)
    settled = settle(store, journal, operation)
    _require_nobody(operation, settled)
    intent = operation.intent
    rows = settled.left
    return Plan(verb, rows, now, filter=intent.filter, values=values, undoes=intent.undoes)


def _whole_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb took besides.

    Raises:
        Unavailable: the journal does not hold it as it was: without it another thing would be done.
    """
    known = _values(values)
    if any(HIDDEN in str(value) for value in values.values()):
        raise Unavailable("the journal holds no mail address in full: it can only be dropped")
    if lost := sorted(values.keys() - known.keys()):
        names = shown(", ".join(lost))[:40]
        raise Unavailable(f"the journal's new {names} is not understood: it can only be dropped")
    return known


def drop(store: Store, journal: Journal, operation: Operation, why: str) -> int:
    """Let an interrupted operation be over: the rows that it did not come to are left as they are,
    and how many those were is the answer. What it left half moved is finished or taken back first,
    and it is settled; one that is over is let be.

    Raises:
        Unavailable: the journal or the store cannot be read, or the journal not be written;
            somebody carries it out; or tasks are being moved still, and then it stays open.
    """
    settled = _settle(store, journal, operation, why)
    if settled.moving:
        for _ in store.still((row.id, row.state, row.rev) for row in settled.moving):
            continue  # to ask is what finishes it; where it stands then, settling finds out
        settled = _settle(store, journal, operation, why)
    _require_nobody(operation, settled)
    if settled.moving:
        tasks = "1 task is" if len(settled.moving) == 1 else f"{len(settled.moving):,} tasks are"
        raise Unavailable(f"{tasks} being moved still: wait, or `spooldeck queue recover`")
    return len(settled.left)


def _require_nobody(operation: Operation, settled: Settled) -> None:
    if settled.operation is None:
        raise Unavailable(f"{operation.op}: somebody carries it out just now")


def _tally(journal: Journal, operation: Operation) -> Report:
    ended: dict[RowResult, list[tuple[str, str]]] = {end: [] for end in RowResult}
    rows = []
    for entry in journal.entries(operation.op):
        rows.append(entry.row)
        if entry.ended is not None:
            ended[entry.ended.end].append((entry.row.id, entry.ended.words))
    return Report(
        Plan(operation.intent.verb, tuple(rows), operation.when),
        tuple(ident for ident, _ in ended[RowResult.DONE]),
        tuple(ident for ident, _ in ended[RowResult.GONE]),
        tuple(ended[RowResult.FAILED]),
        tuple(ended[RowResult.EXCLUDED]),
    )
