"""Times and durations as an operator types them, in local time unless a Z says otherwise."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

SPANS = "a duration such as 30s, 5m, 2h, 1d or 1h30m"
MOMENTS = 'a time such as 14:00, 6pm, 2026-11-20, yesterday, "yesterday 18:30", -2h or now'
AHEAD = 'a time to come, such as 14:00, +2h, "tomorrow 06:00", 2026-11-21 or now'
"""What was expected, for a sentence."""

END = 253_402_300_800.0
"""The first moment in epoch seconds that has no date: a calendar ends with the year 9999."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PARTS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", re.IGNORECASE)
_DAY = re.compile(r"today|yesterday|tomorrow|[0-9]{4}-[0-9]{2}-[0-9]{2}", re.IGNORECASE)
_CLOCK = re.compile(r"([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)? ?([ap]m)?", re.IGNORECASE)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


class RelativeTime(NamedTuple):
    """A moment that goes along with the clock: so many seconds before whatever is now."""

    seconds: float


class Clock(NamedTuple):
    """A time of day without its day: it was yesterday, is today, or will be tomorrow."""

    yesterday: float
    today: float
    tomorrow: float

    def before(self, now: float) -> float:
        """The last such moment that is not after now."""
        return max((at for at in self if at <= now), default=self.yesterday)

    def after(self, moment: float) -> float:
        """The first such moment after another."""
        return min((at for at in self if at > moment), default=self.tomorrow)


def span(text: str) -> float:
    """A duration in seconds: `90s`, `5m`, `2h`, `1d`, `1w`, `1h30m`.

    Raises:
        ValueError: it is none.
    """
    seconds, at = 0.0, 0
    while part := _PARTS.match(text, at):
        seconds += float(part[1]) * _UNITS[part[2].lower()]
        at = part.end()
    if not text or at != len(text):
        raise ValueError(f"expected {SPANS}")
    return seconds


def moment(text: str, now: float) -> float | RelativeTime | Clock:
    """A moment in epoch seconds UTC, or what it is when its day, or now, is known.

    A date alone is its beginning; what ends in Z is in UTC.

    Raises:
        ValueError: it is none.
    """
    if text.lower() == "now":
        return RelativeTime(0.0)
    if text[:1] in ("-", "+"):
        seconds = span(text[1:])
        return RelativeTime(seconds if text[0] == "-" else -seconds)
    try:
        return _on_a_calendar(text, now)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"expected {MOMENTS}") from None


def ahead(text: str, now: float) -> float:
    """A moment that something is to wait for, epoch seconds UTC: a time of day is the next one.

    Raises:
        ValueError: it is none, or none that can be told by a calendar.
    """
    try:
        found = moment(text.strip(), now)
    except ValueError:
        raise ValueError(f"expected {AHEAD}") from None
    match found:
        case RelativeTime(seconds):
            when = now - seconds
        case Clock():
            when = found.after(now)
        case _:
            when = found
    if not 0 <= when < END:
        raise ValueError(f"expected {AHEAD}")
    return when


def _on_a_calendar(text: str, now: float) -> float | Clock:
    zone = UTC if text[-1:] in ("z", "Z") else None
    rest = text[:-1] if zone else text
    today = datetime.fromtimestamp(now, zone).date()

    def on(day: date, clock: time) -> float:
        return datetime.combine(day, clock, zone).timestamp()

    found = _DAY.match(rest)
    if found is None:
        clock = _clock(rest)
        return Clock(*(on(today + timedelta(days), clock) for days in _DAYS.values()))
    word, rest = found[0].lower(), rest[found.end() :]
    day = today + timedelta(_DAYS[word]) if word in _DAYS else date.fromisoformat(word)
    if rest and rest[0] not in " tT":
        raise ValueError(text)
    return on(day, _clock(rest[1:]) if rest else time())


def _clock(text: str) -> time:
    found = _CLOCK.fullmatch(text)
    if found is None or not (found[2] or found[4]):  # a number alone is no time
        raise ValueError(text)
    hour = int(found[1])
    if found[4]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + (12 if found[4].lower() == "pm" else 0)
    return time(hour, int(found[2] or 0), int(found[3] or 0))
