"""What really became of tasks that were sent out again: known, or said to be unknown.

That a task's file is gone says nothing: whoever removed it may have done so without running it. So
what counts is where the task stands, what the logs say of it, and, where one left without a line,
how far the counter of finished tasks rose. What all of them leave open is unknown after a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from engine import verbs
from engine.logs import task_events
from engine.logs.task_events import Event, EventKind
from engine.model import Missing, Problem, State, Task
from engine.text import error_pattern
from engine.text.safe import shown


class ReplayOutcome(StrEnum):
    """What became of a task that was sent out again."""

    WAITING = "waiting"
    RUNNING = "running"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It left, and nothing says what became of it."""
    TAKEN = "taken"
    """Somebody took it elsewhere before it was run: held it, purged it, put it back."""


class SentTask(NamedTuple):
    """A task as it was sent out."""

    nth: int
    """Which of all that were sent, from 0."""
    id: str
    rev: str
    """The revision that the store answered with: while it has that one, nobody touched it."""
    at: float
    """Epoch seconds UTC."""
    mark: str = ""
    """The fingerprint of the error that it had before; "" where it had none."""


class Known(NamedTuple):
    """What is known about one of them."""

    fate: ReplayOutcome
    why: str
    """How it is known, a sentence that is safe to show."""
    mark: str = ""
    """The fingerprint of the error with which it failed last; "" where it did not."""
    final: bool = False
    """Whether nothing that follows can be of this sending any more."""
    untouched: bool = False
    """Whether it is as it was sent, as far as was seen."""


GRACE = 5.0
"""Seconds for which a task must be nowhere before a counter speaks for it: the line that names it
comes a moment after it left, and is better evidence."""

UNSEEN = Known(ReplayOutcome.WAITING, "was sent, and not looked at since", untouched=True)


def judge(
    sent: SentTask,
    seen: Task | Missing | None,
    told: Sequence[Event],
    silent: float = 0.0,
    timeout: float = 120.0,
    *,
    counted: bool = False,
) -> Known:
    """What became of a task that was sent, from what was seen and told since.

    `seen` is None while it was not looked at, or stands nowhere only for the moment. `told` are the
    events of its id, `silent` the seconds for which it has been nowhere; after `timeout` of them it
    is unknown. `counted`: the counter of finished tasks rose enough to account for it.
    """
    # The second in which it was sent is the finest that a log knows.
    since = [told_of for told_of in told if told_of.when is None or told_of.when >= int(sent.at)]
    if seen is None:
        return UNSEEN
    if isinstance(seen, Task):
        return _BY_STATE[seen.state](sent, seen)
    runs = task_events.attempts(task_events.history(since, sent.id))
    last = runs[-1] if runs else None
    if last is not None and last.outcome in _TOLD:
        fate, words = _TOLD[last.outcome]
        mark, error = mark_of(last.error), _quoted(last.error)
        failed = fate is ReplayOutcome.FAILED
        return Known(fate, words + error * failed, mark * failed, not failed)
    if counted:
        return Known(
            ReplayOutcome.DELIVERED, "left without a line in the log; the counter rose for it"
        )
    begun = last is not None
    if silent < timeout:
        words = "was begun, and has left" if begun else "has left"
        fate = ReplayOutcome.RUNNING if begun else ReplayOutcome.WAITING
        return Known(fate, f"{words}; nothing says yet what became of it")
    words = "was begun and has left" if begun else "has left"
    return Known(
        ReplayOutcome.UNKNOWN, f"{words}; neither a log nor a counter says what became of it"
    )


_TOLD: Mapping[EventKind | None, tuple[ReplayOutcome, str]] = {
    EventKind.SUCCEEDED: (ReplayOutcome.DELIVERED, "the log says that it succeeded"),
    EventKind.WAITS: (ReplayOutcome.FAILED, "the log says that it failed and is to be tried again"),
    EventKind.FAILED: (ReplayOutcome.FAILED, "the log says that it failed"),
    EventKind.BURIED: (ReplayOutcome.FAILED, "the log says that it failed and was given up on"),
}
"""What the end of its last run means for a task that is nowhere."""


def _pending(sent: SentTask, task: Task) -> Known:
    if task.rev == sent.rev:
        return Known(ReplayOutcome.WAITING, "waits to be run", untouched=True)
    error = _error(task)
    if task.attempts or error:
        why = f"failed, and is to be tried again{_quoted(error)}"
        return Known(ReplayOutcome.FAILED, why, mark_of(error))
    if task.error:
        return Known(ReplayOutcome.WAITING, f"was not attempted{_quoted(task.error)}")
    return Known(ReplayOutcome.WAITING, "waits to be run; somebody touched it since it was sent")


def _active(sent: SentTask, task: Task) -> Known:
    error = _error(task)
    again = " again" if task.attempts or error else ""
    return Known(ReplayOutcome.RUNNING, f"is being run{again}", mark_of(error))


def _dead(sent: SentTask, task: Task) -> Known:
    since = task.extra.get("dead_since", "")
    if since.isdecimal() and int(since) < int(sent.at):
        return Known(ReplayOutcome.TAKEN, "somebody put it back where it was", final=True)
    error = _error(task)
    if not error:
        return Known(ReplayOutcome.TAKEN, "somebody gave up on it; no run of it failed", final=True)
    why = f"failed, and was given up on again{_quoted(error)}"
    return Known(ReplayOutcome.FAILED, why, mark_of(error), final=True)


def _error(task: Task) -> str:
    """The error of its last attempt; what only kept it from one is none."""
    return "" if task.error.startswith(verbs.WAITS) else task.error


_BY_STATE: Mapping[State, Callable[[SentTask, Task], Known]] = {
    State.PENDING: _pending,
    State.ACTIVE: _active,
    State.DEAD: _dead,
    State.HELD: lambda sent, task: Known(ReplayOutcome.TAKEN, "somebody holds it", final=True),
    State.TRASH: lambda sent, task: Known(ReplayOutcome.TAKEN, "somebody purged it", final=True),
    State.DONE: lambda sent, task: Known(
        ReplayOutcome.DELIVERED, "its store has it as done", final=True
    ),
}
"""What a task says by where it stands."""


def mark_of(error: str) -> str:
    """The fingerprint of an error; "" where there is none."""
    return error_pattern.mark(error_pattern.fold(error)) if error else ""


def _quoted(error: str) -> str:
    return f": {shown(error)}" if error else ""


class ObservedChange(NamedTuple):
    """Something new about one of them."""

    sent: SentTask
    before: Known
    after: Known
    first: bool = False
    """Whether this is the first outcome that it had: delivered, or failed."""


class _Open:
    """One that may still change."""

    __slots__ = ("ended", "known", "nowhere", "seen", "sent", "silent", "told")

    def __init__(self, sent: SentTask) -> None:
        self.sent, self.known, self.ended = sent, UNSEEN, False
        self.seen: Task | Missing | None = None
        self.told: list[Event] = []
        self.nowhere: float | None = None
        """Since when, epoch seconds UTC; None while it stands somewhere."""
        self.silent = False
        """Whether it has been nowhere for so long that a counter may speak for it, and only that.
        """


class OutcomeTracker:
    """Follows all that was sent; it is told what was seen, heard and counted, and looks nowhere.

    One thread at a time. What each call costs goes by what it is told, and by what comes due since
    the last one, not by how much was sent or has left.
    """

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds after which one that is nowhere is unknown."""
        self._timeout = timeout
        self._open: dict[str, _Open] = {}
        """In the order in which they are to be looked at."""
        self._touched: dict[str, None] = {}
        self._nowhere: set[str] = set()
        self._due: dict[float, list[tuple[float, str]]] = {GRACE: [], timeout: []}
        """By how long it takes, heaps of when tasks left: after that they are to be judged anew."""
        self._silent: list[tuple[int, str]] = []
        """Those that only a counter may speak for, in the order in which they were sent."""
        self._spoken = 0
        """For how many of them, from the first, it does."""
        self._told_done = [0, 0]
        """How many the queue's log, and the mail log, say to have succeeded."""
        self._finished: int | None = None
        self._rise = 0

    @property
    def open(self) -> int:
        """How many of them may still change."""
        return len(self._open)

    @property
    def nowhere(self) -> int:
        """How many of them stand nowhere."""
        return len(self._nowhere)

    def add(self, sent: SentTask) -> None:
        """Follow one more."""
        self._open[sent.id] = _Open(sent)

    def take_back(self, ids: Iterable[str]) -> list[tuple[SentTask, Known]]:
        """Follow these no more, as we took them back ourselves; how they stood."""
        return [(item.sent, item.known) for ident in ids if (item := self._drop(ident))]

    def _drop(self, ident: str) -> _Open | None:
        self._nowhere.discard(ident)
        item = self._open.pop(ident, None)
        if item is not None:
            self._be_silent(item, False)
        return item

    def ask(self, limit: int) -> tuple[str, ...]:
        """Whom to look at now, at most `limit`: those that were heard of, then each in turn."""
        heard = [ident for ident in self._touched if ident in self._open][:limit]
        turn = islice((i for i in self._open if i not in self._touched), limit - len(heard))
        asked = (*heard, *turn)
        for ident in asked:
            self._open[ident] = self._open.pop(ident)
        return asked

    def hear(self, told: Iterable[Event]) -> None:
        """What the logs said since the last time, of whomever."""
        for event in told:
            if event.what is EventKind.SUCCEEDED:
                self._told_done[bool(event.transport)] += 1
            item = self._open.get(event.id)
            if item is not None:
                item.told.append(event)
                self._touched[event.id] = None

    def see(
        self, asked: Collection[str], seen: Iterable[Task | Missing | Problem], now: float
    ) -> None:
        """What a look at these said; one of which it says nothing, or a problem, is on its way."""
        for found in seen:
            if isinstance(found, Problem):
                continue
            item = self._open.get(found.id)
            if item is None or found.id not in asked:
                continue
            item.seen = found
            self._touched[found.id] = None
            if isinstance(found, Task):
                item.nowhere = None
                self._nowhere.discard(found.id)
            elif item.nowhere is None:
                item.nowhere = now
                self._nowhere.add(found.id)
                for heap in self._due.values():
                    heappush(heap, (now, found.id))

    def count(self, finished: int | None) -> None:
        """What the counter of finished tasks says; None: nothing. It may have begun anew."""
        if finished is not None and self._finished is not None:
            self._rise += max(0, finished - self._finished)
        self._finished = self._finished if finished is None else finished

    def settle(self, now: float) -> Iterator[ObservedChange]:
        """What is known now of those that something is new about; each change is told once."""
        touched, self._touched = self._touched, {}
        for wait, heap in self._due.items():
            while heap and now - heap[0][0] >= wait:
                touched[heappop(heap)[1]] = None
        open_ = [item for ident in touched if (item := self._open.get(ident))]
        for item in open_:
            long_gone = item.nowhere is not None and now - item.nowhere >= GRACE
            self._be_silent(item, long_gone and self._judged(item, now).fate in _SILENT)
        anew = {item.sent: item for item in (*open_, *self._count_anew())}
        for item in (anew[sent] for sent in sorted(anew)):
            known = self._judged(item, now, counted=self._is_spoken_for(item))
            before, item.known = item.known, known
            if known.final:
                self._drop(item.sent.id)
            first = not item.ended and known.fate in _OUTCOMES
            item.ended |= first
            if known != before:
                yield ObservedChange(item.sent, before, known, first)

    def _be_silent(self, item: _Open, silent: bool) -> None:
        """Whether only a counter may speak for it; for the others it goes on as it did."""
        if item.silent is silent:
            return
        key = (item.sent.nth, item.sent.id)
        at = bisect_left(self._silent, key)
        item.silent = silent
        if silent:
            self._silent.insert(at, key)
            self._spoken += at < self._spoken
        else:
            del self._silent[at]
            self._spoken -= at < self._spoken

    def _count_anew(self) -> list[_Open]:
        """Have the counter speak for as many as it can account for; who that makes a difference to.

        No line of a log accounts for them: of those that were sent, the first come first.
        """
        spare = max(0, self._rise - max(self._told_done))
        before, self._spoken = self._spoken, min(spare, len(self._silent))
        low, high = sorted((before, self._spoken))
        return [self._open[ident] for _, ident in self._silent[low:high]]

    def _is_spoken_for(self, item: _Open) -> bool:
        if not item.silent:
            return False
        return bisect_left(self._silent, (item.sent.nth, item.sent.id)) < self._spoken

    def _judged(self, item: _Open, now: float, *, counted: bool = False) -> Known:
        silent = 0.0 if item.nowhere is None else now - item.nowhere
        return judge(item.sent, item.seen, item.told, silent, self._timeout, counted=counted)


_OUTCOMES = (ReplayOutcome.DELIVERED, ReplayOutcome.FAILED)
_SILENT = (ReplayOutcome.WAITING, ReplayOutcome.RUNNING, ReplayOutcome.UNKNOWN)
"""What one that is nowhere is called while nothing speaks for it."""
