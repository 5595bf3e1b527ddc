"""`queue process-next` and `queue work`: the worker, wired to one queue."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable

from engine.locks import queue_lock
from engine.model import LockEvidence, State, Verdict
from engine.policy import at
from engine.stores.nftban import NftbanStore
from engine.text.safe import shown
from engine.work.worker import Run, Worker
from tui.cli.setup.setup import EX_NOPERM, Setup, complain, fail

DONE, NOTHING, LOCKED, FAILED = 0, 1, 2, 3
"""Exit codes of the contract ("nftban_queue_process_next")."""


def process_next(setup: Setup, arguments: Namespace) -> int:
    """One task at most."""
    setup.require_work()
    if not arguments.timer:
        return _one_task(setup, arguments)[0]
    setup.log_if_allowed("INFO", "Queue processor started by systemd timer")
    code, said = _one_task(setup, arguments)
    if said:
        setup.log_if_allowed(_TIMER_LEVELS[code], said)
    # None of these ends is a failure of the run: the queue itself sees to the next attempt.
    return DONE


_TIMER_LEVELS = {DONE: "INFO", NOTHING: "DEBUG", LOCKED: "DEBUG", FAILED: "WARN"}


def _one_task(setup: Setup, arguments: Namespace) -> tuple[int, str]:
    """The contract's exit code, and what its queue processor, run by the timer, adds to the log.

    Raises:
        Fail: the lock was lost, or the outcome could not be stored: no ordinary end.
    """
    began = time.monotonic()
    with _WorkerRun(setup, quiet=arguments.quiet) as work:
        if work.worker is None:
            return LOCKED, "Queue processor already running, skipping this cycle"
        run = work.run(work.worker.process_next)
        if run.done or run.failed or run.gone:
            taken = int(time.monotonic() - began)
            setup.log("DEBUG", f"Queue processor completed in {taken}s")
        waiting = work.pending if arguments.timer else 0
    if run.lost:
        fail(LOCKED, run.lost)
    if run.owed:
        fail(FAILED, "the outcome could not be stored; the next worker counts a failed attempt")
    if run.gone:
        if not arguments.quiet:
            complain("the task was taken away while it ran")
        return FAILED, "Task was taken away while it ran"
    if run.failed:
        if not arguments.quiet:
            complain(shown(run.last_failure))
        return FAILED, "Task processing returned error (rc=3), retry scheduled"
    if run.done:
        return DONE, "Queue cycle completed successfully"
    if not arguments.quiet:
        complain(_why_nothing(run))
    why = "; ".join(_refusals(run)) or "waiting for backoff"
    return NOTHING, f"No eligible tasks ({waiting} pending, {why})" if waiting else ""


def work(setup: Setup, arguments: Namespace) -> int:
    """Task after task, woken by what happens in the queue."""
    setup.require_work()
    with _WorkerRun(setup, arguments.concurrency) as work:
        if work.worker is None:
            return LOCKED
        run = work.until_stopped(until_idle=arguments.until_idle)
    if run.lost:
        complain(run.lost)
        return LOCKED
    gone = f", {run.gone} taken away while they ran" if run.gone else ""
    complain(f"{run.done} done, {run.failed} failed{gone}")
    if arguments.until_idle and run.refused:
        complain(_why_nothing(run))
    if run.owed:
        complain(f"{run.owed} outcomes could not be stored; the next worker counts failed attempts")
        return FAILED
    return DONE


class _WorkerRun:
    """A worker with the queue's lock in its hand; `worker` is None when somebody else has it."""

    worker: Worker | None = None

    def __init__(self, setup: Setup, concurrency: int = 1, *, quiet: bool = False) -> None:
        self._setup = setup
        self._concurrency = concurrency
        self._quiet = quiet
        self._store: NftbanStore | None = None
        self._lock: queue_lock.PidLock | None = None
        self._lost = False

    def __enter__(self) -> _WorkerRun:
        setup = self._setup
        store = self._store = setup.open()
        refused = store.edges[State.ACTIVE, State.PENDING].refused
        if refused:
            fail(EX_NOPERM, refused)
        setup.make_folders()
        try:
            self._lock = queue_lock.acquire(setup.lock_path, setup.queue.stuck_threshold)
        except queue_lock.Busy as busy:
            self._lock = self._freed(store, busy.evidence)
        if self._lock is None:
            self._close()
            return self
        if self._lock.taken_over:
            setup.log("WARN", f"Removing stale lock ({self._lock.taken_over})")
        for line in store.recover():
            setup.log("WARN", f"Recovered {line}")
        mailing = setup.mailing()
        self.worker = Worker(
            store,
            setup.handlers(store, mailing),
            setup.retry_policy(),
            owner=str(os.getpid()),
            lock=self._lock,
            concurrency=self._concurrency,
            services=setup.services(store, mailing),
        )
        return self

    def _freed(self, store: NftbanStore, lock: LockEvidence) -> queue_lock.PidLock | None:
        """The lock of somebody else, who is ended for it when stuck; None: they are left alone."""
        from engine.locks.lock_breaker import UnsafeToSignal
        from tui.cli.queue.recover import take_from, who

        setup = self._setup
        if lock.verdict is Verdict.STUCK:
            try:
                return take_from(setup, store, lock, complain)
            except queue_lock.Busy as busy:
                lock = busy.evidence
            except UnsafeToSignal as doubt:
                lock = lock._replace(doubt=str(doubt))
        elif lock.verdict is Verdict.HELD:
            age = f"PID: {lock.pid or 'unknown'}, age: {lock.age:.0f}s"
            setup.log("DEBUG", f"Queue processor running ({age})")
        else:
            setup.log("WARN", f"Queue processor skipped this cycle: {who(lock)}")
        if not self._quiet:
            complain(who(lock))
        return None

    @property
    def pending(self) -> int:
        """Tasks that wait."""
        assert self._store is not None
        return self._store.counts()[State.PENDING]

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
        from engine.live.folder_watch import FolderWatch
        from tui.cli.queue.recorder import Flight

        assert self.worker is not None and self._store is not None
        worker, ring = self.worker, self.worker.ring
        watch = FolderWatch(self._store.doorbell, self._setup.open, lambda names: ring(), ring)
        flight = Flight(self._setup)
        if not until_idle:
            watch.start(patience=1.0)
            flight.start()
        try:
            return self.run(lambda: worker.work(until_idle=until_idle))
        finally:
            flight.stop(patience=1.0)
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


def _refusals(run: Run) -> list[str]:
    return [f"{why} for {kind}" for kind, why in sorted(run.refused.items())]


def _why_nothing(run: Run) -> str:
    reasons = _refusals(run)
    if run.token_at is not None:
        reasons.append(f"next token {at(run.token_at)}")
    if run.next_due is not None:
        reasons.append(f"next task due {at(run.next_due)}")
    return f"nothing eligible: {'; '.join(reasons) or 'nothing is waiting'}"


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("spooldeck works on Linux: it relies on pidfds, dir_fds and flock")
