"""List past operations from the journal, and plan to undo, continue or abandon them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from engine.live.store_actions import StoreThread
from engine.operations import undo
from engine.operations.journal import Entry, Journal, Operation
from engine.operations.plans import Plan
from engine.operations.undo import Settled
from engine.store import Unavailable


class OperationHistory:
    """The operations of one place. They are read on the thread that also changes tasks, so that the
    rows of an operation and the tasks they describe belong together."""

    def __init__(
        self, acting: StoreThread, clock: Callable[[], float], journal: Journal | None
    ) -> None:
        self._acting, self._clock, self._journal = acting, clock, journal

    async def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """The operations since `since` (epoch seconds UTC), the latest first.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._journal
        if journal is None:
            return ()
        return await self._acting.call(lambda: journal.operations(since))

    async def entries(self, operation: Operation, most: int) -> tuple[Entry, ...]:
        """The first `most` rows of an operation, each with its outcome.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._require_journal()
        return await self._acting.call(lambda: tuple(islice(journal.entries(operation.op), most)))

    async def plan_undo(self, operation: Operation, retention: float) -> undo.UndoPlan:
        """Plan to undo an operation; `retention` of dead tasks is in days.

        Raises:
            Unavailable: the journal or the store cannot be read.
        """
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(
            lambda s: undo.plan_undo(s, journal, operation, now, retention)
        )

    async def settle_operation(self, operation: Operation) -> Settled:
        """Find the outcomes of an interrupted operation, and write them to the journal.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal cannot be written.
        """
        journal = self._require_journal()
        return await self._acting.run(
            lambda store: undo.settle_operation(store, journal, operation)
        )

    async def plan_rest(self, operation: Operation) -> Plan:
        """Plan to continue an interrupted operation with its unchanged rows.

        Raises:
            Unavailable: the journal or the store cannot be read, or tasks are being moved.
        """
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(lambda store: undo.plan_rest(store, journal, operation, now))

    async def abandon_operation(self, operation: Operation, why: str) -> None:
        """Abandon an interrupted operation: its unchanged rows stay unapplied.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal cannot be written;
                or tasks are being moved.
        """
        journal = self._require_journal()
        await self._acting.run(lambda store: undo.abandon_operation(store, journal, operation, why))

    def _require_journal(self) -> Journal:
        if self._journal is None:
            raise Unavailable("this place has no journal")
        return self._journal
