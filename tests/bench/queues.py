"""The worker's rows on BullMQ queues, beside BullMQ's own workers on the same server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from engine.config.place_address import parse_address
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.policy import retries_of
from engine.schedules import NO_RETRY
from engine.store import Unavailable
from engine.work.handlers import Context
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.bench.measure import Bench, Figure, Figures, Unmeasurable, compare, interleave
from tests.redis_server import TestServer, running_server

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = max((ROOT / ".cache").glob("bullmq-6*/node_modules"), default=Path("none"))
"""Installed by the tests of Node's workers and of BullMQ's versions (tests/node_packages.py)."""

_STOCK = """
import asyncio, sys, time
import redis.asyncio
from bullmq import Worker

async def main(path, number, concurrency):
    client = redis.asyncio.Redis(unix_socket_path=path, decode_responses=True, socket_timeout=None)
    left, done = number, asyncio.Event()

    async def handler(job, token):
        nonlocal left
        left -= 1
        if not left:
            done.set()

    began = time.monotonic()
    worker = Worker("mails", handler, {"connection": client, "concurrency": concurrency})
    await done.wait()
    print(time.monotonic() - began, flush=True)
    await worker.close(True)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
"""The stock Python worker with its two known defects avoided (pool, no socket timeout)."""


def _noop(task: object, context: Context) -> None:
    pass


def _ours(server: TestServer, number: int, concurrency: int) -> float:
    """Seconds for so many jobs; leases are renewed as in `bullmq work`."""
    store = BullmqStore(parse_place(parse_address(server.place()))._replace(queues=("mails",)))
    services = WorkerServices(slots={"mails": concurrency})
    settings: dict[str, Any] = {"owner": "bench", "concurrency": concurrency, "services": services}
    worker = Worker(store, {"mails": _noop}, retries_of(NO_RETRY), **settings)
    began = time.monotonic()
    done = worker.process_all(until_idle=True).done
    spent = time.monotonic() - began
    store.close()
    assert done == number, f"{done} of {number} jobs done"
    return spent


def _node(server: TestServer, number: int, concurrency: int) -> float:
    text = json.dumps({"jobs": number, "concurrency": concurrency})
    script = str(ROOT / "tests/engine/formats/bullmq/node_bullmq.cjs")
    words = ["node", script, "bench", server.url.removeprefix("redis+unix://"), text]
    return _printed(words, {**os.environ, "NODE_PATH": str(NODE_MODULES)})


def _stock(server: TestServer, number: int, concurrency: int) -> float:
    path = server.url.removeprefix("redis+unix://")
    words = [sys.executable, "-c", _STOCK, path, str(number), str(concurrency)]
    return _printed(words, dict(os.environ))


def _printed(words: list[str], environment: dict[str, str]) -> float:
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Unmeasurable(f"{words[0]}: {ran.stderr.strip()[-200:]}")
    return float(ran.stdout.split()[0])


_PEERS = {"ours": _ours, "node": _node, "stock": _stock}


def bullmq_worker(bench: Bench) -> Figures:
    """No-op jobs of a queue: seconds by the clock per job, so that a lower ratio is faster."""
    number = 500 if bench.quick else 2_000
    without = set() if NODE_MODULES.is_dir() else {"node"}
    variants = {name: way for name, way in _PEERS.items() if name not in without}
    try:
        with running_server() as running:
            for concurrency in (1, 10):
                measured = {
                    name: partial(_filled, way, running, number, concurrency)
                    for name, way in variants.items()
                }
                costs = interleave(measured, bench.rounds)
                what = f"{number:,} no-ops, concurrency {concurrency}, a job"
                if "node" in costs:
                    yield compare(what, "us", (costs["ours"], costs["node"]), "Node 6", 1.0)
                else:
                    yield Figure(f"{what} (no Node 6 in .cache)", costs["ours"][0], "us")
                both = costs["ours"], costs["stock"]
                yield compare("the same", "us", both, "Python Worker", 0.75)
    except (FileNotFoundError, Unavailable) as error:
        raise Unmeasurable(str(error)) from None


def _filled(variant: object, server: TestServer, number: int, concurrency: int) -> float:
    """Microseconds per job of a worker on a queue that was filled before."""
    assert callable(variant)
    with server.client() as client:
        client.flushall()
    store = BullmqStore(parse_place(parse_address(server.place())))
    for _ in range(number):
        store.add_job(NewJob("mails", "report"))
    store.close()
    return float(variant(server, number, concurrency)) / number * 1e6
