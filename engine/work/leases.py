"""The claimed tasks of a worker, and their leases, which are extended while handlers run."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from engine.locks import queue_lock
from engine.model import Outcome, Task
from engine.store import Gone, Store, StoreError


class Claim:
    """A claimed task, from `take` until its outcome is stored."""

    __slots__ = ("deadline", "is_lost", "lease_seconds", "renew_at", "task")

    def __init__(self, task: Task, now: float) -> None:
        self.task = task
        """As claimed, or as last renewed."""
        self.deadline = math.inf
        """The time by which its handler must have ended."""
        lease = task.lease
        until = lease.until if lease is not None else None
        self.lease_seconds = math.inf if lease is None or until is None else until - lease.since
        self.renew_at = now + self.lease_seconds / 3
        """The time at which its lease must be extended."""
        self.is_lost = False
        """True if the lease was lost to another process."""


class Leases:
    """The claims of a worker until their outcomes are stored; renews leases and queue lock."""

    def __init__(
        self, store: Store, lock: queue_lock.PidLock | None, log: Callable[[str, str], None]
    ) -> None:
        self._store, self._lock, self._log = store, lock, log
        self.claims: set[Claim] = set()
        """Running tasks, and tasks whose outcome is not stored yet."""
        self._renewing = threading.Lock()
        """Held while the leases in the store are newer than those in `claims`."""

    def latest(self, claim: Claim) -> Task:
        """The task of a claim as last renewed; on any thread."""
        with self._renewing:
            return claim.task

    def is_abandoned(self, task: Task, now: float) -> bool:
        """True if no worker runs a claimed task any more."""
        if self._lock is not None:
            return True
        # A lease without an end ends with its owner; without a lock we are the only worker.
        until = task.lease.until if task.lease is not None else None
        is_ours = any(claim.task.id == task.id for claim in self.claims)
        return not is_ours and (until is None or until <= now)

    def renew(self, now: float) -> None:
        """Renew the lock's heartbeat while no handler exceeds its deadline: otherwise the lock
        must age, so that others see this worker as stuck.

        Extend the leases of which a third is over, but none of a hanging handler. A lost lease
        cancels its handler."""
        if self._lock is not None and not any(claim.deadline < now for claim in self.claims):
            self._lock.renew()
        due = [claim for claim in self.claims if claim.renew_at <= now]
        if not due:
            return
        for claim in due:
            claim.renew_at = now + claim.lease_seconds / 3
        alive = [claim for claim in due if now <= claim.deadline]
        for seconds in {claim.lease_seconds for claim in alive}:
            equal = [claim for claim in alive if claim.lease_seconds == seconds]
            try:
                with self._renewing:
                    outcomes = self._store.renew([claim.task for claim in equal], now + seconds)
                    for claim, outcome in zip(equal, outcomes, strict=True):
                        self._renewed(claim, outcome)
            except (StoreError, OSError) as error:
                self._log("ERROR", f"Leases cannot be extended: {error}")

    def _renewed(self, claim: Claim, outcome: Outcome) -> None:
        ident, error = claim.task.id, outcome.error
        if isinstance(error, Gone):
            claim.is_lost, claim.renew_at = True, math.inf
            why = "another process changed the task; cancelled, its outcome is not stored"
            self._log("WARN", f"Lease of {ident} lost: {why}")
        elif error is not None:
            self._log("ERROR", f"Lease of {ident} cannot be extended: {error}")
        else:
            assert outcome.move.new is not None
            claim.task = outcome.move.new
