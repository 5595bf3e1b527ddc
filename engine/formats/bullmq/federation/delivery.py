"""Deliver one job of the federation, in eight steps: check, block list, keys, encrypt, count, sign,
send, acknowledge. Each error says whether there is another attempt, and whether the row of the
outbox stays.

A target that cannot be reached directly may be by a relay, another server. It sees the target and
our public keys; the request itself is in an envelope for the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import NoReturn

from engine.delivery import network_errors
from engine.delivery.http_client import Answer
from engine.delivery.network_errors import DeliveryError
from engine.delivery.status_table import DONE, FATAL, outcome, retry_after
from engine.destinations.destination import Destination, mark_success, origin_of, update
from engine.destinations.outbox import Outbox
from engine.formats.bullmq.federation.acks import (
    Ack,
    AckRefused,
    find_ack,
    handle_ack,
    lacks_decision,
)
from engine.formats.bullmq.federation.discovery import (
    DiscoveryFailed,
    discover,
    discover_url,
    is_registered,
)
from engine.formats.bullmq.federation.envelope import BadEnvelope, seal, sign
from engine.formats.bullmq.federation.health import note_failure, note_success, wait_for_probe
from engine.formats.bullmq.federation.jobs import BadJob, DeliveryJob, parse_delivery, parse_method
from engine.formats.bullmq.federation.keys import PeerKeys
from engine.formats.bullmq.federation.parts import (
    FederationParts,
    for_task,
    keys_of,
    own_headers,
    parse_object,
    to_json,
)
from engine.model import STALLED_BEFORE_KEY, Task
from engine.store import StoreError
from engine.values import NamedTuple
from engine.work.handlers import Context, Failed, Fatal, HandlerResult, Retry


class Delivered(NamedTuple):
    """An answer with a final status."""

    answer: Answer
    is_relayed: bool


class DeliveryHandler:
    """Runs the jobs of the delivery queue."""

    def __init__(self, parts: FederationParts, outbox: Outbox | None = None) -> None:
        """`outbox` has a row for each job, in which attempts are counted."""
        self._parts, self._outbox = parts, outbox

    def __call__(self, task: Task, context: Context) -> object:
        """Deliver; the result is what the peer acknowledged.

        Raises:
            Failed: by the class of the error: Failed and Retry for another attempt, else Fatal.
            Postponed: its server is unhealthy, and deliveries wait for the next probe; or it was
                cancelled.
        """
        try:
            job = parse_delivery(context.data)
        except BadJob as error:
            raise Fatal(f"[BAD_PAYLOAD] {error}") from error
        try:
            return self._deliver(task, for_task(self._parts, context.is_cancelled), job)
        except StoreError as error:
            raise Failed(f"[DATABASE] {error}") from error

    def _deliver(self, task: Task, parts: FederationParts, job: DeliveryJob) -> object:
        try:
            method, payload = parse_method(job.payload)
            origin = origin_of(job.server)
        except (BadJob, ValueError) as error:
            _drop(job, f"[BAD_PAYLOAD] {error}")
        known = _admit(parts, job, origin)
        keys = keys_of(known)
        text = job.payload.encode()
        try:
            envelope = seal(text, keys.encryption_key())
        except BadEnvelope as error:
            raise Failed(f"[BAD_KEYS] encryption key of {origin}: {error}") from error
        is_repeated = self._count_attempt(task, job)
        if not parts.origin:
            raise Fatal("[NO_ORIGIN] our own origin is not configured: federation.origin")
        body = b'{"method":"%b","payload":%b,"signature":"%b"}' % (
            method.encode(),
            envelope.to_json(),
            sign(text, parts.keys.signing).encode(),
        )
        done = self._send(parts, job, body)
        status, name = done.answer.status, task.group or task.description
        if status == CONFLICT and is_repeated and parts.profile.conflict_is_applied:
            self._succeed(job, done)
            if lacks_decision(parts, name, job.server, payload):
                why = "applied by an earlier attempt, whose answer with the decision was lost"
                raise Fatal(f"[NO_DECISION] {why}")
            return _finish(job, "applied by an earlier attempt")
        if not is_registered(known) and 400 <= status < 500:
            why = f"[HTTP_{status}] {origin} does not know us: it did not register us"
            raise self._try_again(done.answer, why)
        self._check_status(done.answer)
        ack = self._find_ack(done)
        try:
            answer_text = handle_ack(
                parts, name, ack, origin=origin, server=job.server, payload=payload
            )
        except AckRefused as error:
            if error.keeps_row:
                raise Fatal(str(error)) from error
            _drop(job, str(error))
        self._succeed(job, done)
        return _finish(job, answer_text)

    def _count_attempt(self, task: Task, job: DeliveryJob) -> bool:
        """Count the attempt in the row; True if it is not the first one, by any sign: the attempts
        of the task start again after an operator's retry, and are not counted for a worker that was
        killed or cancelled it."""
        counted = 0
        if job.row and self._outbox is not None:
            counted = self._outbox.count_attempt(job.row, self._parts.clock())
        was_cancelled = f"[{network_errors.CANCELLED}]" in task.error
        is_later = task.attempts or task.extra.get(STALLED_BEFORE_KEY) or was_cancelled
        return counted > 1 or bool(is_later)

    def _send(self, parts: FederationParts, job: DeliveryJob, body: bytes) -> Delivered:
        """POST the body directly, else by a relay."""
        headers = {**own_headers(parts), "X-Federation-Target": job.target}
        try:
            answer = parts.send("POST", job.target, headers, body, parts.timeouts.delivery)
            return Delivered(answer, is_relayed=False)
        except DeliveryError as error:
            first = error
        policy = parts.policies.get(first.code)
        if policy is None:
            _raise_for(parts, first.code, str(first))
        self._record(lambda: note_failure(parts, job.server, first.code))
        if not policy.relay:
            _raise_for(parts, first.code, str(first))
        try:
            keys = keys_of(parts.registry.get(origin_of(job.server)))
            answer = send_by_relay(
                parts, job.server, keys, url=job.target, headers=headers, body=body
            )
            return Delivered(answer, is_relayed=True)
        except NoRelay:
            text = f"{first}; no server can relay it"
            if not parts.profile.keeps_first_error:
                text = "[NO_RELAY] no server can relay it, and none answers a sweep"
            raise Failed(text) from first
        except (DeliveryError, BadEnvelope) as error:
            raise Failed(f"{first}; relay: {error}") from first

    def _check_status(self, answer: Answer) -> None:
        """Raise for a status that is not done, by the profile."""
        parts = self._parts
        if outcome(parts.profile.outcomes, answer.status) == DONE:
            return
        text = f"[HTTP_{answer.status}] {answer.url} answers {answer.status}"
        if outcome(parts.profile.outcomes, answer.status) == FATAL:
            raise Fatal(text)
        raise self._try_again(answer, text)

    def _try_again(self, answer: Answer, text: str) -> Failed:
        """The error for another attempt, at the time that the answer asks for."""
        after = retry_after(answer.headers, self._parts.clock())
        if after is None or not self._parts.profile.honours_retry_after:
            return Failed(text)
        return Retry(max(1.0, after), text)

    def _find_ack(self, done: Delivered) -> Ack:
        answer = done.answer
        try:
            answer_fields = parse_object(answer.body)
        except ValueError as error:
            raise Fatal(f"[BAD_ANSWER] {answer.url}: the answer is not JSON") from error
        ack = find_ack(answer_fields or {}, self._parts.profile)
        # A target never answers a relay with a bare status: that is of the relay alone.
        if ack is None or (ack.shape == "bare" and done.is_relayed):
            raise Fatal(f"[NO_ACK] {answer.url}: the answer has no acknowledgement")
        return ack

    def _succeed(self, job: DeliveryJob, done: Delivered) -> None:
        if not done.is_relayed:
            self._record(lambda: note_success(self._parts, job.server))

    def _record(self, note: Callable[[], None]) -> None:
        """Record the health of a server; the outcome of the delivery does not depend on it."""
        try:
            note()
        except StoreError as error:
            self._parts.log("WARN", f"Health of a server not recorded: {error}")


def _admit(parts: FederationParts, job: DeliveryJob, origin: str) -> Destination:
    """The server with its keys, if something may be delivered to it now."""
    known = parts.registry.get(origin)
    if known.blocked:
        _drop(job, f"[BLOCKED] {origin} is blocked: {known.blocked}")
    if parts.profile.checks_target and not _is_below(job.target, origin):
        raise Fatal(f"[BAD_TARGET] the target is not at {origin}")
    if parts.gates:
        wait_for_probe(parts, job.server, known)
    has_keys = bool(keys_of(known).encryption)
    if has_keys and is_registered(known):
        return known
    try:
        return discover(parts, job.server)
    except DiscoveryFailed as error:
        if has_keys and error.code in parts.policies:
            return known  # it cannot be reached, which the delivery finds out too
        if error.code == network_errors.BLOCKED_URL:
            _raise_for(parts, error.code, str(error))
        raise Failed(str(error)) from error


def _is_below(url: str, origin: str) -> bool:
    try:
        return origin_of(url) == origin
    except ValueError:
        return False


def _raise_for(parts: FederationParts, code: str, text: str) -> NoReturn:
    """Raise for an error code, by the profile; the row stays."""
    is_fatal = outcome(parts.profile.outcomes, code) == FATAL
    raise Fatal(text) if is_fatal else Failed(text)


def _drop(job: DeliveryJob, text: str) -> NoReturn:
    """Give a job up, and its row too."""
    raise Fatal(text, row=job.row)


def _finish(job: DeliveryJob, result: str) -> HandlerResult:
    """The result of a job that is done, whose row is deleted once that is stored."""
    return HandlerResult(result, job.row)


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
        reachable = [*compress(asked, threads.map(answers, asked))]
    now = parts.clock()
    for one in reachable:
        update(parts.registry, one.origin, lambda old: mark_success(old, now))
    if not reachable:
        parts.log("ALERT", "No server of the federation can be reached: this one is stranded")
    return reachable[0] if reachable else None
