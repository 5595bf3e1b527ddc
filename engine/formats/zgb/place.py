"""Parameters of a mail queue database: path, lease, retry waits, rate limit, redirect, time zones.

ZGB's document leaves many values open (how long a lease lasts, the zone of times in text form);
each of them is a field here, and its default gives the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

from engine.config import validators
from engine.config.validators import Check, ConfigLocation
from engine.policy import RetryPolicy, retries_of
from engine.schedules import stepped
from engine.system import files
from engine.values import NamedTuple

KINDS = ("user", "organizer")
"""The two mails of a registration, in the order of enqueueing."""

LEASE_SECONDS = 300
"""Lease time in seconds; the document gives none. Enough for the five mails that a run may send in
a burst, each with a minute for the handover."""

RETRY_WAITS_SECONDS = (60.0, 300.0, 900.0, 3600.0)
"""Seconds to wait after the first, second and third failure, and after each later one (the
document's table of waits)."""

MAX_ATTEMPTS = 10
"""Attempts before a mail is parked; the document says "about 10"."""

PARKED_AHEAD_SECONDS = 365 * 86_400.0
"""A failed job that is due more than so many seconds ahead counts as parked."""

ERROR_LIMIT_CHARS = 500
"""Characters of an error that are stored; the document only says that it is cut."""


def document_retry_policy() -> RetryPolicy:
    """Build the document's retry policy: 60, 300, 900, then 3600 s; parked after the tenth
    failure."""
    # The format counts an attempt when it is claimed, so the one that parks counts as well.
    return retries_of(stepped(RETRY_WAITS_SECONDS, MAX_ATTEMPTS - 1))


class RateLimit(NamedTuple):
    """Bounds for the rate that is set in the database, in mails per hour."""

    maximum: int = 60
    """The highest rate; a higher setting counts as this one."""
    burst: int = 5
    """Most mails in a burst; never more than the rate per hour."""
    default: int = 40
    """The rate if not set: the document's example."""


class ZgbDatabase(NamedTuple):
    """A database, and the values that its own settings leave open."""

    path: str
    read_only: bool = False
    rolls_back: bool = False
    """Whether a hot journal of another user's program is rolled back; one of this user always is.
    Set for workers; an operator who only reads sees a message instead."""
    zone: str = "UTC"
    """Time zone of times in text form."""
    patience: float = 5.0
    """Seconds to wait for a lock of another process."""
    durable: bool = True
    """Whether commits are fsynced."""
    lease: int = LEASE_SECONDS
    """Seconds."""
    retry: RetryPolicy = document_retry_policy()
    """The retry policy after an expired lease; the worker uses the same."""
    auto_retry: bool = True
    """Whether failed jobs are claimed again when due. By the document's text only an operator
    brings them back, but then its waits would have no meaning."""
    rate_limit: RateLimit = RateLimit()
    redirect_to: str = "schumbi.de"
    """Where the test mode sends users' mails: a domain, or a whole address."""
    period_zone: str = "Europe/Berlin"
    """Time zone of the first and last day of the registration period."""
    registrations: str = "registrations"
    """The table whose `number` column shows orphans; "": orphans are not looked for."""

    @property
    def sidecar_path(self) -> str:
        """Path of the sidecar database, which holds the held jobs and the trash.

        One per database, also if it is opened through links."""
        return f"{files.real_path(self.path)}.spooldeck"


LEASE_MARGIN_SECONDS = 65.0
"""Seconds by which a lease must exceed the time limit of one mail: five to begin and to store the
result, and a minute for a busy machine."""


class LetterTemplate(NamedTuple):
    """One of the two mails of a registration: recipient, subject and text."""

    enabled: bool = True
    """Whether a job is created when a registration is enqueued; an existing job is sent anyway."""
    subject: str = ""
    """May contain columns of the registration, as `{number}`."""
    template: str = ""
    """Path of a text or HTML file, which may contain columns as well; "" if not set."""
    to: str = ""
    """The address that receives all of them; "" to use `to_column`."""
    to_column: str = ""
    """The column of the registration that holds the address; "" for the default recipient of all
    mail."""


DEFAULT_LETTERS: Mapping[str, LetterTemplate] = {
    "user": LetterTemplate(subject="Your registration {number}", to_column="email"),
    "organizer": LetterTemplate(subject="Registration {number}"),
}
"""The defaults."""


class ZgbSettings(NamedTuple):
    """The values that the database leaves open; most fields are keys of the configuration."""

    zone: str = "UTC"
    """Time zone of times that are stored as text."""
    lease: int = LEASE_SECONDS
    """Seconds that a claim lasts; it is extended while a mail is being sent."""
    retry_failed: str = "auto"
    """Who retries failed mails: `auto`, this program; `manual`, only the web page, or `C`."""
    redirect_to: str = "schumbi.de"
    """Where the test mode sends users' mails: a domain, or a whole address."""
    period_zone: str = "Europe/Berlin"
    """Time zone of the first and last day of the registration period."""
    registrations: str = "registrations"
    """The table whose column `number` shows jobs without a registration."""
    hourly_limit: int = 0
    """Most attempts within any 60 minutes, by our own log; 0: the token bucket alone limits."""
    log: str = ""
    """Where the log is; "" for the format's default."""
    sender: str = ""
    """The sender address; "" for the default of all mail."""
    from_name: str = ""
    """Name of the sender."""
    types: Mapping[str, LetterTemplate] = DEFAULT_LETTERS
    """The two mails, `user` and `organizer`: `enabled`, `subject`, `template`, and `to` or
    `to_column`."""

    @property
    def enqueued_kinds(self) -> tuple[str, ...]:
        """The kinds of which a job is created."""
        return tuple(kind for kind in KINDS if self.types[kind].enabled)

    @property
    def work_refusal(self) -> str:
        """Return why no worker could send mail with these settings; "" if one could."""
        if any(letter.template for letter in self.types.values()):
            return ""
        names = " and ".join(f"stores.zgb.types.{kind}.template" for kind in KINDS)
        return f"no template is set for either mail: {names}"

    def place(self, path: str, *, read_only: bool = False, durable: bool = True) -> ZgbDatabase:
        """Return the parameters of the database at a path."""
        values = {**self._asdict(), "auto_retry": self.retry_failed == "auto"}
        shared = {name: values[name] for name in ZgbDatabase._fields if name in values}
        return ZgbDatabase(path, read_only, durable=durable, **shared)

    def lease_problem(self, seconds: float) -> str:
        """Return why the lease is too short for mails that take so many seconds; "" if it is
        not."""
        least = seconds + LEASE_MARGIN_SECONDS
        if self.lease >= least:
            return ""
        return (
            f"the lease of {self.lease} s may lapse while a mail is being sent, which may take "
            f"{seconds:g} s (mail.max_time): expected at least {least:g} s"
        )


def parse_settings(value: object, at: ConfigLocation) -> ZgbSettings:
    """Parse the section of the configuration; a missing key has its default. Raises ConfigError: a
    value is invalid."""
    return ZgbSettings(**validators.check_mapping(value, at, _SETTINGS))


def _zone(value: object, at: ConfigLocation) -> str:
    name = validators.check_text(value, at)
    try:
        load_zone(name)
    except ValueError as error:
        raise at.error(str(error)) from error
    return name


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.check_text(value, at)
    if not text.isprintable():
        raise at.wrong_value("text on one line, without control characters", value)
    return text


def _target(value: object, at: ConfigLocation) -> str:
    text = _one_line(value, at)
    local, sign, domain = text.rpartition("@")
    if not domain or any(c.isspace() for c in text) or "@" in local or (sign and not local):
        raise at.wrong_value("a domain, or one whole address", value)
    return text


def _letters(value: object, at: ConfigLocation) -> dict[str, LetterTemplate]:
    checked = validators.check_mapping(value, at, dict.fromkeys(KINDS, lambda its, at: its))
    changed = {
        kind: DEFAULT_LETTERS[kind]._replace(
            **validators.check_mapping(settings, at.at_key(kind), _LETTER)
        )
        for kind, settings in checked.items()
    }
    return {**DEFAULT_LETTERS, **changed}


_LETTER: Mapping[str, Check] = {
    "enabled": validators.check_bool,
    "subject": _one_line,
    "template": validators.check_optional_path,
    "to": _one_line,
    "to_column": _one_line,
}

_SETTINGS: Mapping[str, Check] = {
    "zone": _zone,
    "lease": validators.duration_check(1, whole=True),
    "retry_failed": validators.choice_check("auto", "manual"),
    "redirect_to": _target,
    "period_zone": _zone,
    "registrations": _one_line,
    "hourly_limit": validators.whole_number_check(0, "mails"),
    "log": validators.check_optional_path,
    "sender": _one_line,
    "from_name": _one_line,
    "types": _letters,
}


# Times in columns: whole epoch seconds, or text in a time zone.

Cell: TypeAlias = int | float | str | bytes | None
"""The value of one column."""

LATEST_SECONDS = 1 << 53
"""Upper bound for times: a float is exact to the second up to here."""

FIRST_CREATION_SECONDS, LAST_CREATION_SECONDS = 946_684_800, 4_102_444_800
"""The years 2000 and 2100: a creation time outside is in another unit, such as milliseconds."""

PARKED_DUE_SECONDS = 253_402_300_799
"""The due time of a parked job: the last second of the year 9999, epoch seconds UTC."""

PARKED_TEXT = "9999-12-31 23:59:59"
"""The due time of a parked job as text, the same in every zone: east of UTC the year would have
five digits."""

_match_number = re.compile(r"\s*\d+(\.\d+)?\s*", re.ASCII).fullmatch
_match_timestamp = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", re.ASCII).fullmatch


class TimeFormat(NamedTuple):
    """How one column stores times."""

    is_text: bool
    zone: tzinfo

    def format(self, moment: float, now: float = math.inf) -> int | str:
        """Convert epoch seconds UTC for this column, rounded up.

        With `now`, a future time is chosen so that a clock that is set back in between (end of
        summer time) does not reach it early: as text it would be in the past, and a lease would
        have ended."""
        seconds = math.ceil(moment)
        if not self.is_text:
            return seconds
        if seconds >= PARKED_DUE_SECONDS:
            return PARKED_TEXT
        local = datetime.fromtimestamp(seconds, self.zone)
        if local.fold and now < seconds and not datetime.fromtimestamp(now, self.zone).fold:
            local = _first_unrepeated(local)
        return local.strftime("%Y-%m-%d %H:%M:%S")


def _first_unrepeated(local: datetime) -> datetime:
    """Return the first local time from this one on that is not repeated."""
    first, second = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None and second is not None
    low, high = 0, int((first - second).total_seconds())
    while low < high:
        middle = (low + high) // 2
        later = local + timedelta(seconds=middle)
        twice = later.replace(fold=0).utcoffset() != later.replace(fold=1).utcoffset()
        low, high = (middle + 1, high) if twice else (low, middle)
    return local + timedelta(seconds=low)


def parse_time(value: Cell, zone: tzinfo) -> float:
    """Parse a column's time to epoch seconds UTC, from either form. Raises ValueError: it is not a
    time; the message is for the operator."""
    moment = _parse_seconds(value, zone)
    if not 0 <= moment <= LATEST_SECONDS:
        raise ValueError(f"not a plausible time: {value!r:.40}")
    return moment


def parse_creation_time(value: Cell, zone: tzinfo) -> float | None:
    """Parse a creation time to epoch seconds UTC; None if it is missing or in an unknown form."""
    try:
        moment = parse_time(value, zone)
    except (ValueError, OverflowError):
        return None
    return moment if FIRST_CREATION_SECONDS <= moment <= LAST_CREATION_SECONDS else None


def _parse_seconds(value: Cell, zone: tzinfo) -> float:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and _match_number(value):
        return float(value)
    if value == PARKED_TEXT:
        return float(PARKED_DUE_SECONDS)
    if isinstance(value, str) and _match_timestamp(value):
        cell_zone = UTC if value.endswith("Z") else zone
        naive = datetime.fromisoformat(value[:19].replace("T", " "))
        return naive.replace(tzinfo=cell_zone).timestamp()
    raise ValueError(f"not a time: {value!r:.40}, expected epoch seconds or YYYY-MM-DD HH:MM:SS")


def load_zone(name: str) -> tzinfo:
    """Return a time zone by name. Raises ValueError: this machine does not have it."""
    if name == "UTC":
        return UTC
    import zoneinfo  # slow; most databases hold epoch seconds and need none

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(f"no time zone {name!r} is known on this machine") from error
