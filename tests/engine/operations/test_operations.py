"""Plans and operations among rivals and lost folders: each row is done and counted once."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import verbs
from engine.formats.base.memory import EDGES, MemoryStore, MemoryTasks
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Edge, Edges, Problem, State, Task, TaskWarning
from engine.operations import execute, plans, run_plan, trash, undo
from engine.operations.execute import PlanRun, Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.journal_writer import JournalWriter
from engine.operations.plans import Plan, Row, RowOutcome, RowResult
from engine.operations.run_plan import run_journaled_plan
from engine.override import override
from engine.store import Gone, SeenTask, Store, Unavailable
from tests.engine.task_builders import NOW, a_task, clock, dead_tasks, new_spool, tasks_in
from tests.examples import examples


def test_a_plan_is_what_was_seen() -> None:
    """A plan holds id, state and revision of each task as it was seen, each once; its oldest and
    newest are of the tasks whose age is known, and 0 of none."""
    stored_tasks = [a_task(1, rev="a"), a_task(2, rev="b", state=State.HELD), a_task(1, rev="a")]
    rows = (Row(stored_tasks[0].id, State.PENDING, "a"), Row(stored_tasks[1].id, State.HELD, "b"))
    plan = Plan("hold", rows, NOW, oldest=NOW - 3600, newest=NOW - 3600)
    assert plans.freeze_plan("hold", stored_tasks, NOW) == plan
    tasks = [a_task(1, created=0.0), a_task(2), a_task(3, created=NOW - 60), a_task(4, created=0.0)]
    plan = plans.freeze_plan("purge", tasks, NOW)
    assert (plan.oldest, plan.newest, plan.rows[0].default_exclusion) == (NOW - 3600, NOW - 60, "")
    assert plans.freeze_plan("purge", tasks[:1], NOW).oldest == 0.0


def test_only_a_task_that_is_as_it_was_seen_is_moved(open_store: Callable[[], Store]) -> None:
    """A task that moved, left, or was moved there and back since it was seen is gone; a row from
    whose state the verb does not lead has failed, with the reason."""
    store = open_store()
    plan = plans.freeze_plan("retry", dead_tasks(store, 4), NOW)
    report = run_journaled_plan(open_store(), None, plan, None, clock)
    assert report == Report(plan, tuple(row.id for row in plan.rows), (), ())
    assert {task.state for task in tasks_in(store)} == {State.PENDING}
    refused = run_journaled_plan(
        store, None, plans.freeze_plan("release", tasks_in(store), NOW), None, clock
    )
    assert refused.failed == tuple((row.id, "not from pending") for row in plan.rows)

    for task in list(store.take(NOW, "a worker", 4)):
        store.swap(task, verbs.give_up_task(task, "it broke again", 3))
    moved, left, back, same = tasks_in(store)
    plan = plans.freeze_plan("purge", [moved, left, back, same], NOW)
    store.swap(moved, verbs.retry(moved, NOW))
    store.swap(left, None)
    trashed = verbs.purge(back, NOW)
    rev = store.swap(back, trashed)
    store.swap(trashed._replace(rev=rev), trashed._replace(state=State.DEAD, rev=rev))
    report = run_journaled_plan(store, None, plan, None, clock)
    assert (report.done, report.failed) == ((same.id,), ())
    assert set(report.gone) == {moved.id, left.id, back.id}


def test_a_verb_is_offered_where_an_edge_is_open() -> None:
    """A verb is offered in a state from which the store has an open edge for it; where the edge is
    refused now, the reason is the store's own."""
    refused: Edges = {(State.PENDING, State.HELD): Edge(refusal="the spool is read-only")}
    assert plans.verb_refusal(EDGES, "hold", State.PENDING) is None
    assert plans.verb_refusal(EDGES, "promote", State.DEAD) == "not from dead"
    assert plans.verb_refusal({}, "hold", State.PENDING) == "no hold from pending here"
    assert plans.verb_refusal(refused, "hold", State.PENDING) == "the spool is read-only"


def test_done_tasks_are_rerun_purged_and_expunged(tmp_path: Path) -> None:
    """A done task is rerun with its attempts reset, and done again after undo; purged, it is
    restored as done; expunged, it is deleted. Where the store has no such edge, none of them is
    offered."""
    store, journal = MemoryStore(), Journal(f"{tmp_path}/journal", clock=clock)
    dead_tasks(store, 3)
    for task in tasks_in(store):
        store.swap(task, verbs.retry(task, NOW))
    for task in list(store.take(NOW, "a worker", 3)):
        store.swap(task, verbs.with_state(task, State.DONE)._replace(attempts=task.attempts))
    first, *others = finished = tasks_in(store, State.DONE)

    carried_out(store, journal, plans.freeze_plan("rerun", [first], NOW))
    (again,) = tasks_in(store, State.PENDING)
    assert (again.id, again.due, again.attempts, again.error) == (first.id, 0.0, 0, "")
    back = undo.plan_undo(store, journal, next(iter(journal.operations())), NOW, 7.0).plan
    carried_out(store, journal, back)
    assert [task._replace(rev="") for task in tasks_in(store)] == [
        task._replace(rev="") for task in finished
    ]

    carried_out(store, journal, plans.freeze_plan("purge", others, NOW))
    trashed = plans.freeze_plan("restore", tasks_in(store, State.TRASH), NOW)
    carried_out(store, journal, trash.plan_restore(store, journal, trashed, NOW, 7.0).plan)
    assert len(tasks_in(store, State.DONE)) == 3

    carried_out(store, journal, plans.freeze_plan("expunge", tasks_in(store), NOW))
    assert tasks_in(store) == []
    edges: Edges = {(State.ACTIVE, State.DONE): EDGES[State.ACTIVE, State.DONE]}
    for verb in ("rerun", "purge", "expunge"):
        assert plans.verb_refusal(edges, verb, State.DONE) == f"no {verb} from done here"


def test_more_tasks_than_an_edge_allows_are_refused() -> None:
    """A plan of more tasks than an edge allows changes none, and says what to use instead."""
    edge = EDGES[State.DEAD, State.PENDING]._replace(limit=3, instead="control flush")
    store = MemoryStore()
    store.edges = {**EDGES, (State.DEAD, State.PENDING): edge}
    tasks = dead_tasks(store, 4)
    plan = plans.freeze_plan("retry", tasks, NOW, edges=store.edges)
    report = run_journaled_plan(store, None, plan, None, clock)
    why = "at most 3 in a plan; for more: control flush"
    assert report.failed == tuple((task.id, why) for task in tasks)
    few = plan._replace(excluded_ids=frozenset({tasks[0].id}))
    assert len(run_journaled_plan(store, None, few, None, clock).done) == 3


def test_a_changed_task_does_not_count_for_the_limit_of_an_edge() -> None:
    """It is skipped, so as many others as the edge allows are changed, however few are verified
    together."""
    edge = EDGES[State.DEAD, State.PENDING]._replace(limit=3, instead="control flush")
    store = MemoryStore()
    store.edges, store.max_verified = {**EDGES, (State.DEAD, State.PENDING): edge}, 2
    tasks = dead_tasks(store, 4)
    plan = plans.freeze_plan("retry", tasks, NOW, edges=store.edges)
    store.swap(tasks[1], verbs.purge(tasks[1], NOW))
    report = run_journaled_plan(store, None, plan, None, clock)
    assert (len(report.done), report.gone, report.failed) == (3, (tasks[1].id,), ())


class RenamingStore(MemoryStore):
    """Gives tasks another id, and knows the new one of some."""

    is_reachable = True
    edges = {
        **EDGES,
        (State.DEAD, State.PENDING): EDGES[State.DEAD, State.PENDING]._replace(renames=True),
    }

    @override
    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        if not self.is_reachable:
            raise Unavailable("the connection was lost")
        return {ident: f"new-{ident}" for ident in [*ids][1:]}


@pytest.mark.parametrize("is_reachable", [True, False])
def test_the_journal_has_the_new_ids_of_tasks(tmp_path: Path, is_reachable: bool) -> None:
    """The report and the rows of an operation have the new id of each task, or that it was not seen
    yet; whether they are found changes no outcome."""
    store, journal = RenamingStore(), Journal(f"{tmp_path}/journal", clock=clock)
    store.is_reachable = is_reachable
    first, *others = (task.id for task in dead_tasks(store, 450))
    plan = plans.freeze_plan("retry", tasks_in(store), NOW, edges=store.edges)
    report = run_journaled_plan(store, journal, plan, Intent("retry", Who("ana")), clock)
    assert (report.done, report.trouble) == ((first, *others), "")
    found = {ident: f"new-{ident}" * is_reachable for ident in others}
    assert report.new_ids == {first: "", **found}
    entries = journal.entries(report.op)
    assert {e.row.id: e.outcome.reason for e in entries if e.outcome} == {
        ident: f"new id {new}" if new else "new id not seen yet"
        for ident, new in report.new_ids.items()
    }
    operation = journal.operation(report.op)
    assert operation is not None and not (operation.notes or operation.damaged_lines)
    assert undo.unseen_ids(entries) == {ident for ident, new in report.new_ids.items() if not new}
    store.is_reachable = True
    assert len(undo.unseen_ids(undo.follow_new_ids(store, journal, report.op, entries))) == 1
    assert len(undo.unseen_ids(journal.entries(report.op))) == 1  # noted, without another search


def test_a_new_id_that_is_not_seen_yet_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To show the operation again writes nothing: its journal has that already."""

    def find(store: RenamingStore, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        return dict.fromkeys(ids, "")

    monkeypatch.setattr(RenamingStore, "find_new_ids", find)
    store, journal = RenamingStore(), Journal(f"{tmp_path}/journal", clock=clock)
    dead_tasks(store, 2)
    plan = plans.freeze_plan("retry", tasks_in(store), NOW, edges=store.edges)
    report = run_journaled_plan(store, journal, plan, Intent("retry", Who("ana")), clock)
    before = {path: path.read_bytes() for path in tmp_path.glob("journal/*")}
    entries = journal.entries(report.op)
    assert [*undo.follow_new_ids(store, journal, report.op, entries)] == [*entries]
    assert len(undo.unseen_ids(entries)) == 2
    assert before == {path: path.read_bytes() for path in tmp_path.glob("journal/*")}


class Killed(BaseException):
    """Raised where the process ends."""


@pytest.mark.parametrize("is_stopped", [True, False])
def test_no_outcome_waits_for_new_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """A process that is killed while it looks for them has ended its operation, whose tasks are
    looked for later; once the operator has stopped it, it does not look for any."""

    def kill(store: RenamingStore, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        raise Killed

    monkeypatch.setattr(RenamingStore, "find_new_ids", kill)
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 1)
    store, journal = RenamingStore(), Journal(f"{tmp_path}/journal", clock=clock)
    dead_tasks(store, 2)
    plan = plans.freeze_plan("retry", tasks_in(store), NOW, edges=store.edges)
    stops = iter([False, is_stopped])
    with pytest.raises(Killed) if not is_stopped else nullcontext():
        intent = Intent("retry", Who("ana"))
        run_journaled_plan(store, journal, plan, intent, clock, halted=lambda: next(stops))
    (operation,) = journal.operations()
    assert not operation.is_interrupted
    assert len(undo.unseen_ids(journal.entries(operation.op))) == 2 - is_stopped


def test_new_ids_of_a_settled_operation_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed before it writes an outcome has noted none for it."""

    def kill(writer: JournalWriter, ended: Sequence[RowOutcome]) -> None:
        raise Killed

    store, journal = RenamingStore(), Journal(f"{tmp_path}/journal", clock=clock)
    dead_tasks(store, 2)
    plan = plans.freeze_plan("retry", tasks_in(store), NOW, edges=store.edges)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(JournalWriter, "write_new_ids", kill)
        run_journaled_plan(store, journal, plan, Intent("retry", Who("ana")), clock)
    (operation,) = journal.operations()
    assert not undo.unseen_ids(journal.entries(operation.op))
    assert undo.settle_operation(store, journal, operation).operation is not None
    assert len(undo.unseen_ids(journal.entries(operation.op))) == 2


BARRED = "its parent runs"


def bar_task(store: Store, stored_task: Task) -> None:
    """Let every edge of a store bar one task."""

    def bar(task: Task, now: float) -> str:
        return BARRED if (task.id, now) == (stored_task.id, NOW) else ""

    store.edges = {transition: edge._replace(bars=bar) for transition, edge in store.edges.items()}


def test_a_barred_task_is_excluded(open_store: Callable[[], Store]) -> None:
    """A plan excludes the tasks that an edge bars, with the reason, also if the operator includes
    them; one that is barred only when the plan is applied has failed."""
    store = open_store()
    guarded, free = dead_tasks(store, 2)
    unaware = plans.freeze_plan("retry", [guarded], NOW)
    bar_task(store, guarded)
    plan = plans.freeze_plan("retry", [guarded, free], NOW, edges=store.edges)
    plan = plan._replace(included_ids=frozenset({guarded.id}))
    report = run_journaled_plan(store, None, plan, None, clock)
    assert (report.done, report.excluded) == ((free.id,), ((guarded.id, BARRED),))
    assert run_journaled_plan(store, None, unaware, None, clock).failed == ((guarded.id, BARRED),)


def test_a_barred_task_is_not_brought_back(tmp_path: Path) -> None:
    """Neither undo nor restore moves a task that the edge to its former state bars; that of another
    state does not matter."""
    store, journal = MemoryStore(), Journal(f"{tmp_path}/journal", clock=clock)
    guarded, free = dead_tasks(store, 2)
    carried_out(store, journal, plans.freeze_plan("purge", [guarded, free], NOW))
    bar_task(store, guarded)
    (operation,) = journal.operations()
    trashed = plans.freeze_plan("restore", tasks_in(store, State.TRASH), NOW)
    for back in (
        undo.plan_undo(store, journal, operation, NOW, 7.0),
        trash.plan_restore(store, journal, trashed, NOW, 7.0),
    ):
        assert {row.id: row.barred for row in back.plan.rows} == {guarded.id: BARRED, free.id: ""}
    ways = [edge for edge in store.edges if edge[0] is State.TRASH]
    store.edges = {**EDGES, **{edge: store.edges[edge] for edge in ways if edge[1] is State.HELD}}
    trashed = plans.freeze_plan("restore", tasks_in(store, State.TRASH), NOW, edges=store.edges)
    back = trash.plan_restore(store, journal, trashed, NOW, 7.0)
    assert not any(row.barred for plan in (trashed, back.plan) for row in plan.rows)


def test_undo_and_restore_are_warned_of_as_their_change_is(tmp_path: Path) -> None:
    """The rows of an undo, and of a restore, have the warnings of the edge to their own target."""
    store, journal = MemoryStore(), Journal(f"{tmp_path}/journal", clock=clock)
    first, second = dead_tasks(store, 2)
    warning = TaskWarning(lambda task, now: task.id == first.id, "{count} returned to its sender")
    back = EDGES[State.TRASH, State.DEAD]._replace(warnings=(warning,))
    store.edges = {**EDGES, (State.TRASH, State.DEAD): back}
    carried_out(store, journal, plans.freeze_plan("purge", [first, second], NOW))
    (operation,) = journal.operations()
    trashed = plans.freeze_plan("restore", tasks_in(store, State.TRASH), NOW)
    for plan in (
        undo.plan_undo(store, journal, operation, NOW, 7.0).plan,
        trash.plan_restore(store, journal, trashed, NOW, 7.0).plan,
    ):
        assert {row.id: row.warned for row in plan.rows} == {first.id: 1, second.id: 0}


@pytest.mark.parametrize("exact", [True, False])
def test_a_result_tells_a_request_from_a_change(exact: bool) -> None:
    """A change that was only requested is reported as such."""
    store = MemoryStore()
    plan = plans.freeze_plan("hold", dead_tasks(store, 1), NOW)
    store.edges = {
        transition: edge._replace(exact=exact) for transition, edge in store.edges.items()
    }
    report = run_journaled_plan(store, None, plan, None, clock)
    assert (len(report.done), report.is_exact) == (1, exact)


US = Intent("", Who("ana", host="mx1", pid=1))


def carried_out(store: Store, journal: Journal, plan: Plan, **more: object) -> Report:
    """Carry a plan out and write it down."""
    return run_plan.run_journaled_plan(store, journal, plan, US, clock, **more)  # type: ignore[arg-type]


@contextmanager
def a_place(kind: str) -> Iterator[tuple[Callable[[], Store], Journal]]:
    """What opens further stores on the same tasks, and their journal."""
    with TemporaryDirectory() as root, ExitStack() as stores:
        spool, memory = new_spool(root), MemoryTasks()

        def open_store() -> Store:
            if kind == "memory":
                return MemoryStore(memory)
            store = NftbanStore(spool, clock)
            stores.callback(store.close)
            return store

        yield open_store, Journal(f"{spool.staging_dir}/journal", clock=clock)


@pytest.fixture
def store(spool: SpoolFolders) -> NftbanStore:
    """A store on the spool."""
    return NftbanStore(spool, clock)


RIVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 7), st.sampled_from(["retry", "purge", "expunge"])),
    max_size=10,
)


@pytest.mark.parametrize("kind", ["memory", "nftban"])
@examples(15)
@given(
    rivals=RIVALS,
    verb=st.sampled_from(["retry", "purge", "hold", "expunge", "release"]),
    excluded_numbers=st.sets(st.integers(0, 7)),
    cut=st.lists(st.integers(1, 4), max_size=4),
)
def test_rivals_change_no_sum(
    kind: str,
    rivals: list[tuple[int, int, str]],
    verb: str,
    excluded_numbers: set[int],
    cut: list[int],
) -> None:
    """In any order of rivals, each row ends once, no task is touched by two, what
    was excluded stays, and the journal says the same."""
    with a_place(kind) as (open_store, journal):
        first, theirs = open_store(), open_store()
        tasks = dead_tasks(first, 8)
        ids = [task.id for task in tasks]
        plan = plans.freeze_plan(verb, tasks, NOW)._replace(
            included_ids=frozenset(ids), excluded_ids=frozenset(ids[n] for n in excluded_numbers)
        )
        record = journal.begin(US._replace(verb=verb), plan)
        applying = PlanRun(first, plan, clock, record)
        stolen: set[str] = set()
        for turn in range(4):
            for when, at, rival in rivals:
                if when == turn:
                    try:
                        theirs.swap(tasks[at], verbs.VERBS[rival].function(tasks[at], NOW))
                        stolen.add(ids[at])
                    except Gone:
                        continue
            applying.step(applying.open_rows[: cut[turn] if turn < len(cut) else 8])
        report = applying.finish("stopped")
        record.close()

        (operation,) = journal.operations()
        counts = [len(getattr(report, end)) for end in RowResult]
        assert sum(counts) == report.accounted == len(plan.rows) == 8
        assert [operation.counts[end] for end in RowResult] == counts and operation.open_rows == 0
        assert not set(report.done) & stolen
        assert {ident for ident, _ in report.excluded} == plan.excluded_ids
        untouched = plan.excluded_ids - stolen
        assert untouched <= {task.id for task in tasks_in(theirs, State.DEAD)}


def test_an_undo_among_rivals_takes_nothing_from_them(store: NftbanStore, journal: Journal) -> None:
    """A task that another moved, edited or ran since is not undone, even after the dry run."""
    first = carried_out(store, journal, plans.freeze_plan("retry", dead_tasks(store, 5), NOW))
    operation = journal.operation(first.op)
    assert operation is not None
    edited, parked, ran, *_ = tasks_in(store)
    store.swap(edited, edited._replace(description="by another operator"))
    back = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
    store.swap(parked, verbs.hold(parked, NOW))
    (taken,) = (t for t in store.take(NOW, "a worker", 2) if t.id == ran.id)
    store.swap(taken, verbs.nack(taken, NOW, "once more"))

    report = carried_out(store, journal, back)

    (excluded_numbers,) = report.excluded
    assert excluded_numbers == (edited.id, "changed since: it was attempted, or edited")
    assert len(report.done) == 1 or set(report.gone) >= {parked.id, ran.id}
    by_id = {task.id: task for task in tasks_in(store)}
    assert by_id[edited.id].description == "by another operator"
    assert by_id[parked.id].state is State.HELD
    assert by_id[ran.id].error == "once more"
    assert report.accounted == 5


def interrupted(store: Store, journal: Journal, plan: Plan, kept: bool = True) -> None:
    """Leave a plan as a process does that is killed before its first task moves."""
    record = journal.begin(US._replace(verb=plan.verb), plan)
    if kept:
        tasks = {task.id: task for task in tasks_in(store)}
        record.save_images([(row.id, store.read(tasks[row.id])) for row in plan.rows])
    record.close()


class Keeping(MemoryStore):
    """A store of a format that keeps the last error of what is retried."""

    edges: Edges = {
        **MemoryStore.edges,
        (State.DEAD, State.PENDING): Edge(frozenset({"attempts", "due"})),
    }


def test_a_verb_changes_no_error_that_its_edge_does_not_name() -> None:
    """Where a format keeps the last error, a retry succeeds and leaves it; the rest is as ever."""
    with a_place("memory") as (_, journal):
        memory = MemoryTasks()
        store = Keeping(memory)
        plan = plans.freeze_plan("retry", dead_tasks(store, 2), NOW)
        interrupted(store, journal, plan)
        report = carried_out(store, journal, plan)
        settled = undo.settle_operation(store, journal, journal.operations()[-1]).operation
        assert len(report.done) == 2
        assert {(t.attempts, t.error) for t in tasks_in(store, State.PENDING)} == {(0, "it broke")}
        assert settled is not None and settled.counts[RowResult.FAILED] == 0


class Tolerant(MemoryStore):
    """To this store, a waiting task is unchanged after an attempt."""

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        seen = {(ident, state): rev for ident, state, rev in known_tasks}
        for task in tasks_in(self):
            if (rev := seen.get((task.id, task.state))) is not None:
                yield task._replace(rev=rev)


@pytest.mark.parametrize(("verb", "is_done"), [("hold", False), ("promote", True)])
def test_the_store_decides_what_is_unchanged_after_an_interruption(
    verb: str, is_done: bool
) -> None:
    """A row whose task was only attempted meanwhile is continued with, not called gone; where the
    verb itself leaves another revision in the same state, the revision decides."""
    with a_place("memory") as (_, journal):
        store = Tolerant(MemoryTasks())
        store.swap(None, a_task(1, due=NOW + 60))
        (task,) = tasks_in(store)
        interrupted(store, journal, plans.freeze_plan(verb, [task], NOW, edges=store.edges))
        store.swap(task, verbs.promote(task, NOW))  # by another process, or this one
        (operation,) = journal.operations()

        settled = undo.settle_operation(store, journal, operation)

        assert [row.rev for row in settled.unmoved] == [task.rev] * (not is_done)
        assert settled.operation is not None and settled.operation.is_interrupted is not is_done


def test_what_a_later_operation_changed_back_is_not_open_again() -> None:
    """A hold was interrupted after its act, then its task was released by a plan and attempted: to
    continue the hold would hold it once more."""
    with a_place("memory") as (_, journal):
        store = Tolerant(MemoryTasks())
        store.swap(None, a_task(1, due=NOW + 60))
        (task,) = tasks_in(store)
        interrupted(store, journal, plans.freeze_plan("hold", [task], NOW, edges=store.edges))
        store.swap(task, verbs.hold(task, NOW))
        release = plans.freeze_plan("release", tasks_in(store), NOW, edges=store.edges)
        run_journaled_plan(store, journal, release, Intent("release", Who("ana")), clock)
        (task,) = tasks_in(store)
        store.swap(task, verbs.promote(task, NOW))
        (operation,) = (one for one in journal.operations() if one.is_interrupted)

        settled = undo.settle_operation(store, journal, operation)

        assert [*settled.unmoved] == []


@pytest.mark.parametrize("kind", ["memory", "nftban"])
def test_a_task_that_ran_since_is_not_taken_for_ours(kind: str) -> None:
    """A task that was attempted, or never its turn, is not said to be as we left it."""
    with a_place(kind) as (open_store, journal):
        store = open_store()
        plan = plans.freeze_plan("retry", dead_tasks(store, 3), NOW)
        interrupted(store, journal, plan, kept=False)
        interrupted(store, journal, plan)
        for task in tasks_in(store, State.DEAD):
            store.swap(task, verbs.retry(task, NOW))
        for task in list(store.take(NOW, "a worker", 3)):
            store.swap(task, verbs.nack(task, NOW, "again"))
        unsettled = journal.operations()
        settled = [
            undo.settle_operation(store, journal, operation).operation for operation in unsettled
        ]
        assert [s is not None and s.counts[RowResult.DONE] for s in settled] == [0, 0]
        words = {e.outcome and e.outcome.reason for o in unsettled for e in journal.entries(o.op)}
        assert words == {
            "interrupted, and changed since",
            "interrupted before this row, and changed since",
        }


def test_a_half_moved_task_is_not_judged(
    spool: SpoolFolders, store: NftbanStore, journal: Journal
) -> None:
    """A task that is being moved is neither gone nor expunged: its row stays open."""
    plan = plans.freeze_plan("expunge", dead_tasks(store, 2), NOW)
    interrupted(store, journal, plan)
    (before,) = journal.operations()
    for row in plan.rows:
        moving = Path(spool.staging_dir, f"D.{row.id}.dlq.gone.00000000.1-0-1")
        Path(spool.dlq, f"{row.id}.task").rename(moving)
    settled = undo.settle_operation(store, journal, before).operation
    assert settled is not None and (settled.open_rows, settled.ended) == (2, None)


def test_a_task_in_two_places_is_one_row(
    spool: SpoolFolders, store: NftbanStore, journal: Journal
) -> None:
    """It is accounted for once."""
    (task,) = dead_tasks(store, 1)
    data = Path(spool.dlq, f"{task.id}.task").read_bytes()
    Path(spool.pending, f"{task.id}.task").write_bytes(data)
    both = [stored_task for stored_task in store.scan({task.id}) if isinstance(stored_task, Task)]
    report = carried_out(store, journal, plans.freeze_plan("purge", both, NOW))
    (operation,) = journal.operations()
    assert len(both) == 2 and report.accounted == operation.planned == 1
    assert operation.open_rows == 0


LOST: dict[str, tuple[str, str]] = {
    "the folder they are in": ("dlq", "dlq"),
    "the folder they go to": ("pending", "pending"),
    "the journal": (".spooldeck/journal", "was removed or replaced"),
    "the staging folder": (".spooldeck", "was removed or replaced"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_folder_lost_in_the_middle(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a folder is gone from one batch to the next, or another lies there, what was done is
    done, the rest is as it was, every row is accounted for, and one line says why."""
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 3)
    word, message = LOST[lost]
    for verb, replaced in itertools.product(("retry", "purge"), (False, True)):
        root = tmp_path / f"{verb}{replaced}"
        spool = new_spool(root)
        store, journal = NftbanStore(spool, clock), Journal(f"{spool.staging_dir}/journal")
        plan = plans.freeze_plan(verb, dead_tasks(store, 9), NOW)
        folder = root / "queue" / word
        asked = iter(range(9))

        def lose(
            asked: Iterator[int] = asked, folder: Path = folder, replaced: bool = replaced
        ) -> str:
            if next(asked) == 1:
                folder.rename(folder.parents[1] / "away")
                if replaced:
                    folder.mkdir(mode=0o750)
            return ""

        report = carried_out(store, journal, plan, allowed=lose)

        assert report.accounted == 9
        assert len(report.done) >= 3
        if replaced and word == "dlq":
            assert len(report.gone) == 6
        elif len(report.done) < 9:
            reasons = {why for _, why in report.failed} | {report.trouble} - {""}
            assert reasons and all(message in why and "\n" not in why for why in reasons), reasons
        else:
            assert word == "pending" and (replaced or verb == "purge")


def test_without_its_image_nothing_is_undone(store: NftbanStore, journal: Journal) -> None:
    """What was swept between the dry run and the undo is not made up: the row fails; a plan to undo
    what the journal does not know is not carried out."""
    first = carried_out(store, journal, plans.freeze_plan("retry", dead_tasks(store, 2), NOW))
    operation = journal.operation(first.op)
    assert operation is not None
    back = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
    Path(journal.folder, f"{first.op}.before").unlink()
    report = carried_out(store, journal, back)
    assert {why for _, why in report.failed} == {"its saved image was deleted"}
    assert len(tasks_in(store, State.PENDING)) == 2
    unknown = Plan("undo", (), NOW, undoes="20261120T094115Z-00000000")
    with pytest.raises(Unavailable, match="has no operation"):
        carried_out(store, journal, unknown)


def test_expunging_goes_on_without_a_journal(
    spool: SpoolFolders, store: NftbanStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make room on a full disk is not stopped by a journal that cannot grow; the report has
    that. A plan that moves nothing leaves no file locked for others."""
    dead, asked = dead_tasks(store, 9), iter(range(9))
    assert (
        len(
            run_journaled_plan(
                store, None, plans.freeze_plan("promote", dead, NOW), None, clock
            ).failed
        )
        == 9
    )
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 3)

    def lose() -> str:
        if next(asked) == 1:
            Path(journal.folder).rename(f"{journal.folder}.away")
        return ""

    theirs = NftbanStore(spool, clock)
    report = carried_out(theirs, journal, plans.freeze_plan("expunge", dead, NOW), allowed=lose)
    assert len(report.done) == 9 and "was removed or replaced" in report.trouble
    assert tasks_in(store) == []
