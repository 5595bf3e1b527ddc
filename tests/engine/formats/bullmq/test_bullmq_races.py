"""Operators, workers and servers that are killed in the middle of their work.

The choices are drawn from a seed, which each failure names; when each process runs is up to the
system, so that a seed repeats a failure often, not always.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.row import PLACES
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.operations.journal import Journal
from engine.operations.plans import RowResult
from engine.operations.undo import settle_operation
from tests.bullmq_workers import StartWorker, add_jobs, await_completed, runs, until
from tests.engine.formats.bullmq.test_bullmq_node import Node, node
from tests.redis_server import TestServer, running_server

__all__ = ["node"]  # a fixture

ROOT = Path(__file__).resolve().parents[4]
SEED = int(os.environ.get("RIVALS_SEED", "20261124"))
JOBS = 150
CLOCK = time.time
FINISHED = frozenset({State.DEAD, State.DONE})
"""Each row that takes a job out of one of these states is a reason for one more run: retried, or
held or trashed, restored as held, and released. The release of a job that has not run is none."""


def play(url: str, journal: Path, operators: int, rounds: int, kills: int) -> int:
    """Run at least `rounds` acts of operators, until `kills` of them were killed while they sent a
    change; an act that finds no job to change sends none. Return the number killed."""
    rng, killed = random.Random(SEED), 0
    playing: list[Any] = []
    chances = [True] * kills + [False] * max(0, rounds // 2 - kills)
    rng.shuffle(chances)

    def begin() -> None:
        words = ["-m", "tests.bullmq_operator", url, str(journal), str(rng.getrandbits(32))]
        streams: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        new: Any = subprocess.Popen([sys.executable, *words], cwd=ROOT, **streams)
        ready.register(new.stdout, selectors.EVENT_READ, new)
        playing.append(new)
        new.stdin.write(b".")

    with selectors.DefaultSelector() as ready:
        for _ in range(operators):
            begin()
        while rounds > 0 or killed < kills:
            for key, _ in ready.select():
                one: Any = key.data
                data = os.read(key.fd, 5)
                assert data or killed, f"RIVALS_SEED={SEED}: an operator failed"
                if data == b"did\n":
                    rounds -= 1
                    assert rounds > -1000, f"RIVALS_SEED={SEED}: {killed} of {kills} were killed"
                one.stdin.write(b".")
                if data == b"swap\n" and chances and chances.pop():
                    killed += 1
                    ready.unregister(one.stdout)
                    playing.remove(one)
                    one.kill()
                    one.communicate(timeout=60)
                    begin()
    for one in playing:
        one.communicate(timeout=60)
        assert one.returncode == 0, f"RIVALS_SEED={SEED}"
    return killed


def returned_jobs(store: BullmqStore, journal: Journal) -> Counter[str]:
    """How often each job was returned to its queue at most; each row of the journal has an outcome,
    or its job is unchanged or is being moved."""
    counts: Counter[str] = Counter()
    for operation in list(journal.operations()):
        assert not operation.is_running
        open_before = {e.row.id for e in journal.entries(operation.op) if not e.outcome}
        assert bool(open_before) <= operation.is_interrupted
        left: set[str] = set()
        if operation.is_interrupted:
            settled = settle_operation(store, journal, operation)
            left = {row.id for row in (*settled.moving, *settled.unmoved)}
        for row, outcome in journal.entries(operation.op):
            assert outcome is not None or row.id in left, (operation, row)
            may_have = outcome is not None and outcome.result is RowResult.DONE
            if row.state in FINISHED:
                counts[row.id] += may_have or row.id in open_before
    return counts


def places_of_jobs(client: Redis) -> Counter[str]:
    """In how many places each job is; its hash is where its place says, with its own data."""
    counts: Counter[str] = Counter()
    for name, place in PLACES.items():
        base = "spooldeck:bull:mails:" if place.is_ours else "bull:mails:"
        read = client.lrange if place.is_list else client.zrange
        for ident in map(str, read(base + name, 0, -1)):
            counts[ident] += 1
            key = f"{base}job:{ident}" if place.is_ours else base + ident
            assert client.hget(key, "data") == f'"{ident[1:]}"'
            assert place.is_ours != bool(client.exists(f"bull:mails:{ident}"))
    return counts


@pytest.fixture
def jobs(store: BullmqStore) -> set[str]:
    """Add jobs, each with its own data; their ids."""
    for number in range(JOBS):
        store.add_job(NewJob("mails", "report", f'"{number}"', id=f"t{number}"))
    return {f"t{number}" for number in range(JOBS)}


def check(client: Redis, store: BullmqStore, jobs: set[str], folder: Path) -> None:
    """Each job is in one place, and ran no more often than it was returned."""
    assert places_of_jobs(client) == Counter(dict.fromkeys(jobs, 1)), f"RIVALS_SEED={SEED}"
    returned, ran = returned_jobs(store, Journal(f"{folder}/journal")), runs(folder)
    for job in jobs:  # a busy machine may be too late to renew a lock
        for key in (f"bull:mails:{job}", f"spooldeck:bull:mails:job:{job}"):
            returned[f"mails/{job}"] += int(client.hget(key, "stc") or 0)
    without_reason = {
        job: (n, client.lrange(f"bull:mails:{job.partition('/')[2]}:logs", 0, -1))
        for job, n in ran.items()
        if n > 1 + returned[job]
    }
    assert without_reason == {}, f"RIVALS_SEED={SEED}"


def test_killed_operators_beside_a_worker_lose_no_job(
    client: Redis,
    store: BullmqStore,
    jobs: set[str],
    redis_url: str,
    start: StartWorker,
    tmp_path: Path,
) -> None:
    """Operators on one queue with a worker of ours, some killed while they change jobs: each job is
    in exactly one place, whole, and runs only as often as the journals say."""
    fails = "case $TASK_ID in *[37]) exit 1;; esac"
    worker = start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; {fails}")
    until(lambda: runs(tmp_path).total() > 20)
    assert play(redis_url, tmp_path / "journal", operators=2, rounds=16, kills=2) == 2
    worker.terminate()
    worker.wait()
    check(client, store, jobs, tmp_path)


@pytest.mark.deep
def test_killed_operators_beside_a_node_worker_lose_no_job(
    node: Node, client: Redis, store: BullmqStore, jobs: set[str], redis_url: str, tmp_path: Path
) -> None:
    """The same for longer, with a worker of Node."""
    worker = node.work()
    until(lambda: runs(tmp_path).total() > 20)
    assert play(redis_url, tmp_path / "journal", operators=3, rounds=80, kills=10) == 10
    worker.kill()
    worker.wait()
    check(client, store, jobs, tmp_path)


# ---- workers and servers


@pytest.mark.deep
def test_a_job_that_kills_its_worker_twice_fails(
    redis_server: TestServer, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """kill -9 of a worker in the middle of a job: another worker of ours returns the job when its
    lock has ended, once, as BullMQ's workers do; then a worker fails it with the reason."""
    add_jobs(redis_url, 1)
    for number in (1, 2):
        worker = start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; sleep 600")
        until(lambda number=number: runs(tmp_path).total() == number)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran")
    with redis_server.client() as client:
        until(lambda: client.zcard("bull:mails:failed") == 1)
        (job,) = client.zrange("bull:mails:failed", 0, -1)
        fields = client.hmget(f"bull:mails:{job}", "failedReason", "atm")
    assert fields == ["job stalled more than allowable limit", "1"]
    assert runs(tmp_path).total() == 2


@pytest.mark.deep
def test_a_killed_server_loses_no_job(start: StartWorker, tmp_path: Path) -> None:
    """Redis is killed three times while a worker runs jobs, with appendonly always, and started
    again: every job is completed, and a kill repeats at most the one that was running."""
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    kills, jobs = 3, 60
    with tempfile.TemporaryDirectory(prefix="sdk", dir="/tmp") as folder:
        for number in range(1, kills + 2):
            with running_server(*durable, folder=Path(folder)) as server:
                if number == 1:
                    add_jobs(server.place(), jobs)
                    start(server.place(), f"echo $TASK_ID >>{tmp_path}/ran")
                await_completed(server, number * jobs // (kills + 1))
                if number <= kills:
                    assert server.process is not None
                    server.process.kill()
                    server.process.wait()
    counts = runs(tmp_path)
    assert len(counts) == jobs
    assert counts.total() - jobs <= kills, counts
