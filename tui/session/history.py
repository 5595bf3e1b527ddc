"""The operations of the last 24 hours at one place, from its journal."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from engine.monitor.alerts import Unfinished
from engine.operations.journal import Intent, Operation
from engine.places.place import Place
from engine.places.place_watcher import folder_mtime
from engine.policy import DAY_SECONDS
from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.verbs import VERBS, VerbWords

if TYPE_CHECKING:
    from engine.live.inspector import Inspector  # with asyncio and sqlite3, which `status` spares

SETTLE_RETRY_SECONDS = 30.0
"""Seconds until the outcome of tasks that were still being moved is checked again."""

OLD_SECONDS = 5.0
"""Seconds after a read of the journal from which what it said of a running operation is old; at
least two pauses between reads, which are longer for a place that no screen shows."""

HISTORY_SECONDS = DAY_SECONDS
"""Age limit of the shown operations, in seconds."""


def operation_name(operation: Operation) -> str:
    """Display name of an operation, escaped: its verb, or `replay` for a paced retry."""
    words = operation_words(operation.intent)
    return safe_line(operation.intent.verb) if words is None else words.name


def operation_words(intent: Intent) -> VerbWords | None:
    """What an operation is called; None for a control, or a verb of another version."""
    verb = VERBS.get(intent.verb)
    return None if verb is None else verb.words(is_paced=bool(intent.pace))


def alert_input(operation: Operation) -> Unfinished:
    """An interrupted operation as input of the alert rules."""
    who = operation.intent.who.name
    open_rows, planned = operation.open_rows, operation.planned
    return Unfinished(
        operation.op,
        operation_name(operation),
        operation.started,
        who=who,
        open=open_rows,
        planned=planned,
    )


class History:
    """Re-reads the journal only after its folder changed or while an operation is open. Runs on the
    event loop; all disk access happens on threads."""

    def __init__(
        self,
        place: Place,
        inspector: Inspector,
        clock: Callable[[], float],
        settles: Callable[[], bool],
    ) -> None:
        """`settles`: True to write the outcome of rows that a crash left open into the journal."""
        self._place, self._inspector, self._clock = place, inspector, clock
        self._can_settle = settles
        self._stamps: tuple[int, ...] = ()
        self._reported: set[str] = set()
        self._settled: dict[str, tuple[int, float] | None] = {}
        """Operations that were settled while tasks were still being moved: store generation and
        time of the check; None if nothing is left to find out."""
        self._following: set[str] = set()
        self.half_moved: dict[str, int] = {}
        """Half-moved tasks of each interrupted operation, by id, as far as known."""
        self.operations: tuple[Operation, ...] = ()
        """Latest first."""
        self.error = ""
        """Why the journal cannot be read or written; "" if it can."""
        self.is_read = False
        self.read_at = float("-inf")
        """When the journal was found to be as read (`time.monotonic`)."""
        self.pause_seconds = 0.0
        """Seconds from one read to the next."""

    @property
    def interrupted(self) -> tuple[Operation, ...]:
        """Interrupted operations with rows that were not moved."""
        return tuple(one for one in self.operations if one.is_interrupted and one.open_rows)

    @property
    def seconds_since_read(self) -> float:
        """Seconds since the journal was found to be as read, infinite if it was not read yet;
        another time of the clock changes nothing."""
        return monotonic() - self.read_at

    @property
    def age(self) -> float | None:
        """Seconds since the journal was found to be as read; None if that is not long ago, or it
        was not read yet. What has ended does not become old, but what runs does."""
        age = self.seconds_since_read
        return age if max(OLD_SECONDS, 2 * self.pause_seconds) <= age < float("inf") else None

    async def operation(self, op: str) -> Operation | None:
        """The record of an operation, however old; None if missing. Raises Unavailable: the place
        was closed, or the journal cannot be read."""
        await self.refresh(always=True)
        recent = next((one for one in self.operations if one.op == op), None)
        return recent or await self._inspector.history.operation(op)

    def may_have_changed(self, stamp: int) -> bool:
        """True if the journal may differ from what was read; `stamp`: mtime of its folder, ns."""
        if self._place.journal is None:
            return not self.is_read
        # Read again after a change: two changes within one clock tick have the same mtime.
        is_same = self.is_read and self._stamps == (stamp, stamp)
        return not is_same or any(operation.ended is None for operation in self.operations)

    async def refresh(self, *, always: bool = False) -> tuple[Operation, ...]:
        """Read the journal if it may have changed; return the operations newly found interrupted.
        Raises Unavailable: the place was closed."""
        journal = self._place.journal
        if journal is None:
            self.is_read = True
            return ()
        from asyncio import to_thread

        stamp = await to_thread(folder_mtime, journal.folder)
        if not always and not self.may_have_changed(stamp):
            self.read_at = monotonic()
            return ()
        self._stamps = (*self._stamps[-1:], stamp)
        await self._read()
        for one in self.operations:
            if one.intent.follows and one.op not in self._following:
                self._following.add(one.op)
                self._settled.pop(one.intent.follows, None)  # check it again
        if self._can_settle() and (
            unsettled := [one for one in self.operations if self._is_due(one)]
        ):
            troubles = [why for one in unsettled if (why := await self._settle(one))]
            await self._read()
            self.error = self.error or "; ".join(troubles[:1])
        fresh = {one.op for one in self.operations if one.is_interrupted} - self._reported
        self._reported |= fresh
        return tuple(one for one in self.interrupted if one.op in fresh)

    async def _read(self) -> None:
        began, since = monotonic(), self._clock() - HISTORY_SECONDS
        try:
            self.operations = await self._inspector.history.operations(since)
            self.error, self.read_at = "", began
        except Unavailable as error:
            self.error = str(error)
        self.is_read = True

    def _is_due(self, operation: Operation) -> bool:
        """True if checking an interrupted operation may find something new."""
        if not operation.is_interrupted:
            return False
        if operation.op not in self._settled:
            return True
        then = self._settled[operation.op]
        if then is None:
            return False
        generation, when = then
        changed = self._inspector.latest.generation != generation
        return changed and not 0 <= self._clock() - when < SETTLE_RETRY_SECONDS

    async def _settle(self, operation: Operation) -> str:
        """Settle one operation; return the error, "" if it was settled as far as possible. After an
        error, or while tasks are being moved, it is tried again later."""
        generation, now = self._inspector.latest.generation, self._clock()
        try:
            settled = await self._inspector.history.settle_operation(operation)
        except Unavailable as error:
            return str(error)
        if settled.operation is not None:
            self._settled[operation.op] = (generation, now) if settled.moving else None
            self.half_moved[operation.op] = len(settled.moving)
        return ""
