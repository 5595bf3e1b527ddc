"""The row of the MAILQ server: a report on many threads, beside writing the same bytes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from engine.formats.zmailer.mailq.acl import digest
from engine.formats.zmailer.mailq.queue_view import GroupView, SchedulerView, ThreadView, TotalsView
from engine.formats.zmailer.mailq.server import MailqServer
from tests.bench.measure import Bench, Figures, compare, interleave
from tests.mailq_server import USERS, SampleQueue

THREADS = 10_000
NOW = 1_795_168_178.0
CHUNK = 1 << 20


class ThreadQueue(SampleQueue):
    """A queue of many waiting threads; `age` makes a view that was not asked for yet."""

    def __init__(self) -> None:
        super().__init__((), NOW)
        self._views = 0
        self.age()

    def age(self) -> None:
        """Let a second pass."""
        self._views += 1
        threads = tuple(
            ThreadView(
                "smtp",
                f"mx{n}.example.net",
                3,
                recipients=5,
                attempts=n % 40,
                oldest_at=NOW - n,
                wakeup=NOW + 60 + n,
            )
            for n in range(THREADS)
        )
        pair, none = (THREADS, THREADS), (0, 0)
        group = GroupView(
            "smtp",
            "*",
            threads,
            thread_count=pair,
            messages=3 * THREADS,
            agents=none,
            idle=none,
            max_agents=20,
            overfeed=150,
            max_thread_agents=1,
        )
        totals = TotalsView(
            0,
            0,
            30_000,
            threads=THREADS,
            recipients=30_000,
            uptime=76,
            messages_in=1,
            messages_out=0,
            messages_stored=(1, 1),
            recipients_in=1,
            recipients_out=0,
            recipients_stored=(1, 1),
        )
        self._shown = SchedulerView(NOW + self._views, (group,), totals)

    def view(self, *, with_jobs: bool) -> SchedulerView:
        """The view of this second."""
        return self._shown


def threads(bench: Bench) -> Figures:
    """The time until a peer has read the whole report, of 10,000 threads."""
    theirs, mine = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    queue = ThreadQueue()
    server = MailqServer([listener], queue, USERS)
    with socket.create_connection(listener.getsockname()) as peer:
        peer.setblocking(False)
        server.step(1.0)
        challenge = _read(peer, server.step, b"\n", 2).decode().split("\n")[1]
        peer.sendall(f"AUTH root {digest(challenge, 's3cret')}\n".encode())
        _read(peer, server.step, b"+OK\n")

        def ask() -> float:
            began = time.perf_counter()
            peer.sendall(b"SHOW QUEUE THREADS\n")
            _read(peer, server.step, b"\n.\n")
            return 1000 * (time.perf_counter() - began)

        def ask_later() -> float:
            queue.age()
            return ask()

        ask()
        peer.sendall(b"SHOW QUEUE THREADS\n")
        text = _read(peer, server.step, b"\n.\n")
        for end in (theirs, mine):
            end.setblocking(False)

        def write_bytes() -> float:
            left = memoryview(text)
            began = time.perf_counter()

            def step() -> None:
                nonlocal left
                try:
                    left = left[mine.send(left) :]
                except BlockingIOError:
                    return

            _read(theirs, step, b"\n.\n")
            return 1000 * (time.perf_counter() - began)

        variants = {"ours": ask, "write": write_bytes, "first": ask_later}
        costs = interleave(variants, 10 * bench.rounds)
    server.close()
    for end in (theirs, mine):
        end.close()
    baseline = f"writing the {len(text) >> 10:,} KiB"
    ours, first, write = (costs[name] for name in ("ours", "first", "write"))
    yield compare("a report that was asked for before", "ms", (ours, write), baseline, 2)
    yield compare("the first report of a second", "ms", (first, write), baseline, None)


def _read(peer: socket.socket, step: Callable[[], None], end: bytes, times: int = 1) -> bytes:
    """Read until an answer has ended, stepping the writer between."""
    parts = list[bytes]()
    while not (parts and parts[-1].endswith(end) and b"".join(parts).count(end) >= times):
        step()
        try:
            parts.append(peer.recv(CHUNK))
        except BlockingIOError:
            continue
    return b"".join(parts)
