"""Senders and workers of each format, killed by SIGKILL at random, and a server that counts mails.

What was acknowledged arrives at least once. It arrives again only where the log said before that it
may arrive twice.
"""

import os
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.formats.kannader.settings import KannaderSettings, retry_policy
from engine.formats.kannader.store import KannaderStore
from engine.formats.kannader.store import make_spool as make_kannader
from engine.formats.nftban.store import SpoolFolders, make_spool
from engine.formats.zgb.schema import create
from engine.mail.send.smtp_client import SmtpDestination
from engine.work.worker import Worker
from tests.rivals.game import ROUNDS, Process, Result, churn, spooldeck, start
from tests.smtp_server import HOST, Server
from tui.cli.formats.kannader.commands import make_handler

MAILS = 5000
"""Mails of one game, at most."""


class Format(NamedTuple):
    """How mails of one format are queued, sent and counted, in a folder."""

    make: Callable[[Path, int], None]
    """Makes the place and its configuration, for a server at a port."""
    add: str
    """The command that queues a mail; {n} is its number, {at} the folder."""
    work: str
    acknowledged: tuple[int, ...]
    """Exit codes of `add` that promise a delivery."""
    drain: Callable[[Path, int], Iterator[int]]
    """Lets time pass and delivers; yields how many mails are left."""
    refill: Callable[[Path], None] = lambda at: None
    """Gives what a worker may spend on mails."""


def run(at: Path, words: str, n: int = 0) -> Process:
    """A command on the place, as a process."""
    argv = [word.format(n=n, at=at) for word in words.split()]
    return start(spooldeck(at, *argv), at, NFTBAN_MAIL_RETRY_BACKOFF="0,0,0")


def _relay(port: int) -> str:
    relay = f"method: curl, relay: {{host: {HOST}, port: {port}}}, plain_hosts: ['{HOST}']"
    return f"mail: {{{relay}, sender: queue@example.org}}\n"


def _make_nftban(at: Path, port: int) -> None:
    queue = f"{at}/d/queue"
    make_spool(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
    (at / "d/mailspool").mkdir()
    waits = "queue: {max_retries: 90, backoff_base: 0.2, backoff_max: 0.5}\n"
    (at / "c.yaml").write_text(_relay(port) + waits)


def _drain_nftban(at: Path, port: int) -> Iterator[int]:
    staging, spool = at / "d/queue/.spooldeck", at / "d/mailspool"
    for draft in staging.glob("T.*"):  # as any recovery does after a minute
        draft.unlink()
    for mark in spool.glob("mail-*/queuing"):
        os.utime(mark, (1, 1))
    run(at, "--root {at}/d queue recover").wait()
    while True:
        run(at, "--root {at}/d queue work --until-idle").wait()
        yield sum(1 for _ in spool.glob("mail-*")) + sum(1 for _ in at.glob("d/queue/*/*.task"))


def _make_zgb(at: Path, port: int) -> None:
    create(f"{at}/q.db")
    (at / "u.txt").write_text("Hello {number}\n")
    letter = "{template: u.txt, subject: 'S {number}', to_column: email}"
    types = f"{{user: {letter}, organizer: {{enabled: false}}}}"
    (at / "c.yaml").write_text(_relay(port) + f"stores: {{zgb: {{types: {types}}}}}\n")
    with closing(sqlite3.connect(f"{at}/q.db")) as db, db:
        db.execute("ALTER TABLE registrations ADD COLUMN email TEXT")
        people = ((n, f"r{n}@example.org") for n in range(1, MAILS))
        db.executemany("INSERT INTO registrations VALUES (?, 0, ?)", people)
        values = {"mailQueueEnabled": 1, "mailMaxPerHour": 60, "mailTokens": 5}
        for key, value in values.items():
            db.execute("INSERT OR REPLACE INTO config VALUES (?, ?)", (key, str(value)))


def _refill_zgb(at: Path) -> None:
    with closing(sqlite3.connect(f"{at}/q.db", timeout=60)) as db, db:
        db.execute("UPDATE config SET value = '5' WHERE key = 'mailTokens'")


def _drain_zgb(at: Path, port: int) -> Iterator[int]:
    while True:
        with closing(sqlite3.connect(f"{at}/q.db", timeout=60)) as db, db:
            db.execute("UPDATE mail_queue SET locked_until = 1 WHERE status = 'sending'")
            db.execute("UPDATE mail_queue SET next_attempt_at = 1")
            ((left,),) = db.execute("SELECT count(*) FROM mail_queue")
        yield int(left)
        _refill_zgb(at)
        run(at, "zgb work {at}/q.db").wait()


def _make_kannader(at: Path, port: int) -> None:
    make_kannader(f"{at}/s")
    (at / "mail").write_text("Subject: x\n\nhello\n")
    (at / "c.yaml").write_text(f"stores: {{kannader: {{host: {HOST}, port: {port}}}}}\n")


def _drain_kannader(at: Path, port: int) -> Iterator[int]:
    log, hours = at / "s/.spooldeck/log/queue.log", 0

    def warn(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text}\n")

    while True:
        hours += 5  # a lease, or a wait
        clock = partial(float, time.time() + hours * 3600)
        with closing(KannaderStore(f"{at}/s", clock)) as store:
            store.recover(anyway=True)
            policy = retry_policy(KannaderSettings())
            with closing(make_handler(store, SmtpDestination(HOST, port), warn)) as handler:
                worker = Worker(store, {"mail": handler}, policy, clock=clock)
                worker.process_all(until_idle=True)
        yield sum(1 for word in ("queue", "inflight") for _ in (at / "s" / word).iterdir())


FORMATS: Mapping[str, Format] = {
    "nftban": Format(
        _make_nftban,
        "--root {at}/d mail send-with-retry hello r{n}@example.org",
        "--root {at}/d queue work",
        (0, 1),
        _drain_nftban,
    ),
    "zgb": Format(
        _make_zgb,
        "zgb enqueue {n} {at}/q.db --type user",
        "zgb work {at}/q.db",
        (0,),
        _drain_zgb,
        refill=_refill_zgb,
    ),
    "kannader": Format(
        _make_kannader,
        "kannader enqueue --from=a@b.example --to=r{n}@example.org {at}/mail {at}/s",
        "kannader work {at}/s --concurrency 2",
        (0,),
        _drain_kannader,
    ),
}


def play(at: Path, name: str, seed: int, going: Callable[[], bool]) -> Result:
    """One game in an empty folder: two senders and two workers at a time, killed at random.

    No acknowledged mail may be lost, and none arrive again but for a doubt that a log had before.
    """
    form, rng = FORMATS[name], random.Random(seed)
    no = ["" if rng.random() < 0.8 else "450 4.2.1 later" for _ in range(MAILS)]
    acknowledged, numbers, sent = set[str](), dict[int, int](), iter(range(1, MAILS))

    def is_going() -> bool:
        form.refill(at)
        return going() and len(numbers) < MAILS - 4

    def send() -> Process:
        number = next(sent)
        numbers[(process := run(at, form.add, number)).pid] = number
        return process

    def note(role: str, process: Process) -> None:
        if role.startswith("send") and process.returncode in form.acknowledged:
            acknowledged.add(f"r{numbers[process.pid]}@example.org")

    roles: dict[str, Callable[[], Process]] = {
        role: partial(run, at, form.work) for role in ("work 1", "work 2")
    }
    with Server(rcpt=no) as server:
        form.make(at, server.port)
        roles |= {"send 1": send, "send 2": send}
        kills = churn(roles, rng, is_going, 0.1, note)["kills"]
        left = 0
        for left, _ in zip(form.drain(at, server.port), range(ROUNDS), strict=False):
            if not left:
                break
        arrived = Counter(mail.recipients[0] for mail in server.mails)
    logs = [path.read_text() for log in ("mail.log", "queue.log") for path in at.rglob(log)]
    doubts = sum(text.count("MAIL_SEND_IN_DOUBT") for text in logs)
    again = arrived.total() - len(arrived)
    broken = [f"lost: {to}" for to in sorted(acknowledged - set(arrived))]
    broken += [f"{again} arrived again, {doubts} doubts"] * (again > doubts)
    broken += [f"left: {left}"] * bool(left)
    counts = {"acknowledged": len(acknowledged), "delivered": len(arrived), "kills": kills}
    return Result(counts | {"again": again, "doubts": doubts}, broken)
