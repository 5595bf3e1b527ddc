"""The rows of mail: the Kannader worker beside smtplib, `mail send` beside curl, to one server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tests.bench.measure import (
    CLEAN,
    PYTHON,
    SPOOLDECK,
    Bench,
    Figures,
    Unmeasurable,
    compare,
    cpu_and_wall,
    cpu_of,
    interleave,
    scratch,
)

HOST, SENDER, RECIPIENT = "127.0.0.1", "queue@example.org", "ops@example.com"

SERVER = """\
import asyncio
from aiosmtpd.smtp import SMTP

class Sink:
    async def handle_DATA(self, server, session, envelope):
        return "250 OK"

async def main():
    loop = asyncio.get_running_loop()
    made = lambda: SMTP(Sink(), hostname="mx.example.org", loop=loop)
    server = await loop.create_server(made, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""
"""An SMTP server that drops each mail; a process of its own, so that its CPU is not counted."""

BARE = """\
import os, smtplib, sys
from concurrent.futures import ThreadPoolExecutor
port, folder, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
queue, inflight = (os.open(f"{folder}/{name}", os.O_RDONLY) for name in ("queue", "inflight"))

def send(name):
    os.rename(name, name, src_dir_fd=queue, dst_dir_fd=inflight)
    os.fsync(inflight)
    with open(f"{folder}/mail", "rb") as file, smtplib.SMTP("127.0.0.1", port) as server:
        server.sendmail("queue@example.org", f"{name}@example.com", file.read())
    os.unlink(name, dir_fd=inflight)
    os.fsync(inflight)

with ThreadPoolExecutor(threads) as pool:
    list(pool.map(send, sorted(os.listdir(queue))))
"""
"""The floor: for each mail a rename, a connection, an unlink, and two fsyncs, as our worker does."""

MAIL = "Subject: bench\n\n" + "A line of a short mail.\n" * 20


class Cost(NamedTuple):
    """Milliseconds a mail."""

    cpu: float
    wall: float


@contextmanager
def _server() -> Iterator[int]:
    """A server of its own; yields its port."""
    argv = [sys.executable, "-c", SERVER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=CLEAN) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise Unmeasurable("the SMTP server did not start: is aiosmtpd installed?")
            yield int(line)
        finally:
            process.kill()


def _config(folder: str, port: int) -> str:
    path = f"{folder}/config.yaml"
    with open(path, "w") as file:
        file.write(
            f"stores: {{kannader: {{host: {HOST}, port: {port}, tls: none}}}}\n"
            f"mail: {{method: curl, relay: {{host: {HOST}, port: {port}}},"
            f" plain_hosts: [{HOST}], sender: {SENDER}}}\n"
        )
    return path


def _ours(port: int, number: int, jobs: int) -> Cost:
    """The worker on a spool with so many mails, without the cost of its start."""
    with scratch() as folder:
        config = _config(folder, port)
        with open(f"{folder}/mail", "w") as file:
            file.write(MAIL)
        subprocess.run(
            [SPOOLDECK, "kannader", "init", f"{folder}/spool"],
            check=True,
            env=CLEAN,
            capture_output=True,
        )
        words = ["--until-idle", "--concurrency", str(jobs)]
        work = [SPOOLDECK, "--config", config, "kannader", "work", f"{folder}/spool", *words]
        idle = cpu_and_wall(work, ok=(0, 1))
        to = [word for n in range(number) for word in ("--to", f"user{n}@example.com")]
        add = [SPOOLDECK, "kannader", "enqueue", "--from", SENDER, *to]
        cpu_of([*add, f"{folder}/mail", f"{folder}/spool"])
        busy = cpu_and_wall(work)
        left = len(os.listdir(f"{folder}/spool/queue"))
        assert not left, f"the worker left {left} of {number} mails"
    return Cost(*((b - a) / number for a, b in zip(idle, busy, strict=True)))


def _bare(port: int, number: int, jobs: int) -> Cost:
    with scratch() as folder:
        for name in ("queue", "inflight"):
            os.mkdir(f"{folder}/{name}")
        with open(f"{folder}/mail", "w") as file:
            file.write(MAIL)
        work = [sys.executable, "-c", BARE, str(port), folder, str(jobs)]
        idle = cpu_and_wall(work)
        for n in range(number):
            os.symlink(f"{folder}/mail", f"{folder}/queue/user{n}")
        busy = cpu_and_wall(work)
    return Cost(*((b - a) / number for a, b in zip(idle, busy, strict=True)))


def kannader(bench: Bench) -> Figures:
    """CPU and wall time of a mail: the wall time includes the server's, and shows any delay."""
    number = 40 if bench.quick else 150
    with _server() as port:
        for jobs in (1, 4):
            costs: dict[str, list[Cost]] = {"ours": [], "bare": []}

            def run(name: str, jobs: int = jobs, costs: dict[str, list[Cost]] = costs) -> float:
                way = _ours if name == "ours" else _bare
                costs[name].append(way(port, number, jobs))
                return 0.0

            interleave({name: partial(run, name) for name in costs}, min(bench.rounds, 3))
            beside = f"smtplib, {PYTHON}"
            for part, unit in enumerate(("ms CPU", "ms wall")):
                ours, bare = ([cost[part] for cost in costs[name]] for name in costs)
                yield compare(f"concurrency {jobs}, a mail", unit, ours, bare, beside, 1.5)


def send(bench: Bench) -> Figures:
    """CPU of one mail by the command, and by curl alone."""
    with _server() as port, scratch() as folder:
        config = _config(folder, port)
        with open(f"{folder}/mail", "w") as file:
            file.write(f"From: {SENDER}\nTo: {RECIPIENT}\n{MAIL}")
        subprocess.run(
            [SPOOLDECK, "init", f"{folder}/place"], check=True, env=CLEAN, capture_output=True
        )
        words = ["--root", f"{folder}/place", "--config", config, "mail", "send", "hello there"]
        url = [f"smtp://{HOST}:{port}", "--mail-from", SENDER, "--mail-rcpt", RECIPIENT]
        ways = {
            "ours": partial(cpu_of, [SPOOLDECK, *words, RECIPIENT], NFTBAN_MAIL_METHOD="curl"),
            "curl": partial(cpu_of, ["curl", "-sS", *url, "-T", f"{folder}/mail"]),
        }
        costs = interleave(ways, bench.rounds)
        done = subprocess.run(["curl", "-V"], env=CLEAN, capture_output=True, text=True, check=True)
    beside = " ".join(done.stdout.split()[:2])
    yield compare("one mail", "ms CPU", costs["ours"], costs["curl"], beside, 5.0)
