"""A replay: tasks out of the dead-letter queue, a few at a time, and what really becomes of them.

It runs on a thread of its own with a store of its own, and needs no screen: one that shows it polls
`progress` and gives orders. Each task is in the journal before it moves and is moved once; should
the process die, what was not moved still stands where it stood, and the journal says which it is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from engine.model import Task
from engine.operations import run_plan
from engine.operations.execute import Allowed, PlanRun, Report, RowOutcome, RowResult, freely
from engine.operations.journal import Intent, Journal, JournalWriter
from engine.operations.plans import Plan, Row
from engine.replay.outcome_poller import OutcomePoller, PlaceAccess
from engine.replay.outcomes import Known, SentTask, mark_of
from engine.replay.progress import LINES, Phase, ProgressText, ReplayProgress, time_left
from engine.replay.scheduler import (
    ORDERS,
    RATE,
    ReplayEnd,
    ReplayState,
    Send,
    StopReason,
    Wait,
    rules,
)
from engine.replay.settings import RemainderPolicy, ReplayPace, packed
from engine.replay.shared_rate import SharedTokens
from engine.store import Store, StoreError, Unavailable
from engine.text.safe import shown

POLL = 0.25
"""Seconds after which it looks around at the latest."""


VAIN = 10
"""Tasks in a row that could not be changed, from which on no more are tried: it is not about them.
"""


class Result(NamedTuple):
    """What a replay came to."""

    progress: ReplayProgress
    report: Report | None
    """What became of the rows; those that were not sent have failed. None: it was left."""
    held: Report | None = None
    """What became of holding those that were not sent."""
    became: Mapping[str, Known] = {}
    """By their ids, what is known of those that were sent and not delivered."""


class PullBack(NamedTuple):
    """A plan to take back what a replay sent, as somebody saw it and said yes to it."""

    plan: Plan
    intent: Intent
    """Who takes it back, and why."""
    told: Callable[[Report], None]
    """Gets what became of its rows, on the replay's thread."""
    allowed: Allowed = freely


class Replay:
    """One plan to retry, being carried out at a pace."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        plan: Plan,
        pace: ReplayPace,
        *,
        journal: Journal | None = None,
        intent: Intent | None = None,
        facts: PlaceAccess | None = None,
        buckets: str = "",
        root: str = "",
        allowed: Allowed = freely,
        clock: Callable[[], float] = time.time,
        idle: Callable[[float], object] | None = None,
    ) -> None:
        """`buckets` is the file of the token bucket, below `root`; "": none is shared.

        `intent` is who does it and why, for the journal; where there is none, nothing is written
        down, and nothing can be taken back. `idle` waits up to so many seconds, or until an order
        comes.
        """
        self.plan = plan
        self._open_store, self._journal, self._intent = open_store, journal, intent
        self._allowed, self._clock = allowed, clock
        self._bell = threading.Event()
        self._idle = idle or self._wait
        self._orders: deque[str | PullBack] = deque()
        self._detached = False
        self._thread: threading.Thread | None = None
        self._course = ReplayState.begin(pace, len(plan.included), clock())
        self._following = OutcomePoller(facts or PlaceAccess(), pace.timeout)
        self._tokens = SharedTokens(buckets, root, clock)
        self._pending: int | None = None
        self._lines: deque[ProgressText] = deque(maxlen=LINES)
        self._troubles: dict[str, str] = {}
        self._asked = ""
        self._report: Report | None = None
        self._held: Report | None = None
        self._gone = self._vain = 0
        self._pen: JournalWriter | None = None
        self._store: Store
        self._applying: PlanRun
        self._rows: deque[Row]
        self._unreached: float | None = None
        self._progress = ReplayProgress(planned=len(plan.rows), rest=len(plan.included), pace=pace)

    # ---- from any thread

    @property
    def progress(self) -> ReplayProgress:
        """How it stands."""
        return self._progress

    @property
    def result(self) -> Result:
        """What it came to, once it is over."""
        return Result(self._progress, self._report, self._held, self._following.became)

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._thread = threading.Thread(
            target=self._run_alone, name="spooldeck-replay", daemon=True
        )
        self._thread.start()

    def order(self, name: str) -> None:
        """Give one of the `ORDERS`; it is followed soon.

        Raises:
            ValueError: there is no such order.
        """
        if name not in ORDERS:
            raise ValueError(f"no such order: {name!r}, expected one of {', '.join(ORDERS)}")
        self._orders.append(name)
        self._bell.set()

    def pull_back(self, wanted: PullBack) -> None:
        """Stop, and take back the rows of that plan that are in it and still as they were seen.

        What it leaves out, and what was sent since it was made, stays. It is `told` soon, unless
        the replay is over before.
        """
        self._orders.append(wanted)
        self._bell.set()

    def close(self, patience: float = 2.0) -> None:
        """Let go of it as it stands: what is not sent stays, and the journal can go on with it.

        Waits up to so many seconds for the tasks in hand.
        """
        self._detached = True
        self._bell.set()
        self.join(patience)

    def join(self, patience: float | None = None) -> None:
        """Wait until its thread has ended, up to so many seconds; called on itself, not at all."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    # ---- on its own thread

    def run(self) -> Result:
        """Carry it out; blocks until it is over, or was let go of.

        Raises:
            StoreError: it could not even begin.
        """
        store: Store | None = None
        pen: JournalWriter | None = None
        try:
            store = self._open_store()
            pen = self._begin_operation()
            self._carry_out(store, pen)
        except BaseException as error:
            self._troubles["end"] = str(error) or type(error).__name__
            self._publish(Phase.OVER if pen is None else Phase.LEFT, "")
            raise
        finally:
            if pen is not None:
                pen.close()
            if store is not None:
                store.close()
            self._following.close()
        return self.result

    def _run_alone(self) -> None:
        try:
            self.run()
        except StoreError:
            return  # it is in the progress

    def _begin_operation(self) -> JournalWriter | None:
        if self._journal is None or self._intent is None:
            return None
        pace = packed(self._course.pace)
        return self._journal.begin(self._intent._replace(verb=self.plan.verb, pace=pace), self.plan)

    def _carry_out(self, store: Store, pen: JournalWriter | None) -> None:
        self._store, self._pen = store, pen
        self._applying = PlanRun(store, self.plan, self._clock, pen, allowed=self._allowed)
        self._rows = deque(self._applying.waiting)
        self._following.begin()
        while not self._detached and not self._turn():
            pass
        self._note(self._clock(), all_of_it=True)
        if self._detached and self._report is None:
            self._say("left")
            self._publish(Phase.LEFT, "let go of")
            return
        if self._report is None:
            self._report = self._applying.finish("")
        self._publish(Phase.OVER, "")

    def _turn(self) -> bool:
        """Look around, and do the next thing; whether that was the last."""
        now = self._clock()
        while self._orders:
            order = self._orders.popleft()
            if isinstance(order, PullBack):
                self._pull_back(order, now)
            else:
                self._obey(order, now)
        self._follow(now)
        course = self._course
        tokens, token_at = self._tokens.left(course.pace.rate) if course.sends else (0, now)
        step = course.next(now, tokens, token_at, self._pending)
        if isinstance(step, Send):
            sent = self._send(step.amount)
            self._publish(Phase.SENDING, "")
            if not sent:
                self._idle(POLL)  # another took the last token, or the store is out of reach
        elif isinstance(step, StopReason):
            self._halt(step.why)
        elif isinstance(step, Wait):
            self._ask(step)
            self._publish(self._phase(step), step.why)
            until = now + POLL if step.until is None else min(now + POLL, step.until)
            self._idle(max(0.01, until - now))
        return isinstance(step, ReplayEnd)

    def _wait(self, seconds: float) -> None:
        self._bell.wait(seconds)
        self._bell.clear()

    def _phase(self, step: Wait) -> Phase:
        if step.asks:
            return Phase.ASKING
        if self._course.stopped or not self._course.rest:
            return Phase.ENDING
        if self._course.paused:
            return Phase.PAUSED
        return Phase.SENDING if step.why == RATE else Phase.WAITING

    def _ask(self, step: Wait) -> None:
        """Write down that it waits for somebody, once for each reason."""
        why = step.why if step.asks else ""
        if why and why != self._asked:
            self._say("asks", why=why)
        self._asked = why

    # ---- orders

    def _obey(self, order: str, now: float) -> None:
        who = self._intent.who.name if self._intent is not None else ""
        self._course = self._course.ordered(order, now, who or "the operator")
        self._say(order, rate=self._course.pace.rate)
        if order == "stop":
            self._halt(self._course.stopped)

    def _halt(self, why: str) -> None:
        """Send nothing more: account for the rest, and hold it if that is what was wanted."""
        if self._report is not None:
            return
        self._course = self._course.halted(why)
        self._say("stopped", why=why)
        rest = tuple(self._rows)
        self._report = self._applying.finish(f"not sent: {why}")
        if rest and self._course.pace.stops.rest is RemainderPolicy.HOLD:
            plan = Plan("hold", rest, self._clock(), filter=self.plan.filter)
            scope = f"{len(rest):,} that a replay did not send"
            intent = self._intent and self._intent._replace(scope=scope, follows="", pace={})
            self._held = self._also(plan, intent, self._allowed)

    def _pull_back(self, wanted: PullBack, now: float) -> None:
        """Stop, and put back what was seen to wait, where it still stands as it was seen."""
        plan, intent, told, allowed = wanted
        self._say("pull_back")
        self._halt(f"stopped by {intent.who.name or 'the operator'}")
        if self._journal is None:  # without what they were, they would come back otherwise
            told(run_plan.not_done(plan, "nothing can be taken back without a journal"))
            return
        report = self._also(plan, intent, allowed)
        for sent, known in self._following.take_back(report.done):
            self._course = self._course.pulled_back(sent.nth, known.fate, now)
            self._line(sent.id, "taken back", "stands where it stood before")
        told(report)

    def _also(self, plan: Plan, intent: Intent | None, allowed: Allowed) -> Report:
        """Carry another plan out, as an operation of its own."""
        clock = self._clock
        try:
            return run_plan.carry_out(
                self._store, self._journal, plan, intent, clock, allowed=allowed
            )
        except Unavailable as error:
            self._troubles[plan.verb] = str(error)
            return run_plan.not_done(plan, str(error))

    # ---- sending

    def _send(self, amount: int) -> int:
        """Send the next rows; with how many something was done."""
        if why := self._allowed():
            self._halt(why)
            return amount
        marks = self._marks(list(islice(self._rows, amount)))
        if marks is None:
            return 0
        paid = self._tokens.pay(self._course.pace.rate, amount)
        rows = [self._rows.popleft() for _ in range(paid)]
        at = self._clock()
        done: list[RowOutcome] = []
        others: list[RowOutcome] = []
        for ended in self._applying.step(rows):
            (done if ended.end is RowResult.DONE else others).append(ended)
        for nth, ended in enumerate(done, self._course.ever):
            ident = ended.row.id
            self._following.add(SentTask(nth, ident, ended.rev, at, marks.get(ident, "")))
            self._line(ident, "sent", "")
        for ended in others:
            self._gone += ended.end is RowResult.GONE
            self._line(ended.row.id, str(ended.end), shown(ended.words))
        now = self._clock()
        self._course = self._course.sent(len(done), len(others), now)
        if why := self._in_vain(done, others):
            self._halt(why)
        return paid

    def _in_vain(self, done: Sequence[RowOutcome], others: Sequence[RowOutcome]) -> str:
        """Why sending more is of no use; "" when it may be."""
        reasons = [ended.words for ended in others if ended.end is RowResult.FAILED]
        self._vain = 0 if done else self._vain + len(reasons)
        return self._applying.trouble or (reasons[-1] if self._vain >= VAIN else "")

    def _marks(self, rows: Iterable[Row]) -> dict[str, str] | None:
        """The fingerprints of the errors that these have now; None while the store is out of reach:
        then nothing is tried, and so nothing fails for that."""
        try:
            seen = self._store.look({row.id for row in rows})
            marks = {task.id: mark_of(task.error) for task in seen if isinstance(task, Task)}
        except Unavailable as error:
            now = self._clock()
            self._troubles["store"] = str(error)
            self._unreached = now if self._unreached is None else self._unreached
            if now - self._unreached >= self._course.pace.timeout:
                self._halt(str(error))
            return None
        self._troubles.pop("store", None)
        self._unreached = None
        return marks

    # ---- what becomes of them

    def _follow(self, now: float) -> None:
        for change in self._following.look(self._store, now):
            self._course = self._course.told(change, now)
            if change.after.fate is not change.before.fate:
                self._line(change.sent.id, str(change.after.fate), change.after.why)
        if self._course.pace.stops.pending is not None:
            self._pending = self._following.pending(now)
        self._note(now)

    def _note(self, now: float, *, all_of_it: bool = False) -> None:
        """Write down what really became of tasks; what is written later of one holds."""
        for words in self._following.notes(now, all_of_it=all_of_it):
            self._say("became", **words)

    def _say(self, what: str, **words: object) -> None:
        if self._pen is None:
            return
        try:
            self._pen.say(what, **words)
        except Unavailable as error:
            self._troubles["journal"] = str(error)

    def _line(self, ident: str, result: str, detail: str) -> None:
        self._lines.append(ProgressText(self._clock(), shown(ident), result, detail))

    def _publish(self, phase: Phase, why: str) -> None:
        course = self._course
        held = 0 if self._held is None else len(self._held.done)
        troubles = [self._following.problem, self._tokens.problem, *self._troubles.values()]
        self._progress = ReplayProgress(
            phase,
            self._pen.op if self._pen is not None else "",
            course.began,
            self._clock(),
            len(self.plan.rows),
            course.tally,
            self._gone,
            course.dropped - self._gone,
            len(self.plan.rows) - course.planned,
            course.pulled,
            held,
            course.rest - held,
            self._following.failures,
            course.pace,
            course.canaries,
            rules(course, self._pending),
            time_left(course),
            why,
            course.stopped,
            "; ".join(filter(None, troubles)),
            tuple(self._lines),
        )
