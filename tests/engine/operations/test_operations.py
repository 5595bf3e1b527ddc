"""Plans and operations among rivals and lost folders: each row is done and counted once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from engine import verbs
from engine.formats.base.memory import EDGES, MemoryStore, MemoryTasks
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Edge, Edges, Problem, State, Task, TaskWarning
from engine.operations import execute, plans, run_plan, trash, undo
from engine.operations.execute import PlanRun, Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.journal_writer import JournalWriter
from engine.operations.plans import Plan, Row, RowResult
from engine.override import override
from engine.store import Gone, SeenTask, Store, Unavailable
from tests.engine.task_builders import NOW, a_task, clock, dead_tasks, new_spool, tasks_in
from tests.examples import examples

US = Intent("", Who("ana", host="mx1", pid=1))


def plan_of(store: Store, verb: str, tasks: Sequence[Task] | None = None) -> Plan:
    """The plan for these tasks of a store, or for all of them."""
    return plans.freeze_plan(verb, tasks or tasks_in(store), NOW, edges=store.edges)


def carried_out(store: Store, journal: Journal | None, plan: Plan, **more: Any) -> Report:
    """Carry a plan out, and write it down if there is a journal."""
    return run_plan.run_journaled_plan(store, journal, plan, US if journal else None, clock, **more)


def in_every_edge(store: Store, **changes: Any) -> None:
    """Change every edge of a store."""
    store.edges = {ends: edge._replace(**changes) for ends, edge in store.edges.items()}


def test_a_plan_is_what_was_seen() -> None:
    """Each task is in it once; oldest and newest are of known ages, 0 of none."""
    stored_tasks = [a_task(1, rev="a"), a_task(2, rev="b", state=State.HELD), a_task(1, rev="a")]
    rows = (Row(stored_tasks[0].id, State.PENDING, "a"), Row(stored_tasks[1].id, State.HELD, "b"))
    plan = Plan("hold", rows, NOW, oldest=NOW - 3600, newest=NOW - 3600)
    assert plans.freeze_plan("hold", stored_tasks, NOW) == plan
    tasks = [a_task(1, created=0.0), a_task(2), a_task(3, created=NOW - 60), a_task(4, created=0.0)]
    plan = plans.freeze_plan("purge", tasks, NOW)
    assert (plan.oldest, plan.newest, plan.rows[0].default_exclusion) == (NOW - 3600, NOW - 60, "")
    assert plans.freeze_plan("purge", tasks[:1], NOW).oldest == 0.0


def test_only_a_task_that_is_as_it_was_seen_is_moved(open_store: Callable[[], Store]) -> None:
    """One that moved, left or came back is gone; a wrong state has failed."""
    store = open_store()
    plan = plan_of(store, "retry", dead_tasks(store, 4))
    report = carried_out(open_store(), None, plan)
    assert report == Report(plan, tuple(row.id for row in plan.rows), (), ())
    assert {task.state for task in tasks_in(store)} == {State.PENDING}
    refused = carried_out(store, None, plans.freeze_plan("release", tasks_in(store), NOW))
    assert refused.failed == tuple((row.id, "not from pending") for row in plan.rows)
    for task in list(store.take(NOW, "a worker", 4)):
        store.swap(task, verbs.give_up_task(task, "it broke again", 3))
    moved, left, back, same = tasks_in(store)
    plan = plan_of(store, "purge")
    store.swap(moved, verbs.retry(moved, NOW))
    store.swap(left, None)
    trashed = verbs.purge(back, NOW)
    rev = store.swap(back, trashed)
    store.swap(trashed._replace(rev=rev), trashed._replace(state=State.DEAD, rev=rev))
    report = carried_out(store, None, plan)
    assert (report.done, report.failed) == ((same.id,), ())
    assert set(report.gone) == {moved.id, left.id, back.id}


REFUSED: Edges = {(State.PENDING, State.HELD): Edge(refusal="the spool is read-only")}
ONLY_DONE: Edges = {(State.ACTIVE, State.DONE): EDGES[State.ACTIVE, State.DONE]}


@pytest.mark.parametrize(("edges", "verb", "state", "refusal"), [
    (EDGES, "hold", State.PENDING, None),
    (EDGES, "promote", State.DEAD, "not from dead"),
    ({}, "hold", State.PENDING, "no hold from pending here"),
    (REFUSED, "hold", State.PENDING, "the spool is read-only"),
    (ONLY_DONE, "rerun", State.DONE, "no rerun from done here"),
    (ONLY_DONE, "purge", State.DONE, "no purge from done here"),
    (ONLY_DONE, "expunge", State.DONE, "no expunge from done here"),
])  # fmt: skip
def test_a_verb_needs_an_edge(edges: Edges, verb: str, state: State, refusal: str | None) -> None:
    """Where the edge is refused now, the reason is the store's own."""
    assert plans.verb_refusal(edges, verb, state) == refusal


def test_done_tasks_are_rerun_purged_and_expunged(journal: Journal) -> None:
    """A rerun resets attempts and can be undone; a purge can be restored as done."""
    store = MemoryStore()
    dead_tasks(store, 3)
    for task in tasks_in(store):
        store.swap(task, verbs.retry(task, NOW))
    for task in list(store.take(NOW, "a worker", 3)):
        store.swap(task, verbs.with_state(task, State.DONE)._replace(attempts=task.attempts))
    first, *others = finished = tasks_in(store, State.DONE)
    carried_out(store, journal, plan_of(store, "rerun", [first]))
    (again,) = tasks_in(store, State.PENDING)
    assert (again.id, again.due, again.attempts, again.error) == (first.id, 0.0, 0, "")
    back = undo.plan_undo(store, journal, journal.operations()[0], NOW, 7.0).plan
    carried_out(store, journal, back)
    assert [t._replace(rev="") for t in tasks_in(store)] == [t._replace(rev="") for t in finished]
    carried_out(store, journal, plan_of(store, "purge", others))
    trashed = plan_of(store, "restore", tasks_in(store, State.TRASH))
    carried_out(store, journal, trash.plan_restore(store, journal, trashed, NOW, 7.0).plan)
    assert len(tasks_in(store, State.DONE)) == 3
    carried_out(store, journal, plan_of(store, "expunge"))
    assert tasks_in(store) == []


def test_more_tasks_than_an_edge_allows_are_refused() -> None:
    """Neither an excluded task nor a changed one counts, however few are verified together."""
    store = MemoryStore()
    in_every_edge(store, limit=3, instead="control flush")
    store.max_verified = 2
    plan = plan_of(store, "retry", tasks := dead_tasks(store, 5))
    few = plan._replace(excluded_ids=frozenset({tasks[0].id}))
    why = "at most 3 in a plan; for more: control flush"
    assert carried_out(store, None, few).failed == tuple((task.id, why) for task in tasks[1:])
    store.swap(tasks[1], verbs.purge(tasks[1], NOW))
    report = carried_out(store, None, few)
    assert (len(report.done), report.gone, report.failed) == (3, (tasks[1].id,), ())


RETRY = (State.DEAD, State.PENDING)


class RenamingStore(MemoryStore):
    """Gives tasks another id, and knows the new one of some."""

    is_reachable = True
    edges = {**EDGES, RETRY: EDGES[RETRY]._replace(renames=True)}

    @override
    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        if not self.is_reachable:
            raise Unavailable("the connection was lost")
        return {ident: f"new-{ident}" for ident in [*ids][1:]}


@pytest.mark.parametrize("is_reachable", [True, False])
def test_the_journal_has_the_new_ids_of_tasks(journal: Journal, is_reachable: bool) -> None:
    """Or that one was not seen yet; whether they are found changes no outcome."""
    store = RenamingStore()
    store.is_reachable = is_reachable
    first, *others = (task.id for task in dead_tasks(store, 450))
    report = carried_out(store, journal, plan_of(store, "retry"))
    assert (report.done, report.trouble) == ((first, *others), "")
    found = {ident: f"new-{ident}" * is_reachable for ident in others}
    assert report.new_ids == {first: "", **found}
    entries = journal.entries(report.op)
    known = report.new_ids.items()
    reasons = {ident: f"new id {new}" if new else "new id not seen yet" for ident, new in known}
    assert {e.row.id: e.outcome.reason for e in entries if e.outcome} == reasons
    operation = journal.operation(report.op)
    assert operation is not None and not (operation.notes or operation.damaged_lines)
    assert undo.unseen_ids(entries) == {ident for ident, new in report.new_ids.items() if not new}
    store.is_reachable = True
    assert len(undo.unseen_ids(undo.follow_new_ids(store, journal, report.op, entries))) == 1
    assert len(undo.unseen_ids(journal.entries(report.op))) == 1  # noted, without another search


def test_a_new_id_not_seen_yet_is_noted_once(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """To show the operation again writes nothing: its journal has that already."""
    monkeypatch.setattr(RenamingStore, "find_new_ids", lambda _, ids, __: dict.fromkeys(ids, ""))
    store, folder = RenamingStore(), Path(journal.folder)
    dead_tasks(store, 2)
    op = carried_out(store, journal, plan_of(store, "retry")).op
    before = {path: path.read_bytes() for path in folder.iterdir()}
    entries = journal.entries(op)
    assert [*undo.follow_new_ids(store, journal, op, entries)] == [*entries]
    assert len(undo.unseen_ids(entries)) == 2
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


class Killed(BaseException):
    """Raised where the process ends."""


def kill(*_: object) -> NoReturn:
    """End the process."""
    raise Killed


@pytest.mark.parametrize("is_stopped", [True, False])
def test_outcomes_do_not_wait(journal: Journal, monkeypatch: MonkeyPatch, is_stopped: bool) -> None:
    """A process killed while it looks for them has ended its operation."""
    monkeypatch.setattr(RenamingStore, "find_new_ids", kill)
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 1)
    store, stops = RenamingStore(), iter([False, is_stopped])
    dead_tasks(store, 2)
    with pytest.raises(Killed) if not is_stopped else nullcontext():
        carried_out(store, journal, plan_of(store, "retry"), halted=lambda: next(stops))
    (operation,) = journal.operations()
    assert not operation.is_interrupted
    assert len(undo.unseen_ids(journal.entries(operation.op))) == 2 - is_stopped


def test_ids_of_settled_operations_are_sought(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """A process that is killed before it writes an outcome has noted none for it."""
    store = RenamingStore()
    dead_tasks(store, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(JournalWriter, "write_new_ids", kill)
        carried_out(store, journal, plan_of(store, "retry"))
    (operation,) = journal.operations()
    assert not undo.unseen_ids(journal.entries(operation.op))
    assert undo.settle_operation(store, journal, operation).operation is not None
    assert len(undo.unseen_ids(journal.entries(operation.op))) == 2


BARRED = "its parent runs"


def bar_task(store: Store, stored_task: Task) -> None:
    """Let every edge of a store bar one task."""
    barred = (stored_task.id, NOW)
    in_every_edge(store, bars=lambda task, now: BARRED if (task.id, now) == barred else "")


def test_a_barred_task_is_excluded(open_store: Callable[[], Store]) -> None:
    """It is so also if the operator includes it; barred only when applied, it has failed."""
    store = open_store()
    guarded, free = dead_tasks(store, 2)
    unaware = plan_of(store, "retry", [guarded])
    bar_task(store, guarded)
    plan = plan_of(store, "retry")._replace(included_ids=frozenset({guarded.id}))
    report = carried_out(store, None, plan)
    assert (report.done, report.excluded) == ((free.id,), ((guarded.id, BARRED),))
    assert carried_out(store, None, unaware).failed == ((guarded.id, BARRED),)


def plans_back(store: Store, journal: Journal) -> list[Plan]:
    """The plans to undo a purge, and to restore what is in the trash."""
    (operation,) = journal.operations()
    trashed = plan_of(store, "restore", tasks_in(store, State.TRASH))
    return [
        undo.plan_undo(store, journal, operation, NOW, 7.0).plan,
        trash.plan_restore(store, journal, trashed, NOW, 7.0).plan,
    ]


def test_a_barred_task_is_not_brought_back(journal: Journal) -> None:
    """Undo and restore ask the edge to its former state, not that of another."""
    store = MemoryStore()
    guarded, free = dead_tasks(store, 2)
    carried_out(store, journal, plan_of(store, "purge"))
    bar_task(store, guarded)
    for back in plans_back(store, journal):
        assert {row.id: row.barred for row in back.rows} == {guarded.id: BARRED, free.id: ""}
    to_held = (State.TRASH, State.HELD)
    store.edges = {**EDGES, to_held: store.edges[to_held]}
    trashed = plan_of(store, "restore")
    for plan in (trashed, *plans_back(store, journal)):
        assert not any(row.barred for row in plan.rows)


def test_undo_and_restore_are_warned_of_as_their_change_is(journal: Journal) -> None:
    """The rows of an undo, and of a restore, have the warnings of the edge to their own target."""
    store = MemoryStore()
    first, second = dead_tasks(store, 2)
    warning = TaskWarning(lambda task, now: task.id == first.id, "{count} returned to its sender")
    back = EDGES[State.TRASH, State.DEAD]._replace(warnings=(warning,))
    store.edges = {**EDGES, (State.TRASH, State.DEAD): back}
    carried_out(store, journal, plan_of(store, "purge"))
    for plan in plans_back(store, journal):
        assert {row.id: row.warned for row in plan.rows} == {first.id: 1, second.id: 0}


@pytest.mark.parametrize("exact", [True, False])
def test_a_result_tells_a_request_from_a_change(exact: bool) -> None:
    """A change that was only requested is reported as such."""
    store = MemoryStore()
    dead_tasks(store, 1)
    in_every_edge(store, exact=exact)
    report = carried_out(store, None, plan_of(store, "hold"))
    assert (len(report.done), report.is_exact) == (1, exact)


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


STOLEN = st.sampled_from(["retry", "purge", "expunge"])
RIVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7), STOLEN), max_size=10)
VERBS = st.sampled_from(["retry", "purge", "hold", "expunge", "release"])


@pytest.mark.parametrize("kind", ["memory", "nftban"])
@examples(15)
@given(RIVALS, VERBS, st.sets(st.integers(0, 7)), st.lists(st.integers(1, 4), max_size=4))
def test_rivals_change_no_sum(
    kind: str, rivals: list[tuple[int, int, str]], verb: str, excluded: set[int], cut: list[int]
) -> None:
    """Each row ends once, what was excluded stays, and the journal says the same."""
    with a_place(kind) as (open_store, journal):
        first, theirs = open_store(), open_store()
        tasks = dead_tasks(first, 8)
        ids = [task.id for task in tasks]
        plan = plans.freeze_plan(verb, tasks, NOW)._replace(
            included_ids=frozenset(ids), excluded_ids=frozenset(ids[n] for n in excluded)
        )
        record = journal.begin(US._replace(verb=verb), plan)
        applying = PlanRun(first, plan, clock, record)
        stolen: set[str] = set()
        for turn in range(4):
            for _, at, rival in (one for one in rivals if one[0] == turn):
                with suppress(Gone):
                    theirs.swap(tasks[at], verbs.VERBS[rival].function(tasks[at], NOW))
                    stolen.add(ids[at])
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
    carried_out(store, journal, plan_of(store, "retry", dead_tasks(store, 5)))
    (operation,) = journal.operations()
    edited, parked, ran, *_ = tasks_in(store)
    store.swap(edited, edited._replace(description="by another operator"))
    back = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
    store.swap(parked, verbs.hold(parked, NOW))
    (taken,) = (t for t in store.take(NOW, "a worker", 2) if t.id == ran.id)
    store.swap(taken, verbs.nack(taken, NOW, "once more"))
    report = carried_out(store, journal, back)
    assert report.excluded == ((edited.id, "changed since: it was attempted, or edited"),)
    assert len(report.done) == 1 or set(report.gone) >= {parked.id, ran.id}
    by_id = {task.id: task for task in tasks_in(store)}
    assert by_id[edited.id].description == "by another operator"
    assert by_id[parked.id].state is State.HELD
    assert (by_id[ran.id].error, report.accounted) == ("once more", 5)


def interrupted(store: Store, journal: Journal, plan: Plan, kept: bool = True) -> None:
    """Leave a plan as a process does that is killed before its first task moves."""
    record = journal.begin(US._replace(verb=plan.verb), plan)
    if kept:
        tasks = {task.id: task for task in tasks_in(store)}
        record.save_images([(row.id, store.read(tasks[row.id])) for row in plan.rows])
    record.close()


class Keeping(MemoryStore):
    """A store of a format that keeps the last error of what is retried."""

    edges: Edges = {**MemoryStore.edges, RETRY: Edge(frozenset({"attempts", "due"}))}


def test_a_verb_changes_no_error_that_its_edge_does_not_name(journal: Journal) -> None:
    """Where a format keeps the last error, a retry succeeds and leaves it; the rest is as ever."""
    store = Keeping()
    plan = plan_of(store, "retry", dead_tasks(store, 2))
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


def tolerant(journal: Journal, verb: str) -> tuple[Tolerant, Task]:
    """A store with one waiting task, and an interrupted operation on it."""
    store = Tolerant()
    store.swap(None, a_task(1, due=NOW + 60))
    interrupted(store, journal, plan_of(store, verb))
    return store, tasks_in(store)[0]


@pytest.mark.parametrize(("verb", "is_done"), [("hold", False), ("promote", True)])
def test_the_store_decides_what_was_left(verb: str, is_done: bool, journal: Journal) -> None:
    """An attempted task is continued with, unless the verb itself leaves a revision."""
    store, task = tolerant(journal, verb)
    store.swap(task, verbs.promote(task, NOW))  # by another process, or this one
    (operation,) = journal.operations()
    settled = undo.settle_operation(store, journal, operation)
    assert [row.rev for row in settled.unmoved] == [task.rev] * (not is_done)
    assert settled.operation is not None and settled.operation.is_interrupted is not is_done


def test_what_a_later_operation_changed_back_is_not_open_again(journal: Journal) -> None:
    """To continue an interrupted hold would hold a released task once more."""
    store, task = tolerant(journal, "hold")
    store.swap(task, verbs.hold(task, NOW))
    carried_out(store, journal, plan_of(store, "release"))
    (task,) = tasks_in(store)
    store.swap(task, verbs.promote(task, NOW))
    (operation,) = (one for one in journal.operations() if one.is_interrupted)
    assert [*undo.settle_operation(store, journal, operation).unmoved] == []


def test_a_task_run_since_is_not_ours(open_store: Callable[[], Store], journal: Journal) -> None:
    """A task that was attempted, or never its turn, is not said to be as we left it."""
    store = open_store()
    plan = plan_of(store, "retry", dead_tasks(store, 3))
    interrupted(store, journal, plan, kept=False)
    interrupted(store, journal, plan)
    for task in tasks_in(store, State.DEAD):
        store.swap(task, verbs.retry(task, NOW))
    for task in list(store.take(NOW, "a worker", 3)):
        store.swap(task, verbs.nack(task, NOW, "again"))
    unsettled = journal.operations()
    settled = [undo.settle_operation(store, journal, one).operation for one in unsettled]
    assert [s is not None and s.counts[RowResult.DONE] for s in settled] == [0, 0]
    words = {e.outcome and e.outcome.reason for o in unsettled for e in journal.entries(o.op)}
    before_row = "interrupted before this row, and changed since"
    assert words == {"interrupted, and changed since", before_row}


def test_half_moved_task_is_open(spool: SpoolFolders, store: NftbanStore, journal: Journal) -> None:
    """A task that is being moved is neither gone nor expunged: its row stays open."""
    plan = plan_of(store, "expunge", dead_tasks(store, 2))
    interrupted(store, journal, plan)
    (before,) = journal.operations()
    for row in plan.rows:
        moving = Path(spool.staging_dir, f"D.{row.id}.dlq.gone.00000000.1-0-1")
        Path(spool.dlq, f"{row.id}.task").rename(moving)
    settled = undo.settle_operation(store, journal, before).operation
    assert settled is not None and (settled.open_rows, settled.ended) == (2, None)


def test_two_places_are_one_row(spool: SpoolFolders, store: NftbanStore, journal: Journal) -> None:
    """It is accounted for once."""
    (task,) = dead_tasks(store, 1)
    data = Path(spool.dlq, f"{task.id}.task").read_bytes()
    Path(spool.pending, f"{task.id}.task").write_bytes(data)
    both = [one for one in store.scan({task.id}) if isinstance(one, Task)]
    report = carried_out(store, journal, plan_of(store, "purge", both))
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
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_a_folder_lost_in_the_middle(
    lost: str, verb: str, replaced: bool, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """What was done is done, every row is accounted for, and one line says why."""
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 3)
    word, message = LOST[lost]
    spool, folder, asked = new_spool(tmp_path), tmp_path / "queue" / word, iter(range(9))
    store, journal = NftbanStore(spool, clock), Journal(f"{spool.staging_dir}/journal")

    def lose() -> str:
        if next(asked) == 1:
            folder.rename(tmp_path / "away")
            if replaced:
                folder.mkdir(mode=0o750)
        return ""

    plan = plan_of(store, verb, dead_tasks(store, 9))
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
    """What was swept meanwhile fails; an undo of an unknown operation is not carried out."""
    first = carried_out(store, journal, plan_of(store, "retry", dead_tasks(store, 2)))
    (operation,) = journal.operations()
    back = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
    Path(journal.folder, f"{first.op}.before").unlink()
    report = carried_out(store, journal, back)
    assert {why for _, why in report.failed} == {"its saved image was deleted"}
    assert len(tasks_in(store, State.PENDING)) == 2
    unknown = Plan("undo", (), NOW, undoes="20261120T094115Z-00000000")
    with pytest.raises(Unavailable, match="has no operation"):
        carried_out(store, journal, unknown)


def test_expunging_goes_on_without_a_journal(
    spool: SpoolFolders, store: NftbanStore, journal: Journal, monkeypatch: MonkeyPatch
) -> None:
    """To make room is not stopped by a journal that cannot grow; the report has that."""
    dead, asked = dead_tasks(store, 9), iter(range(9))
    unmoved = carried_out(store, None, plans.freeze_plan("promote", dead, NOW))
    assert len(unmoved.failed) == 9  # which leaves no file locked for others
    monkeypatch.setattr(execute, "JOURNAL_BATCH_ROWS", 3)

    def lose() -> str:
        if next(asked) == 1:
            Path(journal.folder).rename(f"{journal.folder}.away")
        return ""

    theirs = NftbanStore(spool, clock)
    report = carried_out(theirs, journal, plan_of(theirs, "expunge", dead), allowed=lose)
    assert len(report.done) == 9 and "was removed or replaced" in report.trouble
    assert tasks_in(store) == []


@pytest.mark.parametrize("refused", [None, 2])
def test_large_images_are_saved_in_parts(
    store: NftbanStore, journal: Journal, monkeypatch: MonkeyPatch, refused: int | None
) -> None:
    """Each part is durable before its tasks are changed; if one cannot be saved, no task is."""
    monkeypatch.setattr(execute, "IMAGE_BATCH_BYTES", 1)
    parts, save = list[list[str]](), JournalWriter.save_images

    def save_part(writer: JournalWriter, images: Sequence[tuple[str, bytes]]) -> None:
        assert len(tasks_in(store, State.DEAD)) == 5
        if len(parts) == refused:
            raise Unavailable("no space left")
        save(writer, images)
        parts.append([ident for ident, _ in images])

    monkeypatch.setattr(JournalWriter, "save_images", save_part)
    plan = plan_of(store, "retry", dead_tasks(store, 5))
    report = carried_out(store, journal, plan)
    assert [*map(len, parts)] == ([1] * 5 + [0] if refused is None else [1, 1])
    if refused is None:
        assert len(report.done) == 5 and {*journal.images(report.op)} == {r.id for r in plan.rows}
    else:
        assert report.trouble == "no space left" and len(report.failed) == 5
        assert len(tasks_in(store, State.DEAD)) == 5
