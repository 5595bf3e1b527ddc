"""Times to come, as an operator types them."""

from __future__ import annotations

import pytest

from engine.text.time_expressions import parse_future_time

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""

TODAY = NOW - (9 * 3600 + 42 * 60 + 8)


TYPED = {
    "now": NOW,
    " now ": NOW,
    "+2h": NOW + 7200,
    "+1h30m": NOW + 5400,
    "-5m": NOW - 300,
    "14:00": TODAY + 14 * 3600,
    "9am": TODAY + 86400 + 9 * 3600,
    "09:42:09": NOW + 1,
    "09:42:08": NOW + 86400,
    "tomorrow": TODAY + 86400,
    "tomorrow 06:00": TODAY + 86400 + 6 * 3600,
    "2026-11-21 14:00": TODAY + 86400 + 14 * 3600,
    "2026-11-21T14:00Z": TODAY + 86400 + 14 * 3600,
    "9999-12-31 23:59:59": 253_402_300_799,
}
NO_TIMES = "", "soon", "7", "25:00", "2026-02-30", "1969-12-31", "+999999999w", "-99999w", "+"


def test_a_time_to_come() -> None:
    """A time of day is the next one; what no calendar knows is refused."""
    assert {typed: parse_future_time(typed, NOW) for typed in TYPED} == TYPED
    for typed in NO_TIMES:
        with pytest.raises(ValueError, match="expected a time to come"):
            parse_future_time(typed, NOW)
