"""Counts, sizes and rates in few cells; humanize is imported when one needs it (10 ms)."""

from __future__ import annotations

import math

from engine.text.figure import UNKNOWN


def format_bytes(size: int) -> str:
    """Format a size in powers of 1,000: `912 B`, `5.4 kB`, `1.2 MB`."""
    from humanize import naturalsize

    text: str = naturalsize(size, format="%.1f")
    return text.replace("Bytes", "B").replace("Byte", "B")


def format_share(used: int, limit: int) -> str:
    """Format how much of a limit is used: `4.0 MB of 512.0 MB`."""
    return f"{format_bytes(used)} of {format_bytes(limit)}"


def fit_count(number: int, width: int) -> str:
    """Format a count in at most `width` cells: `88,310`, `88310`, `88.3k`, `88k`, `1.2M`."""
    for text in (f"{number:,}", f"{number}"):
        if len(text) <= width:
            return text
    from humanize import metric

    for digits in (3, 2, 1):
        text = metric(number, precision=digits).replace(" ", "")
        if len(text) <= width:
            return text
    return ">" + "9" * (width - 1)


def format_count(number: int, noun: str) -> str:
    """`1 task`, `1,204 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


RATE_UNITS = {"/s": 1, "/min": 60, "/h": 3600}
"""Seconds of the units of rates, in the order in which they are tried."""


def format_rate(per_second: float, unit: str = "/s", *, is_titled: bool = False) -> str:
    """Format a rate: `0.0/s`, `9.4/s`, `412/s`; below 0.1 of `unit` in a longer one: `5/min`,
    `40/h`, `<1/h`; `?` if it is no rate. At most five cells and the unit.

    `is_titled`: the title of the column has `unit`, so all numbers are in it: `0.02`, `<0.01`."""
    if not 0 <= per_second < math.inf:
        return UNKNOWN
    amount = round(per_second * RATE_UNITS[unit], 6)
    if is_titled and 0 < amount < 0.1:
        return f"{amount:.2f}" if amount >= 0.005 else "<0.01"
    if not 0 < amount < 0.1:
        number = f"{amount:.1f}" if amount < 99.95 else fit_count(round(amount), 5)
        return number if is_titled else number + unit
    longer = next(
        (it for it in RATE_UNITS if it != unit and per_second * RATE_UNITS[it] >= 1), "/h"
    )
    number = f"{per_second * RATE_UNITS[longer]:.0f}"
    return f"<1{longer}" if number == "0" else number + longer


def format_rates(*rates: float) -> list[str]:
    """Rates to compare, in tasks per second: as `format_rate`, all in their longest unit."""
    texts = [format_rate(rate) for rate in rates]
    units = [unit for unit in RATE_UNITS if any(text.endswith(unit) for text in texts)]
    if len(units) < 2:
        return texts
    numbers = [format_rate(rate, units[-1], is_titled=True) for rate in rates]
    return [text if text == UNKNOWN else text + units[-1] for text in numbers]
