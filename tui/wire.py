"""What goes to the terminal: how much of it, and how often the console may paint by itself.

Over a slow line every byte is the operator's time. While no key is pressed the console keeps to a
budget; over it, it paints less often of its own accord, and says so. Answers to keys are never
held back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

BUDGET = 1000.0
"""Bytes a second, at rest."""
PACES = (1.0, 2.0, 5.0)
"""Seconds between two paintings that nobody asked for."""
ROOM = 0.8
"""Of the budget: what a faster pace would need, at most, before it is taken up again."""
RESTED = 10
"""Seconds at rest from which a pace is judged."""
ANSWERED = 2.0
"""Seconds after a key for which what is painted may still be its answer."""
LATELY = 5
"""Seconds that the rate is told of."""
TURN = 1.0
"""Seconds from one look to the next."""
LAPSE = 3.0
"""Seconds without a look after which the console had stopped: what was painted then is no rest."""


def pace(period: float, rate: float) -> float:
    """Seconds between two paintings, after so many bytes a second at rest with `period`."""
    at = PACES.index(period)
    if rate > BUDGET:
        at = min(at + 1, len(PACES) - 1)
    elif at and rate * period / PACES[at - 1] < ROOM * BUDGET:
        at -= 1
    return PACES[at]


class Second(NamedTuple):
    """What was written from one look to the next."""

    seconds: float
    size: int


class Wire:
    """Measures what is written, once a second, and sets the pace by it."""

    def __init__(
        self, written: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`written` counts bytes since the beginning; `clock` is in seconds that only go up."""
        self._written, self._clock = written, clock
        self._before, self._size = clock(), written()
        self._hand = self._before  # the first screen is an answer, too
        self._lately: deque[Second] = deque(maxlen=LATELY)
        self._rest: deque[Second] = deque(maxlen=RESTED)
        self._turns = 0
        self.period = PACES[0]
        """Seconds between two paintings that nobody asked for."""

    def hand(self) -> None:
        """A key was pressed, or the terminal changed its size."""
        self._hand = self._clock()

    def look(self) -> None:
        """Take note of what was written since the last look; to be called each second."""
        now, size = self._clock(), self._written()
        second = Second(now - self._before, size - self._size)
        at_rest = self._before - self._hand >= ANSWERED and second.seconds < LAPSE
        self._before, self._size = now, size
        self._turns += 1
        self._lately.append(second)
        if at_rest:
            self._rest.append(second)
        if len(self._rest) == RESTED:
            self._judge()

    def _judge(self) -> None:
        period = pace(self.period, rate(self._rest))
        if period != self.period:
            self.period = period
            self._rest.clear()  # they were written at another pace

    @property
    def answering(self) -> bool:
        """Whether what is shown may still be the answer to a key, just being read."""
        return self._clock() - self._hand < ANSWERED

    @property
    def still(self) -> bool:
        """Whether this second passes without a painting that nobody asked for."""
        return self._turns % round(self.period / TURN) != 0

    def words(self) -> str:
        """The rate of the last seconds and, when it is not the usual one, the pace: `0.7kB/s`."""
        slow = f" each {self.period:.0f}s" if self.period > PACES[0] else ""
        return f"{_kilo(rate(self._lately))}{slow}"


def rate(seconds: deque[Second]) -> float:
    """Bytes a second; 0 before the first look."""
    return sum(s.size for s in seconds) / (sum(s.seconds for s in seconds) or 1.0)


def _kilo(rate: float) -> str:
    return f"{rate / 1000:.0f}kB/s" if rate >= 9950 else f"{rate / 1000:.1f}kB/s"
