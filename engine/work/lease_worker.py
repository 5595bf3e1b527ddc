"""Run a worker on a place without a lock: each claim is a lease, so several workers may run.

Changes of the place wake it and signals end it, like a worker with a lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

from engine.config.queue_config import Queue
from engine.model import State
from engine.policy import RetryPolicy
from engine.store import Store
from engine.system.command_errors import EX_NOPERM, fail
from engine.work.handlers import Handler
from engine.work.services import WorkerServices
from engine.work.worker import Worker, WorkerResult
from engine.work.worker_files import registered_worker


def run(
    queue: Queue,
    store: Store,
    handled: Mapping[str, Handler],
    retry: RetryPolicy,
    services: WorkerServices,
    *,
    watch: Callable[[Callable[[], None]], WakeSource],
    concurrency: int = 1,
    until_idle: bool = False,
    owner: str = "",
) -> WorkerResult:
    """Run the worker until a signal, or until no task is due.

    The first signal stops it after the running tasks, the second stops those too. `owner` names
    the worker in its claims, if not by its PID. `watch` makes what wakes an idle worker.

    Raises:
        CommandError: the store cannot return claimed tasks to pending."""
    if refused := store.edges[State.ACTIVE, State.PENDING].refusal:
        fail(EX_NOPERM, refused)
    with registered_worker(queue) as notes:
        worker = Worker(
            store,
            {kind: notes.wrap_handler(handler) for kind, handler in handled.items()},
            retry,
            owner=owner or str(os.getpid()),
            concurrency=concurrency,
            services=services,
        )
        worker.stop_with_signals()
        if until_idle:
            return worker.process_all(until_idle=True)
        source = watch(worker.wake)
        try:
            return worker.process_all()
        finally:
            source.stop()


class WakeSource(Protocol):
    """Wakes a worker as soon as there may be work."""

    def stop(self) -> None:
        """Stop waking."""
