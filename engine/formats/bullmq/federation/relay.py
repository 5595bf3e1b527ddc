"""Relays: send a request through another server, to a target that cannot be reached directly.

The relay sees the target and our public keys; the request itself is in an envelope for the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from engine.delivery.http_client import Answer
from engine.delivery.network_errors import DeliveryError
from engine.destinations.destination import Destination, mark_success, origin_of
from engine.destinations.registry import update
from engine.formats.bullmq.federation.discovery import discover_url
from engine.formats.bullmq.federation.envelope import seal, sign
from engine.formats.bullmq.federation.keys import PeerKeys
from engine.formats.bullmq.federation.parts import (
    FederationParts,
    keys_of,
    own_headers,
    parse_object,
    to_json,
)

CONFLICT = 409
"""Status of a delivery that was applied before."""
_BAD_GATEWAY = 502

SWEEP_THREADS = 16
MAX_SWEEP = 6 * SWEEP_THREADS
"""Servers that are asked in a sweep, those seen last: it must end before the lease of its task."""


class NoRelay(Exception):
    """No server can relay: none is healthy, and none answers a sweep."""


def send_by_relay(
    parts: FederationParts,
    server: str,
    keys: PeerKeys,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Send a POST to `url` of a server by a relay; return its 2xx answer, or one with the status
    409 of the server.

    Raises:
        NoRelay: there is none.
        DeliveryError: the relay cannot be reached, or could not reach the target.
        BadEnvelope: the key of the target is no key.
        Unavailable: the registry cannot be used.
    """
    relay = find_relay(parts, origin_of(server))
    if relay is None:
        raise NoRelay
    inner = to_json({"targetUrl": url, "method": "POST", "headers": headers, "body": body.decode()})
    outer = b'{"method":"PROXY",%b,"payload":%b,"signature":"%b"}' % (
        to_json(
            {
                "targetUrl": f"{server.rstrip('/')}/proxy",
                "publicSigningKey": parts.keys.public.signing,
                "publicEncryptionKey": parts.keys.public.encryption,
            }
        )[1:-1],
        seal(inner, keys.encryption_key()).to_json(),
        sign(inner, parts.keys.signing).encode(),
    )
    proxy, timeout = f"{relay.origin}/proxy", parts.timeouts.delivery
    answer = parts.send("POST", proxy, own_headers(parts), outer, timeout)
    if _has_conflict(answer):
        return answer._replace(status=CONFLICT)
    if not 200 <= answer.status < 300:
        raise DeliveryError("RELAY", f"{relay.origin} answers {answer.status}")
    parts.log("INFO", f"{origin_of(server)}: sent through {relay.origin}")
    return answer


def _has_conflict(answer: Answer) -> bool:
    """True if a relay reports that the target answered 409: its answer is 502, with that of the
    target as `details`, which has its status too."""
    if answer.status != _BAD_GATEWAY:
        return False
    try:
        details = (parse_object(answer.body) or {}).get("details")
    except ValueError:
        return False
    return isinstance(details, dict) and details.get("status") == CONFLICT


def find_relay(parts: FederationParts, target: str) -> Destination | None:
    """The healthy server that was seen last, else the first that answers a sweep; None: none.

    Raises:
        Unavailable: the registry cannot be used.
    """
    own_origin = origin_of(parts.origin)
    known = [
        one
        for one in parts.registry.all()
        if one.origin not in (target, own_origin) and not one.blocked and keys_of(one).signing
    ]
    known.sort(key=lambda one: one.last_seen or 0.0, reverse=True)
    healthy = next((one for one in known if one.healthy), None)
    return healthy or _sweep(parts, [one for one in known if not one.healthy])


def _sweep(parts: FederationParts, unhealthy: list[Destination]) -> Destination | None:
    """Ask the servers that may be probed, in their order; those that answer are healthy."""
    policies = parts.policies
    asked = [one for one in unhealthy if one.reason not in policies or policies[one.reason].probe]
    asked = asked[:MAX_SWEEP]

    def answers(one: Destination) -> bool:
        try:
            answer = parts.send("GET", discover_url(one.origin), timeout=parts.timeouts.sweep)
        except DeliveryError:
            return False
        return 200 <= answer.status < 300

    with ThreadPoolExecutor(SWEEP_THREADS) as threads:
        reachable = [
            one
            for one, is_there in zip(asked, threads.map(answers, asked), strict=True)
            if is_there
        ]
    now = parts.clock()
    for one in reachable:
        update(parts.registry, one.origin, lambda old: mark_success(old, now))
    if not reachable:
        parts.log("ALERT", "No server of the federation can be reached: this one is stranded")
    return reachable[0] if reachable else None
