"""Operations that this console runs in the background, independent of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from engine.live.inspector import Inspector
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import LockEvidence, State, Verdict
from engine.operations.execute import RefusalCheck, Report, RowResult, always_allowed
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay import estimate
from engine.replay.estimate import WorkerPresence
from engine.replay.log_event_reader import LogEventReader, make_processed_reader
from engine.replay.outcome_poller import OutcomeSources
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay, ReplayResult
from engine.replay.settings import ReplayPace
from engine.replay.shared_rate import BUCKET_NAME
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.format.present import Line
from tui.session.place import Place
from tui.session.runners import DirectRun, PullBackRun, ReplayRun, Runner

PROGRESS_INTERVAL_SECONDS = 0.1
"""Seconds between two checks of an operation's progress."""

RESULT_WORDS: Mapping[RowResult, str] = {
    RowResult.DONE: "done",
    RowResult.GONE: "skipped",
    RowResult.FAILED: "failed",
    RowResult.EXCLUDED: "excluded",
    RowResult.UNAPPLIED: "not applied",
}
"""The result of a row on screen."""


class RunningOperation:
    """One plan that is being carried out, or was."""

    def __init__(self, doing: Runner, plan: Plan, intent: Intent, began: float) -> None:
        """`began`: epoch seconds UTC. Call it on the event loop."""
        self.plan, self.intent, self.began = plan, intent, began
        self.runner = doing
        self.is_stopped = False
        """True if an operator stopped it."""
        self._when_over: list[Callable[[Report], None]] = []
        self._watch = asyncio.get_running_loop().create_task(self._watch_over())

    @property
    def name(self) -> str:
        """Display name: its verb, or `replay`."""
        return self.plan.verb if self.runner.progress is None else "replay"

    @property
    def planned(self) -> int:
        """All rows, including excluded ones."""
        return len(self.plan.rows)

    @property
    def handled(self) -> int:
        """Rows tried so far."""
        untried = (RowResult.EXCLUDED, RowResult.UNAPPLIED)
        return sum(amount for end, amount in self.runner.counts.items() if end not in untried)

    @property
    def share(self) -> float:
        """Progress from 0 to 1."""
        over = self.runner.ended is not None or not self.planned
        return 1.0 if over else self.runner.settled / self.planned

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """Rows so far, by result."""
        return self.runner.counts

    @property
    def progress(self) -> ReplayProgress | None:
        """Progress of a paced plan; None for others."""
        return self.runner.progress

    @property
    def report(self) -> Report | None:
        """Results of all rows; None while it runs."""
        return self.runner.report

    @property
    def result(self) -> ReplayResult | None:
        """Real outcomes of the tasks of a paced plan; None while it runs."""
        return self.runner.result

    @property
    def op(self) -> str:
        """Id of the operation in the journal; "" if none or not known yet."""
        return self.runner.op

    @property
    def ended(self) -> float | None:
        """End time, epoch seconds UTC; None while it runs."""
        return self.runner.ended

    def stop(self) -> None:
        """Stop after the current batch; the other rows stay, or follow their remainder policy."""
        self.order("stop")

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`; an unpaced plan accepts only `stop`."""
        if self.ended is None:
            self.is_stopped |= name == "stop"
            self.runner.order(name)

    async def wait_for_change(self) -> None:
        """Wait until something may have changed; return immediately if it has ended."""
        if self.ended is None:
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)

    def call_at_end(self, call: Callable[[Report], None]) -> None:
        """Call a function with the report, on the event loop, once it has ended."""
        self._when_over.append(call)
        if self.ended is not None:
            self._call_back()

    async def detach(self) -> None:
        """Finish the current batch and detach; the console is quitting."""
        self._watch.cancel()
        if self.ended is None:
            await self.runner.detach()

    async def _watch_over(self) -> None:
        while self.ended is None:
            await self.wait_for_change()
        self._call_back()

    def _call_back(self) -> None:
        calls, self._when_over = self._when_over, []
        if self.report is not None:
            for call in calls:
                call(self.report)


def start_plan(
    place: Place,
    inspector: Inspector,
    clock: Callable[[], float],
    plan: Plan,
    intent: Intent,
    pace: ReplayPace | None = None,
    allowed: RefusalCheck = always_allowed,
) -> RunningOperation:
    """Start a plan, paced if it has a pace; returns immediately.

    Call it on the event loop.
    """
    began = clock()
    if pace is None:
        return RunningOperation(
            DirectRun(inspector, plan, intent, clock, allowed), plan, intent, began
        )
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
    replay.start()
    return RunningOperation(ReplayRun(replay), plan, intent, began)


def start_pull_back(
    running: Sequence[RunningOperation],
    plan: Plan,
    intent: Intent,
    clock: Callable[[], float],
    allowed: RefusalCheck = always_allowed,
) -> RunningOperation | None:
    """Let a running replay carry out the plan that undoes it.

    None if the plan is no such plan, or the replay does not run in this console.
    """
    for one in running:
        if plan.verb == "undo" and one.op and one.op == plan.undoes:
            assert isinstance(one.runner, ReplayRun)
            doing = PullBackRun(one.runner, plan, intent, clock, allowed)
            return RunningOperation(doing, plan, intent, clock())
    return None


def _waiting(inspector: Inspector) -> int | None:
    latest = inspector.latest
    known = latest.is_complete and not latest.unavailable
    return latest.counts.get(State.PENDING, 0) if known else None


def still_running(works: Sequence[RunningOperation]) -> list[RunningOperation]:
    """The operations that have not ended."""
    return [work for work in works if work.ended is None]


def operations_line(works: Sequence[RunningOperation]) -> Line:
    """The running operations for the header: `ops 1 51%`, `ops 2 7% paused`; () if none runs."""
    now = still_running(works)
    if not now:
        return ()
    planned = sum(work.planned for work in now)
    share = int(100 * sum(work.share * work.planned for work in now) / planned) if planned else 100
    phases = [phase_of(work) for work in now]
    words = next((words for phase, words in _PHASE_WORDS.items() if phase in phases), "")
    state: Line = ((f" {words}", "warn"),) if words else ()
    return (
        ("ops ", "muted"),
        (f"{len(now):,} ", "strong"),
        (f"{share}%", "ok"),
        *state,
        ("  ", ""),
    )


_PHASE_WORDS: Mapping[Phase, str] = {Phase.ASKING: "asks", Phase.PAUSED: "paused"}
"""Phases that need the operator, the most urgent first."""


def phase_of(work: RunningOperation) -> Phase | None:
    """State of a paced operation."""
    return None if work.progress is None else work.progress.phase


def find_worker(
    lock: LockEvidence | None, events: Sequence[TaskEvent], now: float, *, ours: bool = False
) -> WorkerPresence:
    """Who works a queue, from its lock and its logs; `ours`: a worker of this console."""
    held = None if lock is None else lock.verdict in (Verdict.HELD, Verdict.STUCK)
    held = ours or held
    began = [e.when for e in events if e.what is EventKind.STARTED and e.when is not None]
    quiet = now - max(began) if began else None
    return WorkerPresence(held, estimate.measure_run_interval(began), quiet)


def describe_result(work: RunningOperation) -> str:
    """Result of an ended operation, in one line with all counts."""
    report, progress = work.report, work.progress
    assert report is not None, "it has ended"
    if work.result is not None and work.result.report is None:
        return f"{work.name}: {safe_line(report.trouble)}; u shows it"
    names = {**RESULT_WORDS, RowResult.DONE: VERBS[work.plan.verb].past}
    counts = {names[result]: len(getattr(report, result)) for result in RowResult}
    state = "done"
    if progress is not None:
        tally, rest = progress.tally, progress.unsent + progress.held
        state = "stopped" if progress.stopped else state
        counts = {
            **{"done": tally.delivered, "failed": tally.failed, "skipped": progress.skipped},
            **{"unknown": tally.unknown, "moved by others": tally.taken},
            **{"refused": progress.refused, "undone": progress.pulled_back},
            **{"excluded": progress.excluded, "not run yet": tally.unsettled, "not sent": rest},
        }
    words = " + ".join(f"{amount:,} {name}" for name, amount in counts.items() if amount)
    trouble = f"; {safe_line(report.trouble)}" if report.trouble and progress is None else ""
    total = sum(counts.values())
    return f"{work.name} {state}: {words or 'nothing'} = {total:,}; u shows it{trouble}"
