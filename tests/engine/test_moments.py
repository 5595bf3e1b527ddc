"""Times to come, as an operator types them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from engine.moments import ahead

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""

TODAY = NOW - (9 * 3600 + 42 * 60 + 8)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("typed", "when"),
    [
        ("now", NOW),
        (" now ", NOW),
        ("+2h", NOW + 7200),
        ("+1h30m", NOW + 5400),
        ("-5m", NOW - 300),
        ("14:00", TODAY + 14 * 3600),
        ("9am", TODAY + 86400 + 9 * 3600),
        ("09:42:09", NOW + 1),
        ("09:42:08", NOW + 86400),
        ("tomorrow", TODAY + 86400),
        ("tomorrow 06:00", TODAY + 86400 + 6 * 3600),
        ("2026-11-21 14:00", TODAY + 86400 + 14 * 3600),
        ("2026-11-21T14:00Z", TODAY + 86400 + 14 * 3600),
        ("9999-12-31 23:59:59", 253_402_300_799),
    ],
)
def test_a_time_to_come(typed: str, when: float) -> None:
    """A time of day is the next one; a date, a word and a distance are what they say."""
    assert ahead(typed, NOW) == when


@pytest.mark.parametrize(
    "typed", ["", "soon", "7", "25:00", "2026-02-30", "1969-12-31", "+999999999w", "-99999w", "+"]
)
def test_what_is_no_time_to_come(typed: str) -> None:
    """What no calendar knows is refused, with what was expected."""
    with pytest.raises(ValueError, match="expected a time to come"):
        ahead(typed, NOW)
