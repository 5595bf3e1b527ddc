"""What was done at one place within a day, by whomever, as its journal tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from engine.live.inspector import Inspector
from engine.monitor.alerts import Unfinished
from engine.operations.journal import Operation
from engine.policy import DAY
from engine.store import Unavailable
from engine.text.safe import shown
from tui.session.place import Place

AGAIN = 30.0
"""Seconds after which it is tried again to find out what became of tasks that were being moved."""

TOLD = DAY
"""Seconds for which what was done is told of."""


def name_of(operation: Operation) -> str:
    """What an operation is called, safe to show: its verb, or `replay` where it was paced."""
    intent = operation.intent
    return "replay" if intent.pace and intent.verb == "retry" else shown(intent.verb)


def unfinished(operation: Operation) -> Unfinished:
    """An interrupted operation, as an alert tells of it."""
    who = operation.intent.who.name
    left, planned = operation.open, operation.planned
    return Unfinished(operation.op, name_of(operation), operation.when, who, left, planned)


class History:
    """Reads the journal again only when there is something new in it, or may be.

    Used from the event loop, which never waits for a disk here.
    """

    def __init__(
        self, place: Place, inspector: Inspector, clock: Callable[[], float], settles: bool
    ) -> None:
        """With `settles` it is written down what became of the rows that a crash left open."""
        self._place, self._inspector, self._clock = place, inspector, clock
        self._settles = settles
        self._stamps: tuple[int, ...] = ()
        self._told: set[str] = set()
        self._settled: dict[str, tuple[int, float] | None] = {}
        """Of those that were settled while tasks of theirs were being moved: the generation of the
        store, and when; None where there is nothing more to find out."""
        self._following: set[str] = set()
        self.half: dict[str, int] = {}
        """By their names, how many tasks those that were interrupted left half moved, as far as
        that was found out."""
        self.operations: tuple[Operation, ...] = ()
        """The latest first."""
        self.trouble = ""
        """Why the journal cannot be read, or not be written; "" where it can."""
        self.read = False
        """Whether it was read once."""

    @property
    def interrupted(self) -> tuple[Operation, ...]:
        """Those that were left with rows that were not moved."""
        return tuple(one for one in self.operations if one.interrupted and one.open)

    async def operation(self, op: str) -> Operation | None:
        """One of them as it is now; None where there is no such.

        Raises:
            Unavailable: the place was closed.
        """
        await self.look(always=True)
        return next((one for one in self.operations if one.op == op), None)

    async def look(self, *, always: bool = False) -> tuple[Operation, ...]:
        """Read it, where there may be something new; answers which were found interrupted just now.

        Raises:
            Unavailable: the place was closed.
        """
        journal = self._place.journal
        if journal is None:
            self.read = True
            return ()
        stamp = await asyncio.to_thread(_stamp, journal.folder)
        open_ = any(operation.ended is None for operation in self.operations)
        # Once more after a change: what came within the same tick of the clock has its time too.
        if self.read and not always and not open_ and self._stamps == (stamp, stamp):
            return ()
        self._stamps = (*self._stamps[-1:], stamp)
        await self._read()
        for one in self.operations:
            if one.intent.follows and one.op not in self._following:
                self._following.add(one.op)
                self._settled.pop(one.intent.follows, None)  # now there is more to find out
        if self._settles and (unsettled := [one for one in self.operations if self._is_due(one)]):
            troubles = [why for one in unsettled if (why := await self._settle(one))]
            await self._read()
            self.trouble = self.trouble or "; ".join(troubles[:1])
        fresh = {one.op for one in self.operations if one.interrupted} - self._told
        self._told |= fresh
        return tuple(one for one in self.interrupted if one.op in fresh)

    async def _read(self) -> None:
        try:
            self.operations = await self._inspector.operations(self._clock() - TOLD)
            self.trouble = ""
        except Unavailable as error:
            self.trouble = str(error)
        self.read = True

    def _is_due(self, operation: Operation) -> bool:
        """Whether something may be found out about one that was interrupted."""
        if not operation.interrupted:
            return False
        if operation.op not in self._settled:
            return True
        then = self._settled[operation.op]
        if then is None:
            return False
        generation, when = then
        changed = self._inspector.latest.generation != generation
        return changed and not 0 <= self._clock() - when < AGAIN

    async def _settle(self, operation: Operation) -> str:
        """Why it could not be found out what became of one; "" where it was, as far as it can be.

        Without an answer, or with tasks that are being moved, it is asked again later.
        """
        generation, now = self._inspector.latest.generation, self._clock()
        try:
            settled = await self._inspector.settle(operation)
        except Unavailable as error:
            return str(error)
        if settled.operation is not None:
            self._settled[operation.op] = (generation, now) if settled.moving else None
            self.half[operation.op] = len(settled.moving)
        return ""


def _stamp(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
