"""Times and durations in few cells, as lists and details show them; all in UTC."""

from __future__ import annotations

import time

from engine.policy import DAY_SECONDS
from engine.text.decode import YEAR_10000
from engine.text.figure import UNKNOWN


def is_valid_time(*numbers: float) -> bool:
    """True if all numbers can be shown as a time; False for NaN."""
    return all(-YEAR_10000 < number < YEAR_10000 for number in numbers)


def format_minutes(seconds: float) -> str:
    """A duration in at most six cells: `<1m`, `47m`, `2h13m`, `6d02h`, `412d`; else `?`."""
    if not is_valid_time(seconds):
        return UNKNOWN
    minutes = int(max(0.0, seconds)) // 60
    if minutes < 60:
        return f"{minutes}m" if minutes else "<1m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    days, hours = divmod(minutes // 60, 24)
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def format_seconds(seconds: float) -> str:
    """A duration as `format_minutes`, but in seconds below a minute: `2s`, `47m`; else `?`."""
    is_short = is_valid_time(seconds) and seconds < 60
    return f"{int(max(0.0, seconds))}s" if is_short else format_minutes(seconds)


def format_age(seconds: float) -> str:
    """How long ago something was, in seconds below a minute: `2s ago`, `47m ago`; else `?`."""
    return f"{format_seconds(seconds)} ago" if is_valid_time(seconds) else UNKNOWN


def format_countdown(seconds: float) -> str:
    """Remaining time in minutes and seconds: `14:32`; `?` if invalid."""
    if not is_valid_time(seconds):
        return UNKNOWN
    whole_seconds = int(max(0.0, seconds) + 0.999)
    return f"{whole_seconds // 60}:{whole_seconds % 60:02d}"


def format_clock(moment: float) -> str:
    """A time of day in UTC: `03:12:07Z`; `?` if invalid."""
    if not is_valid_time(moment):
        return UNKNOWN
    return time.strftime("%H:%M:%SZ", time.gmtime(moment))


def format_start(moment: float, now: float) -> str:
    """When something began, in UTC: `23:34:05Z` today, `Fri 23:34` in the last six days, else `Nov
    17 23:34`; `?` if invalid."""
    if not is_valid_time(moment, now):
        return UNKNOWN
    if moment // DAY_SECONDS == now // DAY_SECONDS:
        return format_clock(moment)
    form = "%a %H:%M" if 0 <= now - moment < 6 * DAY_SECONDS else "%b %d %H:%M"
    return time.strftime(form, time.gmtime(moment))


def format_time_with_age(when: float, now: float) -> str:
    """A time in UTC and its distance from now; with the date unless it is today; `?` if invalid."""
    if not is_valid_time(when, now):
        return UNKNOWN
    same = time.strftime("%Y%j", time.gmtime(when)) == time.strftime("%Y%j", time.gmtime(now))
    form = "%H:%M:%SZ" if same else "%Y-%m-%d %H:%M:%SZ"
    text = time.strftime(form, time.gmtime(when))
    apart = now - when
    distance = format_age(apart) if apart >= 0 else f"in {format_seconds(-apart)}"
    return f"{text} ({distance})"
