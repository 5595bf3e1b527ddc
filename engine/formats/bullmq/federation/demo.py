"""The demo place of deliveries by BullMQ queues to three servers on loopback; one dies and returns.

The servers have keys of their own and acknowledge each delivery. After `DIES_SECONDS` one of them
closes its port; its deliveries fail, and a health check finds it again after `BACK_SECONDS`.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from engine.config.place_address import parse_address
from engine.demo.keeper import DemoSettings, PastTraffic
from engine.formats.bullmq.demo import start_server
from engine.formats.bullmq.federation.jobs import POST, delivery_job
from engine.formats.bullmq.federation.keys import make_keys, write_keys
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.store import StoreError

DIES_SECONDS, BACK_SECONDS = 15.0, 75.0
"""Seconds after the start at which one server dies and comes back."""
LOST_JOBS = 200
"""Deliveries to it meanwhile."""
ENOUGH_JOBS = 300
"""Number of waiting jobs at which the traffic pauses."""
QUICK = {"attempts": 2, "backoff": {"type": "fixed", "delay": 2000}}
"""Options of its deliveries: they fail while you watch."""

_SETTINGS = """\
  origin: {origin}
  keys: {keys}
  allow: [127.0.0.0/8]
  probes: fixed 10s limit 60
"""


class DemoPeer:
    """A server that deliveries go to; its port can be closed and opened again."""

    def __init__(self) -> None:
        keys = make_keys().public
        self.described = {"publicKey": keys.signing, "encryptionPublicKey": keys.encryption}
        self._port = 0
        self._server: _PeerServer | None = None
        self.open()

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Listen, on the same port as before."""
        self._server = _PeerServer(self, self._port)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Refuse connections."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            with suppress(OSError):  # a forked process has the port too: end it for both
                server.socket.shutdown(socket.SHUT_RDWR)
            server.server_close()


class _PeerServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, peer: DemoPeer, port: int) -> None:
        self.described = peer.described
        super().__init__(("127.0.0.1", port), _PeerRequest)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that disconnects in the middle."""


class _PeerRequest(BaseHTTPRequestHandler):
    server: _PeerServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Describe the server, as /discover."""
        self._answer(self.server.described)

    def do_POST(self) -> None:
        """Acknowledge a delivery or a registration."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        time.sleep(0.05)
        self._answer({"status": "acknowledged"})

    def _answer(self, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class DemoDeliveries:
    """Both queues of a federation, with three servers; the last one dies and comes back."""

    name, interval = "federation", 1.0
    work: Mapping[str, Sequence[str]]

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Start the queues and the servers, and make our keys."""
        folder, self._random = settings.folder, random.Random(7)
        self._url, store = start_server(folder, PastTraffic(settings.now))
        self.work = {self._url: ("federation", "work")}
        self._peers = [DemoPeer() for _ in range(3)]
        home, keys = DemoPeer(), f"{folder}/keys"
        write_keys(keys, make_keys())
        with closing(store):
            for number in range(30):
                self._deliver(store, self._peers[number % 3], number)
        return {
            "destinations": f"  sqlite://{folder}/destinations.db\n",
            "federation": _SETTINGS.format(origin=home.url, keys=json.dumps(keys)),
        }

    def open(self) -> None:
        """Connect for the traffic."""
        self._clock, self._began = PastTraffic(time.time()), time.monotonic()
        self._steps = [(BACK_SECONDS, self._bring_back), (DIES_SECONDS, self._let_die)]
        self._store = BullmqStore(parse_place(parse_address(self._url)), self._clock)

    def add(self, now: float) -> None:
        """Add a delivery; let one server die, and bring it back."""
        self._clock.now = now
        with suppress(StoreError):
            if self._steps and time.monotonic() - self._began >= self._steps[-1][0]:
                _, step = self._steps.pop()
                step()
            if self._store.count_tasks()[State.PENDING] < ENOUGH_JOBS:
                self._deliver(self._store, self._random.choice(self._peers[:2]))

    def _let_die(self) -> None:
        self._peers[-1].close()
        for number in range(LOST_JOBS):
            self._deliver(self._store, self._peers[-1], number, QUICK)

    def _bring_back(self) -> None:
        self._peers[-1].open()

    def _deliver(
        self,
        store: BullmqStore,
        peer: DemoPeer,
        number: int = 0,
        options: Mapping[str, object] = {},
    ) -> None:
        post = {"id": number or self._random.randrange(10**6), "content": "Hello"}
        payload = json.dumps({"method": "FEDERATE_POST", "post": post})
        job = delivery_job(POST, peer.url, f"{peer.url}/api/auth/social/posts", payload)
        store.add_job(job._replace(options={**job.options, **options}))
