"""A worker on a place without a lock: each claim is a lease, and any number may work side by side.

It is woken by the store's own doorbell and ended by signals, as one with a lock is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from engine.handlers import Handler
from engine.model import State
from engine.policy import RetryPolicy
from engine.store import Store
from engine.worker import Run, Services, Worker
from tui.cli.wiring import EX_NOPERM, Setup, complain, fail

DONE, OWED = 0, 3
"""Exit codes: as it should be; an outcome could not be stored, and its task is still claimed."""


def run(
    setup: Setup,
    store: Store,
    handled: Mapping[str, Handler],
    retry: RetryPolicy,
    services: Services,
    *,
    concurrency: int = 1,
    until_idle: bool = False,
) -> Run:
    """Work until stopped, or until nothing is due.

    A first signal ends it after what is in hand, a second ends that, too.

    Raises:
        Fail: what was claimed could not be given back here.
    """
    if refused := store.edges[State.ACTIVE, State.PENDING].refused:
        fail(EX_NOPERM, refused)
    worker = Worker(
        store,
        handled,
        retry,
        owner=str(os.getpid()),
        concurrency=concurrency,
        services=services,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: worker.stop())
    if until_idle:
        return worker.work(until_idle=True)
    from engine.watch import Watch

    watch = Watch(store.doorbell, setup.store, lambda names: worker.ring(), worker.ring)
    watch.start(patience=1.0)
    try:
        return worker.work()
    finally:
        watch.stop()


def tell(run: Run) -> int:
    """What a run came to, in a line for the operator; the exit code that says it."""
    gone = f", {run.gone} taken away while they ran" if run.gone else ""
    complain(f"{run.done} done, {run.failed} failed{gone}")
    if run.owed:
        complain(f"{run.owed} outcomes could not be stored; their tasks are still claimed")
        return OWED
    return DONE
