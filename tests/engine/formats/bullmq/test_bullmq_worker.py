"""Our worker on BullMQ's queues: it is woken by markers, and obeys limits, attempts and delays."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
import redis

from engine import verbs
from engine.config.place_address import parse_address
from engine.formats.bullmq import change_feed, moves
from engine.formats.bullmq.change_feed import MarkerWatch, client_name
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import BullmqSettings, JobLimit, parse_place
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
from tests.bullmq_workers import until
from tests.redis_server import TestServer
from tests.store_contents import found

PATIENCE = 60.0
"""Seconds after which a test that waits for an event fails."""
NEVER = 3600.0

UNUSED = retries_of(NO_RETRY)


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database."""
    with redis_server.client() as other:
        yield other


class RunningWorker:
    """A worker of queues on a thread, and what happened: it never polls."""

    def __init__(self, url: str, handled: Mapping[str, Handler], **options: Any) -> None:
        place = parse_place(parse_address(url))._replace(queues=tuple(handled))
        self.store = BullmqStore(place._replace(settings=BullmqSettings(stalled_check=NEVER)))
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
        self.store.close()
        assert not self.thread.is_alive()


@pytest.fixture
def start(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunningWorker]:
    """Make a worker for which no time passes that lets it look again by itself."""
    monkeypatch.setattr(queue_lock, "HEARTBEAT_SECONDS", NEVER)
    monkeypatch.setattr(change_feed, "MARKER_BLOCK_SECONDS", NEVER)
    monkeypatch.setattr(claiming, "RESCAN_INTERVAL_SECONDS", NEVER)

    def start(handled: Mapping[str, Handler], **options: Any) -> RunningWorker:
        worker = RunningWorker(redis_url, handled, **options)
        worker.store.changes = worker.store.changes._replace(rescan_seconds=NEVER)
        return worker

    return start


def add(url: str, **fields: Any) -> Task:
    """Add a job as `bullmq add` does."""
    with closing(BullmqStore(parse_place(parse_address(url)))) as store:
        return store.add_job(NewJob(**({"queue": "mails", "name": "report"} | fields)))


def test_an_idle_worker_is_woken_by_the_marker(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """A job that is added to an empty queue wakes the worker, which looks by itself never again;
    the server lists it by the name that BullMQ's workers have."""
    ran = threading.Semaphore(0)

    def handler(task: Task, context: Context) -> None:
        ran.release()

    with start({"mails": handler}) as running:
        for _ in range(3):
            add(redis_url)
            assert ran.acquire(timeout=PATIENCE)
            assert running.resting.acquire(timeout=PATIENCE)
        assert running.woken.acquire(timeout=PATIENCE)
        names = [str(each["name"]) for each in client.client_list()]
        assert "bull:bWFpbHM=:w:host-1" in names
    assert client.zcard("bull:mails:completed") == 3


def test_delays_between_attempts_need_no_marker(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """A job that fails runs again after its own delay, at most as often as its attempts allow."""
    ended = threading.Event()

    def handler(task: Task, context: Context) -> None:
        assert context.data == b'{"to": "ann"}'
        if (task.attempts or 0) == 2:
            ended.set()
        raise Failed("no server")

    options = {"attempts": 3, "backoff": {"type": "exponential", "delay": 20, "jitter": 0.5}}
    with start({"mails": handler}):
        task = add(redis_url, data='{"to": "ann"}', options=options, delay=0.02)
        assert ended.wait(PATIENCE)
    job = client.hgetall(f"bull:{task.id.replace('/', ':')}")
    assert (job["atm"], job["ats"], job["failedReason"]) == ("3", "3", "no server")
    assert job["pb"] == "host-1"
    assert client.zrange("bull:mails:failed", 0, -1) == ["1"]
    first, _, last = map(str, client.lrange("bull:mails:1:logs", 0, -1))
    assert " attempt 1 of 3 by host-1: failed: no server; next attempt " in first
    assert last.endswith(" attempt 3 of 3 by host-1: failed: no server; given up")


def test_an_unrecoverable_error_ends_a_job(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """`Fatal` fails a job after one attempt, with any options."""
    ended = threading.Event()

    def handler(task: Task, context: Context) -> None:
        ended.set()
        raise Fatal("no such user")

    with start({"mails": handler}):
        add(redis_url, options={"attempts": 5})
        assert ended.wait(PATIENCE)
    assert client.zrange("bull:mails:failed", 0, -1) == ["1"]
    assert client.hmget("bull:mails:1", "atm", "failedReason") == ["1", "no such user"]


def calls_of(client: redis.Redis) -> int:
    """Scripts that the server has run."""
    stats = client.info("commandstats")
    return sum(stats[name]["calls"] for name in stats if name.startswith("cmdstat_evalsha"))


@pytest.mark.parametrize("outcome", ["completed", "failed", "delayed"])
def test_an_outcome_and_the_next_claim_are_one_script(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str, outcome: str
) -> None:
    """20 jobs in turn cost little more than 20 scripts, also if they fail or are retried later."""
    ran = threading.Semaphore(0)
    opened = threading.Event()

    def handler(task: Task, context: Context) -> None:
        opened.wait(PATIENCE)
        ran.release()
        if outcome != "completed":
            raise Failed("no server")

    options = {"attempts": 2, "backoff": 3_600_000} if outcome == "delayed" else {}
    with start({"mails": handler}) as running:
        keys = [f"bull:{add(redis_url, options=options).id.replace('/', ':')}" for _ in range(20)]
        before = calls_of(client)
        opened.set()
        for _ in range(20):
            assert ran.acquire(timeout=PATIENCE)
        while not running.watch.is_resting("mails"):
            assert running.resting.acquire(timeout=PATIENCE)
        used = calls_of(client) - before
    assert client.zcard(f"bull:mails:{outcome}") == 20
    assert used <= 26
    assert {client.hget(key, "pb") for key in keys} == {"host-1"}


def test_a_queue_that_shares_slots_is_not_overtaken(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """One slot for two queues: they take turns, although each outcome could fetch the next job of
    the same queue."""
    order: list[str] = []
    ran = threading.Semaphore(0)

    def handler(task: Task, context: Context) -> None:
        order.append(task.kind)
        ran.release()

    for number in range(20):
        write_waiting(client, f"j{number}", "a")
    for number in range(3):
        write_waiting(client, f"j{number}", "b")
    with start({"a": handler, "b": handler}, concurrency=1):
        for _ in range(23):
            assert ran.acquire(timeout=PATIENCE)
    assert order.index("b") < 3
    assert order[:8].count("b") == 3


def test_a_worker_that_is_stopped_keeps_no_job(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """A stop while a job runs: it is completed, no other one is claimed with its outcome."""
    begun, go_on = threading.Event(), threading.Event()

    def handler(task: Task, context: Context) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    for number in range(3):
        write_waiting(client, f"j{number}")
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
    client: redis.Redis, redis_url: str, fails: bool
) -> None:
    """Another client changes data and priority: the claim is renewed and the outcome is stored;
    the edit stays. Without its lock the claim is lost."""
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as store:
        add(redis_url, options={"attempts": 2})
        (task,) = store.take(time.time(), "me", 1)
        client.hset("bull:mails:1", mapping={"data": '"new"', "priority": 7})
        (renewed,) = store.renew([task], time.time() + 60)
        assert renewed.error is None
        assert renewed.move.new is not None
        task = renewed.move.new
        client.hset("bull:mails:1", "progress", 50)
        stored_task = found(store, "mails/1")
        with pytest.raises(Gone):
            store.swap(stored_task._replace(rev="0"), verbs.kill(stored_task, time.time()))
        if fails:
            store.swap(task, verbs.nack(task, 0.0, "no server"))
            assert client.zrange("bull:mails:prioritized", 0, -1) == ["1"]
        else:
            store.swap(task, verbs.complete(task, State.DONE))
            assert client.zrange("bull:mails:completed", 0, -1) == ["1"]
        assert client.hmget("bull:mails:1", "data", "priority", "progress") == ['"new"', "7", "50"]

        other = add(redis_url)
        (task,) = (each for each in store.take(time.time(), "me", 9) if each.id == other.id)
        client.set(f"bull:{task.id.replace('/', ':')}:lock", "another")
        (lost,) = store.renew([task], time.time() + 60)
        assert isinstance(lost.error, Gone)
        with pytest.raises(Gone):
            store.swap(task, verbs.complete(task, State.DONE))


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        (None, "null"),
        ({"to": "Zoë", "n": [1]}, '{"to":"Zoë","n":[1]}'),
        ("sent", '"sent"'),
        (b' {"ok": true}\n', '{"ok":true}'),
        (b"sent \xff\n", '"sent �"'),
        (b"", "null"),
        (object(), "null"),
        pytest.param("x" * 100_000, "null", id="long"),
    ],
)
def test_the_result_of_a_handler_is_the_return_value(
    start: Callable[..., RunningWorker],
    client: redis.Redis,
    redis_url: str,
    result: object,
    stored: str,
) -> None:
    """As JSON; the output of a program (bytes) is a JSON value or text. Something else, or more
    than 64 Ki characters, is not kept, and the job is completed."""
    ended = threading.Event()

    def handler(task: Task, context: Context) -> object:
        ended.set()
        return result

    with start({"mails": handler}):
        add(redis_url)
        assert ended.wait(PATIENCE)
    assert client.zcard("bull:mails:completed") == 1
    assert client.hget("bull:mails:1", "returnvalue") == stored


def test_failures_leave_their_traces(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """One for each attempt, the last ones only if the job's options say so; a handler's own failure
    has its text and details."""
    ended = threading.Event()

    def handler(task: Task, context: Context) -> object:
        tried = task.attempts or 0
        if tried == 3:
            ended.set()
            raise Fatal("no such user", "250 ok\n550 \x1b[31mgone")
        return [1, 2, 3][tried + 7]

    with start({"mails": handler}):
        add(redis_url, options={"attempts": 9, "stackTraceLimit": 2})
        assert ended.wait(PATIENCE)
    first, last = json.loads(str(client.hget("bull:mails:1", "stacktrace")))
    assert first.startswith("Traceback (most recent call last):\n")
    assert first.endswith("IndexError: list index out of range")
    assert last == "Fatal: no such user\n250 ok\n550 �[31mgone"
    assert client.hmget("bull:mails:1", "atm", "failedReason") == ["4", "no such user"]


def test_finished_jobs_are_counted_if_the_place_says_so(
    client: redis.Redis, redis_url: str
) -> None:
    """As BullMQ's option `metrics` does: a count, and one number a minute."""
    place = parse_place(parse_address(redis_url))
    for points in (0, 2):
        with closing(BullmqStore(place._replace(settings=BullmqSettings(metrics=points)))) as store:
            for is_done in (True, False):
                add(redis_url)
                (task,) = store.take(time.time(), "me", 1)
                done = verbs.complete(task, State.DONE)
                store.swap(task, done if is_done else verbs.kill(task, time.time()))
    assert client.hget("bull:mails:metrics:completed", "count") == "1"
    assert client.hget("bull:mails:metrics:failed", "count") == "1"


def test_a_busy_worker_returns_the_jobs_of_ended_ones(client: redis.Redis, redis_url: str) -> None:
    """A worker whose slots are all taken for long looks for jobs without lock, too."""
    write_waiting(client, "long")
    write_waiting(client, "lost")
    place = parse_place(parse_address(redis_url))
    with closing(BullmqStore(place)) as store:
        (long, lost) = store.take(time.time(), "dead", 2)
        store.swap(long, verbs.unclaim(long))
    client.delete("bull:mails:lost:lock")
    go_on = threading.Event()

    place = place._replace(queues=("mails",), settings=BullmqSettings(stalled_check=0.02))
    store = BullmqStore(place)
    worker = Worker(store, {"mails": lambda task, context: go_on.wait(PATIENCE)}, UNUSED)
    thread = threading.Thread(target=worker.process_all)
    thread.start()
    try:
        until(lambda: client.lrange("bull:mails:wait", 0, -1) == [lost.id.partition("/")[2]])
        assert client.lrange("bull:mails:active", 0, -1) == ["long"]
    finally:
        go_on.set()
        worker.stop()
        thread.join(PATIENCE)
        store.close()


def test_a_limited_queue_does_not_slow_another(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """Two queues, one with a limit of one job an hour: all jobs of the other one run meanwhile."""
    ran: list[str] = []
    free = threading.Semaphore(0)

    def handler(task: Task, context: Context) -> None:
        ran.append(task.kind)
        free.release()

    for number in range(3):
        write_waiting(client, f"j{number}", "slow")
    for number in range(30):
        write_waiting(client, f"j{number}", "fast")
    client.hset("bull:slow:meta", mapping={"max": 1, "duration": 3_600_000})
    with start({"slow": handler, "fast": handler}, concurrency=18):
        for _ in range(31):
            assert free.acquire(timeout=PATIENCE)
    assert (ran.count("slow"), ran.count("fast")) == (1, 30)


def test_the_limit_of_a_worker_is_counted_with_others(client: redis.Redis, redis_url: str) -> None:
    """BullMQ's option `limiter`: jobs that another worker started count, also for a job that is
    claimed together with an outcome; another queue is not limited."""
    limits = BullmqSettings(limiter={"mails": JobLimit(3, 600.0)})
    place = parse_place(parse_address(redis_url), limits)
    for number in range(4):
        write_waiting(client, f"j{number}")
        write_waiting(client, f"j{number}", "sums")
    client.set("bull:mails:limiter", 1, px=600_000)
    with closing(BullmqStore(place)) as store:
        now = time.time()
        tasks = list(store.take(now, "me", 3))
        assert [task.kind for task in tasks] == ["mails", "sums", "mails"]
        assert store.claim_rules.swap_and_take is not None
        done = [Move(task, verbs.complete(task, State.DONE)) for task in tasks]
        _, more = store.claim_rules.swap_and_take(done, now, "me", 9, accept_all)
        assert [task.kind for task in more] == ["sums"]
        assert [task.kind for task in store.take(now, "me", 9)] == ["sums", "sums"]
        due = store.changes.next_due
        assert due is not None
        assert now + 500 < due < now + 700


def test_a_rate_limit_is_used_to_the_full(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """2 jobs in each 50 ms: the worker goes on at the end of each span, without a marker."""
    ran = threading.Semaphore(0)
    times: list[float] = []

    def handler(task: Task, context: Context) -> None:
        times.append(time.monotonic())
        ran.release()

    for number in range(6):
        write_waiting(client, f"j{number}")
    client.hset("bull:mails:meta", mapping={"max": 2, "duration": 50})
    with start({"mails": handler}, concurrency=4):
        for _ in range(6):
            assert ran.acquire(timeout=PATIENCE)
    assert times[4] - times[0] >= 0.05, "two spans passed before the fifth job"


def test_global_concurrency_is_used_to_the_full(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """With 2 jobs at a time on all workers, each job that ends lets the next one start."""
    ran, both = threading.Semaphore(0), threading.Barrier(2)
    busy: list[int] = []
    lock, running = threading.Lock(), 0

    def handler(task: Task, context: Context) -> None:
        nonlocal running
        with lock:
            running += 1
            busy.append(running)
        both.wait(PATIENCE)
        with lock:
            running -= 1
        ran.release()

    for number in range(8):
        write_waiting(client, f"j{number}")
    client.hset("bull:mails:meta", "concurrency", 2)
    with start({"mails": handler}, concurrency=6):
        for _ in range(8):
            assert ran.acquire(timeout=PATIENCE)
    assert max(busy) == 2


def test_a_paused_queue_goes_on_when_it_is_resumed(
    start: Callable[..., RunningWorker], client: redis.Redis, redis_url: str
) -> None:
    """A job that is added to a paused queue waits; the resume wakes the worker."""
    ran = threading.Event()
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as console:
        add(redis_url, queue="sums")
        list(console.scan())
        console.control("pause", "sums", "1")
        with start({"sums": lambda task, context: ran.set()}):
            assert not ran.is_set()
            console.control("pause", "sums", "0")
            assert ran.wait(PATIENCE)


def test_a_marker_is_put_back_by_a_busy_worker(client: redis.Redis, redis_url: str) -> None:
    """A worker that was waiting and is busy by now leaves the job to another one."""
    woken: list[str] = []
    place = parse_place(parse_address(redis_url))
    watch = MarkerWatch(place, ["mails"], "one", lambda: woken.append("woken"))
    watch.start()
    try:
        watch.start_rest("mails")
        name = client_name(place, "mails", "one")
        until = time.monotonic() + PATIENCE
        while not any(c["name"] == name and "b" in c["flags"] for c in client.client_list()):
            assert time.monotonic() < until
        watch.end_rest("mails")
        client.zadd("bull:mails:marker", {"1": NOW * 1000})
        marker = client.bzpopmin("bull:mails:marker", timeout=int(PATIENCE))
    finally:
        watch.stop()
    assert marker == ("bull:mails:marker", "1", NOW * 1000)
    assert woken == []


def test_queues_take_turns(client: redis.Redis, redis_url: str) -> None:
    """A long queue does not keep the worker from the others."""
    for number in range(3):
        write_waiting(client, f"a{number}", "a")
    write_waiting(client, "b0", "b")
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as store:
        taken = store.take(time.time(), "me", 9, lambda kind, group: True)
        assert [task.id for task in taken] == ["a/a0", "b/b0", "a/a1", "a/a2"]


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"attempts": 3}, [0.0, 0.0, None]),
        ({"attempts": 3, "backoff": 5000}, [5.0, 5.0, None]),
        ({"attempts": 2, "backoff": {"type": "fixed", "delay": 100, "jitter": 1}}, [0.05, None]),
        ({"attempts": 4, "backoff": {"type": "exponential", "delay": 1000}}, [1, 2, 4, None]),
        (
            {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000, "jitter": 0.5}},
            [0.75, 1.5, None],
        ),
    ],
)
def test_a_job_has_its_own_attempts_and_delays(
    client: redis.Redis, redis_url: str, options: dict[str, Any], waits: list[float | None]
) -> None:
    """As BullMQ computes them; scanned and claimed, a job shows the same."""
    write_waiting(client, "a", opts=json.dumps(options))
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as store:
        stored_task = found(store, "mails/a")
        (task,) = store.take(time.time(), "", 1)
    assert {**stored_task.extra, BACKOFF_KEY: ""} == {**task.extra, BACKOFF_KEY: ""}
    assert stored_task.extra.get(BACKOFF_KEY) == task.extra.get(BACKOFF_KEY)
    policy = own_retry_policy(task, lambda: 0.5)
    assert policy is not None
    assert [policy.schedule.wait(made, 0.5) for made in range(len(waits))] == waits
    assert policy.max_runs == options["attempts"] == len(waits)


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        ({"type": "custom"}, "custom"),
        ({"type": "mine", "delay": 70}, "mine"),
        ({"delay": 70}, "?"),
        ({"type": "a b\n"}, "?"),
    ],
)
def test_a_job_whose_delay_only_its_program_knows_is_not_retried(
    client: redis.Redis, redis_url: str, backoff: dict[str, Any], text: str
) -> None:
    """BullMQ for Node refuses it without the strategy too; the job's log says why."""
    write_waiting(client, "a", opts=json.dumps({"attempts": 5, "backoff": backoff}))

    def fail(task: Task, context: Context) -> None:
        raise Failed("it broke")

    place = parse_place(parse_address(redis_url))._replace(queues=("mails",))
    with closing(BullmqStore(place)) as store:
        assert found(store, "mails/a").extra[BACKOFF_KEY] == f"custom:{text}"
        Worker(store, {"mails": fail}, UNUSED, owner="me").process_all(until_idle=True)
        task = found(store, "mails/a")
    assert (task.state, task.attempts, task.error) == (State.DEAD, 1, "it broke")
    (line,) = client.lrange("bull:mails:a:logs", 0, -1)
    assert str(line).endswith(f"it broke; given up: only its program knows the delay {text}")


@pytest.mark.parametrize(("wait", "name"), [
    (-5.0, "retryJob"), (0.0, "retryJob"), (0.0004, "retryJob"), (0.001, "retryJob"),
    (0.005, "moveToDelayed"), (60.0, "moveToDelayed"),
])  # fmt: skip
def test_a_difference_of_two_clocks_is_no_wait(wait: float, name: str) -> None:
    """A job that is due at once, by our clock, is not delayed by what the server's clock lacks."""
    old = Task("mails/a", "mails", State.ACTIVE, NOW, attempts=0)
    assert moves._unclaim_script(old, verbs.nack(old, NOW + wait, "it broke"), NOW) == name


@pytest.mark.parametrize(
    ("options", "lines"), [({"kl": 2}, 2), ({"keepLogs": 1}, 1), ({"kl": 0}, 4), ({}, 4)]
)
def test_a_job_keeps_as_many_lines_of_its_log_as_it_says(
    client: redis.Redis, redis_url: str, options: dict[str, int], lines: int
) -> None:
    """BullMQ stores its option keepLogs as kl; 0 is no limit, as for Node."""
    write_waiting(client, "a", opts=json.dumps({"attempts": 4, **options}))

    def fail(task: Task, context: Context) -> None:
        raise Failed("it broke")

    place = parse_place(parse_address(redis_url))._replace(queues=("mails",))
    with closing(BullmqStore(place)) as store:
        Worker(store, {"mails": fail}, UNUSED, owner="me").process_all(until_idle=True)
    assert client.llen("bull:mails:a:logs") == lines
    assert "attempt 4 of 4" in str(client.lindex("bull:mails:a:logs", -1))


@pytest.mark.parametrize("options", [{}, {"attempts": 1}, {"attempts": "many", "backoff": 7}])
def test_a_job_without_attempts_of_its_own_has_those_of_its_queue(
    client: redis.Redis, redis_url: str, options: dict[str, Any]
) -> None:
    """Its options allow no second attempt, so the configuration of the handler decides."""
    write_waiting(client, "a", opts=json.dumps(options))
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as store:
        (task,) = store.take(time.time(), "", 1)
    assert own_retry_policy(task) is None


@pytest.mark.parametrize(("jobs", "limit"), [(5, JobLimit(2, 0.1)), (2, JobLimit(2, NEVER))])
def test_a_run_until_idle_waits_for_a_rate_limit(
    redis_url: str, client: redis.Redis, jobs: int, limit: JobLimit
) -> None:
    """Jobs that a limit holds back are due, so that the run goes on; without such a job it ends."""
    for number in range(jobs):
        write_waiting(client, str(number))
    place = parse_place(parse_address(redis_url), BullmqSettings(limiter={"mails": limit}))
    with closing(BullmqStore(place._replace(queues=("mails",)))) as store:
        services = WorkerServices(slots={"mails": 2})
        handled: dict[str, Handler] = {"mails": lambda task, context: None}
        worker = Worker(store, handled, UNUSED, owner="me", concurrency=2, services=services)
        assert worker.process_all(until_idle=True).done == jobs
    assert client.exists("bull:mails:wait") == 0
