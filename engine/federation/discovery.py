"""Discovery: read the keys of a server from its /discover, and register ours there.

A server whose signing key differs from the registered one is refused: another server may have taken
its place. An operator who knows better forgets the old keys first.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.delivery.network_errors import DeliveryError
from engine.destinations.destination import Destination, mark_success, origin_of
from engine.destinations.registry import update
from engine.federation.envelope import BadEnvelope
from engine.federation.keys import PeerKeys
from engine.federation.parts import (
    ENCRYPTION,
    SIGNING,
    FederationParts,
    keys_of,
    own_headers,
    parse_object,
    to_json,
)
from engine.text.safe import safe_line


class DiscoveryFailed(Exception):
    """The keys of a server cannot be learned now; the text starts with the code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"[{code}] discovery: {safe_line(text)}")
        self.code = code


class Described(NamedTuple):
    """What a server says of itself."""

    url: str
    keys: PeerKeys


def discover_url(server: str) -> str:
    """The URL that describes a server."""
    return f"{server.rstrip('/')}/discover"


def describe(parts: FederationParts, server: str) -> Described:
    """Ask a server for its keys.

    Raises:
        DiscoveryFailed: there is no answer, or not both keys in it.
    """
    try:
        answer = parts.send("GET", discover_url(server), timeout=parts.timeouts.discovery)
    except DeliveryError as error:
        raise DiscoveryFailed(error.code, str(error).partition("] ")[2]) from error
    if not 200 <= answer.status < 300:
        raise DiscoveryFailed(f"HTTP_{answer.status}", f"{answer.url} answers {answer.status}")
    return _parse(answer.body, answer.url)


def _parse(body: bytes, url: str) -> Described:
    try:
        said = parse_object(body) or {}
        keys = PeerKeys(*(str(said.get(key, "")) for key in (SIGNING, ENCRYPTION))).check()
    except (ValueError, BadEnvelope):
        raise DiscoveryFailed("BAD_KEYS", f"{url}: expected JSON with two public keys") from None
    return Described(str(said.get("url", "")), keys)


def discover(parts: FederationParts, server: str) -> Destination:
    """Learn the keys of a server, register them, and register ours there; the last may fail.

    Raises:
        DiscoveryFailed: see `describe`; KEY_CHANGED if other keys are registered for it.
        Unavailable: the registry cannot be used.
    """
    found = _store(parts, server, describe(parts, server).keys)
    request = {
        "method": "REGISTER",
        "url": parts.origin,
        SIGNING: parts.keys.public.signing,
        ENCRYPTION: parts.keys.public.encryption,
    }
    url, timeout = discover_url(server), parts.timeouts.discovery
    try:
        answer = parts.send("POST", url, own_headers(parts), to_json(request), timeout)
    except DeliveryError as error:
        parts.log("WARN", f"{found.origin}: not registered there: {error}")
        return found
    if not 200 <= answer.status < 300:
        parts.log("WARN", f"{found.origin}: not registered there: status {answer.status}")
    return found


def _store(parts: FederationParts, server: str, keys: PeerKeys) -> Destination:
    origin, now = origin_of(server), parts.clock()
    for other in parts.registry.extra_with(SIGNING, keys.signing):
        if other.origin != origin:
            raise DiscoveryFailed("KEY_IN_USE", f"{origin} has the signing key of {other.origin}")

    def with_keys(old: Destination) -> Destination:
        known = keys_of(old)
        if known.signing and known.signing != keys.signing:
            raise DiscoveryFailed("KEY_CHANGED", f"{origin} has another signing key than before")
        extra = {**old.extra, SIGNING: keys.signing, ENCRYPTION: keys.encryption}
        seen = mark_success(old, now) if parts.profile.success_marks_healthy else old
        return seen._replace(extra=extra, last_seen=now)

    return update(parts.registry, origin, with_keys)
