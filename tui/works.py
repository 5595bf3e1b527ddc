"""What this console carries out now: it goes on whichever screen is looked at, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Protocol

from engine import runs
from engine.events import Event, What
from engine.following import Facts
from engine.hearing import Hearing, finished_in
from engine.inspector import Inspector
from engine.journal import Intent
from engine.model import LockEvidence, State, Verdict
from engine.operations import Allowed, End, Report, freely
from engine.pace import Pace
from engine.plans import Plan
from engine.progress import Progress
from engine.replay import Replay, Result
from engine.runs import Working
from engine.store import StoreError
from engine.text import shown
from engine.tokens import BUCKET
from engine.verbs import VERBS
from tui.place import Place

PATIENCE = 3.0
"""Seconds for which the tasks in hand are waited for when the console is left."""

GLANCE = 0.1
"""Seconds between two looks at how far something is."""


class Doing(Protocol):
    """Who carries a plan out; nothing here waits."""

    @property
    def progress(self) -> Progress | None:
        """How it stands, where it is paced."""
        ...

    @property
    def counts(self) -> Mapping[End, int]:
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
        """Give one of `engine.pacing.ORDERS`; what is not paced knows only `stop`."""
        ...

    async def leave(self) -> None:
        """The console is being left: let go of it once the tasks in hand are done."""
        ...


class Work:
    """One plan that is being carried out, or was."""

    def __init__(self, doing: Doing, plan: Plan, intent: Intent, began: float) -> None:
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
        return sum(amount for end, amount in counts.items() if end is not End.EXCLUDED)

    @property
    def share(self) -> float:
        """How far it is, 0 to 1."""
        over = self.doing.ended is not None or not self.planned
        return 1.0 if over else self.doing.settled / self.planned

    @property
    def counts(self) -> Mapping[End, int]:
        """How many rows ended how, so far."""
        return self.doing.counts

    @property
    def progress(self) -> Progress | None:
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
        """Give one of `engine.pacing.ORDERS`; what is not paced knows only `stop`."""
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


class Plain:
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
        self.counts: Mapping[End, int] = {**dict.fromkeys(End, 0)}
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
            report = _not_done(plan, str(error))
        self.counts = {end: len(getattr(report, end)) for end in End}
        self.report, self.ended = report, self._clock()

    def _tell(self, counts: Mapping[End, int]) -> None:
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


class Paced:
    """A replay: it runs on a thread of its own, and is asked how it stands."""

    def __init__(self, replay: Replay) -> None:
        """Of a replay that was started."""
        self.replay = replay

    @property
    def progress(self) -> Progress:
        """How it stands."""
        return self.replay.progress

    @property
    def counts(self) -> Mapping[End, int]:
        """How many rows ended how, so far: sent is done."""
        now = self.progress
        failed = now.refused + (now.rest + now.held if now.stopped else 0)
        return {
            End.DONE: now.sent,
            End.GONE: now.gone,
            End.FAILED: failed,
            End.EXCLUDED: now.excluded,
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
        return _not_done(self.replay.plan, why)._replace(op=self.op)

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
        """Give one of `engine.pacing.ORDERS`."""
        self.replay.order(name)

    async def leave(self) -> None:
        """Let go of it: what is not sent stays, and the journal can go on with it."""
        await asyncio.to_thread(self.replay.close, PATIENCE)


class Pulling:
    """What a replay sent, and nobody touched, taken back by the replay itself, which stops."""

    progress: None = None
    result: None = None

    def __init__(self, paced: Paced, plan: Plan, clock: Callable[[], float]) -> None:
        """Begins at once."""
        self._paced, self._plan, self._clock = paced, plan, clock
        self._ended: float | None = None
        paced.order("pull_back")

    @property
    def report(self) -> Report | None:
        """What became of the rows, once they were taken back."""
        back = self._paced.replay.result.back
        if back is None and self._paced.ended is not None:
            return _not_done(self._plan, self._paced.progress.trouble or "the replay was over")
        return back

    @property
    def counts(self) -> Mapping[End, int]:
        """Nothing is known before the end."""
        report = self.report
        return {end: 0 if report is None else len(getattr(report, end)) for end in End}

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
        """When it was over; with the replay at the latest."""
        if self._ended is None and self.report is not None:
            self._ended = self._clock()
        return self._ended

    def order(self, name: str) -> None:
        """It is over in a moment."""

    async def leave(self) -> None:
        """It ends with the replay."""


def begin(
    place: Place,
    inspector: Inspector,
    clock: Callable[[], float],
    plan: Plan,
    intent: Intent,
    pace: Pace | None = None,
    allowed: Allowed = freely,
) -> Work:
    """Begin to carry a plan out, at a pace where it has one; returns at once.

    To be called on the event loop.
    """
    began = clock()
    if pace is None:
        return Work(Plain(inspector, plan, intent, clock, allowed), plan, intent, began)
    hearing = Hearing(place.logs, clock)
    facts = Facts(
        hearing,
        finished_in(place.queue_metrics),
        lambda: _waiting(inspector),
        hearing.close,
    )
    journal, forever = place.journal, float("inf")
    replay = Replay(
        place.open,
        plan,
        pace,
        journal=journal,
        intent=intent,
        facts=facts,
        buckets=str(PurePath(journal.folder).with_name(f"{BUCKET}.buckets")) if journal else "",
        root=place.root,
        retention=forever if place.retention_days is None else place.retention_days,
        allowed=allowed,
        clock=clock,
    )
    replay.start()
    return Work(Paced(replay), plan, intent, began)


def pull_back(
    running: Sequence[Work], plan: Plan, intent: Intent, clock: Callable[[], float]
) -> Work | None:
    """Have a replay that runs take back what this plan takes back; None where none does."""
    for one in running:
        if plan.verb == "undo" and one.op and one.op == plan.undoes:
            assert isinstance(one.doing, Paced)
            return Work(Pulling(one.doing, plan, clock), plan, intent, clock())
    return None


def _not_done(plan: Plan, why: str) -> Report:
    """Every row of a plan accounted for that was not carried out at all."""
    failed = tuple((row.id, why) for row in plan.included)
    return Report(plan, (), (), failed, tuple((row.id, out) for row, out in plan.excluded), why)


def _waiting(inspector: Inspector) -> int | None:
    latest = inspector.latest
    known = latest.complete and not latest.unavailable
    return latest.counts.get(State.PENDING, 0) if known else None


def running(works: Sequence[Work]) -> list[Work]:
    """Those that are not over."""
    return [work for work in works if work.ended is None]


def badge(works: Sequence[Work]) -> str:
    """What the header says of those that run: `op 51%`, `2 ops`; "" where none does."""
    now = running(works)
    if len(now) > 1:
        return f"{len(now)} ops"
    return f"op {int(100 * now[0].share)}%" if now else ""


def working(lock: LockEvidence | None, events: Sequence[Event]) -> Working:
    """Who works a queue, as far as its lock and its logs tell."""
    held = lock is not None and lock.verdict in (Verdict.HELD, Verdict.STUCK)
    began = [e.when for e in events if e.what is What.STARTED and e.when is not None]
    return Working(held, runs.runs_apart(began))


def told(work: Work) -> str:
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
