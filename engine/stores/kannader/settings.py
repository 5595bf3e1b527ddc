"""What an operator settles about a spool, as the configuration says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.config import validators
from engine.config.validators import Check, ConfigLocation
from engine.policy import DAY, RetryPolicy, exponential
from engine.stores.kannader.spool import INFLIGHT_DELAY

OURS, UPSTREAM = "default", "upstream"
PROFILES = (OURS, UPSTREAM)
"""A mail that fails is tried again for days, and then returned; or it is dropped without a word at
its first failure, as with the configuration that Kannader comes with (Kannader spool, section 4).
"""

TLS = ("required", "wrapped", "opportunistic", "none")

LONGEST_ATTEMPT = INFLIGHT_DELAY - 600
"""Seconds that an attempt may take at most: after `INFLIGHT_DELAY` others believe that nobody sends
the mail, and ten minutes are for clocks that differ, and for storing what came of it."""

_EVER = 1 << 30
"""Retries, where the age of a mail ends them."""


class KannaderSettings(NamedTuple):
    """Everything that the spool itself leaves open."""

    host: str = ""
    """The server that all mail is handed to; "" for none."""
    port: int = 25
    tls: str = ""
    """One of `TLS`; "" is none towards this host itself, and required towards any other."""
    user: str = ""
    password_file: str = ""
    """A file that holds the password alone, which nobody else may read."""
    ca_file: str = ""
    """Certificates that the server's is checked against; "" for those of the system."""
    helo: str = ""
    """What we call ourselves; "" is this host's name."""
    connect_timeout: float = 30.0
    """Seconds to reach the server."""
    timeout: float = 300.0
    """Seconds that each of its answers, and each piece of a mail, may take."""
    max_time: float = 1800.0
    """Seconds that one attempt may take in all."""
    profile: str = OURS
    """One of `PROFILES`."""
    first_wait: float = 900.0
    """Seconds from the first failure to the next attempt; each further wait is twice as long."""
    longest_wait: float = 14400.0
    """Seconds that no wait exceeds."""
    lifetime: float = 5 * DAY
    """Seconds since a mail was taken over after which a failure is its last."""
    bounce: bool = True
    """Whether a mail that is given up is returned to its sender."""
    concurrency: int = 4
    """Mails that are sent at once."""

    @property
    def bounces(self) -> bool:
        """Whether the sender is told of a mail that is given up."""
        return self.bounce and self.profile == OURS

    @property
    def unworkable(self) -> str:
        """Why no worker of ours could send anything from the spool; "" when one could."""
        if self.host:
            return ""
        return "no server to send to is configured: stores.kannader.host is not set"


def retry_policy(settings: KannaderSettings) -> RetryPolicy:
    """How failures are counted, and when they end."""
    if settings.profile == UPSTREAM:
        return RetryPolicy(lambda retries: None, last_counts=1, runs=1)
    backoff = exponential(settings.first_wait, settings.longest_wait, _EVER)
    return RetryPolicy(backoff, last_counts=1, runs=0, lifetime=settings.lifetime)


def said(value: object, at: ConfigLocation) -> KannaderSettings:
    """What the configuration says; a key that is not there has its default.

    Raises:
        ConfigError: it cannot be meant.
    """
    found = KannaderSettings(**validators.mapping(value, at, _SETTINGS))
    if found.max_time > LONGEST_ATTEMPT:
        expected = f"at most {LONGEST_ATTEMPT:g} s: after {INFLIGHT_DELAY:g} s others may send it"
        raise at.below("max_time").wrong(expected, found.max_time)
    if found.user and not found.password_file:
        raise at.below("password_file").wrong("a file with the password of the user", None)
    return found


# One value at a time.


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.text(value, at)
    if not text or not text.isprintable():
        raise at.wrong("text on one line, without control characters", value)
    return text


def _host(value: object, at: ConfigLocation) -> str:
    host = value if isinstance(value, str) else ""
    plain = host.replace(".", "").replace("-", "").replace(":", "").replace("_", "")
    if not host.isascii() or not plain.isalnum() or host.startswith("-"):
        raise at.wrong("the name or the address of a host", value)
    return host


def _port(value: object, at: ConfigLocation) -> int:
    port = validators.whole(1, "a port")(value, at)
    if port > 65535:
        raise at.wrong("a port from 1 to 65535", value)
    return port


_SETTINGS: Mapping[str, Check] = {
    "host": _host,
    "port": _port,
    "tls": validators.one_of(*TLS),
    "user": _one_line,
    "password_file": validators.path,
    "ca_file": validators.path,
    "helo": _host,
    "connect_timeout": validators.number(0.1, "seconds"),
    "timeout": validators.number(0.1, "seconds"),
    "max_time": validators.duration,
    "profile": validators.one_of(*PROFILES),
    "first_wait": validators.duration,
    "longest_wait": validators.duration,
    "lifetime": validators.duration,
    "bounce": validators.yes_or_no,
    "concurrency": validators.whole(1, "mails"),
}
