"""The two queues of a federation: their names, and the jobs that are added to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from engine.destinations.destination import origin_of
from engine.formats.bullmq.federation.parts import parse_object, to_json
from engine.formats.bullmq.image import NewJob
from engine.values import NamedTuple

DELIVERY_QUEUE, HEALTH_QUEUE = "federation-delivery", "federation-health-check"
SLOTS: Mapping[str, int] = {DELIVERY_QUEUE: 10, HEALTH_QUEUE: 3}
"""Jobs of each queue that run at a time."""

FOLLOW, POST, PROBE = "deliver-follow", "deliver-post", "health-check"
PATHS: Mapping[str, str] = {FOLLOW: "/api/auth/social/follows", POST: "/api/auth/social/posts"}
"""Name of a job -> the path at the target."""

METHODS = frozenset({"FEDERATE", "FEDERATE_POST", "INSERT", "UNFOLLOW"})
"""The methods that a payload may have."""

DELIVERY_OPTIONS: Mapping[str, object] = {
    "attempts": 5,
    "backoff": {"type": "exponential", "delay": 5000},
    "removeOnComplete": {"age": 86_400},
    "removeOnFail": {"age": 604_800},
}
"""5 attempts, after 5, 10, 20 and 40 seconds; kept for a day, or for 7 if it failed."""

_PROBE_OPTIONS: Mapping[str, object] = {"removeOnComplete": True, "removeOnFail": True}


def delivery_job(name: str, server: str, target: str, payload: str, row: str = "") -> NewJob:
    """A delivery; `row` is the key of its row in the outbox, "" if it has none."""
    data = {"deliveryJobId": row, "targetUrl": target, "serverUrl": server, "payload": payload}
    return NewJob(DELIVERY_QUEUE, name, to_json(data).decode(), DELIVERY_OPTIONS)


def probe_job(server: str, number: int, delay: float) -> NewJob:
    """A probe; while it is planned or runs, its id cannot be added again."""
    data = to_json({"serverUrl": server}).decode()
    ident = probe_id(server, number)
    return NewJob(HEALTH_QUEUE, PROBE, data, _PROBE_OPTIONS, delay=delay, id=ident)


def probe_id(server: str, number: int) -> str:
    """The id of a probe, from the origin of the server, so that all spellings of it have one.

    Raises:
        ValueError: the server is no URL with a host.
    """
    return f"health-check_{hashlib.sha256(origin_of(server).encode()).hexdigest()[:16]}_{number}"


class BadJob(ValueError):
    """The data of a job cannot be used; the text says why."""


class DeliveryJob(NamedTuple):
    """The data of a delivery."""

    row: str
    """Key of its row in the outbox; "" if it has none."""
    target: str
    server: str
    payload: str
    """JSON, sent byte for byte."""


def parse_delivery(data: bytes | None) -> DeliveryJob:
    """Parse the data of a delivery, not yet its payload.

    Raises:
        BadJob: a field is missing or is no text.
    """
    job_fields = _object(data)
    row = job_fields.get("deliveryJobId", "")
    fields = [job_fields.get(key) for key in ("targetUrl", "serverUrl", "payload")]
    if not isinstance(row, str) or not all(isinstance(each, str) for each in fields):
        raise BadJob("data: expected the texts deliveryJobId, targetUrl, serverUrl and payload")
    if not all(str(each).isprintable() for each in fields[:2]):
        raise BadJob("data: expected URLs without control characters")
    return DeliveryJob(row, *map(str, fields))


def parse_server(data: bytes | None) -> str:
    """The server of a probe.

    Raises:
        BadJob: it is missing.
    """
    server = _object(data).get("serverUrl")
    if not isinstance(server, str) or not server.isprintable():
        raise BadJob("data: expected the URL serverUrl")
    return server


def _object(data: bytes | None) -> Mapping[str, object]:
    try:
        parsed = parse_object(data or b"")
    except ValueError as error:
        raise BadJob(f"data is not JSON: {error}") from None
    if parsed is None:
        raise BadJob("data: expected a JSON object")
    return parsed


def parse_method(payload: str) -> tuple[str, Mapping[str, object]]:
    """The method of a payload, and the whole.

    Raises:
        BadJob: the payload is no JSON object, or its method is missing or not allowed.
    """
    try:
        method_call = parse_object(payload.encode())
    except ValueError as error:
        raise BadJob(f"payload is not JSON: {error}") from None
    method = None if method_call is None else method_call.get("method")
    if method_call is None or not isinstance(method, str):
        raise BadJob("payload: expected an object with the text method")
    if method not in METHODS:
        raise BadJob(f"method {method[:40]!r}, expected one of {', '.join(sorted(METHODS))}")
    return method, method_call
