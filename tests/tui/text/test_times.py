"""Times and durations in few cells; a number that is no time is `?`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.text.figure import UNKNOWN
from tests.console_places import NOW
from tests.tables import each
from tui.text.log_line import log_line
from tui.text.times import (
    format_age,
    format_clock,
    format_countdown,
    format_minutes,
    format_seconds,
    format_time_with_age,
)


@each(("show", "words"), [
    ((format_minutes, -5), "<1m"),
    ((format_minutes, 0), "<1m"),
    ((format_minutes, 59.9), "<1m"),
    ((format_seconds, 59.9), "59s"),
    ((format_seconds, 60), "1m"),
    ((format_seconds, float("nan")), "?"),
    ((format_minutes, 60), "1m"),
    ((format_minutes, 3599), "59m"),
    ((format_minutes, 7980), "2h13m"),
    ((format_minutes, 86399), "23h59m"),
    ((format_minutes, 86400 * 6 + 7200), "6d02h"),
    ((format_minutes, 86400 * 412), "412d"),
    ((format_time_with_age, NOW - 600, NOW), "09:32:08Z (10m ago)"),
    ((format_time_with_age, NOW + 90, NOW), "09:43:38Z (in 1m)"),
    ((format_time_with_age, NOW - 86400, NOW), "2026-11-19 09:42:08Z (1d00h ago)"),
    ((format_countdown, 872), "14:32"),
    ((format_countdown, 0.2), "0:01"),
])  # fmt: skip
def test_times_and_rates(show: tuple[Any, ...], words: str) -> None:
    """A span has two units in six cells, a time its date unless today, an unknown rate is `?`."""
    function, *values = show
    assert function(*values) == words


@given(st.floats() | st.sampled_from([1e300, -1e300, float("nan"), float("inf")]))
def test_any_number_can_be_shown_as_a_time(number: float) -> None:
    """What no clock or calendar holds is shown as `?`, and raises nothing."""
    shows = (format_minutes, format_age, format_countdown, format_clock)
    shown_as = [show(number) for show in shows]
    shown_as += [format_time_with_age(number, NOW), format_time_with_age(NOW, number)]
    log_line(number, "INFO", "text", 40)
    assert all(shown_as)
    if not abs(number) < 1e12:
        assert shown_as == [UNKNOWN] * 6
