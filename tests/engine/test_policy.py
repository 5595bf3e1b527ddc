"""Retry waits, due times, token buckets, and the sentences that say why a task waits."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import policy
from engine.model import State, Task
from engine.policy import MAX_WAIT_SECONDS, UNITS_PER_TOKEN, Bucket, Rate, RetryPolicy

NOW = 1_800_000_000.0


def a_task(state: State = State.PENDING, due: float = 0.0) -> Task:
    """Return a task of which only this matters."""
    return Task("t", "mail_send", state, NOW - 60, due=due)


@pytest.mark.parametrize(("state", "attempts", "reason", "runs"), [
    (State.DEAD, 3, "max_retries_exceeded", 4),
    (State.DEAD, 4, "max_retries_exceeded", 4),
    (State.TRASH, 3, "max_retries_exceeded", 4),
    (State.TRASH, 3, "", 3),
    (State.DEAD, 1, "max_retries_exceeded", 1),
    (State.DEAD, 3, "parked", 3),
    (State.PENDING, 3, "", 3),
])  # fmt: skip
def test_the_last_run_of_an_exhausted_task_counts(
    state: State, attempts: int, reason: str, runs: int
) -> None:
    """A task that used up its retries has had all its runs, though the last one is not stored."""
    task = a_task(state)._replace(attempts=attempts, extra={"dead_reason": reason})
    assert policy.count_runs(task, 4) == runs


def test_an_age_gives_up_a_task_after_two_attempts_and_if_it_was_seen() -> None:
    """Only after an attempt that was made before, and if runs have seen its age pass."""
    retry = policy.contract_retries()._replace(lifetime=3600.0)
    task = Task("t", "mail_send", State.PENDING, NOW - 7200, attempts=1)
    assert retry.retry_delay(task, NOW) is None
    assert retry.retry_delay(task._replace(attempts=0), NOW) == 60
    unseen = retry._replace(age=lambda moment, now: 60.0)
    assert unseen.retry_delay(task, NOW) == 120


@pytest.mark.parametrize(("profile", "waits", "counted"), [
    (policy.contract_retries(), [60, 120, 240, None], 3),
    (policy.shipped_retries(), [60, 120, None], 3),
    (policy.shipped_retries(limit=4), [60, 120, 240, None], 4),
    (policy.contract_retries(limit=8), [60, 120, 240, 480, 900, 900, 900, 900, None], 8),
    (policy.contract_retries(limit=0), [None], 0),
    (policy.contract_retries(base=5, ceiling=15, limit=3), [5, 10, 15, None], 3),
    (policy.contract_retries(base=0), [0, 0, 0, None], 3),
])  # fmt: skip
def test_failures_wait_as_a_table_says(
    profile: RetryPolicy, waits: list[Any], counted: int
) -> None:
    """Each failure waits as its table says, until the one that buries; then so many are counted."""
    assert [profile.schedule.wait(retries) for retries in range(len(waits))] == waits
    assert profile.max_runs == len(waits)
    assert len(waits) - 1 + profile.final_attempts == counted


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 10**6), st.integers(0, 10**7))
def test_no_wait_exceeds_the_ceiling(base: float, ceiling: float, limit: int, retries: int) -> None:
    """However often it failed, a task waits no longer than the ceiling, and no less than before."""
    for make in (policy.contract_retries, policy.shipped_retries):
        wait_after = make(base, ceiling, limit).schedule.wait
        wait = wait_after(retries)
        assert (wait is None) == (retries + make().final_attempts >= limit)
        if wait is not None:
            assert 0 <= wait <= ceiling
            assert retries == 0 or wait >= (wait_after(retries - 1) or 0)


def test_a_clock_that_jumped_parks_no_task() -> None:
    """A due time beyond a week is not believed; the moment itself, and none, are due."""
    for due, written, trusted in (
        (0.0, NOW, 0.0), (NOW + 900, NOW, NOW + 900),
        (NOW + MAX_WAIT_SECONDS, NOW, NOW + MAX_WAIT_SECONDS),
        (NOW + MAX_WAIT_SECONDS + 1, NOW - 10, NOW - 10 + MAX_WAIT_SECONDS),
        (NOW + 10 * MAX_WAIT_SECONDS, NOW - MAX_WAIT_SECONDS - 1, NOW - 1),
        (NOW + 10 * MAX_WAIT_SECONDS, NOW + 9 * MAX_WAIT_SECONDS, NOW),
        (inf, NOW, NOW + MAX_WAIT_SECONDS), (nan, NOW, NOW + MAX_WAIT_SECONDS),
    ):  # fmt: skip
        assert policy.limit_due(due, written, NOW) == trusted
    for moment, is_due in ((None, True), (0.0, True), (NOW, True), (NOW + 0.1, False)):
        assert policy.is_due(a_task()._replace(due=moment), NOW) is is_due


def test_a_threshold_is_not_beyond_itself() -> None:
    """A lock is stuck, and a task old, only after the threshold, as in the real program."""
    assert [policy.is_stuck(seconds, 1200) for seconds in (1200, 1200.5)] == [False, True]
    week = 7 * 86400
    assert [policy.is_older_than(age, 7) for age in (week, week + 1)] == [False, True]
    assert not policy.is_older_than(0.0, 0)


def test_a_bucket_refills_by_the_time_passed() -> None:
    """Never beyond the burst; more than there is cannot be spent; no rate brings no token."""
    years = 10 * 365 * 86400
    for rate, bucket, now, tokens in (
        (Rate.with_default_burst(40), Bucket(720, 0), 86400, 5),  # long idle
        # the cap follows the rate
        (Rate.with_default_burst(2), Bucket(5 * UNITS_PER_TOKEN, 1000), 1000, 2),
        (Rate.with_default_burst(40), Bucket(5400, 5000), 4000, 1),  # clock back
        (Rate.with_default_burst(40), Bucket(0, 1000), 1000 + years, 5),
        (Rate.with_default_burst(40), Bucket(0, 0), 89, 0),
        (Rate.with_default_burst(40), Bucket(0, 0), 90, 1),
        (Rate.with_default_burst(40), Bucket(-9999, 0), 90, 1),  # damaged
        (Rate(0, 5), Bucket(0, 0), 10**9, 0),
        (Rate(60, 20), Bucket(0, 0), 86400, 20),
    ):
        refilled = policy.refill_bucket(bucket, rate, now)
        assert (refilled.tokens, refilled.stamp) == (tokens, now), (rate, bucket)
    assert policy.spend_tokens(Bucket(2 * UNITS_PER_TOKEN, 7), 2) == Bucket(0, 7)
    assert policy.spend_tokens(Bucket(2 * UNITS_PER_TOKEN - 1, 7), 2) is None
    assert policy.next_token_time(Bucket(0, 7), Rate(0, 5)) == inf
    assert policy.next_token_time(Bucket(0, 7), Rate(5, 0)) == inf


def test_a_run_each_minute_spends_exactly_the_rate() -> None:
    """Not one token is lost to rounding in 48 hours; after a rest an hour holds a burst more."""
    for per_hour, first, window, two_days in (
        (1, 60, (1, 2), 48), (3, 20, (5, 6), 144), (5, 12, (9, 10), 240), (6, 10, (10, 11), 288),
        (20, 3, (24, 25), 960), (40, 2, (44, 45), 1920), (60, 1, (64, 65), 2880),
    ):  # fmt: skip
        rate = Rate.with_default_burst(per_hour)
        fresh = spends(Bucket(0, 0), rate, minutes=48 * 60)
        rested = spends(policy.Bucket(rate.burst * policy.UNITS_PER_TOKEN, 0), rate, minutes=60)
        assert sum(fresh) == two_days
        assert next(minute for minute, n in enumerate(fresh) if n) == first
        assert (sum(rested[:60]), sum(rested)) == window
    assert spends(Bucket(0, 0), Rate.with_default_burst(40), 12)[1:] == [0, 1, 1] * 4


def spends(bucket: Bucket, rate: Rate, minutes: int) -> list[int]:
    """Spend all there is, once a minute; answers with how many each time."""
    counts = []
    for minute in range(minutes + 1):
        bucket = policy.refill_bucket(bucket, rate, minute * 60)
        counts.append(bucket.tokens)
        bucket = policy.spend_tokens(bucket, bucket.tokens) or bucket
    return counts


RATES = st.builds(Rate, st.integers(1, 10**5), st.integers(1, 100))
BUCKETS = st.builds(Bucket, st.integers(-(10**9), 10**12), st.integers(-(10**9), 10**10))


@given(RATES, BUCKETS, st.lists(st.integers(-(10**9), 10**10), min_size=1), st.integers(0, 10**9))
def test_a_bucket_holds_no_more_than_its_burst_wherever_the_clock_jumps(
    rate: Rate, bucket: Bucket, times: list[int], back: int
) -> None:
    """A clock set back brings nothing, and from then on it brings what it always did."""
    for now in times:
        bucket = policy.refill_bucket(bucket, rate, now)
        assert 0 <= bucket.units <= rate.burst * UNITS_PER_TOKEN
        assert bucket.stamp == now
    before = policy.refill_bucket(bucket, rate, 2 * 10**10)
    jumped = policy.refill_bucket(before, rate, 2 * 10**10 - back)
    assert jumped.units == before.units
    wait = policy.next_token_time(jumped, rate) - jumped.stamp
    assert 0 <= wait <= -(-UNITS_PER_TOKEN // rate.per_hour)
    assert policy.refill_bucket(jumped, rate, jumped.stamp + wait).tokens >= 1


@given(RATES, BUCKETS, st.lists(st.integers(0, 1000)))
def test_refilling_often_brings_what_one_does(rate: Rate, bucket: Bucket, steps: list[int]) -> None:
    """Looking often changes nothing; a token is there at the second that is said, none before."""
    often = policy.refill_bucket(bucket, rate, bucket.stamp)
    when = policy.next_token_time(often, rate)
    assert policy.refill_bucket(often, rate, when).tokens >= 1
    if when > bucket.stamp:
        assert policy.refill_bucket(often, rate, when - 1).tokens == 0
    for step in steps:
        often = policy.refill_bucket(often, rate, often.stamp + step)
    assert often == policy.refill_bucket(bucket, rate, bucket.stamp + sum(steps))
