"""The token bucket as two texts in `config`, and the rate that fills it."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from engine.policy import HOUR, Bucket, Rate
from engine.stores.zgb.place import RateLimit

_MOST = float(1 << 53)
_whole = re.compile(r"\s*([+-]?\d+)", re.ASCII).match
_decimal = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.I).fullmatch


def rate(text: str | None, pace: RateLimit) -> Rate:
    """The rate that a setting means: its leading whole number, as PHP reads one, within bounds.

    Text is 0 and so 1 an hour: neither unlimited nor off. Not set is the default.
    """
    if text is None:
        return Rate.of(pace.default, min(pace.default, pace.burst))
    found = _whole(text)
    per_hour = min(max(int(found[1][:20]) if found else 0, 1), pace.most)
    return Rate(per_hour, min(per_hour, pace.burst))


def odd_rate(text: str | None, pace: RateLimit) -> str:
    """What is wrong with a rate as it is set, in words; "" when nothing is."""
    if text is None:
        return ""
    taken, plain = rate(text, pace).per_hour, text.strip()
    if plain.isascii() and plain.isdecimal() and int(plain[:20]) == taken:
        return ""
    return f"mailMaxPerHour is {text!r:.40}, expected 1 to {pace.most}: taken for {taken}"


class BucketReading(NamedTuple):
    """A bucket as it was found."""

    bucket: Bucket
    reset: bool
    """Whether it could not be read, and begins anew."""


def read(tokens: str | None, stamp: str | None, now: float) -> BucketReading:
    """The bucket that two texts mean: tokens, and the epoch second of their last refill.

    What is missing, no number or negative is one token now: a mail at once, but no burst.
    """
    amount, last = _number(tokens), _number(stamp)
    if amount is None or last is None:
        return BucketReading(Bucket(HOUR, int(now)), True)
    return BucketReading(Bucket(round(amount * HOUR), int(last)), False)


def _number(text: str | None) -> float | None:
    if not _decimal(text or ""):  # Python reads more as a number than anybody else does
        return None
    value = float(text or "")
    # Whatever lies beyond is no bucket either way, but must still be a number to be cut to one.
    return min(value, _MOST) if math.isfinite(value) and value >= 0 else None


def written(bucket: Bucket) -> tuple[str, str]:
    """Tokens and stamp as they are stored; read back, they are the same bucket."""
    return repr(bucket.units / HOUR), str(bucket.stamp)
