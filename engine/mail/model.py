"""The values of mail: mails, transports, and why a mail was not sent."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from engine.values import NamedTuple


class Reason(StrEnum):
    """Why an attempt failed."""

    CONNECT = "connect"
    """No answer from the host, or the connection broke."""
    DNS = "dns"
    """The host is unknown, or the DNS query failed."""
    TIMEOUT = "timeout"
    TLS = "tls"
    """No encryption, or an invalid certificate."""
    AUTH = "auth"
    """The server rejected our login."""
    REJECTED = "rejected"
    """The server refuses this mail permanently (5xx), or no server could accept it."""
    UNAVAILABLE = "unavailable"
    """A temporary refusal (4xx), or the transport itself does not work."""


class MailError(Exception):
    """A mail was not sent; the message says what, where, and what was expected."""


class BadMail(MailError):
    """Content or an address that can never be sent: no attempt is made."""


class NotSent(MailError):
    """An attempt failed. The message is the transport's own text, shortened, safe to show and
    without full addresses."""

    def __init__(self, reason: Reason, word: str, text: str, *, permanent: bool = False) -> None:
        """`word` is the reason for logs, starting with `reason`, such as `connect_timeout` or
        "rejected_550": a-z, 0-9, `_` and `.`, at most 40 characters."""
        super().__init__(text)
        self.reason, self.word = reason, word
        self.reply = ""
        """The answer of the server in one line, with its addresses, for the sender of the mail; ""
        if it gave none."""
        self.permanent = permanent
        """True if another attempt with the same mail must fail too."""

    @property
    def may_be_accepted(self) -> bool:
        """True if the transport may have accepted the mail without being able to report it. False
        only if the word proves that it was not accepted: the server was not reached or refused, or
        the program never got the mail."""
        answer = self.word.removeprefix("unavailable_")
        refused = answer.isdecimal() or self.word.startswith(_NEVER_ACCEPTED_PREFIXES)
        return not refused and self.word not in _NEVER_ACCEPTED_WORDS


_NEVER_ACCEPTED_PREFIXES = ("dns_", "tls_", "auth_", "rejected_")

_NEVER_ACCEPTED_WORDS = frozenset(
    {
        *(f"connect_{why}" for why in ("refused", "unreachable", "timeout", "failed", "interface")),
        *(f"unavailable_no_{what}" for what in ("transport", "token", "input", "space")),
        *(f"unavailable_not_{what}" for what in ("started", "read")),
        # Ended before the mail was sent, as the transport reports.
        "timeout_before_data",
        "connect_lost_before_data",
        # From sysexits.h. Not for_now, with which sendmail(8) reports that it has queued the mail,
        # and no status for an error during the work.
        "unavailable_usage",
        "unavailable_service",
        "unavailable_file",
        "unavailable_cannot_write",
        "unavailable_permission",
        "unavailable_configuration",
    }
)
"""Words that prove that a mail was not accepted, besides those with `_NEVER_ACCEPTED_PREFIXES`."""


def may_have_sent(error: str) -> bool:
    """True if the attempt with this stored error, `WORD: TEXT`, may have sent the mail."""
    word = error.partition(":")[0]
    reasons = [reason for reason in Reason if word.partition("_")[0] == reason.value]
    return any(NotSent(reason, word, "").may_be_accepted for reason in reasons)


class Waits(MailError):
    """Nothing was attempted: no transport can be used now, or a rate limit token is missing."""

    def __init__(self, until: float, text: str, word: str = "unavailable_no_token") -> None:
        """`until` is when to try again, epoch seconds UTC; `word` is the reason for logs."""
        super().__init__(text)
        self.retry_at, self.word = until, word


class Mail(NamedTuple):
    """A mail ready to send by any transport."""

    id: str
    """Its mail id; the Message-ID is made from it and is the same in each attempt."""
    sender: str
    """The bare sender address of the envelope."""
    recipient: str
    """The one bare recipient address of the envelope."""
    subject: str
    """ASCII on one line, encoded if necessary (RFC 2047)."""
    data: bytes
    """Headers and body: 7-bit ASCII, LF line ends, also at the end; no line over 998 bytes."""
    text: str
    """The body as plain text, for a transport that makes its own headers."""


class Cause(StrEnum):
    """Why a transport is not used."""

    ABSENT = "absent"
    """Not installed, not configured, or not visible to us."""
    STOPPED = "stopped"
    """Installed, but its daemon is not running."""
    DISABLED = "disabled"
    """Disabled by the configuration: it names another method, or none."""
    SUSPENDED = "suspended"
    """Suspended by an operator."""


class Unused(NamedTuple):
    """Why a transport is not used, as a value and as text."""

    cause: Cause
    reason: str
    """The text for operators; may contain a path from outside, so make it safe before showing
    it."""


def absent_because(words: str) -> Unused | None:
    """Return `ABSENT` with this text; None if the text is empty."""
    return Unused(Cause.ABSENT, words) if words else None


class Transport(Protocol):
    """One way to send mail, whether it is installed here or not."""

    name: str
    """One of `engine.config.mail_config.METHODS`, or `memory`."""

    def absence(self) -> Unused | None:
        """Return why it cannot be used here; None if it is installed and configured. Reads only
        files and processes; runs and sends nothing."""
        ...

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Send a mail; the transport has accepted it when this returns.

        `cancelled` is called repeatedly; True ends the attempt.

        Raises:
            NotSent: it was not accepted, or that is unknown; another attempt may be made.
        """
        ...
