"""The settings of the mail queue: its token bucket and the test mode."""

from datetime import UTC, datetime

import hypothesis.strategies as st
from hypothesis import given

from engine import policy
from engine.formats.zgb import queue_config
from engine.formats.zgb.place import RateLimit, load_zone
from engine.formats.zgb.queue_config import RedirectDecision
from engine.mail.address import require_address
from engine.policy import UNITS_PER_TOKEN, Bucket, Rate

PACE = RateLimit()


def test_a_bucket_is_read_from_text() -> None:
    """Tokens with a fraction of any size, and the second of the last refill."""
    for tokens, last, units, stamp in (
        ("0.2", "0", UNITS_PER_TOKEN / 5, 0),
        ("5", "1000", 5 * UNITS_PER_TOKEN, 1000),
        ("1.5", "5000", 1.5 * UNITS_PER_TOKEN, 5000),
    ):
        assert queue_config.read_bucket(tokens, last, 60) == (Bucket(int(units), stamp), False)
    bucket, _ = queue_config.read_bucket("1e300", "0", 60)
    assert policy.refill_bucket(bucket, queue_config.parse_rate("40", PACE), 60).tokens == 5


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
    """Any setting becomes 1 to 60, and the cap at most 5; what is not taken as set is odd."""
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


@given(st.integers(0, 5 * UNITS_PER_TOKEN), st.integers(0, 1 << 40))
def test_what_is_written_is_read_back(units: int, stamp: int) -> None:
    """A bucket is the same after it was stored as text, to the last unit."""
    bucket = Bucket(units, stamp)
    assert queue_config.read_bucket(*queue_config.render_bucket(bucket), 0.0) == (bucket, False)


# ---- the test mode

BERLIN = load_zone("Europe/Berlin")
PERIOD = queue_config.parse_period("2026-03-01", "2026-03-31", BERLIN)


def at(text: str) -> float:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


BEFORE, INSIDE, AFTER = at("2026-02-01 12:00"), at("2026-03-10 12:00"), at("2026-05-01 12:00")


def test_both_days_of_a_period_count_in_full() -> None:
    """From the first midnight to the end of the last day by the zone; a wrong date: none."""
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
    for on, kind, decision in (
        (True, "user", RedirectDecision.UNDECIDABLE),
        (True, "organizer", RedirectDecision.UNCHANGED),
        (False, "user", RedirectDecision.UNCHANGED),
    ):
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
