"""The claimed tasks of a worker: their leases, and the threads that run their handlers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from engine.locks import queue_lock
from engine.model import Outcome, Task
from engine.store import Gone, Store, StoreError
from engine.values import NamedTuple
from engine.work.handlers import Context, Handler, Lacking


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


class FinishedTask(NamedTuple):
    """A handler that has ended: its task, what it raised, and its result."""

    claim: Claim
    failure: BaseException | None
    result: object = None


HandlerRun: TypeAlias = tuple[Handler, Claim, Context]
"""A handler to run, and what it gets."""


class HandlerThreads:
    """Threads that run handlers, each one after another."""

    def __init__(self, go_on: Callable[[FinishedTask], None]) -> None:
        """`go_on` is called on the thread of each handler that has ended."""
        self._go_on = go_on
        self._jobs: SimpleQueue[HandlerRun | None] = SimpleQueue()
        self._number = 0
        """Threads that wait for a job or run one, each until it gets None."""

    def start(self, job: HandlerRun, busy: int) -> None:
        """Run a handler; `busy` run now, with it. Raises `Lacking`: no thread can be started."""
        if busy > self._number:
            jobs = (self._jobs,)
            try:
                threading.Thread(target=self._run, args=jobs, name="handlers", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                raise Lacking(f"cannot start a thread: {error}") from error
            self._number += 1
        self._jobs.put(job)

    def end(self) -> None:
        """End each thread; a hanging handler keeps its thread and its queue."""
        for _ in range(self._number):
            self._jobs.put(None)
        self._jobs, self._number = SimpleQueue(), 0

    def _run(self, jobs: SimpleQueue[HandlerRun | None]) -> None:
        while (job := jobs.get()) is not None:
            handler, claim, context = job
            try:
                finished = FinishedTask(claim, None, handler(claim.task, context))
            except BaseException as error:
                # Any exception of a handler fails its task, never the worker: SystemExit would end
                # this thread, and the worker would wait for ever.
                finished = FinishedTask(claim, error)
            self._go_on(finished)
