"""Replay: move tasks from the dead-letter queue to pending at a limited rate and track outcomes.

It runs on its own thread with its own store and needs no screen: a screen polls `progress` and
sends orders. Each task is written to the journal before it is moved, and moved once. If the process
dies, the remaining tasks are unchanged, and the journal has their ids."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from engine.model import Task
from engine.operations import run_plan
from engine.operations.execute import PlanRun, RefusalCheck, Report, always_allowed
from engine.operations.journal import Intent, Journal, JournalWriter
from engine.operations.plans import Plan, Row, RowOutcome, RowResult
from engine.replay.outcome_poller import OutcomePoller, OutcomeSources
from engine.replay.outcomes import KnownOutcome, SentTask, fingerprint_of
from engine.replay.progress import (
    MAX_LATEST,
    MAX_PROBLEMS,
    Phase,
    ReplayProgress,
    TaskProgress,
    estimate_seconds_left,
)
from engine.replay.scheduler import (
    ORDERS,
    RATE_REASON,
    ReplayEnd,
    ReplayState,
    Send,
    StopReason,
    Wait,
    check_stop_rules,
)
from engine.replay.settings import RemainderPolicy, ReplayPace
from engine.replay.shared_rate import SharedTokens
from engine.store import ChangeableStore, StoreError, Unavailable
from engine.text.safe import safe_line
from engine.text.typed_json import to_json
from engine.values import NamedTuple
from engine.verbs import VERBS

POLL_INTERVAL_SECONDS = 0.25
"""Maximum seconds between two polls."""

MAX_CONSECUTIVE_FAILURES = 10
"""After this many consecutive tasks that could not be changed, the replay stops: the cause is not
the tasks."""


class ReplayResult(NamedTuple):
    """Result of a replay."""

    progress: ReplayProgress
    report: Report | None
    """Result of each row; unsent rows are unapplied. None: the replay was detached."""
    held: Report | None = None
    known_outcomes: Mapping[str, KnownOutcome] = {}
    """By task id, what is known of the sent tasks that were not delivered."""


class Replay:
    """Execution of one plan (retry, rerun) at a limited rate."""

    def __init__(
        self,
        open_store: Callable[[], ChangeableStore],
        plan: Plan,
        pace: ReplayPace,
        *,
        journal: Journal | None = None,
        intent: Intent | None = None,
        facts: OutcomeSources | None = None,
        buckets: str = "",
        root: str = "",
        allowed: RefusalCheck = always_allowed,
        clock: Callable[[], float] = time.time,
        idle: Callable[[float], object] | None = None,
    ) -> None:
        """`buckets` is the file of the shared token bucket, below `root`; "": no shared bucket.

        `intent` is the operator and reason for the journal; without it nothing is written to the
        journal, and nothing can be undone. `idle` waits up to the given seconds, or until an order
        comes."""
        self.plan = plan
        self._open_store, self._journal, self._intent = open_store, journal, intent
        self._allowed, self._clock = allowed, clock
        self._wake = threading.Event()
        self._idle = idle or self._wait
        self._orders: deque[Callable[[float], None]] = deque()
        self._detached = False
        self._thread: threading.Thread | None = None
        self._course = ReplayState.begin(pace, plan.amount, clock())
        self._poller = OutcomePoller(facts or OutcomeSources(), pace.timeout)
        self._tokens = SharedTokens(buckets, root, clock)
        self._pending: int | None = None
        self._problems: dict[str, TaskProgress] = {}
        self._latest: dict[str, TaskProgress] = {}
        self._troubles: dict[str, str] = {}
        self._asked = ""
        self._report: Report | None = None
        self._held: Report | None = None
        self._gone = self._failed_in_a_row = 0
        self._writer: JournalWriter | None = None
        self._store: ChangeableStore
        self._applying: PlanRun
        self._rows: deque[Row]
        self._unreached: float | None = None
        self._progress = ReplayProgress(planned=len(plan.rows), unsent=plan.amount, pace=pace)

    # ---- from any thread

    @property
    def progress(self) -> ReplayProgress:
        """Present progress."""
        return self._progress

    @property
    def result(self) -> ReplayResult:
        """Result, once it has ended."""
        return ReplayResult(self._progress, self._report, self._held, self._poller.known_outcomes)

    def start(self) -> None:
        """Start it on its own thread."""
        self._thread = threading.Thread(
            target=self._run_alone, name="spooldeck-replay", daemon=True
        )
        self._thread.start()

    def order(self, name: str) -> None:
        """Send one of the `ORDERS`; it takes effect soon.

        Raises:
            ValueError: there is no such order."""
        if name not in ORDERS:
            raise ValueError(f"no such order: {name!r}, expected one of {', '.join(ORDERS)}")
        self._orders.append(partial(self._obey, name))
        self._wake.set()

    def pull_back(
        self,
        plan: Plan,
        intent: Intent,
        report_result: Callable[[Report], None],
        allowed: RefusalCheck = always_allowed,
    ) -> None:
        """Stop, and move back the plan's rows that are unchanged since the plan.

        Excluded rows, and tasks sent after the plan was made, stay. `intent` has operator and
        reason, for the journal; `report_result` is called soon on the replay's thread with the
        result of the rows, unless the replay ends first."""

        def act(now: float) -> None:
            self._say("pull_back")
            self._halt(f"stopped by {intent.who.name or 'the operator'}")
            if self._journal is None:  # the journal has the tasks' former values
                report_result(run_plan.failed_report(plan, "cannot undo without a journal"))
                return
            report = self._also(plan, intent, allowed)
            for sent, known in self._poller.remove(report.done):
                self._course = self._course.with_pulled_back(sent.nth, known.outcome, now)
                self._line(sent.id, "undone", "back in its former state")
            report_result(report)

        self._orders.append(act)
        self._wake.set()

    def close(self, patience: float = 2.0) -> None:
        """Detach: unsent tasks stay, and the journal can continue the replay. Waits up to
        `patience` seconds for the tasks being moved."""
        self._detached = True
        self._wake.set()
        self.join(patience)

    def join(self, patience: float | None = None) -> None:
        """Wait up to `patience` seconds for its thread to end; returns immediately on that
        thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    # ---- on its own thread

    def run(self) -> ReplayResult:
        """Run the replay; blocks until it has ended or is detached.

        Raises:
            StoreError: it could not start."""
        store: ChangeableStore | None = None
        writer: JournalWriter | None = None
        try:
            store = self._open_store()
            writer = self._begin_operation()
            self._carry_out(store, writer)
        except BaseException as error:
            self._troubles["end"] = str(error) or type(error).__name__
            self._publish(Phase.OVER if writer is None else Phase.LEFT, "")
            raise
        finally:
            if writer is not None:
                writer.close()
            if store is not None:
                store.close()
            self._poller.close()
        return self.result

    def _run_alone(self) -> None:
        try:
            self.run()
        except StoreError:
            return  # it is in the progress

    def _begin_operation(self) -> JournalWriter | None:
        if self._journal is None or self._intent is None:
            return None
        pace = to_json(self._course.pace)
        return self._journal.begin(self._intent._replace(verb=self.plan.verb, pace=pace), self.plan)

    def _carry_out(self, store: ChangeableStore, writer: JournalWriter | None) -> None:
        self._store, self._writer = store, writer
        self._applying = PlanRun(store, self.plan, self._clock, writer, allowed=self._allowed)
        self._rows = deque(self._applying.open_rows)
        self._poller.begin()
        while not self._detached and not self._turn():
            pass
        self._note(self._clock(), all_of_it=True)
        if self._detached and self._report is None:
            self._say("left")
            self._publish(Phase.LEFT, "detached")
            return
        if self._report is None:
            self._report = self._applying.finish("")
        self._publish(Phase.OVER, "")

    def _turn(self) -> bool:
        """Poll, then do the next step; True if that was the last."""
        now = self._clock()
        while self._orders:
            self._orders.popleft()(now)
        self._follow(now)
        course = self._course
        tokens, token_at = self._tokens.available(course.pace.rate) if course.can_send else (0, now)
        step = course.next_step(now, tokens, token_at, self._pending)
        if isinstance(step, Send):
            sent = self._send(step.amount)
            self._publish(Phase.SENDING, "")
            if not sent:  # another replay took the last token, or the store is unavailable
                self._idle(POLL_INTERVAL_SECONDS)
        elif isinstance(step, StopReason):
            self._halt(step.why)
        elif isinstance(step, Wait):
            self._ask(step)
            self._publish(self._phase(step), step.why)
            pause = POLL_INTERVAL_SECONDS
            if step.until is not None:
                pause = min(pause, step.until - now)
            self._idle(max(0.01, pause))
        return isinstance(step, ReplayEnd)

    def _wait(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _phase(self, step: Wait) -> Phase:
        if step.asks_operator:
            return Phase.ASKING
        if self._course.stopped or not self._course.unsent:
            return Phase.ENDING
        if self._course.paused:
            return Phase.PAUSED
        return Phase.SENDING if step.why == RATE_REASON else Phase.WAITING

    def _ask(self, step: Wait) -> None:
        """Write to the journal that it waits for an operator's decision, once for each reason."""
        why = step.why if step.asks_operator else ""
        if why and why != self._asked:
            self._say("asks", why=why)
        self._asked = why

    # ---- orders

    def _obey(self, order: str, now: float) -> None:
        who = self._intent.who.name if self._intent is not None else ""
        self._course = self._course.with_order(order, now, who or "the operator")
        self._say(order, rate=self._course.pace.rate)
        if order == "stop":
            self._halt(self._course.stopped)

    def _halt(self, why: str) -> None:
        """Stop sending: record the unsent rows, and hold them if the settings require it."""
        if self._report is not None:
            return
        self._course = self._course.with_stop(why)
        self._say("stopped", why=why)
        unsent = tuple(self._rows)
        self._report = self._applying.finish(f"not sent: {why}")
        if unsent and self._course.pace.stops.rest is RemainderPolicy.HOLD:
            plan = Plan("hold", unsent, self._clock(), filter=self.plan.filter)
            scope = f"{len(unsent):,} not sent by a replay"
            intent = self._intent and self._intent._replace(scope=scope, follows="", pace={})
            self._held = self._also(plan, intent, self._allowed)

    def _also(self, plan: Plan, intent: Intent | None, allowed: RefusalCheck) -> Report:
        store, journal, clock = self._store, self._journal, self._clock
        try:
            return run_plan.run_journaled_plan(store, journal, plan, intent, clock, allowed=allowed)
        except Unavailable as error:
            self._troubles[plan.verb] = str(error)
            return run_plan.failed_report(plan, str(error))

    # ---- sending

    def _send(self, amount: int) -> int:
        """Send the next rows; return how many were processed."""
        if why := self._allowed():
            self._halt(why)
            return amount
        marks = self._marks(list(islice(self._rows, amount)))
        if marks is None:
            return 0
        paid = self._tokens.spend(self._course.pace.rate, amount)
        rows = [self._rows.popleft() for _ in range(paid)]
        at = self._clock()
        outcomes = self._applying.step(rows)
        done = [one for one in outcomes if one.result is RowResult.DONE]
        others = [one for one in outcomes if one.result is not RowResult.DONE]
        for nth, ended in enumerate(done, self._course.total_sent):
            ident = ended.row.id
            self._poller.add(SentTask(nth, ident, ended.rev, at, marks.get(ident, "")))
            self._line(ident, "sent", "")
        for ended in others:
            self._gone += ended.result is RowResult.GONE
            result = "refused" if ended.result is RowResult.FAILED else str(ended.result)
            self._line(ended.row.id, result, safe_line(ended.reason))
        now = self._clock()
        self._course = self._course.with_sent(len(done), len(others), now)
        if why := self._failing_reason(done, others):
            self._halt(why)
        return paid

    def _failing_reason(self, done: Sequence[RowOutcome], others: Sequence[RowOutcome]) -> str:
        reasons = [ended.reason for ended in others if ended.result is RowResult.FAILED]
        self._failed_in_a_row = 0 if done else self._failed_in_a_row + len(reasons)
        has_failed = self._failed_in_a_row >= MAX_CONSECUTIVE_FAILURES
        return self._applying.trouble or (reasons[-1] if has_failed else "")

    def _marks(self, rows: Iterable[Row]) -> dict[str, str] | None:
        """Fingerprints of the rows' present errors; None while the store is unavailable, so that no
        task is tried and counted as failed."""
        try:
            scanned = self._store.scan({row.id for row in rows})
            marks = {t.id: fingerprint_of(t.error) for t in scanned if isinstance(t, Task)}
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

    # ---- outcomes

    def _follow(self, now: float) -> None:
        for change in self._poller.poll(self._store, now):
            self._course = self._course.with_change(change, now)
            if change.after.outcome is not change.before.outcome:
                took = max(0.0, now - change.sent.at)
                self._line(change.sent.id, str(change.after.outcome), change.after.reason, took)
        if self._course.pace.stops.pending is not None:
            self._pending = self._poller.pending(now)
        self._note(now)

    def _note(self, now: float, *, all_of_it: bool = False) -> None:
        """Write outcomes to the journal; a later entry for a task replaces an earlier one."""
        for words in self._poller.notes(now, all_of_it=all_of_it):
            self._say("became", **words)

    def _say(self, what: str, **words: object) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write_note(what, **words)
        except Unavailable as error:
            self._troubles["journal"] = str(error)

    def _line(self, ident: str, result: str, detail: str, took: float | None = None) -> None:
        """Keep what happened to a task in place of what was known of it."""
        line = TaskProgress(self._clock(), safe_line(ident), result, detail, took)
        for lines, most in ((self._problems, MAX_PROBLEMS), (self._latest, MAX_LATEST)):
            lines.pop(ident, None)
            if line.is_problem is (lines is self._problems):
                lines[ident] = line
            if len(lines) > most:
                del lines[next(iter(lines))]

    def _publish(self, phase: Phase, why: str) -> None:
        course = self._course
        held = 0 if self._held is None else len(self._held.done)
        troubles = [self._poller.problem, self._tokens.problem, *self._troubles.values()]
        self._progress = ReplayProgress(
            phase,
            self._writer.op if self._writer is not None else "",
            course.began,
            now=self._clock(),
            planned=len(self.plan.rows),
            tally=course.tally,
            skipped=self._gone,
            refused=course.dropped - self._gone,
            excluded=len(self.plan.rows) - course.planned,
            pulled_back=course.pulled,
            held=held,
            unsent=course.unsent - held,
            failures=self._poller.failures,
            pace=course.pace,
            canaries=course.canaries,
            rules=check_stop_rules(course, self._pending),
            eta=estimate_seconds_left(course),
            why=why,
            stopped=course.stopped,
            trouble="; ".join(filter(None, troubles)),
            results=(*reversed(self._problems.values()), *reversed(self._latest.values())),
            source=VERBS[self.plan.verb].edges[0][0],
        )
