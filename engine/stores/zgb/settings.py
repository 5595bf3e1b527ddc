"""What an operator settles about a mail queue, as the configuration says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.config import validators
from engine.config.validators import Check, ConfigLocation
from engine.stores.zgb.place import KINDS, LEASE, RateLimit, ZgbDatabase
from engine.stores.zgb.times import zone_of

HANDOVER = 65.0
"""Seconds that a lease must last longer than one mail may take to be handed over: five to begin and
to write down the end, and a minute for a machine that is busy."""


class LetterTemplate(NamedTuple):
    """One of the two mails of a registration: whom it is for, and what it says."""

    enabled: bool = True
    """Whether such a job is made when a registration is enqueued; one that is there is sent."""
    subject: str = ""
    """May name columns of the registration, as `{number}`."""
    template: str = ""
    """Path of a file, text or HTML, that may name them too; "" while nobody has set one."""
    to: str = ""
    """The one address that all of them go to; "" for the one that `to_column` holds."""
    to_column: str = ""
    """The column of the registration that holds the address; "" for the recipient of all mail that
    names nobody."""


LETTERS: Mapping[str, LetterTemplate] = {
    "user": LetterTemplate(subject="Your registration {number}", to_column="email"),
    "organizer": LetterTemplate(subject="Registration {number}"),
}
"""What holds where nothing else was said."""


class ZgbSettings(NamedTuple):
    """Everything that the database itself leaves open."""

    zone: str = "UTC"
    lease: int = LEASE
    """Seconds."""
    auto_retry: bool = True
    redirect_to: str = "schumbi.de"
    period_zone: str = "Europe/Berlin"
    registrations: str = "registrations"
    hourly_limit: int = 0
    """Mails that may be tried within any 60 minutes, by our own record; 0: as the bucket has it,
    which lets through the rate and the burst together."""
    log: str = ""
    """Where the log is written; "" for where the format has it."""
    sender: str = ""
    """The address that mails are from; "" as for all other mail."""
    from_name: str = ""
    letters: Mapping[str, LetterTemplate] = LETTERS

    @property
    def enqueued(self) -> tuple[str, ...]:
        """The kinds of which a job is made."""
        return tuple(kind for kind in KINDS if self.letters[kind].enabled)

    @property
    def unworkable(self) -> str:
        """Why no worker of ours could send anything with these settings; "" when one could."""
        if any(letter.template for letter in self.letters.values()):
            return ""
        names = " and ".join(f"stores.zgb.types.{kind}.template" for kind in KINDS)
        return f"no template is set for either mail: {names}"

    def place(self, path: str, *, read_only: bool = False, durable: bool = True) -> ZgbDatabase:
        """The database at a path, with these settings."""
        return ZgbDatabase(
            path,
            read_only=read_only,
            durable=durable,
            zone=self.zone,
            lease=self.lease,
            auto_retry=self.auto_retry,
            pace=RateLimit(),
            redirect_to=self.redirect_to,
            period_zone=self.period_zone,
            registrations=self.registrations,
        )

    def too_short(self, seconds: float) -> str:
        """Why the lease is none for mails that may take so many seconds each; "" when it is one."""
        least = seconds + HANDOVER
        if self.lease >= least:
            return ""
        return (
            f"the lease of {self.lease} s may lapse while a mail is being sent, which may take "
            f"{seconds:g} s (mail.max_time): expected at least {least:g} s"
        )


def said(value: object, at: ConfigLocation) -> ZgbSettings:
    """What the configuration says; a key that is not there has its default.

    Raises:
        ConfigError: it cannot be meant.
    """
    fields: dict[str, Any] = validators.mapping(value, at, _SETTINGS)
    if "retry_failed" in fields:
        fields["auto_retry"] = fields.pop("retry_failed") == "auto"
    if "types" in fields:
        fields["letters"] = {**LETTERS, **fields.pop("types")}
    return ZgbSettings(**fields)


# One value at a time.


def _zone(value: object, at: ConfigLocation) -> str:
    name = validators.text(value, at)
    try:
        zone_of(name)
    except ValueError as error:
        raise at.error(str(error)) from error
    return name


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.text(value, at)
    if not text.isprintable():
        raise at.wrong("text on one line, without control characters", value)
    return text


def _target(value: object, at: ConfigLocation) -> str:
    text = _one_line(value, at)
    local, sign, domain = text.rpartition("@")
    if not domain or any(c.isspace() for c in text) or "@" in local or (sign and not local):
        raise at.wrong("a domain, or one whole address", value)
    return text


def _letters(value: object, at: ConfigLocation) -> dict[str, LetterTemplate]:
    checked = validators.mapping(value, at, dict.fromkeys(KINDS, _any))
    return {
        kind: LETTERS[kind]._replace(**validators.mapping(own, at.below(kind), _LETTER))
        for kind, own in checked.items()
    }


def _any(value: object, at: ConfigLocation) -> object:
    return value


_LETTER: Mapping[str, Check] = {
    "enabled": validators.yes_or_no,
    "subject": _one_line,
    "template": validators.path,
    "to": _one_line,
    "to_column": _one_line,
}

_SETTINGS: Mapping[str, Check] = {
    "zone": _zone,
    "lease": validators.whole(1, "seconds"),
    "retry_failed": validators.one_of("auto", "manual"),
    "redirect_to": _target,
    "period_zone": _zone,
    "registrations": _one_line,
    "hourly_limit": validators.whole(1, "mails"),
    "log": validators.path,
    "sender": _one_line,
    "from_name": _one_line,
    "types": _letters,
}
