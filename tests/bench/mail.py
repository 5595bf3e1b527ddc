"""The rows of mail: the Kannader worker beside smtplib, `mail send` beside curl, to one server."""

from __future__ import annotations

import os
import sys
from functools import partial

from tests.bench.measure import (
    PYTHON,
    SPOOLDECK,
    Bench,
    Cost,
    Figures,
    Ways,
    command,
    compare,
    cpu_and_wall,
    cpu_of,
    interleave,
    scratch,
)
from tests.smtp_server import HOST, Server

SENDER, RECIPIENT = "queue@example.org", "ops@example.com"
MAIL = f"From: {SENDER}\nTo: {RECIPIENT}\nSubject: bench\n\n" + "A line of a short mail.\n" * 20

BARE = """\
import os, smtplib, sys
from concurrent.futures import ThreadPoolExecutor
port, folder, threads, mail = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
queue, inflight = (os.open(f"{folder}/{name}", os.O_RDONLY) for name in ("queue", "inflight"))

def send(name):
    os.rename(name, name, src_dir_fd=queue, dst_dir_fd=inflight)
    os.fsync(inflight)
    with open(mail, "rb") as file, smtplib.SMTP("127.0.0.1", port) as server:
        server.sendmail("queue@example.org", "ops@example.com", file.read())
    os.unlink(name, dir_fd=inflight)
    os.fsync(inflight)

with ThreadPoolExecutor(threads) as pool:
    list(pool.map(send, sorted(os.listdir(queue))))
"""
"""The floor: for each mail a rename, a connection, an unlink and two fsyncs. Our worker keeps its
connections."""


ONE_MAIL = f"""
import smtplib, sys
with open(sys.argv[2], "rb") as file, smtplib.SMTP("127.0.0.1", int(sys.argv[1])) as server:
    server.sendmail("{SENDER}", "{RECIPIENT}", file.read())
"""


def _prepare(folder: str, port: int) -> None:
    """Write the mail and the configuration, and make the folders of both places."""
    with open(f"{folder}/mail", "w") as file:
        file.write(MAIL)
    with open(f"{folder}/config.yaml", "w") as file:
        file.write(
            f"stores: {{kannader: {{host: {HOST}, port: {port}, tls: none}}}}\n"
            f"mail: {{method: curl, relay: {{host: {HOST}, port: {port}}},"
            f" plain_hosts: [{HOST}], sender: {SENDER}}}\n"
        )
    command(SPOOLDECK, "kannader", "init", f"{folder}/spool")
    command(SPOOLDECK, "init", f"{folder}/place")


def _work(port: int, number: int, jobs: int, *, is_bare: bool) -> Cost:
    """Milliseconds a mail of the worker or of the floor, without its start."""
    with scratch() as folder:
        _prepare(folder, port)
        spool = f"{folder}/spool"
        words = ["kannader", "work", spool, "--until-idle", "--concurrency", str(jobs)]
        work = [SPOOLDECK, "--config", f"{folder}/config.yaml", *words]
        if is_bare:
            work = [sys.executable, "-c", BARE, str(port), spool, str(jobs), f"{folder}/mail"]
        idle = cpu_and_wall(work, ok=(0, 1))
        to = [word for n in range(number) for word in ("--to", f"user{n}@example.com")]
        command(SPOOLDECK, "kannader", "enqueue", "--from", SENDER, *to, f"{folder}/mail", spool)
        busy = cpu_and_wall(work)
        left = len(os.listdir(f"{spool}/queue"))
        assert not left, f"{left} of {number} mails left"
    return Cost((busy.cpu - idle.cpu) / number, (busy.wall - idle.wall) / number)


def kannader(bench: Bench) -> Figures:
    """CPU and wall time of a mail: the wall time includes the server's, and shows any delay."""
    number = 20 if bench.quick else 100
    with Server() as server:
        for jobs in (1, 4):
            variants = {
                name: partial(_work, server.port, number, jobs, is_bare=name == "bare")
                for name in ("ours", "bare")
            }
            costs = interleave(variants, min(bench.rounds, 3))
            for part, unit in enumerate(("ms CPU", "ms wall")):
                ours, bare = ([cost[part] for cost in costs[name]] for name in variants)
                what, baseline = f"concurrency {jobs}, a mail", f"smtplib, {PYTHON}"
                yield compare(what, unit, (ours, bare), baseline, 1.5)


def send(bench: Bench) -> Figures:
    """CPU of one mail by the command, by a Python that sends it with smtplib, and by curl alone."""
    with Server() as server, scratch() as folder:
        _prepare(folder, server.port)
        words = ["--root", f"{folder}/place", "--config", f"{folder}/config.yaml", "mail", "send"]
        ours = [SPOOLDECK, *words, "hello there", RECIPIENT]
        url = [f"smtp://{HOST}:{server.port}", "--mail-from", SENDER, "--mail-rcpt", RECIPIENT]
        bare = ["curl", "-sS", *url, "-T", f"{folder}/mail"]
        baseline = " ".join(command("curl", "-V").split()[:2])
        ours_and_curl = partial(cpu_of, ours, NFTBAN_MAIL_METHOD="curl")
        python = [sys.executable, "-c", ONE_MAIL, str(server.port), f"{folder}/mail"]
        ways: Ways = {"ours": ours_and_curl, "python": partial(cpu_of, python)}
        costs = interleave(ways | {"curl": partial(cpu_of, bare)}, 2 * bench.rounds)
        peer = f"smtplib, {PYTHON}"
        yield compare("one mail", "ms CPU", (costs["ours"], costs["python"]), peer, 1.7)
        yield compare("the same", "ms CPU", (costs["ours"], costs["curl"]), baseline, None)
