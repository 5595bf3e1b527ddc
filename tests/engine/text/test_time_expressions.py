"""Times to come, as an operator types them."""

import pytest

from engine.text.time_expressions import parse_future_time

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""

TODAY = NOW - (9 * 3600 + 42 * 60 + 8)
HOUR, DAY = 3600, 86400
TYPED = {
    **{"now": NOW, " now ": NOW, "+2h": NOW + 7200, "+1h30m": NOW + 5400, "-5m": NOW - 300},
    **{"14:00": TODAY + 14 * HOUR, "9am": TODAY + DAY + 9 * HOUR},
    **{"09:42:09": NOW + 1, "09:42:08": NOW + DAY},
    **{"tomorrow": TODAY + DAY, "tomorrow 06:00": TODAY + DAY + 6 * HOUR},
    **dict.fromkeys(("2026-11-21 14:00", "2026-11-21T14:00Z"), TODAY + DAY + 14 * HOUR),
    "9999-12-31 23:59:59": 253_402_300_799,
}
NO_TIMES = "", "soon", "7", "25:00", "2026-02-30", "1969-12-31", "+999999999w", "-99999w", "+"


def test_a_time_to_come() -> None:
    """A time of day is the next one; what no calendar knows is refused."""
    assert {typed: parse_future_time(typed, NOW) for typed in TYPED} == TYPED
    for typed in NO_TIMES:
        with pytest.raises(ValueError, match="expected a time to come"):
            parse_future_time(typed, NOW)
