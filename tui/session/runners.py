"""Runners that carry a plan out: directly, as a paced replay, or as a pull-back of a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from engine.live.inspector import Inspector
from engine.operations.execute import RefusalCheck, Report, RowResult, always_allowed
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.operations.run_plan import failed_report
from engine.replay.progress import ReplayProgress
from engine.replay.replay import PullBack, Replay, ReplayResult
from engine.store import StoreError

DETACH_TIMEOUT_SECONDS = 3.0
"""Seconds to wait for the current batch when the console quits."""


class Runner(Protocol):
    """Carries a plan out; no method blocks."""

    @property
    def progress(self) -> ReplayProgress | None:
        """Progress of a paced plan; None for others."""
        ...

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """Rows so far, by result."""
        ...

    @property
    def settled(self) -> int:
        """Rows whose outcome is known or will never be."""
        ...

    @property
    def report(self) -> Report | None:
        """Results of all rows; None while it runs."""
        ...

    @property
    def result(self) -> ReplayResult | None:
        """Real outcomes of the tasks of a paced plan; None while it runs."""
        ...

    @property
    def op(self) -> str:
        """Id of the operation in the journal; "" if none or not known yet."""
        ...

    @property
    def ended(self) -> float | None:
        """End time, epoch seconds UTC; None while it runs."""
        ...

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`; an unpaced plan accepts only `stop`."""
        ...

    async def detach(self) -> None:
        """Finish the current batch and detach; the console is quitting."""
        ...


class DirectRun:
    """Carries a plan out without pacing."""

    progress: None = None
    result: None = None

    def __init__(
        self,
        inspector: Inspector,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: RefusalCheck = always_allowed,
    ) -> None:
        """Starts immediately; call it on the event loop."""
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
            report = await self._inspector.actions.apply_plan(
                plan,
                self._intent,
                told=self._update_counts,
                halted=lambda: self._stopped,
                allowed=self._allowed,
            )
        except StoreError as error:
            # The engine reports errors of single rows itself. Here the store could not be opened or
            # the journal not be written: nothing was done.
            report = failed_report(plan, str(error))
        self.counts = {end: len(getattr(report, end)) for end in RowResult}
        self.report, self.ended = report, self._clock()

    def _update_counts(self, counts: Mapping[RowResult, int]) -> None:
        self.counts = counts

    @property
    def settled(self) -> int:
        """Number of handled rows."""
        return sum(self.counts.values())

    @property
    def op(self) -> str:
        """Id of the operation in the journal, once it has ended."""
        return "" if self.report is None else self.report.op

    def order(self, name: str) -> None:
        """On `stop`: end after the current batch."""
        self._stopped |= name == "stop"

    async def detach(self) -> None:
        """End after the current batch."""
        self._stopped = True
        await asyncio.wait([self._task], timeout=DETACH_TIMEOUT_SECONDS)


class ReplayRun:
    """A paced replay, which runs on a thread of its own."""

    def __init__(self, replay: Replay) -> None:
        """Wrap a started replay."""
        self.replay = replay

    @property
    def progress(self) -> ReplayProgress:
        """Progress of the replay."""
        return self.replay.progress

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """Rows so far, by result; a sent row counts as done."""
        now = self.progress
        return {
            RowResult.DONE: now.sent,
            RowResult.GONE: now.skipped,
            RowResult.FAILED: now.refused,
            RowResult.EXCLUDED: now.excluded,
            RowResult.UNAPPLIED: now.unsent + now.held if now.stopped else 0,
        }

    @property
    def settled(self) -> int:
        """Rows whose outcome is known or will never be."""
        now = self.progress
        return now.planned - now.tally.unsettled - (0 if now.stopped else now.unsent)

    @property
    def report(self) -> Report | None:
        """Results of all rows; None while it runs."""
        if self.ended is None:
            return None
        if (report := self.replay.result.report) is not None:
            return report
        # It could not start, or the console is quitting.
        why = self.progress.trouble or "detached"
        return failed_report(self.replay.plan, why)._replace(op=self.op)

    @property
    def result(self) -> ReplayResult | None:
        """Real outcomes of the tasks; None while it runs."""
        return None if self.ended is None else self.replay.result

    @property
    def op(self) -> str:
        """Id of the operation in the journal."""
        return self.progress.op

    @property
    def ended(self) -> float | None:
        """End time; None while it runs."""
        now = self.progress
        return now.now if now.is_over else None

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`."""
        self.replay.order(name)

    async def detach(self) -> None:
        """Detach: unsent tasks stay, and the journal can resume the replay."""
        await asyncio.to_thread(self.replay.close, DETACH_TIMEOUT_SECONDS)


class PullBackRun:
    """Undoes what a replay has sent; the replay carries it out itself and stops."""

    progress: None = None
    result: None = None

    def __init__(
        self,
        paced: ReplayRun,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: RefusalCheck = always_allowed,
    ) -> None:
        """Starts immediately."""
        self._paced, self._plan, self._clock = paced, plan, clock
        self._report: Report | None = None
        self._ended: float | None = None
        paced.replay.pull_back(PullBack(plan, intent, self._take_report, allowed))

    def _take_report(self, report: Report) -> None:
        self._report = report

    @property
    def report(self) -> Report | None:
        """Results of all rows, at the latest when the replay has ended; None before."""
        over = self._paced.ended is not None  # read first: the report comes before the end
        if self._report is None and over:
            self._report = failed_report(
                self._plan, self._paced.progress.trouble or "the replay had already ended"
            )
        return self._report

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """All 0 until the end."""
        report = self.report
        return {end: 0 if report is None else len(getattr(report, end)) for end in RowResult}

    @property
    def settled(self) -> int:
        """All rows, at the end."""
        return sum(self.counts.values())

    @property
    def op(self) -> str:
        """Id of the operation in the journal."""
        return "" if self.report is None else self.report.op

    @property
    def ended(self) -> float | None:
        """End time; None while it runs."""
        if self._ended is None and self.report is not None:
            self._ended = self._clock()
        return self._ended

    def order(self, name: str) -> None:
        """Ignored: it ends within moments."""

    async def detach(self) -> None:
        """Nothing to do: it ends with the replay."""
