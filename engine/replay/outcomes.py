"""Determine the outcome of each replayed task from store scans, log events and a counter.

A missing task file proves nothing: another process may have removed it without running the task. So
the evidence is the task's state in the store, its log lines, and, if a task left without a log
line, the rise of the counter of processed tasks. If all three are silent, the outcome is unknown
after a timeout."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from typing import TypeAlias

from engine import verbs
from engine.logs import task_events
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import Missing, Problem, State, Task
from engine.text import error_pattern
from engine.text.safe import safe_line, state_name
from engine.values import NamedTuple


class ReplayOutcome(StrEnum):
    """Outcome of a replayed task. The values are written to the journal."""

    WAITING = "waiting"
    RUNNING = "running"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It left the queue, and nothing records its outcome."""
    TAKEN = "taken"
    """It was taken elsewhere before a run: held, purged or put back by another process."""


class SentTask(NamedTuple):
    """A task at the time it was sent."""

    nth: int
    """Sequence number among all sent tasks, from 0."""
    id: str
    rev: str
    """Revision returned by the store: unchanged while no process has touched the task."""
    at: float
    """Epoch seconds UTC."""
    mark: str = ""
    """Fingerprint of its error before the replay; "" if it had none."""


class KnownOutcome(NamedTuple):
    """What is known about one sent task."""

    outcome: ReplayOutcome
    reason: str
    """The evidence, one sentence, safe to show."""
    mark: str = ""
    """Fingerprint of its latest error; "" if it did not fail."""
    is_final: bool = False
    """True if no later event can belong to this sending."""
    is_untouched: bool = False
    """True if the task has not changed since it was sent, as far as seen."""


COUNTER_DELAY_SECONDS = 5.0
"""Seconds for which a task must be missing before the counter decides: its log line comes a moment
after it left, and is better evidence."""

NOT_LOOKED_UP = KnownOutcome(ReplayOutcome.WAITING, "sent, not looked up since", is_untouched=True)


def determine_outcome(
    sent: SentTask,
    latest: Task | Missing | None,
    events: Sequence[TaskEvent],
    silent: float = 0.0,
    timeout: float = 120.0,
    *,
    counted: bool = False,
    dead: str = State.DEAD,
) -> KnownOutcome:
    """Determine the outcome of a sent task from its state in the store and its log events.

    `latest` is None while it has not been looked up, or is missing only for the moment. `events`
    are the log events of its id, `silent` the seconds for which it has been missing; after
    `timeout` seconds the outcome is unknown. `counted`: the counter of processed tasks rose enough
    to include it. `dead`: the store's word for the state of given-up tasks."""
    # Log times have whole seconds: include the second in which the task was sent.
    since = [event for event in events if event.when is None or event.when >= int(sent.at)]
    if latest is None:
        return NOT_LOOKED_UP
    if isinstance(latest, Task):
        return _BY_STATE[latest.state](sent, latest, state_name(dead))
    runs = task_events.task_attempts(task_events.task_history(since, sent.id))
    last = runs[-1] if runs else None
    if last is not None and last.outcome in _TOLD:
        fate, words = _TOLD[last.outcome]
        if last.outcome is EventKind.BURIED:
            words += f", moved to {state_name(dead)}"
        mark, error = fingerprint_of(last.error), _quoted(last.error)
        failed = fate is ReplayOutcome.FAILED
        return KnownOutcome(fate, words + error * failed, mark * failed, not failed)
    if counted:
        why = "left without a log line; the processed counter rose"
        return KnownOutcome(ReplayOutcome.DELIVERED, why)
    begun = last is not None
    words = "started and left the queue" if begun else "left the queue"
    if silent < timeout:
        fate = ReplayOutcome.RUNNING if begun else ReplayOutcome.WAITING
        return KnownOutcome(fate, f"{words}; no outcome recorded yet")
    why = f"{words}; neither log nor counter records the outcome"
    return KnownOutcome(ReplayOutcome.UNKNOWN, why)


_TOLD: Mapping[EventKind | None, tuple[ReplayOutcome, str]] = {
    EventKind.SUCCEEDED: (ReplayOutcome.DELIVERED, "succeeded (log)"),
    EventKind.WAITS: (ReplayOutcome.FAILED, "failed (log), will retry"),
    EventKind.FAILED: (ReplayOutcome.FAILED, "failed (log)"),
    EventKind.BURIED: (ReplayOutcome.FAILED, "failed (log)"),
}
"""Outcome of a missing task by the end of its last run in the log."""


def _pending(sent: SentTask, task: Task, dead: str) -> KnownOutcome:
    if task.rev == sent.rev:
        return KnownOutcome(ReplayOutcome.WAITING, "waits for a worker", is_untouched=True)
    error = _error(task)
    if task.attempts or error:
        why = f"failed, will retry{_quoted(error)}"
        return KnownOutcome(ReplayOutcome.FAILED, why, fingerprint_of(error))
    if task.error:
        return KnownOutcome(ReplayOutcome.WAITING, f"not attempted{_quoted(task.error)}")
    why = "waits for a worker; changed by another process since it was sent"
    return KnownOutcome(ReplayOutcome.WAITING, why)


def _active(sent: SentTask, task: Task, dead: str) -> KnownOutcome:
    error = _error(task)
    again = " again" if task.attempts or error else ""
    return KnownOutcome(ReplayOutcome.RUNNING, f"running{again}", fingerprint_of(error))


def _dead(sent: SentTask, task: Task, dead: str) -> KnownOutcome:
    since = task.extra.get("dead_since", "")
    if since.isdecimal() and int(since) < int(sent.at):
        return KnownOutcome(ReplayOutcome.TAKEN, "put back by another process", is_final=True)
    error = _error(task)
    if not error:
        why = f"moved to {dead} without a failed run"
        return KnownOutcome(ReplayOutcome.TAKEN, why, is_final=True)
    why = f"failed, dead again{_quoted(error)}"
    return KnownOutcome(ReplayOutcome.FAILED, why, fingerprint_of(error), is_final=True)


def _error(task: Task) -> str:
    """Error of its last attempt; "" if the text is only the reason for a delay."""
    return "" if task.error.startswith(verbs.WAITING_PREFIX) else task.error


def _ended(outcome: ReplayOutcome, why: str) -> _Judge:
    return lambda sent, task, dead: KnownOutcome(outcome, why, is_final=True)


_Judge: TypeAlias = Callable[[SentTask, Task, str], KnownOutcome]
_BY_STATE: Mapping[State, _Judge] = {
    State.PENDING: _pending,
    State.ACTIVE: _active,
    State.DEAD: _dead,
    State.HELD: _ended(ReplayOutcome.TAKEN, "held by another process"),
    State.TRASH: _ended(ReplayOutcome.TAKEN, "purged by another process"),
    State.DONE: _ended(ReplayOutcome.DELIVERED, "done (store)"),
}


def fingerprint_of(error: str) -> str:
    """Return the fingerprint of an error; "" if none."""
    return error_pattern.pattern_name(error_pattern.fold_error(error)) if error else ""


def _quoted(error: str) -> str:
    return f": {safe_line(error)}" if error else ""


class ObservedChange(NamedTuple):
    """A change in what is known about one sent task."""

    sent: SentTask
    before: KnownOutcome
    after: KnownOutcome
    is_first_outcome: bool = False
    """True if this is its first outcome: delivered or failed."""


class _AwaitedTask:
    """A sent task whose outcome may still change."""

    __slots__ = ("ended", "events", "known", "latest", "nowhere", "sent", "silent")

    def __init__(self, sent: SentTask) -> None:
        self.sent, self.known, self.ended = sent, NOT_LOOKED_UP, False
        self.latest: Task | Missing | None = None
        self.events: list[TaskEvent] = []
        self.nowhere: float | None = None
        """Missing since, epoch seconds UTC; None while it is in the store."""
        self.silent = False
        """True if it has been missing for so long, without a log line, that only the counter can
        decide."""


class OutcomeTracker:
    """Track the outcome of each sent task from scans, log events and counter values passed in. Use
    it from one thread at a time. The cost of a call depends on the data passed in and on the
    timeouts reached since the last call, not on the number of tasks sent."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds after which the outcome of a missing task is unknown."""
        self._timeout = timeout
        self._open: dict[str, _AwaitedTask] = {}
        """In the order of the next lookup."""
        self._touched: dict[str, None] = {}
        self._nowhere: set[str] = set()
        self._due: dict[float, list[tuple[float, str]]] = {COUNTER_DELAY_SECONDS: [], timeout: []}
        """By waiting time: heaps of (time of leaving, id). After the waiting time the task is
        judged again."""
        self._silent: list[tuple[int, str]] = []
        """Tasks that only the counter can decide, in the order in which they were sent."""
        self._accounted = 0
        """How many of them, from the first, the counter accounts for."""
        self._logged_done = [0, 0]
        """Successes in the queue's log, and in the mail log."""
        self._finished: int | None = None
        self._rise = 0

    @property
    def open(self) -> int:
        """Number of tasks whose outcome may still change."""
        return len(self._open)

    @property
    def missing(self) -> int:
        """Number of missing tasks."""
        return len(self._nowhere)

    def add(self, sent: SentTask) -> None:
        """Start tracking a task."""
        self._open[sent.id] = _AwaitedTask(sent)

    def remove(self, ids: Iterable[str]) -> list[tuple[SentTask, KnownOutcome]]:
        """Stop tracking tasks that we moved back; return them with what was known."""
        return [(item.sent, item.known) for ident in ids if (item := self._drop(ident))]

    def _drop(self, ident: str) -> _AwaitedTask | None:
        self._nowhere.discard(ident)
        item = self._open.pop(ident, None)
        if item is not None:
            self._set_silent(item, False)
        return item

    def next_lookups(self, limit: int) -> tuple[str, ...]:
        """Return at most `limit` ids to look up now: those with news first, then the others in
        turn."""
        touched = [ident for ident in self._touched if ident in self._open][:limit]
        turn = islice((i for i in self._open if i not in self._touched), limit - len(touched))
        asked = (*touched, *turn)
        for ident in asked:
            self._open[ident] = self._open.pop(ident)
        return asked

    def add_events(self, events: Iterable[TaskEvent]) -> None:
        """Add new log events; events of other tasks only count as successes."""
        for event in events:
            if event.what is EventKind.SUCCEEDED:
                self._logged_done[bool(event.transport)] += 1
            item = self._open.get(event.id)
            if item is not None:
                item.events.append(event)
                self._touched[event.id] = None

    def add_scan(
        self, asked: Collection[str], answers: Iterable[Task | Missing | Problem], now: float
    ) -> None:
        """Add the result of a lookup of `asked`; a task missing from it, or a problem, is in
        transit."""
        for answer in answers:
            if isinstance(answer, Problem):
                continue
            item = self._open.get(answer.id)
            if item is None or answer.id not in asked:
                continue
            item.latest = answer
            self._touched[answer.id] = None
            if isinstance(answer, Task):
                item.nowhere = None
                self._nowhere.discard(answer.id)
            elif item.nowhere is None:
                item.nowhere = now
                self._nowhere.add(answer.id)
                for queue in self._due.values():
                    heappush(queue, (now, answer.id))

    def add_count(self, finished: int | None) -> None:
        """Add a reading of the counter of processed tasks; None: no reading. It may have been
        reset."""
        if finished is not None and self._finished is not None:
            self._rise += max(0, finished - self._finished)
        self._finished = self._finished if finished is None else finished

    def pop_changes(self, now: float, dead: str = State.DEAD) -> Iterator[ObservedChange]:
        """Yield each change in what is known, once; `dead` as in `determine_outcome`."""
        touched, self._touched = self._touched, {}
        for wait, queue in self._due.items():
            while queue and now - queue[0][0] >= wait:
                touched[heappop(queue)[1]] = None
        open_ = [item for ident in touched if (item := self._open.get(ident))]
        for item in open_:
            long_gone = item.nowhere is not None and now - item.nowhere >= COUNTER_DELAY_SECONDS
            self._set_silent(item, long_gone and self._judged(item, now, dead).outcome in _SILENT)
        by_sent = {item.sent: item for item in (*open_, *self._assign_counter())}
        for item in (by_sent[sent] for sent in sorted(by_sent)):
            known = self._judged(item, now, dead, counted=self._is_counted(item))
            before, item.known = item.known, known
            if known.is_final:
                self._drop(item.sent.id)
            first = not item.ended and known.outcome in _OUTCOMES
            item.ended |= first
            if known != before:
                yield ObservedChange(item.sent, before, known, first)

    def _set_silent(self, item: _AwaitedTask, silent: bool) -> None:
        if item.silent is silent:
            return
        key = (item.sent.nth, item.sent.id)
        at = bisect_left(self._silent, key)
        item.silent = silent
        if silent:
            self._silent.insert(at, key)
            self._accounted += at < self._accounted
        else:
            del self._silent[at]
            self._accounted -= at < self._accounted

    def _assign_counter(self) -> list[_AwaitedTask]:
        """Assign the counter's rise to silent tasks; return the tasks for which that changed.
        Successes with a log line are subtracted first; of the silent tasks, those sent first come
        first."""
        spare = max(0, self._rise - max(self._logged_done))
        before, self._accounted = self._accounted, min(spare, len(self._silent))
        low, high = sorted((before, self._accounted))
        return [self._open[ident] for _, ident in self._silent[low:high]]

    def _is_counted(self, item: _AwaitedTask) -> bool:
        if not item.silent:
            return False
        return bisect_left(self._silent, (item.sent.nth, item.sent.id)) < self._accounted

    def _judged(
        self, item: _AwaitedTask, now: float, dead: str, *, counted: bool = False
    ) -> KnownOutcome:
        silent = 0.0 if item.nowhere is None else now - item.nowhere
        return determine_outcome(
            item.sent, item.latest, item.events, silent, self._timeout, counted=counted, dead=dead
        )


_OUTCOMES = (ReplayOutcome.DELIVERED, ReplayOutcome.FAILED)
_SILENT = (ReplayOutcome.WAITING, ReplayOutcome.RUNNING, ReplayOutcome.UNKNOWN)
"""Outcomes of a missing task that has no evidence yet."""
