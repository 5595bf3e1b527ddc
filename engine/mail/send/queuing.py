"""Queue spooled mails that have no task, because their sender was killed or the queue was full."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack

from engine.mail.model import BadMail
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.text.safe import hide_domain, safe_line

QUEUING_SECONDS = 60.0
"""Seconds in which a sender makes the task of a mail that it has spooled; after that it was
killed."""

TASK_SUFFIX = ".task"
"""The suffix of a finished task file."""

MAX_MAILS_PER_CALL = 100
"""Mails queued by one call: all task files are read once for them, and so many folders are open and
locked."""


def is_being_sent(spool: MailSpool, id: str) -> bool:
    """True if the sender of a mail has it locked, as it still makes attempts."""
    try:
        with spool.lock_mail(id, patience=0.0):
            return False
    except TimeoutError:
        return True
    except BadMail:
        return False  # it was removed


def queue_unqueued(
    spool: MailSpool,
    now: float,
    named: Callable[[Collection[str]], Mapping[str, str]],
    enqueue: Callable[[str, str], str],
) -> Iterator[str]:
    """Make a task for each mail that is marked as having none; yield one line for each.

    `named` returns, for the payloads that a file in the queue already names, the path of that file.
    `enqueue` takes a task's description and payload and returns its id. Each mail is locked (flock)
    and read again, so only one of two processes makes the task; a mail that another process has
    locked is skipped. A mail that was sent only loses its marks.

    Raises:
        OSError: the spool or a mail cannot be read or changed now.
    """
    with ExitStack() as locks:
        mails: list[Spooled] = []
        for id in sorted(spool.find_unqueued(now - QUEUING_SECONDS)):
            if len(mails) == MAX_MAILS_PER_CALL:
                break
            with ExitStack() as lock:
                try:
                    lock.enter_context(spool.lock_mail(id, patience=0.0))
                    again = spool.read(spool.meta_path(id))
                except (BadMail, TimeoutError):
                    continue  # removed, broken (`mail spool list` shows it), or locked: next call
                if again.sent is not None:
                    spool.mark_queued(id)
                elif again.unqueued or again.queuing:
                    mails.append(again)
                    locks.enter_context(lock.pop_all())
        where = named([mail.meta for mail in mails]) if mails else {}
        # Clear the marks of mails with a task first: a full queue ends the call at the first
        # refused task.
        for mail in mails:
            # Another file: an unfinished change names it. The next call sees the result.
            if where.get(mail.meta, "").endswith(TASK_SUFFIX):
                spool.mark_queued(mail.id)
        for mail in mails:
            if mail.meta not in where:
                ident = enqueue(f"Spooled mail to {hide_domain(mail.to)}", mail.meta)
                yield f"Mail spool: {safe_line(mail.id)} had no task, queued as {ident}"
                spool.mark_queued(mail.id)
