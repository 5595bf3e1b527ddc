"""Threads that run handlers, each one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

from engine.work.handlers import Context, Handler, Lacking
from engine.work.leases import Claim


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
