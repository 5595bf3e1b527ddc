"""Giving back what nobody works on any more: each rescue is one attempt, and no more than one."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import pytest

from engine import verbs
from engine.model import Missing, Problem, State, Task
from engine.policy import RetryPolicy, contract, shipped
from engine.rescuer import outcome_of_failure, rescue
from engine.store import Gone
from engine.stores.memory import Memory, MemoryStore, opener

NOW = 1_795_170_000.0
WHY = "worker ended while it ran: PID 4711 is gone"


def a_task(number: int = 1, **changes: object) -> Task:
    """A task that is not stored yet."""
    task = Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW)
    return replace(task, **changes)  # type: ignore[arg-type]


@pytest.fixture
def open_store() -> Callable[[], MemoryStore]:
    """Open a further instance on the test's tasks."""
    return opener(Memory())


def tasks_in(store: MemoryStore) -> dict[str, Task]:
    """Every task by its id."""
    return {item.id: item for item in store.look() if isinstance(item, Task)}


def test_an_orphan_waits_like_any_failed_task(open_store: Callable[[], MemoryStore]) -> None:
    """A claimed task that nobody works on is pending again, one attempt and one wait later."""
    store = open_store()
    store.swap(None, a_task(description="the orphan"))
    list(store.take(NOW, "the dead", 1))

    (outcome,) = rescue(open_store(), contract(), NOW + 0.7, WHY)

    task = tasks_in(store)[a_task().id]
    assert (task.state, task.attempts, task.due) == (State.PENDING, 1, NOW + 60)
    assert (task.error, task.lease, task.description) == (WHY, None, "the orphan")
    assert (outcome.rev, outcome.error) == (task.rev, None)


@pytest.mark.parametrize(
    ("policy", "lives", "attempts"),
    [(contract(), 3, 3), (shipped(), 2, 3)],
    ids=["contract", "shipped"],
)
def test_a_task_that_ends_its_workers_is_given_up(
    open_store: Callable[[], MemoryStore], policy: RetryPolicy, lives: int, attempts: int
) -> None:
    """A task that kills whoever takes it is rescued as often as it may fail, then it is dead."""
    store, now = open_store(), NOW
    store.swap(None, a_task())

    for _ in range(lives + 1):
        now += 1000
        assert len(list(store.take(now, "the next victim", 1))) == 1
        rescue(store, policy, now, WHY)

    (task,) = tasks_in(store).values()
    assert (task.state, task.attempts, task.error) == (State.DEAD, attempts, WHY)


def test_a_rescue_happens_once(open_store: Callable[[], MemoryStore]) -> None:
    """Rescued again, there is nothing to rescue, and no attempt is counted."""
    store = open_store()
    store.swap(None, a_task())
    list(store.take(NOW, "the dead", 1))

    first = rescue(store, contract(), NOW, WHY)
    second = rescue(open_store(), contract(), NOW, WHY)

    assert (len(first), len(second)) == (1, 0)
    assert tasks_in(store)[a_task().id].attempts == 1


def test_only_claimed_tasks_are_rescued(open_store: Callable[[], MemoryStore]) -> None:
    """What waits, is held, dead or trashed stays as it is."""
    store = open_store()
    for number in range(4):
        store.swap(None, a_task(number))
    for number, verb in enumerate((verbs.hold, verbs.purge)):
        seen = tasks_in(store)[a_task(number).id]
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
    assert {task.id: task.state for task in tasks_in(store).values()} == {
        a_task(2).id: State.PENDING
    }


@pytest.mark.parametrize("refused", ["another may be doing it", ""])
def test_of_what_may_not_be_given_up_nobody_is_told(refused: str) -> None:
    """Where the store leaves a task where it is, what comes before its end is not done either."""
    memory = Memory()
    store = MemoryStore(memory)
    told: list[Task] = []
    store.swap(None, a_task(attempts=3))
    list(store.take(NOW, "the dead", 1))
    way = State.ACTIVE, State.DEAD
    store.edges = {**store.edges, way: store.edges[way]._replace(refused=refused)}

    (outcome,) = rescue(store, contract(), NOW, WHY, giving_up=told.append)

    (task,) = tasks_in(store).values()
    assert bool(told) is not bool(refused)
    assert task.state is (State.ACTIVE if refused else State.DEAD)
    assert str(outcome.error or "") == refused


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (None, (State.PENDING, 1, NOW + 60)),
        (0, (State.PENDING, 1, NOW + 60)),
        (1, (State.PENDING, 2, NOW + 120)),
        (2, (State.PENDING, 3, NOW + 240)),
        (3, (State.DEAD, 3, 0.0)),
        (9, (State.DEAD, 9, 0.0)),
    ],
)
def test_the_contracts_table(attempts: int | None, expected: tuple[State, int, float]) -> None:
    """Failures wait 60, 120 and 240 s; the fourth one is the last, with three attempts counted."""
    task = a_task(state=State.ACTIVE, attempts=attempts)

    after = outcome_of_failure(task, "no", contract(), NOW + 0.9)

    assert (after.state, after.attempts, after.due) == expected
    assert after.error == "no"
