"""Discovery: read the keys of a server from its /discover, and register ours there.

A server whose signing key differs from the registered one is refused: another server may have taken
its place. An operator who knows better forgets the old keys first.
"""

from __future__ import annotations

from engine.delivery.network_errors import DeliveryError
from engine.destinations.destination import Destination, mark_success, origin_of, update
from engine.formats.bullmq.federation.envelope import BadEnvelope
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING, PeerKeys
from engine.formats.bullmq.federation.parts import (
    FederationParts,
    keys_of,
    own_headers,
    parse_object,
    to_json,
)
from engine.text.safe import safe_line

REGISTERED = "registered"
"""Key of the free JSON of a destination: False if our registration there failed."""


class DiscoveryFailed(Exception):
    """The keys of a server cannot be learned now; the text starts with the code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"[{code}] discovery: {safe_line(text)}")
        self.code = code


def discover_url(server: str) -> str:
    """The URL that describes a server."""
    return f"{server.rstrip('/')}/discover"


def read_keys(parts: FederationParts, server: str) -> PeerKeys:
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


def _parse(body: bytes, url: str) -> PeerKeys:
    try:
        answer = parse_object(body) or {}
        return PeerKeys(*(str(answer.get(key, "")) for key in (SIGNING, ENCRYPTION))).check()
    except (ValueError, BadEnvelope):
        raise DiscoveryFailed("BAD_KEYS", f"{url}: expected JSON with two public keys") from None


def discover(parts: FederationParts, server: str) -> Destination:
    """Learn the keys of a server, register ours there, then store its keys.

    If the server does not register us, it may know us nevertheless: `is_registered` is then False,
    and the next delivery tries it again.

    Raises:
        DiscoveryFailed: see `read_keys`; KEY_CHANGED if other keys are registered for it.
        Unavailable: the registry cannot be used.
    """
    origin, keys = origin_of(server), read_keys(parts, server)
    _check_signing(keys_of(parts.registry.get(origin)), keys, origin)
    for other in parts.registry.extra_with(SIGNING, keys.signing):
        if other.origin != origin:
            raise DiscoveryFailed("KEY_IN_USE", f"{origin} has the signing key of {other.origin}")
    # Other workers deliver as soon as the keys are stored.
    failure = _register(parts, server)
    if failure:
        parts.log("WARN", f"{origin}: we are not registered there: {failure}")
    now = parts.clock()

    def with_keys(old: Destination) -> Destination:
        _check_signing(keys_of(old), keys, origin)
        extra = {**old.extra, SIGNING: keys.signing, ENCRYPTION: keys.encryption}
        extra = {key: value for key, value in extra.items() if key != REGISTERED}
        destination = mark_success(old, now) if parts.profile.success_marks_healthy else old
        extra |= {REGISTERED: False} if failure else {}
        return destination._replace(extra=extra, last_seen=now)

    return update(parts.registry, origin, with_keys)


def is_registered(destination: Destination) -> bool:
    """False if the server has refused or not answered our registration."""
    return destination.extra.get(REGISTERED, True) is not False


def _check_signing(known: PeerKeys, fetched: PeerKeys, origin: str) -> None:
    if known.signing and known.signing != fetched.signing:
        raise DiscoveryFailed("KEY_CHANGED", f"{origin} has another signing key than before")


def _register(parts: FederationParts, server: str) -> str:
    """Register our keys at a server; return why it failed, "" if it did not."""
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
        return str(error)
    return "" if 200 <= answer.status < 300 else f"status {answer.status}"
