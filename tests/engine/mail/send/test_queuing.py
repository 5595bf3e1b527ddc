"""Housekeeping makes the missing task of a spooled mail, once."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.mail.message.content import Content
from engine.mail.send import queuing, spool_entry
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.mail.send.queuing import QUEUING_SECONDS, queue_unqueued
from engine.model import State
from engine.store import StoreError


class Place:
    """A mail spool, and the queue beside it."""

    def __init__(self, root: Path) -> None:
        pending, work, dlq = (f"{root}/queue/{name}" for name in ("pending", "work", "dlq"))
        self.tasks = SpoolFolders(pending, work, dlq, f"{root}/mailspool")
        make_spool(self.tasks)
        self.spool = MailSpool(f"{root}/mailspool")
        self.store = NftbanStore(self.tasks)

    def keep(self) -> str:
        """Spool a mail whose sender is killed before it makes the task; returns its id."""
        ident = spool_entry.new_id(time.time())
        self.spool.store_mail(ident, "admin@example.com", "Alert", Content("hello\n", html=False))
        return ident

    def add(self, ident: str) -> None:
        """Make the task of a mail."""
        task = verbs.enqueue("mail_send", 1.0, "00000001", "", self.spool.meta_path(ident))
        self.store.swap(None, task)

    def read(self, ident: str) -> Spooled:
        """A mail as it is in the spool."""
        return self.spool.read(self.spool.meta_path(ident))

    def make_missing_tasks(
        self, seconds: float = 3600, store: NftbanStore | None = None
    ) -> list[str]:
        """Make the missing tasks, so many seconds from now."""
        store = store or self.store

        def enqueue(description: str, payload: str) -> str:
            task = verbs.enqueue("mail_send", 1.0, os.urandom(4).hex(), description, payload)
            store.swap(None, task)
            return task.id

        now = time.time() + seconds
        return list(queue_unqueued(self.spool, now, store.find_named_payloads, enqueue))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty one."""
    place = Place(tmp_path)
    with closing(place.store):
        yield place


def test_a_sender_has_a_minute_to_make_the_task(place: Place) -> None:
    """A mail gets its task once, a minute after it was spooled, or earlier if its sender failed."""
    ident = place.keep()
    assert place.make_missing_tasks(0) == []
    (line,) = place.make_missing_tasks(QUEUING_SECONDS + 1)
    assert line.startswith(f"Mail spool: {ident} had no task, queued as ")
    assert place.make_missing_tasks(QUEUING_SECONDS + 1) == []
    place.spool.mark_unqueued(place.keep())
    assert len(place.make_missing_tasks(0)) == 1


def test_a_mail_that_has_or_had_its_task_gets_no_other(place: Place) -> None:
    """A mail that a task names, whose task was made and is gone, or that was sent, gets no task."""
    named, done, sent = (place.keep() for _ in range(3))
    place.add(named)
    place.spool.mark_queued(done)
    place.spool.mark_sent(place.read(sent), "curl", time.time())
    assert place.make_missing_tasks() == []
    assert not place.read(named).queuing


def test_two_housekeepers_make_one_task_per_mail(place: Place) -> None:
    """Two processes that keep house at one time make one task for each mail."""
    for _ in range(5):
        place.keep()
    start, lines = Barrier(2), list[str]()

    def make_missing_tasks() -> None:
        with closing(NftbanStore(place.tasks)) as store:
            start.wait()
            lines.extend(place.make_missing_tasks(store=store))

    threads = [Thread(target=make_missing_tasks) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines) == place.store.count_tasks()[State.PENDING] == 5


def test_mails_without_need_block_no_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken, sent and locked mails are skipped, and a sent one loses its mark."""
    monkeypatch.setattr(queuing, "MAX_MAILS_PER_CALL", 1)
    broken, sent, locked, ident = sorted(place.keep() for _ in range(4))
    Path(place.spool.meta_path(broken)).unlink()
    place.spool.mark_sent(place.read(sent), "curl", time.time())
    with place.spool.lock_mail(locked):
        (line,) = place.make_missing_tasks()
    assert ident in line and not place.read(sent).queuing


def test_a_full_queue_still_clears_the_marks_of_mails_with_a_task(place: Place) -> None:
    """Marks of mails that have a task are removed though the queue refuses another task."""
    _, named = sorted(place.keep() for _ in range(2))
    place.add(named)

    def full(description: str, payload: str) -> str:
        raise StoreError("the queue is full")

    payloads = place.store.find_named_payloads
    with pytest.raises(StoreError):
        list(queue_unqueued(place.spool, time.time() + 3600, payloads, full))
    assert not place.read(named).queuing
