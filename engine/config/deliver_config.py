"""Settings of a handler that sends HTTP requests: `handlers.KIND.deliver`."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from engine.config import validators
from engine.config.validators import ConfigLocation
from engine.schedules import Schedule, exponential
from engine.values import NamedTuple

IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowedPeer(NamedTuple):
    """An entry of the allow-list: addresses or a host name that are allowed although not public."""

    network: IpNetwork | None = None
    """None: see `host`."""
    host: str = ""
    """A host name in lower case: each address that it resolves to is allowed."""
    port: int | None = None
    """None: each port."""


def parse_allowed(text: str) -> AllowedPeer:
    """Parse `10.0.0.0/8`, `peer.internal`, `127.0.0.1:8080`, `[::1]:8080` or `::1`. Raises
    ValueError: it is none of these."""
    try:
        return AllowedPeer(ipaddress.ip_network(text))
    except ValueError:
        pass  # not an address alone
    host, colon, digits = text.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else 0
    if colon and not 0 < port < 65536:
        raise ValueError("its port is not a number from 1 to 65535")
    host = host if colon else text
    try:
        return AllowedPeer(ipaddress.ip_network(host.strip("[]")), port=port or None)
    except ValueError:
        pass  # a name
    name = host.lower().rstrip(".")
    labels = name.split(".")
    if not all(label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise ValueError("it is no network, address or host name")
    if not name.isascii() or labels[-1].isdigit():
        raise ValueError("it is no network, address or host name")
    return AllowedPeer(host=name, port=port or None)


def check_allowed(value: object, at: ConfigLocation) -> AllowedPeer:
    """Check an entry of an allow-list."""
    try:
        return parse_allowed(validators.check_text(value, at))
    except ValueError as error:
        expected = "a network, address or host name, each with or without :PORT"
        raise at.error(f"expected {expected}: {error}") from None


OUTCOMES = ("done", "retry", "fatal")
"""What an answer means for its task."""


def _statuses(value: object, at: ConfigLocation) -> dict[str, str]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {404: retry, 3xx: fatal, TIMEOUT: fatal}", value)
    outcome = validators.choice_check(*OUTCOMES)
    for key in value:
        word = str(key)
        is_status = word[:1] in "12345" and len(word) == 3 and (word.isdigit() or word[1:] == "xx")
        is_code = word.isascii() and word.isupper() and word.replace("_", "").isalpha()
        if not is_status and not is_code:
            raise at.at_key(key).error("expected a status like 404, a class like 5xx, or a code")
    return {str(key): outcome(setting, at.at_key(key)) for key, setting in value.items()}


class DeliverConfig(NamedTuple):
    """How the requests of one kind of task are sent."""

    allow: Annotated[tuple[AllowedPeer, ...], validators.list_check(check_allowed)] = ()
    """Peers that are allowed although their addresses are not public."""
    statuses: Annotated[Mapping[str, str], _statuses] = {}
    """Status (`404`), class (`5xx`) or error code (`TIMEOUT`) -> done, retry or fatal; before the
    table of the profile."""
    profile: Annotated[str, validators.choice_check("default", "sipher")] = "default"
    """The table of outcomes; `sipher`: everything but 2xx is tried again."""
    ca_file: Annotated[str, validators.check_path] = ""
    """A file of certificates that are trusted besides those of the system; "": none."""
    breaker: Annotated[bool, validators.check_bool] = False
    """True: tasks wait while their destination is unhealthy."""
    probes: Annotated[Schedule, validators.check_schedule] = exponential(60, ceiling=3600)
    """The waits before the probes of an unhealthy destination."""


def parse_deliver(value: object, at: ConfigLocation) -> DeliverConfig:
    """Check the settings of a handler that sends HTTP requests."""
    return validators.section_check(DeliverConfig)(value, at)
