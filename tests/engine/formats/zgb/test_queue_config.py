"""The settings of the mail queue: its token bucket, by every vector of its specification, and the
test mode, whose mails go elsewhere, and when no operator may decide that."""

from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine import policy
from engine.formats.zgb import queue_config
from engine.formats.zgb.place import RateLimit, load_zone
from engine.formats.zgb.queue_config import RedirectDecision
from engine.mail.address import require_address
from engine.policy import UNITS_PER_TOKEN, Bucket, Rate
from tests.store_contents import naming

PACE = RateLimit()


def test_a_bucket_is_refilled() -> None:
    """Tokens come by the time that has passed, up to the cap; the stamp is always now."""
    for per_hour, tokens, last, now, left, stamp in (
        ("40", "0.2", "0", 86_400, 5.0, 86_400),  # long idle
        ("2", "5", "1000", 1000, 2.0, 1000),  # the cap follows the rate
        ("60", "3", "1000", 1000, 3.0, 1000),
        ("40", "1.5", "5000", 4000, 1.5, 4000),
        ("40", "1", "1000", 1000 + 3.2e8, 5.0, 320_001_000),
        ("60", "0", "1000", 1060, 1.0, 1060),
        ("60", "0", "1000", 1059, 59 / 60, 1059),  # a second too early
        ("40", "0.0", "0", 60, 40 / 60, 60),
        ("40", "1e300", "0", 60, 5.0, 60),
    ):
        with naming(per_hour, tokens, last, now, left, stamp):
            found, _ = queue_config.read_bucket(tokens, last, now)
            bucket = policy.refill_bucket(found, queue_config.parse_rate(per_hour, PACE), now)
            assert bucket.units / UNITS_PER_TOKEN == pytest.approx(left)
            assert (bucket.stamp, bucket.tokens) == (stamp, int(left + 1e-9))


def test_an_unreadable_bucket_starts_again() -> None:
    """What is missing, no number or negative is one token now: one mail at once, no burst."""
    wrong_tokens = (None, "many", "nan", "inf", "-1", "1_0", "٤", "9" * 400)
    wrong_times = (None, "noon", "-5", "nan", "1_000")
    rows: list[tuple[str | None, str | None]] = [(None, None), ("", "")]
    rows += [(tokens, "1000") for tokens in wrong_tokens] + [("1", last) for last in wrong_times]
    for tokens, last in rows:
        bucket = Bucket(UNITS_PER_TOKEN, 7000)
        assert queue_config.read_bucket(tokens, last, 7000.5) == (bucket, True)


def test_a_rate_is_kept_in_bounds() -> None:
    """0 is neither unlimited nor off: any setting becomes 1 to 60, and the cap at most 5; a rate
    that is not taken as it is set is reported as odd."""
    for rate, texts in (
        ((40, 5), (None, "40")),
        ((1, 1), ("1", "0", "-7", "fast", "")),
        ((3, 3), ("3",)),
        ((60, 5), ("60", "61", "160", "9" * 400)),
        ((12, 5), ("12.7",)),
        ((20, 5), (" 20 an hour",)),
    ):
        for text in texts:
            assert queue_config.parse_rate(text, PACE) == Rate(*rate)
    for text in ("0", "x", "٤٠", "61", "40", None):
        assert bool(queue_config.rate_problem(text, PACE)) is (text not in ("40", None))


def sent(per_hour: int, minutes: int) -> list[int]:
    """Mails in each minute of an endless backlog, from an empty bucket at 0 on."""
    rate, current, mails = Rate.with_default_burst(per_hour), Bucket(0, 0), []
    for minute in range(1, minutes + 1):
        tokens, stamp = queue_config.render_bucket(policy.refill_bucket(current, rate, minute * 60))
        current = queue_config.read_bucket(tokens, stamp, 0)[0]
        mails.append(current.tokens)
        spent = policy.spend_tokens(current, current.tokens)
        assert spent is not None
        current = spent
    return mails


def test_the_worked_values() -> None:
    """At a run a minute the first mail goes when it should, and in 48 hours none is lost, to
    rounding neither; 40 an hour are 0, 1, 1 and so on, as in the document."""
    for per_hour, cap, first, in_two_days in (
        (1, 1, 60, 48),
        (3, 3, 20, 144),
        (5, 5, 12, 240),
        (6, 5, 10, 288),
        (20, 5, 3, 960),
        (40, 5, 2, 1920),
        (60, 5, 1, 2880),
    ):
        mails = sent(per_hour, 48 * 60)
        assert (Rate.with_default_burst(per_hour).burst, mails.index(1) + 1) == (cap, first)
        assert sum(mails) == in_two_days
    for rate in (7, 13, 29, 37, 47, 59):
        assert sum(sent(rate, 48 * 60)) == 48 * rate
    assert sent(40, 12) == [0, 1, 1] * 4


def test_the_worst_hour() -> None:
    """After a rest, an hour with both ends has the rate and the cap, one with one end one less."""
    for per_hour, open_end, both_ends in (
        (1, 1, 2),
        (3, 5, 6),
        (5, 9, 10),
        (6, 10, 11),
        (20, 24, 25),
        (40, 44, 45),
        (60, 64, 65),
    ):
        rate, mails = Rate.with_default_burst(per_hour), []
        current = policy.Bucket(rate.burst * policy.UNITS_PER_TOKEN, 0)
        for minute in range(121):
            current = policy.refill_bucket(current, rate, minute * 60)
            mails.append(current.tokens)
            current = policy.spend_tokens(current, current.tokens) or current
        assert max(sum(mails[at : at + 61]) for at in range(60)) == both_ends
        assert max(sum(mails[at : at + 60]) for at in range(60)) == open_end


@given(st.integers(0, 5 * UNITS_PER_TOKEN), st.integers(0, 1 << 40))
def test_what_is_written_is_read_back(units: int, stamp: int) -> None:
    """A bucket is the same after it was stored as text, to the last unit."""
    bucket = Bucket(units, stamp)
    assert queue_config.read_bucket(*queue_config.render_bucket(bucket), 0.0) == (bucket, False)


@given(
    st.integers(1, 60), st.lists(st.integers(0, 900), min_size=1, max_size=200), st.integers(0, 5)
)
def test_no_hour_is_above_rate_and_cap(per_hour: int, gaps: list[int], had: int) -> None:
    """Whenever runs come, what is sent in any hour is at most the rate and the cap together."""
    rate, now, times = Rate.with_default_burst(per_hour), 0, []
    current = Bucket(had * UNITS_PER_TOKEN, 0)
    for gap in gaps:
        now += gap
        current = policy.refill_bucket(current, rate, now)
        assert 0 <= current.units <= rate.burst * UNITS_PER_TOKEN
        times += [now] * current.tokens
        current = policy.spend_tokens(current, current.tokens) or current
    for start in times:
        in_hour = sum(start <= moment < start + 3600 for moment in times)
        assert in_hour <= rate.per_hour + rate.burst


# ---- the test mode

BERLIN = load_zone("Europe/Berlin")
PERIOD = queue_config.parse_period("2026-03-01", "2026-03-31", BERLIN)


def at(text: str) -> float:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


BEFORE, INSIDE, AFTER = at("2026-02-01 12:00"), at("2026-03-10 12:00"), at("2026-05-01 12:00")


def test_both_days_of_a_period_count_in_full() -> None:
    """A period is from the first midnight to the end of the last day, by the zone: summer time has
    begun; with a missing, unreadable or reversed date there is none."""
    assert (at("2026-02-28 23:00"), at("2026-03-31 22:00")) == PERIOD
    for start, end in (
        (None, "2026-03-31"),
        ("2026-03-01", None),
        ("", ""),
        ("soon", "2026-03-31"),
        ("2026-03-31", "2026-03-01"),
        ("2026-02-30", "2026-03-31"),
        ("2026-01-01", "9999-12-31"),
    ):
        assert queue_config.parse_period(start, end, BERLIN) is None


def test_only_mails_outside_of_the_period_are_redirected() -> None:
    """A user's mail is redirected when it was both enqueued and sent outside the period; without a
    period or a time of enqueuing it is undecidable, other mails go on."""
    for on, kind, created, now, decision in (
        (False, "user", BEFORE, BEFORE, RedirectDecision.UNCHANGED),
        (True, "organizer", BEFORE, BEFORE, RedirectDecision.UNCHANGED),
        (True, "user", BEFORE, BEFORE, RedirectDecision.REDIRECTED),
        (True, "user", AFTER, AFTER, RedirectDecision.REDIRECTED),
        (True, "user", INSIDE, INSIDE, RedirectDecision.UNCHANGED),
        (True, "user", INSIDE, AFTER, RedirectDecision.UNCHANGED),
        (True, "user", BEFORE, INSIDE, RedirectDecision.UNCHANGED),
        (True, "user", None, INSIDE, RedirectDecision.UNCHANGED),
        (True, "user", None, AFTER, RedirectDecision.UNDECIDABLE),
    ):
        assert queue_config.decide(on, kind, created, now, PERIOD) is decision
    without = {
        (True, "user"): RedirectDecision.UNDECIDABLE,
        (True, "organizer"): RedirectDecision.UNCHANGED,
    }
    for (on, kind), decision in {**without, (False, "user"): RedirectDecision.UNCHANGED}.items():
        assert queue_config.decide(on, kind, BEFORE, BEFORE, None) is decision


def test_a_redirected_address_names_the_recipient() -> None:
    """A bare domain gets the old address before it, cut at 64 letters; a whole one replaces it."""
    assert queue_config.redirected_address("a@b.org", "schumbi.de") == "a=b.org@schumbi.de"
    assert queue_config.redirected_address("a@b.org", "test@schumbi.de") == "test@schumbi.de"
    literal = queue_config.redirected_address("o'b@[IPv6:::1]", "schumbi.de")
    assert literal == require_address("o'b==IPv6===1=@schumbi.de")
    long = queue_config.redirected_address(f"{'l' * 60}@b.example.org", "schumbi.de")
    dotted = queue_config.redirected_address(f"{'l' * 61}@b.example.org", "schumbi.de")
    assert (long, dotted) == (f"{'l' * 60}=b.e@schumbi.de", f"{'l' * 61}=b@schumbi.de")
