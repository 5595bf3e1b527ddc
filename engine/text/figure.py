"""A number that knows what it does not know, and the one text of it: `?`, `+`."""

from __future__ import annotations

from collections.abc import Callable

from engine.values import NamedTuple

UNKNOWN = "?"
"""Text of a value that is not known."""


class Figure(NamedTuple):
    """A number from some source."""

    value: float | None
    """None: unknown."""
    is_exact: bool = True
    """False: at least this; what was not read yet may add to it."""

    def text(self, form: Callable[[float], str] = "{:,.0f}".format) -> str:
        """`1,204`, `1,204+`; `?` if it is unknown, or if it is 0 so far."""
        if self.value is None or not (self.value or self.is_exact):
            return UNKNOWN
        return form(self.value) + ("" if self.is_exact else "+")
