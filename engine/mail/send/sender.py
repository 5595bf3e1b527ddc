"""Send a mail once, with retries and the spool as fallback, or out of the spool.

A mail that a transport accepted is never sent again: a spooled mail is marked as being tried before
the transport is asked and as sent right after it accepted, each durably (fsync). One gap remains:
if the process is killed between acceptance and the second mark, or if the transport never answers,
only the first mark exists. The next attempt logs that and sends the same mail again, with the same
Message-ID.

`send_with_retry` stores a mail after its first failed attempt, before the first pause, so that
SIGKILL or a power cut between two attempts does not lose it. It keeps also what it cannot send: a
mail without a recipient, to an invalid address, with a file that is not allowed. Such a mail is
marked as refused, and its task becomes dead at its first run.

A list of recipients is one mail for each: a wrong address stops no other.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Self

from engine.mail import address
from engine.mail.host import Host
from engine.mail.message.content import Content, content_from_bytes, cut_content, load_content
from engine.mail.model import BadMail, Mail, MailError, NotSent, Reason, Transport, Waits
from engine.mail.send import spool_entry
from engine.mail.send.delivery_log import INLINE_TASK_ID, Ledger
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.mail.send.spool_entry import SpoolMark
from engine.mail.send.transport_chooser import NO_TRANSPORT, NOT_SET_UP, TransportChooser
from engine.schedules import stepped
from engine.text.error_text import error_text
from engine.text.safe import hide_domain, safe_line
from engine.values import NamedTuple

BAD_MAIL = "rejected_bad_mail"
"""The reason in one word, like those of `NotSent`, of a mail that can never be sent."""

LOST = "lost"
"""The reason of a mail that was neither sent nor stored, as one word."""

NO_RECIPIENT = "no recipient is named, and none is configured (mail.recipient)"
"""The reason of a mail without a recipient: it is kept, its task becomes dead, and once one is
configured `mail spool retry` sends it there."""


class SentMail(NamedTuple):
    """A mail that a transport has accepted."""

    transport: str
    mail_id: str
    recipient: str


class SendResult(NamedTuple):
    """The result of `send_with_retry`."""

    sent: bool
    """True if a transport accepted it; otherwise it is in the spool, unless it is `lost`."""
    transport: str
    """The transport that was used; "" for none."""
    attempts: int
    word: str = ""
    """Why it was not sent, as one word for logs."""
    text: str = ""
    """Why it was not sent, as text for operators; safe to show."""
    mail_id: str = ""
    task_id: str = ""
    """The task that delivers it from the spool; "" if it was sent or could not be queued."""
    permanent: bool = False
    """True if no attempt can succeed: its task fails at its first run."""
    payload: str = ""
    """Path of its meta.sh in the spool; "" if it was sent."""
    doubtful_since: float = 0.0
    """When an attempt with an unknown result began, epoch seconds UTC; 0.0 if none."""
    unqueued: str = ""
    """Why no task could be made to deliver it from the spool; safe to show."""
    lost: OSError | None = None
    """Why it could not be stored, if it is neither sent nor stored; its notes ("__notes__") are why
    it was not sent."""


class SendRequest(NamedTuple):
    """A mail from another program's queue: the values that every attempt shares."""

    id: str
    """Its mail id; the Message-ID is made from it."""
    composed_at: float
    """The time for its Date header, epoch seconds UTC."""
    task_id: str
    attempt: int
    """The number of this attempt, from 1."""
    headers: Mapping[str, str] = {}
    """Additional headers by name."""
    is_doubtful: bool = False
    """True if an earlier attempt has an unknown result: the mail may have been sent."""


class Sender:
    """Sends mails by the chosen transport: makes attempts, spools and records."""

    def __init__(
        self,
        chooser: TransportChooser,
        host: Host,
        spool: MailSpool,
        ledger: Ledger,
        clock: Callable[[], float],
        pause: Callable[[float], object],
        *,
        complain: Callable[[str], None],
    ) -> None:
        """`pause` waits so many seconds, or until the caller cancels the mail; `complain` receives
        errors that do not stop a mail."""
        self.chooser, self._settings, self._host = chooser, chooser.settings, host
        self._spool, self._ledger = spool, ledger
        self._clock, self._pause, self._complain = clock, pause, complain

    # ---- new mails

    def recipients(self, named: str) -> list[str]:
        """Return the recipients of a list with commas, else the configured ones; [""] if there are
        none. They are not validated: each gets a mail of its own, with its own result."""
        return address.split_addresses(named or self._settings.recipient) or [""]

    def send(
        self,
        content: str,
        recipient: str = "",
        subject: str = "",
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> SentMail:
        """Make one attempt, to one of `recipients` (contract, "nftban_mail_send"). Raises BadMail:
        the mail can never be sent; NotSent: it was not accepted, or nothing may be sent now."""
        now = self._clock()
        with self._recording_bad_mail(recipient):
            to = self._require_recipient(recipient)
            mail_content = load_content(content, self._settings)
            transport, why = self.chooser.choose()
            if transport is None:
                raise NotSent(Reason.UNAVAILABLE, NO_TRANSPORT, why)
            ident = spool_entry.new_id(now)
            mail = self._compose(mail_content, to, subject, transport, now, ident=ident)
        try:
            self.chooser.spend(transport.name, to)
        except Waits as wait:
            raise NotSent(Reason.UNAVAILABLE, wait.word, str(wait)) from wait
        self._attempt(INLINE_TASK_ID, 1, transport, mail, cancelled)
        return SentMail(transport.name, mail.id, to)

    def send_with_retry(
        self,
        content: str,
        recipient: str = "",
        subject: str = "",
        *,
        enqueue: Callable[[str, str], str],
        cancelled: Callable[[], bool] = lambda: False,
        report_failure: Callable[[str], object] = lambda text: None,
    ) -> list[SendResult]:
        """Make some attempts with pauses, then spool the mail and queue a task for it (contract,
        "nftban_mail_send_with_retry"); return the result for each of `recipients`.

        If all attempts to one recipient failed, the next ones get a single attempt each: the caller
        waits for the pauses only once. `enqueue` takes the task's description and payload and
        returns its id. `report_failure` gets a message for each failed attempt that another one
        follows. A mail that can be neither sent nor spooled is `lost`, and stops no other.
        """
        results: list[SendResult] = []
        for to in self.recipients(recipient):
            has_failed = any(not (each.sent or each.permanent or each.lost) for each in results)
            copy = _SafeCopy(self._spool, spool_entry.new_id(self._clock()), self._reporting_errors)
            try:
                with copy:
                    ended = self._send_or_spool(
                        content,
                        to,
                        subject or f"{self._settings.product} Alert",
                        copy,
                        attempts=1 if has_failed else self._settings.attempts,
                        enqueue=enqueue,
                        cancelled=cancelled,
                        report_failure=report_failure,
                    )
            except OSError as error:
                notes = "".join(f"{note}; " for note in getattr(error, "__notes__", ()))
                text = safe_line(f"{notes}cannot be stored: {error_text(error)}")
                self._ledger.log_unsendable(INLINE_TASK_ID, 0, LOST, to, text)
                ended = SendResult(False, "", 0, LOST, text, lost=error)
            results.append(ended)
        if not all(each.lost for each in results):
            self.publish()
        return results

    def _send_or_spool(
        self,
        content: str,
        recipient: str,
        subject: str,
        copy: "_SafeCopy",
        *,
        attempts: int,
        enqueue: Callable[[str, str], str],
        cancelled: Callable[[], bool],
        report_failure: Callable[[str], object],
    ) -> SendResult:
        """Send one mail in at most so many attempts, or spool it. Raises OSError: it is lost."""
        transport: Transport | None = None
        why = ""
        try:
            mail_content = cut_content(content, self._settings)
            mail_content = load_content(content, self._settings)
            to = self._require_recipient(recipient)
            transport, why = self.chooser.choose()
            if transport is not None:
                now = self._clock()
                mail = self._compose(mail_content, to, subject, transport, now, ident=copy.id)
        except BadMail as bad:
            copy.set_values(recipient, subject, mail_content)
            if not self.chooser.settings_fault or recipient:
                self._ledger.log_unsendable(INLINE_TASK_ID, 0, BAD_MAIL, recipient, str(bad))
                ended = SendResult(
                    False, "", 0, BAD_MAIL, str(bad), mail_id=copy.id, permanent=True
                )
                return self._spool_mail(ended, copy, enqueue)
            why = self.chooser.settings_fault  # the recipient may be in what cannot be read
        else:
            copy.set_values(to, subject, mail_content)
        if transport is None:
            # A missing setup has its own line in the contract.
            self._ledger.log_no_transport("" if why.startswith(NOT_SET_UP) else why)
            ended = SendResult(False, "", 0, "no_transport_available", why, mail_id=copy.id)
            return self._spool_mail(ended, copy, enqueue)
        ended = self._make_attempts(
            transport, mail, copy, most=attempts, cancelled=cancelled, report_failure=report_failure
        )
        return ended if ended.sent else self._spool_mail(ended, copy, enqueue)

    @contextmanager
    def _recording_bad_mail(self, recipient: str) -> Iterator[None]:
        """Record a BadMail of the block as a failed mail: the caller may not read the exception."""
        try:
            yield
        except BadMail as bad:
            to = recipient or self._settings.recipient
            self._ledger.log_unsendable(INLINE_TASK_ID, 0, BAD_MAIL, to, str(bad))
            self.publish()
            raise

    def _make_attempts(
        self,
        transport: Transport,
        mail: Mail,
        copy: "_SafeCopy",
        *,
        most: int,
        cancelled: Callable[[], bool],
        report_failure: Callable[[str], object],
    ) -> SendResult:
        """Make attempts until one succeeds or none can, at most `most`, with pauses between them.
        Before the first pause the mail is stored."""
        name, to = transport.name, mail.recipient
        failure: NotSent | None = None
        made, doubt, wait_note = 0, 0.0, ""
        while made < most:
            try:
                self.chooser.spend(name, to)
            except Waits as wait:
                if failure is None:
                    return SendResult(False, name, made, wait.word, str(wait), mail_id=mail.id)
                wait_note = f"; then {wait}"
                break
            made += 1
            if doubt:
                self._ledger.log_unknown_result(INLINE_TASK_ID, name, doubt)
            since = self._clock()
            self._ledger.log_attempt(INLINE_TASK_ID, made, name, to)
            copy.mark_trying(name, since)
            try:
                transport.send(mail, cancelled)
            except NotSent as refusal:
                failure = refusal
                # A later answer says nothing about an earlier attempt with an unknown result.
                doubt = since if failure.may_be_accepted else doubt
            else:
                copy.remove_sent(name, since)
                after = "" if failure is None else f"{failure.word}: {failure}"
                self._ledger.log_accepted(INLINE_TASK_ID, made, name, to, after)
                return SendResult(True, name, made, mail_id=mail.id)
            self._ledger.log_failed_attempt(made, most, failure.word)
            if failure.permanent or made == most or cancelled():
                break
            copy.try_to_store(SpoolMark(name, doubt) if doubt else None)
            pause = stepped(self._settings.backoff or (0.0,)).seconds(made - 1)
            report_failure(
                f"attempt {made} of {most} by {name} failed: {failure.word}; again in {pause:g} s"
            )
            self._ledger.log_retry(pause)
            self._pause(pause)
            if cancelled():
                break
        assert failure is not None
        word, text = failure.word, f"{failure}{wait_note}"
        self._ledger.log_failure(INLINE_TASK_ID, name, made, word=word, to=to, text=text)
        ended = SendResult(False, name, made, word, text, mail_id=mail.id)
        return ended._replace(permanent=failure.permanent, doubtful_since=doubt)

    def _spool_mail(
        self, ended: SendResult, copy: "_SafeCopy", enqueue: Callable[[str, str], str]
    ) -> SendResult:
        # Both marks must exist before the task: a worker may take it immediately, and without a
        # task an operator reads them.
        refused = f"{ended.word}: {ended.text}" if ended.permanent else ""
        trying = SpoolMark(ended.transport, ended.doubtful_since) if ended.doubtful_since else None
        try:
            copy.store(trying, refused)
        except OSError as error:
            error.add_note(f"{ended.word}: {ended.text}")  # lost: both reasons are wanted
            raise
        payload = copy.payload
        whom = hide_domain(copy.to) if copy.to else "the configured recipient"
        try:
            task_id = enqueue(f"Spooled mail to {whom}", payload)
        except Exception as error:
            # The mail is safe in the spool, so a queue error is no failure of this call.
            why = safe_line(str(error) or type(error).__name__)
            self._ledger.log_unqueued(payload.rpartition("/")[0])
            with self._reporting_errors("it is queued after 60 s"):
                self._spool.mark_unqueued(copy.id)
            return ended._replace(payload=payload, unqueued=why)
        with self._reporting_errors("a worker will check for its task again"):
            self._spool.mark_queued(copy.id)
        reason = f"after_{ended.attempts}_retries" if ended.attempts else ended.word
        self._ledger.log_spooled(task_id, copy.to, reason, ended.transport)
        return ended._replace(payload=payload, task_id=task_id)

    # ---- mails of another program's queue

    def send_once(
        self,
        mail_content: Content,
        to: str,
        subject: str,
        request: SendRequest,
        *,
        ready: Callable[[str], None],
        cancelled: Callable[[], bool],
        accepted: Callable[[str], None] = lambda transport: None,
    ) -> SentMail:
        """Make one attempt at a mail that another program's queue keeps and retries; nothing is
        spooled.

        All attempts of one request send the same bytes. `ready` gets the transport's name right
        before that is asked, and may raise. `accepted` gets it right after the transport accepted
        the mail, before anything else is recorded.

        Raises:
            BadMail: the mail can never be sent.
            Waits: nothing was attempted, and the mail has no fault.
            NotSent: the attempt failed.
        """
        from engine.mail.message.compose import compose_mail

        to = address.require_address(to, self._settings.strict)
        transport, why = self.chooser.choose()
        if transport is None:
            raise self.chooser.wait(why, NO_TRANSPORT)
        mail = compose_mail(
            mail_content,
            to,
            subject,
            settings=self._settings._replace(html=mail_content.html),
            host=self._host,
            now=request.composed_at,
            id=request.id,
            transport=transport.name,
            also=request.headers,
            fills=False,  # another program's mail: keep its braces
        )
        self.chooser.spend_or_wait(transport.name, to)
        ready(transport.name)
        if request.is_doubtful:
            self._ledger.log_unknown_result(request.task_id)
        mark = partial(accepted, transport.name)
        self._attempt(request.task_id, request.attempt, transport, mail, cancelled, accepted=mark)
        return SentMail(transport.name, mail.id, to)

    # ---- spooled mails

    def deliver(
        self, payload: str, task_id: str, attempt: int, cancelled: Callable[[], bool]
    ) -> None:
        """Make one attempt at a spooled mail; none if it was already sent.

        Return if a transport accepted it, even if that could not be recorded.

        Raises:
            BadMail: the mail can never be sent.
            Waits: nothing was attempted, and the mail has no fault.
            NotSent: the attempt failed.
            MailError: nothing was attempted, because the spool cannot be read or written.
        """
        to = ""
        try:
            with _reading_spool():
                spooled = self._spool.read(payload)
                if why := _why_undivided(self._spool, spooled, self.recipients):
                    raise self.chooser.wait(why)
                first, *others = self.recipients(spooled.to)
                if others and spooled.sent is None and not spooled.refused:
                    body = self._spool.body(spooled, self._settings.spooled_size)
                    _divide(self._spool, spooled, body, first, others)
                spooled = spooled._replace(to=first)
            to = spooled.to
            self._deliver(spooled, task_id, attempt, cancelled)
        except BadMail as bad:
            self._ledger.log_unsendable(task_id, attempt - 1, BAD_MAIL, to, str(bad))
            raise

    def _deliver(
        self, spooled: Spooled, task_id: str, attempt: int, cancelled: Callable[[], bool]
    ) -> None:
        if spooled.sent is not None:
            self._ledger.log_already_sent(task_id, spooled.sent.transport, spooled.sent.at)
            return
        self._refuse_once(spooled, task_id, attempt)
        transport, why = self.chooser.choose()
        if transport is None:
            raise self.chooser.wait(why)
        name = transport.name
        with _reading_spool():
            body = self._spool.body(spooled, self._settings.spooled_size)
            mail_content = content_from_bytes(body, spooled.html)
            to = self._require_recipient(spooled.to)
            # With its original time, so that a mail sent twice has the same bytes.
            made, ident = spooled.composed_at, spooled.id
            mail = self._compose(mail_content, to, spooled.subject, transport, made, ident=ident)
            self.chooser.spend_or_wait(name, to)
            if spooled.trying is not None:
                self._ledger.log_unknown_result(
                    task_id, spooled.trying.transport, spooled.trying.at
                )
            self._spool.mark_trying(spooled, name, self._clock())

        def mark() -> None:
            # The mail was sent, even if that cannot be recorded.
            with self._reporting_errors(
                f"{mail.id} was sent, but that is not recorded in the spool"
            ):
                self._spool.mark_sent(spooled, name, self._clock())

        try:
            self._attempt(task_id, attempt, transport, mail, cancelled, accepted=mark)
        except NotSent as failure:
            if not failure.may_be_accepted:
                with self._reporting_errors(
                    f"{spooled.id} was not sent, but will be reported as in doubt"
                ):
                    self._spool.mark_failed(spooled)
            raise

    def _refuse_once(self, spooled: Spooled, task_id: str, attempt: int) -> None:
        """Fail a mail without an attempt if it was permanently refused before it was spooled. This
        removes the mark, so an operator's retry makes an attempt."""
        if not spooled.refused:
            return
        with _reading_spool():
            self._spool.take_refusal(spooled)
        word, _, text = spooled.refused.partition(": ")
        if not _is_word(word):
            word, text = "rejected_for_good", spooled.refused
        self._ledger.log_unsendable(task_id, attempt - 1, word, spooled.to, text, is_repeated=True)
        raise NotSent(Reason.REJECTED, word, text, permanent=True)

    # ---- one attempt

    def _attempt(
        self,
        task_id: str,
        n: int,
        transport: Transport,
        mail: Mail,
        cancelled: Callable[[], bool],
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one attempt and record its result; `accepted` is called before anything is recorded.

        Each run of a queued mail is a separate send (contract, "Task Types": it calls
        "nftban_mail_send"), so each counts as one success or failure, like its log line. The real
        program counts a mail once after all its attempts, as `send_with_retry` does here, and does
        not count queued mail at all, so those failures stay unseen.
        """
        name, to = transport.name, mail.recipient
        self._ledger.log_attempt(task_id, n, name, to)
        try:
            transport.send(mail, cancelled)
        except NotSent as failure:
            self._ledger.log_failure(task_id, name, n, word=failure.word, to=to, text=str(failure))
            self.publish()
            raise
        accepted()
        self._ledger.log_accepted(task_id, n, name, to)
        self.publish()

    def _require_recipient(self, recipient: str) -> str:
        to = recipient or self._settings.recipient
        if not to:
            raise BadMail(NO_RECIPIENT)
        return address.require_address(to, self._settings.strict)

    def _compose(
        self,
        mail_content: Content,
        to: str,
        subject: str,
        transport: Transport,
        made: float,
        ident: str,
    ) -> Mail:
        # It loads the packages for mail of Python, which take longer than all else of a command
        # that only asks whether mail can be sent.
        from engine.mail.message.compose import compose_mail

        return compose_mail(
            mail_content,
            to,
            subject,
            settings=self._settings,
            host=self._host,
            now=made,
            id=ident,
            transport=transport.name,
        )

    def publish(self) -> None:
        """Write the current metrics of mail."""
        transport, _ = self.chooser.choose()
        with self._reporting_errors("mail metrics are not written"):
            depth, oldest = self._spool.depth_and_oldest(self._clock())
            self._ledger.publish(transport.name if transport else "", depth, oldest)

    @contextmanager
    def _reporting_errors(self, consequence: str) -> Iterator[None]:
        """Report an error in the block, with its consequence, to `complain`; it stops no mail."""
        try:
            yield
        except (OSError, MailError) as error:
            why = error_text(error) if isinstance(error, OSError) else None
            self._complain(f"{why or safe_line(str(error))}; {consequence}")


class _SafeCopy:
    """The copy of one mail in the spool, made when it is needed: it outlives its sender. While the
    block is open, the copy is locked (flock): no other process makes a task for it."""

    def __init__(
        self, spool: MailSpool, ident: str, reporting: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        """`reporting` makes a context manager that prints an error with its consequence and
        continues."""
        self._spool, self.id, self._reporting = spool, ident, reporting
        self._mail = Spooled(ident, f"{spool.folder}/{ident}", spool.meta_path(ident))
        self.to, self._subject, self._content = "", "", Content("", html=False)
        self.payload = ""
        """Path of its meta.sh; "" if it is not stored."""
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def set_values(self, to: str, subject: str, content: Content) -> None:
        self.to, self._subject, self._content = to, subject, content

    def store(self, trying: SpoolMark | None, refused: str = "") -> None:
        """Store it with these marks, or only the marks if it is stored."""
        if not self.payload:
            self.payload = self._spool.store_mail(
                self.id,
                self.to,
                self._subject,
                content=self._content,
                refused=refused,
                trying=trying,
            )
            with self._reporting("another process may queue it already"):
                self._lock.enter_context(self._spool.lock_mail(self.id))
            return
        with self._reporting(f"{self.id}: the marks of its attempts are old"):
            self._spool.mark_failed(self._mail._replace(trying=trying), refused)

    def try_to_store(self, trying: SpoolMark | None) -> None:
        """Store it; an error is only reported, as further attempts follow."""
        with self._reporting("the mail is lost if its sender is killed before the next attempt"):
            self.store(trying)

    def mark_trying(self, transport: str, now: float) -> None:
        """Mark that a transport is about to be asked, if it is stored; errors are reported."""
        if self.payload:
            with self._reporting(f"{self.id}: if its sender is killed, it may arrive twice"):
                self._spool.mark_trying(self._mail, transport, now)

    def remove_sent(self, transport: str, since: float) -> None:
        """Mark it as sent and remove it, if it is stored; errors are reported."""
        if self.payload:
            with self._reporting(f"{self.id} was sent, and is still in the spool"):
                self._spool.mark_sent(self._mail, transport, since)
                self._spool.remove(self._mail)


def _divide(
    spool: MailSpool, spooled: Spooled, body: bytes, first: str, others: Iterable[str]
) -> None:
    """Make a mail of its own for each further recipient, for which a worker makes a task; then set
    the first as the only one. Until then the others are not sent (`_why_undivided`). Raises
    OSError: it cannot be stored now; the mail is unchanged."""
    numbers = itertools.count(2)
    made = []
    for to in others:
        for n in numbers:
            ident = f"{spooled.id}-{n}"
            if not os.path.lexists(spool.meta_path(ident)):
                mail_content = content_from_bytes(body, spooled.html)
                spool.store_mail(ident, to, spooled.subject, mail_content)
                break
            # One with this recipient is there if a process was killed before the end; one with
            # another, if the mail had another list before.
            with suppress(BadMail):
                if spool.read(spool.meta_path(ident)).to == to:
                    break
        made.append(ident)
    spool.set_recipient(spooled, first)
    for ident in made:
        with suppress(FileNotFoundError):  # a worker has just sent it
            spool.mark_unqueued(ident)


def _why_undivided(
    spool: MailSpool, spooled: Spooled, recipients: Callable[[str], list[str]]
) -> str:
    """Return why a mail that `_divide` made waits: the list that names its recipient still exists,
    as the process was killed. If it were sent and removed now, the list would make it again. Raises
    OSError: the mail with the list cannot be read now."""
    match = _PART_ID.fullmatch(spooled.id)
    if match is None or spooled.sent is not None:
        return ""
    try:
        whole = spool.read(spool.meta_path(match[1]))
    except BadMail:
        return ""  # it was sent and removed, or this name has another meaning
    if whole.sent is not None or spooled.to not in recipients(whole.to)[1:]:
        return ""
    return f"{safe_line(whole.id)} has this recipient too, until its task runs again"


_PART_ID = re.compile(r"(.+)-[1-9][0-9]*")
"""The id of a mail that `_divide` made, that of the first and a number; others also match."""


def _is_word(text: str) -> bool:
    """True if the text can be a reason of one word in the log; marks may contain any text."""
    return re.fullmatch(r"[a-z0-9_.]{1,40}", text) is not None


@contextmanager
def _reading_spool() -> Iterator[None]:
    """Raise an OSError of the block as MailError: it fails the attempt, not the mail."""
    try:
        yield
    except OSError as error:
        where = f"{safe_line(str(error.filename))}: " if error.filename else ""
        raise MailError(f"nothing was sent: {where}{error_text(error)}") from error
