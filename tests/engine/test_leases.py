"""The worker where no lock keeps rivals apart, and where nothing is kept of what it gives up."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import verbs
from engine.handlers import Context, Failed, Fatal, Handler
from engine.model import Lease, State, Task
from engine.policy import RetryPolicy, exponential
from engine.store import Unavailable
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.memory import Memory, MemoryStore
from engine.worker import Services, Worker
from tests.engine.builders import Clock, tasks_in

DAY = 86_400.0
POLICY = RetryPolicy(exponential(900, 14_400, 1_000), last_counts=1, runs=0, lifetime=5 * DAY)
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


def refusing(error: Exception) -> Handler:
    """A handler that fails so."""

    def handler(task: Task, context: Context) -> None:
        raise error

    return handler


def a_worker(
    store: KannaderStore, clock: Clock, handler: Handler, giving_up: Callable[[Task], None]
) -> Worker:
    """A worker without a lock, on another instance as another process would be."""
    services = Services(giving_up=giving_up)
    return Worker(store, {"mail": handler}, POLICY, services=services, clock=clock)


def test_what_is_given_up_leaves_where_nothing_dead_is_kept(
    spool: KannaderStore, clock: Clock
) -> None:
    """It is told of before the store has it, and then nothing of it is left."""
    told: list[tuple[Task, State]] = []

    def giving_up(task: Task) -> None:
        (stands,) = tasks_in(spool)
        told.append((task, stands.state))

    run = a_worker(spool, clock, refusing(Fatal("550 no such user")), giving_up).work(
        until_idle=True
    )
    ((task, stood),) = told
    assert (task.state, task.error, stood) == (State.DONE, "550 no such user", State.ACTIVE)
    assert run.failed == 1
    assert tasks_in(spool) == []


def test_who_cannot_be_told_of_it_keeps_it(spool: KannaderStore, clock: Clock) -> None:
    """Where what must come first cannot be done, the task stays claimed and is not lost."""

    def giving_up(task: Task) -> None:
        raise Unavailable("the disk is full")

    run = a_worker(spool, clock, refusing(Fatal("550")), giving_up).work(until_idle=True)
    (task,) = tasks_in(spool)
    assert (run.owed, task.state) == (1, State.ACTIVE)


def test_what_may_not_be_given_up_is_told_nobody(spool: KannaderStore, clock: Clock) -> None:
    """Where the store would leave it, nothing that comes before its end is done; it is owed."""
    told: list[Task] = []

    def closing(task: Task, context: Context) -> None:
        way = State.ACTIVE, State.DONE
        spool.edges = {**spool.edges, way: spool.edges[way]._replace(refused="not writable")}
        raise Fatal("550")

    run = a_worker(spool, clock, closing, told.append).work(until_idle=True)
    assert (run.owed, told) == (1, [])


@pytest.mark.parametrize(("age", "left"), [(5 * DAY - 60, 1), (5 * DAY + 60, 0)])
def test_age_ends_the_tries(spool: KannaderStore, clock: Clock, age: float, left: int) -> None:
    """A mail that fails is tried again for five days, however often that was."""
    clock.now += age
    a_worker(spool, clock, refusing(Failed("451")), lambda task: None).work(until_idle=True)
    assert len(tasks_in(spool)) == left
    # what does not say when it was created is not given up because of its age
    task = Task("1", "mail", State.ACTIVE, 0.0, attempts=3)
    assert POLICY.wait(task, clock.now) == 7_200
    assert POLICY.wait(replace(task, created=clock.now - 6 * DAY), clock.now) is None


def test_only_what_has_lapsed_is_rescued(spool: KannaderStore, clock: Clock) -> None:
    """What another worker has just claimed is left to it; after an hour it counts as failed."""
    (claimed,) = spool.take(clock.now, "another", 1)
    rival = KannaderStore(spool._spool.root, clock)
    worker = a_worker(rival, clock, refusing(AssertionError("it was taken")), lambda task: None)
    worker.work(until_idle=True)
    (before,) = tasks_in(rival)
    clock.now += 3_700
    worker.work(until_idle=True)
    (after,) = tasks_in(rival)
    assert (before.state, before.rev) == (State.ACTIVE, claimed.rev)
    assert (after.state, after.attempts) == (State.PENDING, 1)
    assert after.due is not None
    assert after.due >= clock.now
    rival.close()


def test_a_claim_without_an_end_is_rescued_without_a_lock(clock: Clock) -> None:
    """It ends with its owner: where no lock is, whoever works there is alone."""
    store = MemoryStore(Memory())
    store.swap(None, Task("1", "job", State.PENDING, clock.now))
    list(store.take(clock.now, str(os.getpid()), 1))
    Worker(store, {}, POLICY, clock=clock).rescue()
    (task,) = (item for item in store.look({"1"}) if isinstance(item, Task))
    assert (task.state, task.attempts) == (State.PENDING, 1)


def test_where_a_task_goes_is_told_by_the_edges(spool: KannaderStore) -> None:
    """To the dead where the store keeps them, else it counts as finished."""
    assert verbs.last_state(spool.edges) is State.DONE
    assert verbs.last_state(MemoryStore(Memory()).edges) is State.DEAD
    held = Task("1", "mail", State.ACTIVE, 1.0, due=7.0, lease=Lease("me", 0.0))
    assert verbs.bury(held, "no", 1, State.DONE) == replace(
        held, state=State.DONE, attempts=1, error="no", lease=None
    )
