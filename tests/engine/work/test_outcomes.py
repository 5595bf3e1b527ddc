"""Rescue of claimed tasks whose worker is gone, and tasks given up, with a lock and without one."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.model import Lease, Missing, Problem, State, Task
from engine.policy import RetryPolicy, contract_retries, retries_of, shipped_retries
from engine.schedules import exponential
from engine.store import Gone, Store, Unavailable
from engine.work.handlers import Context, Failed, Fatal
from engine.work.outcomes import rescue_tasks
from engine.work.services import WorkerServices
from engine.work.worker import Worker, WorkerResult
from tests.engine.task_builders import NOW, Clock, a_task, tasks_in

WHY = "worker ended while it ran: PID 4711 is gone"


@pytest.fixture
def store() -> MemoryStore:
    """A store with nothing in it."""
    return MemoryStore(MemoryTasks())


def test_an_orphan_waits_like_any_failed_task(store: MemoryStore) -> None:
    """It is pending one attempt and one wait later; rescued again, there is nothing to rescue."""
    store.swap(None, a_task(description="the orphan"))
    list(store.take(NOW, "the dead", 1))
    (outcome,), again = (rescue_tasks(store, contract_retries(), NOW + 0.7, WHY) for _ in "12")
    (task,) = tasks_in(store)
    assert (task.state, task.attempts, task.due) == (State.PENDING, 1, NOW + 60)
    assert (task.error, task.lease, task.description) == (WHY, None, "the orphan")
    assert (outcome.rev, outcome.error, again) == (task.rev, None, [])


@pytest.mark.parametrize(
    "policy", [contract_retries(), shipped_retries()], ids=["contract", "shipped"]
)
def test_a_task_that_ends_its_workers_is_given_up(store: MemoryStore, policy: RetryPolicy) -> None:
    """A task that kills each worker that takes it is rescued as often as it may fail, then dead."""
    now = NOW
    store.swap(None, a_task())
    for _ in range(policy.max_runs):
        now += 1000
        assert len(list(store.take(now, "the next victim", 1))) == 1
        rescue_tasks(store, policy, now, WHY)
    (task,) = tasks_in(store)
    assert (task.state, task.attempts, task.error) == (State.DEAD, 3, WHY)


def test_only_claimed_tasks_are_rescued(store: MemoryStore) -> None:
    """A task that waits, is held, dead or trashed stays as it is."""
    for number in range(4):
        store.swap(None, a_task(number))
    for task, verb in zip(tasks_in(store), (verbs.hold, verbs.purge), strict=False):
        store.swap(task, verb(task, NOW))
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.give_up_task(claimed, "dead", 1))
    before = tasks_in(store)
    assert rescue_tasks(store, contract_retries(), NOW, WHY) == []
    assert tasks_in(store) == before


def test_a_task_that_another_finishes_meanwhile_is_left_alone() -> None:
    """A task that moved since the rescue saw it is gone; the others are rescued all the same."""
    memory = MemoryTasks()
    store = MemoryStore(memory)
    for number in (1, 2):
        store.swap(None, a_task(number))
    claimed = list(store.take(NOW, "me", 2))

    class Overtaken(MemoryStore):
        def scan(self, *args: Any) -> Iterator[Task | Missing | Problem]:
            yield from list(super().scan(*args))
            store.swap(claimed[0], None)

    first, second = rescue_tasks(Overtaken(memory), contract_retries(), NOW, WHY)
    assert isinstance(first.error, Gone) and second.error is None
    assert [(t.id, t.state) for t in tasks_in(store)] == [(a_task(2).id, State.PENDING)]


def refuse_edge(store: Store, start: State, end: State, why: str) -> None:
    """Let a store refuse a change."""
    edge = store.edges[start, end]._replace(refusal=why)
    store.edges = {**store.edges, (start, end): edge}


@pytest.mark.parametrize("refused", ["another may be doing it", ""])
def test_a_task_that_may_not_be_given_up_stays_claimed(store: MemoryStore, refused: str) -> None:
    """Where the store leaves a task where it is, the steps before its end are not done either."""
    given_up: list[Task] = []
    store.swap(None, a_task(attempts=3))
    list(store.take(NOW, "the dead", 1))
    refuse_edge(store, State.ACTIVE, State.DEAD, refused)
    (outcome,) = rescue_tasks(store, contract_retries(), NOW, WHY, giving_up=given_up.append)
    (task,) = tasks_in(store)
    assert bool(given_up) is not bool(refused)
    assert task.state is (State.ACTIVE if refused else State.DEAD)
    assert str(outcome.error or "") == refused


DAY = 86_400.0
POLICY = retries_of(exponential(900, 14_400))._replace(lifetime=5 * DAY)
"""Waits that double, and an end by age."""


@pytest.fixture
def clock() -> Clock:
    """Now: the file system gives links its own time."""
    return Clock(float(int(time.time())))


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> KannaderStore:
    """A spool that holds one mail for one recipient."""
    make_spool(str(tmp_path / "spool"))
    store = KannaderStore(str(tmp_path / "spool"), clock)
    store.enqueue("me@here.example", ["you@there.example"], [b"Subject: hi\r\n\r\nhi\r\n.\r\n"])
    return store


def run_with(
    store: KannaderStore,
    clock: Clock,
    error: Exception,
    giving_up: Callable[[Task], None] = lambda task: None,
    before: Callable[[], None] = lambda: None,
) -> WorkerResult:
    """Run a worker without a lock whose handler raises an error, until nothing is due."""

    def handler(task: Task, context: Context) -> None:
        before()
        raise error

    services = WorkerServices(before_giving_up=giving_up)
    worker = Worker(store, {"mail": handler}, POLICY, services=services, clock=clock)
    return worker.process_all(until_idle=True)


def test_a_task_given_up_leaves_where_no_dead_are_kept(spool: KannaderStore, clock: Clock) -> None:
    """It is reported before the store has it, and then nothing of it is left."""
    reported: list[tuple[Task, State]] = []

    def report(task: Task) -> None:
        reported.append((task, tasks_in(spool)[0].state))

    run = run_with(spool, clock, Fatal("550 no such user"), report)
    ((task, stored),) = reported
    assert (task.state, task.error, stored) == (State.DONE, "550 no such user", State.ACTIVE)
    assert (run.failed, tasks_in(spool)) == (1, [])


def test_a_task_whose_end_is_unreported_stays_claimed(spool: KannaderStore, clock: Clock) -> None:
    """Its end is owed, also where the store would refuse it, which is not reported."""

    def refuse(task: Task) -> None:
        raise Unavailable("the disk is full")

    assert run_with(spool, clock, Fatal("550"), refuse).owed == 1
    (task,), reported = tasks_in(spool), list[Task]()
    assert task.state is State.ACTIVE
    spool.swap(task, verbs.unclaim(task))
    close_edge = partial(refuse_edge, spool, State.ACTIVE, State.DONE, "not writable")
    run = run_with(spool, clock, Fatal("550"), reported.append, close_edge)
    assert (run.owed, reported) == (1, [])


@pytest.mark.parametrize(("age", "left"), [(5 * DAY - 60, 1), (5 * DAY + 60, 0)])
def test_age_ends_the_tries(spool: KannaderStore, clock: Clock, age: float, left: int) -> None:
    """A mail that fails is tried again for five days, however often that was, and at least twice; a
    task without a creation time is not given up because of its age."""
    for seconds, count in ((age - 900, 1), (900, left)):
        clock.now += seconds
        run_with(spool, clock, Failed("451"))
        assert len(tasks_in(spool)) == count
    task = Task("1", "mail", State.ACTIVE, 0.0, attempts=3)
    assert POLICY.retry_delay(task, clock.now) == 7_200
    assert POLICY.retry_delay(task._replace(created=clock.now - 6 * DAY), clock.now) is None


def test_only_a_lapsed_claim_is_rescued(spool: KannaderStore, clock: Clock) -> None:
    """A fresh claim of another worker is left to it; after an hour it counts as failed."""
    (claimed,), seen = spool.take(clock.now, "another", 1), list[Task]()
    with closing(KannaderStore(spool._spool.root, clock)) as rival:
        for seconds in (0, 3_700):
            clock.now += seconds
            run_with(rival, clock, AssertionError("it was taken"))
            seen += tasks_in(rival)
    before, after = seen
    assert (before.state, before.rev) == (State.ACTIVE, claimed.rev)
    assert (after.state, after.attempts) == (State.PENDING, 1)
    assert after.due is not None and after.due >= clock.now


def test_a_claim_without_an_end_is_rescued_without_a_lock(store: MemoryStore) -> None:
    """It ends with its owner: where no lock is, a worker there is alone."""
    store.swap(None, Task("1", "job", State.PENDING, NOW))
    list(store.take(NOW, str(os.getpid()), 1))
    Worker(store, {}, POLICY, clock=Clock()).rescue()
    (task,) = tasks_in(store)
    assert (task.state, task.attempts) == (State.PENDING, 1)


def test_the_edges_say_where_a_task_ends(spool: KannaderStore, store: MemoryStore) -> None:
    """Among the dead where the store keeps them, else it counts as finished."""
    assert verbs.given_up_state(spool.edges) is State.DONE
    assert verbs.given_up_state(store.edges) is State.DEAD
    held = Task("1", "mail", State.ACTIVE, 1.0, due=7.0, lease=Lease("me", 0.0))
    end = held._replace(state=State.DONE, attempts=1, error="no", lease=None)
    assert verbs.give_up_task(held, "no", 1, State.DONE) == end
