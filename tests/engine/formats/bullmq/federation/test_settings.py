"""The section `federation` of the configuration."""

from pathlib import Path

import pytest

from engine.config.queue_config import ConfigError, load_config
from engine.formats.bullmq.federation.settings import FederationConfig, parse_federation
from engine.schedules import linear


def read(folder: Path, text: str) -> object:
    """The section in a file with this text."""
    path = folder / "config.yaml"
    path.write_text(f"federation:\n  {text}\n")
    return parse_federation(load_config(str(path), {}).federation)


def test_each_key_is_read(tmp_path: Path) -> None:
    """A path may be relative to the file, an origin may end with /."""
    text = (
        "{origin: 'https://own.example/', keys: keys, profile: sipher, breaker: true, "
        "follows: public.follows, blocked: blacklisted_servers, servers: app.server_registry, "
        "probes: linear 5m +10m limit 5, policies: {DNS: {probe: true}}}"
    )
    assert read(tmp_path, text) == FederationConfig(
        "https://own.example",
        str(tmp_path / "keys"),
        "sipher",
        breaker=True,
        follows="public.follows",
        blocked="blacklisted_servers",
        servers="app.server_registry",
        probes=linear(300.0, 600.0, 5),
        policies={"DNS": {"probe": True}},
    )
    assert load_config(str(tmp_path / "config.yaml"), {}).destinations is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("origin: own.example", "federation.origin: expected http://HOST or https://HOST"),
        ("origin: https://own.example/path", "federation.origin: expected http://HOST"),
        ("profile: other", "federation.profile: expected one of default, sipher"),
        ("follows: 'follows; DROP'", "federation.follows: expected"),
        ("allow: ['10.0.0.0/33']", "federation.allow.0: expected a network"),
        ("probes: weekly", "federation.probes: expected one of"),
        ("policies: {DNS: {probes: true}}", "federation.policies.DNS.probes: unknown key"),
        ("policies: [DNS]", "federation.policies: expected a mapping"),
        ("private_key: secret", "federation.private_key: unknown key"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, text: str, expected: str) -> None:
    """The error says which key is wrong, and what is expected."""
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert expected in str(error.value)
