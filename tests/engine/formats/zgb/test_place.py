"""What an operator settles about a mail queue: what may be said, and what it comes to."""

import pytest

from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.zgb.place import (
    DEFAULT_LETTERS,
    LEASE_MARGIN_SECONDS,
    LetterTemplate,
    ZgbDatabase,
    ZgbSettings,
    parse_settings,
)
from tests.store_contents import naming

AT = ConfigLocation("some.yaml", "stores.zgb", "/etc/spooldeck")


def test_every_line_can_be_formatted() -> None:
    """Each key comes to what it says; paths start from the configuration's folder."""
    of_place = {"zone": "Europe/Berlin", "lease": 600, "redirect_to": "test@example.org"}
    of_place |= {"period_zone": "UTC", "registrations": "anmeldungen"}
    own = {"sender": "fest@example.org", "from_name": "Fest", "hourly_limit": 55}
    user = {"subject": "Hallo {name}", "template": "u.txt", "to_column": "mail"}
    organizer = {"enabled": False, "to": "orga@example.org"}
    types = {"types": {"user": user, "organizer": organizer}}
    keys = of_place | own | types | {"retry_failed": "manual", "log": "mail.log"}
    settings = parse_settings(keys, AT)
    place = ZgbDatabase("/q.db", auto_retry=False, **of_place)  # type: ignore[arg-type]
    assert settings.place("/q.db") == place
    assert settings.log == "/etc/spooldeck/mail.log"
    assert own.items() <= settings._asdict().items()
    assert settings.types == {
        "user": LetterTemplate(True, "Hallo {name}", "/etc/spooldeck/u.txt", "", "mail"),
        "organizer": DEFAULT_LETTERS["organizer"]._replace(**organizer),  # type: ignore[arg-type]
    }
    assert settings.enqueued_kinds == ("user",)


def test_a_wrong_setting_is_reported_with_its_key() -> None:
    """Each error names its key, and what was expected; without any setting the defaults hold, a
    lease shorter than a mail is too short, and without a template nothing can be sent."""
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
            parse_settings(value, AT)
    settings = parse_settings(None, AT)
    assert settings == ZgbSettings() and settings.place("/data/q.db") == ZgbDatabase("/data/q.db")
    assert settings.enqueued_kinds == ("user", "organizer")
    assert "stores.zgb.types.user.template" in settings.work_refusal
    assert parse_settings({"types": {"organizer": {"template": "/o.txt"}}}, AT).work_refusal == ""
    short = ZgbSettings(lease=100)
    assert short.lease_problem(100 - LEASE_MARGIN_SECONDS) == ""
    assert "expected at least 165 s" in short.lease_problem(100.0)
