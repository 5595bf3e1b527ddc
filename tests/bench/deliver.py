"""The rows of HTTP deliveries, to a peer on loopback that is a process of its own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import sqlite_version as SQLITE
from typing import Any

import httpx
import psycopg

from engine import verbs
from engine.config.deliver_config import parse_allowed
from engine.config.place_address import parse_address
from engine.delivery.breaker import Breaker
from engine.delivery.deliver import DeliverHandler
from engine.delivery.http_client import HttpClient
from engine.delivery.status_table import make_outcomes
from engine.delivery.url_guard import UrlGuard
from engine.destinations.destination import Destination
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.policy import contract_retries, retries_of
from engine.schedules import NO_RETRY, parse_schedule
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.bench.measure import Bench, Cost, Figures, compare, interleave, measured, scratch
from tests.postgres_server import open_server as open_postgres
from tests.redis_server import TestServer, running_server
from tui.cli.formats.nftban.worker_parts import with_payload

AT_ONCE = 16
"""Requests at the same time."""

BODY = "x" * 1024

_PEER = """
import asyncio

class Peer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.wanted, self.data = transport, 0, b""

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\\r\\n\\r\\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length: ")
            size = int(head[at + 16 :].split(b"\\r\\n")[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + size:
                return
            self.data = self.data[end + 4 + size :]
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

async def main():
    server = await asyncio.get_running_loop().create_server(Peer, "0.0.0.0", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
"""A peer on each address of 127.0.0.0/8 and one port, which it prints."""


@contextmanager
def running_peer() -> Iterator[int]:
    """The port of a peer that answers 200 to each request."""
    with subprocess.Popen([sys.executable, "-c", _PEER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def _requests(number: int, port: int, living: int, dead: int) -> list[bytes]:
    """Requests to living and dead destinations in turn; on port 9 of the dead nothing listens."""
    urls = [f"http://127.0.{n // 250}.{n % 250 + 1}:{port}/" for n in range(living)]
    urls += [f"http://127.1.{n // 250}.{n % 250 + 1}:9/" for n in range(dead)]
    return [
        json.dumps({"url": urls[n % len(urls)], "method": "POST", "body": BODY}).encode()
        for n in range(number)
    ]


@contextmanager
def _handler(breaker: Breaker | None = None) -> Iterator[DeliverHandler]:
    client = HttpClient(UrlGuard([parse_allowed("127.0.0.0/8")]))
    yield DeliverHandler(client, make_outcomes("default"), 15.0, breaker)
    client.close()


def _spool(folder: str, requests: list[bytes]) -> NftbanStore:
    """An NFTBan queue with a task for each request."""
    queue, mails = f"{folder}/queue", f"{folder}/mailspool"
    spool = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", mails, durable=False)
    make_spool(spool)
    Path(spool.mail_spool).mkdir()
    store = NftbanStore(spool)
    for n, data in enumerate(requests):
        payload = Path(spool.mail_spool, f"{n}.json")
        payload.write_bytes(data)
        store.swap(None, verbs.enqueue("push", time.time(), f"{n:08x}", payload=str(payload)))
    return store


def _spent(run: Callable[[], int], number: int) -> Cost:
    """Microseconds for each of so many deliveries."""

    def act() -> None:
        done = run()
        assert done == number, f"{done} of {number} delivered"

    return measured(act, number / 1000)


def _compare(
    what: str, costs: Sequence[Cost], floor: Sequence[Cost], compared_with: str, limit: float
) -> Figures:
    """By processor time with a limit, and by the clock, which other programs change."""
    cpu = [one.cpu for one in costs], [one.cpu for one in floor]
    wall = [one.wall for one in costs], [one.wall for one in floor]
    yield compare(what, "us CPU", (cpu[0], cpu[1]), compared_with, limit)
    yield compare("the same", "us wall", (wall[0], wall[1]), compared_with, None)


def _on_nftban(requests: list[bytes], number: int, *, gates: bool = False) -> Cost:
    """The cost of each delivery that succeeds, `number` in all."""
    with scratch(2 * len(requests)) as folder:
        registry = SqlRegistry(parse_address(f"sqlite://{folder}/destinations.db"), creates=True)
        probes = parse_schedule("exponential 5m")
        breaker = Breaker(registry, probes, is_gating=True, patience=30)
        with (
            closing(_spool(folder, requests)) as store,
            _handler(breaker if gates else None) as send,
        ):
            handlers = {"push": with_payload(send, SpoolFolders("", "", "", f"{folder}/mailspool"))}
            services = WorkerServices(slots={"push": AT_ONCE})
            settings: dict[str, Any] = {"concurrency": AT_ONCE, "services": services}
            worker = Worker(store, handlers, contract_retries(), **settings)
            cost = _spent(lambda: worker.process_all(until_idle=True).done, number)
        registry.close()
        return cost


def _on_bullmq(server: TestServer, requests: list[bytes]) -> Cost:
    place = parse_place(parse_address(server.place()))._replace(queues=("push",))
    with server.client() as client:
        client.flushall()
    with closing(BullmqStore(place)) as store, _handler() as send:
        for data in requests:
            store.add_job(NewJob("push", "request", data.decode()))
        services = WorkerServices(slots={"push": AT_ONCE}, data_kinds=("push",))
        settings: dict[str, Any] = {"owner": "bench", "concurrency": AT_ONCE, "services": services}
        worker = Worker(store, {"push": send}, retries_of(NO_RETRY), **settings)
        return _spent(lambda: worker.process_all(until_idle=True).done, len(requests))


def _bare(requests: list[bytes]) -> Cost:
    """The same requests by a loop on as many threads."""
    with httpx.Client(trust_env=False) as client, ThreadPoolExecutor(AT_ONCE) as threads:

        def send(data: bytes) -> bool:
            request = json.loads(data)
            sent = client.request(request["method"], request["url"], content=request["body"])
            return sent.is_success

        return _spent(lambda: sum(threads.map(send, requests)), len(requests))


def httpx_loop(bench: Bench) -> Figures:
    """Deliveries of an NFTBan queue beside a bare loop."""
    number = 500 if bench.quick else 2_000
    with running_peer() as port:
        requests = _requests(number, port, 1, 0)
        variants = {"ours": partial(_on_nftban, requests, number), "bare": partial(_bare, requests)}
        costs = interleave(variants, bench.rounds)
    what = f"{number:,} of 1 KiB, {AT_ONCE} at once, a delivery"
    yield from _compare(what, costs["ours"], costs["bare"], f"httpx {httpx.__version__}", 1.25)


def dead_peers(bench: Bench) -> Figures:
    """Deliveries to 900 living destinations with and without 100 dead ones, breaker on."""
    each = 2 if bench.quick else 4
    with running_peer() as port:
        with_dead, without = (_requests(n * each, port, 900, n - 900) for n in (1000, 900))
        variants = {
            "dead": partial(_on_nftban, with_dead, 900 * each, gates=True),
            "none": partial(_on_nftban, without, 900 * each, gates=True),
        }
        costs = interleave(variants, bench.rounds)
    what = f"{900 * each:,} beside {100 * each} to dead peers, a delivery"
    yield from _compare(what, costs["dead"], costs["none"], "no dead peers", 1 / 0.95)


def bullmq(bench: Bench) -> Figures:
    """Deliveries of a BullMQ queue beside those of an NFTBan queue."""
    number = 500 if bench.quick else 2_000
    with running_server() as server, running_peer() as port:
        requests = _requests(number, port, 1, 0)
        variants = {
            "bullmq": partial(_on_bullmq, server, requests),
            "nftban": partial(_on_nftban, requests, number),
        }
        costs = interleave(variants, bench.rounds)
    what = f"{number:,} of 1 KiB, {AT_ONCE} at once, a delivery"
    yield from _compare(what, costs["bullmq"], costs["nftban"], "on nftban", 1 / 0.7)


SWAPS = 300


def registry(bench: Bench) -> Figures:
    """A compare-and-swap of the registry, beside a bare UPDATE of the same row; all committed."""
    with scratch(10) as folder:
        path = f"{folder}/destinations.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as bare:
            yield from _swaps(bench, f"sqlite://{path}", bare, f"UPDATE by SQLite {SQLITE}")
    with open_postgres() as url, psycopg.connect(url, autocommit=True) as db:
        yield from _swaps(bench, url, db, f"UPDATE by psycopg {psycopg.__version__}")


def _swaps(bench: Bench, url: str, bare: Any, compared_with: str) -> Figures:
    sign = "%s" if url.startswith("postgresql") else "?"
    update = f"UPDATE destinations SET probes = {sign}, rev = rev + 1 WHERE origin = {sign}"
    with closing(SqlRegistry(parse_address(url), creates=True)) as known:
        urls = "https://a.example", "https://b.example"
        ours, other = (known.swap(None, Destination(url)) for url in urls)

        def swap() -> int:
            now = known.get(ours.origin)
            for number in range(SWAPS):
                now = known.swap(now, now._replace(probes=number))
            return SWAPS

        def write() -> int:
            for number in range(SWAPS):
                bare.execute(update, (number, other.origin))
            return SWAPS

        ways = {"ours": partial(_spent, swap, SWAPS), "bare": partial(_spent, write, SWAPS)}
        costs = interleave(ways, 5 * bench.rounds)
    what = f"a compare-and-swap in {parse_address(url).scheme}"
    yield from _compare(what, costs["ours"], costs["bare"], compared_with, 2.5)
