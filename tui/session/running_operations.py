"""Start an operation in the background, and name its progress and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from engine.live.inspector import Inspector
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import LockEvidence, State, Verdict
from engine.operations.execute import RefusalCheck, always_allowed
from engine.operations.journal import Intent
from engine.operations.plans import Plan, RowResult
from engine.places.place import Place, WholeQueueFigures
from engine.replay import estimate
from engine.replay.estimate import WorkerPresence
from engine.replay.outcome_poller import LogEventReader, OutcomeSources, make_processed_reader
from engine.replay.progress import Phase
from engine.replay.replay import Replay
from engine.replay.settings import ReplayPace
from engine.replay.shared_rate import BUCKET_NAME
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.session.runners import DirectRun, PullBackRun, ReplayRun, RunningOperation
from tui.text.lines import Line

RESULT_WORDS: Mapping[RowResult, str] = {
    RowResult.DONE: "done",
    RowResult.GONE: "skipped",
    RowResult.FAILED: "failed",
    RowResult.EXCLUDED: "excluded",
    RowResult.UNAPPLIED: "not applied",
}
"""The result of a row on screen."""


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
    """Let a running replay carry out the plan that undoes it.

    None if the plan is no such plan, or the replay does not run in this console.
    """
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
    lock: LockEvidence | None,
    figures: WholeQueueFigures,
    events: Sequence[TaskEvent],
    now: float,
    *,
    is_of_console: bool = False,
) -> WorkerPresence:
    """Who works a queue, from its lock or else its figures, and its logs; `is_of_console`: a worker
    of this console."""
    has_worker = (
        figures.has_worker if lock is None else lock.verdict in (Verdict.HELD, Verdict.STUCK)
    )
    has_worker = is_of_console or has_worker
    began = [e.when for e in events if e.what is EventKind.STARTED and e.when is not None]
    quiet = now - max(began) if began else None
    return WorkerPresence(has_worker, estimate.measure_run_interval(began), quiet)


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
        tally, unsent = progress.tally, progress.unsent + progress.held
        state = "stopped" if progress.stopped else state
        counts = {
            **{"done": tally.delivered, "failed": tally.failed, "skipped": progress.skipped},
            **{"unknown": tally.unknown, "moved by others": tally.taken},
            **{"refused": progress.refused, "undone": progress.pulled_back},
            **{"excluded": progress.excluded, "not run yet": tally.unsettled, "not sent": unsent},
        }
    words = " + ".join(f"{amount:,} {name}" for name, amount in counts.items() if amount)
    trouble = f"; {safe_line(report.trouble)}" if report.trouble and progress is None else ""
    total = sum(counts.values())
    return f"{work.name} {state}: {words or 'nothing'} = {total:,}; u shows it{trouble}"
