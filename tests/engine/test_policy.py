"""Retry waits, due times, token buckets, and the sentences that say why a task waits."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import policy
from engine.model import STALLED_KEY, Lease, LockEvidence, State, Task, Verdict
from engine.policy import (
    MAX_WAIT_SECONDS,
    UNITS_PER_TOKEN,
    Bucket,
    Circumstances,
    Rate,
    RetryPolicy,
)

NOW = 1_800_000_000.0


def a_task(state: State = State.PENDING, due: float = 0.0) -> Task:
    """Return a task of which only this matters."""
    return Task("t", "mail_send", state, NOW - 60, due=due)


def test_an_age_gives_up_a_task_after_two_attempts_and_if_it_was_seen() -> None:
    """A task beyond its lifetime is given up by age only if an attempt was made before, and if runs
    have seen its age pass."""
    retry = policy.contract_retries()._replace(lifetime=3600.0)
    task = Task("t", "mail_send", State.PENDING, NOW - 7200, attempts=1)
    assert retry.retry_delay(task, NOW) is None
    assert retry.retry_delay(task._replace(attempts=0), NOW) == 60
    unseen = retry._replace(age=lambda moment, now: 60.0)
    assert unseen.retry_delay(task, NOW) == 120


@pytest.mark.parametrize(
    ("profile", "waits", "counted"),
    [
        (policy.contract_retries(), [60, 120, 240, None], 3),
        (policy.shipped_retries(), [60, 120, None], 3),
        (policy.shipped_retries(limit=4), [60, 120, 240, None], 4),
        (policy.contract_retries(limit=8), [60, 120, 240, 480, 900, 900, 900, 900, None], 8),
        (policy.contract_retries(limit=0), [None], 0),
        (policy.contract_retries(base=5, ceiling=15, limit=3), [5, 10, 15, None], 3),
        (policy.contract_retries(base=0), [0, 0, 0, None], 3),
    ],
)
def test_failures_wait_as_the_tables_say(
    profile: RetryPolicy, waits: list[float | None], counted: int
) -> None:
    """Each failure waits as its table says, until the one that buries; then so many are counted."""
    assert [profile.schedule.wait(retries) for retries in range(len(waits))] == waits
    assert profile.max_runs == len(waits)
    assert len(waits) - 1 + profile.final_attempts == counted


@given(
    base=st.floats(0, 1e6),
    ceiling=st.floats(0, 1e6),
    limit=st.integers(0, 10**6),
    retries=st.integers(0, 10**7),
)
def test_no_wait_is_beyond_the_ceiling(
    base: float, ceiling: float, limit: int, retries: int
) -> None:
    """However often it failed, a task waits no longer than the ceiling, and no less than before."""
    for make in (policy.contract_retries, policy.shipped_retries):
        wait_after = make(base, ceiling, limit).schedule.wait
        wait = wait_after(retries)
        assert (wait is None) == (retries + make().final_attempts >= limit)
        if wait is not None:
            assert 0 <= wait <= ceiling
            assert retries == 0 or wait >= (wait_after(retries - 1) or 0)


def test_a_clock_that_jumped_parks_no_task() -> None:
    """A due time further than a week away is not believed; the moment itself counts as due, and a
    task without one is not held back."""
    for due, written, trusted in (
        (0.0, NOW, 0.0),
        (NOW + 900, NOW, NOW + 900),
        (NOW + MAX_WAIT_SECONDS, NOW, NOW + MAX_WAIT_SECONDS),
        (NOW + MAX_WAIT_SECONDS + 1, NOW - 10, NOW - 10 + MAX_WAIT_SECONDS),
        (NOW + 10 * MAX_WAIT_SECONDS, NOW - MAX_WAIT_SECONDS - 1, NOW - 1),
        (NOW + 10 * MAX_WAIT_SECONDS, NOW + 9 * MAX_WAIT_SECONDS, NOW),
        (inf, NOW, NOW + MAX_WAIT_SECONDS),
        (nan, NOW, NOW + MAX_WAIT_SECONDS),
    ):
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
    """Refilling gives what the time has brought, never more than the burst; spending more than
    there is gives nothing at all, and no rate brings no token."""
    years = 10 * 365 * 86400
    for rate, bucket, now, tokens in (
        (Rate.with_default_burst(40), Bucket(720, 0), 86400, 5),  # long idle
        (
            Rate.with_default_burst(2),
            Bucket(5 * UNITS_PER_TOKEN, 1000),
            1000,
            2,
        ),  # cap follows rate
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
        (1, 60, (1, 2), 48),
        (3, 20, (5, 6), 144),
        (5, 12, (9, 10), 240),
        (6, 10, (10, 11), 288),
        (20, 3, (24, 25), 960),
        (40, 2, (44, 45), 1920),
        (60, 1, (64, 65), 2880),
    ):
        rate = Rate.with_default_burst(per_hour)
        fresh = spends(Bucket(0, 0), rate, minutes=48 * 60)
        rested = spends(policy.Bucket(rate.burst * policy.UNITS_PER_TOKEN, 0), rate, minutes=60)
        assert sum(fresh) == two_days
        assert next(minute for minute, n in enumerate(fresh) if n) == first
        assert (sum(rested[:60]), sum(rested)) == window
    assert spends(Bucket(0, 0), Rate.with_default_burst(40), 12)[1:] == [
        0,
        1,
        1,
        0,
        1,
        1,
        0,
        1,
        1,
        0,
        1,
        1,
    ]


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
    """It holds between nothing and its burst; a clock that is set back brings nothing, and from
    then on it brings what it always did."""
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
def test_refilling_often_brings_what_refilling_once_does(
    rate: Rate, bucket: Bucket, steps: list[int]
) -> None:
    """Nothing is lost or won by looking often; at the second that is said there is a token, and a
    second before there was none."""
    often = policy.refill_bucket(bucket, rate, bucket.stamp)
    when = policy.next_token_time(often, rate)
    assert policy.refill_bucket(often, rate, when).tokens >= 1
    if when > bucket.stamp:
        assert policy.refill_bucket(often, rate, when - 1).tokens == 0
    for step in steps:
        often = policy.refill_bucket(often, rate, often.stamp + step)
    assert often == policy.refill_bucket(bucket, rate, bucket.stamp + sum(steps))


HELD = LockEvidence(Verdict.HELD, 77, NOW - 5, 5, "PID 77 is running")
NOBODY = LockEvidence(Verdict.FREE, reason="no lock file")
STUCK = LockEvidence(Verdict.STUCK, 77, NOW - 2820, 2820, "PID 77 is alive, ...")
STALE = LockEvidence(Verdict.STALE, 77, NOW - 5, 5, "PID 77 is gone")
ODD = LockEvidence(Verdict.UNKNOWN, reason="/run/queue.lock: Permission denied\x1b")
NO_HANDLER = "no handler configured for mail_send"
IS_HELD = "lock held by PID 77, last heartbeat 5s ago"
IS_STUCK = "lock is stuck: no heartbeat from PID 77 for 47m"
UNSEEN = "no worker running"
BACKOFF = "backoff until 08:04:00Z (in 4m)"


WHY_PENDING: tuple[tuple[float, Circumstances, str], ...] = (
    # what keeps the task itself
    (0, Circumstances(pause_reason="by ann"), "the queue is paused: by ann"),
    (90, Circumstances(), "backoff until 08:01:30Z (in 1m)"),
    (90000, Circumstances(), "backoff until 2027-01-16 09:00:00Z (in 1d01h)"),
    (inf, Circumstances(), "backoff until never"),
    (1e20, Circumstances(), "backoff until epoch second 1e+20"),
    (0, Circumstances(is_handled=str.isdigit), NO_HANDLER),
    (0, Circumstances(closed_reason="no mail\x1b transport", tasks_ahead=2), "no mail\ufffd "
    "transport"),
    (0, Circumstances(token_at=NOW + 1), "no token until 08:00:01Z (in 1s)"),
    (0, Circumstances(token_at=inf), "no token until never"),
    # the lock
    (0, Circumstances(HELD, str.islower, NOW), f"next in line; {IS_HELD}"),
    (0, Circumstances(LockEvidence(Verdict.HELD, 77)), "next in line; lock held by PID 77"),
    (0, Circumstances(LockEvidence(Verdict.HELD, None, NOW - 60, 60)),
     "next in line; lock held by an unknown PID, "
     "last heartbeat 1m ago"),
    (0, Circumstances(STUCK), IS_STUCK),
    (0, Circumstances(STUCK._replace(pid=None)), IS_STUCK.replace("PID 77", "its holder")),
    (0, Circumstances(STALE), "lock is stale: PID 77 is gone; the next worker takes it over"),
    (0, Circumstances(ODD), "lock state unknown: /run/queue.lock: Permission denied\ufffd"),
    # others first
    (0, Circumstances(tasks_ahead=1), "1 older task first"),
    (0, Circumstances(tasks_ahead=15, is_age_order=False), "15 other tasks first"),
    (0, Circumstances(pause_reason="mailQueueEnabled is "
    "0", token_at=NOW + 1, tasks_ahead=1, is_age_order=False),
     "the queue is paused: mailQueueEnabled is 0 | no token until 08:00:01Z (in 1s)"
     " | 1 other task first"),
    (0, Circumstances(HELD, tasks_ahead=1200), f"1,200 older tasks first | {IS_HELD}"),
    # nobody is there
    (0, Circumstances(), f"due, {UNSEEN}"),
    (-2820, Circumstances(), f"due for 47m, {UNSEEN}"),
    (-7980, Circumstances(NOBODY, str.islower, NOW, last_run=NOW - 200),
     f"due for 2h13m, {UNSEEN}: lock is free, last run 3m ago"),
    (0, Circumstances(NOBODY, tasks_ahead=3, last_run=NOW - 900), "3 older tasks first"),
    (0, Circumstances(NOBODY, tasks_ahead=3, last_run=NOW - 901),
     f"3 older tasks first | due, {UNSEEN}: lock is free, last run 15m ago"),
    (-3600, Circumstances(tasks_ahead=3, is_age_order=False, is_idle=True),
     f"3 other tasks first | due for 1h00m, {UNSEEN}"),
    (-3600, Circumstances(HELD, tasks_ahead=3, is_idle=True), f"3 older tasks first | {IS_HELD}"),
    # more than one thing
    (240, Circumstances(is_handled=str.isdigit), f"{BACKOFF} | {NO_HANDLER}"),
    (240, Circumstances(HELD, token_at=NOW + 300, tasks_ahead=7),
     f"{BACKOFF} | no token until 08:05:00Z (in 5m) | then 7 older tasks first"),
    (240, Circumstances(token_at=NOW + 239), BACKOFF),
    (240, Circumstances(NOBODY, last_run=NOW - 86400),
     f"{BACKOFF} | no worker running, last run 1d00h ago"),
    (-1, Circumstances(HELD._replace(verdict=Verdict.STUCK), str.isdigit, NOW + 60,
                       pause_reason="x", tasks_ahead=4, last_run=0.0),
     f"the queue is paused: x | {NO_HANDLER} | lock is stuck: no heartbeat from PID 77 "
     "for 5s | no token until 08:01:00Z (in 1m)"),
    (0, Circumstances(STUCK, token_at=NOW + 60, tasks_ahead=2, last_run=0.0),
     f"{IS_STUCK} | no token until 08:01:00Z (in 1m) | 2 older tasks first"),
)  # fmt: skip


def test_a_pending_task_is_told_what_keeps_it() -> None:
    """What keeps it now comes first, then what will keep it after that."""
    for due, about, sentences in WHY_PENDING:
        task = a_task(due=NOW + due if due else 0.0)
        found = list(policy.why_waiting(task, NOW, about))
        assert " | ".join(found) == sentences, about
        assert policy.join_reasons(found) == sentences.replace(" | ", "; ")


def a_dead_task(attempts: int | None, **extra: str) -> Task:
    """A task that was given up."""
    return a_task(State.DEAD)._replace(attempts=attempts, extra=extra)


TAKEN = a_task(State.ACTIVE)._replace(lease=Lease("worker \x1b7", NOW - 90, NOW - 30))
CLAIMED = a_task(State.ACTIVE)._replace(lease=Lease("", NOW - 90))
RETRY = "stays here until retried (attempts reset)"
GIVEN_BACK = "the next worker counts an attempt and requeues it"
BACK = "the next worker counts a failed attempt and requeues it"


BY_AN_OPERATOR = "held by an operator until released"
LAPSES = "its lease expires at 08:00:30Z (in 30s)"
AN_END = Lease("", NOW - 90, NOW + 30)
NO_TOKEN = "waits: no token for domain example.com"
WHY_OTHERS: tuple[tuple[Task, Circumstances, str], ...] = (
    (a_task(State.HELD), Circumstances(pause_reason="x"), BY_AN_OPERATOR),
    (a_task(State.HELD, NOW + 60), Circumstances(is_handled=str.isdigit),
     f"{BY_AN_OPERATOR} | backoff until 08:01:00Z (in 1m) | {NO_HANDLER}"),
    (CLAIMED, Circumstances(lock=HELD), "being processed by PID 77 for 1m"),
    (CLAIMED, Circumstances(), "being processed for 1m"),
    (a_task(State.ACTIVE), Circumstances(), "being processed"),
    (a_task(State.ACTIVE)._replace(extra={STALLED_KEY: "no lock"}), Circumstances(),
     "stalled? no lock: a worker returns it, or you do with release"),
    (TAKEN, Circumstances(),
     f"its lease expired 30s ago: {GIVEN_BACK} | claimed 1m ago by worker \ufffd7"),
    (TAKEN._replace(lease=Lease("worker \x1b7", NOW - 90, NOW + 30)), Circumstances(),
     f"claimed 1m ago by worker \ufffd7 | {LAPSES}"),
    (TAKEN._replace(lease=AN_END), Circumstances(),
     f"claimed 1m ago, owner unknown | {LAPSES}"),
    (TAKEN._replace(lease=Lease("", 0.0, 0.0)), Circumstances(),
     f"its lease expired: {GIVEN_BACK}"),
    (TAKEN._replace(lease=AN_END), Circumstances(lock=HELD), "being processed by PID 77 for 1m"),
    (CLAIMED, Circumstances(lock=NOBODY),
     f"orphaned: lock is free, claimed 1m ago | {BACK}"),
    (CLAIMED, Circumstances(lock=STALE),
     f"orphaned: PID 77 is gone, claimed 1m ago | {BACK}"),
    (CLAIMED, Circumstances(lock=STUCK), f"{IS_STUCK}, claimed 1m ago"),
    (a_task(State.ACTIVE), Circumstances(lock=ODD),
     "lock state unknown: /run/queue.lock: Permission denied\ufffd"),
    (a_dead_task(3, dead_since=str(NOW - 7980), dead_reason="max_retries_exceeded"),
     Circumstances(pause_reason="x"),
     f"given up 2h13m ago (max_retries_exceeded) | {RETRY}"),
    (a_dead_task(1), Circumstances(), f"given up | {RETRY}"),
    (a_dead_task(None, dead_since="soon"), Circumstances(is_handled=str.isdigit),
     f"given up | {RETRY} | {NO_HANDLER}"),
    (a_task(due=NOW + 60)._replace(error=NO_TOKEN), Circumstances(lock=HELD),
     f"{NO_TOKEN} until 08:01:00Z (in 1m)"),
    (a_task()._replace(due=None), Circumstances(), "due time unknown"),
    (a_task()._replace(due=None), Circumstances(pause_reason="x"), "the queue is paused: x"),
    (a_task()._replace(due=None), Circumstances(is_idle=True), "due, no worker running"),
    (a_task(State.DONE), Circumstances(), "done; its store deletes it later"),
    (a_task(State.TRASH), Circumstances(),
     "purged by an operator: workers ignore it; it can be restored"),
)  # fmt: skip


def test_any_other_task_is_told_how_it_stands() -> None:
    """One that is held, worked on, put off, given up or put away is told that, and the rest."""
    for task, about, sentences in WHY_OTHERS:
        assert " | ".join(policy.why_waiting(task, NOW, about)) == sentences
    assert {task.state for task, _, _ in WHY_OTHERS} == set(State)


DURATIONS: dict[float, str] = {
    **{-5: "0s", 0: "0s", 59.9: "59s", 60: "1m", 2820: "47m", 3600: "1h00m"},
    **{7980: "2h13m", 86399: "23h59m", 86400: "1d00h", 525600: "6d02h"},
    **{36525 * 86400: "36525d", inf: "99999d", nan: "0s"},
}


def test_a_duration_is_in_words() -> None:
    """No sentence leaves thousands of seconds to be divided by its reader."""
    assert {seconds: policy.format_rough_duration(seconds) for seconds in DURATIONS} == DURATIONS


@given(st.floats())
def test_any_moment_can_be_said(moment: float) -> None:
    """A time from a file, however odd, never breaks a sentence."""
    assert policy.format_time(moment).isprintable()
    assert policy.format_deadline(moment, NOW).isprintable()
