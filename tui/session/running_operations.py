"""What this console carries out now: it goes on whichever screen is looked at, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from engine.live.inspector import Inspector
from engine.logs.task_events import Event, EventKind
from engine.model import LockEvidence, State, Verdict
from engine.operations.execute import Allowed, Report, RowResult, freely
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay import estimate
from engine.replay.estimate import Working
from engine.replay.log_event_reader import LogEventReader, finished_in
from engine.replay.outcome_poller import PlaceAccess
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay, Result
from engine.replay.settings import ReplayPace
from engine.replay.shared_rate import BUCKET
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.session.place import Place
from tui.session.runners import DirectRun, PullBackRun, ReplayRun, Runner

GLANCE = 0.1
"""Seconds between two looks at how far something is."""


class RunningOperation:
    """One plan that is being carried out, or was."""

    def __init__(self, doing: Runner, plan: Plan, intent: Intent, began: float) -> None:
        """`began`: epoch seconds UTC. To be made on the event loop."""
        self.plan, self.intent, self.began = plan, intent, began
        self.doing = doing
        self._when_over: list[Callable[[Report], None]] = []
        self._watch = asyncio.get_running_loop().create_task(self._watch_over())

    @property
    def name(self) -> str:
        """What it is called: its verb, or `replay`."""
        return self.plan.verb if self.doing.progress is None else "replay"

    @property
    def planned(self) -> int:
        """All rows, those that are left out included."""
        return len(self.plan.rows)

    @property
    def handled(self) -> int:
        """How many of the rows that are acted on were, so far."""
        counts = self.doing.counts
        return sum(amount for end, amount in counts.items() if end is not RowResult.EXCLUDED)

    @property
    def share(self) -> float:
        """How far it is, 0 to 1."""
        over = self.doing.ended is not None or not self.planned
        return 1.0 if over else self.doing.settled / self.planned

    @property
    def counts(self) -> Mapping[RowResult, int]:
        """How many rows ended how, so far."""
        return self.doing.counts

    @property
    def progress(self) -> ReplayProgress | None:
        """How it stands, where it is paced."""
        return self.doing.progress

    @property
    def report(self) -> Report | None:
        """What became of the rows; None while it runs."""
        return self.doing.report

    @property
    def result(self) -> Result | None:
        """What really became of the tasks, where it is paced; None while it runs."""
        return self.doing.result

    @property
    def op(self) -> str:
        """The operation in the journal; "" where there is none, or it is not known yet."""
        return self.doing.op

    @property
    def ended(self) -> float | None:
        """When it was over, epoch seconds UTC; None while it runs."""
        return self.doing.ended

    def stop(self) -> None:
        """Do no more than what is in hand; the rest stays as it is, or as its rules say."""
        self.order("stop")

    def order(self, name: str) -> None:
        """Give one of `engine.replay.scheduler.ORDERS`; what is not paced knows only `stop`."""
        if self.ended is None:
            self.doing.order(name)

    async def news(self) -> None:
        """Return when something may have changed; at once when it is over."""
        if self.ended is None:
            await asyncio.sleep(GLANCE)

    def when_over(self, call: Callable[[Report], None]) -> None:
        """Have that called with its report, on the event loop, once it is over."""
        self._when_over.append(call)
        if self.ended is not None:
            self._tell()

    async def leave(self) -> None:
        """The console is being left: let go of it once the tasks in hand are done."""
        self._watch.cancel()
        if self.ended is None:
            await self.doing.leave()

    async def _watch_over(self) -> None:
        while self.ended is None:
            await self.news()
        self._tell()

    def _tell(self) -> None:
        calls, self._when_over = self._when_over, []
        if self.report is not None:
            for call in calls:
                call(self.report)


def begin(
    place: Place,
    inspector: Inspector,
    clock: Callable[[], float],
    plan: Plan,
    intent: Intent,
    pace: ReplayPace | None = None,
    allowed: Allowed = freely,
) -> RunningOperation:
    """Begin to carry a plan out, at a pace where it has one; returns at once.

    To be called on the event loop.
    """
    began = clock()
    if pace is None:
        return RunningOperation(
            DirectRun(inspector, plan, intent, clock, allowed), plan, intent, began
        )
    hearing = LogEventReader(place.logs, clock)
    facts = PlaceAccess(
        hearing,
        finished_in(place.queue_metrics),
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
        buckets=str(PurePath(journal.folder).with_name(f"{BUCKET}.buckets")) if journal else "",
        root=place.root,
        allowed=allowed,
        clock=clock,
    )
    replay.start()
    return RunningOperation(ReplayRun(replay), plan, intent, began)


def pull_back(
    running: Sequence[RunningOperation],
    plan: Plan,
    intent: Intent,
    clock: Callable[[], float],
    allowed: Allowed = freely,
) -> RunningOperation | None:
    """Have a replay that runs carry this plan out, which takes back what it sent.

    None where the plan is no such, or the replay does not run here.
    """
    for one in running:
        if plan.verb == "undo" and one.op and one.op == plan.undoes:
            assert isinstance(one.doing, ReplayRun)
            doing = PullBackRun(one.doing, plan, intent, clock, allowed)
            return RunningOperation(doing, plan, intent, clock())
    return None


def _waiting(inspector: Inspector) -> int | None:
    latest = inspector.latest
    known = latest.complete and not latest.unavailable
    return latest.counts.get(State.PENDING, 0) if known else None


def running(works: Sequence[RunningOperation]) -> list[RunningOperation]:
    """Those that are not over."""
    return [work for work in works if work.ended is None]


def badge(works: Sequence[RunningOperation]) -> str:
    """What the header says of those that run: `op 51%`, `op asks`, `2 ops`; "" where none does."""
    now = running(works)
    asking = sum(phase_of(work) is Phase.ASKING for work in now)
    if len(now) > 1:
        return f"{len(now)} ops" + (f", {asking} asks" if asking else "")
    return "".join(f"op {_STANDS.get(phase_of(one)) or f'{int(100 * one.share)}%'}" for one in now)


_STANDS: Mapping[Phase | None, str] = {Phase.ASKING: "asks", Phase.PAUSED: "paused"}
"""In the place of how far it is: what does not go on by itself."""


def phase_of(work: RunningOperation) -> Phase | None:
    """What it is doing, where it is paced."""
    return None if work.progress is None else work.progress.phase


def working(
    lock: LockEvidence | None, events: Sequence[Event], now: float, *, ours: bool = False
) -> Working:
    """Who works a queue, as far as its lock and its logs tell; `ours`: we know of one ourselves."""
    held = None if lock is None else lock.verdict in (Verdict.HELD, Verdict.STUCK)
    held = ours or held
    began = [e.when for e in events if e.what is EventKind.STARTED and e.when is not None]
    quiet = now - max(began) if began else None
    return Working(held, estimate.runs_apart(began), quiet)


def told(work: RunningOperation) -> str:
    """What came of one that is over, in one line."""
    report, progress = work.report, work.progress
    assert report is not None, "it is over"
    if work.result is not None and work.result.report is None:
        return f"{work.name}: {shown(report.trouble)}; u shows it"
    if progress is None:
        done, gone, failed = len(report.done), len(report.gone), len(report.failed)
        words = f"{done:,} {VERBS[work.plan.verb].past}, {gone:,} gone, {failed:,} failed"
        return f"{words}; u shows it" + (f"; {shown(report.trouble)}" if report.trouble else "")
    tally = progress.tally
    parts = [f"{tally.delivered:,} delivered", f"{tally.failed:,} failed again"]
    unknown, rest = tally.unknown + tally.unsettled, progress.rest + progress.held
    parts += [f"{unknown:,} not known"] if unknown else []
    parts += [f"{rest:,} not sent"] if rest else []
    return f"{work.name} is over: {', '.join(parts)}; u shows it"
