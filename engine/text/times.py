"""Times and durations in words, for sentences: UTC, seconds below a minute; pure functions."""

from __future__ import annotations

import time


def format_deadline(moment: float, now: float) -> str:
    """A future time, with its date unless it is today: `12:01:02Z (in 4m)`."""
    text = format_time(moment)
    if moment == float("inf") or not text.endswith("Z"):
        return text
    today, time_of_day = format_time(now)[:11], text[11:]
    time_text = time_of_day if text.startswith(today) else text
    return f"{time_text} (in {format_rough_duration(moment - now)})"


def format_time(moment: float) -> str:
    """A time in UTC, for a sentence: `2026-01-07 12:01:02Z`; "never" for infinity."""
    if moment == float("inf"):
        return "never"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))
    except (OverflowError, OSError, ValueError):  # read from a file; beyond year 9999
        return f"epoch second {moment:g}"


MAX_DURATION_SECONDS = 86400.0 * 99_999
"""Longest duration that is shown, in seconds."""


def format_duration(seconds: float) -> str:
    """A duration of at most 6 characters: `3s`, `1m42s`, `1h17m`, `6d02h`, `412d`."""
    whole = int(max(0.0, min(seconds, MAX_DURATION_SECONDS)) + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    days, hours = whole // 86400, whole % 86400 // 3600
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def format_rough_duration(seconds: float) -> str:
    """Like `format_duration`, but from one minute on without seconds, so it changes less often."""
    whole = min(seconds, MAX_DURATION_SECONDS) // 1
    text = format_duration(whole if whole < 60 else whole // 60 * 60)
    return text if whole < 60 else text.removesuffix("00s")


def describe_limit(seconds: float) -> str:
    """A limit from the settings, never rounded below two hours: `90s`, `20m`."""
    is_exact = seconds >= 7200 or not seconds % 60
    return format_rough_duration(seconds) if is_exact else f"{seconds:g}s"
