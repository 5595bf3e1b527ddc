"""Who carries a plan out: at once, at a pace, or a replay that runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from engine.live.inspector import Inspector
from engine.operations.execute import Allowed, Report, RowResult, freely
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.operations.run_plan import not_done
from engine.replay.progress import ReplayProgress
from engine.replay.replay import PullBack, Replay, Result
from engine.store import StoreError

PATIENCE = 3.0
"""Seconds for which the tasks in hand are waited for when the console is left."""


class Runner(Protocol):
    """Who carries a plan out; nothing here waits."""

    @property
    def progress(self) -> ReplayProgress | None:
        """How it stands, where it is paced."""
        ...

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """How many rows ended how, so far."""
        ...

    @property
    def settled(self) -> int:
        """Of how many rows it is known what became of them, or that nothing will."""
        ...

    @property
    def report(self) -> Report | None:
        """What became of the rows; None while it runs."""
        ...

    @property
    def result(self) -> Result | None:
        """What really became of the tasks, where it is paced; None while it runs."""
        ...

    @property
    def op(self) -> str:
        """The operation in the journal; "" where there is none, or it is not known yet."""
        ...

    @property
    def ended(self) -> float | None:
        """When it was over, epoch seconds UTC; None while it runs."""
        ...

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`; what is not paced knows only `stop`."""
        ...

    async def leave(self) -> None:
        """The console is being left: let go of it once the tasks in hand are done."""
        ...


class DirectRun:
    """A plan carried out as fast as it goes."""

    progress: None = None
    result: None = None

    def __init__(
        self,
        inspector: Inspector,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: Allowed = freely,
    ) -> None:
        """Begins at once; to be made on the event loop."""
        self.counts: Mapping[RowResult, int] = {**dict.fromkeys(RowResult, 0)}
        self.report: Report | None = None
        self.ended: float | None = None
        self._inspector, self._plan, self._intent = inspector, plan, intent
        self._clock, self._allowed = clock, allowed
        self._stopped = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        plan = self._plan
        try:
            report = await self._inspector.apply(
                plan,
                self._intent,
                told=self._tell,
                halted=lambda: self._stopped,
                allowed=self._allowed,
            )
        except StoreError as error:
            # The engine accounts for every row itself; this is a store that could not be opened,
            # or a journal that could not be written: nothing was done.
            report = not_done(plan, str(error))
        self.counts = {end: len(getattr(report, end)) for end in RowResult}
        self.report, self.ended = report, self._clock()

    def _tell(self, counts: Mapping[RowResult, int]) -> None:
        self.counts = counts

    @property
    def settled(self) -> int:
        """All that were handled."""
        return sum(self.counts.values())

    @property
    def op(self) -> str:
        """The operation in the journal, once it is over."""
        return "" if self.report is None else self.report.op

    def order(self, name: str) -> None:
        """End it after the batch in hand, if that is the order."""
        self._stopped |= name == "stop"

    async def leave(self) -> None:
        """End it after the batch in hand."""
        self._stopped = True
        await asyncio.wait([self._task], timeout=PATIENCE)


class ReplayRun:
    """A replay: it runs on a thread of its own, and is asked how it stands."""

    def __init__(self, replay: Replay) -> None:
        """Of a replay that was started."""
        self.replay = replay

    @property
    def progress(self) -> ReplayProgress:
        """How it stands."""
        return self.replay.progress

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """How many rows ended how, so far: sent is done."""
        now = self.progress
        left_out = now.excluded + (now.rest + now.held if now.stopped else 0)
        return {
            RowResult.DONE: now.sent,
            RowResult.GONE: now.gone,
            RowResult.FAILED: now.refused,
            RowResult.EXCLUDED: left_out,
        }

    @property
    def settled(self) -> int:
        """Of how many rows it is known what became of them, or that nothing will."""
        now = self.progress
        return now.planned - now.tally.unsettled - (0 if now.stopped else now.rest)

    @property
    def report(self) -> Report | None:
        """What became of the rows; None while it runs."""
        if self.ended is None:
            return None
        if (report := self.replay.result.report) is not None:
            return report
        # It could not begin, or the console is being left.
        why = self.progress.trouble or "let go of"
        return not_done(self.replay.plan, why)._replace(op=self.op)

    @property
    def result(self) -> Result | None:
        """What really became of them; None while it runs."""
        return None if self.ended is None else self.replay.result

    @property
    def op(self) -> str:
        """The operation in the journal."""
        return self.progress.op

    @property
    def ended(self) -> float | None:
        """When it was over."""
        now = self.progress
        return now.now if now.is_over else None

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`."""
        self.replay.order(name)

    async def leave(self) -> None:
        """Let go of it: what is not sent stays, and the journal can go on with it."""
        await asyncio.to_thread(self.replay.close, PATIENCE)


class PullBackRun:
    """A plan to take back what a replay sent, carried out by that replay itself, which stops."""

    progress: None = None
    result: None = None

    def __init__(
        self,
        paced: ReplayRun,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: Allowed = freely,
    ) -> None:
        """Begins at once."""
        self._paced, self._plan, self._clock = paced, plan, clock
        self._report: Report | None = None
        self._ended: float | None = None
        paced.replay.pull_back(PullBack(plan, intent, self._tell, allowed))

    def _tell(self, report: Report) -> None:
        self._report = report

    @property
    def report(self) -> Report | None:
        """What became of the rows, once they were taken back; with the replay at the latest."""
        over = self._paced.ended is not None  # asked first: what is told is told before
        if self._report is None and over:
            self._report = not_done(
                self._plan, self._paced.progress.trouble or "the replay was over before"
            )
        return self._report

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """Nothing is known before the end."""
        report = self.report
        return {end: 0 if report is None else len(getattr(report, end)) for end in RowResult}

    @property
    def settled(self) -> int:
        """All, at the end."""
        return sum(self.counts.values())

    @property
    def op(self) -> str:
        """The operation in the journal."""
        return "" if self.report is None else self.report.op

    @property
    def ended(self) -> float | None:
        """When it was over."""
        if self._ended is None and self.report is not None:
            self._ended = self._clock()
        return self._ended

    def order(self, name: str) -> None:
        """It is over in a moment."""

    async def leave(self) -> None:
        """It ends with the replay."""
