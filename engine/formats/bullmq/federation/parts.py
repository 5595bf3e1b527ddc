"""What deliveries, discovery, relays and probes share: keys, registry, client, profile, clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from engine.delivery.http_client import Answer
from engine.delivery.network_errors import CANCELLED, OWN_LIMIT, DeliveryError
from engine.destinations.destination import Destination, Registry
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING, OwnKeys, PeerKeys
from engine.formats.bullmq.federation.profile import POLICIES, Policy, Profile
from engine.formats.bullmq.federation.shared_tables import SharedTables, SqlFollows
from engine.schedules import Schedule, linear
from engine.values import NamedTuple
from engine.work.handlers import Lacking, Postponed

PROBES = linear(300.0, 600.0, limit=5)
"""5, 15, 25, 35 and 45 minutes before the five probes."""


class HttpSend(Protocol):
    """Type of `HttpClient.send`."""

    def __call__(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        timeout: float = 15.0,
        is_cancelled: Callable[[], bool] = lambda: False,
        why_blocked: Callable[[str], str] = lambda origin: "",
    ) -> Answer:
        """Send a request and read its answer; raises DeliveryError."""
        ...


class AddProbe(Protocol):
    """Adds the task of a probe."""

    def __call__(self, server: str, number: int, delay: float, /) -> None:
        """Add probe `number` (from 0) of a server, due after `delay` seconds; nothing is added
        while that one is planned. Raises engine.store.StoreError."""
        ...


class Timeouts(NamedTuple):
    """Seconds for a whole request, with the body of its answer."""

    discovery: float = 10.0
    delivery: float = 15.0
    probe: float = 8.0
    sweep: float = 2.0


class FederationParts(NamedTuple):
    """Passed to everything here; threads share it."""

    keys: OwnKeys
    origin: str
    """Our own origin, which peers know us by; "" if it is not configured."""
    registry: Registry
    send: HttpSend
    add_probe: AddProbe
    profile: Profile = Profile()
    policies: Mapping[str, Policy] = POLICIES
    probes: Schedule = PROBES
    timeouts: Timeouts = Timeouts()
    gates: bool = False
    """True: deliveries wait while their server is unhealthy, and use no attempt."""
    log: Callable[[str, str], None] = lambda level, text: None
    clock: Callable[[], float] = time.time
    shared: SharedTables | None = None
    """The application's own tables of servers; None: they are not known."""
    follows: SqlFollows | None = None
    """Its table of follows; None: decisions on them are not stored."""


def for_task(parts: FederationParts, is_cancelled: Callable[[], bool]) -> FederationParts:
    """The parts for one task: what it sends ends when the worker cancels it, without an attempt,
    and no redirect leads to a blocked server."""

    def send(
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        timeout: float = 15.0,
        is_cancelled: Callable[[], bool] = is_cancelled,
        why_blocked: Callable[[str], str] = lambda origin: parts.registry.get(origin).blocked,
    ) -> Answer:
        try:
            return parts.send(method, url, headers, body, timeout, is_cancelled, why_blocked)
        except DeliveryError as error:
            if error.code == OWN_LIMIT:
                raise Lacking(str(error)) from error
            if error.code != CANCELLED:
                raise
            raise Postponed(parts.clock(), str(error)) from error

    return parts._replace(send=send)


def keys_of(destination: Destination) -> PeerKeys:
    """The public keys of a destination, "" for each that is not known."""
    keys = (destination.extra.get(key) for key in (SIGNING, ENCRYPTION))
    return PeerKeys(*(key if isinstance(key, str) else "" for key in keys))


def own_headers(parts: FederationParts) -> dict[str, str]:
    """The headers of each POST: content and sender."""
    return {
        "Content-Type": "application/json",
        "Origin": parts.origin,
        "X-Federation-Origin": parts.origin,
    }


def to_json(value: object) -> bytes:
    """A value as compact JSON in UTF-8, as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parse_object(data: bytes) -> Mapping[str, object] | None:
    """The JSON object in bytes; None if there is another value.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        parsed = json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    return parsed if isinstance(parsed, dict) else None
