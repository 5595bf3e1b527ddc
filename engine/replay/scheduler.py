"""How fast a replay goes, when it waits, and when it stops: decided from what became of it so far.

First a few tasks are sent, and what really becomes of them is waited for; then some more; then the
rest, at a rate. Nothing here reads a clock, a store or a bucket: a `Course` is folded from what
happened, and says what to do next. Times are epoch seconds UTC, durations seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from engine.policy import lasting
from engine.replay.outcomes import ObservedChange, ReplayOutcome
from engine.replay.settings import ReplayPace, faster, slower

MOST = 100
"""Tasks sent together at most: few enough that an order is heard at once."""


RATE = "the rate"
"""Why it waits, when that is for the next token."""


class ReplayCounts(NamedTuple):
    """How many of those that were sent stand how."""

    waiting: int = 0
    running: int = 0
    delivered: int = 0
    failed: int = 0
    unknown: int = 0
    taken: int = 0

    @property
    def sent(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def unsettled(self) -> int:
        """Those that nothing is known of yet."""
        return self.waiting + self.running

    def moved(self, before: ReplayOutcome | None, after: ReplayOutcome | None) -> ReplayCounts:
        """With one more here, and one less there; None for before it was sent and after."""
        by = self._asdict()
        for fate, step in ((before, -1), (after, 1)):
            if fate is not None:
                by[fate] += step
        return ReplayCounts(**by)


class Canary(NamedTuple):
    """The tasks of one phase before the last."""

    tally: ReplayCounts = ReplayCounts()
    known: int = 0
    """How many had an outcome, whatever became of them after it."""
    delivered: int = 0
    """How often one was delivered."""


class Send(NamedTuple):
    """Send so many now."""

    amount: int


class Wait(NamedTuple):
    """Send nothing until something happens, or it is so late."""

    until: float | None
    """None: only an order, or something that becomes known, makes it go on."""
    why: str
    asks: bool = False
    """Whether it waits for somebody to say whether to go on."""


class StopReason(NamedTuple):
    """Send nothing any more."""

    why: str


class ReplayEnd(NamedTuple):
    """All is sent that will be, and nothing more will become known of it."""


Step: TypeAlias = Send | Wait | StopReason | ReplayEnd

ORDERS: Mapping[str, str] = MappingProxyType(
    {
        "pause": "send nothing for now",
        "resume": "go on",
        "go_on": "go on although a canary's outcome is not known",
        "faster": "twice as fast",
        "slower": "half as fast",
        "stop": "send nothing any more",
        "leave": "do not wait for outcomes that are not known yet",
    }
)
"""What may be ordered while a replay goes on, and what it means."""

_NO_MARKS: Mapping[str, int] = MappingProxyType({})


class ReplayState(NamedTuple):
    """A replay so far. To go on, `next`; what happened is folded in by the other methods."""

    pace: ReplayPace
    planned: int
    """How many rows are to be sent; those that are left out are none of them."""
    began: float
    tally: ReplayCounts = ReplayCounts()
    canaries: tuple[Canary, ...] = ()
    dropped: int = 0
    """Rows that were not there as they had been seen, or could not be changed."""
    pulled: int = 0
    """How many that were sent were taken back."""
    again: Mapping[str, int] = _NO_MARKS
    """By fingerprint: how many tasks failed with the error that they had had before."""
    recent: tuple[bool, ...] = ()
    """Of the last outcomes whether they were failures, one for each task, the first that it had."""
    changed: float = 0.0
    """When something was sent, or became known, last."""
    paused: str = ""
    """Why nothing is sent for now, by order; "" when it is not paused."""
    stopped: str = ""
    """Why nothing is sent any more; "" while it goes on."""
    passed: int = 0
    """How many canaries somebody said to go on after, whatever became of them."""
    left: bool = False
    """Whether outcomes that are not known yet are not waited for."""

    @classmethod
    def begin(cls, pace: ReplayPace, planned: int, now: float) -> ReplayState:
        """Before anything was sent."""
        canaries = tuple(Canary() for _ in pace.canary)
        return cls(pace, planned, now, canaries=canaries, changed=now)

    # ---- what happened

    def sent(self, count: int, dropped: int, now: float) -> ReplayState:
        """So many more were sent, and of those that were to be so many could not."""
        course = self._replace(dropped=self.dropped + dropped, changed=now)
        for nth in range(self.ever, self.ever + count):
            course = course._moved(nth, None, ReplayOutcome.WAITING)
        return course

    def told(self, change: ObservedChange, now: float) -> ReplayState:
        """Something new about one of those that were sent."""
        sent, before, after, first = change
        course = self._moved(sent.nth, before.fate, after.fate, first)._replace(changed=now)
        if not first:
            return course
        failed = after.fate is ReplayOutcome.FAILED
        course = course._replace(recent=(*self.recent, failed)[-max(1, self.pace.stops.last) :])
        if failed and after.mark and after.mark == sent.mark:
            again = {**self.again, after.mark: self.again.get(after.mark, 0) + 1}
            course = course._replace(again=again)
        return course

    def pulled_back(self, nth: int, fate: ReplayOutcome, now: float) -> ReplayState:
        """One that was sent was taken back by us."""
        course = self._moved(nth, fate, None)
        return course._replace(pulled=self.pulled + 1, changed=now)

    def ordered(self, order: str, now: float, who: str = "the operator") -> ReplayState:
        """Somebody gave one of the `ORDERS`."""
        if order == "pause":
            return self._replace(paused=f"paused by {who}")
        if order == "resume":
            return self._replace(paused="")
        if order == "go_on":
            at = self._canary()
            passed = self.passed if at is None else at + 1
            return self._replace(paused="", passed=passed, changed=now)
        if order in ("faster", "slower"):
            rate = faster(self.pace.rate) if order == "faster" else slower(self.pace.rate)
            return self._replace(pace=self.pace._replace(rate=rate))
        if order == "stop":
            return self.halted(f"stopped by {who}")
        if order == "leave":
            return self._replace(left=True)
        raise ValueError(f"no such order: {order!r}")

    def halted(self, why: str) -> ReplayState:
        """Nothing is sent any more; the first reason is the one that stays."""
        return self._replace(stopped=self.stopped or why)

    def _moved(
        self,
        nth: int,
        before: ReplayOutcome | None,
        after: ReplayOutcome | None,
        first: bool = False,
    ) -> ReplayState:
        canaries, edge = list(self.canaries), 0
        for at, size in enumerate(self.pace.canary):
            edge += size
            if nth < edge:
                tally, known, delivered = canaries[at]
                came = after is ReplayOutcome.DELIVERED
                canaries[at] = Canary(tally.moved(before, after), known + first, delivered + came)
                break
        return self._replace(tally=self.tally.moved(before, after), canaries=tuple(canaries))

    # ---- what follows

    @property
    def ever(self) -> int:
        """How many were sent, those that were taken back included."""
        return self.tally.sent + self.pulled

    @property
    def rest(self) -> int:
        """How many rows are still to be sent, or would be if it had not stopped."""
        return self.planned - self.ever - self.dropped

    @property
    def sends(self) -> bool:
        """Whether there is anything to send, and nothing ordered against it."""
        return self.rest > 0 and not self.paused and not self.stopped

    def next(
        self, now: float, tokens: int, token_at: float = 0.0, pending: int | None = None
    ) -> Step:
        """What to do now.

        `tokens` are in the bucket, or else come at `token_at`; `pending` tasks wait in the queue,
        None: not known.
        """
        if not self.stopped:
            if why := self._tripped(pending):
                return StopReason(why)
            if self.rest > 0:
                return self._sending(now, tokens, token_at)
        return self._ending(now)

    def _sending(self, now: float, tokens: int, token_at: float) -> Step:
        if self.paused:
            return Wait(None, self.paused)
        at = self._canary()
        room = self.rest
        if at is not None:
            room = min(room, sum(self.pace.canary[: at + 1]) - self.ever)
            if room <= 0:
                return self._canary_wait(at, now)
        if tokens <= 0:
            return Wait(token_at, RATE)
        return Send(min(room, tokens, MOST))

    def _canary(self) -> int | None:
        """The first canary that is not through; None when all are."""
        edge = 0
        for at, size in enumerate(self.pace.canary):
            edge += size
            _, known, delivered = self.canaries[at]
            whole = self.ever >= edge
            # Once through it stays so, even when one that failed is tried again meanwhile.
            if not whole or (at >= self.passed and size and (known < size or not delivered)):
                return at
        return None

    def _canary_wait(self, at: int, now: float) -> Step:
        tally, known, _ = self.canaries[at]
        name = _name_of(self.pace, at)
        lost = tally.unknown + tally.taken
        size = self.pace.canary[at]
        open_ = size - known - lost
        if open_ > 0:
            until = self.changed + self.pace.timeout
            if now < until:
                return Wait(until, f"{name}: waits for {_outcomes(open_)}")
            doing = "still running after" if tally.running else "no worker has run it for"
            why = f"{name}: {doing} {lasting(self.pace.timeout)}"
        elif known < size:
            why = f"{name}: {_outcomes(size - known)} not known, which is no success"
        else:
            return StopReason(f"{name} failed: none of {known} was delivered")
        return Wait(None, why, asks=True) if self.pace.attended else StopReason(why)

    def _ending(self, now: float) -> Step:
        unsettled = self.tally.unsettled
        until = self.changed + self.pace.timeout
        if self.left or not unsettled or now >= until:
            return ReplayEnd()
        return Wait(until, f"all is sent; waits for {_outcomes(unsettled)}")

    def _tripped(self, pending: int | None) -> str:
        return next((rule.why for rule in rules(self, pending) if rule.why), "")


def _name_of(pace: ReplayPace, at: int) -> str:
    """`canary of 1`, `canary of 10`."""
    return f"canary of {pace.canary[at]}"


def _outcomes(count: int) -> str:
    return "1 outcome" if count == 1 else f"{count:,} outcomes"


class Rule(NamedTuple):
    """How one stop rule stands."""

    name: str
    """same, share or pending."""
    words: str
    """How it stands, with its limit."""
    why: str
    """Why the replay stops by it; "" while it does not."""


def rules(course: ReplayState, pending: int | None = None) -> tuple[Rule, ...]:
    """How each rule stands that is switched on."""
    stops, found = course.pace.stops, []
    if stops.same is not None:
        mark, times = max(course.again.items(), key=lambda pair: pair[1], default=("", 0))
        words = f"{mark or 'the same error'} {times} of {stops.same}"
        why = f"{mark} came back {times} times" if mark and times >= stops.same else ""
        found.append(Rule("same", words, why.replace("1 times", "once")))
    if stops.share is not None:
        found.append(_share(course, stops.share, stops.last))
    if stops.pending is not None:
        over = pending is not None and pending > stops.pending
        words = f"pending {'?' if pending is None else f'{pending:,}'} of {stops.pending:,}"
        why = f"{pending:,} tasks wait, more than {stops.pending:,}" if over else ""
        found.append(Rule("pending", words, why))
    return tuple(found)


def _share(course: ReplayState, share: float, last: int) -> Rule:
    """Judged once so many outcomes are known, or whatever the others will be cannot change it."""
    window = max(1, min(last, course.planned - course.dropped))
    recent = course.recent[-window:]
    failed = sum(recent)
    words = f"failed {failed} of the last {len(recent)}, {share:.0%} of {window} allowed"
    # With fewer known than the window holds, all the others may still succeed.
    over = failed > share * window
    why = f"{failed} of the last {len(recent)} failed, more than {share:.0%} of {window}"
    return Rule("share", words, why if over else "")
