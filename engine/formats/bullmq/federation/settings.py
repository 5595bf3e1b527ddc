"""Settings of the federation: the section `federation`."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import validators
from engine.config.deliver_config import AllowedPeer, check_allowed
from engine.config.validators import ConfigLocation
from engine.schedules import Schedule
from engine.values import NamedTuple


class FederationConfig(NamedTuple):
    """How deliveries to other servers are made."""

    origin: str = ""
    """Our own origin; "": that of the environment (`BETTER_AUTH_URL`)."""
    keys: str = ""
    """The folder of our keys; "": they are in the environment."""
    profile: str = "default"
    """`sipher`: as the program of that name, without our corrections."""
    allow: tuple[AllowedPeer, ...] = ()
    """Peers that are allowed although their addresses are not public."""
    ca_file: str = ""
    """A file of certificates that are trusted besides those of the system; "": none."""
    breaker: bool = False
    """True: deliveries wait while their server is unhealthy, and use no attempt."""
    follows: str = ""
    """The table of follows, in the database of the outbox; "": decisions are not stored."""
    blocked: str = ""
    """The application's table of blocked servers, in the same database; "": none."""
    servers: str = ""
    """The application's table of servers with their keys and health, in the same database;
    "": none."""
    probes: Schedule | None = None
    """The waits before the probes of an unhealthy server; None: 5 minutes and 10 more each time."""
    policies: Mapping[str, Mapping[str, bool]] = {}
    """By error code: `relay` and `probe`, before the table of the profile."""


def _policies(value: object, at: ConfigLocation) -> Mapping[str, Mapping[str, bool]]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {DNS: {probe: true}}", value)
    checks = {"relay": validators.check_bool, "probe": validators.check_bool}
    return {
        str(code): validators.check_mapping(flags, at.at_key(code), checks)
        for code, flags in value.items()
    }


def _origin(value: object, at: ConfigLocation) -> str:
    text = validators.check_text(value, at).rstrip("/")
    if not text.startswith(("http://", "https://")) or "/" in text.partition("://")[2]:
        raise at.error("expected http://HOST or https://HOST, with or without :PORT")
    return text


def parse_federation(section: tuple[object, ConfigLocation] | None) -> FederationConfig:
    """Check the section with its location; None: the defaults.

    Raises:
        ConfigError: a key is unknown or a value is invalid.
    """
    return FederationConfig(**validators.check_mapping(*section, _SETTINGS) if section else {})


_CHECKS: Mapping[str, validators.Check] = {
    "origin": _origin,
    "keys": validators.check_path,
    "profile": validators.choice_check("default", "sipher"),
    "allow": validators.list_check(check_allowed),
    "ca_file": validators.check_path,
    "breaker": validators.check_bool,
    "follows": validators.check_table,
    "blocked": validators.check_table,
    "servers": validators.check_table,
    "probes": validators.check_schedule,
    "policies": _policies,
}
_SETTINGS = validators.with_defaults(FederationConfig, _CHECKS)
