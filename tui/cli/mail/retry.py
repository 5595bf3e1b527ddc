"""`mail spool retry`: what lies in the mail spool is sent after all, each mail by one task."""

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
from engine.mail.model import BadMail, Reason
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.model import Move, State, Task
from engine.operations import plans
from engine.policy import at, lasting
from engine.store import Full, StoreError
from engine.stores.nftban import NftbanStore
from engine.text.safe import private, shown
from tui.cli.mail.spool import again, read_mail, tasks_of, told
from tui.cli.queue.dlq import written_down
from tui.cli.setup.mail_parts import SEND
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail

JUST_NOW = 5.0
"""Seconds after its spooling in which a mail without a task is left alone: a program that spools
takes far less to queue it, and what it has begun to queue is seen.
"""

TOGETHER = 100
"""Mails that are queued together: for each group all task files are read once, and as many folders
are kept open and locked.
"""


def retry_spooled(setup: Setup, arguments: Namespace) -> int:
    """Let these be sent now, each by the task that it has, or by a new one."""
    if bool(arguments.ids) == arguments.all or (arguments.refused and not arguments.all):
        ids = "the ids of mails, as `mail spool list` prints them"
        fail(EX_USAGE, f"expected {ids}, or --all, or --all --refused")
    setup.require_change()
    spool = setup.mail_spool()
    # A program that sends mail decides by itself what it can send.
    settings = setup.mail_settings() if setup.sends_mail else None
    with closing(setup.open()) as store:
        retry = _SpoolRetry(setup, spool, store, settings)
        if arguments.all:
            retry.all(refused=arguments.refused)
        else:
            retry.named(dict.fromkeys(arguments.ids))
    return 1 if retry.failed else 0


def _is_stopped(task: Task, now: float) -> bool:
    """Whether a task is dead or in backoff."""
    return task.state is State.DEAD or (task.state is State.PENDING and (task.due or 0.0) > now)


def _is_refused(mail: Spooled, task: Task) -> bool:
    """Whether a server refused the mail for good (5xx), so that another attempt is of no use."""
    return bool(mail.refused) or (
        task.state is State.DEAD and task.error.startswith(f"{Reason.REJECTED}_")
    )


class _Found(NamedTuple):
    """Mails of a spool, by what has to be done for them."""

    orphans: list[Spooled]
    """What no task delivers."""
    tasks: list[tuple[Spooled, Task]]
    """What one does, as it was seen."""


class _SpoolRetry:
    """One run of the command over the mails of one spool."""

    def __init__(
        self, setup: Setup, spool: MailSpool, store: NftbanStore, settings: MailSettings | None
    ) -> None:
        self._setup, self._spool, self._store, self._settings = setup, spool, store, settings
        self.failed = 0
        """Mails that will not be sent, and should be."""
        self._queued = 0

    def named(self, idents: Iterable[str]) -> None:
        """Have these sent, whatever became of their tasks."""
        mails = []
        for ident in idents:
            try:
                mail = read_mail(self._spool, ident)
                if mail.sent is None:
                    self._require_sendable(mail)
                    mails.append(mail)
                else:
                    by = shown(mail.sent.transport)
                    print(f"{mail.id}: was sent {at(mail.sent.at)} by {by}")
            except (BadMail, OSError) as error:
                self._refuse(ident, error)
        found = self._sorted(mails)
        self._see_to(found.tasks)
        self._queue(found.orphans)

    def all(self, *, refused: bool = False) -> None:
        """Have everything sent that waits for nothing else: mails without a task, with a dead
        task, or in backoff; with `refused` those too that a server refused for good.
        """
        if sys.stderr.isatty():
            complain(f"looking at every mail in {shown(self._spool.folder)}")
        everything = list(self._spool.letters())
        mails = [mail for mail in everything if isinstance(mail, Spooled)]
        unsent = [mail for mail in mails if mail.sent is None]
        found = self._sorted(unsent)
        orphans = [mail for mail in found.orphans if refused or not mail.refused]
        now = time.time()
        stopped = [pair for pair in found.tasks if _is_stopped(pair[1], now)]
        tasks = [pair for pair in stopped if refused or not _is_refused(*pair)]
        fit = {mail.id for mail in self._sendable([*orphans, *(mail for mail, _ in tasks)])}
        self._see_to([pair for pair in tasks if pair[0].id in fit])
        self._queue([mail for mail in orphans if mail.id in fit])
        states = [task.state for _, task in found.tasks]
        parked = sum(state in (State.HELD, State.TRASH) for state in states)
        going = len(states) - parked - len(stopped)
        wanted = len(orphans) + len(tasks)
        left = {
            "broken": len(everything) - len(mails),
            "sent": len(mails) - len(unsent),
            "held or in the trash": parked,
            "on their way": going,
            "refused for good (--refused)": len(unsent) - parked - going - wanted,
        }
        beside = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
        print(f"{self._queued:,} of {wanted:,} will be sent now", end="")
        print(f"; left alone: {beside}" if beside else "")

    def _sorted(self, mails: Iterable[Spooled]) -> _Found:
        # After the mails: each is there before its task is.
        tasks = tasks_of(self._store)
        found = _Found([], [])
        for mail in mails:
            task = tasks.get(mail.meta)
            if task is None:
                found.orphans.append(mail)
            else:
                found.tasks.append((mail, task))
        return found

    def _sendable(self, mails: Iterable[Spooled]) -> Iterator[Spooled]:
        for mail in mails:
            try:
                self._require_sendable(mail)
            except (BadMail, OSError) as error:
                self._refuse(mail.id, error)
            else:
                yield mail

    def _require_sendable(self, mail: Spooled) -> None:
        """Make sure of what each attempt looks at first.

        Raises:
            BadMail: every attempt would be given up on at once.
            OSError: it cannot be read now.
        """
        from engine.mail.address import checked

        if self._settings is None:
            return
        try:
            checked(mail.to, self._settings.strict)
            self._spool.body(mail, self._settings.spooled_size)  # as whoever delivers it does
        except BadMail as error:
            raise BadMail(f"{mail.id}: cannot be sent, and was left alone: {error}") from error

    def _refuse(self, ident: str, error: Exception) -> None:
        complain(told(ident, error))
        self.failed += 1

    # ---- what has a task

    def _see_to(self, found: Sequence[tuple[Spooled, Task]]) -> None:
        """See to it that mails are sent whose tasks were seen, and say what was done."""
        moves: dict[str, list[tuple[Spooled, Task]]] = {"retry": [], "promote": []}
        for mail, task in found:
            if task.state is State.ACTIVE:
                print(f"{mail.id}: task {task.id} is sending it now")
            elif task.state is State.PENDING and not task.due:
                print(f"{mail.id}: task {task.id} is due already")
            elif task.state in (State.HELD, State.TRASH):
                where = "held" if task.state is State.HELD else "in the trash"
                way = again(self._setup, mail, task)
                complain(f"{mail.id}: task {task.id} is {where}: {way}")
                self.failed += 1
            else:
                moves["retry" if task.state is State.DEAD else "promote"].append((mail, task))
        for verb, some in moves.items():
            self._move(verb, some)

    def _move(self, verb: str, found: Sequence[tuple[Spooled, Task]]) -> None:
        mails = {task.id: mail.id for mail, task in found}
        plan = plans.freeze(verb, [task for _, task in found], time.time())
        report = written_down(self._setup, self._store, plan, "mail spool retry")
        said = "moved from DLQ to pending queue" if verb == "retry" else "is due now"
        for ident in report.done:
            print(f"{mails[ident]}: task {ident} {said}")
        for ident in report.gone:
            complain(f"{mails[ident]}: task {ident} changed since it was seen; left alone")
        for ident, reason in report.failed:
            complain(f"{mails[ident]}: task {ident}: {shown(reason)}")
        self._queued += len(report.done)
        self.failed += len(found) - len(report.done)

    # ---- what has none

    def _queue(self, mails: Iterable[Spooled]) -> None:
        """Make a task for each of these, unless somebody was faster."""
        # Everybody takes their locks in one order, so that no two wait for each other.
        waiting = iter(sorted(mails, key=lambda mail: mail.id))
        while group := list(islice(waiting, TOGETHER)):
            with ExitStack() as locks:
                ours = []
                for mail in group:
                    try:
                        locks.enter_context(self._spool.alone(mail.id))
                    except (BadMail, OSError) as error:
                        self._refuse(mail.id, error)
                    else:
                        ours.append(mail)
                before = self.failed
                full = self._queue_locked(ours)
            sys.stdout.flush()
            if full:
                self.failed += len(list(waiting))
                if self.failed - before > 1:
                    complain(f"{self.failed - before:,} mails are left as they are")

    def _queue_locked(self, mails: Sequence[Spooled]) -> str:
        """Make a task for each of those that none names; answers with why no more can be made."""
        seen = time.time()
        try:
            named = self._store.named([mail.meta for mail in mails])
            refused = self._store.edges[None, State.PENDING].refused
            if refused:
                raise StoreError(refused)
        except (StoreError, OSError) as error:
            for mail in mails:
                self._refuse(mail.id, error)
            return ""
        self._see_to(list(self._moved([mail for mail in mails if mail.meta in named], named)))
        unnamed = [mail for mail in mails if mail.meta not in named]
        free = [mail for mail in unnamed if self._may_be_queued(mail, seen)]
        full = ""
        moves = (Move(None, _task(mail)) for mail in free)
        for mail, outcome in zip(free, self._store.swap_all(moves), strict=True):
            if outcome.error is None:
                assert outcome.move.new is not None
                self._say_queued(mail, outcome.move.new)
                continue
            if not full:
                complain(told(mail.id, outcome.error))
            if isinstance(outcome.error, Full):
                full = str(outcome.error)
            self.failed += 1
        return full

    def _moved(
        self, mails: Sequence[Spooled], named: Mapping[str, str]
    ) -> Iterator[tuple[Spooled, Task]]:
        """The task of each of these that one names, whoever was moving it."""
        if not mails:
            return
        self._store.recover()  # whoever was moving one may have ended there
        tasks = tasks_of(self._store)
        for mail in mails:
            task = tasks.get(mail.meta)
            if task is not None:
                yield mail, task
                continue
            where = shown(named[mail.meta])
            complain(
                f"{mail.id}: left alone: {where} names it, a task that is being moved, was set "
                "aside, or is of another kind"
            )
            self.failed += 1

    def _may_be_queued(self, mail: Spooled, seen: float) -> bool:
        """Whether nobody is about to do that, as of when the tasks were looked at."""
        age = seen - mail.created
        if mail.unqueued or not 0 <= age < JUST_NOW:
            return True
        wait = lasting(JUST_NOW - age)
        complain(f"{mail.id}: was spooled just now, its task may be on its way: wait for {wait}")
        self.failed += 1
        return False

    def _say_queued(self, mail: Spooled, task: Task) -> None:
        self._queued += 1
        print(f"{mail.id}: task {task.id} queued")
        self._setup.log_queued(task)
        if mail.unqueued or mail.queuing:
            try:
                self._spool.queued(mail.id)
            except (BadMail, OSError) as error:
                complain(told(mail.id, error))  # nobody is misled: the task is looked for first


def _task(mail: Spooled) -> Task:
    said = f"Spooled mail to {private(mail.to)}"
    return verbs.enqueue(SEND, time.time(), os.urandom(4).hex(), said, mail.meta)
