"""A number that knows what it does not know, and the one text of it: `?`, `+`, its age."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.text.times import format_rough_duration

UNKNOWN = "?"
"""Text of a value that is not known."""

FRESH_SECONDS = 5.0
"""Age in seconds up to which a number is shown without it: places are read every second."""


class Figure(NamedTuple):
    """A number from some source."""

    value: float | None
    """None: unknown."""
    is_exact: bool = True
    """False: at least this; what was not read yet may add to it."""
    as_of: float | None = None
    """When it was read, epoch seconds UTC; None: just now."""

    def text(self, now: float = 0.0, form: Callable[[float], str] = "{:,.0f}".format) -> str:
        """`1,204`, `1,204+`, `1,204 (3m old)`; `?` if it is unknown, or if it is 0 so far."""
        if self.value is None or not (self.value or self.is_exact):
            return UNKNOWN
        text = form(self.value) + ("" if self.is_exact else "+")
        age = 0.0 if self.as_of is None else now - self.as_of
        return text if age <= FRESH_SECONDS else f"{text} ({format_rough_duration(age)} old)"
