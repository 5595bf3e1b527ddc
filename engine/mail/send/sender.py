"""Sends a mail once, or with retries and the spool behind them, or out of the spool.

What a transport has accepted is never sent again: a spooled mail is marked as being tried before
the transport is asked, and as sent right after it accepted, each durably. One window remains: who
is ended between the acceptance and the second mark leaves the first one behind, and so does a
transport that never answers. The next attempt says so in the log, and sends the same mail once
more, with the same Message-ID.

`send_with_retry` spools at its end, as the contract has it: whoever kills it for good (SIGKILL, a
power cut) in the minute or two before that loses the mail, of which the log then tells that it was
to be tried again. Every other signal has it spooled at once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from engine.config.mail_config import NOWHERE, MailSettings
from engine.mail import address
from engine.mail.host import Host
from engine.mail.message.compose import compose
from engine.mail.message.content import Content, given, of_body
from engine.mail.model import BadMail, Cause, Mail, MailError, NotSent, Reason, Transport, Waits
from engine.mail.send.delivery_log import INLINE, Ledger
from engine.mail.send.mail_spool import MailSpool, Spooled
from engine.mail.send.spool_entry import SpoolMark
from engine.mail.send.suspensions import Suspension
from engine.mail.transports.registry import TransportRegistry
from engine.policy import HOUR, Rate
from engine.text.safe import private, shown

DEFAULT_SUBJECT = "NFTBan Alert"
"""The subject of `send_with_retry` where none is given, as in the real program."""

ASK_AGAIN = 60.0
"""Seconds after which a mail that found no transport to use asks once more."""

FARTHEST = 86400.0
"""Seconds for which a mail that waits in line for a token is put off at the most: the rate, or the
line, may be another one by then."""

NO_TRANSPORT, BAD_MAIL = "unavailable_no_transport", "rejected_bad_mail"
"""Words, as those of `NotSent`, for what no transport was asked."""

NOT_SET_UP = "no mail transport is set up"
"""Why nothing is sent where nobody has seen to it; how the reason begins, where there is more."""


class AttemptTokens(Protocol):
    """Token buckets by name; `engine.locks.token_buckets.Buckets` keeps them for all processes."""

    def ready(self, kind: str, /) -> bool:
        """Whether a token is there, nothing spent."""
        ...

    def spend(self, kind: str, /) -> bool:
        """Take a token; False, and nothing taken, when there is none."""
        ...

    def token_at(self, kind: str, /) -> float:
        """When one is there, epoch seconds UTC."""
        ...


class SentMail(NamedTuple):
    """A mail that a transport has accepted."""

    transport: str
    mail_id: str
    recipient: str


class SendResult(NamedTuple):
    """What became of a mail that was to be sent with retries."""

    sent: bool
    """Whether a transport accepted it; else it lies in the spool."""
    transport: str
    """The one that was used; "" where there was none."""
    attempts: int
    word: str = ""
    """Why it was not sent, in one word, as logs have it."""
    text: str = ""
    """The same for people; safe to show."""
    mail_id: str = ""
    task_id: str = ""
    """The task that delivers it from the spool; "" when it was sent, or could not be queued."""
    permanent: bool = False
    """Whether no attempt can succeed: its task will be given up on at once."""
    payload: str = ""
    """Its `meta.sh` in the spool; "" when it was sent."""
    doubt: float = 0.0
    """When the attempt began of which nobody knows whether it was accepted, epoch seconds UTC; 0.0
    where there is none."""
    unqueued: str = ""
    """Why no task delivers it from the spool, so that somebody has to; safe to show."""


class SendRequest(NamedTuple):
    """What is settled about a mail by whoever queued it."""

    id: str
    """Its mail id, of which its Message-ID is made."""
    made: float
    """The time that it says it is of, epoch seconds UTC."""
    task_id: str
    attempt: int
    """Which one this is, from 1 on."""
    headers: Mapping[str, str] = {}
    """Further ones, by their names."""
    doubt: bool = False
    """Whether an earlier attempt has no known end: the mail may have been sent."""


class Sender:
    """Everything that sending a mail takes, put together."""

    def __init__(
        self,
        settings: MailSettings,
        host: Host,
        spool: MailSpool,
        ledger: Ledger,
        ways: TransportRegistry,
        suspensions: Callable[[], Mapping[str, Suspension]],
        limits: AttemptTokens | None,
        clock: Callable[[], float],
        pause: Callable[[float], object],
        *,
        complain: Callable[[str], None],
        unmeant: str = "",
    ) -> None:
        """`suspensions` tells which transports an operator has suspended; raises OSError or
        ValueError where that is not known. `pause` waits so many seconds, or until whoever asked
        for the mail has it cancelled. `complain` is told what stops no mail. `unmeant` is what of
        the settings cannot be meant: with it nothing is sent, and all is kept.
        """
        self._settings, self._host = settings, host
        self._spool, self._ledger, self._ways = spool, ledger, ways
        self._suspensions, self._limits = suspensions, limits
        self._clock, self._pause, self._complain = clock, pause, complain
        self._unmeant, self._shut = unmeant, unmeant or _wrong_sender(settings)
        self._turns: dict[str, float] = {}
        """By bucket: when the last of the mails that found it empty comes back."""

    # ---- as it is asked for

    def send(
        self,
        content: str,
        recipient: str = "",
        subject: str = "",
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> SentMail | None:
        """One attempt (contract, `nftban_mail_send`); None when there is nobody to send it to.

        Raises:
            BadMail: nobody may send this.
            NotSent: it was not accepted, or nothing may be sent now.
        """
        now = self._clock()
        with self._refusing(recipient):
            to = self._whom(recipient)
            if not to:
                return None
            said = given(content, self._settings)
            transport, why = self._chosen()
            if transport is None:
                raise NotSent(Reason.UNAVAILABLE, NO_TRANSPORT, why)
            ident = self._spool.fresh_id(now)
            mail = self._composed(said, to, subject, now, ident, transport)
        try:
            self._spend(transport.name, to)
        except Waits as wait:
            raise NotSent(Reason.UNAVAILABLE, wait.word, str(wait)) from wait
        self._attempt(INLINE, 1, transport, mail, cancelled)
        return SentMail(transport.name, mail.id, to)

    def send_with_retry(
        self,
        content: str,
        recipient: str = "",
        subject: str = "",
        *,
        enqueue: Callable[[str, str], str],
        cancelled: Callable[[], bool] = lambda: False,
        tell: Callable[[str], object] = lambda text: None,
    ) -> SendResult | None:
        """Some attempts with waits between them, then the spool and a task (contract,
        `nftban_mail_send_with_retry`); None when there is nobody to send it to.

        `enqueue` takes the task's description and its payload, and answers with its id. `tell` is
        told of each attempt that failed and is followed by another one.

        Raises:
            BadMail: nobody may send this, and it is not spooled.
            OSError: it was not sent, and could not be spooled: nothing of it is left.
        """
        now = self._clock()
        subject, ident = subject or DEFAULT_SUBJECT, self._spool.fresh_id(now)
        with self._refusing(recipient):
            to = self._whom(recipient)
            if not to:
                self._require_known()
                return None
            said = given(content, self._settings)
            transport, why = self._chosen()
            if transport is not None:
                mail = self._composed(said, to, subject, now, ident, transport)
        if transport is None:
            # What nobody has set up yet is told by the contract's own line.
            self._ledger.no_transport("" if why.startswith(NOT_SET_UP) else why)
            ended = SendResult(False, "", 0, "no_transport_available", why, ident)
        else:
            ended = self._tries(transport, mail, cancelled, tell)
        if not ended.sent:
            ended = self._keep(ended, to, subject, said, enqueue)
        self.publish()
        return ended

    @contextmanager
    def _refusing(self, recipient: str) -> Iterator[None]:
        """What nobody may send is written down: who asked for it may not be listening."""
        try:
            yield
        except BadMail as bad:
            to = recipient or self._settings.recipient
            self._ledger.unsendable(INLINE, 0, BAD_MAIL, to, str(bad))
            self.publish()
            raise

    def _require_known(self) -> None:
        """Make sure that nobody wants mail, which is no failure.

        Raises:
            BadMail: somebody may, and nobody can tell who.
        """
        if self._unmeant:
            raise BadMail(self._unmeant)

    def _tries(
        self,
        transport: Transport,
        mail: Mail,
        cancelled: Callable[[], bool],
        tell: Callable[[str], object],
    ) -> SendResult:
        """As many attempts as are allowed and make sense, with waits only between them."""
        name, to, most = transport.name, mail.recipient, self._settings.attempts
        failure: NotSent | None = None
        made, doubt, ends = 0, 0.0, ""
        while made < most:
            try:
                self._spend(name, to)
            except Waits as wait:
                if failure is None:
                    return SendResult(False, name, made, wait.word, str(wait), mail.id)
                ends = f"; then {wait}"
                break
            made += 1
            if doubt:
                self._ledger.in_doubt(INLINE, name, doubt)
            since = self._clock()
            self._ledger.attempt(INLINE, made, name, to)
            try:
                transport.send(mail, cancelled)
            except NotSent as refusal:
                failure = refusal
                # Once in doubt it stays so, whatever is answered to an attempt that follows.
                doubt = since if failure.doubtful else doubt
            else:
                after = "" if failure is None else f"{failure.word}: {failure}"
                self._ledger.accepted(INLINE, made, name, to, after)
                return SendResult(True, name, made, mail_id=mail.id)
            self._ledger.attempt_failed(made, most, failure.word)
            if failure.permanent or made == most or cancelled():
                break
            pause = self._pause_after(made)
            tell(f"attempt {made} of {most} by {name} failed: {failure.word}; again in {pause:g} s")
            self._ledger.retrying(pause)
            self._pause(pause)
            if cancelled():
                break
        assert failure is not None
        word, text = failure.word, f"{failure}{ends}"
        self._ledger.gave_up(INLINE, name, made, word, to, text)
        permanent = failure.permanent
        return SendResult(False, name, made, word, text, mail.id, permanent=permanent, doubt=doubt)

    def _pause_after(self, made: int) -> float:
        """Seconds to wait after so many attempts."""
        waits = self._settings.backoff or (0.0,)
        return waits[min(made, len(waits)) - 1]

    def _keep(
        self,
        ended: SendResult,
        to: str,
        subject: str,
        said: Content,
        enqueue: Callable[[str, str], str],
    ) -> SendResult:
        """Spool what was not sent, and have it queued once it is there as a whole."""
        # That no attempt can succeed, or that one may have, stands there from the first moment:
        # with the task a worker may come at once, and without one an operator.
        refused = f"{ended.word}: {ended.text}" if ended.permanent else ""
        trying = SpoolMark(ended.transport, ended.doubt) if ended.doubt else None
        try:
            payload = self._spool.keep(ended.mail_id, to, subject, said, refused, trying)
        except OSError as error:
            error.add_note(f"{ended.word}: {ended.text}")  # it is lost: both reasons are wanted
            raise
        try:
            task_id = enqueue(f"Spooled mail to {private(to)}", payload)
        except Exception as error:
            # The mail is safe, whatever is wrong with the queue; to fail now would deny that.
            why = shown(str(error) or type(error).__name__)
            self._ledger.unqueued(payload.rpartition("/")[0])
            with self._told("whoever queues it has to wait a moment"):
                self._spool.unqueued(ended.mail_id)
            return ended._replace(payload=payload, unqueued=why)
        with self._told("a worker will look for its task once more"):
            self._spool.queued(ended.mail_id)
        reason = f"after_{ended.attempts}_retries" if ended.attempts else ended.word
        self._ledger.spooled(task_id, to, reason, ended.transport)
        return ended._replace(payload=payload, task_id=task_id)

    # ---- out of a queue of somebody else's

    def send_once(
        self,
        said: Content,
        to: str,
        subject: str,
        errand: SendRequest,
        *,
        ready: Callable[[str], None],
        cancelled: Callable[[], bool],
        accepted: Callable[[str], None] = lambda transport: None,
    ) -> SentMail:
        """One attempt at a mail that whoever queued it keeps, and tries again: nothing is spooled.

        Whatever attempts are made of one errand, each hands over the same mail. `ready` is told
        the transport right before that is asked, and may still raise; `accepted` right after that
        has accepted the mail, before anything else is written down.

        Raises:
            BadMail: nobody may send this.
            Waits: nothing was attempted, and nothing is wrong with the mail.
            NotSent: the attempt failed.
        """
        to = address.checked(to, self._settings.strict)
        transport, why = self._chosen()
        if transport is None:
            raise Waits(self._clock() + ASK_AGAIN, why, NO_TRANSPORT)
        mail = compose(
            said,
            to,
            subject,
            self._settings._replace(html=said.html),
            self._host,
            errand.made,
            errand.id,
            transport.name,
            errand.headers,
            fills=False,  # another program's mail: braces in it are its own
        )
        self._spend_or_wait(transport.name, to)
        ready(transport.name)
        if errand.doubt:
            self._ledger.in_doubt(errand.task_id)
        name, task_id, attempt = transport.name, errand.task_id, errand.attempt
        self._attempt(task_id, attempt, transport, mail, cancelled, lambda: accepted(name))
        return SentMail(transport.name, mail.id, to)

    # ---- out of the spool

    def deliver(
        self, payload: str, task_id: str, attempt: int, cancelled: Callable[[], bool]
    ) -> None:
        """One attempt at a spooled mail; none where it is known to have been sent.

        Returns when a transport has accepted it, whether that could be written down or not.

        Raises:
            BadMail: nobody may send this.
            Waits: nothing was attempted, and nothing is wrong with the mail.
            NotSent: the attempt failed.
            MailError: nothing was attempted, because the spool cannot be read or written.
        """
        to = ""
        try:
            with _readable():
                spooled = self._spool.read(payload)
            to = spooled.to
            self._deliver(spooled, task_id, attempt, cancelled)
        except BadMail as bad:
            self._ledger.unsendable(task_id, attempt - 1, BAD_MAIL, to, str(bad))
            raise

    def _deliver(
        self, spooled: Spooled, task_id: str, attempt: int, cancelled: Callable[[], bool]
    ) -> None:
        if spooled.sent is not None:
            self._ledger.already_sent(task_id, spooled.sent.transport, spooled.sent.at)
            return
        self._refuse_once(spooled, task_id, attempt)
        transport, why = self._chosen()
        if transport is None:
            raise Waits(self._clock() + ASK_AGAIN, why)
        name = transport.name
        with _readable():
            body = self._spool.body(spooled, self._settings.spooled_size)
            said = of_body(body, spooled.html)
            to = address.checked(spooled.to, self._settings.strict)
            # Of its own time, not of now: what may arrive twice is the same to the byte.
            mail = self._composed(said, to, spooled.subject, spooled.made, spooled.id, transport)
            self._spend_or_wait(name, to)
            if spooled.trying is not None:
                self._ledger.in_doubt(task_id, spooled.trying.transport, spooled.trying.at)
            self._spool.begin(spooled, name, self._clock())

        def mark() -> None:
            # Not written down, it was sent all the same.
            with self._told(f"{mail.id} was sent, which is not written down in the spool"):
                self._spool.accepted(spooled, name, self._clock())

        try:
            self._attempt(task_id, attempt, transport, mail, cancelled, mark)
        except NotSent as failure:
            if not failure.doubtful:
                with self._told(f"{spooled.id} will be said to be in doubt, but was not sent"):
                    self._spool.failed(spooled)
            raise

    def _refuse_once(self, spooled: Spooled, task_id: str, attempt: int) -> None:
        """Fail what was refused for good before it was spooled, without asking once more.

        The mark is used up by that: whoever retries the mail after all has it attempted.

        Raises:
            NotSent: it was.
        """
        if not spooled.refused:
            return
        with _readable():
            self._spool.refused_once(spooled)
        word, _, text = spooled.refused.partition(": ")
        if not _is_word(word):
            word, text = "rejected_for_good", spooled.refused
        self._ledger.unsendable(task_id, attempt - 1, word, spooled.to, text)
        raise NotSent(Reason.REJECTED, word, text, permanent=True)

    def _spend_or_wait(self, name: str, to: str) -> None:
        """As `_spend`; whoever lacks a token comes back a token later than who came before."""
        try:
            self._spend(name, to)
        except _NoToken as lack:
            raise Waits(self._turn(lack), str(lack)) from lack

    def _turn(self, lack: "_NoToken") -> float:
        # Else a thousand mails to one domain would be taken up at each token, for one of them.
        now, per_hour = self._clock(), max(1, lack.rate.per_hour)
        after = self._turns.get(lack.bucket, 0.0) + HOUR / per_hour
        self._turns[lack.bucket] = max(lack.until, min(after, now + FARTHEST))
        return self._turns[lack.bucket]

    # ---- whether anything may be sent

    def shut(self) -> tuple[str, float | None]:
        """Why no mail can be sent now, whoever it is for, "" when one can; and when the token that
        lacks is there, epoch seconds UTC, None where no time will mend it.
        """
        transport, why = self._chosen()
        if transport is None:
            return why, None
        bucket = f"transport:{transport.name}"
        try:
            if self._limits is None or self._limits.ready(bucket):
                return "", None
            return f"no token for transport {transport.name}", self._limits.token_at(bucket)
        except OSError as error:
            return f"the tokens of transports cannot be read: {error.strerror}", None

    def _suspended(self) -> Mapping[str, Suspension]:
        """What an operator has suspended.

        Raises:
            Waits: nobody knows. To send by what is suspended would be worse than to wait.
        """
        try:
            return self._suspensions()
        except (OSError, ValueError) as error:
            why = f"which transports are suspended cannot be read: {shown(str(error))}"
            raise Waits(self._clock() + ASK_AGAIN, why, NO_TRANSPORT) from error

    def _chosen(self) -> tuple[Transport | None, str]:
        """The transport to use now, and why there is none."""
        if self._shut:
            return None, self._shut
        try:
            suspended = self._suspended()
        except Waits as unknown:
            return None, str(unknown)
        transport, why_not = self._ways.choose(suspended)
        if transport is not None:
            return transport, ""
        forced = self._settings.method
        if forced == NOWHERE:
            return None, f"{NOT_SET_UP}: the method is none"
        held = [name for name, why in why_not.items() if why.cause is Cause.SUSPENDED]
        if held:
            return None, _held_by(suspended[name] for name in held)
        if forced in why_not:
            return None, f"no mail transport: {forced}: {why_not[forced].words}"
        return None, NOT_SET_UP

    def _spend(self, name: str, to: str) -> None:
        """Take a token of the transport and one of the recipient's domain, for an attempt that is
        made right now.

        Raises:
            Waits: one lacks, or they cannot be counted, or an operator has suspended the transport
                since it was chosen.
        """
        if held := self._suspended().get(name):
            raise Waits(self._clock() + ASK_AGAIN, _held_by([held]), NO_TRANSPORT)
        if self._limits is None:
            return
        domain = address.domain_of(to)
        wanted = {f"domain:{domain}": self._settings.domains.get(domain)}
        wanted[f"transport:{name}"] = self._settings.rates.get(name)
        rates = {bucket: rate for bucket, rate in wanted.items() if rate is not None}
        try:
            lacks = next((name for name in rates if not self._limits.ready(name)), "")
            lacks = lacks or next((name for name in rates if not self._limits.spend(name)), "")
            if lacks:
                raise _NoToken(lacks, rates[lacks], self._limits.token_at(lacks))
        except OSError as error:
            # Who cannot count must not send: what is limited is limited for a reason.
            why = f"tokens cannot be counted: {error.strerror or error}"
            raise Waits(self._clock() + ASK_AGAIN, why) from error

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
        """Hand it over once, and write down what came of it; nothing comes before `accepted`.

        Each run of a queued mail is a send of its own (contract, "Task Types": it calls
        `nftban_mail_send`), so each counts as one success or one failure, as its line in the log
        says. The real program counts a mail once after all its attempts, which here is true of
        `send_with_retry`; of queued mail it counts nothing at all, and nobody sees it fail.
        """
        name, to = transport.name, mail.recipient
        self._ledger.attempt(task_id, n, name, to)
        try:
            transport.send(mail, cancelled)
        except NotSent as failure:
            self._ledger.gave_up(task_id, name, n, failure.word, to, str(failure))
            self.publish()
            raise
        accepted()
        self._ledger.accepted(task_id, n, name, to)
        self.publish()

    def _whom(self, recipient: str) -> str:
        to = recipient or self._settings.recipient
        return address.checked(to, self._settings.strict) if to else ""

    def _composed(
        self, said: Content, to: str, subject: str, made: float, ident: str, transport: Transport
    ) -> Mail:
        return compose(said, to, subject, self._settings, self._host, made, ident, transport.name)

    def publish(self) -> None:
        """Write the metrics of mail as they are now."""
        transport, _ = self._chosen()
        with self._told("the metrics of mail are not written"):
            depth, oldest = self._spool.depth_and_oldest(self._clock())
            self._ledger.publish(transport.name if transport else "", depth, oldest)

    @contextmanager
    def _told(self, consequence: str) -> Iterator[None]:
        """What goes wrong in the block stops no mail; whoever looks after us is told."""
        try:
            yield
        except (OSError, MailError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            self._complain(f"{why or shown(str(error))}; {consequence}")


def _wrong_sender(settings: MailSettings) -> str:
    """Why nothing may be sent as from whom the settings name; "" where it may."""
    try:
        if settings.sender:
            address.checked(settings.sender, strict=False)
    except BadMail as bad:
        return f"no mail is sent: its sender {bad}"
    return ""


def _held_by(held: Iterable[Suspension]) -> str:
    names = (f"{each.name} suspended by {shown(each.who) or 'an operator'}" for each in held)
    return f"no mail transport: {', '.join(names)}"


def _is_word(text: str) -> bool:
    """Whether this may stand as a word in the log; what a mark says is foreign."""
    return re.fullmatch(r"[a-z0-9_.]{1,40}", text) is not None


class _NoToken(Waits):
    """A bucket is empty."""

    def __init__(self, bucket: str, rate: Rate, until: float) -> None:
        super().__init__(until, f"no token for {bucket.replace(':', ' ')}")
        self.bucket, self.rate = bucket, rate


@contextmanager
def _readable() -> Iterator[None]:
    """What the system refuses in the block is about this attempt, and not about the mail."""
    try:
        yield
    except OSError as error:
        where = f"{shown(str(error.filename))}: " if error.filename else ""
        raise MailError(f"nothing was sent: {where}{error.strerror or error}") from error
