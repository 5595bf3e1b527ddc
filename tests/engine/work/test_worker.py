"""The worker: the tasks it claims, the outcome it stores for each, its lock, stops and waits."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from engine import verbs
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.nftban.store import NftbanStore
from engine.locks import queue_lock
from engine.locks.token_buckets import TokenBuckets
from engine.model import Edge, Missing, Move, Outcome, Problem, State, Task
from engine.policy import Rate, RetryPolicy, contract_retries, retries_of, shipped_retries
from engine.schedules import fixed, stepped
from engine.store import ClaimRules, Gone, Store, Unavailable
from engine.work import handlers
from engine.work.claiming import LACK_REPORT_SECONDS, RESCAN_INTERVAL_SECONDS, Claimer, Slots
from engine.work.handlers import Context, Failed, Fatal, Handler, HandlerResult, Postponed, Retry
from engine.work.outcomes import Owed
from engine.work.running_tasks import Claim, FinishedTask
from engine.work.services import WorkerServices
from engine.work.worker import HANDLER_GRACE_SECONDS, RESCUE_INTERVAL_SECONDS, Worker, WorkerResult
from tests.engine.task_builders import NOW, Clock, new_spool
from tests.tables import each

PATIENCE = 60.0
"""Seconds after which a thread that waits for another gives up: never, unless the test fails."""


class WorkQueue:
    """Tasks in memory, the time, and the log and counters of the workers on these tasks."""

    def __init__(self) -> None:
        self.memory, self.clock = MemoryTasks(), Clock()
        self.store = MemoryStore(self.memory)
        self.log: list[tuple[str, str]] = []
        self.tallies: Counter[str] = Counter()

    def worker(
        self,
        handled: Mapping[str, Handler],
        *,
        retry: RetryPolicy | None = None,
        lock: queue_lock.PidLock | None = None,
        concurrency: int = 1,
        store: Store | None = None,
        **services: Any,
    ) -> Worker:
        """A worker on these tasks, or on those of another store."""
        services = {"log": lambda *line: self.log.append(line), **services}
        services |= {"add_count": lambda name: self.tallies.update([name])}
        return Worker(
            store or MemoryStore(self.memory),
            handled,
            retry or contract_retries(),
            owner="the worker",
            lock=lock,
            concurrency=concurrency,
            services=WorkerServices(**services),
            clock=self.clock,
        )

    def run(self, handled: Mapping[str, Handler], **more: Any) -> WorkerResult:
        """Let a worker do all that is due."""
        return self.worker(handled, **more).process_all(until_idle=True)

    def add(self, kind: str = "job", number: int = 1, **changes: Any) -> Task:
        """A pending task, as it is seen."""
        task = Task(queue_id(number, kind), kind, State.PENDING, NOW)
        self.store.swap(None, task._replace(description=f"{kind} {number}", **changes))
        return self.now(task)

    def fill(self, count: int, kind: str = "job") -> list[Task]:
        """So many pending tasks, numbered from 1."""
        return [self.add(kind, number) for number in range(1, count + 1)]

    def now(self, task: Task) -> Task:
        """The task as it is now."""
        (item,) = self.store.scan({task.id})
        assert isinstance(item, Task)
        return item

    def is_unchanged(self, *tasks: Task) -> bool:
        """Whether tasks are as they were, but for their revisions."""
        return all(self.now(task)._replace(rev=task.rev) == task for task in tasks)

    def tasks(self) -> dict[str, State]:
        """The state of every task, by id."""
        return {item.id: item.state for item in self.store.scan() if isinstance(item, Task)}

    def states(self) -> list[State]:
        """The state of every task."""
        return list(self.tasks().values())

    def logged(self, text: str) -> list[str]:
        """The lines of the log that contain a text."""
        return [line for _, line in self.log if text in line]


def queue_id(number: int, kind: str = "job") -> str:
    """The id of a task that `WorkQueue.add` adds."""
    return f"20261120T094115Z-{kind}-{number:08x}"


@pytest.fixture
def queue() -> WorkQueue:
    """A queue without tasks."""
    return WorkQueue()


def does(task: Task, context: Context) -> None:
    """Succeed."""


def test_a_lack_of_the_worker_is_no_attempt(queue: WorkQueue) -> None:
    """A task whose handler lacks something goes back unchanged; its kind rests 15 s, then longer,
    while others run; one line and one alert name the lack, and the result has it."""
    alerts, tried = list[str](), list[float]()
    lack = "cannot start x: Resource temporarily unavailable"

    def lacks(task: Task, context: Context) -> None:
        tried.append(queue.clock())
        raise handlers.Lacking(lack)

    tasks, other = queue.fill(3, "scarce"), queue.add("plain", 9)
    worker = queue.worker({"scarce": lacks, "plain": does}, alert=alerts.append)
    run = worker.process_all(until_idle=True)
    assert (run.done, run.failed, len(tried), run.lacks) == (1, 0, 1, {"scarce": lack})
    assert queue.is_unchanged(*tasks) and other.id not in queue.tasks()
    for wait, count in ((14, 1), (2, 2), (29, 2), (2, 3)):
        queue.clock.now += wait
        worker.process_all(until_idle=True)
        assert len(tried) == count, wait
    assert alerts == [f"{lack}: scarce waits, no attempt is counted"]
    assert queue.logged("Not tried") == [f"Not tried: scarce: {lack}"]
    queue.clock.now += LACK_REPORT_SECONDS
    worker.process_all(until_idle=True)
    assert queue.logged("Not tried") == [f"Not tried: scarce: {lack}"] * 2
    assert set(queue.states()) == {State.PENDING}


def test_without_threads_no_task_is_lost(queue: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system makes no thread for a handler, its task goes back without an attempt."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    task = queue.add()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    run = queue.worker({"job": does}).process_next()
    assert run.lacks == {"job": "cannot start a thread: can_t start new thread"}
    assert queue.is_unchanged(task)


def fails(error: BaseException) -> Handler:
    """A handler that always raises this error."""

    def handler(task: Task, context: Context) -> None:
        raise error

    return handler


def waits_for(event: threading.Event) -> Handler:
    """A handler that ends after an event."""

    def handler(task: Task, context: Context) -> None:
        assert event.wait(PATIENCE)

    return handler


# ---- how a task ends


@each("count", [1, 2])
def test_handlers_use_as_many_threads_as_run_at_a_time(count: int) -> None:
    """A handler runs on the thread of one that has ended; when the run ends, the threads end."""
    queue = WorkQueue()
    for _ in range(2):
        used, together = set[threading.Thread](), threading.Barrier(count)

        def handler(task: Task, context: Context) -> None:
            used.add(threading.current_thread())  # noqa: B023
            together.wait(PATIENCE)  # noqa: B023

        queue.fill(6)
        assert (queue.run({"job": handler}, concurrency=count).done, len(used)) == (6, count)
        for thread in used:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_the_thread_of_an_ended_handler_claims_the_next_task(queue: WorkQueue) -> None:
    """It stores the outcome while the worker's thread waits; what it raises ends the run."""
    queue.fill(3)
    asked: list[str] = []

    def gate(kind: str) -> tuple[str, None]:
        asked.append(threading.current_thread().name)
        if len(asked) == 3:
            raise RuntimeError("third")
        return "", None

    with pytest.raises(RuntimeError, match="third"):
        queue.run({"job": does}, gate=gate)
    assert asked == ["MainThread", "handlers", "handlers"]
    assert len(queue.tasks()) == 1


def test_the_worker_waits_for_free_slots(queue: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes its wait again: a task to be retried is due before the present one ends."""
    monkeypatch.setattr(queue_lock, "HEARTBEAT_SECONDS", 3600.0)
    went_on, looked = threading.Event(), threading.Event()

    class Watched(MemoryStore):
        def take(self, *args: Any) -> Iterator[Task]:
            if threading.current_thread() is not threading.main_thread():
                went_on.set()
            elif went_on.is_set():
                looked.set()
            return super().take(*args)

    def handler(task: Task, context: Context) -> None:
        if task.id == first.id:
            with worker._duty:  # the worker waits
                queue.add(number=2)
            raise Retry(7, "not now")
        assert looked.wait(PATIENCE)

    first, store = queue.add(number=1), Watched(queue.memory)
    store.changes = store.changes._replace(rescan_seconds=3600.0)
    worker = queue.worker({"job": handler}, store=store, concurrency=2)
    run = worker.process_all(until_idle=True)
    assert (run.done, run.failed, queue.now(first).due) == (1, 1, NOW + 7)


def test_after_an_error_no_handlers_thread_goes_on(queue: WorkQueue) -> None:
    """Another handler that ends before the worker's own thread goes on claims no task."""
    _, _, third = queue.fill(3)
    asked: list[str] = []

    def gate(kind: str) -> tuple[str, None]:
        asked.append(kind)
        raise RuntimeError("no gate")

    worker = queue.worker({"job": does}, gate=gate, concurrency=2)
    claims = [Claim(task, NOW) for task in queue.store.take(NOW, "the worker", 2)]
    worker._slots.busy = 2
    worker._leases.claims.update(claims)
    worker._wakes_at = NOW + 30  # it waits
    for claim in claims:
        worker._go_on(FinishedTask(claim, None))
    assert asked == ["job"]
    assert queue.tasks() == {claims[1].task.id: State.ACTIVE, third.id: State.PENDING}


def test_a_handler_that_ends_after_its_worker_changes_nothing(queue: WorkQueue) -> None:
    """The outcome of a handler left behind by a failed run is not stored, nor anything claimed."""
    queue.fill(2)
    event, written = threading.Event(), iter([None])  # before the handler starts; then it fails
    with pytest.raises(StopIteration):
        queue.worker({"job": waits_for(event)}, write_log=lambda: next(written)).process_all()
    event.set()
    for thread in threading.enumerate():
        if thread.name == "handlers":
            thread.join(PATIENCE)
    assert sorted(queue.states()) == [State.ACTIVE, State.PENDING]


def test_a_task_that_succeeds_leaves_the_queue(queue: WorkQueue) -> None:
    """The handler gets it as claimed; then it is gone, counted, logged in the contract's words."""
    seen: list[tuple[Task, Task]] = []
    task = queue.add(payload="/some/where")
    handled: dict[str, Handler] = {"job": lambda task, _: seen.append((task, queue.now(task)))}
    run = queue.worker(handled).process_next()
    ((given, stored),) = seen
    assert given == stored
    assert (given.state, given.payload) == (State.ACTIVE, "/some/where")
    assert given.lease is not None and given.lease.owner == "the worker"
    assert (queue.tasks(), run) == ({}, WorkerResult(done=1, failed=0))
    assert queue.tallies == {"processed_total": 1}
    assert queue.log == [
        ("INFO", f"Processing task: {task.id} (job: job 1)"),
        ("INFO", "Executing: job 1"),
        ("SUCCESS", f"Task completed: {task.id} (job)"),
    ]


@each(("changes", "wait"), [
    ({}, ", waited 42.5s"),
    ({"due": NOW + 40.0}, ", waited 2.5s"),
    ({"due": NOW + 40.0, "attempts": 2, "error": "busy"}, ", waited 2.5s"),
    ({"attempts": 1, "error": "busy"}, ""),
    ({"error": "busy"}, ""),
])  # fmt: skip
def test_a_start_logs_how_long_the_task_was_due(changes: dict[str, Any], wait: str) -> None:
    """Where ids have no time, the seconds since it was due; none if it ran before and was reset."""
    queue = WorkQueue()
    task = queue.add(**changes)
    queue.clock.now = NOW + 42.5
    queue.worker({"job": does}, logs_waits=True).process_next()
    assert queue.logged("Processing") == [f"Processing task: {task.id} (job: job 1){wait}"]


@pytest.mark.parametrize(
    ("policy", "waits"), [(contract_retries(), [60, 120, 240]), (shipped_retries(), [60, 120])]
)
def test_a_task_that_fails_waits_longer_each_time_and_is_given_up(
    queue: WorkQueue, policy: RetryPolicy, waits: list[int]
) -> None:
    """Failures wait as the policy says; the one after the last wait buries. Each counts once."""
    task, failures = queue.add(), len(waits) + 1
    worker = queue.worker({"job": fails(Failed("not now"))}, retry=policy)
    for n, wait in enumerate(waits, 1):
        assert worker.process_next().failed == n
        now = queue.now(task)
        assert (now.state, now.attempts, now.error) == (State.PENDING, n, "not now")
        assert now.due == queue.clock.now + wait
        assert worker.process_next().failed == n  # not due: passed over
        queue.clock.now += wait
    worker.process_next()
    dead = queue.now(task)
    assert (dead.state, dead.attempts, dead.error, dead.lease) == (State.DEAD, 3, "not now", None)
    counted = {"failed_total": failures, "retries_total": len(waits), "dlq_total": 1}
    assert queue.tallies == counted
    retries = [f"(attempt {n}/{failures}), retry in {wait}s" for n, wait in enumerate(waits, 1)]
    assert queue.logged(f"Task {task.id} ") == [
        *(f"Task {task.id} failed {retry}" for retry in retries),
        f"Task {task.id} exhausted retries ({failures}/{failures}), moving to dead",
    ]


NO, SLOW, NO_TOKEN = "no such list", "slow down", "no token for $here"
LATER, NOT_YET = "waits: slow down", "waits: no token for _here"
GIVEN_UP, EXHAUSTED = "cannot succeed, moving to dead", "exhausted retries (4/4), moving to dead"
RETRIED = "failed (attempt 1/4), retry in {}s"
ENDS: dict[str, tuple[BaseException | None, int, State, float, int, str, str]] = {
    "fatal": (Fatal(NO), 0, State.DEAD, 0, 0, NO, GIVEN_UP),
    "chosen wait": (Retry(7, SLOW), 0, State.PENDING, 7, 1, SLOW, RETRIED.format(7)),
    "fourth failure": (Retry(7, SLOW), 3, State.DEAD, 0, 3, SLOW, EXHAUSTED),
    "not begun": (Postponed(NOW + 90, NO_TOKEN), 0, State.PENDING, 90, 0, NOT_YET, NOT_YET),
    "due before now": (Postponed(0.0, SLOW), 0, State.PENDING, 1, 0, LATER, LATER),
}
"""Raised, attempts before; state, seconds to wait, attempts, stored error, line of the log."""
MADE_PLAIN: dict[str, tuple[BaseException | None, str]] = {
    "foreign text": (Failed("admin@example.net said $no\n"), "admin_example.net said _no"),
    "any error": (ValueError("bad value"), "ValueError: bad value"),
    "of the system": (OSError(28, "No space left"), "OSError: _Errno 28_ No space left"),
    "exit": (SystemExit(3), "the handler raised SystemExit: 3"),
    "interrupt": (KeyboardInterrupt(), "the handler raised KeyboardInterrupt"),
    "long": (Failed("x" * 500), "x" * 200),
    "empty": (Failed(""), ""),
    "no handler": (None, "Unknown task type: job"),
}
"""What fails an attempt, which is retried after a minute, and the stored error."""
ENDS |= {
    name: (error, 0, State.PENDING, 60, 1, stored, RETRIED.format(60))
    for name, (error, stored) in MADE_PLAIN.items()
}


@pytest.mark.parametrize("end", ENDS)
def test_an_error_of_a_handler_decides_what_becomes_of_its_task(queue: WorkQueue, end: str) -> None:
    """Any exception fails the task in plain text; what was not begun is no attempt or failure."""
    error, before, state, wait, attempts, stored, line = ENDS[end]
    task, other = queue.add(attempts=before), queue.add("other", 2)
    handled = {"other": does} | ({"job": fails(error)} if error else {})
    run = queue.worker(handled).process_all(until_idle=True)
    now, later = queue.now(task), isinstance(error, Postponed)
    assert (now.state, now.attempts, now.error, now.lease) == (state, attempts, stored, None)
    assert state is State.DEAD or now.due == NOW + wait
    assert other.id not in queue.tasks()
    assert (run.done, run.failed) == (1, not later)
    counted = "dlq_total" if state is State.DEAD else "retries_total"
    failures = {} if later else {"failed_total": 1, counted: 1}
    assert queue.tallies == {"processed_total": 1, **failures}
    assert queue.logged(task.id)[-1] == f"Task {task.id} {line}"
    if later:
        assert (run.refused, run.next_due) == ({"job": stored[7:]}, NOW + wait)


def test_a_task_that_left_meanwhile_is_left_alone(queue: WorkQueue) -> None:
    """A task that is not as it was claimed any more has no outcome; only the run reports it."""

    def handler(task: Task, context: Context) -> None:
        queue.store.swap(task, verbs.give_up_task(task, "another's word", 1))

    task = queue.add()
    run = queue.worker({"job": handler}).process_next()
    assert (queue.now(task).error, queue.tallies) == ("another's word", {})
    assert (run.done, run.failed, run.gone) == (0, 0, 1)
    assert queue.logged("alone") == [f"Task {task.id} is not where it was claimed; left alone"]


# ---- what it takes


def test_one_run_does_one_task_and_until_idle_all(queue: WorkQueue) -> None:
    """A timer's run does the first one at most; until idle all that is due, also what was added."""
    later, (_, second, third) = queue.add(number=9, due=NOW + 1), queue.fill(3)

    def handler(task: Task, context: Context) -> None:
        if task.id == third.id:
            queue.add(number=4)

    assert queue.worker({"job": handler}, concurrency=4).process_next().done == 1
    assert sorted(queue.tasks()) == [second.id, third.id, later.id]
    assert queue.run({"job": handler}).done == 3
    assert queue.tasks() == {later.id: State.PENDING}


class Together:
    """A handler that counts how many tasks of a kind run side by side, at most."""

    def __init__(self, parties: int, alone: str = "") -> None:
        self.most = Counter[str]()
        self._running, self._guard = Counter[str](), threading.Lock()
        self._barrier, self._alone = threading.Barrier(parties), alone

    def __call__(self, task: Task, context: Context) -> None:
        """Wait until so many run; of the kind that runs alone only the first task waits."""
        with self._guard:
            self._running[task.kind] += 1
            self.most[task.kind] = max(self.most[task.kind], self._running[task.kind])
        if task.kind != self._alone or task.id.endswith("1"):
            self._barrier.wait(PATIENCE)
        with self._guard:
            self._running[task.kind] -= 1


def test_a_contract_kind_runs_alone_and_by_its_handler_only() -> None:
    """One of its tasks runs beside others; without its handler it waits and holds up no other."""
    for kind in sorted(handlers.CONTRACT_KINDS):
        queue, handler = WorkQueue(), Together(4, alone=kind)
        for name in (kind, "zebra"):
            queue.fill(3, name)
        run = queue.run({kind: handler, "zebra": handler}, concurrency=4)
        assert (run.done, run.failed, handler.most) == (6, 0, {kind: 1, "zebra": 3})
    for kind in sorted(handlers.CONTRACT_KINDS):
        queue = WorkQueue()
        waiting, _ = queue.add(kind), queue.add("zebra")
        run = queue.run({"zebra": does})
        assert queue.now(waiting) == waiting and queue.tasks() == {waiting.id: State.PENDING}
        assert run.refused == {kind: "no handler configured"}


def test_no_more_run_than_there_is_room_for() -> None:
    """Tasks run side by side up to the concurrency and the slots of their kind, never beyond."""
    for concurrency, slots, room in ((3, {}, 3), (4, {"job": 2}, 2)):
        queue, handler = WorkQueue(), Together(room)
        queue.fill(3 * room)
        run = queue.run({"job": handler}, concurrency=concurrency, slots=slots)
        assert (run.done, run.failed, handler.most) == (3 * room, 0, {"job": room})


def test_log_lines_are_written_before_the_handler_starts(queue: WorkQueue) -> None:
    """Lines and counts that are kept back are written before each handler, and at the end."""
    lines, written, counts = list[str](), list[str](), list[str]()

    def write() -> None:
        written.extend(lines)
        lines.clear()

    queue.fill(2)
    worker = queue.worker(
        {"job": lambda task, context: None},
        log=lambda level, text: lines.append(text),
        write_log=write,
        write_counts=lambda: counts.append(written[-1]),
    )
    start, started = worker._threads.start, list[str]()

    def start_recorded(job: Any, busy: int) -> None:
        assert lines == []
        started.append(written[-1])
        start(job, busy)

    worker._threads.start = start_recorded  # type: ignore[method-assign]
    assert worker.process_all(until_idle=True).done == 2
    assert started == [f"Executing: job {number}" for number in (1, 2)]
    assert (written[-1], lines) == (f"Task completed: {queue_id(2)} (job)", [])
    assert counts[-1] == written[-1]


# ---- tokens, and what is not begun


def test_an_empty_bucket_holds_up_only_its_kind(queue: WorkQueue, tmp_path: Path) -> None:
    """When one kind has no token left, its tasks wait for one, and those of other kinds go on."""
    rates = {"mail": Rate(per_hour=60, burst=1)}
    limits = TokenBuckets(str(tmp_path / "buckets"), rates, queue.clock)
    (_, second), _ = queue.fill(2, "mail"), queue.fill(2, "zebra")
    worker = queue.worker({"mail": does, "zebra": does}, limits=limits)
    run = worker.process_all(until_idle=True)
    assert (run.done, list(queue.tasks())) == (3, [second.id])
    assert (run.refused, run.token_at) == ({"mail": "no token"}, NOW + 60)
    queue.clock.now += 60
    assert (worker.process_all(until_idle=True).done, queue.tasks()) == (4, {})


def contested(error: Exception | None = None) -> Any:
    """Tokens of which another process takes the last one after it was seen."""
    left = [1]

    def spend(kind: str) -> bool:
        left.clear()
        if error is not None:
            raise error
        return False

    looks = {"is_limited": lambda kind: True, "ready": lambda kind: bool(left)}
    return SimpleNamespace(spend=spend, token_at=lambda kind: NOW + 60, **looks)


def test_a_token_lost_to_a_rival_costs_no_attempt(queue: WorkQueue) -> None:
    """Nor buckets that cannot be written: the task is given back, and its handler never ran."""
    task, handled = queue.add(), {"job": fails(Failed("ran"))}
    run = queue.run(handled, limits=contested())
    assert (run.done, run.failed, queue.is_unchanged(task)) == (0, 0, True)
    full = contested(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        queue.worker(handled, limits=full).process_next()
    assert queue.is_unchanged(task)


def test_the_error_of_an_attempt_is_not_lost_by_waiting(queue: WorkQueue) -> None:
    """The reason why a task waits replaces an earlier such reason, never a real error."""
    real = "rejected_550: no such user"
    for number, before, after in ((1, "waits: no host", "waits: no token"), (2, real, real)):
        task = queue.add(number=number, error=before, attempts=2)
        queue.worker({"job": fails(Postponed(NOW + 90, "no token"))}).process_next()
        assert (queue.now(task).error, queue.now(task).attempts) == (after, 2)


def test_a_run_for_one_task_goes_on_to_one_that_can_be_done(queue: WorkQueue) -> None:
    """A task that a timer's run gives back was not eligible: it does the next that is, no more."""
    waiting, (_, left) = queue.fill(2, "mail"), queue.fill(2, "zebra")
    handled = {"mail": fails(Postponed(NOW + 60, "no token")), "zebra": does}
    run = queue.worker(handled).process_next()
    assert (run.done, run.failed, run.refused) == (1, 0, {"mail": "no token"})
    assert [queue.now(task).due for task in waiting] == [NOW + 60, NOW + 60]
    assert queue.now(left) == left


def test_a_shut_gate_keeps_its_kind_and_no_other(queue: WorkQueue) -> None:
    """Its tasks stay as they are, others are done; it is asked once for each scan."""
    waiting, behind = queue.fill(3, "mail"), queue.add("zebra")
    asked = Counter[str]()

    def gate(kind: str) -> tuple[str, float | None]:
        asked[kind] += 1
        return "no mail transport is set up" if kind == "mail" else "", None

    run = queue.worker({"mail": does, "zebra": does}, gate=gate).process_next()
    assert [queue.now(task) for task in waiting] == waiting
    assert behind.id not in queue.tasks()
    assert (run.refused, run.token_at) == ({"mail": "no mail transport is set up"}, None)
    assert asked == {"mail": 1, "zebra": 1}


def test_a_gate_that_says_when_it_opens_is_asked_again_then(queue: WorkQueue) -> None:
    """A worker scans again at that moment, and not later."""
    queue.add("mail")
    answers = [("no token for transport curl", NOW), ("", None)]
    shut = queue.run({"mail": does}, gate=lambda kind: answers[0])
    handled: dict[str, Handler] = {"mail": lambda task, context: worker.stop()}
    worker: Worker = queue.worker(handled, gate=lambda kind: answers.pop(0))
    runs = [(run.done, run.token_at) for run in (shut, worker.process_all())]
    assert runs == [(0, NOW), (1, None)]


# ---- the claims of dead workers, and the lock


def test_orphans_are_rescued_once(queue: WorkQueue, tmp_path: Path) -> None:
    """A task left claimed is failed once by the next worker, and waits like any; the fourth time it
    is dead. The error names the process from which the lock was taken over."""
    task, last = queue.add(), queue.add(number=2, attempts=3)
    list(queue.store.take(NOW, "the dead", 2))
    runs = [queue.worker({"job": does}).process_next().done for _ in "12"]
    now = queue.now(task)
    assert (runs, now.state, now.attempts, now.due) == ([0, 0], State.PENDING, 1, NOW + 60)
    assert now.error.startswith("worker ended while it ran: ")
    assert len(queue.logged("Moving orphaned work task back to pending: ")) == 1
    assert (queue.now(last).state, queue.tallies["dlq_total"]) == (State.DEAD, 1)
    assert queue.logged("moving") == [f"Task {last.id} exhausted retries (4/4), moving to dead"]
    third, lock_file = queue.add(number=3), tmp_path / "queue.lock"
    list(queue.store.take(NOW, "the dead", 1))
    lock_file.write_text("4194303\n0\n")
    with queue_lock.acquire_lock(str(lock_file), 1200.0) as lock:
        queue.worker({"job": does}, lock=lock).process_next()
    assert queue.now(third).error == "worker ended while it ran: PID 4194303 is gone"


def test_a_worker_that_lost_its_lock_touches_nothing(queue: WorkQueue, tmp_path: Path) -> None:
    """When the lock was taken away while a handler ran, the outcome is not stored: the holder of
    the lock decides now. The worker ends with an alert; without its lock it claims nothing."""
    path, (first, second) = tmp_path / "queue.lock", queue.fill(2)

    def handler(task: Task, context: Context) -> None:
        path.unlink()
        path.write_text("4711\n0\n")

    with queue_lock.acquire_lock(str(path), 1200.0) as lock:
        run, again = (queue.run({"job": handle}, lock=lock) for handle in (handler, does))
    assert queue.tasks() == {first.id: State.ACTIVE, second.id: State.PENDING}
    assert "replaced or removed" in run.lost and again.lost
    assert (run.done, run.failed, again.done, queue.tallies) == (0, 0, 0, {})
    assert [level for level, text in queue.log if "stopping" in text] == ["ALERT", "ALERT"]
    assert path.read_text() == "4711\n0\n"


def test_the_lock_is_renewed_while_it_works(queue: WorkQueue, tmp_path: Path) -> None:
    """Between its tasks; handlers get the lock's descriptor for the programs that they start."""
    path, given = tmp_path / "queue.lock", list[tuple[str, tuple[int, ...]]]()

    def handler(task: Task, context: Context) -> None:
        given.append((path.read_text().split("\n")[1], context.kept_fds))
        queue.clock.now += queue_lock.HEARTBEAT_SECONDS

    queue.fill(3)
    with queue_lock.acquire_lock(str(path), 1200.0, queue.clock) as lock:
        queue.run({"job": handler}, lock=lock)
        times = [str(int(NOW + n * queue_lock.HEARTBEAT_SECONDS)) for n in range(3)]
        assert given == [(time, (lock.fd,)) for time in times]


def test_a_hanging_handler_lets_the_lock_grow_old(queue: WorkQueue, tmp_path: Path) -> None:
    """While a handler is long past its timeout, its worker does not renew the lock any more."""
    path, release, stamps = tmp_path / "queue.lock", threading.Event(), list[str]()

    def passes(task: Task, context: Context) -> None:
        queue.clock.now += 5 + HANDLER_GRACE_SECONDS + queue_lock.HEARTBEAT_SECONDS
        stamps.append(path.read_text().split("\n")[1])
        if len(stamps) == 3:
            release.set()

    queue.add("hanging")
    queue.fill(3, "passing")
    handled: dict[str, Handler] = {"hanging": waits_for(release), "passing": passes}
    limits: dict[str, Any] = {"slots": {"passing": 1}, "timeouts": {"hanging": 5.0}}
    with queue_lock.acquire_lock(str(path), 1200.0, queue.clock) as lock:
        assert queue.run(handled, lock=lock, concurrency=2, **limits).done == 4
    assert stamps == [str(int(NOW))] * 3


class LeasedStore(MemoryStore):
    """Claims that last for 300 s; it reports what was renewed, and refuses it if told to."""

    def __init__(self, memory: MemoryTasks) -> None:
        super().__init__(memory, lease_seconds=300.0)
        self.asked: list[tuple[list[str], float]] = []
        self.refuses = ""
        """What it refuses: "all" leases by an error, or "each" by an outcome."""
        self.is_renewed = threading.Event()

    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        """Extend the leases; the event is set when the worker has seen all outcomes."""
        renewed = list(tasks)
        self.asked.append(([task.kind for task in renewed], until))
        try:
            if self.refuses == "all":
                raise Unavailable("locked")
            if self.refuses == "each":
                yield from (Outcome(Move(t, t), error=Unavailable("cut")) for t in renewed)
                return
            yield from super().renew(renewed, until)
        finally:
            self.is_renewed.set()


def pass_a_third(queue: WorkQueue, worker: Worker, store: LeasedStore) -> None:
    """Let a third of a lease pass, and wait for the worker to renew."""
    store.is_renewed.clear()
    queue.clock.now += 100.0
    worker.wake()
    assert store.is_renewed.wait(PATIENCE)


def test_a_lease_is_renewed_while_its_task_runs(queue: WorkQueue) -> None:
    """At each third of a lease it is extended by its whole length, as the handler sees; if the
    store cannot, or cannot tell, it is asked again a third later."""
    store = LeasedStore(queue.memory)

    def handler(task: Task, context: Context) -> None:
        for store.refuses in ("", "all", "each", ""):
            pass_a_third(queue, worker, store)
            assert context.current_claim(task) == queue.now(task)
        assert not context.is_cancelled()

    task = queue.add()
    worker = queue.worker({"job": handler}, store=store)
    assert worker.process_next().done == 1
    assert store.asked == [(["job"], NOW + seconds) for seconds in (400, 500, 600, 700)]
    assert queue.logged("cannot be extended") == [
        "Leases cannot be extended: locked",
        f"Lease of {task.id} cannot be extended: cut",
    ]
    assert queue.tasks() == {}


@pytest.mark.parametrize("error", [None, Failed("no"), Postponed(0.0, "not now")])
def test_a_lost_lease_cancels_its_handler(queue: WorkQueue, error: Exception | None) -> None:
    """However that ends, the task stays as the other process left it, and counts only as gone."""
    store, cancelled = LeasedStore(queue.memory), list[bool]()

    def handler(task: Task, context: Context) -> None:
        cancelled.append(context.is_cancelled())
        queue.store.swap(queue.now(task), verbs.give_up_task(task, "another's word", 1))
        pass_a_third(queue, worker, store)
        cancelled.append(context.is_cancelled())
        if error is not None:
            raise error

    task = queue.add()
    worker = queue.worker({"job": handler}, store=store)
    run = worker.process_next()
    assert cancelled == [False, True]
    assert queue.now(task).error == "another's word"
    assert (run.done, run.failed, run.gone, queue.tallies) == (0, 0, 1, {})
    why = "another process changed the task; cancelled, its outcome is not stored"
    assert queue.logged("lost") == [f"Lease of {task.id} lost: {why}"]


def test_a_hanging_handler_loses_its_lease(queue: WorkQueue) -> None:
    """A lease whose handler is long past its timeout is not extended, those of others are."""
    store, release = LeasedStore(queue.memory), threading.Event()

    def passes(task: Task, context: Context) -> None:
        pass_a_third(queue, worker, store)
        release.set()

    for kind in ("hanging", "passing"):
        queue.add(kind)
    handled: dict[str, Handler] = {"hanging": waits_for(release), "passing": passes}
    worker = queue.worker(handled, store=store, concurrency=2, timeouts={"hanging": 5.0})
    assert worker.process_all(until_idle=True).done == 2
    assert store.asked == [(["passing"], NOW + 400)]


# ---- stopping, waiting


def test_stop_finishes_what_runs_and_a_second_stop_cancels_it(queue: WorkQueue) -> None:
    """A stopped worker claims no more and ends with its tasks; at a second stop its handlers end
    now, which counts as an attempt. Stopped before a claim it does nothing."""

    def handler(task: Task, context: Context) -> None:
        worker.stop()
        assert not context.is_cancelled()
        if task is not first:
            worker.stop()
            raise Failed("stopped" if context.is_cancelled() else "not cancelled")

    first, second = queue.fill(2)
    worker = queue.worker({"job": does})
    worker.stop()
    assert worker.process_all() == WorkerResult()
    assert queue.tasks() == {first.id: State.PENDING, second.id: State.PENDING}
    worker = queue.worker({"job": lambda task, context: worker.stop()})
    assert worker.process_all() == WorkerResult(done=1)
    assert queue.tasks() == {second.id: State.PENDING}
    worker = queue.worker({"job": handler})
    run, now = worker.process_all(), queue.now(second)
    assert (now.state, now.error, now.attempts) == (State.PENDING, "stopped", 1)
    assert (run.done, run.failed) == (0, 1)


@contextmanager
def started(worker: Worker) -> Iterator[list[WorkerResult]]:
    """A worker works on a thread of its own until the block ends; its runs."""
    runs: list[WorkerResult] = []
    thread = threading.Thread(target=lambda: runs.append(worker.process_all()))
    thread.start()
    yield runs
    worker.stop()
    thread.join(PATIENCE)


def on_disk(folder: Path, clock: Callable[[], float]) -> NftbanStore:
    """A store on real files, with one pending task."""
    store = NftbanStore(new_spool(folder), clock)
    store.swap(None, Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW))
    return store


def test_an_unreachable_store_is_waited_for(queue: WorkQueue, tmp_path: Path) -> None:
    """A patient worker logs that its store is away, asks again when it said that it would, however
    often it is notified, and goes on when it is back. A timer's run ends with that error."""
    store, pending = on_disk(tmp_path, queue.clock), tmp_path / "queue" / "pending"
    away, done = threading.Event(), threading.Event()

    def log(*line: str) -> None:
        queue.log.append((line[0], line[1]))
        if "cannot be reached" in line[1]:
            away.set()

    # Housekeeping comes after the scan for orphans and before the first claim.
    vanish = partial(pending.rename, tmp_path / "away")
    handled: dict[str, Handler] = {"job": lambda task, context: done.set()}
    worker = queue.worker(handled, store=store, apply_retention=vanish, log=log)
    with started(worker) as runs:
        assert away.wait(PATIENCE)
        worker.wake()
        worker.wake()
        with pytest.raises(Unavailable):
            WorkQueue().worker(handled, store=store).process_next()
        (tmp_path / "away").rename(pending)
        worker.wake()
        assert not done.is_set()
        queue.clock.now += 60
        worker.wake()
        assert done.wait(PATIENCE)
    assert runs[0].done == 1
    (line,) = queue.logged("Queue cannot be reached")
    assert line.endswith(", retry in 60s") and queue.logged("Queue is reached again")


class Refusing(MemoryStore):
    """A store whose disk fails: it refuses claims, scans or outcomes, and counts how often."""

    refuses: Collection[str] = ()
    asked = 0
    refused: Callable[[], None] = staticmethod(lambda: None)
    """Called at each refusal."""

    def _refuse(self, what: str) -> None:
        if what in self.refuses:
            self.asked += 1
            self.refused()
            raise Unavailable("Input/output error")

    def scan(self, *args: Any) -> Iterator[Task | Missing | Problem]:
        """Refused, or as always."""
        self._refuse("look")
        return super().scan(*args)

    def take(self, *args: Any) -> Iterator[Task]:
        """Refused, or as always."""
        self._refuse("take")
        return super().take(*args)

    def _swap(self, move: Move) -> str:
        self._refuse(move.old.id if move.old is not None else "")
        return super()._swap(move)


WAITS = [60, 120, 240, 480, 900, 900]
"""Seconds of rest between the attempts at a disk that goes on failing."""


@pytest.mark.parametrize("what", ["take", "look"])
def test_a_failing_disk_is_asked_less_and_less_often(queue: WorkQueue, what: str) -> None:
    """No scan before its time, each refusal logged; after a good round the waits begin again."""
    store = Refusing(queue.memory)
    worker = queue.worker({"job": does}, store=store)
    queue.clock.now += RESCUE_INTERVAL_SECONDS  # then it scans for lapsed claims as well
    round_of = partial(worker._try_claim, 1, patient=True, rests=True)

    def refused(waits: Sequence[float]) -> None:
        store.refuses, store.asked = {what}, 0
        for times, wait in enumerate(waits, 1):
            for seconds in (wait - 1, 1):
                assert (round_of(), store.asked) == (0, times)
                queue.clock.now += seconds

    refused(WAITS)
    store.refuses = ()
    queue.add()
    assert round_of() == 1
    queue.clock.now += RESCUE_INTERVAL_SECONDS
    refused(WAITS[:2])
    lines = queue.logged("Queue cannot be reached: Input/output")
    assert [line.rpartition(" ")[2] for line in lines] == [f"{n}s" for n in [*WAITS, *WAITS[:2]]]
    assert len(queue.logged("Queue is reached again")) == 1


def test_a_clock_set_back_keeps_no_worker_waiting(queue: WorkQueue) -> None:
    """A store is asked again in a minute; a run until nothing is due reports that it was not."""
    store = Refusing(queue.memory)
    store.refuses = {"take"}
    worker = queue.worker({"job": does}, store=store)
    worker._try_claim(1, patient=True, rests=True)
    queue.clock.now -= 86400
    worker._try_claim(1, patient=True, rests=True)
    assert store.asked == 2
    assert queue.run({"job": does}, store=store).unreachable == "Input/output error"


def test_a_claim_refused_once_ends_no_run_that_others_go_on_with(queue: WorkQueue) -> None:
    """Until nothing is due: when no task runs any more it scans again, after any refusal."""
    store, refused = Refusing(queue.memory), threading.Event()
    first, second, _ = queue.fill(3)

    def handler(task: Task, context: Context) -> None:
        if task.id == first.id:
            queue.clock.now += RESCAN_INTERVAL_SECONDS  # so that the next claim asks again
            store.refuses, store.refused = {"take"}, refused.set
        elif task.id == second.id:
            assert refused.wait(PATIENCE)
            store.refuses = ()

    run = queue.run({"job": handler}, store=store, concurrency=2)
    assert (run.done, run.unreachable, store.asked) == (3, "", 1)


def owing(queue: WorkQueue, count: int) -> tuple[Refusing, Worker, list[Task]]:
    """A worker that owes a store the outcomes of so many tasks that are refused; and those."""
    store, tasks = Refusing(queue.memory), queue.fill(count)
    worker = queue.worker({"job": does}, store=store)
    store.refuses = {task.id for task in tasks}
    for task in store.take(NOW, "the worker", count):
        worker._outcomes.store([Owed(Claim(task, NOW), None, None)], worker._outcomes.swap)
    worker._outcomes.settle_owed(forced=False, logs=True)
    return store, worker, tasks


def test_each_outcome_is_tried_again_for_itself(queue: WorkQueue) -> None:
    """Immediately, then after 60, 120, 240 s; one that is refused for ever holds up no other."""
    store, worker, (first, _) = owing(queue, 2)
    assert store.asked == 4  # both, and both immediately again
    store.refuses = {first.id}
    for seconds, asked, left in ((59, 4, 2), (1, 5, 1), (119, 5, 1), (1, 6, 1)):
        queue.clock.now += seconds
        worker._outcomes.settle_owed(forced=False, logs=True)
        assert (store.asked, len(queue.tasks())) == (asked, left)
    assert list(queue.tasks()) == [first.id]
    waits = [line.rpartition(" ")[2] for line in queue.logged(f"Outcome of {first.id}")]
    assert waits == ["error", "60s", "120s", "240s"]


def test_outcomes_of_tasks_that_end_together_are_stored_together(
    queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one group commit; a refused one stays owed, one that another process moved is left."""
    store, groups = Refusing(queue.memory), list[list[str]]()
    worker, swap_all = queue.worker({"job": does}, store=store), store.swap_all
    queue.fill(4)
    done, refused, moved, failed = store.take(NOW, "the worker", 4)
    store.refuses = {refused.id}
    queue.store.swap(moved, None)

    def swaps(moves: Iterable[Move]) -> Iterator[Outcome]:
        group = list(moves)
        groups.append([move.old.id for move in group if move.old is not None])
        return swap_all(group)

    monkeypatch.setattr(store, "swap_all", swaps)
    endings = [(task, None) for task in (done, refused, moved)] + [(failed, Failed("no"))]
    worker._slots.busy = len(endings)
    worker._settle([FinishedTask(Claim(task, NOW), failure) for task, failure in endings])
    assert groups == [[done.id, refused.id, moved.id, failed.id]]
    assert queue.tasks() == {refused.id: State.ACTIVE, failed.id: State.PENDING}
    assert [one.claim.task.id for one in worker._outcomes.owed] == [refused.id]
    assert (worker._outcomes.done, worker._outcomes.gone, worker._outcomes.failed) == (1, 1, 1)


def test_a_worker_that_ends_tries_its_outcomes_once_more(queue: WorkQueue) -> None:
    """However long one had to wait: else its task would be done again. So does a run until idle."""
    store, worker, _ = owing(queue, 1)
    store.refuses = ()
    worker.stop()
    worker._work(limit=None, until_idle=False)
    assert queue.tasks() == {}
    first, _, third = queue.fill(3)
    store.refuses, store.asked = {first.id}, 0

    def handler(task: Task, context: Context) -> None:
        if task.id == third.id:
            store.refuses = ()

    run = queue.run({"job": handler}, store=store)
    assert (run.done, run.owed, queue.tasks()) == (3, 0, {})
    assert store.asked == 2  # immediately, and once more; then it rested until the end


def test_an_outcome_that_cannot_be_stored_is_owed(queue: WorkQueue) -> None:
    """Without its outcome stored, a task stays claimed and counts neither as done nor as failed."""
    store, task = Refusing(queue.memory), queue.add()
    store.refuses = {task.id}
    run = queue.worker({"job": does}, store=store).process_next()
    assert (run.done, run.failed, run.owed, queue.tallies) == (0, 0, 1, {})
    assert (queue.states(), len(queue.logged("cannot be stored"))) == ([State.ACTIVE], 1)


def test_housekeeping_comes_once_a_run(queue: WorkQueue) -> None:
    """Each run looks once for tasks that have been dead for too long."""
    asked, tasks = list[str](), queue.fill(3)
    for _ in range(2):
        queue.worker({"job": does}, apply_retention=partial(asked.append, "retire")).process_next()
    assert asked == ["retire", "retire"]
    assert queue.tasks() == {tasks[2].id: State.PENDING}


def test_a_kind_has_its_own_retry_policy(queue: WorkQueue) -> None:
    """It counts also for an attempt whose worker ended; other kinds have that of the queue."""
    policy = contract_retries()._replace(by_kind={"own": stepped([5, 7], limit=2)})
    own, other = queue.add("own", 1), queue.add("job", 2)
    for wait in (5, 7):
        queue.run(dict.fromkeys(("own", "job"), fails(Failed("no"))), retry=policy)
        assert queue.now(own).due == queue.clock.now + wait
        queue.clock.now += wait
    assert queue.now(other).due == NOW + 60
    (taken,) = queue.store.take(queue.clock.now, "killed", 1)
    queue.worker({}, retry=policy).rescue()
    assert (taken.id, queue.now(own).state) == (own.id, State.DEAD)


def test_a_row_is_named_once_the_store_has_the_outcome(queue: WorkQueue) -> None:
    """Of a task done or without hope; not of one retried, nor of one that another process took."""
    named: list[tuple[str, State | None]] = []

    def after(task: Task, row: str) -> None:
        named.append((row, queue.tasks().get(task.id)))

    def lose(task: Task, context: Context) -> object:
        queue.store.swap(queue.now(task), None)
        return HandlerResult(None, "lost")

    handled: dict[str, Handler] = {
        "done": lambda task, context: HandlerResult({"status": 200}, "done"),
        "fatal": fails(Fatal("[HTTP_404] no", row="fatal")),
        "kept": lambda task, context: HandlerResult(None, ""),
        "plain": lambda task, context: {"status": 200}, "fatal kept": fails(Fatal("no")),
        "failed": fails(Failed("no")), "lost": lose,
    }  # fmt: skip
    for number, kind in enumerate(handled):
        queue.add(kind, number)
    queue.run(handled, after_outcome=after)
    assert sorted(named) == [("done", None), ("fatal", State.DEAD)]


def test_a_task_has_its_own_retry_policy(queue: WorkQueue) -> None:
    """Its own number of attempts and delay count; without one, those of the configuration do."""
    own = retries_of(fixed(0.25, limit=1), is_exact=True)
    queue.store.claim_rules = ClaimRules(lambda task: own if task.kind == "own" else None)
    other, task = queue.add("job", 1), queue.add("own", 2)
    handled = dict.fromkeys(("own", "job"), fails(Failed("no")))
    queue.clock.now += 0.5
    queue.run(handled, store=queue.store)
    assert (queue.now(task).due, queue.now(task).attempts) == (queue.clock.now + 0.25, 1)
    assert queue.now(other).due == NOW + 60
    queue.clock.now += 1
    queue.run(handled, store=queue.store)
    assert (queue.now(task).state, queue.now(task).attempts) == (State.DEAD, 2)
    assert queue.logged(f"Task {task.id} exhausted retries (2/2)")


def gone_once(*tasks: Task) -> Callable[[Task], bytes]:
    """Read the data of tasks; of these ones the first time that they are gone."""
    changed = {task.id for task in tasks}

    def read(task: Task) -> bytes:
        if task.id in changed:
            changed.remove(task.id)
            raise Gone(task.id)
        return task.description.encode()

    return read


def test_a_handler_gets_the_data_of_its_kinds(queue: WorkQueue) -> None:
    """It is read before the handler starts; a task changed by then is given back and not run."""
    got: list[tuple[str, bytes | None]] = []

    def handler(task: Task, context: Context) -> None:
        got.append((task.kind, context.data))

    queue.store.claim_rules = ClaimRules(read_data=gone_once(queue.add("job", 2)))
    queue.add("other", 3)
    queue.run({"job": handler, "other": handler}, store=queue.store, data_kinds={"job"})
    assert sorted(got) == [("job", b"job 2"), ("other", None)]


def test_a_finished_task_stays_where_the_store_keeps_it(queue: WorkQueue) -> None:
    """A store with a state for finished tasks keeps them, with their attempt counted."""
    queue.store.claim_rules = ClaimRules(done_state=State.DONE)
    ending = Edge(frozenset({"attempts"}))
    queue.store.edges = {**queue.store.edges, (State.ACTIVE, State.DONE): ending}
    task = queue.add()
    queue.run({"job": does}, store=queue.store)
    assert (queue.now(task).state, queue.now(task).attempts) == (State.DONE, 1)


def test_a_store_that_returns_abandoned_tasks_needs_no_rescue(queue: WorkQueue) -> None:
    """No attempt is counted for a claim whose lease has ended: the store's own rules apply."""
    queue.store.claim_rules = ClaimRules(return_abandoned=lambda now: now + 60)
    queue.add()
    (claimed,) = queue.store.take(NOW, "another", 1)
    queue.clock.now += 10_000
    queue.worker({}, store=queue.store).rescue()
    assert queue.now(claimed).state is State.ACTIVE


def test_a_busy_worker_returns_tasks_of_ended_ones(queue: WorkQueue) -> None:
    """A worker whose only slot is taken looks for expired leases all the same, once a minute."""
    store = MemoryStore(queue.memory, lease_seconds=300.0, clock=queue.clock)
    other, own_task = queue.add(number=1), queue.add("ours", number=2)
    list(store.take(NOW, "an ended worker", 1, lambda kind, group: kind == "job"))
    returned = threading.Event()

    def handler(task: Task, context: Context) -> None:
        if task.id == own_task.id:
            queue.clock.now += 10_000
            worker.wake()
            assert returned.wait(PATIENCE)

    def log(level: str, text: str) -> None:
        if text == f"Moving orphaned work task back to pending: {other.id}":
            returned.set()

    worker = queue.worker({"ours": handler, "job": handler}, store=store, log=log)
    assert worker.process_all(until_idle=True).done == 1
    assert (returned.is_set(), queue.now(other).state) == (True, State.PENDING)


def test_an_idle_worker_with_a_lock_waits_for_work(
    queue: WorkQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives back abandoned tasks at its start only, so no rescue wakes it an hour later."""
    waits: list[float] = []

    class Events(SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            waits.append(timeout or 0.0)
            queue.clock.now += 3600
            if len(waits) == 3:
                worker.stop()
            return None

    monkeypatch.setattr("engine.work.worker.SimpleQueue", Events)
    with queue_lock.acquire_lock(str(tmp_path / "queue.lock"), 1e9, queue.clock) as lock:
        worker = queue.worker({"job": does}, lock=lock)
        worker.process_all()
    assert min(waits) > 1


class Fetching(MemoryStore):
    """Outcomes and the next claims are one step, which is counted; the first ones are refused."""

    def __init__(self, memory: MemoryTasks, refusals: int = 0) -> None:
        super().__init__(memory)
        self.refusals = refusals
        self.fetched: list[list[str]] = []
        self.stored: list[Task | None] = []
        self.claim_rules = ClaimRules(swap_and_take=self._swap_and_take)
        self.after: Callable[[], None] = lambda: None
        """Called after each step."""

    def _swap_and_take(self, moves: Sequence[Move], *ask: Any) -> tuple[list[Outcome], list[Task]]:
        outcomes, tasks = list(self.swap_all(moves)), list(self.take(*ask))
        self.fetched.append([task.id for task in tasks])
        self.stored += [move.new for move in moves]
        self.after()
        return outcomes, tasks

    def _swap(self, move: Move) -> str:
        if move.old is not None and self.refusals > 0:
            self.refusals -= 1
            raise Unavailable("not now")
        return super()._swap(move)


def test_a_task_that_was_fetched_before_a_stop_is_run(queue: WorkQueue) -> None:
    """It was claimed together with an outcome; no other is claimed, and none stays claimed."""
    store, tasks = Fetching(queue.memory), queue.fill(3)
    worker = queue.worker({"job": does}, store=store)
    store.after = worker.stop
    assert worker.process_all().done == 2
    assert [ident for fetched in store.fetched for ident in fetched] == [tasks[1].id]
    assert queue.states() == [State.PENDING]


def test_an_outcome_that_is_tried_again_fetches_no_task(queue: WorkQueue) -> None:
    """A task that came meanwhile is not claimed with it, as no handler would run it."""
    store, task = Fetching(queue.memory, refusals=2), queue.add(number=1)

    def log(level: str, text: str) -> None:
        if text.startswith(f"Task completed: {task.id}"):
            queue.add(number=2)

    assert queue.run({"job": does}, store=store, log=log).done == 1
    assert (store.fetched, queue.states()) == ([[]], [State.PENDING])


def test_a_task_given_back_fetches_no_other(queue: WorkQueue) -> None:
    """Its data is gone, maybe while others of its lot are not started: no more is claimed."""
    store = Fetching(queue.memory)
    store.claim_rules = store.claim_rules._replace(read_data=gone_once(queue.fill(3)[0]))
    assert queue.run({"job": does}, store=store, data_kinds={"job"}).done == 3
    assert store.stored == [None] * 3  # outcomes only


def test_fetched_tasks_keep_the_slots_of_their_kind(queue: WorkQueue) -> None:
    """If the store is asked for two before either starts, a kind with one slot gets one."""
    store, slots = Fetching(queue.memory), {"a": 1, "b": 1}
    worker = queue.worker({"a": does, "b": does}, store=store, concurrency=2, slots=slots)
    worker._fetches = True
    queue.add("b", 1)
    claimed = list(store.take(NOW, "the worker", 1))
    first, _ = queue.fill(2, "a")
    worker._slots.occupy("b")
    worker._settle([FinishedTask(Claim(task, NOW), None) for task in claimed])
    assert store.fetched == [[first.id]]


def test_fetched_tasks_that_cannot_start_are_given_back(queue: WorkQueue) -> None:
    """Two tasks are fetched, and the start of the first fails: neither stays claimed."""
    worker = queue.worker({"job": does}, limits=contested(OSError(28, "No space left")))
    queue.fill(2)
    worker.rescue()  # so that it is not due when the tasks start
    worker._claimer.fetched.extend(queue.store.take(NOW, "the worker", 2))
    assert worker._try_claim(2, patient=True, rests=True) == 0
    assert queue.states() == [State.PENDING] * 2


def test_a_single_run_fetches_no_other_task(queue: WorkQueue) -> None:
    """A timer's run of one task claims none together with its outcome."""
    queue.store.claim_rules = ClaimRules(swap_and_take=lambda *_: pytest.fail("claims another"))
    queue.fill(2)
    assert queue.worker({"job": does}, store=queue.store).process_next().done == 1
    assert queue.states() == [State.PENDING]


def test_a_store_that_claims_lots_gets_no_more_than_fit(queue: WorkQueue) -> None:
    """Asked for all of a lot before the first starts, no kind exceeds its slots, nor the worker."""
    asked, handler = list[int](), Together(3)

    class Lots(MemoryStore):
        claim_rules = ClaimRules(claims_lots=True)

        def take(self, now: float, owner: str, limit: int, *wants: Any) -> Iterator[Task]:
            asked.append(limit)
            number = 0
            while number < limit and wants[0]("job", ""):
                number += 1
            yield from list(super().take(now, owner, number))

    queue.fill(9)
    queue.run({"job": handler}, store=Lots(queue.memory), concurrency=5, slots={"job": 3})
    assert (handler.most, queue.tasks(), max(asked)) == ({"job": 3}, {}, 5)


def test_a_run_until_idle_ends_if_its_rate_limits_cannot_be_read() -> None:
    """As it does without tasks, with a line in the log; so has each limit that holds tasks back."""
    limit_ends, lines = [NOW + 5, NOW + 5, NOW + 9], list[str]()

    def end_of_limit() -> float:
        if limit_ends:
            return limit_ends.pop(0)
        raise Unavailable("gone")

    store = MemoryStore(MemoryTasks())
    store.claim_rules = ClaimRules(limit_ends=end_of_limit)
    claimer = Claimer(store, "me", Slots(1, (), WorkerServices(), lambda: NOW))
    limited = [claimer.is_limited(NOW, lambda level, text: lines.append(text)) for _ in range(4)]
    assert limited == [True, True, True, False]
    assert lines == [
        "A rate limit holds back tasks, next in 5.0s",
        "A rate limit holds back tasks, next in 9.0s",
        "Queue cannot be reached: gone",
    ]
