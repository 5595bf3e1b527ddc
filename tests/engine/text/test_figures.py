"""Rates in words."""

import pytest

from engine.text.figures import format_rate


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0.0, "0.0/s"),
        (2.52, "2.5/s"),
        (0.1, "0.1/s"),
        (5 / 60, "5/min"),
        (40 / 3600, "40/h"),
        (1 / 86400, "<1/h"),
        (99.97, "100/s"),
        (12_345.0, "12345/s"),
        (1_234_567.0, "1.23M/s"),
        (float("nan"), "?"),
        (float("inf"), "?"),
    ],
)
def test_a_small_rate_is_shown_in_a_longer_unit(per_second: float, text: str) -> None:
    """Below 0.1 a second a rate is shown per minute or hour, so that only no events are 0.0."""
    assert format_rate(per_second) == text


@pytest.mark.parametrize(
    ("per_minute", "text"), [(0.0, "0.0"), (0.7, "0.7"), (0.05, "3/h"), (118.0, "118")]
)
def test_a_column_repeats_its_unit_only_if_it_differs(per_minute: float, text: str) -> None:
    """A number without a unit is in that of the column's title."""
    assert format_rate(per_minute / 60, "/min", is_titled=True) == text
