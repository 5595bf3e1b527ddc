"""Our worker on BullMQ's queues: it is woken by markers, and obeys limits, attempts and delays."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine import verbs
from engine.formats.bullmq import change_feed, moves
from engine.formats.bullmq.change_feed import MarkerWatch, client_name
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import BullmqSettings, JobLimit
from engine.formats.bullmq.row import BACKOFF_KEY, own_retry_policy
from engine.formats.bullmq.store import BullmqStore
from engine.locks import queue_lock
from engine.model import Move, State, Task
from engine.policy import retries_of
from engine.schedules import NO_RETRY
from engine.store import Gone, accept_all
from engine.work import claiming
from engine.work.handlers import Context, Failed, Fatal, Handler
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.bullmq_jobs import NOW, write_waiting
from tests.bullmq_workers import PATIENCE, until
from tests.engine.formats.bullmq.conftest import Opener
from tests.store_contents import found, naming

NEVER = 3600.0
CLOCK = time.time
UNUSED = retries_of(NO_RETRY)


class RunningWorker:
    """A worker of queues on a thread, and what happened: it never polls."""

    def __init__(self, store: BullmqStore, handled: Mapping[str, Handler], **options: Any) -> None:
        self.store = store
        services = WorkerServices(slots=dict.fromkeys(handled, 9), data_kinds=tuple(handled))
        self.worker = Worker(
            self.store, handled, UNUSED, owner="host-1", services=services, **options
        )
        self.woken = threading.Semaphore(0)
        self.resting = threading.Semaphore(0)
        """Released each time that a queue has no job that can be claimed."""
        self.watch = self.store.watch_markers("host-1", self._wake)
        self._start_rest = self.watch.start_rest
        self.watch.start_rest = self._note_rest  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.worker.process_all)

    def _note_rest(self, queue: str) -> None:
        self._start_rest(queue)
        self.resting.release()

    def _wake(self) -> None:
        self.woken.release()
        self.worker.wake()

    def __enter__(self) -> "RunningWorker":
        self.thread.start()
        assert self.resting.acquire(timeout=PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self.thread.join(PATIENCE)
        self.watch.stop()
        assert not self.thread.is_alive()


Start = Callable[..., RunningWorker]


@pytest.fixture
def start(open_bullmq: Opener, monkeypatch: MonkeyPatch) -> Start:
    """Make a worker for which no time passes that lets it look again by itself."""
    monkeypatch.setattr(queue_lock, "HEARTBEAT_SECONDS", NEVER)
    monkeypatch.setattr(change_feed, "MARKER_BLOCK_SECONDS", NEVER)
    monkeypatch.setattr(claiming, "RESCAN_INTERVAL_SECONDS", NEVER)

    def start(handled: Mapping[str, Handler], **options: Any) -> RunningWorker:
        settings = BullmqSettings(stalled_check=NEVER)
        store = open_bullmq(time.time, queues=tuple(handled), settings=settings)
        store.changes = store.changes._replace(rescan_seconds=NEVER)
        return RunningWorker(store, handled, **options)

    return start


class Recorder:
    """A handler that notes the queues of its jobs, and then returns or raises the same each time.
    It waits until it is let go, which it is from the start but for one test."""

    def __init__(self, result: object = None) -> None:
        self.result, self.kinds, self.go = result, list[str](), threading.Event()
        self._ran = threading.Semaphore(0)
        self.go.set()

    def __call__(self, task: Task, context: Context) -> object:
        """Handle a job."""
        self.go.wait(PATIENCE)
        self.kinds.append(task.kind)
        self._ran.release()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def wait(self, number: int = 1) -> None:
        """Wait until so many further jobs have run."""
        for _ in range(number):
            assert self._ran.acquire(timeout=PATIENCE)


def add(store: BullmqStore, **fields: Any) -> Task:
    """Add a job as `bullmq add` does."""
    return store.add_job(NewJob(**({"queue": "mails", "name": "report"} | fields)))


def write_jobs(client: Redis, number: int, queue: str = "mails") -> None:
    """Write so many waiting jobs."""
    for ident in range(number):
        write_waiting(client, f"j{ident}", queue)


def test_an_idle_worker_is_woken_by_the_marker(
    start: Start, client: Redis, store: BullmqStore
) -> None:
    """It looks by itself never again; the server lists it by the name of BullMQ's workers."""
    handler = Recorder()
    with start({"mails": handler}) as running:
        for _ in range(3):
            add(store)
            handler.wait()
            assert running.resting.acquire(timeout=PATIENCE)
        assert running.woken.acquire(timeout=PATIENCE)
        assert "bull:bWFpbHM=:w:host-1" in [str(each["name"]) for each in client.client_list()]
    assert client.zcard("bull:mails:completed") == 3


def test_delays_of_attempts_need_no_marker(start: Start, client: Redis, store: BullmqStore) -> None:
    """A job that fails runs again after its own delay, at most as often as its attempts allow."""
    data, contents = '{"to": "ann"}', list[bytes | None]()
    handler = Recorder(Failed("no server"))

    def noted(task: Task, context: Context) -> object:
        contents.append(context.data)
        return handler(task, context)

    options = {"attempts": 3, "backoff": {"type": "exponential", "delay": 20, "jitter": 0.5}}
    with start({"mails": noted}):
        task = add(store, data=data, options=options, delay=0.02)
        handler.wait(3)
    assert contents == [data.encode()] * 3
    job = client.hgetall(f"bull:{task.id.replace('/', ':')}")
    fields = [job[name] for name in ("atm", "ats", "failedReason", "pb")]
    assert fields == ["3", "3", "no server", "host-1"]
    assert client.zrange("bull:mails:failed", 0, -1) == ["1"]
    first, _, last = map(str, client.lrange("bull:mails:1:logs", 0, -1))
    assert " attempt 1 of 3 by host-1: failed: no server; next attempt " in first
    assert last.endswith(" attempt 3 of 3 by host-1: failed: no server; given up")


def calls_of(client: Redis) -> int:
    """Scripts that the server has run."""
    stats = client.info("commandstats")
    return sum(stats[name]["calls"] for name in stats if name.startswith("cmdstat_evalsha"))


@pytest.mark.parametrize("outcome", ["completed", "failed", "delayed"])
def test_an_outcome_and_the_next_claim_are_one_script(
    start: Start, client: Redis, store: BullmqStore, outcome: str
) -> None:
    """20 jobs in turn cost little more than 20 scripts, also if they fail or are retried later."""
    handler = Recorder(None if outcome == "completed" else Failed("no server"))
    handler.go.clear()
    options = {"attempts": 2, "backoff": 3_600_000} if outcome == "delayed" else {}
    with start({"mails": handler}) as running:
        keys = [f"bull:{add(store, options=options).id.replace('/', ':')}" for _ in range(20)]
        before = calls_of(client)
        handler.go.set()
        handler.wait(20)
        while not running.watch.is_resting("mails"):
            assert running.resting.acquire(timeout=PATIENCE)
        used = calls_of(client) - before
    assert client.zcard(f"bull:mails:{outcome}") == 20
    assert used <= 26
    assert {client.hget(key, "pb") for key in keys} == {"host-1"}


def test_a_queue_that_shares_slots_is_not_overtaken(start: Start, client: Redis) -> None:
    """Though each outcome could fetch the next job of the same queue, they take turns."""
    handler = Recorder()
    write_jobs(client, 20, "a")
    write_jobs(client, 3, "b")
    with start({"a": handler, "b": handler}, concurrency=1):
        handler.wait(23)
    assert handler.kinds.index("b") < 3 and handler.kinds[:8].count("b") == 3


def test_a_worker_that_is_stopped_keeps_no_job(start: Start, client: Redis) -> None:
    """A stop while a job runs: it is completed, no other one is claimed with its outcome."""
    begun, go_on = threading.Event(), threading.Event()

    def handler(task: Task, context: Context) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    write_jobs(client, 3)
    running = start({"mails": handler}, concurrency=1)
    running.thread.start()
    assert begun.wait(PATIENCE)
    running.worker.stop()
    go_on.set()
    running.__exit__()
    assert client.zrange("bull:mails:completed", 0, -1) == ["j0"]
    assert (client.llen("bull:mails:active"), client.llen("bull:mails:wait")) == (0, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_an_edit_of_a_running_job_does_not_cancel_it(
    client: Redis, store: BullmqStore, fails: bool
) -> None:
    """Its claim is renewed, and the edit stays. Without its lock the claim is lost."""
    add(store, options={"attempts": 2})
    (task,) = store.take(time.time(), "me", 1)
    client.hset("bull:mails:1", mapping={"data": '"new"', "priority": 7})
    (renewed,) = store.renew([task], time.time() + 60)
    assert renewed.error is None and renewed.move.new is not None
    task = renewed.move.new
    client.hset("bull:mails:1", "progress", 50)
    stored_task = found(store, "mails/1")
    with pytest.raises(Gone):
        store.swap(stored_task._replace(rev="0"), verbs.kill(stored_task, time.time()))
    new = verbs.nack(task, 0.0, "no server") if fails else verbs.complete(task, State.DONE)
    store.swap(task, new)
    assert client.zrange(f"bull:mails:{'prioritized' if fails else 'completed'}", 0, -1) == ["1"]
    assert client.hmget("bull:mails:1", "data", "priority", "progress") == ['"new"', "7", "50"]

    other = add(store)
    (task,) = (each for each in store.take(time.time(), "me", 9) if each.id == other.id)
    client.set(f"bull:{task.id.replace('/', ':')}:lock", "another")
    (lost,) = store.renew([task], time.time() + 60)
    assert isinstance(lost.error, Gone)
    with pytest.raises(Gone):
        store.swap(task, verbs.complete(task, State.DONE))


def test_the_result_of_a_handler_is_the_return_value(
    start: Start, client: Redis, store: BullmqStore
) -> None:
    """As JSON; the output of a program (bytes) is a JSON value or text. Something else, or more
    than 64 Ki characters, is not kept, and the job is completed."""
    rows: tuple[tuple[object, str], ...] = (
        (None, "null"),
        ({"to": "Zoë", "n": [1]}, '{"to":"Zoë","n":[1]}'),
        ("sent", '"sent"'),
        (b' {"ok": true}\n', '{"ok":true}'),
        (b"sent \xff\n", '"sent �"'),
        (b"", "null"),
        (object(), "null"),
        ("x" * 100_000, "null"),
    )
    results = {f"mails/{number}": result for number, (result, _) in enumerate(rows, 1)}
    with start({"mails": lambda task, context: results[task.id]}):
        for _ in rows:
            add(store)
        until(lambda: client.zcard("bull:mails:completed") == len(rows))
    stored = [client.hget(f"bull:{ident.replace('/', ':')}", "returnvalue") for ident in results]
    assert stored == [expected for _, expected in rows]


def test_failures_leave_their_traces(start: Start, client: Redis, store: BullmqStore) -> None:
    """One for each attempt, the last ones only if the job's options say so; a handler's own failure
    has its text and details. `Fatal` fails a job, however many attempts its options allow."""
    ended = threading.Event()

    def handler(task: Task, context: Context) -> object:
        tried = task.attempts or 0
        if tried == 3:
            ended.set()
            raise Fatal("no such user", "250 ok\n550 \x1b[31mgone")
        return [1, 2, 3][tried + 7]

    with start({"mails": handler}):
        add(store, options={"attempts": 9, "stackTraceLimit": 2})
        assert ended.wait(PATIENCE)
    first, last = json.loads(str(client.hget("bull:mails:1", "stacktrace")))
    assert first.startswith("Traceback (most recent call last):\n")
    assert first.endswith("IndexError: list index out of range")
    assert last == "Fatal: no such user\n250 ok\n550 �[31mgone"
    assert client.hmget("bull:mails:1", "atm", "failedReason") == ["4", "no such user"]
    assert client.zrange("bull:mails:failed", 0, -1) == ["1"]


def test_finished_jobs_are_counted_if_the_place_says_so(client: Redis, open_bullmq: Opener) -> None:
    """As BullMQ's option `metrics` does: a count, and one number a minute."""
    for points in (0, 2):
        store = open_bullmq(time.time, settings=BullmqSettings(metrics=points))
        for is_done in (True, False):
            add(store)
            (task,) = store.take(time.time(), "me", 1)
            done = verbs.complete(task, State.DONE)
            store.swap(task, done if is_done else verbs.kill(task, time.time()))
    counts = [client.hget(f"bull:mails:metrics:{end}", "count") for end in ("completed", "failed")]
    assert counts == ["1", "1"]


def test_a_busy_worker_returns_the_jobs_of_ended_ones(client: Redis, open_bullmq: Opener) -> None:
    """A worker whose slots are all taken for long looks for jobs without lock, too."""
    write_waiting(client, "long")
    write_waiting(client, "lost")
    dead = open_bullmq(time.time)
    long, lost = dead.take(time.time(), "dead", 2)
    dead.swap(long, verbs.unclaim(long))
    client.delete("bull:mails:lost:lock")
    handler = Recorder()
    handler.go.clear()
    settings = BullmqSettings(stalled_check=0.02)
    store = open_bullmq(time.time, queues=("mails",), settings=settings)
    worker = Worker(store, {"mails": handler}, UNUSED)
    thread = threading.Thread(target=worker.process_all)
    thread.start()
    with ExitStack() as ended:
        for end in (lambda: thread.join(PATIENCE), worker.stop, handler.go.set):
            ended.callback(end)
        until(lambda: client.lrange("bull:mails:wait", 0, -1) == [lost.id.partition("/")[2]])
        assert client.lrange("bull:mails:active", 0, -1) == ["long"]


def test_a_limited_queue_does_not_slow_another(start: Start, client: Redis) -> None:
    """Two queues, one with a limit of one job an hour: all jobs of the other one run meanwhile."""
    handler = Recorder()
    write_jobs(client, 3, "slow")
    write_jobs(client, 30, "fast")
    client.hset("bull:slow:meta", mapping={"max": 1, "duration": 3_600_000})
    with start({"slow": handler, "fast": handler}, concurrency=18):
        handler.wait(31)
    assert (handler.kinds.count("slow"), handler.kinds.count("fast")) == (1, 30)


def test_the_limit_of_a_worker_is_counted_with_others(client: Redis, open_bullmq: Opener) -> None:
    """Jobs of other workers count, also for a claim with an outcome; other queues are free."""
    limits = BullmqSettings(limiter={"mails": JobLimit(3, 600.0)})
    for queue in ("mails", "sums"):
        write_jobs(client, 4, queue)
    client.set("bull:mails:limiter", 1, px=600_000)
    store, now = open_bullmq(time.time, settings=limits), time.time()
    tasks = list(store.take(now, "me", 3))
    assert [task.kind for task in tasks] == ["mails", "sums", "mails"]
    assert store.claim_rules.swap_and_take is not None
    done = [Move(task, verbs.complete(task, State.DONE)) for task in tasks]
    _, more = store.claim_rules.swap_and_take(done, now, "me", 9, accept_all)
    assert [task.kind for task in more] == ["sums"]
    assert [task.kind for task in store.take(now, "me", 9)] == ["sums", "sums"]
    due = store.changes.next_due
    assert due is not None and now + 500 < due < now + 700


def test_a_rate_limit_is_used_to_the_full(start: Start, client: Redis) -> None:
    """2 jobs in each 50 ms: the worker goes on at the end of each span, without a marker."""
    times: list[float] = []
    write_jobs(client, 6)
    client.hset("bull:mails:meta", mapping={"max": 2, "duration": 50})
    with start({"mails": lambda task, context: times.append(time.monotonic())}, concurrency=4):
        until(lambda: len(times) == 6)
    assert times[4] - times[0] >= 0.05, "two spans passed before the fifth job"


def test_global_concurrency_is_used_to_the_full(start: Start, client: Redis) -> None:
    """With 2 jobs at a time on all workers, each job that ends lets the next one start."""
    both, busy, lock, running = threading.Barrier(2), list[int](), threading.Lock(), list[str]()

    def handler(task: Task, context: Context) -> None:
        with lock:
            running.append(task.id)
            busy.append(len(running))
        both.wait(PATIENCE)
        with lock:
            running.remove(task.id)

    write_jobs(client, 8)
    client.hset("bull:mails:meta", "concurrency", 2)
    with start({"mails": handler}, concurrency=6):
        until(lambda: len(busy) == 8 and not running)
    assert max(busy) == 2


def test_a_paused_queue_goes_on_when_it_is_resumed(start: Start, store: BullmqStore) -> None:
    """A job that is added to a paused queue waits; the resume wakes the worker."""
    handler = Recorder()
    add(store, queue="sums")
    list(store.scan())
    store.control("pause", "sums", "1")
    with start({"sums": handler}):
        assert not handler.kinds
        store.control("pause", "sums", "0")
        handler.wait()


def test_a_marker_is_put_back_by_a_busy_worker(client: Redis, store: BullmqStore) -> None:
    """A worker that was waiting and is busy by now leaves the job to another one."""
    woken: list[str] = []
    watch = MarkerWatch(store.place, ["mails"], "one", lambda: woken.append("woken"))
    watch.start()
    try:
        watch.start_rest("mails")
        name = client_name(store.place, "mails", "one")
        until(lambda: any(c["name"] == name and "b" in c["flags"] for c in client.client_list()))
        watch.end_rest("mails")
        client.zadd("bull:mails:marker", {"1": NOW * 1000})
        marker = client.bzpopmin("bull:mails:marker", timeout=int(PATIENCE))
    finally:
        watch.stop()
    assert (marker, woken) == (("bull:mails:marker", "1", NOW * 1000), [])


def test_queues_take_turns(client: Redis, store: BullmqStore) -> None:
    """A long queue does not keep the worker from the others."""
    write_jobs(client, 3, "a")
    write_jobs(client, 1, "b")
    taken = store.take(time.time(), "me", 9, lambda kind, group: True)
    assert [task.id for task in taken] == ["a/j0", "b/j0", "a/j1", "a/j2"]


def exponential(**more: object) -> dict[str, object]:
    """A backoff of a second that is doubled each time."""
    return {"type": "exponential", "delay": 1000, **more}


def test_a_job_has_its_own_attempts_and_delays(client: Redis, store: BullmqStore) -> None:
    """As BullMQ computes them; scanned and claimed, a job shows the same."""
    rows: tuple[tuple[dict[str, Any], list[float | None] | None], ...] = (
        ({"attempts": 3}, [0.0, 0.0, None]),
        ({"attempts": 3, "backoff": 5000}, [5.0, 5.0, None]),
        ({"attempts": 2, "backoff": {"type": "fixed", "delay": 100, "jitter": 1}}, [0.05, None]),
        ({"attempts": 4, "backoff": exponential()}, [1, 2, 4, None]),
        ({"attempts": 3, "backoff": exponential(jitter=0.5)}, [0.75, 1.5, None]),
        # Its options allow no second attempt: the configuration of the handler decides.
        ({}, None),
        ({"attempts": 1}, None),
        ({"attempts": "many", "backoff": 7}, None),
    )
    for options, waits in rows:
        client.flushdb()
        write_waiting(client, "a", opts=json.dumps(options))
        stored_task = found(store, "mails/a")
        (task,) = store.take(time.time(), "", 1)
        with naming(options):
            assert {**stored_task.extra, BACKOFF_KEY: ""} == {**task.extra, BACKOFF_KEY: ""}
            assert stored_task.extra.get(BACKOFF_KEY) == task.extra.get(BACKOFF_KEY)
            policy = own_retry_policy(task, lambda: 0.5)
            assert (policy is None) == (waits is None)
            if policy is not None and waits is not None:
                assert [policy.schedule.wait(made, 0.5) for made in range(len(waits))] == waits
                assert policy.max_runs == options["attempts"] == len(waits)


def run_failing(store: BullmqStore) -> None:
    """Work until idle with a handler whose jobs fail."""
    handled: dict[str, Handler] = {"mails": Recorder(Failed("it broke"))}
    Worker(store, handled, UNUSED, owner="me").process_all(until_idle=True)


def test_a_job_whose_delay_only_its_program_knows_is_not_retried(
    client: Redis, open_bullmq: Opener
) -> None:
    """BullMQ for Node refuses it without the strategy too; the job's log says why."""
    backoffs: dict[str, dict[str, Any]] = {
        "custom": {"type": "custom"},
        "mine": {"type": "mine", "delay": 70},
        "?": {"type": "a b\n"},
        "? ": {"delay": 70},
    }
    for text, backoff in backoffs.items():
        client.flushdb()
        write_waiting(client, "a", opts=json.dumps({"attempts": 5, "backoff": backoff}))
        store = open_bullmq(time.time, queues=("mails",))
        assert found(store, "mails/a").extra[BACKOFF_KEY] == f"custom:{text.rstrip()}"
        run_failing(store)
        task = found(store, "mails/a")
        assert (task.state, task.attempts, task.error) == (State.DEAD, 1, "it broke")
        (line,) = map(str, client.lrange("bull:mails:a:logs", 0, -1))
        why = f"it broke; given up: only its program knows the delay {text.rstrip()}"
        assert line.endswith(why)


def test_a_difference_of_two_clocks_is_no_wait() -> None:
    """A job that is due at once, by our clock, is not delayed by what the server's clock lacks."""
    old = Task("mails/a", "mails", State.ACTIVE, NOW, attempts=0)
    for wait in (-5.0, 0.0, 0.0004, 0.001, 0.005, 60.0):
        name = "retryJob" if wait <= 0.001 else "moveToDelayed"
        assert moves._unclaim_script(old, verbs.nack(old, NOW + wait, "it broke"), NOW) == name


def test_a_job_keeps_as_many_lines_of_its_log_as_it_says(
    client: Redis, open_bullmq: Opener
) -> None:
    """BullMQ stores its option keepLogs as kl; 0 is no limit, as for Node."""
    limits: tuple[dict[str, int], ...] = ({"kl": 2}, {"keepLogs": 1}, {"kl": 0}, {})
    for options, lines in zip(limits, (2, 1, 4, 4), strict=True):
        client.flushdb()
        write_waiting(client, "a", opts=json.dumps({"attempts": 4, **options}))
        run_failing(open_bullmq(time.time, queues=("mails",)))
        assert client.llen("bull:mails:a:logs") == lines, options
        assert "attempt 4 of 4" in str(client.lindex("bull:mails:a:logs", -1))


@pytest.mark.parametrize(("jobs", "limit"), [(5, JobLimit(2, 0.1)), (2, JobLimit(2, NEVER))])
def test_a_run_until_idle_waits_for_a_rate_limit(
    open_bullmq: Opener, client: Redis, jobs: int, limit: JobLimit
) -> None:
    """Jobs that a limit holds back are due, so that the run goes on; without such a job it ends."""
    write_jobs(client, jobs)
    settings = BullmqSettings(limiter={"mails": limit})
    store = open_bullmq(time.time, queues=("mails",), settings=settings)
    services = WorkerServices(slots={"mails": 2})
    handled: dict[str, Handler] = {"mails": Recorder()}
    worker = Worker(store, handled, UNUSED, owner="me", concurrency=2, services=services)
    assert worker.process_all(until_idle=True).done == jobs
    assert client.exists("bull:mails:wait") == 0
