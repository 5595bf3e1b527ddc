"""Tasks that come and go at a steady rate in four formats: `python -m tests.bench.traffic`."""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from engine import verbs
from engine.config.place_address import parse_address
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.nftban import store as nftban
from engine.formats.zgb.schema import create
from engine.model import Move, Task
from engine.store import Store
from tests.bench.measure import ERRORS, KINDS

MAIL = [b"Subject: a report\n\nAll of it.\n"]
LOG_LINE = "[{}] [{}] MAIL_SEND_RESULT task_id={} status={} transport=curl attempt=1\n"
JOB_OPTIONS = {"removeOnComplete": 100}
ADD_MAIL = "INSERT INTO mail_queue (registration_number, mail_type) VALUES (?, 'user')"
PARK_MAIL = (
    "UPDATE mail_queue SET status = 'failed', attempts = 9, next_attempt_at = 253402300799,"
    " last_error = ? WHERE registration_number = ?"
)
BATCH = 250


def paths_in(folder: str) -> tuple[str, str, str]:
    """The places in a folder: a task spool, a mail spool, a database."""
    return f"{folder}/tasks", f"{folder}/mails", f"{folder}/mail.db"


def make_places(folder: str, url: str, dead: int) -> None:
    """Make the places, with so many dead tasks in the three that have a dead-letter queue."""
    tasks, mails, database = paths_in(folder)
    nftban.make_spool(_spool(tasks), exclusive=True)
    for name in ("run", "log", "metrics", "mailspool"):
        os.makedirs(f"{tasks}/{name}", exist_ok=True)
    make_spool(mails)
    create(database)
    with closing(sqlite3.connect(database)) as db, db:
        registrations = ((n, 0) for n in range(1, 100_000))
        db.executemany("INSERT INTO registrations VALUES (?, ?)", registrations)
    with traffic(folder, url, 1) as turn:
        for number in range(dead // BATCH // 3):
            turn(BATCH, ERRORS[number % len(ERRORS)])


def _spool(root: str) -> nftban.SpoolFolders:
    queue = f"{root}/queue"
    folders = nftban.SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
    return folders._replace(max_pending=100_000, durable=False)


def _end(store: Store, count: int, error: str) -> Iterator[Task]:
    """Take and end up to so many due tasks, as dead if there is an error."""
    for task in list(store.take(time.time() + 1, "bench", count)):
        state = store.claim_rules.done_state
        done = None if state is None else verbs.complete(task, state)
        failed = verbs.give_up_task(task, f"{error} <{task.id}>", 1)
        store.swap(task, failed if error else done)
        yield task


@contextmanager
def traffic(folder: str, url: str, first: int) -> Iterator[Callable[[int, str], None]]:
    """Open the places; each call adds so many tasks in each of them and ends as many, in success if
    there is no error."""
    tasks, mails, database = paths_in(folder)
    numbered = itertools.count(first)
    with ExitStack() as stack:
        spool = stack.enter_context(closing(nftban.NftbanStore(_spool(tasks))))
        mail = stack.enter_context(closing(KannaderStore(mails, durable=False)))
        jobs = stack.enter_context(closing(BullmqStore(parse_place(parse_address(url)))))
        db = stack.enter_context(closing(sqlite3.connect(database, isolation_level=None)))
        log = stack.enter_context(open(f"{tasks}/log/mail.log", "a", buffering=1))
        db.execute("PRAGMA synchronous = OFF")

        def turn(count: int, error: str) -> None:
            now, numbers = time.time(), [next(numbered) for _ in range(count)]
            new = (
                verbs.enqueue(KINDS[n % 3], now, f"{n:08x}", f"mail to user{n}@host{n % 200}")
                for n in numbers
            )
            for outcome in spool.swap_all(Move(None, task) for task in new):
                assert outcome.error is None, outcome.error
            for task in _end(spool, count, error):
                stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
                words = ("ERROR", "failed") if error else ("INFO", "success")
                log.write(LOG_LINE.format(stamp, words[0], task.id, words[1]))
            for n in numbers:
                jobs.add_job(NewJob("orders", f"invoice{n % 9}", f'{{"order": {n}}}', JOB_OPTIONS))
                db.execute(ADD_MAIL, (n,))
            for _ in _end(jobs, count, error):
                pass
            if error:
                db.executemany(PARK_MAIL, ((error, n) for n in numbers))
                return
            db.executemany("DELETE FROM mail_queue WHERE registration_number = ?", zip(last))
            last[:] = numbers
            for n in numbers:
                mail.enqueue("a@b.example", [f"user{n}@host{n % 200}.example"], MAIL)
            for _ in _end(mail, count, ""):
                pass

        last: list[int] = []
        yield turn


def main() -> None:
    """Add and end so many tasks in so many seconds, five at a time in each place."""
    folder, url, first, number, seconds = sys.argv[1:]
    turns, began = int(number) // 20, time.monotonic()
    with traffic(folder, url, int(first)) as turn:
        for n in range(turns):
            turn(5, "")
            left = began + (n + 1) * float(seconds) / turns - time.monotonic()
            time.sleep(max(0.0, left))
    print(time.monotonic() - began)


if __name__ == "__main__":
    main()
