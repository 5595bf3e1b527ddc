"""Spooled mails without a task: housekeeping makes it, once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread

import pytest

from engine import verbs
from engine.mail import queuing
from engine.mail.content import Content
from engine.mail.queuing import QUEUING_SECONDS, queue_unqueued
from engine.mail.spool import MailSpool
from engine.model import State
from engine.store import StoreError
from engine.stores.nftban import NftbanStore, Spool, make_spool

TEXT = Content("hello\n", html=False)


def place(root: Path) -> tuple[MailSpool, Callable[[], NftbanStore]]:
    """A mail spool, and what opens the queue beside it."""
    queue = f"{root}/queue"
    tasks = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")
    make_spool(tasks)
    return MailSpool(f"{root}/mailspool"), lambda: NftbanStore(tasks)


def kept(spool: MailSpool) -> str:
    """The id of a mail whose sender was killed before it made the task."""
    ident = spool.fresh_id(time.time())
    spool.keep(ident, "admin@example.com", "Alert", TEXT)
    return ident


def housekeeping(spool: MailSpool, store: NftbanStore, now: float) -> list[str]:
    """Make what tasks are missing."""

    def enqueue(description: str, payload: str) -> str:
        task = verbs.enqueue("mail_send", now, os.urandom(4).hex(), description, payload)
        store.swap(None, task)
        return task.id

    return list(queue_unqueued(spool, now, store.named, enqueue))


def test_a_sender_has_a_minute_to_make_the_task(tmp_path: Path) -> None:
    """A mail spooled just now is left to its sender; one spooled a minute ago gets its task."""
    spool, opened = place(tmp_path)
    ident, now = kept(spool), time.time()

    with closing(opened()) as store:
        assert housekeeping(spool, store, now) == []
        (line,) = housekeeping(spool, store, now + QUEUING_SECONDS + 1)
        assert housekeeping(spool, store, now + QUEUING_SECONDS + 1) == []

    assert line.startswith(f"Mail spool: {ident} had no task, queued as ")


def test_a_mail_that_has_or_had_its_task_gets_no_other(tmp_path: Path) -> None:
    """Not where a task names it, though its sender was killed before it removed the mark; not where
    its task was made and is gone, or it was sent."""
    spool, opened = place(tmp_path)
    with closing(opened()) as store:
        named, done, sent = (kept(spool) for _ in range(3))
        store.swap(None, verbs.enqueue("mail_send", 1.0, "00000001", "", spool.meta_of(named)))
        spool.queued(done)
        spool.accepted(spool.read(spool.meta_of(sent)), "curl", time.time())

        assert housekeeping(spool, store, time.time() + 3600) == []

    assert not spool.read(spool.meta_of(named)).queuing


def test_a_mail_that_the_queue_did_not_take_is_queued_later(tmp_path: Path) -> None:
    """Where the sender itself failed to make the task, the next housekeeping does."""
    spool, opened = place(tmp_path)
    spool.unqueued(kept(spool))

    with closing(opened()) as store:
        assert len(housekeeping(spool, store, time.time())) == 1


def test_of_two_at_once_one_makes_the_task(tmp_path: Path) -> None:
    """Two processes that keep house make one task for each mail."""
    spool, opened = place(tmp_path)
    for _ in range(5):
        kept(spool)
    start, said = Barrier(2), list[str]()

    def keep_house() -> None:
        with closing(opened()) as store:
            start.wait()
            said.extend(housekeeping(spool, store, time.time() + 3600))

    threads = [Thread(target=keep_house) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(said) == 5
    with closing(opened()) as store:
        assert store.counts()[State.PENDING] == 5


def test_mails_that_need_no_task_do_not_block_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken mails and mails that were sent do not count as queued together; sent ones lose their
    marks."""
    monkeypatch.setattr(queuing, "TOGETHER", 1)
    spool, opened = place(tmp_path)
    broken, sent, ident = sorted(kept(spool) for _ in range(3))
    Path(spool.meta_of(broken)).unlink()
    spool.accepted(spool.read(spool.meta_of(sent)), "curl", time.time())

    with closing(opened()) as store:
        (line,) = housekeeping(spool, store, time.time() + 3600)

    assert ident in line
    assert not spool.read(spool.meta_of(sent)).queuing


def test_a_locked_mail_does_not_stop_the_others(tmp_path: Path) -> None:
    """A mail that another process has locked is skipped without waiting."""
    spool, opened = place(tmp_path)
    locked, ident = sorted(kept(spool) for _ in range(2))

    with closing(opened()) as store, spool.alone(locked):
        (line,) = housekeeping(spool, store, time.time() + 3600)

    assert ident in line


def test_a_full_queue_does_not_keep_the_marks_of_mails_with_a_task(tmp_path: Path) -> None:
    """Marks of mails that have a task are removed though the queue refuses the task of another."""
    spool, opened = place(tmp_path)
    _, named = sorted(kept(spool) for _ in range(2))

    def full(description: str, payload: str) -> str:
        raise StoreError("the queue is full")

    with closing(opened()) as store:
        store.swap(None, verbs.enqueue("mail_send", 1.0, "00000001", "", spool.meta_of(named)))
        with pytest.raises(StoreError):
            list(queue_unqueued(spool, time.time() + 3600, store.named, full))

    assert not spool.read(spool.meta_of(named)).queuing
