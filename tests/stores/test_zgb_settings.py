"""What an operator settles about a mail queue: what may be said, and what it comes to."""

from __future__ import annotations

import pytest

from engine.checks import At, ConfigError
from engine.stores.zgb.place import Place
from engine.stores.zgb.settings import HANDOVER, LETTERS, Letter, Settings, said
from tests.stores.seen import naming

AT = At("some.yaml", "stores.zgb", "/etc/spooldeck")


def test_nothing_said_is_as_the_document_has_it() -> None:
    """Without a word every value is the default, and the place is the default place."""
    settings = said(None, AT)
    assert settings == Settings()
    assert settings.place("/data/q.db") == Place("/data/q.db")
    assert settings.enqueued == ("user", "organizer")


def test_everything_can_be_said() -> None:
    """Each key comes to what it says; paths start from the configuration's folder."""
    settings = said(
        {
            "zone": "Europe/Berlin",
            "lease": 600,
            "retry_failed": "manual",
            "redirect_to": "test@example.org",
            "period_zone": "UTC",
            "registrations": "anmeldungen",
            "hourly_limit": 55,
            "log": "mail.log",
            "sender": "fest@example.org",
            "from_name": "Fest",
            "types": {
                "user": {"subject": "Hallo {name}", "template": "u.txt", "to_column": "mail"},
                "organizer": {"enabled": False, "to": "orga@example.org"},
            },
        },
        AT,
    )

    assert settings.place("/q.db") == Place(
        "/q.db",
        zone="Europe/Berlin",
        lease=600,
        auto_retry=False,
        redirect_to="test@example.org",
        period_zone="UTC",
        registrations="anmeldungen",
    )
    assert (settings.hourly_limit, settings.log) == (55, "/etc/spooldeck/mail.log")
    assert (settings.sender, settings.from_name) == ("fest@example.org", "Fest")
    user = Letter(True, "Hallo {name}", "/etc/spooldeck/u.txt", "", "mail")
    organizer = LETTERS["organizer"]._replace(enabled=False, to="orga@example.org")
    assert settings.letters == {"user": user, "organizer": organizer}
    assert settings.enqueued == ("user",)


def test_what_cannot_be_meant_is_said() -> None:
    """Each error names its key, and what was expected."""
    for value, words in (
        ({"leas": 3}, "stores.zgb.leas: unknown key, .*did you mean lease"),
        ({"lease": 0}, "stores.zgb.lease: .*at least 1"),
        ({"zone": "Nowhere/Land"}, "stores.zgb.zone: no time zone 'Nowhere/Land'"),
        ({"retry_failed": "never"}, "stores.zgb.retry_failed: expected one of auto, manual"),
        ({"redirect_to": "a@b@c"}, "stores.zgb.redirect_to: expected a domain"),
        ({"redirect_to": "@b.org"}, "stores.zgb.redirect_to: expected a domain"),
        ({"types": {"guest": {}}}, "stores.zgb.types.guest: unknown key"),
        ({"types": {"user": {"to": "a\nb"}}}, "stores.zgb.types.user.to: expected text on one"),
        ({"types": {"user": "x"}}, "stores.zgb.types.user: expected a mapping"),
        ("x", "stores.zgb: expected a mapping"),
    ):
        with naming(value, words), pytest.raises(ConfigError, match=words):
            said(value, AT)


def test_a_lease_must_outlast_a_mail() -> None:
    """Else somebody else takes a job up while its mail is being sent."""
    settings = Settings(lease=100)
    assert settings.too_short(100 - HANDOVER) == ""
    assert "expected at least 165 s" in settings.too_short(100.0)


def test_without_any_template_nothing_can_be_sent() -> None:
    """That is said beforehand, with the keys to set."""
    one = said({"types": {"organizer": {"template": "/o.txt"}}}, AT)
    assert "stores.zgb.types.user.template" in Settings().unworkable
    assert one.unworkable == ""
