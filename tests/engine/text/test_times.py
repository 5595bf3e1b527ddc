"""Times and durations in sentences."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from engine.text.times import format_deadline, format_duration, format_rough_duration, format_time

NOW = 1_800_000_000.0

DURATIONS: dict[float, str] = {
    **{-5: "0s", 0: "0s", 59.9: "59s", 60: "1m", 2820: "47m", 3600: "1h00m"},
    **{7980: "2h13m", 86399: "23h59m", 86400: "1d00h", 525600: "6d02h"},
    **{36525 * 86400: "36525d", inf: "99999d", nan: "0s"},
}


SPELLED = {0: "0s", 3.2: "3s", 102: "1m42s", 59.6: "1m00s", 4620: "1h17m", 525_600: "6d02h"}
SPELLED |= {1e12: "99999d", -5: "0s"}


def test_a_duration_is_in_words() -> None:
    """It fits a narrow column; a rough one has no seconds from a minute on."""
    assert {seconds: format_duration(seconds) for seconds in SPELLED} == SPELLED
    assert {seconds: format_rough_duration(seconds) for seconds in DURATIONS} == DURATIONS


@given(st.floats())
def test_any_moment_can_be_formatted(moment: float) -> None:
    """A time from a file, however odd, never breaks a sentence."""
    assert format_time(moment).isprintable()
    assert format_deadline(moment, NOW).isprintable()
