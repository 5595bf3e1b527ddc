"""The token bucket in the mail queue's settings: every vector of its specification."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine import policy
from engine.policy import HOUR, Bucket, Rate
from engine.stores.zgb import Pace, bucket

PACE = Pace()


def refilled(per_hour: str, tokens: str | None, last: str | None, now: float) -> Bucket:
    """The bucket as a run at `now` finds it."""
    return policy.refill(bucket.read(tokens, last, now).bucket, bucket.rate(per_hour, PACE), now)


@pytest.mark.parametrize(
    ("per_hour", "tokens", "last", "now", "left", "stamp"),
    [
        pytest.param("40", "0.2", "0", 86_400, 5.0, 86_400, id="long idle"),
        pytest.param("2", "5", "1000", 1000, 2.0, 1000, id="the cap follows the rate"),
        pytest.param("60", "3", "1000", 1000, 3.0, 1000, id="no time has passed"),
        pytest.param("40", "1.5", "5000", 4000, 1.5, 4000, id="the clock was set back"),
        pytest.param("40", "1", "1000", 1000 + 3.2e8, 5.0, 320_001_000, id="far ahead"),
        pytest.param("60", "0", "1000", 1060, 1.0, 1060, id="a minute at one a minute"),
        pytest.param("40", "0.0", "0", 60, 40 / 60, 60, id="less than one"),
        pytest.param("40", "1e300", "0", 60, 5.0, 60, id="more than any bucket holds"),
    ],
)
def test_a_bucket_is_refilled(
    per_hour: str, tokens: str, last: str, now: float, left: float, stamp: int
) -> None:
    """Tokens come by the time that has passed, up to the cap; the stamp is always now."""
    found = refilled(per_hour, tokens, last, now)

    assert found.units / HOUR == pytest.approx(left)
    assert found.stamp == stamp
    assert found.tokens == int(left + 1e-9)


@pytest.mark.parametrize(
    ("tokens", "last"),
    [
        *((None, "1000"), ("1", None), (None, None), ("", ""), ("many", "1000"), ("1", "noon")),
        *(("nan", "1000"), ("inf", "1000"), ("-1", "1000"), ("1", "-5"), ("1", "nan")),
        *(("1_0", "1000"), ("٤", "1000"), ("1", "1_000"), ("9" * 400, "1000")),
    ],
)
def test_a_bucket_that_cannot_be_read_begins_anew(tokens: str | None, last: str | None) -> None:
    """What is missing, no number or negative is one token now: one mail at once, no burst."""
    assert bucket.read(tokens, last, 7000.5) == (Bucket(HOUR, 7000), True)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        *((None, (40, 5)), ("40", (40, 5)), ("1", (1, 1)), ("3", (3, 3)), ("60", (60, 5))),
        *(("0", (1, 1)), ("-7", (1, 1)), ("61", (60, 5)), ("160", (60, 5)), ("fast", (1, 1))),
        *(("", (1, 1)), ("12.7", (12, 5)), (" 20 an hour", (20, 5)), ("9" * 400, (60, 5))),
    ],
)
def test_a_rate_is_kept_in_bounds(text: str | None, rate: tuple[int, int]) -> None:
    """0 is neither unlimited nor off: whatever is set becomes 1 to 60, and the cap at most 5."""
    assert bucket.rate(text, PACE) == Rate(*rate)


@pytest.mark.parametrize(
    ("text", "odd"),
    [("40", False), (None, False), ("0", True), ("x", True), ("٤٠", True), ("61", True)],
)
def test_an_odd_rate_is_said(text: str | None, odd: bool) -> None:
    """A rate that is not taken as it stands says so, and what it is taken for."""
    assert bool(bucket.odd_rate(text, PACE)) is odd


def sent(per_hour: int, minutes: int) -> list[int]:
    """Mails in each minute of an endless backlog, from an empty bucket at 0 on."""
    rate, current, mails = Rate.of(per_hour), Bucket(0, 0), []
    for minute in range(1, minutes + 1):
        tokens, stamp = bucket.written(policy.refill(current, rate, minute * 60))
        current = bucket.read(tokens, stamp, 0).bucket
        mails.append(current.tokens)
        spent = policy.spend(current, current.tokens)
        assert spent is not None
        current = spent
    return mails


@pytest.mark.parametrize(
    ("per_hour", "cap", "first", "in_two_days"),
    [
        *((1, 1, 60, 48), (3, 3, 20, 144), (5, 5, 12, 240), (6, 5, 10, 288), (20, 5, 3, 960)),
        *((40, 5, 2, 1920), (60, 5, 1, 2880)),
    ],
)
def test_the_worked_values(per_hour: int, cap: int, first: int, in_two_days: int) -> None:
    """At a run a minute the first mail goes when it should, and in 48 hours none is lost."""
    mails = sent(per_hour, 48 * 60)

    assert Rate.of(per_hour).burst == cap
    assert mails.index(1) + 1 == first
    assert sum(mails) == in_two_days


def test_no_rate_loses_a_mail_to_rounding() -> None:
    """At every rate from 1 to 60 two days bring exactly two days' mails."""
    assert [sum(sent(rate, 48 * 60)) for rate in range(1, 61)] == [48 * r for r in range(1, 61)]


def test_forty_an_hour_are_two_in_three_minutes() -> None:
    """The document's example: 0, 1, 1 and so on."""
    assert sent(40, 12) == [0, 1, 1] * 4


@pytest.mark.parametrize(
    ("per_hour", "open_end", "both_ends"),
    [(1, 1, 2), (3, 5, 6), (5, 9, 10), (6, 10, 11), (20, 24, 25), (40, 44, 45), (60, 64, 65)],
)
def test_the_worst_hour(per_hour: int, open_end: int, both_ends: int) -> None:
    """After a rest, an hour with both its ends has the rate and the cap together, and one less
    without its last moment.
    """
    rate, mails = Rate.of(per_hour), []
    current = policy.full(rate, 0)
    for minute in range(121):
        current = policy.refill(current, rate, minute * 60)
        mails.append(current.tokens)
        current = policy.spend(current, current.tokens) or current

    assert max(sum(mails[at : at + 61]) for at in range(60)) == both_ends
    assert max(sum(mails[at : at + 60]) for at in range(60)) == open_end


@given(st.integers(0, 5 * HOUR), st.integers(0, 1 << 40))
def test_what_is_written_is_read_back(units: int, stamp: int) -> None:
    """A bucket is the same after it was stored as text, to the last unit."""
    assert bucket.read(*bucket.written(Bucket(units, stamp)), 0.0) == (Bucket(units, stamp), False)


@given(
    st.integers(1, 60), st.lists(st.integers(0, 900), min_size=1, max_size=200), st.integers(0, 5)
)
def test_no_hour_is_above_rate_and_cap(per_hour: int, gaps: list[int], had: int) -> None:
    """Whenever runs come, what is sent in any hour is at most the rate and the cap together."""
    rate, now, times = Rate.of(per_hour), 0, []
    current = Bucket(had * HOUR, 0)
    for gap in gaps:
        now += gap
        current = policy.refill(current, rate, now)
        assert 0 <= current.units <= rate.burst * HOUR
        times += [now] * current.tokens
        current = policy.spend(current, current.tokens) or current

    for start in times:
        in_hour = sum(start <= moment < start + 3600 for moment in times)
        assert in_hour <= rate.per_hour + rate.burst
