"""Poll the store, the logs and the counters for the outcome of replayed tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from engine.logs import task_events
from engine.logs.recent_lines import RecentLines
from engine.logs.task_events import TaskEvent
from engine.model import State
from engine.monitor import prometheus
from engine.replay.outcomes import (
    KnownOutcome,
    ObservedChange,
    OutcomeTracker,
    ReplayOutcome,
    SentTask,
)
from engine.store import ReadableStore, Unavailable
from engine.values import NamedTuple

PROCESSED_METRIC = "nftban_queue_tasks_processed_total"
"""Metric of tasks that were run successfully."""

MAX_POLLS = 8
"""Polls of one log in one call; each reads about 1 MB, the rest waits for the next call."""


class LogEventReader:
    """Callable that returns the events added to some logs since the previous call. Blocks; use it
    from one thread at a time. A log that does not exist yet is read from its beginning once it
    exists."""

    def __init__(self, paths: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        """`paths` are the logs of one place."""
        self._logs = [RecentLines(path, reach=0.0) for path in paths]
        self._clock = clock
        self._transports: dict[str, str] = {}
        self._begun = False

    def __call__(self) -> list[TaskEvent]:
        """Return the events since the last call; none at the first call."""
        events: list[TaskEvent] = []
        for log in self._logs:
            polls = 0
            while polls == 0 or (log.is_behind and (polls < MAX_POLLS or not self._begun)):
                events += task_events.read_events(log.poll(self._clock()), self._transports)
                polls += 1
        events, self._begun = (events if self._begun else []), True
        return events

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs:
            log.close()


def make_processed_reader(path: str) -> Callable[[], int | None]:
    """Return a function that reads the number of processed tasks from a `queue.prom`; it returns
    None if the file does not have it."""

    def finished() -> int | None:
        try:
            value = prometheus.read_metrics(path).get(PROCESSED_METRIC)
        except (OSError, prometheus.BadMetrics):
            return None
        return None if value is None else int(value)

    return finished if path else lambda: None


LOOKUP_TASKS, LOOKUP_INTERVAL_SECONDS = 100, 0.5
"""Tasks per store query, and minimum seconds between two queries."""

COUNT_INTERVAL_SECONDS, NOTE_INTERVAL_SECONDS = 2.0, 5.0
"""Seconds between two readings of counters, and between two journal notes of outcomes."""

TASKS_PER_NOTE = 500

CountReader: TypeAlias = Callable[[], int | None]
"""Returns a number; None: not known now."""


class OutcomeSources(NamedTuple):
    """Sources besides the store from which a replay learns outcomes; each may block."""

    read_events: Callable[[], Sequence[TaskEvent]] = lambda: ()
    """New log events since the last call (`engine.replay.outcome_poller.LogEventReader`)."""
    read_processed: CountReader = lambda: None
    """Total of successfully run tasks, from a counter."""
    read_pending: CountReader = lambda: None
    """Number of waiting tasks; used only if a stop rule needs it."""
    close: Callable[[], None] = lambda: None


class OutcomePoller:
    """Polls the outcomes of all tasks sent so far; runs on the thread of its store."""

    def __init__(self, facts: OutcomeSources, timeout: float) -> None:
        """`timeout`: seconds after which a task that is in no folder counts as unknown."""
        self._facts, self._tracker = facts, OutcomeTracker(timeout)
        self._failures: Counter[str] = Counter()
        self._unwritten: dict[str, KnownOutcome] = {}
        self._looked = self._counted = self._last_notes_at = self._asked = float("-inf")
        self._pending: int | None = None
        self.known_outcomes: dict[str, KnownOutcome] = {}
        """By task id, what is known of the tasks that were not delivered."""
        self.problem = ""
        """Why the store cannot be read; "" if it can."""

    @property
    def failures(self) -> Mapping[str, int]:
        """Number of failures by fingerprint, the most frequent first."""
        return {mark: n for mark, n in self._failures.most_common() if n}

    def begin(self) -> None:
        """Skip all events and counts so far: they belong to other runs."""
        self._facts.read_events()
        self._tracker.add_count(self._facts.read_processed())

    def add(self, sent: SentTask) -> None:
        """Start tracking a task."""
        self._tracker.add(sent)

    def remove(self, ids: Iterable[str]) -> list[tuple[SentTask, KnownOutcome]]:
        """Stop tracking tasks that we moved back; return them with what was known."""
        back = self._tracker.remove(ids)
        for sent, known in back:
            self.known_outcomes.pop(sent.id, None)
            self._unwritten.pop(sent.id, None)
            self._failures[known.mark] -= known.outcome is ReplayOutcome.FAILED
        return back

    def poll(self, store: ReadableStore, now: float) -> Iterator[ObservedChange]:
        """Yield new outcomes; queries a limited number of tasks per call."""
        self._tracker.add_events(self._facts.read_events())
        if self._tracker.open and now - self._looked >= LOOKUP_INTERVAL_SECONDS:
            self._looked = now
            asked = frozenset(self._tracker.next_lookups(LOOKUP_TASKS))
            try:
                self._tracker.add_scan(asked, store.scan(asked), now)
                self.problem = ""
            except Unavailable as error:
                self.problem = str(error)
        if self._tracker.missing and now - self._counted >= COUNT_INTERVAL_SECONDS:
            self._counted = now
            self._tracker.add_count(self._facts.read_processed())
        for change in self._tracker.pop_changes(now, store.states.get(State.DEAD, State.DEAD)):
            self._record(change)
            yield change

    def pending(self, now: float) -> int | None:
        """Return the number of waiting tasks, at most `COUNT_INTERVAL_SECONDS` seconds old."""
        if now - self._asked >= COUNT_INTERVAL_SECONDS:
            self._pending, self._asked = self._facts.read_pending(), now
        return self._pending

    def notes(self, now: float, *, all_of_it: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the outcomes to write to the journal since the last notes, if it is time."""
        if now - self._last_notes_at < NOTE_INTERVAL_SECONDS and not all_of_it:
            return
        items, self._unwritten, self._last_notes_at = iter(self._unwritten.items()), {}, now
        while some := dict(islice(items, TASKS_PER_NOTE)):
            note: dict[str, Any] = {
                str(fate): [ident for ident, known in some.items() if known.outcome is fate]
                for fate in (ReplayOutcome.DELIVERED, ReplayOutcome.UNKNOWN, ReplayOutcome.TAKEN)
            }
            failed = {i: k.mark for i, k in some.items() if k.outcome is ReplayOutcome.FAILED}
            note[str(ReplayOutcome.FAILED)] = failed
            if any(note.values()):
                yield {fate: ids for fate, ids in note.items() if ids}

    def close(self) -> None:
        """Close the log readers and counters."""
        self._facts.close()

    def _record(self, change: ObservedChange) -> None:
        ident, before, after = change.sent.id, change.before, change.after
        self._failures[before.mark] -= before.outcome is ReplayOutcome.FAILED
        self._failures[after.mark] += after.outcome is ReplayOutcome.FAILED
        self.known_outcomes[ident] = self._unwritten[ident] = after
        if after.outcome is ReplayOutcome.DELIVERED:
            del self.known_outcomes[ident]
