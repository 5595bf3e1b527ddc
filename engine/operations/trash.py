"""The trash: its tasks, their origin and time, the plan to restore them, and the size limit.

Raises, everywhere: Unavailable, if the store cannot be reached, or the journal not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.model import State, Task
from engine.operations import plans, undo
from engine.operations.journal import Journal
from engine.operations.plans import Plan, Row, RowResult, task_bytes
from engine.operations.undo import UndoPlan
from engine.store import ReadableStore
from engine.values import NamedTuple
from engine.verbs import VERBS

SINCE_KEY = "trash_since"
"""The key in `Task.extra` for when a task was moved to the trash, epoch seconds UTC."""

JOURNAL_MARGIN_SECONDS = 86400.0
"""Seconds: the journal is read from so long before the oldest task was trashed, because its
operation began earlier."""


class Origin(NamedTuple):
    """The state that a task had before the trash, to which it is restored."""

    state: State
    evidence: str
    """How this is known."""
    op: str = ""
    """The id of the operation that moved it to the trash; "" if the journal has none."""


UNKNOWN_ORIGIN = Origin(State.HELD, "former state unknown: restored as held")


def trashed_tasks(store: ReadableStore) -> Iterator[Task]:
    """All tasks in the trash, in the order of ids."""
    if State.TRASH in store.states:
        for task in store.scan({store.states[State.TRASH]}):
            if isinstance(task, Task) and task.state is State.TRASH:
                yield task


def trashed_at(task: Task) -> float | None:
    """When a task was moved to the trash, epoch seconds UTC; None if unknown."""
    try:
        return float(task.extra[SINCE_KEY])
    except (KeyError, ValueError):
        return None


def expired_tasks(
    store: ReadableStore, age: Callable[[float], float], hours: float
) -> Iterator[Task]:
    """The tasks that were moved to the trash more than `hours` ago; `age` gives the seconds since a
    moment. Files that cannot be read as a task stay in the trash, and so do tasks without a time.
    """
    for task in trashed_tasks(store):
        began = trashed_at(task)
        if began is not None and age(began) > hours * 3600:
            yield task


def find_origins(journal: Journal | None, tasks: Sequence[Task]) -> dict[str, Origin]:
    """Find the former state of some tasks in the trash, from the journal, else from the task."""
    unknown = {task.id: task for task in tasks}
    origins: dict[str, Origin] = {}
    if journal is not None and unknown:
        known = [moment for task in tasks if (moment := trashed_at(task)) is not None]
        floor = min(known) - JOURNAL_MARGIN_SECONDS if len(known) == len(tasks) else 0.0
        for operation in journal.operations(floor):
            for row in _trashed_rows(journal, operation.op, operation.intent.verb, unknown):
                words = f"{operation.intent.verb} by {operation.intent.who.name}"
                origins[row.id] = Origin(row.state, words, operation.op)
                del unknown[row.id]
            if not unknown:
                break
    for ident, task in unknown.items():
        died = task.extra.get("dead_since")
        origins[ident] = Origin(State.DEAD, "has a time of death") if died else UNKNOWN_ORIGIN
    return origins


def _trashed_rows(journal: Journal, op: str, verb: str, tasks: dict[str, Task]) -> list[Row]:
    """The rows that an operation moved to the trash, out of the wanted ids. A row without an
    outcome counts too: the task is in the trash, so the operation moved it."""
    rows: list[Row] = []
    if verb not in VERBS:
        return rows  # an unknown verb: written by another version or program
    for row, ended in journal.entries(op):
        transition = plans.transition_of(verb, row)
        went = transition is not None and transition[1] is State.TRASH
        if row.id in tasks and went and (ended is None or ended.result is RowResult.DONE):
            rows.append(row)
    return rows


def plan_restore(
    store: ReadableStore, journal: Journal | None, plan: Plan, now: float, retention: float
) -> UndoPlan:
    """Plan to restore tasks, each to its former state, as far as that is known. A task that has
    been dead for longer than `retention` days is restored as held: the next sweep would delete it
    from the dead-letter queue."""
    versions = {(row.id, row.rev) for row in plan.rows}
    by_id: dict[str, list[Task]] = {}
    for task in store.scan({row.id for row in plan.rows}):
        if isinstance(task, Task):
            by_id.setdefault(task.id, []).append(task)
    tasks = {t.id: t for same_id in by_id.values() for t in same_id if (t.id, t.rev) in versions}
    origins = find_origins(journal, tuple(tasks.values()))
    rows, held = [], set()
    for row in plan.rows:
        end = origins.get(row.id, UNKNOWN_ORIGIN).state
        died = undo.death_time(tasks[row.id]) if row.id in tasks else None
        back = undo.apply_retention(row._replace(target=end), died, now, retention)
        if back.target is not end:
            held.add(row.id)
        bar = undo.duplicate_problem(store, row, by_id.get(row.id, ()))
        if not bar and row.id in tasks:
            task, target = tasks[row.id], back.target
            bar = plans.bar_reason(store.edges, plan.verb, task, now=now, target=target)
            warned = plans.warning_bits(store.edges, plan.verb, task, now=now, target=target)
            back = back._replace(warned=warned)
        rows.append(back._replace(barred=bar))
    return UndoPlan(plan._replace(rows=tuple(rows)), frozenset(held))


class TrashQuota:
    """The space left in a store's trash: called for each task that goes there. Tasks that other
    processes add at the same time are not counted: two concurrent purges may exceed the limit a
    little."""

    def __init__(self, store: ReadableStore, quota: int | None) -> None:
        """`quota` is in bytes, None: no limit; the present size is measured at the first call."""
        self._store, self._quota = store, quota
        self._free_bytes: int | None = None

    def __call__(self, task: Task) -> str:
        """Why a task does not fit; "" if it does, and then its size is reserved."""
        if self._quota is None:
            return ""
        if self._free_bytes is None:
            self._free_bytes = self._quota - self._store.trash_bytes()
        size = task_bytes(self._store, task)
        if size > self._free_bytes:
            return trash_full_message(self._quota)
        self._free_bytes -= size
        return ""


def trash_full_message(quota: int) -> str:
    """The message for a full trash; `quota` is in bytes."""
    return f"the trash is full: limit {quota / 1e6:.1f} MB; expunge or restore some tasks"
