"""Operations that this console runs in the background, independent of the screen.

A plan is carried out directly, as a paced replay, or by the replay that it undoes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from engine.live.inspector import Inspector
from engine.operations.execute import RefusalCheck, Report, always_allowed
from engine.operations.journal import Intent
from engine.operations.plans import Plan, RowResult
from engine.operations.run_plan import failed_report
from engine.replay.progress import ReplayProgress
from engine.replay.replay import Replay, ReplayResult
from engine.store import StoreError
from engine.verbs import VERBS

DETACH_TIMEOUT_SECONDS = 3.0
"""Seconds to wait for the current batch when the console quits."""

PROGRESS_INTERVAL_SECONDS = 0.1
"""Seconds between two checks of an operation's progress."""


class RunningOperation:
    """One plan that is being carried out, or was; the base of all ways to do so."""

    report: Report | None
    """Results of all rows; None while it runs."""

    ended: float | None
    """End time, epoch seconds UTC; None while it runs."""

    counts: Mapping[RowResult, int]
    """Rows so far, by result."""

    progress: ReplayProgress | None
    """Progress of a paced plan; None for others."""

    result: ReplayResult | None
    """Real outcomes of the tasks of a paced plan; None while it runs."""

    def __init__(self, plan: Plan, intent: Intent, clock: Callable[[], float]) -> None:
        """Call it on the event loop."""
        self.plan, self.intent, self.began = plan, intent, clock()
        self.name = plan.verb
        self.is_stopped = False
        """True if an operator stopped it."""
        self.clock = clock

    @property
    def planned(self) -> int:
        """All rows, including excluded ones."""
        return len(self.plan.rows)

    @property
    def handled(self) -> int:
        """Rows tried so far."""
        untried = (RowResult.EXCLUDED, RowResult.UNAPPLIED)
        return sum(amount for end, amount in self.counts.items() if end not in untried)

    @property
    def settled(self) -> int:
        """Rows whose outcome is known or will never be."""
        return sum(self.counts.values())

    @property
    def share(self) -> float:
        """Progress from 0 to 1."""
        over = self.ended is not None or not self.planned
        return 1.0 if over else self.settled / self.planned

    @property
    def op(self) -> str:
        """Id of the operation in the journal; "" if none or not known yet."""
        return "" if self.report is None else self.report.op

    def stop(self) -> None:
        """Stop after the current batch; the other rows stay, or follow their remainder policy."""
        self.order("stop")

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`; an unpaced plan accepts only `stop`."""
        if self.ended is None:
            self.is_stopped |= name == "stop"
            self._pass_order(name)

    def _pass_order(self, name: str) -> None:
        """Hand an order to what carries the plan out, if that does not look at `is_stopped`."""

    async def wait_for_change(self) -> None:
        """Wait until something may have changed; return immediately if it has ended."""
        if self.ended is None:
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)

    async def detach(self) -> None:
        """Finish the current batch and detach; the console is quitting."""


class DirectRun(RunningOperation):
    """Carries a plan out without pacing, in batches."""

    progress = result = None

    def __init__(
        self,
        inspector: Inspector,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: RefusalCheck = always_allowed,
    ) -> None:
        """Starts immediately; call it on the event loop."""
        super().__init__(plan, intent, clock)
        self.counts = dict.fromkeys(RowResult, 0)
        self.report = self.ended = None
        self._task = asyncio.get_running_loop().create_task(self._run(inspector, allowed))

    async def _run(self, inspector: Inspector, allowed: RefusalCheck) -> None:
        try:
            report = await inspector.actions.apply_plan(
                self.plan,
                self.intent,
                report_counts=self._update_counts,
                halted=lambda: self.is_stopped,
                allowed=allowed,
            )
        except StoreError as error:
            # The engine reports errors of single rows itself. Here the store could not be opened or
            # the journal not be written: nothing was done.
            report = failed_report(self.plan, str(error))
        self.counts = _counts_of(report)
        self.report, self.ended = report, self.clock()

    def _update_counts(self, counts: Mapping[RowResult, int]) -> None:
        self.counts = counts

    async def detach(self) -> None:
        """End after the current batch."""
        self.is_stopped = True
        await asyncio.wait([self._task], timeout=DETACH_TIMEOUT_SECONDS)


class ReplayRun(RunningOperation):
    """A paced replay, which runs on a thread of its own."""

    def __init__(self, replay: Replay, intent: Intent, clock: Callable[[], float]) -> None:
        """Starts the replay."""
        super().__init__(replay.plan, intent, clock)
        self.name = VERBS[replay.plan.verb].paced_name
        self.replay = replay
        replay.start()

    @property
    def progress(self) -> ReplayProgress:  # type: ignore[override]
        """Progress of the replay."""
        return self.replay.progress

    @property
    def counts(self) -> Mapping[RowResult, int]:  # type: ignore[override]
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
    def report(self) -> Report | None:  # type: ignore[override]
        """Results of all rows; None while it runs."""
        if self.ended is None:
            return None
        if (report := self.replay.result.report) is not None:
            return report
        # It could not start, or the console is quitting.
        why = self.progress.trouble or "detached"
        return failed_report(self.plan, why)._replace(op=self.op)

    @property
    def result(self) -> ReplayResult | None:  # type: ignore[override]
        """Real outcomes of the tasks; None while it runs."""
        return None if self.ended is None else self.replay.result

    @property
    def op(self) -> str:
        """Id of the operation in the journal."""
        return self.progress.op

    @property
    def ended(self) -> float | None:  # type: ignore[override]
        """End time; None while it runs."""
        now = self.progress
        return now.now if now.is_over else None

    def _pass_order(self, name: str) -> None:
        self.replay.order(name)

    async def detach(self) -> None:
        """Detach: unsent tasks stay, and the journal can resume the replay."""
        if self.ended is None:
            await asyncio.to_thread(self.replay.close, DETACH_TIMEOUT_SECONDS)


class PullBackRun(RunningOperation):
    """Undoes what a replay has sent; the replay carries it out itself and stops."""

    progress = result = None

    def __init__(
        self,
        paced: ReplayRun,
        plan: Plan,
        intent: Intent,
        clock: Callable[[], float],
        allowed: RefusalCheck = always_allowed,
    ) -> None:
        """Starts immediately."""
        super().__init__(plan, intent, clock)
        self._paced = paced
        self._report: Report | None = None
        self._ended: float | None = None
        paced.replay.pull_back(plan, intent, self._take_report, allowed)

    def _take_report(self, report: Report) -> None:
        self._report = report

    @property
    def report(self) -> Report | None:  # type: ignore[override]
        """Results of all rows, at the latest when the replay has ended; None before."""
        over = self._paced.ended is not None  # read first: the report comes before the end
        if self._report is None and over:
            self._report = failed_report(
                self.plan, self._paced.progress.trouble or "the replay had already ended"
            )
        return self._report

    @property
    def counts(self) -> Mapping[RowResult, int]:  # type: ignore[override]
        """All 0 until the end."""
        return _counts_of(self.report)

    @property
    def ended(self) -> float | None:  # type: ignore[override]
        """End time; None while it runs."""
        if self._ended is None and self.report is not None:
            self._ended = self.clock()
        return self._ended


def _counts_of(report: Report | None) -> Mapping[RowResult, int]:
    return {end: 0 if report is None else len(getattr(report, end)) for end in RowResult}
