"""Replay scheduler: decide from the outcomes so far when to send, wait or stop.

First it sends a few tasks (canaries) and waits for their outcomes, then some more, then the rest at
a rate. It reads no clock, store or token bucket: a `ReplayState` is computed from the events so far
and returns the next step. Times are epoch seconds UTC, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from engine.replay.outcomes import ObservedChange, ReplayOutcome
from engine.replay.settings import ReplayPace, double_rate, halve_rate
from engine.text.figures import format_count
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

MAX_TASKS_PER_STEP = 100
"""Maximum tasks sent in one step: few, so that an order takes effect soon."""

RATE_REASON = "the rate"


class ReplayCounts(NamedTuple):
    """Number of sent tasks by outcome."""

    waiting: int = 0
    running: int = 0
    delivered: int = 0
    failed: int = 0
    unknown: int = 0
    taken: int = 0

    @property
    def sent(self) -> int:
        """Number of sent tasks."""
        return sum(self)

    @property
    def unsettled(self) -> int:
        """Tasks without an outcome yet."""
        return self.waiting + self.running

    def moved(self, before: ReplayOutcome | None, after: ReplayOutcome | None) -> ReplayCounts:
        """Return the counts with one task moved; None means "not sent"."""
        by = self._asdict()
        for fate, step in ((before, -1), (after, 1)):
            if fate is not None:
                by[fate] += step
        return ReplayCounts(**by)


class Canary(NamedTuple):
    """Counts of one canary phase."""

    tally: ReplayCounts = ReplayCounts()
    known: int = 0
    """Tasks that had a first outcome, even if it changed later."""
    delivered: int = 0
    began: float | None = None
    """Time of the first sending in epoch seconds UTC."""
    ended: float | None = None
    """Time of the last first outcome in epoch seconds UTC; None while one is missing."""


class Send(NamedTuple):
    """Send `amount` tasks now."""

    amount: int


class Wait(NamedTuple):
    """Send nothing until an event, or until a time."""

    until: float | None
    """None: only an order or a new outcome ends the wait."""
    why: str
    asks_operator: bool = False


class StopReason(NamedTuple):
    """Stop sending permanently."""

    why: str


class ReplayEnd(NamedTuple):
    """The end: nothing more to send, no more outcomes to wait for."""


Step: TypeAlias = Send | Wait | StopReason | ReplayEnd

ORDERS = ("pause", "resume", "go_on", "faster", "slower", "stop", "leave")
"""Orders accepted during a replay. `go_on`: continue although a canary's outcome is unknown;
`leave`: do not wait for the remaining outcomes."""

_NO_MARKS: Mapping[str, int] = MappingProxyType({})


class ReplayState(NamedTuple):
    """State of a replay. `next` returns the next step; the other methods add events."""

    pace: ReplayPace
    planned: int
    """Rows to send, without excluded ones."""
    began: float
    tally: ReplayCounts = ReplayCounts()
    canaries: tuple[Canary, ...] = ()
    dropped: int = 0
    """Rows skipped because the task had changed, or could not be changed."""
    pulled: int = 0
    """Sent tasks that were moved back."""
    repeated_errors: Mapping[str, int] = _NO_MARKS
    """By fingerprint: tasks that failed with the error they had before."""
    recent: tuple[bool, ...] = ()
    """For the latest first outcomes, one per task: True if it was a failure."""
    changed: float = 0.0
    """Time of the last sending or new outcome."""
    paused: str = ""
    """Reason of a pause by order; "" if not paused."""
    stopped: str = ""
    """Reason of the stop; "" while it continues."""
    passed: int = 0
    """Number of canaries that an operator chose to pass, regardless of their outcomes."""
    skips_outcomes: bool = False
    """True if remaining outcomes are not waited for."""

    @classmethod
    def begin(cls, pace: ReplayPace, planned: int, now: float) -> ReplayState:
        """Return the state before anything is sent."""
        canaries = tuple(Canary() for _ in pace.canary)
        return cls(pace, planned, now, canaries=canaries, changed=now)

    # ---- what happened

    def with_sent(self, count: int, dropped: int, now: float) -> ReplayState:
        """Add `count` sent tasks and `dropped` skipped ones."""
        course = self._replace(dropped=self.dropped + dropped, changed=now)
        for nth in range(self.total_sent, self.total_sent + count):
            course = course._moved(nth, None, ReplayOutcome.WAITING, now)
        return course

    def with_change(self, change: ObservedChange, now: float) -> ReplayState:
        """Add a change in what is known about a sent task."""
        sent, before, after, first = change
        course = self._moved(sent.nth, before.outcome, after.outcome, now, first)
        course = course._replace(changed=now)
        if not first:
            return course
        failed = after.outcome is ReplayOutcome.FAILED
        course = course._replace(recent=(*self.recent, failed)[-max(1, self.pace.stops.last) :])
        if failed and after.mark and after.mark == sent.mark:
            times = self.repeated_errors.get(after.mark, 0) + 1
            again = {**self.repeated_errors, after.mark: times}
            course = course._replace(repeated_errors=again)
        return course

    def with_pulled_back(self, nth: int, fate: ReplayOutcome, now: float) -> ReplayState:
        """Add a sent task that we moved back."""
        course = self._moved(nth, fate, None, now)
        return course._replace(pulled=self.pulled + 1, changed=now)

    def with_order(self, order: str, now: float, who: str = "the operator") -> ReplayState:
        """Apply one of the `ORDERS`."""
        if order == "pause":
            return self._replace(paused=f"paused by {who}")
        if order == "resume":
            return self._replace(paused="")
        if order == "go_on":
            at = self._canary()
            passed = self.passed if at is None else at + 1
            return self._replace(paused="", passed=passed, changed=now)
        if order in ("faster", "slower"):
            rate = double_rate(self.pace.rate) if order == "faster" else halve_rate(self.pace.rate)
            return self._replace(pace=self.pace._replace(rate=rate))
        if order == "stop":
            return self.with_stop(f"stopped by {who}")
        if order == "leave":
            return self._replace(skips_outcomes=True)
        raise ValueError(f"no such order: {order!r}")

    def with_stop(self, why: str) -> ReplayState:
        """Stop sending; the first reason stays."""
        return self._replace(stopped=self.stopped or why)

    def _moved(
        self,
        nth: int,
        before: ReplayOutcome | None,
        after: ReplayOutcome | None,
        now: float,
        first: bool = False,
    ) -> ReplayState:
        canaries, edge = list(self.canaries), 0
        for at, size in enumerate(self.pace.canary):
            edge += size
            if nth < edge:
                tally, known, delivered, began, ended = canaries[at]
                is_delivered = after is ReplayOutcome.DELIVERED
                ended = now if first and known + 1 == size else ended
                canaries[at] = Canary(
                    tally.moved(before, after),
                    known + first,
                    delivered + is_delivered,
                    now if began is None else began,
                    ended,
                )
                break
        return self._replace(tally=self.tally.moved(before, after), canaries=tuple(canaries))

    # ---- next step

    @property
    def total_sent(self) -> int:
        """Number of sent tasks, including those moved back."""
        return self.tally.sent + self.pulled

    @property
    def unsent(self) -> int:
        """Rows still to send, or not sent because of a stop."""
        return self.planned - self.total_sent - self.dropped

    @property
    def can_send(self) -> bool:
        """True if there are rows to send and it is neither paused nor stopped."""
        return self.unsent > 0 and not self.paused and not self.stopped

    def next_step(
        self, now: float, tokens: int, token_at: float = 0.0, pending: int | None = None
    ) -> Step:
        """Return the next step. `tokens` are in the bucket; if 0, the next one comes at `token_at`.
        `pending` is the number of waiting tasks; None: not known."""
        if not self.stopped:
            if why := self._tripped(pending):
                return StopReason(why)
            if self.unsent > 0:
                return self._sending(now, tokens, token_at)
        return self._ending(now)

    def _sending(self, now: float, tokens: int, token_at: float) -> Step:
        if self.paused:
            return Wait(None, self.paused)
        at = self._canary()
        room = self.unsent
        if at is not None:
            room = min(room, sum(self.pace.canary[: at + 1]) - self.total_sent)
            if room <= 0:
                return self._canary_wait(at, now)
        if tokens <= 0:
            return Wait(token_at, RATE_REASON)
        return Send(min(room, tokens, MAX_TASKS_PER_STEP))

    def _canary(self) -> int | None:
        """Index of the first canary that has not succeeded; None if all have."""
        edge = 0
        for at, size in enumerate(self.pace.canary):
            edge += size
            _, known, delivered, *_ = self.canaries[at]
            whole = self.total_sent >= edge
            # A canary that has succeeded stays so, even if a failed task of it is retried.
            if not whole or (at >= self.passed and size and (known < size or not delivered)):
                return at
        return None

    def _canary_wait(self, at: int, now: float) -> Step:
        tally, known, *_ = self.canaries[at]
        name = _name_of(self.pace, at)
        lost = tally.unknown + tally.taken
        size = self.pace.canary[at]
        open_ = size - known - lost
        if open_ > 0:
            until = self.changed + self.pace.timeout
            if now < until:
                return Wait(until, f"{name}: waiting for {format_count(open_, 'outcome')}")
            doing = "still running after" if tally.running else "no worker has run it for"
            why = f"{name}: {doing} {format_rough_duration(self.pace.timeout)}"
        elif known < size:
            why = f"{name}: {format_count(size - known, 'outcome')} unknown, not counted as success"
        else:
            return StopReason(f"{name} failed: 0 of {known} delivered")
        return Wait(None, why, asks_operator=True) if self.pace.attended else StopReason(why)

    def _ending(self, now: float) -> Step:
        unsettled = self.tally.unsettled
        until = self.changed + self.pace.timeout
        if self.skips_outcomes or not unsettled or now >= until:
            return ReplayEnd()
        return Wait(until, f"all sent; waiting for {format_count(unsettled, 'outcome')}")

    def _tripped(self, pending: int | None) -> str:
        tripped = (rule.why for rule in check_stop_rules(self, pending) if rule.why)
        return next((f"stop rule: {why}" for why in tripped), "")


def _name_of(pace: ReplayPace, at: int) -> str:
    """Name of a canary: `canary of 10`."""
    return f"canary of {pace.canary[at]}"


class StopRuleState(NamedTuple):
    """State of one stop rule."""

    name: str
    """Name: same, share or pending."""
    words: str
    """Present value and limit."""
    short: str
    """The same in few cells: what is counted, and the number that stops the replay."""
    why: str
    """Why it stops the replay; "" if it does not."""


def check_stop_rules(course: ReplayState, pending: int | None = None) -> tuple[StopRuleState, ...]:
    """Return the state of each enabled rule."""
    stops, states = course.pace.stops, []
    if stops.same is not None:
        mark, times = max(course.repeated_errors.items(), key=lambda pair: pair[1], default=("", 0))
        words = f"{mark or 'same error'} {times} of {stops.same}"
        again = f"{mark} came back" + (f" {times} times" if times > 1 else "")
        why, short = again if mark and times >= stops.same else "", f"{mark or 'same'} {times}"
        states.append(StopRuleState("same", words, f"{short}/{stops.same:,}", why))
    if stops.share is not None and stops.share < 1:  # no more than all can fail
        states.append(_share(course, stops.share, stops.last))
    if stops.pending is not None:
        over = pending is not None and pending > stops.pending
        number = "?" if pending is None else f"{pending:,}"
        words, short = f"pending {number}, {stops.pending:,} allowed", f"pend {number}"
        why = f"{number} tasks pending, limit {stops.pending:,}" if over else ""
        states.append(StopRuleState("pending", words, f"{short}/{stops.pending + 1:,}", why))
    return tuple(states)


def _share(course: ReplayState, share: float, last: int) -> StopRuleState:
    """The rule on the share of failures. It trips as soon as the remaining outcomes of the window
    cannot change the result."""
    window = max(1, min(last, course.planned - course.dropped))
    recent = course.recent[-window:]
    failed = sum(recent)
    words = f"failed {failed} of the last {len(recent)}, {share:.0%} of {window} allowed"
    # If the window is not full yet, all its remaining tasks may still succeed.
    over = failed > share * window
    why = f"{failed} of the last {len(recent)} failed, more than {share:.0%} of {window}"
    short = f"fail {failed}/{int(share * window) + 1:,}"
    return StopRuleState("share", words, short, why if over else "")
