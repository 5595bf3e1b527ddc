"""Operators, killed in the middle of their changes, beside a worker on the same queue.

The choices are drawn from a seed, which each failure names; when each process runs is up to the
system, so that a seed repeats a failure often, not always.
"""

from __future__ import annotations

import os
import random
import selectors
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from redis import Redis

from engine.config.place_address import parse_address
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.row import PLACES
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.operations.journal import Journal
from engine.operations.plans import RowResult
from engine.operations.undo import settle_operation
from tests.bullmq_workers import StartWorker, runs, until

ROOT = Path(__file__).resolve().parents[4]
SEED = int(os.environ.get("RIVALS_SEED", "20261124"))
JOBS = 150
FINISHED = frozenset({State.DEAD, State.DONE})
"""Each row that takes a job out of one of these states is a reason for one more run: retried, or
held or trashed, restored as held, and released. The release of a job that has not run is none."""


class Game(NamedTuple):
    """A server with jobs, and a journal."""

    url: str
    folder: Path

    def add_jobs(self) -> None:
        """Add jobs, each with its own data."""
        with closing(BullmqStore(parse_place(parse_address(self.url)))) as store:
            for number in range(JOBS):
                store.add_job(NewJob("mails", "report", f'"{number}"', id=f"t{number}"))

    def operator(self, seed: int) -> subprocess.Popen[bytes]:
        """Start an operator."""
        words = ["-m", "tests.bullmq_operator", self.url, str(self.folder / "journal")]
        return subprocess.Popen(
            [sys.executable, *words, str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def play(self, operators: int, rounds: int, kills: int) -> int:
        """Let operators act so many times together; some are killed while they send changes.
        Return how many were killed."""
        rng, killed = random.Random(SEED), 0
        playing = [self.operator(rng.getrandbits(32)) for _ in range(operators)]
        chances = [True] * kills + [False] * max(0, rounds // 2 - kills)
        rng.shuffle(chances)
        with selectors.DefaultSelector() as ready:
            for each in playing:
                ready.register(_out(each), selectors.EVENT_READ, each)
                _begin(each)
            while rounds > 0:
                for key, _ in ready.select():
                    each = key.data
                    data = os.read(key.fd, 5 * 1000)
                    assert data or killed, f"RIVALS_SEED={SEED}: an operator failed"
                    if b"did\n" in data:
                        rounds -= 1
                        _begin(each)
                    elif chances and chances.pop():
                        killed += 1
                        ready.unregister(_out(each))
                        each.kill()
                        _end(each)
                        new = self.operator(rng.getrandbits(32))
                        ready.register(_out(new), selectors.EVENT_READ, new)
                        playing = [*(one for one in playing if one is not each), new]
                        _begin(new)
        for each in playing:
            _end(each)
            assert each.returncode == 0, f"RIVALS_SEED={SEED}"
        return killed

    def returned(self) -> Counter[str]:
        """How often each job was returned to its queue at most; each row of the journal has an
        outcome, or its job is unchanged or is being moved."""
        counts: Counter[str] = Counter()
        journal = Journal(str(self.folder / "journal"))
        with closing(BullmqStore(parse_place(parse_address(self.url)))) as store:
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


def _out(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def _begin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b".")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input, read to its end, and wait for it."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    while process.stdout.read():
        pass
    process.stdout.close()
    process.wait(60)


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


def test_killed_operators_beside_a_worker_lose_no_job(
    client: Redis, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """Operators on one queue with a worker of ours, some killed while they change jobs: each job is
    in exactly one place, whole, and runs only as often as the journals say."""
    game = Game(redis_url, tmp_path)
    game.add_jobs()
    fails = "case $TASK_ID in *[37]) exit 1;; esac"
    worker = start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; {fails}")
    until(lambda: runs(tmp_path))
    assert game.play(operators=2, rounds=16, kills=2) > 0
    worker.terminate()
    worker.wait()

    each_job = {f"t{number}" for number in range(JOBS)}
    assert places_of_jobs(client) == Counter(dict.fromkeys(each_job, 1)), f"RIVALS_SEED={SEED}"
    returned, ran = game.returned(), runs(tmp_path)
    for job in each_job:  # a busy machine may be too late to renew a lock
        for key in (f"bull:mails:{job}", f"spooldeck:bull:mails:job:{job}"):
            returned[f"mails/{job}"] += int(client.hget(key, "stc") or 0)
    assert ran.total() > 20
    without_reason = {
        job: (n, client.lrange(f"bull:mails:{job.partition('/')[2]}:logs", 0, -1))
        for job, n in ran.items()
        if n > 1 + returned[job]
    }
    assert without_reason == {}, f"RIVALS_SEED={SEED}"
