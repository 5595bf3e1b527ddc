"""Counts, sizes and rates in few cells; humanize is imported when one needs it (10 ms)."""

from __future__ import annotations

from engine.locks.token_buckets import BucketState
from tui.text.times import UNKNOWN_TIME, _is_valid_time


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


def describe_bucket(bucket: BucketState) -> str:
    """The tokens of a rate limit and its rate: `0 of 5 tokens, 720/h`."""
    if bucket.paused:
        return "PAUSED"
    rate = "" if bucket.per_hour is None else f", {bucket.per_hour:,}/h"
    return f"{bucket.tokens:,} of {bucket.burst:,} tokens{rate}"


def format_rate(per_second: float) -> str:
    """Events per second: `0.0`, `9.4`, `412`; `?` if invalid."""
    if not _is_valid_time(per_second):
        return UNKNOWN_TIME
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:,.0f}"
