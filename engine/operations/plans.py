"""A frozen plan: one verb for the tasks that the operator saw, and a preview of its effect.

A plan acts on what was on the screen. Each row holds the state and the revision in which its task
was seen; a task that has changed when the plan is applied is skipped, as gone
(`engine.operations.execute`). Nothing here writes.

An edge may name a field (`Edge.shared_field`): a change then affects all tasks with the same value
there, such as those of one message. A plan has all of them as rows, and excludes or includes them
together.

Raises, everywhere: Unavailable, if the disk is too full for a temporary table, or a store cannot
be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, TypeAlias

from engine.model import Edge, Edges, State, Task, bar_no_task
from engine.operations.plan_rows import (
    MAX_ROWS_IN_MEMORY,
    REASON_NOTED,
    REASON_RECENT,
    RowTable,
    write_rows,
)
from engine.operations.plan_rows import Row as Row
from engine.store import Gone, ReadableStore
from engine.values import NamedTuple
from engine.verbs import VERBS, edges_of

RECENT_SECONDS = 900.0
"""Seconds: a younger task is excluded from a purge by default, because it may be in use."""

NO_VALUES: Mapping[str, Any] = MappingProxyType({})

NO_EDGES: Edges = MappingProxyType({})


class Plan(NamedTuple):
    """One verb for some tasks, frozen at one time."""

    verb: str
    """A key of `VERBS`."""
    rows: Sequence[Row]
    """All rows, also the excluded ones. Those of a large plan are in a `RowTable`."""
    made_at: float
    """When the plan was made, epoch seconds UTC."""
    filter: str = ""
    """The filter that found the tasks, as typed."""
    values: Mapping[str, Any] = NO_VALUES
    """Arguments of the verb: the new description, the new due time."""
    undoes: str = ""
    """The id of the operation that it undoes; "" for any other plan."""
    included_ids: frozenset[str] = frozenset()
    """Ids of rows that the operator includes although they have a reason to be excluded."""
    excluded_ids: frozenset[str] = frozenset()
    oldest: float = 0.0
    """Creation time of the oldest task, epoch seconds UTC; 0 if unknown for all."""
    newest: float = 0.0
    includes_suspicious: bool = False
    """True if the operator includes all rows that are only suspicious."""
    generation: int = -1
    """The generation of the index that the rows are from, or an older one; -1: not known."""
    companions: Mapping[str, frozenset[str]] = NO_VALUES
    """By id: the ids of all tasks that change together with it, its own too; only if there are
    others. They are included and excluded together."""
    added: int = 0
    """The number of rows that were added because they change together with others."""

    def exclusion_reason(self, row: Row) -> str:
        """Why a row is excluded; "" if it is not."""
        if row.barred:
            return row.barred
        if row.id in self.excluded_ids:
            return "excluded by the operator"
        is_included = self.includes_suspicious or row.id in self.included_ids
        return "" if is_included else row.default_exclusion

    @property
    def included(self) -> Iterator[Row]:
        """The rows to act on."""
        return (row for row in self.rows if not self.exclusion_reason(row))

    @property
    def excluded(self) -> Iterator[tuple[Row, str]]:
        """The excluded rows, each with the reason."""
        if isinstance(self.rows, RowTable) and not (self.excluded_ids or self.rows.has_odd):
            return iter(())  # without a scan
        return ((row, why) for row in self.rows if (why := self.exclusion_reason(row)))

    @property
    def included_groups(self) -> Iterator[tuple[Row, int]]:
        """The rows to act on, as `group_rows` has them."""
        groups = self.group_rows(self.included_ids | self.excluded_ids)
        return ((row, count) for row, count in groups if not self.exclusion_reason(row))

    @property
    def amount(self) -> int:
        """The number of rows to act on."""
        return sum(count for _, count in self.included_groups)

    @property
    def states(self) -> frozenset[State]:
        """The states of its tasks."""
        rows = self.rows
        return rows.states if isinstance(rows, RowTable) else frozenset(row.state for row in rows)

    def group_rows(self, without: Collection[str]) -> Iterable[tuple[Row, int]]:
        """The rows, each with its number; equal rows of a large plan are counted together, and have
        no id. `without` are ids of rows that are not equal to others."""
        if isinstance(self.rows, RowTable):
            return self.rows.group(without)
        return ((row, 1) for row in self.rows)

    def first_rows(self, limit: int) -> tuple[Row, ...]:
        """Up to `limit` rows: suspicious and barred ones first, because the operator has to decide
        about them."""
        if isinstance(self.rows, RowTable):
            suspicious = self.rows.first(limit, is_suspicious=True)
            return (*suspicious, *self.rows.first(limit - len(suspicious), is_suspicious=False))
        return tuple(sorted(self.rows, key=lambda r: not (r.barred or r.default_exclusion)))[:limit]


class RowResult(StrEnum):
    """The outcome of a row: exactly one of these."""

    DONE = "done"
    GONE = "gone"
    """The task had changed since the plan was made; skipped."""
    FAILED = "failed"
    """The task could not be changed."""
    EXCLUDED = "excluded"
    UNAPPLIED = "unapplied"
    """The run was stopped before this row."""


class RowOutcome(NamedTuple):
    """The outcome of one row."""

    row: Row
    result: RowResult
    reason: str = ""
    """The reason; of a done one its new id in words, if it has got one."""
    rev: str = ""
    """The new revision of a changed task; "" if it has left the store."""
    is_final: bool = True
    """False if the store cannot tell whether the task moved. No outcome is then written, and
    `engine.operations.undo.settle_operation` finds it out later."""


NEW_ID_UNSEEN = "new id not seen yet"


def describe_new_id(new_id: str) -> str:
    """The new id of a task; "" if it was not seen."""
    return f"{_NEW_ID}{new_id}" if new_id else NEW_ID_UNSEEN


_NEW_ID = "new id "


def new_id_of(outcome: RowOutcome | None) -> str:
    """The new id in the outcome of a done row; "" if it has none, or it was not seen."""
    if outcome is None or outcome.result is not RowResult.DONE or outcome.reason == NEW_ID_UNSEEN:
        return ""
    return outcome.reason.removeprefix(_NEW_ID) if outcome.reason.startswith(_NEW_ID) else ""


Transition: TypeAlias = tuple[State | None, State | None]


class TransitionPreview(NamedTuple):
    """The effect on the rows of a plan that start in one state and go to another."""

    transition: Transition
    amount: int
    refused: str
    """Why this transition is not allowed now; "" if it is."""
    edge: Edge
    """The store's edge for this transition; an empty one if the store has none."""
    warnings: tuple[str, ...] = ()
    """Those of the edge that apply, with the numbers of their tasks."""


def freeze_plan(
    verb: str,
    tasks: Iterable[Task],
    now: float,
    *,
    edges: Edges = NO_EDGES,
    filter: str = "",
    noted: frozenset[str] = frozenset(),
) -> Plan:
    """Make a plan for exactly these tasks, as they were seen; `noted` ids have a note. Tasks that
    one of the store's `edges` bars are excluded."""
    facts = ((t.id, t.state, t.rev, t.created, *judge(edges, verb, t, now=now)) for t in tasks)
    return freeze_rows(verb, facts, now, filter=filter, noted=noted)


def is_by_age(verb: str) -> bool:
    """True if a verb lets tasks run: then the oldest come first, however their ids are sorted."""
    return any(end is State.PENDING for _, end in VERBS[verb].edges)


def freeze_rows(
    verb: str,
    facts: Iterable[tuple[str, State, str, float, str, int]],
    now: float,
    *,
    filter: str = "",
    noted: frozenset[str] = frozenset(),
    by_age: bool | None = None,
) -> Plan:
    """Make a plan from tuples of id, state, revision, creation (epoch seconds UTC), and what
    `judge` has. With `by_age`, they are sorted by creation; None: if the verb is."""
    by_age = is_by_age(verb) if by_age is None else by_age
    careful = VERBS[verb].excludes_suspicious

    def make(each: tuple[str, State, str, float, str, int]) -> tuple[Row, float]:
        ident, state, rev, created, bar, warned = each
        exclusion = default_exclusion(created, ident in noted, now) if careful else ""
        return Row(
            ident, state, rev, default_exclusion=exclusion, barred=bar, warned=warned
        ), created

    waiting = map(make, facts)
    first = list(islice(waiting, MAX_ROWS_IN_MEMORY + 1))
    if len(first) > MAX_ROWS_IN_MEMORY:
        table = write_rows(chain(first, waiting), by_age=by_age)
        return Plan(verb, table, now, filter, oldest=table.oldest, newest=table.newest)
    rows: dict[str, tuple[Row, float]] = {}
    for row, created in first:
        # One row for an id: a task in two places is changed in one.
        rows.setdefault(row.id, (row, created))
    times = [created for _, created in rows.values() if created]
    oldest, newest = min(times, default=0.0), max(times, default=0.0)
    dated_rows = [*rows.values()]
    if by_age:  # of numbers of one time, the shorter one is the smaller
        dated_rows.sort(key=lambda each: (each[1], len(each[0].id), each[0].id))
    ordered = tuple(row for row, _ in dated_rows)
    return Plan(verb, ordered, now, filter, oldest=oldest, newest=newest)


def default_exclusion(created: float, has_note: bool, now: float) -> str:
    """Why a careful verb excludes a task that the operator does not include; "" if it does not."""
    if has_note:
        return REASON_NOTED
    return REASON_RECENT if now - created < RECENT_SECONDS else ""


def shared_field(edges: Edges, verb: str) -> str:
    """The field with whose value a verb affects all tasks; "" if it affects one task."""
    verb_edges = edges_of(edges, verb).values()
    return next((edge.shared_field for edge in verb_edges if edge.shared_field), "")


def freeze_shared_plan(
    verb: str,
    chosen: Collection[str],
    tasks: Iterable[Task],
    now: float,
    *,
    edges: Edges,
    filter: str = "",
    noted: frozenset[str] = frozenset(),
) -> Plan:
    """Make a plan for the tasks with the `chosen` ids, and for all that change with them.

    `tasks` are all tasks that share a value with a chosen one, as they were seen. Of a deletion,
    also those in states that the verb has no edge from: they bar it. If one is barred or has a note
    (`noted`), that is so for all with the same value."""
    field = shared_field(edges, verb)
    transitions = [its for its, edge in edges_of(edges, verb).items() if edge.shared_field]
    starts = {start for start, _ in transitions}
    deletes = any(end is None for _, end in transitions)
    groups: dict[str, dict[str, Task]] = {}
    for task in tasks:
        if task.state in starts or deletes:
            groups.setdefault(getattr(task, field) or task.id, {})[task.id] = task
    rows, companions = [], dict[str, frozenset[str]]()
    for group in groups.values():
        why = ""
        for task in group.values():
            stays = "" if task.state in starts else f"{task.id} is {task.state}, and changes too"
            why = why or stays or bar_reason(edges, verb, task, now=now)
        rows += [
            (t.id, t.state, t.rev, t.created, why, warning_bits(edges, verb, t, now=now))
            for t in group.values()
        ]
        if len(group) > 1:
            companions |= dict.fromkeys(group, frozenset(group))
        if noted.intersection(group):
            noted |= group.keys()
    plan = freeze_rows(verb, rows, now, filter=filter, noted=noted)
    added = sum(row[0] not in chosen for row in rows)
    return plan._replace(companions=companions, added=added)


def describe_added(plan: Plan) -> tuple[str, ...]:
    """A warning if tasks were added to a plan."""
    return (f"{plan.added:,} more affected: added to this plan",) if plan.added else ()


def transition_of(verb: str, row: Row) -> Transition | None:
    """The transition of a row; None if the verb is unknown, or has none from that state."""
    if row.target is not None:
        return row.state, row.target
    edges = VERBS[verb].edges if verb in VERBS else ()
    return next((transition for transition in edges if transition[0] is row.state), None)


def needs_tasks(edges: Edges, verb: str) -> bool:
    """True if an edge of a verb may bar tasks, or warn of some: then a plan needs them in full."""
    its = edges_of(edges, verb).values()
    return any(edge.bars is not bar_no_task or edge.warnings for edge in its)


def judge(edges: Edges, verb: str, task: Task, *, now: float) -> tuple[str, int]:
    """Why the store does not let a task be changed now, as `bar_reason`; and `Row.warned`."""
    return bar_reason(edges, verb, task, now=now), warning_bits(edges, verb, task, now=now)


def bar_reason(
    edges: Edges, verb: str, task: Task, *, now: float, target: State | None = None
) -> str:
    """Why the store does not let this one task be changed now; "" if it does. `target` is the
    target state, if the verb does not decide it; None: any that the verb may have."""
    whys = [edge.bars(task, now) for edge in _possible_edges(edges, verb, task.state, target)]
    return "" if "" in whys else next(iter(whys), "")


def warning_bits(
    edges: Edges, verb: str, task: Task, *, now: float, target: State | None = None
) -> int:
    """Which warnings of its edge apply to a task, as `Row.warned`; `target` as in `bar_reason`."""
    edge = next(iter(_possible_edges(edges, verb, task.state, target)), Edge())
    return sum(one.applies(task, now) << bit for bit, one in enumerate(edge.warnings))


def _possible_edges(
    edges: Edges, verb: str, state: State, target: State | None
) -> Collection[Edge]:
    if target is None:
        return edges_of(edges, verb, state).values()
    return [edges[state, target]] if (state, target) in edges else []


def verb_refusal(edges: Edges, verb: str, state: State, word: str = "") -> str | None:
    """Why a verb is not offered for tasks in a state, which the store calls `word`; else None."""
    if not any(transition[0] is state for transition in VERBS[verb].edges):
        return f"not from {word or state}"
    closed = [edge.refusal for edge in edges_of(edges, verb, state).values()]
    if not closed:
        return f"no {verb} from {word or state} here"
    return None if "" in closed else closed[0]


def row_refusal(edges: Edges, verb: str, row: Row, amount: int = 1) -> str:
    """Why the store does not allow a row's transition now, or not for so many tasks of one plan; ""
    if it does."""
    its = transition_of(verb, row)
    if its is None:
        return f"not from {row.state}"
    edge = _edge_at(edges, verb, its)
    if edge is None:
        return f"no transition from {its[0]} to {its[1]} here"
    if edge.limit is not None and amount > edge.limit:
        return edge.refusal or f"at most {edge.limit:,} in a plan; for more: {edge.instead}"
    return edge.refusal


def count_by_transition(plan: Plan) -> Counter[tuple[State, State | None]]:
    """The number of rows to act on by present state and target state, if a target is set."""
    amounts: Counter[tuple[State, State | None]] = Counter()
    for row, count in plan.included_groups:
        amounts[row.state, row.target] += count
    return amounts


def _edge_at(edges: Edges, verb: str, transition: Transition) -> Edge | None:
    """The edge that a verb uses for a transition. Undo and restore have rows with any target."""
    if transition in VERBS[verb].edges:
        return edges_of(edges, verb).get(transition)
    return edges.get(transition)


def preview_transitions(
    verb: str, amounts: Mapping[tuple[State, State | None, int], int], edges: Edges
) -> tuple[TransitionPreview, ...]:
    """Preview the effect of a verb, one entry for each transition; reads no store. `amounts` are
    the numbers of tasks by present state, target state, if a target is set, and `Row.warned`."""
    by_transition: dict[tuple[State, State | None], dict[int, int]] = {}
    for (start, end, warned), amount in amounts.items():
        by_transition.setdefault((start, end), {})[warned] = amount
    previews = []
    for (start, end), by_warned in by_transition.items():
        row, amount = Row("", start, "", target=end), sum(by_warned.values())
        its, why = transition_of(verb, row), row_refusal(edges, verb, row, amount)
        edge = (_edge_at(edges, verb, its) if its else None) or Edge()
        warnings = [edge.warning] if edge.warning else []
        for bit, one in enumerate(edge.warnings):
            if count := sum(n for warned, n in by_warned.items() if warned >> bit & 1):
                warnings.append(one.text.format(count=f"{count:,}"))
        its = its or (start, start)
        previews.append(TransitionPreview(its, amount, why, edge, tuple(warnings)))
    return tuple(previews)


def changed_rows(rows: Iterable[Row], present: Mapping[str, Row]) -> Iterator[tuple[Row, str]]:
    """The rows whose task has changed since the plan was made, each with its present state or the
    change; `present` are the present rows by id."""
    for row in rows:
        now = present.get(row.id)
        if now is None:
            yield row, "gone: it ran, or was removed"
        elif now.state is not row.state:
            yield row, now.state
        elif now.rev != row.rev:
            yield row, "changed"


BATCH_TASKS = 100
"""Tasks that are measured between two results."""
MAX_MEASURED_TASKS = 10_000
"""Tasks of a plan that are measured: each is read, and a million would take minutes."""


def measure_tasks(
    store: ReadableStore, rows: Iterable[Row]
) -> Iterator[tuple[Mapping[str, int], int]]:
    """Yield the bytes of each task by its id, without changed ones, and the number of rows of each
    batch."""
    waiting = iter(rows)
    while batch := list(islice(waiting, BATCH_TASKS)):
        versions = {(row.id, row.state, row.rev) for row in batch}
        scanned = store.scan({row.id for row in batch})
        tasks = [t for t in scanned if isinstance(t, Task) and (t.id, t.state, t.rev) in versions]
        yield {task.id: task_bytes(store, task) for task in tasks}, len(batch)


def task_bytes(store: ReadableStore, task: Task) -> int:
    """The known bytes of a task and all its parts; 0 if it has left."""
    try:
        return store.size(task)
    except Gone:
        return 0
