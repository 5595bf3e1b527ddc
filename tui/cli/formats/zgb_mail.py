"""How the mail of a registration is sent: looked at once more, merged, handed over, written down.

A handler has a thread of its own, and so a store of its own: it only looks. What becomes of the job
is for the worker to store, which has claimed it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import NamedTuple

from engine.config.mail_config import NOWHERE, MailSettings
from engine.config.validators import ConfigError
from engine.mail.address import checked
from engine.mail.host import this_host
from engine.mail.message import mail_merge
from engine.mail.message.content import Content
from engine.mail.model import BadMail, Cause, MailError, NotSent, Unused, Waits, may_have_sent
from engine.mail.send.sender import Sender
from engine.mail.send.sender import SendRequest as Settled
from engine.model import Task
from engine.policy import HOUR
from engine.store import Gone, Unavailable
from engine.stores.zgb import ZgbStore, redirect
from engine.stores.zgb.claims import LAPSED
from engine.stores.zgb.log import Log, masked
from engine.stores.zgb.settings import LetterTemplate, ZgbSettings
from engine.stores.zgb.store import ClaimedJob
from engine.stores.zgb.times import Cell
from engine.text.safe import shown
from engine.work.handlers import Context, Failed, Fatal, Later
from tui.cli.setup.mail_parts import held_by, why_none
from tui.cli.setup.setup import Setup

AGAIN = 60.0
"""Seconds after which a job that could not be looked at, or that nobody may decide on, comes back.
"""

ORIGINAL = "X-Original-To"


def mail_settings(setup: Setup, own: ZgbSettings) -> MailSettings:
    """How mail is sent from there: as all mail is, but in the name of the registration.

    Raises:
        ConfigError: a setting that cannot be meant.
    """
    settings = setup.mail_settings()
    if settings.delivery_log == f"{setup.queue.root}/mail/delivery.jsonl":
        settings = settings._replace(delivery_log=f"{setup.desk}/mail/delivery.jsonl")
    # What other mail says by default is of another program.
    return settings._replace(
        sender=own.sender or settings.sender or f"noreply@{this_host().name}",
        from_name=own.from_name or str(setup.config.mail.get("from_name", "")),
    )


class MailRoute(NamedTuple):
    """By what mail goes from a queue now."""

    name: str = ""
    """The transport; "" where there is none."""
    why: str = ""
    """Why there is none."""
    mend: str = ""
    """What mends that."""
    stopped: tuple[str, ...] = ()
    """Each transport that an operator has suspended, and who that was."""
    resume: str = ""
    """The command that resumes them; "" where none is suspended."""


def way(setup: Setup, own: ZgbSettings) -> MailRoute:
    """By what mail would go now. Raises nothing: whatever keeps us from saying so, keeps mail."""
    try:
        settings = mail_settings(setup, own)
        suspended = setup.suspensions().read()
        choice = setup.ways(settings).choose(suspended)
    except (ConfigError, OSError, ValueError) as error:
        return MailRoute(why=shown(str(error)), mend="set right what it names")
    place = shlex.quote(setup.place)
    stopped = tuple(f"{name} is {held_by(each)}" for name, each in suspended.items())
    resume = "; ".join(f"spooldeck mail resume {name} --root {place}" for name in suspended)
    if choice.transport is not None:
        return MailRoute(choice.transport.name, stopped=stopped, resume=resume)
    why = why_none(settings, choice.why_not, suspended)
    return MailRoute("", why, _mend(settings, choice.why_not, resume), stopped, resume)


def _mend(settings: MailSettings, why_not: Mapping[str, Unused], resume: str) -> str:
    """What lets mail be sent again, by what keeps it."""
    if settings.method == NOWHERE:
        return "set mail.method, or leave it out: then what is there is used"
    if resume and any(why.cause is Cause.SUSPENDED for why in why_not.values()):
        return resume
    if stopped := [name for name, why in why_not.items() if why.cause is Cause.STOPPED]:
        return f"start {stopped[0]}, or set mail.relay.host"
    return "install a program that sends mail, or set mail.relay.host; see spooldeck mail status"


def unready(
    letter: LetterTemplate, own: ZgbSettings, settings: MailSettings, columns: tuple[str, ...]
) -> str:
    """Why no mail of this kind can be made, whoever it is for; "" when one can.

    `columns` are those of the registrations.
    """
    if why := own.too_short(settings.max_time):
        return why
    try:
        if letter.to:
            checked(letter.to, settings.strict)
        elif letter.to_column:
            if letter.to_column not in columns:
                return f"no column {shown(letter.to_column)} in {_table(own)}, for the recipient"
        elif not settings.recipient:
            return "nobody to send it to: neither to, to_column nor mail.recipient is set"
        text = _loaded(letter).text
    except BadMail as error:
        return str(error)
    lacks = mail_merge.lacks(f"{text}{letter.subject}", frozenset((*columns, "number")))
    return f"{lacks}: the columns are {shown(', '.join(columns))}" if lacks else ""


def _table(own: ZgbSettings) -> str:
    return f"the table {shown(own.registrations)}" if own.registrations else "no table"


def _loaded(letter: LetterTemplate) -> Content:
    if not letter.template:
        raise BadMail("no template is set")
    return mail_merge.load(letter.template)


def as_text(cell: Cell) -> str:
    """A column's value as it stands in a letter; nothing where there is none."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return "" if cell is None else str(cell)


class Hourly:
    """At most so many mails within any hour, by what the log says; for the worker to ask."""

    def __init__(self, most: int, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._most, self._log, self._clock = most, log, clock

    def ready(self, kind: str) -> bool:
        """Whether one more may be tried.

        Raises:
            OSError: nobody knows, so none may.
        """
        return len(self._tried()) < self._most

    def spend(self, kind: str) -> bool:
        """The same: the log is told when it is tried."""
        return self.ready(kind)

    def token_at(self, kind: str) -> float:
        """When one more may be tried, epoch seconds UTC."""
        tried = self._tried()
        return tried[-self._most] + HOUR if len(tried) >= self._most else self._clock()

    def left(self) -> int:
        """How many may be tried now."""
        return max(0, self._most - len(self._tried()))

    def _tried(self) -> list[float]:
        if not self._log.path:
            raise OSError(0, "the hourly limit needs a log, and none can be written")
        since = self._clock() - HOUR
        return [moment for moment in self._log.tried(since) if moment > since]


class Parts(NamedTuple):
    """Whatever sends the mails of one queue."""

    own: ZgbSettings
    mail: MailSettings
    post: Sender
    log: Log
    open: Callable[[], ZgbStore]
    """A store for the thread that asks."""
    clock: Callable[[], float] = time.time


class _Addressed(NamedTuple):
    """Whom a mail goes to."""

    to: str
    headers: Mapping[str, str] = {}


class Registration:
    """Sends one of the two mails of a registration, once for each claim."""

    def __init__(self, parts: Parts, letter: LetterTemplate) -> None:
        self._parts, self._letter = parts, letter

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt; none where an earlier one is known to have succeeded.

        Raises:
            Fatal: nobody may send this mail.
            Failed: the attempt failed, or the claim has lapsed.
            Later: it was not made.
        """
        try:
            with closing(self._parts.open()) as store:
                self._send(store, task, context)
        except Gone as gone:
            raise Failed(f"the lease was lost, nothing was sent: {gone}") from gone
        except Unavailable as error:
            raise Later(self._parts.clock() + AGAIN, f"nothing was sent: {error}") from error

    def _send(self, store: ZgbStore, task: Task, context: Context) -> None:
        log = self._parts.log
        now = self._parts.clock()
        errand = store.errand(task, now)
        made = errand.created or int(now)
        # So named that no other program's mail on this host has the same Message-ID. Where nothing
        # tells it from others, each attempt has a name of its own: else whoever gets the next mail
        # of this number would take it for this one.
        ident = f"zgb-{errand.number}-{errand.kind}-{errand.mark or made}"
        message_id = f"<{ident}@{this_host().name}>"
        its = {
            "job": errand.job,
            "reg": errand.number,
            "type": errand.kind,
            "attempt": errand.attempt,
        }
        # Before the claim is written down: that one is of this attempt.
        sent = self._was_sent(errand, message_id)
        log.tell("claimed", **its, message_id=message_id)
        if sent:
            log.tell("already_sent", **its, message_id=message_id)
            return
        if errand.orphan:
            log.tell("orphan_deleted", **its)
            return  # done with it: its row goes, and its token is spent
        whom = self._whom(errand, its)
        said, subject = self._said(errand)
        doubt = task.error == LAPSED or may_have_sent(task.error)
        settled = Settled(ident, made, task.id, errand.attempt, whom.headers, doubt)
        began = time.monotonic()

        def ready(transport: str) -> None:
            self._require_lease(store, task)
            if doubt:
                log.tell("in_doubt", **its, message_id=message_id, error=task.error)

        def accepted(transport: str) -> None:
            # Not written down, it was sent all the same.
            log.sent(
                message_id,
                **its,
                to=masked(whom.to),
                redirected=bool(whom.headers),
                transport=transport,
                ms=round((time.monotonic() - began) * 1000),
            )

        cancelled = context.cancelled
        try:
            self._parts.post.send_once(
                said, whom.to, subject, settled, ready=ready, cancelled=cancelled, accepted=accepted
            )
        except BadMail as error:
            raise Fatal(str(error)) from error
        except Waits as wait:
            raise Later(wait.until, str(wait)) from wait
        except NotSent as failure:
            # For good or not: the queue's own table says how often it is tried.
            raise Failed(f"{failure.word}: {failure}") from failure
        except MailError as error:
            raise Failed(str(error)) from error

    def _was_sent(self, errand: ClaimedJob, message_id: str) -> bool:
        # Without a mark, a mail is not told from the next one of its number.
        if errand.attempt < 2 or not errand.mark:
            return False
        try:
            return self._parts.log.was_sent(message_id, errand.job, errand.attempt)
        except OSError as error:
            why = f"whether it was sent already cannot be read: {error.strerror or error}"
            raise Later(self._parts.clock() + AGAIN, why) from error

    def _require_lease(self, store: ZgbStore, task: Task) -> None:
        """Make sure that nobody else may take the job up while it is being sent.

        Raises:
            Gone: somebody else has it.
            Later: there is too little time left.
        """
        now = self._parts.clock()
        store.errand(task, now)
        until = task.lease.until if task.lease is not None else None
        if until is not None and until < now + self._parts.mail.max_time:
            why = f"the lease ends in {until - now:.0f} s, too soon to send anything"
            raise Later(now + 1, why)

    def _whom(self, errand: ClaimedJob, its: Mapping[str, object]) -> _Addressed:
        """Whom it goes to, the test mode considered.

        Raises:
            Fatal: to nobody.
            Later: nobody may decide that.
        """
        parts, letter = self._parts, self._letter
        to = letter.to or as_text(errand.registration.get(letter.to_column)).strip()
        if not letter.to and not letter.to_column:
            to = parts.mail.recipient
        if not to:
            column = f" in its column {letter.to_column}" if letter.to_column else ""
            raise Fatal(f"registration {errand.number} has no address{column}")
        try:
            to = checked(to, parts.mail.strict)
        except BadMail as error:
            raise Fatal(f"registration {errand.number}: {error}") from error
        if errand.way is redirect.RedirectDecision.UNDECIDABLE:
            parts.log.tell("redirect_blocked", **its, error=redirect.UNDECIDABLE)
            raise Later(parts.clock() + AGAIN, redirect.UNDECIDABLE)
        if errand.way is redirect.RedirectDecision.REDIRECTED:
            elsewhere = redirect.address(to, parts.own.redirect_to)
            parts.log.tell("redirect_applied", **its, to=masked(elsewhere))
            return _Addressed(elsewhere, {ORIGINAL: to})
        if errand.test:
            parts.log.tell("redirect_blocked", **its, error="registration period: no test mode")
        return _Addressed(to)

    def _said(self, errand: ClaimedJob) -> tuple[Content, str]:
        values = {name: as_text(cell) for name, cell in errand.registration.items()}
        values.setdefault("number", str(errand.number))
        try:
            return mail_merge.merged(_loaded(self._letter), self._letter.subject, values)
        except BadMail as error:
            raise Fatal(str(error)) from error
