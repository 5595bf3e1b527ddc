"""Plans: what the operator saw is acted on, or left alone; and every row is accounted for."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import operations, plans, verbs
from engine.model import Edge, Edges, State, Task
from engine.operations import Report
from engine.plans import Plan, Row
from engine.store import Store
from engine.stores.memory import EDGES, Memory, MemoryStore
from engine.stores.nftban import NftbanStore, Spool, make_spool

NOW = 1_795_170_000.0


def a_task(number: int = 1, **changes: object) -> Task:
    """A waiting task; numbers go by the order of ids."""
    task = Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW - 3600)
    return replace(task, description="a job", **changes)  # type: ignore[arg-type]


def dead_tasks(store: Store, count: int) -> list[Task]:
    """Put so many tasks into a store's dead-letter queue, and return them as they are seen."""
    for number in range(count):
        store.swap(None, a_task(number))
    for task in list(store.take(NOW, "a worker", count)):
        store.swap(task, verbs.bury(task, "it broke"))
    return tasks_in(store)


def tasks_in(store: Store) -> list[Task]:
    """Everything in a store, in the order of ids."""
    seen = {task.id: task for task in store.look() if isinstance(task, Task)}
    return sorted(seen.values(), key=lambda task: task.id)


def accounted(report: Report) -> list[str]:
    """Every id that a report names, once for each time it does."""
    return sorted([*report.done, *report.gone, *(ident for ident, _ in report.failed)])


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with nothing in it."""
    pending, work, dlq = (str(tmp_path / "queue" / word) for word in ("pending", "work", "dlq"))
    spool = Spool(pending, work, dlq, durable=False)
    make_spool(spool)
    return spool


@pytest.fixture(params=["memory", "nftban"])
def open_store(request: pytest.FixtureRequest, spool: Spool) -> Callable[[], Store]:
    """Open a further store on the same tasks."""
    memory = Memory()
    openers: dict[str, Callable[[], Store]] = {
        "memory": lambda: MemoryStore(memory),
        "nftban": lambda: NftbanStore(spool, lambda: NOW),
    }
    return openers[request.param]


def test_a_plan_is_what_was_seen() -> None:
    """A plan holds id, state and revision of each task as it was seen, each once."""
    seen = [a_task(1, rev="a"), a_task(2, rev="b", state=State.HELD), a_task(1, rev="a")]

    plan = plans.freeze("hold", seen, NOW)

    rows = (Row(seen[0].id, State.PENDING, "a"), Row(seen[1].id, State.HELD, "b"))
    assert plan == Plan("hold", rows, NOW, oldest=NOW - 3600, newest=NOW - 3600)


def test_what_is_as_it_was_seen_is_done(open_store: Callable[[], Store]) -> None:
    """A plan that nobody interferes with is carried out on every row."""
    store = open_store()
    plan = plans.freeze("retry", dead_tasks(store, 3), NOW)

    report = operations.apply(open_store(), plan, lambda: NOW)

    assert report == Report(plan, tuple(row.id for row in plan.rows), (), ())
    assert {task.state for task in tasks_in(store)} == {State.PENDING}


def test_what_differs_is_left_alone(open_store: Callable[[], Store]) -> None:
    """A task that moved, left, or was moved there and back since it was seen is gone."""
    store = open_store()
    moved, left, back, same = dead_tasks(store, 4)
    plan = plans.freeze("purge", [moved, left, back, same], NOW)
    store.swap(moved, verbs.retry(moved, NOW))
    store.swap(left, None)
    trashed = verbs.purge(back, NOW)
    rev = store.swap(back, trashed)
    store.swap(replace(trashed, rev=rev), replace(trashed, state=State.DEAD, rev=rev))

    report = operations.apply(store, plan, lambda: NOW)

    assert report.done == (same.id,)
    assert set(report.gone) == {moved.id, left.id, back.id}
    assert report.failed == ()


def test_a_row_in_a_state_without_the_verb_fails(open_store: Callable[[], Store]) -> None:
    """A row from whose state the verb does not lead has failed, with the reason."""
    store = open_store()
    store.swap(None, a_task())

    report = operations.apply(store, plans.freeze("release", tasks_in(store), NOW), lambda: NOW)

    assert report.failed == ((a_task().id, "not from pending"),)


def test_a_store_that_is_not_there_fails_every_row(spool: Spool) -> None:
    """When the store cannot be reached any more, every row has failed for that reason."""
    store = NftbanStore(spool, lambda: NOW)
    plan = plans.freeze("purge", dead_tasks(store, 3), NOW)
    Path(spool.dlq).rename(f"{spool.dlq}.elsewhere")
    Path(spool.dlq).symlink_to(f"{spool.dlq}.elsewhere")

    report = operations.apply(store, plan, lambda: NOW)

    assert [ident for ident, _ in report.failed] == [row.id for row in plan.rows]
    assert all(spool.dlq in reason for _, reason in report.failed)


@given(
    count=st.integers(0, 8),
    rivals=st.dictionaries(st.integers(0, 7), st.sampled_from(["retry", "expunge", "purge"])),
    verb=st.sampled_from(sorted(verbs.VERBS)),
    strangers=st.integers(0, 2),
)
def test_every_row_is_accounted_for(
    count: int, rivals: dict[int, str], verb: str, strangers: int
) -> None:
    """Whatever rivals did, each row ends in exactly one of done, gone and failed."""
    store = MemoryStore()
    seen = dead_tasks(store, count)
    unknown = [a_task(100 + n, rev="x") for n in range(strangers)]
    plan = plans.freeze(verb, [*seen, *unknown], NOW)
    for at, rival in rivals.items():
        if at < count:
            store.swap(seen[at], verbs.VERBS[rival].act(seen[at], NOW))

    report = operations.apply(store, plan, lambda: NOW)

    assert accounted(report) == sorted(row.id for row in plan.rows)
    assert not set(report.done) & {seen[at].id for at in rivals if at < count}


def test_of_two_operators_each_row_is_done_by_one(open_store: Callable[[], Store]) -> None:
    """Two who apply the same plan at once share its rows between them."""
    plan = plans.freeze("retry", dead_tasks(open_store(), 40), NOW)
    reports: list[Report] = []
    start = threading.Barrier(2)

    def operator() -> None:
        store = open_store()
        start.wait()
        reports.append(operations.apply(store, plan, lambda: NOW))

    threads = [threading.Thread(target=operator) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    one, other = reports
    assert sorted([*one.done, *other.done]) == sorted(row.id for row in plan.rows)
    assert accounted(one) == accounted(other) == sorted(row.id for row in plan.rows)


def test_a_verb_is_offered_where_an_edge_is_open() -> None:
    """A verb is offered in a state from which the store has an open edge for it."""
    assert plans.offered(EDGES, "hold", State.PENDING) is None


def test_a_verb_is_not_offered_from_another_state() -> None:
    """Where a verb never leads from, it is not offered."""
    assert plans.offered(EDGES, "promote", State.DEAD) == "not from dead"


def test_a_verb_is_not_offered_without_an_edge() -> None:
    """Where this store has no edge for it, it is not offered."""
    assert plans.offered({}, "hold", State.PENDING) == "no hold from pending here"


def test_a_refused_edge_says_why() -> None:
    """Where the edge is refused now, the reason is the store's own."""
    edges: Edges = {(State.PENDING, State.HELD): Edge(refused="the spool is read-only")}

    assert plans.offered(edges, "hold", State.PENDING) == "the spool is read-only"


def test_a_task_without_an_age_makes_a_plan_no_older() -> None:
    """The oldest and the newest are of those tasks whose age is known; it is 0 of none."""
    tasks = [a_task(1, created=0.0), a_task(2), a_task(3, created=NOW - 60), a_task(4, created=0.0)]

    plan = plans.freeze("purge", tasks, NOW)

    assert (plan.oldest, plan.newest) == (NOW - 3600, NOW - 60)
    assert plans.freeze("purge", tasks[:1], NOW).oldest == 0.0
    assert plan.rows[0].odd == ""
