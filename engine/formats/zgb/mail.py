"""The handler that sends the mail of a registration: check the claim, merge, send, log.

A handler has its own thread and so its own store, which only reads. The worker, which claimed the
job, stores the outcome.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from engine.config.mail_config import NOWHERE, MailSettings
from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.formats.zgb import queue_config
from engine.formats.zgb.claims import LEASE_EXPIRED
from engine.formats.zgb.log import Log, mask_address
from engine.formats.zgb.place import Cell, LetterTemplate, ZgbSettings
from engine.formats.zgb.queue_config import UNDECIDABLE_ERROR, RedirectDecision
from engine.formats.zgb.store import ClaimedJob, ZgbStore
from engine.mail.address import require_address
from engine.mail.host import this_host
from engine.mail.message import mail_merge
from engine.mail.message.content import Content
from engine.mail.model import BadMail, Cause, MailError, NotSent, Unused, Waits, may_have_sent
from engine.mail.send.sender import Sender
from engine.mail.send.sender import SendRequest as Settled
from engine.mail.send.suspensions import describe_suspender
from engine.mail.send.transport_chooser import describe_no_transport
from engine.model import Task
from engine.policy import UNITS_PER_TOKEN
from engine.store import Gone, Unavailable
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.work.handlers import Context, Failed, Fatal, Postponed

RETRY_SECONDS = 60.0
"""Seconds until a job is retried that could not be read, or whose redirection is undecidable."""

ORIGINAL_HEADER = "X-Original-To"


def mail_settings(setup: Setup, zgb_settings: ZgbSettings) -> MailSettings:
    """The mail settings, with the sender of the registration. Raises ConfigError: a setting is
    invalid."""
    settings = setup.mail.settings()
    if settings.delivery_log == f"{setup.queue.root}/mail/delivery.jsonl":
        settings = settings._replace(delivery_log=f"{setup.state_folder}/mail/delivery.jsonl")
    # The default sender is that of another program.
    return settings._replace(
        sender=zgb_settings.sender or settings.sender or f"noreply@{this_host().name}",
        from_name=zgb_settings.from_name or str(setup.config.mail.get("from_name", "")),
    )


class MailRoute(NamedTuple):
    """The transport that a queue's mail would use now."""

    name: str = ""
    """The transport; "" if none."""
    why: str = ""
    """Why no transport can be used."""
    fix: str = ""
    """The fix."""
    stopped: tuple[str, ...] = ()
    """Each suspended transport, and by whom it was suspended."""
    resume: str = ""
    """The command that resumes them; "" if no transport is suspended."""


def current_route(setup: Setup, zgb_settings: ZgbSettings) -> MailRoute:
    """The transport that mail would use now. Raises nothing: an error is a reason without
    transport."""
    try:
        settings = mail_settings(setup, zgb_settings)
        suspended = setup.mail.suspensions().read()
        choice = setup.mail.registry(settings).choose(suspended)
    except (ConfigError, OSError, ValueError) as error:
        return MailRoute(why=safe_line(str(error)), fix="correct this setting")
    place = shlex.quote(setup.place)
    stopped = tuple(f"{name} is {describe_suspender(each)}" for name, each in suspended.items())
    resume = "; ".join(f"spooldeck mail resume {name} --root {place}" for name in suspended)
    if choice.transport is not None:
        return MailRoute(choice.transport.name, stopped=stopped, resume=resume)
    why = describe_no_transport(settings, choice.why_not, suspended)
    return MailRoute("", why, _describe_repair(settings, choice.why_not, resume), stopped, resume)


def _describe_repair(settings: MailSettings, why_not: Mapping[str, Unused], resume: str) -> str:
    if settings.method == NOWHERE:
        return "set mail.method, or remove it to choose a transport automatically"
    if resume and any(why.cause is Cause.SUSPENDED for why in why_not.values()):
        return resume
    if stopped := [name for name, why in why_not.items() if why.cause is Cause.STOPPED]:
        return f"start {stopped[0]}, or set mail.relay.host"
    return "install a program that sends mail, or set mail.relay.host; see spooldeck mail status"


def why_unready(
    letter: LetterTemplate,
    zgb_settings: ZgbSettings,
    settings: MailSettings,
    columns: tuple[str, ...],
) -> str:
    """Why no mail of this kind can be made for any recipient; "" if one can.

    `columns` are those of the registrations."""
    if why := zgb_settings.lease_problem(settings.max_time):
        return why
    try:
        if letter.to:
            require_address(letter.to, settings.strict)
        elif letter.to_column:
            if letter.to_column not in columns:
                where = _table(zgb_settings)
                return f"no column {safe_line(letter.to_column)} in {where}, for the recipient"
        elif not settings.recipient:
            return "no recipient: none of to, to_column and mail.recipient is set"
        else:
            require_address(settings.recipient, settings.strict)  # a job is one mail: no list
        text = _loaded(letter).text
    except BadMail as error:
        return str(error)
    lacks = mail_merge.describe_missing_values(
        f"{text}{letter.subject}", frozenset((*columns, "number"))
    )
    return f"{lacks}: the columns are {safe_line(', '.join(columns))}" if lacks else ""


def _table(zgb_settings: ZgbSettings) -> str:
    return (
        f"the table {safe_line(zgb_settings.registrations)}"
        if zgb_settings.registrations
        else "no table"
    )


def _loaded(letter: LetterTemplate) -> Content:
    if not letter.template:
        raise BadMail("no template is set")
    return mail_merge.load_merge_template(letter.template)


def as_text(cell: Cell) -> str:
    """A column's value as text for a letter; "" for NULL."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return "" if cell is None else str(cell)


class HourlyLimit:
    """A limit of mails in any hour, counted from the log of sent mails."""

    def __init__(self, most: int, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._most, self._log, self._clock = most, log, clock

    def is_limited(self, kind: str) -> bool:
        """True: the limit is for all mails."""
        return True

    def ready(self, kind: str) -> bool:
        """True if one more mail may be tried. Raises OSError: the log cannot be read, so none
        may."""
        return len(self._tried()) < self._most

    def spend(self, kind: str) -> bool:
        """Same as `ready`: the attempt itself is logged."""
        return self.ready(kind)

    def token_at(self, kind: str) -> float:
        """When one more may be tried, epoch seconds UTC."""
        tried = self._tried()
        return tried[-self._most] + UNITS_PER_TOKEN if len(tried) >= self._most else self._clock()

    def remaining(self) -> int:
        """Number of mails that may be tried now."""
        return max(0, self._most - len(self._tried()))

    def _tried(self) -> list[float]:
        if not self._log.path:
            raise OSError(0, "the hourly limit needs a log, and the log cannot be written")
        since = self._clock() - UNITS_PER_TOKEN
        return [moment for moment in self._log.attempt_times(since) if moment > since]


class MailingParts(NamedTuple):
    """What the handlers of one queue share."""

    zgb_settings: ZgbSettings
    mail: MailSettings
    post: Sender
    log: Log
    open: Callable[[], ZgbStore]
    """Opens a store for the calling thread."""
    clock: Callable[[], float] = time.time


class RegistrationHandler:
    """Sends one of the two mails of a registration, once per claim."""

    def __init__(self, parts: MailingParts, letter: LetterTemplate) -> None:
        self._parts, self._letter = parts, letter

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt; none if an earlier one is known to have succeeded. Raises Fatal: this
        mail can never be sent; Failed: the attempt failed, or the claim has lapsed; Postponed: no
        attempt was made."""
        try:
            with closing(self._parts.open()) as store:
                self._send(store, task, context)
        except Gone as gone:
            raise Failed(f"lease lost, nothing sent: {gone}") from gone
        except Unavailable as error:
            raise Postponed(
                self._parts.clock() + RETRY_SECONDS, f"nothing sent: {error}"
            ) from error

    def _send(self, store: ZgbStore, task: Task, context: Context) -> None:
        log = self._parts.log
        now = self._parts.clock()
        claimed = self._require_claim(store, task, context)[1]
        made = claimed.created or int(now)
        # This Message-ID is unique on this host. If nothing distinguishes the job from a later one
        # with its number, each attempt gets its own ID: otherwise the later mail would look like
        # this one.
        ident = f"zgb-{claimed.number}-{claimed.kind}-{claimed.identity or made}"
        message_id = f"<{ident}@{this_host().name}>"
        its = {
            "job": claimed.job,
            "reg": claimed.number,
            "type": claimed.kind,
            "attempt": claimed.attempt,
        }
        # Before logging "claimed", which belongs to this attempt.
        sent = self._was_sent(claimed, message_id)
        log.write("claimed", **its, message_id=message_id)
        if sent:
            log.write("already_sent", **its, message_id=message_id)
            return
        if claimed.is_orphan:
            log.write("orphan_deleted", **its)
            return  # done: the row is deleted, the token is spent
        to, headers = self._recipient(claimed, its)
        body, subject = self._merge_content(claimed)
        doubt = task.error == LEASE_EXPIRED or may_have_sent(task.error)
        settled = Settled(
            ident, made, task.id, attempt=claimed.attempt, headers=headers, is_doubtful=doubt
        )
        began = time.monotonic()

        def ready(transport: str) -> None:
            self._require_lease(store, task, context)
            if doubt:
                log.write("in_doubt", **its, message_id=message_id, error=task.error)

        def accepted(transport: str) -> None:
            # The mail is sent even if this line cannot be written.
            log.write_sent(
                message_id,
                **its,
                to=mask_address(to),
                redirected=bool(headers),
                transport=transport,
                ms=round((time.monotonic() - began) * 1000),
            )

        cancelled = context.is_cancelled
        try:
            self._parts.post.send_once(
                body, to, subject, settled, ready=ready, cancelled=cancelled, accepted=accepted
            )
        except BadMail as error:
            raise Fatal(str(error)) from error
        except Waits as wait:
            raise Postponed(wait.retry_at, str(wait)) from wait
        except NotSent as failure:
            # Permanent or not: the table of the queue decides how often it is tried.
            raise Failed(f"{failure.word}: {failure}") from failure
        except MailError as error:
            raise Failed(str(error)) from error

    def _was_sent(self, claimed: ClaimedJob, message_id: str) -> bool:
        # Without a mark the mail cannot be distinguished from the next one of its number.
        if claimed.attempt < 2 or not claimed.identity:
            return False
        try:
            return self._parts.log.was_sent(message_id, claimed.job, claimed.attempt)
        except OSError as error:
            why = f"cannot read whether it was already sent: {error_text(error)}"
            raise Postponed(self._parts.clock() + RETRY_SECONDS, why) from error

    def _require_claim(
        self, store: ZgbStore, task: Task, context: Context
    ) -> tuple[Task, ClaimedJob]:
        """The claim with its present lease, and its job. Raises Gone: another worker has it."""
        while True:
            mine = context.current_claim(task)
            try:
                return mine, store.describe_claim(mine, self._parts.clock())
            except Gone:
                if context.current_claim(task) == mine:
                    raise  # else our worker has renewed the lease in between

    def _require_lease(self, store: ZgbStore, task: Task, context: Context) -> None:
        """Check that no other worker may claim the job while it is being sent. Raises Gone: another
        worker has it; Postponed: too little time is left."""
        now = self._parts.clock()
        mine = self._require_claim(store, task, context)[0]
        until = mine.lease.until if mine.lease is not None else None
        if until is not None and until < now + self._parts.mail.max_time:
            why = f"the lease ends in {until - now:.0f} s, too soon to send anything"
            raise Postponed(now + 1, why)

    def _recipient(
        self, claimed: ClaimedJob, its: Mapping[str, object]
    ) -> tuple[str, Mapping[str, str]]:
        """The recipient and extra headers, with the test mode applied. Raises Fatal: there is no
        valid recipient; Postponed: the test mode is undecidable."""
        parts, letter = self._parts, self._letter
        to = letter.to or as_text(claimed.registration.get(letter.to_column)).strip()
        if not letter.to and not letter.to_column:
            to = parts.mail.recipient
        if not to:
            column = f" in its column {letter.to_column}" if letter.to_column else ""
            raise Fatal(f"registration {claimed.number} has no address{column}")
        try:
            to = require_address(to, parts.mail.strict)
        except BadMail as error:
            raise Fatal(f"registration {claimed.number}: {error}") from error
        if claimed.redirection is RedirectDecision.UNDECIDABLE:
            parts.log.write("redirect_blocked", **its, error=UNDECIDABLE_ERROR)
            raise Postponed(parts.clock() + RETRY_SECONDS, UNDECIDABLE_ERROR)
        if claimed.redirection is RedirectDecision.REDIRECTED:
            elsewhere = queue_config.redirected_address(to, parts.zgb_settings.redirect_to)
            parts.log.write("redirect_applied", **its, to=mask_address(elsewhere))
            return elsewhere, {ORIGINAL_HEADER: to}
        if claimed.is_test:
            parts.log.write("redirect_blocked", **its, error="registration period: no test mode")
        return to, {}

    def _merge_content(self, claimed: ClaimedJob) -> tuple[Content, str]:
        values = {name: as_text(cell) for name, cell in claimed.registration.items()}
        values.setdefault("number", str(claimed.number))
        try:
            return mail_merge.merge_values(_loaded(self._letter), self._letter.subject, values)
        except BadMail as error:
            raise Fatal(str(error)) from error
