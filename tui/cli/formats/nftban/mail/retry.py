"""`mail spool retry`: send spooled mails now, each by one task."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from typing import NamedTuple

from engine import verbs
from engine.config.mail_config import MailSettings
from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool
from engine.formats.nftban.store import NftbanStore
from engine.mail.model import BadMail, Reason
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.model import Move, State, Task
from engine.operations import plans
from engine.places.mail_setup import MAIL_SEND_KIND
from engine.store import Full, StoreError
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import hide_domain, safe_line
from engine.text.times import format_rough_duration, format_time
from tui.cli.formats.nftban.dlq import run_with_journal
from tui.cli.formats.nftban.mail.spool import describe_error, read_mail, resend_command, tasks_of
from tui.cli.setup.output import captured_lines, print_json

QUEUING_GRACE_SECONDS = 5.0
"""Seconds after its spooling in which a mail without a task is skipped: the program that spooled it
is about to queue it.
"""

BATCH_MAILS = 100
"""Mails queued in one batch: for each batch all task files are read once, and one folder per mail
is open and locked.
"""


def retry_spooled(setup: Setup, arguments: Namespace) -> int:
    """Send these mails now, each by its existing task or by a new one."""
    if arguments.to and (arguments.all or len(arguments.ids) > 1):
        fail(EX_USAGE, f"--to needs the id of one mail, not {'--all' if arguments.all else 'more'}")
    if (arguments.refused and not arguments.all) or bool(arguments.ids) == arguments.all:
        ids = "the ids of mails, as `mail spool list` prints them"
        fail(EX_USAGE, f"expected {ids}, or --all, or --all --refused")
    setup.require_mail("mail spool")
    setup.require_writable()
    spool = setup.mail.spool()
    # A configured program decides what it can send.
    settings = setup.mail.settings() if setup.mail.is_ours else None
    with closing(open_spool(setup)) as store, captured_lines(arguments.json) as lines:
        retry = _SpoolRetry(setup, spool, store, settings)
        if arguments.all:
            retry.all(refused=arguments.refused)
        else:
            retry.named(dict.fromkeys(arguments.ids), arguments.to)
    if arguments.json:
        print_json({"queued": retry.queued, "failed": retry.failed, "lines": lines})
    return 1 if retry.failed else 0


def _is_stopped(task: Task, now: float) -> bool:
    """True if a task is dead or in backoff."""
    return task.state is State.DEAD or (task.state is State.PENDING and (task.due or 0.0) > now)


def _is_refused(mail: Spooled, task: Task) -> bool:
    """True if a server refused the mail permanently (5xx), so that another attempt cannot
    succeed.
    """
    return bool(mail.refused) or (
        task.state is State.DEAD and task.error.startswith(f"{Reason.REJECTED}_")
    )


class _SortedMails(NamedTuple):
    """Mails of a spool, with and without a task."""

    orphans: list[Spooled]
    """Mails without a task."""
    tasks: list[tuple[Spooled, Task]]
    """Mails with a task, as scanned."""


class _SpoolRetry:
    """One run of the command on one spool."""

    def __init__(
        self, setup: Setup, spool: MailSpool, store: NftbanStore, settings: MailSettings | None
    ) -> None:
        self._setup, self._spool, self._store, self._settings = setup, spool, store, settings
        self.failed = 0
        """Mails that should be sent but will not be."""
        self.queued = 0
        """Mails whose task is due now."""
        self._mended: set[str] = set()
        """Ids of refused mails whose retry was recorded."""

    def named(self, idents: Iterable[str], to: str = "") -> None:
        """Send these mails, with a new recipient if there is one; the state of their tasks does not
        matter.
        """
        mails = []
        for ident in idents:
            try:
                mail = read_mail(self._spool, ident)
                if mail.sent is None:
                    self._require_sendable(mail._replace(to=to or mail.to))
                    mails.append(self._redirect(mail, to) if to else mail)
                else:
                    by = safe_line(mail.sent.transport)
                    print(f"{mail.id}: already sent {format_time(mail.sent.at)} by {by}")
            except (BadMail, StoreError, OSError) as error:
                self._refuse(ident, error)
        sorted_mails = self._sorted(mails)
        self._retry_tasks(sorted_mails.tasks)
        self._queue(sorted_mails.orphans)

    def _redirect(self, mail: Spooled, to: str) -> Spooled:
        """Replace the recipient of a mail, unless its task runs or waits for an operator; return
        the mail. The log gets both recipients.

        Raises:
            BadMail: its task must not be changed now, or the mail does not exist any more.
            StoreError: the queue cannot be read now.
            OSError: another process has the mail locked, or it cannot be written.
        """
        with self._spool.lock_mail(mail.id):  # no other process makes a task for it
            task = tasks_of(self._store).get(mail.meta)
            if task is None:
                moved = self._store.find_named_payloads([mail.meta])
                why = f"{safe_line(moved[mail.meta])} names it" if moved else ""
            elif task.state is State.ACTIVE:
                why = f"task {task.id} is sending it now"
            else:
                why = _why_parked(self._setup, mail, task)
            if why:
                raise BadMail(f"{mail.id}: recipient unchanged: {why}")
            self._spool.set_recipient(mail, to)
            self._spool.take_refusal(mail)
        if mail.refused or (task is not None and _is_refused(mail, task)):
            self._record_retry(mail)
        change = f"recipient changed from {safe_line(mail.to) or 'none'} to {safe_line(to)}"
        print(f"{mail.id}: {change}")
        self._setup.log_if_allowed("INFO", f"Mail spool: {mail.id}: {change}")
        return mail._replace(to=to, refused="")

    def all(self, *, refused: bool = False) -> None:
        """Send all mails without a task, with a dead task, or in backoff; with `refused` also mails
        that a server refused permanently.
        """
        if sys.stderr.isatty():
            print_error(f"reading every mail in {safe_line(self._spool.folder)}")
        everything = list(self._spool.read_all())
        mails = [mail for mail in everything if isinstance(mail, Spooled)]
        unsent = [mail for mail in mails if mail.sent is None]
        sorted_mails = self._sorted(unsent)
        orphans = [mail for mail in sorted_mails.orphans if refused or not mail.refused]
        now = time.time()
        stopped = [pair for pair in sorted_mails.tasks if _is_stopped(pair[1], now)]
        tasks = [pair for pair in stopped if refused or not _is_refused(*pair)]
        fit = {mail.id for mail in self._sendable([*orphans, *(mail for mail, _ in tasks)])}
        self._retry_tasks([pair for pair in tasks if pair[0].id in fit])
        self._queue([mail for mail in orphans if mail.id in fit])
        states = [task.state for _, task in sorted_mails.tasks]
        parked = sum(state in (State.HELD, State.TRASH) for state in states)
        going = len(states) - parked - len(stopped)
        send_count = len(orphans) + len(tasks)
        skip_counts = {
            "broken": len(everything) - len(mails),
            "sent": len(mails) - len(unsent),
            "held or in the trash": parked,
            "being sent or due": going,
            "refused permanently (--refused)": len(unsent) - parked - going - send_count,
        }
        skipped = ", ".join(f"{count:,} {what}" for what, count in skip_counts.items() if count)
        print(f"{self.queued:,} of {send_count:,} will be sent now", end="")
        print(f"; skipped: {skipped}" if skipped else "")

    def _sorted(self, mails: Iterable[Spooled]) -> _SortedMails:
        # After the mails: each mail is spooled before its task is queued.
        tasks = tasks_of(self._store)
        sorted_mails = _SortedMails([], [])
        for mail in mails:
            task = tasks.get(mail.meta)
            if task is None:
                sorted_mails.orphans.append(mail)
            else:
                sorted_mails.tasks.append((mail, task))
        return sorted_mails

    def _sendable(self, mails: Iterable[Spooled]) -> Iterator[Spooled]:
        for mail in mails:
            try:
                self._require_sendable(mail)
            except (BadMail, OSError) as error:
                self._refuse(mail.id, error)
            else:
                yield mail

    def _require_sendable(self, mail: Spooled) -> None:
        """Check what each attempt checks first.

        Raises:
            BadMail: every attempt would fail.
            OSError: the mail cannot be read now.
        """
        from engine.mail.address import require_addresses

        if self._settings is None:
            return
        try:
            require_addresses(mail.to or self._settings.recipient, self._settings.strict)
            self._spool.body(mail, self._settings.spooled_size)  # the same check as on delivery
        except BadMail as error:
            raise BadMail(f"{mail.id}: cannot be sent; skipped: {error}") from error

    def _refuse(self, ident: str, error: Exception) -> None:
        print_error(describe_error(ident, error))
        self.failed += 1

    # ---- mails with a task

    def _retry_tasks(self, pairs: Sequence[tuple[Spooled, Task]]) -> None:
        """Retry or promote the tasks of these mails, or report why not."""
        moves: dict[str, list[tuple[Spooled, Task]]] = {"retry": [], "promote": []}
        for mail, task in pairs:
            if task.state is State.ACTIVE:
                print(f"{mail.id}: task {task.id} is sending it now")
            elif task.state is State.PENDING and not task.due:
                print(f"{mail.id}: task {task.id} is already due")
            elif why := _why_parked(self._setup, mail, task):
                print_error(f"{mail.id}: {why}")
                self.failed += 1
            else:
                moves["retry" if task.state is State.DEAD else "promote"].append((mail, task))
        for verb, some in moves.items():
            self._move(verb, some)

    def _move(self, verb: str, pairs: Sequence[tuple[Spooled, Task]]) -> None:
        mails = {task.id: mail.id for mail, task in pairs}
        plan = plans.freeze_plan(verb, [task for _, task in pairs], time.time())
        report = run_with_journal(self._setup, self._store, plan, "mail spool retry")
        outcome_text = "moved from DLQ to pending queue" if verb == "retry" else "is due now"
        for mail, task in pairs:
            if task.id in report.done:
                print(f"{mail.id}: task {task.id} {outcome_text}")
                if _is_refused(mail, task):
                    self._record_retry(mail)
        for ident in report.gone:
            print_error(f"{mails[ident]}: task {ident} changed since the scan; skipped")
        for ident, reason in report.failed:
            print_error(f"{mails[ident]}: task {ident}: {safe_line(reason)}")
        self.queued += len(report.done)
        self.failed += len(pairs) - len(report.done)

    def _record_retry(self, mail: Spooled) -> None:
        """Record once that a refused mail is retried: its refusal is no alert any more."""
        if self._settings is not None and mail.id not in self._mended:
            self._mended.add(mail.id)
            self._setup.mail.delivery_log(self._settings).record_retry(mail.to)

    # ---- mails without a task

    def _queue(self, mails: Iterable[Spooled]) -> None:
        """Make a task for each of these mails, unless another process does."""
        # All processes take these locks in the same order: no deadlock.
        waiting = iter(sorted(mails, key=lambda mail: mail.id))
        while group := list(islice(waiting, BATCH_MAILS)):
            with ExitStack() as locks:
                locked_mails = []
                for mail in group:
                    try:
                        locks.enter_context(self._spool.lock_mail(mail.id))
                    except (BadMail, OSError) as error:
                        self._refuse(mail.id, error)
                    else:
                        locked_mails.append(mail)
                before = self.failed
                full = self._queue_locked(locked_mails)
            sys.stdout.flush()
            if full:
                self.failed += len(list(waiting))
                if self.failed - before > 1:
                    print_error(f"{self.failed - before:,} mails skipped")

    def _queue_locked(self, mails: Sequence[Spooled]) -> str:
        """Make a task for each mail that no task names; returns why no more can be made, or ""."""
        now = time.time()
        try:
            named = self._store.find_named_payloads([mail.meta for mail in mails])
            refused = self._store.edges[None, State.PENDING].refusal
            if refused:
                raise StoreError(refused)
        except (StoreError, OSError) as error:
            for mail in mails:
                self._refuse(mail.id, error)
            return ""
        self._retry_tasks(list(self._moved([mail for mail in mails if mail.meta in named], named)))
        unnamed = [mail for mail in mails if mail.meta not in named]
        free = [mail for mail in unnamed if self._may_be_queued(mail, now)]
        full = ""
        moves = (Move(None, _task(mail)) for mail in free)
        for mail, outcome in zip(free, self._store.swap_all(moves), strict=True):
            if outcome.error is None:
                assert outcome.move.new is not None
                self._say_queued(mail, outcome.move.new)
                continue
            if not full:
                print_error(describe_error(mail.id, outcome.error))
            if isinstance(outcome.error, Full):
                full = str(outcome.error)
            self.failed += 1
        return full

    def _moved(
        self, mails: Sequence[Spooled], named: Mapping[str, str]
    ) -> Iterator[tuple[Spooled, Task]]:
        """The tasks of these mails, also of those that another process was moving."""
        if not mails:
            return
        self._store.recover()  # finish the moves of dead processes
        tasks = tasks_of(self._store)
        for mail in mails:
            task = tasks.get(mail.meta)
            if task is not None:
                yield mail, task
                continue
            where = safe_line(named[mail.meta])
            print_error(
                f"{mail.id}: skipped: {where} names it: a task that is being moved, is quarantined "
                "or has another kind"
            )
            self.failed += 1

    def _may_be_queued(self, mail: Spooled, now: float) -> bool:
        """False if another process may be about to queue the mail; then print an error."""
        age = now - mail.created
        if mail.unqueued or not 0 <= age < QUEUING_GRACE_SECONDS:
            return True
        wait = format_rough_duration(QUEUING_GRACE_SECONDS - age)
        print_error(f"{mail.id}: just spooled, its task may follow: wait for {wait}")
        self.failed += 1
        return False

    def _say_queued(self, mail: Spooled, task: Task) -> None:
        self.queued += 1
        print(f"{mail.id}: task {task.id} queued")
        self._setup.log_queued(task)
        if mail.refused:
            self._record_retry(mail)
        if mail.unqueued or mail.queuing:
            try:
                self._spool.mark_queued(mail.id)
            except (BadMail, OSError) as error:
                print_error(describe_error(mail.id, error))  # harmless: the task is searched first


def _why_parked(setup: Setup, mail: Spooled, task: Task) -> str:
    """Return that a task is held or in the trash, and the command that ends it; else ""."""
    if task.state not in (State.HELD, State.TRASH):
        return ""
    where = "held" if task.state is State.HELD else "in the trash"
    return f"task {task.id} is {where}: {resend_command(setup, mail, task)}"


def _task(mail: Spooled) -> Task:
    description = f"Spooled mail to {hide_domain(mail.to)}"
    now = time.time()
    return verbs.enqueue(
        MAIL_SEND_KIND, now, verbs.token_at(now, os.urandom(2)), description, mail.meta
    )
