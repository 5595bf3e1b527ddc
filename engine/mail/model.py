"""The nouns of mail: what is sent, what sends it, and why it was not sent."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol


class Reason(StrEnum):
    """Why an attempt failed."""

    CONNECT = "connect"
    """Nobody answers there, or the line broke."""
    DNS = "dns"
    """No such host, or nobody who knows."""
    TIMEOUT = "timeout"
    TLS = "tls"
    """No encryption, or a certificate that is not believed."""
    AUTH = "auth"
    """The server does not take who we are, or our password."""
    REJECTED = "rejected"
    """The server will not take this mail, ever (5xx), or nobody could."""
    UNAVAILABLE = "unavailable"
    """Not now (4xx), or the transport itself does not work."""


class MailError(Exception):
    """A mail that was not sent; the message says what, where, and what was expected."""


class BadMail(MailError):
    """Content or an address that nobody may send: no attempt is made, and none would help."""


class NotSent(MailError):
    """An attempt failed.

    The message is the transport's own words, cut, safe to show and without whole addresses.
    """

    def __init__(self, reason: Reason, word: str, text: str, *, permanent: bool = False) -> None:
        """`word` is one word for logs: the reason first, such as `connect_timeout`,
        `rejected_550`; of a-z, 0-9, `_` and `.`, and at most 40 characters.
        """
        super().__init__(text)
        self.reason, self.word = reason, word
        self.permanent = permanent
        """Whether another attempt with the same mail cannot succeed either."""

    @property
    def doubtful(self) -> bool:
        """Whether the transport may have accepted it all the same, and only could not say so.

        So it is unless the word says for certain that it was not accepted: nobody was reached, a
        server answered no, or the program never had the mail.
        """
        answer = self.word.removeprefix("unavailable_")
        refused = answer.isdecimal() or self.word.startswith(_NEVER_BEGINNINGS)
        return not refused and self.word not in _NEVER


_NEVER_BEGINNINGS = ("dns_", "tls_", "auth_", "rejected_")

_NEVER = frozenset(
    {
        *(f"connect_{why}" for why in ("refused", "unreachable", "timeout", "failed", "interface")),
        *(f"unavailable_no_{what}" for what in ("transport", "token", "input", "space")),
        *(f"unavailable_not_{what}" for what in ("started", "read")),
        # Ended before the mail had left us, as whoever had it in hand says.
        *("timeout_before_data", "connect_lost_before_data"),
        # Of sysexits.h: not for_now, with which sendmail(8) says that it has queued the mail, and
        # none that says that something broke on the way.
        *("unavailable_usage", "unavailable_service", "unavailable_file"),
        *("unavailable_cannot_write", "unavailable_permission", "unavailable_configuration"),
    }
)
"""Words for a mail that nobody has accepted, besides those that begin so."""


def may_have_sent(error: str) -> bool:
    """True if the attempt with this stored error, `WORD: TEXT`, may have sent the mail."""
    word = error.partition(":")[0]
    reasons = [reason for reason in Reason if word.partition("_")[0] == reason.value]
    return any(NotSent(reason, word, "").doubtful for reason in reasons)


class Waits(MailError):
    """Nothing was attempted: no transport may be used now, or no token is there for it."""

    def __init__(self, until: float, text: str, word: str = "unavailable_no_token") -> None:
        """`until` is when it makes sense to ask again, epoch seconds UTC; `word` is for logs."""
        super().__init__(text)
        self.until, self.word = until, word


class Mail(NamedTuple):
    """A mail as it goes out: nothing is left to be decided but by which way."""

    id: str
    """Its mail id; its Message-ID is made of it, the same for each attempt."""
    sender: str
    """The bare address it is from, as the envelope has it."""
    recipient: str
    """The one bare address it is for."""
    subject: str
    """ASCII, on one line, encoded where it was not (RFC 2047)."""
    data: bytes
    """Headers and body: 7-bit ASCII, LF line ends, one at its end; no line over 998 bytes."""
    text: str
    """What it says, as plain text: for a transport that takes no headers."""


class Cause(StrEnum):
    """What keeps a transport from being used."""

    ABSENT = "absent"
    """It is not installed or not configured, or nobody lets us know."""
    STOPPED = "stopped"
    """It is there, and would only have to be started."""
    BARRED = "barred"
    """The configuration names another one as the only one, or none."""
    SUSPENDED = "suspended"
    """An operator has said so."""


class Unused(NamedTuple):
    """That a transport is not used, and why."""

    cause: Cause
    words: str
    """The same for people; with a foreign path in it, perhaps: make it safe to show it."""


def absent(words: str) -> Unused | None:
    """That a transport is absent, for this reason; None where there is none."""
    return Unused(Cause.ABSENT, words) if words else None


class Transport(Protocol):
    """A way of sending mail that is installed here, or not."""

    name: str
    """One of `engine.config.mail_config.METHODS`, or `memory`."""

    def absence(self) -> Unused | None:
        """Why it cannot be used here; None when it is installed and configured.

        Looks at files and processes only: nothing is run, nothing is sent.
        """
        ...

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Hand a mail over; when it returns the transport has accepted it.

        `cancelled` is asked now and then: True ends the attempt.

        Raises:
            NotSent: it was not accepted, or nobody knows; another attempt may be made.
        """
        ...
