"""Operations that this console runs in the background: their start, progress and result. A plan is
carried out directly, as a paced replay, or by the replay that it undoes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from engine.live.inspector import Inspector
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import LockEvidence, State, Verdict
from engine.operations.execute import RefusalCheck, Report, always_allowed
from engine.operations.journal import Intent, Operation
from engine.operations.plans import Plan, RowResult
from engine.operations.run_plan import failed_report
from engine.places.place import Place, WholeQueueFigures
from engine.replay import estimate
from engine.replay.estimate import WorkerPresence
from engine.replay.outcome_poller import LogEventReader, OutcomeSources, make_processed_reader
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay, ReplayResult
from engine.replay.settings import ReplayPace
from engine.replay.shared_rate import BUCKET_NAME
from engine.store import StoreError
from engine.text.figure import Figure
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.text.lines import Line

DETACH_TIMEOUT_SECONDS = 3.0
"""Seconds to wait for the current batch when the console quits."""

PROGRESS_INTERVAL_SECONDS = 0.1


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
        self.words = VERBS[plan.verb].words(is_paced=False)
        """What it is called."""
        self.is_stopped = False
        """True if an operator stopped it."""
        self.clock = clock

    @property
    def planned(self) -> int:
        """All rows, including excluded ones."""
        return len(self.plan.rows)

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
        self.words = VERBS[replay.plan.verb].words(is_paced=True)
        self.replay = replay
        replay.start()

    @property
    def progress(self) -> ReplayProgress:  # type: ignore[override]
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
        now = self.progress
        return now.planned - now.tally.unsettled - (0 if now.stopped else now.unsent)

    @property
    def report(self) -> Report | None:  # type: ignore[override]
        if self.ended is None:
            return None
        if (report := self.replay.result.report) is not None:
            return report
        # It could not start, or the console is quitting.
        why = self.progress.trouble or "detached"
        return failed_report(self.plan, why)._replace(op=self.op)

    @property
    def result(self) -> ReplayResult | None:  # type: ignore[override]
        return None if self.ended is None else self.replay.result

    @property
    def op(self) -> str:
        return self.progress.op

    @property
    def ended(self) -> float | None:  # type: ignore[override]
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
        if self._ended is None and self.report is not None:
            self._ended = self.clock()
        return self._ended


def _counts_of(report: Report | None) -> Mapping[RowResult, int]:
    return {end: 0 if report is None else len(getattr(report, end)) for end in RowResult}


RESULT_WORDS: Mapping[RowResult, str] = {
    RowResult.DONE: "done",
    RowResult.GONE: "skipped",
    RowResult.FAILED: "failed",
    RowResult.EXCLUDED: "excluded",
    RowResult.UNAPPLIED: "not applied",
}


def start_plan(
    place: Place,
    inspector: Inspector,
    clock: Callable[[], float],
    plan: Plan,
    intent: Intent,
    pace: ReplayPace | None = None,
    allowed: RefusalCheck = always_allowed,
) -> RunningOperation:
    """Start a plan, paced if it has a pace, from the event loop; returns immediately."""
    if pace is None:
        return DirectRun(inspector, plan, intent, clock, allowed)
    hearing = LogEventReader(place.logs, clock)
    facts = OutcomeSources(
        hearing,
        make_processed_reader(place.queue_metrics),
        lambda: _waiting(inspector),
        hearing.close,
    )
    journal = place.journal
    replay = Replay(
        place.open,
        plan,
        pace,
        journal=journal,
        intent=intent,
        facts=facts,
        buckets=str(PurePath(journal.folder).with_name(f"{BUCKET_NAME}.buckets"))
        if journal
        else "",
        root=place.root,
        allowed=allowed,
        clock=clock,
    )
    return ReplayRun(replay, intent, clock)


def start_pull_back(
    running: Sequence[RunningOperation],
    plan: Plan,
    intent: Intent,
    clock: Callable[[], float],
    allowed: RefusalCheck = always_allowed,
) -> RunningOperation | None:
    """Let a replay that runs here carry out the plan that undoes it; None if there is none."""
    for one in running:
        if plan.verb == "undo" and one.op and one.op == plan.undoes:
            assert isinstance(one, ReplayRun)
            return PullBackRun(one, plan, intent, clock, allowed)
    return None


def _waiting(inspector: Inspector) -> int | None:
    latest = inspector.latest
    known = latest.is_complete and not latest.unavailable
    return latest.counts.get(State.PENDING, 0) if known else None


def still_running(works: Sequence[RunningOperation]) -> list[RunningOperation]:
    """The operations that have not ended."""
    return [work for work in works if work.ended is None]


def operations_line(
    works: Sequence[RunningOperation], others: Sequence[Operation] = (), *, is_old: bool = False
) -> Line:
    """The running operations for the header: `ops 1 51%`, `ops 2 7% paused`, and those of other
    processes, by the journals: `ana: hold 9/16`, `2 others 25/40`; () if none runs. `is_old`: a
    journal was not read lately: `ana: hold 9+/16`."""
    now = still_running(works)
    line: Line = ()
    if now:
        planned = sum(work.planned for work in now)
        done = sum(work.share * work.planned for work in now)
        share = int(100 * done / planned) if planned else 100
        phases = [phase_of(work) for work in now]
        words = next((words for phase, words in _PHASE_WORDS.items() if phase in phases), "")
        state: Line = ((f" {words}", "warn"),) if words else ()
        line = (("ops ", "muted"), (f"{len(now):,} ", "strong"), (f"{share}%", "ok"), *state)
        line = (*line, ("  ", ""))
    if others:
        first = others[0].intent
        who = f"{len(others)} others"
        if len(others) == 1:
            who = safe_line(f"{first.who.name}: {first.verb}")
        planned = sum(one.planned for one in others)
        done = planned - sum(one.open_rows for one in others)
        figure, style = Figure(done, is_exact=not is_old).text(), "unknown" if is_old else "ok"
        line = (*line, (f"{who} ", "muted"), (f"{figure}/{planned:,}", style), ("  ", ""))
    return line


_PHASE_WORDS: Mapping[Phase, str] = {Phase.ASKING: "asks", Phase.PAUSED: "paused"}
"""Phases that need the operator, the most urgent first."""


def phase_of(work: RunningOperation) -> Phase | None:
    """State of a paced operation."""
    return None if work.progress is None else work.progress.phase


def find_worker(
    lock: LockEvidence | None,
    figures: WholeQueueFigures,
    events: Sequence[TaskEvent],
    now: float,
    *,
    is_of_console: bool = False,
) -> WorkerPresence:
    """Who works a queue, by its lock or figures, and its logs; or a worker of this console."""
    is_held = lock is not None and lock.verdict in (Verdict.HELD, Verdict.STUCK)
    has_worker = is_of_console or (figures.has_worker if lock is None else is_held)
    began = [e.when for e in events if e.what is EventKind.STARTED and e.when is not None]
    quiet = now - max(began) if began else None
    return WorkerPresence(has_worker, estimate.measure_run_interval(began), quiet)


def describe_result(work: RunningOperation) -> str:
    """Result of an ended operation, in one line with all counts."""
    report, progress = work.report, work.progress
    assert report is not None, "it has ended"
    if work.result is not None and work.result.report is None:
        return f"{work.words.name}: {safe_line(report.trouble)}; u shows it"
    names = {**RESULT_WORDS, RowResult.DONE: work.words.past}
    counts = {names[result]: len(getattr(report, result)) for result in RowResult}
    state = "done"
    if progress is not None:
        tally, unsent = progress.tally, progress.unsent + progress.held
        state = "stopped" if progress.stopped else state
        counts = {
            **{"done": tally.delivered, "failed": tally.failed, "skipped": progress.skipped},
            **{"unknown": tally.unknown, "moved by others": tally.taken},
            **{"refused": progress.refused, "undone": progress.pulled_back},
            **{"excluded": progress.excluded, "not run yet": tally.unsettled, "not sent": unsent},
        }
    amounts = [f"{amount:,} {name}" for name, amount in counts.items() if amount]
    words = " + ".join(amounts) + f" = {sum(counts.values()):,}" * (len(amounts) > 1)
    trouble = f"; {safe_line(report.trouble)}" if report.trouble and progress is None else ""
    return f"{work.words.name} {state}: {words or 'nothing'}; u shows it{trouble}"
