"""The test mode: whose mails go elsewhere, and when no operator may decide that."""

from datetime import UTC, datetime

from engine.formats.zgb import queue_config
from engine.formats.zgb.place import load_zone
from engine.formats.zgb.queue_config import RedirectDecision
from engine.mail.address import require_address

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
    """A bare domain keeps the old address in front of it, cut to 64 characters and at no dot; a
    whole address replaces it."""
    assert queue_config.redirected_address("a@b.org", "schumbi.de") == "a=b.org@schumbi.de"
    assert queue_config.redirected_address("a@b.org", "test@schumbi.de") == "test@schumbi.de"
    literal = queue_config.redirected_address("o'b@[IPv6:::1]", "schumbi.de")
    assert literal == require_address("o'b==IPv6===1=@schumbi.de")
    long = queue_config.redirected_address(f"{'l' * 60}@b.example.org", "schumbi.de")
    dotted = queue_config.redirected_address(f"{'l' * 61}@b.example.org", "schumbi.de")
    assert (long, dotted) == (f"{'l' * 60}=b.e@schumbi.de", f"{'l' * 61}=b@schumbi.de")
