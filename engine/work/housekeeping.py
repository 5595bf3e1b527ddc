"""Housekeeping of a place: empty the trash, delete old files, queue spooled mail without a task.

A worker started by a timer calls this each time, so rarely used modules are imported late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol

from engine import verbs
from engine.model import Move, State, Task
from engine.operations import retention
from engine.store import ChangeableStore, StoreError, Unavailable
from engine.system.run_clock import RunClock
from engine.text.safe import contract_text, safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.mail.send.mail_spool import MailSpool
    from engine.operations.notes import Notes


class ExpiringStore(ChangeableStore, Protocol):
    """A store whose dead tasks expire, and that knows which files its tasks name."""

    def find_expired(self, age: Callable[[float], float], days: float) -> Iterator[Task]:
        """Yield the dead tasks with an age of more than `days` days."""

    def find_named_payloads(self, payloads: Collection[str]) -> Mapping[str, str]:
        """Return those of these payloads that a task names."""


class SweepResult(NamedTuple):
    """Number of tasks and files that a sweep of the trash deleted."""

    tasks: int = 0
    left: int = 0
    """Tasks that could not be deleted, or that another process changed first."""
    files: int = 0
    """Journal files."""


class Housekeeping(NamedTuple):
    """What is deleted and repaired from time to time at one place."""

    folder: str
    """Our own folder there, with the markers of the last sweeps and the journal."""
    root: str
    """Folder below which no symbolic link is followed."""
    trash_hours: float
    """Hours for which a task stays in the trash."""
    log: Callable[[str, str], None]
    """Appends a line to the queue's log: level and text."""
    report: Callable[[str], None]
    """Reports an error that stops nothing."""
    make_folder: Callable[[str], None]
    """Makes a folder for the owner of the place; raises `OSError`."""
    run_clock: RunClock
    """The record of the time that runs have seen pass here."""

    def sweep_trash(
        self,
        store: ChangeableStore,
        now: float,
        *,
        always: bool = False,
        watch: Callable[[Iterable[Task]], Iterable[Task]] = iter,
    ) -> SweepResult:
        """Delete tasks that were in the trash too long, and old journal files.

        At most once an hour, unless `always`. `watch` passes the tasks on, to show how many.

        Raises:
            OSError: the journal, or the marker of the last run, cannot be written.
            Unavailable: the trash cannot be read."""
        if not always and not retention.is_sweep_due(self.folder, now):
            return SweepResult()
        if always and not os.path.isdir(self.folder):
            return SweepResult()
        retention.touch_marker(self.folder, self.root)
        from engine.operations import trash

        hours, times = self.trash_hours, self.run_clock.note(now)
        old = watch(trash.expired_tasks(store, times.age, hours))
        ended = [outcome.error for outcome in store.swap_all(Move(task, None) for task in old)]
        expunged = sum(error is None for error in ended)
        if expunged:
            self.log("INFO", f"Expunged {expunged} tasks, purged more than {hours:g} hours ago")
        removed = retention.sweep_journal(f"{self.folder}/journal", self.root, times.age, hours)
        return SweepResult(expunged, len(ended) - expunged, removed)

    def sweep_quietly(self, store: ChangeableStore) -> None:
        """Sweep the trash if that is due; an error is only reported."""
        try:
            self.sweep_trash(store, time.time())
        except (OSError, Unavailable) as error:
            self.report(f"cannot delete old tasks from the trash: {error}")

    def sweep_without_worker(self, open_store: Callable[[], ChangeableStore], notes: Notes) -> str:
        """Sweep the trash of a place without a worker, and delete the notes on tasks that no longer
        exist. Does nothing if the store refuses it. Returns the error text, or ""."""
        from engine.operations.notes import sweep_notes

        now = time.time()
        try:
            if not retention.is_sweep_due(self.folder, now):
                return ""
            store = open_store()
            try:
                expunge = store.edges.get((State.TRASH, None))
                if expunge is None or not expunge.refusal:
                    self.sweep_trash(store, now)  # without a trash, the journal alone
                    sweep_notes(notes, store)
            finally:
                store.close()
        except (OSError, StoreError) as error:
            return f"cannot delete old tasks from the trash: {error}"
        return ""

    def purge_expired(self, store: ExpiringStore, days: float, now: float) -> None:
        """Move tasks that have been dead for more than `days` days (contract) to the trash, from
        where they can be restored until it is swept.

        Raises:
            OSError: the record of the runs cannot be read or written."""
        expired = store.find_expired(self.run_clock.note(now).age, days)
        outcomes = store.swap_all(Move(task, verbs.purge(task, now)) for task in expired)
        purged = sum(outcome.error is None for outcome in outcomes)
        if purged:
            self.log("INFO", f"Auto-purged {purged} DLQ tasks older than {days:g} days")

    def sweep_mail(self, spool: MailSpool, now: float) -> None:
        """Remove sent and incomplete mail of the spool, at most hourly; raises `OSError`."""
        if not retention.is_sweep_due(self.folder, now, retention.MAIL_SWEEP_MARKER):
            return
        self._mark(retention.MAIL_SWEEP_MARKER)
        for line in spool.sweep(self.run_clock.note(now).age):
            self.log("INFO", f"Mail spool: {line}")

    def is_mail_check_due(self, now: float) -> bool:
        """True if spooled mails without a task were not looked for within the last minute."""
        marker, period = retention.MAIL_CHECK_MARKER, retention.MAIL_CHECK_PERIOD_SECONDS
        return retention.is_sweep_due(self.folder, now, marker, period)

    def queue_spooled_mail(
        self, spool: MailSpool, store: ExpiringStore, now: float, log_queued: Callable[[Task], None]
    ) -> list[str]:
        """Make a task for each spooled mail without one; return log lines, report an error."""
        from engine.mail.send.queuing import queue_unqueued

        added = count()

        def enqueue(description: str, payload: str) -> str:
            """Add the task of a mail; return its id."""
            at = now + next(added) / verbs.MOMENTS_PER_SECOND
            token, text = os.urandom(4).hex(), contract_text(description)
            task = verbs.enqueue("mail_send", at, token, text, payload)
            store.swap(None, task)
            log_queued(task)
            return task.id

        lines: list[str] = []
        try:
            self._mark(retention.MAIL_CHECK_MARKER)
            # One by one: the lines before an error are reported.
            lines.extend(queue_unqueued(spool, now, store.find_named_payloads, enqueue))
        except (OSError, StoreError) as error:
            self.report(f"cannot queue spooled mail without a task: {safe_line(str(error))}")
        return lines

    def _mark(self, marker: str) -> None:
        self.make_folder(self.folder)
        retention.touch_marker(self.folder, self.root, marker)
