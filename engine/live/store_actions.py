"""Read and change one store from the event loop, with stores that stay open between calls; list,
undo, continue and abandon the operations in its journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TypeVar

from engine.live.call_thread import CLOSE_TIMEOUT_SECONDS, CallThread
from engine.live.index_sync import MAX_CHANGED_NAMES, IndexSync
from engine.model import Part, Problem, Relatives, Task
from engine.operations import controls, execute, plans, run_plan, trash, undo
from engine.operations.controls import ControlResult, Order
from engine.operations.execute import Report
from engine.operations.journal import Entry, Intent, Journal, Operation
from engine.operations.plans import Plan, RowResult
from engine.operations.undo import Settled
from engine.store import ChangeableStore, Outlook, Unavailable

T = TypeVar("T")

TRASH_BATCH = 500
"""Tasks of the trash that are measured in one go: some 50 ms."""


class StoreThread:
    """An instance of a store on its own thread: opened by the first call, kept for later ones.

    Raises, everywhere: Unavailable, if the store cannot be reached, or the thread was closed."""

    def __init__(self, name: str, open_store: Callable[[], ChangeableStore]) -> None:
        self.calls = CallThread(name, self._close_store)
        self._open_store = open_store
        self._store: ChangeableStore | None = None

    async def run(self, use: Callable[[ChangeableStore], T]) -> T:
        """Call `use` with the store on the thread. After an error the next call opens it again."""
        return await self.calls.run(lambda: self._use(use))

    async def close(self, seconds: float) -> None:
        """End the thread and close the store; a thread that hangs is abandoned."""
        await self.calls.close(seconds)

    def _use(self, use: Callable[[ChangeableStore], T]) -> T:
        if self._store is None:
            self._store = self._open_store()
        try:
            return use(self._store)
        except (Unavailable, OSError):
            self._close_store()
            raise

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


class StoreActions:
    """The content of tasks, and changes: plans, controls and the trash.

    Raises, everywhere: Unavailable, if the store or the journal cannot be reached (a plan has then
    changed nothing); Gone, if the task or file does not exist any more; Unsupported, if it cannot
    be read, with the reason."""

    def __init__(
        self,
        open_store: Callable[[], ChangeableStore],
        acting: StoreThread,
        sync: IndexSync,
        clock: Callable[[], float],
        journal: Journal | None,
        quota: int | None,
    ) -> None:
        """`acting` is the thread of short changes; a plan gets one of its own."""
        self._open_store, self._acting = open_store, acting
        self._reading = StoreThread("spooldeck-reading", open_store)
        self._sync, self._clock, self._journal, self._quota = sync, clock, journal, quota
        self._threads: set[StoreThread] = set()
        self._closed = False

    async def close(self, seconds: float) -> None:
        """Stop running plans and end their threads; one that hangs is abandoned."""
        self._closed = True
        threads = (self._reading, *self._threads)
        await asyncio.gather(*(thread.close(seconds) for thread in threads))

    async def parts(self, task: Task) -> tuple[Part, ...]:
        """The parts of a task, the task itself first."""
        return await self._reading.run(lambda s: tuple(s.parts(task)))

    async def read(self, task: Task, part: str = "") -> bytes:
        """The bytes of a part of a task; without a name, of the task itself."""
        return await self._reading.run(lambda s: s.read(task, part))

    async def relatives(self, task: Task, limit: int) -> Relatives:
        """The parent of a task and at most `limit` of its children."""
        return await self._reading.run(lambda s: s.relatives(task, limit))

    async def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of a file that cannot be read as a task."""
        return await self._reading.run(lambda s: s.preview_problem(problem))

    async def apply_plan(
        self,
        plan: Plan,
        intent: Intent | None = None,
        *,
        report_counts: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
        halted: Callable[[], bool] = lambda: False,
        allowed: execute.RefusalCheck = execute.always_allowed,
    ) -> Report:
        """Apply a plan on a thread of its own; every row is accounted for.

        An `intent` is written to the journal before the first task moves; an operation that cannot
        be undone runs even if that fails, because a full disk may be the reason for it. The other
        arguments are as for `run_plan.run_journaled_plan`; the callables are called on that thread.
        """

        def run(store: ChangeableStore) -> Report:
            return run_plan.run_journaled_plan(
                store,
                self._journal,
                plan,
                intent,
                self._clock,
                report_counts=report_counts,
                halted=lambda: self._closed or halted(),
                allowed=allowed,
                quota=self._quota,
            )

        async with self._own_thread("spooldeck-operation") as thread:
            try:
                return await thread.run(run)
            finally:
                if len(plan.rows) > MAX_CHANGED_NAMES:
                    self._sync.request_scan()
                else:
                    self._sync.request_lookup(row.id for row in plan.rows)

    @asynccontextmanager
    async def _own_thread(self, name: str) -> AsyncIterator[StoreThread]:
        thread = StoreThread(name, self._open_store)
        self._threads.add(thread)
        try:
            yield thread
        finally:
            self._threads.discard(thread)
            await thread.close(CLOSE_TIMEOUT_SECONDS)

    async def run_control(self, order: Order, intent: Intent | None = None) -> ControlResult:
        """Run a control on the whole queue; a full scan follows.

        An `intent` is written to the journal first.

        Raises:
            Unsupported: no such control, it is refused now, or its target or value is invalid;
                nothing was done.
            Unavailable: the store cannot be reached or failed, or the journal cannot be written."""
        journal, clock = self._journal, self._clock
        try:
            return await self._acting.run(
                lambda store: controls.run_control(store, journal, order, intent, clock)
            )
        finally:
            self._sync.request_scan()

    async def forecast_control(self, order: Order) -> Outlook:
        """Forecast the effect of a control; an empty text if the store cannot tell.

        Raises:
            Unsupported, Unavailable: as `run_control`."""
        return await self._acting.run(lambda store: controls.forecast_control(store, order))

    async def measure_tasks(
        self, plan: Plan, report: Callable[[Mapping[str, int], int], bool]
    ) -> None:
        """Measure the size of a plan's first `plans.MAX_MEASURED_TASKS` tasks, batch by batch.
        `report` is called on another thread with the bytes by id and the number of rows so far; it
        returns False to stop."""
        async with self._own_thread("spooldeck-sizes") as thread:

            def run(store: ChangeableStore) -> None:
                sizes, amount = dict[str, int](), 0
                measured = islice(plan.rows, plans.MAX_MEASURED_TASKS)
                for more, tasks in plans.measure_tasks(store, measured):
                    sizes, amount = {**sizes, **more}, amount + tasks
                    if self._closed or not thread.calls.is_wanted() or not report(sizes, amount):
                        return

            await thread.run(run)

    async def plan_restore(self, plan: Plan, retention: float | None) -> Plan:
        """Plan to restore tasks from the trash, each row with its target; `retention`: in days."""
        journal, now = self._journal, self._clock()
        days = float("inf") if retention is None else retention
        return await self._acting.run(
            lambda s: trash.plan_restore(s, journal, plan, now, days).plan
        )

    async def trash_bytes(self) -> int:
        """Bytes of all tasks in the trash, with payloads. Between reads of `TRASH_BATCH` tasks
        the thread does what else is wanted."""
        while not await self._reading.run(lambda store: store.read_trash(TRASH_BATCH)):
            pass
        return await self._reading.run(lambda store: store.trash_bytes())


class OperationHistory:
    """The operations of one place. They are read on the thread that also changes tasks, so that the
    rows of an operation and the tasks they describe belong together.

    Raises, everywhere: Unavailable, if the journal or the store cannot be read, the journal cannot
    be written, or tasks are being moved."""

    def __init__(
        self, acting: StoreThread, clock: Callable[[], float], journal: Journal | None
    ) -> None:
        self._acting, self._clock, self._journal = acting, clock, journal

    async def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """The operations since `since` (epoch seconds UTC), the latest first."""
        journal = self._journal
        if journal is None:
            return ()
        return await self._acting.calls.run(lambda: journal.operations(since))

    async def operation(self, op: str) -> Operation | None:
        """An operation by its id; None if the journal does not have it."""
        journal = self._journal
        return (
            None if journal is None else await self._acting.calls.run(lambda: journal.operation(op))
        )

    async def entries(self, operation: Operation, most: int) -> tuple[Entry, ...]:
        """The first `most` rows of an operation, each with its outcome. New ids of tasks that were
        not seen when it ended are looked for again."""
        journal = self._require_journal()
        entries = await self._acting.calls.run(
            lambda: tuple(islice(journal.entries(operation.op), most))
        )
        if undo.unseen_ids(entries):
            with suppress(Unavailable):
                return await self._acting.run(
                    lambda s: tuple(undo.follow_new_ids(s, journal, operation.op, entries))
                )
        return entries

    async def plan_undo(self, operation: Operation, retention: float) -> undo.UndoPlan:
        """Plan to undo an operation; `retention` of dead tasks is in days."""
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(
            lambda s: undo.plan_undo(s, journal, operation, now, retention)
        )

    async def settle_operation(self, operation: Operation) -> Settled:
        """Find the outcomes of an interrupted operation, and write them to the journal."""
        journal = self._require_journal()
        return await self._acting.run(
            lambda store: undo.settle_operation(store, journal, operation)
        )

    async def plan_rest(self, operation: Operation) -> Plan:
        """Plan to continue an interrupted operation with its unchanged rows."""
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(lambda store: undo.plan_rest(store, journal, operation, now))

    async def abandon_operation(self, operation: Operation, why: str) -> None:
        """Abandon an interrupted operation: its unchanged rows stay unapplied."""
        journal = self._require_journal()
        await self._acting.run(lambda store: undo.abandon_operation(store, journal, operation, why))

    def _require_journal(self) -> Journal:
        if self._journal is None:
            raise Unavailable("this place has no journal")
        return self._journal
