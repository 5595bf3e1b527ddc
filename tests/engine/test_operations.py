"""Operations among rivals and on failing ground: every row is done once, and accounted for once."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import deeds, operations, plans, undo, verbs
from engine.journal import Intent, Journal, Who
from engine.model import Edge, Edges, State, Task
from engine.operations import Applying, End, Report
from engine.plans import Plan
from engine.store import Gone, Store, Unavailable
from engine.stores.memory import Memory, MemoryStore
from engine.stores.nftban import NftbanStore, Spool, make_spool
from tests.examples import examples

NOW = 1_795_170_000.0
US = Intent("", Who("ana", host="mx1", pid=1))
ROOT = Path(__file__).resolve().parents[2]


def a_spool(root: Path | str) -> Spool:
    """A spool with nothing in it."""
    spool = Spool(f"{root}/queue/pending", f"{root}/queue/work", f"{root}/queue/dlq", durable=False)
    make_spool(spool)
    return spool


def a_task(number: int) -> Task:
    """A waiting task; numbers go by the order of ids."""
    ident = f"20261120T094115Z-job-{number:08x}"
    return Task(ident, "job", State.PENDING, NOW - 3600, description=f"job {number}")


def tasks_in(store: Store, state: State | None = None) -> list[Task]:
    """Everything in a store, or in one of its states, in the order of ids."""
    seen = {task.id: task for task in store.look() if isinstance(task, Task)}
    return [t for _, t in sorted(seen.items()) if state is None or t.state is state]


def dead_tasks(store: Store, count: int) -> list[Task]:
    """Put so many tasks into a store's dead-letter queue."""
    for number in range(count):
        store.swap(None, a_task(number))
    for task in list(store.take(NOW, "a worker", count)):
        store.swap(task, verbs.bury(task, "it broke", 3))
    return tasks_in(store, State.DEAD)


def carried_out(store: Store, journal: Journal, plan: Plan, **more: object) -> Report:
    """Carry a plan out and write it down."""
    return deeds.carry_out(store, journal, plan, US, lambda: NOW, **more)  # type: ignore[arg-type]


@contextmanager
def a_place(kind: str) -> Iterator[tuple[Callable[[], Store], Journal]]:
    """What opens further stores on the same tasks, and their journal."""
    with TemporaryDirectory() as root, ExitStack() as stores:
        spool, memory = a_spool(root), Memory()

        def nftban() -> Store:
            store = NftbanStore(spool, lambda: NOW)
            stores.callback(store.close)
            return store

        opener: Callable[[], Store] = nftban
        if kind == "memory":
            opener = lambda: MemoryStore(memory)  # noqa: E731
        yield opener, Journal(f"{spool.desk}/journal", clock=lambda: NOW)


RIVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 7), st.sampled_from(["retry", "purge", "expunge"])),
    max_size=10,
)


@pytest.mark.parametrize("kind", ["memory", "nftban"])
@examples(25)
@given(
    rivals=RIVALS,
    verb=st.sampled_from(["retry", "purge", "hold", "expunge", "release"]),
    left_out=st.sets(st.integers(0, 7)),
    cut=st.lists(st.integers(1, 4), max_size=4),
)
def test_whatever_rivals_do_the_sums_add_up(
    kind: str, rivals: list[tuple[int, int, str]], verb: str, left_out: set[int], cut: list[int]
) -> None:
    """In whatever order rivals come between, each row ends once, no task is touched by two, what
    was left out stays, and the journal says the same.
    """
    with a_place(kind) as (open_store, journal):
        ours, theirs = open_store(), open_store()
        seen = dead_tasks(ours, 8)
        ids = [task.id for task in seen]
        plan = plans.freeze(verb, seen, NOW)._replace(
            taken_in=frozenset(ids), left_out=frozenset(ids[n] for n in left_out)
        )
        pen = journal.begin(US._replace(verb=verb), plan)
        applying = Applying(ours, plan, lambda: NOW, pen)
        stolen: set[str] = set()
        for turn in range(4):
            for when, at, rival in rivals:
                if when == turn:
                    try:
                        theirs.swap(seen[at], verbs.VERBS[rival].act(seen[at], NOW))
                        stolen.add(ids[at])
                    except Gone:
                        continue
            applying.step(applying.waiting[: cut[turn] if turn < len(cut) else 8])
        report = applying.finish("stopped")
        pen.close()

        (operation,) = journal.operations()
        ends = [len(getattr(report, end)) for end in End]
        assert sum(ends) == report.accounted == len(plan.rows) == 8
        assert [operation.counts[end] for end in End] == ends and operation.open == 0
        assert not set(report.done) & stolen
        stopped = {ident for ident, why in report.excluded if why == "stopped"}
        assert {ident for ident, _ in report.excluded} - stopped == plan.left_out
        untouched = plan.left_out - stolen
        assert untouched <= {task.id for task in tasks_in(theirs, State.DEAD)}


@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_two_consoles_and_a_worker(verb: str, tmp_path: Path) -> None:
    """Two processes with one plan, and a worker that takes what they set free: each task is done by
    exactly one of them, runs at most once, and none is lost.
    """
    spool = a_spool(tmp_path)
    store = NftbanStore(spool)
    ids = {task.id for task in dead_tasks(store, 120)}
    plan = plans.freeze(verb, tasks_in(store, State.DEAD), time.time())
    path = tmp_path / "plan"
    path.write_text(json.dumps([verb, [row[:3] for row in plan.rows]]))
    queue = str(Path(spool.pending).parent)
    words = [[queue, str(path)], [queue, str(path)], [queue, "--worker"]]

    with ExitStack() as running:
        started = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.engine.planner", *word],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for word in words
        ]
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in started[:2]:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        (one, other), taken = (
            [json.loads(process.communicate()[0]) for process in some]
            for some in (started[:2], started[2:])
        )

    assert set(one[0]) | set(other[0]) == ids
    assert not set(one[0]) & set(other[0])
    for done, gone, failed in (one, other):
        assert sorted([*done, *gone, *failed]) == sorted(ids) and not failed
    left = {task.id for task in tasks_in(store)}
    assert len(taken[0]) == len(set(taken[0]))
    assert left | set(taken[0]) == ids and not left & set(taken[0])
    counts = [o.counts for o in Journal(f"{spool.desk}/journal").operations()]
    assert sum(count[End.DONE] for count in counts) == len(ids)
    store.close()


def test_an_undo_among_rivals_takes_nothing_from_them(tmp_path: Path) -> None:
    """What somebody else moved, edited or ran since is not taken back, even after the dry run."""
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    first = carried_out(store, journal, plans.freeze("retry", dead_tasks(store, 5), NOW))
    operation = journal.operation(first.op)
    assert operation is not None
    edited, parked, ran, *_ = tasks_in(store)
    store.swap(edited, replace(edited, description="by somebody else"))
    back = undo.undo(store, journal, operation, NOW, 7.0).plan
    store.swap(parked, verbs.hold(parked, NOW))
    (taken,) = (t for t in store.take(NOW, "a worker", 2) if t.id == ran.id)
    store.swap(taken, verbs.nack(taken, NOW, "once more"))

    report = carried_out(store, journal, back)

    (left_out,) = report.excluded
    assert left_out == (edited.id, "changed since: it was attempted, or somebody edited it")
    assert len(report.done) == 1 or set(report.gone) >= {parked.id, ran.id}
    by_id = {task.id: task for task in tasks_in(store)}
    assert by_id[edited.id].description == "by somebody else"
    assert by_id[parked.id].state is State.HELD
    assert by_id[ran.id].error == "once more"
    assert report.accounted == 5


def interrupted(store: Store, journal: Journal, plan: Plan, kept: bool = True) -> None:
    """Leave a plan as a process does that is killed before its first task moves."""
    pen = journal.begin(US._replace(verb=plan.verb), plan)
    if kept:
        seen = {task.id: task for task in tasks_in(store)}
        pen.keep([(row.id, store.read(seen[row.id])) for row in plan.rows])
    pen.close()


@pytest.mark.parametrize("kind", ["memory", "nftban"])
@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_what_another_operation_did_is_not_claimed(kind: str, verb: str) -> None:
    """An interrupted operation does not count what somebody else's did to the same tasks."""
    with a_place(kind) as (open_store, journal):
        store = open_store()
        plan = plans.freeze(verb, dead_tasks(store, 3), NOW)
        interrupted(store, journal, plan)
        (before,) = journal.operations()
        report = carried_out(store, journal, plan)

        settled = undo.settle(store, journal, before).operation

        assert len(report.done) == 3
        assert settled is not None
        assert (settled.counts[End.DONE], settled.counts[End.GONE]) == (0, 3)


class Keeping(MemoryStore):
    """A store of a format that keeps the last error of what is retried."""

    edges: Edges = {
        **MemoryStore.edges,
        (State.DEAD, State.PENDING): Edge(frozenset({"attempts", "due"})),
    }


def test_a_verb_changes_no_error_that_its_edge_does_not_name() -> None:
    """Where a format keeps the last error, a retry succeeds and leaves it; the rest is as ever."""
    with a_place("memory") as (_, journal):
        memory = Memory()
        store = Keeping(memory)
        plan = plans.freeze("retry", dead_tasks(store, 2), NOW)
        interrupted(store, journal, plan)

        report = carried_out(store, journal, plan)
        settled = undo.settle(store, journal, journal.operations()[-1]).operation

        assert len(report.done) == 2
        assert {(t.attempts, t.error) for t in tasks_in(store, State.PENDING)} == {(0, "it broke")}
        assert settled is not None and settled.counts[End.FAILED] == 0


@pytest.mark.parametrize("kind", ["memory", "nftban"])
def test_what_ran_since_is_not_taken_for_ours(kind: str) -> None:
    """A task that was attempted, or never its turn, is not said to be as we left it."""
    with a_place(kind) as (open_store, journal):
        store = open_store()
        plan = plans.freeze("retry", dead_tasks(store, 3), NOW)
        interrupted(store, journal, plan, kept=False)
        interrupted(store, journal, plan)
        for task in tasks_in(store, State.DEAD):
            store.swap(task, verbs.retry(task, NOW))
        for task in list(store.take(NOW, "a worker", 3)):
            store.swap(task, verbs.nack(task, NOW, "again"))
        unsettled = journal.operations()

        settled = [undo.settle(store, journal, operation).operation for operation in unsettled]

        assert [s is not None and s.counts[End.DONE] for s in settled] == [0, 0]
        words = {e.ended and e.ended.words for o in unsettled for e in journal.entries(o.op)}
        assert words == {
            "interrupted, and changed since",
            "interrupted before it was its turn, and changed since",
        }


def test_what_lies_on_the_desk_is_not_judged(tmp_path: Path) -> None:
    """A task that is being moved is neither gone nor expunged: its row stays open."""
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    plan = plans.freeze("expunge", dead_tasks(store, 2), NOW)
    interrupted(store, journal, plan)
    (before,) = journal.operations()
    for row in plan.rows:
        moving = Path(spool.desk, f"D.{row.id}.dlq.gone.00000000.1-0-1")
        Path(spool.dlq, f"{row.id}.task").rename(moving)

    settled = undo.settle(store, journal, before).operation

    assert settled is not None and (settled.open, settled.ended) == (2, None)


def test_only_once_what_stands_twice(tmp_path: Path) -> None:
    """A task that stands in two places is one row, and accounted for once."""
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    (task,) = dead_tasks(store, 1)
    data = Path(spool.dlq, f"{task.id}.task").read_bytes()
    Path(spool.pending, f"{task.id}.task").write_bytes(data)
    both = [found for found in store.look({task.id}) if isinstance(found, Task)]

    report = carried_out(store, journal, plans.freeze("purge", both, NOW))

    (operation,) = journal.operations()
    assert len(both) == 2 and report.accounted == operation.planned == 1
    assert operation.open == 0


LOST: dict[str, tuple[str, str]] = {
    "the folder they are in": ("dlq", "dlq"),
    "the folder they go to": ("pending", "pending"),
    "the journal": (".spooldeck/journal", "removed meanwhile"),
    "the desk": (".spooldeck", "removed meanwhile"),
}


@pytest.mark.parametrize("verb", ["retry", "purge"])
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_lost_in_the_middle(
    lost: str, verb: str, replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a folder is gone from one batch to the next, or another lies there, what was done is
    done, the rest is as it was, every row is accounted for, and one line says why.
    """
    monkeypatch.setattr(operations, "GROUP", 3)
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    plan = plans.freeze(verb, dead_tasks(store, 9), NOW)
    word, said = LOST[lost]
    folder = Path(spool.pending).parent / word
    away = tmp_path / "away"
    asked = iter(range(9))

    def lose() -> str:
        if next(asked) == 1:
            folder.rename(away)
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
        assert reasons and all(said in why and "\n" not in why for why in reasons), reasons
    else:
        assert word == "pending" and (replaced or verb == "purge")


def test_expunging_goes_on_without_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes room on a full disk is not stopped by a journal that cannot grow; it says so."""
    monkeypatch.setattr(operations, "GROUP", 3)
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    plan = plans.freeze("expunge", dead_tasks(store, 9), NOW)
    asked = iter(range(9))

    def lose() -> str:
        if next(asked) == 1:
            Path(journal.folder).rename(tmp_path / "away")
        return ""

    report = carried_out(store, journal, plan, allowed=lose)

    assert len(report.done) == 9 and "removed meanwhile" in report.trouble
    assert tasks_in(store) == []


def test_without_its_image_nothing_is_taken_back(tmp_path: Path) -> None:
    """What was swept between the dry run and the undo is not made up: the row fails."""
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    first = carried_out(store, journal, plans.freeze("retry", dead_tasks(store, 2), NOW))
    operation = journal.operation(first.op)
    assert operation is not None
    back = undo.undo(store, journal, operation, NOW, 7.0).plan
    Path(journal.folder, f"{first.op}.before").unlink()

    report = carried_out(store, journal, back)

    assert {why for _, why in report.failed} == {"what it was is not kept any more"}
    assert len(tasks_in(store, State.PENDING)) == 2


def test_what_is_refused_is_put_down_again(tmp_path: Path) -> None:
    """A plan that moves nothing leaves no file locked for others."""
    spool = a_spool(tmp_path)
    ours, theirs = NftbanStore(spool, lambda: NOW), NftbanStore(spool, lambda: NOW)
    dead = dead_tasks(ours, 3)

    report = operations.apply(ours, plans.freeze("promote", dead, NOW), lambda: NOW)
    others = operations.apply(theirs, plans.freeze("purge", dead, NOW), lambda: NOW)

    assert (len(report.failed), len(others.done)) == (3, 3)


def test_an_undo_of_nothing_known_is_refused(tmp_path: Path) -> None:
    """A plan to take back what the journal does not know is not carried out."""
    spool = a_spool(tmp_path)
    store, journal = NftbanStore(spool, lambda: NOW), Journal(f"{spool.desk}/journal")
    plan = Plan("undo", (), NOW, undoes="20261120T094115Z-00000000")

    with pytest.raises(Unavailable, match="does not know what"):
        carried_out(store, journal, plan)
