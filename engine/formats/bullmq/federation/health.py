"""Health of servers: after a failed delivery a server is unhealthy, and probes ask later whether it
is there again. The id of a probe's job is fixed, so that no probe is planned twice.

These functions raise `StoreError` if the registry or the queue of probes cannot be used.
"""

from __future__ import annotations

from engine.delivery.network_errors import DeliveryError
from engine.destinations.destination import (
    Destination,
    mark_failure,
    mark_skipped,
    mark_success,
    origin_of,
    restart_probes,
    seconds_to_probe,
    update,
    waits_until,
)
from engine.formats.bullmq.federation.discovery import discover_url
from engine.formats.bullmq.federation.jobs import BadJob, parse_server, probe_id
from engine.formats.bullmq.federation.parts import FederationParts, for_task, keys_of
from engine.model import Task
from engine.store import Gone, StoreError
from engine.work.handlers import Context, Failed, Fatal, Postponed

OVERDUE_SECONDS = 60.0
"""Seconds after which a planned probe that has not run is added again: its job was lost."""
RETRY_SECONDS = 60.0
"""Seconds until a probe is tried again that could not use the registry."""
NOT_REGISTERED = "not registered"
PUT_BACK_SECONDS, PUT_BACK_LIMIT_SECONDS = 15.0, 7200.0
"""Seconds after which the probe of a server that is not ours is due again, so that the worker of
another program can take it; and after its making, until which this is done."""


def note_failure(parts: FederationParts, server: str, code: str) -> None:
    """Mark a server unhealthy, and plan its first probe."""
    now = parts.clock()
    planned: list[tuple[int, float]] = []

    def failed(old: Destination) -> Destination:
        planned.clear()
        if not parts.profile.one_probe_chain:
            old = old._replace(next_probe=None)
        new = mark_failure(old, code, now, parts.probes)
        if new.next_probe is not None and new.next_probe != old.next_probe:
            planned.append((0, new.next_probe - now))
        elif new.next_probe is not None and new.next_probe < now - OVERDUE_SECONDS:
            planned.append((new.probes, 0.0))
        return new

    update(parts.registry, origin_of(server), failed)
    for number, delay in planned:
        parts.add_probe(server, number, delay)


def plan_missing_probes(parts: FederationParts) -> None:
    """Add the planned probes of all servers with known keys, for a worker that starts: those that
    are planned are not added again, and those whose jobs were lost are."""
    if not parts.profile.one_probe_chain:
        return
    now = parts.clock()
    for one in parts.registry.all():
        delay = None if one.healthy else seconds_to_probe(one, now)
        if delay is not None and keys_of(one).signing:
            parts.add_probe(one.origin, one.probes, delay)


def note_success(parts: FederationParts, server: str) -> None:
    """Mark a server healthy after a delivery, if the profile does so."""
    if parts.profile.success_marks_healthy:
        now = parts.clock()
        update(parts.registry, origin_of(server), lambda old: mark_success(old, now))


def wait_for_probe(parts: FederationParts, server: str, known: Destination) -> None:
    """Let a delivery to an unhealthy server wait until its next probe has ended.

    A probe that is late may have lost its job: it is added again, and each minute one delivery of
    all workers goes in its place. Once all probes have failed, one delivery goes, and the probes
    start again.

    Raises:
        Postponed: the delivery waits.
    """
    now, patience = parts.clock(), parts.timeouts.probe
    why = f"{known.origin} is unhealthy: {known.reason}, its next probe"
    until = waits_until(known, now - patience)
    if until is not None:
        raise Postponed(max(until, now) + patience, why)
    policy = parts.policies.get(known.reason)
    if known.healthy or (policy is not None and not policy.probe):
        return
    if known.next_probe is None:
        claimed, delay = restart_probes(known, now, parts.probes), parts.probes.seconds(0)
    else:
        claimed, delay = known._replace(next_probe=now + OVERDUE_SECONDS), 0.0
    if claimed is None:
        return
    try:
        parts.registry.swap(known, claimed)
    except Gone:  # another delivery goes
        raise Postponed(now + patience, why) from None
    parts.add_probe(server, claimed.probes, delay)


class ProbeHandler:
    """Runs the jobs of the health queue: asks an unhealthy server for its /discover."""

    def __init__(self, parts: FederationParts) -> None:
        self._parts = parts

    def __call__(self, task: Task, context: Context) -> object:
        """Probe; a failure counts in the registry and plans the next probe.

        Raises:
            Fatal: the data has no server.
            Failed, Postponed: the registry or the queue cannot be used, by the profile.
            Postponed: the worker cancelled it.
        """
        try:
            server = parse_server(context.data)
            origin = origin_of(server)
        except (BadJob, ValueError) as error:
            raise Fatal(f"[BAD_DATA] {error}") from error
        try:
            return self._probe(task, context, server, origin)
        except StoreError as error:
            text = f"[REGISTRY] {error}"
            if self._parts.profile.probes_survive:
                raise Postponed(self._parts.clock() + RETRY_SECONDS, text) from error
            raise Failed(text) from error

    def _probe(self, task: Task, context: Context, server: str, origin: str) -> str:
        parts = self._parts
        peer = parts.registry.get(origin)
        row = parts.shared.server(origin) if parts.shared is not None else None
        theirs = row if row is not None and row.wants_probe else None
        why = self._skips(task, server, peer)
        if why and theirs is None:
            if row is not None and not peer.rev:
                why = "healthy already" if row.is_healthy else f"not probed after {row.reason}"
            self._repair_chain(task, server, peer)
            self._put_back(task, why)
            if not self._is_probed_after(peer.reason) and not peer.healthy:
                update(
                    parts.registry, origin, lambda old: old if old.healthy else mark_skipped(old)
                )
            parts.log("INFO", f"{origin}: probe skipped: {why}")
            return f"skipped: {why}"
        try:
            send = for_task(parts, context.is_cancelled).send
            answer = send("GET", discover_url(server), timeout=parts.timeouts.probe)
            failure = "" if 200 <= answer.status < 300 else f"status {answer.status}"
        except DeliveryError as error:
            failure = str(error)
        now = parts.clock()
        if not failure:
            if peer.rev:
                update(parts.registry, origin, lambda old: mark_success(old, now))
            if parts.shared is not None and theirs is not None:
                parts.shared.mark_healthy(theirs)
            parts.log("INFO", f"{origin} is healthy again")
            return "healthy"
        if parts.shared is not None and theirs is not None:
            self._plan_next(server, parts.shared.count_probe(theirs), failure)
        if why:
            return f"failed: {failure}"
        number = parts.registry.count_probe(origin)
        wait = parts.probes.wait(number)
        due = None if wait is None else now + wait
        update(
            parts.registry,
            origin,
            lambda old: old if old.healthy else old._replace(next_probe=due, last_failure=now),
        )
        self._plan_next(server, number, failure)
        if wait is None:
            return f"failed: {failure}; no further probe"
        return f"failed: {failure}; next probe in {wait:g} s"

    def _plan_next(self, server: str, number: int, failure: str) -> None:
        """Add the probe of a number, unless it would be one too many."""
        parts = self._parts
        if (wait := parts.probes.wait(number)) is not None:
            parts.add_probe(server, number, wait)
        else:
            text = f"{number} probes have failed, no further one: {failure}"
            parts.log("WARN", f"{origin_of(server)}: {text}")

    def _put_back(self, task: Task, why: str) -> None:
        """Leave the probe of a server that is not ours to the worker of another program.

        Raises:
            Postponed: it is left.
        """
        now, shared = self._parts.clock(), self._parts.shared
        is_known = shared is not None and bool(shared.servers)
        if why == NOT_REGISTERED and not is_known and now < task.created + PUT_BACK_LIMIT_SECONDS:
            raise Postponed(now + PUT_BACK_SECONDS, f"{why} here: left to another program")

    def _repair_chain(self, task: Task, server: str, peer: Destination) -> None:
        """Add the next probe, if an earlier run of this one has counted it and then was killed."""
        is_counted = task.id.endswith(f"/{probe_id(server, peer.probes - 1)}")
        if self._parts.profile.one_probe_chain and is_counted and peer.next_probe is not None:
            delay = max(0.0, peer.next_probe - self._parts.clock())
            self._parts.add_probe(server, peer.probes, delay)

    def _skips(self, task: Task, server: str, peer: Destination) -> str:
        """Why a server is not probed; "" if it is."""
        if not peer.rev:
            return NOT_REGISTERED
        if peer.healthy:
            return "healthy already"
        if not self._is_probed_after(peer.reason):
            return f"not probed after {peer.reason}"
        is_planned = task.id.endswith(f"/{probe_id(server, peer.probes)}")
        if self._parts.profile.one_probe_chain and not is_planned:
            return f"{peer.probes} probes were made since"
        return ""

    def _is_probed_after(self, code: str) -> bool:
        policy = self._parts.policies.get(code)
        return policy is None or policy.probe
