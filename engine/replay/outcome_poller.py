"""Finds out what becomes of tasks that were sent: looks, listens and counts, now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from engine.logs.task_events import Event
from engine.replay.log_event_reader import not_counted, nothing
from engine.replay.outcomes import Known, ObservedChange, OutcomeTracker, ReplayOutcome, SentTask
from engine.store import Store, Unavailable

LOOK, LOOKING = 100, 0.5
"""Tasks that are looked at together, and seconds between two such looks at least."""

COUNTING, NOTING = 2.0, 5.0
"""Seconds between two readings of counters, and between two notes on what became of tasks."""

CHUNK = 500
"""Tasks a note."""

Ask: TypeAlias = Callable[[], int | None]
"""A number, from wherever it is known; None: not known now."""


class PlaceAccess(NamedTuple):
    """Where a replay learns what became of its tasks, besides its store; each may block."""

    heard: Callable[[], Sequence[Event]] = nothing
    """What the logs said since the last call (`engine.replay.log_event_reader.LogEventReader`)."""
    finished: Ask = not_counted
    """How many tasks were ever run and done, by a counter."""
    pending: Ask = not_counted
    """How many tasks wait in the queue; asked only where a stop rule wants to know."""
    close: Callable[[], None] = lambda: None
    """Lets go of all that."""


class OutcomePoller:
    """What became of all that was sent so far; on the thread of its store."""

    def __init__(self, facts: PlaceAccess, timeout: float) -> None:
        """`timeout`: seconds after which one that is nowhere is unknown."""
        self._facts, self._fates = facts, OutcomeTracker(timeout)
        self._failures: Counter[str] = Counter()
        self._unsaid: dict[str, Known] = {}
        self._looked = self._counted = self._noted = self._asked = float("-inf")
        self._pending: int | None = None
        self.became: dict[str, Known] = {}
        """By their ids, what is known of those that are not delivered."""
        self.problem = ""
        """Why they cannot be looked at; "" when they can."""

    @property
    def failures(self) -> Mapping[str, int]:
        """How many failed, by fingerprint, the most frequent first."""
        return {mark: n for mark, n in self._failures.most_common() if n}

    def begin(self) -> None:
        """What was said and counted before this is of other runs."""
        self._facts.heard()
        self._fates.count(self._facts.finished())

    def add(self, sent: SentTask) -> None:
        """Follow one more."""
        self._fates.add(sent)

    def take_back(self, ids: Iterable[str]) -> list[tuple[SentTask, Known]]:
        """Follow these no more, as we took them back ourselves; how they stood."""
        back = self._fates.take_back(ids)
        for sent, known in back:
            self.became.pop(sent.id, None)
            self._unsaid.pop(sent.id, None)
            self._failures[known.mark] -= known.fate is ReplayOutcome.FAILED
        return back

    def look(self, store: Store, now: float) -> Iterator[ObservedChange]:
        """What is new; it looks at a few of them, however many there are."""
        self._fates.hear(self._facts.heard())
        if self._fates.open and now - self._looked >= LOOKING:
            self._looked = now
            asked = frozenset(self._fates.ask(LOOK))
            try:
                self._fates.see(asked, store.look(asked), now)
                self.problem = ""
            except Unavailable as error:
                self.problem = str(error)
        if self._fates.nowhere and now - self._counted >= COUNTING:
            self._counted = now
            self._fates.count(self._facts.finished())
        for change in self._fates.settle(now):
            self._take_in(change)
            yield change

    def pending(self, now: float) -> int | None:
        """How many tasks wait in the queue, as was known a moment ago."""
        if now - self._asked >= COUNTING:
            self._pending, self._asked = self._facts.pending(), now
        return self._pending

    def notes(self, now: float, *, all_of_it: bool = False) -> Iterator[dict[str, Any]]:
        """What a journal should say became of tasks since the last time, if it is time for that."""
        if now - self._noted < NOTING and not all_of_it:
            return
        items, self._unsaid, self._noted = iter(self._unsaid.items()), {}, now
        while some := dict(islice(items, CHUNK)):
            told: dict[str, Any] = {
                str(fate): [ident for ident, known in some.items() if known.fate is fate]
                for fate in (ReplayOutcome.DELIVERED, ReplayOutcome.UNKNOWN, ReplayOutcome.TAKEN)
            }
            told[str(ReplayOutcome.FAILED)] = {
                ident: known.mark
                for ident, known in some.items()
                if known.fate is ReplayOutcome.FAILED
            }
            if any(told.values()):
                yield {fate: ids for fate, ids in told.items() if ids}

    def close(self) -> None:
        """Let go of what it hears and counts by."""
        self._facts.close()

    def _take_in(self, change: ObservedChange) -> None:
        ident, before, after = change.sent.id, change.before, change.after
        self._failures[before.mark] -= before.fate is ReplayOutcome.FAILED
        self._failures[after.mark] += after.fate is ReplayOutcome.FAILED
        self.became[ident] = self._unsaid[ident] = after
        if after.fate is ReplayOutcome.DELIVERED:
            del self.became[ident]
