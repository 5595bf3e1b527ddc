"""Which transport sends the next mail, whether one may be sent now, and the tokens for it.

Most commands, and workers without mail, ask only that: they load nothing that sends."""

from collections.abc import Callable, Mapping

from engine.config.mail_config import NOWHERE, MailSettings
from engine.locks.token_buckets import TokenBuckets
from engine.mail import address
from engine.mail.host import default_sender
from engine.mail.model import BadMail, Cause, Transport, Unused, Waits
from engine.mail.send.suspensions import Suspension, describe_suspender
from engine.mail.transports.registry import TransportRegistry
from engine.policy import UNITS_PER_TOKEN, Rate
from engine.text.error_text import error_text
from engine.text.safe import safe_line

TRANSPORT_RETRY_SECONDS = 60.0
"""Seconds until the next check after no transport could be used."""

MAX_TOKEN_WAIT_SECONDS = 86400.0
"""Longest delay in seconds of a mail that waits for a token: rate and backlog may change until
then."""

NO_TRANSPORT = "unavailable_no_transport"
"""The reason in one word, like those of `NotSent`, of a mail for which no transport was asked."""

NOT_SET_UP = "no mail transport is set up"
"""The reason if no transport is configured; the beginning of the reason if there are details."""


class TransportChooser:
    """Chooses the transport of each mail, and takes the tokens for it."""

    def __init__(
        self,
        settings: MailSettings,
        transports: TransportRegistry,
        suspensions: Callable[[], Mapping[str, Suspension]],
        limits: TokenBuckets | None,
        clock: Callable[[], float],
        *,
        host_name: str,
        settings_fault: str = "",
    ) -> None:
        """`suspensions` returns the suspended transports; it raises OSError or ValueError if it
        cannot know. `limits` is None for no rate limits; `host_name` is for a sender address that
        is not configured; a `settings_fault` says why the settings are invalid: no mail is sent.
        """
        self.settings, self.settings_fault = settings, settings_fault
        self._transports, self._suspensions, self._limits = transports, suspensions, limits
        self._clock = clock
        self._fault = settings_fault or _describe_sender_fault(settings, host_name)
        self._turns: dict[str, float] = {}
        """By empty bucket: the time at which the last mail that waits for it returns."""

    def blocking_reason(self) -> tuple[str, float | None]:
        """Return why no mail can be sent now, "" if one can, and when a token is available. The
        time is in epoch seconds UTC; None if waiting does not help."""
        transport, why = self.choose()
        if transport is None:
            return why, None
        bucket = f"transport:{transport.name}"
        try:
            if self._limits is None or self._limits.ready(bucket):
                return "", None
            return f"no token for transport {transport.name}", self._limits.token_at(bucket)
        except OSError as error:
            return f"rate limit tokens cannot be read: {error_text(error)}", None

    def wait(self, why: str, *word: str) -> Waits:
        """The exception of a mail that waits for a transport, with the time of the next check."""
        return Waits(self._clock() + TRANSPORT_RETRY_SECONDS, why, *word)

    def _read_suspensions(self) -> Mapping[str, Suspension]:
        """Return the transports that an operator has suspended. Raises Waits: the file cannot be
        read; waiting is better than using a suspended transport."""
        try:
            return self._suspensions()
        except (OSError, ValueError) as error:
            why = f"suspended transports cannot be read: {safe_line(str(error))}"
            raise self.wait(why, NO_TRANSPORT) from error

    def choose(self) -> tuple[Transport | None, str]:
        """Return the transport for the next mail, or None and the reason."""
        if self._fault:
            return None, self._fault
        try:
            suspended = self._read_suspensions()
        except Waits as unknown:
            return None, str(unknown)
        transport, why_not = self._transports.choose(suspended)
        if transport is not None:
            return transport, ""
        return None, describe_no_transport(self.settings, why_not, suspended)

    def spend_or_wait(self, name: str, to: str) -> None:
        """As `spend`; mails that wait for one bucket return a token interval apart."""
        try:
            self.spend(name, to)
        except _NoToken as lack:
            raise Waits(self._next_turn(lack), str(lack)) from lack

    def _next_turn(self, lack: "_NoToken") -> float:
        # Otherwise a thousand mails to one domain would all run at each token, and one would be
        # sent.
        now, per_hour = self._clock(), max(1, lack.rate.per_hour)
        after = self._turns.get(lack.bucket, 0.0) + UNITS_PER_TOKEN / per_hour
        self._turns[lack.bucket] = max(lack.retry_at, min(after, now + MAX_TOKEN_WAIT_SECONDS))
        return self._turns[lack.bucket]

    def spend(self, name: str, to: str) -> None:
        """Take one token of the transport and one of the recipient's domain, for an attempt right
        now. Raises Waits: a token is missing, the tokens cannot be counted, or an operator has
        suspended the transport since it was chosen."""
        if suspension := self._read_suspensions().get(name):
            why = f"no mail transport: {name} {describe_suspender(suspension)}"
            raise self.wait(why, NO_TRANSPORT)
        if self._limits is None:
            return
        domain = address.domain_of(to)
        bucket_rates = {f"domain:{domain}": self.settings.domains.get(domain)}
        bucket_rates[f"transport:{name}"] = self.settings.rates.get(name)
        rates = {bucket: rate for bucket, rate in bucket_rates.items() if rate is not None}
        try:
            lacks = next((name for name in rates if not self._limits.ready(name)), "")
            lacks = lacks or next((name for name in rates if not self._limits.spend(name)), "")
            if lacks:
                raise _NoToken(lacks, rates[lacks], self._limits.token_at(lacks))
        except OSError as error:
            # Without a count do not send, else the limits would not hold.
            why = f"rate limit tokens cannot be counted: {error_text(error)}"
            raise self.wait(why) from error


def _describe_sender_fault(settings: MailSettings, host_name: str) -> str:
    """Return why the sender address, configured or made of the host name, is invalid; "" if it is
    valid."""
    try:
        address.require_address(
            settings.sender or default_sender(settings.product, host_name), strict=False
        )
    except BadMail as bad:
        return f"no mail is sent: sender {bad}"
    return ""


def describe_no_transport(
    settings: MailSettings, why_not: Mapping[str, Unused], suspended: Mapping[str, Suspension]
) -> str:
    """Say in a few words why no mail can be sent, from the reason of each transport."""
    if settings.method == NOWHERE:
        return f"{NOT_SET_UP}: the method is none"
    whys = why_not.items()
    names = [n for n, why in whys if why.cause is Cause.SUSPENDED and n in suspended]
    if names:
        whos = ", ".join(f"{name} {describe_suspender(suspended[name])}" for name in names)
        return f"no mail transport: {whos}"
    if why := why_not.get(settings.method):
        return f"no mail transport: {settings.method}: {safe_line(why.reason)}"
    stopped = [f"{n}: {safe_line(why.reason)}" for n, why in whys if why.cause is Cause.STOPPED]
    return f"no mail transport: {'; '.join(stopped)}" if stopped else NOT_SET_UP


class _NoToken(Waits):
    def __init__(self, bucket: str, rate: Rate, until: float) -> None:
        super().__init__(until, f"no token for {bucket.replace(':', ' ')}")
        self.bucket, self.rate = bucket, rate
