"""Circuit breaker: deliveries to a blocked or unhealthy destination wait for its next probe.

One delivery at each probe time is the probe; one worker claims it, by compare-and-swap."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.destinations import destination as destinations
from engine.destinations.destination import Destination, Registry, update
from engine.schedules import Schedule
from engine.store import Gone, Unavailable
from engine.work.handlers import Postponed

KNOWN_SECONDS = 1.0
"""For so many seconds what the registry said about a destination is used again."""

MAX_KNOWN = 10_000
"""Number of destinations that are remembered."""

REGISTRY_RETRY_SECONDS = 60.0
"""Seconds until a task is tried again because the registry could not be read."""

CLAIM_TRIES = 3


class Breaker:
    """Admits deliveries by the registry, and records there how they ended. Threads may share it."""

    def __init__(
        self,
        registry: Registry,
        probes: Schedule,
        *,
        is_gating: bool,
        patience: float,
        clock: Callable[[], float] = time.time,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Without `is_gating` only a block makes a delivery wait. `patience` is the time in
        seconds after which a probe without a result counts as lost. `warn` logs that a result
        cannot be recorded."""
        self._registry, self._probes, self._is_gating = registry, probes, is_gating
        self._patience, self._clock, self._warn = patience, clock, warn
        self._known: dict[str, tuple[Destination, float]] = {}
        self._warned = ""

    def admit(self, origin: str) -> bool:
        """True if the delivery that may start now is a probe. Raises `Postponed`: it must wait."""
        try:
            for _ in range(CLAIM_TRIES):
                now, destination = self._clock(), self._get(origin)
                until = destinations.waits_until(destination, now)
                if until is not None and (destination.blocked or self._is_gating):
                    why = f"is unhealthy: {destination.reason}: no probe"
                    why = f"is blocked: {destination.blocked}" if destination.blocked else why
                    raise Postponed(until, f"{destination.origin} {why}")
                if not self._is_gating:
                    return False
                claimed = destinations.start_probe(
                    destination, now, self._patience
                ) or destinations.restart_probes(destination, now, self._probes)
                if claimed is None:
                    return False
                try:
                    self._keep(self._registry.swap(destination, claimed))
                except Gone:  # another worker has claimed it
                    self._known.pop(origin, None)
                    continue
                return claimed.probes > 0
        except Unavailable as error:
            raise Postponed(self._clock() + REGISTRY_RETRY_SECONDS, str(error)) from error
        raise Postponed(now + 1.0, f"{origin} is changed by other workers")

    def why_blocked(self, origin: str) -> str:
        """Why an origin is blocked; "" if it is not. Raises `Postponed`: not readable now."""
        try:
            return self._get(origin).blocked
        except Unavailable as error:
            raise Postponed(self._clock() + REGISTRY_RETRY_SECONDS, str(error)) from error

    def record(self, origin: str, code: str, *, is_probe: bool) -> float | None:
        """Record how a delivery ended: with an error code, or "" for an answer. Return the time at
        which tasks are tried again, None if they do not wait."""
        now = self._clock()

        def change(old: Destination) -> Destination:
            if not code:
                return destinations.mark_success(old, now)
            if is_probe:
                return destinations.mark_probe(old, code, now, self._probes)
            return destinations.mark_failure(old, code, now, self._probes)

        try:
            new = self._change(origin, change)
        except Unavailable as error:
            if str(error) != self._warned:
                self._warned = str(error)
                self._warn(f"Health of {origin} not recorded: {error}")
            return None
        self._warned = ""
        self._keep(new)
        return destinations.waits_until(new, now) if self._is_gating else None

    def _change(self, origin: str, change: Callable[[Destination], Destination]) -> Destination:
        known = self._get(origin)
        if (new := change(known)) == known:
            return known
        try:
            return self._registry.swap(known, new)
        except Gone:  # it is known from before another worker's change
            return update(self._registry, origin, change)

    def _get(self, origin: str) -> Destination:
        destination, read = self._known.get(origin, (None, 0.0))
        if destination is not None and 0 <= self._clock() - read < KNOWN_SECONDS:
            return destination
        destination = self._registry.get(origin)
        self._keep(destination)
        return destination

    def _keep(self, destination: Destination) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[destination.origin] = destination, self._clock()
