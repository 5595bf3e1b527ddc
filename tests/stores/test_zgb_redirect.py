"""The test mode: whose mails go elsewhere, and when nobody may decide that."""

from datetime import UTC, datetime

import pytest

from engine.stores.zgb import redirect
from engine.stores.zgb.redirect import Way
from engine.stores.zgb.times import zone_of

BERLIN = zone_of("Europe/Berlin")
PERIOD = redirect.period("2026-03-01", "2026-03-31", BERLIN)


def at(text: str) -> float:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


BEFORE, INSIDE, AFTER = at("2026-02-01 12:00"), at("2026-03-10 12:00"), at("2026-05-01 12:00")


def test_both_days_of_a_period_count_in_full() -> None:
    """From the first midnight to the end of the last day, by the zone: summer time has begun."""
    assert (at("2026-02-28 23:00"), at("2026-03-31 22:00")) == PERIOD


@pytest.mark.parametrize(
    ("start", "end"),
    [
        *((None, "2026-03-31"), ("2026-03-01", None), ("", ""), ("soon", "2026-03-31")),
        *(("2026-03-31", "2026-03-01"), ("2026-02-30", "2026-03-31"), ("2026-01-01", "9999-12-31")),
    ],
)
def test_an_unreadable_period_is_none(start: str | None, end: str | None) -> None:
    """Missing, unreadable or turned round: nobody guesses."""
    assert redirect.period(start, end, BERLIN) is None


@pytest.mark.parametrize(
    ("on", "kind", "created", "now", "way"),
    [
        (False, "user", BEFORE, BEFORE, Way.PLAIN),
        (True, "organizer", BEFORE, BEFORE, Way.PLAIN),
        (True, "user", BEFORE, BEFORE, Way.REDIRECTED),
        (True, "user", AFTER, AFTER, Way.REDIRECTED),
        (True, "user", INSIDE, INSIDE, Way.PLAIN),
        pytest.param(True, "user", INSIDE, AFTER, Way.PLAIN, id="retried past the end"),
        pytest.param(True, "user", BEFORE, INSIDE, Way.PLAIN, id="a test that waited"),
    ],
)
def test_only_what_lies_outside_is_redirected(
    on: bool, kind: str, created: float, now: float, way: Way
) -> None:
    """A user's mail goes elsewhere when it was both enqueued and sent outside the period."""
    assert redirect.way(on, kind, created, now, PERIOD) is way


@pytest.mark.parametrize(
    ("on", "kind", "way"),
    [(True, "user", Way.UNDECIDABLE), (True, "organizer", Way.PLAIN), (False, "user", Way.PLAIN)],
)
def test_without_a_period_users_mails_wait(on: bool, kind: str, way: Way) -> None:
    """With the switch on and no readable dates, a user's mail goes nowhere; others go on."""
    assert redirect.way(on, kind, BEFORE, BEFORE, None) is way


@pytest.mark.parametrize(("now", "way"), [(INSIDE, Way.PLAIN), (AFTER, Way.UNDECIDABLE)])
def test_nobody_guesses_when_a_job_was_made(now: float, way: Way) -> None:
    """Outside the period it may still be of one that was taken in earnest; within, it is plain."""
    assert redirect.way(True, "user", None, now, PERIOD) is way


def test_the_address_tells_who_it_was_for() -> None:
    """A bare domain keeps the old address in front of it; a whole address stands for itself."""
    assert redirect.address("a@b.org", "schumbi.de") == "a=b.org@schumbi.de"
    assert redirect.address("a@b.org", "test@schumbi.de") == "test@schumbi.de"


def test_an_address_is_cut_where_it_would_be_none() -> None:
    """Too long a one is none before another @; nor may what is left end with a dot."""
    long = redirect.address(f"{'l' * 60}@b.example.org", "schumbi.de")
    dotted = redirect.address(f"{'l' * 61}@b.example.org", "schumbi.de")

    assert long == f"{'l' * 60}=b.e@schumbi.de"
    assert dotted == f"{'l' * 61}=b@schumbi.de"
