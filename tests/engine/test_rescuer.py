"""Giving back what nobody works on any more: each rescue is one attempt, and no more than one."""

from collections.abc import Collection, Iterator

import pytest

from engine import verbs
from engine.model import Missing, Problem, State, Task
from engine.policy import RetryPolicy, contract, shipped
from engine.rescuer import outcome_of_failure, rescue
from engine.store import Gone
from engine.stores.memory import Memory, MemoryStore
from tests.engine.builders import NOW, a_task, tasks_in

WHY = "worker ended while it ran: PID 4711 is gone"


@pytest.fixture
def store() -> MemoryStore:
    """A store with nothing in it."""
    return MemoryStore(Memory())


def test_an_orphan_waits_like_any_failed_task(store: MemoryStore) -> None:
    """A claimed task that nobody works on is pending again, one attempt and one wait later; rescued
    again, there is nothing to rescue."""
    store.swap(None, a_task(description="the orphan"))
    list(store.take(NOW, "the dead", 1))
    (outcome,) = rescue(store, contract(), NOW + 0.7, WHY)
    again = rescue(store, contract(), NOW + 0.7, WHY)
    (task,) = tasks_in(store)
    assert (task.state, task.attempts, task.due) == (State.PENDING, 1, NOW + 60)
    assert (task.error, task.lease, task.description) == (WHY, None, "the orphan")
    assert (outcome.rev, outcome.error, again) == (task.rev, None, [])


@pytest.mark.parametrize("policy", [contract(), shipped()], ids=["contract", "shipped"])
def test_a_task_that_ends_its_workers_is_given_up(store: MemoryStore, policy: RetryPolicy) -> None:
    """A task that kills whoever takes it is rescued as often as it may fail, then it is dead."""
    lives, now = policy.runs - 1, NOW
    store.swap(None, a_task())
    for _ in range(lives + 1):
        now += 1000
        assert len(list(store.take(now, "the next victim", 1))) == 1
        rescue(store, policy, now, WHY)
    (task,) = tasks_in(store)
    assert (task.state, task.attempts, task.error) == (State.DEAD, 3, WHY)


def test_only_claimed_tasks_are_rescued(store: MemoryStore) -> None:
    """What waits, is held, dead or trashed stays as it is."""
    for number in range(4):
        store.swap(None, a_task(number))
    for seen, verb in zip(tasks_in(store), (verbs.hold, verbs.purge), strict=False):
        store.swap(seen, verb(seen, NOW))
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.bury(claimed, "dead", 1))
    before = tasks_in(store)
    assert rescue(store, contract(), NOW, WHY) == []
    assert tasks_in(store) == before


def test_what_another_finishes_meanwhile_is_left_alone() -> None:
    """A task that moved since the rescue looked is gone; the others are rescued all the same."""
    memory = Memory()
    store, theirs = MemoryStore(memory), MemoryStore(memory)
    for number in (1, 2):
        store.swap(None, a_task(number))
    claimed = list(store.take(NOW, "me", 2))

    class Overtaken(MemoryStore):
        """A store in which somebody else is always a little faster with the first task."""

        def look(
            self, touched: Collection[str] | None = None
        ) -> Iterator[Task | Missing | Problem]:
            """See everything, just before it moves."""
            yield from list(super().look(touched))
            theirs.swap(claimed[0], None)

    first, second = rescue(Overtaken(memory), contract(), NOW, WHY)

    assert isinstance(first.error, Gone)
    assert second.error is None
    assert [(t.id, t.state) for t in tasks_in(store)] == [(a_task(2).id, State.PENDING)]


def test_the_contracts_table() -> None:
    """Failures wait 60, 120 and 240 s; the fourth one is the last, with three attempts counted."""
    for attempts, state, counted, due in (
        (None, State.PENDING, 1, NOW + 60),
        (0, State.PENDING, 1, NOW + 60),
        (1, State.PENDING, 2, NOW + 120),
        (2, State.PENDING, 3, NOW + 240),
        (3, State.DEAD, 3, 0.0),
        (9, State.DEAD, 9, 0.0),
    ):
        task = a_task(state=State.ACTIVE, attempts=attempts)
        after = outcome_of_failure(task, "no", contract(), NOW + 0.9)
        assert (after.state, after.attempts, after.due) == (state, counted, due)
        assert after.error == "no"


@pytest.mark.parametrize("refused", ["another may be doing it", ""])
def test_a_task_that_may_not_be_given_up_stays_claimed(store: MemoryStore, refused: str) -> None:
    """Where the store leaves a task where it is, what comes before its end is not done either."""
    told: list[Task] = []
    store.swap(None, a_task(attempts=3))
    list(store.take(NOW, "the dead", 1))
    way = State.ACTIVE, State.DEAD
    store.edges = {**store.edges, way: store.edges[way]._replace(refused=refused)}
    (outcome,) = rescue(store, contract(), NOW, WHY, giving_up=told.append)
    (task,) = tasks_in(store)
    assert bool(told) is not bool(refused)
    assert task.state is (State.ACTIVE if refused else State.DEAD)
    assert str(outcome.error or "") == refused
