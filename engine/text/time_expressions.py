"""Parse times as an operator types them; local time, or UTC with a final Z."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from engine.text.decode import YEAR_10000
from engine.text.durations import parse_duration
from engine.values import NamedTuple

TIME_HINT = 'a time such as 14:00, 6pm, 2026-11-20, yesterday, "yesterday 18:30", -2h or now'
FUTURE_HINT = 'a time to come, such as 14:00, +2h, "tomorrow 06:00", 2026-11-21 or now'
"""What was expected, for error messages."""

_DAY = re.compile(r"today|yesterday|tomorrow|[0-9]{4}-[0-9]{2}-[0-9]{2}", re.IGNORECASE)
_CLOCK = re.compile(r"([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)? ?([ap]m)?", re.IGNORECASE)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


class RelativeTime(NamedTuple):
    """A time relative to the present: so many seconds before now."""

    seconds: float


class Clock(NamedTuple):
    """A time of day without a date, as epoch seconds on three days."""

    yesterday: float
    today: float
    again: float
    """Today in the second of two equal hours, when the clocks are set back; else as `today`."""
    tomorrow: float

    def before(self, now: float) -> float:
        """The latest one that is not after `now`."""
        return max((at for at in self if at <= now), default=self.yesterday)

    def after(self, moment: float) -> float:
        """The first one after `moment`."""
        return min((at for at in self if at > moment), default=self.tomorrow)


def parse_time(text: str, now: float) -> float | RelativeTime | Clock:
    """Parse a time to epoch seconds UTC, or to a relative time or a time of day.

    A date alone means its start; a final Z means UTC.

    Raises:
        ValueError: not a time."""
    if text.lower() == "now":
        return RelativeTime(0.0)
    if text[:1] in ("-", "+"):
        seconds = parse_duration(text[1:])
        return RelativeTime(seconds if text[0] == "-" else -seconds)
    try:
        return _on_a_calendar(text, now)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"expected {TIME_HINT}") from None


def parse_future_time(text: str, now: float) -> float:
    """Parse a future time to epoch seconds UTC; a time of day means the next one. Raises
    `ValueError`: not a time, or beyond the year 9999."""
    try:
        moment = parse_time(text.strip(), now)
    except ValueError:
        raise ValueError(f"expected {FUTURE_HINT}") from None
    match moment:
        case RelativeTime(seconds):
            when = now - seconds
        case Clock():
            when = moment.after(now)
        case _:
            when = moment
    if not 0 <= when < YEAR_10000:
        raise ValueError(f"expected {FUTURE_HINT}")
    return when


def _on_a_calendar(text: str, now: float) -> float | Clock:
    zone = UTC if text[-1:] in ("z", "Z") else None
    words = text[:-1] if zone else text
    today = datetime.fromtimestamp(now, zone).date()

    def on(day: date, clock: time) -> float:
        return datetime.combine(day, clock, zone).timestamp()

    match = _DAY.match(words)
    if match is None:
        clock = _clock(words)
        yesterday, first, tomorrow = (on(today + timedelta(days), clock) for days in _DAYS.values())
        return Clock(yesterday, first, max(first, on(today, clock.replace(fold=1))), tomorrow)
    word, words = match[0].lower(), words[match.end() :]
    day = today + timedelta(_DAYS[word]) if word in _DAYS else date.fromisoformat(word)
    if words and words[0] not in " tT":
        raise ValueError(text)
    return on(day, _clock(words[1:]) if words else time())


def _clock(text: str) -> time:
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[4]):  # a number alone is not accepted
        raise ValueError(text)
    hour = int(match[1])
    if match[4]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + (12 if match[4].lower() == "pm" else 0)
    return time(hour, int(match[2] or 0), int(match[3] or 0))
