"""The settings of a place with BullMQ queues."""

import pytest

from engine.config.place_address import parse_address
from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.bullmq.place import BullmqSettings, JobLimit, parse_place, parse_settings


def test_settings_of_the_worker_are_checked() -> None:
    """A limit needs both of its numbers; an unknown key or a wrong value is named."""
    at = ConfigLocation("some.yaml", "stores.bullmq")
    assert parse_settings(None, at) == BullmqSettings()
    settings = {"lease": 5, "metrics": 60, "limiter": {"mails": {"max": 10, "duration": 0.5}}}
    place = parse_place(parse_address("redis://host"), parse_settings(settings, at))
    assert (place.settings.lease, place.settings.metrics) == (5.0, 60)
    assert place.settings.limiter == {"mails": JobLimit(10, 0.5)}
    assert place._replace(fields={"": "url"}).field("mails") == "url"
    for wrong, key in (
        ({"metrics": -1}, "stores.bullmq.metrics"),
        ({"limiter": {"mails": {"max": 3}}}, "stores.bullmq.limiter.mails"),
        ({"limiter": {"mails": {"max": 0, "duration": 1}}}, "stores.bullmq.limiter.mails.max"),
        ({"limiter": 3}, "stores.bullmq.limiter"),
        ({"destination": 'url"'}, "stores.bullmq.destination"),
        ({"lesse": 3}, "stores.bullmq.lesse"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_settings(wrong, at)
        assert f"some.yaml: {key}" in str(caught.value)
