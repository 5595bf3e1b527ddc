"""The one grammar of a duration, as an operator types it in options, settings, filters, prompts."""

from __future__ import annotations

from collections.abc import Mapping

DURATION_HINT = "a duration such as 30s, 5m, 2h, 1d or 1h30m"
MAX_SECONDS = 10**9
"""31 years: longer than any wait, and accepted by every system call."""
UNITS: Mapping[str, float] = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
"""Unit -> its seconds, the largest first."""
_UNIT_NAMES = {"m": "minutes", "h": "hours", "d": "days", "s": "seconds"}
_MAX_DIGITS = 20


def duration_hint(bare: str) -> str:
    """What was expected where a number alone has this unit; "" where it has none."""
    return f"{DURATION_HINT}, or a number of {_UNIT_NAMES[bare]}" if bare else DURATION_HINT


def parse_duration(text: str, bare: str = "") -> float:
    """Parse a duration to seconds: `20ms`, `1.5s`, `90s`, `5m`, `2h`, `1d`, `1w`, `1h30m`.

    `bare` is the unit of a number alone; "" refuses it.

    Raises:
        ValueError: not a duration, or one of more than 31 years."""
    remaining = f"{text}{bare}" if _is_number(text) else text.lower()
    seconds = 0.0
    while remaining:
        number = remaining[: len(remaining) - len(remaining.lstrip(".0123456789"))]
        remaining = remaining[len(number) :]
        unit = next((each for each in ("ms", *UNITS) if remaining.startswith(each)), "")
        if not unit or not _is_number(number):
            raise ValueError(f"expected {duration_hint(bare)}")
        thousandths = unit == "ms"  # exact: 20 / 1000 is the float that 0.02 is
        seconds += float(number) / 1000 if thousandths else float(number) * UNITS[unit]
        remaining = remaining[len(unit) :]
    if not text:
        raise ValueError(f"expected {duration_hint(bare)}")
    if seconds > MAX_SECONDS:
        raise ValueError(f"expected a duration of at most {MAX_SECONDS:,} seconds")
    return seconds


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= _MAX_DIGITS
