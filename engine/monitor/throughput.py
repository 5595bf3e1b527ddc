"""What a queue has done in the last ten minutes: what came and left, and how long it will take.

A console feeds it once a second with what it counted anyway; every question is answered from that,
with a clock handed in. Nothing is known of the time before it was first fed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from engine.model import State
from engine.policy import roughly as roughly
from engine.policy import spell as spell

SPAN = 600.0
"""Seconds that are remembered."""

LATELY = 60.0
"""Seconds over which rates are taken."""

TREND = 120.0
"""Seconds over which it is judged whether a backlog grows: traffic comes in bursts."""

ENOUGH = 3.0
"""Seconds of history before anything is said of rates: one task in the first would look like a
storm."""

ENOUGH_TREND = 10.0
"""The same for how a backlog develops."""

_OFTEN = 0.5
"""Seconds within which a second sample says nothing new."""


class Rates(NamedTuple):
    """Tasks a second."""

    inward: float
    outward: float


class Trend(StrEnum):
    """How a backlog develops."""

    DRAINS = "drains"
    GROWS = "grows"
    EMPTY = "empty"
    STEADY = "steady"
    STALLED = "stalled"
    """Due tasks wait, and none is done."""
    UNKNOWN = "unknown"


class Drain(NamedTuple):
    """How long until nothing waits any more."""

    course: Trend
    seconds: float | None = None
    """How long at the present pace; None unless it drains."""

    @property
    def words(self) -> str:
        """For a narrow column: `1m42s`, `grows`, `steady`, `STALLED`, `?`; `-`: nothing waits."""
        if self.seconds is not None:
            return spell(self.seconds)
        return _WORDS.get(self.course, self.course.value)


_WORDS = {Trend.EMPTY: "-", Trend.UNKNOWN: "?", Trend.STALLED: "STALLED"}


class Growth(NamedTuple):
    """By how much something has grown, and in how many seconds."""

    tasks: int
    seconds: float


class Sample(NamedTuple):
    """A queue at one moment."""

    when: float
    """Epoch seconds UTC."""
    came: int
    """Tasks that have come since the history began."""
    left: int
    counts: Mapping[State, int]

    @property
    def waiting(self) -> int:
        """Its backlog."""
        return self.counts.get(State.PENDING, 0)


class Flow:
    """The history of one queue, a sample a second at most."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._seen = (0, 0)
        self._means: dict[tuple[float, int], float | None] = {}  # of cells that are over

    def add(self, now: float, came: int, left: int, counts: Mapping[State, int]) -> None:
        """Remember what is counted at `now`; only a whole look may be told of.

        `came` and `left` only grow; where one goes back, whoever counts began again at 0. A clock
        that was set back empties the history: it says nothing of the times that come again.
        """
        before = self._samples[-1] if self._samples else None
        if before is not None and now < before.when:
            self._samples, before = [], None
            self._means.clear()
        if before is None:
            sample = Sample(now, 0, 0, dict(counts))
        elif now - before.when < _OFTEN:
            return
        else:
            more = _more(self._seen[0], came), _more(self._seen[1], left)
            sample = Sample(now, before.came + more[0], before.left + more[1], dict(counts))
        self._seen = came, left
        self._samples.append(sample)
        old = bisect_left(self._samples, now - SPAN, key=attrgetter("when"))
        # One that is older stays: without it the beginning of the span would not be known.
        if old > 60:
            del self._samples[: old - 1]
            self._means.clear()  # once a minute: most are of times that are shown no more

    def _since(self, start: float) -> list[Sample]:
        """The samples from the last one at or before a moment on."""
        first = bisect_right(self._samples, start, key=attrgetter("when"))
        return self._samples[max(0, first - 1) :]

    def _fresh(self, now: float, over: float) -> bool:
        return bool(self._samples) and now - self._samples[-1].when <= over

    def rates(self, now: float, over: float = LATELY) -> Rates | None:
        """What came and left a second, over so many seconds; None until that can be said."""
        samples = self._since(now - over)
        if not self._fresh(now, over) or samples[-1].when - samples[0].when < ENOUGH:
            return None
        first, last = samples[0], samples[-1]
        seconds = last.when - first.when
        return Rates((last.came - first.came) / seconds, (last.left - first.left) / seconds)

    def drain(self, now: float, over: float = TREND) -> Drain:
        """How long until nothing waits, judged by how the backlog went for so many seconds."""
        samples = self._since(now - over)
        if not self._fresh(now, over):
            return Drain(Trend.UNKNOWN)
        waiting = samples[-1].waiting
        if not waiting:
            return Drain(Trend.EMPTY)
        seconds = samples[-1].when - samples[0].when
        if seconds < ENOUGH_TREND:
            return Drain(Trend.UNKNOWN)
        slope = _slope([(s.when - samples[0].when, s.waiting) for s in samples])
        if abs(slope) * seconds < 1:  # less than one task in all that time
            return Drain(Trend.STEADY)
        return Drain(Trend.GROWS) if slope > 0 else Drain(Trend.DRAINS, waiting / -slope)

    def is_dry(self, now: float, over: float = TREND) -> bool:
        """Whether no task left in so many seconds, all of which were watched."""
        samples = self._since(now - over)
        watched = self._fresh(now, over) and samples[-1].when - samples[0].when >= over - _OFTEN
        return watched and samples[-1].left == samples[0].left

    def spark(self, now: float, cells: int) -> tuple[float | None, ...]:
        """The mean backlog in each of so many cells of the last ten minutes, the latest last.

        None where nothing was seen. Cells begin at whole multiples of their length, so that only
        the last one changes from second to second.
        """
        length = SPAN / cells
        last = int(now // length)
        return tuple(self._mean(length, cell) for cell in range(last - cells + 1, last + 1))

    def _mean(self, length: float, cell: int) -> float | None:
        if (length, cell) in self._means:
            return self._means[length, cell]
        edges = cell * length, (cell + 1) * length
        start, end = (bisect_left(self._samples, edge, key=attrgetter("when")) for edge in edges)
        waiting = [sample.waiting for sample in self._samples[start:end]]
        mean = sum(waiting) / len(waiting) if waiting else None
        if end < len(self._samples):  # there is a later one: no more will come
            self._means[length, cell] = mean
        return mean

    def grown(self, state: State, now: float, over: float = SPAN) -> int | None:
        """By how many tasks a state has grown in so many seconds, or since the history began.

        None until there is a history.
        """
        growth = self.growth(state, now, over)
        return None if growth is None else growth.tasks

    def growth(self, state: State, now: float, over: float = SPAN) -> Growth | None:
        """The same, with the seconds that there are of it."""
        samples = self._since(now - over)
        if not self._fresh(now, over) or len(samples) < 2:
            return None
        first, last = samples[0], samples[-1]
        tasks = last.counts.get(state, 0) - first.counts.get(state, 0)
        return Growth(tasks, last.when - first.when)


def _more(before: int, now: int) -> int:
    return now - before if now >= before else now


def _slope(points: list[tuple[float, int]]) -> float:
    """By how much the second number goes up with one of the first (least squares)."""
    amount = len(points)
    mean_x = sum(x for x, _ in points) / amount
    mean_y = sum(y for _, y in points) / amount
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


RUNS = 3
"""Runs that must be known before the time between them is."""


RUN_WINDOW_SECONDS = 600.0
"""Seconds before the last run over which the time between runs is measured."""


class Runs(NamedTuple):
    """The runs of a queue, as far as its log and its metrics show them."""

    last: float | None = None
    """Epoch seconds UTC of the last run; None: none is known."""
    apart: float | None = None
    """Seconds between two runs at most; None: fewer than `RUNS` are known."""


def runs_seen(times: Iterable[float]) -> Runs:
    """The last run and the longest time between two, from when tasks or runs were started."""
    known = sorted(times)
    last = known[-1] if known else None
    lately = [when for when in known if last is not None and when >= last - RUN_WINDOW_SECONDS]
    gaps = [after - before for before, after in pairwise(lately)]
    return Runs(last, max(gaps) if len(lately) >= RUNS else None)
