"""Read and write the queue's settings in the table `config`: switches, token bucket, redirect.

The redirect of the test mode is decided here, too: only outside the registration period.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum

from engine.formats.zgb.connection import OwnerConnection
from engine.formats.zgb.place import RateLimit
from engine.formats.zgb.schema import TableShape
from engine.policy import UNITS_PER_TOKEN, Bucket, Rate
from engine.values import NamedTuple

LOCAL_PART_LIMIT = 64
"""Characters of an address before its @ (RFC 5321, 4.5.3.1.1)."""

UNDECIDABLE_ERROR = "redirect guard undecidable"
"""The error of a user's job that waits until the redirect can be decided."""


class Period(NamedTuple):
    """The registration period; epoch seconds UTC."""

    start: float
    end: float
    """The first moment after it."""

    def contains(self, moment: float) -> bool:
        """True if a time is in the period; both days count in full."""
        return self.start <= moment < self.end


class RedirectDecision(StrEnum):
    """Where a mail goes."""

    UNCHANGED = "plain"
    """To its real recipient."""
    REDIRECTED = "redirected"
    UNDECIDABLE = "undecidable"
    """Nowhere: it is unknown whether the job is a test."""


def parse_period(start: str | None, end: str | None, zone: tzinfo) -> Period | None:
    """Return the period from the first day to the end of the last (YYYY-MM-DD).

    None if a day is missing, unreadable, or the days are in the wrong order: there is no default.
    """
    try:
        first, last = date.fromisoformat(start or ""), date.fromisoformat(end or "")
        after = last + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    if first > last:
        return None
    begins, end_time = (datetime.combine(day, time(), zone).timestamp() for day in (first, after))
    return Period(begins, end_time)


def decide(
    switched: bool, kind: str, created: float | None, now: float, during: Period | None
) -> RedirectDecision:
    """Decide where a mail goes that was enqueued at `created` and is sent `now` (epoch seconds
    UTC).

    Both times must be outside the period. With the time of sending alone, a confirmation that is
    still being retried when the period ends would go to the test address; with `created` unknown
    (None) that could happen."""
    if not switched or kind != "user":
        return RedirectDecision.UNCHANGED
    if during is None:
        return RedirectDecision.UNDECIDABLE
    if during.contains(now):
        return RedirectDecision.UNCHANGED
    if created is None:
        return RedirectDecision.UNDECIDABLE
    return RedirectDecision.UNCHANGED if during.contains(created) else RedirectDecision.REDIRECTED


def redirected_address(to: str, target: str) -> str:
    """Return the address of a redirected mail: `target`, or, if that is a bare domain, an address
    with the real recipient in its local part: `a@b.org` becomes `a=b.org@schumbi.de`. A too long
    local part is cut; an IP address in brackets loses these and its colons."""
    if "@" in target:
        return target
    local = "".join("=" if c in "@[]:" else c for c in to)
    return f"{local[:LOCAL_PART_LIMIT].rstrip('.')}@{target}"


ENABLED_KEY = "mailQueueEnabled"
RATE_KEY = "mailMaxPerHour"
REDIRECT_KEY = "mailRedirectToSchumbi"
TOKENS_KEY = "mailTokens"
REFILLED_KEY = "mailLastRefill"
START_KEY = "startDate"
END_KEY = "endDate"

MOVED_KEY = "spooldeckMove"
"""Our only key: the token of our last committed move between the two databases. Two files cannot be
committed atomically in every journal mode, so this key decides."""

_KEYS = (
    ENABLED_KEY,
    RATE_KEY,
    REDIRECT_KEY,
    TOKENS_KEY,
    REFILLED_KEY,
    START_KEY,
    END_KEY,
    MOVED_KEY,
)


class QueueConfig(NamedTuple):
    """The settings when they were read; None for one that is not set."""

    is_enabled: bool
    rate: str | None
    is_redirected: bool
    tokens: str | None
    refilled: str | None
    start: str | None
    end: str | None
    move_token: str
    """"" if there was no move between the databases."""

    def period(self, shape: TableShape) -> Period | None:
        """Return the registration period; None if it is unknown."""
        return parse_period(self.start, self.end, shape.period_zone)


def load_config(db: OwnerConnection) -> QueueConfig:
    """Read the settings; raises as `OwnerConnection.run`."""
    marks = ", ".join("?" * len(_KEYS))
    rows = db.run(f"SELECT key, value FROM config WHERE key IN ({marks})", _KEYS)
    values = {str(key): None if value is None else str(value) for key, value in rows}
    return QueueConfig(
        _is_on(values.get(ENABLED_KEY)),
        values.get(RATE_KEY),
        _is_on(values.get(REDIRECT_KEY)),
        tokens=values.get(TOKENS_KEY),
        refilled=values.get(REFILLED_KEY),
        start=values.get(START_KEY),
        end=values.get(END_KEY),
        move_token=values.get(MOVED_KEY) or "",
    )


def _is_on(value: str | None) -> bool:
    return (value or "").strip() == "1"


def write_setting(db: OwnerConnection, key: str, value: str) -> None:
    """Set one key, within a transaction; works without a unique index on `key`."""
    if not db.change("UPDATE config SET value = ? WHERE key = ?", (value, key)):
        db.change("INSERT INTO config (key, value) VALUES (?, ?)", (key, value))


_NUMBER_LIMIT = float(1 << 53)
_match_whole = re.compile(r"\s*([+-]?\d+)", re.ASCII).match
_match_decimal = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.I).fullmatch


def parse_rate(text: str | None, limits: RateLimit) -> Rate:
    """Parse the rate as PHP does: the leading whole number, within bounds.

    Other text is 0 and therefore 1 per hour: neither unlimited nor off. Without a setting, the
    default."""
    if text is None:
        return Rate.with_default_burst(limits.default, min(limits.default, limits.burst))
    match = _match_whole(text)
    per_hour = min(max(int(match[1][:20]) if match else 0, 1), limits.maximum)
    return Rate(per_hour, min(per_hour, limits.burst))


def rate_problem(text: str | None, limits: RateLimit) -> str:
    """Return what is wrong with a rate setting; "" if nothing is."""
    if text is None:
        return ""
    taken, plain = parse_rate(text, limits).per_hour, text.strip()
    if plain.isascii() and plain.isdecimal() and int(plain[:20]) == taken:
        return ""
    return f"mailMaxPerHour is {text!r:.40}, expected 1 to {limits.maximum}: {taken} is used"


def read_bucket(tokens: str | None, stamp: str | None, now: float) -> tuple[Bucket, bool]:
    """Parse the bucket from two texts: tokens, and the epoch second of the last refill; and whether
    it was reset. A missing, negative or invalid value gives one token now: one mail immediately,
    but no burst."""
    amount, last = _parse_number(tokens), _parse_number(stamp)
    if amount is None or last is None:
        return Bucket(UNITS_PER_TOKEN, int(now)), True
    return Bucket(round(amount * UNITS_PER_TOKEN), int(last)), False


def _parse_number(text: str | None) -> float | None:
    if not _match_decimal(text or ""):  # Python accepts more forms of numbers than other programs
        return None
    value = float(text or "")
    # A larger value is invalid anyway, but must be finite to be converted to int.
    return min(value, _NUMBER_LIMIT) if math.isfinite(value) and value >= 0 else None


def render_bucket(bucket: Bucket) -> tuple[str, str]:
    """Return tokens and time as stored; reading them gives the same bucket."""
    return repr(bucket.units / UNITS_PER_TOKEN), str(bucket.stamp)
