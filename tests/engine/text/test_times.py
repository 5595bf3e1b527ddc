"""Times and durations in sentences."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from engine.text.times import format_deadline, format_rough_duration, format_time

NOW = 1_800_000_000.0

DURATIONS: dict[float, str] = {
    **{-5: "0s", 0: "0s", 59.9: "59s", 60: "1m", 2820: "47m", 3600: "1h00m"},
    **{7980: "2h13m", 86399: "23h59m", 86400: "1d00h", 525600: "6d02h"},
    **{36525 * 86400: "36525d", inf: "99999d", nan: "0s"},
}


def test_a_duration_is_in_words() -> None:
    """No sentence leaves thousands of seconds to be divided by its reader."""
    assert {seconds: format_rough_duration(seconds) for seconds in DURATIONS} == DURATIONS


@given(st.floats())
def test_any_moment_can_be_formatted(moment: float) -> None:
    """A time from a file, however odd, never breaks a sentence."""
    assert format_time(moment).isprintable()
    assert format_deadline(moment, NOW).isprintable()
