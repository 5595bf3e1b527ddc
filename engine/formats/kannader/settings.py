"""Settings of a Kannader spool: the section `stores.kannader` of the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.config import validators
from engine.config.validators import Check, ConfigLocation
from engine.policy import DAY_SECONDS, RetryPolicy, retries_of
from engine.schedules import NO_RETRY, exponential
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.mail.send.smtp_client import SmtpDestination

DEFAULT_PROFILE, UPSTREAM_PROFILE = "default", "upstream"
PROFILES = (DEFAULT_PROFILE, UPSTREAM_PROFILE)
"""With "default" a failed mail is retried for days, then returned to its sender. With "upstream" it
is dropped at its first failure, without a bounce, as in the configuration that comes with Kannader
(Kannader spool, section 4)."""

TLS = ("required", "wrapped", "opportunistic", "none")

INFLIGHT_CHECK_SECONDS = 3600.0
"""Seconds after which Kannader treats a mail in flight as abandoned ("found_inflight_check_delay";
Kannader spool, section 4)."""

MAX_ATTEMPT_SECONDS = INFLIGHT_CHECK_SECONDS - 600
"""Longest time limit for one attempt, in seconds. After `INFLIGHT_CHECK_SECONDS` other programs
treat the mail as abandoned; ten minutes less allow for clock differences and for storing the
result."""


class KannaderSettings(NamedTuple):
    """Settings of one spool; each field is a key of the configuration."""

    host: str = ""
    """The server that receives all mail; "" if not set."""
    port: int = 25
    """The port of the server."""
    tls: str = ""
    """How the connection is encrypted: by STARTTLS, which is `required`, or used if the server has
    it (`opportunistic`), from the first byte (`wrapped`), or not (`none`); "": none for this host
    itself, and required for any other."""
    user: str = ""
    """Name for the login at the server; "" for no login."""
    password_file: str = ""
    """A file that contains only the password; it must not be readable by others."""
    ca_file: str = ""
    """CA certificates to check the server's against; "" for those of the system."""
    helo: str = ""
    """Name for EHLO; "" is this host's name."""
    connect_timeout: float = 30.0
    """Seconds to connect to the server."""
    timeout: float = 300.0
    """Seconds for each server answer, and for sending each block of a mail."""
    max_time: float = 1800.0
    """Seconds for one attempt in all."""
    profile: str = DEFAULT_PROFILE
    """What happens to a mail that fails; upstream: it is dropped."""
    first_wait: float = 900.0
    """Seconds from the first failure to the next attempt; each further wait is twice as long."""
    longest_wait: float = 14400.0
    """Longest wait in seconds."""
    lifetime: float = 5 * DAY_SECONDS
    """Seconds after its arrival from which a failed mail is given up."""
    bounce: bool = True
    """True: a mail that is given up is returned to its sender."""
    concurrency: int = 4
    """Mails that are sent at the same time."""

    @property
    def bounces(self) -> bool:
        """True if a bounce is sent for a mail that is given up."""
        return self.bounce and self.profile == DEFAULT_PROFILE

    @property
    def work_refusal(self) -> str:
        """Return why no worker could send mail from this spool; "" if one could."""
        if self.host:
            return ""
        return "no server to send to is configured: stores.kannader.host is not set"


def retry_policy(settings: KannaderSettings) -> RetryPolicy:
    """Build the retry policy of the profile."""
    if settings.profile == UPSTREAM_PROFILE:
        return retries_of(NO_RETRY)
    waits = exponential(settings.first_wait, settings.longest_wait)
    return retries_of(waits)._replace(lifetime=settings.lifetime)


def parse_settings(value: object, at: ConfigLocation) -> KannaderSettings:
    """Parse the section of the configuration; a missing key has its default.

    Raises:
        ConfigError: a value is invalid.
    """
    settings = KannaderSettings(**validators.check_mapping(value, at, _SETTINGS))
    if settings.max_time > MAX_ATTEMPT_SECONDS:
        why = f"after {INFLIGHT_CHECK_SECONDS:g} s others may send it"
        expected = f"at most {MAX_ATTEMPT_SECONDS:g} s: {why}"
        raise at.at_key("max_time").wrong_value(expected, settings.max_time)
    if settings.user and not settings.password_file:
        raise at.at_key("password_file").wrong_value("a file with the password of the user", None)
    return settings


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.check_text(value, at)
    if not text or not text.isprintable():
        raise at.wrong_value("text on one line, without control characters", value)
    return text


def _host(value: object, at: ConfigLocation) -> str:
    host = value if isinstance(value, str) else ""
    plain = host.replace(".", "").replace("-", "").replace(":", "").replace("_", "")
    if not host.isascii() or not plain.isalnum() or host.startswith("-"):
        raise at.wrong_value("the name or the address of a host", value)
    return host


_CHECKS: Mapping[str, Check] = {
    "host": _host,
    "port": validators.check_port,
    "tls": validators.choice_check(*TLS),
    "user": _one_line,
    "password_file": validators.check_path,
    "ca_file": validators.check_path,
    "helo": _host,
    "connect_timeout": validators.duration_check(0.1),
    "timeout": validators.duration_check(0.1),
    "max_time": validators.duration_check(1),
    "profile": validators.choice_check(*PROFILES),
    "first_wait": validators.duration_check(1),
    "longest_wait": validators.duration_check(1),
    "lifetime": validators.duration_check(1),
    "bounce": validators.check_bool,
    "concurrency": validators.whole_number_check(1, "mails"),
}
_SETTINGS = validators.with_defaults(KannaderSettings, _CHECKS)


def destination(settings: KannaderSettings) -> SmtpDestination:
    """The SMTP server of the settings."""
    from engine.mail.host import full_name  # these only for a command that sends
    from engine.mail.send.smtp_client import SmtpDestination

    values = settings._replace(helo=settings.helo or full_name(os.uname().nodename))._asdict()
    return SmtpDestination(**{name: values[name] for name in SmtpDestination._fields})
