"""The worker: what it takes, what it makes of each end, and what it never does."""

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine import files, locks, verbs
from engine.handlers import CONTRACT_KINDS, Context, Failed, Fatal, Handler, Later, Retry
from engine.limits import Buckets
from engine.model import Missing, Problem, State, Task
from engine.policy import Rate, RetryPolicy, contract, shipped
from engine.store import Store, Unavailable, Wants, anything
from engine.stores.memory import Memory, MemoryStore
from engine.stores.nftban import NftbanStore, Spool
from engine.worker import RELIST, RESCUING, SLACK, Limits, Run, Services, Worker
from tests.tables import each

NOW = 1_795_170_000.0
PATIENCE = 60.0
"""Seconds after which a thread that waits for another gives up: never, unless the test fails."""


class Clock:
    """A time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        """Tell it."""
        return self.now


class Desk:
    """A worker's surroundings: its tasks, its time, and what it says to others."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.store = MemoryStore(self.memory)
        self.clock = Clock()
        self.log: list[tuple[str, str]] = []
        self.tallies: Counter[str] = Counter()

    def worker(
        self,
        handled: Mapping[str, Handler],
        *,
        retry: RetryPolicy | None = None,
        lock: locks.PidLock | None = None,
        concurrency: int = 1,
        limits: Limits | None = None,
        gate: Callable[[str], tuple[str, float | None]] = lambda kind: ("", None),
        slots: Mapping[str, int] | None = None,
        store: Store | None = None,
        retire: Callable[[], None] = lambda: None,
        timeouts: Mapping[str, float] | None = None,
    ) -> Worker:
        """A worker on these tasks."""
        services = Services(
            log=lambda level, text: self.log.append((level, text)),
            tally=lambda name: self.tallies.update([name]),
            retire=retire,
            limits=limits,
            gate=gate,
            slots=slots or {},
            timeouts=timeouts or {},
        )
        return Worker(
            store or MemoryStore(self.memory),
            handled,
            retry or contract(),
            owner="the worker",
            lock=lock,
            concurrency=concurrency,
            services=services,
            clock=self.clock,
        )

    def add(self, kind: str = "job", number: int = 1, **changes: object) -> Task:
        """A pending task, as it is seen."""
        task = Task(f"20261120T094115Z-{kind}-{number:08x}", kind, State.PENDING, NOW)
        task = replace(task, description=f"{kind} {number}", **changes)  # type: ignore[arg-type]
        self.store.swap(None, task)
        return self.now(task)

    def now(self, task: Task) -> Task:
        """The task as it stands now."""
        (item,) = self.store.look({task.id})
        assert isinstance(item, Task)
        return item

    def tasks(self) -> dict[str, State]:
        """The state of every task, by id."""
        return {item.id: item.state for item in self.store.look() if isinstance(item, Task)}

    def said(self, text: str) -> list[str]:
        """The lines of the log that hold a text."""
        return [line for _, line in self.log if text in line]


@pytest.fixture
def desk() -> Desk:
    """Fresh surroundings."""
    return Desk()


def a_desk(folder: Path) -> Desk:
    """Fresh surroundings for each row of a table."""
    return Desk()


def does(task: Task, context: Context) -> None:
    """Succeed."""


def fails(error: Exception) -> Handler:
    """A handler that always fails so."""

    def handler(task: Task, context: Context) -> None:
        raise error

    return handler


# ---- how a task ends


def test_what_succeeds_leaves(desk: Desk) -> None:
    """A task whose handler returns is gone, counted and logged in the contract's words."""
    task = desk.add()
    run = desk.worker({"job": does}).process_next()
    assert desk.tasks() == {}
    assert run == Run(done=1, failed=0)
    assert desk.tallies == {"processed_total": 1}
    assert desk.log == [
        ("INFO", f"Processing task: {task.id} (job: job 1)"),
        ("INFO", "Executing: job 1"),
        ("SUCCESS", f"Task completed: {task.id} (job)"),
    ]


def test_the_handler_sees_its_claimed_task(desk: Desk) -> None:
    """A handler is given the task as it was claimed, while the store shows it as claimed."""
    seen = []

    def handler(task: Task, context: Context) -> None:
        seen.append((task, desk.now(task)))

    desk.add(payload="/some/where")
    desk.worker({"job": handler}).process_next()
    ((given, stored),) = seen
    assert given == stored
    assert given.state is State.ACTIVE
    assert given.payload == "/some/where"
    assert given.lease is not None
    assert given.lease.owner == "the worker"


@each(
    ("policy", "waits", "attempts"),
    [(contract(), [60, 120, 240], 3), (shipped(), [60, 120], 3)],
    desk=a_desk,
)
def test_what_fails_waits_longer_each_time_and_is_given_up(
    desk: Desk, policy: RetryPolicy, waits: list[int], attempts: int
) -> None:
    """Failures wait as the policy says; the one after the last wait buries. Each counts once."""
    task = desk.add()
    worker = desk.worker({"job": fails(Failed("not now"))}, retry=policy)

    waited = []
    for n in range(len(waits)):
        assert worker.process_next().failed == n + 1
        now = desk.now(task)
        assert (now.state, now.attempts, now.error) == (State.PENDING, n + 1, "not now")
        waited.append((now.due or 0.0) - desk.clock.now)
        assert worker.process_next().failed == n + 1  # not due: passed over
        desk.clock.now += waits[n]
    worker.process_next()

    assert waited == waits
    dead = desk.now(task)
    assert (dead.state, dead.attempts, dead.error, dead.lease) == (
        *(State.DEAD, attempts, "not now", None),
    )
    failures = len(waits) + 1
    assert desk.tallies == {"failed_total": failures, "retries_total": len(waits), "dlq_total": 1}
    assert desk.said("retry in") == [
        f"Task {task.id} failed (attempt {n}/{failures}), retry in {wait}s"
        for n, wait in enumerate(waits, 1)
    ]
    assert desk.said("moving") == [
        f"Task {task.id} exhausted retries ({failures}/{failures}), moving to DLQ"
    ]


def test_what_cannot_succeed_is_buried_at_once(desk: Desk) -> None:
    """A handler that knows that no attempt can succeed sends its task to the dead at once."""
    task = desk.add()
    desk.worker({"job": fails(Fatal("no such list"))}).process_next()
    dead = desk.now(task)
    assert (dead.state, dead.error, dead.attempts) == (State.DEAD, "no such list", 0)
    assert desk.tallies == {"failed_total": 1, "dlq_total": 1}
    assert desk.said("moving") == [f"Task {task.id} cannot succeed, moving to DLQ"]


def test_a_handler_may_choose_the_wait(desk: Desk) -> None:
    """A failure that says when the next attempt makes sense is waited for that long; the fourth
    failure buries all the same."""
    task, last = desk.add(), desk.add(kind="last", attempts=3)
    slow = fails(Retry(7, "slow down"))
    desk.worker({"job": slow, "last": slow}).work(until_idle=True)
    now = desk.now(task)
    assert (now.state, now.due, now.attempts, now.error) == (
        *(State.PENDING, NOW + 7, 1, "slow down"),
    )
    assert desk.now(last).state is State.DEAD


@each(
    ("error", "stored"),
    [
        (Failed("admin@example.net said $no\n"), "admin_example.net said _no"),
        (ValueError("bad value"), "ValueError: bad value"),
        (OSError(28, "No space left"), "OSError: _Errno 28_ No space left"),
        (Failed("x" * 500), "x" * 200),
        (Failed(""), ""),
    ],
    desk=a_desk,
)
def test_whatever_a_handler_raises_is_its_tasks_failure(
    desk: Desk, error: Exception, stored: str
) -> None:
    """Any exception fails the task with its text made plain, and never ends the worker."""
    first, second = desk.add(number=1), desk.add(kind="other", number=2)
    run = desk.worker({"job": fails(error), "other": does}).work(until_idle=True)
    assert desk.now(first).error == stored
    assert second.id not in desk.tasks()
    assert (run.done, run.failed) == (1, 1)


def test_an_unknown_kind_fails_in_the_contracts_words(desk: Desk) -> None:
    """A task of a kind that nobody knows fails as `Unknown task type: T`, and is tried again."""
    task = desk.add(kind="mystery")
    desk.worker({"job": does}).process_next()
    now = desk.now(task)
    assert (now.state, now.error, now.attempts) == (
        *(State.PENDING, "Unknown task type: mystery", 1),
    )


def test_a_task_that_left_meanwhile_is_left_alone(desk: Desk) -> None:
    """A task that is not as it was claimed any more has no outcome; only the run tells of it."""

    def handler(task: Task, context: Context) -> None:
        desk.store.swap(task, verbs.bury(task, "somebody else's word", 1))

    task = desk.add()
    run = desk.worker({"job": handler}).process_next()
    assert desk.now(task).error == "somebody else's word"
    assert (run.done, run.failed, run.gone) == (0, 0, 1)
    assert desk.tallies == {}
    assert desk.said("left alone") == [f"Task {task.id} is not where it was claimed; left alone"]


# ---- what it takes


def test_one_run_does_one_task(desk: Desk) -> None:
    """A timer's run does one task at most, the first in order, and leaves the others."""
    tasks = [desk.add(number=n) for n in (1, 2, 3)]
    run = desk.worker({"job": does}, concurrency=4).process_next()
    assert run.done == 1
    assert sorted(desk.tasks()) == [tasks[1].id, tasks[2].id]


def test_until_idle_does_all_that_is_due(desk: Desk) -> None:
    """Working until idle does everything that is due, also what was added meanwhile."""
    later = desk.add(number=9, due=NOW + 1)

    def handler(task: Task, context: Context) -> None:
        if task.id.endswith("3"):
            desk.add(number=4)

    for number in (1, 2, 3):
        desk.add(number=number)
    run = desk.worker({"job": handler}).work(until_idle=True)
    assert run.done == 4
    assert desk.tasks() == {later.id: State.PENDING}


@each("kind", sorted(CONTRACT_KINDS), desk=a_desk)
def test_a_contract_kind_without_handler_is_never_claimed(desk: Desk, kind: str) -> None:
    """A kind whose meaning the contract fixes waits for its handler; what comes behind it does not
    wait for it."""
    waiting = desk.add(kind=kind)
    behind = desk.add(kind="zebra")
    run = desk.worker({"zebra": does}).work(until_idle=True)
    assert desk.now(waiting) == waiting
    assert behind.id not in desk.tasks()
    assert run.refused == {kind: "no handler configured"}


@each("kind", sorted(CONTRACT_KINDS), desk=a_desk)
def test_a_contract_kind_never_runs_beside_itself(desk: Desk, kind: str) -> None:
    """With room for four, one task of a contract kind runs beside three others, and the next of
    its kind only when it is done."""
    together = threading.Barrier(4)
    running, most = Counter[str](), Counter[str]()
    guard = threading.Lock()

    def handler(task: Task, context: Context) -> None:
        with guard:
            running[task.kind] += 1
            most[task.kind] = max(most[task.kind], running[task.kind])
        if task.kind != kind or task.id.endswith("1"):
            together.wait(PATIENCE)
        with guard:
            running[task.kind] -= 1

    for number in (1, 2, 3):
        desk.add(kind=kind, number=number)
        desk.add(kind="zebra", number=number)

    run = desk.worker({kind: handler, "zebra": handler}, concurrency=4).work(until_idle=True)

    assert (run.done, run.failed) == (6, 0)
    assert most == {kind: 1, "zebra": 3}


@each(("concurrency", "slots", "room"), [(3, {}, 3), (4, {"job": 2}, 2)], desk=a_desk)
def test_no_more_run_than_there_is_room_for(
    desk: Desk, concurrency: int, slots: dict[str, int], room: int
) -> None:
    """Tasks run side by side up to the concurrency, of a kind with fewer slots up to those, and
    never beyond."""
    together = threading.Barrier(room)
    running, most = [0], [0]
    guard = threading.Lock()

    def handler(task: Task, context: Context) -> None:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(PATIENCE)
        with guard:
            running[0] -= 1

    for number in range(3 * room):
        desk.add(number=number)

    worker = desk.worker({"job": handler}, concurrency=concurrency, slots=slots)
    run = worker.work(until_idle=True)

    assert (run.done, run.failed, most) == (3 * room, 0, [room])


# ---- tokens


def test_an_empty_bucket_holds_up_only_its_kind(desk: Desk, tmp_path: Path) -> None:
    """When one kind has no token left, its tasks wait until there is one, and those of other kinds
    go on."""
    rates = {"mail": Rate(per_hour=60, burst=1)}
    limits = Buckets(str(tmp_path / "buckets"), rates, desk.clock)
    for number in (1, 2):
        desk.add(kind="mail", number=number)
        desk.add(kind="zebra", number=number)
    worker = desk.worker({"mail": does, "zebra": does}, limits=limits)
    run = worker.work(until_idle=True)
    assert run.done == 3
    assert list(desk.tasks()) == ["20261120T094115Z-mail-00000002"]
    assert run.refused == {"mail": "no token"}
    assert run.token_at == NOW + 60
    desk.clock.now += 60
    assert worker.work(until_idle=True).done == 4
    assert desk.tasks() == {}


class Contested:
    """Tokens of which another process takes the last one between our look and our grasp."""

    def __init__(self, error: Exception | None = None) -> None:
        self.left = 1
        self.error = error

    def ready(self, kind: str) -> bool:
        """See the last token."""
        return self.left > 0

    def spend(self, kind: str) -> bool:
        """Come too late."""
        self.left = 0
        if self.error is not None:
            raise self.error
        return False

    def token_at(self, kind: str) -> float:
        """In a minute."""
        return NOW + 60


def test_a_token_lost_to_a_rival_costs_no_attempt(desk: Desk) -> None:
    """When another process was faster with the last token, or the buckets cannot be written, the
    task is given back uncounted, and its handler never ran."""
    task = desk.add()
    handled = {"job": fails(Failed("ran"))}
    run = desk.worker(handled, limits=Contested()).work(until_idle=True)
    assert replace(desk.now(task), rev=task.rev) == task
    assert (run.done, run.failed) == (0, 0)
    full = Contested(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        desk.worker(handled, limits=full).process_next()
    assert replace(desk.now(task), rev=task.rev) == task


# ---- what is not begun


def test_what_was_not_attempted_is_given_back_uncounted(desk: Desk) -> None:
    """A handler that did not begin has its task wait until the moment it says: no attempt, no
    retry and no failure counts, and the task says what keeps it."""
    task = desk.add()
    run = desk.worker({"job": fails(Later(NOW + 90, "no token for $here"))}).process_next()
    now = desk.now(task)
    assert (now.state, now.due, now.attempts, now.error, now.lease) == (
        *(State.PENDING, NOW + 90, task.attempts, "waits: no token for _here", None),
    )
    assert run == Run(refused={"job": "no token for _here"}, next_due=NOW + 90)
    assert desk.tallies == {}
    assert desk.log[-1] == ("INFO", f"Task {task.id} waits: no token for _here")


@each(
    ("before", "after"),
    [
        ("waits: nobody is there", "waits: no token"),
        ("rejected_550: no such user", "rejected_550: no such user"),
    ],
    desk=a_desk,
)
def test_the_error_of_an_attempt_is_not_lost_by_waiting(
    desk: Desk, before: str, after: str
) -> None:
    """What keeps a task replaces what kept it before, never a real error."""
    task = desk.add(error=before, attempts=2)
    desk.worker({"job": fails(Later(NOW + 90, "no token"))}).process_next()
    assert (desk.now(task).error, desk.now(task).attempts) == (after, 2)


def test_what_was_not_attempted_is_not_taken_in_a_circle(desk: Desk) -> None:
    """A task that is given back until a moment that is past already waits for a second."""
    task = desk.add()
    run = desk.worker({"job": fails(Later(0.0, "not now"))}).work(until_idle=True)
    assert desk.now(task).due == NOW + 1
    assert run.next_due == NOW + 1


def test_a_run_for_one_task_goes_on_to_one_that_can_be_done(desk: Desk) -> None:
    """What a timer's run gives back was not eligible: it does the next that is, and no more."""
    waiting = [desk.add(kind="mail", number=n) for n in (1, 2)]
    left = [desk.add(kind="zebra", number=n) for n in (1, 2)]
    handled = {"mail": fails(Later(NOW + 60, "no token")), "zebra": does}
    run = desk.worker(handled).process_next()
    assert (run.done, run.failed, run.refused) == (1, 0, {"mail": "no token"})
    assert [desk.now(task).due for task in waiting] == [NOW + 60, NOW + 60]
    assert desk.now(left[1]) == left[1]


def test_a_shut_gate_keeps_its_kind_and_no_other(desk: Desk) -> None:
    """While a kind is not to be claimed, its tasks stay as they are; others are done. It is asked
    once for each look, however many tasks wait."""
    waiting = [desk.add(kind="mail", number=n) for n in range(3)]
    behind = desk.add(kind="zebra")
    asked = Counter[str]()

    def gate(kind: str) -> tuple[str, float | None]:
        asked[kind] += 1
        return "no mail transport is set up" if kind == "mail" else "", None

    run = desk.worker({"mail": does, "zebra": does}, gate=gate).process_next()
    assert [desk.now(task) for task in waiting] == waiting
    assert behind.id not in desk.tasks()
    assert run.refused == {"mail": "no mail transport is set up"}
    assert asked == {"mail": 1, "zebra": 1}
    assert run.token_at is None


def test_a_gate_that_says_when_it_opens_is_asked_again_then(desk: Desk) -> None:
    """A worker waits for that moment, and no longer, to look again."""
    desk.add(kind="mail")
    answers = [("no token for transport curl", NOW), ("", None)]
    waited: list[Run] = []

    def done(task: Task, context: Context) -> None:
        worker.stop()

    shut = desk.worker({"mail": done}, gate=lambda kind: answers[0])
    waited.append(shut.work(until_idle=True))
    worker = desk.worker({"mail": done}, gate=lambda kind: answers.pop(0))
    waited.append(worker.work())
    assert [(run.done, run.token_at) for run in waited] == [(0, NOW), (1, None)]


# ---- who was there before


def test_orphans_are_rescued_once(desk: Desk) -> None:
    """What a dead worker left claimed is failed once when the next one starts, and waits its turn
    like any failed task; a task that ended its worker for the fourth time is dead."""
    task, last = desk.add(), desk.add(number=2, attempts=3)
    list(desk.store.take(NOW, "the dead", 2))
    first = desk.worker({"job": does}).process_next()
    second = desk.worker({"job": does}).process_next()
    now = desk.now(task)
    assert (now.state, now.attempts, now.due) == (State.PENDING, 1, NOW + 60)
    assert now.error.startswith("worker ended while it ran: ")
    assert (first.done, second.done) == (0, 0)
    assert len(desk.said("Moving orphaned work task back to pending: ")) == 1
    assert desk.now(last).state is State.DEAD
    assert desk.tallies["dlq_total"] == 1
    assert desk.said("moving") == [f"Task {last.id} exhausted retries (4/4), moving to DLQ"]


def test_an_orphan_says_whose_it_was(desk: Desk, tmp_path: Path) -> None:
    """When the lock was taken over, the orphan's error says from whom."""
    task = desk.add()
    list(desk.store.take(NOW, "the dead", 1))
    lock_file = tmp_path / "queue.lock"
    lock_file.write_text("4194303\n0\n")
    with locks.acquire(str(lock_file), 1200.0) as lock:
        desk.worker({"job": does}, lock=lock).process_next()
    assert desk.now(task).error == "worker ended while it ran: PID 4194303 is gone"


# ---- the lock


def test_a_worker_that_lost_its_lock_touches_nothing(desk: Desk, tmp_path: Path) -> None:
    """When the lock was taken away while a handler ran, the outcome is not stored: whoever has the
    lock now decides. The worker ends, and says so."""
    path = tmp_path / "queue.lock"

    def handler(task: Task, context: Context) -> None:
        path.unlink()
        path.write_text("4711\n0\n")

    first, second = desk.add(number=1), desk.add(number=2)
    with locks.acquire(str(path), 1200.0) as lock:
        run = desk.worker({"job": handler}, lock=lock).work(until_idle=True)
    assert desk.tasks() == {first.id: State.ACTIVE, second.id: State.PENDING}
    assert "taken away" in run.lost
    assert (run.done, run.failed) == (0, 0)
    assert desk.tallies == {}
    assert [level for level, text in desk.log if "stopping" in text] == ["ALERT"]
    assert path.read_text() == "4711\n0\n"


def test_without_the_lock_nothing_is_claimed(desk: Desk, tmp_path: Path) -> None:
    """A worker whose lock is gone before it began claims nothing."""
    task = desk.add()
    path = tmp_path / "queue.lock"
    with locks.acquire(str(path), 1200.0) as lock:
        path.unlink()
        run = desk.worker({"job": does}, lock=lock).work(until_idle=True)
    assert run.lost
    assert desk.now(task) == task


def test_the_lock_is_renewed_while_it_works(desk: Desk, tmp_path: Path) -> None:
    """A worker gives signs of life between its tasks, however many there are."""
    path = tmp_path / "queue.lock"
    stamps = []

    def handler(task: Task, context: Context) -> None:
        stamps.append(path.read_text().split("\n")[1])
        desk.clock.now += locks.RENEWAL

    for number in (1, 2, 3):
        desk.add(number=number)
    with locks.acquire(str(path), 1200.0, desk.clock) as lock:
        desk.worker({"job": handler}, lock=lock).work(until_idle=True)
    assert stamps == [str(int(NOW + n * locks.RENEWAL)) for n in range(3)]


def test_a_hanging_handler_lets_the_lock_grow_old(desk: Desk, tmp_path: Path) -> None:
    """While a handler is long past its timeout, its worker gives no sign of life any more."""
    path = tmp_path / "queue.lock"
    release = threading.Event()
    stamps: list[str] = []

    def hangs(task: Task, context: Context) -> None:
        assert release.wait(PATIENCE)

    def passes(task: Task, context: Context) -> None:
        desk.clock.now += 5 + SLACK + locks.RENEWAL
        stamps.append(path.read_text().split("\n")[1])
        if len(stamps) == 3:
            release.set()

    desk.add("hanging")
    for number in (1, 2, 3):
        desk.add("passing", number)
    handled = {"hanging": hangs, "passing": passes}
    with locks.acquire(str(path), 1200.0, desk.clock) as lock:
        worker = desk.worker(
            handled, lock=lock, concurrency=2, slots={"passing": 1}, timeouts={"hanging": 5.0}
        )
        assert worker.work(until_idle=True).done == 4

    assert stamps == [str(int(NOW))] * 3


def test_handlers_inherit_the_lock(desk: Desk, tmp_path: Path) -> None:
    """A handler is given the lock's descriptor to hand on to what it starts."""
    given: list[tuple[int, ...]] = []

    def handler(task: Task, context: Context) -> None:
        given.append(context.inherit)

    desk.add()
    with locks.acquire(str(tmp_path / "queue.lock"), 1200.0) as lock:
        desk.worker({"job": handler}, lock=lock).process_next()
        assert given == [(lock.fd,)]


# ---- stopping, waiting


def test_stop_finishes_what_is_in_hand(desk: Desk) -> None:
    """Told to stop, a worker claims nothing more and ends when what it has in hand is done."""

    def handler(task: Task, context: Context) -> None:
        worker.stop()
        assert not context.cancelled()

    first, second = desk.add(number=1), desk.add(number=2)
    worker = desk.worker({"job": handler})
    run = worker.work()
    assert (run.done, run.failed) == (1, 0)
    assert desk.tasks() == {second.id: State.PENDING}
    assert first.id not in desk.tasks()


def test_stop_twice_cancels_what_is_in_hand(desk: Desk) -> None:
    """Told to stop a second time, a worker has its handlers end at once; that counts as an
    attempt."""

    def handler(task: Task, context: Context) -> None:
        worker.stop()
        worker.stop()
        raise Failed("stopped" if context.cancelled() else "nobody told me")

    task = desk.add()
    worker = desk.worker({"job": handler})
    run = worker.work()
    now = desk.now(task)
    assert (now.state, now.error, now.attempts) == (State.PENDING, "stopped", 1)
    assert (run.done, run.failed) == (0, 1)


def test_a_worker_stopped_before_it_began_does_nothing(desk: Desk) -> None:
    """A signal that comes before the first claim is heeded."""
    task = desk.add()
    worker = desk.worker({"job": does})
    worker.stop()
    assert worker.work() == Run()
    assert desk.now(task) == task


def started(worker: Worker) -> tuple[threading.Thread, list[Run]]:
    """A worker that works on a thread of its own until stopped, and what it comes to."""
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(worker.work()))
    thread.start()
    return thread, runs


def test_a_waiting_worker_is_woken_by_the_bell(desk: Desk) -> None:
    """A worker with nothing to do waits; when the bell rings it looks, and does what came."""
    done = threading.Event()
    worker = desk.worker({"job": lambda task, context: done.set()})
    thread, runs = started(worker)
    desk.add()
    worker.ring()
    assert done.wait(PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert runs == [Run(done=1)]
    assert desk.tasks() == {}


def a_spool(folder: Path, clock: Callable[[], float]) -> NftbanStore:
    """A store on real files."""
    pending, work, dlq = (str(folder / word) for word in ("pending", "work", "dlq"))
    for path in (pending, work, dlq):
        Path(path).mkdir()
    return NftbanStore(Spool(pending, work, dlq, durable=False), clock)


def test_an_unreachable_store_is_waited_for(desk: Desk, tmp_path: Path) -> None:
    """A patient worker says that its store is away, asks again when it said that it would, whatever
    rings, and goes on when it is back."""
    store = a_spool(tmp_path, desk.clock)
    store.swap(None, Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW))
    away, done = threading.Event(), threading.Event()

    class Saying(list[tuple[str, str]]):
        """A log that tells when the store is said to be away."""

        def append(self, line: tuple[str, str]) -> None:
            """Take a line in."""
            super().append(line)
            if "cannot be reached" in line[1]:
                away.set()

    desk.log = Saying()
    pending = tmp_path / "pending"

    def vanish() -> None:
        pending.rename(tmp_path / "away")

    # Housekeeping comes after the look for orphans and before the first claim.
    handled = {"job": lambda task, context: done.set()}
    worker = desk.worker(handled, store=store, retire=vanish)

    thread, runs = started(worker)
    assert away.wait(PATIENCE)
    worker.ring()
    worker.ring()
    (tmp_path / "away").rename(pending)
    worker.ring()
    assert not done.is_set()
    desk.clock.now += 60
    worker.ring()

    assert done.wait(PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert runs[0].done == 1
    (said,) = desk.said("Queue cannot be reached")
    assert said.endswith(", retry in 60s")
    assert desk.said("Queue is reached again")
    store.close()


class Refusing(MemoryStore):
    """A store whose disk fails: it refuses claims, looks at what is claimed, or outcomes."""

    refuses: frozenset[str] = frozenset()
    asked = 0
    """How often it has refused."""
    refused: Callable[[], None] = staticmethod(lambda: None)
    """What is called then."""

    def _refuse(self, what: str) -> None:
        if what in self.refuses:
            self.asked += 1
            self.refused()
            raise Unavailable("Input/output error")

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Refused, or as always."""
        self._refuse("look")
        return super().look(touched)

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Refused, or as always."""
        self._refuse("take")
        return super().take(now, owner, limit, wants)

    def swap(self, old: Task | None, new: Task | None) -> str:
        """Refused, or as always."""
        self._refuse(old.id if old is not None else "")
        return super().swap(old, new)


WAITS = [60, 120, 240, 480, 900, 900]
"""Seconds that a disk which goes on failing is let rest, one after the other."""


@each("what", ["take", "look"], desk=a_desk)
def test_a_failing_disk_is_asked_less_and_less_often(desk: Desk, what: str) -> None:
    """60, 120, 240 s, ...: no look before its time, each refusal said; after a good round anew."""
    store = Refusing(desk.memory)
    worker = desk.worker({"job": does}, store=store)
    desk.clock.now += RESCUING  # then it looks for lapsed claims as well
    round_of = partial(worker._try_claim, 1, patient=True, rests=True)

    def refused(waits: Sequence[float]) -> None:
        store.refuses, store.asked = frozenset({what}), 0
        for times, wait in enumerate(waits, 1):
            assert (round_of(), store.asked) == (0, times)
            desk.clock.now += wait - 1
            assert (round_of(), store.asked) == (0, times)
            desk.clock.now += 1

    refused(WAITS)
    store.refuses = frozenset()
    desk.add()
    assert round_of() == 1
    desk.clock.now += RESCUING
    refused(WAITS[:2])

    said = [line.rpartition(" ")[2] for line in desk.said("Queue cannot be reached: Input/output")]
    assert said == [f"{wait}s" for wait in [*WAITS, *WAITS[:2]]]
    assert len(desk.said("Queue is reached again")) == 1


def test_a_clock_set_back_keeps_no_worker_waiting(desk: Desk) -> None:
    """A store is asked again in a minute, though the clock now shows yesterday; a run until nothing
    is due reports that the store could not be asked."""
    store = Refusing(desk.memory)
    worker = desk.worker({"job": does}, store=store)
    store.refuses = frozenset({"take"})
    worker._try_claim(1, patient=True, rests=True)
    desk.clock.now -= 86400
    worker._try_claim(1, patient=True, rests=True)
    assert store.asked == 2
    run = desk.worker({"job": does}, store=store).work(until_idle=True)
    assert run.unreachable == "Input/output error"


def test_a_claim_refused_once_ends_no_run_that_others_go_on_with(desk: Desk) -> None:
    """Until nothing is due: when nothing is in hand any more it is looked whatever was refused."""
    store, refused = Refusing(desk.memory), threading.Event()
    for number in (1, 2, 3):
        desk.add(number=number)

    def handler(task: Task, context: Context) -> None:
        if task.id.endswith("1"):
            desk.clock.now += RELIST  # so that the next claim asks the store anew
            store.refuses, store.refused = frozenset({"take"}), refused.set
        elif task.id.endswith("2"):
            assert refused.wait(60)
            store.refuses = frozenset()

    run = desk.worker({"job": handler}, store=store, concurrency=2).work(until_idle=True)
    assert (run.done, run.unreachable, store.asked) == (3, "", 1)


def test_a_run_until_idle_tries_its_outcomes_once_more(desk: Desk) -> None:
    """However long they still had to wait: else what was done would be done again."""
    store = Refusing(desk.memory)
    first, *_ = (desk.add(number=number) for number in (1, 2, 3))
    store.refuses = frozenset({first.id})

    def handler(task: Task, context: Context) -> None:
        if task.id.endswith("3"):
            store.refuses = frozenset()

    run = desk.worker({"job": handler}, store=store).work(until_idle=True)
    assert (run.done, run.owed, desk.tasks()) == (3, 0, {})
    assert store.asked == 2  # at once, and once more; then it rested until the end


def test_each_outcome_is_tried_again_for_itself(desk: Desk) -> None:
    """At once, then after 60, 120, 240 s; one that is refused for ever holds up no other."""
    store = Refusing(desk.memory)
    worker = desk.worker({"job": does}, store=store)
    first, second = (desk.add(number=number) for number in (1, 2))
    store.refuses = frozenset({first.id, second.id})
    for task in store.take(NOW, "the worker", 2):
        worker._store_outcome(task, None)
    settle = partial(worker._settle_owed, stays=True)

    settle()
    assert store.asked == 4  # both, and both at once again
    store.refuses = frozenset({first.id})
    desk.clock.now += 59
    settle()
    assert (store.asked, len(desk.tasks())) == (4, 2)
    desk.clock.now += 1
    settle()
    assert (store.asked, list(desk.tasks())) == (5, [first.id])
    desk.clock.now += 119
    settle()
    assert store.asked == 5
    desk.clock.now += 1
    settle()
    assert store.asked == 6

    waits = [line.rpartition(" ")[2] for line in desk.said(f"Outcome of {first.id}")]
    assert waits == ["error", "60s", "120s", "240s"]


def test_a_worker_that_ends_tries_once_more(desk: Desk) -> None:
    """However long an outcome still had to wait: else its task would stay claimed."""
    store = Refusing(desk.memory)
    worker = desk.worker({"job": does}, store=store)
    store.refuses = frozenset({desk.add().id})
    (task,) = store.take(NOW, "the worker", 1)
    worker._store_outcome(task, None)
    worker._settle_owed(stays=True)
    store.refuses = frozenset()
    worker.stop()
    worker._work(limit=None, until_idle=False)
    assert desk.tasks() == {}


def test_a_timers_run_does_not_wait_for_a_store(desk: Desk, tmp_path: Path) -> None:
    """A timer's run on a store that is away ends with that error: the next run tries again."""
    store = a_spool(tmp_path, desk.clock)
    (tmp_path / "pending").rename(tmp_path / "away")
    with pytest.raises(Unavailable):
        desk.worker({"job": does}, store=store).process_next()
    store.close()


def refuse(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk refuse so many removals of files, from now on."""
    unlink, left = files.unlink, [times]

    def refused(name: str, *, dir_fd: int | None = None) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(files, "unlink", refused)


def test_an_outcome_that_cannot_be_stored_is_owed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its outcome stored, a task stays claimed and counts neither as done nor as failed."""
    store = a_spool(tmp_path, desk.clock)
    store.swap(None, Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW))

    def handler(task: Task, context: Context) -> None:
        refuse(1000, monkeypatch)

    run = desk.worker({"job": handler}, store=store).process_next()
    assert (run.done, run.failed, run.owed) == (0, 0, 1)
    assert desk.tallies == {}
    (task,) = store.look({"work"})
    assert isinstance(task, Task)
    assert len(desk.said("cannot be stored")) == 1
    store.close()


def counting(counts: Counter[str], name: str) -> Callable[[], None]:
    """A service that counts how often it is asked for."""
    return lambda: counts.update([name])


def test_housekeeping_comes_once_a_run(desk: Desk) -> None:
    """Each run looks for what has been dead for too long once; a long one writes its metrics."""
    asked = Counter[str]()
    services = Services(retire=counting(asked, "retire"), publish=counting(asked, "publish"))
    for number in (1, 2, 3):
        desk.add(number=number)
    for _ in range(2):
        Worker(
            desk.store, {"job": does}, contract(), services=services, clock=desk.clock
        ).process_next()
    assert asked["retire"] == 2
    assert desk.tasks() == {"20261120T094115Z-job-00000003": State.PENDING}
