"""The console's rows on BullMQ queues: scan, plan, events and memory, beside the bare scripts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

import redis

from engine.config.place_address import parse_address
from engine.formats.bullmq.connection import Connection, Script, ScriptCall
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS, package_text
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.scan import ROWS_PER_CALL, rows_call
from engine.formats.bullmq.store import BullmqStore
from engine.model import Task
from tests.bench.measure import Bench, Figure, Figures, compare, interleave, plan_for
from tests.bench.terminal import console, event_waits, running
from tests.redis_server import TestServer, running_server

DATA = json.dumps({"to": "user@example.net", "pad": "x" * 540})
EVENT_SECONDS = 2.0
FULL_SCAN_SECONDS = 60.0
PACKAGE_PAGE = 1000
PIPELINE = 100


@contextmanager
def _server() -> Iterator[tuple[TestServer, redis.Redis]]:
    with running_server() as server, server.client() as client:
        yield server, client


def _fill(client: Any, place: str, number: int, queue: str = "mails") -> None:
    """So many jobs of 600 bytes of data, waiting or failed."""
    with client.pipeline(transaction=False) as pipe:
        pipe.hset(f"bull:{queue}:meta", "opts.maxLenEvents", 10_000)
        for n in range(1, number + 1):
            job: dict[str, Any] = {"name": "report", "data": DATA, "opts": '{"attempts":3}'}
            job |= {"timestamp": 1_795_160_000_000 + n, "delay": 0, "priority": 0}
            if place == "failed":
                job |= {"atm": 3, "ats": 3, "failedReason": "it broke", "finishedOn": 5 + n}
                pipe.zadd(f"bull:{queue}:failed", {str(n): 5 + n})
            else:
                pipe.lpush(f"bull:{queue}:wait", n)
            pipe.hset(f"bull:{queue}:{n}", mapping=job)
            if n % 5000 == 0:
                pipe.execute()
        pipe.execute()


class Spent(NamedTuple):
    """Microseconds per job."""

    ours: float
    redis: float
    wall: float


def _measured(client: redis.Redis, number: int, work: Callable[[], object]) -> Spent:
    def server() -> float:
        cpu = client.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    before = time.process_time(), server(), time.perf_counter()
    work()
    after = time.process_time(), server(), time.perf_counter()
    return Spent(*((b - a) / number * 1e6 for a, b in zip(before, after, strict=True)))


def bullmq_scan(bench: Bench) -> Figures:
    """A full scan: CPU per job, ours and the server's, and the longest script of it."""
    number = 10_000 if bench.quick else 100_000
    with _server() as (server, client):
        with bench.outside_budget(300):
            _fill(client, "wait", number)
        place = parse_place(parse_address(server.place()))
        with closing(BullmqStore(place)) as store, closing(Connection(place)) as connection:

            def bare() -> None:
                ids = [str(n) for n in range(1, number + 1)]
                for start in range(0, number, ROWS_PER_CALL):
                    some = ids[start : start + ROWS_PER_CALL]
                    answer = connection.run(rows_call(place, "mails", "waiting", some))
                    assert json.loads(answer)[0] == len(some)

            def scan() -> None:
                assert sum(isinstance(item, Task) for item in store.scan()) >= number

            package = partial(_get_jobs, server, number)
            ways: dict[str, Callable[[], None]] = {"ours": scan, "bare": bare, "package": package}
            costs = interleave(
                {name: partial(_measured, client, number, way) for name, way in ways.items()},
                bench.rounds,
            )
            cpu = {name: [each.ours for each in of] for name, of in costs.items()}
            theirs = {name: [each.redis for each in of] for name, of in costs.items()}
            what = f"scan of {number:,} jobs, a job"
            walls = [[each.wall for each in costs[way]] for way in ("ours", "package")]
            yield compare(what, "us wall", (walls[0], walls[1]), "getJobs", 0.6)
            yield compare("the same", "us CPU", (cpu["ours"], cpu["package"]), "getJobs", None)
            yield compare("the same", "us CPU", (cpu["ours"], cpu["bare"]), "the script", None)
            yield compare("server", "us CPU", (theirs["ours"], theirs["bare"]), "the script", 1.2)
            client.config_set("slowlog-log-slower-than", 1000)
            client.slowlog_reset()
            scan()
            longest = max((int(e["duration"]) for e in client.slowlog_get(1000)), default=1000)
            yield Figure(f"longest command, {ROWS_PER_CALL} jobs", longest / 1000, "ms", 10.0)


def _get_jobs(server: TestServer, number: int) -> None:
    """All jobs by the package's own reader."""
    from bullmq import Queue

    async def read() -> None:
        path = server.url.removeprefix("redis+unix://")
        async with redis.asyncio.Redis(unix_socket_path=path, decode_responses=True) as client:
            queue = Queue("mails", {"connection": client})
            count = 0
            for start in range(0, number, PACKAGE_PAGE):
                count += len(await queue.getJobs(["wait"], start, start + PACKAGE_PAGE - 1))
            assert count == number, count
            await queue.close()

    asyncio.run(read())


def bullmq_retry(bench: Bench) -> Figures:
    """Retry of failed jobs: a plan with its journal beside BullMQ's script in pipelines of 100."""
    number = 1_000 if bench.quick else 5_000
    with _server() as (server, client), tempfile.TemporaryDirectory() as folder:
        place = parse_place(parse_address(server.place()))

        def filled(work: Callable[[BullmqStore, Connection], Callable[[], None]]) -> Spent:
            client.flushall()
            _fill(client, "failed", number)
            with closing(BullmqStore(place)) as store, closing(Connection(place)) as connection:
                return _measured(client, number, work(store, connection))

        def bare(store: BullmqStore, connection: Connection) -> Callable[[], None]:
            package, text = PACKAGE_SCRIPTS["reprocessJob"], package_text("reprocessJob")
            alone = Script(text, hashlib.sha1(text.encode()).hexdigest())

            def call(ident: int) -> ScriptCall:
                keys = [f"bull:mails:{k.format(id=ident, target='failed')}" for k in package.keys]
                values = [str(ident), "LPUSH", "failedReason", "failed", "1", "1"]
                return ScriptCall(alone, keys, values)

            def run() -> None:
                for start in range(1, number + 1, PIPELINE):
                    calls = list(map(call, range(start, start + PIPELINE)))
                    assert connection.run_all(calls) == [1] * PIPELINE

            return run

        def ours(store: BullmqStore, connection: Connection) -> Callable[[], None]:
            tasks = [t for t in store.scan(["failed"]) if isinstance(t, Task)]
            assert len(tasks) == number
            return plan_for(store, tasks, "retry", folder)

        ways = {"ours": partial(filled, ours), "bare": partial(filled, bare)}
        costs = interleave(ways, bench.rounds)
        for what, field, unit, limit in (
            (f"retry {number:,}, a job", "wall", "us wall", 3.5),
            (f"retry {number:,}, a job", "ours", "us CPU", None),
            ("server", "redis", "us CPU", None),
        ):
            mine, floor = ([getattr(e, field) for e in costs[way]] for way in ways)
            yield compare(what, unit, (mine, floor), "the script", limit)


def bullmq_console(bench: Bench) -> Figures:
    """A console on queues: event to screen, round trips while idle, memory."""
    with _server() as (server, client):
        turns = 10 if bench.quick else 25
        for number in range(20):
            _fill(client, "wait", 1, f"q{number:02}")
        with running(console("--open", "queue", server.place())) as screen:
            screen.until("report")
            screen.idle()

            def change(word: str) -> float:
                with client.pipeline() as pipe:
                    pipe.hset("bull:q00:1", "name", word)
                    pipe.xadd("bull:q00:events", {"event": "waiting", "jobId": "1"})
                    began = time.perf_counter()
                    pipe.execute()
                return began

            waits, missed = event_waits(screen, change, turns, EVENT_SECONDS)
            yield Figure("event to screen, 20 queues", waits, "ms wall", 30.0)
            yield Figure(f"events of {turns} not shown", missed, "events", 0.0)
            screen.watch(2.0)
            with bench.outside_budget(90):
                before = _trips(client)
                screen.watch(FULL_SCAN_SECONDS)
                trips = (_trips(client) - before) / FULL_SCAN_SECONDS
            yield Figure("idle, 20 queues, with a full scan", trips, "round trips/s", 4.0)
        client.flushall()
        for number, limit in ((10_000, None), (300_000, 100.0))[: 1 if bench.quick else 2]:
            with bench.outside_budget(600):
                _fill(client, "wait", number)
            with running(console("--open", "queue", server.place())) as screen:
                screen.until("report")
                shown = time.perf_counter()
                screen.until(f"waiting {number:,}[^0-9+]")
                counted = time.perf_counter() - shown
                yield Figure(f"counts of {number:,} after the first rows", counted, "s", 0.5)
                screen.idle()
                yield Figure(f"memory at {number:,} jobs", screen.memory(), "MiB", limit)


def _trips(client: redis.Redis) -> int:
    """Requests that the server has read so far; a pipeline is one."""
    return int(client.info("stats")["total_reads_processed"])
