"""Undo an operation by a plan of its own; settle, continue or abandon an interrupted one.

Raises, everywhere: Unavailable, if journal or store cannot be read, or the journal not be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any, TypeVar

from engine import policy
from engine.model import Missing, State, Task
from engine.operations import controls, plans
from engine.operations.execute import JOURNAL_BATCH_ROWS
from engine.operations.journal import MASKED_LOCAL_PART, Entry, Journal, JournalWriter, Operation
from engine.operations.journal_format import make_row_outcome
from engine.operations.plan_rows import keep_rows
from engine.operations.plans import Plan, Row, RowOutcome, RowResult
from engine.operations.temp_table import SqlValues, TempTable, text_value, value_text
from engine.store import ChangeableStore, ReadableStore, StoreError, Unavailable
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.verbs import VERBS, keep_error

T = TypeVar("T")

REASON_WAS_ACTIVE = "it was active, and its worker has ended: not moved back"
REASON_RETENTION_OVER = "dead for longer than the retention: restored as held"
"""Why a dead task is not restored as dead: the next sweep would delete it."""


class UndoPlan(NamedTuple):
    """The plan that undoes an operation, or restores tasks from the trash."""

    plan: Plan
    """Rows that cannot be undone are barred, with the reason."""
    held: frozenset[str]
    """Ids of dead tasks that are restored as held, because their retention is over."""


def plan_undo(
    store: ChangeableStore, journal: Journal, operation: Operation, now: float, retention: float
) -> UndoPlan:
    """Plan to undo an operation, from the present state of its tasks; `retention` is in days."""
    verb = _verb(operation)
    images = journal.images(operation.op)
    held: set[str] = set()
    entries = journal.entries(operation.op)
    done = (e for e in entries if e.outcome and e.outcome.result is RowResult.DONE)

    def make_rows() -> Iterator[Row]:
        for batch in _batches(done):
            by_id = _look_up(store, {entry.row.id for entry in batch})[0]
            for entry in batch:
                tasks = by_id.get(entry.row.id, [])
                task = _find_task(verb, entry, tasks)
                row = _undo_row(store, verb, entry, task=task, images=images, now=now)
                row = row._replace(barred=row.barred or duplicate_problem(store, row, tasks))
                if not row.barred and task is not None and row.target is State.DEAD:
                    since = _dead_since(store, task, images.get(row.id))
                    row = apply_retention(row, since, now, retention)
                    if row.target is State.HELD:
                        held.add(row.id)
                yield row

    rows = keep_rows(make_rows())
    return UndoPlan(Plan("undo", rows, now, undoes=operation.op), frozenset(held))


def apply_retention(row: Row, since: float | None, now: float, retention: float) -> Row:
    """Change the target of a row from dead to held, if the next sweep would delete the task.
    `since` is when its task died, epoch seconds UTC, None if unknown; `retention` is in days."""
    over = since is not None and policy.is_older_than(now - since, retention)
    return row._replace(target=State.HELD) if row.target is State.DEAD and over else row


def duplicate_problem(store: ReadableStore, row: Row, tasks: Iterable[Task]) -> str:
    """The message that another task with a row's id exists; "" if none does."""
    others = (task.state for task in tasks if task.id == row.id and task.state is not row.state)
    state = next(others, None)
    return f"a task with this id is already in {store.states[state]}" if state else ""


def death_time(task: Task) -> float | None:
    """When a task died, epoch seconds UTC; None if unknown."""
    try:
        return float(task.extra["dead_since"])
    except (KeyError, ValueError):
        return None


def _undo_row(
    store: ReadableStore,
    verb: str,
    entry: Entry,
    task: Task | None,
    images: Mapping[str, bytes],
    now: float,
) -> Row:
    """The row that undoes an entry; barred if that is impossible."""
    row, ended = entry
    assert ended is not None
    its = plans.transition_of(verb, row)
    end_state = its[1] if its else None
    if end_state is None:
        return Row(row.id, row.state, row.rev, target=State.HELD, barred="deleted permanently")
    end = State.HELD if row.state is State.ACTIVE else row.state
    back = Row(row.id, end_state, ended.rev, target=end)
    if row.state is State.ACTIVE and end_state is State.HELD:
        return back._replace(barred=REASON_WAS_ACTIVE)
    why = _change_problem(task, end_state, ended.rev, store.states)
    why = why or plans.row_refusal(store.edges, "undo", back)
    if not why and task is not None:
        why = plans.bar_reason(store.edges, "undo", task, now=now, target=end)
        warned = plans.warning_bits(store.edges, "undo", task, now=now, target=end)
        back = back._replace(warned=warned)
    if not why and not VERBS[verb].keeps_bytes and row.id not in images:
        why = "its saved image was deleted"
    return back._replace(barred=why)


def _find_task(verb: str, entry: Entry, tasks: Sequence[Task]) -> Task | None:
    """The task that an operation left for a row: the same id may exist in two states."""
    its = plans.transition_of(verb, entry.row)
    version = (its[1] if its else None, entry.outcome.rev if entry.outcome else "")
    return next((t for t in tasks if (t.state, t.rev) == version), tasks[0] if tasks else None)


def _look_up(store: ReadableStore, ids: set[str]) -> tuple[dict[str, list[Task]], set[str]]:
    """The tasks with these ids in any state, and the ids that are missing. A task that is being
    moved, or cannot be read now, is in neither."""
    by_id: dict[str, list[Task]] = {}
    missing = set()
    for answer in store.scan(ids):
        if isinstance(answer, Task):
            by_id.setdefault(answer.id, []).append(answer)
        elif isinstance(answer, Missing):
            missing.add(answer.id)
    return by_id, missing


def _verb(operation: Operation) -> str:
    """The verb of an operation.

    Raises:
        Unavailable: it is a control, or unknown."""
    verb = operation.intent.verb
    if verb == controls.CONTROL_VERB:
        raise Unavailable(f"{operation.op}: {controls.undo_refusal(operation.intent.values)}")
    if verb not in VERBS:
        raise Unavailable(f"{operation.op} has an unknown verb: {safe_line(verb)[:40]}")
    return verb


def _change_problem(
    task: Task | None, end_state: State, rev: str, words: Mapping[State, str]
) -> str:
    """Why a task is not as the operation left it; else "". `words` are the store's state names."""
    if task is None:
        return "gone since: it ran, or was removed"
    if task.state is not end_state:
        return f"{words[task.state]} now: it ran, or was moved"
    return "" if task.rev == rev else "changed since: it was attempted, or edited"


def _dead_since(store: ChangeableStore, task: Task, image: bytes | None) -> float | None:
    if image is not None:
        try:
            task = store.restore_image(task, image, State.DEAD)
        except StoreError:
            return None  # applying the plan reports the reason
    return death_time(task)


class Settled(NamedTuple):
    """An interrupted operation after `settle_operation`."""

    operation: Operation | None
    """As the journal has it now; None while another process runs it."""
    moving: tuple[Row, ...] = ()
    """Rows whose outcome cannot be known yet: the task is being moved."""
    unmoved: Sequence[Row] = ()
    """Rows whose task is unchanged: it was not moved."""


def settle_operation(store: ChangeableStore, journal: Journal, operation: Operation) -> Settled:
    """Find the outcomes of the open rows of an interrupted operation, and write them to the
    journal. A row stays open if its task is unchanged (`plan_rest` continues with it), or while it
    is being moved. Idempotent; changes no task but as `ChangeableStore.verify` may."""
    if operation.intent.verb != controls.CONTROL_VERB:  # a control has no rows
        _verb(operation)
    return _settle(store, journal, operation)


def _settle(
    store: ChangeableStore, journal: Journal, operation: Operation, why: str = ""
) -> Settled:
    """As `settle_operation`; with `why`, unchanged rows are excluded for it, and the operation
    ends. The tasks are read without the file's flock: its holder counts as running the
    operation."""
    writer = journal.resume(operation.op)
    if writer is None:
        return Settled(None)
    writer.close()
    findings = _examine_open_rows(store, journal, operation)
    writer = journal.resume(operation.op)
    if writer is None:
        return Settled(None)
    try:
        now = journal.operation(operation.op)
        if now is None or now.ended is not None:
            return Settled(now)
        # Another process may have written some outcomes since.
        entries = journal.entries(operation.op)
        moving: list[Row] = []
        stays = keep_rows(_write_findings(writer, findings, entries, moving))
        over = not moving and bool(why or not stays)
        if over:
            if stays:
                writer.write_note(CLOSED_NOTE, why=why)
            for batch in _batches(stays):
                writer.write_outcomes([RowOutcome(row, RowResult.UNAPPLIED, why) for row in batch])
            rows = journal.entries(operation.op)
            if any(edge.renames for edge in store.edges.values()):
                verb = operation.intent.verb
                renamed = (row.id for row, end in rows if _is_renamed(store, verb, row, end))
                writer.write_new_ids(dict.fromkeys(renamed, ""))
            counts = Counter(entry.outcome.result for entry in rows if entry.outcome is not None)
            writer.write_end(len(rows), counts)
    finally:
        writer.close()
    return Settled(journal.operation(operation.op), tuple(moving), stays)


def _is_renamed(store: ChangeableStore, verb: str, row: Row, ended: RowOutcome | None) -> bool:
    """True for a done row whose task has got another id, of which the journal has no note."""
    its = plans.transition_of(verb, row)
    if its is None or its not in store.edges or ended is None or ended.reason:
        return False
    return store.edges[its].renames and ended.result is RowResult.DONE


_STAYS, _MOVING = "stays", "moving"
"""The task of an open row is unchanged; its outcome cannot be known yet."""


def _examine_open_rows(
    store: ChangeableStore, journal: Journal, operation: Operation
) -> TempTable | None:
    """A table with the outcome of each open row by its id, or one of the words above; None if no
    row is open."""
    findings: TempTable | None = None
    entries = journal.entries(operation.op)
    for batch in _batches(entry.row for entry in entries if entry.outcome is None):
        if findings is None:
            findings = TempTable()
            findings.read("CREATE TABLE found(id TEXT PRIMARY KEY, result, words) WITHOUT ROWID")
            evidence = _Evidence(store, journal, operation)
        by_id, missing = _look_up(store, {row.id for row in batch})
        untouched = [row for row in batch if not evidence.other(_LATER, row)]
        for task in _unchanged(store, operation.intent.verb, untouched, by_id):
            by_id[task.id].append(task)
        evidence.find_renamed(batch)
        values = []
        for row in batch:
            its = _outcome(row, by_id.get(row.id, []), row.id in missing, evidence)
            if isinstance(its, RowOutcome):
                result, words = its.result.value, its.reason or its.rev
            else:
                result, words = _STAYS if its is row else _MOVING, ""
            values.append((text_value(row.id), result, text_value(words)))
        findings.write("INSERT INTO found VALUES (?, ?, ?)", values)
    return findings


def _unchanged(
    store: ChangeableStore, verb: str, batch: Iterable[Row], by_id: Mapping[str, Sequence[Task]]
) -> list[Task]:
    """The tasks of those rows that have another revision, but that their store calls unchanged, as
    after an attempt. A verb that ends in the state where it began leaves such a revision, too."""
    rows = []
    for row in batch:
        revs = {task.rev for task in by_id.get(row.id, ()) if task.state is row.state}
        its = plans.transition_of(verb, row) if verb in VERBS else None
        if revs and row.rev not in revs and its is not None and its[1] is not row.state:
            rows.append((row.id, row.state, row.rev))
    parts = (rows[at : at + store.max_verified] for at in range(0, len(rows), store.max_verified))
    return [one for part in parts for one in store.verify(part) if isinstance(one, Task)]


def _write_findings(
    writer: JournalWriter, findings: TempTable | None, entries: Iterable[Entry], moving: list[Row]
) -> Iterator[Row]:
    """Write the outcomes of open rows to the journal, and yield the rows that stay; those that are
    being moved are added to `moving`."""
    if findings is None:
        return
    for batch in _batches(entry.row for entry in entries if entry.outcome is None):
        marks = ", ".join("?" * len(batch))
        sql = f"SELECT id, result, words FROM found WHERE id IN ({marks})"
        by_id = {
            value_text(ident): (result, value_text(words))
            for ident, result, words in findings.read(sql, [text_value(row.id) for row in batch])
        }
        known = []
        for row in batch:
            result, words = by_id.get(row.id, (_MOVING, ""))
            if result == _MOVING:
                moving.append(row)
            elif result == _STAYS:
                yield row
            else:
                known.append(make_row_outcome(row, RowResult(result), words))
        if known:
            writer.write_outcomes(known)


def _batches(some: Iterable[T]) -> Iterator[list[T]]:
    waiting = iter(some)
    while batch := list(islice(waiting, JOURNAL_BATCH_ROWS)):
        yield batch


_FOLLOWED, _IN_WORK, _DONE, _LATER = "followed", "in work", "done", "done later"
"""Facts about a task and another operation: it continued with the task, it is running and may be
moving it, it left the task with a revision, it did so after our operation had begun."""


class _Evidence:
    """Decides whether it was this operation that moved a task, from the journal and the images."""

    def __init__(self, store: ChangeableStore, journal: Journal, operation: Operation) -> None:
        self._store, self._intent = store, operation.intent
        self.verb = operation.intent.verb
        self._images = journal.images(operation.op)
        self.renamed: Mapping[str, str] = {}
        """The new ids of `find_renamed`."""
        undone = self._intent.undoes
        self._undone = journal.images(undone) if undone else {}
        self._others = TempTable()
        self._others.read(
            "CREATE TABLE other(what TEXT, id, rev, op, PRIMARY KEY (what, id, rev)) WITHOUT ROWID"
        )
        for other in journal.operations(operation.started - OVERLAP_SECONDS):
            if other.op != operation.op:
                self._add_operation(other, journal.entries(other.op), operation)

    def _add_operation(
        self, other: Operation, entries: Iterable[Entry], operation: Operation
    ) -> None:
        follows = other.intent.follows == operation.op
        is_later = other.started >= operation.started

        def values() -> Iterator[SqlValues]:
            for row, ended in entries:
                ident = text_value(row.id)
                if follows:
                    yield _FOLLOWED, ident, "", other.op
                if ended is None and other.is_running:
                    yield _IN_WORK, ident, "", other.op
                if ended is not None and ended.result is RowResult.DONE:
                    yield _DONE, ident, text_value(ended.rev), other.op
                    if is_later:
                        yield _LATER, ident, "", other.op

        # Operations come latest first: the latest names a row, the first one a revision.
        self._others.write(
            "INSERT INTO other VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET op = "
            f"CASE what WHEN '{_DONE}' THEN excluded.op ELSE op END",
            values(),
        )

    def find_renamed(self, batch: Iterable[Row]) -> None:
        """Look for the new ids of those of these rows that may have one."""
        ids = {row.id for row in batch if self.renames(row)}
        self.renamed = self._store.find_new_ids(ids, 0.0) if ids else {}

    def renames(self, row: Row) -> bool:
        """True if the verb gives the task another id."""
        its = plans.transition_of(self.verb, row) if self.verb in VERBS else None
        return its is not None and its in self._store.edges and self._store.edges[its].renames

    def other(self, what: str, row: Row, rev: str = "") -> str:
        """The id of another operation of which one of the facts above is true; "" for none."""
        rows = self._others.read(
            "SELECT op FROM other WHERE what = ? AND id = ? AND rev = ?",
            (what, text_value(row.id), text_value(rev)),
        )
        return rows[0][0] if rows else ""

    def another(self, row: Row, rev: str = "") -> str:
        """The message that another operation did it, with its id; "" if the journal has none."""
        op = self.other(_LATER, row) or self.other(_DONE, row, rev)
        return f"another operation did it ({op})" if op else ""

    def contradiction(self, row: Row, task: Task) -> str:
        """Why another process must have moved this task; "" if this operation did."""
        if why := self.another(row, task.rev):
            return why
        if VERBS[self.verb].keeps_bytes:
            return ""
        if row.id not in self._images:
            return "interrupted before this row, and changed since"
        try:
            is_so = self._is_as_left(row, task)
        except StoreError:
            is_so = False  # being moved, or not readable now
        return "" if is_so else "interrupted, and changed since"

    def _is_as_left(self, row: Row, task: Task) -> bool:
        """True if the task is equal to the result of applying the verb to the saved image."""
        if row.target is not None:
            return self._store.read(task) == self._undone.get(row.id, self._images[row.id])
        was = self._store.restore_image(task, self._images[row.id], row.state)
        new = VERBS[self.verb].function(was, 0.0, **_values(self._intent.values))
        expected = keep_error(self._store.edges, was, new)
        return expected is not None and _compared_fields(expected) == _compared_fields(task)


OVERLAP_SECONDS = 86400.0
"""Seconds: operations that began up to so long before are read as well, they may overlap."""


def _compared_fields(task: Task) -> tuple[object, ...]:
    """The fields in which an attempt or an edit differs from a verb; due times in whole seconds, as
    in files. Descriptions are not compared: they are cleaned when written."""
    return task.attempts, task.error, task.payload, -(-(task.due or 0.0) // 1)


REASON_CONTINUED = "continued by another operation"

CLOSED_NOTE = "closed"
"""Note of an interrupted operation that ended with unchanged rows, with the reason."""
REASON_MISSING = "gone: it is unknown whether this operation removed it"
REASON_NO_NEW_ID = "unknown: not there any more, and no new id seen"
REASON_UNKNOWN_VERB = "changed since the plan, by an unknown verb"


def _outcome(
    row: Row, tasks: Sequence[Task], missing: bool, evidence: _Evidence
) -> RowOutcome | Row | None:
    if evidence.other(_FOLLOWED, row):
        return RowOutcome(row, RowResult.UNAPPLIED, REASON_CONTINUED)
    if any((t.state, t.rev) == (row.state, row.rev) for t in tasks):
        return row
    if not (tasks or missing) or evidence.other(_IN_WORK, row):
        return None
    if evidence.verb not in VERBS:
        return RowOutcome(row, RowResult.GONE, REASON_UNKNOWN_VERB)
    its = plans.transition_of(evidence.verb, row)
    end = its[1] if its else None
    if row.id in evidence.renamed and not evidence.another(row):
        return RowOutcome(row, RowResult.DONE)
    moved = next((task for task in tasks if task.state is end), None)
    if moved is not None:
        if why := evidence.contradiction(row, moved):
            return RowOutcome(row, RowResult.GONE, why)
        return RowOutcome(row, RowResult.DONE, rev=moved.rev)
    if missing and its is not None and end is None:
        # A worker or another process may have removed it, too.
        return RowOutcome(row, RowResult.GONE, evidence.another(row) or REASON_MISSING)
    if missing and evidence.renames(row):
        why = evidence.another(row) or REASON_NO_NEW_ID
        return RowOutcome(row, RowResult.FAILED, why)
    stayed = any(task.state is row.state for task in tasks)
    words = "put back in its state" if stayed else "now in neither its old nor its new state"
    return RowOutcome(row, RowResult.GONE, f"interrupted, and {words}")


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = dict.fromkeys(("description", "destination", "data"), str)
    right = {**texts, "due": float | int, "priority": int}
    return {n: v for n, v in values.items() if n in right and isinstance(v, right[n])}


def unseen_ids(entries: Iterable[Entry]) -> set[str]:
    """The ids of tasks whose new id was not seen when the plan was applied."""
    return {e.row.id for e in entries if e.outcome and e.outcome.reason == plans.NEW_ID_UNSEEN}


def follow_new_ids(
    store: ChangeableStore, journal: Journal, op: str, entries: Sequence[Entry]
) -> Sequence[Entry]:
    """The same entries of an operation, with the new ids of `unseen_ids` as far as they can be seen
    by now; these are noted, as they may not be seen any more later."""
    seen = store.find_new_ids(unseen_ids(entries), 0.0)
    new_ids = {ident: new_id for ident, new_id in seen.items() if new_id}
    with suppress(Unavailable):  # without the permission to write
        if new_ids and (writer := journal.resume(op)) is not None:
            with closing(writer):
                writer.write_new_ids(new_ids)

    def follow(entry: Entry) -> Entry:
        new_id = new_ids.get(entry.row.id)
        if entry.outcome is None or new_id is None:
            return entry
        return entry._replace(outcome=entry.outcome._replace(reason=plans.describe_new_id(new_id)))

    return [*map(follow, entries)]


def plan_rest(store: ChangeableStore, journal: Journal, operation: Operation, now: float) -> Plan:
    """Plan to continue an interrupted operation with its unchanged rows; settles it first.

    Half-moved tasks are not in it: `abandon_operation` finishes these, once the plan is applied.

    Raises:
        Unavailable: another process runs it, or the journal does not hold all arguments."""
    verb, values = _verb(operation), _whole_values(operation.intent.values)
    settled, intent = settle_operation(store, journal, operation), operation.intent
    _require_no_holder(operation, settled)
    return Plan(verb, settled.unmoved, now, intent.filter, values, undoes=intent.undoes)


def _whole_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a verb.

    Raises:
        Unavailable: the journal does not hold them in full, so the plan would do something else."""
    known = _values(values)
    if any(MASKED_LOCAL_PART in str(value) for value in values.values()):
        raise Unavailable("mail addresses are masked in the journal: abandon the operation")
    if lost := sorted(values.keys() - known.keys()):
        names = safe_line(", ".join(lost))[:40]
        raise Unavailable(f"the journal's new {names} is invalid: abandon the operation")
    return known


def abandon_operation(
    store: ChangeableStore, journal: Journal, operation: Operation, why: str
) -> int:
    """Abandon an interrupted operation: its unchanged rows are excluded; return their number.

    Half-moved tasks are completed or rolled back first, and the operation is settled. An operation
    that has ended is not changed.

    Raises:
        Unavailable: another process runs it; tasks are still being moved, and then it stays open.
    """
    settled = _settle(store, journal, operation, why)
    if settled.moving:
        for _ in store.verify((row.id, row.state, row.rev) for row in settled.moving):
            continue  # reading completes or rolls back the move; settling finds the result
        settled = _settle(store, journal, operation, why)
    _require_no_holder(operation, settled)
    if settled.moving:
        tasks = "1 task is" if len(settled.moving) == 1 else f"{len(settled.moving):,} tasks are"
        raise Unavailable(f"{tasks} still being moved: wait, or run `spooldeck queue recover`")
    return len(settled.unmoved)


def _require_no_holder(operation: Operation, settled: Settled) -> None:
    if settled.operation is None:
        raise Unavailable(f"{operation.op}: another process is running it")
