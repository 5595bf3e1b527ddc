"""Schedules: their waits, and their text form."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedules import KINDS, NO_RETRY, Schedule, fixed, parse_schedule

each = pytest.mark.parametrize


@each(("text", "waits"), [
    ("exponential 5s limit 4", [5, 10, 20, 40, None]),
    ("exponential 1m max 15m limit 6", [60, 120, 240, 480, 900, 900, None]),
    ("linear 5m +10m limit 5", [300, 900, 1500, 2100, 2700, None]),
    ("linear 20ms +0s", [0.02, 0.02, 0.02]),
    ("stepped 1m 5m 15m limit 4", [60, 300, 900, 900, None]),
    ("stepped 1.5s", [1.5, 1.5]),
    ("fixed 2h limit 2", [7200, 7200, None]),
    ("fixed 0s limit 0", [None, None]),
    ("exponential 1d max 2d", [86400, 172800, 172800]),
])  # fmt: skip
def test_a_schedule_waits_as_its_text_says(text: str, waits: list[float | None]) -> None:
    """Each kind gives its waits in seconds, then None; its text form is the one that was read."""
    schedule = parse_schedule(text)
    assert [schedule.wait(earlier) for earlier in range(len(waits))] == waits
    assert str(schedule) == text


def test_the_random_number_takes_off_its_share() -> None:
    """With jitter 0.5 a wait is between half of it and all of it; without a random number, all."""
    schedule = parse_schedule("fixed 10s limit 1 jitter 0.5")
    assert [schedule.wait(0, drawn) for drawn in (0.0, 0.5, 1.0)] == [10, 7.5, 5]
    assert schedule.wait(0) == 10
    assert schedule.seconds(7) == 10
    assert NO_RETRY.wait(0) is None


@each(("text", "named"), [
    ("", "one of exponential, linear, stepped, fixed, not ''"),
    ("sometimes 5s", "not 'sometimes'"),
    ("exponential", "one wait after exponential"),
    ("fixed 5s 6s", "one wait after fixed"),
    ("stepped limit 3", "waits after stepped"),
    ("linear 5m", "linear FIRST +STEP, not '5m'"),
    ("linear +5m", "one wait after linear"),
    ("fixed -5s", "not '-5s'"), ("fixed 5y", "not '5y'"), ("fixed 1e9s", "not '1e9s'"),
    ("fixed nan", "not 'nan'"),
    ("fixed \u0665s", "a duration such as"),
    ("fixed 99999999d", "at most 1,000,000,000 seconds"),
    ("fixed 5s limit -1", "a number of waits after limit, not '-1'"),
    ("fixed 5s limit 3 limit 4", "limit is there twice"),
    ("fixed 5s jitter 2", "from 0 to 1 after jitter, not '2'"),
    ("fixed 5s jitter nan", "from 0 to 1 after jitter, not 'nan'"),
])  # fmt: skip
def test_a_wrong_word_is_named(text: str, named: str) -> None:
    """A text that is no schedule is refused, with the word that is wrong."""
    with pytest.raises(ValueError, match=r"expected|twice") as refused:
        parse_schedule(text)
    assert named in str(refused.value)


SECONDS = st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000)
WAITS = st.lists(SECONDS, min_size=1, max_size=4)


def a_schedule(kind: str, waits: list[float], step: float, **limits: Any) -> Schedule:
    """One of this kind: several waits, or one, and perhaps a step."""
    some = waits if kind == "stepped" else waits[:1]
    return Schedule(kind, tuple(some), step if kind == "linear" else 0.0, jitter=0.25, **limits)


LIMITS = {"ceiling": st.just(inf) | SECONDS, "limit": st.none() | st.integers(0, 10**8)}
SCHEDULES = st.builds(a_schedule, st.sampled_from(sorted(KINDS)), WAITS, SECONDS, **LIMITS)


@given(SCHEDULES, st.integers(-5, 10**7), st.floats(0, 1))
def test_a_schedule_is_read_back_from_its_text(schedule: Schedule, age: int, drawn: float) -> None:
    """Times in whole milliseconds survive, and no wait is negative or above the ceiling."""
    assert parse_schedule(str(schedule)) == schedule
    assert 0 <= schedule.seconds(age, drawn) <= schedule.ceiling
    assert fixed(1.0).seconds(age) == 1.0
