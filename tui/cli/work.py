"""`queue process-next` and `queue work`: the worker, wired to one queue."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable

from engine import locks
from engine.model import LockEvidence, State, Verdict
from engine.policy import at
from engine.stores.nftban import NftbanStore
from engine.worker import Run, Worker
from tui.cli.wiring import EX_NOPERM, Setup, complain, fail

DONE, NOTHING, LOCKED, FAILED = 0, 1, 2, 3
"""Exit codes of the contract ("nftban_queue_process_next")."""


def process_next(setup: Setup, arguments: Namespace) -> int:
    """One task at most."""
    began = time.monotonic()
    with _Work(setup) as work:
        if work.worker is None:
            return LOCKED
        run = work.run(work.worker.process_next)
        if run.done or run.failed:
            taken = int(time.monotonic() - began)
            setup.log("DEBUG", f"Queue processor completed in {taken}s")
    if run.lost:
        complain(run.lost)
        return LOCKED
    if run.owed:
        complain("the outcome could not be stored; the next worker counts a failed attempt")
        return FAILED
    if run.failed:
        return FAILED
    if run.done:
        return DONE
    complain(_why_nothing(run))
    return NOTHING


def work(setup: Setup, arguments: Namespace) -> int:
    """Task after task, woken by what happens in the queue."""
    with _Work(setup, arguments.concurrency) as work:
        if work.worker is None:
            return LOCKED
        run = work.until_stopped(until_idle=arguments.until_idle)
    if run.lost:
        complain(run.lost)
        return LOCKED
    complain(f"{run.done} done, {run.failed} failed")
    if run.owed:
        complain(f"{run.owed} outcomes could not be stored; the next worker counts failed attempts")
        return FAILED
    return DONE


class _Work:
    """A worker with the queue's lock in its hand; `worker` is None when somebody else has it."""

    worker: Worker | None = None

    def __init__(self, setup: Setup, concurrency: int = 1) -> None:
        self._setup = setup
        self._concurrency = concurrency
        self._store: NftbanStore | None = None
        self._lock: locks.PidLock | None = None
        self._lost = False

    def __enter__(self) -> _Work:
        setup = self._setup
        store = self._store = setup.open()
        refused = store.edges[State.ACTIVE, State.PENDING].refused
        if refused:
            fail(EX_NOPERM, refused)
        setup.make_folders()
        try:
            self._lock = locks.acquire(setup.lock_path, setup.queue.stuck_threshold)
        except locks.Busy as busy:
            complain(_who(busy.evidence))
            self._close()
            return self
        if self._lock.taken_over:
            setup.log("WARN", f"Stale lock taken over: {self._lock.taken_over}")
        for line in store.recover():
            setup.log("WARN", f"Recovered {line}")
        self.worker = Worker(
            store,
            setup.handlers(),
            setup.retry_policy(),
            owner=str(os.getpid()),
            lock=self._lock,
            concurrency=self._concurrency,
            services=setup.services(store),
        )
        return self

    def run(self, work: Callable[[], Run]) -> Run:
        """Work; a first signal ends it after what is in hand, a second ends that, too."""
        assert self.worker is not None
        stop = self.worker.stop
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: stop())
        run = work()
        self._lost = bool(run.lost)
        return run

    def until_stopped(self, *, until_idle: bool) -> Run:
        """Work, woken by what happens in the queue."""
        from engine.watch import Watch

        assert self.worker is not None and self._store is not None
        worker, ring = self.worker, self.worker.ring
        watch = Watch(self._store.doorbell, self._setup.open, lambda names: ring(), ring)
        if not until_idle:
            watch.start(patience=1.0)
        try:
            return self.run(lambda: worker.work(until_idle=until_idle))
        finally:
            watch.stop()

    def __exit__(self, *_: object) -> None:
        if self.worker is None or self._store is None:
            return
        try:
            if not self._lost:
                self._setup.services(self._store).publish()
        finally:
            self._close()

    def _close(self) -> None:
        if self._lock is not None and self.worker is not None and self.worker.is_busy:
            # Its handlers go on, and their hold on the lock's flock says so to the next worker.
            self._lock.abandon()
        elif self._lock is not None:
            self._lock.release()
        if self._store is not None:
            self._store.close()


def _who(evidence: LockEvidence) -> str:
    since = f", last sign of life {at(evidence.since)}" if evidence.since is not None else ""
    if evidence.verdict is Verdict.STUCK:
        return f"lock stuck: {evidence.reason}; left alone"
    return f"lock held: {evidence.reason}{since}"


def _why_nothing(run: Run) -> str:
    reasons = [f"{why} for {kind}" for kind, why in sorted(run.refused.items())]
    if run.token_at is not None:
        reasons.append(f"next token {at(run.token_at)}")
    if run.next_due is not None:
        reasons.append(f"next task due {at(run.next_due)}")
    return f"nothing eligible: {'; '.join(reasons) or 'nothing is waiting'}"


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("spooldeck works on Linux: it relies on pidfds, dir_fds and flock")
