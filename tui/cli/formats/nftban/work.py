"""`queue process-next` and `queue work`: run a worker on one queue."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from engine.delivery.delivery_parts import with_outbox
from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool, require_workable
from engine.formats.nftban.store import NftbanStore
from engine.locks import queue_lock
from engine.model import LockEvidence, State, Verdict
from engine.system.command_errors import EX_NOPERM, EX_TIMEOUT, fail, print_error
from engine.text.times import format_time
from engine.work.worker import Worker, WorkerResult
from tui.cli.formats.nftban.worker_parts import handlers, worker_services
from tui.cli.queue.run_records import print_run_json, record_start

DONE, NOTHING_DUE, LOCKED, FAILED = 0, 1, 2, 3
"""Exit codes of the contract ("nftban_queue_process_next")."""


def process_next(setup: Setup, *, quiet: bool, timer: bool, json: bool) -> int:
    """Run at most one task."""
    require_workable(setup)
    if timer:
        setup.log_if_allowed("INFO", "Queue processor started by systemd timer")
    code, message = _one_task(setup, quiet=quiet, timer=timer, as_json=json)
    if not timer:
        return code
    if message:
        setup.log_if_allowed(_TIMER_LEVELS[code], message)
    # None of these results is a failure of the unit: the queue retries the task.
    return DONE


_TIMER_LEVELS = {DONE: "INFO", NOTHING_DUE: "DEBUG", LOCKED: "DEBUG", FAILED: "WARN"}


def _one_task(setup: Setup, *, quiet: bool, timer: bool, as_json: bool) -> tuple[int, str]:
    """Run one task. Return the contract's exit code, and the log line for a run by the timer."""
    began = time.monotonic()
    with _WorkerRun(setup, quiet=quiet) as work:
        if work.worker is None:
            return LOCKED, "Queue processor already running, skipping this cycle"
        run = work.run(work.worker.process_next)
        if run.done or run.failed or run.gone:
            taken = int(time.monotonic() - began)
            setup.log("DEBUG", f"Queue processor completed in {taken}s")
        waiting = work.pending if timer else 0
        unsettled = work.unsettled
    if as_json:
        print_run_json(run)
    if run.lost:
        fail(LOCKED, run.lost)
    if run.owed:
        fail(FAILED, "cannot store the outcome; the next worker counts a failed attempt")
    if run.gone:
        print_error("another process took the task while it ran")
        return FAILED, "Task was taken by another process while it ran"
    if run.failed:
        print_error(run.last_failure)
        return FAILED, "Task processing returned error (rc=3), retry scheduled"
    if run.lacks:
        print_error(_describe_lacks(run))
        return EX_TIMEOUT, "Task was not tried: the worker lacks something"
    if run.done:
        return DONE, "Queue cycle completed successfully"
    if not quiet:
        print_error(_describe_idle(run, unsettled))
    why = "; ".join(_refusal_texts(run)) or "waiting for backoff"
    return NOTHING_DUE, f"No eligible tasks ({waiting} pending, {why})" if waiting else ""


def work(setup: Setup, *, concurrency: int, until_idle: bool, json: bool) -> int:
    """Run tasks until a signal, woken by changes of the queue."""
    require_workable(setup)
    with _WorkerRun(setup, concurrency) as work:
        if work.worker is None:
            return LOCKED
        record_start(setup)
        run = work.until_stopped(until_idle=until_idle)
        unsettled = work.unsettled
    if json:
        print_run_json(run)
    if run.lost:
        print_error(run.lost)
        return LOCKED
    taken_text = f", {run.gone} taken by others while they ran" if run.gone else ""
    print_error(f"{run.done} done, {run.failed} failed{taken_text}")
    if until_idle and run.refused:
        print_error(_describe_idle(run, unsettled))
    if run.owed:
        print_error(f"cannot store {run.owed} outcomes; the next worker counts failed attempts")
        return FAILED
    if until_idle and run.lacks:
        print_error(_describe_lacks(run))
        return EX_TIMEOUT
    return DONE


class _WorkerRun:
    """A worker that holds the queue lock; `worker` is None if another process holds it."""

    worker: Worker | None = None

    def __init__(self, setup: Setup, concurrency: int = 1, *, quiet: bool = False) -> None:
        self._setup = setup
        self._concurrency = concurrency
        self._quiet = quiet
        self._store: NftbanStore | None = None
        self._lock: queue_lock.PidLock | None = None
        self._lost = False
        self._closing = ExitStack()

    def __enter__(self) -> _WorkerRun:
        setup = self._setup
        store = self._store = open_spool(setup)
        refused = store.edges[State.ACTIVE, State.PENDING].refusal
        if refused:
            fail(EX_NOPERM, refused)
        setup.make_folders()
        try:
            self._lock = queue_lock.acquire_lock(setup.lock_path, setup.queue.stuck_threshold)
        except queue_lock.LockBusy as busy:
            self._lock = self._take_stuck_lock(store, busy.evidence)
        if self._lock is None:
            self._close()
            return self
        if self._lock.taken_over:
            setup.log("WARN", f"Removing stale lock ({self._lock.taken_over})")
        for line in store.recover():
            setup.log("WARN", f"Recovered {line}")
        mailing = setup.mail.handler()
        services = worker_services(setup, store, mailing)
        self.worker = Worker(
            store,
            handlers(setup, store, self._closing, mailing),
            setup.retry_policy(),
            owner=str(os.getpid()),
            lock=self._lock,
            concurrency=self._concurrency,
            services=with_outbox(setup.config, services, self._closing),
        )
        return self

    def _take_stuck_lock(self, store: NftbanStore, lock: LockEvidence) -> queue_lock.PidLock | None:
        """Take the lock of a stuck holder by ending it; None if the holder is not stuck or not
        ended."""
        from engine.locks.lock_breaker import UnsafeToSignal
        from tui.cli.formats.nftban.recover import describe_lock, take_stuck_lock

        setup = self._setup
        if lock.verdict is Verdict.STUCK:
            try:
                return take_stuck_lock(setup, store, lock, print_error)
            except queue_lock.LockBusy as busy:
                lock = busy.evidence
            except UnsafeToSignal as doubt:
                lock = lock._replace(signal_refusal=str(doubt))
        elif lock.verdict is Verdict.HELD:
            age = f"PID: {lock.pid or 'unknown'}, age: {lock.age:.0f}s"
            setup.log("DEBUG", f"Queue processor running ({age})")
        else:
            setup.log("WARN", f"Queue processor skipped this cycle: {describe_lock(lock)}")
        if not self._quiet:
            print_error(describe_lock(lock))
        return None

    @property
    def pending(self) -> int:
        """Number of pending tasks."""
        assert self._store is not None
        return self._store.count_tasks()[State.PENDING]

    @property
    def unsettled(self) -> int:
        """Number of tasks that may still be being written."""
        assert self._store is not None
        return self._store.unsettled

    def run(self, work: Callable[[], WorkerResult]) -> WorkerResult:
        """Run the worker. The first signal stops it after the running tasks, the second stops those
        too."""
        assert self.worker is not None
        self.worker.stop_with_signals()
        run = work()
        self._lost = bool(run.lost)
        return run

    def until_stopped(self, *, until_idle: bool) -> WorkerResult:
        """Run the worker, woken by changes of the queue."""
        from engine.live.folder_watch import FolderWatch
        from tui.cli.formats.nftban.recorder import RecorderThread

        assert self.worker is not None and self._store is not None
        worker, wake = self.worker, self.worker.wake
        reopen = partial(open_spool, self._setup)
        watch = FolderWatch(self._store.changes, reopen, lambda names: wake(), wake)
        flight = RecorderThread(self._setup)
        if not until_idle:
            watch.start(patience=1.0)
            flight.start()
        try:
            return self.run(lambda: worker.process_all(until_idle=until_idle))
        finally:
            flight.stop(patience=1.0)
            watch.stop()

    def __exit__(self, *_: object) -> None:
        if self.worker is None or self._store is None:
            return
        try:
            if not self._lost:
                worker_services(self._setup, self._store).publish()
        finally:
            self._close()

    def _close(self) -> None:
        self._closing.close()
        if self._lock is not None and self.worker is not None and self.worker.is_busy:
            # Its handlers still run; their supervisors keep the flock, so the next worker sees the
            # lock as held.
            self._lock.abandon()
        elif self._lock is not None:
            self._lock.release()
        if self._store is not None:
            self._store.close()


def _describe_lacks(run: WorkerResult) -> str:
    texts = (f"{kind} not tried: {lack}" for kind, lack in sorted(run.lacks.items()))
    return "; ".join(texts)


def _refusal_texts(run: WorkerResult) -> list[str]:
    return [f"{why} for {kind}" for kind, why in sorted(run.refused.items())]


def _describe_idle(run: WorkerResult, unsettled: int = 0) -> str:
    reasons = _refusal_texts(run)
    if unsettled:
        tasks = "1 task" if unsettled == 1 else f"{unsettled:,} tasks"
        reasons.append(f"{tasks} may still be being written")
    if run.token_at is not None:
        reasons.append(f"next token {format_time(run.token_at)}")
    if run.next_due is not None:
        reasons.append(f"next task due {format_time(run.next_due)}")
    return f"nothing eligible: {'; '.join(reasons) or 'no pending tasks'}"


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("spooldeck works on Linux: it relies on pidfds, dir_fds and flock")
