"""The test mode: whose mails go elsewhere, and when nobody may decide that."""

from datetime import UTC, datetime

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


def test_an_unreadable_period_is_none() -> None:
    """Missing, unreadable or turned round: nobody guesses."""
    for start, end in (
        *((None, "2026-03-31"), ("2026-03-01", None), ("", ""), ("soon", "2026-03-31")),
        *(("2026-03-31", "2026-03-01"), ("2026-02-30", "2026-03-31"), ("2026-01-01", "9999-12-31")),
    ):
        assert redirect.period(start, end, BERLIN) is None


def test_only_what_lies_outside_is_redirected() -> None:
    """A user's mail goes elsewhere when it was both enqueued and sent outside the period."""
    for on, kind, created, now, way in (
        (False, "user", BEFORE, BEFORE, Way.PLAIN),
        (True, "organizer", BEFORE, BEFORE, Way.PLAIN),
        (True, "user", BEFORE, BEFORE, Way.REDIRECTED),
        (True, "user", AFTER, AFTER, Way.REDIRECTED),
        (True, "user", INSIDE, INSIDE, Way.PLAIN),
        (True, "user", INSIDE, AFTER, Way.PLAIN),
        (True, "user", BEFORE, INSIDE, Way.PLAIN),
    ):
        assert redirect.way(on, kind, created, now, PERIOD) is way


def test_without_a_period_users_mails_wait() -> None:
    """With the switch on and no readable dates, a user's mail goes nowhere; others go on."""
    for on, kind, way in (
        (True, "user", Way.UNDECIDABLE),
        (True, "organizer", Way.PLAIN),
        (False, "user", Way.PLAIN),
    ):
        assert redirect.way(on, kind, BEFORE, BEFORE, None) is way


def test_nobody_guesses_when_a_job_was_made() -> None:
    """Outside the period it may still be of one that was taken in earnest; within, it is plain."""
    for now, way in ((INSIDE, Way.PLAIN), (AFTER, Way.UNDECIDABLE)):
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
