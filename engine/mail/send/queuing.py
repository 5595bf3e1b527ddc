"""Queue spooled mails that have no task, because their sender was killed or the queue was full."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack

from engine.mail.model import BadMail
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.text.safe import private, shown

QUEUING_SECONDS = 60.0
"""How long a sender may take to queue a mail that it has spooled; after that it was killed."""

TASK = ".task"
"""Ends the name of a task file, and of no unfinished one."""

TOGETHER = 100
"""Mails that are queued by one call: all task files are read once for them, and as many folders are
kept open and locked."""


def queue_unqueued(
    spool: MailSpool,
    now: float,
    named: Callable[[Collection[str]], Mapping[str, str]],
    enqueue: Callable[[str, str], str],
) -> Iterator[str]:
    """Make a task for each mail of which its marks say that none was made; yields what was done.

    `named` returns which of some payloads a file names, and where that is; `enqueue` takes a task's
    description and payload and returns its id. Each mail is locked (flock) meanwhile and read
    again, so of two processes one makes the task; a mail that another process has locked is left to
    it. A mail that was sent only loses its marks.

    Raises:
        OSError: the spool or a mail cannot be read or changed now.
    """
    with ExitStack() as locks:
        ours: list[Spooled] = []
        for id in sorted(spool.unqueued_mails(now - QUEUING_SECONDS)):
            if len(ours) == TOGETHER:
                break
            with ExitStack() as lock:
                try:
                    lock.enter_context(spool.alone(id, patience=0.0))
                    again = spool.read(spool.meta_of(id))
                except (BadMail, TimeoutError):
                    continue  # removed, broken (`mail spool list` shows it), or locked: next call
                if again.sent is not None:
                    spool.queued(id)
                elif again.unqueued or again.queuing:
                    ours.append(again)
                    locks.enter_context(lock.pop_all())
        where = named([mail.meta for mail in ours]) if ours else {}
        # Those that have a task first: a full queue ends the call at the first task it refuses.
        for mail in ours:
            # Named by another file: a change that has not ended; the next call sees its result.
            if where.get(mail.meta, "").endswith(TASK):
                spool.queued(mail.id)
        for mail in ours:
            if mail.meta not in where:
                ident = enqueue(f"Spooled mail to {private(mail.to)}", mail.meta)
                yield f"Mail spool: {shown(mail.id)} had no task, queued as {ident}"
                spool.queued(mail.id)
