"""Sizes and large counts in words, by humanize, which is imported at the first of them (10 ms)."""

from __future__ import annotations


def format_bytes(size: int) -> str:
    """Format a size in powers of 1,000: `912 B`, `5.4 kB`, `1.2 MB`."""
    from humanize import naturalsize

    text: str = naturalsize(size, format="%.1f")
    return text.replace("Bytes", "B").replace("Byte", "B")


def format_share(used: int, limit: int) -> str:
    """Format how much of a limit is used: `4.0 MB of 512.0 MB`."""
    return f"{format_bytes(used)} of {format_bytes(limit)}"


def format_count(number: int, width: int) -> str:
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
